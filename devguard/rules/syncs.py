"""DG201 to DG205: the host waits for the accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from devguard.knowledge.syncs_advice import advice
from devguard.observe.facts import Facts
from devguard.observe.symbolize import users_line
from devguard.observe.syncs_facts import SyncFact, SyncFacts
from devguard.rules.describe import history, place, tensor_ref
from devguard.rules.engine import Check, finding
from devguard.rules.finding import Finding, Fix
from devguard.rules.rates import cost_level, per_step

_SHOWN = 3  # names listed before "…"

_SCALAR = {
    "item": "{x} is read by .{called}()",
    "cast": "{x} is turned into a Python number by {called}()",
    "branch": "Python asks for the truth of {x}",
    "builtin": "Python's {called}() works on the host and reads {x} one value at a time",
    "range": "{x} is used as the bound of a loop",
    "index": "{x} is used as an index, which Python must know as a number",
    "size": "{x} is passed to {called}(), which needs it as a Python number",
    "call": "{x} is passed to {called}(), which needs it as a Python number",
    "argument": "{x} is passed to {called}(), which reads its value",
    "format": "{x} is formatted as text",
    "contains": "`in` looks {x} up by comparing, and reads each answer",
    "list": "{called}([...]) reads the device scalars of its list one by one",
    "state": "the optimizer reads {x} to know its step as a Python number",
    "read": "the value of {x} is read",
}
_COPY = {
    "print": "{x} is turned into text",
    "pickle": "{x} is pickled",
    "item": "{x} is copied to the host by .{called}()",
    "copy": "{x} is copied to the host by .{called}()",
}


def syncs(facts: Facts) -> Iterator[Finding]:
    """One finding for each cause of waits."""
    for fact in list(facts.table(SyncFacts).found.values()):
        if fact.tally.count:
            yield _finding(fact, facts)


def _finding(fact: SyncFact, facts: Facts) -> Finding:
    tally = fact.tally
    tensor = fact.tensor
    text = advice(fact.advice, fact.names[0] if fact.names else "", fact.called)
    return finding(
        fact.rule,
        f"{_what(fact)}; the host waits for {_device(fact, facts)} each time",
        op=fact.library or fact.op,
        level="note" if fact.note else cost_level(tally, facts),
        certainty=fact.certainty,
        count=tally.count,
        first_step=tally.first_step,
        last_step=max(tally.last_step, 0),
        per_step=per_step(tally, facts),
        bytes=tally.bytes,
        seconds=round(tally.seconds, 6),
        cause=users_line(fact.made or fact.site),
        module=fact.module,
        module_type=fact.module_type,
        tensor=None if tensor is None else tensor_ref(tensor),
        history=[] if tensor is None else history(tensor.origin, facts),
        fix=Fix(text) if text else None,
        **place(fact.site),
    )


def _device(fact: SyncFact, facts: Facts) -> str:
    if fact.tensor is not None and fact.tensor.device != "cpu":
        return fact.tensor.device
    return facts.devices[0] if len(facts.devices) == 1 else "the accelerator"


def _names(fact: SyncFact) -> str:
    if not fact.names:
        return "a tensor"
    more = ", …" if len(fact.names) > _SHOWN else ""
    return ", ".join(fact.names[:_SHOWN]) + more


def _what(fact: SyncFact) -> str:
    """What happens, as the first half of the message."""
    names, called = _names(fact), fact.called or fact.library
    if fact.rule == "DG204":
        return f"{called}() is called"
    if fact.how == "backward":
        of = f"({names})" if fact.names else ""
        return f"{fact.library}{of} reads on the host: {fact.hidden or 'a value'}"
    if fact.rule == "DG203":
        by = fact.library or called
        what = f"the result of {by}({names})" if by else f"what a mask takes from {names}"
        if fact.library and not fact.names:
            what = f"a tensor inside {fact.library}"
        hidden = f" ({fact.hidden})" if fact.hidden not in ("", "a value") else ""
        return f"the size of {what} depends on the data{hidden}"
    if fact.rule == "DG205":
        by = fact.library or called or fact.op.removeprefix("aten.")
        read = f"{names} on the host" if fact.names else "on the host"
        return f"{by} reads {read}: {fact.hidden or 'a check inside'}"
    if fact.library and fact.rule != "DG202":
        return f"{fact.library} reads {names} on the host"
    words = _COPY if fact.rule == "DG202" else _SCALAR
    text = words.get(fact.how, words.get("copy", words.get("read", "")))
    return text.format(x=names, called=called)


CHECKS: tuple[Check, ...] = (syncs,)
