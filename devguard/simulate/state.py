"""The one slot that says which simulation is running: the only state of this package that outlives a call."""

from __future__ import annotations

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


def set_active(simulation: Simulation | None) -> None:
    """Make `simulation` the running one (None: none runs)."""
    global _active
    _active = simulation
