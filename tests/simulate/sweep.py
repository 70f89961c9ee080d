"""Every entry of PyTorch's own tables on a simulated device: `python -m tests.simulate.sweep`.

Prints what differs from the CPU, one line each, and the counts. Exit status 1 if more than --allow of them differ.
"""

from __future__ import annotations

import argparse
import sys
import time

from devguard.simulate import simulate
from tests.simulate import oracles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only every n-th entry")
    parser.add_argument("--samples", type=int, default=None, help="only so many samples of an entry (default: all)")
    parser.add_argument("--only", default="", help="only entries whose name contains this")
    options = parser.parse_args()
    failed, total, begin = [], 0, time.perf_counter()
    with simulate("cuda:1"):
        for i, (name, op, dtype) in enumerate(oracles.entries()):
            if i % options.every or options.only not in name:
                continue
            total += 1
            found = oracles.check_op(name, op, dtype, options.samples)
            if found:
                failed.append(found)
                print(f"{found.entry}: {found.what}", flush=True)
    share = 100 * (total - len(failed)) / max(total, 1)
    print(f"op_db: {total - len(failed)} of {total} entries as on the CPU ({share:.2f} %), {time.perf_counter() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
