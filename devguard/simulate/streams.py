"""Streams and events of simulated devices, and which work the host can know to be complete.

Work runs when it is asked for. What is kept is order: how far each stream lets others run before it goes on, so that a copy
that is still on its way (transfers.py) arrives when a synchronization covers it, and only then.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from devguard.simulate import state
from devguard.simulate.devices import Devices

Key = tuple[int, int]  # index of the device, number of the stream on it
View = dict[Key, int]  # how much of each stream's work is covered

_POOL = 32  # streams of one device and priority: the 33rd is the first one again, as in PyTorch
_FIRST_HANDLE = 0x5D0000000
_DEVICE_TYPE = 1  # CUDA's number in c10::DeviceType


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, int] = {}


class Timeline:
    """The streams of one simulation: a vector clock, the current stream of each thread, and who wants to know of waits."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.arrive: Callable[[View], None] = lambda view: None  # called when the host knows `view` to be complete
        self.capturing: Any = None  # the graph that records, if one does
        self.numbers = itertools.count(1)
        self._work: dict[Key, int] = {}
        self._waited: dict[Key, View] = {}
        self._made = [itertools.count() for _ in range(devices.count)]
        self._current = _Current()

    def new_stream(self, index: int, priority: int) -> int:
        """The number of another stream on a device."""
        return (next(self._made[index]) % _POOL + 1) * 2 + (1 if priority < 0 else 0)

    def current(self, index: int | None = None) -> Key:
        """The stream that work of this thread goes to on a device (by default the current one)."""
        index = self.devices.current if index is None else index
        return index, self._current.streams.get(index, 0)

    def set_current(self, key: Key) -> None:
        """Let this thread's work on that device go to another stream."""
        self._current.streams[key[0]] = key[1]

    def issue(self, key: Key) -> int:
        """One more piece of work is put into a stream; returns its number there."""
        self._work[key] = number = self._work.get(key, 0) + 1
        return number

    def reach(self, key: Key) -> View:
        """All work that is done before whatever is put into the stream next."""
        return {**self._waited.get(key, {}), key: self._work.get(key, 0)}

    def wait(self, key: Key, view: Mapping[Key, int]) -> None:
        """The stream goes on only after `view`."""
        known = self._waited.setdefault(key, {})
        for other, number in view.items():
            if number > known.get(other, 0):
                known[other] = number

    def synchronize(self, index: int | None = None) -> None:
        """The host has waited for a whole device."""
        index = self.devices.current if index is None else index
        self.arrive({key: number for key, number in self._work.items() if key[0] == index})

    def host_waits_for_current(self, index: int) -> None:
        """The host has waited for this thread's stream on a device: an op that reads a result, a blocking copy."""
        self.arrive(self.reach(self.current(index)))


def _line() -> Timeline:
    return state.current().timeline


def _key(stream: Any) -> Key:
    return stream.device_index, stream.stream_id


_PlainStream: Any = torch.Stream
_PlainEvent: Any = torch.Event


class Stream(_PlainStream):  # type: ignore[misc]
    """torch.cuda.Stream on a simulated device."""

    priority: int

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        line = _line()
        if "stream_id" in kwargs:
            index, number = kwargs["device_index"], kwargs["stream_id"]
        else:
            index = line.devices.index(device)
            number = kwargs["stream_ptr"] if "stream_ptr" in kwargs else line.new_stream(index, priority)
        made = super().__new__(cls, stream_id=number, device_index=index, device_type=_DEVICE_TYPE)
        made.priority = priority
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def cuda_stream(self) -> int:
        return _FIRST_HANDLE + 64 * self.stream_id if self.stream_id else 0

    @property
    def _as_parameter_(self) -> Any:
        return ctypes.c_void_p(self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        line = _line()
        line.arrive(line.reach(_key(self)))  # a program that asks again and again must come to an end
        return True

    def synchronize(self) -> None:
        line = _line()
        line.arrive(line.reach(_key(self)))

    def is_capturing(self) -> bool:
        return _line().capturing is not None

    def native_handle(self) -> int:
        return self.cuda_stream

    def __enter__(self) -> Any:
        line = _line()
        self.__dict__.setdefault("_before", []).append((line.devices.current, line.current(self.device_index)))
        line.devices.exchange(self.device_index)
        line.set_current(_key(self))
        return self

    def __exit__(self, *exc: object) -> None:
        line = _line()
        index, key = self.__dict__["_before"].pop()
        line.set_current(key)
        line.devices.exchange(index)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _PlainStream) and _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Stream' object")


class ExternalStream(Stream):
    """A stream made by another library: known by its pointer."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
        return super().__new__(cls, device, stream_ptr=stream_ptr)


class Event(_PlainEvent):  # type: ignore[misc]
    """torch.cuda.Event on a simulated device."""

    _timing: bool
    _view: View | None  # what is done when the event is; None: not recorded
    _time: float
    _index: int

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
                external: bool = False, *, device: Any = None) -> Any:  # fmt: skip
        made = super().__new__(cls)
        made._timing, made._view, made._time, made._index = enable_timing, None, 0.0, _line().devices.index(device)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def cuda_event(self) -> int:
        return 0 if self._view is None else id(self)

    @property
    def event_id(self) -> int:
        return self.cuda_event

    @property
    def device(self) -> torch.device:
        return _line().devices.shown[self._index]

    @property
    def _as_parameter_(self) -> Any:
        return ctypes.c_void_p(self.cuda_event)

    def record(self, stream: Any = None) -> None:
        line = _line()
        key = line.current() if stream is None else _key(stream)
        self._index, self._view, self._time = key[0], line.reach(key), time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        line = _line()
        line.wait(line.current() if stream is None else _key(stream), self._view or {})

    def query(self) -> bool:
        _line().arrive(self._view or {})
        return True

    def synchronize(self) -> None:
        _line().arrive(self._view or {})

    def elapsed_time(self, end_event: Any) -> float:
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._view is None or end_event._view is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._time - self._time) * 1e3

    def ipc_handle(self) -> bytes:
        return id(self).to_bytes(64, "little")

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Event' object")


for _made in (Stream, ExternalStream, Event):
    _made.__module__ = "torch.cuda.streams"


class _Either(type):
    """A class that stands for `plain` and makes `made` where a simulated device is meant."""

    plain: type[Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.plain)


def generic(plain: type[Any], made: type[Any], devices: Devices) -> type[Any]:
    """torch.Stream or torch.Event: of the simulated device, unless another device is asked for."""

    def new(cls: type[Any], device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "device_type" in kwargs:
            ours = kwargs["device_type"] == _DEVICE_TYPE
        else:
            ours = device is None or devices.resolve(device) is not None
        if not ours:
            return plain(device, *args, **kwargs) if device is not None else plain(*args, **kwargs)
        return made(*args, device=device, **kwargs)

    return _Either(plain.__name__, (), {"__new__": new, "plain": plain, "__module__": "torch"})
