"""Tensors of a program's own class, made by ``super().__new__(cls, data)``, while a dispatch mode looks on.

The tensor that any mode hands back is an object of Python already, of class torch.Tensor: PyTorch's constructor can't make one of `cls` of
it and refuses ("already associated to a python object of type Tensor"). What it makes is made unseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devguard.observe.dispatch import DispatchMode
from devguard.observe.patching import Patches

_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl


def install(patches: Patches) -> None:
    """Wrap the constructor of tensors."""
    patches.wrap(torch.Tensor, "__new__", _construct)


def _construct(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = args if instance is None else (instance, *args)
    if not given or given[0] is torch.Tensor or not _only_ours(given):
        return wrapped(*args, **kwargs)
    guard = torch._C._DisableTorchDispatch()
    try:
        return wrapped(*args, **kwargs)
    finally:
        del guard


def _only_ours(given: tuple[Any, ...]) -> bool:
    """Is the watch all that looks on? Another mode, or a tensor with a dispatch of its own, has to say what happens."""
    modes = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
    if not modes or not all(isinstance(mode, DispatchMode) for mode in modes):
        return False
    return all(type(v).__torch_dispatch__ is _NO_DISPATCH for v in given if isinstance(v, torch.Tensor))
