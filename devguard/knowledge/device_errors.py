"""How PyTorch and libraries word a refusal because of devices, as data. Sources: PyTorch 2.13's binary and its source, the 2.4 source, and
issue reports; one line per wording."""

from __future__ import annotations

import re

# Wordings that say by themselves that devices are the reason.
_CERTAIN = (
    r"at least two devices",  # TensorIterator, and the generated checks before 2.9
    r"two different devices",  # torch.compile's fake tensors
    r"different from other tensors on",  # the generated checks
    r"(on|at|to have) (the )?same (gpu )?device",  # RNN, SDPA, masked_fill, grid_sampler, torch.gradient, meshgrid, quantile
    r"same device type",
    r"either on cpu or on the same device",  # indexing
    r"Input type \(\S+\) and (weight|bias) type \(\S+\) should be the same",  # cuDNN and MKLDNN convolutions
    r"expected device \S+ but got",  # index_put_(accumulate=True), gradients given to backward
    r"expected \S+ to be on (cpu|cuda)",  # tensor_split
    r"is on (CPU|GPU|cpu|cuda\S*), but expected",
    r"Expected tensor to have \S+ Device(Type)?, but got",  # take_along_dim, inner
    r"should be a 1D CPU int64 tensor",  # pack_padded_sequence
    r"batch_sizes should always be on CPU",
    r"device type for generator but found",
    r"can't convert \S+ device type tensor to numpy",
    r"gradient (with device type|located on device)",
    r"cannot pin '",
    r"only implemented on CPU tensors",
    r"Cannot re-initialize CUDA in forked subprocess",
    r"must have its parameters and buffers on device",  # DataParallel
    r"too many CPU scalars",
    r"cannot be accessed from Triton",
    r"parameters on different devices",  # parameters_to_vector
    r"Placeholder storage has not been allocated on MPS device",
    r"(must|should|expected to) be (on )?(a )?(cuda|gpu|CUDA|GPU)( device| tensor)?\b",  # custom kernels
)
_DEVICE_ERROR = re.compile("|".join(_CERTAIN))

# Arguments that must stay on the host, named by the message or by the call that raises it.
_HOST_ARGUMENTS = (
    (re.compile(r"'lengths' argument should be a 1D CPU int64 tensor"), "lengths"),
    (re.compile(r"batch_sizes should always be on CPU"), "batch_sizes"),
    (re.compile(r"expected tensor_indices_or_sections to be on cpu"), "tensor_indices_or_sections"),
    (re.compile(r"can't convert \S+ device type tensor to numpy"), "self"),
    (re.compile(r"only implemented on CPU tensors"), "self"),
    (re.compile(r"cannot pin '"), "pin_memory"),
)
_GENERATOR = re.compile(r"Expected a '(\w+)' device type for generator but found '(\w+)'")
_REPLICATED = re.compile(
    r"must have its parameters and buffers on device (\S+) .*but found one of them on device: (\S+)"
)
_LOCATION = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)', re.MULTILINE)


def is_device_error(text: str) -> bool:
    """Does the message say that an operation was refused because of devices?"""
    return _DEVICE_ERROR.search(text) is not None


def host_argument(text: str) -> str:
    """The argument that the message wants on the host; empty for other messages."""
    return next((name for pattern, name in _HOST_ARGUMENTS if pattern.search(text)), "")


def generator_devices(text: str) -> tuple[str, str] | None:
    """(device type asked for, device type found) of a refused random generator."""
    match = _GENERATOR.search(text)
    return (match[1], match[2]) if match else None


def replicated_devices(text: str) -> tuple[str, str] | None:
    """(device asked for, device found) of a module that DataParallel refuses."""
    match = _REPLICATED.search(text)
    return (match[1], match[2]) if match else None


def locations(text: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of the traceback that a message quotes, as those from a worker process do; innermost last."""
    return [(file, int(line), function) for file, line, function in _LOCATION.findall(text)]
