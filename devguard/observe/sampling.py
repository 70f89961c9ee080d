"""``every=N``: watch one step in N, and cost nothing in between but one call at each step's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from devguard.observe.recorder import Recorder


class Sampling:
    """Calls `wake` at the begin of each step that is to be watched and `sleep` at its end.

    Steps are those of the optimizers; a program without one is sampled by the calls of its root module.
    """

    def __init__(self, recorder: Recorder, every: int, wake: Callable[[], None], sleep: Callable[[], None]) -> None:
        self.recorder = recorder
        self.every = every
        self.wake = wake
        self.sleep = sleep
        self.asleep = False
        self.passed = 0
        self.has_optimizer = False
        self.called = False
        self.handles: list[Any] = []

    def start(self) -> None:
        """Hear of the ends of steps; the first step is watched."""
        self.handles.append(register_optimizer_step_post_hook(self._stepped))
        if self.recorder.root is not None:
            self.handles.append(self.recorder.root.register_forward_pre_hook(self._called))

    def stop(self) -> None:
        """Give the hooks back."""
        while self.handles:
            self.handles.pop().remove()

    def step_ended(self) -> None:
        """One step is over: fall asleep or wake up where the next one is of the other kind."""
        self.passed += 1
        due = self.passed % self.every == 0
        if self.asleep:
            self.recorder.steps.skipped += 1
        if due and self.asleep:
            self.wake()
            self.asleep = False
        elif not due and not self.asleep:
            self.sleep()
            self.asleep = True

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.has_optimizer = True
        self.step_ended()

    def _called(self, module: Any, args: Any) -> None:
        if self.called and not self.has_optimizer:
            self.step_ended()  # the step of the call before
        self.called = True
