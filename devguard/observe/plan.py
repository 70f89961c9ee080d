"""What there is to look at in one aten overload, worked out once from its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Ops whose schema promises a new tensor but that give a view of their input.
_SHARES_INPUT = {"aten::_unsafe_view", "aten::_reshape_alias", "aten::alias", "aten::detach"}
# Ops whose schema promises an alias but whose output came to be unseen (torch.tensor, torch.as_tensor).
FRESH_ALIAS = {"aten::lift_fresh", "aten::lift_fresh_copy"}
# Copies: the output's history goes on from the input's.
_COPIES = {"aten::_to_copy", "aten::clone", "aten::_pin_memory", "aten::pin_memory", "aten::lift_fresh_copy"}

Handler = Callable[[Any], None]


class Plan:
    """The cached plan of one overload.

    `tensors` and `lists` are the positions of the arguments that hold a tensor or a list of tensors, `tensor_names` and `list_names`
    their names; `fresh` says that the outputs are new tensors whose origin is to be recorded; `copies` that they continue their
    input's history; `composite` that it arrives whole only in inference mode and is looked through; `before`, `after` are the
    handlers registered for it.
    """

    __slots__ = (
        "after",
        "before",
        "composite",
        "copies",
        "fresh",
        "list_names",
        "lists",
        "name",
        "short",
        "tensor_names",
        "tensors",
    )

    def __init__(self, func: Any, before: tuple[Handler, ...], after: tuple[Handler, ...]) -> None:
        schema = func._schema
        self.name: str = schema.name
        self.short: str = f"{schema.name.replace('::', '.')}" + (
            f".{schema.overload_name}" if schema.overload_name else ""
        )
        self.before = before
        self.after = after
        positional: list[int] = []
        names: list[str] = []
        lists: list[int] = []
        list_names: list[str] = []
        for index, argument in enumerate(schema.arguments):
            kind = str(argument.type)
            if kind in ("Tensor", "Optional[Tensor]"):
                names.append(argument.name)
                if not argument.kwarg_only:
                    positional.append(index)
            elif kind.startswith(("List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Tensor]]")):
                list_names.append(argument.name)
                if not argument.kwarg_only:
                    lists.append(index)
        self.tensors = tuple(positional)
        self.tensor_names = tuple(names)
        self.lists = tuple(lists)
        self.list_names = tuple(list_names)
        aliased = any(out.alias_info is not None for out in schema.returns)
        makes_tensor = any(str(out.type) in ("Tensor", "List[Tensor]") for out in schema.returns)
        self.fresh = self.name in FRESH_ALIAS or (makes_tensor and not aliased and self.name not in _SHARES_INPUT)
        self.copies = self.name in _COPIES
        self.composite = (
            schema.name.startswith("aten::")
            and torch._C._dispatch_has_kernel(func.name())  # some are TorchScript's alone (aten::dim in PyTorch 2.8)
            and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        )
