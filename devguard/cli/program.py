"""Runs a user's program in this process as `python script.py`, `python -m module` or `python -c code` would run it."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devguard.cli._common import EXIT_INTERRUPTED, UsageError
from devguard.report.write import to_stderr
from devguard.tracebacks import without_own_frames


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: exactly one of `script`, `module`, `code`; `arguments` follow it in sys.argv."""

    script: str | None
    module: str | None
    code: str | None
    arguments: tuple[str, ...]

    def check(self) -> None:
        """Raises UsageError where there is plainly nothing to run."""
        if self.script is not None and not os.path.exists(self.script):
            raise UsageError(f"can't open {self.script!r}: no such file")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended: the exit status that Python gives it, and the exception that nobody caught."""

    status: int
    error: BaseException | None = None


def run_program(program: Program, on_error: Callable[[BaseException], None]) -> Outcome:
    """Run it to its end, including the threads that Python would wait for.

    An uncaught exception is first given to `on_error`, then shown by sys.excepthook as Python would show it, without
    devguard's frames. Raises UsageError when the module or script is not there.
    """
    try:
        _execute(program)
        _join_threads()
        return Outcome(0)
    except UsageError:
        raise
    except BaseException as error:
        return _ended_by(error, on_error)
    finally:
        _flush()


def _execute(program: Program) -> None:
    if program.code is not None:
        _set_up(["-c", *program.arguments], "")
        main = _main_module({"__loader__": importlib.machinery.BuiltinImporter})
        exec(compile(program.code, "<string>", "exec", dont_inherit=True), main.__dict__)
    elif program.module is not None:
        _set_up(["-m", *program.arguments], os.getcwd())
        _run_spec(_find_module(program.module))
    elif program.script is not None:
        _run_script(program.script, program.arguments)


def _set_up(argv: list[str], first_path: str) -> None:
    sys.argv[:] = argv
    if not getattr(sys.flags, "safe_path", False):  # without -P, sys.path[0] is where devguard was started from
        sys.path[0] = first_path


def _run_script(script: str, arguments: tuple[str, ...]) -> None:
    path = os.path.abspath(script)
    importer = pkgutil.get_importer(path)
    plain_file = importer is None or isinstance(importer, importlib.machinery.FileFinder)
    if not plain_file or os.path.isdir(path):
        _set_up([script, *arguments], path)  # a folder or a zip file with a __main__.py
        if getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, path)
        spec = importer.find_spec("__main__", None) if importer is not None else None
        if spec is None:
            raise UsageError(f"can't find '__main__' in {script!r}")
        _run_spec(spec)
        return
    _set_up([script, *arguments], os.path.dirname(os.path.realpath(path)))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main = _main_module({"__file__": path, "__cached__": None, "__loader__": loader})
    exec(_code_of(path), main.__dict__)


def _code_of(path: str) -> types.CodeType:
    try:
        with io.open_code(path) as stream:
            compiled = pkgutil.read_code(stream)
            if compiled is not None:
                return compiled  # type: ignore[no-any-return]
            stream.seek(0)
            source = stream.read()
    except OSError as problem:
        raise UsageError(f"can't open {path!r}: {problem.strerror}") from None
    return compile(source, path, "exec", dont_inherit=True)


def _find_module(name: str) -> importlib.machinery.ModuleSpec:
    """The spec of a module, or of the __main__ of a package. Importing its parents runs code of the program."""
    if name.startswith("."):
        raise UsageError("relative module names are not supported")
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise UsageError(f"no module named {problem.name!r}") from None
        raise
    except ValueError:
        spec = None
    if spec is None:
        raise UsageError(f"no module named {name!r}")
    return spec


def _run_spec(spec: importlib.machinery.ModuleSpec) -> None:
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code is not None else None
    if code is None:
        raise UsageError(f"module {spec.name!r} has no Python code to run")
    if spec.name != "__main__":
        sys.argv[0] = spec.origin or spec.name
    main = _main_module(
        {
            "__file__": spec.origin,
            "__cached__": spec.cached,
            "__loader__": spec.loader,
            "__package__": spec.parent,
            "__spec__": spec,
        }
    )
    exec(code, main.__dict__)


def _main_module(attributes: dict[str, Any]) -> types.ModuleType:
    """A fresh `__main__` in place of devguard's own: pickle and multiprocessing look it up in sys.modules."""
    main = types.ModuleType("__main__")
    main.__dict__.update({"__annotations__": {}, "__builtins__": builtins, **attributes})
    sys.modules["__main__"] = main
    return main


def _join_threads() -> None:
    """Python waits for the threads that are no daemons before it exits: what they do belongs to the run."""
    while True:
        waiting = [t for t in threading.enumerate() if not t.daemon and t is not threading.current_thread()]
        if not waiting or threading.current_thread() is not threading.main_thread():
            return
        waiting[0].join()


# --- the end ---


def _ended_by(error: BaseException, on_error: Callable[[BaseException], None]) -> Outcome:
    if isinstance(error, SystemExit):
        return Outcome(_exit_status(error.code))
    on_error(error)
    without_own_frames(error)
    _show(error)
    return Outcome(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1, error)


def _exit_status(code: object) -> int:
    """The status that Python gives a program for the argument of sys.exit()."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    to_stderr(f"{code}\n")
    return 1


def _show(error: BaseException) -> None:
    """What Python does with an exception that nobody caught."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        sys.__excepthook__(type(error), error, error.__traceback__)
    if sys.version_info < (3, 11):  # tracebacks show notes from 3.11 on
        to_stderr("".join(f"{note}\n" for note in getattr(error, "__notes__", ())))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
