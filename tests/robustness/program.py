"""A small training run that goes through most of what the observers look at; returns what a user would compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run(device: str = "cpu", steps: int = 4) -> list[Any]:
    """Train a little on `device` with a scalar read, a print, a mask and copies in the loop; weights and losses come back."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(8 * steps, 6), torch.randint(0, 3, (8 * steps,)))
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    criterion = nn.CrossEntropyLoss(weight=torch.ones(3).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for x, y in DataLoader(data, batch_size=8):
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        losses.append(x[y > 0].sum().tolist())
        str(loss)
    return [*losses, *(p.detach().cpu().numpy().tobytes() for p in model.parameters())]
