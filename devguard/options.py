"""Every option of devguard in one table. Arguments go before DEVGUARD_OPTIONS, pyproject.toml and the defaults.

Imports no torch. Whatever the input, the only error is `OptionsError`, whose text is one line.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from devguard.rules.catalog import CATALOG
from devguard.rules.finding import LEVELS, Level

ENVIRONMENT = "DEVGUARD_OPTIONS"
PYPROJECT = "pyproject.toml"
FORMATS = ("text", "json", "html", "sarif", "github")
_MAX_DEVICES = 64
Folder = str | os.PathLike[str]
_BY_NAME = {rule.name: code for code, rule in CATALOG.items()}


class OptionsError(ValueError):
    """An unknown key or a bad value; the text is one line that says where it stood and what was expected."""


# --- one parser per kind of value: text, TOML or Python in, the stored value out, ValueError where it does not fit ---


def _whole(low: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError
        return value

    return parse


def _choice(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = value.strip().lower() if isinstance(value, str) else None
        if text not in names:
            raise ValueError(nearest(text, names) if text else "")
        return text

    return parse


def _flag(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    return words[_choice(*words)(str(value) if isinstance(value, int) else value)]


def _path(value: object) -> str:
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError
    return text


def _matching(pattern: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value.strip(), re.ASCII | re.IGNORECASE):
            raise ValueError
        return value.strip()

    return parse


def _simulated(value: object) -> str:
    text = _matching(r"cuda(:[0-9]{1,2})?")(value).lower()
    count = int(text.partition(":")[2] or 1)
    if not 1 <= count <= _MAX_DEVICES:
        raise ValueError
    return f"cuda:{count}"


def _items(value: object, separator: str) -> list[object]:
    if isinstance(value, str):
        return [part for part in re.split(separator, value) if part.strip()]
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in (re.split(separator, item) if isinstance(item, str) else [item])]
    raise ValueError


def rule_prefix(value: object) -> str:
    """A rule's code, the beginning of codes (`DG2`) or a name, as code or beginning; else ValueError(nearest match)."""
    text = value.strip() if isinstance(value, str) else ""
    if text.lower() in _BY_NAME:
        return _BY_NAME[text.lower()]
    code = text.upper()
    if len(code) < 2 or not any(known.startswith(code) for known in CATALOG):
        raise ValueError(nearest(code, CATALOG) or nearest(text.lower(), _BY_NAME))
    return code


def _codes(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule_prefix(item) for item in _items(value, r"[+,\s]+")))


def _levels(value: object) -> dict[str, str]:
    pairs: list[tuple[object, object]] = []
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        for item in _items(value, r"[+,\s]+"):
            pair = re.split("[:=]", item) if isinstance(item, str) else []
            if len(pair) != 2:
                raise ValueError
            pairs.append((pair[0], pair[1]))
    return {rule_prefix(code): _choice(*LEVELS, "off")(level) for code, level in pairs}


def _targets(value: object) -> tuple[str, ...]:
    found = []
    for item in _items(value, rf"\+(?=(?:{'|'.join(FORMATS)}):)"):
        name, colon, path = item.partition(":") if isinstance(item, str) else ("", "", "")
        if not colon or not path.strip() or "\0" in path:
            raise ValueError
        found.append(f"{_choice(*FORMATS)(name)}:{path.strip()}")
    return tuple(found)


# --- the table ---


@dataclass(frozen=True, slots=True)
class Key:
    """One option: how its value is read, what is expected (for messages), its help, whether repeated values add up."""

    parse: Callable[[object], Any]
    expects: str
    help: str
    many: bool = False


def _key(default: object, parse: Callable[[object], Any], expects: str, help: str, many: bool = False) -> Any:
    metadata = {"key": Key(parse, expects, help, many)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


_CODES = "rule codes, beginnings of codes or names, such as DG105 or DG2 (several: DG105+DG2)"
_LEVELS = ", ".join(LEVELS)


# fmt: off
@dataclass(frozen=True)
class Options:
    """The effective options of one watch. Build it with `Options.load`, which merges every source."""

    report: tuple[str, ...] = _key(
        (), _targets, f"FORMAT:PATH with a format of {', '.join(FORMATS)}",
        "where reports go; PATH - is stderr, %p in it the process id, %r the rank", many=True)
    simulate: str | None = _key(
        None, _simulated, f"cuda:N with N from 1 to {_MAX_DEVICES}", "run on N simulated accelerators")
    memory: str | None = _key(
        None, _matching(r"[0-9]{1,9}(\.[0-9]{1,6})?\s*([KMGT]i?)?B?"), "a size such as 16GiB",
        "memory of each simulated accelerator")
    fail_on: str = _key(
        "error", _choice(*LEVELS, "never"), f"{_LEVELS} or never", "the lowest level that makes the exit status 1")
    select: tuple[str, ...] = _key((), _codes, _CODES, "report these rules only", many=True)
    ignore: tuple[str, ...] = _key((), _codes, _CODES, "report no finding of these rules", many=True)
    levels: Mapping[str, Level | Literal["off"]] = _key(
        {}, _levels, f"CODE:LEVEL with a level of {_LEVELS} or off", "the level of single rules", many=True)
    every: int = _key(1, _whole(1), "a whole number of 1 or more", "watch one step in N")
    warmup: int = _key(2, _whole(0), "a whole number of 0 or more", "first steps that the rate per step leaves out")
    max_syncs_per_step: int | None = _key(
        None, _whole(0), "a whole number of 0 or more", "more host syncs per step than this are an error")
    baseline: str | None = _key(
        None, _path, "the path of a baseline file", "findings of this file are not reported again")
    color: str = _key("auto", _choice("auto", "always", "never"), "auto, always or never", "colour of text reports")
    quiet: bool = _key(False, _flag, "0 or 1", "no text report on stderr, unless text:- asks for it")
    help: bool = _key(False, _flag, "0 or 1", "list all keys and go on")
    # fmt: on

    @classmethod
    def load(cls, cwd: Folder | None = None, env: Mapping[str, str] | None = None, **arguments: object) -> Options:
        """The options in force in folder `cwd` under environment `env`; `arguments` go first, None means "not given".

        Raises OptionsError, one line, for an unknown key or a bad value in any source.
        """
        return load_with_sources(cwd, env, arguments)[0]

    def replace(self, **arguments: object) -> Options:
        """These options with some keys changed. Raises OptionsError as `load` does."""
        given = {name: parse_value(name, value, "argument") for name, value in arguments.items() if value is not None}
        return dataclasses.replace(self, **given)


KEYS: dict[str, Key] = {item.name: item.metadata["key"] for item in fields(Options)}


def default_of(name: str) -> object:
    """The default of one key."""
    item = next(item for item in fields(Options) if item.name == name)
    return {} if item.default is MISSING else item.default


# --- the sources ---


def load_with_sources(
    cwd: Folder | None, env: Mapping[str, str] | None, arguments: Mapping[str, object], label: str = "argument"
) -> tuple[Options, dict[str, str]]:
    """The effective options, and for each key that a source set the name of that source. Raises OptionsError."""
    text = (os.environ if env is None else env).get(ENVIRONMENT, "")
    given = {name: value for name, value in arguments.items() if value is not None}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in (_pyproject(cwd), (ENVIRONMENT, parse_text(text)), (label, given)):
        for name, value in layer.items():
            values[name] = parse_value(name, value, source)
            sources[name] = source
    return Options(**values), sources


def parse_text(text: str) -> dict[str, object]:
    """`key=value,key=value` as a dict; lists are separated by + or the key is repeated. Raises OptionsError."""
    found: dict[str, object] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise OptionsError(f"{ENVIRONMENT}: {show(part.strip())} is not of the form key=value")
        if name in KEYS and KEYS[name].many and name in found:
            found[name] = f"{found[name]}+{value.strip()}"
        else:
            found[name] = value.strip()
    return found


def parse_value(name: str, value: object, source: str) -> Any:
    """The stored form of one key's value. Raises OptionsError that names `source`."""
    if name not in KEYS:
        hint = nearest(name, KEYS)
        tail = f", did you mean {hint}?" if hint else f"; known are {', '.join(KEYS)}"
        raise OptionsError(f"{source}: unknown option {show(name)}{tail}")
    try:
        return KEYS[name].parse(value)
    except (ValueError, TypeError, KeyError) as problem:
        hint = str(problem) if type(problem) is ValueError else ""
        tail = f", did you mean {hint}?" if hint else ""
        raise OptionsError(f"{source}: {name}={show(value)}: expected {KEYS[name].expects}{tail}") from None


def _pyproject(cwd: Folder | None) -> tuple[str, dict[str, object]]:
    """The nearest [tool.devguard] table at or above `cwd`; paths in it are meant from its own folder."""
    try:
        folder = Path(os.getcwd() if cwd is None else cwd).absolute()
    except OSError:
        return PYPROJECT, {}  # the working directory is gone
    for place in (folder, *folder.parents):
        file = place / PYPROJECT
        source = f"{show(str(file), 4096)[1:-1]} [tool.devguard]"  # a path is of use only whole
        table = _read_table(file, source)
        if table is not None:
            named = {str(name).replace("-", "_"): value for name, value in table.items()}
            return source, {name: _from_folder(name, value, place) for name, value in named.items()}
    return PYPROJECT, {}


def _read_table(file: Path, source: str) -> Mapping[str, object] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        if not file.is_file():
            return None
        content = file.read_bytes()
        if b"devguard" not in content:
            return None
        tool = tomllib.loads(content.decode("utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as problem:
        raise OptionsError(f"{source}: can't be read: {one_line(problem)}") from None
    table = tool.get("devguard") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise OptionsError(f"{source}: expected a table")
    return table


def _from_folder(name: str, value: object, folder: Path) -> object:
    if name == "baseline" and isinstance(value, str) and value.strip():
        return str(folder / value)
    if name == "report" and isinstance(value, (str, list)):
        items = [value] if isinstance(value, str) else value
        return [_target_from_folder(item, folder) if isinstance(item, str) else item for item in items]
    return value


def _target_from_folder(target: str, folder: Path) -> str:
    name, colon, path = target.partition(":")
    return target if not colon or not path.strip() or path.strip() == "-" else f"{name}:{folder / path.strip()}"


# --- help and messages ---


def help_text() -> str:
    """One line per key with its default, as `help=1` prints it."""
    lines = [
        f"{ENVIRONMENT}=key=value,key=value",
        f"The same keys work under [tool.devguard] in {PYPROJECT} and as arguments of devguard.watch().",
    ]
    for name, key in KEYS.items():
        default = show_value(default_of(name))
        lines.append(f"  {name:20s} {key.help} ({key.expects}; default: {default})")
    return "\n".join(lines)


def show_value(value: object) -> str:
    """An option's value as a user would write it."""
    if isinstance(value, Mapping):
        value = tuple(f"{code}:{level}" for code, level in value.items())
    if isinstance(value, tuple):
        return "+".join(str(item) for item in value) or "none"
    return "none" if value is None else str(int(value)) if isinstance(value, bool) else str(value)


def to_text(options: Options, names: Iterable[str]) -> str:
    """Those of the named keys that are not at their default, in the form of DEVGUARD_OPTIONS."""
    shown = {name: show_value(getattr(options, name)) for name in names if getattr(options, name) != default_of(name)}
    return ",".join(f"{name}={value}" for name, value in shown.items() if "," not in value)


def nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """The known word that `word` was probably meant to be, or nothing."""
    cutoff = 0.6 if word.isalpha() else 0.76  # one digit of a rule's code makes it another rule
    return next(iter(difflib.get_close_matches(word[:100], list(known), n=1, cutoff=cutoff)), "")


def show(value: object, limit: int = 80) -> str:
    """Any value in quotes on one line, shortened."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def one_line(problem: BaseException) -> str:
    """An exception's text on one line."""
    text = " ".join(str(problem).split())
    return text or type(problem).__name__
