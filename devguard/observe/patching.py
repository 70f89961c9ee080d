"""Wrapping names of other libraries with wrapt, and giving every one back, in whatever order the watches end."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch
import wrapt
from torch.jit import _builtins

from devguard.observe.frames import SKIPPED, kind_of

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

_MISSING = object()
_THE_ONLY_ONE = operator.itemgetter(0)


class _BoundProxy(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]
    """A method of an instance; copied and pickled as Python does with any method."""

    def __copy__(self) -> Any:
        return copy.copy(self.__wrapped__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        owner, name = self._self_parent._self_place
        return getattr, (owner if self._self_instance is None else self._self_instance, name)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


class Proxy(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """What stands in the place of a wrapped name: as a function, it is copied as itself and pickled by its name.

    wrapt's own refuses both, and programs do it: `collate_fn=torch.as_tensor` goes to spawned workers, a deep copy of a module takes
    the functions along that it holds."""

    __bound_function_wrapper__ = _BoundProxy

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None and self._self_place[0] is torch.Tensor:
            # What PyTorch hands to `__torch_function__`, and what `if func is torch.Tensor.to` there compares it with.
            code = sys._getframe(1).f_code
            if code.co_name == "__torch_function__" or kind_of(code) == SKIPPED:
                return self.__wrapped__
        return super().__get__(instance, owner)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        owner, name = self._self_place
        if isinstance(owner, type):
            return getattr, (owner, name)
        current = getattr(owner, name)
        if current is self and self.__module__ == owner.__name__:
            return name
        # PyTorch's own function says best where it is found; after the watch it is there again.
        return _THE_ONLY_ONE, ((unwrapped(current),),)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


def _is_proxy(value: Any) -> bool:
    return type(value) is Proxy


def unwrapped(value: Any) -> Any:
    """What the proxies of all watches stand for."""
    while _is_proxy(value):
        value = value.__wrapped__
    return value


class Patches:
    """The wrappers that one observer has installed."""

    def __init__(self) -> None:
        self._installed: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, name: str, wrapper: Wrapper) -> bool:
        """Wrap `owner.name`; False where there is no such name.

        `wrapper(wrapped, instance, args, kwargs)` is called instead. An attribute that `owner` only inherits is shadowed, and the
        shadow is removed again."""
        original = owner.__dict__.get(name, _MISSING) if hasattr(owner, "__dict__") else _MISSING
        target: Any = getattr(owner, name, _MISSING) if original is _MISSING else original
        if target is _MISSING:
            return False
        proxy: Any = Proxy(target, wrapper)
        proxy._self_original = original
        proxy._self_place = (owner, name)
        setattr(owner, name, proxy)
        self._installed.append((owner, name, proxy))
        builtin = _builtins._find_builtin(target)
        if builtin is not None:  # TorchScript knows functions by their ids
            _script_table()[id(proxy)] = builtin
        return True

    def restore(self) -> None:
        """Take every wrapper off again, last one first; one that another watch has wrapped meanwhile is cut out of the middle."""
        while self._installed:
            owner, name, proxy = self._installed.pop()
            _script_table().pop(id(proxy), None)
            link: Any = owner.__dict__.get(name, _MISSING)
            if link is proxy:
                if proxy._self_original is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, proxy._self_original)
                continue
            while _is_proxy(link):
                if link.__wrapped__ is proxy:
                    link.__wrapped__ = proxy.__wrapped__
                    link._self_original = proxy._self_original
                    break
                link = link.__wrapped__


def _script_table() -> dict[int, str]:
    table: dict[int, str] = _builtins._get_builtin_table()
    return table
