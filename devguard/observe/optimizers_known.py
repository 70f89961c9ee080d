"""What is remembered of one optimizer."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

from devguard.observe.frames import RawSite
from devguard.observe.names import name_of_object


class Known:
    """One optimizer of the program: a weak reference and what happened to it."""

    __slots__ = (
        "eager",
        "frozen",
        "kind",
        "loaded",
        "loaded_at",
        "made",
        "name",
        "ref",
        "signature",
        "sites",
        "stepped",
        "tick",
    )

    def __init__(self, optimizer: Any, made: RawSite | None, tick: int) -> None:
        self.ref = weakref.ref(optimizer)
        self.kind = type(optimizer).__name__
        self.made = made
        self.tick = tick
        self.name = ""
        self.loaded_at: RawSite | None = None
        self.loaded: frozenset[int] = frozenset()  # storages of the state that load_state_dict brought
        self.eager: frozenset[int] = frozenset()  # storages of the state that was there before the first step
        self.frozen: frozenset[int] = frozenset()  # parameters in sight that wanted no gradient when it was made
        self.stepped = 0
        self.sites: set[RawSite] = set()  # where it is stepped from
        self.signature: Any = None

    def called(self, optimizer: Any, frame: FrameType | None) -> str:
        """The user's name for it, looked for once."""
        if not self.name:
            self.name = name_of_object(optimizer, frame) or "optimizer"
        return self.name
