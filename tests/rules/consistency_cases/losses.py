"""Losses' weights: DG105."""

from tests.rules.consistency_cases.case import Case

CASES = (
    Case(
        "functional weight",
        """
        model = nn.Linear(4, 3).cuda()
        weights = torch.tensor([1.0, 2.0, 3.0])  # cause
        out = model(torch.randn(5, 4, device="cuda"))
        loss = F.cross_entropy(out, torch.zeros(5, dtype=torch.long, device="cuda"), weight=weights)
        """,
        rules="DG105",
        tensor="weights",
    ),
    Case(
        "functional pos_weight",
        """
        class Trainer:
            def __init__(self):
                self.model = nn.Linear(4, 1).cuda()
                self.pos_weight = torch.tensor([3.0, 2.0])  # cause
            def loss(self, x, y):
                return F.binary_cross_entropy_with_logits(self.model(x), y, pos_weight=self.pos_weight)
        t = Trainer()
        t.loss(torch.randn(5, 4, device="cuda"), torch.ones(5, 1, device="cuda"))
        """,
        rules="DG105",
        tensor="pos_weight",
    ),
    Case(
        "nll weight in a trainer",
        """
        class Trainer:
            def __init__(self, model, class_counts):
                self.model = model.to("cuda")
                w = 1.0 / class_counts  # cause
                self.criterion = nn.NLLLoss(weight=w)  # cause
            def step(self, x, y):
                return self.criterion(self.model(x).log_softmax(-1), y)
        t = Trainer(nn.Linear(4, 3), torch.tensor([1.0, 2.0, 3.0]))
        t.step(torch.randn(5, 4, device="cuda"), torch.zeros(5, dtype=torch.long, device="cuda"))
        """,
        rules="DG105",
        tensor="criterion.weight",
        module="criterion",
    ),
    Case(
        "focal loss attribute",
        """
        class FocalLoss(nn.Module):
            def __init__(self, alpha):
                super().__init__()
                self.alpha = torch.tensor(alpha)  # cause
            def forward(self, logits, target):
                ce = F.cross_entropy(logits, target, reduction="none")
                return (self.alpha[target] * ce).mean()
        criterion = FocalLoss([0.2, 0.8])
        net = nn.Linear(3, 2).cuda()
        logits = net(torch.randn(4, 3).cuda())
        criterion(logits, torch.tensor([0, 1, 1, 0]).cuda())
        """,
        rules="DG105|DG103",
        tensor="criterion.alpha",
        module="criterion",
    ),
    Case(
        "center loss parameter",
        """
        class CenterLoss(nn.Module):
            def __init__(self, classes, dim):
                super().__init__()
                self.centers = nn.Parameter(torch.randn(classes, dim))
            def forward(self, feats, labels):
                return (feats - self.centers[labels]).pow(2).sum()
        net = nn.Linear(3, 2).cuda()
        center_loss = CenterLoss(4, 2)  # cause
        feats = net(torch.randn(4, 3).cuda())
        center_loss(feats, torch.tensor([0, 1, 1, 0]).cuda())
        """,
        rules="DG105",
        tensor="center_loss.centers",
        module="center_loss",
    ),
    Case(
        "perceptual loss holds a network",
        """
        class PerceptualLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.vgg = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
            def forward(self, a, b):
                return (self.vgg(a) - self.vgg(b)).abs().mean()
        gen = nn.Conv2d(3, 3, 1).cuda()
        perceptual = PerceptualLoss()  # cause
        x = torch.randn(1, 3, 8, 8).cuda()
        perceptual(gen(x), x)
        """,
        rules="DG105",
        tensor="perceptual.vgg.0.weight",
        module="vgg.0",
    ),
    Case(
        "class weights from numpy",
        """
        import numpy as np
        model = nn.Linear(4, 3).cuda()
        cw = np.array([0.1, 0.2, 0.7])
        class_weights = torch.tensor(cw, dtype=torch.float)  # cause
        loss_fn = nn.CrossEntropyLoss(weight=class_weights)  # cause
        loss_fn(model(torch.ones(2, 4).cuda()), torch.zeros(2).long().cuda())
        """,
        rules="DG105",
        tensor="loss_fn.weight",
        module="loss_fn",
    ),
    Case(
        "two losses one weight each",
        """
        net = nn.Linear(4, 3).cuda()
        ce = nn.CrossEntropyLoss(weight=torch.ones(3))  # cause
        x = net(torch.ones(2, 4, device="cuda"))
        ce(x, torch.zeros(2, dtype=torch.long, device="cuda"))
        """,
        rules="DG105",
        tensor="ce.weight",
        module="ce",
    ),
    Case(
        "loss inside the model class",
        """
        class Lit(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(4, 3)
                self.class_weights = torch.tensor([1.0, 2.0, 3.0])  # cause
            def training_step(self, x, y):
                return F.cross_entropy(self.net(x), y, weight=self.class_weights)
        lit = Lit().cuda()
        lit.training_step(torch.ones(2, 4, device="cuda"), torch.zeros(2, dtype=torch.long, device="cuda"))
        """,
        rules="DG105|DG103|DG102",
        tensor="class_weights",
    ),
    Case(
        "dice loss eps weights",
        """
        class Dice(nn.Module):
            def __init__(self, weights):
                super().__init__()
                self.weights = torch.tensor(weights)  # cause
            def forward(self, p, t):
                return ((p * t).sum(0) * self.weights).mean()
        criterion = Dice([1.0, 2.0])
        criterion(torch.rand(3, 2, device="cuda"), torch.rand(3, 2, device="cuda"))
        """,
        rules="DG105|DG103",
        tensor="criterion.weights",
    ),
    Case(
        "loss moved but alpha left",
        """
        class Focal(nn.Module):
            def __init__(self):
                super().__init__()
                self.alpha = torch.tensor([0.3, 0.7])  # cause
            def forward(self, logits, y):
                return F.cross_entropy(logits, y, weight=self.alpha)
        criterion = Focal().to("cuda")
        criterion(torch.rand(3, 2, device="cuda"), torch.zeros(3, dtype=torch.long, device="cuda"))
        """,
        rules="DG103|DG105",
        tensor="alpha",
    ),
    Case(
        "uncertainty weighting parameters",
        """
        class MultiTaskLoss(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.log_vars = nn.Parameter(torch.zeros(n))
            def forward(self, losses):
                return (torch.exp(-self.log_vars) * losses + self.log_vars).sum()
        net = nn.Linear(2, 2).cuda()
        mtl = MultiTaskLoss(2)  # cause
        mtl(net(torch.ones(1, 2, device="cuda"))[0])
        """,
        rules="DG105|DG101",
        tensor="mtl.log_vars",
        module="mtl",
    ),
)
