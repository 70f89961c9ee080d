"""Simulated devices as a table: what users call them, and the dormant device of PyTorch that carries them."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._device import DeviceContext


@dataclass(frozen=True)
class DeviceType:
    """One kind of accelerator. Another accelerator is another row of DEVICE_TYPES (and its own Python surface)."""

    name: str  # as users write it
    hidden: str  # the in-tree device type whose backend nobody uses
    key: str  # dispatch key at which factories with device=name arrive
    hidden_key: str  # dispatch key of the hidden device
    autocast_key: str


DEVICE_TYPES = {"cuda": DeviceType("cuda", "lazy", "CUDA", "Lazy", "AutocastCUDA")}

_MOST_DEVICES = 64
_Device = torch.device  # the plain type: a running simulation puts another in its place


def parse_spec(spec: str) -> tuple[DeviceType, int]:
    """Read "cuda" or "cuda:2" (a device type and how many of it). Raises ValueError with one clear line."""
    match = re.fullmatch(r"([a-z]+)(?::(\d+))?", spec.strip()) if isinstance(spec, str) else None
    known = ", ".join(sorted(DEVICE_TYPES))
    if match is None:
        raise ValueError(f"can't simulate {spec!r}: write a device type and how many of it, such as 'cuda:2'")
    if match[1] not in DEVICE_TYPES:
        raise ValueError(f"can't simulate {match[1]!r}: the simulated device types are {known}")
    count = int(match[2] or 1)
    if not 1 <= count <= _MOST_DEVICES:
        raise ValueError(f"can't simulate {count} devices: from 1 to {_MOST_DEVICES} are possible")
    return DEVICE_TYPES[match[1]], count


def driver_error(what: str, hint: str = "") -> Exception:
    """What PyTorch raises for an error of the CUDA driver."""
    kind: Any = getattr(torch, "AcceleratorError", RuntimeError)
    return kind(  # type: ignore[no-any-return]
        f"CUDA error: {what}\n{hint}CUDA kernel errors might be asynchronously reported at some other API call, "
        "so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def default_device() -> torch.device | None:
    """The device of `with device:` or set_default_device in this thread, which PyTorch would have put in as an argument.

    (torch.get_default_device of PyTorch 2.8 fails after set_default_device(None).)
    """
    for i in reversed(range(torch._C._len_torch_function_stack())):
        mode = torch._C._get_function_stack_at(i)
        if isinstance(mode, DeviceContext):
            return mode.device
    return None


class _Current(threading.local):
    index = 0


class Devices:
    """The devices of one simulation: their names, the hidden device behind each, and the current one per thread."""

    def __init__(self, kind: DeviceType, count: int) -> None:
        self.kind = kind
        self.count = count
        self.shown = tuple(torch.device(kind.name, i) for i in range(count))
        self.hidden = tuple(torch.device(kind.hidden, i) for i in range(count))
        self.visible: int | None = None  # how many the program may use: settled when it first touches a device
        self.forked = False  # in a child that was forked after that
        self._current = _Current()
        self._types = (kind.name, kind.hidden)
        self._touch = f"torch.{kind.name}"

    @property
    def current(self) -> int:
        """Index of this thread's current device."""
        return self._current.index

    def exchange(self, index: int) -> int:
        """Make `index` this thread's current device; returns the one before. A negative index changes nothing."""
        before = self._current.index
        if index >= 0:
            self.check(index)
            self._current.index = index
        return before

    def check(self, index: int) -> int:
        """`index` if there is such a device; raises what CUDA raises for an ordinal out of range otherwise."""
        if not 0 <= index < (self.count if self.visible is None else self.visible):
            raise driver_error("invalid device ordinal", "GPU device may be out of range, do you have enough GPUs?\n")
        return index

    def resolve(self, device: Any) -> int | None:
        """Index of the simulated device that `device` (a torch.device, string or ordinal) means; None for any other."""
        if isinstance(device, int) and not isinstance(device, bool):
            index: int | None = device
        else:
            if isinstance(device, str):
                device = _Device(device)
            elif not isinstance(device, _Device):
                return None
            if device.type not in self._types:
                return None
            index = device.index
        sys.modules[self._touch]._lazy_init()  # PyTorch's own: it raises in a child that was forked too late
        return self._current.index if index is None else self.check(index)

    def touched(self) -> bool:
        """Has the program used a device yet?"""
        return bool(sys.modules[self._touch].is_initialized())

    def index(self, device: Any = None) -> int:
        """Index of the device that `device` means; the current one for None, a negative number, or another device."""
        if device is None or (isinstance(device, int) and device < 0):
            return self._current.index
        found = self.resolve(device)
        return self._current.index if found is None else found

    def name_of(self, device: torch.device) -> torch.device:
        """The device as users know it (the hidden one is given its shown name)."""
        return self.shown[device.index or 0] if device.type == self.kind.hidden else device
