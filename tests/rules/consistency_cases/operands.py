"""Any other operands: DG108."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "labels cast after the loader",
        """
        from torch.utils.data import DataLoader, TensorDataset
        model = nn.Linear(3, 1).cuda()
        criterion = nn.BCEWithLogitsLoss()
        loader = DataLoader(TensorDataset(torch.randn(8, 3), torch.randint(0, 2, (8,))), batch_size=4)
        for x, y in loader:  # cause
            logits = model(x.cuda()).squeeze(1)
            loss = criterion(logits, y.float())
        """,
        rules="DG108|DG101",
        tensor="y",
        module="criterion",
    ),
    Case(
        "module level constant",
        """
        MEAN = torch.tensor([0.5, 0.4, 0.3])  # cause
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return self.fc(x - MEAN)
        m = N().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG108|DG103",
        tensor="MEAN",
    ),
    Case(
        "default argument",
        """
        def scale(x, by=torch.ones(3)):  # cause
            return x * by
        scale(torch.ones(3, device="cuda"))
        """,
        rules="DG108|DG101",
        tensor="by",
    ),
    Case(
        "cached function",
        """
        import functools
        @functools.lru_cache
        def window(n):
            return torch.hann_window(n)  # cause
        x = torch.ones(8, device="cuda")
        x * window(8)
        """,
        rules="DG108",
    ),
    Case(
        "table indexed by cuda index",
        """
        table = torch.randn(10, 4)  # cause
        idx = torch.randint(0, 10, (3,), device="cuda")
        rows = table[idx]
        """,
        rules="DG108",
        tensor="table",
    ),
    Case(
        "generator on the host",
        """
        g = torch.Generator().manual_seed(0)  # cause
        x = torch.randn(3, device="cuda", generator=g)
        """,
        rules="DG108",
        tensor="g",
    ),
    Case(
        "lengths on the gpu",
        """
        from torch.nn.utils.rnn import pack_padded_sequence
        class Enc(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 4, batch_first=True)
            def forward(self, x, lengths):
                packed = pack_padded_sequence(x, lengths, batch_first=True)
                return self.rnn(packed)[0]
        enc = Enc().cuda()
        x = torch.randn(2, 5, 3, device="cuda")
        lengths = torch.tensor([5, 3], device="cuda")  # cause
        enc(x, lengths)
        """,
        rules="DG108",
        tensor="lengths",
    ),
    Case(
        "ema of parameters",
        """
        import copy
        model = nn.Linear(3, 3)
        ema = copy.deepcopy(model)  # cause
        model.cuda()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.mul_(0.9).add_(p, alpha=0.1)  # cause
        """,
        rules="DG108",
    ),
    Case(
        "cat with zeros",
        """
        def pad(x, n):
            zeros = torch.zeros(n, x.shape[1])  # cause
            return torch.cat([x, zeros], dim=0)
        pad(torch.ones(2, 3, device="cuda"), 2)
        """,
        rules="DG108",
        tensor="zeros",
    ),
    Case(
        "scatter index",
        """
        out = torch.zeros(4, device="cuda")
        index = torch.tensor([0, 1, 1])  # cause
        out.scatter_add_(0, index, torch.ones(3, device="cuda"))
        """,
        rules="DG108",
        tensor="index",
    ),
    Case(
        "accumulator on the host",
        """
        model = nn.Linear(3, 2).cuda()
        total = torch.zeros(2)  # cause
        for _ in range(2):
            total += model(torch.ones(1, 3, device="cuda"))[0].detach()
        """,
        rules="DG108",
        tensor="total",
    ),
    Case(
        "boundaries",
        """
        class Binner:
            def __init__(self):
                self.edges = torch.linspace(0, 1, 5)  # cause
            def __call__(self, x):
                return torch.bucketize(x, self.edges)
        binner = Binner()
        binner(torch.rand(3, device="cuda"))
        """,
        rules="DG108",
        tensor="edges",
    ),
    Case(
        "inline constant",
        """
        x = torch.ones(3, device="cuda")
        y = x * torch.tensor([1.0, 2.0, 3.0])  # cause
        """,
        rules="DG108",
        tensor="torch.tensor([1.0, 2.0, 3.0])",
    ),
    Case(
        "numpy of a cuda tensor",
        """
        import numpy as np
        scores = torch.rand(3, device="cuda")
        best = np.argsort(scores)  # cause
        """,
        rules="DG108",
        tensor="scores",
    ),
    Case(
        "clamp bound",
        """
        low = torch.tensor(0.1)  # cause
        x = torch.ones(3, device="cuda")
        x.clamp(min=low)
        """,
        rules="DG108",
        tensor="low",
    ),
    Case(
        "einsum",
        """
        basis = torch.eye(3)  # cause
        x = torch.ones(2, 3, device="cuda")
        torch.einsum("bi,ij->bj", x, basis)
        """,
        rules="DG108",
        tensor="basis",
    ),
    Case(
        "labels for the last stage",
        """
        class Pipe(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4).to("cuda:0")
                self.second = nn.Linear(4, 2).to("cuda:1")
            def forward(self, x):
                return self.second(torch.relu(self.first(x)).to("cuda:1"))
        pipe = Pipe()
        x, y = torch.randn(2, 4).to("cuda:0"), torch.tensor([0, 1]).to("cuda:0")  # cause
        out = pipe(x)
        loss = F.cross_entropy(out, y)  # cause
        """,
        rules="DG108|DG101",
        tensor="y",
        devices=2,
    ),
    Case(
        "metric update without a call",
        """
        class MeanMetric(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(3))
            def update(self, value):
                self.total += value
        net = nn.Linear(4, 3).cuda()
        metric = MeanMetric()  # cause
        metric.update(net(torch.ones(1, 4).cuda())[0].detach())
        """,
        rules="DG108|DG101",
        tensor="metric.total",
    ),
    Case(
        "sinusoid made in forward",
        """
        def timestep_embedding(t, dim):
            half = dim // 2
            freqs = torch.exp(-torch.arange(half).float() / half)  # cause
            args = t[:, None].float() * freqs[None]
            return torch.cat([args.cos(), args.sin()], -1)
        class U(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)
            def forward(self, t):
                return self.fc(timestep_embedding(t, 8))
        u = U().cuda()
        u(torch.tensor([1, 2], device="cuda"))
        """,
        rules="DG108",
        tensor="freqs",
    ),
    Case(
        "hook with a host tensor",
        """
        direction = torch.ones(4)  # cause
        def steer(module, args, output):
            return output + direction
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda()
        model[0].register_forward_hook(steer)
        model(torch.ones(1, 4, device="cuda"))
        """,
        rules="DG108",
        tensor="direction",
    ),
    Case(
        "custom autograd function",
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.table = torch.linspace(0, 1, 3)  # cause
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.table
        x = torch.ones(3, device="cuda", requires_grad=True)
        Scale.apply(x).sum().backward()
        """,
        rules="DG108",
        tensor="table",
    ),
    Case(
        "metric list state",
        """
        class Recall:
            def __init__(self):
                self.hits = torch.zeros(3)  # cause
            def add(self, pred, target):
                self.hits += (pred == target).float()
        m = Recall()
        m.add(torch.ones(3, device="cuda"), torch.ones(3, device="cuda"))
        """,
        rules="DG108",
        tensor="hits",
    ),
    Case(
        "diffusion noise schedule in forward",
        """
        class Diffusion(nn.Module):
            def __init__(self, T=10):
                super().__init__()
                betas = torch.linspace(1e-4, 0.02, T)  # cause
                self.alphas_bar = torch.cumprod(1 - betas, 0)  # cause
                self.net = nn.Linear(3, 3)
            def forward(self, x0):
                t = torch.randint(0, 10, (x0.shape[0],), device=x0.device)
                a = self.alphas_bar[t][:, None]
                return self.net(a.sqrt() * x0)
        d = Diffusion().to("cuda")
        d(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG108|DG103",
        tensor="alphas_bar",
    ),
    Case(
        "rl action one hot",
        """
        q = nn.Linear(3, 2).cuda()
        values = q(torch.randn(4, 3, device="cuda"))
        actions = torch.randint(0, 2, (4, 1))  # cause
        values.gather(1, actions)
        """,
        rules="DG108",
        tensor="actions",
    ),
)
