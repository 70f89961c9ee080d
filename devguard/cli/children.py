"""The processes that a watched program starts (ranks, spawned workers): watched too, and part of the same report.

They find their orders in the environment, where `devguard.autostart` reads them, and leave their reports in a private
folder. A forked process needs no orders; what it does is its parent's.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile

from devguard.options import ENVIRONMENT, KEYS, Options, to_text
from devguard.report.json import ReportError, load
from devguard.report.merge import combine
from devguard.report.model import NotSeen, Report

_NOT_PASSED_ON = ("report", "fail_on", "baseline", "color", "quiet", "help")


class Children:
    """The private folder of one run. Use `close` when the run is over."""

    def __init__(self, options: Options) -> None:
        try:
            self._folder = tempfile.mkdtemp(prefix="devguard-")
        except OSError:  # nowhere to write: the program runs all the same, its children unwatched
            self._folder = ""
            return
        names = [name for name in KEYS if name not in _NOT_PASSED_ON]
        orders = [f"report=json:{self._folder}/%p.json", "quiet=1", to_text(options, names)]
        if options.baseline is not None and "," not in options.baseline:
            orders.append(f"baseline={os.path.abspath(options.baseline)}")
        os.environ["DEVGUARD"] = "1"
        os.environ["DEVGUARD_PARENT_PID"] = str(os.getpid())
        os.environ[ENVIRONMENT] = ",".join(filter(None, orders))

    def joined_with(self, own: Report) -> Report:
        """The program's own report together with those that its children have left."""
        parts: list[tuple[Report, int | None]] = []
        for path in sorted(glob.glob(os.path.join(glob.escape(self._folder), "*.json"))) if self._folder else ():
            try:
                report = load(path)
            except ReportError as problem:
                own.not_seen.append(NotSeen(f"what a child process did: {problem}", 1))
                continue
            parts.append((report, report.rank))
        return combine(own, [(own, own.rank), *parts]) if parts else own

    def close(self) -> None:
        """Remove the folder."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
