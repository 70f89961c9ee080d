"""Small programs written for CUDA, and what the copy rules have to say about each. Data for test_copies_table.py."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def update(x):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
    return loss.detach()

"""


@dataclass(frozen=True)
class Program:
    """`rule` must be found with `line` as its cause, `count` times; every other copy finding above note is an error.

    An empty `rule` says that no copy rule may find anything above a note."""

    name: str
    text: str
    rule: str = ""
    line: str = ""
    count: int = -1
    tensor: str = ""
    level: str = "warning"
    devices: int = 1
    says: str = ""  # part of the message or the fix


def bad(name: str, rule: str, line: str, count: int, text: str, **more: object) -> Program:
    """A program that must give `rule`."""
    return Program(name, HEAD + text, rule, line, count, **more)  # type: ignore[arg-type]


def good(name: str, text: str, **more: object) -> Program:
    """A program that must give nothing."""
    return Program(name, HEAD + text, **more)  # type: ignore[arg-type]


IMPLICIT = [
    bad(
        "slice assignment",
        "DG301",
        "bank[i] = row",
        5,
        """
bank = torch.zeros(5, 8, device="cuda")
for i in range(5):
    row = torch.from_numpy(np.ones(8, dtype=np.float32))
    bank[i] = row
    update(bank)
""",
        tensor="row",
        says="assignment to a part",
    ),
    bad(
        "copy_ from the host",
        "DG301",
        "static.copy_(batch)",
        5,
        """
static = torch.zeros(3, 8, device="cuda")
data = torch.randn(5, 3, 8)
for batch in data:
    static.copy_(batch)
    update(static)
""",
        tensor="batch",
        says=".copy_()",
    ),
    bad(
        "results gathered on the host",
        "DG301",
        "history[i] = loss",
        5,
        """
history = torch.zeros(5)
x = torch.randn(3, 8, device="cuda")
for i in range(5):
    loss = update(x)
    history[i] = loss
""",
        tensor="loss",
        says="once, after the loop",
    ),
    bad(
        "index on the host",
        "DG301",
        "x = data[pick]",
        6,
        """
data = torch.randn(30, 8, device="cuda")
for step in range(6):
    pick = torch.randint(0, 30, (5,))
    x = data[pick]
    update(x)
""",
        tensor="pick",
        says='torch.randint(..., device="cuda:0")',
    ),
    bad(
        "mask on the host",
        "DG301",
        "x = data[keep]",
        5,
        """
data = torch.randn(30, 8, device="cuda")
keep = torch.rand(30) > 0.2
for step in range(5):
    x = data[keep]
    update(x)
""",
        tensor="keep",
        says="once, before the loop",
    ),
    bad(
        "list of numbers",
        "DG301",
        'w = torch.tensor([1.0, 2.0, step], device="cuda")',
        5,
        """
for step in range(5):
    w = torch.tensor([1.0, 2.0, step], device="cuda")
    update(torch.randn(3, 8, device="cuda") * w[:, None])
""",
        tensor="w",
    ),
    bad(
        "number in forward",
        "DG301",
        "scale = torch.tensor(8**0.5, device=x.device)",
        5,
        """
class Scaled(nn.Module):
    def forward(self, x):
        scale = torch.tensor(8**0.5, device=x.device)
        return x / scale

scaled = Scaled()
for step in range(5):
    update(scaled(torch.randn(3, 8, device="cuda")))
""",
        tensor="scale",
        says="torch.full",
    ),
    bad(
        "array given a device",
        "DG301",
        'x = torch.as_tensor(array, device="cuda")',
        5,
        """
for step in range(5):
    array = np.random.rand(3, 8).astype(np.float32)
    x = torch.as_tensor(array, device="cuda")
    update(x)
""",
        tensor="x",
    ),
    bad(
        "new_tensor",
        "DG301",
        "shift = x.new_tensor([float(step)] * 8)",
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    shift = x.new_tensor([float(step)] * 8)
    update(x + shift)
""",
        tensor="shift",
    ),
    bad(
        "list as an index",
        "DG301",
        "x = data[[0, 2, step]]",
        5,
        """
data = torch.randn(30, 8, device="cuda")
for step in range(5):
    x = data[[0, 2, step]]
    update(x)
""",
        says="list",
    ),
    bad(
        "array as an index",
        "DG301",
        "x = data[pick]",
        5,
        """
data = torch.randn(30, 8, device="cuda")
for step in range(5):
    pick = np.arange(step, step + 3)
    x = data[pick]
    update(x)
""",
        tensor="pick",
        says="NumPy",
    ),
    bad(
        "number assigned by an index tensor",
        "DG301",
        "logits[:, banned] = -1e9",
        5,
        """
banned = torch.tensor([1, 2]).to("cuda")
for step in range(5):
    logits = net(torch.randn(3, 8, device="cuda")).detach()
    logits[:, banned] = -1e9
    update(torch.randn(3, 8, device="cuda"))
""",
        tensor="-1e9",
        says="index_fill_",
    ),
    bad(
        "where with a scalar on the host",
        "DG301",
        "x = torch.where(x > 0, x, floor)",
        5,
        """
floor = torch.tensor(0.1)
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    x = torch.where(x > 0, x, floor)
    update(x)
""",
        tensor="floor",
    ),
    bad(
        "cast by type_as",
        "DG301",
        "row = host.type_as(x)",
        5,
        """
table = torch.from_numpy(np.random.rand(5, 8))
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    host = table[step]
    row = host.type_as(x)
    update(x + row)
""",
        tensor="host",
    ),
]

TRANSFERS = [
    bad(
        "loader without pinning",
        "DG302",
        "x = x.cuda()",
        6,
        """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4)
for (x,) in loader:
    x = x.cuda()
    update(x)
""",
        tensor="x",
        says="pin_memory=True",
    ),
    bad(
        "batch class that pinning skips",
        "DG302",
        "x = batch.x.cuda(non_blocking=False)",
        6,
        """
from torch.utils.data import DataLoader

class Batch:
    def __init__(self, rows):
        self.x = torch.stack(rows)

data = [torch.from_numpy(np.ones(8, dtype=np.float32)) for _ in range(24)]
loader = DataLoader(data, batch_size=4, collate_fn=Batch, pin_memory=True)
for batch in loader:
    x = batch.x.cuda(non_blocking=False)
    update(x)
""",
        says="class Batch",
    ),
    bad(
        "samples moved one by one",
        "DG302",
        'x = torch.stack([row.to("cuda") for row in rows])',
        20,
        """
data = torch.from_numpy(np.random.rand(20, 8).astype(np.float32))
for start in range(0, 20, 4):
    rows = list(data[start : start + 4])
    x = torch.stack([row.to("cuda") for row in rows])
    update(x)
""",
        tensor="row",
        says="the finished batch once",
    ),
    bad(
        "pinned, but waited for",
        "DG302",
        'x = batch.to("cuda")',
        5,
        """
batches = [b.pin_memory() for b in torch.randn(5, 3, 8)]
for batch in batches:
    x = batch.to("cuda")
    update(x)
""",
        tensor="batch",
        says="non_blocking=True",
    ),
    bad(
        "dict of tensors",
        "DG302",
        'batch = {key: value.to("cuda") for key, value in batch.items()}',
        10,
        """
data = [{"a": a, "b": b} for a, b in zip(torch.randn(5, 3, 8), torch.randn(5, 3, 8))]
for batch in data:
    batch = {key: value.to("cuda") for key, value in batch.items()}
    update(batch["a"] + batch["b"])
""",
    ),
    bad(
        "helper that moves",
        "DG302",
        'return tensor.to("cuda")',
        5,
        """
def put(tensor):
    return tensor.to("cuda")

for row in torch.randn(5, 3, 8):
    update(put(row))
""",
    ),
    bad(
        "statistics that change",
        "DG302",
        "update(x - mean.cuda())",
        6,
        """
mean = torch.zeros(8)
for step in range(6):
    mean.mul_(0.9).add_(0.1)
    x = torch.randn(3, 8, device="cuda")
    update(x - mean.cuda())
""",
        tensor="mean",
    ),
    bad(
        "non_blocking without pinning",
        "DG303",
        'x = batch.to("cuda", non_blocking=True)',
        5,
        """
for batch in torch.randn(5, 3, 8):
    x = batch.to("cuda", non_blocking=True)
    update(x)
""",
        tensor="batch",
    ),
    bad(
        "non_blocking from an unpinned loader",
        "DG303",
        "loader = DataLoader(",
        6,
        """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4)
for (x,) in loader:
    x = x.cuda(non_blocking=True)
    update(x)
""",
        tensor="x",
        says="pin_memory=True",
    ),
    bad(
        "non_blocking to a pageable buffer",
        "DG303",
        "host.copy_(loss, non_blocking=True)",
        5,
        """
host = torch.zeros(())
x = torch.randn(3, 8, device="cuda")
for step in range(5):
    loss = update(x)
    host.copy_(loss, non_blocking=True)
""",
        tensor="loss",
    ),
]

UNSAFE = [
    bad(
        "read by an op",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
seen = []
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda"))
    host = y.to("cpu", non_blocking=True)
    seen.append(host.mean())
""",
        tensor="host",
        level="error",
    ),
    bad(
        "read through a view",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
seen = []
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    host = y.to("cpu", non_blocking=True)
    seen.append(host[0, 1:].sum())
""",
        tensor="host",
        level="error",
    ),
    bad(
        "read by numpy",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    host = y.to("cpu", non_blocking=True)
    total = host.numpy().sum()
""",
        tensor="host",
        level="error",
    ),
    bad(
        "read by printing",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    host = y.to("cpu", non_blocking=True)
    str(host)
""",
        tensor="host",
        level="error",
    ),
    bad(
        "read as a number",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach().sum()
    host = y.to("cpu", non_blocking=True)
    total = float(host)
""",
        tensor="host",
        level="error",
    ),
    bad(
        "pinned buffer read too early",
        "DG304",
        "host.copy_(y, non_blocking=True)",
        4,
        """
host = torch.empty(3, 4, pin_memory=True)
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    host.copy_(y, non_blocking=True)
    best = host.argmax()
""",
        level="error",
    ),
    bad(
        "wait for an event recorded too early",
        "DG304",
        'host = y.to("cpu", non_blocking=True)',
        4,
        """
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    event = torch.cuda.Event()
    event.record()
    host = y.to("cpu", non_blocking=True)
    event.synchronize()
    host.tolist()
""",
        tensor="host",
        level="error",
    ),
    bad(
        "pinned buffer filled again",
        "DG304",
        "buffer.copy_(row)",
        4,
        """
buffer = torch.empty(3, 8).pin_memory()
for row in torch.randn(5, 3, 8):
    buffer.copy_(row)
    update(buffer.to("cuda", non_blocking=True))
""",
        tensor="buffer",
        level="error",
    ),
    bad(
        "pinned buffer filled by an out= op",
        "DG304",
        'update(buffer.to("cuda", non_blocking=True))',
        4,
        """
buffer = torch.empty(3, 8).pin_memory()
for row in torch.randn(5, 3, 8):
    torch.mul(row, 2.0, out=buffer)
    update(buffer.to("cuda", non_blocking=True))
""",
        tensor="buffer",
        level="error",
    ),
]

DISCARDED = [
    bad(
        "statement",
        "DG305",
        'x.to("cuda")',
        1,
        """
x = torch.ones(3, 8)
x.to("cuda")
""",
        tensor="x",
        level="error",
    ),
    bad(
        "item of a dict",
        "DG305",
        'batch["x"].cuda()',
        1,
        """
batch = {"x": torch.ones(3, 8)}
batch["x"].cuda()
""",
        tensor="batch['x']",
        level="error",
    ),
    bad(
        "chain of methods",
        "DG305",
        "x.cuda().float()",
        1,
        """
x = torch.ones(3, 8)
x.cuda().float()
""",
        tensor="x",
        level="error",
    ),
    bad(
        "comprehension for its effect",
        "DG305",
        't.to("cuda") for t in pair',
        2,
        """
pair = [torch.ones(3, 8), torch.zeros(3, 8)]
[t.to("cuda") for t in pair]
""",
        level="error",
    ),
    bad(
        "loop variable",
        "DG305",
        "t = t.cuda()",
        2,
        """
pair = [torch.ones(3, 8), torch.zeros(3, 8)]
for t in pair:
    t = t.cuda()
""",
        level="error",
        says="new collection",
    ),
    bad(
        "parameter in a method",
        "DG305",
        "self.scale.to(device)",
        1,
        """
class Holder:
    def __init__(self):
        self.scale = torch.ones(8)

    def move(self, device):
        self.scale.to(device)

holder = Holder()
holder.move("cuda")
""",
        level="error",
    ),
]

HISTORY = [
    bad(
        "statistics moved in each step",
        "DG306",
        "x = (x - mean.to(x.device)) / 2",
        6,
        """
mean = torch.arange(8.0)
for step in range(6):
    x = torch.randn(3, 8, device="cuda")
    x = (x - mean.to(x.device)) / 2
    update(x)
""",
        tensor="mean",
    ),
    bad(
        "attribute that is no buffer",
        "DG306",
        "return x * self.gain.to(x.device)",
        6,
        """
class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.full((8,), 2.0)

    def forward(self, x):
        return x * self.gain.to(x.device)

gain = Gain().cuda()
for step in range(6):
    update(gain(torch.randn(3, 8, device="cuda")))
""",
        says="register_buffer",
    ),
    bad(
        "one mask for many layers",
        "DG306",
        "return x * mask.to(x.device)",
        12,
        """
def layer(x, mask):
    return x * mask.to(x.device)

for step in range(3):
    x = torch.randn(3, 8, device="cuda")
    mask = torch.from_numpy(np.ones(8, dtype=np.float32))
    for _ in range(4):
        x = layer(x, mask)
    update(x)
""",
        tensor="mask",
    ),
    bad(
        "sorted by numpy",
        "DG307",
        "order = np.argsort(score.cpu().numpy())",
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    score = x.sum(dim=1)
    order = np.argsort(score.cpu().numpy())
    index = torch.from_numpy(order.copy()).to("cuda")
    update(x[index])
""",
        tensor="score",
    ),
    bad(
        "through a list",
        "DG307",
        "ids = x.argmax(dim=1).tolist()",
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    ids = x.argmax(dim=1).tolist()
    ids = sorted(ids)
    index = torch.tensor(ids, device="cuda") % 3
    update(x[index])
""",
    ),
    bad(
        "to the host and back",
        "DG307",
        "host = x.cpu()",
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    host = x.cpu()
    back = host.cuda()
    update(back)
""",
        tensor="x",
    ),
    bad(
        "sorted on the host in a helper",
        "DG307",
        "values = scores.cpu()",
        5,
        """
def ranking(scores):
    values = scores.cpu()
    values, _ = torch.sort(values)
    return values.cuda()

for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    update(x + ranking(x.sum(dim=1))[:, None])
""",
    ),
    bad(
        "to another accelerator and back",
        "DG307",
        'there = x.to("cuda:1")',
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    there = x.to("cuda:1")
    back = there.to("cuda:0")
    update(back)
""",
        devices=2,
    ),
    bad(
        "mask made on the host",
        "DG308",
        "return mask.to(device)",
        5,
        """
def causal(n, device):
    mask = torch.ones(n, n).tril() == 0
    return mask.to(device)

for step in range(5):
    x = torch.randn(8, 8, device="cuda")
    update(x.masked_fill(causal(8, x.device), 0.0))
""",
        tensor="mask",
        level="note",
    ),
    bad(
        "noise made on the host",
        "DG308",
        "noise = torch.randn(x.shape).to(x.device)",
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    noise = torch.randn(x.shape).to(x.device)
    update(x + noise)
""",
        level="note",
    ),
    bad(
        "positions made on the host",
        "DG308",
        "positions = torch.arange(n).float().cuda()",
        5,
        """
for n in (3, 4, 5, 6, 7):
    positions = torch.arange(n).float().cuda()
    update(positions[:, None] * torch.ones(1, 8, device="cuda"))
""",
        level="note",
    ),
    bad(
        "assignment across accelerators",
        "DG309",
        "bank[i] = x[0]",
        5,
        """
bank = torch.zeros(5, 64, device="cuda:1")
for i in range(5):
    x = torch.randn(3, 64, device="cuda:0")
    bank[i] = x[0]
    update(x[:, :8])
""",
        devices=2,
    ),
    bad(
        "assignment of a few numbers across accelerators",
        "DG309",
        "bank[i % 2] = x[0]",
        5,
        """
bank = torch.zeros(2, 8, device="cuda:1")
for i in range(5):
    x = torch.randn(3, 8, device="cuda:0")
    bank[i % 2] = x[0]
    update(x)
""",
        devices=2,
    ),
    bad(
        "to another accelerator by way of the host",
        "DG307",
        'there = x.cpu().to("cuda:1")',
        5,
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda:0")
    there = x.cpu().to("cuda:1")
    update(x)
""",
        devices=2,
        tensor="x",
    ),
    bad(
        "results written into a tensor on the host",
        "DG301",
        "results[i * 3 : (i + 1) * 3] = net(x)",
        5,
        """
results = torch.zeros(15, 4)
for i in range(5):
    x = torch.randn(3, 8, device="cuda")
    with torch.no_grad():
        results[i * 3 : (i + 1) * 3] = net(x)
    update(x)
""",
        tensor="net(x)",
    ),
    bad(
        "one table sent to the second stage again",
        "DG309",
        'there = table.to("cuda:1")',
        5,
        """
table = torch.arange(8.0, device="cuda:0")
for step in range(5):
    there = table.to("cuda:1")
    update(torch.randn(3, 8, device="cuda:0"))
""",
        devices=2,
        tensor="table",
    ),
]

CLEAN = [
    good(
        "set-up",
        """
x = torch.randn(3, 8).to("cuda")
table = torch.tensor([1.0, 2.0], device="cuda")
bank = torch.zeros(3, 8, device="cuda")
bank[0] = torch.ones(8)
for step in range(5):
    update(x)
""",
    ),
    good(
        "model and optimizer moved, saved and loaded",
        """
other = nn.Linear(8, 4).cuda()
other.load_state_dict({k: v.cpu() for k, v in net.state_dict().items()})
x = torch.randn(3, 8, device="cuda")
for step in range(5):
    update(x)
opt.load_state_dict(opt.state_dict())
net.cpu()
""",
    ),
    good(
        "pinned loader",
        """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4, pin_memory=True)
for (x,) in loader:
    x = x.cuda(non_blocking=True)
    update(x)
""",
    ),
    good(
        "batch class with pin_memory",
        """
from torch.utils.data import DataLoader

class Batch:
    def __init__(self, rows):
        self.x = torch.stack(rows)

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self

loader = DataLoader(list(torch.randn(24, 8)), batch_size=4, collate_fn=Batch, pin_memory=True)
for batch in loader:
    update(batch.x.cuda(non_blocking=True))
""",
    ),
    good(
        "prefetching on a side stream",
        """
batches = [b.pin_memory() for b in torch.randn(6, 3, 8)]
side = torch.cuda.Stream()
ready = None
for batch in batches:
    with torch.cuda.stream(side):
        arriving = batch.to("cuda", non_blocking=True)
    if ready is not None:
        update(ready)
    torch.cuda.current_stream().wait_stream(side)
    ready = arriving
""",
    ),
    good(
        "evaluation after training",
        """
x = torch.randn(3, 8, device="cuda")
for step in range(5):
    update(x)
with torch.no_grad():
    for row in torch.randn(6, 3, 8):
        net(row.cuda())
""",
    ),
    good(
        "logging now and then",
        """
x = torch.randn(3, 8, device="cuda")
log = torch.zeros(50)
for step in range(50):
    loss = update(x)
    if step % 20 == 0:
        log[step] = loss
""",
    ),
    good(
        "stages of a split model",
        """
first, second = nn.Linear(8, 8).to("cuda:0"), nn.Linear(8, 4).to("cuda:1")
both = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(5):
    h = first(torch.randn(3, 8, device="cuda:0"))
    out = second(h.to("cuda:1"))
    both.zero_grad()
    out.square().mean().backward()
    both.step()
""",
        devices=2,
    ),
    good(
        "activations kept on the host",
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        update(x)
""",
    ),
    good(
        "activations put away by hooks",
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()):
        update(x)
""",
    ),
    good(
        "waited for the device",
        """
for step in range(4):
    host = net(torch.randn(3, 8, device="cuda")).detach().to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    host.mean()
""",
    ),
    good(
        "waited for the stream",
        """
for step in range(4):
    host = net(torch.randn(3, 8, device="cuda")).detach().to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    host.mean()
""",
    ),
    good(
        "waited for an event",
        """
event = torch.cuda.Event()
for step in range(4):
    host = net(torch.randn(3, 8, device="cuda")).detach().to("cpu", non_blocking=True)
    event.record()
    torch.randn(3, 8)
    event.synchronize()
    host.mean()
""",
    ),
    good(
        "waited by a later read",
        """
for step in range(4):
    y = net(torch.randn(3, 8, device="cuda")).detach()
    host = y.to("cpu", non_blocking=True)
    total = y.sum().item()
    host.mean()
""",
    ),
    good(
        "read at the end",
        """
kept = []
for step in range(4):
    kept.append(net(torch.randn(3, 8, device="cuda")).detach().to("cpu", non_blocking=True))
torch.cuda.synchronize()
torch.stack(kept)
""",
    ),
    good(
        "a copy in flight is only looked at from outside",
        """
kept = []
for step in range(4):
    host = net(torch.randn(3, 8, device="cuda")).detach().to("cpu", non_blocking=True)
    kept.append((host.shape, host[0], host.view(-1), torch.empty_like(host)))
""",
    ),
    good(
        "buffer filled again after a wait",
        """
buffer = torch.empty(3, 8).pin_memory()
for row in torch.randn(5, 3, 8):
    buffer.copy_(row)
    x = buffer.to("cuda", non_blocking=True)
    update(x).item()
""",
    ),
    good(
        "two buffers with events",
        """
buffers = [torch.empty(3, 8).pin_memory() for _ in range(2)]
events = [torch.cuda.Event() for _ in range(2)]
for step, row in enumerate(torch.randn(6, 3, 8)):
    turn = step % 2
    if step >= 2:
        events[turn].synchronize()
    buffers[turn].copy_(row)
    x = buffers[turn].to("cuda", non_blocking=True)
    events[turn].record()
    update(x)
""",
    ),
    good(
        "results are taken",
        """
x = torch.ones(3, 8)
x = x.to("cuda")
y, z = x.cuda(), torch.ones(2).cuda()
batch = {"x": torch.ones(3, 8)}
batch["x"] = batch["x"].cuda()
pair = [t.cuda() for t in (torch.ones(2), torch.zeros(2))]
out = []
for t in [torch.ones(2), torch.zeros(2)]:
    t = t.cuda()
    out.append(t)
print(torch.ones(3).cuda().shape)
net.to("cuda")
nn.Linear(2, 2).cuda()
""",
    ),
    good(
        "numbers and host scalars in arithmetic",
        """
scale = torch.tensor(0.5)
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    x = x * scale + 1.0
    x = torch.where(x > 0, x, 0.0)
    update(x)
""",
    ),
    good(
        "masks and numbers assigned on the device",
        """
for step in range(5):
    x = torch.randn(3, 8, device="cuda")
    x[x < 0] = 0.0
    x[0] = 1.0
    x[:, 2] = 3.0
    update(x)
""",
    ),
    good(
        "everything made on the device",
        """
order = torch.randperm(30, device="cuda")
data = torch.randn(30, 8, device="cuda")
for start in range(0, 30, 6):
    x = data[order[start : start + 6]]
    mask = torch.full((6, 8), 1.0, device="cuda").triu(1)
    weight = torch.full((), 0.5, device="cuda")
    update(x * mask * weight)
""",
    ),
    good(
        "mask kept as a buffer",
        """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8).tril(), persistent=False)

    def forward(self, x):
        return x * self.mask.to(x.device)

""".replace(".tril()", "")
        + """
masked = Masked().cuda()
for step in range(5):
    update(masked(torch.randn(3, 8, device="cuda")))
""",
    ),
    good(
        "everything on the host",
        """
host_net = nn.Linear(8, 4)
host_opt = torch.optim.SGD(host_net.parameters(), lr=0.1)
table = torch.randn(30, 8)
for step in range(5):
    x = table[torch.randint(0, 30, (3,))].to("cpu")
    x[0] = torch.ones(8)
    host_opt.zero_grad()
    host_net(x).square().mean().backward()
    host_opt.step()
""",
    ),
    good(
        "recomputed in backward",
        """
from torch.utils.checkpoint import checkpoint
for step in range(5):
    x = torch.randn(3, 8, device="cuda", requires_grad=True)
    checkpoint(net, x, use_reentrant=False).square().mean().backward()
    opt.step()
""",
    ),
    good(
        "optimizer on the host, by hand",
        """
master = [p.detach().cpu().clone().requires_grad_() for p in net.parameters()]
host_opt = torch.optim.SGD(master, lr=0.1)
pinned = [torch.empty_like(m).pin_memory() for m in master]
for step in range(6):
    net(torch.randn(3, 8, device="cuda")).square().mean().backward()
    for m in master:
        m.grad = torch.ones_like(m)
    host_opt.step()
    with torch.no_grad():
        for m, p, buffer in zip(master, net.parameters(), pinned):
            torch.cuda.synchronize()
            buffer.copy_(m)
            p.copy_(buffer, non_blocking=True)
""",
    ),
    good(
        "average on the host, kept rarely",
        """
average = {k: v.cpu().clone() for k, v in net.state_dict().items()}
x = torch.randn(3, 8, device="cuda")
for step in range(60):
    update(x)
    if step % 25 == 24:
        for k, v in net.state_dict().items():
            average[k].copy_(v)
""",
    ),
]

BAD = [*IMPLICIT, *TRANSFERS, *UNSAFE, *DISCARDED, *HISTORY]
