"""The report as one self-contained HTML page, light and dark. All text of the program is escaped by jinja2. Imports no torch."""

from __future__ import annotations

from importlib import resources
from typing import Any

from devguard.report import _layout as layout
from devguard.report.model import Report, Transfer
from devguard.rules.finding import Finding


def render(report: Report, *, folder: str | None = None) -> str:
    """The page. Paths are shown relative to `folder` (default: the working directory)."""
    import jinja2

    base = layout.working_folder() if folder is None else folder
    source = (resources.files("devguard.report") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(source)
    return template.render(
        report=report,
        command=" ".join(layout.clean(word) for word in report.command),
        verdict=layout.verdict(report),
        extent=layout.extent(report),
        tally=layout.tally(report),
        findings=[_finding(finding, base) for finding in report.findings],
        transfers=[_transfer(transfer, base) for transfer in sorted(report.transfers, key=lambda t: -t.bytes)],
        not_seen=[layout.not_seen_words(entry, base) for entry in report.not_seen],
        exception=_exception(report),
        seconds=layout.duration(report.seconds),
        own_seconds=layout.duration(report.own_seconds),
    )


def _exception(report: Report) -> str:
    if report.exception is None:
        return ""
    return f"{layout.clean(report.exception.type)}: {layout.clean(report.exception.message)}"


def _finding(finding: Finding, base: str) -> dict[str, Any]:
    return {
        "rule": layout.clean(finding.rule),
        "name": layout.clean(finding.name),
        "level": finding.level,
        "likely": finding.certainty == "likely",
        "message": layout.clean(finding.message),
        "spans": [_span(place, base) for place in layout.places(finding)],
        "fix": [layout.clean_source(line) for line in finding.fix.text.split("\n")] if finding.fix else [],
        "safe": finding.fix is not None and finding.fix.safe,
        "module": layout.module_words(finding),
        "tensor": layout.tensor_words(finding.tensor) if finding.tensor else "",
        "history": [layout.history_words(entry, base) for entry in finding.history],
        "counts": layout.counts(finding),
        "ranks": layout.rank_words(finding.ranks) if finding.ranks else "",
    }


def _span(place: layout.Place, base: str) -> dict[str, Any]:
    return {
        "place": layout.place(place.site, base) + layout.in_function(place.site),
        "lines": [line for line in layout.span_of(place.site).lines if line[1].strip()],
        "label": place.label,
        "change": place.change,
    }


def _transfer(transfer: Transfer, base: str) -> dict[str, Any]:
    kinds = ("implicit", transfer.implicit), ("blocking", transfer.blocking), ("pinned", transfer.pinned)
    return {
        "place": layout.place(transfer.site, base) if transfer.site else "",
        "route": f"{layout.clean(transfer.source)} → {layout.clean(transfer.target)}",
        "count": f"{transfer.count:,}",
        "size": layout.size(transfer.bytes),
        "kind": ", ".join(name for name, is_so in kinds if is_so),
    }
