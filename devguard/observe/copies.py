"""Every copy between devices: where, of what, how often, asked for or not, and what became of the data before."""

from __future__ import annotations

from typing import Any

import torch

from devguard.knowledge.copies import mixed_ops
from devguard.observe import scopes, source
from devguard.observe.copies_facts import BACKWARD, OFFLOAD, PARALLEL, PRINT, SAVE, SET_UP, CopyFact, CopyFacts
from devguard.observe.copies_identity import Recent
from devguard.observe.copies_intent import (
    MAKERS,
    MOVES,
    READS,
    entry_of,
    given_data,
    in_backward,
    is_explicit,
    library_function,
    project_stack,
    purpose_of,
)
from devguard.observe.copies_name import assigned_number, index_text, moved_name, tensor_fact, written_name
from devguard.observe.copies_ops import bytes_of, copied_operands, is_host_mask, is_pinned, layout_of
from devguard.observe.discarded import Discarded
from devguard.observe.dispatch import Handlers, Op
from devguard.observe.entries import Entry
from devguard.observe.inflight import InFlight
from devguard.observe.loaders import Loaders
from devguard.observe.names import name_of
from devguard.observe.origins import Origin, shape_of, stations, storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.tally import Tally

_Tensor = torch.Tensor
_UNASKED = ("DG301", "DG309", "DG307")
_ASKED = ("DG302", "DG303", "DG306", "DG307", "DG308", "DG309")
_PLACES = 5000  # a program that writes code as it runs could have any number
_BURST = 3  # ops between two copies of one go
# Copies that somebody arranged: a guard on implicit copies leaves them alone.
_ARRANGED = (SET_UP, OFFLOAD, BACKWARD, PRINT, SAVE)


class _Copy:
    """One copy while it is being recorded."""

    __slots__ = (
        "argument",
        "data",
        "device",
        "entry",
        "how",
        "implicit",
        "non_blocking",
        "op",
        "purpose",
        "target",
        "target_device",
    )

    def __init__(self, op: Op, data: Any, target: Any, how: str, implicit: bool, non_blocking: bool) -> None:
        self.op = op
        self.data = data  # the tensor that is copied (the copy itself where the original was never seen)
        self.target = target  # the copy, or the tensor that it is written into or for
        self.how = how
        self.implicit = implicit
        self.non_blocking = non_blocking
        self.purpose = ""
        self.argument = ""  # the op's own name for what it copies unasked
        self.device: int = data.get_device()
        self.target_device: int = target.get_device()
        self.entry: Entry | None = None

    @property
    def direction(self) -> scopes.Direction:
        if self.device < 0:
            return "h2d"
        return "d2h" if self.target_device < 0 else "d2d"


class Copies:
    """Observer: handlers for the ops that copy, and its parts for loaders, discarded moves and copies in flight."""

    name = "copies"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(CopyFacts)
        self.recent = Recent()
        self.rules = mixed_ops()
        self.loaders = Loaders(recorder)
        self.inflight = InFlight(recorder, handlers)
        self.discarded = Discarded(recorder, handlers)
        shielded = recorder.shielded
        handlers.before["aten::_to_copy"].append(shielded("guard of copies", self._before_move))
        handlers.after["aten::_to_copy"].append(shielded(self.name, self._moved))
        handlers.after["aten::lift_fresh"].append(shielded(self.name, self._made))
        handlers.mixed_before.append(shielded("guard of copies", self._before_mixed))
        handlers.mixed.append(shielded(self.name, self._mixed))
        for name in (*MAKERS, "Tensor.type"):  # to be seen on the stack of intents, an entry point needs a listener
            handlers.entries[name].append(_nothing)

    def start(self) -> None:
        """Patch what the loaders need; the rest are handlers."""
        self.loaders.start()

    def stop(self) -> None:
        """Give back what was patched and forget what was in flight: waits are not seen from now on."""
        self.loaders.stop()
        self.inflight.stop()

    # -- before a copy: only guard() scopes ---------------------------------------------------------------------------

    def _before_move(self, op: Op) -> None:
        if not scopes.active():
            return
        data = op.args[0]
        device = op.kwargs.get("device")
        if device is None or data.is_meta or device.type == "meta":
            return
        target = (
            -1 if device.type == "cpu" else device.index if device.index is not None else torch.cuda.current_device()
        )
        if target != data.get_device():
            copy = self._move(op, data, data)
            copy.target_device = target
            self._guard(copy)

    def _before_mixed(self, op: Op) -> None:
        if scopes.active() and op.plan.name in self.rules:
            for argument, data, target in copied_operands(self.rules[op.plan.name], op):
                self._guard(self._unasked(op, argument, data, target))

    def _guard(self, copy: _Copy) -> None:
        if copy.purpose in _ARRANGED and copy.purpose not in (PRINT, SAVE):
            return
        scopes.check("copy", copy.direction, copy.implicit, lambda: _describe(copy))

    # -- the ops ------------------------------------------------------------------------------------------------------

    def _move(self, op: Op, data: Any, result: Any) -> _Copy:
        entry = entry_of(self.recorder.thread.intents)
        explicit = is_explicit(entry)
        if entry is not None and (explicit or entry.name in MAKERS):
            how = entry.name.rpartition(".")[2]
        else:
            how = library_function(op.frame) or op.plan.short
        copy = _Copy(op, data, result, how, not explicit, bool(op.kwargs.get("non_blocking", False)))
        copy.entry = entry
        copy.purpose = purpose_of(op.frame)
        if copy.purpose == PARALLEL:
            copy.implicit = False  # DataParallel moves its inputs because it was asked to
        if entry is not None and entry.name in READS and not copy.purpose:
            copy.purpose = PRINT if entry.name in ("Tensor.__repr__", "Tensor.__format__") else ""
        return copy

    def _moved(self, op: Op) -> None:
        data, result = op.args[0], op.result
        if data.get_device() == result.get_device() or data.is_meta or result.is_meta or not data.numel():
            return
        copy = self._move(op, data, result)
        if copy.device >= 0 and self.recorder.origins.of(data) is None:
            self._put_unseen_origin(data)
        asked = copy.entry is not None and copy.entry.name in MOVES and not copy.purpose
        if asked and copy.direction == "h2d" and in_backward() and self._came_from_device(copy) is not None:
            copy.purpose = OFFLOAD  # saved tensors that a hook had put away
        self._record(copy)

    def _put_unseen_origin(self, data: Any) -> None:
        """A copy's history goes on from its source's: it must have one for a round trip to be seen."""
        key = storage_key(data)
        if key is not None:
            self.recorder.origins.put(key, Origin(None, "unseen", data.get_device(), self.recorder.steps.now, None))

    def _made(self, op: Op) -> None:
        """torch.tensor(list, device=…), and lists as indices: the copy itself is hidden from a dispatch mode."""
        result = op.result
        if result.get_device() < 0 or result.is_meta or not result.numel():
            return
        entry = entry_of(self.recorder.thread.intents)
        if entry is not None and entry.name in MAKERS and isinstance(given_data(entry), _Tensor):
            return
        how = entry.name.rpartition(".")[2] if entry is not None and entry.name in MAKERS else "list index"
        copy = _Copy(op, result, result, how, True, False)
        copy.device = -1
        copy.entry = entry
        copy.purpose = purpose_of(op.frame)
        if scopes.active():
            self._guard(copy)
        self._record(copy)

    def _unasked(self, op: Op, argument: str, data: Any, target: Any) -> _Copy:
        name = op.plan.name.removeprefix("aten::")
        non_blocking = name == "copy_" and bool(op.argument(2, "non_blocking", False))
        copy = _Copy(op, data, target, name, not non_blocking, non_blocking)
        copy.argument = argument
        copy.purpose = purpose_of(op.frame)
        return copy

    def _mixed(self, op: Op) -> None:
        if op.error is not None:
            return
        rule = self.rules.get(op.plan.name)
        if rule is not None:
            for argument, data, target in copied_operands(rule, op):
                if not data.is_meta and not target.is_meta:
                    self._record(self._unasked(op, argument, data, target), rule.op)

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, copy: _Copy, mixed_op: str = "") -> None:
        recorder = self.recorder
        if copy.purpose not in _ARRANGED and scopes.active():
            codes = _UNASKED if copy.implicit else _ASKED
            if any(scopes.allowed(code) for code in codes):
                return
        op = copy.op
        direction = copy.direction
        seen = copy.data is not copy.target
        host = copy.data if direction == "h2d" else copy.target
        if direction == "d2d" or not seen:
            pinned = False
        elif direction == "d2h" and not mixed_op:
            pinned = copy.non_blocking  # .to("cpu", non_blocking=True) puts its result into pinned memory
        else:
            pinned = is_pinned(host)
        mask = bool(mixed_op) and op.plan.name.startswith("aten::index") and is_host_mask(copy.data)
        blocking = direction != "d2d" and not (copy.non_blocking and pinned) and not mask
        key = (op.site, op.plan.short, copy.how, copy.device, copy.target_device, copy.implicit, copy.purpose,
               copy.non_blocking, pinned, copy.argument)  # fmt: skip
        origin = recorder.origins.of(copy.data) if seen else None
        fact = self.facts.copies.get(key)
        if fact is None:
            if len(self.facts.copies) >= _PLACES:
                recorder.facts.not_seen(f"copies at more than {_PLACES} places", None, recorder.steps.now)
                return
            fact = self.facts.copies[key] = self._fact(copy, origin, pinned, blocking)
        step = recorder.steps.now
        fact.tally.hit(step, recorder.facts.warmup, bytes_of(copy.data))
        ops = recorder.facts.ops
        fresh = copy.purpose == SET_UP and copy.direction == "h2d" and _made_here(origin)
        if ops - fact.last_op > _BURST and not (fresh and fact.bursts):
            fact.bursts += 1
        fact.last_op = ops
        if scopes.active() and scopes.level_of(direction, copy.implicit) == "log":
            fact.logged = True
        if seen and copy.purpose not in _ARRANGED:
            self._history(copy, fact, key, origin, step)
        self._in_flight(copy, fact, host)

    def _fact(self, copy: _Copy, origin: Origin | None, pinned: bool, blocking: bool) -> CopyFact:
        op = copy.op
        path, kind = self.recorder.module_path()
        seen = copy.data is not copy.target
        given = source.assigned_name(op.site)
        source_device = str(copy.data.device) if seen else "cpu"
        if not seen or (copy.implicit and copy.entry is not None and copy.entry.name in MAKERS):
            name, role = given, "result"
        elif copy.implicit and not copy.argument and origin is not None and origin.site == op.site:
            # Made and copied inside a library function: it has no name of the user's, but for an array used as an index.
            name, role = index_text(op.frame), "operand"
        elif copy.entry is not None and copy.entry.name in MOVES:
            name, role = moved_name(copy.data, op.frame, origin), "operand"
        elif copy.argument == "values" and not copy.data.dim() and origin is None:
            name, role = assigned_number(op.frame), "operand"
        elif copy.argument == "src":
            name, role = written_name(copy.data, op.frame, origin), "operand"
        else:
            name, role = name_of(copy.data, op.frame, origin), "operand"
        return CopyFact(
            site=op.site,
            op=op.plan.short,
            how=copy.how,
            argument=copy.argument,
            source=source_device,
            target=str(copy.target.device),
            implicit=copy.implicit,
            purpose=copy.purpose,
            non_blocking=copy.non_blocking,
            pinned=pinned,
            blocking=blocking,
            tensor=tensor_fact(copy.data, name, origin, role=role, device=source_device),
            given_name=given,
            module=path,
            module_type=kind,
            stack=project_stack(op.frame),
            tally=Tally(),
        )

    def _history(self, copy: _Copy, fact: CopyFact, key: Any, origin: Origin | None, step: int) -> None:
        """What the data had been through before."""
        if copy.direction == "d2h":
            return
        if self.recent.seen(key, copy.data):
            fact.again += 1
        if origin is not None:
            site, place = origin.site, copy.op.site
            if origin.step == step and site is not None and place is not None and site[0] is place[0]:
                fact.fresh += 1
            out = self._came_from_device(copy)
            # The same data only while they are as they came; and what left at set-up is no trip but a start.
            if out is not None and out.step >= step - 1 and layout_of(copy.data)[0] <= 0:
                fact.returned += 1
                fact.went_out = out.site
            loader = self.loaders.of(origin)
            if loader is not None:
                fact.loader = loader
                fact.from_loader += 1

    def _came_from_device(self, copy: _Copy) -> Origin | None:
        """The station at which data that now go to a device had left it, if they are the same data.

        From the host, any accelerator counts: data that go from one to another by way of the host waited twice for nothing."""
        left: Origin | None = None
        for station in stations(self.recorder.origins.of(copy.data)):
            if station.device >= 0 and (station.device == copy.target_device or copy.device < 0):
                return left
            left = station
        return None

    def _in_flight(self, copy: _Copy, fact: CopyFact, host: Any) -> None:
        direction = copy.direction
        if direction == "d2d":
            return
        device = copy.target_device if direction == "h2d" else copy.device
        if fact.blocking:
            self.inflight.waited(device)
        elif direction == "d2h":
            self.inflight.launched(host, device, fact)
        elif copy.non_blocking:
            self.inflight.sent(host, device, fact)


def _made_here(origin: Origin | None) -> bool:
    """Was the data made on its device, and never moved there? A module full of such data is a new one."""
    return origin is not None and origin.parent is None


def _nothing(entry: Entry) -> None:
    """A listener that only makes an entry point visible to the ops below it."""


def _describe(copy: _Copy) -> str:
    """One line for DeviceGuardError."""
    data = copy.data
    op = copy.op
    name = (
        moved_name(data, op.frame, None)
        if copy.data is not copy.target or copy.entry
        else source.assigned_name(op.site)
    )
    shape = ", ".join(str(size) for size in shape_of(data))
    where = f"from {_device(copy.device)} to {_device(copy.target_device)}"
    asked = "unasked by" if copy.implicit else "by"
    return f"{name or 'a tensor'} ({shape}) {data.dtype} is copied {where}, {asked} {copy.how}"


def _device(index: int) -> str:
    return "cpu" if index < 0 else f"cuda:{index}"
