"""torch.cuda as a program sees it on a machine with simulated devices."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches


def install(devices: Devices, patches: Patches) -> None:
    """Replace the functions of torch.cuda."""
    cuda = torch.cuda

    def set_device(device: Any) -> None:
        index = devices.resolve(device)
        if index is not None:
            devices.exchange(index)

    def index_of(device: Any = None) -> int:
        index = devices.resolve(device) if device is not None else devices.current
        return devices.current if index is None else index

    def properties(device: Any = None) -> Any:
        i = index_of(device)
        return SimpleNamespace(
            name="Simulated CUDA device", major=8, minor=0, total_memory=80 << 30, multi_processor_count=108,
            is_integrated=0, is_multi_gpu_board=0, warp_size=32, max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536, gcnArchName="", L2_cache_size=40 << 20, uuid=f"simulated-{i}",
        )  # fmt: skip

    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "_is_compiled": lambda: True,
        "device_count": lambda: devices.count,
        "_device_count_nvml": lambda: devices.count,
        "current_device": lambda: devices.current,
        "set_device": set_device,
        "_exchange_device": devices.exchange,
        "_maybe_exchange_device": devices.exchange,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "_lazy_call": lambda call, **kwargs: call(),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_properties": properties,
        "get_device_capability": lambda device=None: (8, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (80 << 30, 80 << 30),
        "can_device_access_peer": lambda a, b: True,
        "current_stream": lambda device=None: Stream(device),
        "default_stream": lambda device=None: Stream(device),
        "stream": StreamContext,
        "Stream": Stream,
        "Event": Event,
    }
    for name, value in functions.items():
        original = getattr(cuda, name, None)
        if callable(original) and not isinstance(original, type) and not isinstance(value, type):
            try:
                value = functools.wraps(original)(value)
            except (AttributeError, TypeError):
                pass
        patches.set(cuda, name, value)
    # torch._dynamo, which every optimizer imports, asks for this name where CUDA is said to be compiled in.
    patches.set(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(cuda.streams, "Stream", Stream)
    patches.set(cuda.streams, "Event", Event)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(cuda.amp.common, "amp_definitely_not_available", lambda: False)


class Stream:
    """A stream of a simulated device: work is done when it is asked for, so it never has anything to wait for."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority
        self._device = device
        self.cuda_stream = 0

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device()) if self._device is None else torch.device(self._device)

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None: ...


class StreamContext:
    """`with torch.cuda.stream(s)`."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: Any) -> None: ...


class Event:
    """An event of a simulated device."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **kw: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        import time

        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Any) -> float:
        return float(other._time - self._time) * 1e3
