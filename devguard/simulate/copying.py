"""Storage, address and `.data`; deepcopy, pickle, subclasses, and nn.Parameter's constructor."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from typing import Any

import torch

from devguard.simulate.patches import Patches
from devguard.simulate.storage import storage_of
from devguard.simulate.tensor import SimTensor, attributes_of, become, plain_class, simulated_class, wrap

_aten = torch.ops.aten


def install(patches: Patches) -> None:
    """Replace everything this file knows of."""
    _data(patches)
    _copies(patches)
    _uninitialized(patches)


def _data(patches: Patches) -> None:
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
        patches.method(name, on_host)
    patches.method(
        "untyped_storage", lambda o: lambda self: storage_of(self) if isinstance(self, SimTensor) else o(self)
    )

    original_compatible = torch._has_compatible_shallow_copy_type

    def compatible(a: torch.Tensor, b: torch.Tensor) -> bool:
        return isinstance(a, SimTensor) or isinstance(b, SimTensor) or original_compatible(a, b)

    patches.set(torch, "_has_compatible_shallow_copy_type", compatible)

    patches.method("record_stream", lambda o: lambda self, s: None if isinstance(self, SimTensor) else o(self, s))
    patches.method("share_memory_", lambda o: lambda self: self if isinstance(self, SimTensor) else o(self))
    patches.method("is_shared", lambda o: lambda self: isinstance(self, SimTensor) or o(self))


def _empty_form(tensor: SimTensor) -> Any:
    """What pickles a tensor without elements: PyTorch would take it for a subclass without data."""
    storage = torch.storage.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
    hooks: OrderedDict[Any, Any] = OrderedDict()
    form = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad, hooks)
    return torch._utils._rebuild_tensor_v2, form


def _copies(patches: Patches) -> None:
    """deepcopy, pickle, as_subclass, and nn.Parameter's constructor."""

    def make_deepcopy(original: Any) -> Any:
        def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
            if not isinstance(self, SimTensor):
                return original(self, memo)  # type: ignore[no-any-return]
            return _deepcopy(self, memo)

        return __deepcopy__

    patches.method("__deepcopy__", make_deepcopy)

    def make_reduce(original: Any) -> Any:
        def __reduce_ex__(self: torch.Tensor, protocol: Any) -> Any:
            if not isinstance(self, SimTensor):
                return original(self, protocol)
            plain, attributes = plain_class(type(self)), attributes_of(self)
            if self.layout is torch.strided and self.numel() == 0:
                form = _empty_form(self)
            else:
                form = self._reduce_ex_internal(protocol)  # type: ignore[no-untyped-call]
            if plain is torch.Tensor and not attributes:
                return form  # the very form of a plain tensor: readable without devguard
            function, args = form
            return torch._tensor._rebuild_from_type_v2, (function, plain, args, attributes)

        return __reduce_ex__

    patches.method("__reduce_ex__", make_reduce)
    original_state = torch._utils._get_obj_state

    def get_obj_state(obj: Any) -> Any:
        state = original_state(obj)  # type: ignore[no-untyped-call]
        if isinstance(obj, SimTensor):
            return attributes_of(obj)
        return state

    patches.set(torch._utils, "_get_obj_state", get_obj_state)

    def make_as(original: Any) -> Any:
        def as_subclass(self: torch.Tensor, cls: Any) -> torch.Tensor:
            if not isinstance(self, SimTensor):
                return original(self, plain_class(cls))  # type: ignore[no-any-return]
            with torch._C.DisableTorchFunctionSubclass():
                alias = _aten.alias(self)
            alias.__class__ = simulated_class(cls)
            return alias  # type: ignore[no-any-return]

        return as_subclass

    patches.method("as_subclass", make_as)

    parameter = torch.nn.Parameter
    original_new = parameter.__new__

    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if not isinstance(data, SimTensor) or plain_class(type(data)) not in (torch.Tensor, parameter):
            return original_new(plain_class(cls), data, requires_grad)  # a parameter of another class stays of it
        return wrap(data._host.detach(), data._index, simulated_class(cls)).requires_grad_(requires_grad)

    patches.set(parameter, "__new__", staticmethod(__new__))


def _copied(host: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """A copy of the data, which shares its storage with the copies of other tensors that share the original's."""
    if host.layout is not torch.strided or host.is_nested or host.is_quantized:
        return host.clone()
    storage = copy.deepcopy(host.untyped_storage(), memo)
    with torch.no_grad():
        made = torch.empty(0, dtype=host.dtype).set_(storage, host.storage_offset(), host.shape, host.stride())
        made = made.conj() if host.is_conj() else made
        return made._neg_view() if host.is_neg() else made


def _deepcopy(tensor: SimTensor, memo: dict[int, Any]) -> torch.Tensor:
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(tensor) in memo:
        return memo[id(tensor)]  # type: ignore[no-any-return]
    guard = torch._C._DisableTorchDispatch()
    try:
        host = _copied(tensor._host, memo)
    finally:
        del guard
    made = wrap(host, tensor._index, type(tensor))
    made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    made.__dict__.update(copy.deepcopy(attributes_of(tensor), memo))
    memo[id(tensor)] = made
    return made


def _uninitialized(patches: Patches) -> None:
    """Parameters of lazy modules allow a list of methods, by identity: the replaced ones belong to it as well."""
    mixin: Any = torch.nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
    allowed = mixin._allowed_methods
    names = {getattr(method, "__name__", "") for method in allowed}
    added = [vars(torch.Tensor)[name] for name in names if name in vars(torch.Tensor)]
    added = [method for method in added if method not in allowed]
    allowed.extend(added)
    patches.on_restore(lambda: [allowed.remove(method) for method in added])
    original = mixin.materialize

    @functools.wraps(original)
    def materialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if "_host" in self.__dict__:  # it has just become an ordinary parameter by its class
            plain: Any = type(self)
            self.__class__ = simulated_class(plain)

    patches.set(mixin, "materialize", materialize)
