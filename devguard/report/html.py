"""The report as one self-contained HTML page, light and dark. All text of the program is escaped by jinja2. Imports no torch."""

from __future__ import annotations

from importlib import resources
from typing import Any

from devguard.observe.site import Site
from devguard.report import _layout as layout
from devguard.report.model import Report
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
    change = layout.line_to_change(finding)
    spans = [_span(change, base, "change this line", True)] if change is not None else []
    shown = [change]
    for site, label in ((finding.called_from, "called from here"), (finding.where, "it shows here")):
        if site is not None and not any(layout.same_line(site, other) for other in shown):
            spans.append(_span(site, base, label, False))
            shown.append(site)
    return {
        "rule": layout.clean(finding.rule),
        "name": layout.clean(finding.name),
        "level": finding.level,
        "likely": finding.certainty == "likely",
        "message": layout.clean(finding.message),
        "spans": spans,
        "fix": [layout.clean_source(line) for line in finding.fix.text.split("\n")] if finding.fix else [],
        "safe": finding.fix is not None and finding.fix.safe,
        "module": layout.module_words(finding),
        "tensor": layout.tensor_words(finding.tensor) if finding.tensor else "",
        "history": [layout.history_words(entry, base) for entry in finding.history],
        "counts": layout.counts(finding),
        "ranks": layout.rank_words(finding.ranks) if finding.ranks else "",
    }


def _span(site: Site, base: str, label: str, change: bool) -> dict[str, Any]:
    return {
        "place": layout.place(site, base) + layout.in_function(site),
        "lines": [line for line in layout.span_of(site).lines if line[1].strip()],
        "label": label,
        "change": change,
    }


def _transfer(transfer: Any, base: str) -> dict[str, Any]:
    kinds = ("implicit", transfer.implicit), ("blocking", transfer.blocking), ("pinned", transfer.pinned)
    return {
        "place": layout.place(transfer.site, base) if transfer.site else "",
        "route": f"{layout.clean(transfer.source)} → {layout.clean(transfer.target)}",
        "count": f"{transfer.count:,}",
        "size": layout.size(transfer.bytes),
        "kind": ", ".join(name for name, is_so in kinds if is_so),
    }
