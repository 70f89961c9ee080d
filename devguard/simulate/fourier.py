"""Fourier transforms in half precision, which PyTorch has on CUDA and refuses on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_NAMES = """
fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2
fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn
""".split()
_WIDE = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_HALF = {wide: half for half, wide in _WIDE.items()}


def _transform(name: str) -> Callable[..., Any]:
    function = getattr(torch.ops.aten, name).default

    def transform(image: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        wide = _WIDE.get(image.dtype)
        if wide is None:
            return function._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, image, *args, **kwargs)  # type: ignore[no-any-return]
        result: torch.Tensor = function(image.to(wide), *args, **kwargs)
        return result.to(_HALF[result.dtype])

    return transform


TRANSFORMS: Mapping[str, Callable[..., Any]] = {
    name: _transform(name) for name in _NAMES if hasattr(torch.ops.aten, name)
}
