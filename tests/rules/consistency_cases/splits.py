"""Models whose parts are on several devices: DG102, and what breaks in models that are split on purpose."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "new sequential head",
        """
        class Backbone(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 8)
                self.fc = nn.Linear(8, 1000)
            def forward(self, x):
                return self.fc(torch.relu(self.body(x)))
        model = Backbone()
        model = model.cuda()
        model.fc = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 3))  # cause
        model(torch.randn(2, 4).cuda())
        """,
        rules="DG102|DG101",
        tensor="fc.1.weight",
        module="fc.1",
    ),
    Case(
        "lora added later",
        """
        class LoRALinear(nn.Module):
            def __init__(self, base, r=2):
                super().__init__()
                self.base = base
                self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.01)
                self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
            def forward(self, x):
                return self.base(x) + x @ self.lora_A.T @ self.lora_B.T
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.q_proj = nn.Linear(4, 4)
            def forward(self, x):
                return self.q_proj(x)
        def add_lora(model):
            model.q_proj = LoRALinear(model.q_proj)  # cause
        model = Block().to("cuda")
        add_lora(model)
        model(torch.randn(2, 4, device="cuda"))
        """,
        rules="DG102|DG101",
        tensor="q_proj.lora_A",
        module="q_proj",
    ),
    Case(
        "parameter replaced after the move",
        """
        class Emb(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok = nn.Embedding(5, 4)
                self.out = nn.Linear(4, 5)
            def forward(self, ids):
                return self.out(self.tok(ids))
        model = Emb().cuda()
        model.tok.weight = nn.Parameter(torch.randn(7, 4))  # cause
        model(torch.tensor([1, 2], device="cuda"))
        """,
        rules="DG102|DG101",
        tensor="tok.weight",
        module="tok",
    ),
    Case(
        "buffer registered after the move",
        """
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
            def forward(self, x):
                return self.lin(x) - self.mean
        model = Norm().cuda()
        model.register_buffer("mean", torch.ones(3))  # cause
        model(torch.ones(1, 3).cuda())
        """,
        rules="DG102|DG103|DG101",
        tensor="mean",
    ),
    Case(
        "one part not moved",
        """
        class AE(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Linear(4, 2).cuda()
                self.decoder = nn.Linear(2, 4)  # cause
            def forward(self, x):
                return self.decoder(self.encoder(x))
        ae = AE()
        ae(torch.randn(1, 4).cuda())
        """,
        rules="DG102|DG101",
        tensor="decoder.weight",
        module="decoder",
    ),
    Case(
        "sub model called by parts",
        """
        class VAE(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc = nn.Linear(4, 2)
                self.dec = nn.Linear(2, 4)  # cause
        vae = VAE()
        vae.enc.to("cuda")
        z = vae.enc(torch.ones(1, 4, device="cuda"))
        vae.dec(z)
        """,
        rules="DG102|DG101",
        tensor="dec.weight",
        module="dec",
    ),
    Case(
        "autocast new head",
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("cuda")
        model.append(nn.Linear(4, 2))  # cause
        with torch.autocast("cuda", dtype=torch.bfloat16):
            model(torch.ones(1, 4, device="cuda"))
        """,
        rules="DG102|DG101",
        tensor="2.weight",
        module="2",
    ),
    Case(
        "buffer assigned as attribute later",
        """
        class BN(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(3))
                self.w = nn.Parameter(torch.ones(3))
            def reset(self):
                self.mean = torch.ones(3)  # cause
            def forward(self, x):
                return x * self.w - self.mean
        b = BN().cuda()
        b(torch.ones(1, 3, device="cuda"))
        b.reset()
        b(torch.ones(1, 3, device="cuda"))
        """,
        rules="DG102|DG103|DG101",
        tensor="mean",
    ),
    Case(
        "param data from host",
        """
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).cuda()
        pretrained = torch.randn(2, 2)  # cause
        net[0].weight.data = pretrained  # cause
        net(torch.ones(1, 2, device="cuda"))
        """,
        rules="DG102|DG101|DG108",
        tensor="0.weight",
        module="0",
    ),
    Case(
        "missing stage move",
        """
        class Pipe(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4).to("cuda:0")
                self.second = nn.Linear(4, 2).to("cuda:1")
            def forward(self, x):
                h = torch.relu(self.first(x))
                return self.second(h)  # cause
        pipe = Pipe()
        pipe(torch.randn(2, 4, device="cuda:0"))
        """,
        rules="DG101|DG108",
        tensor="h",
        module="second",
        devices=2,
    ),
    Case(
        "kv cache on one device",
        """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.k = nn.Linear(4, 4)
            def forward(self, x, past):
                return torch.cat([past, self.k(x)], dim=1)
        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Layer().to("cuda:0"), Layer().to("cuda:1")])
            def forward(self, x, caches):
                out = []
                for i, layer in enumerate(self.layers):
                    x = x.to(f"cuda:{i}")
                    out.append(layer(x, caches[i]))
                return out
        stack = Stack()
        caches = [torch.zeros(1, 2, 4, device="cuda:0") for _ in range(2)]  # cause
        stack(torch.ones(1, 1, 4, device="cuda:0"), caches)
        """,
        rules="DG108|DG101",
        tensor="caches[1]",
        module="layers.1",
        devices=2,
    ),
)
