"""The report as text for people: the line to change first, then where it diverged, then why. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from devguard.observe.site import Site
from devguard.report import _layout as layout
from devguard.report.model import Report
from devguard.rules.finding import Finding

Piece = tuple[str, str]
"""A piece of text and the name of its style."""

STYLES = {
    "": "",
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
    "strong": "bold",
    "fix": "bold green",
    "gutter": "blue",
    "mild": "dim",
}

_HERE = {"DG1": "it goes wrong here", "DG2": "the host waits here", "DG3": "the copy happens here"}


def render(report: Report, *, color: bool = False, folder: str | None = None) -> str:
    """The whole report. `folder` is what paths are shown relative to (default: the working directory)."""
    base = layout.working_folder() if folder is None else folder
    pieces = [piece for part in _report(report, base) for piece in part]
    return _painted(pieces) if color else "".join(text for text, _ in pieces)


def _painted(pieces: list[Piece]) -> str:
    from rich.color import ColorSystem
    from rich.style import Style

    styles = {name: Style.parse(style) for name, style in STYLES.items() if style}
    out = []
    for text, name in pieces:
        body = text.rstrip("\n")  # a style must not run over the end of its line
        styled = styles[name].render(body, color_system=ColorSystem.STANDARD) if name and body else body
        out.append(styled + text[len(body) :])
    return "".join(out)


def _report(report: Report, base: str) -> Iterator[list[Piece]]:
    for finding in report.findings:
        yield _note(finding, base) if finding.level == "note" else _finding(finding, base)
    yield _summary(report, base)


# --- one finding ---


def _finding(finding: Finding, base: str) -> list[Piece]:
    change = finding.cause or finding.called_from or finding.where
    out = _header(finding)
    if change is not None:
        out += _span(change, base, "change this line", "error" if finding.level == "error" else "warning", "^")
    out += _fix(finding)
    shown = [change]
    for site, label in (
        (finding.called_from, "called from here"),
        (finding.where, _HERE.get(finding.rule[:3], "found here")),
    ):
        if site is not None and not any(layout.same_line(site, other) for other in shown):
            out += _span(site, base, label, "gutter", "-")
            shown.append(site)
    for name, words in _facts(finding, base):
        out += [(f"  {name + ':':9}", "gutter"), (f"{words}\n", "")]
    return [*out, ("\n", "")]


def _note(finding: Finding, base: str) -> list[Piece]:
    change = finding.cause or finding.called_from or finding.where
    out = _header(finding)
    if change is not None:
        out.append((f"  --> {layout.place(change, base)}{layout.in_function(change)}\n", ""))
    return [*out, *_fix(finding), (f"  {'count:':9}", "gutter"), (f"{layout.counts(finding)}\n", ""), ("\n", "")]


def _header(finding: Finding) -> list[Piece]:
    likely = " (likely)" if finding.certainty == "likely" else ""
    return [
        (f"{finding.level}[{layout.clean(finding.rule)}]", finding.level),
        (f" {layout.clean(finding.name)}{likely}: {layout.clean(finding.message)}\n", "strong"),
    ]


def _span(site: Site, base: str, label: str, style: str, mark: str) -> list[Piece]:
    span = layout.span_of(site)
    width = max(len(str(span.lines[-1][0])), 3)
    out: list[Piece] = [
        (f"{' ' * width}--> ", "gutter"),
        (f"{layout.place(site, base)}{layout.in_function(site)}", "strong" if mark == "^" else ""),
    ]
    if not any(text.strip() for _, text in span.lines):
        return [*out, (f"  {mark} {label}\n", style)]
    out.append(("\n", ""))
    for index, (number, text) in enumerate(span.lines):
        out += [(f"{number:>{width}} | ", "gutter"), (f"{text}\n", "strong" if mark == "^" else "")]
        if index == 0:
            below = " " * span.start + mark * max(span.end - span.start, 1)
            out += [(f"{' ' * width} | ", "gutter"), (f"{below} {label}\n", style)]
    return out


def _fix(finding: Finding) -> list[Piece]:
    if finding.fix is None or not finding.fix.text:
        return []
    lines = [layout.clean_source(line) for line in finding.fix.text.split("\n")]
    lines[-1] += "" if finding.fix.safe else "  (check that it fits)"
    first: list[Piece] = [(f"  {'fix:':9}", "gutter"), (f"{lines[0]}\n", "fix")]
    return [*first, *((f"{' ' * 11}{line}\n", "fix") for line in lines[1:])]


def _facts(finding: Finding, base: str) -> Iterator[tuple[str, str]]:
    module = layout.module_words(finding)
    if module:
        yield "module", module
    if finding.tensor is not None:
        yield "tensor", layout.tensor_words(finding.tensor)
    for index, entry in enumerate(finding.history):
        yield ("" if index else "history"), layout.history_words(entry, base)
    yield "count", layout.counts(finding)
    if finding.ranks:
        yield "ranks", layout.rank_words(finding.ranks)


# --- the end ---


def _summary(report: Report, base: str) -> list[Piece]:
    worst = report.findings[0].level if report.findings else "fix"
    extent = layout.extent(report)
    if not report.ops and not report.findings:
        return [("devguard: ", "strong"), ("no PyTorch op ran, so there was nothing to check\n", "")]
    out: list[Piece] = [("devguard: ", "strong"), (layout.verdict(report), worst), (f" {extent}\n", "")]
    if report.exception is not None:
        message = layout.clean(report.exception.message)
        message = message if len(message) <= 200 else f"{message[:199]}…"
        out.append((f"  the program ended with {layout.clean(report.exception.type)}: {message}\n", ""))
    out += [(f"  not seen: {layout.not_seen_words(entry, base)}\n", "mild") for entry in report.not_seen]
    if not report.complete:
        out.append(("  the watch was not complete: findings may be missing\n", "warning"))
    codes = list(dict.fromkeys(finding.rule for finding in report.findings if finding.level != "note"))
    if codes:
        out.append((f"  devguard explain {layout.clean(codes[0])} tells more about a rule\n", "mild"))
    return out
