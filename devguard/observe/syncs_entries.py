"""Waits that no dispatch mode shows: printing, explicit synchronization, torch.tensor of device scalars, pickling."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from devguard.knowledge.syncs_conditions import on_device
from devguard.observe.dispatch import Handlers
from devguard.observe.entries import Entry
from devguard.observe.frames import kind_of
from devguard.observe.syncs_names import list_name, name_of
from devguard.observe.syncs_place import Stack, Verdict, judge_entry

if TYPE_CHECKING:
    from devguard.observe.syncs import Syncs

_SYNCHRONIZE = (
    "cuda.synchronize",
    "accelerator.synchronize",
    "Stream.synchronize",
    "Event.synchronize",
    "cuda.empty_cache",
)
# What copies by itself, below every dispatch mode: a wait inside is the copy's.
COPYING = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.asarray", "Tensor.new_tensor", "torch.load", "torch.save"}
)
_MAKERS = ("torch.tensor", "torch.as_tensor", "torch.asarray", "Tensor.new_tensor")
_LONGEST = 4096  # elements of a list that are looked at


class EntryWaits:
    """Listens to the entry points and hands what waits to `Syncs`."""

    def __init__(self, syncs: Syncs) -> None:
        self.syncs = syncs
        self.recorder = syncs.recorder

    def register(self, handlers: Handlers) -> None:
        """Ask for the entry points."""
        shielded = self.recorder.shielded
        handlers.entries_before["Tensor.__repr__"].append(shielded("syncs: printing", self.printed))
        for name in _SYNCHRONIZE:
            handlers.entries_before[name].append(shielded("syncs: explicit", self.synchronized))
            if self.syncs.timed:
                handlers.entries[name].append(shielded("syncs: time", self.syncs.ended))
        for name in _MAKERS:
            handlers.entries_before[name].append(shielded("syncs: torch.tensor", self.made))
        handlers.entries_before["torch.save"].append(shielded("syncs: saving", self.saved))
        handlers.entries_before["Tensor.__reduce_ex__"].append(shielded("syncs: pickling", self.pickled))

    def printed(self, entry: Entry) -> None:
        """repr(t), print(t), f"{t}", logging: dozens of reads below, one wait in the user's eyes."""
        if on_device(entry.owner) and not _covered(entry):
            owner = entry.owner
            self.met(entry, "print", owner, nbytes=owner.numel() * owner.element_size())

    def synchronized(self, entry: Entry) -> None:
        """torch.cuda.synchronize() and its kin."""
        if not _covered(entry):
            self.met(entry, "synchronize", None)

    def made(self, entry: Entry) -> None:
        """torch.tensor([a, b]) reads every device scalar of the list by itself."""
        data = entry.args[0] if entry.args else entry.kwargs.get("data", entry.kwargs.get("obj"))
        if type(data) not in (list, tuple) or _covered(entry):
            return
        scalars = list(_device_tensors(data))
        if scalars:
            times = sum(max(scalar.numel(), 1) for scalar in scalars)
            self.met(entry, "list", scalars[0], times=times)

    def saved(self, entry: Entry) -> None:
        """torch.save: `pickled` tells what it saves, under this entry."""

    def pickled(self, entry: Entry) -> None:
        """Pickling copies the data to the host; copy.copy() asks for the same method and copies nothing."""
        if not on_device(entry.owner) or _covered(entry) or _is_copy_module(entry.frame):
            return
        outer = entry
        while outer.outer is not None and outer.outer.name == "torch.save":
            outer = outer.outer
        owner = entry.owner
        self.met(outer, "pickle", owner, nbytes=owner.numel() * owner.element_size())

    def met(self, entry: Entry, how: str, subject: Any, *, times: int = 1, nbytes: int = 0) -> None:
        """One event at an entry point; everything below it belongs to it."""
        syncs = self.syncs
        entry.notes["waits"] = True
        stack = Stack(entry.frame)
        site = entry.site
        inner = stack.inner
        key = (site, entry.name, inner and inner.f_code, inner and inner.f_lasti)
        try:
            fact = syncs.places[key]
        except KeyError:
            verdict: Verdict = judge_entry(how, entry.name, stack)
            name = ""
            if how == "list":
                name = list_name(verdict.reading, subject, stack.user)
            if not name and subject is not None:
                name = name_of(self.recorder, subject, stack, verdict, False)
            fact = syncs.places[key] = syncs.fact_for(verdict, site, entry.name, subject, name)
        if fact is not None:
            syncs.count(fact, entry, times=times, nbytes=nbytes, implicit=how != "synchronize")


def _covered(entry: Entry) -> bool:
    """Does it run inside an entry point that has been counted?"""
    outer = entry.outer
    while outer is not None:
        if "waits" in outer.notes:
            return True
        outer = outer.outer
    return False


def _device_tensors(data: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    for value in data[:_LONGEST]:
        if isinstance(value, torch.Tensor):
            if on_device(value):
                yield value
        elif depth and type(value) in (list, tuple):
            yield from _device_tensors(value, depth - 1)


def _is_copy_module(frame: FrameType | None) -> bool:
    while frame is not None and not kind_of(frame.f_code):
        if frame.f_globals.get("__name__") == "copy":
            return True
        frame = frame.f_back
    return False
