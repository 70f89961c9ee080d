"""DG112 over small programs, half of them correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.programs import Program, check

RULES = ("DG106", "DG107", "DG112")

LEAVES = (
    Program(
        "a parameter cast before it is moved",
        """
        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate = nn.Parameter(torch.zeros(4, dtype=torch.double)).float().to(device)
                self.fc = nn.Linear(4, 2)

            def forward(self, x):
                return self.fc(x * self.gate)

        model = Gate().to(device)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG112",
        "self.gate = nn.Parameter(torch.zeros(4, dtype=torch.double)).float().to(device)",
        "gate",
    ),
    Program(
        "leaves given to a function that reads their gradients",
        """
        def sgd(params, lr):
            with torch.no_grad():
                for param in params:
                    param -= lr * param.grad
        w = torch.normal(0, 0.01, size=(4, 1), requires_grad=True).to(device)
        (torch.ones(2, 4, device=device) @ w).sum().backward()
        try:
            sgd([w], 0.1)
        except TypeError:
            pass
        """,
        "DG112",
        "w = torch.normal(0, 0.01, size=(4, 1), requires_grad=True).to(device)",
        "w",
    ),
    Program(
        "a parameter moved where it is made",
        """
        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate = nn.Parameter(torch.zeros(4)).to(device)
                self.fc = nn.Linear(4, 2)

            def forward(self, x):
                return self.fc(x * self.gate)

        model = Gate().to(device)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG112",
        "self.gate = nn.Parameter(torch.zeros(4)).to(device)",
        "gate",
    ),
    Program(
        "a parameter made on the device",
        """
        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate = nn.Parameter(torch.zeros(4, device=device))
                self.fc = nn.Linear(4, 2)

            def forward(self, x):
                return self.fc(x * self.gate.to(x.device))

        model = Gate().to(device)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
    ),
    Program(
        "a parameter used through a moved copy",
        """
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4))

            def forward(self, x):
                weight = self.weight.to(x.device)
                return x * weight + F.linear(x, torch.eye(4, device=x.device) * self.weight.to(x.device))

        model = Scale()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        """,
    ),
    Program(
        "an initialised parameter moved",
        """
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.init.xavier_uniform_(nn.Parameter(torch.empty(4, 1))).cuda()

            def forward(self, x):
                return x @ self.a

        model = Attention()
        (model(torch.randn(2, 4, device=device))).sum().backward()
        """,
        "DG112",
        "self.a = nn.init.xavier_uniform_(nn.Parameter(torch.empty(4, 1))).cuda()",
        "a",
    ),
    Program(
        "an input leaf moved",
        """
        model = Net().to(device)
        x = torch.randn(3, 4, requires_grad=True).to(device)
        model(x).sum().backward()
        print(x.grad)
        """,
        "DG112",
        "x = torch.randn(3, 4, requires_grad=True).to(device)",
        "x",
    ),
    Program(
        "an input leaf made from a moved tensor",
        """
        model = Net().to(device)
        x = torch.randn(3, 4).to(device).requires_grad_()
        model(x).sum().backward()
        assert x.grad is not None
        """,
    ),
    Program(
        "an input leaf replaced by its copy",
        """
        def saliency(model, x):
            x.requires_grad_()
            x = x.to(device)
            model(x).sum().backward()
            return x.grad

        saliency(Net().to(device), torch.randn(3, 4))
        """,
        "DG112",
        "x = x.to(device)",
        "x",
    ),
    Program(
        "a model moves its own inputs",
        """
        class Moving(Net):
            def forward(self, x):
                x = x.to(device)
                return super().forward(x)

        model = Moving().to(device)
        x = torch.randn(3, 4, requires_grad=True)
        model(x).sum().backward()
        assert x.grad is not None
        """,
    ),
    Program(
        "the copy's gradient is retained",
        """
        model = Net().to(device)
        x = torch.randn(3, 4, requires_grad=True).to(device)
        x.retain_grad()
        model(x).sum().backward()
        assert x.grad is not None
        """,
    ),
    Program(
        "the copy's gradient is asked for",
        """
        model = Net().to(device)
        x = torch.randn(3, 4, requires_grad=True).to(device)
        (grad,) = torch.autograd.grad(model(x).sum(), x)
        """,
    ),
    Program(
        "the copy is read, the leaf too",
        """
        w = torch.randn(4, requires_grad=True)
        w_gpu = w.cuda()
        (w_gpu * 2).sum().backward()
        print(w.grad)
        """,
    ),
    Program(
        "the copy's gradient is read",
        """
        w = torch.randn(4, requires_grad=True)
        w_gpu = w.cuda()
        (w_gpu * 2).sum().backward()
        print(w_gpu.grad)
        """,
        "DG112",
        "w_gpu = w.cuda()",
        "w_gpu",
    ),
    Program(
        "an optimizer refuses the copy",
        """
        w = nn.Parameter(torch.randn(4)).to(device)
        optimizer = torch.optim.SGD([w], lr=0.1)
        """,
        "DG112",
        "w = nn.Parameter(torch.randn(4)).to(device)",
        "w",
    ),
    Program(
        "a list of leaves moved",
        """
        params = [torch.randn(4, requires_grad=True) for _ in range(2)]
        params = [p.to(device) for p in params]
        sum((p * p).sum() for p in params).backward()
        with torch.no_grad():
            for p in params:
                if p.grad is not None:
                    p -= 0.1 * p.grad
        """,
        "DG112",
        "params = [p.to(device) for p in params]",
        "params",
    ),
    Program(
        "a list of detached copies",
        """
        params = [torch.randn(4, requires_grad=True) for _ in range(2)]
        params = [p.detach().to(device).requires_grad_() for p in params]
        sum((p * p).sum() for p in params).backward()
        with torch.no_grad():
            for p in params:
                p -= 0.1 * p.grad
        """,
    ),
    Program(
        "a parameter list made from moved parameters",
        """
        class Prompts(nn.Module):
            def __init__(self):
                super().__init__()
                self.prompts = nn.ParameterList([nn.Parameter(torch.zeros(4)).to(device) for _ in range(2)])

            def forward(self, x):
                return sum(x * p for p in self.prompts)

        model = Prompts()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
    ),
    Program(
        "a loop that moves a model's parameters in vain",
        """
        model = Net().to(device)
        for p in model.parameters():
            p = p.to("cpu")
        model(torch.randn(3, 4, device=device)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        """,
    ),
    Program(
        "each batch becomes a leaf and is moved then",
        """
        model = Net().to(device)
        for x in [torch.randn(3, 4) for _ in range(2)]:
            x.requires_grad = True
            x = x.to(device)
            model(x).sum().backward()
            print(x.grad)
        """,
        "DG112",
        "x = x.to(device)",
        "x",
    ),
    Program(
        "a perturbation moved after it became a leaf",
        """
        model = Net().to(device)
        clean = torch.randn(3, 4)
        delta = torch.zeros_like(clean, requires_grad=True).to(device)
        model(clean.to(device) + delta).sum().backward()
        delta = delta + 0.1 * delta.grad.sign()
        """,
        "DG112",
        "delta = torch.zeros_like(clean, requires_grad=True).to(device)",
        "delta",
    ),
    Program(
        "an attack that returns the detached perturbation",
        """
        def attack(model, x):
            delta = torch.zeros(3, 4, requires_grad=True).cuda()
            model(x + delta).sum().backward()
            delta.data = delta + 0.1 * delta.grad.sign()
            return delta.detach()

        attack(Net().to(device), torch.randn(3, 4, device=device))
        """,
        "DG112",
        "delta = torch.zeros(3, 4, requires_grad=True).cuda()",
        "delta",
    ),
    Program(
        "a copy made a leaf again",
        """
        z = torch.randn(3, 4, requires_grad=True).cuda()
        z = z.detach().requires_grad_()
        Net().to(device)(z).sum().backward()
        assert z.grad is not None
        """,
    ),
    Program(
        "a moved leaf registered as a parameter",
        """
        class Bias(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_parameter("bias", nn.Parameter(torch.zeros(4)).to(device))

        Bias()
        """,
        "DG112",
        'self.register_parameter("bias", nn.Parameter(torch.zeros(4)).to(device))',
        "bias",
    ),
    Program(
        "fast weights from autograd.grad",
        """
        weights = {"w": torch.randn(4, 2, requires_grad=True)}
        fast = {name: value.to(device) for name, value in weights.items()}
        loss = (torch.randn(3, 4, device=device) @ fast["w"]).sum()
        grads = torch.autograd.grad(loss, list(fast.values()))
        """,
    ),
    Program(
        "a leaf only to switch gradients on",
        """
        model = Net().to(device).requires_grad_(False)
        x = torch.randn(3, 4, requires_grad=True).to(device)
        model(x).sum().backward()
        """,
    ),
    Program(
        "a temperature in a class that is no module",
        """
        class Agent:
            def __init__(self):
                self.log_alpha = torch.zeros(1, requires_grad=True).to(device)
                self.optimizer = torch.optim.Adam([self.log_alpha], lr=1e-3)

        Agent()
        """,
        "DG112",
        "self.log_alpha = torch.zeros(1, requires_grad=True).to(device)",
        "log_alpha",
    ),
    Program(
        "activations between two devices",
        """
        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")

            def forward(self, x):
                return self.b(self.a(x).to("cuda:1"))

        model = Split()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=2,
    ),
    Program(
        "a parameter assigned its own copy",
        """
        model = Net()
        model.body.weight = model.body.weight.cuda()
        """,
        "DG112",
        "model.body.weight = model.body.weight.cuda()",
        "model.body.weight",
    ),
    Program(
        "a weight rebound in a helper class",
        """
        class Linear:
            def __init__(self):
                self.w = torch.zeros(4, 1, requires_grad=True)
                self.w = self.w.to(device)

            def step(self):
                if self.w.grad is not None:
                    self.w.data -= 0.1 * self.w.grad

        layer = Linear()
        (torch.randn(3, 4, device=device) @ layer.w).sum().backward()
        layer.step()
        """,
        "DG112",
        "self.w = self.w.to(device)",
        "w",
    ),
)


@pytest.mark.parametrize("program", LEAVES, ids=lambda program: program.name)
def test_program(program: Program, tmp_path: Path) -> None:
    check(program, tmp_path, RULES)
