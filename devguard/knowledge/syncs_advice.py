"""What to write instead of a wait: one text for each kind. `{x}` is the tensor's name. Data only, imports no torch."""

from __future__ import annotations

from devguard.knowledge.expressions import before_a_dot

_OFTEN = "or only every N steps"

ADVICE: dict[str, str] = {
    # how a scalar is read
    "item": "keep it on the device (sum {x}.detach() up) and read it once after the loop, " + _OFTEN,
    "cast": "keep it on the device (sum {x}.detach() up) and read it once after the loop, " + _OFTEN,
    "read": "keep {x} on the device and read it once after the loop, " + _OFTEN,
    "branch": (
        "let the device decide (torch.where, masked_fill, clamp need no `if`), or collect a flag "
        "(bad |= ~torch.isfinite(loss)) and test it every N steps"
    ),
    "builtin": "Python's {called}() compares element by element: get the number on the host where {x} comes from",
    "range": "take the loop bound from a shape or a number that the host knows already",
    "index": "look it up on the device: index_select(0, {x}.view(1)), or index with a Python number",
    "size": "take the size from a shape or a number that the host knows already, not from the data of {x}",
    "argument": "pass a Python number that the host knows already, or use an op that takes a tensor there",
    "call": "take the number from a shape or from the host, not from the data of {x}",
    "format": "keep {x}.detach() and format it after the loop, " + _OFTEN,
    "contains": "compare on the device, (x == value).any(), and read the answer once after the loop",
    "compare": "compare on the device and read the answer once after the loop, " + _OFTEN,
    "list": "torch.stack([...]) joins device scalars on the device",
    # copies
    "copy": "keep it on the device, or collect the tensors and copy them once after the loop, " + _OFTEN,
    "tolist": "keep it on the device, or collect the tensors and copy them once after the loop, " + _OFTEN,
    "print": "collect {x}.detach() and print after the loop, " + _OFTEN,
    "pickle": "save every N steps; torch.save copies every tensor to the host",
    # shapes that depend on data
    "mask": "keep the shape fixed: torch.where(mask, x, 0), or multiply by the mask and divide by its sum",
    "mask assignment": "torch.where(mask, new, old) gives the same values without finding the positions",
    "nonzero": "work with the mask itself (torch.where(mask, a, b), masked sums), or torch.nonzero_static(size=...)",
    "where": "torch.where(condition, a, b) with three arguments keeps the shape and does not wait",
    "unique": "scatter into a buffer of fixed size (index_add, scatter_reduce), or find the unique values before the loop",
    "repeat_interleave": "pass output_size=..., the total that the host usually knows",
    "bincount": "torch.zeros(n, device=...).index_add(0, {x}, ones) has a fixed size and does not wait",
    "nms": "suppress the boxes of the whole batch in one call (torchvision.ops.batched_nms), after a topk of fixed size",
    "sparse": "build the sparse tensor once, outside the loop",
    "adaptive softmax": "its clusters have sizes that depend on the data: use a full softmax, or accept the wait",
    # hidden in an op or a function
    "one_hot": "pass num_classes: F.one_hot({x}, num_classes=n)",
    "normal": "mean + std * torch.randn_like(mean) draws the same without the check",
    "equal": "compare on the device, (a == b).all(), and read the answer once after the loop",
    "histc": "pass min= and max=",
    "segment_reduce": "pass unsafe=True when the lengths are known to be right, or offsets",
    "fill value": "pass a Python number, or torch.where(mask, value, x) with a tensor",
    "linalg": "the *_ex form (torch.linalg.cholesky_ex, inv_ex, solve_ex) does not check, and does not wait",
    "decomposition": "it checks on the host whether it succeeded, and has no way around: compute it less often",
    "ctc_loss": "keep the lengths on the host, as tuples or CPU tensors",
    "nested mask": "build the encoder with enable_nested_tensor=False",
    "causal mask": "pass is_causal=True (or False), so that the mask needs no check",
    "batch norm": "give BatchNorm a momentum: momentum=None reads its counter on each training step",
    "clip_grad_norm_": "leave error_if_nonfinite at False and test the returned norm every N steps",
    "gaussian_nll_loss": "write the loss out with var.clamp(min=eps): the function tests the variance on the host",
    "distributions": "construct the distribution with validate_args=False once the arguments are known to be right",
    "cov": "compute it by hand from centered @ centered.T / (n - 1)",
    "istft": "it checks the windows on the host: transform once for the whole batch",
    "averaged model": "update the average every N steps: it reads its counter on the host",
    "init": "initialize once, before the loop",
    "optimizer step": "leave 'step' on the CPU when moving optimizer state (it belongs on the device only with capturable or fused)",
    "optimizer lr": "pass the learning rate as a Python number, or use capturable=True or fused=True",
    "optimizer": "this optimizer reads values on the host by design: use another one, or a fused or capturable form",
    "lr": "give it a Python number that is read every N steps: a metric averaged over an epoch, a rate that is no tensor",
    "grad scaler": "GradScaler.step needs one read per step; an optimizer made with fused=True needs none",
    "grad scaler state": "ask for the scale every N steps",
    "object collectives": "send tensors of a known shape (all_gather, broadcast) instead of pickled objects",
    "logger": "log every N steps, and collect on the device in between",
    "anomaly": "detect_anomaly is for debugging: remove it from the training loop",
    "backward": "where {x} can hold no zero, torch.exp(torch.log({x}).sum(...)) has a backward that does not look for one",
    "backward mask": "it goes away with the mask of the forward: torch.where(mask, x, 0) keeps the shape in both",
    # explicit
    "synchronize": "remove it from the loop: CUDA keeps the order by itself; time with torch.cuda.Event pairs read after the loop",
    "empty_cache": "remove it from the loop: it makes the host wait and the next allocations slow",
}


def advice(key: str, tensor: str, called: str = "") -> str:
    """The text for a kind of wait, with the tensor's name in it; empty where there is none."""
    name = tensor or "it"
    text = ADVICE.get(key, "").replace("{x}.", f"{before_a_dot(name)}.").replace("{x}", name)
    return text.replace("{called}", called)
