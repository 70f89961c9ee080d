"""Raw positions of the user's code."""

from __future__ import annotations

import sys

from devguard.observe.frames import RawSite, raw_site


class Asks:
    """Python functions that the interpreter calls for an expression."""

    def __getitem__(self, index: int) -> RawSite | None:
        return raw_site(sys._getframe(1))

    def __add__(self, other: int) -> RawSite | None:
        return raw_site(sys._getframe(1))

    @property
    def here(self) -> RawSite | None:
        return raw_site(sys._getframe(1))

    def call(self) -> RawSite | None:
        return raw_site(sys._getframe(1))


def test_one_expression_is_one_site_also_when_the_interpreter_has_specialized_it() -> None:
    asks, sites = Asks(), set()
    for _ in range(100):
        sites.add((asks[0], asks + 1, asks.here, asks.call()))
    assert len(sites) == 1
    assert len(set(next(iter(sites)))) == 4
