"""Every rule's page: complete, and its bad example gives the rule while its good example gives nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from devguard.report.json import load
from devguard.report.model import Report
from devguard.rules.catalog import CATALOG
from devguard.rules.finding import LEVELS
from devguard.rules.page import PageError, load_page, parse_page
from tests.zygote import Zygote

GOOD_PAGE = """# DG105 loss-weight

One sentence.

## What it finds

Text.

## Why it is bad

Text.

## Bad example

```python
bad()
```

## Good example

```python
good()
```

## How to fix

Text.
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


def report_of(zygote: Zygote, folder: Path, source: str) -> Report:
    (folder / "example.py").write_text(source)
    options = ["--simulate", "cuda:2", "--report", "json:report.json", "--fail-on", "never", "--quiet"]
    ran = zygote.devguard(folder, "run", *options, "example.py")
    assert (folder / "report.json").exists(), ran.err
    return load(folder / "report.json")


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_a_page_is_complete(code: str) -> None:
    page = load_page(code)
    for item in dataclasses.fields(page):
        assert getattr(page, item.name) or item.name == "references", item.name
    assert page.summary.endswith(".")


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_the_bad_example_gives_the_rule(code: str, zygote: Zygote, tmp_path: Path) -> None:
    report = report_of(zygote, tmp_path, load_page(code).bad)
    found = [finding for finding in report.findings if finding.rule == code]
    assert found, [f"{finding.rule} {finding.level} {finding.message}" for finding in report.findings]
    highest = max(LEVELS.index(finding.level) for finding in found)
    assert LEVELS[highest] == CATALOG[code].level, "an example of a warning shows it as a warning"
    assert report.complete, report.not_seen


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_the_good_example_gives_nothing(code: str, zygote: Zygote, tmp_path: Path) -> None:
    report = report_of(zygote, tmp_path, load_page(code).good)
    assert report.exception is None, (tmp_path / ".err").read_text()
    assert [f"{finding.rule} {finding.level} {finding.message}" for finding in report.findings] == []
    assert report.ops > 0
    assert report.complete, report.not_seen


def test_the_form_of_a_page() -> None:
    page = parse_page("DG105", GOOD_PAGE)
    assert (page.bad, page.good, page.summary) == ("bad()\n", "good()\n", "One sentence.")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# DG105 loss-weight", "# DG105 other", "the first line is"),
        ("One sentence.", "", "summary"),
        ("## Why it is bad\n\nText.\n", "", "the sections are"),
        ("## How to fix", "## Fix", "the sections are"),
        ("```python\nbad()\n```", "bad()", "bad example has 0 python blocks"),
        ("good()\n```", "good()\n```\n```python\n```", "good example has 2 python blocks"),
    ],
)
def test_a_page_of_another_form_is_refused(old: str, new: str, expected: str) -> None:
    assert old in GOOD_PAGE
    with pytest.raises(PageError, match=expected):
        parse_page("DG105", GOOD_PAGE.replace(old, new))


def test_a_rule_that_is_none_has_no_page() -> None:
    with pytest.raises(PageError, match="no rule has the code 'DG999'"):
        load_page("DG999")
