"""Every wait of the host for an accelerator, counted once under the call that the user wrote.

Ops that wait come from the table in `knowledge/syncs_table.py`; what no dispatch mode shows (printing, `torch.cuda.synchronize()`,
`torch.tensor([scalars])`, pickling) comes from entry points. The first event at a place works out whose it is, later ones only count.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devguard.knowledge.syncs import COPY_RULES, sync_ops, waits
from devguard.knowledge.syncs_conditions import Call, on_device
from devguard.knowledge.syncs_library import BACKWARD, SIMULATED_BACKWARD
from devguard.knowledge.syncs_table import SyncOp
from devguard.observe import gpu_trace, scopes
from devguard.observe.dispatch import DispatchMode, Handlers, Op
from devguard.observe.entries import Entry
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.recorder import Recorder
from devguard.observe.syncs_entries import COPYING, EntryWaits
from devguard.observe.syncs_facts import ForwardFact, SyncFact, SyncFacts
from devguard.observe.syncs_names import name_of, optimizer_name, tensor_fact
from devguard.observe.syncs_place import Stack, Verdict, autograd_node, group_key, judge, judge_reported

_MAX_NAMES = 4
_MAX_FORWARDS = 16
_STEP_ON_DEVICE = frozenset({"ASGD"})  # keeps its counter with its parameters by itself
# PyTorch wraps the method for torch.compile's sake: the code that is on the stack is the wrapped one's.
DISPATCH_CODE = inspect.unwrap(DispatchMode.__torch_dispatch__).__code__


class Syncs:
    """Observer: fills `SyncFacts` and asks the guard scopes before the host waits."""

    name = "syncs"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.facts = recorder.facts.table(SyncFacts)
        self.places: dict[Any, SyncFact | None] = {}
        self.backward: list[RawSite | None] = []  # the backward() calls that run, for the engine's own threads
        self.timed = bool(recorder.facts.devices) and not recorder.facts.simulated
        self.forwards: dict[str, dict[RawSite | None, ForwardFact]] = {}
        self.open = threading.local()  # the wait that is being timed
        self.entries = EntryWaits(self)
        self.listener = recorder.shielded("syncs: CUDA's reports", self.reported)
        self.register(handlers)

    def register(self, handlers: Handlers) -> None:
        """Ask for every op of the table and every entry point."""
        shielded = self.recorder.shielded
        before, after = shielded("syncs", self.before), shielded("syncs: time", self.after)
        for name, entries in sync_ops().items():
            if any(entry.rule not in COPY_RULES for entry in entries):
                moves = name == "aten::_to_copy"
                handlers.before[name].append(shielded("syncs", self.before_move) if moves else before)
                if self.timed:
                    handlers.after[name].append(after)
        handlers.mixed_before.append(shielded("syncs: copies", self.before_copy))
        for name in ("Tensor.backward", "autograd.backward", "autograd.grad"):
            handlers.entries_before[name].append(shielded("syncs: backward", self.backward_begins))
            handlers.entries[name].append(shielded("syncs: backward", self.backward_ends))
        for op in {op for op, _ in BACKWARD.values()}:
            handlers.after[f"aten::{op}"].append(shielded("syncs: forward", self.forward))
        if self.recorder.facts.simulated:
            for op in {op for ops in SIMULATED_BACKWARD.values() for op in ops}:
                handlers.before[op].append(shielded("syncs: simulated backward", self.before_simulated))
        self.entries.register(handlers)

    def start(self) -> None:
        """Listen to CUDA's own reports, where there is a CUDA device and no step is left unwatched (the trace has no pause)."""
        if self.recorder.every == 1 and gpu_trace.wanted(self.recorder.facts.simulated):
            gpu_trace.SUBSCRIPTION.add(self.listener)

    def stop(self) -> None:
        """Listen no more; all else belongs to the dispatch mode and to `Entries`."""
        gpu_trace.SUBSCRIPTION.remove(self.listener)

    # -- ops ----------------------------------------------------------------------------------------------------------

    def before_move(self, op: Op) -> None:
        """`_to_copy`: most calls only cast, and none of those waits."""
        if op.kwargs.get("device") is not None:
            self.before(op)

    def before(self, op: Op) -> None:
        """An op of the table is about to run."""
        for sync, times in waits(op.func, op.args, op.kwargs):
            if sync.rule in COPY_RULES:
                if not op.mixed:
                    self.guard_copy(sync, op)
            else:
                self.wait(sync, times, op)

    def before_copy(self, op: Op) -> None:
        """Operands on several devices: a copy may hide here. Others tell it; a guard must forbid its wait."""
        if scopes.active():
            for sync, _ in waits(op.func, op.args, op.kwargs):
                if sync.rule in COPY_RULES:
                    self.guard_copy(sync, op)

    def guard_copy(self, sync: SyncOp, op: Op) -> None:
        """A blocking copy that another rule tells."""
        if scopes.active():
            scopes.check(
                "sync", None, True, lambda: f"{op.plan.name.partition('::')[2]} waits for a copy ({sync.rule})"
            )

    def before_simulated(self, op: Op) -> None:
        """An op that stands for a wait which C++ does not make for a simulated tensor."""
        node = autograd_node()
        if op.plan.name in SIMULATED_BACKWARD.get(node, ()):
            self.wait(SyncOp("aten::_local_scalar_dense", "DG205", "library", hidden=BACKWARD[node][1]), 1, op)

    def wait(self, sync: SyncOp, times: int, op: Op) -> None:
        """The host will wait `times` times for what an op reads."""
        if any("waits" in entry.notes for entry in self.recorder.thread.intents):
            return  # counted already, under the entry point around it
        if any(type(argument).__name__ == "FakeTensor" for argument in op.args):
            return  # a trace: nothing runs
        stack = Stack(op.frame)
        site = op.site or (self.backward[-1] if self.backward else None)
        inner = stack.inner
        key = (site, sync.op, inner and inner.f_code, inner and inner.f_lasti, stack.engine)
        try:
            fact = self.places[key]
        except KeyError:
            subject = Call(sync, op.func, op.args, op.kwargs)[sync.subject]
            fact = self.places[key] = self.first(sync, judge(sync, stack, subject), stack, site, subject)
        if fact is not None:
            nbytes = times * _nbytes(op.args[0]) if sync.kind == "host-copy" else 0
            self.count(fact, op, times=times, nbytes=nbytes)

    def after(self, op: Op) -> None:
        """The op has run: the time since `before` is what the host was blocked for."""
        self.ended(op)

    def reported(self, kind: str) -> None:
        """CUDA says that the host waits now: news only where neither the table nor an entry point knows it."""
        thread = self.recorder.thread
        if not self.recorder.active or any("waits" in e.notes or e.name in COPYING for e in thread.intents):
            return
        frame: FrameType | None = sys._getframe(1)
        name, known = running_op(frame)
        if known:
            return
        stack = Stack(frame)
        site = raw_site(frame) or (self.backward[-1] if self.backward else None)
        key = (site, name, kind)
        if key not in self.places:
            verdict = judge_reported(kind, name, stack)
            self.places[key] = self.fact_for(verdict, site, name or kind, None, "")
        fact = self.places[key]
        if fact is not None:
            self.count(fact, None)

    # -- facts --------------------------------------------------------------------------------------------------------

    def first(
        self, sync: SyncOp, verdict: Verdict | None, stack: Stack, site: RawSite | None, subject: Any
    ) -> SyncFact | None:
        """The fact for an event at a new place: that of its statement and rule where there is one."""
        if verdict is None:
            return None
        name = ""
        try:
            name = self.named(sync, verdict, stack, subject)
        except Exception as problem:  # a wait without a name is still a wait
            self.recorder.fail("syncs: names", problem)
        certain = sync.certainty == "sure"
        fact = self.fact_for(verdict, site, sync.op, subject if name else None, name, certain=certain)
        places = self.forwards.get(verdict.forward, {})
        if len(places) == 1:  # several can't be told apart from here
            (forward,) = places.values()
            fact.made, fact.tensor = forward.site, forward.tensor
            fact.module, fact.module_type = forward.module, forward.module_type
            fact.names = [forward.tensor.name] if forward.tensor is not None and forward.tensor.name else []
        return fact

    def named(self, sync: SyncOp, verdict: Verdict, stack: Stack, subject: Any) -> str:
        """What is waited for; for an optimizer's own tensors it also decides what kind of wait it is."""
        if verdict.how == "backward":
            return ""
        if verdict.advice in ("optimizer", "lr"):
            name, key, kind = optimizer_name(subject, stack)
            verdict.library = kind or verdict.library
            if key == "step" and kind not in _STEP_ON_DEVICE:
                verdict.rule, verdict.how, verdict.advice, verdict.library = "DG201", "state", "optimizer step", ""
            elif key:
                verdict.hidden, verdict.advice = f"`{key}`", "optimizer lr" if key == "lr" else "optimizer"
            if name or kind:
                return name
        return name_of(self.recorder, subject, stack, verdict, sync.kind in ("dynamic-shape", "host-copy", "library"))

    def fact_for(
        self, verdict: Verdict, site: RawSite | None, op: str, subject: Any, name: str, *, certain: bool = True
    ) -> SyncFact:
        """The fact of a statement and rule, made where there is none yet."""
        key = group_key(site, verdict)
        fact = self.facts.found.get(key)
        if fact is None:
            module, kind = self.recorder.module_path()
            fact = self.facts.found[key] = SyncFact(
                rule=verdict.rule,
                how=verdict.how,
                op=op.replace("::", "."),
                site=site,
                called=verdict.called,
                library=verdict.library,
                hidden=verdict.hidden,
                advice=verdict.advice,
                note=verdict.note,
                certainty="certain" if certain else "likely",
                tensor=tensor_fact(
                    self.recorder, subject, name, "optimizer state" if verdict.how == "state" else "operand"
                ),
                module=module,
                module_type=kind,
            )
        if name and name not in fact.names and len(fact.names) < _MAX_NAMES:
            fact.names.append(name)
        return fact

    def count(self, fact: SyncFact, event: Any, *, times: int = 1, nbytes: int = 0, implicit: bool = True) -> None:
        """One more event. Raises DeviceGuardError where a guard() scope forbids it; nothing is counted where allow() wants it."""
        if scopes.active():
            if scopes.allowed(fact.rule) is not None:
                return
            asked = fact.how == "copy"  # .cpu(), .to("cpu"), .tolist(): the program said so
            scopes.check(
                "sync", "d2h" if fact.rule == "DG202" else None, implicit and not asked, lambda: describe(fact)
            )
        recorder = self.recorder
        fact.tally.hit(recorder.steps.now, recorder.facts.warmup, nbytes, times)
        if self.timed:
            self.open.wait = (event, fact, time.perf_counter())

    def ended(self, event: Any) -> None:
        """The event is over: add the time that it took."""
        wait = getattr(self.open, "wait", None)
        if wait is not None and wait[0] is event:
            self.open.wait = None
            wait[1].tally.seconds += time.perf_counter() - wait[2]

    # -- backward -----------------------------------------------------------------------------------------------------

    def forward(self, op: Op) -> None:
        """An op whose backward waits: remember where, for that one is found at another line."""
        tensor = op.args[0]
        if not on_device(tensor) or not tensor.requires_grad:
            return
        places = self.forwards.setdefault(op.plan.name.partition("::")[2], {})
        if op.site not in places and len(places) < _MAX_FORWARDS:
            stack = Stack(op.frame)
            verdict = judge(SyncOp(op.plan.name, "DG205", "library"), stack) or Verdict("DG205", "library")
            name = name_of(self.recorder, tensor, stack, verdict, True)
            fact = tensor_fact(self.recorder, tensor, name, "operand")
            places[op.site] = ForwardFact(op.site, fact, *self.recorder.module_path())

    def backward_begins(self, entry: Entry) -> None:
        """Backward runs on threads that have no user's frame: this is the line that it is called from."""
        self.backward.append(raw_site(entry.frame))

    def backward_ends(self, entry: Entry) -> None:
        """The innermost backward is over."""
        if self.backward:
            self.backward.pop()


def running_op(frame: FrameType | None) -> tuple[str, bool]:
    """(name, does the table know that it waits) of the op that a dispatch mode of ours runs on this stack."""
    codes = (DispatchMode.observed.__code__, DISPATCH_CODE)
    while frame is not None:
        if frame.f_code in codes:
            local = frame.f_locals
            func: Any = local.get("func")
            if not isinstance(func, torch._ops.OpOverload):
                return "", False
            return func._schema.name, bool(waits(func, local.get("args") or (), local.get("kwargs") or {}))
        frame = frame.f_back
    return "", False


def _nbytes(value: Any) -> int:
    size: Callable[[], int] | None = getattr(value, "element_size", None)
    return value.numel() * size() if size is not None else 0


def describe(fact: SyncFact) -> str:
    """One line for the exception of a guard scope."""
    what = f"`{fact.names[0]}`" if fact.names else "a tensor"
    by = fact.library or fact.called or fact.op
    return f"{fact.rule}: the host waits for {what} ({by})"
