"""After every test, nothing of devguard's may be left: no hook, mode, patched name, thread or simulation."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest_plugins = ["pytester"]

# What devguard may patch: looked at by identity, so that a wrapper left behind shows whatever it is called.
_OWNERS = (
    "torch",
    "torch.Tensor",
    "torch._C.TensorBase",
    "torch.cuda",
    "torch.accelerator",
    "torch.amp",
    "torch.autograd",
    "torch.utils.data.DataLoader",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.nn.functional",
    "torch.optim.Optimizer",
    "torch.random",
    "torch.serialization",
    "torch.cuda.Stream",
    "torch.cuda.Event",
    "torch.cuda.random",
    "torch.cuda.memory",
    "threading.Thread",
)
_NOT_OURS = ("torch.manual_seed", "torch.nn.Module.__init__")  # torch._dynamo wraps them for good
_HOOK_TABLES = {
    "torch.nn.modules.module": (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
        "_global_module_registration_hooks",
        "_global_parameter_registration_hooks",
        "_global_buffer_registration_hooks",
    ),
    "torch.optim.optimizer": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
}


def _resolve(path: str) -> Any:
    first, *rest = path.split(".")
    found = sys.modules.get(first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def _names() -> dict[str, int]:
    """Every name that could be patched -> the identity of what it means."""
    found = {
        "sys.excepthook": id(sys.excepthook),
        "sys.exit": id(sys.exit),
        "builtins.print": id(builtins.print),
        "threading.excepthook": id(threading.excepthook),
    }
    if "torch" in sys.modules:
        for path in _OWNERS:
            # sub-modules are imported when they are first needed: that is no patch
            for name, value in list(vars(_resolve(path)).items()):
                if not (name.startswith("__") and name not in _DUNDERS) and type(value).__name__ != "module":
                    found[f"{path}.{name}"] = id(value)
    return found


_DUNDERS = ("__repr__", "__format__", "__array__", "__len__", "__getitem__", "__setitem__", "__setattr__", "__call__")
_DUNDERS += ("__init__", "__iter__", "__contains__", "__bool__", "__int__", "__float__", "__index__", "__deepcopy__")


def _leftovers(before: dict[str, int]) -> list[str]:
    """What is there and should not be, in words."""
    if "torch" not in sys.modules:
        return []
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    found = [f"dispatch mode {type(mode).__name__}" for mode in _get_current_dispatch_mode_stack()]
    found += [f"function mode {type(mode).__name__}" for mode in _get_current_function_mode_stack()]
    for module, tables in _HOOK_TABLES.items():
        found += [f"hook in {module}.{name}" for name in tables if getattr(sys.modules[module], name, None)]
    state = sys.modules.get("devguard.simulate.state")
    if state is not None and state.active() is not None:
        found.append(f"simulation of {state.active().spec}")
    if type(vars(sys.modules["torch"].nn.Module)["__init__"]).__name__ == "Proxy":
        found.append("wrapped constructor of torch.nn.Module")
    found += [f"thread {thread.name}" for thread in threading.enumerate() if "devguard" in thread.name.lower()]
    after = _names()
    found += [f"patched name {name}" for name, old in before.items() if after.get(name, 0) != old]
    if any(name.startswith("torch.Tensor.") for name in before):  # else this test was the first to import torch
        found += [f"new name {name}" for name in after.keys() - before.keys()]
    return sorted(entry for entry in found if not entry.endswith(_NOT_OURS))


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    """Fail the test that leaves something behind."""
    before = _names()
    yield
    left = _leftovers(before)
    if left:
        pytest.fail(f"left behind by this test: {', '.join(left[:20])}", pytrace=False)


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' results must not depend on the developer's environment."""
    for name in (
        "DEVGUARD",
        "DEVGUARD_OPTIONS",
        "DEVGUARD_PARENT_PID",
        "NO_COLOR",
        "FORCE_COLOR",
        "RANK",
        "WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
