"""Which op makes the host wait, asked for one call of it. The facts are in `syncs_table.py`, the conditions in `syncs_conditions.py`."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from devguard.knowledge.syncs_conditions import CONDITIONS, Call
from devguard.knowledge.syncs_table import SYNC_OPS, SyncOp

# Rules whose findings other parts make: the wait is one side of a copy.
COPY_RULES = frozenset({"DG301", "DG302"})


def version_tuple(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0); an unreadable part ends it."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def holds_for(sync: SyncOp, version: tuple[int, ...]) -> bool:
    """Is the entry true for this torch version?"""
    if sync.since and version < version_tuple(sync.since):
        return False
    return not sync.until or version < version_tuple(sync.until)


@functools.lru_cache(maxsize=1)
def sync_ops() -> dict[str, tuple[SyncOp, ...]]:
    """Schema name -> the entries that hold for the torch that runs."""
    version = version_tuple(torch.__version__)
    table: dict[str, tuple[SyncOp, ...]] = {}
    for sync in SYNC_OPS:
        if holds_for(sync, version):
            table[sync.op] = (*table.get(sync.op, ()), sync)
    return table


@functools.lru_cache(maxsize=512)
def entries_of(func: Any) -> tuple[SyncOp, ...]:
    """The entries for one overload."""
    schema = func._schema
    return tuple(
        sync for sync in sync_ops().get(schema.name, ()) if not sync.overloads or schema.overload_name in sync.overloads
    )


def waits(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[SyncOp, int]]:
    """How this call makes the host wait: (entry, number of waits), empty where it doesn't."""
    found = []
    for sync in entries_of(func):
        times = int(CONDITIONS[sync.when](Call(sync, func, args, kwargs)))
        if times:
            found.append((sync, times))
    return found
