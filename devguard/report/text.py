"""The report as text for people: the line to change first, then where it diverged, then why. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

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
    places = layout.places(finding)
    spans = [layout.span_of(place.site) for place in places]
    width = max([len(str(span.lines[-1][0])) for span in spans], default=0) + 1
    shown = [_span(place, span, base, width, finding.level) for place, span in zip(places, spans, strict=True)]
    out = _header(finding) + (shown[0] if shown else []) + _fix(finding, width)
    out += [piece for pieces in shown[1:] for piece in pieces]
    for name, words in _facts(finding, base):
        out += _fact(width, name, words)
    return [*out, ("\n", "")]


def _note(finding: Finding, base: str) -> list[Piece]:
    change = layout.line_to_change(finding)
    out = _header(finding)
    if change is not None:
        out += [("  --> ", "gutter"), (f"{layout.place(change, base)}{layout.in_function(change)}\n", "strong")]
    return [*out, *_fix(finding, 2), *_fact(2, "count", layout.counts(finding)), ("\n", "")]


def _header(finding: Finding) -> list[Piece]:
    likely = " (likely)" if finding.certainty == "likely" else ""
    return [
        (f"{finding.level}[{layout.clean(finding.rule)}]", finding.level),
        (f" {layout.clean(finding.name)}{likely}: {layout.clean(finding.message)}\n", "strong"),
    ]


def _span(place: layout.Place, span: layout.Span, base: str, width: int, level: str) -> list[Piece]:
    mark, style, weight = ("^", level, "strong") if place.change else ("-", "gutter", "")
    where = f"{layout.place(place.site, base)}{layout.in_function(place.site)}"
    out: list[Piece] = [(f"{' ' * width}--> ", "gutter"), (where, weight)]
    if not any(text.strip() for _, text in span.lines):  # the source is not known
        return [*out, (f"  {mark} {place.label}\n", style)]
    out.append(("\n", ""))
    for number, text in span.lines:
        out += [(f"{number:>{width}} | ", "gutter"), (f"{text}\n", weight)]
    below = " " * span.start + mark * max(span.end - span.start, 1)
    return [*out, (f"{' ' * width} | ", "gutter"), (f"{below} {place.label}\n", style)]


def _fact(width: int, name: str, words: str, style: str = "") -> list[Piece]:
    head = f"{' ' * width} = {name + ':':9}" if name else " " * (width + 12)
    return [(head, "gutter"), (f"{words}\n", style)]


def _fix(finding: Finding, width: int) -> list[Piece]:
    if finding.fix is None or not finding.fix.text:
        return []
    lines = [layout.clean_source(line) for line in finding.fix.text.split("\n")]
    lines[-1] += "" if finding.fix.safe else "  (check that it fits)"
    return [piece for index, line in enumerate(lines) for piece in _fact(width, "" if index else "fix", line, "fix")]


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
    if not report.devices:
        out.append(
            (
                "  no accelerator was there, so most mistakes could not show: --simulate cuda:2 gives simulated ones\n",
                "mild",
            )
        )
    if report.exception is not None:
        message = layout.clean(report.exception.message)
        message = message if len(message) <= 200 else f"{message[:199]}…"
        ended = layout.clean(report.exception.type) + (f": {message}" if message else "")
        out.append((f"  the program ended with {ended}\n", ""))
    out += [(f"  not seen: {layout.not_seen_words(entry, base)}\n", "mild") for entry in report.not_seen]
    if not report.complete:
        out.append(("  the watch was not complete: findings may be missing\n", "warning"))
    out += _start_here(report, base)
    return out


def _start_here(report: Report, base: str) -> list[Piece]:
    """The end of the text is what stays on the screen: it repeats where to begin."""
    first = next((finding for finding in report.findings if finding.level != "note"), None)
    if first is None:
        return []
    change, code = layout.line_to_change(first), layout.clean(first.rule)
    at = f" at {layout.place(change, base)}" if change is not None else ""
    return [
        ("  start with ", ""),
        (f"{code}{at}", "strong"),
        (f"; `devguard explain {code}` tells more about it\n", ""),
    ]
