"""Inputs that a module cannot take: DG101."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "trainer class criterion target",
        """
        from torch.utils.data import DataLoader, TensorDataset
        class Trainer:
            def __init__(self, model, loader):
                self.device = torch.device("cuda")
                self.model = model.to(self.device)
                self.loader = loader
                self.criterion = nn.CrossEntropyLoss()
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
            def run(self):
                for batch in self.loader:  # cause
                    x = batch[0].to(self.device)
                    self.opt.zero_grad()
                    loss = self.criterion(self.model(x), batch[1])
                    loss.backward()
                    self.opt.step()
        Trainer(nn.Linear(3, 2), DataLoader(TensorDataset(torch.randn(8, 3), torch.zeros(8).long()), batch_size=4)).run()
        """,
        rules="DG101|DG108",
        tensor="batch[1]",
        module="criterion",
    ),
    Case(
        "batch dict from collate",
        """
        from torch.utils.data import DataLoader
        def collate(samples):
            return {"x": torch.stack([s[0] for s in samples]), "y": torch.tensor([s[1] for s in samples])}  # cause
        loader = DataLoader([(torch.randn(3), i % 2) for i in range(4)], batch_size=2, collate_fn=collate)
        model = nn.Linear(3, 2).cuda()
        for batch in loader:  # cause
            out = model(batch["x"].cuda())
            F.cross_entropy(out, batch["y"])
        """,
        rules="DG101|DG108",
        tensor="batch['y']",
    ),
    Case(
        "autocast input",
        """
        model = nn.Linear(4, 4).to("cuda")
        x = torch.ones(1, 4)  # cause
        with torch.autocast("cuda", dtype=torch.bfloat16):
            model(x)
        """,
        rules="DG101",
        tensor="x",
    ),
    Case(
        "try gpu fallback",
        """
        def try_gpu(i=0):
            if torch.cuda.device_count() >= i + 1:
                return torch.device(f"cuda:{i}")
            return torch.device("cpu")
        net = nn.Linear(3, 2).to(device=try_gpu())
        X = torch.ones(2, 3, device=try_gpu(1))  # cause
        net(X)
        """,
        rules="DG101|DG108",
        tensor="X",
    ),
    Case(
        "net moved to the fallback",
        """
        def try_gpu(i=0):
            return torch.device(f"cuda:{i}") if torch.cuda.device_count() >= i + 1 else torch.device("cpu")
        net = nn.Linear(3, 2)
        net = net.to(device=try_gpu(10))  # cause
        X = torch.ones(2, 3, device="cuda")
        net(X)
        """,
        rules="DG101",
        tensor="weight|net.weight|X",
    ),
    Case(
        "graph edge index left",
        """
        class GCN(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 2)
            def forward(self, x, edge_index):
                h = self.lin(x)
                src, dst = edge_index
                out = torch.zeros_like(h)
                return out.index_add(0, dst, h[src])
        class Data:
            def __init__(self):
                self.x = torch.randn(4, 3)
                self.edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])  # cause
        data = Data()
        model = GCN().to("cuda")
        model(data.x.to("cuda"), data.edge_index)
        """,
        rules="DG101|DG108",
        tensor="dst|data.edge_index",
    ),
    Case(
        "replay buffer",
        """
        import random
        class Buffer:
            def __init__(self):
                self.items = []
            def push(self, s):
                self.items.append(s)
            def sample(self, n):
                return torch.stack(random.sample(self.items, n))  # cause
        buf = Buffer()
        for _ in range(4):
            buf.push(torch.randn(3))
        q = nn.Linear(3, 2).cuda()
        states = buf.sample(2)  # cause
        q(states)
        """,
        rules="DG101",
        tensor="states",
    ),
    Case(
        "decoder start token",
        """
        class Dec(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(5, 4)
                self.gru = nn.GRU(4, 4)
            def forward(self, tok, h):
                return self.gru(self.emb(tok)[None], h)
        dec = Dec().to("cuda")
        h = torch.zeros(1, 2, 4, device="cuda")
        tok = torch.full((2,), 1)  # cause
        dec(tok, h)
        """,
        rules="DG101",
        tensor="tok",
        module="emb",
    ),
    Case(
        "hidden from init_hidden in loop",
        """
        class RNN(nn.Module):
            def __init__(self):
                super().__init__()
                self.i2h = nn.Linear(3 + 4, 4)
            def forward(self, x, h):
                return self.i2h(torch.cat((x, h), 1))
            def init_hidden(self):
                return torch.zeros(1, 4)  # cause
        rnn = RNN().cuda()
        hidden = rnn.init_hidden()  # cause
        for x in torch.ones(2, 1, 3, device="cuda"):
            hidden = rnn(x, hidden)
        """,
        rules="DG101|DG108",
        tensor="hidden",
    ),
    Case(
        "encoder on host decoder on device",
        """
        encoder = nn.Linear(3, 4)  # cause
        decoder = nn.Linear(4, 3)
        decoder.to("cuda")
        x = torch.randn(2, 3, device="cuda")
        decoder(encoder(x))
        """,
        rules="DG101|DG102|DG108",
        tensor="encoder.weight",
    ),
    Case(
        "student moved by apply to parts",
        """
        class Sys(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Linear(3, 2)
                self.target_q = nn.Linear(3, 2)  # cause
            def act(self, s):
                return self.q(s)
        s = Sys()
        s.q.to("cuda")
        obs = torch.ones(1, 3, device="cuda")
        s.act(obs)
        s.target_q(obs)
        """,
        rules="DG101|DG102",
        tensor="target_q.weight",
        module="target_q",
    ),
    Case(
        "target network copied before the move",
        """
        import copy
        q = nn.Linear(3, 2)
        target_q = copy.deepcopy(q)  # cause
        q.to("cuda")
        obs = torch.ones(1, 3, device="cuda")
        q(obs)
        with torch.no_grad():
            target_q(obs)
        """,
        rules="DG101",
        tensor="target_q.weight|obs",
        module="target_q",
    ),
    Case(
        "loaded whole model on host",
        """
        import io
        buffer = io.BytesIO()
        torch.save(nn.Linear(3, 2).cuda(), buffer)
        buffer.seek(0)
        model = torch.load(buffer, map_location="cpu", weights_only=False)  # cause
        model.eval()
        model(torch.ones(1, 3, device="cuda"))
        """,
        rules="DG101",
        tensor="weight|model.weight",
    ),
    Case(
        "detection targets list",
        """
        class Det(nn.Module):
            def __init__(self):
                super().__init__()
                self.backbone = nn.Conv2d(3, 4, 1)
            def forward(self, images, targets):
                feats = [self.backbone(i[None]).mean() for i in images]
                return sum((f - t["boxes"].sum(1)).abs().sum() for f, t in zip(feats, targets))
        model = Det().to("cuda")
        images = [torch.rand(3, 4, 4).to("cuda") for _ in range(2)]
        targets = [{"boxes": torch.rand(2, 4), "labels": torch.ones(2)} for _ in range(2)]  # cause
        model(images, targets)
        """,
        rules="DG101|DG108",
        tensor="targets[0]['boxes']|t['boxes']|t",
    ),
    Case(
        "tied head on another device",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(6, 4).to("cuda:0")
                self.block = nn.Linear(4, 4).to("cuda:1")
                self.head = nn.Linear(4, 6, bias=False)
                self.head.weight = self.wte.weight  # cause
            def forward(self, ids):
                h = self.block(self.wte(ids).to("cuda:1"))
                return self.head(h)  # cause
        LM()(torch.zeros(1, 2, dtype=torch.long, device="cuda:0"))
        """,
        rules="DG101|DG108|DG102",
        module="head",
        devices=2,
    ),
    Case(
        "discriminator forgotten",
        """
        class GAN:
            def __init__(self):
                self.G = nn.Linear(2, 3).to("cuda")
                self.D = nn.Linear(3, 1)  # cause
            def step(self):
                fake = self.G(torch.randn(4, 2, device="cuda"))
                return self.D(fake)
        GAN().step()
        """,
        rules="DG101",
        tensor="D.weight|weight",
    ),
    Case(
        "model in a list of ensembles",
        """
        models = [nn.Linear(3, 2) for _ in range(2)]  # cause
        models[0].cuda()
        x = torch.ones(1, 3, device="cuda")
        outs = [m(x) for m in models]
        """,
        rules="DG101",
        tensor="models[1].weight|m.weight|x",  # Python 3.12 knows the name inside the brackets
    ),
    Case(
        "moved copy thrown away",
        """
        model = nn.Linear(3, 2).cuda()
        batch = {"x": torch.ones(1, 3)}  # cause
        moved = {k: v.to("cuda") for k, v in batch.items()}
        model(batch["x"])
        """,
        rules="DG101",
        tensor="batch['x']",
    ),
    Case(
        "timesteps made on host",
        """
        class U(nn.Module):
            def __init__(self):
                super().__init__()
                self.temb = nn.Embedding(10, 4)
            def forward(self, x, t):
                return x + self.temb(t)
        u = U().cuda()
        x = torch.ones(2, 4, device="cuda")
        for i in reversed(range(2)):
            t = torch.full((2,), i, dtype=torch.long)  # cause
            x = u(x, t)
        """,
        rules="DG101|DG108",
        tensor="t",
        module="temb",
    ),
    Case(
        "moved under no grad by wrong name",
        """
        def to_device(batch, device):
            for v in batch.values():
                v = v.to(device)
            return batch
        batch = {"x": torch.ones(2, 3)}  # cause
        batch = to_device(batch, "cuda")
        nn.Linear(3, 2).cuda()(batch["x"])
        """,
        rules="DG101",
        tensor="batch['x']",
    ),
)
