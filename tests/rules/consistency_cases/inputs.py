"""Inputs that a module cannot take: DG101."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "nested batch entry",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 2)
            def forward(self, batch):
                return self.fc(batch["features"]["dense"][0])
        model = Model().to("cuda")
        def make():
            dense = torch.randn(3, 4)  # cause
            return {"features": {"dense": [dense]}, "id": 3}
        batch = make()
        model(batch)
        """,
        rules="DG101",
        tensor="batch['features']['dense'][0]|dense",
        module="fc",
    ),
    Case(
        "dataclass batch",
        """
        from dataclasses import dataclass
        @dataclass
        class Batch:
            x: torch.Tensor
            y: torch.Tensor
        model = nn.Sequential(nn.Linear(4, 2)).to("cuda")
        batch = Batch(x=torch.randn(2, 4), y=torch.zeros(2, device="cuda"))  # cause
        model(batch.x)
        """,
        rules="DG101",
        tensor="batch.x",
        module="0",
    ),
    Case(
        "batch encoding",
        """
        from collections import UserDict
        class BatchEncoding(UserDict):
            def __getattr__(self, item):
                return self.data[item]
        def tokenizer(texts):
            ids = torch.randint(0, 9, (len(texts), 5))  # cause
            return BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(10, 4)
            def forward(self, input_ids, attention_mask=None):
                return self.wte(input_ids) * attention_mask[..., None]
        model = LM().cuda()
        inputs = tokenizer(["a", "b"])  # cause
        out = model(**inputs)
        """,
        rules="DG101",
        tensor="inputs['input_ids']",
        module="wte",
    ),
    Case(
        "packed sequence",
        """
        from torch.nn.utils.rnn import pack_sequence
        rnn = nn.GRU(3, 5).cuda()
        seqs = [torch.randn(n, 3) for n in (4, 2)]  # cause
        packed = pack_sequence(seqs)  # cause
        rnn(packed)
        """,
        rules="DG101|DG108",
        tensor="packed.data",
    ),
    Case(
        "model never moved",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 2, 3)
                self.bn = nn.BatchNorm2d(2)
            def forward(self, x):
                return self.bn(self.conv(x))
        net = Net()  # cause
        images = torch.randn(2, 1, 6, 6).cuda()
        net(images)
        """,
        rules="DG101",
        tensor="conv.weight|images",
        module="conv",
    ),
    Case(
        "model on gpu 1 input on gpu 0",
        """
        model = nn.Linear(3, 3).to("cuda:1")
        x = torch.randn(2, 3, device="cuda")  # cause
        model(x)
        """,
        rules="DG101",
        tensor="x",
        devices=2,
    ),
    Case(
        "attention mask on cpu",
        """
        class Enc(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.Linear(4, 4)
            def forward(self, x, mask):
                h = self.proj(x)
                return h.masked_fill(mask, 0.0)
        enc = Enc().to("cuda")
        x = torch.randn(2, 3, 4).to("cuda")
        mask = torch.zeros(2, 3, 1, dtype=torch.bool)  # cause
        enc(x, mask=mask)
        """,
        rules="DG101|DG108",
        tensor="mask",
    ),
    Case(
        "numpy batch",
        """
        import numpy as np
        model = nn.Linear(3, 1).cuda()
        data = np.ones((4, 3), dtype="float32")
        x = torch.from_numpy(data)  # cause
        model(x)
        """,
        rules="DG101",
        tensor="x",
    ),
    Case(
        "forgotten in evaluation",
        """
        from torch.utils.data import DataLoader, TensorDataset
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)
            def forward(self, x):
                return self.fc(x)
        def evaluate(model, loader):
            model.eval()
            correct = 0
            for images, labels in loader:  # cause
                correct += (model(images).argmax(1) == labels).sum().item()
            return correct
        def train(model, loader):
            for images, labels in loader:
                images, labels = images.to("cuda"), labels.to("cuda")
                F.cross_entropy(model(images), labels).backward()
        loader = DataLoader(TensorDataset(torch.randn(8, 3), torch.randint(0, 2, (8,))), batch_size=4)
        net = Net().to("cuda")
        train(net, loader)
        evaluate(net, loader)
        """,
        rules="DG101",
        tensor="images",
        module="fc",
    ),
    Case(
        "two inputs on cpu",
        """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            def forward(self, left, right):
                return self.a(left) + self.b(right)
        two = Two().cuda()
        left, right = torch.ones(1, 2), torch.ones(1, 2)  # cause
        two(left, right)
        """,
        rules="DG101",
        tensor="left",
    ),
    Case(
        "attention mask of mha",
        """
        mha = nn.MultiheadAttention(8, 2, batch_first=True).cuda()
        x = torch.randn(2, 5, 8).cuda()
        attn_mask = torch.triu(torch.full((5, 5), float("-inf")), diagonal=1)  # cause
        mha(x, x, x, attn_mask=attn_mask)
        """,
        rules="DG101|DG108",
        tensor="attn_mask",
    ),
    Case(
        "export moves the live model",
        """
        model = nn.Linear(3, 3).cuda()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        def export(m):
            m.cpu()  # cause
            return {k: v.clone() for k, v in m.state_dict().items()}
        for epoch in range(2):
            x = torch.randn(2, 3, device="cuda")
            model(x).sum().backward()
            opt.step()
            export(model)
        """,
        rules="DG101|DG102",
        tensor="weight|x",
    ),
    Case(
        "current device differs",
        """
        torch.cuda.set_device(1)
        model = nn.Linear(3, 3).to("cuda")
        x = torch.randn(2, 3).to("cuda:0")  # cause
        model(x)
        """,
        rules="DG101|DG108",
        tensor="x",
        devices=2,
    ),
    Case(
        "thread with another current device",
        """
        import threading
        torch.cuda.set_device(1)
        model = nn.Linear(3, 3).cuda()
        box = []
        def load():
            box.append(torch.randn(2, 3).cuda())  # cause
        t = threading.Thread(target=load)
        t.start()
        t.join()
        model(box[0])
        """,
        rules="DG101|DG108",
        tensor="box[0]",
        devices=2,
    ),
    Case(
        "metric state",
        """
        class MeanMetric(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(3))
                self.register_buffer("count", torch.zeros(1))
            def update(self, value):
                self.total += value
            def forward(self, value):
                self.update(value)
                return self.total
        net = nn.Linear(4, 3).cuda()
        metric = MeanMetric()  # cause
        metric(net(torch.ones(1, 4).cuda())[0].detach())
        """,
        rules="DG101|DG108",
        tensor="metric.total",
        module="metric",
    ),
    Case(
        "teacher never moved",
        """
        student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)  # cause
        student.to("cuda")
        x = torch.randn(4, 3).to("cuda")
        out = student(x)
        with torch.no_grad():
            target = teacher(x)
        """,
        rules="DG101",
        tensor="teacher.weight|x",
        module="teacher",
    ),
    Case(
        "noise for the sampler",
        """
        class G(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 2)
            def forward(self, z):
                return self.net(z)
            def sample(self, n):
                z = torch.randn(n, 4)  # cause
                return self(z)
        g = G().cuda()
        g.sample(3)
        """,
        rules="DG101|DG108",
        tensor="z",
        module="net",
    ),
    Case(
        "position ids",
        """
        class Enc(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok, self.pos = nn.Embedding(9, 4), nn.Embedding(16, 4)
            def forward(self, ids):
                positions = torch.arange(ids.shape[1]).unsqueeze(0)  # cause
                return self.tok(ids) + self.pos(positions)
        enc = Enc().to("cuda")
        enc(torch.zeros(2, 5, dtype=torch.long, device="cuda"))
        """,
        rules="DG101|DG108",
        tensor="positions",
        module="pos",
    ),
    Case(
        "state dict loaded by assignment",
        """
        import io
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            def forward(self, x):
                return self.b(self.a(x))
        buffer = io.BytesIO()
        torch.save(Net().state_dict(), buffer)
        buffer.seek(0)
        net = Net().cuda()
        net.load_state_dict(torch.load(buffer, map_location="cpu"), assign=True)  # cause
        net(torch.ones(1, 3).cuda())
        """,
        rules="DG101|DG102",
        tensor="a.weight|",
    ),
    Case(
        "moved back by a helper",
        """
        model = nn.Linear(3, 2).cuda()
        x = torch.randn(2, 3).cuda()
        features = x.detach().cpu()  # cause
        model(features)
        """,
        rules="DG101|DG108",
        tensor="features",
    ),
)
