"""Same data or not: by storage, view and version, never by an address that is used again."""

from __future__ import annotations

import gc

import pytest
import torch

from devguard.observe.copies_identity import Recent, mark_of


@pytest.fixture
def recent() -> Recent:
    return Recent()


def test_the_first_time_is_new_and_the_second_is_not(recent: Recent) -> None:
    x = torch.ones(3)
    assert [recent.seen("here", x) for _ in range(3)] == [False, True, True]


def test_each_place_remembers_for_itself(recent: Recent) -> None:
    x = torch.ones(3)
    assert not recent.seen("here", x)
    assert not recent.seen("there", x)


def test_a_changed_content_is_new(recent: Recent) -> None:
    x = torch.ones(3)
    recent.seen("here", x)
    x.add_(1)
    assert not recent.seen("here", x)


def test_another_object_for_the_same_view_is_the_same_data(recent: Recent) -> None:
    x = torch.ones(4)
    recent.seen("here", x.detach())
    assert recent.seen("here", x.view(4))


def test_another_part_of_the_storage_is_new(recent: Recent) -> None:
    x = torch.ones(4)
    recent.seen("here", x[:2])
    assert not recent.seen("here", x[2:])


def test_a_new_tensor_at_a_freed_address_is_new(recent: Recent) -> None:
    for _ in range(50):
        assert not recent.seen("here", torch.ones(3))


def test_no_data_is_kept_alive(recent: Recent) -> None:
    x = torch.ones(3)
    recent.seen("here", x)
    mark = mark_of(x)
    assert mark is not None
    del x
    gc.collect()
    assert mark[1].expired()


def test_a_tensor_that_is_remembered_can_be_swapped(recent: Recent) -> None:
    x, y = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.zeros(3))
    recent.seen("here", x)
    torch.utils.swap_tensors(x, y)
    assert x.sum() == 0


def test_inference_tensors_have_no_version_and_are_told_by_storage(recent: Recent) -> None:
    with torch.inference_mode():
        x = torch.ones(3)
        assert [recent.seen("here", x) for _ in range(2)] == [False, True]


def test_a_tensor_without_storage_is_never_the_same(recent: Recent) -> None:
    x = torch.eye(2).to_sparse()
    assert [recent.seen("here", x) for _ in range(2)] == [False, False]


def test_an_epoch_of_many_batches_is_not_the_same_data(recent: Recent) -> None:
    batches = list(torch.ones(10, 3))
    assert not any(recent.seen("here", batch) for _ in range(3) for batch in batches)
