"""What DG201 to DG205 say about small programs that run on a simulated accelerator."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import devguard
from devguard.report.model import Report
from devguard.rules.finding import Finding
from tests.rules.syncs_programs import BAD, CLEAN, HEAD, LOOP, Program


def watched(text: str, folder: Path) -> Report:
    """The report of one run of a program."""
    script = folder / "program.py"
    script.write_text(text)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        runpy.run_path(str(script), run_name="__main__")
    report = watch.report
    assert report.complete, report.not_seen
    return report


def waits(report: Report) -> list[Finding]:
    """The findings of DG201 to DG205."""
    return [found for found in report.findings if found.rule.startswith("DG2")]


@pytest.mark.parametrize("program", BAD, ids=lambda program: program.name.replace(" ", "-"))
def test_a_wait_is_found_at_its_line_and_counted(program: Program, tmp_path: Path) -> None:
    found = waits(watched(program.text, tmp_path))
    ours = [f for f in found if f.rule == program.rule and f.level == program.level]
    assert len(ours) == 1, [(f.rule, f.cause and f.cause.text, f.message) for f in found]
    finding = ours[0]
    assert finding.cause is not None
    assert program.line in finding.cause.text
    assert finding.count == program.count
    if program.tensor:
        assert finding.tensor is not None
        assert finding.tensor.name == program.tensor
    assert finding.fix is not None or program.says == "prod"
    assert program.says in finding.message + " " + (finding.fix.text if finding.fix else "")
    others = [(f.rule, f.cause and f.cause.text, f.message) for f in found if f is not finding and f.level != "note"]
    assert not others, "one cause, one finding"


@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.name.replace(" ", "-"))
def test_a_sound_program_is_left_alone(program: Program, tmp_path: Path) -> None:
    loud = [(f.rule, f.level, f.message) for f in waits(watched(program.text, tmp_path)) if f.level != "note"]
    assert not loud


def test_the_rate_is_that_of_a_step(tmp_path: Path) -> None:
    body = "    total += loss.item() + out.sum().item()\n"
    (found,) = waits(watched(HEAD + LOOP + body, tmp_path))
    assert found.per_step == pytest.approx(2.0)
    assert (found.first_step, found.last_step) == (1, 12)


def test_a_copy_to_the_host_says_its_bytes(tmp_path: Path) -> None:
    (found,) = waits(watched(HEAD + LOOP + "    kept.append(out.detach().cpu())\n", tmp_path))
    assert found.bytes == 12 * 4 * 3 * 4


def test_the_module_that_reads_is_named(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


net = nn.Sequential(nn.Linear(4, 4), Gate()).cuda()
for _ in range(4):
    net(torch.randn(2, 4, device="cuda"))
"""
    (found,) = waits(watched(text, tmp_path))
    assert (found.module, found.module_type) == ("1", "Gate")
    assert found.tensor is not None
    assert found.tensor.name == "x.sum() > 0"


def test_an_allowed_wait_is_not_counted(tmp_path: Path) -> None:
    body = '    with __import__("devguard").allow("DG201", reason="wanted"):\n        kept.append(loss.item())\n'
    assert not waits(watched(HEAD + LOOP + body, tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        "loss.item()",
        "print(out)",
        "out[out > 0]",
        "torch.cuda.synchronize()",
        "F.one_hot(ids)",
        "out.cpu()",
        "if loss: pass",
    ],
)
def test_a_guard_raises_at_the_line_that_waits(line: str, tmp_path: Path) -> None:
    body = f'    with __import__("devguard").guard(sync="error"):\n        {line}\n'
    with pytest.raises(devguard.DeviceGuardError, match=r"forbidden here by devguard\.guard") as caught:
        watched(HEAD + LOOP + body, tmp_path)
    users = [entry for entry in caught.traceback if str(entry.path).endswith("program.py")]
    assert users[-1].statement.lines[0].strip() == line


LIBRARY = """
class Mean:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value.item()
"""


def test_in_a_library_the_users_call_is_the_line_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "metric_for_syncs.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(packages))
    head = HEAD + "import metric_for_syncs\n\nmetric = metric_for_syncs.Mean()\n"
    (found,) = waits(watched(head + LOOP + "    metric.update(loss.detach())\n", tmp_path))
    assert found.where is not None
    assert found.called_from is not None
    assert found.cause is not None
    assert found.where.text == "self.total += value.item()"
    assert found.called_from.text == found.cause.text == "metric.update(loss.detach())"


def test_a_wait_inside_an_optimizer_is_told_as_that(tmp_path: Path) -> None:
    text = """
lookup = nn.Embedding(5, 3, sparse=True).to(device)
sparse = torch.optim.SparseAdam(lookup.parameters())
for _ in range(6):
    sparse.zero_grad()
    lookup(ids).sum().backward()
    sparse.step()
"""
    (found,) = waits(watched(HEAD + text, tmp_path))
    assert "the size of a tensor inside SparseAdam depends on the data;" in found.message
    assert found.fix is not None
    assert "this optimizer" in found.fix.text
