"""What becomes of findings: levels, selection and the exit status. Pure functions over plain data; imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from devguard.options import Options
from devguard.report.model import Report
from devguard.rules.catalog import CATALOG
from devguard.rules.finding import LEVELS, Finding, Level


def apply(report: Report, options: Options) -> Report:
    """The report with the findings that the options want, at the levels that they give."""
    return dataclasses.replace(report, findings=selected(report.findings, options))


def selected(findings: Iterable[Finding], options: Options) -> list[Finding]:
    """The findings that select, ignore and levels leave, each at its level.

    A level is the rule's: a finding that its rule made a note (because it is rare) stays one.
    """
    kept = []
    for finding in findings:
        wanted = not options.select or finding.rule.startswith(options.select)
        level = level_of(finding.rule, options)
        if not wanted or level == "off" or (options.ignore and finding.rule.startswith(options.ignore)):
            continue
        rare = finding.level == "note" and CATALOG[finding.rule].level != "note"
        kept.append(finding if level is None or rare else dataclasses.replace(finding, level=level))
    return kept


def level_of(rule: str, options: Options) -> Level | Literal["off"] | None:
    """The level that the options give a rule: the longest matching code wins."""
    matching = [code for code in options.levels if rule.startswith(code)]
    return options.levels[max(matching, key=len)] if matching else None


def reaches(findings: Iterable[Finding], level: str) -> bool:
    """Is any finding at or above a level? Nothing reaches "never"."""
    order: list[str] = [*LEVELS, "never"]
    return any(order.index(finding.level) >= order.index(level) for finding in findings)


def exit_code(report: Report, script_code: int, fail_on: str) -> int:
    """The program's own status if it failed, else 1 when a finding reaches `fail_on`, else 0."""
    return script_code or int(reaches(report.findings, fail_on))
