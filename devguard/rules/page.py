"""The page of each rule: a Markdown file with fixed sections, whose examples run as tests. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from devguard.rules.catalog import CATALOG
from devguard.rules.finding import Level

_SECTIONS = {
    "What it finds": "what",
    "Why it is bad": "why",
    "Bad example": "bad",
    "Good example": "good",
    "How to fix": "fix",
    "References": "references",
}
_OPTIONAL = {"References"}
_BLOCK = re.compile(r"```python\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)


class PageError(ValueError):
    """A page is missing or not of the fixed form; the text is one line."""


@dataclass(frozen=True, slots=True)
class Page:
    """One rule explained. `bad` and `good` are whole programs: the first gives the rule, the second gives nothing."""

    code: str
    name: str
    level: Level
    summary: str
    what: str
    why: str
    bad: str
    good: str
    fix: str
    references: str
    markdown: str


def load_page(code: str) -> Page:
    """The page of a rule. Raises PageError where the rule is unknown or its page is not as it should be."""
    if code not in CATALOG:
        raise PageError(f"no rule has the code {code!r}")
    try:
        text = (resources.files("devguard.rules") / "pages" / f"{code}.md").read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        raise PageError(f"rule {code} has no page yet: {CATALOG[code].summary}") from None
    return parse_page(code, text)


def parse_page(code: str, text: str) -> Page:
    """A page's text taken apart. Raises PageError that names what is missing or misplaced."""
    rule = CATALOG[code]
    head, *rest = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    title, _, summary = head.strip().partition("\n")
    if title.strip() != f"# {code} {rule.name}":
        raise PageError(f"{code}: the first line is {title.strip()!r}, not '# {code} {rule.name}'")
    found = {name: body.strip() for name, body in zip(rest[::2], rest[1::2], strict=True)}
    wanted = [name for name in _SECTIONS if name in found or name not in _OPTIONAL]
    if list(found) != wanted or len(rest) != 2 * len(found):
        raise PageError(f"{code}: the sections are {rest[::2]}, not {wanted}")
    if not summary.strip():
        raise PageError(f"{code}: the first paragraph, a summary in one sentence, is missing")
    parts = {_SECTIONS[name]: body for name, body in found.items()}
    for part in ("bad", "good"):
        parts[part] = _only_block(code, part, parts[part])
    return Page(
        code=code,
        name=rule.name,
        level=rule.level,
        summary=" ".join(summary.split()),
        what=parts["what"],
        why=parts["why"],
        bad=parts["bad"],
        good=parts["good"],
        fix=parts["fix"],
        references=parts.get("references", ""),
        markdown=text,
    )


def _only_block(code: str, part: str, body: str) -> str:
    blocks = _BLOCK.findall(body)
    if len(blocks) != 1:
        raise PageError(f"{code}: the {part} example has {len(blocks)} python blocks, not one")
    block: str = blocks[0]
    return block
