"""What the renderers share: safe text, short paths, numbers in words, the source lines of a site. Imports no torch."""

from __future__ import annotations

import functools
import linecache
import os
import re
from dataclasses import dataclass

from devguard.observe.site import Site
from devguard.report.model import NotSeen, Report
from devguard.rules.finding import Finding, HistoryEntry, TensorRef

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_MAX_LINE = 300
_MAX_SOURCE_LINES = 6


def clean(text: str) -> str:
    """Text of the program on one line, with control characters, direction marks and lone surrogates made visible."""
    return _escape(" ".join(text.split()) if "\n" in text or "\t" in text else text)


def clean_source(text: str) -> str:
    """A source line: as `clean`, but its white space stays and its length is bounded."""
    text = _escape(text.expandtabs(4).rstrip())
    return text if len(text) <= _MAX_LINE else f"{text[: _MAX_LINE - 1]}…"


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: ascii(match.group())[1:-1], text)


@functools.lru_cache(maxsize=4096)
def _relative(file: str, folder: str) -> str:
    inside = file.startswith(os.path.join(folder, ""))
    return file[len(folder) :].lstrip(os.sep) if inside else file


def working_folder() -> str:
    """The working directory, or nothing when it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def relative(file: str, folder: str) -> str:
    """The path of a file below `folder`; any other path as it is."""
    return _relative(file, folder) if folder else file


def place(site: Site, folder: str) -> str:
    """`path:line`, which terminals and editors make clickable."""
    return f"{clean(relative(site.file, folder))}:{site.line}"


def in_function(site: Site) -> str:
    """`, in train_step`, or nothing at module level."""
    return "" if site.function in ("", "<module>") else f", in {clean(site.function)}"


def same_line(one: Site | None, other: Site | None) -> bool:
    """Do two sites show the same statement?"""
    return one is not None and other is not None and (one.file, one.line) == (other.file, other.line)


@dataclass(frozen=True, slots=True)
class Span:
    """The lines of a statement to show, with their numbers, and the columns to underline below them."""

    lines: tuple[tuple[int, str], ...]
    start: int
    end: int


def span_of(site: Site) -> Span:
    """The source of a site. Only what the report or this process has already read is used: no file is opened."""
    known = _known_lines(site)
    texts = known or site.text.split("\n")
    shown = [clean_source(text) for text in texts[:_MAX_SOURCE_LINES]]
    indent = min((len(text) - len(text.lstrip()) for text in shown if text.strip()), default=0)
    shown = [text[indent:] for text in shown]
    if len(texts) > len(shown):
        shown.append("…")
    first = shown[0] if shown else ""
    start, end = 0, max((len(text) for text in shown), default=0)
    # Columns count the indentation, which a saved report does not have: without it all of the statement is underlined.
    placed = bool(known) or (site.function == "<module>" and site.column == 0)
    if placed and site.line == site.end_line and indent <= site.column < site.end_column <= indent + len(first):
        start, end = site.column - indent, site.end_column - indent
    return Span(tuple((site.line + index, text) for index, text in enumerate(shown)), start, end)


def _known_lines(site: Site) -> list[str]:
    """The statement with its indentation, when linecache holds the very text."""
    entry = linecache.cache.get(site.file)
    lines = entry[2] if entry is not None and len(entry) == 4 else []
    found = [line.rstrip("\n") for line in lines[site.line - 1 : site.end_line]]
    head = site.text.split("\n", 1)[0].strip()
    return found if found and head and found[0].strip().startswith(head) else []


# --- words ---


def plural(count: int, noun: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int) -> str:
    """Bytes in a unit that reads well."""
    number, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, bigger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds in a unit that reads well."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def rate(per_step: float) -> str:
    """A rate per step without needless digits."""
    return f"{per_step:.3g}"


def times(count: int) -> str:
    """`once`, `12 times`."""
    return "once" if count == 1 else f"{count:,} times"


def counts(finding: Finding) -> str:
    """How often, when and at what cost a finding came up."""
    parts = [times(finding.count)]
    if finding.per_step and finding.count > 1 and finding.last_step > finding.first_step:
        parts.append(f"{rate(finding.per_step)} per step")
    if finding.last_step > finding.first_step:
        parts.append(f"steps {finding.first_step} to {finding.last_step}")
    elif finding.last_step:
        parts.append(f"in step {finding.first_step}")
    if finding.bytes:
        parts.append(f"{size(finding.bytes)} in all")
    if finding.seconds:
        parts.append(f"the host was blocked for {duration(finding.seconds)}")
    return ", ".join(parts)


def tensor_words(tensor: TensorRef) -> str:
    """The tensor as one line: name, role, type and shape, where it is and where it should be."""
    name = clean(tensor.name) or "a tensor"
    shape = ", ".join(str(length) for length in tensor.shape)
    words = f"{name} ({clean(tensor.role)}), {clean(tensor.dtype)}[{shape}] on {clean(tensor.device)}"
    if tensor.expected_device and tensor.expected_device != tensor.device:
        words += f", expected on {clean(tensor.expected_device)}"
    return words


_EVENTS = {
    "made": ("made on {device}", " in {module}"),
    "moved": ("moved to {device}", " with {module}"),
    "loaded": ("loaded onto {device}", " into {module}"),
    "left behind": ("left behind on {device}", " when {module} moved"),
}


def history_words(entry: HistoryEntry, folder: str) -> str:
    """One station of a tensor's life as one line."""
    words, of_module = _EVENTS[entry.event]
    words = words.format(device=clean(entry.device))
    if entry.op:
        words += f" by {_op_words(clean(entry.op))}"
    if entry.module and entry.module not in entry.op:
        words += of_module.format(module=clean(entry.module))
    if entry.site is not None:
        words += f" at {place(entry.site, folder)}"
    return words


def _op_words(op: str) -> str:
    """`aten.full.default` and `aten.div.Tensor` as their users know them: full, div."""
    name = op.removeprefix("aten.")
    return name.partition(".")[0] if name != op else op


def line_to_change(finding: Finding) -> Site | None:
    """The place that a reader must see first."""
    return finding.cause or finding.called_from or finding.where


_HERE = {"DG1": "it goes wrong here", "DG2": "the host waits here", "DG3": "the copy happens here"}


@dataclass(frozen=True, slots=True)
class Place:
    """A site of a finding and what to say about it; `change` marks the line to change."""

    site: Site
    label: str
    change: bool


def places(finding: Finding) -> list[Place]:
    """The line to change first, then every other place of the finding, each once."""
    candidates = (
        (line_to_change(finding), "change this line"),
        (finding.called_from, "called from here"),
        (finding.where, _HERE.get(finding.rule[:3], "found here")),
    )
    found: list[Place] = []
    for site, label in candidates:
        if site is not None and not any(same_line(site, place.site) for place in found):
            found.append(Place(site, label, not found))
    return found


def module_words(finding: Finding) -> str:
    """`encoder.layers.0 (Linear)`, or nothing."""
    path, kind = clean(finding.module), clean(finding.module_type)
    return f"{path} ({kind})" if path and kind else path or kind


def rank_words(ranks: list[int]) -> str:
    """`ranks 0, 2 to 7`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [
        str(first) if first == last else f"{first}{' to' if last - first > 1 else ','} {last}" for first, last in runs
    ]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(words)


def not_seen_words(entry: NotSeen, folder: str) -> str:
    """One thing the watch could not look into."""
    times = "" if entry.count <= 1 else f" ({entry.count:,} times)"
    return clean(entry.what) + times + (f" at {place(entry.site, folder)}" if entry.site else "")


def tally(report: Report) -> dict[str, int]:
    """Findings per level, worst level first."""
    found = {"error": 0, "warning": 0, "note": 0}
    for finding in report.findings:
        found[finding.level] += 1
    return found


def verdict(report: Report) -> str:
    """`2 errors, 1 warning`, or `nothing found`."""
    found = [plural(count, level) for level, count in tally(report).items() if count]
    return ", ".join(found) or "nothing found"


def extent(report: Report) -> str:
    """What was watched: `in 12 steps and 10,293 ops on cuda:0, cuda:1 (simulated)`."""
    words = f"in {plural(report.steps, 'step')} and {plural(report.ops, 'op')}"
    if report.devices:
        words += f" on {', '.join(clean(name) for name in report.devices)}" + (
            " (simulated)" if report.simulated else ""
        )
    return words
