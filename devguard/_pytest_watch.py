"""One watched test: its simulation and its watch, the verdict, and what goes into pytest's report."""

from __future__ import annotations

from typing import Any

import pytest

from devguard import policy
from devguard.options import Options
from devguard.report.json import to_dict
from devguard.report.model import Report
from devguard.report.text import render
from devguard.rules.finding import Finding
from devguard.simulate import Simulation, active, simulate
from devguard.tracebacks import without_own_frames
from devguard.watch import Watch

DATA = "devguard"  # the attribute of pytest's report that carries ours; plain JSON, so that pytest-xdist can send it


class ItemWatch:
    """The watch around one test item."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.watch = Watch(options=options)
        self.report: Report | None = None
        self.failed = False  # by judge()
        self._simulation: Simulation | None = None
        self._running = False

    def begin(self) -> None:
        """Start the simulation, unless the whole session has it, and the watch. A wrong request fails the test."""
        wanted, running = self.options.simulate, active()
        if wanted is not None and running is None:
            self._simulation = simulate(wanted, memory=self.options.memory).start()
        elif wanted is not None and running is not None and running.spec != wanted:
            pytest.fail(
                f"devguard: this test asks for simulate={wanted!r}, but {running.spec} is being simulated already: "
                "give the whole session the larger of the two, or simulate by markers only",
                pytrace=False,
            )
        self.watch.start()
        self._running = True

    def end(self, error: BaseException | None = None) -> None:
        """Stop the watch. `error` is what the test function raised."""
        if not self._running:
            return
        self._running = False
        if error is not None and not isinstance(error, (pytest.skip.Exception, pytest.fail.Exception, AssertionError)):
            self.watch.note_exception(error)  # a failed comparison is no device error: the report's section is enough
            without_own_frames(error)
        self.report = self.watch.stop()

    def close(self) -> None:
        """End the simulation that only this test asked for."""
        self.end()
        if self._simulation is not None:
            self._simulation.stop()
            self._simulation = None

    def judge(self) -> None:
        """Fail the test with the report if a finding reaches the level. Raises pytest's failure."""
        if self.report is None:
            return
        reached = [found for found in self.report.findings if policy.reaches([found], self.options.fail_on)]
        if reached:
            self.failed = True
            pytest.fail(f"{headline(reached, self.options.fail_on)}\n\n{render(self.report)}", pytrace=False)

    def attach(self, result: pytest.TestReport) -> None:
        """Put the findings on pytest's report: as data, and as a section where the failure does not show them yet."""
        if self.report is None:
            return
        if self.report.findings and not self.failed:
            result.sections.append(("devguard", render(self.report)))
        setattr(result, DATA, _plain(self.report))


def headline(findings: list[Finding], level: str) -> str:
    """How many findings of which rules failed the test."""
    rules = ", ".join(dict.fromkeys(found.rule for found in findings))
    many = "finding" if len(findings) == 1 else "findings"
    return f"devguard: {len(findings)} {many} at or above {level}: {rules}"


def _plain(report: Report) -> dict[str, Any]:
    data = to_dict(report)
    data["command"] = []  # the same for all tests
    return data
