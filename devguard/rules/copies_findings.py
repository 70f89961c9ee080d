"""From one place that copies to a finding of each rule: its words, its line to change and its fix."""

from __future__ import annotations

import ast
from typing import Any

from devguard.observe.copies_facts import CopyFact
from devguard.observe.facts import Facts
from devguard.observe.site import Site
from devguard.observe.source import node_at, text_of
from devguard.observe.symbolize import users_line
from devguard.observe.tally import Tally
from devguard.rules.copies_source import is_assignment_to_part, receiver
from devguard.rules.copies_text import (
    call_of,
    how_often,
    in_library,
    line_of,
    loader_name,
    made_at,
    named,
    size,
)
from devguard.rules.describe import history, place, tensor_ref
from devguard.rules.engine import finding
from devguard.rules.finding import Finding, Fix, Level, TensorRef
from devguard.rules.rates import cost_level, per_step

MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor")


def numbers(tally: Tally, facts: Facts) -> dict[str, Any]:
    """The counts of a finding."""
    return {
        "count": tally.count,
        "first_step": tally.first_step,
        "last_step": max(tally.last_step, 0),
        "per_step": per_step(tally, facts),
    }


def _finding(
    code: str, message: str, fact: CopyFact, facts: Facts, fix: Fix, cause: Site | None, **more: Any
) -> Finding:
    """A finding about all copies of one place."""
    parts: dict[str, Any] = {
        "op": fact.op,
        "level": cost_level(fact.tally, facts),
        "bytes": fact.tally.bytes,
        "cause": cause,
        "module": fact.module,
        "module_type": fact.module_type,
        "tensor": tensor_ref(fact.tensor, None),
        "history": history(fact.tensor.origin, facts),
        "fix": fix,
        **numbers(fact.tally, facts),
        **place(fact.site),
        **more,
    }
    return finding(code, message, **parts)


# -- DG301 --------------------------------------------------------------------------------------------------------------


def implicit_finding(fact: CopyFact, facts: Facts) -> Finding:
    """An op copied what it was given to another device, unasked."""
    how, name = fact.how, fact.tensor.name or "the data"
    many = how_often(fact, facts)
    way = f"from {fact.source} to {fact.target}"
    wait = "; the host waits each time" if fact.blocking else ""
    if how in MAKERS:
        target = fact.tensor.name or "a tensor"
        call = f"torch.{how}(...)" if how != "new_tensor" else f"{how}(...)"
        message = (
            f"{call} makes {named(fact.tensor, target)} from Python or NumPy data and copies it {way}: {many}{wait}"
        )
        fix = _maker_fix(fact)
    elif how == "list index":
        message = f"a Python list used as an index is made into a tensor and copied {way}: {many}{wait}"
        fix = Fix("make the index a tensor on the device once, outside the loop, or use a slice", safe=True)
    elif how == "copy_":
        act = "an assignment to a part of a tensor" if is_assignment_to_part(fact.site) else ".copy_()"
        message = f"{act} copies {named(fact.tensor)}{made_at(fact)} {way}: {many}{wait}"
        fix = _write_fix(fact)
    elif how.startswith(("index", "_index")) and fact.argument == "values" and not fact.tensor.shape:
        message = f"the number {name} is assigned by an index tensor: it becomes a tensor on the host and is copied {way}: {many}{wait}"
        fix = Fix(
            "use x.index_fill_(dim, index, number), or torch.where() with a mask: the number then travels by itself"
        )
    elif how.startswith(("index", "_index")):
        message = (
            f"{named(fact.tensor)}{made_at(fact)} is on {fact.source} and is used to index a tensor on {fact.target}, "
            f"which copies it there: {many}{wait}"
        )
        fix = _index_fix(fact)
    elif how == "where":
        message = f"torch.where() copies {named(fact.tensor)}{made_at(fact) or ','} a tensor without dimensions, {way}: {many}{wait}"
        fix = Fix(f"give torch.where() a Python number, or make {name} on {fact.target}", safe=True)
    else:
        message = f"{culprit(fact)} copies {named(fact.tensor)}{made_at(fact)} {way}, unasked: {many}{wait}"
        fix = Fix(f"make {name} on {fact.target}, or move it there once, outside the loop")
    return _finding("DG301", message, fact, facts, fix, users_line(fact.site))


def culprit(fact: CopyFact) -> str:
    """What copied, as it is written in the source: a function or method, or an index that NumPy made."""
    op = fact.how.removeprefix("aten.").partition(".")[0]
    if op != "_to_copy":
        return f"{op}()"
    node = node_at(fact.site[0], fact.site[1]) if fact.site is not None else None
    if isinstance(node, ast.Call):
        function = node.func
        return f".{function.attr}()" if isinstance(function, ast.Attribute) else f"{text_of(function)}()"
    if isinstance(node, (ast.Subscript, ast.Assign, ast.AugAssign)):
        return "an index that is a NumPy array"
    return "an op"


def _maker_fix(fact: CopyFact) -> Fix:
    if not fact.tensor.shape:
        return Fix(
            'use the Python number itself, or fill on the device: torch.full((), value, device="cuda")', safe=True
        )
    name = fact.tensor.name or "the tensor"
    return Fix(
        f"make {name} on the device from what is there (torch.full, torch.arange, torch.stack), or make it once outside the "
        "loop; data that must come from the host: pin it and move it with non_blocking=True"
    )


def _write_fix(fact: CopyFact) -> Fix:
    name = fact.tensor.name or "the source"
    if fact.target == "cpu":
        return Fix(
            f"keep the results on {fact.source} (torch.stack there) and copy them to the host once, after the loop"
        )
    return Fix(f"make {name} on {fact.target}; data from the host: pin it and use copy_(..., non_blocking=True)")


def _index_fix(fact: CopyFact) -> Fix:
    name = fact.tensor.name or "the index"
    device = fact.target
    origin = fact.tensor.origin
    maker = origin.op.removeprefix("aten.").partition(".")[0] if origin is not None else ""
    if fact.again * 2 >= fact.tally.count:
        return Fix(f"move {name} to {device} once, before the loop: it is the same data each time", safe=True)
    if maker in ("randperm", "arange", "randint", "tensor"):
        return Fix(f'make {name} on the device: torch.{maker}(..., device="{device}")')
    return Fix(f"make {name} on {device} (device=...), where the indexed tensor is")


# -- DG302, DG303, DG308 --------------------------------------------------------------------------------------------------


def transfer_finding(code: str, fact: CopyFact, facts: Facts) -> Finding:
    """A move in the loop that costs more than it must."""
    loader = fact.loader if fact.from_loader * 2 >= fact.tally.count else None
    many, way = how_often(fact, facts), f"from {fact.source} to {fact.target}"
    thing = f"{named(fact.tensor)}{'' if loader else made_at(fact)}"
    cause = users_line(fact.site)
    unpinned = loader is not None and (not loader.pin_memory or bool(loader.skipped))
    level: Level | None = None
    if code == "DG308":
        at = made_at(fact).removeprefix(", made").rstrip(",")
        message = f"{named(fact.tensor)} is made on the CPU{at} only to be moved {way}: {many}"
        fix = Fix(f'make it there: give the factory device="{fact.target}" (or the device of its neighbours)')
        level = "note"
    elif code == "DG303":
        memory = "the host memory" if fact.direction == "h2d" else "the host's buffer"
        message = f"{thing} is moved {way} with non_blocking=True, which has no effect: {memory} is not pinned; {many}"
        fix = _pin_fix(fact)
        if unpinned:
            cause = users_line(loader.made) or cause if loader is not None else cause
    elif fact.pinned:
        message = f"{thing} is in pinned memory, yet it is moved {way} by a call that waits for it: {many}"
        fix = Fix(f"add non_blocking=True: {call_of(fact, 'non_blocking=True')}", safe=True)
    else:
        message = f"{thing} is moved {way} by a blocking copy from pageable memory: {many}"
        fix = _pin_fix(fact)
        if unpinned and in_library(fact):
            cause = users_line(loader.made) or cause if loader is not None else cause
    if loader is not None:
        message += f"; it comes from {loader_name(loader)}{_loader_fault(fact)}"
    more = {"level": level} if level else {}
    return _finding(code, message, fact, facts, fix, cause, **more)


def _loader_fault(fact: CopyFact) -> str:
    loader = fact.loader
    if loader is None or fact.pinned:
        return ""
    if not loader.pin_memory:
        return ", which does not pin its batches"
    if loader.skipped:
        return f", whose pin_memory=True passes by the class {loader.skipped} in silence: it has no pin_memory() method"
    return ", whose pinned batch was changed on the host before the move" if _derived(fact) else ""


def _derived(fact: CopyFact) -> bool:
    origin = fact.tensor.origin
    return origin is not None and origin.op != "DataLoader"


def _pin_fix(fact: CopyFact) -> Fix:
    loader = fact.loader
    if fact.direction == "d2h":
        return Fix(
            "give it a pinned buffer, torch.empty(..., pin_memory=True), and wait before reading it; or copy blocking"
        )
    if loader is not None and not loader.pin_memory:
        return Fix(f"DataLoader(..., pin_memory=True) and {call_of(fact, 'non_blocking=True')}", safe=True)
    if loader is not None and loader.skipped:
        return Fix(f"give class {loader.skipped} a method pin_memory(self) that pins its tensors and returns self")
    if loader is not None:
        return Fix(f"move first, then change it on the device: {call_of(fact, 'non_blocking=True')}")
    if fact.tensor.role == "parameter":
        held = fact.tensor.name or "the parameter"
        return Fix(
            f"keep {held} on {fact.target}: move it, or the module that holds it, once, before the optimizer is made"
        )
    if fact.tally.steps_hit and fact.tally.count >= 3 * fact.tally.steps_hit:
        return Fix("gather the pieces on the CPU and move the finished batch once, pinned and with non_blocking=True")
    return Fix(f"make it on {fact.target}, or keep it in pinned memory and use {call_of(fact, 'non_blocking=True')}")


# -- DG306, DG307, DG309 --------------------------------------------------------------------------------------------------


def repeated_finding(fact: CopyFact, facts: Facts) -> Finding:
    """The same data, moved again and again."""
    name = fact.tensor.name or "it"
    message = (
        f"{named(fact.tensor)}{made_at(fact)} is moved from {fact.source} to {fact.target} {how_often(fact, facts)}, and its "
        f"content never changed: {fact.again} of these copies were for nothing"
    )
    fix = Fix(f"move {name} once, before the loop, and keep the copy (in a module: register_buffer)", safe=True)
    return _finding("DG306", message, fact, facts, fix, users_line(fact.site))


def whole_module_finding(fact: CopyFact, facts: Facts) -> Finding:
    """A module that is moved, or loaded from another device, step after step. Counted in calls, not in tensors."""
    called = receiver(fact.site)
    name = text_of(called) or fact.module or "a module"
    times = f"{fact.bursts} times, {size(fact.tally.bytes)} in all"
    way = f"from {fact.source} to {fact.target}"
    if fact.op.startswith("aten.copy_"):
        code = "DG301"
        message = f"loading {name} copies its parameters {way} inside the loop: {times}"
        fix = Fix(f"keep {name} on {fact.source}, or load it every so many steps")
    elif fact.direction == "d2h":
        code = "DG202"
        message = (
            f"{name} is copied {way} inside the loop, all its parameters each time: {times}; the host waits for each"
        )
        fix = Fix(f"keep the copy on {fact.source}, or copy to the host every so many steps")
    else:
        code = "DG306"
        message = f"{name} is moved {way} inside the loop, all its parameters each time: {times}"
        fix = Fix(f"leave {name} on {fact.target} if its memory allows, or move it once for many steps")
    steps = max(fact.tally.steps_hit, 1)
    return _finding(
        code,
        message,
        fact,
        facts,
        fix,
        users_line(fact.site),
        count=fact.bursts,
        per_step=round(fact.bursts / steps, 3),
        tensor=TensorRef(name, "parameter", fact.tensor.shape, fact.tensor.dtype, fact.source, fact.target),
        history=[],
    )


def round_trip_finding(fact: CopyFact, out: CopyFact | None, facts: Facts) -> Finding:
    """Data that left a device and came back. `out` is the copy by which they left."""
    left = users_line(fact.went_out if out is None else out.site)
    if fact.direction == "d2d":
        message = f"{named(fact.tensor)} came from {fact.target} to {fact.source} at {line_of(left)} and is copied back"
        fix = Fix(f"use the original on {fact.target}, or keep the whole computation on one device")
    else:
        subject = named(out.tensor) if out is not None else named(fact.tensor)
        result = f"{fact.given_name or fact.tensor.name or 'a new tensor'} at {line_of(users_line(fact.site))}"
        if out is not None and out.source != fact.target:
            message = (
                f"{subject} is copied from {out.source} to the host and goes on from there to {fact.target} as {result}"
            )
            fix = Fix(f"copy it straight there, .to({fact.target!r}): nothing then waits for the host", safe=True)
        else:
            message = (
                f"{subject} is copied from {fact.target} to the host and what becomes of it comes back as {result}"
            )
            fix = Fix(f"do it on {fact.target} with torch's own functions, so that nothing leaves the device")
    sure = fact.returned * 2 >= fact.tally.count
    tensor = out.tensor if out is not None else fact.tensor
    return _finding(
        "DG307",
        f"{message}: {how_often(fact, facts)}",
        fact,
        facts,
        fix,
        left or users_line(fact.site),
        certainty="certain" if sure else "likely",
        tensor=tensor_ref(tensor),
    )


def peer_finding(fact: CopyFact, facts: Facts) -> Finding:
    """A copy between two accelerators that nobody asked for, or of the same data each time."""
    many = how_often(fact, facts)
    name = fact.tensor.name or "it"
    if fact.again * 3 >= fact.tally.count * 2:
        message = (
            f"{named(fact.tensor)}{made_at(fact)} is copied from {fact.source} to {fact.target} {many}, and its content "
            "never changed"
        )
        fix = Fix(f"copy {name} to {fact.target} once and keep the copy there", safe=True)
    else:
        act = "an assignment to a part of a tensor" if is_assignment_to_part(fact.site) else culprit(fact)
        message = (
            f"{act} copies {named(fact.tensor)}{made_at(fact)} from {fact.source} to {fact.target}, unasked: {many}"
        )
        fix = Fix(
            f"make {name} on {fact.target}, or move it there by an explicit .to() where the stages of the model meet"
        )
    return _finding("DG309", message, fact, facts, fix, users_line(fact.site))
