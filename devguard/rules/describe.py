"""From what an observer saw to the parts of a finding that all families share."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

from devguard.knowledge.expressions import before_a_dot, node_of
from devguard.observe.facts import Facts, TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.origins import Origin, stations
from devguard.observe.symbolize import called_from, where
from devguard.rules.finding import HistoryEntry, TensorRef


def tensor_ref(fact: TensorFact, expected: str | None = None) -> TensorRef:
    """The finding's tensor."""
    return TensorRef(fact.name, fact.role, fact.shape, fact.dtype, fact.device, expected)


def history(origin: Origin | None, facts: Facts) -> list[HistoryEntry]:
    """The stations of a tensor's life, the last one first."""
    return [
        HistoryEntry(
            "moved" if station.op.startswith("aten._to_copy") else "made",
            station.op,
            device_name(station.device, facts),
            where(station.site),
        )
        for station in stations(origin)
    ]


def device_name(index: int, facts: Facts) -> str:
    """`cpu` or `cuda:1`, from an accelerator's index (-1 for the host)."""
    if index < 0:
        return "cpu"
    kind = facts.devices[0].partition(":")[0] if facts.devices else "cuda"
    return f"{kind}:{index}"


def place(site: RawSite | None) -> dict[str, Any]:
    """`where` and `called_from` of a finding."""
    return {"where": where(site), "called_from": called_from(site)}


def project_code(site: RawSite) -> CodeType:
    """The function of the user's own project that a site lies in (the library's, where there is none)."""
    return site[2] if len(site) == 4 else site[0]


def moving(name: str, call: str) -> str:
    """The code that moves a tensor: ``x = x.cuda()`` for what can be assigned to, ``(a * b).cuda()`` for a calculated one."""
    moved = f"{before_a_dot(name)}.{call}"
    return f"{name} = {moved}" if isinstance(node_of(name), (ast.Name, ast.Attribute, ast.Subscript)) else moved
