"""What the tensor is called that the host waits for. Runs once per place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devguard.knowledge.syncs_conditions import on_device
from devguard.observe import names
from devguard.observe.facts import TensorFact
from devguard.observe.origins import shape_of, storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.syncs_expression import Reading, is_path, value_of, variables
from devguard.observe.syncs_place import Stack, Verdict

_Tensor = torch.Tensor


def same_data(one: Any, other: Any) -> bool:
    """Are these two the same tensor, or views of one storage with the same shape?"""
    if one is other:
        return True
    if not isinstance(one, _Tensor) or not isinstance(other, _Tensor) or one.shape != other.shape:
        return False
    key = storage_key(one)
    return key is not None and key == storage_key(other)


def _shares(one: Any, other: Any) -> bool:
    key = storage_key(one) if isinstance(one, _Tensor) else None
    return key is not None and isinstance(other, _Tensor) and key == storage_key(other)


def expression_name(tensor: Any, reading: Reading, variable: Callable[[str], Any], loose: bool = False) -> str:
    """The text of the operand that is `tensor`; with `loose`, also of one that shares its data."""
    for same in (same_data, _shares) if loose else (same_data,):
        for node in _operands(reading):
            if is_path(node) and same(value_of(node, variable), tensor):
                return reading.text(node)
    for node in _operands(reading):
        base = _behind_views(node)
        if base is not node and is_path(base) and _shares(value_of(base, variable), tensor):
            return reading.text(base)
    return ""


_VIEWS = frozenset(
    {"detach", "contiguous", "view", "reshape", "flatten", "squeeze", "unsqueeze", "float", "double", "to"}
)


def _behind_views(node: ast.expr) -> ast.expr:
    """`loss` for ``loss.detach()`` and ``loss.data``: the same data under the user's own name."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in ("data", "T", "mT"):
            node = node.value
        else:
            return node


def _operands(reading: Reading) -> list[ast.expr]:
    receiver = [] if reading.receiver is None else [reading.receiver]
    return [*receiver, *(node for node in reading.subjects if node is not reading.receiver)]


def _computed(reading: Reading, variable: Callable[[str], Any], receiver_first: bool) -> str:
    """The text of the first operand that may be the tensor because it is computed on the spot: `natoms.sum()`."""
    subjects = list(reading.subjects)
    if reading.receiver is not None:
        subjects.insert(0 if receiver_first else len(subjects), reading.receiver)
    if reading.how == "contains":  # in `token in stop_ids` the tensor says more than the list that it is looked for in
        subjects.sort(key=lambda node: not (is_path(node) and on_device(value_of(node, variable))))
    for node in subjects:
        value = value_of(node, variable) if is_path(node) else None
        if value is None or isinstance(value, _Tensor) or reading.how in _OF_ELEMENTS:
            return reading.text(node)
    return ""


# Here an element of what is written is read: the name of the whole says more than the element's.
_OF_ELEMENTS = frozenset({"builtin", "contains"})


def list_name(reading: Reading, scalar: Any, frame: FrameType | None) -> str:
    """The name of the list in ``torch.tensor(losses)``, of the first device scalar in ``torch.tensor([loss, 1.0])``."""
    if frame is None or not reading.subjects:
        return ""
    variable = variables(frame)
    text = expression_name(scalar, reading, variable)
    if text:
        return text
    for node in reading.subjects:
        value = value_of(node, variable) if is_path(node) else None
        if value is None or isinstance(value, (_Tensor, list, tuple)):
            return reading.text(node)
    return ""


def optimizer_name(tensor: Any, stack: Stack) -> tuple[str, str, str]:
    """(`opt.state[...]['step']`, `step`, `Adam`) of a tensor in an optimizer's state or groups, or that is computed from a learning rate
    on the device; name and key are empty for any other tensor, all three where no optimizer runs."""
    for frame in stack.torch_frames:
        variable = variables(frame)
        owner = variable("self")
        if isinstance(owner, torch.optim.Optimizer):
            called = names.name_of_object(owner, stack.user) or "optimizer"
            found = _in_optimizer(tensor, vars(owner), called)
            if found is None:
                found = ("lr", "lr") if on_device(variable("lr")) else ("", "")
            return *found, type(owner).__name__
    return "", "", ""


def _in_optimizer(tensor: Any, own: dict[str, Any], called: str) -> tuple[str, str] | None:
    """`own` are the optimizer's attributes: while it is constructed, there may be neither state nor groups."""
    groups = list(enumerate(own.get("param_groups", ())))
    for state in own.get("state", {}).values():
        if isinstance(state, dict):
            for key, value in state.items():
                if value is tensor or _shares(value, tensor):
                    return f"{called}.state[...][{key!r}]", str(key)
    for index, group in groups:
        for key, value in group.items():
            if value is tensor or _shares(value, tensor):
                return f"{called}.param_groups[{index}][{key!r}]", str(key)
    for index, group in groups:
        if on_device(group.get("lr")):
            return f"{called}.param_groups[{index}]['lr']", "lr"
    return None


def name_of(recorder: Recorder, tensor: Any, stack: Stack, verdict: Verdict, receiver_first: bool) -> str:
    """The user's name for the tensor that is waited for: a variable, or the expression that is read."""
    user = stack.user
    if user is None:
        return names.name_of_object(tensor, None) or verdict.subject
    variable = variables(user)
    reading = verdict.reading
    text = expression_name(tensor, reading, variable, loose=verdict.how == "library")
    if not text and verdict.library:
        text = _library_name(tensor, stack, verdict, variable)
    if not text and verdict.frame is None:
        text = _computed(reading, variable, receiver_first)
    if text and not text.startswith("self."):
        return text
    longer = names.name_of_object(tensor, user)
    if verdict.frame is not None:
        return longer or text
    return longer or text or names.name_of(tensor, user, recorder.origins.of(tensor))


def _library_name(tensor: Any, stack: Stack, verdict: Verdict, variable: Callable[[str], Any]) -> str:
    """For a wait inside PyTorch: the user's name for the argument that is tested there, else PyTorch's own."""
    if not verdict.subject:
        return names.name_of_object(tensor, stack.user)
    held = variables(verdict.frame)(verdict.subject) if verdict.frame is not None else None
    if isinstance(held, _Tensor):
        given = expression_name(held, verdict.reading, variable, loose=True) or names.name_of_object(held, stack.user)
        if given:
            return given
    told = variables(verdict.frame)(verdict.named_by) if verdict.frame is not None and verdict.named_by else None
    return told if isinstance(told, str) else verdict.subject


def tensor_fact(recorder: Recorder, tensor: Any, name: str, role: str) -> TensorFact | None:
    """The tensor as it is now, under its name. Reads metadata only."""
    if not isinstance(tensor, _Tensor):
        return None
    return TensorFact(
        name=name,
        role=role,
        shape=shape_of(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        nbytes=tensor.numel() * tensor.element_size(),
        origin=recorder.origins.of(tensor),
    )
