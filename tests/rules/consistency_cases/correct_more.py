"""Correct programs: nothing may be said of them."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "spectral norm and rnn flat weights",
        """
        net = nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(3, 3))).cuda()
        net(torch.ones(1, 3, device="cuda")).sum().backward()
        rnn = nn.LSTM(3, 4).cuda()
        rnn(torch.ones(2, 1, 3, device="cuda"))[0].sum().backward()
        """,
    ),
    Case(
        "batch of nested things moved",
        """
        def to_device(obj, device):
            if isinstance(obj, torch.Tensor): return obj.to(device)
            if isinstance(obj, dict): return {k: to_device(v, device) for k, v in obj.items()}
            if isinstance(obj, (list, tuple)): return type(obj)(to_device(v, device) for v in obj)
            return obj
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)
            def forward(self, batch):
                return self.fc(batch["x"][0])
        m = M().cuda()
        m(to_device({"x": [torch.ones(1, 3)], "y": (torch.ones(1),)}, "cuda"))
        """,
    ),
    Case(
        "data parallel",
        """
        model = nn.DataParallel(nn.Linear(3, 2).cuda(), device_ids=[0])
        model(torch.ones(4, 3, device="cuda")).sum().backward()
        """,
    ),
    Case(
        "checkpoint to host and back",
        """
        import io
        model = nn.Linear(3, 2).cuda()
        buffer = io.BytesIO()
        torch.save({k: v.cpu() for k, v in model.state_dict().items()}, buffer)
        buffer.seek(0)
        other = nn.Linear(3, 2)
        other.load_state_dict(torch.load(buffer, map_location="cpu"))
        other.to("cuda")
        other(torch.ones(1, 3, device="cuda"))
        """,
    ),
    Case(
        "a mistake that is caught and mended",
        """
        model = nn.Linear(3, 2).cuda()
        x = torch.ones(1, 3).cuda()
        model(x)
        y = torch.zeros(2).to(x.device)
        assert y.device.type == "cuda"
        """,
    ),
    Case(
        "helper object moved by hand",
        """
        class Sched:
            def __init__(self):
                self.betas = torch.linspace(0, 1, 5)
            def to(self, device):
                self.betas = self.betas.to(device)
                return self
        class D(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(5, 5)
                self.sched = Sched()
            def to(self, device):
                self.sched.to(device)
                return super().to(device)
            def forward(self, x):
                return self.fc(x * self.sched.betas)
        D().to("cuda")(torch.ones(1, 5, device="cuda"))
        """,
    ),
    Case(
        "retied after the move",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(6, 4)
                self.head = nn.Linear(4, 6, bias=False)
                self.tie()
            def tie(self):
                self.head.weight.data = self.emb.weight.data
        lm = LM()
        lm.to("cuda")
        lm.head.weight = lm.emb.weight
        """,
    ),
    Case(
        "gan",
        """
        G, D = nn.Linear(2, 4).cuda(), nn.Linear(4, 1).cuda()
        og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        bce = nn.BCEWithLogitsLoss()
        for _ in range(2):
            z = torch.randn(3, 2, device="cuda")
            fake = G(z)
            ld = bce(D(fake.detach()), torch.zeros(3, 1, device="cuda"))
            od.zero_grad(); ld.backward(); od.step()
            lg = bce(D(fake), torch.ones(3, 1, device="cuda"))
            og.zero_grad(); lg.backward(); og.step()
        """,
    ),
    Case(
        "loss weight on the device",
        """
        w = torch.tensor([1.0, 2.0], device="cuda")
        crit = nn.CrossEntropyLoss(weight=w)
        crit2 = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])).to("cuda")
        x = torch.randn(3, 2, device="cuda"); y = torch.zeros(3, dtype=torch.long, device="cuda")
        crit(x, y); crit2(x, y)
        """,
    ),
    Case(
        "cpu only",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.t = torch.ones(3)
                self.layers = [nn.Linear(3, 3)]
            def forward(self, x):
                return self.layers[0](self.fc(x)) + self.t
        torch.ones(1, device="cuda")
        n = Net()
        n(torch.ones(1, 3))
        """,
    ),
    Case(
        "recursive trainer",
        """
        class Trainer:
            def __init__(self):
                self.model = nn.Linear(3, 2)
                self.model.trainer = self
                self.model.to("cuda")
                self.batch = torch.ones(1, 3, device="cuda")
            def fit(self):
                return self.model(self.batch)
        Trainer().fit()
        """,
    ),
)
