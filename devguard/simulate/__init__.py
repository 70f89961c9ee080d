"""The accelerator that isn't there: real data on the CPU, CUDA's own device rules."""

from devguard.simulate.simulation import Simulation, simulate
from devguard.simulate.state import active

__all__ = ["Simulation", "active", "simulate"]
