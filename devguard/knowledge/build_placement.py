"""Build the table of CUDA's device checks from the torchgen of the installed PyTorch.

    python -m devguard.knowledge.build_placement [FILE]

PyTorch generates one wrapper per CUDA kernel. The wrapper names itself and compares the devices of its tensor arguments in
a fixed order, `out=` arguments first. Running the same generator gives both for every overload, so each version of PyTorch
gets the table of its own binary. FILE is by default the one of that version beside this module.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_REGISTRATION = re.compile(r'm\.impl\("([\w.]+)",\s*TORCH_FN\((\w+)\)\)')


def build() -> dict[str, Any]:
    """{"kernels": overload -> [wrapper, checked argument, ...], "cpu_only": [overload without a CUDA kernel]}.

    Raises ImportError or OSError where torchgen or its packaged data are missing.
    """
    from torchgen import gen
    from torchgen.model import DispatchKey
    from torchgen.selective_build.selector import SelectiveBuilder

    native = Path(gen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = gen.parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))
    groups = gen.get_grouped_native_functions(parsed.native_functions)
    cuda, cpu = parsed.backend_indices[DispatchKey.CUDA], parsed.backend_indices[DispatchKey.CPU]
    checked, wrappers = _generate(groups, cuda, SelectiveBuilder.get_nop_selector())
    kernels = {name: [wrapper, *checked.get(wrapper, ())] for name, wrapper in wrappers.items()}
    cpu_only = [
        str(f.func.name)
        for f in parsed.native_functions
        if cpu.get_kernel(f) is not None and str(f.func.name) not in kernels and not _composite(f)
    ]
    return {"kernels": kernels, "cpu_only": cpu_only}


def _composite(function: Any) -> bool:
    return bool(
        function.has_composite_implicit_autograd_kernel
        or function.has_composite_explicit_autograd_kernel
        or function.has_composite_explicit_autograd_non_functional_kernel
    )


def _generate(groups: Any, index: Any, selector: Any) -> tuple[dict[str, list[str]], dict[str, str]]:
    """(wrapper -> arguments it checks, overload -> wrapper), noted while PyTorch's generator writes its wrappers."""
    from torchgen.dest import RegisterDispatchKey
    from torchgen.gen import Target
    from torchgen.model import DeviceCheckType

    checked: dict[str, list[str]] = {}

    def note(kind: Any, arguments: Any, method: str) -> str:
        if kind != DeviceCheckType.NoCheck:
            checked[method] = [a.name for a in arguments if a.type.is_tensor_like()]
        return ""

    def generator(target: Any) -> Any:
        return RegisterDispatchKey(
            index,
            target,
            selector,
            rocm=False,
            symint=True,
            class_method_name=None,
            skip_dispatcher_op_registration=False,
        )

    wrappers: dict[str, str] = {}
    define, register = generator(Target.ANONYMOUS_DEFINITION), generator(Target.REGISTRATION)
    original = RegisterDispatchKey.gen_device_check
    RegisterDispatchKey.gen_device_check = staticmethod(note)
    try:
        for group in groups:
            define(group)
            for text in register(group):
                wrappers.update(_REGISTRATION.findall(text))
    finally:
        RegisterDispatchKey.gen_device_check = staticmethod(original)
    return checked, wrappers


def main(arguments: list[str]) -> None:
    """Write the table of the installed PyTorch."""
    import torch

    release = ".".join(torch.__version__.split(".")[:2])
    target = Path(arguments[0]) if arguments else Path(__file__).parent / f"placement-{release}.json"
    table = build()
    rows = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in table["kernels"].items()]
    text = (
        f'{{"torch": "{release}",\n"cpu_only": {json.dumps(table["cpu_only"])},\n"kernels": {{\n'
        + ",\n".join(rows)
        + "\n}}\n"
    )
    target.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(rows)} CUDA kernels of PyTorch {release}: {target}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
