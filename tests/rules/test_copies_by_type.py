"""`x.type(torch.cuda.FloatTensor)` is a move that somebody asked for."""

from __future__ import annotations

import torch

import devguard


def test_a_move_by_type_is_a_pageable_copy_and_not_an_implicit_one() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        net = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in torch.ones(6, 2, 4).unbind():
            batch = batch.type(torch.cuda.FloatTensor)
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    rules = {found.rule for found in watch.report.findings if found.level != "note"}
    assert "DG301" not in rules
    assert rules & {"DG302", "DG306"}
