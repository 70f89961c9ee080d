"""Where reports go: FORMAT:PATH targets, written whole or not at all, and the text on stderr. Imports no torch."""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable
from typing import TextIO

from devguard.report.model import Report

# html and sarif may be large: a renderer is loaded when its format is asked for.
RENDERERS = {
    "text": "devguard.report.text",
    "json": "devguard.report.json",
    "html": "devguard.report.html",
    "sarif": "devguard.report.sarif",
    "github": "devguard.report.github",
}
STDERR = "-"
_DESCRIPTOR = re.compile(r"/dev/std(out|err)|/dev/fd/(\d+)|/proc/self/fd/(\d+)")


def render(report: Report, name: str) -> str:
    """The report in one of the formats of RENDERERS."""
    text: str = importlib.import_module(RENDERERS[name]).render(report)
    return text


def emit(report: Report, targets: Iterable[str], *, color: str = "auto", on_stderr: bool = True) -> bool:
    """Write the report to every FORMAT:PATH target, and as text to stderr when `on_stderr` and no text target is given.

    A target that can't be written costs one line on stderr, and then the text report goes there in its place. Never
    raises; the result says whether all were written.
    """
    try:
        return _emit(report, list(targets), color, on_stderr)
    except Exception as problem:  # even the way to tell it failed: the program's own result matters more
        _to(sys.stderr, f"devguard: can't write its report: {reason(problem)}\n")
        return False


def _emit(report: Report, targets: list[str], color: str, on_stderr: bool) -> bool:
    failed = False
    shown = any(target == f"text:{STDERR}" for target in targets)
    for target in targets:
        name, _, path = target.partition(":")
        try:
            path = expand(path, report)
            if path == STDERR:
                to_stderr(_stderr_text(report, name, color))
            else:
                write_file(path, render(report, name))
        except Exception as problem:  # the program has ended; whatever went wrong must not hide its result
            failed = True
            to_stderr(f"devguard: can't write the {name} report to {path!r}: {reason(problem)}\n")
    has_text = any(target.startswith("text:") for target in targets)
    if not shown and (failed or (on_stderr and not has_text)):
        to_stderr(_safe_text(report, color))
    return not failed


def expand(path: str, report: Report) -> str:
    """%p in a path is the process id, %r the rank (0 without one), %% a percent sign."""
    values = {"p": str(os.getpid()), "r": str(report.rank or 0), "%": "%"}
    return re.sub("%([pr%])", lambda match: values[match.group(1)], path)


def write_file(path: str, text: str) -> None:
    """Write a file so that readers see the old content or the new one, never a part. Raises OSError."""
    data = text.encode("utf-8", "backslashreplace")
    descriptor = _DESCRIPTOR.fullmatch(path)
    if descriptor is not None:  # the process's own stream: what it has written there stays
        number = next(group for group in descriptor.groups() if group is not None)
        for printed in (sys.stdout, sys.stderr):
            _to(printed, "")
        with open(os.dup({"out": 1, "err": 2}.get(number) or int(number)), "wb") as stream:
            stream.write(data)
        return
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device can't be replaced
        with open(path, "wb") as stream:
            stream.write(data)
        return
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)[:50]}.")
    try:
        with open(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(scratch, _mode_for(path))
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _mode_for(path: str) -> int:
    """The mode of the file that is replaced, or what a new file would get."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def to_stderr(text: str) -> None:
    """Text on stderr; a closed or full stderr is no error of the program."""
    _to(sys.stderr, text)


def to_stdout(text: str) -> None:
    """Text on stdout, whatever its encoding can show; a reader that has gone away is no error."""
    if not _to(sys.stdout, text) and sys.stdout is not None:
        try:  # what is still buffered would fail again, loudly, when the interpreter ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):
            pass


def _to(stream: TextIO | None, text: str) -> bool:
    if stream is None:
        return False
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError, LookupError):
        return False
    return True


def colored(color: str, stream: TextIO | None) -> bool:
    """Does text on this stream get colour? NO_COLOR and FORCE_COLOR decide before the terminal does."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def _stderr_text(report: Report, name: str, color: str) -> str:
    if name != "text":
        return render(report, name)
    from devguard.report import text

    return text.render(report, color=colored(color, sys.stderr))


def _safe_text(report: Report, color: str) -> str:
    try:
        return _stderr_text(report, "text", color)
    except Exception as problem:
        found = "".join(f"  {finding.rule} {finding.message!r}\n" for finding in report.findings)
        return f"devguard: can't lay out the report ({reason(problem)}); it found:\n{found or '  nothing'}"


def reason(problem: BaseException) -> str:
    """Why something failed, on one line."""
    words = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return " ".join(words.split()) or type(problem).__name__
