"""Simulated tensors behave as CUDA's do: where they are, views, writing in place, graphs, copies, subclasses."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

from devguard.simulate import simulate


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


def test_factories_and_moves_name_their_device() -> None:
    made = [torch.ones(2, device="cuda"), torch.ones(2, device="cuda:1"), torch.ones(2).cuda(), torch.ones(2).to(1)]
    assert [str(t.device) for t in made] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert made[0].is_cuda
    assert made[1].get_device() == 1
    assert made[0].cpu().device.type == "cpu"


def test_a_move_to_where_it_is_gives_the_same_object() -> None:
    x = torch.ones(2, device="cuda:1")
    assert x.to("cuda:1") is x
    assert x.cuda(1) is x
    assert x.to("cuda:1", copy=True) is not x
    assert x.to(x) is x


def test_results_equal_the_cpu_s() -> None:
    x = torch.randn(5, 5)
    assert torch.equal((x @ x).softmax(0), (x.cuda() @ x.cuda()).softmax(0).cpu())


def test_views_share_memory_and_storage() -> None:
    x = torch.zeros(4, 4, device="cuda")
    row = x[1]
    row.fill_(2)
    x.t()[0].add_(1)
    assert x.cpu()[1].tolist() == [3, 2, 2, 2]
    assert x.untyped_storage()._cdata == row.untyped_storage()._cdata
    assert row.data_ptr() - x.data_ptr() == 16


def test_ops_that_change_sizes_in_place_change_them() -> None:
    x = torch.zeros(2, 3, device="cuda")
    assert x.t_().stride() == (1, 3)
    assert x.unsqueeze_(0).shape == (1, 3, 2)
    assert x.resize_(4, 4).shape == (4, 4)
    out = torch.empty(0, device="cuda")
    torch.mm(x, x, out=out)
    assert out.shape == (4, 4)
    x.set_(torch.ones(3, device="cuda"))
    assert x.shape == (3,)


def test_gradients_cross_devices() -> None:
    x = torch.ones(2, device="cuda:0", requires_grad=True)
    y = (x * 2).to("cuda:1")
    (y * y).cpu().sum().backward()
    assert x.grad is not None
    assert str(x.grad.device) == "cuda:0"
    assert x.grad.tolist() == [8, 8]


def test_data_exchanges_device_and_keeps_the_object() -> None:
    p = nn.Parameter(torch.ones(2))
    p.note = "kept"  # type: ignore[attr-defined]
    before = id(p)
    p.data = p.data.cuda()
    assert (id(p), p.device.type, p.requires_grad, p.is_leaf) == (before, "cuda", True, True)
    assert p.note == "kept"  # type: ignore[attr-defined]
    p.data = p.data.cpu()
    assert p.device.type == "cpu"
    assert type(p) is nn.Parameter


def test_threads_compute_and_differentiate() -> None:
    devices: list[str] = []

    def work() -> None:
        x = torch.ones(3, device="cuda:1", requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad is not None
        devices.append(str(x.grad.device))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert devices == ["cuda:1"] * 3


def test_an_error_in_backward_is_an_exception() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise ValueError("planned")

    x = torch.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(ValueError, match="planned"):
        Fails.apply(x).sum().backward()


def test_what_the_host_can_not_read_is_refused() -> None:
    x = torch.arange(3, device="cuda")
    for read in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            read()
    assert x.numpy(force=True).tolist() == [0, 1, 2]


def test_numbers_are_read() -> None:
    x = torch.arange(4, device="cuda")
    assert x.tolist() == [0, 1, 2, 3]
    assert [10, 20, 30][x[2]] == 30
    assert f"{x[3].float():.2f}" == "3.00"
    assert list(range(x[2])) == [0, 1]
    assert 3 in x


def test_printing_names_the_device() -> None:
    x = torch.tensor([1.0], device="cuda:1", requires_grad=True)
    assert repr(x) == "tensor([1.], device='cuda:1', requires_grad=True)"
    assert repr(x * 2) == "tensor([2.], device='cuda:1', grad_fn=<MulBackward0>)"
    assert repr(torch.zeros(0, 2, device="cuda")) == "tensor([], device='cuda:0', size=(0, 2))"
    assert (
        repr(torch.ones(1, dtype=torch.float16, device="cuda")) == "tensor([1.], device='cuda:0', dtype=torch.float16)"
    )
    assert repr(nn.Parameter(x.detach())).startswith("Parameter containing:\ntensor([1.], device='cuda:1'")


def test_lists_and_arrays_index() -> None:
    x = torch.arange(6.0, device="cuda").reshape(3, 2)
    assert x[[0, 2]].tolist() == [[0, 1], [4, 5]]
    assert x[:, [1]].tolist() == [[1], [3], [5]]
    assert x[np.array([1])].tolist() == [[2, 3]]
    x[[0]] = 9
    x[x < 4] = 0.5
    assert x.tolist() == [[9, 9], [0.5, 0.5], [4, 5]]


def test_scalars_make_a_list_into_a_tensor() -> None:
    x = torch.arange(2.0, device="cuda")
    assert torch.tensor([x[0], x[1]]).tolist() == [0, 1]
    assert torch.tensor([x[0], 5.0], device="cuda").tolist() == [0, 5]
    plain = torch.tensor(1.0)
    assert torch.tensor([plain, plain]).tolist() == [1, 1]


def test_deepcopy_keeps_device_gradient_and_shared_storage() -> None:
    x = torch.ones(3, device="cuda:1", requires_grad=True)
    x.sum().backward()
    y = copy.deepcopy(x)
    assert (str(y.device), y.requires_grad, y.grad is not None) == ("cuda:1", True, True)
    base = torch.zeros(4, device="cuda")
    copied, view = copy.deepcopy([base, base[1:]])
    view.fill_(3)
    assert copied.tolist() == [0, 3, 3, 3]


def test_pickle_keeps_device_and_attributes() -> None:
    p = nn.Parameter(torch.ones(2, device="cuda:1"))
    p.note = "kept"  # type: ignore[attr-defined]
    q = pickle.loads(pickle.dumps(p))
    assert (type(q).__name__, str(q.device), q.note) == ("Parameter", "cuda:1", "kept")


def test_subclasses_stay_on_both_ways() -> None:
    class Mine(torch.Tensor):
        pass

    there = torch.ones(2).as_subclass(Mine).cuda()
    assert isinstance(there, Mine)
    assert isinstance(there + 1, Mine)
    assert type(there.cpu()) is Mine


def test_inference_mode_takes_views_of_ordinary_tensors() -> None:
    x = torch.randn(4, 4, device="cuda")
    layer = nn.Linear(4, 4).cuda()
    with torch.inference_mode():
        views = [x[:2], x.expand(4, 4), x.t(), x.view(16), *x.unbind(0), *x.chunk(2), layer.weight.t()]
        assert not any(v.is_inference() for v in views)
        assert layer(x).is_inference()


def test_complex_views_stay_lazy() -> None:
    x = torch.randn(3, dtype=torch.complex64, device="cuda", requires_grad=True)
    y = x.conj()
    assert y.is_conj()
    assert torch.equal(y.cpu(), x.detach().cpu().conj())
    (y * x).real.sum().backward()
    assert x.grad is not None


def test_sparse_tensors_compute() -> None:
    s = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device="cuda")
    assert (s.is_cuda, s.is_sparse) == (True, True)
    dense = s.to_dense()
    assert torch.sparse.mm(s, dense).cpu().tolist() == [[2, 0], [0, 2]]
    assert (dense.to_sparse_csr() @ dense).cpu().tolist() == [[2, 0], [0, 2]]


def test_nested_tensors_compute() -> None:
    parts = [torch.ones(2, 3, device="cuda"), torch.ones(1, 3, device="cuda")]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert jagged.is_cuda
    assert [t.sum().item() for t in (jagged * 2).unbind()] == [12, 6]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_encoder_takes_its_fast_path_with_a_padding_mask(mode: Any) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 8)
    pad = torch.arange(5) >= torch.tensor([[3], [5]])
    with mode():
        plain = encoder(x, src_key_padding_mask=pad)
        moved = encoder.cuda()(x.cuda(), src_key_padding_mask=pad.cuda())
    assert torch.equal(moved.cpu(), plain)


def test_channels_last_is_kept() -> None:
    image = torch.randn(2, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    layer = nn.Conv2d(3, 4, 3).cuda().to(memory_format=torch.channels_last)
    assert layer(image).is_contiguous(memory_format=torch.channels_last)


def test_meta_tensors_come_and_go() -> None:
    assert torch.ones(2, device="cuda").to("meta").is_meta
    layer = nn.Linear(3, 3, device="meta").to_empty(device="cuda")
    assert layer.weight.is_cuda
    other = nn.Linear(3, 3, device="meta")
    other.load_state_dict(layer.state_dict(), assign=True)
    assert other.weight.is_cuda


def test_a_default_device_reaches_every_constructor() -> None:
    with torch.device("cuda:1"):
        made = [torch.zeros(2), torch.tensor([1]), torch.arange(3), torch.as_tensor([1.0]), torch.tril_indices(3, 3),
                torch.randperm(4), torch.asarray([1]), torch.sparse_coo_tensor([[0]], [1.0], (2,)), nn.Linear(2, 2).weight]  # fmt: skip
    assert {str(t.device) for t in made} == {"cuda:1"}


def test_the_innermost_default_device_counts() -> None:
    with torch.device("cuda:1"), torch.device("cpu"):
        made = [torch.zeros(2), torch.tensor([1]), torch.as_tensor([1.0]), torch.sparse_coo_tensor([[0]], [1.0], (2,))]
    assert {str(t.device) for t in made} == {"cpu"}


def test_garbage_may_be_collected_at_any_moment() -> None:
    usual = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            torch.ones(3).to("cuda").view(3, 1).add_(1)
    finally:
        gc.set_threshold(*usual)


def test_dlpack_stays_inside_pytorch() -> None:
    x = torch.arange(3, device="cuda:1")
    assert x.__dlpack_device__() == (2, 1)
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
    with pytest.raises(BufferError, match="simulated"):
        x.__dlpack__()


def test_a_custom_op_gets_the_simulated_tensors() -> None:
    seen: list[str] = []

    @torch.library.custom_op("devguard_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        seen.append(str(x.device))
        return x * 2

    assert twice(torch.ones(2, device="cuda:1")).tolist() == [2, 2]
    assert seen == ["cuda:1"]


class Wrapper(torch.Tensor):
    """A wrapper as programs write them: every op is done on what it holds."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        opened = tree_map_only(cls, lambda w: w.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*opened[0], **opened[1]))


def test_a_program_s_wrapper_goes_through_layers_autograd_and_autocast() -> None:
    layer = nn.Linear(4, 2).cuda()
    wrapped = Wrapper(torch.ones(1, 4, device="cuda:0"))
    result: Any = layer(wrapped)
    assert (type(result), str(result.device), result.is_cuda) == (Wrapper, "cuda:0", True)
    torch.testing.assert_close(result.inner, layer(torch.ones(1, 4, device="cuda:0")))
    assert Wrapper(torch.ones(2)).to("cuda:1").inner.device == torch.device("cuda:1")  # type: ignore[attr-defined]
    assert str(wrapped.cpu().inner.device) == "cpu"  # type: ignore[attr-defined]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(wrapped).dtype == torch.bfloat16


def test_jagged_tensors_compute() -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged).cuda()
    assert jagged.device.type == "cuda"
    assert nn.Linear(3, 2).cuda()(jagged).values().shape == (3, 2)


def test_results_become_of_a_class_that_asks_super() -> None:
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    there = torch.ones(2).as_subclass(Mine).cuda()
    assert isinstance(there * 2, Mine)
    parameter = nn.Parameter(there)
    assert isinstance(parameter, Mine)
    assert isinstance(parameter, nn.Parameter)


def test_a_class_is_made_around_the_data_of_a_simulated_tensor() -> None:
    class Tagged(torch.Tensor):
        @staticmethod
        def __new__(cls, data: torch.Tensor, tag: str) -> Any:
            return torch.Tensor._make_subclass(cls, data)

        def __init__(self, data: torch.Tensor, tag: str) -> None:
            self.tag = tag

    data = torch.zeros(2, device="cuda:1")
    tagged = Tagged(data, "left")
    data.add_(1)
    assert (tagged.tag, str(tagged.device), tagged.tolist()) == ("left", "cuda:1", [1, 1])


def test_transforms_show_the_device_to_what_they_run() -> None:
    seen = []

    def look(t: torch.Tensor) -> torch.Tensor:
        seen.append((str(t.device), t.is_cuda))
        return t + torch.ones(3, device=t.device)

    torch.func.vmap(look)(torch.ones(2, 3, device="cuda:1"))
    torch.func.vjp(look, torch.ones(3, device="cuda:1"))[1](torch.ones(3, device="cuda:1"))
    assert seen == [("cuda:1", True)] * 2
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.func.vmap(lambda t: t @ t)(torch.ones(2, 3, 3, device="cuda")).dtype == torch.bfloat16


def test_what_is_traced_is_the_simulated_op() -> None:
    x, y = torch.arange(3.0, device="cuda"), torch.arange(3.0)
    _, push = torch.func.linearize(torch.cos, x)
    torch.testing.assert_close(push(x).cpu(), -torch.sin(y) * y)
    closed = make_fx(lambda t: t * torch.sin(x))(x + 1)
    torch.testing.assert_close(closed(x + 2).cpu(), (y + 2) * torch.sin(y))
