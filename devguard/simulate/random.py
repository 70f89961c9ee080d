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
        cls._by_address[made._cdata] = made
        return made

    @classmethod
    def known(cls, generator: torch.Generator) -> torch.Generator:
        """The simulated generator that `generator` is, or itself."""
        return cls._by_address.get(generator._cdata, generator)

    def __init__(self, device: Any = None) -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self._shown


def make_generators(devices: Devices) -> tuple[SimGenerator, ...]:
    """One default generator per device."""
    made = tuple(SimGenerator(device) for device in devices.shown)
    for generator in made:
        generator.manual_seed(DEFAULT_SEED)
    return made


def install(devices: Devices, generators: tuple[SimGenerator, ...], patches: Patches) -> None:
    """Seeding of all devices through torch.cuda and torch.manual_seed, and Generator(device="cuda")."""
    cuda = torch.cuda

    def manual_seed(seed: int) -> None:
        generators[devices.current].manual_seed(seed)

    def manual_seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    def pick(device: Any) -> SimGenerator:
        index = devices.resolve(devices.kind.name if device is None else device)
        return generators[devices.current if index is None else index]

    def get_rng_state(device: Any = None) -> torch.Tensor:
        return pick(device).get_state()

    def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
        pick(device).set_state(new_state)

    patches.set(cuda, "default_generators", generators)
    for where in (cuda, cuda.random):
        patches.set(where, "manual_seed", manual_seed)
        patches.set(where, "manual_seed_all", manual_seed_all)
        patches.set(where, "get_rng_state", get_rng_state)
        patches.set(where, "set_rng_state", set_rng_state)
        patches.set(where, "initial_seed", lambda: generators[devices.current].initial_seed())

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
