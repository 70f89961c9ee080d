"""Which operands every CUDA kernel compares before it runs, and PyTorch's wording where they are on several devices."""

from __future__ import annotations

import functools
import json
import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Placement:
    """The device checks of one version of PyTorch."""

    kernels: Mapping[str, tuple[str, ...]]  # overload, as in native_functions.yaml -> (wrapper, checked argument, ...)
    cpu_only: frozenset[str]  # overloads with a kernel for the CPU and none for CUDA


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version of PyTorch."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@functools.cache
def table() -> Placement:
    """The checks of the installed PyTorch: its own table, one built from its torchgen, or the nearest version's."""
    wanted = release(metadata.version("torch"))
    shipped = {release(f.name.removeprefix("placement-")): f for f in resources.files(__package__).iterdir()
               if f.name.startswith("placement-")}  # fmt: skip
    data: dict[str, Any]
    if wanted in shipped:
        data = json.loads(shipped[wanted].read_text(encoding="utf-8"))
    else:
        try:
            from devguard.knowledge import build_placement

            data = build_placement.build()
        except Exception:  # no PyYAML, or a torchgen of another make: the schemas hardly differ between versions
            nearest = min(shipped, key=lambda r: (abs(r[0] - wanted[0]), abs(r[1] - wanted[1])))
            data = json.loads(shipped[nearest].read_text(encoding="utf-8"))
    return Placement({name: tuple(row) for name, row in data["kernels"].items()}, frozenset(data["cpu_only"]))


@functools.cache
def _names_the_odd_one() -> bool:
    """Does this PyTorch say which argument is where (since about 2.8)? Where the version leaves a doubt, ask the binary."""
    version = release(metadata.version("torch"))
    if version != (2, 8):
        return version > (2, 8)
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(b", different from other tensors on ") >= 0
    except OSError:
        return True


def kernel_check(wrapper: str, argument: str, device: object, common: object) -> str:
    """What a CUDA kernel's wrapper says about an `argument` on `device` when those before it are on `common`."""
    if _names_the_odd_one():
        return (
            f"Expected all tensors to be on the same device, but got {argument} is on {device}, "
            f"different from other tensors on {common} (when checking argument in method {wrapper})"
        )
    return (
        f"Expected all tensors to be on the same device, but found at least two devices, {common} and {device}! "
        f"(when checking argument for argument {argument} in method {wrapper})"
    )


def iterator_check(common: object, device: object) -> str:
    """What element-wise kernels say."""
    return f"Expected all tensors to be on the same device, but found at least two devices, {common} and {device}!"
