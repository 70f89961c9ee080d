"""Operations and modules that refused their operands because of devices: who was there, and how they came to be where they are.

Nothing is compared while all goes well. When an operation raises, its operands, the modules that run and everything these hold and were
given are looked at once, so that one failure tells of all that is on the wrong device around it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from devguard.knowledge.device_errors import generator_devices, host_argument, is_device_error, replicated_devices
from devguard.observe.arrivals import Arrivals
from devguard.observe.compiled import compiled_operands
from devguard.observe.consistency_facts import ConsistencyFacts, Mismatch, Move, OperandFact, Stray
from devguard.observe.consistency_locate import Locator
from devguard.observe.consistency_survey import survey
from devguard.observe.dispatch import Handlers, Op
from devguard.observe.frames import (
    PROJECT,
    RawSite,
    kind_of,
    kind_of_file,
    own_site,
    project_frame,
    raw_site,
    user_frame,
)
from devguard.observe.moves import Moves, is_at
from devguard.observe.names import name_where, search
from devguard.observe.namespaces import instance_dict
from devguard.observe.origins import storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.registrations import Registrations
from devguard.observe.scan import Held, slots
from devguard.observe.site import Site
from devguard.observe.source import called_text, operand_values
from devguard.observe.source_search import assignment_site, attribute_site, class_place, iterated_name
from devguard.observe.tally import Tally

_Tensor = torch.Tensor
_Generator = torch._C.Generator  # torch.Generator may be a stand-in
_FRAMES = 24
_MISMATCHES = 200  # different ones; a program that fails in more ways than that has been told enough


class Consistency:
    """Observer: failures by device, moves of modules, and what stayed behind."""

    name = "consistency"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(ConsistencyFacts)
        self.moves = Moves(recorder, self.facts)
        self.registrations = Registrations(recorder, self.facts, self.moves)
        Arrivals(recorder, handlers)
        self._handled: tuple[int, str] = (0, "")
        self._last: Mismatch | None = None
        self._strays: dict[object, tuple[weakref.ref[Any], str]] = {}
        self.moves.listeners.append(self.left_behind)
        handlers.failed.append(recorder.shielded("device mismatches", self.op_failed))
        stack: Any = recorder.observers.get("module stack")
        if stack is not None:
            stack.failed.append(recorder.shielded("device mismatches", self.module_failed))

    def start(self) -> None:
        """Wrap what moves modules."""
        self.moves.start()
        self.registrations.start()

    def stop(self) -> None:
        """Give everything back."""
        self.registrations.stop()
        self.moves.stop()

    def collect(self) -> None:
        """Before a report: ties that were mended and tensors that have left their place are no mistakes."""
        self.moves.collect()
        self.registrations.collect()
        for key, (reference, attribute) in list(self._strays.items()):
            holder, stray = reference(), self.facts.strays.get(key)
            if stray is not None and (holder is None or not _still_there(holder, attribute, stray)):
                del self.facts.strays[key]
                del self._strays[key]

    # -- failures -----------------------------------------------------------------------------------------------------

    def op_failed(self, op: Op) -> None:
        """An op raised: because of devices?"""
        text = str(op.error)
        if not is_device_error(text):
            return
        self._handled, self._last = (id(op.error), text), None
        operands = op.operands()
        for argument, value in zip(op.func._schema.arguments, op.args, strict=False):
            if isinstance(value, _Generator):
                operands.append((argument.name, value))
        operands.extend((name, value) for name, value in op.kwargs.items() if isinstance(value, _Generator))
        self.record(op.plan.short, operands, text, op.frame)

    def module_failed(self, module: Any, args: Any, kwargs: Any, error: BaseException) -> None:
        """An exception leaves a module: one that no op has shown?"""
        self.raised(error)
        if self._last is None and is_device_error(str(error)):
            given = compiled_operands(
                module, args, kwargs
            )  # no op of a compiled region is seen, but what it was called with is
            if len({str(tensor.device) for _, tensor in given}) > 1:
                self.record("torch.compile", given, str(error), sys._getframe())

    def ended_by(self, error: BaseException) -> None:
        """An exception ends the watched program."""
        self.raised(error, final=True)

    def raised(self, error: BaseException, final: bool = False) -> None:
        """An exception that may be about devices, and may have been looked at already."""
        text = str(error)
        if not is_device_error(text):
            return
        frames = [(tb.tb_frame, tb.tb_lasti) for tb in _tracebacks(error)]
        if self._last is not None and self._handled[1] != text and self._handled[1] in text:
            self._handled = (id(error), text)  # raised again by another thread, which quotes the first
        elif self._last is not None and any((id(e), str(e)) == self._handled for e in _reasons(error)):
            self._handled = (id(error), text)  # a library tells the first in its own words
        elif self._handled != (id(error), text):
            self._handled, self._last = (id(error), text), None
            self._from_frames(frames[-_FRAMES:], text)
        if not final:
            return
        innermost = next((frame for frame, _ in reversed(frames) if kind_of(frame.f_code)), None)
        if self._last is None:  # nothing explains it: the message and the line at least
            self.record("", [], text, innermost)
        if self._last is not None:
            self._last.ended = True
            if self._last.site is None:  # it came from a thread of the backward pass, which has no frame of the user's
                lasti = next((lasti for frame, lasti in reversed(frames) if frame is innermost), 0)
                self._last.site = None if innermost is None else (innermost.f_code, lasti)

    def _from_frames(self, frames: list[tuple[FrameType, int]], text: str) -> None:
        """Find the operands of a call that was refused before any op could show it."""
        if (asked_and_found := replicated_devices(text)) is not None:
            self._replicated(frames, asked_and_found, text)
            return
        for frame, lasti in reversed(frames):
            if frame.f_code.co_name.startswith("parameters_to_vector") and (done := frame.f_locals.get("vec")):
                self.record(frame.f_code.co_name, [("self", done[0]), ("param", frame.f_locals["param"])], text, frame)
                return
            operands = operand_values(frame, lasti)
            if generator_devices(text):
                operands = operand_values(frame, lasti, _Generator) if kind_of(frame.f_code) else []
            devices = {str(tensor.device) for _, tensor in operands}
            if len(devices) > 1 or (devices and (host_argument(text) or generator_devices(text))):
                self.record(_called(frame, lasti), operands, text, frame)
                return

    def _replicated(self, frames: list[tuple[FrameType, int]], devices: tuple[str, str], text: str) -> None:
        """DataParallel refuses a module: one tensor of it on the device that was found, and one where it should be, if there is one."""
        for frame, _ in reversed(frames):
            parallel = frame.f_locals.get("self")
            if isinstance(parallel, torch.nn.DataParallel):
                held = {str(slot.tensor.device): (slot.path, slot.tensor) for slot in reversed(slots(parallel.module))}
                self.record("DataParallel", [held[d] for d in devices if d in held], text, frame)
                return

    def record(self, op: str, operands: list[tuple[str, Any]], text: str, frame: FrameType | None) -> None:
        """Remember a mismatch; only the first at one place is looked at closely."""
        recorder, facts = self.recorder, self.facts
        site = raw_site(frame)
        stack = recorder.thread.modules
        key = (site, op, type(stack[-1]).__name__ if stack else "")
        known = facts.mismatches.get(key)
        if known is None:
            if len(facts.mismatches) >= _MISMATCHES:
                return
            known = facts.mismatches[key] = self._examine(site, op, operands, text, frame)
            optimizers: Any = recorder.observers.get("optimizers")
            if optimizers is not None:
                optimizers.program_failed(frame)
        known.tally.hit(recorder.steps.now, recorder.facts.warmup)
        self._last = known

    def _examine(
        self, site: RawSite | None, op: str, operands: list[tuple[str, Any]], text: str, frame: FrameType | None
    ) -> Mismatch:
        locator = Locator(self.recorder, self.moves, frame)
        locator.late = self.registrations.late
        host = host_argument(text)
        if host:
            operands = _as_given(host, operands, project_frame(frame))
        found = [
            self._generator(name, value, locator, frame)
            if isinstance(value, _Generator)
            else locator.operand(name, value)
            for name, value in operands
        ]
        calls = [locator.module_fact(call.module) for call in reversed(locator.calls)]
        mismatch = Mismatch(
            site=site, op=op, error=text, operands=found, stack=tuple(calls),
            root=locator.module_fact(locator.root) if locator.root is not None else None, tally=Tally(),
            through=_through(frame), homes=locator.homes,
        )  # fmt: skip
        if host:
            mismatch.wrong, mismatch.expected = _host_argument(host, found), "cpu"
            mismatch.here = host == "self"
            if host == "pin_memory":  # what the loader pins is the loader's to change
                for operand in found:
                    operand.assigned = assignment_site(iterated_name(user_frame(frame)), frame)
        elif (devices := replicated_devices(text)) is not None and len(found) == 1:
            mismatch.wrong, mismatch.expected = found[0].argument, devices[0]
        elif (devices := generator_devices(text)) is not None:
            mismatch.wrong, mismatch.expected = "generator", devices[0]
        mismatch.others = survey(locator, [value for _, value in operands], frame)
        return mismatch

    def _generator(self, argument: str, generator: Any, locator: Locator, frame: FrameType | None) -> OperandFact:
        # A generator comes out of the dispatcher as another Python object.
        data = getattr(generator, "_cdata", None)

        def same(other: Any) -> bool:
            return issubclass(type(other), _Generator) and getattr(other, "_cdata", None) == data

        name = name_where(same, frame)
        fact = OperandFact(name or argument, "generator", argument, str(generator.device), (), "")
        if "." in name:
            fact.assigned = _stored_at(same, frame)
        found = assignment_site(name, frame)
        if found is not None and ("." not in name or name.rpartition(".")[2] in found.text):  # not what merely got it
            fact.assigned = fact.assigned or found
        # One that the program did not make is its loader's: `for batch in loader`.
        fact.assigned = fact.assigned or assignment_site(iterated_name(user_frame(frame)), frame)
        return fact

    # -- what a move leaves behind ------------------------------------------------------------------------------------

    def left_behind(self, module: Any, move: Move, found: list[Held]) -> None:
        """A module was moved: remember what it holds elsewhere, in case it never meets the module's device."""
        locator: Locator | None = None
        for held in found:
            tensors = [held.obj] if isinstance(held.obj, _Tensor) else [slot.tensor for slot in slots(held.obj)]
            tensor = next((t for t in tensors if not is_at(t, move.target)), None)
            if tensor is None or (tensor is held.obj and tensor.dim() == 0) or len(self.facts.strays) >= _MISMATCHES:
                continue
            key = storage_key(tensor)
            if key is None:
                continue
            locator = locator or Locator(self.recorder, self.moves, None)
            operand = locator.operand("", tensor)
            if operand.kind in ("attribute", "hidden"):
                self.facts.strays[key] = Stray(operand, move, key)
                self._strays[key] = (weakref.ref(held.holder), held.attribute)


def _stored_at(same: Callable[[Any], bool], frame: FrameType | None) -> Site | None:
    """The statement that stores an object in an attribute, where a variable leads to the attribute's owner."""
    found: list[tuple[tuple[str, str], str]] = []

    def owns(other: Any) -> bool:
        place = class_place(type(other))
        if place is not None and kind_of_file(place[0]) == PROJECT:
            found.extend((place, key) for key, value in list(instance_dict(other).items()) if same(value))
        return bool(found)

    name_where(owns, frame)
    return attribute_site((found[0][0],), found[0][1]) if found else None


def _still_there(holder: Any, attribute: str, stray: Stray) -> bool:
    own = holder.__dict__

    def same(other: Any) -> bool:
        if not issubclass(type(other), _Tensor):
            return False
        return storage_key(other) == stray.key and str(other.device) == stray.operand.device

    return attribute in own and search([("", own[attribute])], same, 8) is not None


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that an exception was raised from, or while they were handled."""
    for _ in range(8):
        reason = error.__cause__ or error.__context__
        if reason is None:
            return
        yield reason
        error = reason


def _tracebacks(error: BaseException) -> list[Any]:
    found = []
    tb = error.__traceback__
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def _called(frame: FrameType, lasti: int) -> str:
    """A name for what was called at a frame's instruction: the source line's call, as `_VF.lstm`."""
    return called_text(frame.f_code, lasti) or frame.f_code.co_name


def _through(frame: FrameType | None) -> tuple[RawSite, ...]:
    """The sites of the frames outside PyTorch around a failure, innermost first."""
    found: list[RawSite] = []
    while frame is not None and len(found) < _FRAMES:
        if kind_of(frame.f_code):
            found.append(own_site(frame))
        frame = frame.f_back
    return tuple(found)


def _as_given(host: str, operands: list[tuple[str, Any]], frame: FrameType | None) -> list[tuple[str, Any]]:
    """The operands, with the user's own argument in the place of one that PyTorch has sorted or copied before it refused it."""
    given = operand_values(frame, frame.f_lasti) if frame is not None else []
    keys = {storage_key(tensor) for _, tensor in operands if isinstance(tensor, _Tensor)}
    elsewhere = [t for _, t in given if t.device.type != "cpu" and not t.is_floating_point()]
    if not elsewhere or any(storage_key(tensor) in keys for tensor in elsewhere):
        return operands
    others = [(name, tensor) for name, tensor in operands if name.split(".")[-1].split("[")[0] != host]
    return [(host, elsewhere[-1]), *others]


def _host_argument(name: str, operands: list[OperandFact]) -> str:
    """The argument that must be on the host, by its name, or the only one that is not there."""
    for operand in operands:
        if operand.argument.split(".")[-1].split("[")[0] == name:
            return operand.argument
    elsewhere = [operand for operand in operands if operand.device != "cpu"]
    integers = [operand for operand in elsewhere if operand.dtype.startswith("int")]
    return (integers or elsewhere or operands)[-1].argument if operands else name
