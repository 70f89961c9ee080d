"""Where the data of each tensor was made and moved, keyed by storage: no tensor is kept alive and none carries a mark.

A storage's address can be used again once it is freed. Every new tensor that is seen overwrites the entry, so a stale one can only be
met by a tensor that came to be unseen; :meth:`Origins.of` drops it where the device gives it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from devguard.observe.frames import RawSite

LONGEST = 12  # stations in one chain
LIMIT = 100_000  # entries: about 20 MiB; the oldest half goes when it is reached


class Origin(NamedTuple):
    """One station: `op` made the data on `device` (an accelerator's index, -1 for the host) at `site` in `step`.

    `parent` is the station it was copied from, where this one is a copy (a move, a cast, a clone) of older data. `source` is
    that of the first operand, where this one was calculated on the host."""

    site: RawSite | None
    op: str
    device: int
    step: int
    parent: Origin | None
    source: Origin | None = None


def storage_key(tensor: Any) -> int | None:
    """What identifies a tensor's data: equal for all its views. None for tensors without a storage (sparse, nested, functional,
    a lazy module's parameter)."""
    try:
        key: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError, AttributeError, TypeError, ValueError):
        return None
    return key


def shape_of(tensor: Any) -> tuple[int, ...]:
    """A tensor's sizes; none for a nested one, which has no shape of its own."""
    return () if tensor.is_nested else tuple(tensor.shape)


class Origins:
    """The bounded table of origins of one watch."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: dict[int, Origin] = {}

    def put(self, key: int, origin: Origin) -> None:
        """Record that the storage `key` now holds data with this origin."""
        table = self.table
        if len(table) >= LIMIT:
            for old in list(table)[: LIMIT // 2]:
                del table[old]
        table[key] = origin

    def of_operands(self, args: Any) -> Origin | None:
        """The origin of the first operand that has one, also where operands come in a list."""
        for arg in args:
            if type(arg) in (list, tuple):
                arg = next(iter(arg), None)
            if hasattr(arg, "untyped_storage") and (origin := self.of(arg)) is not None:
                return bounded(origin)
        return None

    def of(self, tensor: Any) -> Origin | None:
        """The last station of a tensor's data, None where it was made unseen."""
        key = storage_key(tensor)
        origin = None if key is None else self.table.get(key)
        if origin is None or origin.device != tensor.get_device():
            return None
        return origin


def bounded(origin: Origin | None) -> Origin | None:
    """`origin`, without what lies between it and its first station where that has become long: loops copy copies for ever."""
    first, count = origin, 0
    while first is not None:
        before = first.parent or first.source
        if before is None:
            break
        first, count = before, count + 1
    if origin is None or count < LONGEST:
        return origin
    return origin._replace(parent=first, source=None) if origin.parent else origin._replace(source=first)


def stations(origin: Origin | None, limit: int = 8) -> Iterator[Origin]:
    """From the last station back to the first, `limit` at most."""
    while origin is not None and limit:
        yield origin
        origin = origin.parent
        limit -= 1
