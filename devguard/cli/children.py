"""The processes that a watched program starts (ranks, spawned workers): watched too, and part of the same report.

They find their orders in the environment, where `devguard.autostart` reads them, and leave their reports in a private
folder. A forked process needs no orders; what it does is its parent's.
"""

from __future__ import annotations

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
        self._folder = tempfile.mkdtemp(prefix="devguard-")
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
        for name in sorted(os.listdir(self._folder)):
            try:
                report = load(os.path.join(self._folder, name))
            except ReportError as problem:  # the process was killed while it wrote
                own.not_seen.append(NotSeen(f"a child process: {problem}", 1))
                continue
            parts.append((report, report.rank))
        return combine(own, [(own, own.rank), *parts]) if parts else own

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
