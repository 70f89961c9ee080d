"""The one slot that says which simulation is running: the only state of this package that outlives a call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devguard.simulate.simulation import Simulation

_active: Simulation | None = None


def active() -> Simulation | None:
    """The running simulation, or None."""
    return _active


def current() -> Simulation:
    """The running simulation. Raises RuntimeError where none runs: a simulated tensor has outlived its simulation."""
    if _active is None:
        raise RuntimeError(
            "this tensor lives on a simulated device, and the simulation has ended: use it inside "
            "devguard.simulate(...), or move it to the CPU before leaving"
        )
    return _active


def _in_forked_child() -> None:
    if _active is not None:
        _active.forked()


if hasattr(os, "register_at_fork"):  # handlers can't be taken back: this one does nothing where no simulation runs
    os.register_at_fork(after_in_child=_in_forked_child)


def set_active(simulation: Simulation | None) -> None:
    """Make `simulation` the running one (None: none runs)."""
    global _active
    _active = simulation
