"""DG301 to DG309: which rule a copy falls under. One copy, one finding: the most telling rule takes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devguard.observe.copies_facts import (
    BACKWARD,
    OFFLOAD,
    PARALLEL,
    PRINT,
    SAVE,
    SET_UP,
    SPLIT,
    CopyFact,
    CopyFacts,
)
from devguard.observe.facts import Facts
from devguard.rules.copies_faults import discarded_finding, unsafe_finding
from devguard.rules.copies_findings import (
    MAKERS,
    implicit_finding,
    peer_finding,
    repeated_finding,
    round_trip_finding,
    transfer_finding,
    whole_module_finding,
)
from devguard.rules.copies_source import comes_back, made_by_factory
from devguard.rules.engine import Check
from devguard.rules.finding import Finding
from devguard.rules.rates import REPEATED, cost_level

_INTENDED = (BACKWARD, OFFLOAD, SET_UP, PRINT, SAVE, SPLIT)


def copies(facts: Facts) -> Iterator[Finding]:
    """Every place that copies, under the one rule that tells most about it."""
    table = facts.table(CopyFacts)
    thrown_away = {fact.site for fact in table.discards.values()}
    trips: set[object] = set()
    for fact in list(table.copies.values()):
        if fact.purpose == SET_UP:
            if _in_every_step(fact, facts, table):
                yield whole_module_finding(fact, facts)
            continue
        if fact.site in thrown_away or not _worth_saying(fact, facts):
            continue
        found = _judge(fact, facts, table)
        if found is None or (found.rule == "DG307" and found.cause in trips):
            continue
        if found.rule == "DG307":
            trips.add(found.cause)
        yield found


def _worth_saying(fact: CopyFact, facts: Facts) -> bool:
    """Not what was copied once, or only while the program was set up or ended."""
    if fact.purpose in _INTENDED:
        return False
    if fact.logged:
        return True
    if facts.steps <= facts.warmup:
        return fact.bursts >= REPEATED
    return fact.tally.steps_hit > 1


def _in_every_step(fact: CopyFact, facts: Facts, table: CopyFacts) -> bool:
    """Is a module moved or loaded again and again, beyond set-up?

    What goes to the host by a move is the way back of what comes from there as often; else a copy of it is put away each time."""
    if facts.steps <= facts.warmup or cost_level(fact.tally, facts) == "note" or fact.bursts < 2:
        return False
    if fact.direction != "d2h" or fact.op.startswith("aten.copy_"):
        return True
    return not any(
        other.purpose == SET_UP and other.direction == "h2d" and other.tally.steps_hit * 2 >= fact.tally.steps_hit
        for other in table.copies.values()
    )


def _judge(fact: CopyFact, facts: Facts, table: CopyFacts) -> Finding | None:
    if fact.direction == "d2d":
        return _between_accelerators(fact, facts)
    if fact.direction == "d2h":
        return _to_the_host(fact, facts)
    if _mostly(fact.again, fact):
        return repeated_finding(fact, facts) if not fact.implicit else implicit_finding(fact, facts)
    out = _went_out(fact, table)
    if out is not None:
        return round_trip_finding(fact, out, facts)
    if fact.implicit:
        return implicit_finding(fact, facts)
    if fact.pinned and fact.non_blocking:
        return None
    if fact.non_blocking:
        return transfer_finding("DG303", fact, facts)
    if not fact.pinned and not fact.from_loader and _mostly(fact.fresh, fact) and made_by_factory(fact.site):
        rare = cost_level(fact.tally, facts) == "note"
        return None if rare and not fact.logged else transfer_finding("DG308", fact, facts)
    return transfer_finding("DG302", fact, facts)


def _mostly(events: int, fact: CopyFact) -> bool:
    """Is it so for at least two of three copies of a place?"""
    return events > 0 and events * 3 >= fact.tally.count * 2


def _between_accelerators(fact: CopyFact, facts: Facts) -> Finding | None:
    if fact.purpose == PARALLEL:
        return None
    if _mostly(fact.returned, fact):
        return round_trip_finding(fact, None, facts)
    several = math.prod(fact.tensor.shape) > 1  # a single number is not worth a word
    if _mostly(fact.again, fact) or (fact.implicit and several):
        return peer_finding(fact, facts)
    return None


def _to_the_host(fact: CopyFact, facts: Facts) -> Finding | None:
    """Blocking copies that the program asked for are DG202; here are those that an op made, and a vain non_blocking."""
    if fact.op.startswith("aten._to_copy"):
        return None
    if fact.non_blocking:
        return None if fact.pinned else transfer_finding("DG303", fact, facts)
    return implicit_finding(fact, facts) if fact.implicit else None


def _went_out(fact: CopyFact, table: CopyFacts) -> CopyFact | None:
    """The copy to the host whose data this copy brings back; None where there is none."""
    if fact.pinned and fact.non_blocking:
        return None  # put away and fetched again, without a wait: offloading
    returned = _mostly(fact.returned, fact)
    for out in table.copies.values():
        if out.direction != "d2h" or out.purpose in _INTENDED or out.tally.steps_hit * 2 < fact.tally.steps_hit:
            continue
        if returned and out.site == fact.went_out:
            return out
        by_name = not returned and (not fact.implicit or fact.how in MAKERS) and out.source == fact.target
        if by_name and comes_back(out.stack, fact.stack):
            return out
    return None


def discards(facts: Facts) -> Iterator[Finding]:
    """Moves whose result was thrown away."""
    for fact in list(facts.table(CopyFacts).discards.values()):
        yield discarded_finding(fact, facts)


def unsafe(facts: Facts) -> Iterator[Finding]:
    """Copies that were read, or whose source was overwritten, while they were on their way."""
    for fact in list(facts.table(CopyFacts).copies.values()):
        for what in ("read", "overwritten"):
            events = [event for event in fact.unsafe.values() if event.what == what]
            if events:
                yield unsafe_finding(fact, events, facts)


CHECKS: tuple[Check, ...] = (copies, discards, unsafe)
