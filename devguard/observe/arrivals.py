"""Tensors that come to be where no dispatch mode looks: loaded checkpoints, NumPy arrays. They get their origin where they arrive."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.entries import Entry
from devguard.observe.frames import raw_site
from devguard.observe.namespaces import children, is_value
from devguard.observe.origins import Origin, storage_key
from devguard.observe.recorder import Recorder

_NODES = 5000
_FRESH = ("torch.load", "torch.from_numpy")  # give new storages: an older entry for one is about something that is gone
_PERHAPS = ("torch.as_tensor", "torch.asarray")


class Arrivals:
    """Gives arriving tensors an origin."""

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        for name in (*_FRESH, *_PERHAPS):
            handlers.entries[name].append(recorder.shielded("arrivals", self.entry))

    def entry(self, entry: Entry) -> None:
        """A call has made or loaded tensors."""
        if entry.error is None:
            self.stamp(entry.result, entry.name, entry.frame)

    def stamp(self, obj: Any, op: str, frame: FrameType | None) -> None:
        """Give every tensor inside `obj` an origin that begins here, but for those that only pass through."""
        recorder = self.recorder
        site, looked = None, False
        todo, seen, budget = [obj], set(), _NODES
        while todo and budget:
            budget -= 1
            item = todo.pop()
            if issubclass(type(item), torch.Tensor):
                key = storage_key(item)
                if key is None or (op not in _FRESH and recorder.origins.of(item) is not None):
                    continue
                if not looked:
                    site, looked = raw_site(frame), True
                recorder.origins.put(key, Origin(site, op, item.get_device(), recorder.steps.now, None))
            elif not is_value(item) and id(item) not in seen:
                seen.add(id(item))
                if issubclass(type(item), dict):
                    todo.extend(list(dict.values(item)))
                else:
                    todo.extend(child for _, child in children(item))
