"""Storages of simulated tensors: real CPU memory that says it is on a simulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devguard.simulate import state
from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches

if TYPE_CHECKING:
    from devguard.simulate.memory import DeviceMemory
    from devguard.simulate.tensor import SimTensor


class SimStorage(torch.UntypedStorage):
    """The storage behind a simulated tensor. torch.save, torch.load and pickling read its device.

    One object stands for the storage as long as any tensor uses it, so that its end is the end of that memory.
    """

    _counted: tuple[DeviceMemory, int]  # where, and as how many bytes

    def __del__(self) -> None:
        memory, size = self._counted
        memory.changes.append(-size)

    @property
    def _index(self) -> int:
        return self._counted[0].index

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return state.current().devices.shown[self._index]

    @property
    def is_cuda(self) -> bool:
        return True

    def resize_(self, size: int) -> Any:
        made = super().resize_(size)
        recount(self)
        return made

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
    """`storage`, which only a simulated tensor may use from now on, as one on device `index`. Raises OutOfMemoryError."""
    if storage.__class__ is not SimStorage:
        memory = state.current().memories[index]
        size = storage.nbytes()
        changes = memory.changes
        changes.append(size)
        storage._counted = memory, size  # type: ignore[attr-defined]
        storage.__class__ = SimStorage
        if len(changes) > memory.patience:
            memory.settle(size)
    return storage  # type: ignore[return-value]


def storage_of(tensor: SimTensor) -> SimStorage:
    """The storage of a simulated tensor: the same object for all of its views."""
    return on_device(tensor._host.untyped_storage(), tensor._index)


def recount(storage: SimStorage) -> None:
    """An op may have resized the storage."""
    memory, before = storage._counted
    size = storage.nbytes()
    if size != before:
        storage._counted = memory, size
        memory.changes.extend((size, -before))


def install(devices: Devices, patches: Patches) -> None:
    """Moves of storages."""
    storages: Any = torch.storage
    original = storages._to

    def to(self: Any, device: torch.device, non_blocking: bool = False) -> Any:
        index = devices.resolve(device)
        if index is None:
            return original(self, device, non_blocking)
        if isinstance(self, SimStorage) and self._index == index:
            return self
        return on_device(torch.UntypedStorage(self.nbytes()).copy_(self, False), index)

    patches.set(torch.storage, "_to", to)
    typed: Any = torch.storage.TypedStorage
    wrapped = typed._new_wrapped_storage

    def new_wrapped_storage(self: Any, untyped: Any) -> Any:
        if not isinstance(untyped, SimStorage) or type(self) is not typed:
            return wrapped(self, untyped)
        return typed(wrap_storage=untyped, dtype=self.dtype, _internal=True)

    patches.set(typed, "_new_wrapped_storage", new_wrapped_storage)
    plain: Any = torch.UntypedStorage.__new__

    def __new__(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        index = None if device is None else devices.resolve(device)
        if index is None:
            return plain(cls, *args, **kwargs) if device is None else plain(cls, *args, device=device, **kwargs)
        return on_device(plain(torch.UntypedStorage, *args, **kwargs), index)

    patches.set(torch.UntypedStorage, "__new__", staticmethod(__new__))
