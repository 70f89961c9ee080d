"""From (code, instruction) to the statement, its columns and its text."""

from __future__ import annotations

import linecache
import sys

from devguard.observe import symbolize
from devguard.observe.frames import raw_site


def here():
    return raw_site(sys._getframe(1))


def test_a_statement_of_several_lines_is_shown_whole():
    raw = [
        here(),
        1,
    ][0]
    site = symbolize.where(raw)
    assert site.text.startswith("raw = [\n")
    assert site.text.endswith("][0]")
    assert site.end_line - site.line == 3


def test_a_compound_statement_is_shown_by_its_head():
    for raw in (here(),):
        site = symbolize.where(raw)
    assert site.text == "for raw in (here(),):"
    assert site.line == site.end_line


def test_an_if_is_shown_by_its_test():
    if raw := here():
        assert symbolize.where(raw).text == "if raw := here():"


def test_columns_count_characters():
    ünïcode = "é", here()
    site = symbolize.where(ünïcode[1])
    line = open(__file__, encoding="utf-8").read().splitlines()[site.line - 1]  # noqa: SIM115
    if sys.version_info >= (3, 11):
        assert line[site.column : site.end_column] == "here()"


def test_code_without_source_gives_an_empty_text(monkeypatch):
    monkeypatch.setitem(linecache.cache, "<string>", (9, None, ["text of -c\n"], "<string>"))  # as Python 3.13 does
    names = {"here": here}
    exec(compile("raw = here()", "<string>", "exec"), names)
    site = symbolize.where(names["raw"])
    assert (site.file, site.line, site.text) == ("<string>", 1, "")


def test_the_function_is_named():
    assert symbolize.where(here()).function.endswith("test_the_function_is_named")


def test_a_decorator_is_shown_by_itself():
    raws = []

    def take(raw):
        raws.append(raw)
        return lambda function: function

    class Holder:
        @take(here())
        def method(self):
            pass

    assert Holder
    assert symbolize.where(raws[0]).text == "@take(here())"
