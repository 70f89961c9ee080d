"""Which line to change: where the odd tensor was made or last moved, or the statement that gave a module or tensor its place."""

from __future__ import annotations

from devguard.observe import symbolize
from devguard.observe.consistency_facts import Mismatch, ModuleFact, OperandFact
from devguard.observe.frames import RawSite
from devguard.observe.origins import Origin
from devguard.observe.site import Site
from devguard.observe.source_search import attribute_site
from devguard.rules.consistency_blame import FACTORIES, HOST, Verdict, is_made, is_split, op_name
from devguard.rules.finding import HistoryEntry

_BACKWARD = (".backward(", "autograd.grad(")


def line_of(raw: RawSite | None, mismatch: Mismatch | None, library: bool = False) -> Site | None:
    """The line to change at a raw site: the user's, or the library's where the tensor never left one call of the library."""
    if raw is None:
        return None
    if library:
        return symbolize.where(raw)
    if len(raw) == 4 and mismatch is not None and (raw[2], raw[3]) in mismatch.through:
        return symbolize.where(raw)
    return symbolize.users_line(raw)


def failing_line(mismatch: Mismatch) -> Site | None:
    """The user's line that failed."""
    return symbolize.where(mismatch.site)


def cause_of(odd: OperandFact, verdict: Verdict, mismatch: Mismatch) -> Site | None:
    """The line to change for one odd operand; at the least the line that failed."""
    if odd.kind == "generator":
        found = _of_generator(odd, mismatch)
    elif mismatch.here:
        found = failing_line(mismatch)
    elif mismatch.wrong and odd.kind not in ("parameter", "buffer"):
        found = _last_move(odd, mismatch)
    elif odd.kind in ("parameter", "buffer"):
        found = _of_registered(odd, verdict, mismatch)
    elif odd.kind == "hidden":
        found = _of_hidden(odd, mismatch)
    elif odd.kind == "attribute":
        found = _of_attribute(odd, mismatch)
    else:
        found = _of_value(odd, mismatch)
    return found or odd.assigned or failing_line(mismatch)


def _of_generator(odd: OperandFact, mismatch: Mismatch) -> Site | None:
    return odd.assigned or failing_line(mismatch)


def _last_move(odd: OperandFact, mismatch: Mismatch) -> Site | None:
    return line_of(odd.origin.site, mismatch) if odd.origin is not None and is_made(odd.origin) else None


def _of_registered(odd: OperandFact, verdict: Verdict, mismatch: Mismatch) -> Site | None:
    holder, outermost = odd.holder, odd.outermost
    if holder is None or outermost is None:
        return None
    if _kept_on_purpose(odd, verdict, mismatch):
        return failing_line(mismatch)
    if holder.moves and holder.moves[-1].target == odd.device:
        return line_of(holder.moves[-1].site, mismatch)
    if holder.loss and not outermost.moves and odd.origin is not None and not _inside_class(odd.origin, holder):
        given = earliest_copy(odd.origin)
        return line_of(given.site, mismatch) if given is not None else None
    if odd.registered is not None:
        return line_of(odd.registered, mismatch)
    newest = odd.newest
    if newest is not None and newest.built is not None:
        return line_of(newest.called or newest.built, mismatch)
    origin = earliest_copy(odd.origin) if odd.device == HOST else odd.origin
    if holder.moves and odd.origin is not None and op_name(odd.origin.op) == "clone":
        origin = odd.origin  # it has come into a module that was moved already: from here
    if origin is not None and origin.site is not None:
        return line_of(origin.site, mismatch)
    return line_of(outermost.built, mismatch)


def _inside_class(origin: Origin, module: ModuleFact) -> bool:
    """Was the data made by a method of the module's own class, and not given to it?"""
    return _is_inside(origin.site, module)


def _is_inside(raw: RawSite | None, module: ModuleFact) -> bool:
    site = symbolize.where(raw)
    return site is not None and site.function.startswith(_names(module) or ("\0",))


def _kept_on_purpose(odd: OperandFact, verdict: Verdict, mismatch: Mismatch) -> bool:
    """Two modules that were both put where they are: an EMA on the host. The line between them is the one to change."""
    return any(
        other.device == verdict.expected
        and other.kind in ("parameter", "buffer")
        and other.holder is not None
        and other.outermost is not odd.outermost
        and bool(other.holder.moves)
        for other in mismatch.operands
    ) and bool(odd.holder and odd.holder.moves)


def _of_hidden(odd: OperandFact, mismatch: Mismatch) -> Site | None:
    holder = odd.holder
    if holder is not None and odd.attribute:
        made = line_of(odd.origin.site, None) if odd.origin is not None else None
        found = attribute_site(holder.classes, odd.attribute, container=True, near=made.line if made else 0)
        if found is not None:
            return found
    return line_of(odd.origin.site, mismatch) if odd.origin is not None else None


def _of_attribute(odd: OperandFact, mismatch: Mismatch) -> Site | None:
    holder = odd.holder
    if holder is None:
        return None
    made = None
    if odd.origin is not None:
        origin = earliest_copy(odd.origin)
        if origin is not None:
            made = line_of(origin.site, mismatch, library=holder.library)
    stored = (
        None if odd.through_helper else attribute_site(holder.classes, odd.attribute, near=made.line if made else 0)
    )
    return stored or made


def _names(module: ModuleFact) -> tuple[str, ...]:
    return tuple(f"{name}." for _, name in module.classes)


def _of_value(odd: OperandFact, mismatch: Mismatch) -> Site | None:
    origin = odd.origin
    if origin is None:
        return None
    if odd.device != HOST:
        return _of_accelerator_value(odd, origin, mismatch)
    last = line_of(origin.site, mismatch)
    if last is not None and any(call in last.text for call in _BACKWARD):
        return failing_line(mismatch)  # a gradient is where its parameter is: what is done with it has to mind that
    if odd.name.endswith("]") and any(origin.site is not None and origin.site[0] is raw[0] for raw in mismatch.through):
        return line_of(origin.site, mismatch)  # an earlier call of the running function has put it there
    first = earliest_copy(origin, odd.copy_of) or origin
    return line_of((earliest_factory(first, odd.fed_by, mismatch) or first).site, mismatch)


def _of_accelerator_value(odd: OperandFact, origin: Origin, mismatch: Mismatch) -> Site | None:
    innermost = mismatch.stack[-1] if mismatch.stack else None
    if not is_made(origin) or odd.grad:
        if is_split(innermost) and innermost is not None and innermost.inner_moves and not innermost.devices:
            moves = [move for move in innermost.inner_moves if move.target == odd.device] or list(innermost.inner_moves)
            if not _is_inside(
                moves[-1].site, innermost
            ):  # a class that is split by itself has to pass its data on by itself
                return line_of(moves[-1].site, mismatch)
        return failing_line(mismatch)
    split = is_split(mismatch.stack[0] if mismatch.stack else None)
    if split and odd.dtype.startswith(("int", "uint", "bool")) and not _made_inside(origin, mismatch):
        return failing_line(mismatch)  # token ids and labels are right where the model begins
    return line_of(origin.site, mismatch)


def _made_inside(origin: Origin, mismatch: Mismatch) -> bool:
    return origin.site is not None and any(origin.site[0] is raw[0] for raw in mismatch.through[: len(mismatch.stack)])


def earliest_copy(origin: Origin | None, stop: Origin | None = None) -> Origin | None:
    """The first station of the data on the device that it is on now: where it was made there, before casts and clones.

    Not from `stop` on: a copy of a parameter begins where it was copied. Nor beyond where the data came out of a loader or a file."""
    while origin is not None and origin.parent is not None and origin.parent.device == origin.device:
        if origin.parent.site is None or origin.parent is stop or not origin.op.startswith("aten."):
            break
        origin = origin.parent
    return origin


def earliest_factory(origin: Origin, stop: Origin | None, mismatch: Mismatch) -> Origin | None:
    """What a host tensor was calculated from, where it was made out of nothing in the same function; none that made a parameter.

    That is an `arange` or `zeros`, and in a function that has returned already whatever was made there: one that still runs may
    hold a data set."""
    if origin.site is None:
        return None
    at: Origin | None = origin
    code = origin.site[0]
    returned = not any(raw[0] is code for raw in mismatch.through)
    while at is not None and at.site is not None and at.site[0] is code and at.device == origin.device:
        if at is stop or not at.op.startswith("aten."):
            return None
        before = at.parent or at.source
        if op_name(at.op) in FACTORIES or (returned and before is None):
            return at
        at = before
    return None


def history_of(odd: OperandFact, mismatch: Mismatch | None) -> list[HistoryEntry]:
    """The tensor's life, first station first."""
    found: list[HistoryEntry] = []
    at = odd.origin
    accelerator = next((d for d in (odd.device, *(mismatch_devices(mismatch))) if d != HOST), "cuda")
    kind = accelerator.split(":")[0]
    while at is not None and len(found) < 8:
        device = HOST if at.device < 0 else f"{kind}:{at.device}"
        moved = at.parent is not None and at.parent.device != at.device
        event = "moved" if moved else "loaded" if at.op == "torch.load" else "made"
        found.append(HistoryEntry(event, at.op, device, symbolize.users_line(at.site)))  # type: ignore[arg-type]
        at = at.parent
    found.reverse()
    move = odd.left_behind
    if move is not None:
        text = f"{move.module_type}.{move.call}({move.target})"
        found.append(HistoryEntry("left behind", text, odd.device, symbolize.users_line(move.site), move.module_type))
    elif odd.holder is not None and odd.holder.moves and odd.kind in ("parameter", "buffer"):
        move = odd.holder.moves[-1]
        found.append(
            HistoryEntry(
                "moved",
                f"{move.module_type}.{move.call}",
                move.target,
                symbolize.users_line(move.site),
                move.module_type,
            )
        )
    return found


def mismatch_devices(mismatch: Mismatch | None) -> list[str]:
    """The devices of the operands."""
    return [operand.device for operand in mismatch.operands] if mismatch is not None else []
