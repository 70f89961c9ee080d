"""Simulated tensors through torch.multiprocessing's queues: the receiver gets the memory itself, as CUDA's IPC does it."""

from __future__ import annotations

import os
from multiprocessing import reduction
from typing import Any

import torch

from devguard.simulate import state
from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.storage import SimStorage, on_device
from devguard.simulate.tensor import SimTensor, plain_class, simulated_class, wrap


def install(devices: Devices, patches: Patches) -> None:
    """Teach the pickler of queues how to send simulated tensors and storages."""
    reducers: dict[Any, Any] = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind, reduce in (
        (SimTensor, _reduce_tensor),
        (simulated_class(torch.nn.Parameter), _reduce_tensor),
        (SimStorage, _reduce_storage),
    ):
        reducers[kind] = reduce
        patches.on_restore(lambda kind=kind: reducers.pop(kind))  # type: ignore[misc]


def _share(storage: torch.UntypedStorage) -> tuple[Any, int]:
    """Memory that another process can open. The storage is in it from now on."""
    size = storage.nbytes()
    if size == 0:
        return None, 0
    descriptor, size = storage._share_fd_cpu_()
    return reduction.DupFd(descriptor), size


def _open(shared: Any, size: int) -> torch.UntypedStorage:
    if state.active() is None:
        raise RuntimeError(
            "a tensor on a simulated device was sent to a process without simulated devices: "
            "run devguard.simulate(...) there too"
        )
    torch.cuda._lazy_init()
    if shared is None:
        return torch.UntypedStorage(0)
    descriptor = shared.detach()
    try:
        return torch.UntypedStorage._new_shared_fd_cpu(descriptor, size)  # type: ignore[no-any-return,attr-defined]
    finally:
        os.close(descriptor)


def _reduce_storage(storage: SimStorage) -> Any:
    return _rebuild_storage, (*_share(storage), storage._index)


def _rebuild_storage(shared: Any, size: int, index: int) -> SimStorage:
    return on_device(_open(shared, size), state.current().devices.check(index))


def _reduce_tensor(tensor: SimTensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
            "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
            "(e.g., putting it on the queue)."
        )
    host = tensor._host
    if host.layout is not torch.strided or host.is_quantized:
        raise NotImplementedError(f"devguard can't send a simulated tensor of layout {host.layout} to another process")
    shared = _share(host.untyped_storage())
    form = (host.dtype, host.storage_offset(), tuple(host.shape), host.stride())
    return _rebuild_tensor, (plain_class(type(tensor)), *shared, tensor._index, form, tensor.requires_grad)


def _rebuild_tensor(plain: Any, shared: Any, size: int, index: int, form: Any, requires_grad: bool) -> torch.Tensor:
    storage = _open(shared, size)
    dtype, offset, shape, stride = form
    with torch.device("cpu"):
        host = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    index = state.current().devices.check(index)
    return wrap(host, index, simulated_class(plain)).requires_grad_(requires_grad)
