"""Inline marks: `# devguard: ok DG201 reason` on a statement keeps its findings out of the report. Imports no torch.

A mark names one or more rules (several: `DG201, DG202`) and must give a reason. It stands on any line of the statement, or
alone on the line above it. Source text is only tokenized, never run.
"""

from __future__ import annotations

import functools
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from devguard.observe.frames import PROJECT, kind_of_file
from devguard.observe.site import Site
from devguard.observe.symbolize import read_lines
from devguard.options import rule_prefix
from devguard.rules.finding import Finding

_MARK = re.compile(r"#+\s*devguard\s*:\s*(?P<word>[^\s:]*)\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_MAX_SOURCE = 5_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """One inline mark. `line` is the line it speaks of; a mark with a `problem` has no effect."""

    file: str
    line: int
    codes: tuple[str, ...]
    reason: str
    comment: str
    problem: str = ""


def parse_comment(comment: str) -> tuple[tuple[str, ...], str, str] | None:
    """The (codes, reason, problem) of a comment; None where it is no mark of devguard's."""
    match = _MARK.match(comment.strip())
    if match is None:
        return None
    if match["word"].lower() != "ok":
        return (), "", "expected `# devguard: ok CODE reason`"
    codes: list[str] = []
    rest = match["rest"].strip()
    problem = "no rule is named"
    while rest:
        word = re.split(r"[\s,+]", rest, maxsplit=1)[0]
        try:
            codes.append(rule_prefix(word.rstrip(":")))
        except ValueError as error:
            hint = f", did you mean {error}?" if str(error) else ""
            problem = f"{word[:40]!r} is no rule{hint}"
            break
        rest = rest[len(word) :].lstrip(", +\t")
    if not codes:
        return (), "", problem
    reason = rest.lstrip(":-\u2013\u2014 ").strip()
    return tuple(dict.fromkeys(codes)), reason, "" if reason else "the reason is missing"


@functools.lru_cache(maxsize=128)
def marks_in(file: str, source: str) -> tuple[Mark, ...]:
    """All marks of a source text; of one that is no Python, those before the first fault."""
    if len(source) > _MAX_SOURCE:
        return ()
    found: list[Mark] = []
    waiting: list[tuple[str, int]] = []  # marks alone on their line speak of the next line with code
    coded = 0  # the last line with code
    for kind, text, line in _tokens(source):
        if kind == tokenize.COMMENT:
            parsed = parse_comment(text)
            if parsed is None:
                continue
            if line != coded:
                waiting.append((text, line))
                continue
            found.append(Mark(file, line, *_ordered(parsed, text)))
        elif kind not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            coded = line
            found += [Mark(file, line, *_ordered(parse_comment(text), text)) for text, _ in waiting]
            waiting = []
    return tuple(found)


def _ordered(parsed: tuple[tuple[str, ...], str, str] | None, text: str) -> tuple[tuple[str, ...], str, str, str]:
    codes, reason, problem = parsed or ((), "", "")
    return codes, reason, text.strip()[:120], problem


def _tokens(source: str) -> Iterator[tuple[int, str, int]]:
    """(kind, text, last line) of each token."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            yield token.type, token.string, token.end[0]
    except (
        Exception
    ):  # what the tokenizer raises for a text that is no Python differs between versions (3.13: SystemError)
        return


def apply_marks(findings: Iterable[Finding], files: Iterable[str] = ()) -> tuple[list[Finding], list[Mark]]:
    """The findings that no mark covers, and the marks that covered none (or can't: see their `problem`).

    Marks are looked for in the files of the findings and in `files`.
    """
    findings = list(findings)
    names = dict.fromkeys([site.file for finding in findings for site in _sites(finding)] + list(files))
    marks = {name: _marks_of_file(name) for name in names}
    used: set[Mark] = set()
    kept = []
    for finding in findings:
        covering = [mark for site in _sites(finding) for mark in marks[site.file] if _covers(mark, site, finding.rule)]
        used.update(covering)
        if not covering:
            kept.append(finding)
    return kept, [mark for of_file in marks.values() for mark in of_file if mark not in used]


def _sites(finding: Finding) -> list[Site]:
    return [site for site in (finding.where, finding.cause, finding.called_from) if site is not None]


def _covers(mark: Mark, site: Site, rule: str) -> bool:
    return not mark.problem and site.line <= mark.line <= site.end_line and rule.startswith(mark.codes)


def _marks_of_file(name: str) -> tuple[Mark, ...]:
    source = "".join(read_lines(name))
    return marks_in(name, source) if "devguard" in source.lower() else ()


def project_files() -> list[str]:
    """The source files of the user's project that this process has imported."""
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) if type(module).__name__ == "module" else None
        if isinstance(file, str) and file.endswith(".py") and kind_of_file(file) == PROJECT:
            found.append(file)
    return [file for file in dict.fromkeys(found) if os.path.isabs(file)]
