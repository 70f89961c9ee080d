"""digits.py with the classic device mistakes in it, each on a line marked `planted: RULE`. devguard names every one:

    devguard run --simulate cuda:2 examples/digits_broken.py

Some mistakes end the experiment that makes them, as they would on a GPU; the others only cost time, on every step.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
DEVICE = torch.device("cuda")
CLASSES = 10
BATCH = 64
LOG_EVERY = 20


def load_digits():
    with gzip.open(DATA, "rt", newline="") as file:
        rows = torch.tensor([[int(float(cell)) for cell in row] for row in csv.reader(file)])
    return TensorDataset(rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64])


def make_loaders(dataset):
    train_set, test_set = random_split(dataset, [1437, 360], torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=BATCH, pin_memory=True)
    return train_loader, test_loader


class ConvNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(32 * width, CLASSES)

    def forward(self, images):
        return self.head(self.features(images))


class Attention(nn.Module):
    """One transformer block over the 16 patches of 2x2 pixels."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.positions = torch.randn(1, 16, width) * 0.1  # planted: DG103 a plain attribute does not move along
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(16 * width, CLASSES)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = tokens + self.positions
        parts = self.qkv(self.norm(tokens)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head((tokens + self.out(mixed)).flatten(1))


class Committee(nn.Module):
    """Three small networks and a layer that weighs their votes."""

    def __init__(self):
        super().__init__()
        self.members = [ConvNet(width=8) for _ in range(3)]  # planted: DG104 a list hides its layers
        self.vote = nn.Linear(3 * CLASSES, CLASSES)

    def forward(self, images):
        return self.vote(torch.cat([member(images) for member in self.members], 1))


class FocalLoss(nn.Module):
    """Cross entropy per sample with class weights; easy samples count less."""

    def __init__(self, weight=None, gamma=1.0):
        super().__init__()
        self.register_buffer("weight", weight)
        self.gamma = gamma

    def forward(self, logits, labels):
        losses = F.cross_entropy(logits, labels, weight=self.weight, reduction="none")
        return (1 - torch.exp(-losses)) ** self.gamma * losses


def make_optimizer(model):
    # fused: with GradScaler, the other implementations of AdamW make the host wait for found_inf on every step
    return torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2, fused=True)


def mixup(images):
    order = torch.randperm(len(images))
    return 0.9 * images + 0.1 * images[order]  # planted: DG301 a CPU index is copied to the GPU


def train_step(model, criterion, optimizer, scaler, images, labels):
    """One optimizer step. Returns the loss and the gradients' norm, both still on the GPU."""
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(mixup(images))
    losses = criterion(logits.float(), labels)
    # samples that lie far off are probably labelled wrongly
    loss = losses[losses < 5.0].mean()  # planted: DG203 the host waits to learn how many samples are left
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), norm


def train(name, model, optimizer, criterion, loaders, epochs, save=None):
    """Train a model, evaluate it and save a checkpoint after each epoch, and return the last accuracy."""
    train_loader, test_loader = loaders
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    step, accuracy = 0, 0.0
    for epoch in range(epochs):
        model.train()
        begin, total, norms = time.perf_counter(), 0.0, []
        for images, labels in train_loader:
            images, labels = images.to(DEVICE), labels.to(DEVICE)  # planted: DG302 a blocking copy of pageable memory
            loss, norm = train_step(model, criterion, optimizer, scaler, images, labels)
            scheduler.step()
            total += loss.item()  # planted: DG201 the host waits for every loss
            norms.append(norm.cpu())  # planted: DG202 one blocking copy to the host per step
            step += 1
            torch.cuda.synchronize()  # planted: DG204 to time the steps
            seconds = time.perf_counter() - begin
            if step % LOG_EVERY == 0:
                print(f"{name} step {step}: mean loss {total / len(norms):.3f}, {seconds:.1f} s")
        accuracy = evaluate(model, test_loader)
        largest = torch.stack(norms).max().item()
        print(f"{name} epoch {epoch}: accuracy {accuracy:.3f}, largest gradient {largest:.2f}, {seconds:.1f} s")
        if save is not None:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, save)
    return accuracy


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = torch.zeros((), device=DEVICE)
    for images, labels in loader:
        images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        right += (model(images).argmax(1) == labels).sum()
    return right.item() / len(loader.dataset)


@torch.no_grad()
def confusion(model, loader):
    """How often each digit was taken for each other: a row per true digit."""
    model.eval()
    table = torch.zeros(CLASSES * CLASSES, device=DEVICE)
    for images, labels in loader:  # planted: DG108 the labels are never moved
        images = images.to(DEVICE, non_blocking=True)
        cells = labels * CLASSES + model(images).argmax(1)
        table.index_add_(0, cells, torch.ones_like(cells, dtype=table.dtype))
    return table.reshape(CLASSES, CLASSES).int().cpu()


def plain(loaders, epochs, checkpoint):
    model = ConvNet().to(DEVICE)
    return train("plain", model, make_optimizer(model), FocalLoss(gamma=0.0), loaders, epochs, save=checkpoint)


def balanced(loaders, epochs, checkpoint):
    labels = torch.cat([labels for _, labels in loaders[1]])
    counts = torch.bincount(labels, minlength=CLASSES)
    criterion = FocalLoss(len(labels) / (CLASSES * counts))  # planted: DG105 the class weights stay on the CPU
    model = ConvNet().to(DEVICE)
    return train("balanced", model, make_optimizer(model), criterion, loaders, epochs)


def attention(loaders, epochs, checkpoint):
    model = Attention().to(DEVICE)
    return train("attention", model, make_optimizer(model), FocalLoss(), loaders, epochs)


def committee(loaders, epochs, checkpoint):
    model = Committee().to(DEVICE)
    return train("committee", model, make_optimizer(model), FocalLoss(), loaders, epochs)


def resume(loaders, epochs, checkpoint):
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    model = ConvNet()
    optimizer = make_optimizer(model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])  # planted: DG106 restored before the model moves
    model.to(DEVICE)
    return train("resume", model, optimizer, FocalLoss(), loaders, epochs)


def trained(checkpoint):
    model = ConvNet()
    model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["model"])
    return model.to(DEVICE)


def new_head(loaders, epochs, checkpoint):
    model = trained(checkpoint)
    model.head = nn.Linear(model.head.in_features, CLASSES)  # planted: DG102 a layer made after .to()
    return train("new_head", model, make_optimizer(model), FocalLoss(), loaders, epochs)


def mistakes(loaders, epochs, checkpoint):
    table = confusion(trained(checkpoint), loaders[1])
    print(table)
    return table.diagonal().sum().item() / table.sum().item()


@torch.no_grad()
def samples(loaders, epochs, checkpoint):
    model = trained(checkpoint).eval()
    images, labels = next(iter(loaders[1]))
    images.to(DEVICE)  # planted: DG305 .to() of a tensor returns the copy, and nobody keeps it
    predicted = model(images).argmax(1).cpu()
    print("first predictions", predicted[:10].tolist(), "labels", labels[:10].tolist())
    return (predicted == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description="train small models on handwritten digits")
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    loaders = make_loaders(load_digits())
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "plain.pt"
        for experiment in (plain, balanced, attention, committee, resume, new_head, mistakes, samples):
            try:
                print(f"{experiment.__name__}: accuracy {experiment(loaders, epochs, checkpoint):.3f}")
            except RuntimeError as problem:  # one experiment that fails must not stop those after it
                print(f"{experiment.__name__}: failed: {problem}")


if __name__ == "__main__":
    main()
