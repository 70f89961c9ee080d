"""When an op of the table waits: small predicates over a call, which read devices, dtypes, sizes and flags, never values.

Each takes a :class:`Call` and says how many waits the call makes; 0 for none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devguard.knowledge.syncs_table import SyncOp

_Tensor = torch.Tensor
_MASKS = (torch.bool, torch.uint8)
_LONG_SLICE = 2048  # twice the largest block of a CUDA kernel


@functools.lru_cache(maxsize=512)
def _positions(func: Any) -> dict[str, int]:
    """Where each argument of an overload stands."""
    return {argument.name: index for index, argument in enumerate(func._schema.arguments)}


class Call:
    """One call of an op, and the entry of the table that it is asked against."""

    __slots__ = ("args", "func", "kwargs", "sync")

    def __init__(self, sync: SyncOp, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.sync = sync
        self.func = func
        self.args = args
        self.kwargs = kwargs

    def __getitem__(self, name: str) -> Any:
        """The argument of that name, None where it was not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        position = _positions(self.func).get(name)
        return self.args[position] if position is not None and position < len(self.args) else None

    def tensors(self, name: str) -> Iterator[_Tensor]:
        """The tensors of a list argument."""
        for value in self[name] or ():
            if isinstance(value, _Tensor):
                yield value


def on_device(value: Any) -> bool:
    """Is that a tensor on an accelerator?"""
    return isinstance(value, _Tensor) and value.get_device() >= 0


def _on_host(value: Any) -> bool:
    return isinstance(value, _Tensor) and value.device.type == "cpu"


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def _subject(call: Call) -> int:
    return on_device(call[call.sync.subject])


def _bounds(call: Call) -> int:
    return on_device(call["start"]) + on_device(call["end"])


def _foreign_value(call: Call) -> int:
    value, target = call["value"], call["self"]
    return on_device(value) and value.get_device() != target.get_device()


def _blocking_to_host(call: Call) -> int:
    return on_device(call["self"]) and _is_host(call["device"]) and not call["non_blocking"]


def _blocking_to_device(call: Call) -> int:
    device = call["device"]
    return (
        _on_host(call["self"])
        and device is not None
        and torch.device(device).type not in ("cpu", "meta")
        and not call["non_blocking"]
    )


def _blocking_copy(call: Call) -> int:
    target, source = call["self"], call["src"]
    crosses = (on_device(target) and _on_host(source)) or (_on_host(target) and on_device(source))
    return crosses and not call["non_blocking"]


def _masks(call: Call) -> int:
    if not on_device(call["self"]):
        return 0
    return sum(index.dtype in _MASKS and on_device(index) for index in call.tensors("indices"))


def _masks_and_value(call: Call) -> int:
    masks, value = _masks(call), call["values"]
    if masks == 1 and len(list(call.tensors("indices"))) == 1 and _on_host(value) and value.numel() == 1:
        return 0 if not call["accumulate"] else 1  # done by masked_fill
    return masks


def _host_index(call: Call) -> int:
    if not on_device(call["self"]):
        return 0
    return sum(index.dtype not in _MASKS and _on_host(index) for index in call.tensors("indices"))


def _host_index_or_value(call: Call) -> int:
    found, value = _host_index(call), call["values"]
    if not on_device(call["self"]) or not _on_host(value):
        return found
    indices = list(call.tensors("indices"))
    filled = len(indices) == 1 and indices[0].dtype in _MASKS and on_device(indices[0]) and not call["accumulate"]
    return found + (0 if filled else 1)


def _host_operand(call: Call) -> int:
    operands = [call["condition"], call["self"], call["other"]]
    return any(map(on_device, operands)) and any(map(_on_host, operands))


def _no_output_size(call: Call) -> int:
    return on_device(call["repeats"]) and call["output_size"] is None


def _not_empty(call: Call) -> int:
    return on_device(call["self"]) and call["self"].numel() > 0


def _comparable(call: Call) -> int:
    one, other = call["self"], call["other"]
    return on_device(one) and on_device(other) and one is not other and one.numel() > 0 and one.shape == other.shape


def _default_range(call: Call) -> int:
    return on_device(call["self"]) and (call["min"] or 0) == (call["max"] or 0)


def _checked_lengths(call: Call) -> int:
    return on_device(call["lengths"]) and not call["unsafe"]


def _long_slices(call: Call) -> int:
    tensor, dim = call["self"], call["dim"]
    if not on_device(tensor) or not tensor.dim():
        return 0
    return int(tensor.shape[-1 if dim is None else dim] > _LONG_SLICE)


def _check_errors(call: Call) -> int:
    return _subject(call) and bool(call["check_errors"])


Condition = Callable[[Call], int]

CONDITIONS: dict[str, Condition] = {
    "subject": _subject,
    "bounds": _bounds,
    "foreign value": _foreign_value,
    "blocking to host": _blocking_to_host,
    "blocking to device": _blocking_to_device,
    "blocking copy": _blocking_copy,
    "masks": _masks,
    "masks and a value on the device": _masks_and_value,
    "host index": _host_index,
    "host index or value": _host_index_or_value,
    "host operand": _host_operand,
    "no output_size": _no_output_size,
    "not empty": _not_empty,
    "comparable": _comparable,
    "default range": _default_range,
    "checked lengths": _checked_lengths,
    "long slices": _long_slices,
    "check_errors": _check_errors,
}
