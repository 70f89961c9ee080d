"""When an event that costs time is worth a warning: DESIGN section 2's steady-state rate."""

from __future__ import annotations

from devguard.observe.facts import Facts
from devguard.observe.tally import Tally
from devguard.rules.finding import Level

ONE_STEP_IN = 10  # firing in fewer than one step in ten is what logging and checkpoints do
REPEATED = 3  # a program that never reaches a third step is judged by repetition


def cost_level(tally: Tally, facts: Facts, level: Level = "warning") -> Level:
    """`level`, or ``note`` where the event is rare: only once, in set-up, warm-up and tear-down alone, or in few steps."""
    if level == "note":
        return "note"
    events, hit, steps = tally.steady(facts.steps, facts.warmup)
    if facts.steps <= facts.warmup:
        return level if tally.count >= REPEATED else "note"
    if tally.count <= 1 or hit <= 0 or events <= 0:
        return "note"
    return level if hit * ONE_STEP_IN >= steps else "note"


def per_step(tally: Tally, facts: Facts) -> float:
    """The steady-state rate of the event, rounded for the report."""
    return round(tally.rate(facts.steps, facts.warmup), 3)
