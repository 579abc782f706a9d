"""What a user reads whose GPU can't be had, lacks memory or fails: `simulate` over a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_pycuda
import numpy as np
import pytest
from click.testing import CliRunner
from fake_pycuda import FakeCubins
from small_plans import W, X, small_plan

from veilgraph.cli import main
from veilgraph.ir.plan.tables import Layer
from veilgraph.plans import Plan
from veilgraph.runtime.store.weights import save_weights

Simulate = Callable[..., Any]


@pytest.fixture
def cuda(emulator_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for pycuda.driver of a machine with one GPU."""
    package: Any = ModuleType("pycuda")
    package.driver = fake_pycuda.fake_pycuda(emulator_folder)
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    cubins = FakeCubins(package.driver)
    monkeypatch.setattr("veilgraph.runtime.devices.cuda.opening.Cubins", lambda *args: cubins)
    return package.driver


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    """Runs a small plan, of a batch of four, with a party on a device."""
    layers = (Layer("fc1", "matmul"),) * 64
    plan = Plan.of(replace(small_plan(), layers=layers))
    plan.save(tmp_path / "small.plan")
    save_weights({"w": W.astype(np.float32)}, tmp_path / "small.weights", plan.digest)
    np.save(tmp_path / "x.npy", X.astype(np.float32))

    def run(device: str) -> Any:
        arguments = ["--weights", "small.weights", "--input", "x=@x.npy", "--device", device]
        arguments = [str(tmp_path / a) if a.endswith("weights") and a[0] != "-" else a
                     for a in arguments]  # fmt: skip
        arguments = [a.replace("@x", f"@{tmp_path}/x") for a in arguments]
        return CliRunner().invoke(main, ["simulate", str(tmp_path / "small.plan"), *arguments])

    return run


def told(result: Any, code: int, *sentences: str) -> None:
    """The exit code, and sentences on standard error, with no traceback beside them."""
    assert result.exit_code == code, result.stderr
    for sentence in sentences:
        assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2


def test_it_works_where_nothing_is_wrong(cuda: Any, simulate: Simulate) -> None:
    result = simulate("bob=cuda:0")
    assert result.exit_code == 0, result.stderr
    assert "total" in result.stdout


def test_no_gpu(cuda: Any, simulate: Simulate) -> None:
    cuda.Device.gpus = 0
    told(simulate("cuda:0"), 2, "There is no GPU in this machine.", "--device cpu")


def test_no_such_gpu(cuda: Any, simulate: Simulate) -> None:
    told(simulate("cuda:1"), 2, "There is no GPU number 1: this machine has 1.")


def test_a_gpu_too_old(cuda: Any, simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.Device, "compute_capability", lambda self: (7, 5))
    told(simulate("cuda:0"), 2, "GPUs of sm_75 are too old for these kernels.", "sm_80")


def test_a_driver_too_old(cuda: Any, simulate: Simulate) -> None:
    cuda.get_driver_version = lambda: 11040
    told(simulate("cuda:0"), 2, "driver is too old: it is of CUDA 11.4, and 12.0 is the least.")


@pytest.mark.parametrize(
    ("share", "hint"), [(0.9, "Compile for a batch of at most 1 with --shape"),
                        (0.1, "Compile for a narrower --ring")],
)  # fmt: skip
def test_too_little_memory(cuda: Any, simulate: Simulate, share: float, hint: str) -> None:
    """Said from the plan's stated peak, before anything runs."""
    program = small_plan().party("bob")
    free = int(share * program.arena_bytes)
    cuda.mem_get_info = lambda: (free, 1 << 30)
    told(simulate("bob=cuda:0"), 7, "bob needs 0.00 GiB for this plan, and the NVIDIA H200", hint)
    assert not cuda.gpu.allocated


def test_a_kernel_that_fails(
    cuda: Any, simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its name, its step and its layer."""

    def fail(self: Any, *args: Any, **named: Any) -> None:
        if "matmul" in self.source.name:
            raise cuda.Error("cuLaunchKernel failed: an illegal memory access was encountered")

    monkeypatch.setattr(fake_pycuda.Function, "prepared_async_call", fail)
    result = simulate("bob=cuda:0")
    told(result, 7, "bob's NVIDIA H200 failed in step ", "(matmul of layer fc1): cuLaunch")
