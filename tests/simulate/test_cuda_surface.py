"""torch.cuda, torch.accelerator and their kin answer as on a machine with two GPUs."""

from __future__ import annotations

import copy
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from devguard.simulate import simulate

cuda = torch.cuda


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


# devices --------------------------------------------------------------------------------------------------------------


def test_devices_are_there_and_untouched() -> None:
    assert (cuda.is_available(), cuda.device_count(), cuda.is_initialized()) == (True, 2, False)
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.version.cuda is not None


def test_first_use_initializes() -> None:
    torch.ones(1, device="cuda")
    assert cuda.is_initialized()


def test_properties_name_a_whole_device() -> None:
    properties = cuda.get_device_properties(1)
    assert properties.total_memory == 80 << 30
    assert (properties.major, properties.minor) == cuda.get_device_capability("cuda:1")
    assert f"sm_{properties.major}{properties.minor}" in cuda.get_arch_list()
    assert properties.multi_processor_count > 0
    assert str(properties.uuid) != str(cuda.get_device_properties(0).uuid)
    assert cuda.get_device_name(torch.device("cuda")) == properties.name


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(AssertionError, match="Invalid device id"):
        cuda.get_device_properties(2)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        cuda.set_device(2)


def test_current_device_belongs_to_the_thread() -> None:
    cuda.set_device(1)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(cuda.current_device()))
    thread.start()
    thread.join()
    assert (cuda.current_device(), seen) == (1, [0])


def test_device_contexts_give_the_device_back() -> None:
    with cuda.device(1):
        assert torch.ones(1, device="cuda").get_device() == 1
        with cuda.device_of(torch.ones(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device(-1):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0


def test_visible_devices_count_when_the_program_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert cuda.device_count() == 1
    cuda.init()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:1")


def test_visible_devices_of_the_shell_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from devguard.simulate.simulation import state

    running = state.current()
    running.stop()
    try:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        with simulate("cuda:2"):
            assert cuda.device_count() == 2
    finally:
        monkeypatch.undo()


def test_peers_can_be_reached() -> None:
    assert cuda.can_device_access_peer(0, 1)


def test_numbers_name_devices() -> None:
    assert torch.device(1) == torch.device("cuda", 1)
    assert isinstance(torch.device("cpu"), torch.device)
    assert torch.zeros(2, device=1).device == torch.device("cuda:1")
    assert torch.ones(2).to(1).device == torch.device("cuda:1")
    assert torch.zeros(2).new_ones(2, device=0).is_cuda


# accelerator ----------------------------------------------------------------------------------------------------------


def test_accelerator_is_cuda() -> None:
    acc = torch.accelerator
    assert (acc.is_available(), acc.device_count()) == (True, 2)
    assert acc.current_accelerator() == torch.device("cuda")
    acc.set_device_index(1)
    assert acc.current_device_index() == cuda.current_device() == 1
    acc.synchronize()
    assert acc.current_stream() == cuda.current_stream()
    assert torch.get_device_module() is torch.cuda


def test_default_devices_are_obeyed() -> None:
    torch.set_default_device("cuda:1")
    assert torch.ones(1).device == torch.get_default_device() == torch.device("cuda:1")
    torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.ones(1).is_cuda


# streams, events, graphs ----------------------------------------------------------------------------------------------


def test_streams_are_current_inside_their_context() -> None:
    stream = cuda.Stream()
    assert isinstance(stream, (torch.Stream, cuda.Stream))
    with cuda.stream(stream):
        assert cuda.current_stream() == stream
        stream.wait_stream(cuda.default_stream())
    assert cuda.current_stream() == cuda.default_stream()
    assert stream.query()


def test_streams_of_another_device_change_the_device() -> None:
    with cuda.stream(cuda.Stream(device=1)):
        assert cuda.current_device() == 1
    assert cuda.current_device() == 0


def test_events_measure_time() -> None:
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    time.sleep(0.01)
    end.record()
    cuda.synchronize()
    assert 9 < start.elapsed_time(end) < 2000


def test_events_without_timing_measure_nothing() -> None:
    with pytest.raises(ValueError, match="enable_timing"):
        cuda.Event().elapsed_time(cuda.Event())


def test_generic_streams_and_events_are_cuda_s() -> None:
    assert torch.Stream("cuda:1").device == torch.device("cuda:1")
    assert torch.Event("cuda").device.type == "cuda"
    assert isinstance(cuda.Event(), torch.Event)


def test_a_captured_graph_runs_again_on_its_own_memory() -> None:
    static = torch.ones(4, device="cuda")
    weight = torch.ones(4, device="cuda", requires_grad=True)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = (static * weight).relu().sum()
        loss.backward()
    static.fill_(3.0)
    graph.replay()
    assert loss.item() == 12
    assert torch.equal(weight.grad.cpu(), torch.full((4,), 3.0))


def test_a_capture_refuses_to_wait_for_the_host() -> None:
    value = torch.ones(1, device="cuda")
    with (
        pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"),
        cuda.graph(cuda.CUDAGraph()),
    ):
        value.item()


# memory that is not the device's --------------------------------------------------------------------------------------


def test_pinned_memory_is_pinned_through_every_view() -> None:
    pinned = torch.ones(2, 2).pin_memory()
    assert pinned.is_pinned()
    assert pinned[0].is_pinned()
    assert not pinned.clone().is_pinned()
    assert torch.empty(2, pin_memory=True).is_pinned()


def test_a_loader_pins_its_batches() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    (batch,) = next(iter(torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)))
    assert batch.is_pinned()


# random numbers -------------------------------------------------------------------------------------------------------


def test_each_device_has_random_numbers_of_its_own() -> None:
    torch.manual_seed(3)
    first = torch.rand(3, device="cuda")
    state = cuda.get_rng_state(0)
    second = torch.rand(3, device="cuda")
    cuda.set_rng_state(state, 0)
    assert torch.equal(torch.rand(3, device="cuda"), second)
    assert torch.equal(torch.rand(3, device="cuda:1"), first.to("cuda:1"))
    assert cuda.initial_seed() == 3
    assert len(cuda.get_rng_state_all()) == 2


def test_a_seed_from_before_the_first_use_counts() -> None:
    cuda.manual_seed_all(5)
    expected = torch.rand(2, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.rand(2, device="cuda:1").cpu(), expected)


def test_forked_random_states_come_back() -> None:
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0]):
        first = torch.rand(2, device="cuda")
    assert torch.equal(torch.rand(2, device="cuda"), first)


def test_generators_live_on_a_device() -> None:
    generator = torch.Generator("cuda:1").manual_seed(1)
    assert generator.device == torch.device("cuda:1")
    assert torch.rand(2, generator=generator, device="cuda:1").is_cuda
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.randperm(3, generator=generator)


# the rest -------------------------------------------------------------------------------------------------------------


def test_legacy_types_construct_and_convert() -> None:
    assert cuda.FloatTensor([1.0]).device == torch.device("cuda:0")
    assert cuda.LongTensor(2, 3).shape == (2, 3)
    assert isinstance(torch.ones(1).type(cuda.HalfTensor), cuda.HalfTensor)
    assert not isinstance(torch.ones(1), cuda.FloatTensor)
    assert torch.ones(1, device="cuda").type() == "torch.cuda.FloatTensor"


def test_sync_debug_mode_speaks_of_waits() -> None:
    value = torch.ones(1, device="cuda")
    cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        value.item()
    cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        value.item()
    cuda.set_sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value.item()


def test_copies_between_devices_of_one_process() -> None:
    comm = cuda.comm
    assert [t.get_device() for t in comm.broadcast(torch.ones(2, device="cuda"), [0, 1])] == [0, 1]
    parts = comm.scatter(torch.arange(4.0), [0, 1])
    assert torch.equal(comm.gather(parts, destination=1).cpu(), torch.arange(4.0))
    total = comm.reduce_add([torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")], 1)
    assert total.get_device() == 1
    assert total.tolist() == [2, 2]


def test_data_parallel_splits_the_batch() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    where: list[str] = []
    plain[0].register_forward_hook(lambda module, args, out: where.append(str(out.device)))
    parallel = nn.DataParallel(copy.deepcopy(plain).cuda())
    batch = torch.randn(6, 3)
    out = parallel(batch.cuda())
    out.square().mean().backward()
    assert sorted(where) == ["cuda:0", "cuda:1"]
    expected = plain(batch)
    expected.square().mean().backward()
    torch.testing.assert_close(out.cpu(), expected)
    for ours, theirs in zip(parallel.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_amp_trains_in_half() -> None:
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    assert scaler.is_enabled()
    with torch.autocast("cuda"):
        out = model(torch.ones(3, 4, device="cuda"))
    assert out.dtype == torch.float16
    scaler.scale(out.float().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 65536


@pytest.mark.parametrize(
    "call",
    [
        lambda: cuda.nvtx.range_push("x"),
        lambda: cuda.nvtx.range_pop(),
        lambda: cuda.ipc_collect(),
        lambda: cuda.utilization(),
        lambda: cuda.temperature(),
        lambda: cuda.list_gpu_processes(),
        lambda: cuda.memory._snapshot(),
        lambda: cuda.memory._record_memory_history(),
        lambda: cuda.nccl.version(),
        lambda: cuda.cudart().cudaProfilerStart(),
        lambda: cuda._sleep(10),
        lambda: cuda.current_blas_handle(),
        lambda: cuda.get_gencode_flags(),
        lambda: torch.backends.cuda.cufft_plan_cache[0].size,
        lambda: torch.backends.cudnn.version(),
        lambda: torch.backends.cuda.preferred_linalg_library(),
        lambda: cuda.is_bf16_supported() and cuda.is_tf32_supported(),
        lambda: cuda.is_current_stream_capturing(),
        lambda: cuda.MemPool(),
        lambda: cuda.ExternalStream(0),
        lambda: torch.utils.collect_env.get_env_info(),
    ],
    ids=lambda call: "_".join(n for n in call.__code__.co_names if n != "cuda"),
)
def test_what_programs_ask_for_is_answered(call: Any) -> None:
    call()


def test_profilers_run_without_the_device_s_side(capfd: pytest.CaptureFixture[str]) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.ones(2, device="cuda") + 1
    assert "aten::add" in str(profile.key_averages())
    assert "Failed" not in capfd.readouterr().err


def test_nothing_of_a_default_device_stays_after_the_end() -> None:
    torch.set_default_device("cuda")
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    from devguard.simulate import active

    running = active()
    assert running is not None
    running.stop()
    assert (torch.ones(1).device.type, torch.ones(1).dtype) == ("cpu", torch.float32)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_after_first_use_is_refused() -> None:
    tensor = torch.ones(1, device="cuda")
    calls = (lambda: torch.ones(1).cuda(), lambda: torch.zeros(1, device="cuda"), lambda: cuda.current_device())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (*calls, lambda: tensor + 1):
            try:
                call()
                texts.append("worked")
            except RuntimeError as error:
                texts.append(str(error).split(".")[0].split("\n")[0])
        os.write(write, "|".join(texts).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    *refused, used = os.read(read, 4096).decode().split("|")
    os.close(read)
    assert set(refused) == {"Cannot re-initialize CUDA in forked subprocess"}
    assert used == "CUDA error: initialization error"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_before_first_use_works() -> None:
    child = os.fork()
    if child == 0:
        try:
            ok = torch.ones(1).cuda().is_cuda
        except BaseException:
            ok = False
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
