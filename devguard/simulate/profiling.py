"""Profilers that are asked for the device's side: they measure the host's, the only one there is."""

from __future__ import annotations

import functools
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches


def install(devices: Devices, patches: Patches) -> None:
    """Let torch.profiler and torch.autograd.profiler run without the device's activities."""
    profile: Any = torch.autograd.profiler.profile
    original = profile.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, use_device: Any = None, **kwargs: Any) -> None:
        ours = use_device == devices.kind.name
        kwargs.pop("use_cuda", None)
        if ours:
            kwargs["use_cpu"] = True
        original(self, *args, use_device=None if ours else use_device, **kwargs)
        self.use_device = use_device  # for its tables

    patches.set(profile, "__init__", __init__)
    emit: Any = torch.autograd.profiler.emit_nvtx
    patches.set(emit, "__enter__", lambda self: self)
    patches.set(emit, "__exit__", lambda self, *exc: False)
