"""One call for each fact about waits that is known for sure, and what it must be counted as. Data for test_syncs_table.py.

`expected` maps a rule to the number of waits of one call; empty means that the call does not wait, or that a copy rule tells it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SETUP = """
import io, math, pickle
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.rand(4, 3, device="cuda")
m = torch.eye(4, 3, device="cuda") > 0
v = torch.tensor([3, 1, 2], device="cuda")
one = torch.tensor(1, device="cuda")
half = torch.tensor(0.5, device="cuda")
flag = torch.tensor(True, device="cuda")
pd = torch.eye(3, device="cuda") * 2
host = torch.arange(2)
host_mask = torch.eye(4, 3) > 0
w = torch.rand(4, device="cuda").add(0.5).requires_grad_()
"""


@dataclass(frozen=True)
class Call:
    """A call and its waits."""

    label: str
    code: str
    expected: dict[str, int] = field(default_factory=dict)
    until: str = ""  # the first release of PyTorch that does not wait


def _group(rule: str, count: int, calls: str, *others: Call) -> tuple[Call, ...]:
    lines = [line.strip() for line in calls.strip().splitlines()]
    expected = {rule: count} if rule else {}
    return (*(Call(line, line, expected) for line in lines), *others)


SCALAR_READS = _group(
    "DG201",
    1,
    """
    half.item()
    float(half)
    int(one)
    bool(flag)
    complex(half)
    torch.is_nonzero(flag)
    1 if flag else 2
    not flag
    flag and 3
    f"{half:.2f}"
    f"{half}"
    math.sqrt(half)
    round(half.item(), 2)
    2.0 in x
    range(one)
    [5, 6][one]
    x[one]
    x[:one]
    x[0, one]
    x[flag]
    torch.zeros(one)
    x.new_zeros(one, 2)
    x.narrow(0, one, 1)
    x.expand(one, 4, 3)
    x.add(x, alpha=one)
    torch.full((2,), half)
    torch.arange(one)
    torch.linspace(half, 1, 4)
    torch.logspace(0, half, 4)
    max(half, one)
    torch.zeros(2).fill_(half)
    """,
    Call("while", "while flag:\n        break", {"DG201": 1}),
    Call("assert", "assert flag", {"DG201": 1}),
    Call("setitem with a device index", "x[one] = 0.5", {"DG201": 1}),
    Call("both bounds on the device", "torch.linspace(half, one, 4)", {"DG201": 2}),
    Call("max of an iterated tensor", "max(v)", {"DG201": 2}),
    Call("int of a max", "int(max(v))", {"DG201": 3}),
    Call("sorted", "sorted([one, half])", {"DG201": 1}),
    Call("a device scalar in a list of numbers", "half in [1.0, 2.0]", {"DG201": 2}),
    Call("a list of device scalars", "torch.tensor([half, half, half])", {"DG201": 3}),
)

HOST_COPIES = _group(
    "DG202",
    1,
    """
    x.tolist()
    half.tolist()
    repr(x)
    str(half)
    f"{x}"
    "%s" % x
    x.cpu()
    x.to("cpu")
    x.to(device="cpu", dtype=torch.float64)
    x.to(torch.zeros(1))
    x.type(torch.FloatTensor)
    x.numpy(force=True)
    torch.save(x, io.BytesIO())
    torch.save({"a": x, "b": v}, io.BytesIO())
    pickle.dumps(x)
    """,
)

DYNAMIC_SHAPES = _group(
    "DG203",
    1,
    """
    x.nonzero()
    x.nonzero(as_tuple=True)
    torch.nonzero(m)
    torch.where(m)
    torch.argwhere(m)
    x[m]
    x[m.byte()]
    x[m] = half
    x.index_put_((m,), x[0, 0])
    x.masked_select(m)
    x.unique()
    torch.unique(v, return_inverse=True)
    torch.unique_consecutive(v)
    x.unique(dim=0)
    v.repeat_interleave(v)
    torch.repeat_interleave(v)
    torch.bincount(v)
    torch.bincount(v, minlength=9)
    x.to_sparse()
    """,
    Call("combinations", "torch.combinations(v)", {"DG203": 2}, until="2.14"),
    Call("read and write through a mask", "x[m] = x[m] * 2", {"DG203": 2}),
    Call("two masks", "pd[m[0], m[1]]", {"DG203": 2}),
)

HIDDEN = _group(
    "DG205",
    1,
    """
    F.one_hot(v)
    torch.allclose(x, x + 1)
    torch.equal(x, x + 1)
    torch.normal(x, x)
    torch.normal(0.0, x)
    torch.histc(x)
    torch.segment_reduce(x[:, 0], "sum", lengths=torch.ones(4, dtype=torch.long, device="cuda"))
    torch.cov(x)
    torch.corrcoef(x)
    F.gaussian_nll_loss(x, x, x)
    x.index_fill(0, v, half)
    x.masked_fill(m, half)
    torch.linalg.cholesky(pd)
    torch.linalg.inv(pd)
    torch.linalg.inv_ex(pd, check_errors=True)
    torch.linalg.solve(pd, pd)
    torch.linalg.lu_factor(pd)
    torch.linalg.ldl_factor(pd)
    torch.linalg.svd(x)
    torch.linalg.svdvals(x)
    torch.linalg.pinv(x)
    torch.linalg.cond(pd)
    torch.linalg.matrix_norm(x, ord="nuc")
    torch.linalg.eigh(pd)
    torch.linalg.eigvalsh(pd)
    torch.linalg.eig(pd)
    torch.linalg.eigvals(pd)
    torch.linalg.lstsq(pd, pd)
    torch.matrix_exp(pd)
    w.prod().backward()
    w.cumprod(0).sum().backward()
    w.view(2, 2).prod(dim=0).sum().backward()
    torch.distributions.Exponential(half, validate_args=True)
    """,
    Call("istft", "torch.istft(torch.stft(torch.rand(64, device='cuda'), 16, window=torch.ones(16, device='cuda'), "
         "return_complex=True), 16, window=torch.ones(16, device='cuda'))", {"DG205": 1}),
    Call("two validated arguments", "torch.distributions.Normal(half, half, validate_args=True)", {"DG205": 2}),
    Call("a sample and its density", "torch.distributions.Normal(half, half, validate_args=False).sample()", {"DG205": 1}),
    Call("detect_anomaly", "with torch.autograd.detect_anomaly(check_nan=True):\n        (w * 2).sum().backward()",
         {"DG205": 2}),
    Call("BatchNorm without momentum", "nn.BatchNorm1d(3, momentum=None).cuda()(x)", {"DG205": 1}),
    Call("clip_grad_norm_", "(w * 2).sum().backward(); nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)",
         {"DG205": 1}),
    Call("ctc_loss", "F.ctc_loss(torch.rand(9, 2, 5, device='cuda').log_softmax(2), torch.ones(2, 4, dtype=torch.long, "
         "device='cuda'), torch.tensor([9, 9], device='cuda'), torch.tensor([4, 4], device='cuda'))", {"DG205": 2}),
)  # fmt: skip

EXPLICIT = _group(
    "DG204",
    1,
    """
    torch.cuda.synchronize()
    torch.cuda.synchronize(0)
    torch.accelerator.synchronize()
    torch.cuda.current_stream().synchronize()
    torch.cuda.Stream().synchronize()
    torch.cuda.empty_cache()
    """,
    Call("event", "e = torch.cuda.Event(); e.record(); e.synchronize()", {"DG204": 1}),
)

NEVER = _group(
    "",
    0,
    """
    torch.multinomial(x, 1)
    torch.distributions.Categorical(probs=x, validate_args=False).sample()
    torch._assert_async(flag)
    x.masked_scatter(m, x)
    x[host_mask]
    x[m] = 1.0
    x[0] = 1.0
    x[v] = half
    x[v]
    x.index_select(0, one.view(1))
    F.one_hot(v, num_classes=4)
    torch.randperm(5, device="cuda")
    v.repeat_interleave(2)
    v.repeat_interleave(v, output_size=6)
    m.any()
    m.all()
    torch.bernoulli(x)
    F.dropout(x)
    x.sort()
    x.topk(2)
    x.median()
    x.kthvalue(1)
    x.cummax(0)
    x.quantile(0.5)
    torch.cdist(x, x)
    torch.isin(v, v)
    torch.searchsorted(x, x)
    torch.bucketize(x, x[0])
    torch.histc(x, min=0, max=1)
    torch.where(m, x, 0.0)
    x.masked_fill(m, 0.5)
    torch.nonzero_static(x, size=4)
    torch.linalg.qr(x)
    torch.linalg.det(pd)
    torch.linalg.slogdet(pd)
    torch.linalg.lu(pd)
    torch.linalg.cholesky_ex(pd)
    torch.linalg.inv_ex(pd)
    torch.linalg.vector_norm(x)
    torch.linalg.matrix_norm(x)
    F.embedding(v, x)
    F.embedding_bag(v, x, torch.tensor([0], device="cuda"))
    F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device="cuda"))
    nn.utils.clip_grad_norm_([w], 1.0)
    x.to("cpu", non_blocking=True)
    x.to(torch.float16)
    x.to("cuda")
    x + half
    x * 2
    x.add(x, alpha=2)
    x.shape[0]
    x.numel()
    len(x)
    x.is_cuda
    list(v)
    v.unbind()
    x.data_ptr()
    x is None
    torch.stack([half, half])
    torch.tensor([1.0, 2.0], device="cuda")
    torch.tensor(x)
    torch.zeros(2).sum().item()
    print(x.shape, x.device, x.dtype, file=io.StringIO())
    host.tolist()
    torch.equal(x, x)
    torch.equal(x, x[:2])
    nn.BatchNorm1d(3).cuda()(x)
    (w * 2).sum().backward()
    (w ** 2).mean().backward()
    torch.cuda.Event().query()
    torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
    torch.cuda.memory_allocated()
    """,
)

# What PyTorch's own test of set_sync_debug_mode holds to wait, and not to.
SYNC_WARNING = tuple(
    Call(code, code, {"": waits})
    for code, waits in (
        ("x[m] = 1.0", 0),
        ("x[v] = x[:3] * 2", 0),
        ("x[v]", 0),
        ("F.one_hot(v, num_classes=4)", 0),
        ("torch.randperm(5, device='cuda')", 0),
        ("v.repeat_interleave(2, output_size=6)", 0),
        ("v.repeat_interleave(v, output_size=6)", 0),
        ("m.any()", 0),
        ("x[host_mask]", 0),
        ("x[m] = half", 1),
        ("x[host]", 1),
        ("x[host] = x[:2]", 1),
        ("x[m]", 1),
        ("x.nonzero()", 1),
        ("1 if flag else 0", 1),
        ("F.one_hot(v)", 1),
        ("v.repeat_interleave(v)", 1),
        ("x.cpu()", 1),
        ("half.item()", 1),
    )
)

GROUPS = {
    "scalar reads": SCALAR_READS,
    "host copies": HOST_COPIES,
    "dynamic shapes": DYNAMIC_SHAPES,
    "hidden waits": HIDDEN,
    "explicit waits": EXPLICIT,
    "no wait": NEVER,
}
