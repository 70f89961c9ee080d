"""DG304 and DG305: copies that go wrong: touched before they are complete, or thrown away."""

from __future__ import annotations

from devguard.observe.copies_facts import CopyFact, DiscardFact, UnsafeFact
from devguard.observe.facts import Facts
from devguard.observe.symbolize import users_line
from devguard.observe.tally import Tally
from devguard.rules.copies_findings import numbers
from devguard.rules.copies_text import line_of, named
from devguard.rules.describe import history, moving, place, tensor_ref
from devguard.rules.engine import finding
from devguard.rules.finding import Finding, Fix


def unsafe_finding(fact: CopyFact, events: list[UnsafeFact], facts: Facts) -> Finding:
    """The host touched a copy that was still on its way."""
    tally = Tally()
    for event in events:
        tally.count += event.tally.count
        tally.last_step = max(tally.last_step, event.tally.last_step)
        tally.steady_count += event.tally.steady_count
    tally.first_step = min(event.tally.first_step for event in events)
    first = events[0]
    copied, touched = users_line(fact.site), users_line(first.site)
    times = "once" if tally.count == 1 else f"{tally.count} times"
    if first.what == "read":
        name = fact.given_name or first.name or fact.tensor.name
        act = "formatted" if "format" in first.how else "printed" if "repr" in first.how else "read"
        message = (
            f"{named(fact.tensor, name)} is copied from {fact.source} with non_blocking=True and {act} on the host at "
            f"{line_of(touched)} before the copy is known to be complete ({times}): the numbers may be old or half written"
        )
        fix = Fix(
            "copy without non_blocking, or wait before reading: record an event after the copy and event.synchronize()"
        )
        cause = copied
    else:
        name = fact.tensor.name or first.name
        where = f" at {line_of(touched)}" if touched else ""
        message = (
            f"{named(fact.tensor, name)} is pinned and still being copied to {fact.target} when the host overwrites it{where} "
            f"({times}): the device may get the new numbers, or a mixture"
        )
        fix = Fix(
            "use two buffers in turn, or wait for an event recorded after the copy before the buffer is filled again"
        )
        cause = touched or copied
    site = first.site or fact.site
    ref = tensor_ref(fact.tensor)
    ref.name = name
    return finding(
        "DG304",
        message,
        op=fact.op,
        level="error",
        certainty="certain" if all(event.certain for event in events) else "likely",
        bytes=fact.tensor.nbytes * tally.count,
        cause=cause,
        module=fact.module,
        module_type=fact.module_type,
        tensor=ref,
        history=history(fact.tensor.origin, facts),
        fix=fix,
        **numbers(tally, facts),
        **place(site),
    )


def discarded_finding(fact: DiscardFact, facts: Facts) -> Finding:
    """A move whose result nobody took."""
    name = fact.tensor.name or "the tensor"
    call = f".{fact.method}()"
    kept = f"{name} itself stays on {fact.tensor.device}"
    if not fact.moved:
        message = f"the result of {call} on {named(fact.tensor)} is thrown away; it is on {fact.target} already, so nothing is lost"
    elif fact.how == "loop variable":
        message = (
            f"{call} is assigned to the loop variable {name} alone: {named(fact.tensor)} is copied to {fact.target}, "
            f"but the collection that the loop goes over keeps the one on {fact.tensor.device}"
        )
    else:
        message = (
            f"the result of {call} on {named(fact.tensor)} is thrown away: a tensor does not move in place, {kept}"
        )
    if fact.how == "loop variable":
        text = f"build a new collection: [{name}.to(device) for {name} in ...], or assign to its key or index"
    else:
        moved = moving(name, f"{fact.method}({'device' if fact.method == 'to' else ''})")
        text = f"assign the result: {moved}" if " = " in moved else f"keep the result ({moved}), or drop the call"
    harmless = not fact.moved or fact.temporary
    return finding(
        "DG305",
        message,
        op=fact.method,
        level="note" if harmless else "error",
        certainty="likely" if fact.how == "loop variable" else "certain",
        bytes=fact.tensor.nbytes * fact.tally.count if fact.moved else 0,
        cause=users_line(fact.site),
        module=fact.module,
        module_type=fact.module_type,
        tensor=tensor_ref(fact.tensor, fact.target or None),
        history=history(fact.tensor.origin, facts),
        fix=Fix(text),
        **numbers(fact.tally, facts),
        **place(fact.site),
    )
