"""`devguard doctor`: is this environment fit for the accelerator? Facts are gathered once; each check is a function of them.

Imports torch only in `gather`, which starts no CUDA work beyond what `torch.cuda.is_available()` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from devguard.rules.catalog import RuleInfo
from devguard.rules.finding import Level

# fmt: off
_RULES = (
    RuleInfo("DG401", "build-without-accelerator", "error",
             "this PyTorch was built without CUDA, though the machine has an NVIDIA GPU"),
    RuleInfo("DG402", "driver-too-old", "error",
             "the GPU driver supports an older CUDA than this PyTorch was built with"),
    RuleInfo("DG403", "hidden-devices", "error",
             "CUDA_VISIBLE_DEVICES hides accelerators, or names some that are not there"),
    RuleInfo("DG404", "missing-architecture", "error",
             "this PyTorch has no code for the architecture of an accelerator"),
    RuleInfo("DG405", "memory-held", "warning",
             "other processes hold much of an accelerator's memory"),
    RuleInfo("DG406", "rank-out-of-range", "error",
             "LOCAL_RANK names an accelerator that this process can't see"),
    RuleInfo("DG407", "accelerator-unusable", "error",
             "PyTorch was built with CUDA and a GPU is there, but it can't be used"),
    RuleInfo("DG408", "blocking-launches", "warning",
             "CUDA_LAUNCH_BLOCKING makes the host wait for every kernel"),
)
# fmt: on
RULES: dict[str, RuleInfo] = {rule.code: rule for rule in _RULES}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator: `capability` as torch sees it, memory as the driver sees it, None where it is not known."""

    name: str
    capability: tuple[int, int] | None = None
    total: int | None = None
    held_by_others: int | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """What the checks read. `physical` are the GPUs of the machine, `visible` those that torch may use."""

    torch: str = ""
    built_with: str | None = None
    available: bool = False
    problem: str = ""
    architectures: tuple[str, ...] = ()
    physical: int | None = None
    visible: tuple[Gpu, ...] = ()
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that is wrong with the environment."""

    rule: str
    name: str
    level: Level
    message: str
    fix: str


def diagnose(facts: Environment) -> list[Diagnosis]:
    """Everything that is wrong, in the order of the codes."""
    return [found for check in CHECKS for found in check(facts)]


def _diagnosis(code: str, message: str, fix: str, level: Level | None = None) -> Diagnosis:
    return Diagnosis(code, RULES[code].name, level or RULES[code].level, message, fix)


# --- the checks ---


def build_without_accelerator(facts: Environment) -> Iterator[Diagnosis]:
    """DG401"""
    if facts.built_with is None and facts.physical:
        gpus = f"{facts.physical} NVIDIA GPU{'s' if facts.physical > 1 else ''}"
        yield _diagnosis(
            "DG401",
            f"torch {facts.torch} is a CPU-only build, but this machine has {gpus}",
            "install a CUDA build: pytorch.org/get-started/locally has the command for your driver",
        )


def driver_too_old(facts: Environment) -> Iterator[Diagnosis]:
    """DG402: within one major version CUDA runs on older drivers of it."""
    built = _version(facts.built_with)
    if built is not None and facts.driver_cuda is not None and facts.driver_cuda[0] < built[0]:
        supported = ".".join(map(str, facts.driver_cuda))
        yield _diagnosis(
            "DG402",
            f"driver {facts.driver or '?'} supports CUDA {supported} at most, torch was built with {facts.built_with}",
            f"update the NVIDIA driver, or install a torch that was built with CUDA {facts.driver_cuda[0]}",
        )


def hidden_devices(facts: Environment) -> Iterator[Diagnosis]:
    """DG403"""
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None or not facts.physical:
        return
    names = [name.strip() for name in value.split(",")]
    if not value.strip() or names[0] == "-1":
        shown = f"CUDA_VISIBLE_DEVICES={value!r}"
        yield _diagnosis(
            "DG403", f"{shown} hides all {facts.physical} GPUs", "unset CUDA_VISIBLE_DEVICES, or name the GPUs to use"
        )
        return
    wrong = [name for name in names if name.lstrip("-").isdigit() and not 0 <= int(name) < facts.physical]
    if wrong:
        yield _diagnosis(
            "DG403",
            f"CUDA_VISIBLE_DEVICES={value!r} names {wrong[0]}, but the GPUs are 0 to {facts.physical - 1}: "
            "it and all that follow are ignored",
            "name GPUs that are there",
        )
    elif len(names) < facts.physical:
        yield _diagnosis(
            "DG403",
            f"CUDA_VISIBLE_DEVICES={value!r} leaves {len(names)} of {facts.physical} GPUs: cuda:0 is GPU {names[0]}",
            "nothing to do if that is meant",
            "note",
        )


def missing_architecture(facts: Environment) -> Iterator[Diagnosis]:
    """DG404: code for sm_XY runs on the same major with a minor of Y or more; PTX (compute_XY) on anything newer."""
    if not facts.architectures:
        return
    for index, gpu in enumerate(facts.visible):
        if gpu.capability is not None and not any(_runs_on(name, gpu.capability) for name in facts.architectures):
            major, minor = gpu.capability
            yield _diagnosis(
                "DG404",
                f"cuda:{index} ({gpu.name}) is sm_{major}{minor}, torch {facts.torch} has {' '.join(facts.architectures)}",
                "install a torch build that lists this architecture in torch.cuda.get_arch_list()",
            )


def memory_held(facts: Environment) -> Iterator[Diagnosis]:
    """DG405: a tenth of the memory is more than a desktop takes."""
    for index, gpu in enumerate(facts.visible):
        if gpu.total and gpu.held_by_others and gpu.held_by_others > gpu.total // 10:
            held, total = gpu.held_by_others / 1024**3, gpu.total / 1024**3
            yield _diagnosis(
                "DG405",
                f"other processes hold {held:.1f} of {total:.1f} GiB of cuda:{index} ({gpu.name})",
                "nvidia-smi names the processes: end those that are left over, or use another GPU",
            )


def rank_out_of_range(facts: Environment) -> Iterator[Diagnosis]:
    """DG406"""
    value = facts.variables.get("LOCAL_RANK")
    if value is None or not facts.available:
        return
    count = len(facts.visible)
    if not value.isdigit() or int(value) >= count:
        yield _diagnosis(
            "DG406",
            f"LOCAL_RANK={value!r}, but this process sees {count} accelerator{'s' if count != 1 else ''}",
            "start as many processes per machine as it has GPUs, and let each see all of them",
        )


def accelerator_unusable(facts: Environment) -> Iterator[Diagnosis]:
    """DG407: where no other check explains it."""
    hidden = any(diagnosis.level == "error" for diagnosis in hidden_devices(facts))
    explained = hidden or any(True for _ in driver_too_old(facts))
    if facts.built_with is not None and facts.physical and not facts.available and not explained:
        why = f": {facts.problem}" if facts.problem else ""
        yield _diagnosis(
            "DG407",
            f"torch.cuda.is_available() is False with {facts.physical} GPUs in the machine{why}",
            "run nvidia-smi; after a driver update restart, in a container pass the GPUs on",
        )


def blocking_launches(facts: Environment) -> Iterator[Diagnosis]:
    """DG408"""
    if facts.variables.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        yield _diagnosis(
            "DG408",
            "CUDA_LAUNCH_BLOCKING is set: the host waits for every kernel, and timings mean little",
            "unset it once the error that it helped to find is found",
        )


CHECKS: tuple[Callable[[Environment], Iterator[Diagnosis]], ...] = (
    build_without_accelerator,
    driver_too_old,
    hidden_devices,
    missing_architecture,
    memory_held,
    rank_out_of_range,
    accelerator_unusable,
    blocking_launches,
)


def _version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    match = re.match(r"(sm|compute)_(\d+)(\d)([af]?)$", architecture)
    if match is None:
        return False
    major, minor = int(match[2]), int(match[3])
    if match[4] == "a":  # code for exactly this one
        return (major, minor) == capability
    if match[1] == "compute" and not match[4]:
        return (major, minor) <= capability
    return major == capability[0] and minor <= capability[1]


# --- gathering ---

_VARIABLES = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "RANK", "WORLD_SIZE", "CUDA_LAUNCH_BLOCKING")


def gather() -> Environment:
    """The facts of this process's environment. Whatever can't be found out stays unknown."""
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    driver, driver_cuda, physical, memory = _ask_driver()
    try:
        import torch
    except Exception as problem:
        return Environment(problem=f"torch can't be imported: {problem}", physical=physical, variables=variables)
    available, problem_text = False, ""
    try:
        available = torch.cuda.is_available()
        if not available and torch.version.cuda is not None:
            torch.cuda.init()  # says why
    except Exception as problem:
        problem_text = " ".join(str(problem).split())[:200]
    visible: list[Gpu] = []
    for index in range(torch.cuda.device_count() if available else 0):
        properties = torch.cuda.get_device_properties(index)
        total, held = memory.get(str(getattr(properties, "uuid", "")), (properties.total_memory, None))
        visible.append(Gpu(properties.name, (properties.major, properties.minor), total, held))
    return Environment(
        torch=str(torch.__version__),
        built_with=torch.version.cuda,
        available=available,
        problem=problem_text,
        architectures=tuple(torch.cuda.get_arch_list()) if available else (),
        physical=physical,
        visible=tuple(visible),
        driver=driver,
        driver_cuda=driver_cuda,
        variables=variables,
    )


def _ask_driver() -> tuple[str | None, tuple[int, int] | None, int | None, dict[str, tuple[int, int | None]]]:
    """(driver version, its CUDA version, number of GPUs, memory by UUID) from NVML; counted device files without it."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, or there is no driver
        return None, None, _device_files(), {}
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        version = int(pynvml.nvmlSystemGetCudaDriverVersion())
        memory: dict[str, tuple[int, int | None]] = {}
        for index in range(count):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-")
            info = pynvml.nvmlDeviceGetMemoryInfo(handle)
            own = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
            mine = sum(p.usedGpuMemory or 0 for p in own)
            memory[uuid] = (int(info.total), max(int(info.used) - mine, 0))
        return str(pynvml.nvmlSystemGetDriverVersion()), (version // 1000, version % 1000 // 10), count, memory
    except Exception:
        return None, None, _device_files(), {}
    finally:
        pynvml.nvmlShutdown()


def _device_files() -> int | None:
    try:
        names = os.listdir("/dev")
    except OSError:
        return None
    return sum(re.fullmatch(r"nvidia\d+", name) is not None for name in names)
