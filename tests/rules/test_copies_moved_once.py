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


def test_new_models_that_are_made_moved_and_trained_in_a_loop_are_not_repeated_moves() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        for width in range(4, 12):
            net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1)).to("cuda")
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(2, 4, device="cuda")).sum().backward()
            optimizer.step()
    assert not [finding for finding in watch.report.findings if finding.level != "note"]


def test_model_that_goes_to_the_host_and_back_in_every_step_is_a_repeated_move() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(8):
            net.cuda()
            net(torch.ones(2, 4, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            net.cpu()
    assert "DG306" in {finding.rule for finding in watch.report.findings if finding.level == "warning"}
