"""DEVGUARD=1: the door for a program whose code can't be touched. `import torch` calls `start` through an entry point.

Unless DEVGUARD is set this costs one look at the environment. What it does when it is set lives in `autorun.py`.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def switched_off(environment: dict[str, str] | os._Environ[str] = os.environ) -> bool:
    """Has someone set DEVGUARD=0? It switches off every door, also `devguard.watch()` in code."""
    value = environment.get("DEVGUARD", "")
    return value != "" and value.strip().lower() in _OFF


def switched_on(environment: dict[str, str] | os._Environ[str] = os.environ) -> bool:
    """Does DEVGUARD ask to watch this program?"""
    return environment.get("DEVGUARD", "").strip().lower() in _ON


def start() -> None:
    """Called by the `torch.backends` entry point near the end of `import torch`. Never raises."""
    value = os.environ.get("DEVGUARD", "")
    if value.strip().lower() in _OFF:
        return
    if not switched_on():
        tell(f"DEVGUARD={value!r} is neither on (1) nor off (0): the program runs unwatched")
    elif "devguard.cli" not in sys.modules and "devguard.pytest_plugin" not in sys.modules:  # they watch by themselves
        _when_imported(sys.modules.get("torch"))


def tell(line: str) -> None:
    """One line to the user on stderr; a closed or missing stderr is no reason to fail."""
    try:
        sys.stderr.write(f"devguard: {line}\n")
    except (OSError, ValueError, AttributeError):
        pass


class _Watched(ModuleSpec):
    """torch's own spec until its import is complete: the import system clears `_initializing` as its last act.

    The entry point is called while torch still imports parts of itself, which must run neither watched nor simulated,
    and post-import hooks (wrapt) take a module that is in sys.modules for imported.
    """

    @property
    def _initializing(self) -> bool:
        return True

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__class__ = ModuleSpec  # type: ignore[assignment]
        self._initializing = value
        if not value and "torch" in sys.modules:
            _begin()


def _when_imported(torch: Any) -> None:
    spec = getattr(torch, "__spec__", None)
    if type(spec) is ModuleSpec and getattr(spec, "_initializing", False):
        del spec.__dict__["_initializing"]
        spec.__class__ = _Watched
    else:
        _begin()


def _begin() -> None:
    try:
        from devguard.autorun import begin

        begin()
    except Exception as problem:
        text = " ".join(str(problem).split()) or type(problem).__name__
        tell(f"could not start ({text}): the program runs unwatched")
