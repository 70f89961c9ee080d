"""Tensors that a module holds without having registered them: DG103."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "attribute from outside",
        """
        class Head(nn.Module):
            def __init__(self, anchors):
                super().__init__()
                self.conv = nn.Conv2d(2, 2, 1)
                self.anchors = anchors  # cause
            def forward(self, x):
                return self.conv(x) * self.anchors.view(1, 2, 1, 1)
        anchors = torch.tensor([1.0, 2.0])
        head = Head(anchors)
        head.to("cuda")
        head(torch.ones(1, 2, 3, 3, device="cuda"))
        """,
        rules="DG103",
        tensor="anchors",
    ),
    Case(
        "list of tensors",
        """
        class Wavelet(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))
                self.filters = [torch.randn(1, 1, k) for k in (3, 5)]  # cause
            def forward(self, x):
                return [F.conv1d(x, f, padding="same") * self.scale for f in self.filters]
        net = Wavelet().cuda()
        net(torch.randn(1, 1, 16).cuda())
        """,
        rules="DG103",
        tensor="filters[0]",
    ),
    Case(
        "dict of tensors",
        """
        class Stats(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.stats = {}
                self.stats["mean"] = torch.zeros(3)  # cause
            def forward(self, x):
                return self.fc(x - self.stats["mean"])
        m = Stats().to("cuda")
        m(torch.ones(1, 3, device="cuda"))
        """,
        rules="DG103",
        tensor="stats['mean']",
    ),
    Case(
        "helper object",
        """
        class Scheduler:
            def __init__(self, n):
                self.betas = torch.linspace(0.1, 0.2, n)  # cause
                self.alphas = 1 - self.betas  # cause
        class Diffusion(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(3, 3)
                self.scheduler = Scheduler(10)
            def forward(self, x, t):
                return self.net(x) * self.scheduler.alphas[None, :3]
        d = Diffusion().to("cuda")
        d(torch.ones(1, 3, device="cuda"), 2)
        """,
        rules="DG103",
        tensor="scheduler.alphas",
    ),
    Case(
        "closure",
        """
        def make_scaler(n):
            table = torch.linspace(0, 1, n)  # cause
            def scale(x):
                return x * table
            return scale
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.scale = make_scaler(3)
            def forward(self, x):
                return self.scale(self.fc(x))
        m = Scaled().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG103|DG108",
        tensor="table",
    ),
    Case(
        "partial",
        """
        import functools
        def normalize(x, mean):
            return x - mean
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.pre = functools.partial(normalize, mean=torch.zeros(3))  # cause
            def forward(self, x):
                return self.fc(self.pre(x))
        m = N().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG103|DG108",
        tensor="mean",
    ),
    Case(
        "cache filled on the first device",
        """
        class Rope(nn.Module):
            def __init__(self, dim=4):
                super().__init__()
                self.dim = dim
                self.proj = nn.Linear(dim, dim)
                self.cos_cached = None
            def forward(self, x):
                if self.cos_cached is None:
                    self.cos_cached = torch.arange(self.dim, device=x.device).float().cos()  # cause
                return self.proj(x) * self.cos_cached
        rope = Rope()
        rope(torch.ones(1, 4))
        rope.to("cuda")  # cause
        rope(torch.ones(1, 4, device="cuda"))
        """,
        rules="DG103|DG108",
        tensor="cos_cached",
    ),
    Case(
        "view of a buffer",
        """
        class Pos(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.randn(8, 4))
                self.short = self.table[:2]  # cause
            def forward(self, x):
                return x + self.short
        p = Pos().cuda()
        p(torch.ones(2, 4).cuda())
        """,
        rules="DG103",
        tensor="short",
    ),
    Case(
        "calculated from an attribute",
        """
        class Rel(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 4)
                self.rel = torch.arange(4)  # cause
            def forward(self, x):
                bias = (self.rel[None] - self.rel[:, None]).float()
                return self.fc(x) + bias
        r = Rel().cuda()
        r(torch.ones(4, 4).cuda())
        """,
        rules="DG103",
        tensor="rel|bias",
    ),
    Case(
        "attribute cast in forward",
        """
        class Dft(nn.Module):
            def __init__(self):
                super().__init__()
                self.window = torch.hann_window(4, dtype=torch.float64)  # cause
                self.gain = nn.Parameter(torch.ones(1))
            def forward(self, x):
                return x * self.window.float() * self.gain
        d = Dft().to("cuda")
        d(torch.ones(1, 4, device="cuda"))
        """,
        rules="DG103",
        tensor="window",
    ),
    Case(
        "attribute of the parent used by a child",
        """
        class Child(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x, freqs):
                return self.fc(x) * freqs
        class Parent(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(Child() for _ in range(2))
                self.freqs = torch.ones(3) / 2  # cause
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x, self.freqs)
                return x
        p = Parent().cuda()
        p(torch.ones(1, 3).cuda())
        """,
        rules="DG103|DG108|DG101",
        tensor="freqs",
        module="layers.0",
    ),
    Case(
        "class attribute",
        """
        class Lab(nn.Module):
            matrix = torch.eye(3)  # cause
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return self.fc(x) @ self.matrix
        m = Lab().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG103|DG108",
        tensor="matrix",
    ),
    Case(
        "parameters in a list",
        """
        class Poly(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.coef = [nn.Parameter(torch.ones(3)) for _ in range(2)]  # cause
            def forward(self, x):
                x = self.fc(x)
                for c in self.coef:
                    x = x * c
                return x
        p = Poly().cuda()
        p(torch.ones(1, 3).cuda())
        """,
        rules="DG103|DG104",
        tensor="coef[0]",
    ),
    Case(
        "checkpointed block",
        """
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.scale = torch.ones(3) * 0.5  # cause
            def forward(self, x):
                return self.fc(x) * self.scale
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()
            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)
        net = Net().cuda()
        net(torch.ones(1, 3, device="cuda", requires_grad=True)).sum().backward()
        """,
        rules="DG103",
        tensor="block.scale",
        module="block",
    ),
    Case(
        "weight norm leftover",
        """
        import warnings
        warnings.simplefilter("ignore")
        from torch.nn.utils import weight_norm
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = weight_norm(nn.Linear(3, 3))  # cause
            def forward(self, x):
                return F.linear(x, self.lin.weight)
        n = N().cuda()
        n(torch.ones(1, 3, device="cuda"))
        """,
        rules="DG103|DG101|DG102|DG108",
        tensor="lin.weight",
    ),
    Case(
        "swin relative position index",
        """
        class Win(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Parameter(torch.zeros(9, 2))
                coords = torch.arange(3)
                self.index = coords[:, None] + coords[None]  # cause
            def forward(self, x):
                bias = torch.index_select(self.table, 0, self.index.view(-1))
                return x + bias.sum()
        w = Win().cuda()
        w(torch.ones(1, device="cuda"))
        """,
        rules="DG103",
        tensor="index",
    ),
    Case(
        "bert style position embedding buffer missing",
        """
        class E(nn.Module):
            def __init__(self):
                super().__init__()
                self.pos = nn.Embedding(8, 4)
                self.position_ids = torch.arange(8).expand((1, -1))  # cause
            def forward(self, x):
                return x + self.pos(self.position_ids[:, : x.shape[1]])
        e = E().cuda()
        e(torch.ones(1, 3, 4, device="cuda"))
        """,
        rules="DG103|DG101|DG108",
        tensor="position_ids",
        module="pos",
    ),
)
