"""torch.cuda as a program sees it on a machine with simulated devices.

Most of it is PyTorch's own code on a simulated driver (driver.py). Replaced here is what torch.cuda bound when it was
imported, and its state.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

from devguard.simulate import comm, graphs, legacy, profiling, streams
from devguard.simulate.devices import Devices
from devguard.simulate.driver import CUDNN, Driver, Properties
from devguard.simulate.patches import Patches
from devguard.simulate.streams import Timeline

_VERSION = "12.8"  # of CUDA, where the build names none


def install(devices: Devices, driver: Driver, timeline: Timeline, patches: Patches) -> None:
    """Let torch.cuda run on the simulated driver."""
    importlib.import_module("torch.cuda.comm")
    for name, answer in driver.functions().items():
        patches.set(torch._C, name, answer)
    for name in ("_has_cuda", "_has_cudnn", "_has_magma"):
        patches.set(torch._C, name, True)
    _bound(driver, devices, patches)
    _state(patches)
    _visible(devices, patches)
    _sensors(devices, patches)
    _streams(devices, patches)
    comm.install(devices, patches)
    graphs.install(patches)
    profiling.install(devices, patches)
    legacy.install(devices, patches)
    _backends(patches)
    if torch.version.cuda is None:
        patches.set(torch.version, "cuda", _VERSION)


def _bound(driver: Driver, devices: Devices, patches: Patches) -> None:
    """What torch.cuda took from torch._C when it was imported."""
    cuda = torch.cuda
    runtime = driver.runtime()
    for name, value in {
        "_cudart": runtime,
        "_exchange_device": devices.exchange,
        "_maybe_exchange_device": devices.exchange,
        "_is_in_bad_fork": lambda: devices.forked,
        "_CudaDeviceProperties": Properties,
        "_get_device_properties": lambda index: driver.properties[index],
        "has_magma": True,
    }.items():
        patches.set(cuda, name, value)
    patches.set(torch._C, "_cudart", runtime)
    patches.set(torch._C, "_CudaDeviceProperties", Properties)
    nothing = SimpleNamespace(
        rangePushA=lambda text: 0, rangePop=lambda: 0, rangeStartA=lambda text: 1, rangeEnd=lambda handle: None,
        markA=lambda text: None, deviceRangeStart=lambda text, stream: 1, deviceRangeEnd=lambda handle, stream: None,
    )  # fmt: skip
    patches.set(cuda.nvtx, "_nvtx", nothing)


def _state(patches: Patches) -> None:
    """A CUDA that nobody has touched yet. What was asked of it before (seeds) is remembered, as PyTorch does."""
    cuda = torch.cuda
    for name, value in {
        "_initialized": False,
        "_queued_calls": list(cuda._queued_calls),
        "_lazy_seed_tracker": copy.copy(cuda._lazy_seed_tracker),
        "_cached_device_count": None,
        "default_generators": (),
    }.items():
        patches.set(cuda, name, value)
    patches.on_restore(cuda._check_bf16_tensor_supported.cache_clear)
    cuda._check_bf16_tensor_supported.cache_clear()


def _visible(devices: Devices, patches: Patches) -> None:
    """CUDA_VISIBLE_DEVICES counts where the program sets it. What the shell says about real devices does not."""
    cuda = torch.cuda
    outside = os.environ.get("CUDA_VISIBLE_DEVICES")
    original = cuda._parse_visible_devices

    def parse() -> Any:
        if os.environ.get("CUDA_VISIBLE_DEVICES") == outside:
            return list(range(devices.count))
        return original()

    patches.set(cuda, "_parse_visible_devices", parse)
    patches.set(cuda, "_raw_device_count_nvml", lambda: devices.count)
    patches.set(cuda, "_raw_device_uuid_nvml", lambda: [f"GPU-{i}" for i in range(devices.count)])


def _sensors(devices: Devices, patches: Patches) -> None:
    """What torch.cuda reads through NVIDIA's management library."""
    for name, value in {
        "utilization": 0,
        "memory_usage": 0,
        "temperature": 30,
        "power_draw": 60000,
        "clock_rate": 1410,
    }.items():
        patches.set(torch.cuda, name, lambda device=None, _value=value: _value)
    patches.set(torch.cuda, "device_memory_used", lambda device=None: torch.cuda.memory_reserved(device))

    def processes(device: Any = None) -> str:
        return f"GPU:{devices.index(device)}\nno processes are running"

    for where in (torch.cuda, torch.cuda.memory):
        patches.set(where, "list_gpu_processes", processes)


def _streams(devices: Devices, patches: Patches) -> None:
    cuda = torch.cuda
    for where in (cuda, cuda.streams):
        for made in (streams.Stream, streams.ExternalStream, streams.Event):
            patches.set(where, made.__name__, made)
    for name, base in (("_CudaStreamBase", streams.Stream), ("_CudaEventBase", streams.Event)):
        patches.set(torch._C, name, base)
    patches.set(torch, "Stream", streams.generic(torch.Stream, streams.Stream, devices))
    patches.set(torch, "Event", streams.generic(torch.Event, streams.Event, devices))


def _backends(patches: Patches) -> None:
    # A fused kernel would be asked for whole; the parts it is made of run on every device.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch.backends.cudnn, "version", lambda: CUDNN)
    sizes: dict[int, int] = {}
    prop: Any = torch.backends.cuda.cuFFTPlanCacheAttrContextProp
    cache = torch.backends.cuda.cuFFTPlanCache
    patches.set(cache, "size", prop(lambda index: 0, ".size is a read-only property"))
    patches.set(cache, "max_size", prop(lambda index: sizes.get(index, 4096), sizes.__setitem__))
    patches.set(torch, "_cufft_clear_plan_cache", lambda index: None)
    interface: Any = sys.modules.get("torch._dynamo.device_interface")
    if interface is not None and hasattr(interface, "device_interfaces"):
        before = dict(interface.device_interfaces)
        initialized = interface._device_initialized
        interface._device_initialized = False

        def restore() -> None:
            interface.device_interfaces.clear()
            interface.device_interfaces.update(before)
            interface._device_initialized = initialized

        patches.on_restore(restore)
