"""On CUDA the autograd engine runs backward on threads of its own, which have no Python frame at all."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from devguard.observe.dispatch import DispatchMode, Handlers
from devguard.observe.recorder import Recorder


def on_a_bare_thread(function: Any, argument: Any) -> None:
    """Call function(argument) as the outermost Python frame of a thread that C made."""
    start = ctypes.CFUNCTYPE(None, ctypes.py_object)(function)
    threads = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    threads.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object]
    threads.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
    threads.pthread_create(ctypes.byref(thread), None, ctypes.cast(start, ctypes.c_void_p), argument)
    threads.pthread_join(thread, None)


def run_op(handlers: Handlers) -> tuple[torch.Tensor, Recorder]:
    recorder = Recorder()
    mode = DispatchMode(recorder, handlers)
    target = torch.zeros(2)
    call = functools.partial(mode.__torch_dispatch__, torch.ops.aten.add.out, (), (torch.ones(2), torch.ones(2)))
    on_a_bare_thread(call, {"out": target})
    return target, recorder


def test_an_op_runs_where_no_frame_lies_below_it() -> None:
    target, recorder = run_op(Handlers())
    assert target.tolist() == [2.0, 2.0]
    assert recorder.facts.failures == []


def test_a_handler_sees_an_op_without_a_frame() -> None:
    handlers, seen = Handlers(), []
    handlers.before["aten::add"].append(lambda op: seen.append(op.site))
    target, recorder = run_op(handlers)
    assert target.tolist() == [2.0, 2.0]
    assert seen == [None]
    assert recorder.facts.failures == []
