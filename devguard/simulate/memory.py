"""Memory of simulated devices: what the storages of simulated tensors hold, counted as PyTorch's caching allocator counts.

Each storage reports its size once when it comes and once when it goes, to a queue that may be appended to from any thread
and from a destructor; sums and peaks are worked out when somebody asks, or on every allocation where a limit is set.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from devguard.simulate import state

TOTAL = 80 << 30
_BLOCK, _SMALL, _SEGMENT = 512, 2 << 20, 20 << 20
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_size(size: str | int | None) -> int | None:
    """Bytes of "16GiB", "500 MB" or a number (all units are powers of 1024). Raises ValueError with one clear line."""
    if size is None:
        return None
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", size, re.IGNORECASE)
        if match is None:
            raise ValueError(f"can't read {size!r} as an amount of memory: write a number and a unit, such as '16GiB'")
        size = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
    if size <= 0:
        raise ValueError(f"a device needs more than {size} bytes of memory")
    return size


class DeviceMemory:
    """What one device holds."""

    def __init__(self, index: int, total: int, limited: bool) -> None:
        self.index, self.total = index, total
        self.limit = total if limited else None
        self.patience = 0 if limited else 4096  # how many changes may wait
        self.changes: deque[int] = deque()
        self.allocated = self.peak = self.reserved = self.reserved_peak = 0
        self.allocations = self.frees = self.bytes_allocated = self.bytes_freed = self.ooms = 0
        self._folding = threading.Lock()

    def settle(self, size: int) -> None:
        """A storage of `size` bytes came. Raises OutOfMemoryError where there is a limit and it is one too many."""
        self.fold()
        if self.limit is not None and self.allocated > self.limit:
            raise self.exhausted(size, self.allocated - size)

    def fold(self) -> None:
        """Work the queued changes into the sums."""
        with self._folding:
            changes = self.changes
            while True:
                try:
                    size = changes.popleft()
                except IndexError:
                    break
                size = -(-size // _BLOCK) * _BLOCK if size > 0 else size // _BLOCK * _BLOCK
                self.allocated += size
                if size > 0:
                    self.allocations += 1
                    self.bytes_allocated += size
                    if self.limit is None or self.allocated <= self.limit:
                        self.peak = max(self.peak, self.allocated)
                    if self.allocated > self.reserved:
                        grain = _SMALL if self.allocated < _SEGMENT else _SEGMENT
                        self.reserved = min(-(-self.allocated // grain) * grain, max(self.total, self.allocated))
                        self.reserved_peak = max(self.reserved_peak, self.reserved)
                else:
                    self.frees += 1
                    self.bytes_freed -= size

    def set_limit(self, limit: int) -> None:
        """From now on no more than `limit` bytes."""
        self.limit, self.patience = limit, 0

    def check(self, size: int) -> None:
        """Raises OutOfMemoryError if `size` bytes more would not fit: asked before memory is really taken."""
        if self.limit is not None:
            self.fold()
            if self.allocated + size > self.limit:
                raise self.exhausted(size, self.allocated)

    def exhausted(self, size: int, used: int) -> Exception:
        """CUDA's words for an allocation of `size` bytes that fails where `used` are taken."""
        self.ooms += 1
        return torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {_shown(size)}. GPU {self.index} has a total capacity of "
            f"{_shown(self.total)} of which {_shown(self.total - used)} is free. Including non-PyTorch memory, this "
            f"process has {_shown(used)} memory in use. Of the allocated memory {_shown(used)} is allocated by PyTorch, "
            f"and {_shown(max(self.reserved - used, 0))} is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )

    def empty_cache(self) -> None:
        """Give back what is reserved and not allocated."""
        self.fold()
        self.reserved = -(-self.allocated // _SMALL) * _SMALL

    def reset_peak(self) -> None:
        self.fold()
        self.peak, self.reserved_peak = self.allocated, self.reserved

    def reset_accumulated(self) -> None:
        self.fold()
        self.allocations = self.frees = self.bytes_allocated = self.bytes_freed = self.ooms = 0

    def free_and_total(self) -> tuple[int, int]:
        self.fold()
        return max(self.total - self.reserved, 0), self.total

    def stats(self) -> dict[str, Any]:
        """The nested figures that torch.cuda.memory_stats flattens."""
        self.fold()
        blocks = _stat(self.allocations - self.frees, self.allocations - self.frees, self.allocations, self.frees)
        size = _stat(self.allocated, self.peak, self.bytes_allocated, self.bytes_freed)
        kept = _stat(self.reserved, self.reserved_peak, self.reserved_peak, self.reserved_peak - self.reserved)
        segments = _stat(*(-(-n // _SEGMENT) for n in (self.reserved, self.reserved_peak, self.reserved_peak, 0)))
        none = _stat(0, 0, 0, 0)
        rows = {
            "allocation": blocks, "segment": segments, "active": blocks, "inactive_split": none,
            "allocated_bytes": size, "reserved_bytes": kept, "active_bytes": size, "inactive_split_bytes": none,
            "requested_bytes": size,
        }  # fmt: skip
        pools = {key: {"all": row, "small_pool": none, "large_pool": row} for key, row in rows.items()}
        return {
            **pools, "oversize_allocations": none, "oversize_segments": none, "max_split_size": -1,
            "num_alloc_retries": 0, "num_ooms": self.ooms, "num_sync_all_streams": 0, "num_device_alloc": self.allocations,
            "num_device_free": 0,
        }  # fmt: skip


def _stat(current: int, peak: int, allocated: int, freed: int) -> dict[str, int]:
    return {"current": current, "peak": max(peak, current), "allocated": allocated, "freed": freed}


def _shown(size: int) -> str:
    """A size as the allocator writes it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size} bytes"


def fits(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Before memory is taken for an empty tensor on a device with a limit: raises OutOfMemoryError where it is too much."""
    if func._schema.name not in ("aten::empty", "aten::empty_strided") or not args:
        return
    simulation = state.current()
    index = simulation.devices.resolve(kwargs.get("device"))
    if index is not None:
        count = 1
        for size in args[0]:
            count *= size
        simulation.memories[index].check(count * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize)


def make(count: int, limit: int | None) -> tuple[DeviceMemory, ...]:
    """The memories of `count` devices."""
    return tuple(DeviceMemory(i, limit or TOTAL, limit is not None) for i in range(count))
