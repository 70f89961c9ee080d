"""What counts as a step."""

from __future__ import annotations

from devguard.observe.steps import Steps


def after(optimizers: str) -> int:
    """Steps after these optimizers, by letter, have stepped in this order."""
    steps, made = Steps(), {name: object() for name in optimizers}
    for name in optimizers:
        steps.optimizer_stepped(made[name])
    return steps.total


def test_each_step_of_a_single_optimizer_is_one() -> None:
    assert after("aaaa") == 4


def test_optimizers_that_take_turns_make_one_step_together() -> None:
    assert after("ababab") == 3


def test_the_busier_of_two_optimizers_counts() -> None:
    assert after("aaabaaab") == 6


def test_a_later_phase_with_an_optimizer_of_its_own_goes_on_counting() -> None:
    assert after("aaaa" + "bbbb") == 7


def test_forward_calls_count_where_nothing_else_does() -> None:
    steps = Steps()
    for _ in range(3):
        steps.outermost_called()
    assert (steps.now, steps.total) == (2, 3)


def test_told_steps_go_before_optimizers() -> None:
    steps = Steps()
    steps.optimizer_stepped(object())
    steps.optimizer_stepped(object())
    steps.explicit()
    assert steps.total == 1
