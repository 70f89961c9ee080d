"""What came out of a program or a file is data: it is shown and never obeyed, run, unpickled, or read without end."""

from __future__ import annotations

import html as plain_html
import importlib
import json as plain_json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import devguard
from devguard import baseline, marks
from devguard.observe import symbolize
from devguard.observe.site import Site
from devguard.report import json, write
from devguard.report.json import ReportError
from tests.report import samples
from tests.report.test_html import Page
from tests.report.test_text import hostile_report

FORMATS = list(write.RENDERERS)


def shown(text: str, name: str) -> str:
    """What a reader of the format sees or decodes: of SARIF the strings, of a page its text."""
    if name == "html":
        return plain_html.unescape(text)
    if name == "sarif":
        return "\n".join(strings(plain_json.loads(text)))
    return text


def strings(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [*data, *(text for value in data.values() for text in strings(value))]
    if isinstance(data, list):
        return [text for value in data for text in strings(value)]
    return [data] if isinstance(data, str) else []


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_lets_control_or_direction_characters_through(name: str) -> None:
    text = shown(write.render(hostile_report(), name), name)
    assert {char for char in text if char != "\n" and not char.isprintable()} == set()
    assert "owned" in text


def test_json_gives_back_what_the_program_was_called_as_it_was() -> None:
    assert json.loads(json.dumps(hostile_report())) == hostile_report()


@pytest.mark.parametrize("name", ["text", "github"])
def test_a_name_of_several_lines_starts_no_line(name: str) -> None:
    bad = "x\n::error::owned\nerror[DG999] fake: planted"
    place = Site(bad, 1, 1, 0, 1, bad, "x")
    report = samples.report([samples.loss_weight(message=bad, module=bad, where=place, cause=place)])
    lines = write.render(report, name).splitlines()
    assert not [line for line in lines if line.startswith(("::error::owned", "error[DG999]"))]


PROGRAM = """
import torch

class {name}(torch.nn.Linear):
    pass

def step(model, x):
    return model(x)
"""


@pytest.fixture
def hostile_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in a file whose name holds markup, escape codes and line ends."""
    folder = tmp_path / "<img src=x onerror=alert(1)>\x1b[31m\n::error::owned\u202e"
    folder.mkdir()
    (folder / "hostile_program.py").write_text(PROGRAM.format(name="Plain"))
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("hostile_program")
    sys.modules.pop("hostile_program", None)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_files_and_modules_with_hostile_names_are_shown_harmlessly(name: str, hostile_program: Any) -> None:
    import torch

    kind = type("<script>\x1b]0;owned\x07\n", (hostile_program.Plain,), {})
    with devguard.simulate("cuda:1"):
        model = torch.nn.Sequential()
        model.add_module("<b>\x1b[2J\nlayer", kind(2, 2))
        model.to("cuda")
        watch = devguard.watch(model)
        with pytest.raises(RuntimeError, match="same device") as caught, watch:
            hostile_program.step(model, torch.ones(1, 2))
    assert watch.report.findings[0].rule == "DG101"
    text = write.render(watch.report, name)
    assert {char for char in shown(text, name) if char != "\n" and not char.isprintable()} == set()
    assert not [line for line in text.splitlines() if line.startswith("::error::owned")]
    if name == "html":
        page = Page(text)
        assert not {"script", "img", "b"} & set(page.tags)
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) == 1
    assert {char for char in notes[0] if char != "\n" and not char.isprintable()} == set()
    traceback.format_exception(caught.value)


# --- reading ---

LOADERS = {"report": json.load, "baseline": baseline.load}


@pytest.mark.parametrize("kind", list(LOADERS))
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_and_never_run(
    kind: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "exploded"),)

    (tmp_path / "odd.json").write_bytes(pickle.dumps(Bomb(), protocol))
    with pytest.raises(ReportError, match=r"odd\.json.*is not JSON"):
        LOADERS[kind](tmp_path / "odd.json")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("kind", list(LOADERS))
@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"schema": 1, "findings": ' + "[" * 50_000])
def test_a_file_nested_without_end_is_refused(kind: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(ReportError, match="nested too deeply"):
        LOADERS[kind](tmp_path / "odd.json")


@pytest.mark.parametrize("kind", list(LOADERS))
def test_a_file_without_end_is_refused_after_the_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "MAX_BYTES", 1000)
    with pytest.raises(ReportError, match="'/dev/zero': is larger than"):
        LOADERS[kind]("/dev/zero")


@pytest.mark.parametrize("kind", list(LOADERS))
def test_numbers_of_a_million_digits_cost_one_line(kind: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"schema": 1, "findings": ' + "9" * 1_000_000 + "}")
    with pytest.raises(ReportError) as caught:
        LOADERS[kind](tmp_path / "odd.json")
    assert len(str(caught.value)) < 400


def test_a_source_that_never_ends_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)  # reading it would wait for ever
    for name in ("/dev/zero", str(pipe)):
        assert symbolize.read_lines(name) == []
        finding = samples.loss_weight(where=Site(name, 1, 1, 0, 1, "f", "x"))
        assert marks.apply_marks([finding]) == ([finding], [])


def test_code_that_names_a_device_as_its_file_is_reported() -> None:
    import torch

    space: dict[str, Any] = {}
    exec(compile("def read(x):\n    return x.item()\n", "/dev/zero", "exec"), space)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        for _ in range(9):
            space["read"](torch.ones((), device="cuda"))
    assert watch.report.findings[0].where is not None
    assert watch.report.findings[0].where.file == "/dev/zero"
