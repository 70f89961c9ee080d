"""Wrapping names of other libraries with wrapt, and giving every one back, in whatever order the watches end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wrapt

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

_MISSING = object()


def _is_wrapper(value: Any) -> bool:
    return type(value) is wrapt.FunctionWrapper


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
        proxy: Any = wrapt.FunctionWrapper(target, wrapper)
        proxy._self_original = original
        setattr(owner, name, proxy)
        self._installed.append((owner, name, proxy))
        return True

    def restore(self) -> None:
        """Take every wrapper off again, last one first; one that another watch has wrapped meanwhile is cut out of the middle."""
        while self._installed:
            owner, name, proxy = self._installed.pop()
            link: Any = owner.__dict__.get(name, _MISSING)
            if link is proxy:
                if proxy._self_original is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, proxy._self_original)
                continue
            while _is_wrapper(link):
                if link.__wrapped__ is proxy:
                    link.__wrapped__ = proxy.__wrapped__
                    link._self_original = proxy._self_original
                    break
                link = link.__wrapped__
