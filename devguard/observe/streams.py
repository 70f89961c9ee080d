"""What the host can know to be complete: streams in order, events, and who waited for whom. Reads no device state."""

from __future__ import annotations

from typing import Any

import torch

StreamKey = tuple[int, int]  # device index, the stream's handle

_EVENTS = 256


def current_stream(device: int) -> StreamKey:
    """The stream that work on an accelerator's device is put into now."""
    try:
        return stream_key(torch.cuda.current_stream(device))
    except (RuntimeError, AssertionError, AttributeError, TypeError, ValueError):
        return device, 0


def stream_key(stream: Any) -> StreamKey:
    """What identifies a stream."""
    index = getattr(stream, "device_index", None)
    if index is None:
        index = getattr(getattr(stream, "device", None), "index", None)
    return int(index or 0), int(getattr(stream, "cuda_stream", 0) or 0)


class Streams:
    """A vector clock over streams. Every copy takes a tick; a wait of the host makes all ticks it covers complete."""

    def __init__(self) -> None:
        self.clock = 0
        self._done: dict[StreamKey, int] = {}
        self._device_done: dict[int, int] = {}
        self._waited: dict[
            StreamKey, dict[StreamKey, int]
        ] = {}  # a stream -> how far it lets others run before it goes on
        self._events: dict[int, dict[StreamKey, int]] = {}

    def tick(self) -> int:
        """One more piece of work is put into a stream."""
        self.clock += 1
        return self.clock

    def complete(self, stream: StreamKey, tick: int) -> bool:
        """Is it known to the host that the work of `tick` in `stream` has ended?"""
        return tick <= self._done.get(stream, 0) or tick <= self._device_done.get(stream[0], 0)

    def _reach(self, stream: StreamKey) -> dict[StreamKey, int]:
        return {**self._waited.get(stream, {}), stream: self.clock}

    def host_waits(self, reached: dict[StreamKey, int]) -> None:
        """The host has waited until all of `reached` is complete."""
        for stream, tick in reached.items():
            if tick > self._done.get(stream, 0):
                self._done[stream] = tick

    def stream_synchronized(self, stream: StreamKey) -> None:
        """The host has waited for a stream."""
        self.host_waits(self._reach(stream))

    def device_synchronized(self, device: int) -> None:
        """The host has waited for a whole device."""
        self._device_done[device] = self.clock

    def event_recorded(self, event: Any, stream: StreamKey) -> None:
        """An event was put into a stream. Known by its address: one that is gone was waited for or never will be."""
        if len(self._events) >= _EVENTS:
            del self._events[next(iter(self._events))]
        self._events[id(event)] = self._reach(stream)

    def event_synchronized(self, event: Any) -> None:
        """The host has waited for an event."""
        self.host_waits(self._events.get(id(event), {}))

    def stream_waits_event(self, stream: StreamKey, event: Any) -> None:
        """A stream goes on only after an event."""
        self._wait(stream, self._events.get(id(event), {}))

    def stream_waits_stream(self, stream: StreamKey, other: StreamKey) -> None:
        """A stream goes on only after what is in another one by now."""
        self._wait(stream, self._reach(other))

    def _wait(self, stream: StreamKey, reached: dict[StreamKey, int]) -> None:
        known = self._waited.setdefault(stream, {})
        for other, tick in reached.items():
            known[other] = max(tick, known.get(other, 0))
