"""DG109, DG110 and DG111: the wrong rank's accelerator, an idle one, and autocast for another device type."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devguard.observe.facts import Facts
from devguard.observe.frames import RawSite
from devguard.observe.process_facts import AutocastUse, ModelUse, ProcessFacts, Ranks, RankUse, SharedDevice
from devguard.observe.site import Site
from devguard.observe.symbolize import users_line
from devguard.rules.describe import device_name, place, tensor_ref
from devguard.rules.engine import Check, finding
from devguard.rules.finding import Finding, Fix
from devguard.rules.lines import device_arguments, device_line, literals, made_by_name, statement_of

_FEW_CALLS = 3  # a program that never names an accelerator may run a model once or twice on the host for a look
_SMALL = 0.01  # of the largest model's parameters: a helper


# -- DG109 ------------------------------------------------------------------------------------------------------------


def own_device(ranks: Ranks, count: int) -> int:
    """The index of the accelerator that belongs to a process which can see `count` of them."""
    return ranks.local % count if count else ranks.local


def why_wrong(index: int, ranks: Ranks, count: int) -> str | None:
    """What is wrong with a rank using accelerator `index` of `count`; None where it is its own, or one of several it may own."""
    if index == own_device(ranks, count):
        return None
    if index == ranks.rank != ranks.local:
        return f"{index} is its global rank, its local rank is {ranks.local}"
    if index >= count:
        return f"it can see only {count}"
    crowded = (ranks.local_world or 0) > count
    if index == 0 and not crowded:
        return "that one belongs to local rank 0"
    return None


# What CUDA, torch.load and NCCL say to a process that wants an accelerator which is not there or not its own.
_REFUSALS = ("invalid device ordinal", "Attempting to deserialize object on CUDA device", "Duplicate GPU detected")

_LOAD_FIX = 'torch.load(..., map_location="cpu"), or map_location=f"cuda:{local_rank}"'
_DID = {
    "set_device": "chooses {device} with set_device",
    "model": "runs its model on {device}",
    "load": "loads a checkpoint onto {device}",
    "ddp": "gives DistributedDataParallel {device}",
    "stray": "puts a tensor on {device}",
}


def rank_device(facts: Facts) -> Iterator[Finding]:
    """DG109: what a rank chose or used; the choice explains the use, so only the first of them is told for each accelerator."""
    seen = facts.table(ProcessFacts)
    told: set[int] = set()
    order = ("set_device", "ddp", "model", "load", "stray")
    for use in sorted(seen.uses.values(), key=lambda use: order.index(use.event)):
        reason = why_wrong(use.index, use.ranks, use.count) if use.ranks is not None else None
        if reason is None and use.event == "ddp" and use.module_index not in (None, use.index) and not told:
            told.add(use.module_index or 0)
            yield _ddp_finding(use, facts)
        if use.event == "load" and use.ranks is None and not told:
            own = [other.index for other in seen.uses.values() if other.event == "model"]
            if own and use.index not in own:
                told.add(use.index)
                yield _spawned_load_finding(use, own[0], facts)
        if reason is None or use.ranks is None or use.index in told:
            continue
        if use.event == "stray" and _names_it(users_line(use.cause), use.index):
            continue  # a line that says `cuda:0` knows what it does
        told.add(use.index)
        yield _rank_finding(use, use.ranks, reason, facts)
    for shared in seen.shared.values():
        if not told:
            yield _shared_finding(shared, facts)
    if not told and facts.exception is not None and any(text in facts.exception.message for text in _REFUSALS):
        ranks = seen.ranks or Ranks.of(facts.environment)
        if ranks is not None:
            yield _ordinal_finding(ranks, facts.exception.site, facts)


def _names_it(line: Site | None, index: int) -> bool:
    """Does a line, or the one that defines the device it uses, name the accelerator by its index?"""
    statement = statement_of(line) if line is not None else None
    if statement is None:
        return True
    defined = device_line(line)
    for node in (statement, defined[1] if defined is not None else None):
        if any(text.endswith(f":{index}") for text in literals(node)):
            return True
        for argument in device_arguments(node) if node is not None else []:
            if isinstance(argument, ast.Constant) and argument.value == index and not isinstance(argument.value, bool):
                return True
    return False


def _ddp_finding(use: RankUse, facts: Facts) -> Finding:
    """DistributedDataParallel was given one accelerator, and a module on another."""
    wanted, device = (
        device_name(use.index, facts),
        device_name(-1 if use.module_index is None else use.module_index, facts),
    )
    return finding(
        "DG109",
        f"DistributedDataParallel gets device_ids=[{use.index}], but its module is on {device}",
        op="ddp",
        cause=users_line(use.cause),
        fix=Fix(
            f'move the module first: model.to("{wanted}"), or torch.cuda.set_device({use.index}) before model.cuda()'
        ),
        **place(use.site),
    )


def _spawned_load_finding(use: RankUse, own: int, facts: Facts) -> Finding:
    """A process of a group, whose local rank nobody told, loads a checkpoint elsewhere than where its model is."""
    return finding(
        "DG109",
        f"this process loads a checkpoint onto {device_name(use.index, facts)}, but its model is on {device_name(own, facts)}",
        op="load",
        cause=users_line(use.cause),
        count=use.tally.count,
        first_step=use.tally.first_step,
        last_step=max(use.tally.last_step, 0),
        fix=Fix(_LOAD_FIX),
        **place(use.site),
    )


def _rank_finding(use: RankUse, ranks: Ranks, reason: str, facts: Facts) -> Finding:
    device = device_name(use.index, facts)
    did = _DID[use.event].format(device=device)
    own = device_name(own_device(ranks, use.count), facts)
    line = users_line(use.cause)
    # A device in a variable is changed where the variable gets its value.
    defined = device_line(line) if use.event in ("model", "stray") else None
    if use.event == "load":
        fix = _LOAD_FIX
    elif use.event == "ddp":
        fix = "device_ids=[local_rank], with local_rank = int(os.environ['LOCAL_RANK'])"
    else:
        fix = "torch.cuda.set_device(local_rank) first of all, with local_rank = int(os.environ['LOCAL_RANK'])"
    return finding(
        "DG109",
        f"rank {ranks.rank} (local rank {ranks.local}) {did}: {reason}; its own is {own}",
        op=use.event,
        cause=defined[0] if defined is not None else line,
        count=use.tally.count,
        first_step=use.tally.first_step,
        last_step=max(use.tally.last_step, 0),
        module=use.module,
        module_type=use.module_type,
        tensor=tensor_ref(use.tensor, own) if use.tensor is not None and use.tensor.name else None,
        fix=Fix(fix),
        **place(use.site),
    )


def _shared_finding(shared: SharedDevice, facts: Facts) -> Finding:
    device = device_name(shared.index, facts)
    line = users_line(shared.site)
    defined = device_line(line)
    return finding(
        "DG109",
        f"rank {shared.rank} and rank {shared.other} both use {device} of this machine",
        op="shared",
        cause=defined[0] if defined is not None else line,
        fix=Fix("give each process its own: torch.cuda.set_device(local_rank), and move everything to that device"),
        **place(shared.site),
    )


def _ordinal_finding(ranks: Ranks, site: RawSite | None, facts: Facts) -> Finding:
    line = users_line(site)
    defined = device_line(line)
    count = len(facts.devices)
    return finding(
        "DG109",
        f"rank {ranks.rank} (local rank {ranks.local}) asks for an accelerator that it does not have: it can see {count}, "
        f"and its own is {device_name(own_device(ranks, count), facts)}",
        op="ordinal",
        cause=defined[0] if defined is not None else line,
        fix=Fix("use the local rank as the index, not the global one: int(os.environ['LOCAL_RANK'])"),
        **place(site),
    )


# -- DG110 ------------------------------------------------------------------------------------------------------------


def idle_accelerator(facts: Facts) -> Iterator[Finding]:
    """DG110: each model of some size that ran on the host alone, in a program that lets no accelerator compute."""
    seen = facts.table(ProcessFacts)
    models = [use for use in seen.models.values() if use.numel and use.devices]
    if not facts.devices or seen.busy or any(max(use.devices) >= 0 for use in models):
        return
    largest = max((use.numel for use in models), default=0)
    told: set[Site | None] = set()
    for use in sorted(models, key=lambda use: -use.numel):
        line = users_line(use.made) or made_by_name(users_line(use.site), use.name)
        if use.numel >= largest * _SMALL and use.devices == {-1} and line not in told:
            told.add(line)
            found = _idle_finding(use, line, facts)
            if found is not None:
                yield found


def _idle_finding(use: ModelUse, made: Site | None, facts: Facts) -> Finding | None:
    moved = users_line(use.to_cpu)
    cause, how = made, "it was never moved"
    if moved is not None:
        wanted, cause = _asked_for_host(moved)
        if wanted and not use.asked:
            return None
        how = f"it was moved to the CPU at {_short(moved)}"
    name = f"{use.name} ({use.kind})" if use.name else use.kind
    idle = _listed(facts.devices)
    times = "once" if use.calls == 1 else f"{use.calls} times"
    where_made = f": {made.text.splitlines()[0].strip()} at {_short(made)}" if made is not None and made.text else ""
    asked = f"; {use.asked}" if use.asked else ""
    return finding(
        "DG110",
        f"{name} has run {times} on the CPU while {idle}; {how}{where_made}{asked}",
        level="warning" if use.asked or use.calls >= _FEW_CALLS else "note",
        certainty="certain" if use.asked else "likely",
        op="forward",
        cause=cause,
        count=use.calls,
        first_step=use.tally.first_step,
        last_step=max(use.tally.last_step, 0),
        module_type=use.kind,
        fix=Fix(f"{use.name or 'model'}.to(device), and move each batch too"),
        **place(use.site),
    )


def _asked_for_host(moved: Site) -> tuple[bool, Site]:
    """Does the moving line say in so many words that it wants the CPU (``.cpu()``, ``.to("cpu")``)? And the line that decides."""
    statement = statement_of(moved)
    chosen = device_arguments(statement) if statement is not None else []
    if any(isinstance(argument, (ast.BoolOp, ast.IfExp)) for argument in chosen):
        return False, moved  # `.to(device or "cpu")`: the CPU where nothing else was said
    if "cpu" in literals(statement) or (statement is not None and ".cpu(" in ast.unparse(statement)):
        return True, moved
    defined = device_line(moved)
    return False, moved if defined is None else defined[0]


def _listed(devices: list[str]) -> str:
    if len(devices) == 1:
        return f"{devices[0]} is idle"
    shown = devices if len(devices) <= 3 else [devices[0], "...", devices[-1]]
    return f"{' and '.join([', '.join(shown[:-1]), shown[-1]])} are idle"


def _short(site: Site) -> str:
    return f"{site.file.replace(chr(92), '/').rpartition('/')[2]}:{site.line}"


# -- DG111 ------------------------------------------------------------------------------------------------------------


def autocast_device(facts: Facts) -> Iterator[Finding]:
    """DG111: an autocast inside which products ran, all of them on another device type."""
    for use in facts.table(ProcessFacts).autocast.values():
        if use.other and not use.own:
            yield _autocast_finding(use)


def _autocast_finding(use: AutocastUse) -> Finding:
    kind = use.other_device.partition(":")[0]
    products = "1 matrix product or convolution" if use.other == 1 else f"{use.other} matrix products and convolutions"
    return finding(
        "DG111",
        f"autocast is on for {use.device}, but the {products} inside run on {use.other_device}, in full precision",
        op="autocast",
        cause=users_line(use.made),
        count=use.tally.count,
        first_step=use.tally.first_step,
        last_step=max(use.tally.last_step, 0),
        per_step=0.0,
        fix=Fix(f'torch.autocast(device_type="{kind}", ...)'),
        **place(use.other_site or use.site),
    )


CHECKS: tuple[Check, ...] = (rank_device, idle_accelerator, autocast_device)
