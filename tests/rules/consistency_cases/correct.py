"""Correct programs: nothing may be said of them."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "plain training",
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to("cuda")
        opt = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            x, y = torch.randn(5, 4, device="cuda"), torch.zeros(5, dtype=torch.long, device="cuda")
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    ),
    Case(
        "optimizer before the move",
        """
        model = nn.Linear(4, 2)
        opt = torch.optim.Adam(model.parameters())
        model.to("cuda")
        for _ in range(2):
            model(torch.randn(3, 4, device="cuda")).sum().backward()
            opt.step()
        """,
    ),
    Case(
        "split model",
        """
        class Pipe(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4).to("cuda:0")
                self.second = nn.Linear(4, 2).to("cuda:1")
            def forward(self, x):
                return self.second(torch.relu(self.first(x)).to("cuda:1"))
        pipe = Pipe()
        out = pipe(torch.randn(2, 4, device="cuda:0"))
        F.cross_entropy(out, torch.tensor([0, 1]).to(out.device)).backward()
        """,
        devices=2,
    ),
    Case(
        "device map with hooks",
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
        for i, d in enumerate(["cuda:0", "cuda:1", "cpu"]):
            model[i].to(d)
            model[i].register_forward_pre_hook(lambda m, args, d=d: tuple(a.to(d) for a in args))
        model(torch.ones(1, 3))
        """,
        devices=2,
    ),
    Case(
        "offload block by block",
        """
        blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        class Offload(nn.Module):
            def __init__(self, blocks):
                super().__init__()
                self.blocks = blocks
            def forward(self, x):
                for block in self.blocks:
                    block.to("cuda")
                    x = block(x)
                    block.to("cpu")
                return x
        Offload(blocks)(torch.ones(1, 4, device="cuda"))
        """,
    ),
    Case(
        "ema on the host updated with to",
        """
        import copy
        model = nn.Linear(3, 3).cuda()
        ema = copy.deepcopy(model).cpu()
        for _ in range(3):
            model(torch.ones(1, 3, device="cuda")).sum().backward()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.lerp_(p.to("cpu"), 0.1)
        """,
    ),
    Case(
        "tied weights",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(6, 4)
                self.head = nn.Linear(4, 6, bias=False)
                self.head.weight = self.emb.weight
            def forward(self, ids):
                return self.head(self.emb(ids))
        lm = LM().to("cuda")
        assert lm.head.weight is lm.emb.weight
        lm(torch.zeros(2, dtype=torch.long, device="cuda")).sum().backward()
        """,
    ),
    Case(
        "stateless loss never moved",
        """
        model = nn.Linear(3, 2).cuda()
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        criterion(model(torch.ones(4, 3).cuda()), torch.zeros(4, dtype=torch.long).cuda()).backward()
        """,
    ),
    Case(
        "host scalars",
        """
        scale = torch.tensor(2.0)
        x = torch.ones(3, device="cuda")
        y = x * scale + torch.tensor(1)
        z = torch.where(x > 0, x, torch.tensor(0.0))
        w = x / x.sum().cpu()
        """,
    ),
    Case(
        "host index into a cuda tensor",
        """
        x = torch.randn(10, 3, device="cuda")
        idx = torch.randperm(10)[:4]
        y = x[idx]
        x[0] = torch.zeros(3)
        """,
    ),
    Case(
        "generator on the right device",
        """
        g = torch.Generator(device="cuda").manual_seed(0)
        x = torch.randn(3, device="cuda", generator=g)
        h = torch.Generator().manual_seed(0)
        y = torch.randn(3, generator=h).to("cuda")
        p = torch.randperm(4, generator=h)
        """,
    ),
    Case(
        "frozen parts",
        """
        backbone, head = nn.Linear(4, 4), nn.Linear(4, 2)
        backbone.requires_grad_(False)
        model = nn.Sequential(backbone, head).to("cuda")
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 4, device="cuda")).sum().backward()
            opt.step()
        """,
    ),
    Case(
        "kv cache made on the device",
        """
        class Attn(nn.Module):
            def __init__(self):
                super().__init__()
                self.k = nn.Linear(4, 4)
                self.cache = None
            def forward(self, x):
                k = self.k(x)
                self.cache = k if self.cache is None else torch.cat([self.cache, k], dim=1)
                return self.cache.sum(1)
        a = Attn().cuda()
        with torch.no_grad():
            for _ in range(3):
                a(torch.ones(1, 1, 4, device="cuda"))
        """,
    ),
    Case(
        "lengths stay on the host",
        """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        rnn = nn.GRU(3, 4, batch_first=True).cuda()
        x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
        packed = pack_padded_sequence(x.cuda(), lengths, batch_first=True)
        out, _ = rnn(packed)
        pad_packed_sequence(out, batch_first=True)
        """,
    ),
    Case(
        "module moves its inputs itself",
        """
        class Safe(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)
            def forward(self, x):
                return self.fc(x.to(self.fc.weight.device))
        Safe().cuda()(torch.ones(1, 3))
        """,
    ),
    Case(
        "history on the host",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)
                self.history = []
            def forward(self, x):
                out = self.fc(x)
                self.history.append(out.detach().cpu())
                return out
        net = Net().cuda()
        for _ in range(2):
            net(torch.ones(1, 3, device="cuda"))
        net.cpu()
        net.cuda()
        torch.stack(net.history).mean()
        """,
    ),
    Case(
        "new head moved too",
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).to("cuda")
        model[1] = nn.Linear(3, 5).to("cuda")
        model(torch.ones(1, 3, device="cuda"))
        """,
    ),
    Case(
        "buffers in a list looked up by name",
        """
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                for i in range(2):
                    self.register_buffer(f"anchor_{i}", torch.ones(3) * i)
            def forward(self, x):
                return [x * getattr(self, f"anchor_{i}") for i in range(2)]
        Head().cuda()(torch.ones(3, device="cuda"))
        """,
    ),
    Case(
        "metric moved",
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(3))
            def forward(self, v):
                self.total += v
        metric = M().to("cuda")
        metric(torch.ones(3, device="cuda"))
        """,
    ),
    Case(
        "two models on two devices",
        """
        student, teacher = nn.Linear(3, 2).to("cuda:0"), nn.Linear(3, 2).to("cuda:1")
        x = torch.randn(4, 3, device="cuda:0")
        with torch.no_grad():
            t = teacher(x.to("cuda:1")).to("cuda:0")
        F.mse_loss(student(x), t).backward()
        """,
        devices=2,
    ),
    Case(
        "host preprocessing model",
        """
        pre = nn.Linear(3, 3)
        model = nn.Linear(3, 2).cuda()
        with torch.no_grad():
            h = pre(torch.ones(1, 3))
        model(h.cuda())
        """,
    ),
    Case(
        "default device",
        """
        torch.set_default_device("cuda")
        try:
            model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            model(torch.ones(2, 3)).sum().backward()
        finally:
            torch.set_default_device(None)
        """,
    ),
    Case(
        "weight norm",
        """
        from torch.nn.utils.parametrizations import weight_norm
        net = nn.Sequential(weight_norm(nn.Linear(3, 3)), nn.ReLU()).cuda()
        net(torch.ones(1, 3, device="cuda")).sum().backward()
        """,
    ),
)
