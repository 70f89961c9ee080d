"""From a raw site to a :class:`Site`: the statement, its columns and its text. Runs only when a finding is built."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import stat
import sys
from types import CodeType, ModuleType

from devguard.observe.frames import PROJECT, RawSite, kind_of
from devguard.observe.older_python import qualified_name, span_of
from devguard.observe.site import Site

_COMPOUND = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.If,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.Match,
)

Span = tuple[int, int, int, int]


@functools.lru_cache(maxsize=256)
def lines_of(filename: str) -> tuple[str, ...]:
    """The lines of a file as they were when they were first asked for: one that is edited during the run keeps them."""
    if filename == "<string>":
        return ()  # any text that was compiled is called so, while Python 3.13 remembers that of `python -c` alone
    return tuple(read_lines(filename) or _lines_of_loader(filename))


def read_lines(filename: str) -> list[str]:
    """The lines of a plain file as linecache has them: a program's code may name a pipe or a device, which would never end."""
    try:
        plain = stat.S_ISREG(os.stat(filename).st_mode)
    except (OSError, ValueError):
        plain = True  # there is none: linecache may know it in another way
    return linecache.getlines(filename) if plain else []


def line_of(filename: str, line: int) -> str:
    """One line of a file, empty where there is none."""
    lines = lines_of(filename)
    return lines[line - 1] if 0 < line <= len(lines) else ""


@functools.lru_cache(maxsize=256)
def module_ast(filename: str) -> ast.Module | None:
    """The parsed source of a file, None where it is missing or is no Python of this version."""
    source = "".join(lines_of(filename))
    if not source:
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines_of_loader(filename: str) -> list[str]:
    """The source of a module that lies in no plain file (in a zip file) as its loader gives it; linecache keeps it."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and vars(module).get("__file__") == filename:
            return linecache.getlines(filename, vars(module))
    return []


def position(code: CodeType, lasti: int) -> Span | None:
    """(line, end line, column, end column) of the expression that an instruction belongs to; columns in UTF-8 bytes.

    The columns are -1 where they can't be told.
    """
    if hasattr(code, "co_positions"):
        for index, span in enumerate(code.co_positions()):
            if index == lasti // 2:
                line, end_line, column, end_column = span
                if line is not None:
                    return (
                        line,
                        end_line or line,
                        -1 if column is None else column,
                        -1 if end_column is None else end_column,
                    )
                return None
        return None
    line = None
    for offset, start in dis.findlinestarts(code):
        if offset > lasti:
            break
        line = start
    if line is None:
        return None
    # `executing` opens the file by itself, and what is no plain file may have no end
    known = span_of(code.co_filename, code, lasti, line) if lines_of(code.co_filename) else None
    return known or (line, line, -1, -1)


def _header_end(node: ast.stmt) -> int:
    """The last line of a compound statement's head (``for x in y:``), without its body."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    first: ast.AST = body[0] if body else node
    first_line: int = getattr(first, "lineno", 0) or getattr(getattr(first, "pattern", None), "lineno", node.lineno)
    decorators = getattr(first, "decorator_list", None)
    if decorators:
        first_line = min(first_line, *(d.lineno for d in decorators))
    return max(node.lineno, first_line - 1) if first_line > node.lineno else node.lineno


def _decorators(node: ast.AST) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in _decorators(node))])


@functools.lru_cache(maxsize=4096)
def statement_at(filename: str, line: int) -> ast.stmt | None:
    """The innermost statement that covers a line."""
    tree = module_ast(filename)
    if tree is None:
        return None
    found: ast.stmt | None = None
    level: list[ast.AST] = [tree]
    while level:
        inner: list[ast.AST] = []
        for node in level:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    if _first_line(child) <= line <= (child.end_lineno or child.lineno):
                        found = child
                        inner = [child]
                        break
                elif not isinstance(child, ast.expr):  # except handlers, match cases
                    inner.append(child)
            else:
                continue
            break
        level = inner
    return found


def _text(filename: str, line: int, end_line: int, column: int) -> str:
    lines = lines_of(filename)[line - 1 : end_line]
    if not lines:
        return ""
    head = lines[0].rstrip("\n")
    rest = [text.rstrip("\n") for text in lines[1:]]
    return "\n".join([head[column:] if head[:column].isspace() or column == 0 else head.strip(), *rest]).rstrip()


def site_at(filename: str, line: int, function: str) -> Site | None:
    """The site of the statement at a line; None where the source is missing."""
    statement = statement_at(filename, line)
    return None if statement is None else site_of_node(filename, statement, function)


def name_of_code(code: CodeType) -> str:
    """The qualified name of a function: `Net.forward`."""
    name: str | None = getattr(code, "co_qualname", None)
    return qualified_name(module_ast(code.co_filename), code) if name is None else name


def site_of_node(filename: str, statement: ast.stmt, function: str) -> Site:
    """The site of a statement that was found in the source."""
    first = statement.lineno
    last = _header_end(statement) if isinstance(statement, _COMPOUND) else (statement.end_lineno or first)
    text = _text(filename, first, last, statement.col_offset)
    return Site(filename, first, last, statement.col_offset, _end_column(filename, statement, last), function, text)


def _end_column(filename: str, statement: ast.stmt, last: int) -> int:
    """Where a statement ends in its last line, a compound one where its head does."""
    if isinstance(statement, _COMPOUND):
        return len(line_of(filename, last).rstrip().encode())
    return statement.end_col_offset or 0


def site_of(code: CodeType, lasti: int) -> Site:
    """The statement that an instruction belongs to. Never fails: a missing source gives an empty text."""
    return _site_of(code.co_filename, code, lasti)  # equal functions of two files are equal as code objects


@functools.lru_cache(maxsize=8192)
def _site_of(filename: str, code: CodeType, lasti: int) -> Site:
    function = name_of_code(code)
    span = position(code, lasti)
    if span is None:
        line = code.co_firstlineno
        return Site(filename, line, line, 0, 0, function, line_of(filename, line).strip())
    line, end_line, column, end_column = span
    statement = statement_at(filename, line)
    if statement is None:
        text = line_of(filename, line)
        return Site(filename, line, end_line, max(column, 0), max(end_column, 0), function, text.strip())
    first = statement.lineno
    last = _header_end(statement) if isinstance(statement, _COMPOUND) else (statement.end_lineno or first)
    for decorator in _decorators(statement):
        if decorator.lineno <= line <= (decorator.end_lineno or line):
            first, last = decorator.lineno, decorator.end_lineno or line
    if column < 0 or line != first:  # columns are those of the site's first line
        column, end_column = statement.col_offset, _end_column(filename, statement, last)
        line, end_line = first, last
    column, end_column = characters(filename, line, column), characters(filename, end_line, end_column)
    return Site(filename, first, last, column, end_column, function, _text(filename, first, last, statement.col_offset))


def characters(filename: str, line: int, column: int) -> int:
    """A column in characters: Python counts the UTF-8 bytes before it."""
    return len(line_of(filename, line).encode()[:column].decode(errors="ignore"))


def where(raw: RawSite | None) -> Site | None:
    """The innermost site outside PyTorch."""
    return None if raw is None else site_of(raw[0], raw[1])


def called_from(raw: RawSite | None) -> Site | None:
    """The innermost site of the user's own project, where :func:`where` lies in an installed library; else None."""
    if raw is None or kind_of(raw[0]) == PROJECT:
        return None
    return site_of(raw[2], raw[3]) if len(raw) == 4 else None


def users_line(raw: RawSite | None) -> Site | None:
    """The line that the user can edit: :func:`called_from` where there is one, else :func:`where`."""
    return called_from(raw) or where(raw)
