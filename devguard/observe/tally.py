"""Counting one kind of event at one place: how often, in which steps, how many bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts of events that come in the order of steps. `steady_*` leave the warm-up steps out; the step that is still open when the
    run ends (the tear-down) is kept apart in `*_open` so that a rule can leave it out too."""

    count: int = 0
    bytes: int = 0
    seconds: float = 0.0
    first_step: int = 0
    last_step: int = -1
    steps_hit: int = 0
    steady_count: int = 0
    steady_steps_hit: int = 0
    count_open: int = 0

    def hit(self, step: int, warmup: int, nbytes: int = 0, times: int = 1) -> None:
        """One more event (or `times` at once) in `step`, moving `nbytes` in all."""
        if step != self.last_step:
            if not self.count:
                self.first_step = step
            self.last_step = step
            self.steps_hit += 1
            self.count_open = 0
            if step >= warmup:
                self.steady_steps_hit += 1
        self.count += times
        self.count_open += times
        self.bytes += nbytes
        if step >= warmup:
            self.steady_count += times

    def steady(self, total_steps: int, warmup: int) -> tuple[int, int, int]:
        """(events, steps with an event, steps) of the steady state of a run of `total_steps` complete steps."""
        events, hit = self.steady_count, self.steady_steps_hit
        if self.last_step >= total_steps and self.last_step >= warmup:
            events, hit = events - self.count_open, hit - 1
        return events, hit, max(total_steps - warmup, 0)

    def rate(self, total_steps: int, warmup: int) -> float:
        """Events per steady-state step; events per step of the whole run where there is no steady state."""
        events, _, steps = self.steady(total_steps, warmup)
        if steps > 0:
            return events / steps
        return self.count / total_steps if total_steps else float(self.count)
