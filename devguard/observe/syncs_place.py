"""Whose wait is it? From the stack at an op that waits: the user's expression, or the function of PyTorch that hides it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from devguard.knowledge.syncs_library import BACKWARD, COMPOSITES, LIBRARY, TRANSPARENT, LibrarySync
from devguard.knowledge.syncs_table import SyncOp
from devguard.observe.copies_facts import OFFLOAD, PARALLEL, SET_UP, SPLIT
from devguard.observe.copies_intent import purpose_of
from devguard.observe.frames import RawSite, kind_of
from devguard.observe.namespaces import Scope
from devguard.observe.symbolize import called_from, where
from devguard.observe.syncs_expression import UNKNOWN, Reading, reading_at

_TORCH_ROOT = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
# Ops that say nothing of why they wait: what is around them does.
GENERIC = frozenset({"aten::_local_scalar_dense", "aten::_to_copy", "aten::equal", "aten::allclose"})
_ENTRIES = 16  # of a list of sizes
_PASSED, _INSIDE, _USER, _ENGINE, _MOVING = range(5)


class Stack:
    """The stack at an event: `user` is the first frame outside PyTorch, `inner` the first meaningful one of PyTorch before it.

    `engine`: the autograd engine runs between the two. `moving`: nn.Module.to and its kin do."""

    __slots__ = ("engine", "inner", "moving", "start", "torch_frames", "user")

    def __init__(self, frame: FrameType | None) -> None:
        self.start = frame
        self.inner: FrameType | None = None
        self.engine = self.moving = False
        self.torch_frames: list[FrameType] = []
        while frame is not None:
            kind = _kind(frame.f_code)
            if kind == _USER:
                break
            if kind == _INSIDE:
                self.torch_frames.append(frame)
                if self.inner is None:
                    self.inner = frame
            elif kind == _ENGINE:
                self.engine = True
            elif kind == _MOVING:
                self.moving = True
            frame = frame.f_back
        self.user = frame


_kinds: dict[CodeType, int] = {}


def _kind(code: CodeType) -> int:
    kind = _kinds.get(code)
    if kind is None:
        kind = _kinds[code] = _kind_of_file(code)
    return kind


def _kind_of_file(code: CodeType) -> int:
    if kind_of(code):
        return _USER
    path = torch_path(code)
    if not path:
        return _PASSED
    if path.startswith("autograd/"):
        return _ENGINE if path in ("autograd/graph.py", "autograd/__init__.py") else _PASSED
    if path == "nn/modules/module.py" and code.co_name == "_apply":
        return _MOVING
    return _PASSED if path.startswith(TRANSPARENT) else _INSIDE


def torch_path(code: CodeType) -> str:
    """The path of a file of torch below the torch folder, with `/`; empty for every other file."""
    name = code.co_filename
    return name[len(_TORCH_ROOT) :].replace(os.sep, "/") if name.startswith(_TORCH_ROOT) else ""


def library_sync(stack: Stack) -> tuple[LibrarySync, FrameType] | None:
    """The table's entry for the frames of PyTorch: one that names a function goes before one for a whole file."""
    for named in (True, False):
        for frame in stack.torch_frames:
            path, function = torch_path(frame.f_code), frame.f_code.co_name
            for entry in LIBRARY:
                if path.startswith(entry.file) and (entry.function == function if named else not entry.function):
                    return entry, frame
    return None


def autograd_node() -> str:
    """The name of the autograd node that runs, without its number (`ProdBackward`); empty outside backward."""
    current = getattr(torch._C, "_current_autograd_node", None)
    node = current() if current is not None else None
    return type(node).__name__.rstrip("0123456789") if node is not None else ""


@dataclass(slots=True)
class Verdict:
    """What kind of wait an event is; the fields are those of `SyncFact`. `frame` is the one of PyTorch that `subject` lives in."""

    rule: str
    how: str
    called: str = ""
    library: str = ""
    hidden: str = ""
    advice: str = ""
    note: bool = False
    subject: str = ""
    named_by: str = ""
    forward: str = ""
    reading: Reading = UNKNOWN
    frame: FrameType | None = None


def _is_given(tensor: Any, frame: FrameType) -> bool:
    """Is a tensor one of the arguments that a function of PyTorch was called with, or an entry of one: a size, an amount?"""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = Scope(frame).variables
    for value in (given.get(name) for name in names):
        entries = value[:_ENTRIES] if isinstance(value, (list, tuple)) else (value,)
        if any(entry is tensor for entry in entries):
            return True
    return False


def judge(sync: SyncOp, stack: Stack, subject: Any = None) -> Verdict | None:
    """The verdict on one event of a table entry, which reads `subject`; None where another part of devguard tells it."""
    reading = reading_at(stack.user.f_code, stack.user.f_lasti) if stack.user is not None else UNKNOWN
    called = reading.callee
    if stack.engine or stack.user is None:
        return _in_backward(sync, reading)
    if sync.op == "aten::_to_copy" and _is_meant(stack):
        return None
    entry = library_sync(stack)
    if entry is not None:
        return _in_library(sync, *entry, reading)
    if stack.inner is not None:
        function = stack.torch_frames[-1].f_code.co_name
        if sync.op == "aten::_local_scalar_dense":
            if subject is not None and _is_given(subject, stack.torch_frames[-1]):
                return Verdict(sync.rule, "call", called or function, advice="call", reading=reading)
            return Verdict("DG205", "library", called, called or function, "the value of a tensor", reading=reading)
        return Verdict(sync.rule, "library", called, called or function, sync.hidden, sync.advice, reading=reading)
    if called in COMPOSITES and reading.how == "call" and (sync.op in GENERIC or sync.kind == "dynamic-shape"):
        rule, hidden, advice = COMPOSITES[called]
        return Verdict(rule, "library", called, called, hidden, advice, reading=reading)
    if sync.op == "aten::_local_scalar_dense":
        rule = "DG202" if called == "tolist" else sync.rule
        return Verdict(rule, reading.how, called, advice=reading.how, reading=reading)
    how = {"host-copy": "copy", "scalar-read": "argument"}.get(sync.kind, "library")
    return Verdict(sync.rule, how, called, hidden=sync.hidden, advice=sync.advice or how, reading=reading)


_ENTRY_RULES = {"print": "DG202", "pickle": "DG202", "synchronize": "DG204", "list": "DG201"}


def judge_entry(how: str, entry: str, stack: Stack) -> Verdict:
    """The verdict on a call of an entry point."""
    reading = reading_at(stack.user.f_code, stack.user.f_lasti) if stack.user is not None else UNKNOWN
    found = library_sync(stack) if how in ("print", "pickle") else None
    called = reading.callee or entry.rpartition(".")[2]
    advice = "empty_cache" if entry.endswith("empty_cache") else how
    library = found[0].name if found is not None else ""
    return Verdict(_ENTRY_RULES[how], how, called, library, advice=advice, reading=reading)


def judge_reported(kind: str, op: str, stack: Stack) -> Verdict:
    """The verdict on a wait that CUDA reported and nothing here knows."""
    reading = reading_at(stack.user.f_code, stack.user.f_lasti) if stack.user is not None else UNKNOWN
    found = library_sync(stack)
    inner = stack.torch_frames[-1].f_code.co_name if stack.torch_frames else ""
    library = found[0].name if found else op.partition("::")[2] or reading.callee or inner or "the call"
    return Verdict(
        "DG205", "library", reading.callee, library, f"CUDA reported a {kind} synchronization", reading=reading
    )


def _in_library(sync: SyncOp, entry: LibrarySync, frame: FrameType, reading: Reading) -> Verdict:
    if sync.op in GENERIC:
        rule, hidden, advice = entry.rule or sync.rule, entry.hidden or sync.hidden, entry.advice
    else:
        rule, hidden, advice = sync.rule, sync.hidden or entry.hidden, sync.advice or entry.advice
        advice = entry.advice if entry.advice == "optimizer" else advice  # the op is not the user's to write otherwise
        rule = entry.rule if sync.kind == "dynamic-shape" and entry.rule == "DG203" else rule
    subject = entry.subject if sync.op in GENERIC or sync.subject in ("self", "A", "info") else sync.subject
    if entry.subject and sync.op.startswith("aten::_nested"):
        subject = entry.subject
    return Verdict(
        rule,
        "library",
        reading.callee,
        entry.name,
        hidden,
        advice,
        entry.note,
        subject,
        entry.named_by,
        "",
        reading,
        frame,
    )


# Purposes of library code whose copies are what was asked for, each time.
_MEANT = frozenset({OFFLOAD, SET_UP, PARALLEL, SPLIT})


def _is_meant(stack: Stack) -> bool:
    """Is a copy to the host the work of an offload hook, or of a module's move? The rules for copies judge those."""
    if stack.moving or purpose_of(stack.start) in _MEANT:
        return True
    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignored: None)(False)
    pack = getattr(hooks[0], "__code__", None) if hooks else None
    return pack is not None and stack.user is not None and stack.user.f_code is pack


def _in_backward(sync: SyncOp, reading: Reading) -> Verdict | None:
    if sync.op == "aten::_to_copy":
        return None  # a gradient on its way to a leaf on the host: an implicit copy
    if torch.is_anomaly_enabled() and sync.op in GENERIC:
        return Verdict("DG205", "backward", "backward", "detect_anomaly", "the test for NaN", "anomaly")
    node = autograd_node().lstrip("_")  # a Function written in Python may stand in for the one in C++
    if not node and sync.op not in GENERIC:
        return Verdict(sync.rule, "read", hidden=sync.hidden, advice=sync.advice, reading=reading)
    function, hidden = BACKWARD.get(node, (node.removesuffix("Backward") or "an op", sync.hidden))
    rule = "DG205" if node in BACKWARD or sync.op in GENERIC else sync.rule
    if (
        sync.kind == "dynamic-shape" and node not in BACKWARD
    ):  # it goes away with the mask of the forward, which has its own finding
        return Verdict(rule, "backward", "backward", "the backward of a mask", hidden, "backward mask", note=True)
    library = f"the backward of {function}"
    verdict = Verdict(rule, "backward", "backward", library, hidden or "a value", "backward", reading=reading)
    verdict.forward = function if node in BACKWARD else ""
    return verdict


def group_key(raw: RawSite | None, verdict: Verdict) -> Any:
    """What makes two events one finding: the statement, and the rule, or the function of PyTorch that both happen in."""
    place, caller = where(raw), called_from(raw)
    return (
        place and (place.file, place.line, place.function),
        caller and (caller.file, caller.line),
        verdict.library if verdict.how in ("library", "backward") and verdict.library else verdict.rule,
    )
