"""DG109, DG110 and DG111 over small programs, half of them correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.programs import Program, check, environment

RULES = ("DG109", "DG110", "DG111")
FIRST = environment(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
SECOND = environment(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
OTHER_NODE = environment(RANK="2", LOCAL_RANK="0", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2")

RANKS = (
    Program(
        "set_device by local rank",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=2,
        environment=SECOND,
    ),
    Program(
        "set_device by global rank, out of range",
        """
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        """,
        "DG109",
        "torch.cuda.set_device(rank)",
        devices=2,
        environment=OTHER_NODE,
    ),
    Program(
        "set_device by global rank, in range",
        """
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG109",
        "torch.cuda.set_device(rank)",
        devices=4,
        environment=OTHER_NODE,
    ),
    Program(
        "global rank wrapped around the devices",
        """
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank % torch.cuda.device_count())
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=2,
        environment=OTHER_NODE,
    ),
    Program(
        "no set_device in the second process",
        """
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG109",
        "model = Net().cuda()",
        devices=2,
        environment=SECOND,
    ),
    Program(
        "no set_device in the first process",
        """
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=2,
        environment=FIRST,
    ),
    Program(
        "a hard-coded device in the second process",
        """
        gpu = torch.device("cuda:0")
        model = Net().to(gpu)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), on=gpu)
        """,
        "DG109",
        'gpu = torch.device("cuda:0")',
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a device by global rank that does not exist",
        """
        rank = int(os.environ["RANK"])
        place = torch.device(f"cuda:{rank}")
        model = Net().to(place)
        """,
        "DG109",
        'place = torch.device(f"cuda:{rank}")',
        devices=2,
        environment=OTHER_NODE,
    ),
    Program(
        "a device by local rank",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        place = torch.device("cuda", local_rank)
        model = Net().to(place)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), on=place)
        """,
        devices=2,
        environment=SECOND,
    ),
    Program(
        "one visible device for each process",
        """
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=1,
        environment=(*SECOND, ("CUDA_VISIBLE_DEVICES", "1")),
    ),
    Program(
        "one visible device and the local rank as its index",
        """
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        """,
        "DG109",
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        devices=1,
        environment=(*SECOND, ("CUDA_VISIBLE_DEVICES", "1")),
    ),
    Program(
        "devices shifted by an offset",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank + 2)
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=4,
        environment=SECOND,
    ),
    Program(
        "every process's model over two devices",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        a, b = torch.device("cuda", 2 * local_rank), torch.device("cuda", 2 * local_rank + 1)

        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4).to(a), nn.Linear(4, 2).to(b)

            def forward(self, x):
                return self.b(self.a(x.to(a)).to(b))

        torch.cuda.set_device(a)
        model = Split()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), on=a)
        """,
        devices=4,
        environment=environment(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"),
    ),
    Program(
        "a checkpoint loaded where it was saved",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        file = io.BytesIO()
        torch.save({"w": torch.ones(3, device="cuda:0")}, file)
        file.seek(0)
        state = torch.load(file)
        """,
        "DG109",
        "state = torch.load(file)",
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a checkpoint loaded onto the host",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        file = io.BytesIO()
        torch.save({"w": torch.ones(3, device="cuda:0")}, file)
        file.seek(0)
        state = torch.load(file, map_location="cpu")
        """,
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a checkpoint loaded onto the process's own device",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        file = io.BytesIO()
        torch.save({"w": torch.ones(3, device="cuda:0")}, file)
        file.seek(0)
        state = torch.load(file, map_location=f"cuda:{local_rank}")
        """,
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a tensor on the default device before set_device",
        """
        torch.zeros(1).cuda()
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG109",
        "torch.zeros(1).cuda()",
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a tensor on the default device whose memory others have used since",
        """
        torch.zeros(1).cuda()
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        kept = [torch.zeros(1, device="cuda") for _ in range(500)]
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "DG109",
        "torch.zeros(1).cuda()",
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a result gathered on the first device on purpose",
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        model = Net().cuda()
        out = model(torch.randn(3, 4, device="cuda")).detach().to("cuda:0")
        """,
        devices=2,
        environment=SECOND,
    ),
    Program(
        "a process that is no part of a job",
        """
        torch.cuda.set_device(1)
        model = Net().cuda()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        devices=2,
        environment=environment(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1"),
    ),
)

IDLE = (
    Program(
        "a model that is never moved",
        """
        net = Net()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), steps=4, on="cpu")
        """,
        "DG110",
        "net = Net()",
        level="warning",
    ),
    Program(
        "a model that is moved",
        """
        net = Net().to(device)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), steps=4)
        """,
    ),
    Program(
        "a device option that is ignored",
        """
        class Runner:
            def __init__(self, device):
                self.device = device
                self.model = Net().eval()

            def run(self):
                with torch.no_grad():
                    return self.model(torch.randn(1, 4))

        Runner("cuda").run()
        """,
        "DG110",
        "self.model = Net().eval()",
        level="warning",
    ),
    Program(
        "a fallback to the host",
        """
        def try_gpu(i):
            return torch.device(f"cuda:{i}") if torch.cuda.device_count() > i else torch.device("cpu")

        place = try_gpu(10)
        net = Net().to(place)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), steps=4, on=place)
        """,
        "DG110",
        "place = try_gpu(10)",
    ),
    Program(
        "the host asked for in so many words",
        """
        import torch
        from torch import nn

        net = nn.Linear(4, 2).to("cpu")
        for _ in range(5):
            net(torch.randn(3, 4))
        """,
        prelude=False,
    ),
    Program(
        "the host where nothing else was said",
        """
        import torch
        from torch import nn

        def build(device=None):
            return nn.Linear(4, 2).to(device or "cpu")

        net = build()
        for _ in range(5):
            net(torch.randn(3, 4))
        """,
        "DG110",
        'return nn.Linear(4, 2).to(device or "cpu")',
        prelude=False,
    ),
    Program(
        "no mention of an accelerator",
        """
        import torch
        from torch import nn

        net = nn.Linear(4, 2)
        for _ in range(5):
            net(torch.randn(3, 4))
        """,
        "DG110",
        "net = nn.Linear(4, 2)",
        prelude=False,
    ),
    Program(
        "no mention of an accelerator and one look",
        """
        import torch
        from torch import nn

        net = nn.Linear(4, 2)
        net(torch.randn(3, 4))
        """,
        prelude=False,
    ),
    Program(
        "a device variable that was left on the host",
        """
        place = torch.device("cpu")
        net = Net().to(place)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), steps=4, on=place)
        """,
        "DG110",
        'place = torch.device("cpu")',
    ),
    Program(
        "a helper on the host beside a model on the device",
        """
        embed = nn.Embedding(10, 4)
        net = Net().to(device)
        for _ in range(4):
            net(embed(torch.randint(0, 10, (3,))).to(device))
        """,
    ),
    Program(
        "an average on the host",
        """
        net = Net().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        ema = copy.deepcopy(net).to("cpu")
        for _ in range(4):
            train(net, optimizer, steps=1)
            ema(torch.randn(1, 4))
        """,
    ),
    Program(
        "tried on the host, then moved",
        """
        net = Net()
        net(torch.randn(1, 4))
        net.to(device)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), steps=3)
        """,
    ),
    Program(
        "a loss without parameters",
        """
        x = torch.randn(3, 4, device=device, requires_grad=True)
        loss = nn.MSELoss()
        for _ in range(4):
            loss(x * 2, torch.zeros(3, 4, device=device)).backward()
        """,
    ),
    Program(
        "functions on the device and a helper on the host",
        """
        table = nn.Embedding(10, 4)
        w = torch.randn(4, 2, device=device)
        for _ in range(4):
            x = table(torch.randint(0, 10, (3,))).detach().to(device)
            (x @ w).relu()
        """,
    ),
)

AUTOCAST = (
    Program(
        "autocast for the host around a model on the device",
        """
        net = Net().to(device)
        ctx = torch.autocast("cpu", dtype=torch.bfloat16)
        for _ in range(2):
            with ctx:
                net(torch.randn(3, 4, device=device))
        """,
        "DG111",
        'ctx = torch.autocast("cpu", dtype=torch.bfloat16)',
    ),
    Program(
        "autocast for the device",
        """
        net = Net().to(device)
        with torch.autocast("cuda"):
            net(torch.randn(3, 4, device=device))
        """,
    ),
    Program(
        "the cpu class",
        """
        net = Net().to(device)
        with torch.autocast(device_type="cpu"):
            out = net(torch.randn(3, 4, device=device))
        """,
        "DG111",
        'with torch.autocast(device_type="cpu"):',
    ),
    Program(
        "autocast as a decorator",
        """
        @torch.autocast("cpu")
        def step(net, x):
            return net(x).sum()

        net = Net().to(device)
        step(net, torch.randn(3, 4, device=device))
        """,
        "DG111",
        '@torch.autocast("cpu")',
    ),
    Program(
        "autocast inside forward",
        """
        class Mixed(Net):
            def forward(self, x):
                with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
                    return super().forward(x)

        net = Mixed().to(device)
        net(torch.randn(3, 4, device=device))
        """,
        "DG111",
        'with torch.autocast(device_type="cpu", dtype=torch.bfloat16):',
    ),
    Program(
        "autocast switched off",
        """
        net = Net().to(device)
        with torch.autocast("cpu", enabled=False):
            net(torch.randn(3, 4, device=device))
        """,
    ),
    Program(
        "autocast for the host around work on the host",
        """
        net = Net().to(device)
        w = torch.randn(4, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.randn(3, 4) @ w
        net(y.float().to(device))
        """,
    ),
    Program(
        "both kinds, nested",
        """
        net = Net().to(device)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cuda"):
            net(torch.randn(3, 4, device=device))
        """,
    ),
    Program(
        "nothing inside that autocast is for",
        """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (torch.randn(3, device=device) + 1).sum()
        """,
    ),
    Program(
        "products without modules",
        """
        w = torch.randn(4, 4, device=device)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.randn(3, 4, device=device) @ w
        """,
        "DG111",
        'with torch.autocast("cpu", dtype=torch.bfloat16):',
    ),
    Program(
        "autocast for the device around a model on the host",
        """
        net = nn.Linear(4, 4)
        side = nn.Linear(4, 4).to(device)
        amp = torch.autocast("cuda", dtype=torch.bfloat16)
        with amp:
            y = net(torch.randn(3, 4))
        side(y.to(device))
        """,
        "DG111",
        'amp = torch.autocast("cuda", dtype=torch.bfloat16)',
    ),
)


@pytest.mark.parametrize("program", RANKS + IDLE + AUTOCAST, ids=lambda program: program.name)
def test_program(program: Program, tmp_path: Path) -> None:
    check(program, tmp_path, RULES)
