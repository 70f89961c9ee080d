"""Copies between the host and simulated devices, and those that are still on their way.

A non_blocking copy to pinned host memory arrives when the host has waited for it, and not before: until then the memory
holds what it held, or, where it is fresh, bytes that are wrong everywhere. A pinned source that is overwritten before its
non_blocking copy is known to be complete spoils the copy. Both depend on nothing but the order of the program's calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from devguard.knowledge import syncs
from devguard.simulate import pinned, state
from devguard.simulate.intercept import Intercepts
from devguard.simulate.streams import Key, Timeline, View
from devguard.simulate.tensor import SimTensor, wrap

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_MOST = 64  # more copies on their way than this: the oldest has arrived by now


def _write(target: torch.Tensor, data: torch.Tensor) -> None:
    """Put bytes where the hardware would: no dispatch mode and no version counter sees it."""
    guard = torch._C._DisableTorchDispatch()
    try:
        if target.is_inference():  # it has no version counter, and only that mode may write to it
            with torch.inference_mode():
                target.copy_(data)
        else:
            with torch.no_grad(), _unsafe_preserve_version_counter(target):
                target.copy_(data)
    finally:
        del guard


def _version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; inference tensors count nothing."""
    return -1 if tensor.is_inference() else tensor._version


class _Outgoing:
    """A copy to the host: `data` arrives in `target`."""

    def __init__(self, key: Key, number: int, target: torch.Tensor, data: torch.Tensor) -> None:
        self.key, self.number, self.target, self.data = key, number, target, data

    def arrive(self) -> None:
        _write(self.target, self.data)


class _Incoming:
    """A copy from pinned memory: `source` is read until the copy is complete."""

    def __init__(self, key: Key, number: int, source: torch.Tensor, target: torch.Tensor) -> None:
        self.key, self.number, self.source = key, number, source
        self.target = weakref.ref(target)  # the CPU tensor behind a simulated one: no program has it
        self.version = _version_of(source)

    def arrive(self) -> None:
        target = self.target()
        if target is None:
            return
        self.version = _version_of(self.source)
        _write(target, self.source)

    def overwritten(self) -> bool:
        """Has the program written to the source since?"""
        return _version_of(self.source) != self.version

    def is_written_by(self, func: Any, args: Sequence[Any]) -> bool:
        """Does an op write to the target? (Numbers of versions don't tell: ops run below what counts them.)"""
        target = self.target()
        if target is None or not func._schema.is_mutable:
            return False
        place = target.untyped_storage()._cdata
        return any(isinstance(t, SimTensor) and t._host.untyped_storage()._cdata == place for t in args)


class Late:
    """The copies of one simulation that are on their way."""

    def __init__(self, timeline: Timeline, intercepts: Intercepts) -> None:
        self.timeline, self._intercepts = timeline, intercepts
        self.pending: list[_Outgoing | _Incoming] = []
        self._lock = threading.RLock()
        timeline.arrive = self.covered

    def covered(self, view: View) -> None:
        """The host knows that `view` is complete: what it covers has arrived."""
        if self.pending:
            self._finish(lambda copy: copy.number <= view.get(copy.key, 0))

    def all_arrive(self) -> None:
        """Nothing is on its way any more."""
        self._finish(lambda copy: True)

    def _finish(self, done: Callable[[Any], bool]) -> None:
        with self._lock:
            arrived = [copy for copy in self.pending if done(copy)]
            self.pending = [copy for copy in self.pending if not done(copy)]
            for copy in arrived:
                copy.arrive()
            if not any(isinstance(copy, _Incoming) for copy in self.pending):
                self._intercepts.leave("incoming copies")

    def _add(self, copy: _Outgoing | _Incoming) -> None:
        with self._lock:
            self.pending.append(copy)
            if len(self.pending) > _MOST:
                self.pending.pop(0).arrive()

    def to_host(self, target: torch.Tensor, data: torch.Tensor, index: int) -> None:
        """`data` of device `index` is on its way to `target`."""
        key = self.timeline.current(index)
        self._add(_Outgoing(key, self.timeline.issue(key), target, data))

    def to_device(self, source: torch.Tensor, target: torch.Tensor, index: int) -> None:
        """`source`, pinned, is on its way to `target` on device `index`."""
        key = self.timeline.current(index)
        self._add(_Incoming(key, self.timeline.issue(key), source, target))
        self._intercepts.look("incoming copies", before=self._before_op)

    def _before_op(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """What a program overwrote while it was being copied is spoilt for every op from now on."""
        for copy in tuple(self.pending):
            if isinstance(copy, _Incoming):
                if copy.overwritten():
                    copy.arrive()
                if copy.is_written_by(func, args):
                    with self._lock:
                        self.pending = [other for other in self.pending if other is not copy]

    def read_in_order(self, source: torch.Tensor, index: int) -> None:
        """A device reads host memory: copies into it that its stream waits for are complete by then."""
        if not self.pending or source.layout is not torch.strided or source.device.type != "cpu":
            return
        view = self.timeline.reach(self.timeline.current(index))
        place = source.untyped_storage()._cdata
        self._finish(
            lambda copy: (
                isinstance(copy, _Outgoing)
                and copy.target.untyped_storage()._cdata == place
                and copy.number <= view.get(copy.key, 0)
            )
        )


def to_copy(self: torch.Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
            non_blocking: bool = False, memory_format: Any = None) -> torch.Tensor:  # fmt: skip
    """aten::_to_copy from or to a simulated device."""
    simulation = state.current()
    source = self._index if isinstance(self, SimTensor) else -1
    index = source
    if device is not None:
        found = simulation.devices.resolve(device)
        index = -1 if found is None else found
    host = self._host if isinstance(self, SimTensor) else self
    plain = device is not None and index < 0 and torch.device(device).type != "cpu"
    if source < 0 <= index:
        simulation.late.read_in_order(host, index)
    made: torch.Tensor = _aten._to_copy(
        host, dtype=dtype, layout=layout, device=device if plain else _CPU, memory_format=memory_format
    )
    if index < 0:
        if source >= 0 and not plain:
            return _leave(simulation, made, source, non_blocking)
        return made
    if source < 0:
        _enter(simulation, host, made, index, non_blocking)
    return wrap(made, index)


def copy_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """aten::copy_ from or to a simulated device."""
    simulation = state.current()
    target = self._host if isinstance(self, SimTensor) else self
    if not isinstance(src, SimTensor):
        if isinstance(self, SimTensor):
            simulation.late.read_in_order(src, self._index)
        target.copy_(src)
        if isinstance(self, SimTensor):
            _enter(simulation, src, target, self._index, non_blocking)
        return self
    if isinstance(self, SimTensor) or not (non_blocking and pinned.is_pinned(self)):
        target.copy_(src._host)
        if not isinstance(self, SimTensor):
            simulation.timeline.host_waits_for_current(src._index)
        return self
    guard = torch._C._DisableTorchDispatch()
    try:
        data = torch.empty_like(target).copy_(src._host)
    finally:
        del guard
    if not target.is_inference():
        torch._C._autograd._unsafe_set_version_counter((target,), (target._version + 1,))
    simulation.late.to_host(target, data, src._index)
    return self


def _leave(simulation: Any, made: torch.Tensor, source: int, non_blocking: bool) -> torch.Tensor:
    """A fresh copy on the host: PyTorch pins it where the copy is non_blocking."""
    if not non_blocking or made.layout is not torch.strided:
        simulation.timeline.host_waits_for_current(source)
        return made
    target = torch.eq(made, 0).to(made.dtype) if not made.is_quantized else torch.empty_like(made)
    target = torch.empty_like(made).copy_(target)
    pinned.mark(target)
    simulation.late.to_host(target, made, source)
    return target


def _enter(simulation: Any, host: torch.Tensor, made: torch.Tensor, index: int, non_blocking: bool) -> None:
    """`host` has been copied to `made` on a device."""
    if host.device.type != "cpu":
        return
    if not non_blocking:
        simulation.timeline.host_waits_for_current(index)
    elif host.layout is torch.strided and pinned.is_pinned(host):
        simulation.late.to_device(host, made, index)


COPIES: Mapping[str, Callable[..., torch.Tensor]] = {"aten::_to_copy": to_copy, "aten::copy_": copy_}


def before_wait(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """An op that may make the host wait for this thread's stream: copies that it waits for have arrived."""
    simulation = state.current()
    if simulation.late.pending and syncs.waits(func, tuple(args), dict(kwargs)):
        first = next((t for t in args if isinstance(t, SimTensor)), None)
        index = simulation.devices.current if first is None else first._index
        simulation.timeline.host_waits_for_current(index)
