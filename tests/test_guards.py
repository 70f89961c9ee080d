"""allow() and guard(): scopes by context, thread and task, and the check at event time."""

from __future__ import annotations

import _thread
import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import devguard
from devguard.observe import scopes
from devguard.options import OptionsError


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No guard here needs a watch of its own; and nothing may stay open."""
    import sys

    monkeypatch.setitem(sys.modules, "devguard.watch", SimpleNamespace(running=lambda: True, Watch=None))  # type: ignore[misc]
    yield
    assert scopes.active() == ()
    assert scopes._open.all == ()


def copy(direction: str = "h2d", implicit: bool = True) -> str | None:
    return scopes.check("copy", direction, implicit, lambda: "x[0] = y copies")  # type: ignore[arg-type]


def sync(implicit: bool = False) -> str | None:
    return scopes.check("sync", "d2h", implicit, lambda: "loss.item() waits")


def test_without_a_guard_nothing_is_said() -> None:
    assert (copy(), sync()) == (None, None)


def test_error_raises_one_line_that_names_the_guard() -> None:
    with devguard.guard(sync="error"), pytest.raises(devguard.DeviceGuardError) as caught:
        sync()
    assert str(caught.value) == "loss.item() waits: forbidden here by devguard.guard(sync='error')"


def test_each_direction_has_its_own_level() -> None:
    with devguard.guard(h2d="error", d2h="log", d2d="allow"):
        with pytest.raises(devguard.DeviceGuardError, match="h2d='error'"):
            copy("h2d")
        assert copy("d2h") == "log"
        assert copy("d2d") == "allow"
        assert scopes.check("sync", None, False, str) is None


def test_asked_for_copies_are_exempt_unless_told_otherwise() -> None:
    with devguard.guard(h2d="error"):
        assert copy(implicit=False) is None
    with devguard.guard(h2d="error", implicit_only=False), pytest.raises(devguard.DeviceGuardError):
        copy(implicit=False)


def test_the_innermost_guard_that_speaks_of_a_kind_decides() -> None:
    with devguard.guard(sync="error", h2d="error"), devguard.guard(sync="allow"):
        assert sync() == "allow"
        with pytest.raises(devguard.DeviceGuardError):
            copy()


def test_a_guard_ends_with_its_block_also_by_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), devguard.guard(sync="error"):
        raise ZeroDivisionError
    assert sync() is None


def test_a_guard_decorates_functions_that_call_themselves() -> None:
    @devguard.guard(sync="log")
    def depth(n: int) -> list[str | None]:
        return [sync(), *(depth(n - 1) if n else [])]

    assert depth(2) == ["log"] * 3
    assert sync() is None


def test_a_guard_decorates_coroutines() -> None:
    @devguard.guard(sync="log")
    async def inside() -> str | None:
        await asyncio.sleep(0)
        return sync()

    async def both() -> tuple[str | None, str | None]:
        task = asyncio.ensure_future(inside())
        await asyncio.sleep(0)
        return sync(), await task

    assert asyncio.run(both()) == (None, "log")


def test_a_guard_belongs_to_its_thread() -> None:
    found: list[str | None] = []
    with devguard.guard(sync="error"):
        thread = threading.Thread(target=lambda: found.append(sync()))
        thread.start()
        thread.join()
    assert found == [None]


def test_a_thread_that_python_did_not_start_obeys_every_open_guard() -> None:
    found: list[str | None] = []
    with devguard.guard(sync="log"):
        _thread.start_new_thread(lambda: found.append(sync()), ())
        end = time.monotonic() + 20
        while not found and time.monotonic() < end:
            time.sleep(0.001)
    assert found == ["log"]


def test_one_guard_object_serves_several_threads() -> None:
    meet = threading.Barrier(2, timeout=20)

    @devguard.guard(sync="log")
    def both() -> None:
        meet.wait()
        assert sync() == "log"
        meet.wait()

    threads = [threading.Thread(target=both) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scopes._open.all == ()


@pytest.mark.parametrize("level", ["eror", "", 3, "ERROR"])
def test_an_unknown_level_is_refused(level: object) -> None:
    with pytest.raises(OptionsError, match=r"guard\(\): sync="):
        devguard.guard(sync=level)  # type: ignore[arg-type]


# --- allow ---


def test_allow_takes_the_events_of_its_rules_and_counts_them() -> None:
    with devguard.allow("DG201", "DG3", reason="needed"):
        scope = scopes.allowed("DG201")
        assert scope is not None
        assert scopes.allowed("DG305") is scope
        assert scopes.allowed("DG105") is None
    assert (scope.used, scope.reason) == (2, "needed")
    assert scopes.allowed("DG201") is None


def test_first_only_takes_one_event() -> None:
    with devguard.allow("DG201", reason="the first one warms up", first_only=True):
        assert [scopes.allowed("DG201") is not None for _ in range(3)] == [True, False, False]


def test_an_allow_in_a_loop_is_one_place_whose_uses_add_up() -> None:
    began = time.time()
    for _ in range(3):
        with devguard.allow("DG203", reason="in a loop"):
            scopes.allowed("DG203")
    (scope,) = [scope for scope in scopes.allows_since(began) if scope.codes == ("DG203",)]
    assert scope.used == 3
    assert scope.file == __file__


def test_the_place_of_a_block_spans_its_body() -> None:
    with devguard.allow("DG204", reason="to look at its lines"):
        scope = scopes.allowed("DG204")
        assert scope is not None
    assert scope.last - scope.first == 2


def test_the_place_of_a_decorated_function_spans_the_function() -> None:
    @devguard.allow("DG204", reason="to look at its lines")
    def function() -> scopes.AllowScope | None:
        return scopes.allowed("DG204")

    scope = function()
    assert scope is not None
    assert scope.last - scope.first == 2


def test_rules_go_by_name_too() -> None:
    with devguard.allow("scalar-read", reason="by name"):
        assert scopes.allowed("DG201") is not None


@pytest.mark.parametrize(
    ("codes", "reason", "expected"),
    [
        (("scalar-raed",), "x", "did you mean scalar-read"),
        ((5,), "x", "is no rule"),
        ((), "x", "name at least one rule"),
        (("DG201",), " ", "give the reason"),
        (("DG201",), None, "give the reason"),
    ],
)
def test_a_wrong_allowance_is_refused(codes: tuple[str, ...], reason: str, expected: str) -> None:
    with pytest.raises(OptionsError, match=expected):
        devguard.allow(*codes, reason=reason)


def test_a_guard_that_forbids_nothing_is_refused() -> None:
    with pytest.raises(OptionsError, match="name what to forbid"):
        devguard.guard()
