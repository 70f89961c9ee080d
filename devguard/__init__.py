"""devguard: a runtime device-consistency sanitizer for PyTorch. Importing it imports no torch; names load when used."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from devguard._version import __version__

if TYPE_CHECKING:
    from devguard.guards import allow, guard
    from devguard.observe.scopes import DeviceGuardError
    from devguard.report.model import Report
    from devguard.rules.finding import Finding
    from devguard.simulate import simulate
    from devguard.watch import Watch, step, watch

__all__ = [
    "DeviceGuardError",
    "Finding",
    "Report",
    "Watch",
    "__version__",
    "allow",
    "guard",
    "simulate",
    "step",
    "watch",
]

_HOMES = {
    "DeviceGuardError": "devguard.observe.scopes",
    "Finding": "devguard.rules.finding",
    "Report": "devguard.report.model",
    "Watch": "devguard.watch",
    "allow": "devguard.guards",
    "guard": "devguard.guards",
    "simulate": "devguard.simulate",
    "step": "devguard.watch",
    "watch": "devguard.watch",
}


class _Package(types.ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing the submodule devguard.watch must not hide the function of that name: the function is public.
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'devguard' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
