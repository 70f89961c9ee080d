"""Every entry of PyTorch's own tables on a simulated device: `python -m tests.simulate.sweep`.

Prints what differs from the CPU, one line each, and the counts. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from devguard.simulate import simulate
from tests.simulate import oracles

Check = Callable[[], "oracles.Difference | None"]


def checks(table: str, samples: int | None) -> Iterator[tuple[str, Check]]:
    """The name of each entry of a table and its check."""
    if table == "op_db":
        entries: Iterator[Any] = oracles.entries()
        check: Callable[..., Any] = functools.partial(oracles.check_op, samples=samples)
    elif table == "module_db":
        entries, check = oracles.module_entries(), functools.partial(oracles.check_module, samples=samples)
    else:
        entries, check = oracles.optimizer_entries(), oracles.check_optimizer
    for name, *rest in entries:
        yield name, functools.partial(check, name, *rest)


def sweep(table: str, every: int, samples: int | None, only: str, tell: Callable[[str], object]) -> tuple[int, int]:
    """Check a table; returns how many entries were right, and of how many. `tell` gets a line for each other one."""
    right = total = 0
    for i, (name, check) in enumerate(checks(table, samples)):
        if i % every or only not in name:
            continue
        total += 1
        found = check()
        right += found is None
        if found is not None:
            tell(f"{table} {found.entry}: {found.what}")
    return right, total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["op_db", "module_db", "optim_db"])
    parser.add_argument("--every", type=int, default=1, help="only every n-th entry")
    parser.add_argument(
        "--samples", type=int, default=None, help="only so many samples of an op or a module (default: all)"
    )
    parser.add_argument("--only", default="", help="only entries whose name contains this")
    options = parser.parse_args()
    wrong = 0
    with simulate("cuda:1"):
        for table in options.tables:
            begin = time.perf_counter()
            right, total = sweep(
                table, options.every, options.samples, options.only, lambda line: print(line, flush=True)
            )
            wrong += total - right
            share = 100 * right / max(total, 1)
            print(f"{table}: {right} of {total} entries as on the CPU ({share:.2f} %), {time.perf_counter() - begin:.0f} s",
                  flush=True)  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
