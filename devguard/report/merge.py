"""The reports of several ranks as one: equal findings are one finding that names its ranks. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from devguard.report.json import ReportError
from devguard.report.model import NotSeen, Report, Transfer
from devguard.rules.engine import rank
from devguard.rules.finding import LEVELS, Finding


def merge(reports: Sequence[Report]) -> Report:
    """One report of all ranks. Counts, bytes and seconds of equal findings add up, rates are the highest of a rank.

    A single report comes back as it is. Raises ReportError for none, or for two reports of one rank.
    """
    if not reports:
        raise ReportError("there is no report to merge")
    if len(reports) == 1:
        return reports[0]
    return combine(reports[0], list(zip(reports, _ranks(reports), strict=True)))


def combine(first: Report, parts: Sequence[tuple[Report, int | None]]) -> Report:
    """The reports of several processes as one under the heading of `first`; a part without a rank names none."""
    reports = [report for report, _ in parts]
    findings: dict[str, Finding] = {}
    transfers: dict[object, Transfer] = {}
    unseen: dict[object, NotSeen] = {}
    for report, number in parts:
        for finding in report.findings:
            _add_finding(findings, finding, number)
        for transfer in report.transfers:
            _add_transfer(transfers, transfer)
        for entry in report.not_seen:
            known = unseen.setdefault((entry.what, entry.site), dataclasses.replace(entry, count=0))
            known.count += entry.count
    return dataclasses.replace(
        first,
        torch=next((report.torch for report in reports if report.torch), ""),
        rank=None,
        devices=list(dict.fromkeys(device for report in reports for device in report.devices)),
        simulated=any(report.simulated for report in reports),
        steps=max(report.steps for report in reports),
        ops=sum(report.ops for report in reports),
        started=min((report.started for report in reports if report.started), default=""),
        seconds=max(report.seconds for report in reports),
        own_seconds=max(report.own_seconds for report in reports),
        complete=all(report.complete for report in reports),
        exception=next((report.exception for report in reports if report.exception is not None), None),
        findings=rank(findings.values()),
        transfers=list(transfers.values()),
        not_seen=list(unseen.values()),
    )


def _ranks(reports: Sequence[Report]) -> list[int]:
    """The rank of each report; its place in the list where no report has one."""
    known = [report.rank for report in reports]
    if all(number is None for number in known):
        return list(range(len(reports)))
    found: list[int] = []
    for number in known:
        if number is None:
            raise ReportError("some of these reports have a rank and some have none: they are not of one run")
        if number in found:
            raise ReportError(f"two of these reports are of rank {number}")
        found.append(number)
    return found


def _add_finding(findings: dict[str, Finding], finding: Finding, number: int | None) -> None:
    ranks = finding.ranks or ([] if number is None else [number])
    known = findings.get(finding.fingerprint)
    if known is None:
        findings[finding.fingerprint] = dataclasses.replace(finding, ranks=ranks)
        return
    worse = LEVELS.index(finding.level) > LEVELS.index(known.level)
    kept = finding if worse else known
    findings[finding.fingerprint] = dataclasses.replace(
        kept,
        count=known.count + finding.count,
        bytes=known.bytes + finding.bytes,
        seconds=known.seconds + finding.seconds,
        per_step=max(known.per_step, finding.per_step),
        first_step=min(known.first_step, finding.first_step),
        last_step=max(known.last_step, finding.last_step),
        ranks=sorted({*known.ranks, *ranks}),
    )


def _add_transfer(transfers: dict[object, Transfer], transfer: Transfer) -> None:
    key = (transfer.site, transfer.source, transfer.target, transfer.implicit, transfer.blocking, transfer.pinned)
    known = transfers.setdefault(key, dataclasses.replace(transfer, count=0, bytes=0))
    known.count += transfer.count
    known.bytes += transfer.bytes
