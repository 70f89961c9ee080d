"""Where modules were constructed."""

from __future__ import annotations

import copy
import io

import torch
from torch import nn

import devguard
from devguard.observe.construction import construction_site
from devguard.observe.symbolize import users_line


class Net(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.inner = Net(depth - 1) if depth else None


class Derived(Net):
    def __init__(self) -> None:
        super().__init__(0)


class Bare(nn.Module):
    pass


class Holder:
    def __init__(self) -> None:
        self.model = Derived().eval()


def line_of(watch: devguard.Watch, module: nn.Module) -> str:
    site = users_line(construction_site(watch._recorder, module))
    return "" if site is None else site.text


def test_the_line_outside_the_class_s_own_constructors() -> None:
    with devguard.watch() as watch:
        net = Derived()
        assert line_of(watch, net) == "net = Derived()"


def test_a_module_without_a_constructor_of_its_own() -> None:
    with devguard.watch() as watch:
        bare = Bare()
        assert line_of(watch, bare) == "bare = Bare()"


def test_a_module_made_by_the_constructor_of_its_own_class() -> None:
    with devguard.watch() as watch:
        net = Net(1)
        assert line_of(watch, net) == "net = Net(1)"
        assert line_of(watch, net.inner) == "self.inner = Net(depth - 1) if depth else None"


def test_a_submodule_made_by_pytorch() -> None:
    with devguard.watch() as watch:
        layer = nn.TransformerEncoderLayer(4, 2)
        assert line_of(watch, layer.self_attn) == "layer = nn.TransformerEncoderLayer(4, 2)"


def test_a_module_made_in_a_plain_class() -> None:
    with devguard.watch() as watch:
        holder = Holder()
        assert line_of(watch, holder.model) == "self.model = Derived().eval()"


def test_a_copy_is_made_where_it_is_copied() -> None:
    with devguard.watch() as watch:
        net = Derived()
        twin = copy.deepcopy(net)
        assert line_of(watch, twin) == "twin = copy.deepcopy(net)"
        assert line_of(watch, net) == "net = Derived()"


def test_a_loaded_module_is_made_where_it_is_loaded() -> None:
    file = io.BytesIO()
    torch.save(nn.Linear(2, 2), file)
    file.seek(0)
    with devguard.watch() as watch:
        net = torch.load(file, weights_only=False)
        assert line_of(watch, net) == "net = torch.load(file, weights_only=False)"


def test_a_module_older_than_the_watch_has_no_line() -> None:
    net = Derived()
    with devguard.watch() as watch:
        assert construction_site(watch._recorder, net) is None


def test_ticks_tell_what_came_first() -> None:
    with devguard.watch() as watch:
        first, second = Bare(), Bare()
        construction = watch._recorder.observers["construction"]
        assert construction.of(first).tick < construction.of(second).tick
