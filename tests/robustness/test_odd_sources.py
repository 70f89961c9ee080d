"""Code whose source is missing, changed, generated, zipped or in another encoding: watched and reported like any other."""

from __future__ import annotations

import importlib
import linecache
import sys
import types
import zipfile

import pytest
import torch

import devguard
from devguard.report import write

CODE = """
def read(x):
    return x.item()
"""


def reported(read, renderers=("text", "json", "html", "sarif", "github")):
    """The one finding of a function that reads a scalar, after every format was rendered."""
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        x = torch.ones((), device="cuda")
        for _ in range(9):
            read(x)
    assert [entry.what for entry in watch.report.not_seen] == []
    assert all("DG201" in write.render(watch.report, name) for name in renderers)
    (found,) = watch.report.findings
    return found


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes an imported module of a source text or bytes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(name, source):
        file = tmp_path / f"{name}.py"
        file.write_bytes(source if isinstance(source, bytes) else source.encode())
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name), file

    yield make
    for name in made:
        sys.modules.pop(name, None)


def test_a_source_that_is_gone_still_has_a_line(module):
    code, file = module("gone", CODE)
    file.unlink()
    linecache.checkcache()
    found = reported(code.read)
    assert (found.where.file, found.where.line, found.where.text) == (str(file), 3, "")


def test_a_source_that_became_shorter_still_has_a_line(module):
    code, file = module("shorter", CODE)
    file.write_text("\n")
    linecache.checkcache()
    assert reported(code.read).where.line == 3


def test_a_source_that_became_something_else_is_no_error(module):
    code, file = module("other", CODE)
    file.write_text("def broken(:\n  ' \n   return }}}\n" * 3)
    linecache.checkcache()
    assert reported(code.read).where.line == 3


def test_a_source_that_is_edited_during_the_run_is_shown_as_it_ran(module):
    source = CODE + "\n\ndef make():\n    return torch.ones(3)\n"
    code, file = module("edited", "import torch\n" + source)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        made = code.make()
        x = torch.ones(3, device="cuda")
        code.read(x.sum())  # the first thing to report: the file is read
        file.write_text("import torch\n# one more line\n# and another\n" + source.replace("3", "4"))
        linecache.checkcache()  # as every traceback does that is printed
        with pytest.raises(RuntimeError, match="same device"):
            x + made
    found = watch.report.findings[0]
    assert (found.rule, found.cause.line, found.cause.text) == ("DG108", 8, "return torch.ones(3)")


def test_a_source_that_became_binary_is_no_error(module):
    code, file = module("binary", CODE)
    file.write_bytes(bytes(range(256)) * 10)
    linecache.checkcache()
    assert reported(code.read).where.line == 3


def test_a_file_name_that_is_a_folder_is_no_error(tmp_path):
    space = {}
    exec(compile(CODE, str(tmp_path), "exec"), space)
    assert reported(space["read"]).where.file == str(tmp_path)


def test_code_from_a_string_is_reported():
    space = {}
    exec(CODE, space)
    found = reported(space["read"])
    assert (found.where.file, found.where.line) == ("<string>", 3)


def test_code_with_an_odd_file_name_is_reported():
    space = {}
    exec(compile(CODE, "no such\nfile\x1b[31m.py", "exec"), space)
    assert reported(space["read"]).where.line == 3


def test_code_without_lines_is_reported():
    function = types.FunctionType(compile(CODE, "nowhere.py", "exec").co_consts[0], {})
    function.__code__ = function.__code__.replace(co_linetable=b"")
    assert reported(function).where.file == "nowhere.py"


def test_code_of_a_zip_file_is_shown(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("zipped_reader.py", CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "app.zip"))
    try:
        found = reported(importlib.import_module("zipped_reader").read)
    finally:
        sys.modules.pop("zipped_reader", None)
    assert found.where.file == str(tmp_path / "app.zip" / "zipped_reader.py")
    assert found.where.text == "return x.item()"


def test_a_source_in_latin_1_is_shown(module):
    source = "# -*- coding: latin-1 -*-\ndef read(größe):\n    return größe.item()  # Straße\n"
    code, _ = module("latin", source.encode("latin-1"))
    assert reported(code.read).where.text == "return größe.item()  # Straße"


def test_a_source_with_a_byte_order_mark_is_shown(module):
    code, _ = module("marked", b"\xef\xbb\xbf" + CODE.encode())
    assert reported(code.read).where.text == "return x.item()"


def test_a_source_with_windows_line_ends_is_shown(module):
    code, _ = module("windows", CODE.replace("\n", "\r\n"))
    assert reported(code.read).where.text == "return x.item()"


def test_a_source_with_very_long_lines_is_shown_in_part(module):
    code, _ = module("long", f"def read(x):\n    return x.item() + sum([{'0, ' * 50_000}])\n")
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        for _ in range(9):
            code.read(torch.ones((), device="cuda"))
    assert watch.report.findings[0].where.line == 2
    assert max(len(line) for line in str(watch.report).splitlines()) < 1_000


def test_an_expression_nested_deeper_than_the_parser_goes_is_no_error(module):
    code, file = module("deep", CODE)
    file.write_text(f"x = {'(' * 50_000}{')' * 50_000}\n" * 3)
    linecache.checkcache()
    assert reported(code.read).where.line == 3


def test_a_lambda_of_eval_is_reported():
    found = reported(eval("lambda x: x.item()"))
    assert (found.where.file, found.where.line) == ("<string>", 1)
