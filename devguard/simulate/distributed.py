"""torch.distributed with simulated devices: NCCL's collectives run over gloo, on the CPU tensors that hold the data."""

from __future__ import annotations

import datetime
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.refusals import flat, refuse

_COLLECTIVES = """
all_gather all_gather_coalesced all_gather_into_tensor all_reduce all_reduce_coalesced all_to_all all_to_all_single
broadcast gather irecv isend recv reduce reduce_scatter reduce_scatter_tensor scatter send
""".split()


def install(devices: Devices, patches: Patches) -> None:
    """Let process groups be made for NCCL."""
    if not torch.distributed.is_available():
        return
    dist: Any = torch.distributed
    c10d: Any = dist.distributed_c10d
    nccl = type("ProcessGroupNCCL", (), {"Options": type("Options", (), {}), "__module__": c10d.__name__})
    for where in (dist, c10d):
        patches.set(where, "is_nccl_available", lambda: True)
        patches.set(where, "ProcessGroupNCCL", nccl)
    patches.set(c10d, "default_pg_nccl_timeout", datetime.timedelta(minutes=10))
    groups: weakref.WeakSet[Any] = weakref.WeakSet()
    _groups(c10d, groups, patches)
    _collectives(dist, c10d, groups, patches)
    # The C++ logger of DistributedDataParallel knows no timer for the hidden device and says so on stderr.
    patches.set(dist.Logger, "set_runtime_stats_and_log", lambda self: None)


def _gloo_for(backend: str) -> str | None:
    """What stands for a backend of the program's choice; None where it can be what it is."""
    backend = backend.lower()
    if "nccl" not in backend and backend != "undefined":
        return None
    parts = dict(part.partition(":")[::2] for part in backend.split(",")) if ":" in backend else {}
    return ",".join(f"{device}:gloo" for device in parts) if parts else "gloo"


def _groups(c10d: Any, groups: Any, patches: Patches) -> None:
    original = c10d._new_process_group_helper
    signature = inspect.signature(original)

    @functools.wraps(original)
    def helper(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        asked = str(given.arguments["backend"])
        stands = _gloo_for(asked)
        if stands is None:
            return original(*args, **kwargs)
        given.arguments["backend"] = c10d.Backend(stands) if ":" not in stands else stands
        device = given.arguments.get("device_id")
        for name in ("backend_options", "pg_options", "device_id"):
            if name in given.arguments:
                given.arguments[name] = None
        group, store = original(*given.args, **given.kwargs)
        if asked.lower() == "nccl" and isinstance(group, c10d.ProcessGroup):
            groups.add(group)
            if device is not None:
                group.bound_device_id = device
            c10d._world.pg_map[group] = (asked, c10d._world.pg_map[group][1])  # what get_backend() tells
        return group, store

    patches.set(c10d, "_new_process_group_helper", helper)
    device_of = c10d._get_object_coll_device

    def get_object_coll_device(group: Any = None) -> str:
        group = group or c10d._get_default_group()
        return "cuda" if group in groups else device_of(group)

    patches.set(c10d, "_get_object_coll_device", get_object_coll_device)


def _collectives(dist: Any, c10d: Any, groups: Any, patches: Patches) -> None:
    """A group of NCCL's takes no tensor on the CPU."""

    def checked(original: Callable[..., Any]) -> Callable[..., Any]:
        position = list(inspect.signature(original).parameters).index("group")

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            group = args[position] if position < len(args) else kwargs.get("group")
            if group is None and c10d.is_initialized():
                group = c10d._get_default_group()
            if group in groups and any(t.device.type == "cpu" for t in flat([*args, *kwargs.values()])):
                raise refuse("No backend type associated with device type cpu")
            return original(*args, **kwargs)

        return collective

    for name in _COLLECTIVES:
        original = getattr(c10d, name, None)
        if original is not None:
            made = checked(original)
            for where in (dist, c10d):
                if getattr(where, name, None) is original:
                    patches.set(where, name, made)
