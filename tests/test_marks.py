"""Inline marks: where they count, what they need, and that no source text can upset them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devguard.marks import apply_marks, marks_in, parse_comment
from devguard.observe.site import Site
from devguard.rules.finding import Finding
from tests.report import samples


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# devguard: ok DG201 the metric needs it", (("DG201",), "the metric needs it", "")),
        ("#devguard:ok dg201 - logged", (("DG201",), "logged", "")),
        ("# devguard: ok DG201, DG202 both wanted", (("DG201", "DG202"), "both wanted", "")),
        ("# devguard: ok DG201+DG2: why not", (("DG201", "DG2"), "why not", "")),
        ("# devguard: ok scalar-read by its name", (("DG201",), "by its name", "")),
        ("# devguard: ok DG201", (("DG201",), "", "the reason is missing")),
        ("# devguard: ok DG201 --", (("DG201",), "", "the reason is missing")),
        ("# devguard: ok", ((), "", "no rule is named")),
        ("# devguard: ok scalar-raed x", ((), "", "'scalar-raed' is no rule, did you mean scalar-read?")),
        ("# devguard: ignore DG201", ((), "", "expected `# devguard: ok CODE reason`")),
        ("# this devguard: is prose", None),
        ("# devguard is a tool", None),
    ],
)
def test_comments(comment: str, expected: object) -> None:
    assert parse_comment(comment) == expected


def lines(source: str) -> list[int]:
    return [mark.line for mark in marks_in("x.py", source)]


def test_a_mark_speaks_of_its_own_line_or_of_the_next_code_below() -> None:
    assert lines("a = 1  # devguard: ok DG201 x\n") == [1]
    assert lines("# devguard: ok DG201 x\n\n# more\nif a:\n    b\n") == [4]
    assert lines("def f():\n    # devguard: ok DG201 x\n    return 1\n") == [3]


def test_text_inside_strings_is_no_mark() -> None:
    assert lines('a = "# devguard: ok DG201 x"\n') == []


def test_marks_before_a_fault_in_the_source_still_count() -> None:
    assert lines("a = 1  # devguard: ok DG201 x\nb = (\n") == [1]


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(
        "for batch in loader:\n"
        "    total = float(\n"
        "        loss  # devguard: ok DG201 the paper wants it\n"
        "    )\n"
        "    print(total)  # devguard: ok DG3 for the table\n"
    )
    return str(file)


def finding(source: str, line: int, end: int, **changes: object) -> Finding:
    place = Site(source, line, end, 0, 1, "f", "")
    return samples.scalar_read(**{"where": None, "called_from": None, "cause": place, **changes})


def test_a_mark_on_any_line_of_the_statement_covers_its_finding(source: str) -> None:
    assert apply_marks([finding(source, 2, 4)])[0] == []


def test_a_mark_for_another_rule_or_line_covers_nothing_and_is_unused(source: str) -> None:
    other = finding(source, 5, 5)
    kept, unused = apply_marks([other])
    assert kept == [other]
    assert [mark.codes for mark in unused] == [("DG201",), ("DG3",)]


@pytest.mark.parametrize("role", ["where", "cause", "called_from"])
def test_every_place_of_a_finding_may_carry_the_mark(source: str, role: str) -> None:
    place = Site(source, 2, 4, 0, 1, "f", "")
    assert apply_marks([finding(source, 9, 9, **{"cause": None, role: place})])[0] == []


def test_marks_of_other_files_are_looked_for_when_asked(source: str) -> None:
    assert len(apply_marks([], [source, source])[1]) == 2


def test_a_source_that_is_missing_or_no_text_has_no_marks(tmp_path: Path) -> None:
    odd = tmp_path / "odd.py"
    odd.write_bytes(b"x = 1 # devguard: ok DG201 \xff\xfe\n")
    places = [finding(str(odd), 1, 1), finding("/nowhere.py", 1, 1), finding("<string>", 1, 1)]
    assert apply_marks(places) == (places, [])


@given(st.text())
def test_no_comment_upsets_the_parser(text: str) -> None:
    parsed = parse_comment(f"# devguard: ok {text}")
    if parsed is not None:
        codes, reason, problem = parsed
        assert problem or (codes and reason)


@given(st.lists(st.sampled_from(["# devguard: ok DG201 x", "a", "(", ")", "\n", "    ", '"""', "\\", "\0", "é", ":"])))
def test_no_source_upsets_the_search(parts: list[str]) -> None:
    for mark in marks_in("x.py", "".join(parts)):
        assert 1 <= mark.line <= "".join(parts).count("\n") + 1
