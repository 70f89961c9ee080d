"""CUDA's own word on when the host waits: `torch.cuda._gpu_trace`, subscribed to once per process.

PyTorch can neither end the trace nor take a callback out again, so one subscription serves every watch: it does nothing while none
listens. The callbacks run on the thread that waits, before it waits.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch

Listener = Callable[[str], None]

OFF = "DEVGUARD_GPU_TRACE"  # set to 0: no subscription, for those who can't spare 0.8 us per allocation


class Subscription:
    """The process's one subscription, and who listens now."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.done = False

    def add(self, listener: Listener) -> bool:
        """Tell `listener` the kind of each wait: "device", "stream" or "event". False where this torch or machine has no trace."""
        if not self.done and not self._subscribe():
            return False
        self.listeners = (*self.listeners, listener)
        return True

    def remove(self, listener: Listener) -> None:
        """Tell it no more."""
        self.listeners = tuple(other for other in self.listeners if other is not listener)

    def tell(self, kind: str) -> None:
        """A wait begins."""
        for listener in self.listeners:
            listener(kind)

    def _subscribe(self) -> bool:
        try:
            trace: Any = importlib.import_module("torch.cuda._gpu_trace")
            activate = torch._C._activate_gpu_trace
            register = (
                trace.register_callback_for_device_synchronization,
                trace.register_callback_for_stream_synchronization,
                trace.register_callback_for_event_synchronization,
            )
        except (ImportError, AttributeError):
            return False
        register[0](lambda *_: self.tell("device"))
        register[1](lambda *_: self.tell("stream"))
        register[2](lambda *_: self.tell("event"))
        activate()
        self.done = True
        return True


SUBSCRIPTION = Subscription()  # the trace belongs to the process and has no end: so does this


def wanted(simulated: bool) -> bool:
    """Is there a CUDA device whose waits can be traced?"""
    return not simulated and os.environ.get(OFF) != "0" and torch.version.cuda is not None and torch.cuda.is_available()
