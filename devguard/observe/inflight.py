"""Copies that are still on their way: read on the host too early, or their pinned source overwritten too early (DG304)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from devguard.knowledge.copies import mixed_ops
from devguard.knowledge.syncs import sync_ops, waits
from devguard.observe.copies_facts import CopyFact, UnsafeFact
from devguard.observe.copies_identity import Mark, mark_of
from devguard.observe.dispatch import Handlers, Op
from devguard.observe.entries import Entry
from devguard.observe.frames import RawSite
from devguard.observe.names import name_of
from devguard.observe.origins import storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.streams import StreamKey, Streams, current_stream, stream_key
from devguard.observe.tally import Tally

_FLIGHTS = 256
_TIDY_FROM = 32
# In-place ops that fill a host buffer. Others are noticed, without their line, by the version of the buffer's content.
_WRITERS = (
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ index_put_ masked_fill_ index_copy_ scatter_"
).split()
_HOST_READS = ("numpy", "tolist", "__repr__", "__format__", "__array__", "__reduce_ex__", "__deepcopy__", "__dlpack__")
_UNSEEN_SYNCS = (
    "__repr__",
    "__format__",
    "__reduce_ex__",
)  # of a device tensor: the dispatcher does not show their copy
_NO_READ = frozenset({"aten::is_pinned", "aten::record_stream", "aten::resize_", "aten::set_", "aten::is_same_size"})
_Tensor = torch.Tensor


class _Flight:
    """One copy on its way. `host` is the host's side of it."""

    __slots__ = ("fact", "host", "stream", "tick")

    def __init__(self, host: Mark, stream: StreamKey, tick: int, fact: CopyFact) -> None:
        self.host = host
        self.stream = stream
        self.tick = tick
        self.fact = fact


class InFlight:
    """Observer: a few attribute tests while nothing is in flight; looks at every op only while a copy to the host is."""

    name = "copies in flight"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.streams = Streams()
        self.landing: dict[int, _Flight] = {}  # host storages that a device still writes
        self.leaving: dict[int, _Flight] = {}  # pinned host storages that a device still reads
        self._exposed: dict[int, Mark] = {}  # host storages that NumPy can write unseen
        self._reads: dict[Any, bool] = {}
        self._look = recorder.shielded(self.name, self._op)
        shielded = recorder.shielded
        for op in sync_ops():
            handlers.after[op].append(shielded(self.name, self._synced_by_op))
        for op in _WRITERS:
            handlers.after[f"aten::{op}"].append(shielded(self.name, self._written))
        for method in _HOST_READS:
            handlers.entries_before[f"Tensor.{method}"].append(shielded(self.name, self._read_by_method))
        for method in _UNSEEN_SYNCS:
            handlers.entries[f"Tensor.{method}"].append(shielded(self.name, self._synced_by_method))
        for name, listener in (
            ("cuda.synchronize", self._device_synchronized),
            ("accelerator.synchronize", self._device_synchronized),
            ("Stream.synchronize", self._stream_synchronized),
            ("Event.synchronize", self._event_synchronized),
            ("Event.query", self._event_queried),
            ("Event.record", self._event_recorded),
            ("Event.wait", self._event_waited),
            ("Stream.wait_event", self._stream_waits_event),
            ("Stream.wait_stream", self._stream_waits_stream),
        ):
            handlers.entries[name].append(shielded(self.name, listener))

    def stop(self) -> None:
        """Forget everything."""
        self.handlers.every = tuple(h for h in self.handlers.every if h is not self._look)
        self.landing.clear()
        self.leaving.clear()
        self._exposed.clear()

    # -- what the copies observer tells -------------------------------------------------------------------------------

    def launched(self, host: Any, device: int, fact: CopyFact) -> None:
        """A device copies into `host` and nobody waits."""
        mark = mark_of(host)
        if mark is None:
            return
        self._tidy(self.landing)
        self.landing[mark[0]] = _Flight(mark, current_stream(device), self.streams.tick(), fact)
        if self._look not in self.handlers.every:
            self.handlers.every += (self._look,)

    def sent(self, host: Any, device: int, fact: CopyFact) -> None:
        """A device copies from the pinned `host` and nobody waits."""
        mark = mark_of(host)
        if mark is None:
            return
        before = self.leaving.get(mark[0])
        if before is not None and self._open(before):
            exposed = self._exposed.get(mark[0])
            if before.host[2][0] != mark[2][0]:
                self._unsafe(before, "overwritten", "", None, host, None)
            elif exposed is not None and not exposed[1].expired():
                self._unsafe(before, "overwritten", "numpy", None, host, None, certain=False)
        self._tidy(self.leaving)
        self.leaving[mark[0]] = _Flight(mark, current_stream(device), self.streams.tick(), fact)

    def waited(self, device: int) -> None:
        """The host waited for the current stream of a device, as every blocking copy does."""
        if self.landing or self.leaving:
            self.streams.stream_synchronized(current_stream(device))
            self._settle()

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _open(self, flight: _Flight) -> bool:
        return not flight.host[1].expired() and not self.streams.complete(flight.stream, flight.tick)

    def _tidy(self, flights: dict[int, _Flight]) -> None:
        if len(flights) < _TIDY_FROM:
            return
        for key in [key for key, flight in flights.items() if not self._open(flight)]:
            del flights[key]
        while len(flights) >= _FLIGHTS:
            del flights[next(iter(flights))]

    def _settle(self) -> None:
        """After a wait: what has landed needs no watching."""
        for flights in (self.landing, self.leaving):
            for key in [key for key, flight in flights.items() if not self._open(flight)]:
                del flights[key]
        if not self.landing and self.handlers.every:
            self.handlers.every = tuple(h for h in self.handlers.every if h is not self._look)

    def _unsafe(
        self,
        flight: _Flight,
        what: str,
        how: str,
        site: RawSite | None,
        host: Any,
        frame: Any,
        certain: bool = True,
    ) -> None:
        recorder = self.recorder
        key = (what, site, how)
        found = flight.fact.unsafe.get(key)
        if found is None:
            name = name_of(host, frame) if frame is not None else ""
            found = flight.fact.unsafe[key] = UnsafeFact(what, how, site, name, certain, Tally())
        found.tally.hit(recorder.steps.now, recorder.facts.warmup)

    # -- reads and writes by the host ---------------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        """Any op, before it runs, while something is landing."""
        reads = self._reads.get(op.func)
        if reads is None:
            reads = self._reads[op.func] = _may_read(op)
        if not reads or not self.landing:
            return
        for tensor in _tensors(op.args, op.kwargs):
            if tensor.get_device() < 0:
                key = storage_key(tensor)
                flight = self.landing.get(key) if key is not None else None
                if flight is not None and not _goes_to_device(op, tensor):
                    self._touched(flight, op.plan.short, op.site, tensor, op.frame)

    def _touched(self, flight: _Flight, how: str, site: RawSite | None, tensor: Any, frame: Any) -> None:
        if self._open(flight):
            self._unsafe(flight, "read", how, site, tensor, frame)
        self.landing.pop(flight.host[0], None)
        if not self.landing:
            self._settle()

    def _read_by_method(self, entry: Entry) -> None:
        owner = entry.owner
        if not isinstance(owner, _Tensor) or owner.get_device() >= 0:
            return
        if entry.name == "Tensor.numpy":
            self._expose(owner)
        if self.landing:
            key = storage_key(owner)
            flight = self.landing.get(key) if key is not None else None
            if flight is not None:
                self._touched(flight, entry.name.removeprefix("Tensor."), entry.site, owner, entry.frame)

    def _expose(self, tensor: Any) -> None:
        mark = mark_of(tensor) if tensor.is_pinned() else None
        if mark is not None:
            if len(self._exposed) >= _TIDY_FROM:
                del self._exposed[next(iter(self._exposed))]
            self._exposed[mark[0]] = mark

    def _written(self, op: Op) -> None:
        """An in-place op on a host buffer that may still be read by a device."""
        if not self.leaving or not op.args or not isinstance(op.args[0], _Tensor) or op.args[0].get_device() >= 0:
            return
        key = storage_key(op.args[0])
        flight = self.leaving.pop(key, None) if key is not None else None
        if flight is not None and self._open(flight):
            self._unsafe(flight, "overwritten", op.plan.short, op.site, op.args[0], op.frame)

    # -- waits --------------------------------------------------------------------------------------------------------

    def _synced_by_op(self, op: Op) -> None:
        """An op that waits for the current stream: what was before it there is complete."""
        if (self.landing or self.leaving) and waits(op.func, op.args, op.kwargs):
            device = next((t.get_device() for t in _tensors(op.args, op.kwargs) if t.get_device() >= 0), -1)
            if device >= 0:
                self.waited(device)

    def _synced_by_method(self, entry: Entry) -> None:
        if (self.landing or self.leaving) and isinstance(entry.owner, _Tensor) and entry.owner.get_device() >= 0:
            self.waited(entry.owner.get_device())

    def _device_synchronized(self, entry: Entry) -> None:
        if self.landing or self.leaving:
            asked = entry.args[0] if entry.args else entry.kwargs.get("device")
            index = asked if isinstance(asked, int) else torch.device(asked).index if asked is not None else None
            self.streams.device_synchronized(torch.cuda.current_device() if index is None else index)
            self._settle()

    def _stream_synchronized(self, entry: Entry) -> None:
        if self.landing or self.leaving:
            self.streams.stream_synchronized(stream_key(entry.owner))
            self._settle()

    def _event_synchronized(self, entry: Entry) -> None:
        if self.landing or self.leaving:
            self.streams.event_synchronized(entry.owner)
            self._settle()

    def _event_queried(self, entry: Entry) -> None:
        if entry.result:
            self._event_synchronized(entry)

    def _event_recorded(self, entry: Entry) -> None:
        if self.landing or self.leaving:
            self.streams.event_recorded(entry.owner, _stream_of(entry))

    def _event_waited(self, entry: Entry) -> None:
        if self.landing or self.leaving:
            self.streams.stream_waits_event(_stream_of(entry), entry.owner)

    def _stream_waits_event(self, entry: Entry) -> None:
        if (self.landing or self.leaving) and entry.args:
            self.streams.stream_waits_event(stream_key(entry.owner), entry.args[0])

    def _stream_waits_stream(self, entry: Entry) -> None:
        if (self.landing or self.leaving) and entry.args:
            self.streams.stream_waits_stream(stream_key(entry.owner), stream_key(entry.args[0]))


def _stream_of(entry: Entry) -> StreamKey:
    """The stream that an event's record() or wait() is about: its argument, else the current one."""
    stream = entry.args[0] if entry.args else entry.kwargs.get("stream")
    return stream_key(stream) if stream is not None else current_stream(torch.cuda.current_device())


def _tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, _Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, _Tensor))


def _may_read(op: Op) -> bool:
    """Can an op look at its operands' elements? Not one that only gives a view, or takes a shape."""
    schema, name = op.func._schema, op.plan.name
    if name in _NO_READ or name.endswith("_like") or name.startswith(("aten::new_", "aten::sym_", "prim::")):
        return False
    written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    views = any(r.alias_info is not None for r in schema.returns)
    return written or not views


def _goes_to_device(op: Op, tensor: Any) -> bool:
    """Is the host tensor only copied to or from a device by this op? That is queued behind the copy in flight."""
    name = op.plan.name
    if name == "aten::_to_copy":
        device = op.kwargs.get("device")
        return device is not None and device.type not in ("cpu", "meta")
    if name == "aten::copy_":
        return any(isinstance(other, _Tensor) and other.get_device() >= 0 for other in op.args[:2])
    return op.mixed and name in mixed_ops() and tensor.dim() > 0
