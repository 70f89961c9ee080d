"""One pytest session under devguard: its settings, its simulation, and what all its tests found together."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from devguard.autostart import switched_off, switched_on
from devguard.report.model import NotSeen, Report, Transfer
from devguard.rules.finding import LEVELS, Finding

if TYPE_CHECKING:
    from devguard.options import Options
    from devguard.pytest_plugin import Setting
    from devguard.simulate import Simulation

_NOT_PER_TEST = ("report", "help", "color")
_SHOWN = 20  # findings that the summary lists


class Session:
    """The settings of one pytest run, what it simulates, and the findings of its tests."""

    def __init__(self, config: pytest.Config, arguments: Any, settings: Sequence[Setting]) -> None:
        self.config = config
        self.off = switched_off()
        values = {setting.name: _value(config, arguments, setting) for setting in settings}
        watching, _ = values.pop("")
        self.every_test = not self.off and (bool(watching) or switched_on())
        self.given = {name: value for name, value in values.items() if value[0] is not None}
        self.found: list[tuple[str, Report]] = []
        self._simulation: Simulation | None = None

    @functools.cached_property
    def options(self) -> Options:
        """What holds for all tests. Loaded only when something is watched: no other run may fail for bad options."""
        from devguard.options import Options, OptionsError, parse_value

        try:
            return Options.load(**{name: parse_value(name, *value) for name, value in self.given.items()})
        except OptionsError as problem:
            raise pytest.UsageError(f"devguard: {problem}") from None

    @functools.cached_property
    def simulated(self) -> str | None:
        """What the whole session simulates. DEVGUARD_OPTIONS and pyproject.toml count only if it is watched."""
        if self.off or not (self.every_test or "simulate" in self.given):
            return None
        return self.options.simulate

    @functools.cached_property
    def targets(self) -> list[str]:
        """Where the session's report goes."""
        return (
            [_absolute(target) for target in self.options.report] if "report" in self.given or self.every_test else []
        )

    def open(self) -> None:
        """Start the session's simulation. Raises UsageError where that can't be, and for bad options."""
        if self.given or self.every_test:
            _ = self.options, self.targets  # complain now, not at the first test, and take paths from this folder
        if self.simulated is None:
            return
        from devguard.simulate import active, simulate

        running = active()
        if running is not None:
            raise pytest.UsageError(
                f"devguard: can't simulate {self.simulated}: {running.spec} is being simulated already"
            )
        try:
            self._simulation = simulate(self.simulated, memory=self.options.memory).start()
        except (ValueError, RuntimeError) as problem:
            raise pytest.UsageError(f"devguard: can't simulate {self.simulated}: {problem}") from None

    def close(self) -> None:
        """End the session's simulation."""
        if self._simulation is not None:
            self._simulation.stop()
            self._simulation = None

    def header(self) -> str | None:
        """The line for pytest's header."""
        if self.off:
            return "devguard: off (DEVGUARD=0)"
        parts = ["watching every test"] if self.every_test else []
        if self.simulated is not None:
            parts.append(f"simulating {self.simulated}")
        return f"devguard: {', '.join(parts)}" if parts else None

    # -- one test -----------------------------------------------------------------------------------------------------

    def wants(self, item: pytest.Item) -> bool:
        """Is this test to be watched: by the whole run, its marker, or its fixture?"""
        if "device_watch" in getattr(item, "fixturenames", ()):
            return True
        return not self.off and (self.every_test or item.get_closest_marker("devguard") is not None)

    def options_for(self, item: pytest.Item) -> Options:
        """The options of one test: its markers go before the session's. Raises UsageError for bad ones."""
        from devguard.options import OptionsError, parse_value

        given: dict[str, Any] = {}
        for mark in reversed(list(item.iter_markers("devguard"))):  # the closest one last: it wins
            where = f"{item.nodeid}: @pytest.mark.devguard"
            if mark.args:
                raise pytest.UsageError(f"{where} takes keywords only, such as fail_on='warning'")
            for name, value in mark.kwargs.items():
                if name in _NOT_PER_TEST:
                    raise pytest.UsageError(f"{where}: {name} is for the whole run, not for a test")
                try:
                    parsed = parse_value(name, value, where)
                except OptionsError as problem:
                    raise pytest.UsageError(str(problem)) from None
                given[name] = (*given.get(name, ()), *parsed) if name == "ignore" else parsed
        if "ignore" in given:
            given["ignore"] = (*self.options.ignore, *given["ignore"])
        given.setdefault("simulate", self.simulated)
        return dataclasses.replace(self.options, **given)

    # -- all tests ----------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what devguard said about a test, whichever process ran it."""
        data = report.__dict__.pop("devguard", None)
        if data is not None and not hasattr(self.config, "workerinput"):
            from devguard.report.json import from_dict

            self.found.append((report.nodeid, from_dict(data)))

    def summarize(self, reporter: pytest.TerminalReporter) -> None:
        """The summary of all tests on the terminal, and the reports that were asked for."""
        if self.found:
            reporter.section("devguard")
            for line in summary([(nodeid, report.findings) for nodeid, report in self.found]):
                reporter.line(line)
        if self.targets and not hasattr(self.config, "workerinput"):
            from devguard.report.write import emit

            whole = merge([report for _, report in self.found])
            whole.command = ["pytest", *self.config.invocation_params.args]
            emit(whole, self.targets, color=self.options.color, on_stderr=False)


def _value(config: pytest.Config, arguments: Any, setting: Setting) -> tuple[Any, str]:
    """What the user gave for a setting, and where: the command line goes before the ini file. None: nothing."""
    value = getattr(arguments, setting.key, None)
    if value not in (None, []):
        return value, setting.option
    value = config.getini(setting.key)
    return (None if value in ("", []) else value), f"ini key {setting.key}"


def _absolute(target: str) -> str:
    """A report's path from the folder that pytest was started in: tests may change it."""
    kind, _, path = target.partition(":")
    return target if path == "-" else f"{kind}:{os.path.abspath(path)}"


def key_of(finding: Finding) -> tuple[object, ...]:
    """Two findings with one key, from two tests, are the same defect."""
    site = finding.cause or finding.where
    return (finding.rule, finding.fingerprint, site and (site.file, site.line))


def merge(reports: Sequence[Report]) -> Report:
    """All tests' reports as one: counts added up, a defect that several tests met once."""
    whole = Report() if not reports else dataclasses.replace(reports[0], exception=None)
    whole.steps, whole.ops = sum(r.steps for r in reports), sum(r.ops for r in reports)
    whole.seconds, whole.own_seconds = sum(r.seconds for r in reports), sum(r.own_seconds for r in reports)
    whole.complete = all(report.complete for report in reports)
    whole.devices = list(dict.fromkeys(device for report in reports for device in report.devices))
    whole.simulated = any(report.simulated for report in reports)
    whole.transfers, whole.not_seen = _transfers(reports), _not_seen(reports)
    found: dict[tuple[object, ...], Finding] = {}
    for finding in (finding for report in reports for finding in report.findings):
        known = found.setdefault(key_of(finding), finding)
        if known is not finding:
            known.count += finding.count
            known.bytes += finding.bytes
            known.seconds += finding.seconds
            known.per_step = max(known.per_step, finding.per_step)
            known.level = max(known.level, finding.level, key=LEVELS.index)
    whole.findings = sorted(found.values(), key=lambda f: -LEVELS.index(f.level))
    return whole


def _transfers(reports: Sequence[Report]) -> list[Transfer]:
    found: dict[tuple[object, ...], Transfer] = {}
    for item in (item for report in reports for item in report.transfers):
        key = (item.site, item.source, item.target, item.implicit, item.blocking, item.pinned)
        known = found.setdefault(key, dataclasses.replace(item, count=0, bytes=0))
        known.count += item.count
        known.bytes += item.bytes
    return list(found.values())


def _not_seen(reports: Sequence[Report]) -> list[NotSeen]:
    found: dict[tuple[object, ...], NotSeen] = {}
    for item in (item for report in reports for item in report.not_seen):
        known = found.setdefault((item.what, item.site), dataclasses.replace(item, count=0))
        known.count += item.count
    return list(found.values())


def summary(found: Sequence[tuple[str, Sequence[Finding]]]) -> list[str]:
    """One line per defect, worst first, with the tests that met it."""
    tests: dict[tuple[object, ...], list[str]] = {}
    first: dict[tuple[object, ...], Finding] = {}
    for nodeid, findings in found:
        for finding in findings:
            key = key_of(finding)
            if key not in first or LEVELS.index(finding.level) > LEVELS.index(first[key].level):
                first[key] = finding
            tests.setdefault(key, []).append(nodeid)
    many = "test" if len(found) == 1 else "tests"
    if not first:
        return [f"{len(found)} {many} watched, no findings"]
    counts = {level: sum(f.level == level for f in first.values()) for level in reversed(LEVELS)}
    told = ", ".join(f"{n} {level}{'s' * (n != 1)}" for level, n in counts.items() if n)
    lines = [f"{len(found)} {many} watched: {told}"]
    ranked = sorted(first, key=lambda key: (-LEVELS.index(first[key].level), -len(tests[key])))
    for key in ranked[:_SHOWN]:
        finding, met = first[key], list(dict.fromkeys(tests[key]))
        site = finding.cause or finding.called_from or finding.where
        place = f"{os.path.relpath(site.file)}:{site.line}: " if site else ""
        more = f" and {len(met) - 1} more" if len(met) > 1 else ""
        lines.append(f"{place}{finding.level} {finding.rule} {finding.name}: {finding.message} [{met[0]}{more}]")
    if len(ranked) > _SHOWN:
        lines.append(f"... and {len(ranked) - _SHOWN} more: --devguard-report=text:PATH writes them all")
    return lines
