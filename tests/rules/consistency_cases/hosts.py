"""What must stay on the host, and what workers of a loader do."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "pinning what is on the device",
        """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(8, 3, device="cuda"))
        loader = DataLoader(data, batch_size=4, pin_memory=True)  # cause
        for (x,) in loader:
            pass
        """,
        rules="DG108",
    ),
    Case(
        "gradient set by hand",
        """
        p = nn.Parameter(torch.ones(3, device="cuda"))
        g = torch.ones(3)  # cause
        p.grad = g
        """,
        rules="DG108",
        tensor="g",
    ),
    Case(
        "worker touches the device",
        """
        from torch.utils.data import DataLoader, Dataset
        class D(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return torch.ones(2).to("cuda")  # cause
        if __name__ == "__main__":
            torch.ones(1, device="cuda")
            for batch in DataLoader(D(), batch_size=2, num_workers=1):
                pass
        """,
        rules="DG108",
    ),
    Case(
        "batch from workers left on the host",
        """
        from torch.utils.data import DataLoader, TensorDataset
        model = nn.Linear(3, 2).cuda()
        loader = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=4, num_workers=1)
        for (x,) in loader:  # cause
            model(x)
        """,
        rules="DG101",
        tensor="x",
    ),
    Case(
        "host-only method",
        """
        x = torch.ones(3, device="cuda")
        x.apply_(lambda v: v + 1)  # cause
        """,
        rules="DG108",
        tensor="x",
    ),
)
