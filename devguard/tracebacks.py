"""Tracebacks as they would be without devguard: for the doors that show an exception that nobody caught."""

from __future__ import annotations

import os
import types
from pathlib import Path

_OWN_FOLDER = os.path.join(str(Path(__file__).resolve().parent), "")
_CALLED_BY_US = os.path.join("torch", "_ops.py")  # the frame in which a dispatch mode runs the op itself


def without_own_frames(error: BaseException) -> None:
    """Take devguard's frames out of the traceback, and out of those of the exceptions it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        steps = []
        step, ours = one.__traceback__, False
        while step is not None:
            file = step.tb_frame.f_code.co_filename
            ours = file.startswith(_OWN_FOLDER) or (ours and file.endswith(_CALLED_BY_US))
            if not ours:
                steps.append(step)
            step = step.tb_next
        chain: types.TracebackType | None = None
        for step in reversed(steps):
            chain = types.TracebackType(chain, step.tb_frame, step.tb_lasti, step.tb_lineno)
        one.__traceback__ = chain
