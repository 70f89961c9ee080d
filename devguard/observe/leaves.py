"""Moves of autograd leaves: whether the copy takes the leaf's place is for the rules to read from the source."""

from __future__ import annotations

from typing import Any

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.entries import Entry
from devguard.observe.frames import raw_site
from devguard.observe.leaves_facts import LeafFact, LeafFacts
from devguard.observe.optimizers_state import tensor_fact
from devguard.observe.recorder import Recorder

_CALLS = ("to", "cuda", "cpu")
_Tensor = torch.Tensor


class Leaves:
    """Observer: listens to the calls that move a tensor, and to optimizers that refuse one."""

    name = "leaves"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(LeafFacts)
        listener = recorder.shielded("moves of leaves", self.moved)
        for call in _CALLS:
            handlers.entries[f"Tensor.{call}"].append(listener)
        optimizers: Any = recorder.observers.get("optimizers")
        if optimizers is not None:
            optimizers.refused.append(recorder.shielded("refused parameters", self.refused))

    def start(self) -> None:
        """The entry points are wrapped by another observer."""

    def stop(self) -> None:
        """Nothing is ours."""

    def moved(self, entry: Entry) -> None:
        """A tensor was moved: was it a leaf with a gradient, and is the result another tensor on another device?"""
        moved, copy = entry.owner, entry.result
        if moved is copy or not isinstance(copy, _Tensor) or not isinstance(moved, _Tensor):
            return
        if not (moved.requires_grad and copy.requires_grad) or moved.get_device() == copy.get_device():
            return
        leaf = _leaf_of(moved)
        if leaf is None:
            return
        site = entry.site
        if site is None:
            return
        fact = self.facts.moves.get(site)
        if fact is None:
            fact = self.facts.moves[site] = LeafFact(
                site,
                entry.name.rpartition(".")[2],
                isinstance(leaf, torch.nn.Parameter),
                str(leaf.device),
                tensor_fact(
                    "", "parameter" if isinstance(leaf, torch.nn.Parameter) else "operand", copy, self.recorder
                ),
            )
        fact.tally.hit(self.recorder.steps.now, self.recorder.facts.warmup)

    def refused(self, params: Any, frame: Any) -> None:
        """An optimizer did not take its parameters: is one of them the moved copy of a leaf?"""
        todo = list(params) if isinstance(params, (list, tuple)) else []
        for item in todo:
            if isinstance(item, dict):
                inner = item.get("params")
                todo.extend(inner if isinstance(inner, (list, tuple)) else [inner])
            elif isinstance(item, _Tensor) and not item.is_leaf:
                origin = self.recorder.origins.of(item)
                fact = self.facts.moves.get(origin.site) if origin is not None and origin.site is not None else None
                if fact is not None:
                    fact.refused = raw_site(frame)


def _leaf_of(tensor: Any) -> Any:
    """A leaf itself, or the leaf that a tensor is a cast of: ``nn.Parameter(w).double()``."""
    if tensor.is_leaf:
        return tensor
    node = tensor.grad_fn
    if node is None or node.name() != "ToCopyBackward0":
        return None
    return getattr(node.next_functions[0][0], "variable", None)
