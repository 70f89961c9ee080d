"""Which operand is the odd one: by what was put where it is on purpose, not by the order of arguments."""

from __future__ import annotations

from dataclasses import dataclass

from devguard.observe.consistency_facts import Mismatch, ModuleFact, OperandFact
from devguard.observe.origins import Origin

HOST = "cpu"

# Ops that make data out of nothing, as opposed to results of a calculation.
FACTORIES = frozenset(
    "arange linspace logspace zeros zeros_like ones ones_like full full_like eye tril_indices triu_indices empty empty_like "
    "empty_strided new_zeros new_ones new_full new_empty new_empty_strided hann_window hamming_window blackman_window "
    "bartlett_window kaiser_window scalar_tensor".split()
)
_RANDOM = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like normal lift_fresh lift_fresh_copy".split()
)
_COPIES = frozenset("_to_copy clone _pin_memory pin_memory".split())


@dataclass(slots=True)
class Verdict:
    """The operands that are out of place, and the device they were expected on."""

    odd: list[OperandFact]
    expected: str


def op_name(op: str) -> str:
    """`aten.add.Tensor` -> `add`."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else op


def is_made(origin: Origin | None) -> bool:
    """Was the data made, loaded or copied, as opposed to calculated?"""
    if origin is None:
        return True
    name = op_name(origin.op)
    return name in FACTORIES or name in _RANDOM or name in _COPIES or not origin.op.startswith("aten.")


def blame(mismatch: Mismatch) -> Verdict | None:
    """The verdict on one mismatch; None where its operands do not explain it."""
    if mismatch.wrong:
        odd = [
            operand
            for operand in mismatch.operands
            if operand.argument == mismatch.wrong or operand.kind == "generator"
        ]
        return Verdict(odd[:1], mismatch.expected) if odd else None
    operands = [operand for operand in mismatch.operands if operand.kind != "generator"]
    if not operands:
        return None
    groups: dict[str, list[OperandFact]] = {}
    for operand in operands:
        groups.setdefault(operand.device, []).append(operand)
    scalars = [operand for operand in operands if not operand.shape and operand.device == HOST]
    if len(groups) > 2 or (HOST in groups and len(scalars) < len(groups[HOST])):
        for operand in scalars:
            groups[HOST].remove(operand)
        groups = {device: group for device, group in groups.items() if group}
    if len(groups) < 2:
        return None
    weights = {device: _weight(device, group, mismatch) for device, group in groups.items()}
    in_place = op_name(mismatch.op).endswith("_") and mismatch.operands[0].argument == "self"
    first = mismatch.operands[0].device

    def rank(device: str) -> tuple[float, bool, bool]:
        return weights[device], in_place and device == first, device != HOST

    expected = max(groups, key=rank)
    odd = [operand for device, group in groups.items() if device != expected for operand in group]
    return Verdict(odd, expected)


def _weight(device: str, group: list[OperandFact], mismatch: Mismatch) -> float:
    others = {operand.device for operand in mismatch.operands} - {device}
    weight = max(_purpose(operand, others, mismatch) for operand in group) + 0.1 * (len(group) - 1)
    models = (module for module in reversed(mismatch.stack) if module.tree_devices and not module.loss)
    running = next((module.tree_devices for module in models), None)
    if (
        running is None
        and all(operand.device != HOST for operand in mismatch.operands)
        and not others & set(mismatch.homes)
    ):
        running = mismatch.homes  # between two accelerators: the one where the program's modules are
    if running and device != HOST and 2 * running.get(device, 0) > sum(running.values()):
        weight += 3
    return weight


def _carried_off(operand: OperandFact, others: set[str], mismatch: Mismatch) -> bool:
    """Did a part of a running module go to another device with a module outside it, as what two models share does?"""
    moves = operand.holder.moves if operand.holder is not None else ()
    for module in mismatch.stack:
        last = module.moves[-1] if module.moves else None
        if last is not None and last.target in others and last in moves and last is not moves[-1]:
            return True
    return False


def _purpose(operand: OperandFact, others: set[str], mismatch: Mismatch) -> float:
    """How likely an operand is where it was meant to be."""
    host = operand.device == HOST
    if operand.kind in ("parameter", "buffer") and operand.holder is not None and operand.holder.loss:
        return 1 if host else 4.5  # a loss follows the model whose results it is given
    if operand.kind in ("parameter", "buffer"):
        if _carried_off(operand, others, mismatch):
            return 0.5
        moves = operand.holder.moves if operand.holder is not None else ()
        if moves and moves[-1].target == operand.device:
            if host and set(moves[-1].source) <= {
                HOST
            }:  # a fallback: `.to(device)` that found no accelerator moved nothing
                return 1.5
            taken_away = moves[-1].step > 0 and any(move.target in others for move in moves[:-1])
            if host and set(moves[-1].source) & others:  # taken to the host, and run with what stayed
                taken_away = taken_away or any(module is operand.outermost for module in mismatch.stack)
            return 0.5 if taken_away else 8
        return 1.5 if host else 6
    if operand.kind == "hidden":
        return 0.5 if host else 4
    if operand.kind == "attribute":
        return 0.5 if host else 2
    if host:
        moved_here = operand.origin is not None and any(s.device >= 0 for s in _parents(operand.origin))
        return 2 if moved_here else 1
    return 5 if operand.grad or not is_made(operand.origin) else 4


def _parents(origin: Origin) -> list[Origin]:
    found: list[Origin] = []
    at = origin.parent
    while at is not None and len(found) < 16:
        found.append(at)
        at = at.parent
    return found


def is_split(module: ModuleFact | None) -> bool:
    """Is the module spread over several accelerators, or run from the host by hooks?"""
    if module is None:
        return False
    accelerators = [device for device in module.tree_devices if device != HOST]
    return len(accelerators) > 1 or (module.hooked and len(module.tree_devices) > 1)
