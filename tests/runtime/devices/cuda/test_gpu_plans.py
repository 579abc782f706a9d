"""Whole plans on a GPU, alone and beside the CPU; `make test-gpu`, skipped where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from gpus import first_gpu, pycuda_or_skip
from small_plans import W, X, small_plan
from tiny_models import MODELS
from whole_plans import check_devices, check_digits, check_prepared, check_tiny, heterogeneous

from veilgraph.runtime.devices.costs import Costs, costs_file
from veilgraph.runtime.devices.cuda.drivers.gpus import list_gpus
from veilgraph.runtime.devices.tuning import measure

pytestmark = pytest.mark.gpu
GPU, CPU = "cuda:0", "cpu"


@pytest.fixture(autouse=True)
def gpu() -> None:
    pycuda_or_skip()


@pytest.mark.parametrize("devices", [(GPU,) * 3, (GPU, GPU, CPU), (CPU, CPU, GPU)])
@pytest.mark.parametrize("ring_bits", [32, 40])
def test_a_layer(ring_bits: int, devices: Sequence[str]) -> None:
    check_devices(small_plan(ring_bits), [{"x": X}, {"x": -X}], {"w": W}, devices)


def test_a_layer_from_a_store() -> None:
    check_prepared(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, (GPU, GPU, CPU))


@pytest.mark.parametrize(
    ("suite", "devices"),
    [("rep3", (GPU,) * 3), ("rep3", (CPU, GPU, GPU)), ("additive", (GPU, CPU, GPU))],
)
def test_a_lenet(suite: str, devices: Sequence[str]) -> None:
    check_digits(suite, devices)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(
    ("suite", "devices"), [("rep3", (GPU, CPU, GPU)), ("additive", (GPU,) * 3)]
)
def test_a_tiny_model(model: str, suite: str, devices: Sequence[str]) -> None:
    check_tiny(model, suite, devices)


def test_every_second_step_on_the_gpu() -> None:
    devices = [heterogeneous(lambda count: [step % 2 for step in range(count)], GPU)] * 3
    check_devices(small_plan(), [{"x": X}, {"x": -X}, {"x": X}], {"w": W}, devices)


def test_steps_where_they_are_cheaper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    costs = measure(small_plan(), [GPU], Costs.none(1), lambda doing: None)
    costs.save(costs_file())
    check_devices(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, ["auto"] * 3)


def test_the_gpu_has_what_it_says() -> None:
    driver = first_gpu()
    assert driver.gpu == list_gpus(pycuda_or_skip())[0]
    assert driver.gpu.arch.startswith("sm_")
    with driver.current():
        assert 0 < driver.free_bytes() <= driver.gpu.memory_bytes
        before = driver.free_bytes()
        address = driver.allocate(64 << 20)
        assert address % 256 == 0
        assert driver.free_bytes() <= before - (64 << 20)
        driver.release(address)
        assert driver.free_bytes() == before
