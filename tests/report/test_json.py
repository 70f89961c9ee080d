"""JSON: out and in again, against the published schema, and one line for whatever is no report."""

from __future__ import annotations

import copy
import json as plain_json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devguard.report import json
from devguard.report.json import ReportError
from devguard.report.model import Report
from tests.report import samples

SCHEMA = plain_json.loads((resources.files("devguard.report") / "schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def on_one_line(problem: Exception) -> None:
    assert "\n" not in str(problem)


def valid() -> dict[str, Any]:
    return json.to_dict(samples.full_report())


def test_a_report_comes_back_as_it_went() -> None:
    assert json.loads(json.dumps(samples.full_report())) == samples.full_report()
    assert json.loads(samples.full_report().to_json()) == samples.full_report()
    assert json.loads(json.dumps(Report())) == Report()


def test_keys_are_those_of_schema_1_in_its_order() -> None:
    data = valid()
    expected = "schema tool torch python command devices simulated rank steps ops started seconds own_seconds complete"
    assert list(data) == [*expected.split(), "exception", "findings", "transfers", "not_seen"]
    assert data["tool"] == {"name": "devguard", "version": "0.1.0"}
    assert list(data["transfers"][0])[:3] == ["site", "from", "to"]
    assert "ranks" not in data["findings"][0]


@pytest.mark.parametrize(
    "report", [samples.full_report(), Report(), samples.report([samples.loss_weight(ranks=[0, 1])])]
)
def test_what_is_written_fits_the_published_schema(report: Report) -> None:
    VALIDATOR.validate(json.to_dict(report))


def test_numbers_that_json_lacks_become_zero() -> None:
    text = json.dumps(samples.report([samples.loss_weight(seconds=float("inf"), per_step=float("nan"))]))
    assert json.loads(text).findings[0].seconds == 0.0


def test_file_names_that_are_no_unicode_survive() -> None:
    odd = samples.site(1, "x = 1", file="b\udcff\u2028d.py")
    report = samples.report([samples.loss_weight(where=odd)])
    json.dumps(report).encode("ascii")
    assert json.loads(json.dumps(report)) == report


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(valid())
    inner: Any = data
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


@pytest.mark.parametrize("path", [path for path in places(valid()) if path and isinstance(path[-1], str)])
def test_every_key_is_needed(path: tuple[Any, ...]) -> None:
    with pytest.raises(ReportError):
        json.from_dict(changed(path, KeyError))


@pytest.mark.parametrize("wrong", [object(), {"a": 1}, [[]], True, "text", -(10**400), 1.5, None])
def test_wrong_types_are_refused_where_the_schema_refuses_them(wrong: Any) -> None:
    for path in places(valid())[1:]:
        data = changed(path, wrong)
        try:
            json.from_dict(data)
        except ReportError as problem:
            on_one_line(problem)
        else:
            assert not isinstance(wrong, dict)
            if wrong is not True and wrong != -(
                10**400
            ):  # counts below zero pass the loader, True equals 1 in the schema
                assert VALIDATOR.is_valid(data), path


def test_unknown_keys_are_refused_by_name() -> None:
    with pytest.raises(ReportError, match=r"findings\[0\]\.fix: unknown key 'code'"):
        json.from_dict(changed(("findings", 0, "fix", "code"), "rm"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe{", "is not JSON"),
        (b"[" * 200_000, "is not JSON: nested too deeply"),
        (b'{"schema": 1, "findings": NaN}', "NaN"),
        (b"9" * 5000, "is not"),
        (b"[]", "is not a devguard report"),
        (b'{"schema": 2, "findings": []}', "has schema '2'; this devguard reads schema 1"),
        (b'{"schema": true, "findings": []}', "has schema"),
        (b'{"schema": 1, "findings": []}', "tool"),
        (b"cposix\nsystem\n(S'true'\ntR.", "is not JSON"),
    ],
)
def test_a_file_that_is_no_report_costs_one_line_with_its_name(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    with pytest.raises(ReportError) as caught:
        json.load(file)
    assert "odd.json" in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_cost_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        json.load(tmp_path / "none.json")
    with pytest.raises(ReportError, match="is a folder"):
        json.load(tmp_path)


def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "MAX_BYTES", 100)
    file = tmp_path / "large.json"
    file.write_text(json.dumps(samples.full_report()))
    with pytest.raises(ReportError, match="is larger than"):
        json.load(file)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(places(valid())[1:]), _JSON)
def test_no_value_anywhere_gives_anything_but_a_report_or_a_report_error(path: tuple[Any, ...], value: Any) -> None:
    try:
        json.from_dict(changed(path, value))
    except ReportError as problem:
        on_one_line(problem)


@given(st.text() | st.binary())
def test_no_text_gives_anything_but_a_report_error(text: str | bytes) -> None:
    with pytest.raises(ReportError) as caught:
        json.loads(text)
    assert "\n" not in str(caught.value)
