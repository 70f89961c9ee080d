"""Operands that were calculated, handed on or made elsewhere: DG108."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "weights normalised before they are returned",
        """
        import numpy as np
        def sample(n):
            weights = torch.as_tensor(np.linspace(0.1, 1.0, n), dtype=torch.float32)  # cause
            return weights / weights.max()
        def loss():
            return torch.ones(4, device="cuda") * sample(4)
        loss()
        """,
        rules="DG108",
    ),
    Case(
        "result of a helper given a mask",
        """
        def blocks(mask):
            grown = F.max_pool2d(mask[:, None], 3, stride=1, padding=1)
            return 1 - grown.squeeze(1)  # cause
        def drop(x):
            mask = (torch.rand(x.shape[0], 4, 4) < 0.2).float()
            keep = blocks(mask)
            return x * keep[:, None]
        drop(torch.ones(2, 3, 4, 4, device="cuda"))
        """,
        rules="DG108",
    ),
    Case(
        "beam index on the first accelerator of a split model",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4).to("cuda:0")
                self.b = nn.Linear(4, 4).to("cuda:0")
                self.c = nn.Linear(4, 4).to("cuda:1")
        net = Net()
        state = net.c(net.b(net.a(torch.ones(2, 4, device="cuda:0"))).to("cuda:1"))
        best = net.a(torch.ones(2, 4, device="cuda:0")).sum(1).topk(2).indices
        state.index_select(0, best)  # cause
        """,
        rules="DG108",
        tensor="best",
        devices=2,
    ),
    Case(
        "generator inside a partial",
        """
        import functools
        def location(n, generator=None):
            return torch.rand(n, generator=generator)  # cause
        def sampler(seed):
            g = torch.Generator(device="cuda").manual_seed(seed)
            return functools.partial(location, 3, generator=g)
        sample = sampler(7)
        sample()
        """,
        rules="DG108",
    ),
    Case(
        "made inline beside the result of a model",
        """
        model = nn.Linear(3, 3).cuda()
        x = torch.randn(2, 3, device="cuda")
        model(x) + torch.zeros(3)  # cause
        """,
        rules="DG108",
        tensor="torch.zeros(3)",
    ),
    Case(
        "made inline beside another that says its device",
        """
        torch.ones(3, device="cuda") * torch.ones(3)  # cause
        """,
        rules="DG108",
        tensor="torch.ones(3)",
    ),
)
