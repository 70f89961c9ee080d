"""Options: one table, four sources, and one line for whatever is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devguard.options import KEYS, Options, OptionsError, help_text, load_with_sources, parse_text


def on_one_line(problem: Exception) -> None:
    assert "\n" not in str(problem)


def load(text: str = "", folder: Path | None = None, **arguments: object) -> Options:
    return Options.load(folder or "/", {"DEVGUARD_OPTIONS": text}, **arguments)


def complaint(text: str = "", folder: Path | None = None, **arguments: object) -> str:
    with pytest.raises(OptionsError) as caught:
        load(text, folder, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.devguard]\nevery = 7\nfail-on = "warning"\n')
    return tmp_path


def test_defaults_without_any_source() -> None:
    assert load() == Options()


def test_environment_text_sets_every_kind_of_value() -> None:
    text = "every=10,fail_on=note,simulate=cuda:2,memory=16GiB,max_syncs_per_step=0,color=never,help=1"
    assert load(text) == Options(
        every=10,
        fail_on="note",
        simulate="cuda:2",
        memory="16GiB",
        max_syncs_per_step=0,
        color="never",
        help=True,
    )


def test_lists_are_separated_by_plus_or_given_by_repeating_the_key() -> None:
    assert load("select=DG1+DG201,select=DG3").select == ("DG1", "DG201", "DG3")


def test_a_report_path_may_hold_colons_and_plus_signs() -> None:
    assert load("report=json:a:b+c.json+text:-").report == ("json:a:b+c.json", "text:-")


def test_rules_may_be_given_by_name() -> None:
    assert load("ignore=loss-weight").ignore == ("DG105",)


def test_levels_from_text_and_from_a_mapping_are_the_same() -> None:
    expected = {"DG201": "error", "DG3": "off"}
    assert load("levels=DG201:error+DG3:off").levels == expected
    assert load(levels={"dg201": "error", "DG3": "OFF"}).levels == expected


def test_simulate_without_a_number_is_one_device() -> None:
    assert load("simulate=cuda").simulate == "cuda:1"


def test_arguments_go_before_environment_before_pyproject_before_defaults(project: Path) -> None:
    assert load("", project).every == 7
    assert load("every=8", project).every == 8
    assert load("every=8", project, every=9).every == 9
    assert load("every=8", project).fail_on == "warning"


def test_none_as_argument_means_not_given(project: Path) -> None:
    assert load("", project, every=None).every == 7


def test_the_nearest_table_counts_not_the_nearest_file(project: Path) -> None:
    inner = project / "package"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "devguard-user"\n')
    assert load("", inner).every == 7


def test_paths_in_pyproject_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.devguard]\nbaseline = "known.json"\nreport = ["json:out.json", "text:-"]\n'
    )
    below = tmp_path / "below"
    below.mkdir()
    options = load("", below)
    assert options.baseline == str(tmp_path / "known.json")
    assert options.report == (f"json:{tmp_path / 'out.json'}", "text:-")


def test_sources_name_where_each_value_comes_from(project: Path) -> None:
    _, sources = load_with_sources(project, {"DEVGUARD_OPTIONS": "warmup=3"}, {"every": 2}, "command line")
    assert sources["warmup"] == "DEVGUARD_OPTIONS"
    assert sources["every"] == "command line"
    assert sources["fail_on"].endswith("pyproject.toml [tool.devguard]")


def test_replace_changes_some_keys_and_checks_them() -> None:
    assert Options(every=3).replace(warmup=5) == Options(every=3, warmup=5)
    with pytest.raises(OptionsError):
        Options().replace(warmup=-1)


def test_unknown_key_names_the_nearest() -> None:
    assert complaint("evry=1") == "DEVGUARD_OPTIONS: unknown option 'evry', did you mean every?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every=0", "every='0': expected a whole number of 1 or more"),
        ("every=1e3", "every='1e3'"),
        ("fail_on=errors", "did you mean error?"),
        ("report=jsn:out", "did you mean json?"),
        ("report=out.json", "FORMAT:PATH"),
        ("report=json:", "FORMAT:PATH"),
        ("simulate=cpu", "cuda:N"),
        ("simulate=cuda:0", "cuda:N"),
        ("memory=lots", "16GiB"),
        ("select=loss-wieght", "did you mean loss-weight?"),
        ("select=DG9", "rule codes"),
        ("select=D", "rule codes"),
        ("levels=DG201", "CODE:LEVEL"),
        ("levels=DG201:eror", "did you mean error?"),
        ("levels=DG201:error:x", "CODE:LEVEL"),
        ("nonsense", "'nonsense' is not of the form key=value"),
    ],
)
def test_a_bad_value_says_what_was_expected(text: str, expected: str) -> None:
    assert expected in complaint(text)


@pytest.mark.parametrize("value", [True, 1.5, "", [], {}, object()])
def test_python_values_of_another_type_are_refused(value: object) -> None:
    assert "expected a whole number" in complaint(every=value)


def test_broken_pyproject_costs_one_line_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.devguard\n")
    assert "pyproject.toml [tool.devguard]: can't be read" in complaint("", tmp_path)


def test_a_tool_entry_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ndevguard = 3\n")
    assert "expected a table" in complaint("", tmp_path)


def test_a_vanished_working_directory_is_no_error(tmp_path: Path) -> None:
    here = os.getcwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert Options.load(env={}) == Options()
    finally:
        os.chdir(here)


def test_help_lists_every_key_with_its_default() -> None:
    lines = help_text().splitlines()
    for name in KEYS:
        assert any(line.strip().startswith(name) and "default: " in line for line in lines)


@given(st.text())
def test_no_text_gives_anything_but_options_or_an_options_error(text: str) -> None:
    try:
        load(text)
    except OptionsError as problem:
        on_one_line(problem)


@given(st.sampled_from(sorted(KEYS)), st.text())
def test_no_value_of_a_key_gives_anything_but_options_or_an_options_error(name: str, value: str) -> None:
    try:
        load(f"{name}={value}")
    except OptionsError as problem:
        on_one_line(problem)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.sampled_from(sorted(KEYS)), _PLAIN)
def test_no_python_value_gives_anything_but_options_or_an_options_error(name: str, value: object) -> None:
    try:
        load(**{name: value})
    except OptionsError as problem:
        on_one_line(problem)


@given(st.dictionaries(st.text(), _PLAIN))
def test_no_pyproject_table_gives_anything_else(table: dict[str, object]) -> None:
    from devguard.options import _from_folder, parse_value

    for name, value in table.items():
        try:
            parse_value(name, _from_folder(name, value, Path("/p")), "pyproject.toml")
        except OptionsError as problem:
            on_one_line(problem)


def test_parse_text_keeps_values_as_written() -> None:
    assert parse_text(" every = 3 ,fail-on=note,") == {"every": "3", "fail_on": "note"}
