"""Mistakes rebuilt from what users report, of kinds that the other tables leave out."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "generator kept by an object",
        """
        class Sampler:
            def __init__(self, seed):
                self.rng = torch.Generator().manual_seed(seed)  # cause
            def draw(self, probs):
                return torch.multinomial(probs, 1, generator=self.rng)
        sampler = Sampler(3)
        sampler.draw(torch.ones(4, device="cuda"))
        """,
        rules="DG108",
        tensor="sampler.rng",
    ),
    Case(
        "noise for a model on another accelerator",
        """
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 1)
            def forward(self, x):
                return self.lin(x)
        def penalty(critic, real, fake):
            alpha = torch.rand(real.size(0), 1).cuda()  # cause
            return critic(alpha * real + (1 - alpha) * fake)
        critic = Critic().to("cuda:1")
        real, fake = torch.randn(2, 3).to("cuda:1"), torch.randn(2, 3).to("cuda:1")
        penalty(critic, real, fake)
        """,
        rules="DG108",
        tensor="alpha",
        devices=2,
    ),
    Case(
        "class that is split by itself forgets a skip connection",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.down = nn.Linear(3, 3).to("cuda:0")
                self.up = nn.Linear(3, 3).to("cuda:1")
            def forward(self, x):
                skip = torch.relu(self.down(x))
                up = self.up(skip.to("cuda:1"))
                return torch.cat([up, skip], 1)  # cause
        Net()(torch.ones(2, 3, device="cuda:0"))
        """,
        rules="DG108",
        tensor="skip",
        devices=2,
    ),
    Case(
        "hard-coded device in a replica",
        """
        class Embed(nn.Module):
            def __init__(self):
                super().__init__()
                self.word = nn.Embedding(5, 4)
                self.place = nn.Embedding(5, 4)
            def forward(self, ids):
                places = torch.arange(ids.size(1), device="cuda:0").expand_as(ids)  # cause
                return self.word(ids) + self.place(places)
        model = nn.DataParallel(Embed().cuda(), device_ids=[0, 1])
        model(torch.zeros(4, 3, dtype=torch.long, device="cuda"))
        """,
        rules="DG101|DG108",
        tensor="places",
        devices=2,
    ),
    Case(
        "closed-over layer in one of two branches",
        """
        class Block(nn.Module):
            def __init__(self, match):
                super().__init__()
                self.conv = nn.Linear(3, 4)
                if not match:
                    self.shortcut = lambda x: x
                else:
                    layer = nn.Linear(3, 4)
                    self.shortcut = lambda x: layer(x)  # cause
            def forward(self, x):
                return self.conv(x) + self.shortcut(x)
        Block(True).cuda()(torch.ones(2, 3).cuda())
        """,
        rules="DG104",
    ),
    Case(
        "parameter calculated elsewhere and put into a moved module",
        """
        class Patches(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 4)
                self.places = nn.Parameter(torch.zeros(2, 4))
            def forward(self, x):
                return self.lin(x) + self.places
        def stretch(old, size):
            old = old.t().unsqueeze(0)
            return F.interpolate(old, size=size).squeeze(0).t()
        model = Patches().to("cuda")
        model.places = nn.Parameter(stretch(torch.randn(2, 4), 3))  # cause
        model(torch.ones(3, 3, device="cuda"))
        """,
        rules="DG102",
        tensor="places",
    ),
    Case(
        "tied parameters placed one by one",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(6, 4)
                self.head = nn.Linear(4, 6, bias=False)
                self.head.weight = self.embed.weight
            def forward(self, ids):
                return self.head(self.embed(ids))
        def place(module, name, device):
            old = getattr(module, name)
            setattr(module, name, nn.Parameter(old.detach().to(device)))  # cause
        model = LM()
        for module in model.modules():
            for name, _ in list(module.named_parameters(recurse=False)):
                place(module, name, "cuda")
        model(torch.tensor([1], device="cuda"))
        """,
        rules="DG113",
        tensor="head.weight",
    ),
    Case(
        "tied parameters placed one by one and tied again",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(6, 4)
                self.head = nn.Linear(4, 6, bias=False)
                self.head.weight = self.embed.weight
            def forward(self, ids):
                return self.head(self.embed(ids))
        model = LM()
        for module in (model.embed, model.head):
            module.weight = nn.Parameter(module.weight.detach().cuda())
        model.head.weight = model.embed.weight
        model(torch.tensor([1], device="cuda"))
        """,
    ),
    Case(
        "replicas of a model that is not on the first device",
        """
        model = nn.Sequential(nn.Linear(3, 3)).to("cuda:1")  # cause
        model = nn.DataParallel(model)
        model(torch.ones(2, 3, device="cuda:1"))
        """,
        rules="DG108",
        tensor="0.weight",
        devices=2,
    ),
    Case(
        "replicas of a model that was never moved",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
            def forward(self, x):
                return self.lin(x)
        model = Net()  # cause
        model = nn.DataParallel(model)  # cause
        model(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG108",
        devices=2,
    ),
    Case(
        "replicas of a model with a new part",
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).cuda()
        model = nn.DataParallel(model)
        model.module[1] = nn.Linear(3, 2)  # cause
        model(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG102",
        tensor="1.weight",
        devices=2,
    ),
    Case(
        "lengths that are sorted before they are refused",
        """
        lengths = torch.tensor([2, 3], device="cuda")  # cause
        rows = torch.ones(2, 3, 1, device="cuda")
        nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
        """,
        rules="DG108",
        tensor="lengths",
    ),
    Case(
        "loss weight on the first accelerator, results on the last",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 3).to("cuda:0")
                self.last = nn.Linear(3, 3).to("cuda:1")
            def forward(self, x):
                return self.last(self.first(x.to("cuda:0")).to("cuda:1"))
        model = Net()
        weight = torch.ones(3, device="cuda:0")  # cause
        criterion = nn.CrossEntropyLoss(weight=weight)
        criterion(model(torch.ones(2, 3)), torch.tensor([0, 1]).to("cuda:1"))
        """,
        rules="DG105",
        tensor="criterion.weight",
        devices=2,
    ),
    Case(
        "shared part that follows the last move",
        """
        class Half(nn.Module):
            def __init__(self, embed):
                super().__init__()
                self.embed = embed
                self.lin = nn.Linear(4, 4)
            def forward(self, ids):
                return self.lin(self.embed(ids))
        shared = nn.Embedding(6, 4)
        encoder, decoder = Half(shared), Half(shared)
        encoder.to("cuda:0")
        decoder.to("cuda:1")  # cause
        encoder(torch.tensor([1], device="cuda:0"))
        """,
        rules="DG102",
        tensor="embed.weight",
        devices=2,
    ),
    Case(
        "result of a teacher that runs on the host",
        """
        teacher, student = nn.Linear(3, 2), nn.Linear(3, 2).cuda()
        x = torch.randn(4, 3)
        with torch.no_grad():
            wanted = teacher(x)  # cause
        got = student(x.cuda())
        F.kl_div(F.log_softmax(got, -1), F.softmax(wanted / 2, -1))
        """,
        rules="DG108",
        tensor="wanted",
    ),
    Case(
        "generator of an accelerator for noise on the host",
        """
        generator = torch.Generator(device="cuda").manual_seed(1)  # cause
        torch.randn(2, 3, generator=generator)
        """,
        rules="DG108",
        tensor="generator",
    ),
    Case(
        "features that one module keeps elsewhere for another",
        """
        class Extractor(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
                self.features = []
            def forward(self, x):
                x = self.lin(x)
                self.features.append(x.to("cuda:1"))  # cause
                return x
        class Fusion(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix = nn.Linear(3, 2)
            def forward(self, features):
                return self.mix(torch.cat(features))
        extractor, fusion = Extractor().to("cuda:0"), Fusion().to("cuda:0")
        extractor(torch.ones(2, 3, device="cuda:0"))
        fusion(extractor.features)
        """,
        rules="DG101",
        tensor="features[0]",
        devices=2,
    ),
    Case(
        "copy of a model that was taken to the host and goes on",
        """
        import copy
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 1)
            def forward(self, x):
                return self.lin(x)
        model = Net().cuda()
        x = torch.ones(2, 3, device="cuda")
        model(x)
        model = copy.deepcopy(model).cpu()  # cause
        model(x)
        """,
        rules="DG101",
        tensor="lin.weight",
    ),
    Case(
        "metric in a list of a module, called by a method",
        """
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(1))
            def forward(self, x):
                self.total += x.sum()
        class Lit(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(3, 1)
                self.metrics = [Counter()]  # cause
            def training_step(self, x):
                for metric in self.metrics:
                    metric(self.net(x).detach())
        Lit().cuda().training_step(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG104",
        tensor="metrics[0].total",
    ),
    Case(
        "copied parameters that a call puts in the place of moved ones",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 1)
            def forward(self, x):
                return self.lin(x)
        model = Net()
        fast = {name: p.detach().clone() for name, p in model.named_parameters()}  # cause
        model.cuda()
        torch.func.functional_call(model, fast, (torch.ones(2, 3, device="cuda"),))
        """,
        rules="DG101|DG102",
    ),
    Case(
        "grid that a function keeps by its shape alone",
        """
        grids = {}
        def warp(flow):
            key = tuple(flow.shape)
            if key not in grids:
                line = torch.linspace(-1, 1, flow.size(-1))
                grids[key] = torch.stack([line, line]).to(flow.device)  # cause
            return grids[key] + flow
        warp(torch.ones(2, 3))
        warp(torch.ones(2, 3, device="cuda"))
        """,
        rules="DG108",
    ),
    Case(
        "pairs of a list that a loop takes apart",
        """
        def train(model, pairs):
            for x, y in pairs:
                F.cross_entropy(model(x), y.cuda()).backward()
        model = nn.Linear(3, 2).cuda()
        pairs = [(torch.ones(2, 3), torch.tensor([0, 1]))]  # cause
        train(model, pairs)
        """,
        rules="DG101",
        tensor="x",
    ),
)
