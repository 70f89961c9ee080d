"""Whatever of devguard fails, the program ends as it would without devguard, and the report says what was switched off."""

from __future__ import annotations

import importlib

import pytest

import devguard
from devguard.observe.recorder import Recorder
from devguard.rules import engine
from tests.robustness.program import run


def switched_off(watch: devguard.Watch) -> list[str]:
    return [entry.what for entry in watch.report.not_seen if "switched off" in entry.what]


@pytest.fixture(scope="module")
def expected():
    with devguard.simulate("cuda:1"):
        return run("cuda")


def parts() -> list[str]:
    """The names under which observers shield their handlers."""
    found: list[str] = []
    original = Recorder.shielded

    def listen(self, part, function):
        found.append(part)
        return original(self, part, function)

    Recorder.shielded = listen
    try:
        with devguard.simulate("cuda:1"), devguard.watch():
            run("cuda", steps=1)
    finally:
        Recorder.shielded = original
    return sorted(set(found))


PARTS = parts()


@pytest.mark.parametrize("broken", PARTS)
def test_a_handler_that_fails_is_switched_off_and_told(broken, monkeypatch, expected):
    original = Recorder.shielded

    def sabotage(self, part, function):
        def fails(*args, **kwargs):
            raise KeyError("injected")

        return original(self, part, fails if part == broken else function)

    monkeypatch.setattr(Recorder, "shielded", sabotage)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        assert run("cuda") == expected
    told = switched_off(watch)
    assert all(f"'{broken}'" in what for what in told)
    assert watch.report.complete is (not told)


def observers() -> list[type]:
    return list(importlib.import_module("devguard.watch")._OBSERVERS)


@pytest.mark.parametrize("kind", observers(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("method", ["__init__", "start", "stop"])
def test_an_observer_that_cannot_start_or_stop_is_told(kind, method, monkeypatch, expected):
    original = getattr(kind, method)

    def fails(self, *args, **kwargs):
        if method == "stop":
            original(self, *args, **kwargs)  # else its hooks would stay, and that is another test's subject
        raise KeyError("injected")

    monkeypatch.setattr(kind, method, fails)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        assert run("cuda") == expected
    assert switched_off(watch)


def checks() -> list[tuple[str, int]]:
    return [
        (family, index)
        for family in engine.FAMILIES
        for index in range(len(importlib.import_module(f"devguard.rules.{family}").CHECKS))
    ]


@pytest.mark.parametrize(("family", "index"), checks())
def test_a_rule_that_fails_leaves_the_others_findings(family, index, monkeypatch):
    module = importlib.import_module(f"devguard.rules.{family}")
    checks = list(module.CHECKS)

    def broken(facts):
        raise KeyError("injected")

    checks[index] = broken
    monkeypatch.setattr(module, "CHECKS", tuple(checks))
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        run("cuda")
    assert watch.report.findings
    assert switched_off(watch)


def test_a_report_that_cannot_be_built_does_not_end_the_program(monkeypatch, expected):
    monkeypatch.setattr(engine, "rank", lambda found: 1 / 0)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        assert run("cuda") == expected
    assert "ZeroDivisionError" in switched_off(watch)[0]
