"""Baselines: the findings that a project knows of, by fingerprint and with their counts, so that only worse is reported.

A baseline is a JSON file made by `devguard baseline`; it is parsed and never run. Imports no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from devguard.report.diff import got_worse
from devguard.report.json import ReportError, read_json
from devguard.rules.finding import Finding

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Known:
    """How often a known finding comes up."""

    rule: str
    count: int
    per_step: float


def dumps(findings: Iterable[Finding]) -> str:
    """The baseline of these findings as JSON text, in an order that makes small diffs."""
    known: dict[str, Any] = {}
    for finding in findings:
        entry = known.setdefault(
            finding.fingerprint, {"rule": finding.rule, "count": 0, "per_step": 0.0, "message": finding.message}
        )
        entry["count"] += finding.count
        entry["per_step"] = round(entry["per_step"] + finding.per_step, 6)
    ordered = dict(sorted(known.items(), key=lambda item: (item[1]["rule"], item[0])))
    return json.dumps({"devguard_baseline": FORMAT, "findings": ordered}, indent=1) + "\n"


def load(path: str | os.PathLike[str]) -> dict[str, Known]:
    """The known findings by fingerprint. Raises ReportError, one line, for a file that is no baseline."""
    return read_json(path, from_data)


def from_data(data: object) -> dict[str, Known]:
    """The known findings in parsed JSON. Raises ReportError."""
    if (
        not isinstance(data, dict)
        or data.get("devguard_baseline") != FORMAT
        or not isinstance(data.get("findings"), dict)
    ):
        raise ReportError("is not a devguard baseline")
    found = {}
    for fingerprint, entry in data["findings"].items():
        if not isinstance(entry, dict) or not _fits(entry):
            raise ReportError(f"findings.{str(fingerprint)[:40]}: expected a rule, a count and a per_step")
        found[str(fingerprint)] = Known(entry["rule"], entry["count"], float(entry["per_step"]))
    return found


def _fits(entry: dict[str, Any]) -> bool:
    rule, count, per_step = (entry.get(key) for key in ("rule", "count", "per_step"))
    number = type(per_step) is float or (type(per_step) is int and abs(per_step) < 2**53)
    return isinstance(rule, str) and type(count) is int and number


def unknown(findings: Iterable[Finding], known: dict[str, Known]) -> list[Finding]:
    """The findings that are not in the baseline, or that come up more often than it says."""
    kept = []
    for finding in findings:
        old = known.get(finding.fingerprint)
        if old is None or got_worse(old.count, old.per_step, finding.count, finding.per_step):
            kept.append(finding)
    return kept
