"""Reports made by hand, for the tests of renderers and policy."""

from __future__ import annotations

from typing import Any

from devguard.observe.site import Site
from devguard.report.model import NotSeen, RaisedException, Report, Transfer
from devguard.rules.finding import Finding, Fix, HistoryEntry, TensorRef

FOLDER = "/home/user/project"


def site(line: int, text: str, function: str = "train", file: str = "train.py", column: int = 0) -> Site:
    lines = text.split("\n")
    path = file if file.startswith("/") else f"{FOLDER}/{file}"
    end = column + len(lines[-1])
    return Site(path, line, line + len(lines) - 1, column, end, function, text)


def loss_weight(**changes: Any) -> Finding:
    made = site(17, "criterion = nn.CrossEntropyLoss(weight=class_weights)", "<module>")
    values: dict[str, Any] = {
        "rule": "DG105",
        "name": "loss-weight",
        "level": "error",
        "certainty": "certain",
        "message": "criterion.weight is on cpu, its input is on cuda:0",
        "fingerprint": "aaaa000000000001",
        "count": 5,
        "last_step": 4,
        "per_step": 1.0,
        "where": site(41, "loss = criterion(logits, labels)", column=8),
        "cause": made,
        "module": "criterion",
        "module_type": "CrossEntropyLoss",
        "tensor": TensorRef("criterion.weight", "loss weight", (3,), "float32", "cpu", "cuda:0"),
        "history": [
            HistoryEntry("made", "aten.full", "cpu", site(15, "class_weights = torch.full((3,), 0.5)", "<module>")),
            HistoryEntry("left behind", "", "cpu", site(20, "model.to(device)", "<module>"), "model"),
        ],
        "fix": Fix("criterion = criterion.to(device)", True),
    }
    return Finding(**{**values, **changes})


def scalar_read(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "rule": "DG201",
        "name": "scalar-read",
        "level": "warning",
        "certainty": "certain",
        "message": "loss.item() waits for cuda:0 in every step",
        "fingerprint": "bbbb000000000002",
        "count": 12,
        "last_step": 11,
        "per_step": 1.0,
        "seconds": 0.0123,
        "where": site(880, "value = tensor.item()", "update", file="/site-packages/metrics/mean.py"),
        "called_from": site(45, "mean.update(loss)"),
        "cause": site(45, "mean.update(loss)"),
        "tensor": TensorRef("loss", "result", (), "float32", "cuda:0"),
        "fix": Fix("total = total + loss.detach()\n# and read total once after the loop"),
    }
    return Finding(**{**values, **changes})


def created_then_moved(**changes: Any) -> Finding:
    line = site(30, "mask = torch.ones(\n    8, 8,\n).to(device)", "Model.forward", file="model.py", column=8)
    values: dict[str, Any] = {
        "rule": "DG308",
        "name": "move-after-create",
        "level": "note",
        "certainty": "likely",
        "message": "mask is made on cpu and moved to cuda:0 at once",
        "fingerprint": "cccc000000000003",
        "bytes": 3072,
        "where": line,
        "cause": line,
        "fix": Fix("mask = torch.ones(8, 8, device=device)", True),
    }
    return Finding(**{**values, **changes})


def report(findings: list[Finding] | None = None, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.7",
        "command": ["devguard", "run", "train.py"],
        "devices": ["cuda:0", "cuda:1"],
        "simulated": True,
        "steps": 12,
        "ops": 10293,
        "started": "2026-01-02T03:04:05.000+00:00",
        "seconds": 1.9,
        "own_seconds": 0.2,
        "findings": [loss_weight(), scalar_read(), created_then_moved()] if findings is None else findings,
    }
    return Report(**{**values, **changes})


def full_report() -> Report:
    """A report that has something in every place of the schema."""
    return report(
        rank=1,
        exception=RaisedException("RuntimeError", "Expected all tensors to be on the same device"),
        transfers=[Transfer(site(22, "x = x.to(device)"), "cpu", "cuda:0", 12, 49152, False, True, False)],
        not_seen=[NotSeen("compiled region", 2, site(9, "model = torch.compile(model)"))],
    )
