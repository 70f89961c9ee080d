"""One running simulation: puts the parts together and gives everything back."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils import _device

from devguard.simulate import (
    accelerator,
    autocast,
    construction,
    constructors,
    copying,
    cuda,
    dispatch,
    distributed,
    factories,
    gradients,
    indexing,
    kernels,
    modules,
    moves,
    pinned,
    random,
    reads,
    refusals,
    refusals_composites,
    serialization,
    state,
    storage,
    subclasses,
)
from devguard.simulate import memory as memory_
from devguard.simulate.devices import Devices, parse_spec
from devguard.simulate.driver import Driver
from devguard.simulate.intercept import Intercepts
from devguard.simulate.patches import Patches
from devguard.simulate.streams import Timeline
from devguard.simulate.transfers import Late

F = TypeVar("F", bound=Callable[..., Any])


class Simulation:
    """Simulated devices for as long as it runs: a context manager, a decorator, or start() and stop()."""

    def __init__(self, spec: str = "cuda:1", *, memory: str | int | None = None) -> None:
        kind, count = parse_spec(spec)
        self.spec = spec
        self.memory = memory
        self.devices = Devices(kind, count)
        self.memories = memory_.make(count, memory_.parse_size(memory))
        self.generators = random.make_generators(self.devices)
        self.timeline = Timeline(self.devices)
        self.intercepts = Intercepts()
        self.late = Late(self.timeline, self.intercepts)
        self.driver = Driver(self.devices, self.timeline, self.memories, self.generators)
        self._patches = Patches()
        self._running = False

    def start(self) -> Simulation:
        """Begin. Raises RuntimeError if a simulation is running already."""
        if state.active() is not None:
            raise RuntimeError("a simulation is running already: stop it before starting another")
        self.devices.visible = None
        # Parts of PyTorch that read names which are about to change: let them read the originals first.
        # (Every optimizer imports torch._dynamo.)
        for name in ("torch._lazy", "torch._dynamo"):
            importlib.import_module(name)
        _device._device_constructors()
        state.set_active(self)
        self._patches.on_restore(lambda: state.set_active(None))
        try:
            factories.register(self.devices.kind, self._patches)
            kernels.install(self.devices.kind, self._patches, dispatch.kernel_of)
            for part in (moves, reads, construction):
                part.install(self.devices, self._patches)
            copying.install(self._patches)
            subclasses.install(self.devices, self._patches)
            indexing.install(self._patches)
            storage.install(self.devices, self._patches)
            serialization.install(self.devices, self._patches)
            pinned.install(self._patches)
            constructors.install(self.devices, self._patches)
            self._patches.on_restore(self.intercepts.end)
            if self.memory is not None:
                self.intercepts.look("memory limit", before=memory_.fits)
            self._patches.on_restore(self.late.all_arrive)
            modules.install(self.devices, self._patches)
            cuda.install(self.devices, self.driver, self.timeline, self._patches)
            accelerator.install(self.devices, self.driver, self._patches)
            distributed.install(self.devices, self._patches)
            random.install(self.devices, self.generators, self._patches)
            refusals_composites.install(self.devices.kind, self._patches)
            gradients.install(self.devices, self._patches)
            autocast.install(self.devices.kind, self._patches)
        except BaseException:
            self._patches.restore()
            raise
        self._running = True
        return self

    def stop(self) -> None:
        """End: every replaced name is what it was. Ending twice does nothing."""
        if self._running:
            self._running = False
            self._patches.restore()

    def forked(self) -> None:
        """Called in a child process: like CUDA, devices that its parent has touched can't be used in it."""
        if self.devices.touched():
            self.devices.forked = True
            self.intercepts.look("forked", before=refusals.in_forked_child)

    def __enter__(self) -> Simulation:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        """Decorate `function`: each call runs in a simulation of its own."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with Simulation(self.spec, memory=self.memory):
                return function(*args, **kwargs)

        return run  # type: ignore[return-value]


def simulate(spec: str = "cuda:1", *, memory: str | int | None = None) -> Simulation:
    """An accelerator that isn't there: `with devguard.simulate("cuda:2"): ...` runs a CUDA program with CUDA's rules.

    `spec` is a device type and how many of it. Returns a context manager that is also a decorator and has start() and
    stop(). Raises ValueError for a spec that can't be simulated.
    """
    return Simulation(spec, memory=memory)
