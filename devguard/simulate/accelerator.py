"""torch.accelerator on simulated devices: PyTorch's own code on the functions of torch._C given here."""

from __future__ import annotations

from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.driver import Driver
from devguard.simulate.patches import Patches


def install(devices: Devices, driver: Driver, patches: Patches) -> None:
    """Make the simulated type the accelerator of this process."""
    kind = torch.device(devices.kind.name)
    memory = driver.memory

    def capability(index: int) -> dict[str, Any]:
        kept = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
                torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)  # fmt: skip
        return {"supported_dtypes": set(kept)}

    def stats(index: int) -> dict[str, Any]:
        found = memory(index).stats()
        return {**found, "allocated": found["allocation"]}

    def get_stream(index: int) -> Any:
        return torch.cuda.current_stream(index)

    for name, answer in {
        "_get_accelerator": lambda check=None: kind,
        "_accelerator_getAccelerator": lambda: kind,
        "_accelerator_getDeviceIndex": driver.current_device,
        "_accelerator_setDeviceIndex": driver.set_device,
        "_accelerator_exchangeDevice": devices.exchange,
        "_accelerator_maybeExchangeDevice": devices.exchange,
        "_accelerator_getDeviceCapability": capability,
        "_accelerator_getStream": get_stream,
        "_accelerator_setStream": torch.cuda.set_stream,
        "_accelerator_synchronizeDevice": lambda index: driver.timeline.synchronize(index),
        "_accelerator_isAllocatorInitialized": lambda: torch.cuda.is_initialized(),
        "_accelerator_emptyCache": driver.empty_cache,
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_getDeviceStats": stats,
        "_accelerator_resetPeakStats": lambda index: memory(index).reset_peak(),
        "_accelerator_resetAccumulatedStats": lambda index: memory(index).reset_accumulated(),
        "_accelerator_getMemoryInfo": lambda index: memory(index).free_and_total(),
        "_accelerator_setAllocatorSettings": lambda text: None,
        "_accelerator_getAllocatorSettings": lambda: "",
        "_accelerator_hooks_device_count": driver.count,
        "_accelerator_hooks_get_current_device": driver.current_device,
        "_accelerator_hooks_set_current_device": driver.set_device,
        "_accelerator_hooks_exchange_device": devices.exchange,
        "_accelerator_hooks_maybe_exchange_device": devices.exchange,
    }.items():
        if hasattr(torch._C, name):
            patches.set(torch._C, name, answer)
