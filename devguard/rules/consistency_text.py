"""What the consistency findings say, in one place."""

from __future__ import annotations

from devguard.observe.consistency_facts import Mismatch, ModuleFact, OperandFact
from devguard.rules.consistency_blame import HOST, Verdict, op_name
from devguard.rules.describe import moving
from devguard.rules.finding import Fix


def _called(module: ModuleFact | None) -> str:
    if module is None:
        return "the operation"
    name = module.path or module.variable
    return f"{name} ({module.type})" if name else module.type


def message_for(code: str, odd: OperandFact, verdict: Verdict, mismatch: Mismatch, module: ModuleFact | None) -> str:
    """One sentence that stands alone: what is where, and what it met."""
    name = odd.name or f"the argument {odd.argument!r}"
    there, expected = odd.device, verdict.expected
    op = odd.meets or op_name(mismatch.op)
    if odd.kind == "generator":
        name = name if "generator" in name.lower() else f"the random generator {name}"
        return f"{name} is on {there}, but {op} fills a tensor on {expected}"
    if mismatch.wrong:
        return f"{name} is on {there}, but {op.split('.')[-1].lstrip('_')} wants it on {'the ' if expected == HOST else ''}{expected}"
    if code == "DG101" and odd.kind in ("value", "attribute"):
        return f"{_called(odd.input_of or module)} got {name} on {there}, but works with tensors on {expected}"
    if code == "DG101":
        moved = _never_moved(odd)
        return f"{_called(odd.outermost or module)} is on {there}{moved}, but was given tensors on {expected}"
    if code == "DG102":
        newer = (
            " (it came into the model after the model was moved)" if odd.newest is not None and _root_moved(odd) else ""
        )
        return f"{name} is on {there}{newer}, but the rest of {_called(odd.outermost)} is on {expected}"
    if code == "DG103":
        return f"{name} stayed on {there}: it is a plain attribute of {_called(odd.holder)}, which is on {expected}"
    if code == "DG104":
        where = f"{odd.attribute!r} of {_called(odd.holder)}"
        return f"{name} stayed on {there}: it is in {where}, where nn.Module can't see it; the module is on {expected}"
    if code == "DG105":
        return f"{name} is on {there}, but the loss gets tensors on {expected}"
    return f"{name} is on {there}, but {op or 'the operation'} has other operands on {expected}"


def _never_moved(odd: OperandFact) -> str:
    return " and was never moved" if odd.holder is not None and not odd.holder.moves else ""


def _root_moved(odd: OperandFact) -> bool:
    return odd.outermost is not None and bool(odd.outermost.moves)


def fix_for(
    code: str,
    odd: OperandFact | None,
    verdict: Verdict | None,
    mismatch: Mismatch | None,
    *,
    first: str = "",
    second: str = "",
) -> Fix | None:
    """What to change."""
    if code == "DG113":
        return Fix(f"tie them again after the move: {second} = {first}")
    if odd is None or verdict is None or mismatch is None:
        return None
    name = odd.name or odd.argument
    if odd.kind == "generator":
        return Fix(f"make the generator on the tensor's device: torch.Generator(device={verdict.expected!r})")
    if mismatch.wrong and odd.kind in ("parameter", "buffer"):
        return Fix(f"move the module to {verdict.expected!r} first, or begin device_ids with {odd.device!r}")
    if mismatch.wrong:
        return Fix(f"leave {name} on the {verdict.expected}: {name}.cpu()")
    if code == "DG103":
        return Fix(f"self.register_buffer({odd.attribute!r}, ...), so that it moves along with the module")
    if code == "DG104":
        return Fix(
            f"keep {odd.attribute!r} in an nn.ModuleList or nn.ModuleDict, so that it is moved, trained and saved"
        )
    if code == "DG105":
        owner = (odd.outermost.path or odd.outermost.variable) if odd.outermost is not None else ""
        return Fix(f"{owner}.to({verdict.expected!r})" if owner else f"{name}.to({verdict.expected!r})", safe=True)
    if odd.kind in ("parameter", "buffer"):
        module = odd.newest or odd.outermost
        path = (module.path or module.variable) if module is not None else ""
        return Fix(f"move {path or 'the model'} to {verdict.expected!r} once it is complete")
    moved = moving(name, f"to({verdict.expected!r})")
    if odd.device == HOST and odd.origin is not None and odd.origin.parent is None:
        return Fix(f"make {name} where it is used, with device={verdict.expected!r}, or move it: {moved}")
    return Fix(moved)
