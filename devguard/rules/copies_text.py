"""What the copy rules say: what moved, how large, how often, from where, and what to change."""

from __future__ import annotations

from devguard.observe.copies_facts import CopyFact, LoaderFact
from devguard.observe.facts import Facts, TensorFact
from devguard.observe.frames import PROJECT, kind_of
from devguard.observe.site import Site
from devguard.observe.symbolize import users_line
from devguard.rules.rates import per_step

_UNITS = ("B", "KiB", "MiB", "GiB")


def size(nbytes: float) -> str:
    """A number of bytes as a person reads it: `320 B`, `1.5 MiB`."""
    for unit in _UNITS:
        if nbytes < 1024 or unit == _UNITS[-1]:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return ""


def named(tensor: TensorFact, name: str = "") -> str:
    """A tensor as a message names it: ``x (float32[8, 10], 320 B)``."""
    shape = ", ".join(str(extent) for extent in tensor.shape)
    return f"{name or tensor.name or 'a tensor'} ({tensor.dtype}[{shape}], {size(tensor.nbytes)})"


def how_often(fact: CopyFact, facts: Facts) -> str:
    """`6 times, once per step`, `24 times, 6 times per step`."""
    count = fact.tally.count
    if count == 1:
        return "once"
    rate = per_step(fact.tally, facts)
    if facts.steps <= 1:
        return f"{count} times"
    if 0.995 <= rate <= 1.005:
        return f"{count} times, once per step"
    return f"{count} times, {rate:g} times per step"


def line_of(site: Site | None) -> str:
    """A place as `train.py:12`, without its folder."""
    return "" if site is None else f"{site.file.replace(chr(92), '/').rpartition('/')[2]}:{site.line}"


def loader_name(loader: LoaderFact) -> str:
    """A loader as its user knows it."""
    made = users_line(loader.made)
    where = f" made at {line_of(made)}" if made else ""
    return f"the DataLoader{f' `{loader.name}`' if loader.name else ''}{where}"


def made_at(fact: CopyFact) -> str:
    """Where the data came from, between commas; empty where it is not known or is the same line."""
    origin = fact.tensor.origin
    made = users_line(origin.site) if origin is not None else None
    here = users_line(fact.site)
    if made is None or (here is not None and (made.file, made.line) == (here.file, here.line)):
        return ""
    return f", made at {line_of(made)},"


def in_library(fact: CopyFact) -> bool:
    """Was the copy made by an installed library and not by a line of the user's?"""
    return fact.site is not None and kind_of(fact.site[0]) != PROJECT


def call_of(fact: CopyFact, extra: str = "") -> str:
    """The move as it could be written: ``x.to("cuda", non_blocking=True)``."""
    name = fact.tensor.name if fact.tensor.name and len(fact.tensor.name) < 40 else "x"
    if fact.how in ("cuda", "cpu"):
        return f"{name}.{fact.how}({extra})"
    return f"{name}.to({', '.join(part for part in ('device', extra) if part)})"
