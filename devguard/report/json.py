"""The report as JSON (schema 1) and back. Imports no torch.

Loading only parses: the types of report/model.py say what fits, all else is refused. The only error is `ReportError`,
whose text is one line.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import reprlib
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from devguard.report.model import SCHEMA, Report

MAX_BYTES = 256 * 1024 * 1024
"""A larger report file is refused unread."""

_RENAMED = {"Transfer": {"source": "from", "target": "to"}}
_OPTIONAL = {"Finding": {"ranks"}}  # left out when empty: only merged reports have them
_TOOL = "devguard"


class ReportError(ValueError):
    """A report that can't be read or is none; the text is one line."""


# --- out ---


def to_dict(report: Report) -> dict[str, Any]:
    """The report as schema 1: plain dicts, lists, texts and numbers."""
    plain: dict[str, Any] = _plain(report)
    tool = {"name": _TOOL, "version": plain.pop("version")}
    return {"schema": SCHEMA, "tool": tool, **plain}


def dumps(report: Report, indent: int | None = 2) -> str:
    """The report as JSON text, ASCII only, so that file names that are no valid Unicode survive."""
    return json.dumps(to_dict(report), indent=indent, allow_nan=False) + "\n"


render = dumps


def _plain(value: Any) -> Any:
    kind: type = type(value)
    if dataclasses.is_dataclass(kind):
        renamed, optional = _RENAMED.get(kind.__name__, {}), _OPTIONAL.get(kind.__name__, ())
        pairs = ((name, getattr(value, name)) for name in _field_names(kind))
        return {renamed.get(name, name): _plain(item) for name, item in pairs if item or name not in optional}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else 0.0  # JSON has no infinity
    return value


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(kind))


# --- in ---


T = TypeVar("T")


def load(path: str | os.PathLike[str]) -> Report:
    """The report in a file. Raises ReportError, one line that names the file, whatever is wrong with it."""
    return read_json(path, from_dict)


def read_json(path: str | os.PathLike[str], convert: Callable[[object], T]) -> T:
    """A JSON file of bounded size, parsed and converted. Raises ReportError, one line that names the file."""
    try:
        file = Path(path)
        if file.is_dir():
            raise ReportError("is a folder")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ReportError(f"is larger than {MAX_BYTES // 1024**2} MiB")
        return convert(_parsed(data))
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise ReportError(f"{os.fspath(path)!r}: {' '.join(reason.split())}") from None


def loads(text: str | bytes) -> Report:
    """The report in JSON text. Raises ReportError, one line."""
    return from_dict(_parsed(text))


def _parsed(text: str | bytes) -> object:
    try:
        data: object = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else " ".join(str(problem).split())
        raise ReportError(f"is not JSON: {reason[:200]}") from None
    return data


def from_dict(data: object) -> Report:
    """The report in parsed JSON. Raises ReportError that names the first place that does not fit."""
    if not isinstance(data, dict) or "schema" not in data or "findings" not in data:
        raise ReportError("is not a devguard report")
    schema = data["schema"]
    if isinstance(schema, bool) or schema != SCHEMA:
        raise ReportError(f"has schema {str(schema)[:20]!r}; this devguard reads schema {SCHEMA}")
    rest = dict(data)
    del rest["schema"]
    tool = rest.pop("tool", None)
    if not isinstance(tool, dict) or tool.get("name") != _TOOL or set(tool) != {"name", "version"}:
        raise ReportError(f"tool: expected the name {_TOOL!r} and a version")
    if "version" in rest:
        raise ReportError("unknown key 'version'")
    report: Report = _read(Report, {"version": tool["version"], **rest}, "")
    return report


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _read(kind: Any, value: Any, place: str) -> Any:
    """`value` as an instance of the annotated type `kind`."""
    if dataclasses.is_dataclass(kind):
        return _read_object(typing.cast(type, kind), value, place)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        if not isinstance(value, str) or value not in inner:
            raise _misfit(place, "one of " + ", ".join(inner), value)
        return value
    if origin in (typing.Union, types.UnionType):
        (wanted,) = [item for item in inner if item is not type(None)]
        return None if value is None else _read(wanted, value, place)
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise _misfit(place, "a list", value)
        return origin(_read(inner[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    return _read_scalar(kind, value, place)


_SCALARS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _read_scalar(kind: Any, value: Any, place: str) -> Any:
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _misfit(place, "a number of usual size", "a huge one") from None
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise _misfit(place, _SCALARS[kind], value)
    return value


def _read_object(kind: type, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _misfit(place, "an object", value)
    wanted = _wanted(kind)
    for key in value:
        if key not in wanted:
            raise ReportError(f"{place or 'report'}: unknown key {key[:40]!r}")
    arguments = {}
    for key, (name, inner, optional) in wanted.items():
        if key in value:
            arguments[name] = _read(inner, value[key], f"{place}.{key}" if place else key)
        elif not optional:
            raise ReportError(f"{place or 'report'}: key {key!r} is missing")
    return kind(**arguments)


@functools.cache
def _wanted(kind: type) -> dict[str, tuple[str, Any, bool]]:
    """JSON key -> (field, its type, whether it may be left out)."""
    hints = typing.get_type_hints(kind)
    renamed, optional = _RENAMED.get(kind.__name__, {}), _OPTIONAL.get(kind.__name__, set())
    return {renamed.get(name, name): (name, hints[name], name in optional) for name in _field_names(kind)}


def _misfit(place: str, expected: str, value: object) -> ReportError:
    return ReportError(f"{place or 'report'}: expected {expected}, found {reprlib.repr(value)}")
