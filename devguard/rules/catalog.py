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
_RULES = (
    RuleInfo("DG101", "input-device", "error",
             "a module got a tensor on another device than its parameters, or inputs on several devices"),
    RuleInfo("DG102", "split-module", "error",
             "a module's own parameters and buffers, or a model nobody split on purpose, sit on several devices"),
    RuleInfo("DG103", "stray-tensor", "error",
             "a tensor held by a module stayed behind when the module moved, and then meets the module's device"),
    RuleInfo("DG104", "unregistered-module", "error",
             "a submodule that nn.Module can't see (in a list, a dict or a closure) stayed behind"),
    RuleInfo("DG105", "loss-weight", "error",
             "a loss's weight, pos_weight or parameter is on another device than what it is given"),
    RuleInfo("DG106", "optimizer-state", "error",
             "optimizer state is on another device than its parameter"),
    RuleInfo("DG107", "optimizer-orphan", "error",
             "the optimizer holds parameters that the model no longer has, or no optimizer holds a trained one"),
    RuleInfo("DG108", "operand-device", "error",
             "an op's operands sit on different devices, or a generator or must-be-CPU argument is on the wrong one"),
    RuleInfo("DG109", "rank-device", "error",
             "a process of a distributed job uses an accelerator that is not its own, or two ranks share one"),
    RuleInfo("DG110", "idle-accelerator", "warning",
             "the watched model computes on the CPU while an accelerator is available"),
    RuleInfo("DG111", "autocast-device", "warning",
             "autocast is on for another device type than the computation's"),
    RuleInfo("DG112", "lost-leaf", "error",
             "moving a parameter or leaf gave a copy that is no leaf, so it is never trained"),
    RuleInfo("DG113", "broken-tie", "error",
             "weights that were tied through shared storage came apart in a move"),
    RuleInfo("DG201", "scalar-read", "warning",
             "Python read a tensor's value (.item(), float(t), if t, an index, a size), and the host waited for it"),
    RuleInfo("DG202", "host-copy", "warning",
             "a tensor was copied to the host (.cpu(), .numpy(), .tolist(), printing), and the host waited for it"),
    RuleInfo("DG203", "dynamic-shape", "warning",
             "the size of a result depends on the data (nonzero, boolean masks, unique), and the host waited for it"),
    RuleInfo("DG204", "explicit-sync", "warning",
             "the program waits for the accelerator by an explicit call in the loop"),
    RuleInfo("DG205", "library-sync", "warning",
             "an op or library call hides a wait for the accelerator inside"),
    RuleInfo("DG301", "implicit-copy", "warning",
             "an op copied data between devices without being asked to"),
    RuleInfo("DG302", "pageable-copy", "warning",
             "a host-to-device copy in the loop is from pageable memory, or blocks although the memory is pinned"),
    RuleInfo("DG303", "useless-non-blocking", "warning",
             "non_blocking=True has no effect because the host memory is not pinned"),
    RuleInfo("DG304", "unsafe-non-blocking", "error",
             "the host reads or overwrites a non_blocking copy before it is known to be complete"),
    RuleInfo("DG305", "discarded-move", "error",
             "the result of .to(), .cuda() or .cpu() was thrown away"),
    RuleInfo("DG306", "repeated-move", "warning",
             "the same data is moved to the same device again and again"),
    RuleInfo("DG307", "round-trip", "warning",
             "data goes from a device to another one and comes back"),
    RuleInfo("DG308", "move-after-create", "note",
             "a tensor is made on the CPU only to be moved at once"),
    RuleInfo("DG309", "peer-copy", "warning",
             "data is copied between two accelerators, unasked or repeatedly"),
)
# fmt: on

CATALOG: dict[str, RuleInfo] = {rule.code: rule for rule in _RULES}
