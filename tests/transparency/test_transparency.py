"""Watch on equals watch off, bit for bit. Sampled here; `python -m tests.transparency.sweep` runs everything."""

from __future__ import annotations

import gc

import torch

import devguard
from tests.transparency.subjects import error_subjects, module_subjects, op_subjects, optimizer_subjects
from tests.transparency.sweep import differences


def test_ops_give_the_same_bits_gradients_and_random_state_under_a_watch():
    count, found = differences(op_subjects(every=12, samples=1))
    assert count > 40
    assert found == []


def test_wrong_inputs_are_refused_with_the_same_exceptions_under_a_watch():
    count, found = differences(error_subjects(every=12, samples=3))
    assert count > 15
    assert found == []


def test_modules_train_the_same_under_a_watch():
    count, found = differences(module_subjects(every=6))
    assert count > 15
    assert found == []


def test_optimizers_step_the_same_under_a_watch():
    count, found = differences(optimizer_subjects(every=5))
    assert count > 12
    assert found == []


def test_a_watch_keeps_no_tensor_alive():
    class Probe:
        died = False

        def __del__(self):
            Probe.died = True

    gc.disable()
    try:
        with devguard.watch():
            tensor = torch.ones(3) * 2
            tensor.probe = Probe()  # goes when the tensor's Python object goes
            (tensor + 1).sum()
            del tensor
            assert Probe.died
    finally:
        gc.enable()


def test_a_swapped_parameter_is_no_obstacle():
    with devguard.watch():
        first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        torch.utils.swap_tensors(first.weight, second.weight)
    assert first.weight.shape == (2, 2)
