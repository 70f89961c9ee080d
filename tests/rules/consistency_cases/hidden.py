"""Modules that their owner cannot see, and ties that a move breaks: DG104, DG113."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "modules in a dict",
        """
        class MultiHead(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk = nn.Linear(4, 4)
                self.heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)}  # cause
            def forward(self, x, task):
                return self.heads[task](self.trunk(x))
        m = MultiHead()
        m.cuda()
        m(torch.ones(1, 4).cuda(), "b")
        """,
        rules="DG104",
        tensor="heads['b'].weight",
    ),
    Case(
        "module in a closure",
        """
        def make(n):
            proj = nn.Linear(n, n)  # cause
            return lambda x: proj(x)
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.post = make(3)  # cause
            def forward(self, x):
                return self.post(self.fc(x))
        m = M().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG104",
        tensor="proj.weight",
    ),
    Case(
        "module in a helper object",
        """
        class Adapter:
            def __init__(self):
                self.linear = nn.Linear(3, 3)  # cause
            def __call__(self, x):
                return self.linear(x)
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.adapter = Adapter()  # cause
            def forward(self, x):
                return self.adapter(self.fc(x))
        m = M().cuda()
        m(torch.ones(1, 3).cuda())
        """,
        rules="DG104",
        tensor="adapter.linear.weight",
    ),
    Case(
        "modules in a nested list",
        """
        class Grid(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Linear(3, 3)
                self.cells = [[nn.Linear(3, 3), nn.ReLU()] for _ in range(2)]  # cause
            def forward(self, x):
                x = self.stem(x)
                for row in self.cells:
                    for cell in row:
                        x = cell(x)
                return x
        g = Grid().to("cuda")
        g(torch.ones(1, 3, device="cuda"))
        """,
        rules="DG104",
        tensor="cells[0][0].weight",
    ),
    Case(
        "tie by data broken",
        """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(6, 4)
                self.head = nn.Linear(4, 6, bias=False)
                self.head.weight.data = self.emb.weight.data
            def forward(self, ids):
                return self.head(self.emb(ids))
        lm = LM()
        lm.to("cuda")  # cause
        lm(torch.zeros(2, dtype=torch.long, device="cuda"))
        """,
        rules="DG113",
    ),
)
