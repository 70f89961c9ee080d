"""Tensors that a module holds without having registered them: DG103."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "rotary cache shared by layers",
        """
        class Attn(nn.Module):
            def __init__(self, freqs):
                super().__init__()
                self.q = nn.Linear(4, 4)
                self.freqs = freqs  # cause
            def forward(self, x):
                return self.q(x) * self.freqs[: x.shape[1]]
        class T(nn.Module):
            def __init__(self):
                super().__init__()
                freqs = torch.ones(8, 4).cumsum(0)  # cause
                self.layers = nn.ModuleList(Attn(freqs) for _ in range(2))
            def forward(self, x):
                for l in self.layers:
                    x = l(x)
                return x
        t = T().cuda()
        t(torch.ones(1, 3, 4, device="cuda"))
        """,
        rules="DG103|DG101|DG108",
        tensor="layers.0.freqs",
        module="layers.0",
    ),
)
