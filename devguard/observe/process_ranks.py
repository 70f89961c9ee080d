"""Which accelerator a process of a distributed job uses. Nothing here talks to other processes but through a store that they share."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.entries import Entry
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.optimizers_state import tensor_fact
from devguard.observe.patching import Patches
from devguard.observe.process_facts import ProcessFacts, RankEvent, Ranks, RankUse, SharedDevice
from devguard.observe.process_models import parameters_of
from devguard.observe.recorder import Recorder

_LEAVES = 200  # tensors of a checkpoint that are looked at
_STRAYS = 8
_PREFIX = "devguard/device/"


class RankDevices:
    """Part of the Process observer: records what a rank uses; the rules say whether it is the rank's own."""

    def __init__(self, recorder: Recorder, handlers: Handlers, facts: ProcessFacts) -> None:
        self.recorder = recorder
        self.facts = facts
        self.patches = Patches()
        self.calls = 0
        self.told: int | None = None
        self._store_lost = False
        handlers.entries["cuda.set_device"].append(recorder.shielded("set_device", self.chosen))
        handlers.entries["torch.load"].append(recorder.shielded("checkpoints", self.loaded))
        self._note_ddp = recorder.shielded("DistributedDataParallel", self.wrapped)

    def start(self) -> None:
        """Wrap DistributedDataParallel's constructor."""
        self.patches.wrap(torch.nn.parallel.DistributedDataParallel, "__init__", self._init_ddp)

    def stop(self) -> None:
        """Give it back."""
        self.patches.restore()

    @property
    def count(self) -> int:
        """How many accelerators this process can see; a program may hide some after the watch has begun."""
        names = self.recorder.facts.devices
        return min(len(names), torch.cuda.device_count()) if names and names[0].startswith("cuda") else len(names)

    def _add(
        self,
        event: RankEvent,
        ranks: Ranks | None,
        index: int,
        site: RawSite | None,
        cause: RawSite | None = None,
        failed: bool = False,
    ) -> RankUse:
        key = (event, index, site)
        use = self.facts.uses.get(key)
        if use is None:
            use = self.facts.uses[key] = RankUse(event, index, self.count, ranks, site, cause or site, failed)
        use.tally.hit(self.recorder.steps.now, self.recorder.facts.warmup)
        return use

    def _ranks(self) -> Ranks | None:
        """Read when something happens: programs and launchers set the variables late."""
        if not self.count:
            return None
        ranks = Ranks.of()
        if ranks is not None:
            self.facts.ranks = ranks
        return ranks

    # -- events -------------------------------------------------------------------------------------------------------

    def chosen(self, entry: Entry) -> None:
        """torch.cuda.set_device() was called, perhaps in vain."""
        ranks = self._ranks()
        index = _index(entry.kwargs.get("device", entry.args[0] if entry.args else None))
        if ranks is not None and index is not None:
            self._strays(ranks)  # now: what is thrown away gives its address, and with it its entry, to later tensors
            self._add("set_device", ranks, index, entry.site, failed=entry.error is not None)

    def loaded(self, entry: Entry) -> None:
        """A checkpoint was loaded: onto which accelerators?"""
        ranks = self._ranks()
        if (ranks is None and self._job() is None) or entry.error is not None or entry.outer is not None:
            return
        for tensor in _tensors(entry.result):
            if tensor.get_device() >= 0:
                use = self._add("load", ranks, tensor.get_device(), entry.site)
                if use.tensor is None:
                    use.tensor = tensor_fact("", "result", tensor, self.recorder)
                return

    def _init_ddp(self, wrapped: Callable[..., Any], ddp: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note_ddp(args, kwargs, sys._getframe(1))
        return wrapped(*args, **kwargs)

    def wrapped(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
        """A model is wrapped for distributed training: device_ids names this rank's accelerator."""
        ranks = self._ranks()
        ids = kwargs.get("device_ids", args[1] if len(args) > 1 else None)
        index = _index(ids[0]) if isinstance(ids, (list, tuple)) and len(ids) == 1 else None
        module = kwargs.get("module", args[0] if args else None)
        site = raw_site(frame)
        if index is not None and isinstance(module, torch.nn.Module):
            use = self._add("ddp", ranks, index, site)
            devices = {parameter.get_device() for parameter in parameters_of(module)}
            use.module_index = devices.pop() if len(devices) == 1 else None
        if ranks is not None and isinstance(module, torch.nn.Module):
            self._model(ranks, module, site)

    def called(self, module: Any) -> None:
        """An outermost module is called: where are its parameters? And do others use the same accelerator?"""
        self.calls += 1
        if self.calls > 4 and self.calls & (self.calls - 1):
            return
        ranks, job = self._ranks(), self._job()
        if ranks is None and job is None:
            return
        index = self._model(ranks, module, raw_site(sys._getframe(3)))
        if index is not None and job is not None:
            self._compare(*job, index)

    def _job(self) -> tuple[int, int] | None:
        """(rank, number of ranks) of the process group, where there is one; a spawned process knows its rank from nothing else."""
        distributed = torch.distributed
        if not self.count or not distributed.is_available() or not distributed.is_initialized():
            return None
        return distributed.get_rank(), distributed.get_world_size()

    def _model(self, ranks: Ranks | None, module: Any, site: RawSite | None) -> int | None:
        """Record the accelerator that holds a model; None where it holds none or several do (a split model)."""
        devices = {parameter.get_device() for parameter in parameters_of(module)}
        if len(devices) != 1 or -1 in devices:
            return None
        index: int = devices.pop()
        if not any(use.event == "model" and use.index == index for use in self.facts.uses.values()):
            first = next(parameters_of(module))
            origin = self.recorder.origins.of(first)
            use = self._add("model", ranks, index, site, origin.site if origin is not None else None)
            use.module, use.module_type = self.recorder.module_path(module)
            use.tensor = tensor_fact("", "parameter", first, self.recorder)
        return index

    def collect(self) -> None:
        """Before a report: a tensor that came to be on another accelerator than the rank's own, wherever it was made."""
        if self.facts.ranks is not None:
            self._strays(self.facts.ranks)

    def _strays(self, ranks: Ranks) -> None:
        """Note the tensors on the default accelerator of a rank that has another one."""
        if ranks.local == 0 or any(use.event == "stray" for use in self.facts.uses.values()):
            return
        sites = {o.site for o in list(self.recorder.origins.table.values()) if o.device == 0 and o.site is not None}
        for site in list(sites)[:_STRAYS]:
            self._add("stray", ranks, 0, site)

    # -- other ranks --------------------------------------------------------------------------------------------------

    def _compare(self, rank: int, world: int, index: int) -> None:
        """Tell the job's own store which accelerator this rank uses, and read what others told: one key each, no collective."""
        if self._store_lost or world < 2:
            return
        try:
            store = torch.distributed.distributed_c10d._get_default_store()
            mine = f"{socket.gethostname()}|{_physical(index)}"
            if self.told != index:
                self.told = index
                store.set(f"{_PREFIX}{rank}", mine)
            for other in range(world):
                key = f"{_PREFIX}{other}"
                if other == rank or other in self.facts.shared or not store.check([key]):
                    continue
                if store.get(key).decode() == mine:
                    use = next(u for u in self.facts.uses.values() if u.event == "model" and u.index == index)
                    self.facts.shared[other] = SharedDevice(index, rank, other, use.cause)
        except (RuntimeError, ValueError, OSError):  # the store's process has ended: so will this one soon
            self._store_lost = True


def _physical(index: int) -> str:
    """The accelerator that the process's `index` stands for, as all processes of the machine know it."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[index] if index < len(visible) else str(index)


def _index(device: Any) -> int | None:
    """The index that a device argument names; None where it names none."""
    if isinstance(device, bool) or device is None:
        return None
    if isinstance(device, int):
        return device if device >= 0 else None
    try:
        return torch.device(device).index
    except (RuntimeError, TypeError):
        return None


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors of a checkpoint: of its dicts, lists and modules, a few hundred at most."""
    todo, budget = [value], _LEAVES
    while todo and budget:
        item = todo.pop()
        budget -= 1
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item[:_LEAVES])
        elif isinstance(item, torch.nn.Module):
            yield from parameters_of(item)
