"""All rules over all facts: pure, so that a report can be asked for at any moment of a run."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable

from devguard.observe.facts import Facts
from devguard.observe.site import Site
from devguard.rules.catalog import CATALOG
from devguard.rules.finding import LEVELS, Finding, Level

Check = Callable[[Facts], Iterable[Finding]]

FAMILIES = ("consistency", "optimizers", "leaves", "process", "syncs", "copies")


def fingerprint(rule: str, module_type: str, function: str, op: str) -> str:
    """What stays the same when the file is edited: rule, module class path, function and op; no line number."""
    return hashlib.sha256("\0".join((rule, module_type, function, op)).encode()).hexdigest()[:16]


def finding(code: str, message: str, *, op: str = "", level: Level | None = None, **parts: object) -> Finding:
    """A finding of rule `code` with the catalog's name and level, and its fingerprint."""
    info = CATALOG[code]
    place = parts.get("called_from") or parts.get("where") or parts.get("cause")
    function = place.function if isinstance(place, Site) else ""
    return Finding(
        rule=code,
        name=info.name,
        level=level or info.level,
        certainty=parts.pop("certainty", "certain"),  # type: ignore[arg-type]
        message=message,
        fingerprint=fingerprint(code, str(parts.get("module_type", "")), function, op),
        **parts,  # type: ignore[arg-type]
    )


def rank(found: Iterable[Finding]) -> list[Finding]:
    """By level, then by cost: measured seconds, then bytes and count; ties in the order of code and line."""
    return sorted(
        found,
        key=lambda f: (
            -LEVELS.index(f.level),
            -f.seconds,
            -(f.count * max(f.bytes // max(f.count, 1), 1)),
            f.rule,
            f.where.line if f.where else 0,
        ),
    )


def findings(facts: Facts) -> list[Finding]:
    """Everything the rules have to say about a run, ranked. A rule that fails is switched off and told in `facts.failures`."""
    found: list[Finding] = []
    for family in FAMILIES:
        try:
            checks: tuple[Check, ...] = importlib.import_module(f"devguard.rules.{family}").CHECKS
        except Exception as problem:
            facts.fail(f"rules of {family}", problem)
            continue
        for check in checks:
            try:
                found.extend(list(check(facts)))
            except Exception as problem:  # one broken rule must not take the others' findings away
                facts.fail(f"rule {check.__name__}", problem)
    return rank(found)
