"""From the facts of a run to its report: rules, then policy."""

from __future__ import annotations

import platform
import sys
from datetime import datetime, timezone

from devguard import policy
from devguard._version import __version__
from devguard.observe.facts import Facts
from devguard.observe.symbolize import users_line
from devguard.options import Options
from devguard.report.model import NotSeen, RaisedException, Report
from devguard.report.transfers import transfers
from devguard.rules import engine


def _rank(environment: dict[str, str]) -> int | None:
    rank = environment.get("RANK", "")
    return int(rank) if rank.isdigit() else None


def incomplete_report(facts: Facts) -> Report:
    """What can still be said when building the report failed: why."""
    failed = [
        NotSeen(f"devguard's own part '{f.part}' failed and was switched off: {f.problem}", 1) for f in facts.failures
    ]
    return Report(version=__version__, steps=facts.steps, ops=facts.ops, complete=False, not_seen=failed)


def build_report(facts: Facts, options: Options, *, started: float, seconds: float, own_seconds: float = 0.0) -> Report:
    """The report of a run as far as it has come. Pure but for reading source files; can be called at any moment."""
    torch = sys.modules.get("torch")
    found = engine.findings(facts)
    not_seen = [NotSeen(entry.what, entry.tally.count, users_line(entry.site)) for entry in facts.unseen.values()]
    not_seen += [
        NotSeen(f"devguard's own part '{f.part}' failed and was switched off: {f.problem}", 1) for f in facts.failures
    ]
    if facts.skipped_steps:
        not_seen.append(NotSeen(f"steps between the watched ones (every={options.every})", facts.skipped_steps))
    report = Report(
        version=__version__,
        torch=str(getattr(torch, "__version__", "")),  # TorchVersion is no plain text
        python=platform.python_version(),
        command=list(getattr(sys, "orig_argv", sys.argv)),
        devices=list(facts.devices),
        simulated=facts.simulated,
        rank=_rank(facts.environment),
        steps=facts.steps + facts.skipped_steps,
        ops=facts.ops,
        started=datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="milliseconds"),
        seconds=round(seconds, 6),
        own_seconds=round(own_seconds, 6),
        complete=not facts.failures,
        exception=RaisedException(facts.exception.type, facts.exception.message) if facts.exception else None,
        findings=found,
        transfers=transfers(facts),
        not_seen=not_seen,
    )
    return policy.apply(report, options)
