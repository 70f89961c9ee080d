"""What a step is: one optimizer.step() or watch.step(); without either, one call of the outermost module."""

from __future__ import annotations

from typing import Any


class Steps:
    """The number of complete steps. Optimizers that take turns make one step together (a GAN's two); one that comes after
    another has done its work (the next phase of a training) makes steps of its own."""

    __slots__ = ("_called", "_explicit", "_has_optimizer", "_stepped", "_turn", "skipped")

    def __init__(self) -> None:
        self._explicit = 0
        self._stepped = 0
        self._turn: set[int] = set()  # the optimizers that have stepped since the step began
        self._has_optimizer = False
        self._called = 0
        self.skipped = 0  # steps that nobody watched (every=N); the others count only the watched ones

    @property
    def now(self) -> int:
        """The index of the open step; equal to the number of complete ones."""
        if self._explicit:
            return self._explicit
        if self._has_optimizer:
            return self._stepped
        return max(self._called - 1, 0)

    @property
    def total(self) -> int:
        """The number of complete steps; a run of forward calls alone is complete with its last call."""
        if self._explicit or self._has_optimizer:
            return self.now
        return self._called

    def explicit(self) -> None:
        """The program said so: watch.step()."""
        self._explicit += 1

    def optimizer_made(self) -> None:
        """From now on optimizers tell the steps."""
        self._has_optimizer = True

    def optimizer_stepped(self, optimizer: Any) -> None:
        """One optimizer.step() is complete."""
        self._has_optimizer = True
        key = id(optimizer)
        if key in self._turn or not self._turn:
            self._stepped += 1
            self._turn.clear()
        self._turn.add(key)

    def outermost_called(self) -> None:
        """An outermost module begins its forward."""
        self._called += 1
