"""`devguard doctor`: each check as a function of facts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from devguard.cli import main
from devguard.doctor import CHECKS, RULES, Environment, Gpu, diagnose, gather
from devguard.rules.catalog import CATALOG

GIB = 1024**3
GPU = Gpu("Some GPU", (9, 0), 80 * GIB, GIB)
FIT = Environment(
    torch="2.13.0",
    built_with="12.8",
    available=True,
    architectures=("sm_80", "sm_90", "compute_90"),
    physical=2,
    visible=(GPU, GPU),
    driver="570.1",
    driver_cuda=(12, 8),
)


def found(**changes: Any) -> list[tuple[str, str]]:
    return [(one.rule, one.level) for one in diagnose(dataclasses.replace(FIT, **changes))]


def gpu(**changes: Any) -> tuple[Gpu, ...]:
    return (dataclasses.replace(GPU, **changes),)


def test_a_fit_environment_gives_nothing() -> None:
    assert found() == []


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert diagnose(Environment()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"built_with": None, "available": False, "visible": ()}, [("DG401", "error")]),
        ({"built_with": None, "available": False, "visible": (), "physical": 0}, []),
        ({"driver_cuda": (11, 8), "available": False, "visible": ()}, [("DG402", "error")]),
        ({"driver_cuda": (12, 2)}, []),
        ({"driver_cuda": (13, 0)}, []),
        ({"variables": {"CUDA_VISIBLE_DEVICES": ""}, "available": False, "visible": ()}, [("DG403", "error")]),
        ({"variables": {"CUDA_VISIBLE_DEVICES": "-1"}, "available": False, "visible": ()}, [("DG403", "error")]),
        ({"variables": {"CUDA_VISIBLE_DEVICES": "0,2,1"}}, [("DG403", "error")]),
        ({"variables": {"CUDA_VISIBLE_DEVICES": "1"}}, [("DG403", "note")]),
        ({"variables": {"CUDA_VISIBLE_DEVICES": "GPU-12ab,GPU-34cd"}}, []),
        ({"visible": gpu(capability=(12, 0))}, []),
        ({"visible": gpu(capability=(12, 0)), "architectures": ("sm_80", "sm_90")}, [("DG404", "error")]),
        ({"visible": gpu(capability=(8, 6)), "architectures": ("sm_80", "sm_90")}, []),
        ({"visible": gpu(capability=(7, 5))}, [("DG404", "error")]),
        ({"visible": gpu(capability=(10, 0)), "architectures": ("sm_90a",)}, [("DG404", "error")]),
        ({"visible": gpu(held_by_others=40 * GIB)}, [("DG405", "warning")]),
        ({"variables": {"LOCAL_RANK": "2"}}, [("DG406", "error")]),
        ({"variables": {"LOCAL_RANK": "x"}}, [("DG406", "error")]),
        ({"variables": {"LOCAL_RANK": "1"}}, []),
        ({"available": False, "visible": (), "problem": "no driver"}, [("DG407", "error")]),
        ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, [("DG408", "warning")]),
        ({"variables": {"CUDA_LAUNCH_BLOCKING": "0"}}, []),
    ],
)
def test_each_check(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(**changes) == expected


def test_codes_are_not_those_of_other_rules() -> None:
    assert not set(RULES) & set(CATALOG)
    assert len(CHECKS) == len(RULES)


def test_the_problem_is_part_of_the_message() -> None:
    (one,) = diagnose(dataclasses.replace(FIT, available=False, visible=(), problem="no driver"))
    assert one.message.endswith(": no driver")


def test_facts_of_this_machine_can_be_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    facts = gather()
    assert facts.torch
    assert facts.variables["LOCAL_RANK"] == "0"


@pytest.mark.parametrize(("facts", "status"), [(FIT, 0), (dataclasses.replace(FIT, driver_cuda=(11, 0)), 1)])
def test_the_command_in_text_and_json(
    facts: Environment, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("devguard.doctor.gather", lambda: facts)
    assert main(["doctor"]) == status
    assert "cuda:0 Some GPU" in capsys.readouterr().out
    assert main(["doctor", "--format", "json"]) == status
    data = json.loads(capsys.readouterr().out)
    assert data["environment"]["driver"] == "570.1"
    assert [one["rule"] for one in data["findings"]] == ["DG402"] * status
