"""Which tensors come out of which DataLoader, and whether its `pin_memory` reached them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import dataloader

from devguard.observe.copies_facts import CopyFacts, LoaderFact
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.names import name_of_object
from devguard.observe.namespaces import instance_dict
from devguard.observe.origins import Origin, stations, storage_key
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder

OP = "DataLoader"  # the `op` of an origin that says: this came out of a loader, at the line that loops over it
_TENSORS = 256  # per batch
_DEPTH = 4


class Loaders:
    """Observer: marks each batch's tensors with their loader, as a station of their origin.

    Batches that workers or the pinning thread made are unseen by a dispatch mode: this gives them an origin at all."""

    name = "data loaders"

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(CopyFacts)
        self.patches = Patches()
        self._made: weakref.WeakKeyDictionary[Any, RawSite | None] = weakref.WeakKeyDictionary()
        self._facts: weakref.WeakKeyDictionary[Any, LoaderFact] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Wrap the DataLoader's construction, the start of its loop and each step of it."""
        shielded = self.recorder.shielded
        self.patches.wrap(dataloader.DataLoader, "__init__", self._after(shielded(self.name, self._constructed)))
        self.patches.wrap(dataloader.DataLoader, "__iter__", self._after(shielded(self.name, self._begun)))
        self.patches.wrap(dataloader._BaseDataLoaderIter, "__next__", self._after(shielded(self.name, self._delivered)))

    def stop(self) -> None:
        """Give everything back."""
        self.patches.restore()

    def _after(self, listener: Callable[..., None]) -> Any:
        recorder = self.recorder

        def call(wrapped: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = wrapped(*args, **kwargs)
            if recorder.active:
                listener(owner, result, sys._getframe(1))
            return result

        return call

    def _constructed(self, loader: Any, _: Any, frame: Any) -> None:
        self._made[loader] = raw_site(frame)

    def _begun(self, loader: Any, iterator: Any, frame: Any) -> None:
        loop = raw_site(frame)
        made = self._made.get(loader)
        key = (made, loop)
        fact = self.facts.loaders.get(key)
        if fact is None:
            name = name_of_object(loader, frame)
            fact = self.facts.loaders[key] = LoaderFact(made, loop, name, bool(getattr(loader, "pin_memory", False)))
        self._facts[iterator] = fact

    def _delivered(self, iterator: Any, batch: Any, frame: Any) -> None:
        recorder = self.recorder
        fact = self._facts.get(iterator)
        if fact is None:  # the loop began unseen
            loop = raw_site(frame)
            pin_memory = bool(getattr(iterator, "_pin_memory", False))
            fact = self.facts.loaders.setdefault((None, loop), LoaderFact(None, loop, "", pin_memory))
            self._facts[iterator] = fact
        site = fact.loop or raw_site(frame)
        step = recorder.steps.now
        for tensor, skipped in tensors_in(batch):
            key = storage_key(tensor)
            if key is not None:
                # What workers made is unseen: an entry for its storage is about something older that had the same address.
                parent = None if getattr(iterator, "_num_workers", 0) else recorder.origins.of(tensor)
                recorder.origins.put(key, Origin(site, OP, tensor.get_device(), step, parent))
            if skipped and fact.pin_memory:
                fact.skipped = skipped

    def of(self, origin: Origin | None) -> LoaderFact | None:
        """The loader that a tensor's data came out of, if it is known from its origin."""
        for station in stations(origin):
            if station.op == OP:
                return next((fact for fact in self.facts.loaders.values() if fact.loop == station.site), None)
        return None


def tensors_in(batch: Any) -> Iterator[tuple[Any, str]]:
    """(tensor, class that hides it from pinning or "") of a batch, as the pinning of a DataLoader looks for them."""
    left = _TENSORS
    todo: list[tuple[Any, str, int]] = [(batch, "", 0)]
    while todo and left:
        value, hidden, depth = todo.pop()
        kind = type(value)  # isinstance() would ask a proxy for its `__class__`
        if issubclass(kind, torch.Tensor):
            left -= 1
            yield value, hidden
        elif depth >= _DEPTH:
            continue
        elif issubclass(kind, dict):
            todo.extend((inner, hidden, depth + 1) for inner in list(dict.values(value))[:_TENSORS])
        elif issubclass(kind, (list, tuple)):
            kind_of_list = list if issubclass(kind, list) else tuple
            todo.extend((inner, hidden, depth + 1) for inner in list(kind_of_list.__iter__(value))[:_TENSORS])
        elif kind.__flags__ & 512 and (held := instance_dict(value)):
            seen_by_pinning = issubclass(kind, (Mapping, Sequence)) or hasattr(kind, "pin_memory")
            own = hidden or ("" if seen_by_pinning else kind.__name__)
            todo.extend((inner, own, depth + 1) for inner in list(held.values())[:_TENSORS])
