"""Keep torch.compile's frame evaluation out of devguard's own frames."""

from __future__ import annotations

import sys
from types import ModuleType

import wrapt

_RULES = "torch._dynamo.trace_rules"


def keep_dynamo_out() -> None:
    """Have Dynamo pass over devguard's frames, now or when it is first imported.

    PyTorch's own way, a wrapper around every `__torch_dispatch__`, imports Dynamo at the first op (over a second of start-up) and
    costs as much per op as the rest of an empty mode."""
    if _RULES in sys.modules:
        _skip_devguard(sys.modules[_RULES])
    else:
        wrapt.register_post_import_hook(_skip_devguard, _RULES)


def _skip_devguard(rules: ModuleType) -> None:
    rules.add("devguard")
