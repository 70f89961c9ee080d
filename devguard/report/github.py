"""The report as GitHub workflow commands: each finding becomes an annotation of its line. Imports no torch."""

from __future__ import annotations

from devguard.report import _layout as layout
from devguard.report.model import Report
from devguard.rules.finding import Finding

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, *, folder: str | None = None) -> str:
    """One command per finding, worst first: GitHub shows the first ten of each level of a step."""
    base = layout.working_folder() if folder is None else folder
    lines = [_command(finding, base) for finding in report.findings]
    return "".join(f"{line}\n" for line in [*lines, f"devguard: {layout.verdict(report)} {layout.extent(report)}"])


def _command(finding: Finding, base: str) -> str:
    properties = {"title": f"{finding.rule} {finding.name}"}
    site = layout.line_to_change(finding)
    if site is not None:
        properties["file"] = layout.relative(site.file, base)
        properties["line"] = str(site.line)
        properties["endLine"] = str(max(site.end_line, site.line))
    text = [finding.message, f"{layout.counts(finding)}"]
    if finding.fix is not None and finding.fix.text:
        text.insert(1, f"fix: {finding.fix.text}")
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{_COMMANDS[finding.level]} {shown}::{_data(chr(10).join(text))}"


def _data(text: str) -> str:
    """Text that can't end the command or begin another: control characters shown, line ends and % encoded."""
    lines = [layout.clean_source(line) for line in text.split("\n")]
    return "%0A".join(line.replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
