"""The table of copies between devices: one row for each place, pair of devices and kind of copy, the largest first."""

from __future__ import annotations

from devguard.observe.copies_facts import BACKWARD, CopyFacts
from devguard.observe.facts import Facts
from devguard.observe.symbolize import users_line
from devguard.report.model import Transfer


def transfers(facts: Facts) -> list[Transfer]:
    """Every copy that was seen, also those that no rule speaks of."""
    rows: dict[tuple[object, ...], Transfer] = {}
    for fact in list(facts.table(CopyFacts).copies.values()):
        # What library code arranged (moving a module, loading a checkpoint) was asked for, whatever op did it.
        implicit = fact.implicit and fact.purpose in ("", BACKWARD)
        key = (fact.site, fact.source, fact.target, implicit, fact.blocking, fact.pinned)
        row = rows.get(key)
        if row is None:
            row = rows[key] = Transfer(
                users_line(fact.site), fact.source, fact.target, 0, 0, implicit, fact.blocking, fact.pinned
            )
        row.count += fact.tally.count
        row.bytes += fact.tally.bytes
    return sorted(rows.values(), key=lambda row: (-row.bytes, -row.count))
