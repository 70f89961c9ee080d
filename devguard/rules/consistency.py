"""DG101 to DG105, DG108 and DG113: from operands that did not fit to the tensor, the module and the line to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devguard.knowledge.device_errors import is_device_error, locations
from devguard.observe import symbolize
from devguard.observe.consistency_facts import ConsistencyFacts, Mismatch, ModuleFact, OperandFact, Stray
from devguard.observe.facts import Facts
from devguard.observe.frames import PROJECT, kind_of_file
from devguard.observe.optimizers_facts import OptimizerFacts
from devguard.observe.source_search import meets_others
from devguard.observe.tally import Tally
from devguard.rules.consistency_blame import HOST, Verdict, blame, is_split, op_name
from devguard.rules.consistency_cause import cause_of, failing_line, history_of, line_of
from devguard.rules.consistency_text import fix_for, message_for
from devguard.rules.engine import Check, finding
from devguard.rules.finding import Finding, Level, TensorRef

_LOSS_OPS = ("nll_loss", "cross_entropy", "binary_cross_entropy", "multi_margin_loss", "multilabel_margin_loss")
_ROLES = {"parameter": "parameter", "buffer": "buffer", "attribute": "attribute", "hidden": "parameter"}


def mismatches(facts: Facts) -> Iterator[Finding]:
    """Every operation that refused its operands, and all that would have failed next."""
    table = facts.table(ConsistencyFacts)
    blamed = facts.table(OptimizerFacts).blamed
    found: dict[tuple[str, str, str], Finding] = {}
    for mismatch in list(table.mismatches.values()):
        if mismatch.site in blamed:
            continue
        for item in _of_mismatch(mismatch):
            key = (item.rule, item.tensor.name if item.tensor else "", item.module)
            known = found.get(key)
            if known is None or (known.certainty == "likely" and item.certainty == "certain"):
                found[key] = item
            elif item.certainty == "certain":
                known.count += item.count
                known.last_step = max(known.last_step, item.last_step)
    yield from found.values()


def _of_mismatch(mismatch: Mismatch) -> Iterator[Finding]:
    verdict = blame(mismatch)
    if verdict is None:
        yield _unexplained(mismatch)
        return
    shown: set[object] = set()
    lines: set[object] = set()
    for odd in _one_per_holder([o for o in verdict.odd if not _follows(o, mismatch)] or verdict.odd):
        shown.add(_group(odd))
        found = _finding(odd, verdict, mismatch)
        lines.update(_same_change(found))
        yield found
    if verdict.expected == HOST:
        return
    for other in mismatch.others:
        group = _group(other)
        if group in shown or not _would_fail(other, verdict, mismatch):
            continue
        shown.add(group)
        found = _finding(other, verdict, mismatch, certain=False)
        model, attribute = _same_change(found)
        if (other.kind in ("parameter", "buffer") and model in lines) or attribute in lines:
            continue  # the rest of a model, or of objects of one class, that one line has left on the wrong device
        lines.add(attribute)
        yield found


def _same_change(found: Finding) -> tuple[object, object]:
    """What changing the one line mends too: all parameters that it left, and the attribute of every object that it made."""
    holder, _, attribute = found.tensor.name.rpartition(".") if found.tensor else ("", "", "")
    return (found.rule, found.cause), (found.rule, found.cause, attribute if holder else found.message)


def _group(operand: OperandFact) -> object:
    """What one change of the program mends together."""
    if operand.kind in ("parameter", "buffer"):
        return (operand.newest or operand.holder or operand).path if operand.holder else operand.name  # type: ignore[union-attr]
    if operand.kind in ("hidden", "attribute") and operand.holder is not None:
        return operand.holder.path, operand.attribute
    return operand.name


def _one_per_holder(odd: list[OperandFact]) -> list[OperandFact]:
    """One operand of each group: the largest, so a weight and not its bias."""
    best: dict[object, OperandFact] = {}
    for operand in odd:
        group = _group(operand)
        if operand.kind == "value" and operand.name.endswith("]"):  # entries of one list, given as one argument
            group = operand.argument, operand.name.rpartition("[")[0]
        if group not in best or operand.nbytes > best[group].nbytes:
            best[group] = operand
    return list(best.values())


def _would_fail(other: OperandFact, verdict: Verdict, mismatch: Mismatch) -> bool:
    if other.device == verdict.expected or (other.device != HOST and not _one_accelerator(other, verdict, mismatch)):
        return False
    if other.meets and not mismatch.ended:
        return False  # a program that goes on may do something else
    if other.meets and other.kind != "attribute":
        return True
    if other.kind == "value":
        lengths = len(other.shape) == 1 and other.dtype.startswith("int") and "len" in other.name.lower()
        return bool(other.name) and not lengths and other.input_of is not None
    if other.kind in ("parameter", "buffer"):
        if _stands_aside(other, mismatch):
            return False
        return not is_split(other.outermost) and not (other.holder is not None and other.holder.hooked)
    if other.kind == "attribute" and other.holder is not None and not other.through_helper:
        return meets_others(other.holder.classes, other.attribute)
    return True


def _follows(odd: OperandFact, mismatch: Mismatch) -> bool:
    """Is an operand right, or where it is because of another: made by PyTorch in this very call, or a packed sequence's lengths?"""
    made_here = odd.kind == "value" and odd.origin is not None and odd.origin.site == mismatch.site
    packed = odd.name.endswith("batch_sizes") and odd.device == HOST
    return packed or (made_here and (not odd.name or odd.name == odd.argument))


def _one_accelerator(other: OperandFact, verdict: Verdict, mismatch: Mismatch) -> bool:
    """Does everything live on the one accelerator that was expected, so that what is on another is out of place?"""
    weight = other.kind in ("parameter", "buffer")
    loss = other.outermost is not None and other.outermost.loss
    return set(mismatch.homes) == {verdict.expected} and (loss or not weight)


def _stands_aside(other: OperandFact, mismatch: Mismatch) -> bool:
    """Is it part of a model that is on the host as a whole, does not run, and is no loss? It may be right there."""
    model = other.outermost
    if model is None or model.loss or set(model.tree_devices) != {HOST}:
        return False
    return not any(module is model for module in mismatch.stack)


def code_of(odd: OperandFact, verdict: Verdict, mismatch: Mismatch) -> str:
    """The rule that an odd operand breaks."""
    if odd.kind == "generator" or mismatch.wrong:
        return "DG108"
    if odd.kind == "hidden":
        return "DG104"
    if _is_loss_weight(odd, mismatch):
        return "DG105"
    if odd.kind == "attribute":
        elsewhere = odd.input_of is not None and not any(module is odd.holder for module in mismatch.stack)
        return "DG101" if elsewhere and odd.left_behind is None else "DG103"
    if odd.kind in ("parameter", "buffer"):
        if _is_split_off(odd, verdict):
            return "DG102"
        return "DG101" if odd.meets else _unmoved_module_code(odd, mismatch)
    receiver = odd.input_of
    if receiver is None or (is_split(receiver) and not receiver.devices):
        return "DG108"
    return "DG101"


def _unmoved_module_code(odd: OperandFact, mismatch: Mismatch) -> str:
    running = any(module is odd.holder or module is odd.outermost for module in mismatch.stack)
    return "DG101" if running else "DG108"


def _is_loss_weight(odd: OperandFact, mismatch: Mismatch) -> bool:
    loss = odd.meets.split(".")[-1] or op_name(mismatch.op)
    functional = odd.argument in ("weight", "pos_weight") and loss.startswith(_LOSS_OPS)
    if odd.kind == "value":
        return functional
    holder, outermost = odd.holder, odd.outermost
    if odd.kind == "attribute" and holder is not None:
        return holder.loss and not holder.moves
    inside_loss = outermost is not None and outermost.loss and outermost is not mismatch.root
    return functional or inside_loss or (holder is not None and holder.loss)


def _is_split_off(odd: OperandFact, verdict: Verdict) -> bool:
    outermost = odd.outermost
    if outermost is None:
        return False
    came_later = bool(outermost.moves) and odd.newest is not None and odd.newest is not outermost
    return came_later or any(device != odd.device for device in outermost.tree_devices)


def _tensor_ref(odd: OperandFact, verdict: Verdict | None, code: str) -> TensorRef:
    role = (
        "loss weight" if code == "DG105" else _ROLES.get(odd.kind, "input" if odd.input_of is not None else "operand")
    )
    expected = verdict.expected if verdict is not None else None
    return TensorRef(odd.name or odd.argument, role, odd.shape, odd.dtype, odd.device, expected)


def _finding(odd: OperandFact, verdict: Verdict, mismatch: Mismatch, certain: bool = True) -> Finding:
    code = code_of(odd, verdict, mismatch)
    module = _module_of(odd, mismatch, certain)
    tally = mismatch.tally
    return finding(
        code,
        message_for(code, odd, verdict, mismatch, module),
        op=mismatch.op,
        certainty="certain" if certain else "likely",
        count=tally.count,
        first_step=tally.first_step,
        last_step=max(tally.last_step, 0),
        where=symbolize.where(mismatch.site),
        called_from=symbolize.called_from(mismatch.site),
        cause=cause_of(odd, verdict, mismatch),
        module=module.path if module is not None else "",
        module_type=module.type if module is not None else "",
        tensor=_tensor_ref(odd, verdict, code),
        history=history_of(odd, mismatch),
        fix=fix_for(code, odd, verdict, mismatch),
    )


def _module_of(odd: OperandFact, mismatch: Mismatch, certain: bool) -> ModuleFact | None:
    if certain:
        running = mismatch.stack[-1] if mismatch.stack else None
        return odd.holder if odd.kind == "attribute" and running is not None and not running.path else running
    return odd.holder or odd.input_of


def _unexplained(mismatch: Mismatch) -> Finding:
    module = mismatch.stack[-1] if mismatch.stack else None
    lines = [line for line in mismatch.error.splitlines() if is_device_error(line)]
    quoted = [place for place in locations(mismatch.error) if kind_of_file(place[0]) == PROJECT]
    return finding(
        "DG108",
        f"{mismatch.op or 'an operation'} was refused: {lines[0].strip() if lines else 'its devices differ'}",
        op=mismatch.op,
        level="error" if mismatch.ended else "note",  # a program that goes on after it had tried something
        certainty="likely",
        count=mismatch.tally.count,
        first_step=mismatch.tally.first_step,
        last_step=max(mismatch.tally.last_step, 0),
        where=symbolize.where(mismatch.site),
        called_from=symbolize.called_from(mismatch.site),
        cause=(symbolize.site_at(*quoted[-1]) if quoted else None) or failing_line(mismatch),
        module=module.path if module is not None else "",
        module_type=module.type if module is not None else "",
    )


def strays(facts: Facts) -> Iterator[Finding]:
    """Notes on what a move left behind and nothing has met yet."""
    table = facts.table(ConsistencyFacts)
    told = {_kept(operand) for m in table.mismatches.values() for operand in (*m.operands, *m.others)}
    for stray in list(table.strays.values()):
        if _kept(stray.operand) not in told:
            told.add(_kept(stray.operand))
            yield _stray(stray)


def _kept(operand: OperandFact) -> object:
    """The place in a class where an unregistered tensor or module is kept: one change mends all that is kept there."""
    holder = operand.holder
    return (holder.qualified, operand.attribute) if holder is not None and operand.attribute else operand.name


def _stray(stray: Stray) -> Finding:
    odd = stray.operand
    code: str = "DG104" if odd.kind == "hidden" else "DG103"
    level: Level = "note"
    verdict = Verdict([odd], stray.move.target)
    site = stray.move.site
    mismatch = Mismatch(site, "", "", [odd], (), None, Tally())
    holder = odd.holder
    return finding(
        code,
        message_for(code, odd, verdict, mismatch, holder),
        op=odd.attribute,
        level=level,
        certainty="likely",
        where=symbolize.where(site),
        called_from=symbolize.called_from(site),
        cause=cause_of(odd, verdict, mismatch),
        module=holder.path if holder is not None else "",
        module_type=holder.type if holder is not None else "",
        tensor=_tensor_ref(odd, verdict, code),
        history=history_of(odd, None),
        fix=fix_for(code, odd, verdict, mismatch),
    )


def ties(facts: Facts) -> Iterable[Finding]:
    """Weights that shared their storage before a move, and do not any more."""
    for tie in facts.table(ConsistencyFacts).ties:
        if tie.mended:
            continue
        site = tie.move.site
        how = f".{tie.move.call}() moved them" if tie.move.call else "each was replaced by a copy"
        yield finding(
            "DG113",
            f"{tie.first} and {tie.second} shared one storage until {how} {'to' if tie.move.call else 'on'} {tie.device}: "
            "now they are two tensors and are trained apart",
            op=tie.move.call,
            first_step=tie.move.step,
            last_step=tie.move.step,
            where=symbolize.where(site),
            called_from=symbolize.called_from(site),
            cause=line_of(site, None),
            module=tie.module,
            module_type=tie.module_type,
            tensor=TensorRef(tie.second, "parameter", tie.shape, tie.dtype, tie.device),
            fix=fix_for("DG113", None, None, None, first=tie.first, second=tie.second),
        )


CHECKS: tuple[Check, ...] = (mismatches, strays, ties)
