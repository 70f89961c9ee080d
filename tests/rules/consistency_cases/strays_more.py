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
    Case(
        "prior distribution in a flow",
        """
        from torch.distributions import MultivariateNormal
        class Flow(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(2, 2)
                self.prior = MultivariateNormal(torch.zeros(2), torch.eye(2))  # cause
            def forward(self, x):
                return self.prior.log_prob(self.lin(x))
        Flow().cuda()(torch.ones(3, 2, device="cuda"))
        """,
        rules="DG103|DG108",
        tensor="prior.loc",
    ),
    Case(
        "positional encoding with variable",
        """
        import math
        class PositionalEncoding(nn.Module):
            def __init__(self, d=4, n=16):
                super().__init__()
                self.dropout = nn.Dropout(0.1)
                pe = torch.zeros(n, d)
                position = torch.arange(0, n).unsqueeze(1).float()
                div = torch.exp(torch.arange(0, d, 2).float() * -(math.log(10000.0) / d))
                pe[:, 0::2] = torch.sin(position * div)
                pe[:, 1::2] = torch.cos(position * div)
                self.pe = pe.unsqueeze(0)  # cause
            def forward(self, x):
                x = x + self.pe[:, : x.size(1)].requires_grad_(False)
                return self.dropout(x)
        class T(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(9, 4)
                self.pos = PositionalEncoding()
            def forward(self, ids):
                return self.pos(self.emb(ids))
        T().to("cuda")(torch.zeros(2, 3, dtype=torch.long, device="cuda"))
        """,
        rules="DG103",
        tensor="pos.pe",
        module="pos",
    ),
    Case(
        "ssim window",
        """
        class SSIM(nn.Module):
            def __init__(self, size=3):
                super().__init__()
                self.window = torch.ones(1, 1, size, size) / size**2  # cause
            def forward(self, a, b):
                return (F.conv2d(a, self.window) - F.conv2d(b, self.window)).abs().mean()
        ssim = SSIM()
        net = nn.Conv2d(1, 1, 1).cuda()
        x = torch.rand(1, 1, 6, 6).cuda()
        ssim(net(x), x)
        """,
        rules="DG103|DG108",
        tensor="ssim.window",
        module="ssim",
    ),
    Case(
        "causal mask attribute bool",
        """
        class Attn(nn.Module):
            def __init__(self, n=8):
                super().__init__()
                self.qkv = nn.Linear(4, 12)
                self.mask = torch.tril(torch.ones(n, n)).view(1, n, n)  # cause
            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, -1)
                att = q @ k.transpose(1, 2)
                att = att.masked_fill(self.mask[:, : x.shape[1], : x.shape[1]] == 0, float("-inf"))
                return att.softmax(-1) @ v
        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.Sequential(*[Attn() for _ in range(2)])
            def forward(self, x):
                return self.blocks(x)
        GPT().cuda()(torch.ones(1, 3, 4, device="cuda"))
        """,
        rules="DG103",
        tensor="blocks.0.mask",
        module="blocks.0",
    ),
    Case(
        "viterbi backpointers",
        """
        class CRF(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.transitions = torch.randn(n, n)  # cause
                self.emit = nn.Linear(4, n)
            def forward(self, x):
                scores = self.emit(x)
                return scores[:, 0, :, None] + self.transitions
        CRF(3).cuda()(torch.ones(2, 5, 4, device="cuda"))
        """,
        rules="DG103|DG108",
        tensor="transitions",
    ),
)
