"""Who asked for a copy: the program by `.to()`, an op on its own account, or library code with a purpose of its own."""

from __future__ import annotations

import functools
import importlib
from types import CodeType, FrameType
from typing import Any

import torch

from devguard.knowledge.copies import makers, purpose_of_code
from devguard.observe.copies_facts import BACKWARD
from devguard.observe.entries import Entry
from devguard.observe.frames import LIBRARY, PROJECT, SKIPPED, kind_of, own_site

MOVES = frozenset({"Tensor.to", "Tensor.cuda", "Tensor.cpu", "Tensor.type"})
MAKERS = frozenset(makers())
READS = frozenset(
    f"Tensor.{name}"
    for name in ("tolist", "numpy", "item", "__repr__", "__format__", "__array__", "__reduce_ex__", "__deepcopy__")
)
_RELEVANT = MOVES | MAKERS | READS
_MOVERS = frozenset({"to", "cuda", "cpu", "pin_memory", "_apply", "convert", "send_to_device"})
_PLUMBING = frozenset({"_call_impl", "_wrapped_call_impl", "__call__", "decorate_context", "_fn", "wrapper", "inner"})
_LIBRARY_FRAMES = 8  # of the innermost library: further out lie its training loops, which enclose everything
_STACK = 6

_graph_task: Any = torch._C._current_graph_task_id


def entry_of(intents: list[Entry]) -> Entry | None:
    """The entry point that the program called, where it asks for or implies a copy."""
    for entry in intents:
        if entry.name in _RELEVANT:
            return entry
    return None


def given_data(entry: Entry) -> Any:
    """What a maker (torch.tensor, as_tensor …) was given to make a tensor of."""
    if entry.args:
        return entry.args[0]
    return entry.kwargs.get("data", entry.kwargs.get("obj"))


def is_explicit(entry: Entry | None) -> bool:
    """Does the call say that data are to move? A `.to()` inside PyTorch's own Python code counts only where that code is
    itself a move (PackedSequence.to), not where it serves an op."""
    if entry is None:
        return False
    if entry.name in MAKERS:
        return isinstance(given_data(entry), torch.Tensor)
    if entry.name in READS:
        return True
    frame = caller_of(entry)
    served = False
    while frame is not None and kind_of(frame.f_code) == SKIPPED:
        code = frame.f_code
        if code.co_name in _MOVERS or purpose_of_code(code):
            return True
        served = served or _serves(code.co_filename)
        frame = frame.f_back
    return not served


@functools.lru_cache(maxsize=1024)
def _serves(filename: str) -> bool:
    """Is this file PyTorch's own code, other than what only passes calls on (tree_map, the standard library)?"""
    path = filename.replace("\\", "/")
    return "/torch/" in path and not path.endswith("_pytree.py")


def caller_of(entry: Entry) -> FrameType | None:
    """The frame that called the entry point: the first one outside devguard's own wrapping (another watch's, around this one)."""
    frame = entry.frame
    while frame is not None and frame.f_code.co_filename in _WRAPPING:
        frame = frame.f_back
    return frame


_WRAPPING = frozenset({Entry.__init__.__code__.co_filename, str(importlib.import_module("wrapt.wrappers").__file__)})


def purpose_of(frame: FrameType | None) -> str:
    """The purpose of a copy made at `frame`: of the code of PyTorch and of the innermost library on the way to the user's own.

    Autograd's own copies (no user code between them and the engine) mirror those of the forward."""
    while frame is not None and kind_of(frame.f_code) == SKIPPED:
        purpose = purpose_of_code(frame.f_code)
        if purpose:
            return purpose
        frame = frame.f_back
    left = _LIBRARY_FRAMES
    if frame is None:
        return BACKWARD if _graph_task() != -1 else ""
    while frame is not None and left and kind_of(frame.f_code) != PROJECT:
        if kind_of(frame.f_code) == LIBRARY:
            purpose = purpose_of_code(frame.f_code)
            if purpose:
                return purpose
            left -= 1
        frame = frame.f_back
    return ""


def library_function(frame: FrameType | None) -> str:
    """The function of PyTorch that the program called and that copies inside: `pack_padded_sequence`; empty where there is none."""
    name = ""
    while frame is not None and kind_of(frame.f_code) == SKIPPED:
        if _serves(frame.f_code.co_filename) and frame.f_code.co_name not in _PLUMBING:
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def in_backward() -> bool:
    """Is this thread inside a backward pass?"""
    return bool(_graph_task() != -1)


def project_stack(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    """(code, instruction) of the innermost frames of the user's own project."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _STACK:
        if kind_of(frame.f_code) == PROJECT:
            found.append(own_site(frame))
        frame = frame.f_back
    return tuple(found)
