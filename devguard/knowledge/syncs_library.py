"""Which Python function of PyTorch, and which op made of others, hides a wait: data only, imports no torch.

An op that waits inside one of these is the function's doing and not the caller's: the finding names the function.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LibrarySync:
    """A place in PyTorch's Python code that waits.

    `file` is a path below the torch folder, or a folder that ends in `/`; `function` is the name of the code object, empty for all.
    `rule` is empty where the op that waits says it. `subject` is the local variable that is read there, `named_by` one that holds its
    name. `hidden` says what is read.
    `note` keeps the finding a note: the wait is part of what the user asked for, and there is little to change.
    """

    file: str
    function: str = ""
    rule: str = "DG205"
    name: str = ""
    subject: str = ""
    hidden: str = ""
    advice: str = ""
    note: bool = False
    named_by: str = ""


# fmt: off
LIBRARY: tuple[LibrarySync, ...] = (
    LibrarySync("nn/utils/clip_grad.py", name="clip_grad_norm_", subject="total_norm",
                hidden="the test whether the norm is finite (error_if_nonfinite=True)", advice="clip_grad_norm_"),
    LibrarySync("nn/functional.py", "gaussian_nll_loss", name="gaussian_nll_loss", subject="var",
                hidden="the test whether any variance is negative", advice="gaussian_nll_loss"),
    LibrarySync("nn/functional.py", "ctc_loss", name="ctc_loss", subject="input_lengths",
                hidden="the lengths, copied to the host", advice="ctc_loss"),
    LibrarySync("nn/modules/transformer.py", "_detect_is_causal_mask", name="nn.Transformer", subject="mask",
                hidden="the check whether the mask is causal", advice="causal mask"),
    LibrarySync("nn/modules/transformer.py", "forward", name="nn.TransformerEncoder", subject="src_key_padding_mask",
                hidden="the check whether the mask is left-aligned", advice="nested mask"),
    LibrarySync("nn/modules/batchnorm.py", "forward", name="BatchNorm(momentum=None)", subject="num_batches_tracked",
                hidden="num_batches_tracked.item()", advice="batch norm"),
    LibrarySync("nn/modules/adaptive.py", rule="DG203", name="AdaptiveLogSoftmaxWithLoss", subject="target",
                hidden="nonzero of each cluster's mask", advice="adaptive softmax"),
    LibrarySync("nn/init.py", name="torch.nn.init", subject="tensor", hidden="a test of the drawn values",
                advice="init"),
    LibrarySync("optim/swa_utils.py", "update_parameters", name="AveragedModel.update_parameters",
                subject="n_averaged", hidden="the tests of n_averaged", advice="averaged model"),
    LibrarySync("optim/lr_scheduler.py", name="the learning-rate scheduler", hidden="the metric or rate it is given",
                advice="lr"),
    LibrarySync("optim/adam", name="Adam", hidden="a value", advice="optimizer"),
    LibrarySync("optim/", name="the optimizer", hidden="a value", advice="optimizer"),
    LibrarySync("amp/grad_scaler.py", "_maybe_opt_step", name="GradScaler.step", subject="found_inf",
                hidden="the flag whether a gradient is not finite", advice="grad scaler", note=True),
    LibrarySync("amp/grad_scaler.py", "get_scale", name="GradScaler.get_scale", hidden="the scale",
                advice="grad scaler state"),
    LibrarySync("amp/grad_scaler.py", name="GradScaler", hidden="its state", advice="grad scaler state"),
    LibrarySync("distributions/", name="torch.distributions", subject="value", hidden="the validation of arguments",
                advice="distributions", named_by="param"),
    LibrarySync("distributed/", name="torch.distributed", hidden="the sizes of pickled objects",
                advice="object collectives"),
    LibrarySync("utils/tensorboard/", rule="", name="SummaryWriter", advice="logger"),
    LibrarySync("testing/", name="torch.testing", hidden="the comparison of values", advice="equal"),
    LibrarySync("autograd/gradcheck.py", name="gradcheck", hidden="the comparison of gradients", note=True),
    LibrarySync("_lobpcg.py", name="torch.lobpcg", hidden="the test of convergence", advice="decomposition"),
)
# fmt: on

# Functions of torch that C++ builds from ops which a dispatch mode sees one by one: name -> (rule, what is read, advice).
COMPOSITES: dict[str, tuple[str, str, str]] = {
    "one_hot": ("DG205", "max().item() of the classes", "one_hot"),
    "cov": ("DG205", "the test of the degrees of freedom", "cov"),
    "corrcoef": ("DG205", "the test of the degrees of freedom", "cov"),
    "istft": ("DG205", "the check whether the windows overlap", "istft"),
    "ctc_loss": ("DG205", "the lengths, copied to the host", "ctc_loss"),
    "combinations": ("DG203", "masked_select", "mask"),
    "argwhere": ("DG203", "nonzero", "nonzero"),
    "where": ("DG203", "nonzero of the condition", "where"),
}

# Nodes of the autograd graph that wait in backward: name without its number -> (the forward's op, what is read).
BACKWARD: dict[str, tuple[str, str]] = {
    "ProdBackward": ("prod", "nonzero, where its input is zero"),
    "ProdDimBackward": ("prod", "nonzero, where its input is zero"),
    "CumprodBackward": ("cumprod", "item(), whether any input is zero"),
}

# Inside a simulation C++ takes, for tensor subclasses, a way through these backwards that does not wait: one op of it, which runs
# once in each node, stands for the wait on CUDA.
SIMULATED_BACKWARD: dict[str, tuple[str, ...]] = {
    "CumprodBackward": ("aten::max", "aten::stack"),  # the second up to PyTorch 2.11
}

# Frames of torch that pass a call on and mean nothing of their own.
TRANSPARENT: tuple[str, ...] = (
    "_dynamo/",
    "_compile.py",
    "_tensor.py",
    "_jit_internal.py",
    "_ops.py",
    "overrides.py",
    "functional.py",
    "utils/_contextlib.py",
    "utils/_device.py",
    "utils/_python_dispatch.py",
    "nn/modules/module.py",
    "nn/modules/container.py",
    "linalg/",
)
