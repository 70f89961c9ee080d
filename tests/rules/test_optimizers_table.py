"""DG106 and DG107 over small programs, half of them correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.programs import Program, check

RULES = ("DG106", "DG107", "DG112")

STATE = (
    Program(
        "adagrad before the move",
        """
        model = Net()
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        model.to(device)
        train(model, optimizer)
        """,
        "DG106",
        "optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)",
        "optimizer.state[...]['sum']",
    ),
    Program(
        "adagrad after the move",
        """
        model = Net().to(device)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "adam before the move",
        """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model.to(device)
        train(model, optimizer)
        """,
    ),
    Program(
        "momentum loaded before the move",
        """
        model = Net().to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train(model, opt)
        saved = {"model": model.state_dict(), "opt": opt.state_dict()}
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        buffer.seek(0)
        checkpoint = torch.load(buffer, map_location="cpu")
        model = Net()
        model.load_state_dict(checkpoint["model"])
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        opt.load_state_dict(checkpoint["opt"])
        model = model.to(device)
        train(model, opt)
        """,
        "DG106",
        'opt.load_state_dict(checkpoint["opt"])',
        "opt.state[...]['momentum_buffer']",
    ),
    Program(
        "a fused optimizer loaded before the move",
        """
        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        train(model, optimizer)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        optimizer.load_state_dict(torch.load(file, map_location="cpu"))
        model.to(device)
        train(model, optimizer)
        """,
        "DG106",
        'optimizer.load_state_dict(torch.load(file, map_location="cpu"))',
        "optimizer.state[...]['exp_avg']",
    ),
    Program(
        "momentum loaded after the move",
        """
        model = Net().to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train(model, opt)
        checkpoint = copy.deepcopy(opt.state_dict())
        model = Net().to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        opt.load_state_dict(checkpoint)
        train(model, opt)
        """,
    ),
    Program(
        "model moved after the first step",
        """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        train(model, optimizer, on="cpu")
        model.to(device)
        train(model, optimizer)
        """,
        "DG106",
        "model.to(device)",
        "optimizer.state[...]['exp_avg']",
    ),
    Program(
        "model taken to the host for good",
        """
        model = Net().to(device)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)
        train(model, optimizer)
        torch.save(model.cpu().state_dict(), io.BytesIO())
        train(model, optimizer, on="cpu")
        """,
        "DG106",
        "torch.save(model.cpu().state_dict(), io.BytesIO())",
        "optimizer.state[...]['square_avg']",
    ),
    Program(
        "model taken to the host and back",
        """
        model = Net().to(device)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)
        train(model, optimizer)
        torch.save(model.cpu().state_dict(), io.BytesIO())
        model.cuda()
        train(model, optimizer)
        """,
    ),
    Program(
        "state offloaded and forgotten",
        """
        def offload(optimizer):
            for state in optimizer.state.values():
                for key, value in state.items():
                    if torch.is_tensor(value):
                        state[key] = value.to("cpu")

        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        train(model, optimizer)
        offload(optimizer)
        train(model, optimizer)
        """,
        "DG106",
        'state[key] = value.to("cpu")',
        "optimizer.state[...]['exp_avg']",
    ),
    Program(
        "state offloaded and brought back",
        """
        def put(optimizer, device):
            for state in optimizer.state.values():
                for key, value in state.items():
                    if torch.is_tensor(value) and key != "step":
                        state[key] = value.to(device)

        model = Net().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        train(model, optimizer)
        put(optimizer, "cpu")
        put(optimizer, "cuda")
        train(model, optimizer)
        """,
    ),
    Program(
        "an optimizer that keeps its momentum on the host on purpose",
        """
        class HostMomentum(torch.optim.Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, dict(lr=lr))

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if "m" not in state:
                            state["m"] = torch.zeros_like(p, device="cpu")
                        m = state["m"].to(p.device).mul_(0.9).add_(p.grad)
                        state["m"] = m.cpu()
                        p.sub_(m, alpha=group["lr"])

        model = Net().to(device)
        train(model, HostMomentum(model.parameters(), lr=0.1), steps=3)
        """,
    ),
    Program(
        "an optimizer of its own with eager state",
        """
        class Lion(torch.optim.Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, dict(lr=lr))
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["ema"] = torch.zeros_like(p)

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        ema = self.state[p]["ema"]
                        ema.mul_(0.9).add_(p.grad)
                        p.sub_(ema.sign(), alpha=group["lr"])

        model = Net()
        lion = Lion(model.parameters(), lr=0.1)
        model.cuda()
        train(model, lion)
        """,
        "DG106",
        "lion = Lion(model.parameters(), lr=0.1)",
        "lion.state[...]['ema']",
    ),
    Program(
        "slow weights beside the state",
        """
        class Lookahead(torch.optim.Optimizer):
            def __init__(self, base, k=1):
                self.base, self.k = base, k
                super().__init__([p for g in base.param_groups for p in g["params"]], dict(lr=0.1))
                self.slow = [[p.clone().detach() for p in g["params"]] for g in base.param_groups]

            def step(self, closure=None):
                self.base.step()
                for group, slow in zip(self.base.param_groups, self.slow):
                    for p, q in zip(group["params"], slow):
                        q.add_(p.data - q, alpha=0.5)
                        p.data.copy_(q)

        model = Net()
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
        model.to(device)
        train(model, optimizer)
        """,
        "DG106",
        "optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))",
    ),
    Program(
        "slow weights of a plain wrapper",
        """
        class Lookahead:
            def __init__(self, base):
                self.base = base
                self.param_groups = base.param_groups
                self.slow = [[p.clone().detach() for p in g["params"]] for g in base.param_groups]

            def zero_grad(self):
                self.base.zero_grad()

            def step(self):
                self.base.step()
                for group, slow in zip(self.param_groups, self.slow):
                    for p, q in zip(group["params"], slow):
                        q.add_(p.data - q, alpha=0.5)
                        p.data.copy_(q)

        model = Net()
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
        model.to(device)
        train(model, optimizer)
        """,
        "DG106",
        "optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))",
    ),
    Program(
        "moments made in the step without a device",
        """
        class Momentum(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.1})

            @torch.no_grad()
            def step(self):
                for p in self.param_groups[0]["params"]:
                    state = self.state[p]
                    if not state:
                        state["m"] = torch.zeros(p.shape)
                    state["m"].add_(p.grad)

        model = Net().to(device)
        optimizer = Momentum(model.parameters())
        model(torch.randn(3, 4, device=device)).sum().backward()
        optimizer.step()
        """,
        "DG106",
        'state["m"] = torch.zeros(p.shape)',
    ),
    Program(
        "state put back by hand",
        """
        model = Net().to(device)
        optimizer = torch.optim.Adam(model.parameters())
        saved = {"exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
        for p in model.parameters():
            moments = {k: torch.zeros(p.shape) for k in saved}
            optimizer.state[p] = {"step": torch.tensor(1.0), **moments}
        train(model, optimizer)
        """,
        "DG106",
        "moments = {k: torch.zeros(p.shape) for k in saved}",
    ),
    Program(
        "slow weights of a wrapper without groups of its own",
        """
        class Lookahead:
            def __init__(self, optimizer):
                self.optimizer = optimizer
                self.slow = [[p.detach().clone() for p in g["params"]] for g in optimizer.param_groups]

            def zero_grad(self):
                self.optimizer.zero_grad()

            @torch.no_grad()
            def step(self):
                self.optimizer.step()
                for group, slow in zip(self.optimizer.param_groups, self.slow):
                    for p, q in zip(group["params"], slow):
                        q.add_(p - q, alpha=0.5)

        model = Net()
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
        model.to(device)
        model(torch.randn(3, 4, device=device)).sum().backward()
        optimizer.step()
        """,
        "DG106",
        "optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))",
    ),
    Program(
        "two parameter groups on two devices",
        """
        a, b = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 4).to("cuda:1")
        optimizer = torch.optim.Adam([{"params": a.parameters()}, {"params": b.parameters()}], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            b(a(torch.randn(2, 4, device="cuda:0")).to("cuda:1")).sum().backward()
            optimizer.step()
        """,
        devices=2,
    ),
    Program(
        "a capturable optimizer with its step on the host",
        """
        model = Net().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=False)
        train(model, optimizer)
        for group in optimizer.param_groups:
            group["capturable"] = True
        train(model, optimizer)
        """,
        "DG106",
        "optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=False)",
        "optimizer.state[...]['step']",
    ),
    Program(
        "a learning rate that is a tensor on the host",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), foreach=False)
        train(model, optimizer)
        """,
    ),
)

HOLDERS = (
    Program(
        "head replaced after the optimizer",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.head = nn.Linear(6, 5).to(device)
        train(model, optimizer)
        """,
        "DG107",
        "model.head = nn.Linear(6, 5).to(device)",
        "head.weight",
    ),
    Program(
        "head replaced before the optimizer",
        """
        model = Net().to(device)
        model.head = nn.Linear(6, 5).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "head replaced and added to the optimizer",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.head = nn.Linear(6, 5).to(device)
        optimizer.add_param_group({"params": model.head.parameters()})
        train(model, optimizer)
        """,
    ),
    Program(
        "the optimizer holds the old head alone",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        model.head = nn.Linear(6, 3).to(device)
        train(model, optimizer)
        """,
        "DG107",
        "model.head = nn.Linear(6, 3).to(device)",
        "head.weight",
    ),
    Program(
        "a table resized by a method",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(10, 4)
                self.out = nn.Linear(4, 10)

            def resize(self, n):
                new = nn.Embedding(n, 4, device=self.wte.weight.device)
                new.weight.data[: self.wte.num_embeddings] = self.wte.weight.data
                self.wte = new

            def forward(self, ids):
                return self.out(self.wte(ids))

        model = LM().to(device)
        opt = torch.optim.Adam(model.parameters())
        model.resize(12)
        for _ in range(2):
            opt.zero_grad()
            model(torch.randint(0, 12, (3,), device=device)).sum().backward()
            opt.step()
        """,
        "DG107",
        "model.resize(12)",
        "wte.weight",
    ),
    Program(
        "a parameter replaced by a copy of its data",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.body.weight = nn.Parameter(model.body.weight.data.clone())
        train(model, optimizer)
        """,
        "DG107",
        "model.body.weight = nn.Parameter(model.body.weight.data.clone())",
        "body.weight",
    ),
    Program(
        "data exchanged in place",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.body.weight.data = torch.zeros_like(model.body.weight)
        train(model, optimizer)
        """,
    ),
    Program(
        "model made again after the optimizer",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model = Net().to(device)
        train(model, optimizer)
        """,
        "DG107",
        "model = Net().to(device)",
    ),
    Program(
        "model copied after the optimizer",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        student = copy.deepcopy(model)
        train(student, optimizer)
        """,
        "DG107",
        "student = copy.deepcopy(model)",
    ),
    Program(
        "optimizer of another copy",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(Net().to(device).parameters(), lr=0.1)
        train(model, optimizer)
        """,
        "DG107",
        "optimizer = torch.optim.SGD(Net().to(device).parameters(), lr=0.1)",
    ),
    Program(
        "a layer added after the optimizer",
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.append(nn.Linear(4, 2).to(device))
        train(model, optimizer)
        """,
        "DG107",
        "model.append(nn.Linear(4, 2).to(device))",
        "2.weight",
    ),
    Program(
        "weight norm after the optimizer",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.body = nn.utils.parametrizations.weight_norm(model.body)
        train(model, optimizer)
        """,
        "DG107",
        "model.body = nn.utils.parametrizations.weight_norm(model.body)",
    ),
    Program(
        "weight norm before the optimizer",
        """
        model = Net().to(device)
        model.body = nn.utils.parametrizations.weight_norm(model.body)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "the backbone gets gradients that nobody uses",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        train(model, optimizer)
        """,
        "DG107",
        "optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)",
        "body.weight",
        level="note",
    ),
    Program(
        "the backbone is frozen",
        """
        model = Net().to(device)
        model.body.requires_grad_(False)
        optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "two optimizers of a GAN",
        """
        G, D = Net(4).to(device), Net(1).to(device)
        opt_g = torch.optim.Adam(G.parameters(), lr=0.1)
        opt_d = torch.optim.Adam(D.parameters(), lr=0.1)
        for _ in range(2):
            opt_g.zero_grad()
            D(G(torch.randn(3, 4, device=device))).mean().backward()
            opt_g.step()
            opt_d.zero_grad()
            (D(G(torch.randn(3, 4, device=device)).detach()) - D(torch.randn(3, 4, device=device))).mean().backward()
            opt_d.step()
        """,
    ),
    Program(
        "an exponential moving average beside the model",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ema = copy.deepcopy(model).requires_grad_(False)
        for _ in range(3):
            train(model, optimizer, steps=1)
            with torch.no_grad():
                for slow, fast in zip(ema.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
            ema(torch.randn(1, 4, device=device))
        """,
    ),
    Program(
        "an image is optimized, not the model",
        """
        model = Net().to(device)
        image = torch.randn(3, 4, device=device, requires_grad=True)
        optimizer = torch.optim.Adam([image], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(image).sum().backward()
            optimizer.step()
        """,
    ),
    Program(
        "phases with an optimizer each",
        """
        model = Net().to(device)
        train(model, torch.optim.SGD(model.head.parameters(), lr=0.1))
        train(model, torch.optim.SGD(model.parameters(), lr=0.01))
        """,
    ),
    Program(
        "weights assigned by load_state_dict",
        """
        model = Net().to(device)
        saved = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.load_state_dict(saved, assign=True)
        train(model, optimizer)
        """,
        "DG107",
        "model.load_state_dict(saved, assign=True)",
        "body.weight",
    ),
    Program(
        "weights copied by load_state_dict",
        """
        model = Net().to(device)
        saved = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.load_state_dict(saved)
        train(model, optimizer)
        """,
    ),
    Program(
        "adapters after the optimizer",
        """
        class Adapter(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.down = nn.Linear(4, 2, bias=False, device=device)
                self.up = nn.Linear(2, 6, bias=False, device=device)

            def forward(self, x):
                return self.base(x) + self.up(self.down(x))

        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.body = Adapter(model.body)
        train(model, optimizer)
        """,
        "DG107",
        "model.body = Adapter(model.body)",
        "body.down.weight",
    ),
    Program(
        "unfrozen after the optimizer",
        """
        model = Net().to(device)
        model.body.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        train(model, optimizer)
        model.body.requires_grad_(True)
        train(model, optimizer)
        """,
        "DG107",
        "optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)",
        "body.weight",
    ),
    Program(
        "unfrozen and given to the optimizer",
        """
        model = Net().to(device)
        model.body.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        train(model, optimizer)
        model.body.requires_grad_(True)
        optimizer.add_param_group({"params": model.body.parameters()})
        train(model, optimizer)
        """,
    ),
    Program(
        "all parameters given, some of them frozen",
        """
        model = Net().to(device)
        model.body.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        model.body.requires_grad_(True)
        train(model, optimizer)
        """,
    ),
    Program(
        "an optimizer copied without its model",
        """
        model = Net().to(device)
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = copy.deepcopy(first)
        del first
        train(model, optimizer)
        """,
        "DG107",
        "optimizer = copy.deepcopy(first)",
    ),
    Program(
        "a wrapper around the model after the optimizer",
        """
        class Wrapper(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(x)

        model = Net().to(device)
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        train(Wrapper(model), optimizer)
        """,
    ),
    Program(
        "a head made before the optimizer and attached after it",
        """
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU()).to(device)
        head = nn.Linear(6, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.add_module("head", head)
        train(model, optimizer)
        """,
        "DG107",
        'model.add_module("head", head)',
        "head.weight",
    ),
    Program(
        "layers made in the first call",
        """
        class Late(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 6)
                self.head = None

            def forward(self, x):
                x = self.body(x)
                if self.head is None:
                    self.head = nn.Linear(x.shape[1], 2).to(x.device)
                return self.head(x)

        model = Late().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
        "DG107",
        "self.head = nn.Linear(x.shape[1], 2).to(x.device)",
        "head.weight",
    ),
    Program(
        "a lazy module",
        """
        model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.Linear(6, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "batch norm converted after the optimizer",
        """
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        train(nn.Sequential(converted[0], converted[2]), optimizer)
        """,
    ),
    Program(
        "a perceptual network that nobody trains",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        vgg = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8)).to(device).eval()
        for _ in range(3):
            optimizer.zero_grad()
            vgg(model(torch.randn(3, 4, device=device))).sum().backward()
            optimizer.step()
        """,
    ),
    Program(
        "master weights in full precision",
        """
        model = Net().to(device).half()
        master = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
        optimizer = torch.optim.SGD(master, lr=0.1)
        for _ in range(3):
            model(torch.randn(3, 4, device=device).half()).float().pow(2).sum().backward()
            for slow, fast in zip(master, model.parameters()):
                slow.grad = fast.grad.float()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(master, model.parameters()):
                    fast.copy_(slow)
        """,
    ),
    Program(
        "meta-learning on a copy",
        """
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            learner = copy.deepcopy(model)
            learner(torch.randn(3, 4, device=device)).pow(2).sum().backward()
            for p, q in zip(model.parameters(), learner.parameters()):
                p.grad = q.grad.clone()
            optimizer.step()
        """,
    ),
    Program(
        "a student and a teacher that gets gradients too",
        """
        student, teacher = Net().to(device), Net().to(device)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(3, 4, device=device)
            optimizer.zero_grad()
            F.mse_loss(student(x), teacher(x)).backward()
            optimizer.step()
        """,
    ),
    Program(
        "tied weights",
        """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(10, 4)
                self.out = nn.Linear(4, 10, bias=False)
                self.out.weight = self.wte.weight

            def forward(self, x):
                return self.out(self.wte(x))

        model = Tied().to(device)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randint(0, 10, (3,), device=device)).sum().backward()
            optimizer.step()
        """,
    ),
)


@pytest.mark.parametrize("program", STATE + HOLDERS, ids=lambda program: program.name)
def test_program(program: Program, tmp_path: Path) -> None:
    check(program, tmp_path, RULES)
