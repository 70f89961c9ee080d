"""What waits for the accelerator, and what doesn't: every fact that is known for sure, run on a simulated device."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import devguard
from devguard.knowledge.syncs import holds_for, sync_ops, version_tuple
from devguard.knowledge.syncs_advice import ADVICE, advice
from devguard.knowledge.syncs_conditions import CONDITIONS
from devguard.knowledge.syncs_library import COMPOSITES, LIBRARY
from devguard.knowledge.syncs_table import NEVER, SYNC_OPS, SyncOp
from devguard.rules.catalog import CATALOG
from tests.knowledge.syncs_calls import GROUPS, SETUP, SYNC_WARNING, Call


def source_of(calls: tuple[Call, ...]) -> str:
    """One function for each call, so that a finding says by its function which call it belongs to."""
    return SETUP + "".join(f"\n\ndef call_{index}():\n    {call.code}\n" for index, call in enumerate(calls))


def waits_of(
    calls: tuple[Call, ...], folder: Path, mode: Any = contextlib.nullcontext
) -> dict[str, dict[str, int] | str]:
    """For each call, by its label: the waits by rule, or what it raised."""
    path = folder / "calls.py"
    path.write_text(source_of(calls))
    names: dict[str, Any] = {"__name__": "calls"}
    raised: dict[int, str] = {}
    with devguard.simulate("cuda:1"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with devguard.watch() as watch:
            with mode():
                exec(compile(path.read_text(), str(path), "exec"), names)
            for index in range(len(calls)):
                try:
                    with mode():
                        names[f"call_{index}"]()
                except Exception as error:
                    raised[index] = f"{type(error).__name__}: {error}"
        report = watch.report
    assert report.complete, report.not_seen
    waits: list[Counter[str]] = [Counter() for _ in calls]
    for found in report.findings:
        if found.rule.startswith("DG2") and found.cause is not None and found.cause.function.startswith("call_"):
            waits[int(found.cause.function.partition("_")[2])][found.rule] += found.count
    return {call.label: raised.get(index) or dict(waits[index]) for index, call in enumerate(calls)}


def expected(call: Call) -> dict[str, int]:
    """The waits of a call in the release of PyTorch that runs."""
    gone = call.until and version_tuple(torch.__version__) >= version_tuple(call.until)
    return {} if gone else call.expected


@pytest.mark.parametrize("group", GROUPS)
def test_a_call_waits_as_often_as_on_cuda(group: str, tmp_path: Path) -> None:
    assert waits_of(GROUPS[group], tmp_path) == {call.label: expected(call) for call in GROUPS[group]}


def test_a_call_waits_as_often_in_inference_mode(tmp_path: Path) -> None:
    other_way = ("backward", "pickle", "ctc_loss")  # no gradients there, and PyTorch composes one otherwise
    chosen = tuple(c for calls in GROUPS.values() for c in calls if not any(word in c.code for word in other_way))
    assert waits_of(chosen, tmp_path, torch.inference_mode) == {call.label: expected(call) for call in chosen}


@pytest.mark.parametrize("call", SYNC_WARNING, ids=[call.label for call in SYNC_WARNING])
def test_the_guard_agrees_with_pytorchs_own_test_of_its_sync_warnings(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "call.py"
    path.write_text(source_of((call,)))
    names: dict[str, Any] = {"__name__": "calls"}
    with devguard.simulate("cuda:1"), devguard.watch():
        exec(compile(path.read_text(), str(path), "exec"), names)
        with devguard.guard(sync="error"):
            try:
                names["call_0"]()
                waits = 0
            except devguard.DeviceGuardError:
                waits = 1
    assert {"": waits} == call.expected


def test_an_entry_of_the_table_names_what_exists() -> None:
    for sync in (entry for entries in sync_ops().values() for entry in entries):
        if not sync.op.startswith("aten::"):
            continue  # of a library that may not be installed
        overloads = getattr(torch.ops.aten, sync.op.removeprefix("aten::"))
        names = {name if name != "default" else "" for name in overloads.overloads()}
        assert set(sync.overloads) <= names, sync
        assert sync.when in CONDITIONS, sync
        assert sync.rule in CATALOG, sync
        assert sync.source, sync
        assert not sync.advice or sync.advice in ADVICE, sync
        chosen = sync.overloads or tuple(names)
        assert any(sync.subject in _arguments(overloads, name) for name in chosen), sync


def _arguments(packet: Any, overload: str) -> set[str]:
    return {argument.name for argument in getattr(packet, overload or "default")._schema.arguments}


def test_no_op_is_said_to_wait_and_never_to_wait() -> None:
    assert not NEVER & {sync.op for sync in SYNC_OPS}


def test_a_library_entry_names_a_file_of_torch() -> None:
    root = Path(torch.__file__).parent
    for entry in LIBRARY:
        path = root / entry.file
        assert path.is_dir() or any(root.glob(f"{entry.file}*")), entry
        assert not entry.advice or entry.advice in ADVICE, entry
        if entry.function and path.is_file():
            assert f"def {entry.function}(" in path.read_text(), entry


def test_every_composite_has_advice() -> None:
    assert all(advice in ADVICE for _, _, advice in COMPOSITES.values())


@pytest.mark.parametrize(
    ("since", "until", "version", "holds"),
    [
        ("", "", "2.13.0", True),
        ("2.9", "", "2.8.1", False),
        ("2.9", "", "2.9.0+cpu", True),
        ("", "2.10", "2.9.1", True),
        ("", "2.10", "2.10.0", False),
    ],
)
def test_an_entry_holds_for_its_versions(since: str, until: str, version: str, holds: bool) -> None:
    entry = SyncOp("aten::nonzero", "DG203", "dynamic-shape", since=since, until=until)
    assert holds_for(entry, version_tuple(version)) is holds


def test_the_table_is_looked_up_by_schema_name() -> None:
    assert {sync.rule for sync in sync_ops()["aten::index"]} == {"DG203", "DG301"}


def test_advice_is_code_that_python_accepts() -> None:
    assert "sum (x + 1).detach() up" in advice("item", "x + 1")
    assert "sum x.sum().detach() up" in advice("item", "x.sum()")
