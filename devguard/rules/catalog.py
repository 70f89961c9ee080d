"""Every rule's code, name, level and one-sentence summary, as data. Codes never change meaning. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from devguard.rules.finding import Level


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """What a reader needs to recognise a rule; its page (rules/pages/CODE.md) says the rest."""

    code: str
    name: str
    level: Level
    summary: str


# fmt: off
_ROWS: tuple[tuple[str, str, Level, str], ...] = (
    ("DG101", "input-device", "error", "a module got a tensor on another device than its parameters, or inputs on several devices"),
    ("DG102", "split-module", "error", "one module's own parameters and buffers, or a model that nobody split on purpose, sit on several devices"),
    ("DG103", "stray-tensor", "error", "a tensor held by a module stayed behind when the module moved, and then meets the module's device"),
    ("DG104", "unregistered-module", "error", "a submodule that nn.Module can't see (in a list, a dict or a closure) stayed behind"),
    ("DG105", "loss-weight", "error", "a loss's weight, pos_weight or parameter is on another device than what it is given"),
    ("DG106", "optimizer-state", "error", "optimizer state is on another device than its parameter"),
    ("DG107", "optimizer-orphan", "error", "the optimizer holds parameters that the model no longer has, or none of the optimizers holds a trained one"),
    ("DG108", "operand-device", "error", "an op's operands sit on different devices, or a generator or must-be-CPU argument is on the wrong one"),
    ("DG109", "rank-device", "error", "a process of a distributed job uses an accelerator that is not its own, or two ranks share one"),
    ("DG110", "idle-accelerator", "warning", "the watched model computes on the CPU while an accelerator is available"),
    ("DG111", "autocast-device", "warning", "autocast is on for another device type than the computation's"),
    ("DG112", "lost-leaf", "error", "moving a parameter or leaf gave a copy that is no leaf, so it is never trained"),
    ("DG113", "broken-tie", "error", "weights that were tied through shared storage came apart in a move"),
    ("DG201", "scalar-read", "warning", "a tensor's value was read by Python (.item(), float(t), if t, an index, a size), and the host waited for it"),
    ("DG202", "host-copy", "warning", "a tensor was copied to the host (.cpu(), .numpy(), .tolist(), printing), and the host waited for it"),
    ("DG203", "dynamic-shape", "warning", "an op whose result size depends on the data (nonzero, a boolean mask, unique) made the host wait for that size"),
    ("DG204", "explicit-sync", "warning", "the program waits for the accelerator by an explicit call in the loop"),
    ("DG205", "library-sync", "warning", "an op or library call hides a wait for the accelerator inside"),
    ("DG301", "implicit-copy", "warning", "an op copied data between devices without being asked to"),
    ("DG302", "pageable-copy", "warning", "a host-to-device copy in the loop comes from pageable memory, or blocks although the memory is pinned"),
    ("DG303", "useless-non-blocking", "warning", "non_blocking=True has no effect because the host memory is not pinned"),
    ("DG304", "unsafe-non-blocking", "error", "the host reads or overwrites a non_blocking copy before it is known to be complete"),
    ("DG305", "discarded-move", "error", "the result of .to(), .cuda() or .cpu() was thrown away"),
    ("DG306", "repeated-move", "warning", "the same data is moved to the same device again and again"),
    ("DG307", "round-trip", "warning", "data goes from a device to another one and comes back"),
    ("DG308", "move-after-create", "note", "a tensor is made on the CPU only to be moved at once"),
    ("DG309", "peer-copy", "warning", "data is copied between two accelerators, unasked or repeatedly"),
)
# fmt: on

CATALOG: dict[str, RuleInfo] = {row[0]: RuleInfo(*row) for row in _ROWS}
