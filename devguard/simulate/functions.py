"""Tensor methods and torch functions that don't end in an op: replaced while a simulation runs.

They are replaced on torch.Tensor and torch, not on the simulated class, so that an observer that wraps them sees every call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

from devguard.simulate import indexing  # noqa: F401
from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.storage import storage_of
from devguard.simulate.tensor import SimTensor, attributes_of, become, plain_class, simulated_class, wrap

_aten = torch.ops.aten


def install(devices: Devices, patches: Patches) -> None:
    """Replace everything this file knows of."""
    _moves(devices, patches)
    _reads(devices, patches)
    _data(devices, patches)
    _construction(devices, patches)
    _copies(patches)
    _uninitialized(patches)


def _uninitialized(patches: Patches) -> None:
    """Parameters of lazy modules allow a list of methods, by identity: the replaced ones belong to it as well."""
    allowed = torch.nn.parameter.UninitializedTensorMixin._allowed_methods
    names = {getattr(method, "__name__", "") for method in allowed}
    added = [vars(torch.Tensor)[name] for name in names if name in vars(torch.Tensor)]
    added = [method for method in added if method not in allowed]
    allowed.extend(added)
    patches.on_restore(lambda: [allowed.remove(method) for method in added])


def _method(patches: Patches, name: str, make: Callable[[Any], Any]) -> None:
    """Replace torch.Tensor.name by make(original)."""
    original = getattr(torch.Tensor, name)
    made = make(original)
    if not isinstance(made, property):
        made = functools.wraps(original)(made)
    patches.set(torch.Tensor, name, made)


def _same(tensor: torch.Tensor, index: int | None, device: torch.device | None) -> bool:
    """Is the tensor already on that device (simulated `index`, or another `device`)?"""
    if index is not None:
        return isinstance(tensor, SimTensor) and tensor._index == index
    return device is None or tensor.device == device


def _parse_to(devices: Devices, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(device, index, dtype, non_blocking, copy, memory_format) of a call of Tensor.to."""
    args_list = list(args)
    copy = bool(kwargs.get("copy", False))
    other = kwargs.get("other", args_list[0] if args_list else None)
    if isinstance(other, torch.Tensor):
        device, dtype = other.device, other.dtype
        rest = args_list if "other" in kwargs else args_list[1:]
    else:
        rest = args_list
        device = kwargs.get("device")
        dtype = kwargs.get("dtype")
        if rest and (isinstance(rest[0], (torch.device, str, int)) and not isinstance(rest[0], bool) or rest[0] is None):
            device = rest.pop(0)
            if rest and (isinstance(rest[0], torch.dtype) or rest[0] is None):
                dtype = rest.pop(0)
        elif rest and isinstance(rest[0], torch.dtype):
            dtype = rest.pop(0)
    non_blocking = rest[0] if rest else kwargs.get("non_blocking", False)
    copy = rest[1] if len(rest) > 1 else copy
    index = devices.resolve(device) if device is not None else None
    if index is not None:
        device = devices.shown[index]
    elif device is not None and not isinstance(device, torch.device):
        device = torch.device(device)
    return device, index, dtype, bool(non_blocking), bool(copy), kwargs.get("memory_format")


def _moves(devices: Devices, patches: Patches) -> None:
    """to, cuda, cpu, type: an explicit move is one _to_copy, and nothing where there is nothing to do."""
    original_to = torch.Tensor.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        device, index, dtype, non_blocking, copy, memory_format = _parse_to(devices, args, kwargs)
        if index is None and not isinstance(self, SimTensor):
            return original_to(self, *args, **kwargs)
        if not copy and _same(self, index, device) and dtype in (None, self.dtype):
            if memory_format in (None, torch.preserve_format) or self.is_contiguous(memory_format=memory_format):
                return self
        options: dict[str, Any] = {"non_blocking": non_blocking, "copy": copy}
        if dtype not in (None, self.dtype):
            options["dtype"] = dtype
        if not _same(self, index, device):
            options["device"] = device
        if memory_format is not None:
            options["memory_format"] = memory_format
        if "device" not in options and "dtype" not in options:
            options["dtype"] = self.dtype
        return original_to(self, **options)  # type: ignore[no-any-return]

    patches.set(torch.Tensor, "to", functools.wraps(original_to)(to))

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        index = devices.current if device is None else devices.resolve(device)
        if index is None:
            raise ValueError(f"Invalid device, must be {devices.kind.name} device")
        extra = {} if memory_format is None else {"memory_format": memory_format}
        return to(self, devices.shown[index], non_blocking=non_blocking, **extra)

    patches.set(torch.Tensor, "cuda", functools.wraps(torch.Tensor.cuda)(cuda))

    def make_cpu(original: Any) -> Any:
        def cpu(self: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
            if not isinstance(self, SimTensor):
                return original(self) if memory_format is None else original(self, memory_format=memory_format)
            extra = {} if memory_format is None else {"memory_format": memory_format}
            return to(self, torch.device("cpu"), **extra)

        return cpu

    _method(patches, "cpu", make_cpu)

    def make_type(original: Any) -> Any:
        def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            prefix = f"torch.{devices.kind.name}."
            if dtype is None:
                if not isinstance(self, SimTensor):
                    return original(self)
                return prefix + self._host.type().removeprefix("torch.")
            if isinstance(dtype, type) and not issubclass(dtype, torch.Tensor):
                dtype = f"{dtype.__module__}.{dtype.__name__}"
            if isinstance(dtype, str):
                device = devices.shown[devices.current] if dtype.startswith(prefix) else torch.device("cpu")
                if _same(self, devices.current if device.type != "cpu" else None, device):
                    device = self.device
                wanted = _legacy_dtype(dtype.rpartition(".")[2])
                return to(self, device, wanted, non_blocking)
            return to(self, dtype, non_blocking) if isinstance(dtype, torch.dtype) else original(self, dtype)

        return type_

    _method(patches, "type", make_type)


_LEGACY = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8, "BoolTensor": torch.bool,
    "ComplexFloatTensor": torch.complex64, "ComplexDoubleTensor": torch.complex128,
}  # fmt: skip


def _legacy_dtype(name: str) -> torch.dtype:
    if name not in _LEGACY:
        raise ValueError(f"invalid type: '{name}'")
    return _LEGACY[name]


def _reads(devices: Devices, patches: Patches) -> None:
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

    _method(patches, "numpy", make_numpy)

    def make_array(original: Any) -> Any:
        def __array__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return self.numpy() if isinstance(self, SimTensor) else original(self, *args, **kwargs)

        return __array__

    _method(patches, "__array__", make_array)

    def make_tolist(original: Any) -> Any:
        def tolist(self: torch.Tensor) -> Any:
            return original(self.detach().cpu()) if isinstance(self, SimTensor) else original(self)

        return tolist

    _method(patches, "tolist", make_tolist)

    def make_repr(original: Any) -> Any:
        def __repr__(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
            if not isinstance(self, SimTensor):
                return original(self, tensor_contents=tensor_contents)  # type: ignore[no-any-return]
            return _text(devices, self)

        return __repr__

    _method(patches, "__repr__", make_repr)

    def make_format(original: Any) -> Any:
        def __format__(self: torch.Tensor, spec: str) -> str:
            if isinstance(self, SimTensor):
                return self.item().__format__(spec) if self.dim() == 0 else object.__format__(self, spec)
            return original(self, spec)  # type: ignore[no-any-return]

        return __format__

    _method(patches, "__format__", make_format)


def _text(devices: Devices, tensor: SimTensor) -> str:
    """What printing shows: the text of the CPU tensor, with the device and the graph's function put in."""
    from torch import _tensor_str

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
    body = text[:-1]
    at = _suffix_position(body)
    return ", ".join([body[:at], *suffixes]) + body[at:] + "".join(f", {r}" for r in rest) + ")"


def _suffix_position(body: str) -> int:
    """Where the first of size=, dtype=, … stands in a tensor's text: the device comes before them."""
    found = [p for p in (body.find(f", {word}=") for word in ("size", "dtype", "nnz", "layout", "quantization_scheme"))
             if p >= 0]  # fmt: skip
    return min(found, default=len(body))


def _data(devices: Devices, patches: Patches) -> None:
    """Storage, address and `.data`."""
    plain_data: Any = torch.Tensor.data

    def get_data(self: torch.Tensor) -> torch.Tensor:
        if isinstance(self, SimTensor):
            return wrap(self._host.detach(), self._index)
        return plain_data.__get__(self)  # type: ignore[no-any-return]

    def set_data(self: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(self, SimTensor) or isinstance(value, SimTensor):
            become(self, value)
        else:
            plain_data.__set__(self, value)

    patches.set(torch.Tensor, "data", property(get_data, set_data))

    def on_host(original: Any) -> Any:
        def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return original(self._host if isinstance(self, SimTensor) else self, *args, **kwargs)

        return call

    for name in ("data_ptr", "is_set_to"):
        _method(patches, name, on_host)
    _method(patches, "untyped_storage", lambda o: lambda self: storage_of(self) if isinstance(self, SimTensor) else o(self))

    original_compatible = torch._has_compatible_shallow_copy_type

    def compatible(a: torch.Tensor, b: torch.Tensor) -> bool:
        return isinstance(a, SimTensor) or isinstance(b, SimTensor) or original_compatible(a, b)

    patches.set(torch, "_has_compatible_shallow_copy_type", compatible)

    _method(patches, "record_stream", lambda o: lambda self, s: None if isinstance(self, SimTensor) else o(self, s))
    _method(patches, "share_memory_", lambda o: lambda self: self if isinstance(self, SimTensor) else o(self))
    _method(patches, "is_shared", lambda o: lambda self: isinstance(self, SimTensor) or o(self))


def _construction(devices: Devices, patches: Patches) -> None:
    """torch.tensor and its kin make the tensor on the CPU and then name its device: C++ knows no such device."""

    def on_device(tensor: torch.Tensor, index: int, requires_grad: bool) -> torch.Tensor:
        made = _aten.lift_fresh(wrap(tensor, index))
        return made.requires_grad_() if requires_grad else made  # type: ignore[no-any-return]

    def make(original: Any) -> Any:
        def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                   pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:  # fmt: skip
            if device is None and not isinstance(data, torch.Tensor):
                device = _default_device()
            index = devices.resolve(device) if device is not None else None
            if index is None and _has_simulated(data) and not isinstance(data, torch.Tensor):
                return original(_read(data), dtype=dtype, device=device, requires_grad=requires_grad, **kwargs)
            if index is None and not isinstance(data, SimTensor):
                made = original(data, dtype=dtype, device=device, requires_grad=requires_grad, **kwargs)
                return made.pin_memory() if pin_memory else made  # type: ignore[no-any-return]
            if isinstance(data, torch.Tensor):
                target = devices.shown[index] if index is not None else (device or data.device)
                made = data.detach().to(target, dtype or data.dtype, copy=True)
                return made.requires_grad_(requires_grad)
            assert index is not None
            return on_device(_host_tensor(original, data, dtype, **kwargs), index, requires_grad)

        return functools.wraps(original)(tensor)

    patches.set(torch, "tensor", make(torch.tensor))

    original_as = torch.as_tensor

    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        if isinstance(data, torch.Tensor):
            return data if device is None and dtype is None else data.to(device=device, dtype=dtype)
        if device is None:
            device = _default_device()
        index = devices.resolve(device) if device is not None else None
        if index is None:
            return original_as(data, dtype=dtype, device=device)
        return on_device(_host_tensor(torch._C._VariableFunctions.tensor, data, dtype), index, False)

    patches.set(torch, "as_tensor", functools.wraps(original_as)(as_tensor))

    original_asarray = torch.asarray

    def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False) -> Any:
        if device is None and not isinstance(obj, torch.Tensor):
            device = _default_device()
        index = devices.resolve(device) if device is not None else None
        if isinstance(obj, SimTensor) or (index is not None and isinstance(obj, torch.Tensor)):
            made = obj.detach().to(device=device, dtype=dtype, copy=bool(copy))
            return made.requires_grad_(requires_grad)
        if index is None:
            return original_asarray(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
        return on_device(_host_tensor(torch._C._VariableFunctions.tensor, obj, dtype), index, requires_grad)

    patches.set(torch, "asarray", functools.wraps(original_asarray)(asarray))

    def make_new(original: Any) -> Any:
        def new_tensor(self: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
            if not isinstance(self, SimTensor) and device is None:
                return original(self, data, dtype=dtype, **kwargs)
            return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

        return new_tensor

    _method(patches, "new_tensor", make_new)


def _default_device() -> torch.device | None:
    """The device of set_default_device or `with device:` in this thread, which PyTorch would have put in as an argument."""
    for i in range(torch._C._len_torch_function_stack()):
        mode = torch._C._get_function_stack_at(i)
        if isinstance(mode, _device.DeviceContext):
            return mode.device
    return None


def _host_tensor(original: Any, data: Any, dtype: Any, **kwargs: Any) -> torch.Tensor:
    data = _read(data)
    guard = torch._C._DisableTorchDispatch()
    try:
        return original(data, dtype=dtype, device="cpu", **kwargs)  # type: ignore[no-any-return]
    finally:
        del guard


def _read(data: Any) -> Any:
    """`data` with every simulated tensor in it read to the host, one by one, as torch.tensor does with a list of them."""
    if isinstance(data, SimTensor):
        if data.numel() == 1:
            data.item()  # what an observer sees on CUDA; the value below keeps the type
        return data._host
    if isinstance(data, (list, tuple)) and _has_simulated(data):
        return [_read(v) for v in data]
    return data


def _has_simulated(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_has_simulated, data))
    return isinstance(data, SimTensor)


def _copies(patches: Patches) -> None:
    """deepcopy, pickle, as_subclass, and nn.Parameter's constructor."""

    def make_deepcopy(original: Any) -> Any:
        def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
            if not isinstance(self, SimTensor):
                return original(self, memo)  # type: ignore[no-any-return]
            return _deepcopy(self, memo)

        return __deepcopy__

    _method(patches, "__deepcopy__", make_deepcopy)

    def make_reduce(original: Any) -> Any:
        def __reduce_ex__(self: torch.Tensor, protocol: Any) -> Any:
            if not isinstance(self, SimTensor):
                return original(self, protocol)
            if plain_class(type(self)) is torch.Tensor and not attributes_of(self):
                return self._reduce_ex_internal(protocol)  # the very form of a plain tensor: readable without devguard
            return original(self, protocol)

        return __reduce_ex__

    _method(patches, "__reduce_ex__", make_reduce)
    original_state = torch._utils._get_obj_state

    def get_obj_state(obj: Any) -> Any:
        state = original_state(obj)
        if isinstance(obj, SimTensor):
            return attributes_of(obj)
        return state

    patches.set(torch._utils, "_get_obj_state", get_obj_state)

    def make_as(original: Any) -> Any:
        def as_subclass(self: torch.Tensor, cls: Any) -> torch.Tensor:
            if not isinstance(self, SimTensor):
                return original(self, cls)  # type: ignore[no-any-return]
            alias = _aten.alias(self)
            alias.__class__ = simulated_class(cls)
            return alias  # type: ignore[no-any-return]

        return as_subclass

    _method(patches, "as_subclass", make_as)

    parameter = torch.nn.Parameter
    original_new = parameter.__new__

    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if not isinstance(data, SimTensor):
            if issubclass(cls, SimTensor):
                cls = plain_class(cls)
            return original_new(cls, data, requires_grad)
        return wrap(data._host.detach(), data._index, simulated_class(cls)).requires_grad_(requires_grad)

    patches.set(parameter, "__new__", staticmethod(__new__))


def _deepcopy(tensor: SimTensor, memo: dict[int, Any]) -> torch.Tensor:
    import copy

    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(tensor) in memo:
        return memo[id(tensor)]  # type: ignore[no-any-return]
    guard = torch._C._DisableTorchDispatch()
    host = copy.deepcopy(tensor._host, memo)
    del guard
    made = wrap(host, tensor._index, type(tensor))
    made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    made.__dict__.update(copy.deepcopy(attributes_of(tensor), memo))
    memo[id(tensor)] = made
    return made
