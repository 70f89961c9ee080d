"""Batches are known by the loader that they came out of, pinned, unpinned or passed by."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import devguard
from devguard.observe.copies_facts import CopyFacts, LoaderFact
from devguard.observe.loaders import tensors_in
from devguard.observe.symbolize import users_line

ONE, TWO = torch.ones(1), torch.zeros(2)
Pair = namedtuple("Pair", "first second")


@dataclass
class Graph:
    """A batch class that pinning does not know."""

    x: torch.Tensor


class Pinnable:
    """A batch class that can be pinned."""

    def __init__(self) -> None:
        self.x = ONE

    def pin_memory(self) -> Pinnable:
        return self


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (ONE, [(ONE, "")]),
        ([ONE, (TWO,)], [(ONE, ""), (TWO, "")]),
        ({"a": ONE, "b": {"c": TWO}}, [(ONE, ""), (TWO, "")]),
        (Pair(ONE, TWO), [(ONE, ""), (TWO, "")]),
        (UserDict({"a": ONE}), [(ONE, "")]),
        (Graph(ONE), [(ONE, "Graph")]),
        ([Graph(ONE), TWO], [(ONE, "Graph"), (TWO, "")]),
        (Pinnable(), [(ONE, "")]),
        (["text", 3, None], []),
    ],
)
def test_tensors_are_found_as_pinning_would(batch: Any, expected: list[tuple[torch.Tensor, str]]) -> None:
    found = list(tensors_in(batch))
    assert {(id(tensor), hidden) for tensor, hidden in found} == {(id(tensor), hidden) for tensor, hidden in expected}


def test_a_batch_that_holds_itself_ends() -> None:
    batch: list[Any] = [ONE]
    batch.append(batch)
    assert len(list(tensors_in(batch))) < 300


@pytest.fixture
def watch() -> Iterator[Any]:
    with devguard.watch() as watch:
        yield watch


def loaders(watch: Any) -> list[LoaderFact]:
    return list(watch._recorder.facts.table(CopyFacts).loaders.values())


def test_a_loader_is_known_by_its_name_and_lines(watch: Any) -> None:
    data = TensorDataset(torch.ones(4, 2))
    loader = DataLoader(data, batch_size=2)
    for _ in loader:
        pass
    (fact,) = loaders(watch)
    made, loop = users_line(fact.made), users_line(fact.loop)
    assert fact.name == "loader"
    assert not fact.pin_memory
    assert made is not None
    assert made.text == "loader = DataLoader(data, batch_size=2)"
    assert loop is not None
    assert loop.text == "for _ in loader:"


def test_tensors_of_a_batch_come_from_the_loader(watch: Any) -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    for (x,) in loader:
        origin = watch._recorder.origins.of(x)
        assert origin is not None
        assert origin.op == "DataLoader"


def test_batches_of_workers_have_an_origin_too(watch: Any) -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, num_workers=1)
    assert all(watch._recorder.origins.of(x).op == "DataLoader" for (x,) in loader)


def test_a_loop_over_a_loader_made_before_the_watch_is_seen() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    with devguard.watch() as watch:
        list(loader)
    (fact,) = loaders(watch)
    assert fact.made is None
    assert fact.loop is not None


def test_the_loader_is_given_back() -> None:
    before = DataLoader.__init__, DataLoader.__iter__
    with devguard.watch():
        assert DataLoader.__iter__ is not before[1]
    assert (DataLoader.__init__, DataLoader.__iter__) == before
