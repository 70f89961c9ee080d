"""Convolution and batch normalisation: which library CUDA would use decides which check speaks."""

from __future__ import annotations

from typing import Any

import torch

from devguard.knowledge import placement
from devguard.simulate.refusals import CPU, Call, index_of, refuse, same_device
from devguard.simulate.tensor import SimTensor


def convolution(call: Call) -> int:
    """convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, …)"""
    named = call.named
    image, weight, bias = named["input"], named["weight"], named.get("bias")
    if isinstance(image, SimTensor):
        _on_cuda(image, weight, bias, named)
    else:
        _on_cpu(image, weight, bias, named)
    return index_of(image)


def _on_cuda(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, named: dict[str, Any]) -> None:
    if not torch.backends.cudnn.enabled:
        _slow(image, weight, bias, named)
        return
    groups = named["groups"]
    depthwise = 1 < groups == image.size(1) and not named["transposed"] and image.dim() in (4, 5)
    if depthwise and image.dtype == torch.float32 and weight.size(0) % image.size(1) == 0:
        _kernel("_conv_depthwise2d" if image.dim() == 4 else "conv_depthwise3d", image, weight, bias)
        return
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.device.type != image.device.type:
            raise refuse(f"Input type ({image.type()}) and {name} type ({other.type()}) should be the same")
    _kernel("cudnn_convolution_transpose" if named["transposed"] else "cudnn_convolution", image, weight, bias)
    if bias is not None and bias.device != image.device:
        raise refuse(placement.iterator_check(image.device, bias.device))  # added to the result


def _on_cpu(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, named: dict[str, Any]) -> None:
    if _mkldnn(image, weight, named):
        for name, other in (("weight", weight), ("bias", bias)):
            if other is not None and other.device != CPU:
                raise refuse(
                    f"Input type ({image.type()}) and {name} type ({other.type()}) should be the same or input should be "
                    f"a MKLDNN tensor and {name} is a dense tensor"
                )
    _slow(image, weight, bias, named)


def _mkldnn(image: torch.Tensor, weight: torch.Tensor, named: dict[str, Any]) -> bool:
    """Would PyTorch give this convolution of a CPU tensor to oneDNN?"""
    if not torch.backends.mkldnn.is_available() or image.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if image.dtype != torch.float32:
        return True
    last = weight.shape[-2:] if weight.dim() > 3 else (1, weight.size(-1))
    size = image.shape[:4].numel()
    plain = all(s == 1 for s in named["stride"]) and all(d == 1 for d in named["dilation"])
    wide = tuple(last) != (1, 1)
    if plain and image.size(0) < 16 and not wide and torch.get_num_threads() <= 1:
        return False
    return named["groups"] > 1 or min(last) > 3 or image.size(0) > 1 or size > 20480


def _slow(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, named: dict[str, Any]) -> None:
    planar = image.dim() <= 4
    if named["transposed"]:
        kernel = "slow_conv_transpose2d" if planar else "slow_conv_transpose3d"
    elif any(d != 1 for d in named["dilation"]) or not planar:
        kernel = "slow_conv_dilated2d" if planar else "slow_conv_dilated3d"
    else:
        kernel = "_slow_conv2d_forward"
    _kernel(kernel, image, weight, bias)


def _kernel(name: str, image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """The generated check of one convolution kernel."""
    values = {"self": image, "weight": weight, "bias": bias}
    wrapper, *checked = placement.table().kernels[name]
    same_device(wrapper, [(argument, values[argument]) for argument in checked])


def batch_norm(call: Call) -> int:
    """native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)"""
    named = call.named
    base = call.plan.name.partition("::")[2]
    name = "cudnn_batch_norm" if _cudnn_norm(named) else base
    kernels = placement.table().kernels
    row = kernels.get(name) or kernels["native_batch_norm"]
    same_device(row[0], [(argument, named.get(argument)) for argument in row[1:]])
    return call.index


def _cudnn_norm(named: dict[str, Any]) -> bool:
    """Would CUDA give this batch normalisation to cuDNN?"""
    image, weight, bias = named["input"], named.get("weight"), named.get("bias")
    if not isinstance(image, SimTensor) or weight is None or bias is None or not torch.backends.cudnn.enabled:
        return False
    if image.dtype == torch.bfloat16 or (image.dtype == torch.float16 and weight.dtype != torch.float32):
        return False
    training = bool(named.get("training", False))
    kept = [named.get(n) is not None for n in ("running_mean", "running_var")]
    if not (all(kept) or (training and not any(kept))):
        return False
    return image.dim() >= 3 and image.size(0) <= (880801 if training else 65535)
