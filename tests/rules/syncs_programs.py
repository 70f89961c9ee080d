"""Small training and inference loops, and what the rules about waiting must say of each. Data for test_syncs_table.py.

`{body}` of a program stands in a loop of 12 steps; the others are whole programs.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda"
net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
table = torch.randn(20, 8, device=device)
lengths = torch.tensor([3, 1, 2], device=device)
ids = torch.tensor([0, 2, 1, 1], device=device)
kept = []
total = torch.zeros((), device=device)


def update(x):
    out = net(x)
    loss = out.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return out, loss

"""

LOOP = """
for step in range(12):
    x = torch.randn(4, 8, device=device)
    out, loss = update(x)
"""


@dataclass(frozen=True)
class Program:
    """`body` runs in the loop after each update, or is the `whole` rest of the program. `line` must be the cause."""

    name: str
    body: str = ""
    rule: str = ""
    line: str = ""
    count: int = 12
    tensor: str = ""
    level: str = "warning"
    says: str = ""
    whole: str = ""
    head: str = HEAD

    @property
    def text(self) -> str:
        """The program."""
        inner = "".join(f"    {line}\n" for line in self.body.strip("\n").split("\n"))
        return self.head + (self.whole or LOOP + inner)


BAD = (
    Program("item", "total += loss.item()", "DG201", "total += loss.item()", tensor="loss", says="after the loop"),
    Program("two reads in one line", "print(loss.item(), out.max().item())", "DG201", "print(", 24, "loss"),
    Program("nan guard", "if torch.isnan(loss): break", "DG201", "if torch.isnan(loss)", tensor="torch.isnan(loss)"),
    Program("either", "if loss.isnan() or loss.isinf(): break", "DG201", "if loss.isnan()", 24, "loss.isnan()"),
    Program("a not", "if not loss < 1e9:\n    break", "DG201", "if not loss < 1e9", tensor="loss < 1e9"),
    Program("an assert", "assert torch.isfinite(out).all()", "DG201", "assert torch", tensor="torch.isfinite(out).all()"),
    Program("a ternary", "scale = 2 if loss > 1 else 1", "DG201", "scale = 2", tensor="loss > 1"),
    Program("a comprehension", "big = [o for o in out.sum(1) if o > 0]", "DG201", "big = [", 48, "o > 0"),
    Program("a while", "while loss > 1e9:\n    loss = loss / 2", "DG201", "while loss", tensor="loss > 1e9"),
    Program("format", 'kept.append(f"{loss:.3f}")', "DG201", "kept.append(", tensor="loss", says="text"),
    Program("a list of scalars", "kept.append(torch.tensor([loss, out.max()]))", "DG201", "kept.append(", 24,
            says="torch.stack"),
    Program("index of a table", "row = table[ids[0]]", "DG201", "row = table", tensor="ids[0]", says="index_select"),
    Program("size", "pad = out.new_zeros(lengths.sum(), 3)", "DG201", "pad = out", tensor="lengths.sum()"),
    Program("amount for a function of torch.nn.functional", "n = lengths.sum()\nmore = F.pad(out, (0, n))", "DG201", "more = F.pad",
            tensor="n", says="passed to pad()"),
    Program("slice", "part = table[:lengths[0]]", "DG201", "part = table", tensor="lengths[0]"),
    Program("python max", "longest = int(max(lengths))", "DG201", "longest = int", 36, "lengths"),
    Program("loop bound", "for _ in range(lengths[1]):\n    pass", "DG201", "for _ in range", tensor="lengths[1]"),
    Program("a member", "hit = loss in [1.0, 2.0]", "DG201", "hit = loss", 24, "loss"),
    Program("a cast", "kept.append(float(loss.detach()))", "DG201", "kept.append", tensor="loss"),
    Program("to the host", "kept.append(out.detach().cpu())", "DG202", "kept.append", tensor="out", says="copied"),
    Program("to numpy", "kept.append(out.detach().to('cpu').numpy())", "DG202", "kept.append", tensor="out"),
    Program("tolist", "kept += out.argmax(1).tolist()", "DG202", "kept +=", tensor="out.argmax(1)"),
    Program("print", "print('loss', loss)", "DG202", "print('loss', loss)", tensor="loss", says="text"),
    Program("percent", "kept.append('out %s' % out)", "DG202", "kept.append", tensor="out"),
    Program("a checkpoint on each step", "torch.save(net.state_dict(), '/dev/null')", "DG202", "torch.save"),
    Program("mask", "pos = out[out > 0]", "DG203", "pos = out", tensor="out", says="torch.where"),
    Program("mask assignment", "with torch.no_grad():\n    out[out > 0] = out[out > 0] * 2", "DG203", "out[out > 0]", 24),
    Program("nonzero", "where = torch.nonzero(out)", "DG203", "where = torch", tensor="out"),
    Program("where with one argument", "rows, cols = torch.where(out > 0)", "DG203", "rows, cols"),
    Program("unique", "cells, back = ids.unique(return_inverse=True)", "DG203", "cells, back", tensor="ids"),
    Program("repeat_interleave", "long = torch.repeat_interleave(ids[:3], lengths)", "DG203", "long = ", tensor="lengths",
            says="output_size"),
    Program("bincount", "hist = torch.bincount(ids)", "DG203", "hist = ", tensor="ids"),
    Program("synchronize", "torch.cuda.synchronize()", "DG204", "torch.cuda.synchronize()"),
    Program("stream", "torch.cuda.current_stream().synchronize()", "DG204", "torch.cuda.current_stream()"),
    Program("empty_cache", "torch.cuda.empty_cache()", "DG204", "torch.cuda.empty_cache()", says="slow"),
    Program("one_hot", "hot = F.one_hot(ids)", "DG205", "hot = F.one_hot", tensor="ids", says="num_classes"),
    Program("equal", "same = torch.equal(out, out * 2)", "DG205", "same = torch", tensor="out"),
    Program("clip", "nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)", "DG205", "nn.utils.clip",
            tensor="total_norm", says="error_if_nonfinite"),
    Program("normal", "std = out.detach().abs() + 0.1\nnoise = torch.normal(out.detach(), std)", "DG205", "noise = ",
            tensor="std", says="randn_like"),
    Program("cholesky", "low = torch.linalg.cholesky(torch.eye(3, device=device))", "DG205", "low = ", says="cholesky_ex"),
    Program("gaussian_nll_loss", "nll = F.gaussian_nll_loss(out, out, out.detach().exp())", "DG205", "nll = ",
            tensor="var"),
    Program("distribution", "d = torch.distributions.Normal(out, out.detach().exp(), validate_args=True)", "DG205", "d = torch", 24, "out",
            says="validate_args=False"),
    Program("prod in the loss", whole="""
for step in range(6):
    gates = net(torch.randn(4, 8, device=device)).sigmoid()
    joint = gates.prod(dim=1)
    opt.zero_grad()
    joint.sum().backward()
    opt.step()
""", rule="DG205", line="joint = gates.prod(dim=1)", count=6, tensor="gates", says="prod"),
    Program("two prods", whole="""
for step in range(6):
    gates = net(torch.randn(4, 8, device=device)).sigmoid()
    both = gates.prod(dim=1)
    both = both + gates.prod(dim=1, keepdim=True).squeeze(1)
    both.sum().backward()
""", rule="DG205", line="both.sum().backward()", count=12, says="the backward of prod"),
    Program("lr on the device", whole="""
opt = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.1, device=device), foreach=False)
for step in range(6):
    update(torch.randn(4, 8, device=device))
""", rule="DG205", line="opt.step()", count=24, tensor="opt.param_groups[0]['lr']", says="Python number"),
    Program("momentum of None", whole="""
net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, momentum=None)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    update(torch.randn(4, 8, device=device))
""", rule="DG205", line="out = net(x)", count=6, tensor="num_batches_tracked", says="momentum"),
    Program("causal mask", whole="""
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).to(device)
mask = nn.Transformer.generate_square_subsequent_mask(5, device=device)
for step in range(6):
    out = encoder(torch.randn(2, 5, 8, device=device), mask=mask)
""", rule="DG205", line="out = encoder(", count=6, tensor="mask", says="is_causal"),
    Program("every step of a loop without an optimizer", whole="""
with torch.no_grad():
    for step in range(5):
        out = net(torch.randn(4, 8, device=device))
        kept.append(out.argmax().item())
""", rule="DG201", line="kept.append", count=5, tensor="out.argmax()"),
    Program("a list of losses", "kept.append(loss.detach())\nmean = torch.tensor(kept[-2:])", "DG201", "mean = ", 23,
            "kept[-2:]"),
    Program("the least of a list", "kept.append(loss.detach())\nleast = min(kept)", "DG201", "least = ", 66, "kept"),
    Program("a categorical distribution", "d = torch.distributions.Categorical(logits=out, validate_args=True)", "DG205", "d = ",
            tensor="logits"),
    Program("a plateau", whole="""
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
for step in range(6):
    out, loss = update(torch.randn(4, 8, device=device))
    plateau.step(loss)
""", rule="DG205", line="plateau.step(loss)", count=6, tensor="loss"),
    Program("three times before a third step", whole="""
for step in range(2):
    out, loss = update(torch.randn(4, 8, device=device))
    kept.append(loss.item() + out.sum().item())
""", rule="DG201", line="kept.append", count=4),
)  # fmt: skip

CLEAN = (
    Program("running total", "total += loss.detach()"),
    Program("flag", "bad = ~torch.isfinite(loss)\nkept.append(bad)"),
    Program("where with three arguments", "pos = torch.where(out > 0, out, 0.0)"),
    Program("mask filled with a number", "with torch.no_grad():\n    out[out > 0] = 0.0"),
    Program("weighted mean", "keep = (out > 0).float()\nmean = (out * keep).sum() / keep.sum().clamp(min=1)"),
    Program("one_hot with classes", "hot = F.one_hot(ids, num_classes=3)"),
    Program("repeat_interleave with a size", "long = torch.repeat_interleave(ids[:3], lengths, output_size=6)"),
    Program("index on the device", "row = table.index_select(0, ids[:1]); rows = table[ids]"),
    Program("shapes and flags", "n = out.shape[0] + out.numel() + len(out); ok = out.requires_grad and out.is_cuda"),
    Program("print a shape", "print(step, out.shape, out.device, out.dtype)"),
    Program("multinomial", "token = torch.multinomial(out.softmax(1), 1)"),
    Program("clip", "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"),
    Program("cholesky_ex", "low, info = torch.linalg.cholesky_ex(torch.eye(3, device=device))"),
    Program("stack of scalars", "kept.append(torch.stack([loss.detach(), out.max().detach()]))"),
    Program("iterate", "parts = [row * 2 for row in out]"),
    Program("host numbers", "host = torch.zeros(3)\nkept.append(host.sum().item())\nprint(host, host.tolist())"),
    Program("wait for a stream on the device", "torch.cuda.current_stream().wait_stream(torch.cuda.Stream())"),
    Program("async copy", "kept.append(out.detach().to('cpu', non_blocking=True))"),
    Program("rare logging", "if step % 11 == 0:\n    print('loss', loss.item())", "", level="note"),
    Program("one look after the loop", whole=LOOP + "    total += loss.detach()\nprint(total.item() / 12)\n"),
    Program(
        "evaluation after training",
        whole=LOOP
        + """
net.eval()
hits = 0
with torch.no_grad():
    for _ in range(9):
        hits += int((net(torch.randn(4, 8, device=device)).argmax(1) == 0).sum())
print(hits)
""",
    ),
    Program(
        "a checkpoint at the end",
        whole=LOOP
        + """
torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "/dev/null")
host = {name: value.cpu() for name, value in net.state_dict().items()}
""",
    ),
    Program(
        "moments before the loop",
        whole="""
mean = table.mean(0)
scale = [float(v) for v in table.std(0)]
print(mean, mean.tolist())
"""
        + LOOP,
    ),
    Program("synchronize around the loop", whole="torch.cuda.synchronize()" + LOOP + "torch.cuda.synchronize()\n"),
    Program(
        "amp",
        whole="""
scaler = torch.amp.GradScaler("cuda")
for step in range(6):
    with torch.autocast("cuda"):
        loss = net(torch.randn(4, 8, device=device)).pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    ),
    Program(
        "adam",
        whole="""
opt = torch.optim.Adam(net.parameters())
for step in range(6):
    update(torch.randn(4, 8, device=device))
""",
    ),
    Program(
        "save_on_cpu",
        whole="""
for step in range(6):
    with torch.autograd.graph.save_on_cpu():
        loss = net(torch.randn(4, 8, device=device)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    ),
    Program(
        "hooks that keep activations on the host",
        whole="""
for step in range(6):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device)):
        loss = net(torch.randn(4, 8, device=device)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    ),
    Program(
        "a leaf on the host",
        whole="""
scale = torch.ones(3, requires_grad=True)
for step in range(6):
    (net(torch.randn(4, 8, device=device)) * scale.to(device)).sum().backward()
""",
    ),
    Program(
        "a module that comes and goes",
        whole="""
for step in range(6):
    net.to(device)
    with torch.no_grad():
        net(torch.randn(4, 8, device=device))
    net.cpu()
""",
    ),
    Program("offload between two phases", whole=LOOP + "net.cpu()\nnet.to(device)\n" + LOOP),
)
