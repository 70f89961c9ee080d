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
    Case(
        "normal distribution global",
        """
        import torch.distributions as D
        prior = D.Normal(torch.zeros(2), torch.ones(2))  # cause
        z = torch.ones(3, 2, device="cuda")
        prior.log_prob(z)
        """,
        rules="DG108",
        tensor="prior.loc",
    ),
    Case(
        "shadow of an ema made before the move",
        """
        class EMA:
            def __init__(self, model, decay):
                self.decay, self.shadow = decay, {}
                for name, p in model.named_parameters():
                    self.shadow[name] = p.data.clone()  # cause
            def update(self, model):
                for name, p in model.named_parameters():
                    self.shadow[name] = (1 - self.decay) * p.data + self.decay * self.shadow[name]  # cause
        model = nn.Linear(3, 2)
        ema = EMA(model, 0.9)  # cause
        model.cuda()
        ema.update(model)
        """,
        rules="DG108",
        tensor="shadow['weight']",
    ),
    Case(
        "predictions collected on two devices",
        """
        model = nn.Linear(3, 2).cuda()
        preds, labels = [], []
        for _ in range(2):
            preds.append(model(torch.ones(2, 3, device="cuda")).argmax(1))
            labels.append(torch.zeros(2, dtype=torch.long))  # cause
        correct = (torch.cat(preds) == torch.cat(labels)).sum()
        """,
        rules="DG108",
    ),
    Case(
        "confusion with sklearn like code",
        """
        import numpy as np
        def accuracy(y_true, y_pred):
            return (np.asarray(y_true) == np.asarray(y_pred)).mean()  # cause
        model = nn.Linear(3, 2).cuda()
        pred = model(torch.ones(2, 3, device="cuda")).argmax(1)
        accuracy(torch.zeros(2), pred)
        """,
        rules="DG108",
        tensor="pred|y_pred",
    ),
    Case(
        "numpy method",
        """
        model = nn.Linear(3, 2).cuda()
        out = model(torch.ones(2, 3, device="cuda")).detach().numpy()  # cause
        """,
        rules="DG108",
    ),
    Case(
        "beam scores",
        """
        def beam(logits, k):
            scores = torch.zeros(logits.shape[0], k)  # cause
            scores[:, 1:] = -1e9
            logp = logits.log_softmax(-1)
            return (scores[:, :, None] + logp[:, None]).flatten(1).topk(k)
        beam(torch.randn(2, 5, device="cuda"), 2)
        """,
        rules="DG108",
        tensor="scores",
    ),
    Case(
        "index_copy memory bank",
        """
        class Bank(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc = nn.Linear(3, 4)
                self.queue = torch.randn(8, 4)  # cause
            def forward(self, x):
                k = self.enc(x)
                return k @ self.queue.t()
        Bank().cuda()(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG108|DG103|DG101",
        tensor="queue",
    ),
    Case(
        "queue of moco on wrong gpu",
        """
        class Moco(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc = nn.Linear(3, 4)
            def forward(self, x, queue):
                return self.enc(x) @ queue
        m = Moco().to("cuda:1")
        queue = torch.randn(4, 8).cuda()  # cause
        m(torch.ones(2, 3, device="cuda:1"), queue)
        """,
        rules="DG108|DG101",
        tensor="queue",
        devices=2,
    ),
    Case(
        "arcface margin one hot",
        """
        class Arc(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(5, 4))
            def forward(self, x, label):
                cos = F.linear(F.normalize(x), F.normalize(self.weight))
                one_hot = torch.zeros(cos.size())  # cause
                one_hot.scatter_(1, label.view(-1, 1), 1)
                return one_hot * cos
        Arc().cuda()(torch.ones(2, 4, device="cuda"), torch.tensor([0, 1], device="cuda"))
        """,
        rules="DG108",
        tensor="one_hot",
    ),
    Case(
        "sdpa with host mask",
        """
        q = torch.randn(1, 2, 3, 4, device="cuda")
        mask = torch.ones(3, 3, dtype=torch.bool).tril()  # cause
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        """,
        rules="DG108|DG101",
        tensor="mask",
    ),
    Case(
        "grid sample grid",
        """
        img = torch.rand(1, 1, 4, 4, device="cuda")
        grid = F.affine_grid(torch.eye(2, 3)[None], (1, 1, 4, 4), align_corners=False)  # cause
        F.grid_sample(img, grid, align_corners=False)
        """,
        rules="DG108",
        tensor="grid",
    ),
    Case(
        "gumbel noise",
        """
        def gumbel(logits):
            u = torch.rand(logits.shape)  # cause
            return logits - torch.log(-torch.log(u + 1e-9) + 1e-9)
        gumbel(torch.zeros(3, device="cuda"))
        """,
        rules="DG108",
        tensor="u",
    ),
    Case(
        "dtw loop accumulators",
        """
        def run(xs):
            best = torch.tensor([0.0, 0.0])  # cause
            for x in xs:
                best = torch.maximum(best, x)
            return best
        run(torch.ones(3, 2, device="cuda"))
        """,
        rules="DG108",
        tensor="best",
    ),
)
