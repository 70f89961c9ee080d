"""Training programs with several mistakes at once, or with one beside things that only look like one.

A mistake's line ends in `#! RULE NAME => the line without it` (`#?`: it may be told of and need not)."""

# ruff: noqa: E501 -- a mistake and its repair stand in one line

PROGRAMS = {
    "input and class weight": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])).cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4, device="cuda")
            y = torch.randint(0, 3, (8,))  #! DG101 y => y = torch.randint(0, 3, (8,), device="cuda")
            loss = criterion(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
    """,
    "input and loaded state": """
        model = nn.Linear(4, 3)
        opt = torch.optim.Adam(model.parameters())
        model(torch.randn(2, 4)).sum().backward(); opt.step()
        saved = opt.state_dict()
        model2 = nn.Linear(4, 3)
        opt2 = torch.optim.Adam(model2.parameters())
        opt2.load_state_dict(saved)  #! DG106 opt2.state[...]['exp_avg'] => pass
        model2.cuda()
        opt2.load_state_dict(saved)if torch.cuda.device_count() == 9 else None
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4, device="cuda")
        loss = model2(x).pow(2).mean()
        loss.backward()
        opt2.step()
    """,
    "stray position and input": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Linear(4, 6)
                self.pos = torch.randn(1, 5, 6)  #! DG103 pos => self.register_buffer("pos", torch.randn(1, 5, 6))
                self.head = nn.Linear(6, 3)
            def forward(self, x):
                return self.head(self.emb(x) + self.pos)
        model = Net().to("cuda")
        model.head = nn.Linear(6, 3)  #! DG102 head.weight => model.head = nn.Linear(6, 3).to("cuda")
        criterion = nn.BCEWithLogitsLoss(pos_weight=torch.ones(3) * 2)  #! DG105 criterion.pos_weight => criterion = nn.BCEWithLogitsLoss(pos_weight=torch.ones(3, device="cuda") * 2)
        x = torch.randn(2, 5, 4)  #! DG101 x => x = torch.randn(2, 5, 4).cuda()
        out = model(x)
        loss = criterion(out, torch.ones_like(out))
    """,
    "hidden list and mask": """
        class Heads(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 6)
                self.heads = [nn.Linear(6, 2) for _ in range(3)]  #! DG104 heads[0].weight => self.heads = nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])
                self.mask = torch.ones(6)  #! DG103 mask => self.register_buffer("mask", torch.ones(6))
            def forward(self, x):
                h = self.body(x)
                outs = [head(h) for head in self.heads]
                return torch.stack(outs).sum(0) * (h * self.mask).mean()
        def main():
            device = torch.device("cuda")
            model = Heads().to(device)
            loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1., 3.]))  #! DG105 loss_fn.weight => loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1., 3.])).to(device)
            x = torch.randn(8, 4, device=device)
            y = torch.zeros(8, dtype=torch.long)  #! DG101 y => y = torch.zeros(8, dtype=torch.long, device=device)
            out = model(x)
            loss = loss_fn(out, y)
            loss.backward()
        main()
    """,
    "dict batch": """
        class Enc(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(20, 8)
                self.out = nn.Linear(8, 2)
                self.pos_ids = torch.arange(6)  #! DG103 pos_ids => self.register_buffer("pos_ids", torch.arange(6))
                self.pos = nn.Embedding(6, 8)
            def forward(self, input_ids, attention_mask):
                h = self.emb(input_ids) + self.pos(self.pos_ids)
                h = h * attention_mask.unsqueeze(-1)
                return self.out(h.mean(1))
        model = Enc().cuda()
        def collate():
            ids = torch.randint(0, 20, (3, 6))  #! DG101 batch['input_ids'] => ids = torch.randint(0, 20, (3, 6)).cuda()
            mask = torch.ones(3, 6)  #! DG101 batch['attention_mask'] => mask = torch.ones(3, 6).cuda()
            labels = torch.zeros(3, dtype=torch.long)  #! DG108 batch['labels'] => labels = torch.zeros(3, dtype=torch.long).cuda()
            return {"input_ids": ids, "attention_mask": mask, "labels": labels}
        batch = collate()
        logits = model(batch["input_ids"], batch["attention_mask"])
        loss = F.cross_entropy(logits, batch["labels"])
        loss.backward()
    """,
    "functional weight later": """
        model = nn.Linear(4, 3).cuda()
        weights = torch.tensor([1., 2., 3.])  #! DG105 weights => weights = torch.tensor([1., 2., 3.]).cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long, device="cuda")
        loss = F.cross_entropy(model(x), y, weight=weights)
    """,
    "trainer class": """
        class Trainer:
            def __init__(self, model, counts):
                self.device = torch.device("cuda:0")
                self.model = model.to(self.device)
                self.class_weights = 1.0 / counts  #! DG105 class_weights => self.class_weights = 1.0 / counts.to(self.device)
                self.opt = torch.optim.AdamW(self.model.parameters())
            def step(self, batch):
                x, y = batch
                logits = self.model(x)
                loss = F.cross_entropy(logits, y, weight=self.class_weights)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                return loss
        t = Trainer(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.tensor([10., 20., 30.]))
        xs = torch.randn(8, 4)  #! DG101 xs|x|batch[0] => xs = torch.randn(8, 4).cuda()
        ys = torch.zeros(8, dtype=torch.long)  #! DG108 ys|y|batch[1] => ys = torch.zeros(8, dtype=torch.long).cuda()
        t.step((xs, ys))
    """,
    "center loss and state": """
        class CenterLoss(nn.Module):
            def __init__(self, n, d):
                super().__init__()
                self.centers = nn.Parameter(torch.randn(n, d))
            def forward(self, feats, y):
                return (feats - self.centers[y]).pow(2).mean()
        net = nn.Linear(4, 6)
        opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for p in net.parameters():
            opt.state[p]["momentum_buffer"] = torch.zeros_like(p)  #! DG106 opt.state[...]['momentum_buffer'] => opt.state[p]["momentum_buffer"] = torch.zeros_like(p, device="cuda")
        net.cuda()
        center = CenterLoss(3, 6)  #! DG105 center.centers => center = CenterLoss(3, 6).cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long, device="cuda")
        loss = center(net(x), y)
        loss.backward()
        opt.step()
    """,
    "lora and cache": """
        class Base(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Linear(4, 4)
                self.lora_a = None
                self.scale = torch.ones(4)  #! DG103 scale => self.register_buffer("scale", torch.ones(4))
            def forward(self, x):
                h = self.q(x)
                if self.lora_a is not None:
                    h = h + self.lora_b(self.lora_a(x))
                return h * self.scale
        model = Base().cuda()
        model.lora_a = nn.Linear(4, 2, bias=False)  #! DG102 lora_a.weight => model.lora_a = nn.Linear(4, 2, bias=False).cuda()
        model.lora_b = nn.Linear(2, 4, bias=False)  #! DG102 lora_b.weight => model.lora_b = nn.Linear(2, 4, bias=False).cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        model(x)
    """,
    "wrong gpu": """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to("cuda:1")
        criterion = nn.CrossEntropyLoss(weight=torch.ones(3).cuda())  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).to("cuda:1")
        x = torch.randn(8, 4).cuda()  #! DG101 x => x = torch.randn(8, 4).to("cuda:1")
        y = torch.zeros(8, dtype=torch.long).cuda()  #! DG101 y => y = torch.zeros(8, dtype=torch.long).to("cuda:1")
        loss = criterion(model(x), y)
    """,
    "lstm hidden": """
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(30, 8)
                self.lstm = nn.LSTM(8, 8, batch_first=True)
                self.hidden = (torch.zeros(1, 4, 8), torch.zeros(1, 4, 8))  #! DG103 hidden[0]|hidden[1] => self.hidden = None
                self.fc = nn.Linear(8, 5)
            def forward(self, ids):
                out, _ = self.lstm(self.emb(ids), self.hidden)
                return self.fc(out)
        model = Tagger()
        model.cuda()
        model.fc = nn.Linear(8, 7)  #! DG102 fc.weight => model.fc = nn.Linear(8, 7).cuda()
        ids = torch.randint(0, 30, (4, 6), device="cuda")
        tags = torch.randint(0, 7, (4, 6))  #! DG101 tags => tags = torch.randint(0, 7, (4, 6), device="cuda")
        ce = nn.CrossEntropyLoss()
        logits = model(ids)
        loss = ce(logits.transpose(1, 2), tags)
        loss.backward()
    """,
    "perceptual loss": """
        class Perceptual(nn.Module):
            def __init__(self):
                super().__init__()
                self.vgg = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
                self.mean = torch.zeros(1, 3, 1, 1)  #! DG103|DG105 mean => self.register_buffer("mean", torch.zeros(1, 3, 1, 1))
            def forward(self, a, b):
                return (self.vgg(a - self.mean) - self.vgg(b - self.mean)).abs().mean()
        gen = nn.Conv2d(3, 3, 3, padding=1).cuda()
        perceptual_loss = Perceptual()  #! DG101|DG105 perceptual_loss.vgg.0.weight => perceptual_loss = Perceptual().cuda()
        img = torch.rand(2, 3, 8, 8)  #! DG101 img => img = torch.rand(2, 3, 8, 8).cuda()
        target = torch.rand(2, 3, 8, 8)  #! DG101 target => target = torch.rand(2, 3, 8, 8).cuda()
        loss = perceptual_loss(gen(img), target)
    """,
    "dataclass batch": """
        from dataclasses import dataclass
        @dataclass
        class Batch:
            image: torch.Tensor
            meta: torch.Tensor
            label: torch.Tensor
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 8)
                self.b = nn.Linear(2, 8)
            def forward(self, batch):
                return self.a(batch.image) + self.b(batch.meta)
        model = Net().cuda()
        criterion = nn.CrossEntropyLoss()
        image = torch.randn(5, 4)  #! DG101 batch.image|image => image = torch.randn(5, 4).cuda()
        meta = torch.randn(5, 2)  #! DG101 batch.meta|meta => meta = torch.randn(5, 2).cuda()
        label = torch.zeros(5, dtype=torch.long)  #! DG101 batch.label|label => label = torch.zeros(5, dtype=torch.long).cuda()
        batch = Batch(image, meta, label)
        loss = criterion(model(batch), batch.label)
    """,
    "caught and retried": """
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).cuda()
        model[1] = nn.Linear(8, 3)  #! DG102 1.weight => model[1] = nn.Linear(8, 3).cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        try:
            out = model(x)
        except RuntimeError:
            out = model(x.cuda())
    """,
    "buffer replaced": """
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(4))
                self.fc = nn.Linear(4, 3)
            def forward(self, x):
                return self.fc(x - self.mean)
        model = Norm().cuda()
        model.mean = torch.randn(100, 4).mean(0)  #! DG102 mean => model.mean = torch.randn(100, 4).mean(0).cuda()
        class_w = torch.ones(3)  #! DG105 class_w|criterion.weight => class_w = torch.ones(3).cuda()
        criterion = nn.NLLLoss(weight=class_w)
        x = torch.randn(8, 4, device="cuda")
        y = torch.zeros(8, dtype=torch.long)  #! DG101 y => y = torch.zeros(8, dtype=torch.long, device="cuda")
        loss = criterion(model(x).log_softmax(1), y)
    """,
    "adagrad and input": """
        model = nn.Linear(4, 3)
        opt = torch.optim.Adagrad(model.parameters(), 0.1)  #! DG106 opt.state[...]['sum'] => pass
        model.cuda()
        opt = opt if "opt" in dir() else torch.optim.Adagrad(model.parameters(), 0.1)
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        w = torch.ones(3)  #! DG105 w => w = torch.ones(3).cuda()
        y = torch.zeros(8, dtype=torch.long).cuda()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y, w)
        loss.backward()
        opt.step()
    """,
    "attention masks": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
                self.causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)  #! DG103 causal => self.register_buffer("causal", torch.triu(torch.ones(5, 5, dtype=torch.bool), 1))
                self.norm = nn.LayerNorm(8)
            def forward(self, x, pad):
                h, _ = self.attn(x, x, x, attn_mask=self.causal, key_padding_mask=pad)
                return self.norm(x + h)
        model = Block().to("cuda")
        model.norm = nn.LayerNorm(8)  #! DG102 norm.weight => model.norm = nn.LayerNorm(8).to("cuda")
        x = torch.randn(2, 5, 8, device="cuda")
        pad = torch.zeros(2, 5, dtype=torch.bool)  #! DG101 pad => pad = torch.zeros(2, 5, dtype=torch.bool, device="cuda")
        model(x, pad)
    """,
    "closure helper": """
        class Rope:
            def __init__(self, n, d):
                self.table = torch.randn(n, d)  #! DG103 rope.table => self.table = torch.randn(n, d).cuda()
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rope = Rope(5, 4)
                self.proj = nn.Linear(4, 4)
                self.extra = {"gate": nn.Linear(4, 4)}  #! DG104 extra['gate'].weight => self.extra = nn.ModuleDict({"gate": nn.Linear(4, 4)})
            def forward(self, x):
                return self.extra["gate"](self.proj(x + self.rope.table))
        net = Net().cuda()
        x = torch.randn(5, 4)  #! DG101 x => x = torch.randn(5, 4).cuda()
        target = torch.randn(5, 4)  #! DG108 target => target = torch.randn(5, 4).cuda()
        pred = net(x)
        loss = F.mse_loss(pred, target)
    """,
    "model unmoved state moved": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
            def forward(self, x):
                return self.fc(x)
        model = Net()  #! DG101 model.fc.weight|fc.weight => model = Net().cuda()
        criterion = nn.CrossEntropyLoss(weight=torch.ones(3))  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).cuda()
        for _ in range(2):
            x = torch.randn(8, 4).cuda()
            y = torch.zeros(8, dtype=torch.long).cuda()
            loss = criterion(model(x), y)
    """,
    "loader tuple": """
        from torch.utils.data import DataLoader, TensorDataset
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
                self.temperature = torch.full((3,), 2.0)  #! DG103 temperature => self.register_buffer("temperature", torch.full((3,), 2.0))
            def forward(self, x):
                return self.fc(x) / self.temperature
        data = TensorDataset(torch.randn(16, 4), torch.zeros(16, dtype=torch.long), torch.ones(16))
        loader = DataLoader(data, batch_size=4)
        model = Net().cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        criterion = nn.CrossEntropyLoss(reduction="none", weight=torch.ones(3))  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(reduction="none", weight=torch.ones(3)).cuda()
        for x, y, w in loader:
            x, y, w = x.cuda(), y.cuda(), w.cuda()
            opt.zero_grad()
            loss = (criterion(model(x), y) * w).mean()
            loss.backward()
            opt.step()
    """,
    "loader unmoved": """
        from torch.utils.data import DataLoader, TensorDataset
        model = nn.Linear(4, 3).cuda()
        model.bias = nn.Parameter(torch.zeros(3))  #! DG102 bias => model.bias = nn.Parameter(torch.zeros(3, device="cuda"))
        data = TensorDataset(torch.randn(16, 4), torch.zeros(16, dtype=torch.long))
        opt = torch.optim.SGD(model.parameters(), 0.1)
        criterion = nn.CrossEntropyLoss(weight=torch.ones(3))  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).cuda()
        for x, y in DataLoader(data, batch_size=4):  #! DG101 x|y => for x, y in ((a.cuda(), b.cuda()) for a, b in DataLoader(data, batch_size=4)):
            loss = criterion(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "metric state": """
        class RunningAcc:
            def __init__(self, n):
                self.hits = torch.zeros(n)  #? DG108 hits => self.hits = torch.zeros(n, device="cuda")
            def update(self, pred, y):
                self.hits += (pred == y).float()
        model = nn.Linear(4, 3).cuda()
        acc = RunningAcc(8)
        criterion = nn.CrossEntropyLoss(weight=torch.ones(3))  #! DG105 criterion.weight => criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).cuda()
        x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)  #! DG101 y => y = torch.zeros(8, dtype=torch.long).cuda()
        out = model(x)
        loss = criterion(out, y)
        acc.update(out.argmax(1), y)
    """,
    "wrong gpu stray state": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
                self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
                self.offset = torch.zeros(4, device="cuda")  #! DG103 offset => self.register_buffer("offset", torch.zeros(4))
            def forward(self, x):
                return self.fc(self.inner(x + self.offset))
        model = Net().to("cuda:1")
        model.fc = nn.Linear(4, 5).cuda()  #? DG102 fc.weight => model.fc = nn.Linear(4, 5).to("cuda:1")
        model(torch.randn(3, 4, device="cuda:1"))
    """,
    "train in function": """
        def make():
            model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 2))
            model.cuda()
            model[2] = nn.Linear(24, 4)  #! DG102 2.weight => model[2] = nn.Linear(24, 4).cuda()
            return model
        def batches():
            for _ in range(2):
                yield {"ids": torch.randint(0, 10, (5, 3)), "label": torch.zeros(5, dtype=torch.long)}
        def train(model, criterion, opt):
            for batch in batches():
                batch = {k: v.cuda() for k, v in batch.items()}
                opt.zero_grad()
                logits = model(batch["ids"])
                loss = criterion(logits, batch["label"])
                loss.backward()
                opt.step()
        model = make()
        w = torch.tensor([1., 1., 2., 2.])  #! DG105 criterion.weight => w = torch.tensor([1., 1., 2., 2.]).cuda()
        train(model, nn.CrossEntropyLoss(w), torch.optim.SGD(model.parameters(), 0.1))
    """,
    "beside index attr": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.perm = torch.randperm(4)
                self.log = torch.zeros(10)
                self.fc = nn.Linear(4, 3)
            def forward(self, x):
                self.log[0] = 1.0
                return self.fc(x)[:, self.perm[:3] % 3]
        model = Net().cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        model(x)
    """,
    "beside moves labels later": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)
        out = model(x)
        loss = criterion(out, y.cuda())
        loss2 = criterion(out, y.to(out.device))
    """,
    "beside loss on cpu": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)
        out = model(x).cpu()
        loss = criterion(out, y)
    """,
    "beside loss on cpu2": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)
        out = model(x)
        out = out.detach().float().cpu()
        loss = criterion(out, y)
        err = (out - torch.ones(8, 3)).abs()
    """,
    "beside rebound": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        batch = {"x": torch.randn(8, 4), "y": torch.zeros(8, dtype=torch.long)}  #! DG101 batch['x'] => batch = {"x": torch.randn(8, 4).cuda(), "y": torch.zeros(8, dtype=torch.long)}
        out = model(batch["x"])
        batch["y"] = batch["y"].cuda()
        loss = criterion(out, batch["y"])
    """,
    "beside rebound in helper": """
        def move(b):
            for k in b: b[k] = b[k].cuda()
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        batch = {"x": torch.randn(8, 4), "y": torch.zeros(8, dtype=torch.long)}  #! DG101 batch['x'] => batch = {"x": torch.randn(8, 4).cuda(), "y": torch.zeros(8, dtype=torch.long)}
        out = model(batch["x"])
        move(batch)
        loss = criterion(out, batch["y"])
    """,
    "beside branch": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)
        out = model(x)
        if not out.is_cuda:
            loss = criterion(out, y)
    """,
    "beside unused cpu modules": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
                self.head = nn.Linear(3, 2)
            def forward(self, x):
                return self.head(self.fc(x))
        model = Net().cuda()
        ema = Net()
        cpu_eval = nn.Linear(4, 4)
        cpu_loss = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        out = model(x)
        ref = cpu_eval(torch.randn(3, 4))
    """,
    "beside step on cpu": """
        model = nn.Linear(4, 3).cuda()
        opt = torch.optim.Adam(model.parameters())
        for i in range(3):
            x = torch.randn(8, 4, device="cuda" if i < 2 else "cpu")  #! DG101 x => x = torch.randn(8, 4, device="cuda")
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
    """,
    "beside offload optimizer": """
        class Offload(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, dict(lr=0.1))
                for g in self.param_groups:
                    for p in g["params"]:
                        self.state[p]["m"] = torch.zeros(p.shape)
            @torch.no_grad()
            def step(self):
                for g in self.param_groups:
                    for p in g["params"]:
                        m = self.state[p]["m"]
                        m.mul_(0.9).add_(p.grad.cpu())
                        p.sub_(m.to(p.device), alpha=g["lr"])
        model = nn.Linear(4, 3).cuda()
        opt = Offload(model.parameters())
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
    """,
    "beside split model": """
        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 6).to("cuda:0")
                self.b = nn.Linear(6, 3).to("cuda:1")
            def forward(self, x):
                return self.b(self.a(x).to("cuda:1"))
        model = Split()
        criterion = nn.CrossEntropyLoss(weight=torch.ones(3, device="cuda:1"))
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long, device="cuda:1")
        loss = criterion(model(x), y)
    """,
    "beside split labels cpu": """
        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 6).to("cuda:0")
                self.b = nn.Linear(6, 3).to("cuda:1")
            def forward(self, x):
                return self.b(self.a(x).to("cuda:1"))
        model = Split()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)  #! DG108 y => y = torch.zeros(8, dtype=torch.long, device="cuda:1")
        out = model(x)
        loss = F.cross_entropy(out, y)
    """,
    "beside hooked offload": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 6)
                self.b = nn.Linear(6, 6)
                self.c = nn.Linear(6, 3)
            def forward(self, x):
                return self.c(self.b(self.a(x)))
        model = Net()
        model.a.cuda(); model.c.cuda()
        def onload(m, args):
            m.cuda()
            return args
        def offload(m, args, out):
            m.cpu()
            return out
        model.b.register_forward_pre_hook(onload)
        model.b.register_forward_hook(offload)
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        model(x)
    """,
    "beside ctc": """
        model = nn.Linear(4, 5).cuda()
        ctc = nn.CTCLoss()
        x = torch.randn(6, 2, 4)  #! DG101 x => x = torch.randn(6, 2, 4).cuda()
        targets = torch.tensor([1, 2, 3, 1])
        in_len = torch.tensor([6, 6]); tg_len = torch.tensor([2, 2])
        logp = model(x).log_softmax(-1)
        loss = ctc(logp, targets.cuda(), in_len, tg_len)
    """,
    "beside scalars": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)
                self.temp = torch.tensor(2.0)
            def forward(self, x, scale):
                return self.fc(x) / self.temp * scale
        model = Net().cuda()
        model.fc = nn.Linear(4, 3)  #! DG102 fc.weight => model.fc = nn.Linear(4, 3).cuda()
        beta = torch.tensor(0.5)
        out = model(torch.randn(8, 4, device="cuda"), torch.tensor(3.0))
        loss = out.mean() * beta
    """,
    "beside lengths packed": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(10, 4)
                self.rnn = nn.GRU(4, 4, batch_first=True)
            def forward(self, ids, lengths):
                p = nn.utils.rnn.pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
                return self.rnn(p)[1][-1]
        model = Net().cuda()
        ids = torch.randint(0, 10, (3, 5))  #! DG101 ids => ids = torch.randint(0, 10, (3, 5)).cuda()
        seq = torch.tensor([5, 4, 2])
        out = model(ids, seq)
    """,
    "beside caught then cpu": """
        model = nn.Linear(4, 3).cuda()
        criterion = nn.CrossEntropyLoss()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)
        def step(m):
            out = m(x)
            return criterion(out, y if out.device.type == "cpu" else y.cuda())
        try:
            loss = step(model)
        except RuntimeError:
            loss = step(model.cpu())
    """,
    "beside module moves itself": """
        class Dec(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 3)
            def forward(self, h):
                return self.fc(h.to(self.fc.weight.device))
        enc = nn.Linear(4, 6).cuda()
        dec = Dec()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        out = dec(enc(x))
    """,
    "encoder decoder": """
        enc = nn.Linear(4, 6).cuda()
        dec = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))  #! DG101|DG108 dec.0.weight|dec.1.weight => dec = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4)).cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        h = enc(x)
        out = dec(h)
        loss = ((out - torch.zeros(8, 4, device="cuda")) ** 2).mean()
    """,
    "regression ops": """
        class Fit:
            def __init__(self):
                self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to("cuda")
                self.w = torch.ones(16, 1)  #! DG108 self.w|fit.w|w => self.w = torch.ones(16, 1).cuda()
            def step(self, t, y):
                pred = self.net(t)
                err = pred - y
                err = err * self.w
                return err.pow(2).mean()
        t = torch.linspace(0, 1, 16)[:, None]  #! DG101|DG108 t|y => t = torch.linspace(0, 1, 16)[:, None].cuda()
        y = torch.sin(t.cpu())  #? DG108 y => y = torch.sin(t)
        fit = Fit()
        fit.step(t, y)
    """,
    "gan": """
        class D(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
            def forward(self, x):
                return self.net(x)
        gen = nn.Linear(2, 4).cuda()
        disc = D()  #! DG101 disc.net.0.weight => disc = D().cuda()
        bce = nn.BCEWithLogitsLoss()
        real = torch.ones(5, 1)  #! DG101 real => real = torch.ones(5, 1).cuda()
        z = torch.randn(5, 2)  #! DG101 z => z = torch.randn(5, 2).cuda()
        fake = gen(z)
        score = disc(fake)
        loss = bce(score, real)
        loss.backward()
    """,
    "lightning like": """
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
                self.class_weight = torch.tensor([1., 2., 3.])  #! DG103|DG105 class_weight => self.register_buffer("class_weight", torch.tensor([1., 2., 3.]))
            def training_step(self, batch):
                x, y = batch
                logits = self.net(x)
                return F.cross_entropy(logits, y, weight=self.class_weight)
        m = Module().cuda()
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        y = torch.zeros(8, dtype=torch.long)  #! DG108 y => y = torch.zeros(8, dtype=torch.long).cuda()
        m.training_step((x, y))
    """,
    "amp scaler": """
        model = nn.Linear(4, 3).cuda()
        scaler = torch.amp.GradScaler("cuda")
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        loader = [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long)) for _ in range(2)]  #! DG101 x|y => loader = [(torch.randn(8, 4).cuda(), torch.zeros(8, dtype=torch.long).cuda()) for _ in range(2)]
        ce = nn.CrossEntropyLoss(weight=torch.ones(3), label_smoothing=0.1)  #! DG105 ce.weight => ce = nn.CrossEntropyLoss(weight=torch.ones(3).cuda(), label_smoothing=0.1)
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
                loss = ce(out, y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "two opts": """
        g = nn.Linear(4, 4); d = nn.Linear(4, 1)
        og = torch.optim.RMSprop(g.parameters()); od = torch.optim.RMSprop(d.parameters())
        d(g(torch.randn(2, 4))).sum().backward(); og.step(); od.step()
        g.cuda(); d.cuda()  #! DG106 og.state[...]['square_avg']|od.state[...]['square_avg'] => pass
        class_w = torch.ones(1)  #! DG105 class_w|bce.pos_weight|pos_weight => class_w = torch.ones(1)
        bce = nn.BCEWithLogitsLoss(pos_weight=class_w)
        z = torch.randn(8, 4)  #? DG101 z => z = torch.randn(8, 4)
        out = d(g(z if d.weight.is_cuda else z))
        loss = bce(out, torch.ones_like(out))
        loss.backward(); og.step(); od.step()
    """,
    "state moved by hand": """
        model = nn.Linear(4, 3).cuda()
        opt = torch.optim.Adam(model.parameters())
        for i in range(2):
            opt.zero_grad(); model(torch.randn(3, 4).cuda()).sum().backward(); opt.step()
        for st in opt.state.values():
            st["exp_avg"] = st["exp_avg"].cpu()  #! DG106 opt.state[...]['exp_avg'] => pass
        x = torch.randn(8, 4)  #! DG101 x => x = torch.randn(8, 4).cuda()
        loss = model(x).sum()
        loss.backward(); opt.step()
    """,
    "scaler scale other gpu": """
        model = nn.Linear(4, 3).to("cuda:1")
        opt = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            opt.zero_grad()
            loss = model(torch.randn(3, 4, device="cuda:1")).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "scaler two losses two gpus": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(4, 3).to("cuda:1")
        oa = torch.optim.SGD(a.parameters(), 0.1); ob = torch.optim.SGD(b.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            la = a(torch.randn(3, 4, device="cuda:0")).sum()
            lb = b(torch.randn(3, 4, device="cuda:1")).sum()
            scaler.scale(la).backward()
            scaler.scale(lb).backward()
            scaler.step(oa); scaler.step(ob)
            scaler.update()
    """,
    "scaler mixed params opt": """
        model = nn.Linear(4, 3).cuda()
        extra = nn.Parameter(torch.ones(3))  #? DG108 extra => extra = nn.Parameter(torch.ones(3, device="cuda"))
        opt = torch.optim.SGD([*model.parameters(), extra], 0.1)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            opt.zero_grad()
            loss = (model(torch.randn(3, 4, device="cuda")) * extra.to("cuda")).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "scaler load state": """
        model = nn.Linear(4, 3).to("cuda:1")
        opt = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        scaler.load_state_dict({"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 10, "_growth_tracker": 0})
        for _ in range(3):
            opt.zero_grad()
            loss = model(torch.randn(3, 4, device="cuda:1")).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
    """,
    "scaler scale moved by hand": """
        model = nn.Linear(4, 3).cuda()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        scaler._scale = torch.full((1,), 1024.0)  #! DG108 scaler._scale|_scale => scaler._scale = torch.full((), 1024.0, device="cuda")
        scaler._growth_tracker = torch.zeros((), dtype=torch.int32, device="cuda")
        for _ in range(3):
            opt.zero_grad()
            loss = model(torch.randn(3, 4, device="cuda")).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "scaler manual scale": """
        class Scaler:
            def __init__(self):
                self.scale_t = torch.full((1,), 128.0)  #! DG108 scaler.scale_t|scale_t => self.scale_t = torch.full((1,), 128.0, device="cuda")
            def scale(self, loss):
                return loss * self.scale_t
        model = nn.Linear(4, 3).cuda()
        scaler = Scaler()
        loss = model(torch.randn(3, 4, device="cuda")).sum()
        scaler.scale(loss).sum().backward()
    """,
    "scaler manual inv scale": """
        class LossScaler:
            def __init__(self):
                self.scale = torch.full((1,), 128.0)
            def unscale(self, params):
                inv = 1.0 / self.scale  #! DG108 inv|self.scale|scaler.scale => inv = 1.0 / self.scale.cuda()
                for p in params:
                    p.grad.mul_(inv)
        model = nn.Linear(4, 3).cuda()
        scaler = LossScaler()
        (model(torch.randn(3, 4, device="cuda")).sum() * 128).backward()
        scaler.unscale(model.parameters())
    """,
    "clipping clip cpu cuda": """
        a = nn.Linear(4, 3).cuda(); b = nn.Linear(3, 2)
        out = b(a(torch.randn(3, 4, device="cuda")).cpu()).sum()
        out.backward()
        torch.nn.utils.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)
    """,
    "clipping clip two gpus": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        n = torch.nn.utils.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)
        torch.nn.utils.clip_grad_value_([*a.parameters(), *b.parameters()], 0.1)
    """,
    "clipping clip foreach": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        n = torch.nn.utils.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0, foreach=True)
        torch.nn.utils.clip_grad_value_([*a.parameters(), *b.parameters()], 0.1, foreach=True)
    """,
    "clipping hand stack": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        params = [*a.parameters(), *b.parameters()]
        norms = [p.grad.norm() for p in params]
        total = torch.norm(torch.stack(norms))  #! DG108 norms[2]|norms[3] => total = torch.norm(torch.stack([n.to("cuda:0") for n in norms]))
    """,
    "clipping hand stack function": """
        def clip(params, limit):
            grads = [p.grad for p in params if p.grad is not None]
            total = torch.norm(torch.stack([torch.norm(g.detach(), 2.0) for g in grads]), 2.0)  #! DG108 grads[2] => total = torch.norm(torch.stack([torch.norm(g.detach(), 2.0).cpu() for g in grads]), 2.0)
            coef = (limit / (total + 1e-6)).clamp(max=1.0)
            for g in grads:
                g.mul_(coef.to(g.device))
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        clip([*a.parameters(), *b.parameters()], 1.0)
    """,
    "clipping hand sum loop": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        total = 0.0
        for p in [*a.parameters(), *b.parameters()]:
            total = total + p.grad.norm() ** 2  #! DG108 total => total = total + p.grad.norm().item() ** 2
    """,
    "clipping hand cat": """
        a = nn.Linear(4, 3).cuda()
        scale = nn.Parameter(torch.ones(3))  #? DG108 grads[2] => scale = nn.Parameter(torch.ones(3, device="cuda"))
        out = (a(torch.randn(3, 4, device="cuda")) * scale.cuda()).sum()
        out.backward()
        grads = [p.grad.view(-1) for p in [*a.parameters(), scale]]
        total = torch.cat(grads).norm()  #! DG108 grads[2] => pass
    """,
    "clipping hand coef": """
        a = nn.Linear(4, 3).to("cuda:0"); b = nn.Linear(3, 2).to("cuda:1")
        out = b(a(torch.randn(3, 4, device="cuda:0")).to("cuda:1")).sum()
        out.backward()
        total = torch.norm(torch.stack([p.grad.norm().to("cuda:0") for p in [*a.parameters(), *b.parameters()]]))
        coef = 1.0 / (total + 1e-6)  #? DG108 coef => coef = 1.0 / (total.cpu() + 1e-6)
        for p in [*a.parameters(), *b.parameters()]:
            p.grad.mul_(coef)  #! DG108 coef => p.grad.mul_(coef)
    """,
    "clipping max norm tensor": """
        model = nn.Linear(4, 3).cuda()
        limit = torch.ones(1)  #? DG108 limit => limit = 1.0
        model(torch.randn(3, 4, device="cuda")).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    """,
    "clipping parameters to vector": """
        a = nn.Linear(4, 3).cuda(); b = nn.Linear(3, 2)  #! DG101|DG102|DG108 b.weight|weight|param => a = nn.Linear(4, 3).cuda(); b = nn.Linear(3, 2).cuda()
        v = nn.utils.parameters_to_vector([*a.parameters(), *b.parameters()])
    """,
    "weight norm": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.utils.weight_norm(nn.Linear(4, 2))
            def forward(self, x):
                return self.fc(x)
        model = Net().cuda()
        model.fc.weight_g = nn.Parameter(torch.ones(2, 1))  #! DG102|DG101|DG108 fc.weight_g|weight_g => model.fc.weight_g = nn.Parameter(torch.ones(2, 1, device="cuda"))
        model(torch.randn(3, 4, device="cuda"))
    """,
    "a packed sequence": """
        from torch.nn.utils.rnn import pack_padded_sequence
        model = nn.LSTM(4, 4, batch_first=True).cuda()
        seq = torch.randn(2, 5, 4)  #? DG101 packed.data => seq = torch.randn(2, 5, 4).cuda()
        packed = pack_padded_sequence(seq, torch.tensor([5, 3]), batch_first=True)  #! DG101 packed.data => packed = pack_padded_sequence(seq, torch.tensor([5, 3]), batch_first=True)
        model(packed)
    """,
    "a learning rate on another accelerator": """
        model = nn.Linear(4, 2).to("cuda:1")
        lr = torch.tensor(0.1, device="cuda:0")  #! DG106 opt.param_groups[0]['lr']|lr => lr = torch.tensor(0.1, device="cuda:1")
        opt = torch.optim.Adam(model.parameters(), lr=lr, capturable=True)
        model(torch.randn(3, 4, device="cuda:1")).sum().backward(); opt.step()
    """,
    "an export wrapper": """
        class Export(nn.Module):
            def __init__(self, m):
                super().__init__()
                self.inner = m.body
                self.head = m.head
            def forward(self, x):
                return self.head(self.inner(x))
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 6); self.head = nn.Linear(6, 2)
            def forward(self, x):
                return self.head(self.body(x))
        model = Net().cuda()
        x = torch.randn(3, 4, device="cuda")
        model(x)
        Export(model).cpu()  #! DG101|DG102 model.body.weight|body.weight => Export(model)
        model(x)
    """,
    "a cache of the first device": """
        class Rope(nn.Module):
            def __init__(self):
                super().__init__()
                self.cache = {}
                self.fc = nn.Linear(4, 4)
            def table(self, n, device):
                if n not in self.cache:
                    self.cache[n] = torch.ones(n, 4, device=device)  #! DG103 cache[3]|table => return torch.ones(n, 4, device=device)
                return self.cache[n]
            def forward(self, x):
                return self.fc(x * self.table(x.shape[0], x.device))
        model = Rope()
        model(torch.randn(3, 4))
        model.cuda()
        model(torch.randn(3, 4, device="cuda"))
    """,
    "a split model's cache": """
        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 4).to("cuda:1")])
            def forward(self, x, cache):
                for i, l in enumerate(self.layers):
                    x = l(x.to(l.weight.device))
                    x = x + cache[i]
                return x
        cache = [torch.zeros(3, 4, device="cuda:0") for _ in range(2)]  #! DG101|DG108 cache[1] => cache = [torch.zeros(3, 4, device=f"cuda:{i}") for i in range(2)]
        Split()(torch.randn(3, 4, device="cuda:0"), cache)
    """,
    "a late parametrization": """
        import torch.nn.utils.parametrize as P
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.s = nn.Parameter(torch.ones(2, 1))
            def forward(self, w):
                return w * self.s
        model = nn.Linear(4, 2).cuda()
        P.register_parametrization(model, "weight", Scale(), unsafe=True)  #! DG102|DG101 parametrizations.weight.0.s|s => P.register_parametrization(model, "weight", Scale().cuda(), unsafe=True)
        model(torch.randn(3, 4, device="cuda"))
    """,
}
