"""Saving, loading, copying and sending simulated tensors: as CUDA does it, in files that PyTorch reads without devguard."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, package

from devguard.simulate import active, simulate

cuda0 = torch.device("cuda:0")
cuda1 = torch.device("cuda:1")


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


def saved(value: Any, **kwargs: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer, **kwargs)
    buffer.seek(0)
    return buffer


def state() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(3.0, device="cuda:0"), "b": torch.arange(2, device="cuda:1"), "c": torch.ones(1)}


def devices(loaded: dict[str, torch.Tensor]) -> list[str]:
    return [str(t.device) for t in loaded.values()]


LOCATIONS: dict[str, tuple[Any, list[str]]] = {
    "none": (None, ["cuda:0", "cuda:1", "cpu"]),
    "cpu": ("cpu", ["cpu"] * 3),
    "cpu device": (torch.device("cpu"), ["cpu"] * 3),
    "cuda": ("cuda", ["cuda:0"] * 3),
    "cuda:1": ("cuda:1", ["cuda:1"] * 3),
    "device": (cuda1, ["cuda:1"] * 3),
    "dict": ({"cuda:0": "cuda:1", "cuda:1": "cpu"}, ["cuda:1", "cpu", "cpu"]),
    "function": (lambda storage, location: storage, ["cpu"] * 3),
    "function to a device": (lambda storage, location: storage.cuda(1), ["cuda:1"] * 3),
    "function that leaves it": (lambda storage, location: None, ["cuda:0", "cuda:1", "cpu"]),
}


@pytest.mark.parametrize("weights_only", [True, False], ids=["weights only", "pickle"])
@pytest.mark.parametrize("name", LOCATIONS)
def test_loading_obeys_map_location(name: str, weights_only: bool) -> None:
    where, expected = LOCATIONS[name]
    loaded = torch.load(saved(state()), map_location=where, weights_only=weights_only)
    assert devices(loaded) == expected
    assert loaded["a"].tolist() == [0, 1, 2]


def test_loading_in_the_old_format_obeys_too() -> None:
    buffer = saved(state(), _use_new_zipfile_serialization=False)
    assert devices(torch.load(buffer)) == ["cuda:0", "cuda:1", "cpu"]
    buffer.seek(0)
    assert devices(torch.load(buffer, map_location="cuda:1")) == ["cuda:1"] * 3


def test_loading_under_a_default_device() -> None:
    buffer = saved(state())
    with torch.device("cuda:1"):
        assert devices(torch.load(buffer)) == ["cuda:0", "cuda:1", "cpu"]


def test_loading_maps_a_file_to_memory(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", mmap=True, map_location="cpu")
    assert devices(loaded) == ["cpu"] * 3


def test_a_device_that_is_not_there_is_refused() -> None:
    buffer = saved(state())
    running = active()
    assert running is not None
    running.stop()
    with simulate("cuda:1"), pytest.raises(RuntimeError, match="Attempting to deserialize object on CUDA device 1 but"):
        torch.load(buffer)


def test_files_are_read_without_a_simulation() -> None:
    buffer = saved({"weight": nn.Linear(2, 2).cuda().state_dict(), "p": nn.Parameter(torch.ones(2, device="cuda"))})
    running = active()
    assert running is not None
    running.stop()
    assert b"devguard" not in buffer.getvalue()
    loaded = torch.load(buffer, map_location="cpu")
    assert type(loaded["p"]) is nn.Parameter
    assert type(loaded["weight"]["weight"]) is torch.Tensor
    buffer.seek(0)
    with pytest.raises(RuntimeError, match=r"torch.cuda.is_available\(\) is False"):
        torch.load(buffer)


def test_views_share_storage_after_loading() -> None:
    base = torch.arange(4.0, device="cuda")
    first, second = torch.load(saved([base, base[1:3]]))
    second.zero_()
    assert first.tolist() == [0, 0, 0, 3]


def test_whole_modules_and_optimizers_come_back() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2)).cuda()
    loaded = torch.load(saved(model), weights_only=False)
    assert all(p.is_cuda and isinstance(p, nn.Parameter) for p in loaded.parameters())
    optimizer = torch.optim.Adam(loaded.parameters())
    for parameter in loaded.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    again = torch.optim.Adam(model.parameters())
    again.load_state_dict(torch.load(saved(optimizer.state_dict())))
    assert {str(s["exp_avg"].device) for s in again.state.values()} == {"cuda:0"}


@pytest.mark.parametrize("assign", [True, False])
def test_state_dicts_load_from_the_host(assign: bool) -> None:
    model = nn.Linear(2, 2).cuda()
    model.load_state_dict(nn.Linear(2, 2).state_dict(), assign=assign)
    assert model.weight.is_cuda is not assign


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))], ids=["deepcopy", "pickle"]
)
def test_copies_keep_what_a_tensor_is(duplicate: Any) -> None:
    tensor = torch.arange(3.0, device="cuda:1", requires_grad=True)
    tensor.note = "kept"  # type: ignore[attr-defined]
    made = duplicate([tensor, tensor])
    assert made[0] is made[1]
    assert type(made[0]) is type(tensor)
    assert (made[0].device, made[0].requires_grad, made[0].note) == (cuda1, True, "kept")
    with torch.no_grad():
        made[0].zero_()
    assert tensor.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: torch.ones(2, 3, device="cuda").t(),
        lambda: torch.ones(2, 3, device="cuda")[:, 1],
        lambda: torch.ones(2, dtype=torch.complex64, device="cuda"),
        lambda: torch.ones(2, dtype=torch.complex64, device="cuda").conj(),
        lambda: torch.ones(2, dtype=torch.bfloat16, device="cuda"),
        lambda: torch.eye(3, device="cuda").to_sparse(),
        lambda: torch.eye(3, device="cuda").to_sparse_csr(),
        lambda: torch.empty(0, device="cuda"),
        lambda: torch.ones(2, 2, 2, 2, device="cuda").to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "complex", "conjugate", "bfloat16", "sparse", "csr", "empty", "channels last"],
)
def test_every_kind_of_tensor_comes_back(tensor: Any) -> None:
    original = tensor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.load(saved(original))
    assert (loaded.device, loaded.dtype, loaded.layout) == (original.device, original.dtype, original.layout)
    if original.layout is torch.strided:
        assert loaded.stride() == original.stride()
    assert torch.equal(loaded.to_dense().cpu(), original.to_dense().cpu())


@pytest.mark.parametrize("sparse", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_tensor_passes_the_checks_of_its_indices(sparse: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = saved(getattr(torch.eye(3, device="cuda"), sparse)())
        with torch.sparse.check_sparse_tensor_invariants():
            assert torch.load(file).device == cuda0


def test_storages_know_their_device() -> None:
    storage = torch.ones(4, device="cuda:1").untyped_storage()
    assert (storage.device, storage.is_cuda, storage.nbytes()) == (cuda1, True, 16)
    assert storage.cpu().device.type == "cpu"
    assert storage.cuda(0).device == torch.device("cuda:0")
    assert torch.UntypedStorage(8, device="cuda").is_cuda
    assert torch.empty(0, device="cuda:1").set_(storage).device == cuda1


def test_memory_of_a_device_is_shared() -> None:
    tensor = torch.ones(2, device="cuda")
    assert tensor.is_shared()
    assert tensor.share_memory_() is tensor


def send(*values: Any) -> Any:
    """Through the pickler of torch.multiprocessing's queues, in one process."""
    from multiprocessing.reduction import ForkingPickler

    return pickle.loads(ForkingPickler.dumps(list(values)))


def test_a_queue_hands_over_the_memory_itself() -> None:
    tensor = torch.arange(4.0, device="cuda:1").reshape(2, 2)
    sent, view, parameter = send(tensor, tensor[1], nn.Parameter(torch.ones(1, device="cuda")))
    assert (sent.device, sent.shape) == (cuda1, (2, 2))
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad
    view.fill_(7)
    assert tensor.tolist() == [[0, 1], [7, 7]]
    assert sent.tolist() == [[0, 1], [7, 7]]


def test_a_queue_refuses_a_tensor_with_a_graph() -> None:
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        send(torch.ones(1, device="cuda", requires_grad=True) * 2)


def test_a_package_loads_to_the_device_and_from_it() -> None:
    buffer = io.BytesIO()
    with package.PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", nn.Linear(2, 1).to("cuda:1"))
    for location, expected in ((None, "cuda:1"), ("cpu", "cpu"), ("cuda:0", "cuda:0")):
        buffer.seek(0)
        model = package.PackageImporter(buffer).load_pickle("model", "model.pkl", location)
        assert str(model.weight.device) == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_loads_to_the_device() -> None:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))), buffer)
    for location in ("cuda:1", cuda1):
        buffer.seek(0)
        loaded: Any = torch.jit.load(buffer, map_location=location)
        assert {str(t.device) for t in loaded.state_dict().values()} == {"cuda:1"}
        assert loaded(torch.ones(2, 2, device="cuda:1")).is_cuda
