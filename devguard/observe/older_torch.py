"""What PyTorch 2.8 asks of a dispatch mode in other ways than later versions."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Later versions leave torch.compile on where a mode says `ignore_compile_internals`, and pass it higher-order ops where it says
# `supports_higher_order_operators`. 2.8 knows modes that belong to the compiler itself, and a table in each of these ops.
NEEDED = not hasattr(TorchDispatchMode, "ignore_compile_internals")


def accept_higher_order_ops(mode: type[TorchDispatchMode]) -> None:
    """Let torch.cond, flex_attention and the like run under `mode`."""
    if NEEDED:
        operators: dict[str, Any] = torch._ops._higher_order_ops
        for operator in operators.values():
            operator.python_key_table.setdefault(mode, _passed(operator))


def _passed(operator: Any) -> Any:
    def handler(mode: Any, *args: Any, **kwargs: Any) -> Any:
        return mode.__torch_dispatch__(operator, (), args, kwargs)

    return handler
