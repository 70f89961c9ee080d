"""What becomes of findings: levels, marks, allowances, the baseline, the sync budget and the exit status. Imports no torch.

`apply` puts the parts together; each part is a function of plain data.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from devguard import baseline
from devguard.marks import Mark, apply_marks, project_files
from devguard.observe.scopes import AllowScope, allows_since
from devguard.observe.site import Site
from devguard.options import Options
from devguard.report.json import ReportError
from devguard.report.model import NotSeen, Report
from devguard.rules.catalog import CATALOG
from devguard.rules.engine import rank
from devguard.rules.finding import LEVELS, Finding, Level


def apply(report: Report, options: Options) -> Report:
    """The report as the user wants it: without what marks, allow() and the baseline cover, at the levels of the options.

    Marks and allowances that were not needed, or that can't work, are told in `not_seen`.
    """
    findings, unused = apply_marks(report.findings, project_files())
    findings, idle = without_allowed(findings, allows_since(_moment(report.started)))
    findings = selected(findings, options)
    notes = [*report.not_seen]
    if report.exception is None:  # a program that broke off did not come to all its lines
        notes += [_unused_allow(scope) for scope in idle]
    notes += [_unused_mark(mark) for mark in unused if mark.problem or report.exception is None]
    if options.baseline:
        try:
            findings = baseline.unknown(findings, _baseline(options.baseline, _stamp(options.baseline)))
        except ReportError as problem:
            notes.append(NotSeen(f"the baseline was not used: {problem}", 1))
    findings = rank(over_budget(findings, options.max_syncs_per_step))
    return dataclasses.replace(report, findings=findings, not_seen=notes)


# --- levels and selection ---


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
        rare = finding.level == "note" and finding.rule in CATALOG and CATALOG[finding.rule].level != "note"
        kept.append(finding if level is None or rare else dataclasses.replace(finding, level=level))
    return kept


def level_of(rule: str, options: Options) -> Level | Literal["off"] | None:
    """The level that the options give a rule: the longest matching code wins."""
    matching = [code for code in options.levels if rule.startswith(code)]
    return options.levels[max(matching, key=len)] if matching else None


def over_budget(findings: list[Finding], budget: int | None) -> list[Finding]:
    """The findings, with every steady sync an error when all syncs together are more per step than the budget."""
    syncs = [finding for finding in findings if finding.rule.startswith("DG2")]
    total = sum(finding.per_step for finding in syncs)
    if budget is None or total <= budget + 1e-9:
        return findings
    words = f"; {total:.3g} syncs per step are over the budget of {budget}"
    return [
        dataclasses.replace(finding, level="error", message=finding.message + words)
        if finding.rule.startswith("DG2") and finding.level == "warning"
        else finding
        for finding in findings
    ]


# --- marks and allowances ---


def without_allowed(
    findings: Iterable[Finding], scopes: Iterable[AllowScope]
) -> tuple[list[Finding], list[AllowScope]]:
    """The findings outside every allow() block, and the allowances that neither an event nor a finding needed.

    Events inside a block are left out as they happen; this covers the findings that are made only at the end of a run.
    """
    scopes = list(scopes)
    needed = {id(scope) for scope in scopes if scope.used}
    kept = []
    for finding in findings:
        around = [scope for scope in scopes if not scope.first_only and _encloses(scope, finding)]
        needed.update(map(id, around))
        if not around:
            kept.append(finding)
    return kept, [scope for scope in scopes if id(scope) not in needed]


def _encloses(scope: AllowScope, finding: Finding) -> bool:
    sites = (finding.where, finding.cause, finding.called_from)
    return finding.rule.startswith(scope.codes) and any(
        site is not None and site.file == scope.file and scope.first <= site.line <= scope.last for site in sites
    )


def _unused_mark(mark: Mark) -> NotSeen:
    site = Site(mark.file, mark.line, mark.line, 0, 0, "", mark.comment)
    why = f"has no effect: {mark.problem}" if mark.problem else "was not needed in this run"
    return NotSeen(f"the mark {mark.comment!r} {why}", 1, site)


def _unused_allow(scope: AllowScope) -> NotSeen:
    site = Site(scope.file, scope.first, scope.first, 0, 0, "", "")
    return NotSeen(f"allow({', '.join(map(repr, scope.codes))}) was not needed in this run", 1, site)


def _moment(started: str) -> float:
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return float("inf")


# --- the baseline, read once per version of its file ---


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=8)
def _baseline(path: str, stamp: int) -> dict[str, baseline.Known]:
    return baseline.load(path)


# --- the exit status ---


def reaches(findings: Iterable[Finding], level: str) -> bool:
    """Is any finding at or above a level? Nothing reaches "never"."""
    order: list[str] = [*LEVELS, "never"]
    return any(order.index(finding.level) >= order.index(level) for finding in findings)


def exit_code(report: Report, script_code: int, fail_on: str) -> int:
    """The program's own status if it failed, else 1 when a finding reaches `fail_on`, else 0."""
    return script_code or int(reaches(report.findings, fail_on))
