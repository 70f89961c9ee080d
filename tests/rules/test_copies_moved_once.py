"""A model that is moved in the middle of its training, but only once."""

from __future__ import annotations

import torch

import devguard


def test_model_that_moves_to_the_device_once_during_training_is_not_repeated() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(6):
            if epoch == 3:
                net.cuda()
            net(torch.ones(2, 4, device=net.weight.device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert "DG306" not in {finding.rule for finding in watch.report.findings}
