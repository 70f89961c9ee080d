"""A whole training program computes the same numbers with a watch and without."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import re
from pathlib import Path

import torch

import devguard

FILE = Path(__file__).parents[2] / "examples" / "digits.py"


def trained(
    folder: Path, around: contextlib.AbstractContextManager[object]
) -> tuple[list[object], torch.Tensor, object]:
    """What the example computes in one epoch: each accuracy, output, weights and optimizer state, random numbers."""
    spec = importlib.util.spec_from_file_location("digits_example", FILE)
    assert spec is not None
    assert spec.loader is not None
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    results: list[object] = []
    evaluate = digits.evaluate

    def recorded(model, loader):
        results.append([value.cpu().numpy().tobytes() for value in model.state_dict().values()])
        return evaluate(model, loader)

    digits.evaluate = recorded
    printed = io.StringIO()
    torch.manual_seed(0)
    random.seed(0)
    with contextlib.redirect_stdout(printed), around:
        loaders = digits.make_loaders(digits.load_digits())
        for experiment in (digits.plain, digits.attention, digits.resume, digits.mistakes):
            results.append(experiment(loaders, 1, folder / "plain.pt"))
    results.append(re.sub(r"[\d.]+ s\n", "", printed.getvalue()))
    saved = torch.load(folder / "plain.pt", map_location="cpu", weights_only=True)
    state = saved["optimizer"]["state"].values()
    results += [value.numpy().tobytes() for entry in state for value in entry.values()]
    return results, torch.get_rng_state(), random.getstate()


def test_the_example_trains_to_the_same_bit(tmp_path):
    with devguard.simulate("cuda:1"):
        plain, plain_random, plain_numbers = trained(tmp_path, contextlib.nullcontext())
        watch = devguard.watch()
        watched, random_state, numbers = trained(tmp_path, watch)
    assert watch.report.ops > 1_000
    assert len(plain) > 30
    assert watched == plain
    assert torch.equal(random_state, plain_random)
    assert numbers == plain_numbers
