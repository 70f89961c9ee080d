"""The full proof as one command: ``python -m tests.transparency.sweep`` runs every entry with and without a watch."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

import devguard
from tests.transparency.outcome import outcome
from tests.transparency.subjects import Subject, error_subjects, module_subjects, op_subjects, optimizer_subjects


class EmptyMode(TorchDispatchMode):
    """A dispatch mode that does nothing: PyTorch chooses other formulas for a few gradients under any mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def differences(subjects: Iterable[Subject], inherent: list[str] | None = None) -> tuple[int, list[str]]:
    """(how many subjects ran, what differs under a watch). What an empty dispatch mode changes in the same way goes to `inherent`."""
    inherent = [] if inherent is None else inherent
    count, found = 0, []
    for name, code in subjects:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = outcome(code)
            with devguard.watch() as watch:
                watched = outcome(code)
        count += 1
        difference = plain.differs_from(watched)
        if difference and outcome(code).differs_from(plain):
            continue  # two plain runs differ already
        if difference:
            with EmptyMode():
                owed_to_modes = outcome(code).differs_from(watched) == ""
            (inherent if owed_to_modes else found).append(f"{name}: {difference}")
        failures = [entry.what for entry in watch.report.not_seen if "switched off" in entry.what]
        found.extend(f"{name}: {what}" for what in failures)
    return count, found


def main() -> int:
    """Run everything; exit status 1 when something differs."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    inherent: list[str] = []
    subjects = itertools.chain(
        op_subjects(every), error_subjects(every), module_subjects(every), optimizer_subjects(every)
    )
    count, found = differences(subjects, inherent)
    print("\n".join([*(f"under any dispatch mode: {line}" for line in inherent), *found]))
    print(f"{count} subjects: {len(found)} differ under a watch, {len(inherent)} more under any dispatch mode")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
