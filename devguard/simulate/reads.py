"""What reads a tensor on the host: numpy, tolist, printing, formatting, dlpack."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
import torch.utils.dlpack

from devguard.simulate import state
from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor


def install(devices: Devices, patches: Patches) -> None:
    """What reads a tensor on the host: numpy, tolist, printing, formatting, dlpack."""

    def make_numpy(original: Any) -> Any:
        def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
            if not isinstance(self, SimTensor):
                return original(self, force=force)
            if force:
                return original(self.detach().cpu().resolve_conj().resolve_neg())
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )

        return numpy

    patches.method("numpy", make_numpy)

    def make_array(original: Any) -> Any:
        def __array__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return self.numpy() if isinstance(self, SimTensor) else original(self, *args, **kwargs)

        return __array__

    patches.method("__array__", make_array)

    def make_tolist(original: Any) -> Any:
        def tolist(self: torch.Tensor) -> Any:
            return original(self.detach().cpu()) if isinstance(self, SimTensor) else original(self)

        return tolist

    patches.method("tolist", make_tolist)

    def make_repr(original: Any) -> Any:
        def __repr__(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
            if not isinstance(self, SimTensor):
                return original(self, tensor_contents=tensor_contents)  # type: ignore[no-any-return]
            return _text(devices, self)

        return __repr__

    patches.method("__repr__", make_repr)

    def make_format(original: Any) -> Any:
        def __format__(self: torch.Tensor, spec: str) -> str:
            if isinstance(self, SimTensor):
                return self.item().__format__(spec) if self.dim() == 0 else object.__format__(self, spec)
            return original(self, spec)  # type: ignore[no-any-return]

        return __format__

    patches.method("__format__", make_format)
    _dlpack(devices, patches)


def _dlpack(devices: Devices, patches: Patches) -> None:
    def make_dlpack(original: Any) -> Any:
        def __dlpack__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self, SimTensor):
                return original(self, *args, **kwargs)
            raise BufferError(
                f"{self.device} is simulated: no other library can read its memory. "
                "Move the tensor to the CPU for DLPack, or use torch.from_dlpack"
            )

        return __dlpack__

    patches.method("__dlpack__", make_dlpack)

    def make_dlpack_device(original: Any) -> Any:
        def __dlpack_device__(self: torch.Tensor) -> Any:
            if not isinstance(self, SimTensor):
                return original(self)
            return _DLPACK_KINDS[devices.kind.name], self._index

        return __dlpack_device__

    patches.method("__dlpack_device__", make_dlpack_device)
    original_from = torch.utils.dlpack.from_dlpack

    @functools.wraps(original_from)
    def from_dlpack(ext_tensor: Any, **kwargs: Any) -> Any:
        if isinstance(ext_tensor, SimTensor):
            device = kwargs.get("device")
            return ext_tensor.detach() if device is None else ext_tensor.detach().to(device)
        return original_from(ext_tensor, **kwargs)

    for owner in (torch, torch.utils.dlpack):
        patches.set(owner, "from_dlpack", from_dlpack)


_DLPACK_KINDS = {"cuda": 2}


def _text(devices: Devices, tensor: SimTensor) -> str:
    """What printing shows: the text of the CPU tensor, with the device and the graph's function put in."""
    from torch import _tensor_str

    state.current().timeline.host_waits_for_current(tensor._index)
    guard = torch._C._DisableTorchDispatch()
    try:
        with torch.no_grad():
            text = _tensor_str._str(tensor._host.detach())
    finally:
        del guard
    suffixes = []
    if torch._C._get_default_device() != devices.kind.name or tensor._index != devices.current:
        suffixes.append(f"device='{tensor.device}'")
    rest = []
    if tensor.grad_fn is not None:
        name = type(tensor.grad_fn).__name__
        rest.append(f"grad_fn=<{tensor.grad_fn.name().rpartition('::')[2] if name == 'CppFunction' else name}>")
    elif tensor.requires_grad:
        rest.append("requires_grad=True")
    body: str = text[:-1]
    at = _suffix_position(tensor, body)
    return ", ".join([body[:at], *suffixes]) + body[at:] + "".join(f", {r}" for r in rest) + ")"


def _suffix_position(tensor: torch.Tensor, body: str) -> int:
    """Where the first of size=, dtype=, … stands in a tensor's text: the device comes before them."""
    if tensor.layout is not torch.strided:  # parts of it have a size of their own
        return max((found.start() for found in re.finditer(r",\s+size=", body)), default=len(body))
    found = re.search(r",\s+(size|dtype|quantization_scheme)=", body)
    return found.start() if found else len(body)
