"""Any other operands: DG108."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "gradient penalty alpha",
        """
        def penalty(D, real, fake):
            alpha = torch.rand(real.size(0), 1)  # cause
            mixed = alpha * real + (1 - alpha) * fake
            return D(mixed).sum()
        D = nn.Linear(3, 1).cuda()
        penalty(D, torch.ones(2, 3, device="cuda"), torch.zeros(2, 3, device="cuda"))
        """,
        rules="DG108",
        tensor="alpha",
    ),
    Case(
        "gan real labels",
        """
        D = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()).cuda()
        adversarial_loss = nn.BCELoss()
        real = torch.ones(4, 1)  # cause
        loss = adversarial_loss(D(torch.randn(4, 3).cuda()), real)
        """,
        rules="DG108|DG101",
        tensor="real",
        module="adversarial_loss",
    ),
    Case(
        "anchors generated per call",
        """
        def make_grid(h, w):
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")  # cause
            return torch.stack((xs, ys), 2).view(1, 1, h, w, 2).float()  # cause
        class Detect(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(2, 2, 1)
            def forward(self, x):
                y = self.conv(x)[:, None].permute(0, 1, 3, 4, 2)
                return y + make_grid(3, 3)
        Detect().cuda()(torch.ones(1, 2, 3, 3, device="cuda"))
        """,
        rules="DG108|DG101",
    ),
    Case(
        "text generation appends host tokens",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.h = nn.Embedding(9, 4), nn.Linear(4, 9)
            def forward(self, ids):
                return self.h(self.e(ids))
        lm = LM().cuda()
        ids = torch.tensor([[1, 2]], device="cuda")
        for _ in range(2):
            nxt = torch.tensor([[lm(ids)[0, -1].argmax().item()]])  # cause
            ids = torch.cat([ids, nxt], dim=1)
        """,
        rules="DG108",
        tensor="nxt",
    ),
    Case(
        "mixup with permutation and lam",
        """
        def mixup(x, y):
            lam = torch.rand(x.size(0), 1)  # cause
            idx = torch.randperm(x.size(0), device=x.device)
            return lam * x + (1 - lam) * x[idx]
        mixup(torch.ones(4, 3, device="cuda"), None)
        """,
        rules="DG108",
        tensor="lam",
    ),
)
