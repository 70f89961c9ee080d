"""Random numbers on simulated devices: a generator for each device, seeded as CUDA's are."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches

DEFAULT_SEED = 67280421310721


class SimGenerator(torch.Generator):
    """A generator that says it is on a simulated device."""

    _shown: torch.device
    # C++ hands an op a fresh Python object for a generator: this finds ours again.
    _by_address: weakref.WeakValueDictionary[int, SimGenerator] = weakref.WeakValueDictionary()

    def __new__(cls, device: Any = None) -> SimGenerator:
        made = super().__new__(cls)
        made._shown = device
        cls._by_address[made._cdata] = made  # type: ignore[attr-defined]
        return made

    @classmethod
    def known(cls, generator: torch.Generator) -> torch.Generator:
        """The simulated generator that `generator` is, or itself."""
        return cls._by_address.get(generator._cdata, generator)  # type: ignore[attr-defined]

    def __init__(self, device: Any = None) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._shown


def make_generators(devices: Devices) -> tuple[SimGenerator, ...]:
    """One default generator per device."""
    made = tuple(SimGenerator(device) for device in devices.shown)
    for generator in made:
        generator.manual_seed(DEFAULT_SEED)
    return made


def install(devices: Devices, generators: tuple[SimGenerator, ...], patches: Patches) -> None:
    """Generator(device="cuda"). Seeding and states are PyTorch's own code on the generators it is given when CUDA starts."""
    original = torch.Generator

    class _Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=_Meta):
        def __new__(cls, device: Any = None) -> Any:
            index = devices.resolve(device) if device is not None else None
            return original() if device is None else original(device) if index is None else SimGenerator(
                devices.shown[index])  # fmt: skip

    patches.set(torch, "Generator", Generator)
