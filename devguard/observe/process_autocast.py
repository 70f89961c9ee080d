"""Autocast: for which device type it is on, and where the products inside really run.

The ops inside are looked at only the first few times that a place's autocast is entered; after that it costs nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from devguard.observe.dispatch import Handlers, Op
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.patching import Patches
from devguard.observe.process_facts import AutocastUse, ProcessFacts
from devguard.observe.recorder import Recorder

_ENTRIES = 3  # times that the inside of one place's autocast is looked at
_OPS = 20_000  # of one region, should nobody ever leave it
_OBJECTS = 1000
# The ops that autocast is for.
_PRODUCTS = frozenset(
    "mm addmm bmm baddbmm addbmm mv addmv matmul linear convolution _convolution convolution_overrideable cudnn_convolution "
    "mkldnn_convolution conv1d conv2d conv3d einsum mkldnn_rnn_layer _cudnn_rnn lstm gru _thnn_fused_lstm_cell "
    "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention _transformer_encoder_layer_fwd".split()
)
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class _Region:
    """An autocast that is entered and not left; `looked_at` where the ops inside are counted."""

    __slots__ = ("key", "looked_at", "ops", "use")

    def __init__(self, key: int, use: AutocastUse, looked_at: bool) -> None:
        self.key = key
        self.use = use
        self.looked_at = looked_at
        self.ops = 0


class _Open(threading.local):
    """The regions that a thread is in, innermost last: autocast belongs to a thread."""

    def __init__(self) -> None:
        self.regions: list[_Region] = []


class Autocast:
    """Part of the Process observer."""

    def __init__(self, recorder: Recorder, handlers: Handlers, facts: ProcessFacts) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.facts = facts
        self.patches = Patches()
        self.made: dict[int, RawSite | None] = {}
        self.open = _Open()
        self._looking = 0  # regions that are looked into, in all threads
        self._probe = recorder.shielded("autocast", self.product)
        self._note_made = recorder.shielded("autocast", self.constructed)
        self._note_entered = recorder.shielded("autocast", self.entered)
        self._note_left = recorder.shielded("autocast", self.left)

    def start(self) -> None:
        """Wrap autocast's methods (torch.cuda.amp's and torch.cpu.amp's classes inherit them)."""
        kind = torch.amp.autocast_mode.autocast
        self.patches.wrap(kind, "__init__", self._wrapper(self._note_made, before=False))
        self.patches.wrap(kind, "__enter__", self._wrapper(self._note_entered, before=False))
        self.patches.wrap(kind, "__exit__", self._wrapper(self._note_left, before=True))

    def stop(self) -> None:
        """Give them back."""
        self.patches.restore()
        self.open.regions.clear()
        self._listen(-self._looking)

    def _wrapper(self, note: Callable[..., None], before: bool) -> Callable[..., Any]:
        recorder = self.recorder

        def call(wrapped: Callable[..., Any], autocast: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not recorder.active:
                return wrapped(*args, **kwargs)
            if before:
                note(autocast)
                return wrapped(*args, **kwargs)
            result = wrapped(*args, **kwargs)
            note(autocast)
            return result

        return call

    def constructed(self, autocast: Any) -> None:
        """An autocast object was made."""
        if len(self.made) >= _OBJECTS:
            self.made.clear()
        self.made[id(autocast)] = raw_site(sys._getframe(3))

    def entered(self, autocast: Any) -> None:
        """It is on from here."""
        if not getattr(autocast, "_enabled", False):
            return
        site = raw_site(sys._getframe(3))
        made = self.made.get(id(autocast), site)
        key = (autocast.device, made)
        use = self.facts.autocast.get(key)
        if use is None:
            use = self.facts.autocast[key] = AutocastUse(autocast.device, made, site)
        use.entered += 1
        use.tally.hit(self.recorder.steps.now, self.recorder.facts.warmup)
        region = _Region(id(autocast), use, use.entered <= _ENTRIES)
        self.open.regions.append(region)
        self._listen(int(region.looked_at))

    def left(self, autocast: Any) -> None:
        """It is off again."""
        regions = self.open.regions
        for index in range(len(regions) - 1, -1, -1):
            if regions[index].key == id(autocast):
                self._listen(-int(regions.pop(index).looked_at))
                break

    def _listen(self, more: int) -> None:
        if not more:
            return
        self._looking = max(self._looking + more, 0)
        others = tuple(handler for handler in self.handlers.every if handler is not self._probe)
        self.handlers.every = (*others, self._probe) if self._looking else others

    def product(self, op: Op) -> None:
        """An op runs inside: is it one that autocast is for, and on which device?"""
        if op.plan.name.rpartition("::")[2] not in _PRODUCTS:
            return
        tensor = next((value for _, value in op.operands() if value.dtype in _NARROW), None)
        if tensor is None:
            return
        device, regions = tensor.device, self.open.regions
        covered = any(region.use.device == device.type for region in regions)
        for region in regions:
            if not region.looked_at:
                continue
            region.ops += 1
            use = region.use
            if device.type == use.device:
                use.own += 1
            elif not covered:
                use.other += 1
                if not use.other_device:
                    use.other_device, use.other_site = str(device), op.site
            if region.ops > _OPS:
                region.looked_at = False
                self._listen(-1)
