"""The dispatch mode: every op of the watched threads passes here. Read DESIGN section 4 before adding anything per op."""

from __future__ import annotations

import sys
from collections import defaultdict
from time import perf_counter_ns
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode, _push_mode

from devguard.observe import older_torch
from devguard.observe.dynamo import keep_dynamo_out
from devguard.observe.frames import Located, RawSite, raw_site
from devguard.observe.origins import Origin, bounded, storage_key
from devguard.observe.plan import FRESH_ALIAS, Handler, Plan
from devguard.observe.recorder import Recorder

keep_dynamo_out()

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_Tensor = torch.Tensor
_OpOverload = torch._ops.OpOverload


class Op(Located):
    """One op that somebody wants to look at. `result` is set when it has run, `error` when it has raised."""

    __slots__ = ("args", "error", "func", "kwargs", "mixed", "plan", "result")

    def __init__(
        self, func: Any, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None
    ) -> None:
        self.func = func
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        super().__init__(frame)
        self.mixed = False
        self.result: Any = None
        self.error: BaseException | None = None

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, however it was passed."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def operands(self) -> list[tuple[str, Any]]:
        """(argument name, tensor) of every tensor operand; elements of a list as `tensors[0]`."""
        found: list[tuple[str, Any]] = []
        for index, argument in enumerate(self.func._schema.arguments):
            value = (
                self.args[index]
                if index < len(self.args) and not argument.kwarg_only
                else self.kwargs.get(argument.name)
            )
            if isinstance(value, _Tensor):
                found.append((argument.name, value))
            elif isinstance(value, (list, tuple)):
                found.extend((f"{argument.name}[{i}]", v) for i, v in enumerate(value) if isinstance(v, _Tensor))
        return found


class Handlers:
    """Who wants to look at which op. `before` handlers see the operands, `after` handlers also the result.

    Keys are schema names (`aten::item`). `entries` are listeners to entry points below or beside the dispatcher (see entries.py).
    `mixed_before` and `mixed` handlers see every op whose operands are on several devices, before and after it
    (an op that raised has `error` set), `failed` handlers every op that raised an exception. `every` handlers see each op before it
    runs: costly, so empty but for the moments in which somebody must know (a copy to the host is in flight)."""

    def __init__(self) -> None:
        self.before: dict[str, list[Handler]] = defaultdict(list)
        self.after: dict[str, list[Handler]] = defaultdict(list)
        self.mixed_before: list[Handler] = []
        self.mixed: list[Handler] = []
        self.failed: list[Handler] = []
        self.every: tuple[Handler, ...] = ()
        self.entries: dict[str, list[Handler]] = defaultdict(list)
        self.entries_before: dict[str, list[Handler]] = defaultdict(list)
        self._first: tuple[int, ...] | None = None

    def _lists(self) -> list[list[Handler]]:
        named = (self.before, self.after, self.entries, self.entries_before)
        return [self.mixed_before, self.mixed, self.failed, *(table[key] for table in named for key in sorted(table))]

    def remember_first(self) -> None:
        """Take note of how many handlers there are, before observers are started for another time."""
        if self._first is None:
            self._first = tuple(len(handlers) for handlers in self._lists())

    def keep_first(self) -> None:
        """Drop what observers registered for another time."""
        for handlers, count in zip(self._lists(), self._first or (), strict=False):
            del handlers[count:]


class DispatchMode(TorchDispatchMode):
    """Looks at devices, records origins, calls the handlers; changes nothing."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave torch.compile on: what runs inside a compiled region is told in `not_seen`."""
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """The same for PyTorch 2.8."""
        return older_torch.NEEDED

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No wrapper around every op: see `dynamo.py`."""
        return False

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        older_torch.accept_higher_order_ops(type(self))
        self.recorder = recorder
        self.handlers = handlers
        self.plans: dict[Any, Plan] = {}

    def plan_for(self, func: Any) -> Plan:
        """The plan of an overload, made at its first call."""
        name = func._schema.name
        plan = Plan(func, tuple(self.handlers.before.get(name, ())), tuple(self.handlers.after.get(name, ())))
        self.plans[func] = plan
        return plan

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        recorder = self.recorder
        if not recorder.active:
            return func(*args, **kwargs)
        plan = self.plans.get(func)
        if plan is None:
            if not isinstance(func, _OpOverload):
                return self.higher_order(func, args, kwargs)
            plan = self.plan_for(func)
        recorder.facts.ops += 1
        if plan.composite and torch.is_inference_mode_enabled():
            with self:
                # C++'s own composition, as without a mode; func.decompose() would take a Python one where there is one (istft)
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        mixed = False
        if len(plan.tensor_names) > 1 or plan.lists:
            try:
                mixed = on_several_devices(plan, args, kwargs)
            except Exception as problem:
                recorder.fail("device compare", problem)
        if mixed or plan.before or plan.after or self.handlers.every:
            # f_back and not _getframe(1): the engine's own threads have no frame below this one.
            return self.observed(func, plan, args, kwargs, mixed, sys._getframe().f_back)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self.after_error(func, plan, args, kwargs, error, sys._getframe().f_back)
            raise
        if plan.fresh:
            try:
                self.record_origin(plan, args, result, raw_site(sys._getframe().f_back))
            except Exception as problem:
                recorder.fail("origins", problem)
        return result

    def observed(
        self, func: Any, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], mixed: bool, frame: FrameType | None
    ) -> Any:
        """The slow path: somebody wants to look at this op."""
        began = perf_counter_ns()
        op = Op(func, plan, args, kwargs, frame)
        op.mixed = mixed
        handlers = self.handlers
        if mixed:
            for handler in handlers.mixed_before:
                handler(op)
        for handler in plan.before:
            handler(op)
        for handler in handlers.every:
            handler(op)
        called = perf_counter_ns()
        try:
            op.result = result = func(*args, **kwargs)
        except Exception as error:
            op.error = error
            self.run_failed(op)
            op.frame = None
            raise
        ended = perf_counter_ns()
        for handler in plan.after:
            handler(op)
        if mixed:
            for handler in handlers.mixed:
                handler(op)
        if plan.fresh:
            try:
                self.record_origin(plan, args, result, op.site)
            except Exception as problem:
                self.recorder.fail("origins", problem)
        op.frame = None
        self.recorder.own_ns += perf_counter_ns() - ended + called - began
        return result

    def after_error(
        self,
        func: Any,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        error: Exception,
        frame: FrameType | None,
    ) -> None:
        """An op that nobody looked at raised: now somebody may want to."""
        op = Op(func, plan, args, kwargs, frame)
        op.error = error
        self.run_failed(op)
        op.frame = None

    def run_failed(self, op: Op) -> None:
        """Call the handlers of a failed op."""
        if op.mixed:
            for handler in self.handlers.mixed:
                handler(op)
        for handler in self.handlers.failed:
            handler(op)

    def record_origin(self, plan: Plan, args: tuple[Any, ...], result: Any, site: RawSite | None) -> None:
        """Remember where each new tensor's data comes from."""
        recorder = self.recorder
        parent = None
        if plan.copies and args and isinstance(args[0], _Tensor):
            parent = bounded(recorder.origins.of(args[0]))
        step = recorder.steps.now
        if isinstance(result, _Tensor):
            key = storage_key(result)
            if key is not None:
                device = result.get_device()
                early = device < 0 and parent is None and recorder.facts.devices
                source = self._source(plan, args) if early else None
                recorder.origins.put(key, Origin(site, plan.short, device, step, parent, source))
        elif isinstance(result, (tuple, list)):
            for item in result:
                if isinstance(item, _Tensor):
                    key = storage_key(item)
                    if key is not None:
                        device = item.get_device()
                        early = device < 0 and parent is None and recorder.facts.devices
                        source = self._source(plan, args) if early else None
                        recorder.origins.put(key, Origin(site, plan.short, device, step, parent, source))

    def _source(self, plan: Plan, args: tuple[Any, ...]) -> Origin | None:
        """What the host calculates while there is an accelerator is where device bugs begin: keep where it came from.

        What has just been lifted out of Python data came to be unseen: what the table holds at its address is another's."""
        return None if plan.name in FRESH_ALIAS else self.recorder.origins.of_operands(args)

    def higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """torch.cond, flex_attention and kin: run as they are, told in `not_seen`."""
        recorder = self.recorder
        try:
            recorder.facts.not_seen(f"higher-order op {func}", raw_site(sys._getframe(1).f_back), recorder.steps.now)
        except Exception as problem:
            recorder.fail("higher-order ops", problem)
        return func(*args, **kwargs)


def leave(mode: DispatchMode) -> None:
    """Take a mode off this thread's stack, also from under modes that were entered after it."""
    above = []
    while (top := _get_current_dispatch_mode()) is not None and top is not mode:
        above.append(_pop_mode())
    if top is mode:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    for other in reversed(above):
        _push_mode(other)


def on_several_devices(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Do the tensor operands of an op sit on more than one device? (0-dim host operands count: the handlers judge.)"""
    count = len(args)
    first: int | None = None
    for index in plan.tensors:
        if index < count:
            value = args[index]
            if isinstance(value, _Tensor):
                device = value.get_device()
                if first is None:
                    first = device
                elif device != first:
                    return True
    for index in plan.lists:
        if index < count and args[index] is not None:
            for value in args[index]:
                if isinstance(value, _Tensor):
                    device = value.get_device()
                    if first is None:
                        first = device
                    elif device != first:
                        return True
    if kwargs:
        for name in plan.tensor_names:
            value = kwargs.get(name)
            if isinstance(value, _Tensor):
                device = value.get_device()
                if first is None:
                    first = device
                elif device != first:
                    return True
    return False
