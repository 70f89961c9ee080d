"""The user's name for a tensor: which of several is taken, and what is never touched on the way."""

from __future__ import annotations

import functools
import sys
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from devguard.observe.names import expression_at, name_of, name_of_object
from devguard.observe.origins import Origin


def named(tensor: Any, origin: Origin | None = None) -> str:
    return name_of(tensor, sys._getframe(1), origin)


def site_here() -> Any:
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


class Encoding(UserDict):  # type: ignore[type-arg]
    def __getattr__(self, item: str) -> Any:
        raise AssertionError("a name search must not call __getattr__")


class Hostile:
    """Everything that a search must not call fails the test."""

    def __init__(self) -> None:
        self.inner = torch.ones(2)

    @property
    def trap(self) -> Any:
        raise AssertionError("property")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__")

    def __len__(self) -> int:
        raise AssertionError("__len__")

    def __iter__(self) -> Any:
        raise AssertionError("__iter__")

    def __bool__(self) -> bool:
        raise AssertionError("__bool__")

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = torch.ones(2)


def test_plain_variable() -> None:
    mask = torch.ones(2)
    assert named(mask) == "mask"


def test_key_of_a_nested_dict() -> None:
    batch = {"targets": [{"boxes": torch.ones(2)}]}
    assert named(batch["targets"][0]["boxes"]) == "batch['targets'][0]['boxes']"


def test_mapping_that_is_no_dict() -> None:
    batch = Encoding({"labels": torch.ones(2)})
    assert named(batch.data["labels"]) == "batch['labels']"


def test_attribute_of_a_dataclass() -> None:
    @dataclass
    class Batch:
        x: torch.Tensor

    batch = Batch(torch.ones(2))
    assert named(batch.x) == "batch.x"


def test_field_of_a_named_tuple() -> None:
    Pair = namedtuple("Pair", "left right")
    pair = Pair(torch.ones(1), torch.ones(1))
    assert named(pair.right) == "pair.right"


def test_slot() -> None:
    holder = Slotted()
    assert named(holder.value) == "holder.value"


def test_parameter_by_its_module_path() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert named(model[0].weight) == "model.0.weight"


def test_argument_of_a_partial_and_variable_of_a_closure() -> None:
    def make() -> Any:
        table = torch.ones(2)
        return lambda: table

    scale = make()
    pre = functools.partial(print, mean=torch.ones(2))
    assert named(scale()) == "scale.table"
    assert named(pre.keywords["mean"]) == "pre.mean"


def test_default_argument() -> None:
    def scale(by: Any = torch.ones(2)) -> Any:  # noqa: B008
        return by

    assert named(scale()) == "scale.by"


def test_outermost_variable_wins_over_an_argument() -> None:
    def forward(x: Any) -> str:
        return named(x)

    batch = {"image": torch.ones(2)}
    assert forward(batch["image"]) == "batch['image']"


def test_view_is_called_by_the_variable_that_shares_its_storage() -> None:
    mean = torch.ones(3)
    assert named(mean[:, None]) == "mean"


def test_variable_itself_wins_over_one_that_shares_its_storage() -> None:
    base = torch.ones(4)
    half = base[:2]
    assert named(half) == "half"


def test_name_at_birth_wins_over_a_place_in_a_tuple() -> None:
    def make() -> tuple[Any, Any]:
        hidden = torch.zeros(2); site = site_here()  # fmt: skip # noqa: E702
        return (hidden,), site

    state, _ = make()
    source = (sys._getframe().f_code, 0)
    assert named(state[0], Origin(source, "aten.zeros", -1, 0, None)) == "state[0]"


def test_tensor_made_inline_is_shown_as_written() -> None:
    name = named(torch.ones(3))  # outside of the assert, which pytest rewrites
    assert name == "torch.ones(3)"


def test_cast_on_the_spot_is_called_by_its_variable() -> None:
    labels = torch.ones(3, dtype=torch.long)
    name = named(labels.float())
    assert name == "labels"


def test_nothing_of_the_users_is_called() -> None:
    hostile = Hostile()
    assert named(hostile.inner) == "hostile.inner"
    name = named(torch.ones(2)[None])
    assert name != ""


def test_cycles_end() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert name_of_object(object(), sys._getframe()) == ""


def test_search_keeps_no_variable_alive() -> None:
    class Probe:
        pass

    def body() -> Any:
        import weakref

        kept = Probe()
        gone = weakref.ref(kept)
        named(torch.ones(1))
        del kept
        return gone()

    assert body() is None


def test_locals_of_a_function_that_calls_locals_are_left_alone() -> None:
    first = 1
    snapshot = locals()
    later = torch.ones(2)
    named(later)
    assert set(snapshot) == {"first"}
    assert first == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("probe.item()", "probe"),
        ("float(probe)", "probe"),
        ("box['a'].item()", "box['a']"),
        ("1 if probe.isnan() else 0", "probe"),
    ],
)
def test_what_is_read_at_an_instruction(text: str, expected: str, tmp_path: Any) -> None:
    seen: list[str] = []

    class Probe:
        def read(self) -> float:
            seen.append(expression_at(sys._getframe(1)))
            return 1.0

        item = __float__ = isnan = read

    path = tmp_path / "program.py"
    path.write_text(f"result = {text}\n")
    exec(compile(path.read_text(), str(path), "exec"), {"probe": Probe(), "box": {"a": Probe()}})
    assert seen == [expected]


def test_condition_is_read_as_a_whole(tmp_path: Any) -> None:
    seen: list[str] = []

    class Probe:
        def __bool__(self) -> bool:
            seen.append(expression_at(sys._getframe(1)))
            return True

    path = tmp_path / "program.py"
    path.write_text("if isnan(loss):\n    pass\n")
    exec(compile(path.read_text(), str(path), "exec"), {"isnan": lambda x: Probe(), "loss": None})
    assert seen == ["isnan(loss)"]
