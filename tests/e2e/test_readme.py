"""The README's tables say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from devguard.options import KEYS
from devguard.pytest_plugin import SETTINGS
from devguard.rules.catalog import CATALOG

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
CI = (Path(__file__).resolve().parents[2] / ".ci" / "run").read_text()


def test_every_rule_is_listed_with_its_name_and_level() -> None:
    listed = re.findall(r"^\| (DG\d{3}) \| ([\w-]+) \| (\w+) \|", README, re.M)
    assert listed == [(rule.code, rule.name, rule.level) for rule in CATALOG.values()]


def test_every_option_is_listed() -> None:
    table = README.split("<!-- options: begin -->")[1].split("<!-- options: end -->")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(KEYS)


def test_every_setting_of_the_pytest_plugin_is_listed() -> None:
    for setting in SETTINGS:
        assert re.search(rf"^\| `{setting.option}\b[^|]*` \| `{setting.key}` \|", README, re.M), setting


def test_ci_runs_the_commands_of_the_readme() -> None:
    assert "devguard run --simulate cuda:2 examples/digits_broken.py" in README
    assert "run --simulate cuda:2 examples/digits_broken.py" in CI
    assert ".venv/bin/python -m pytest -n 2\n" in README
    assert "python -m pytest -n 2\n" in CI


def test_report_shows_lines_of_the_example_as_they_are() -> None:
    report = README.split("<!-- report: begin -->")[1].split("<!-- report: end -->")[0]
    source = (Path(__file__).resolve().parents[2] / "examples" / "digits_broken.py").read_text().splitlines()
    shown = re.findall(r"^ *(\d+) \| (.*)$", report, re.M)
    assert len(shown) >= 4
    assert [(number, text) for number, text in shown if source[int(number) - 1].strip() != text] == []
