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
)
