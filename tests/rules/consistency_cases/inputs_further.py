"""Inputs that a module cannot take: DG101."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "set default tensor on load",
        """
        import io
        f = io.BytesIO()
        torch.save({"x": torch.ones(2, 3)}, f); f.seek(0)
        data = torch.load(f)  # cause
        nn.Linear(3, 2).cuda()(data["x"])
        """,
        rules="DG101",
        tensor="data['x']",
    ),
    Case(
        "factory called twice",
        """
        def build(width):
            return nn.Sequential(
                nn.Linear(3, width),
                nn.Linear(width, 1),
            )
        policy = build(4).cuda()
        target = build(4)  # cause
        x = torch.ones(2, 3).cuda()
        policy(x)
        target(x)
        """,
        rules="DG101",
        tensor="target.0.weight",
    ),
)
