"""Storages of simulated tensors: real CPU memory that says it is on a simulated device."""

from __future__ import annotations

from typing import Any

import torch

from devguard.simulate import state
from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor


class SimStorage(torch.UntypedStorage):
    """The storage behind a simulated tensor. torch.save, torch.load and pickling read its device."""

    _index: int

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return state.current().devices.shown[self._index]

    @property
    def is_cuda(self) -> bool:
        return True

    def clone(self) -> SimStorage:
        return on_device(torch.UntypedStorage(self.nbytes()).copy_(self, False), self._index)

    def __deepcopy__(self, memo: dict[Any, Any]) -> SimStorage:
        copies = memo.setdefault("torch", {})
        if self._cdata not in copies:
            copies[self._cdata] = self.clone()
        return copies[self._cdata]  # type: ignore[no-any-return]

    def share_memory_(self, *args: Any, **kwargs: Any) -> SimStorage:
        return self  # memory of a device is always shared


def on_device(storage: torch.UntypedStorage, index: int) -> SimStorage:
    """`storage`, which only a simulated tensor may use from now on, as one on device `index`."""
    storage.__class__ = SimStorage
    storage._index = index  # type: ignore[attr-defined]
    return storage  # type: ignore[return-value]


def storage_of(tensor: SimTensor) -> SimStorage:
    """The storage of a simulated tensor: the same object for all of its views."""
    return on_device(tensor._host.untyped_storage(), tensor._index)


def install(devices: Devices, patches: Patches) -> None:
    """Moves of storages."""
    original = torch.storage._to

    def to(self: Any, device: torch.device, non_blocking: bool = False) -> Any:
        index = devices.resolve(device)
        if index is None:
            return original(self, device, non_blocking)
        if isinstance(self, SimStorage) and self._index == index:
            return self
        return on_device(torch.UntypedStorage(self.nbytes()).copy_(self, False), index)

    patches.set(torch.storage, "_to", to)
