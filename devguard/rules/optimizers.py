"""DG106 and DG107: optimizer state on the wrong device, and parameters that no optimizer trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from devguard.observe.facts import Facts
from devguard.observe.frames import RawSite
from devguard.observe.optimizers_facts import HolderFact, OptimizerFacts, StateFact
from devguard.observe.site import Site
from devguard.observe.symbolize import users_line
from devguard.rules.describe import history, place, project_code, tensor_ref
from devguard.rules.engine import Check, finding
from devguard.rules.finding import Finding, Fix
from devguard.rules.lines import made_by_name, only_assignment

_SHOWN = 3  # names listed before "and N more"

_HOW = {
    "loaded": "it was loaded while the parameters were still on {device}",
    "eager": "{kind} made it when it was constructed, before the parameters moved",
    "moved state": "it was moved there apart from its parameters",
    "moved parameters": "the parameters were moved after it was made",
    "flags": "it was made before the optimizer was capturable or fused",
    "made": "it was made there",
}
_FIX = {
    "loaded": "move the model first: call this after model.to({expected})",
    "eager": "construct the optimizer after model.to({expected})",
    "moved state": "leave the state on its parameter's device ({expected}), or move it back before the step",
    "moved parameters": "move the model before the first optimizer.step(), or move the state along with it",
    "flags": "set capturable or fused when the optimizer is constructed, or move state['step'] to {expected}",
    "made": "make it on its parameter's device: torch.zeros_like(param)",
}


def optimizer_state(facts: Facts) -> Iterator[Finding]:
    """DG106: one finding for each optimizer, naming its first wrong entry."""
    seen: set[tuple[str, RawSite | None]] = set()
    for fact in facts.table(OptimizerFacts).state.values():
        if (fact.optimizer, fact.cause) in seen:
            continue
        seen.add((fact.optimizer, fact.cause))
        yield _state_finding(fact, facts)


def _state_finding(fact: StateFact, facts: Facts) -> Finding:
    device, expected = fact.tensor.device, fact.expected
    also = f" (also {', '.join(fact.others[:_SHOWN])})" if fact.others else ""
    what = "its operand" if fact.held else "its parameter"
    how = _HOW[fact.story].format(device=device, kind=fact.kind)
    if fact.key == "step":
        what = "a capturable or fused optimizer wants it with its parameter"
        message = f"{fact.tensor.name} is on {device}, but {what}, on {expected}: {how}"
    else:
        message = f"{fact.tensor.name}{also} is on {device}, {what} is on {expected}: {how}"
    return finding(
        "DG106",
        message,
        op="optimizer.step",
        cause=_state_line(fact),
        tensor=tensor_ref(fact.tensor, expected),
        history=history(fact.tensor.origin, facts),
        count=fact.tally.count,
        first_step=fact.tally.first_step,
        last_step=max(fact.tally.last_step, 0),
        fix=Fix(_FIX[fact.story].format(expected=_short(expected))),
        **place(fact.site),
    )


def _state_line(fact: StateFact) -> Site | None:
    """The line to change: for a wrapper of no optimizer class, the statement that gives it its name."""
    caller = users_line(fact.caller)
    if fact.held and fact.story == "eager" and fact.cause is None and caller is not None:
        return only_assignment(caller, fact.optimizer) or users_line(fact.moved)
    return users_line(fact.cause) or made_by_name(users_line(fact.site), fact.optimizer)


def optimizer_orphan(facts: Facts) -> Iterator[Finding]:
    """DG107: what an optimizer should train and doesn't; a note where nothing shows that it should."""
    for fact in facts.table(OptimizerFacts).holders.values():
        if fact.story == "not held":
            yield _not_held(fact, facts)
        else:
            yield _orphan(fact, facts)


def _orphan(fact: HolderFact, facts: Facts) -> Finding:
    optimizer, name, shape = fact.optimizer, fact.tensor.name, fact.tensor.shape
    many = f" and {len(fact.names) - 1} more" if len(fact.names) > 1 else ""
    cause = users_line(_line_to_change(fact)) or made_by_name(users_line(fact.site), optimizer)
    if fact.story == "replaced":
        old = f" (shape {fact.stale})" if fact.stale is not None else ""
        message = (
            f"{optimizer} still holds the parameter{old} that {name} (shape {shape}){many} has replaced since; "
            f"the new one gets gradients, but no optimizer updates it"
        )
        fix = f"construct {optimizer} after this line, or give it the new parameters with add_param_group"
    elif fact.story == "added":
        message = f"{name}{many} came into the model after {optimizer} was constructed: it gets gradients, but no optimizer updates it"
        fix = f"construct {optimizer} after this line, or give it the new parameters with add_param_group"
    elif fact.story == "unfrozen":
        message = f"{name}{many} was frozen when {optimizer} was constructed and gets gradients now, but no optimizer updates it"
        fix = f"give {optimizer} the parameters with add_param_group when they are unfrozen, or give it all of them at once"
    else:
        message = (
            f"{optimizer} holds the parameters of another copy of the model: {name}{many} gets gradients, "
            f"but no optimizer updates it"
        )
        fix = f"construct {optimizer} from the parameters of the model that is trained, after its last copy or replacement"
    sure = fact.story in ("replaced", "another model") or (fact.story == "added" and fact.dead)
    return finding(
        "DG107",
        message,
        level="error" if sure else "warning",
        certainty="certain" if fact.story == "replaced" else "likely",
        op="optimizer.step",
        cause=cause,
        fix=Fix(fix),
        **_common(fact, facts),
    )


def _not_held(fact: HolderFact, facts: Facts) -> Finding:
    names = fact.names
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    verb = "gets gradients" if len(names) == 1 else "get gradients"
    return finding(
        "DG107",
        f"{listed} {verb}, but no optimizer of the program holds {'it' if len(names) == 1 else 'them'}",
        level="note",
        certainty="likely",
        op="optimizer.step",
        cause=users_line(fact.made) or made_by_name(users_line(fact.site), fact.optimizer),
        fix=Fix(
            f"if they are meant to be trained, give them to {fact.optimizer}; if not, freeze them with requires_grad_(False)"
        ),
        **_common(fact, facts),
    )


def _common(fact: HolderFact, facts: Facts) -> dict[str, Any]:
    return {
        **place(fact.site),
        "module": fact.module,
        "module_type": fact.module_type,
        "tensor": tensor_ref(fact.tensor),
        "history": history(fact.tensor.origin, facts),
        "count": len(fact.names),
        "first_step": fact.tally.first_step,
        "last_step": max(fact.tally.last_step, 0),
    }


def _line_to_change(fact: HolderFact) -> RawSite | None:
    """Where both happened in one function, the call there: the resize that came after the optimizer, not what it does inside.

    What a model does in its own forward is not to be changed at the call of the training loop."""
    inner: list[str] = []
    code = project_code(fact.made) if fact.made is not None else None
    for site in fact.chain:
        if site[0] is code and "forward" not in inner:
            return site
        inner.append(site[0].co_name)
    return fact.chain[0] if fact.chain else fact.made


def _short(device: str) -> str:
    return f'"{device}"'


CHECKS: tuple[Check, ...] = (optimizer_state, optimizer_orphan)
