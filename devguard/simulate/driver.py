"""The functions of torch._C that reach a CUDA driver, answered by the simulation.

PyTorch's own Python code in torch.cuda runs on them unchanged, on a CPU build (which lacks them) and on a CUDA build (whose
own would ask a driver).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from devguard.knowledge import syncs
from devguard.simulate import state
from devguard.simulate.devices import Devices
from devguard.simulate.memory import DeviceMemory
from devguard.simulate.streams import Key, Timeline

ARCHITECTURES = "sm_75 sm_80 sm_86 sm_90 compute_90"
NCCL = (2, 27, 5)
CUDNN = 91002
_CUDA_VERSION = "12.8"
_HANDLE = 0x5C0000000


class Properties:
    """What torch.cuda.get_device_properties gives."""

    major, minor = 8, 0
    multi_processor_count = 108
    warp_size = 32
    max_threads_per_multi_processor = 2048
    max_threads_per_block = 1024
    regs_per_multiprocessor = 65536
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 166912
    shared_memory_per_multiprocessor = 167936
    L2_cache_size = 40 << 20
    clock_rate = 1410000
    memory_clock_rate = 1593000
    memory_bus_width = 5120
    is_integrated = 0
    is_multi_gpu_board = 0
    gcnArchName = "NVIDIA A100-SXM4-80GB"
    pci_domain_id = pci_device_id = 0

    def __init__(self, index: int, total: int) -> None:
        self.name = "NVIDIA A100-SXM4-80GB (simulated)"
        self.total_memory = total
        self.pci_bus_id = index
        self.uuid = f"00000000-5157-4c41-5445-{index:012d}"

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id=0, pci_domain_id=0, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


class Driver:
    """The simulated driver: `functions()` are what torch._C is given."""

    def __init__(
        self,
        devices: Devices,
        timeline: Timeline,
        memories: Sequence[DeviceMemory],
        generators: Sequence[torch.Generator],
    ) -> None:
        self.devices, self.timeline, self.memories, self.generators = devices, timeline, memories, generators
        self.properties = [Properties(i, memories[i].total) for i in range(devices.count)]
        self._sync_debug = 0
        self._metadata = ""
        self._fractions = [1.0] * devices.count

    # devices ---------------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """`torch._C._cuda_init`: what PyTorch calls once, from its own lazy initialisation."""
        torch.cuda.default_generators = tuple(self.generators)  # type: ignore[assignment]
        self.devices.visible = self.count()

    def count(self) -> int:
        if self.devices.visible is not None:
            return self.devices.visible
        chosen = torch.cuda._parse_visible_devices()
        kept = [c for c in chosen if not isinstance(c, int) or c < self.devices.count]
        return min(len(kept), self.devices.count)

    def set_device(self, index: int) -> None:
        torch.cuda._lazy_init()
        self.devices.exchange(self.devices.check(index))

    def current_device(self) -> int:
        torch.cuda._lazy_init()
        return self.devices.current

    def peer(self, device: int, other: int) -> bool:
        return device != other

    # streams ---------------------------------------------------------------------------------------------------------

    def current_stream(self, index: int) -> tuple[int, int, int]:
        return self._named(self.timeline.current(self._index(index)))

    def default_stream(self, index: int) -> tuple[int, int, int]:
        return self._named((self._index(index), 0))

    def external_stream(self, pointer: int, index: int) -> tuple[int, int, int]:
        return self._named((self._index(index), pointer))

    def raw_stream(self, index: int) -> int:
        return int(torch.cuda.current_stream(self._index(index)).cuda_stream)

    def set_stream(self, stream_id: int, device_index: int, device_type: int) -> None:
        self.devices.exchange(device_index)
        self.timeline.set_current((device_index, stream_id))

    def synchronize(self) -> None:
        self.timeline.synchronize()

    def _index(self, index: int | None) -> int:
        return self.devices.current if index is None or index < 0 else self.devices.check(index)

    @staticmethod
    def _named(key: Key) -> tuple[int, int, int]:
        return key[1], key[0], 1

    # memory ----------------------------------------------------------------------------------------------------------

    def memory(self, index: int) -> DeviceMemory:
        return self.memories[self._index(index)]

    def empty_cache(self) -> None:
        for memory in self.memories:
            memory.empty_cache()

    def set_fraction(self, fraction: float, index: int) -> None:
        memory = self.memory(index)
        self._fractions[memory.index] = fraction
        memory.set_limit(int(memory.total * fraction))

    def snapshot(self, *args: Any) -> dict[str, Any]:
        return {"segments": [], "device_traces": [[] for _ in self.memories], "external_annotations": [],
                "allocator_settings": {}}  # fmt: skip

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Name in torch._C -> what answers it."""
        return {
            "_cuda_init": self.init,
            "_cuda_isInBadFork": lambda: self.devices.forked,
            "_cuda_getDeviceCount": self.count,
            "_cuda_getDevice": self.current_device,
            "_cuda_setDevice": self.set_device,
            "_cuda_exchangeDevice": self.devices.exchange,
            "_cuda_maybeExchangeDevice": self.devices.exchange,
            "_cuda_canDeviceAccessPeer": self.peer,
            "_cuda_hasPrimaryContext": lambda index: torch.cuda.is_initialized(),
            "_cuda_getCompiledVersion": lambda: 12080,
            "_cuda_getArchFlags": lambda: ARCHITECTURES,
            "_cuda_synchronize": self.synchronize,
            "_cuda_sleep": lambda cycles: None,
            "_cuda_ipc_collect": lambda: None,
            "_cuda_getCurrentStream": self.current_stream,
            "_cuda_getDefaultStream": self.default_stream,
            "_cuda_getCurrentRawStream": self.raw_stream,
            "_cuda_getStreamFromExternal": self.external_stream,
            "_cuda_setStream": self.set_stream,
            "_cuda_isCurrentStreamCapturing": lambda: self.timeline.capturing is not None,
            "_cuda_get_sync_debug_mode": lambda: self._sync_debug,
            "_cuda_set_sync_debug_mode": self._set_sync_debug,
            "_cuda_getCurrentBlasHandle": lambda: _HANDLE + self.devices.current,
            "_cuda_getCurrentSolverHandle": lambda: _HANDLE + self.devices.current,
            "_graph_pool_handle": lambda: (0, next(self.timeline.numbers)),
            **self._memory_functions(),
            **{f"_cuda_{name}": answer for name, answer in _SETTINGS.items()},
            "_nccl_version": lambda: (NCCL[0] << 32) | (NCCL[1] << 16) | NCCL[2],
            "_nccl_version_suffix": lambda: b"",
            "_nccl_unique_id": lambda: os.urandom(128),
            "_nccl_init_rank": lambda *args: None,
        }

    def _set_sync_debug(self, mode: int) -> None:
        self._sync_debug = mode
        if mode:
            state.current().intercepts.look("sync debug", before=self._tell_sync)
        else:
            state.current().intercepts.leave("sync debug")

    def _tell_sync(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if syncs.waits(func, tuple(args), dict(kwargs)):
            if self._sync_debug > 1:
                raise RuntimeError("called a synchronizing CUDA operation")
            warnings.warn("called a synchronizing CUDA operation", stacklevel=3)

    def _memory_functions(self) -> dict[str, Callable[..., Any]]:
        memory = self.memory
        return {
            "_cuda_emptyCache": lambda *args: self.empty_cache(),
            "_cuda_memoryStats": lambda index, *args: memory(index).stats(),
            "_cuda_resetPeakMemoryStats": lambda index: memory(index).reset_peak(),
            "_cuda_resetAccumulatedMemoryStats": lambda index: memory(index).reset_accumulated(),
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": lambda index: self._fractions[self._index(index)],
            "_cuda_hostMemoryStats": dict,
            "_cuda_resetPeakHostMemoryStats": lambda: None,
            "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
            "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: _HANDLE + size,
            "_cuda_cudaCachingAllocator_raw_delete": lambda pointer: None,
            "_cuda_cudaCachingAllocator_enable": lambda on: None,
            "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
            "_cuda_getAllocatorBackend": lambda: "native",
            "_cuda_record_memory_history": lambda *args, **kwargs: None,
            "_cuda_record_memory_history_legacy": lambda *args, **kwargs: None,
            "_cuda_isHistoryEnabled": lambda: False,
            "_cuda_getMemoryMetadata": lambda: self._metadata,
            "_cuda_setMemoryMetadata": lambda text: setattr(self, "_metadata", text),
            "_cuda_attach_out_of_memory_observer": lambda observer: None,
            "_host_emptyCache": lambda: None,
        }

    def runtime(self) -> SimpleNamespace:
        """The module torch.cuda.cudart() gives."""
        error = _RuntimeError
        return SimpleNamespace(
            cudaError=error, cudaGetErrorString=lambda code: _ERRORS.get(int(code), "unknown error"),
            cudaMemGetInfo=lambda index: self.memory(index).free_and_total(),
            cudaHostRegister=lambda *args: error(0), cudaHostUnregister=lambda *args: error(0),
            cudaStreamCreate=lambda *args: error(0), cudaStreamDestroy=lambda *args: error(0),
            cudaProfilerStart=lambda: error(0), cudaProfilerStop=lambda: error(0),
            cudaProfilerInitialize=lambda *args: error(0),
        )  # fmt: skip


_ERRORS = {0: "no error", 2: "out of memory", 34: "CUDA driver is a stub library", 101: "invalid device ordinal"}


class _RuntimeError(int):
    success = 0


# Settings that change nothing here: each getter gives what CUDA starts with.
_SETTINGS: dict[str, Callable[..., Any]] = {
    "clearCublasWorkspaces": lambda: None,
    "getCublasWorkspaceSize": lambda: 8 << 20,
    "setCublasWorkspaceSize": lambda size: None,
    "resetCublasWorkspaceSize": lambda: None,
    "getCublasLtWorkspaceSize": lambda: 1 << 20,
    "setCublasLtWorkspaceSize": lambda size: None,
    "resetCublasLtWorkspaceSize": lambda: None,
    "get_cudnn_benchmark_limit": lambda: 10,
    "set_cudnn_benchmark_limit": lambda limit: None,
    "get_conv_benchmark_empty_cache": lambda: False,
    "tunableop_is_enabled": lambda: False,
    "tunableop_enable": lambda on=True: None,
    "tunableop_tuning_is_enabled": lambda: True,
    "tunableop_tuning_enable": lambda on=True: None,
    "tunableop_get_max_tuning_duration": lambda: 30,
    "tunableop_set_max_tuning_duration": lambda value: None,
    "tunableop_get_max_tuning_iterations": lambda: 100,
    "tunableop_set_max_tuning_iterations": lambda value: None,
    "tunableop_get_filename": lambda: "tunableop_results0.csv",
    "tunableop_set_filename": lambda *args: None,
    "tunableop_get_results": lambda: (),
    "tunableop_get_validators": lambda: (),
    "tunableop_read_file": lambda name=None: False,
    "tunableop_get_rotating_buffer_size": lambda: 0,
    "tunableop_set_rotating_buffer_size": lambda size: None,
    "tunableop_set_numerical_check_tolerances": lambda *args: None,
    "record_untuned_is_enabled": lambda: False,
    "record_untuned_enable": lambda on=True: None,
}
