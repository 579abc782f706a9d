"""What is said where PyCUDA, its driver or a GPU is absent, by a stand-in for pycuda.driver.

What works is for the tests that need a GPU (`-m gpu`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_pycuda import FakeGraphCalls, Function, fake_pycuda

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.cuda import Launch, Source
from veilgraph.runtime.devices.cuda.cubins import Cubins, store
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.interface import DriverFault
from veilgraph.runtime.devices.cuda.drivers.pycuda import PyCudaDriver, PyCudaKernel

ADD = Source("add", "", ("add",))


def refuse(error: Exception) -> Any:
    def call(*args: Any, **named: Any) -> None:
        raise error

    return call


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for pycuda.driver of a machine with one GPU."""
    package: Any = ModuleType("pycuda")
    package.driver = fake_pycuda(tmp_path)
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    return package.driver


def test_no_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(UsageError, match="package pycuda, which is not installed") as caught:
        load_pycuda()
    assert "veilgraph[gpu]" in caught.value.hint


def test_no_driver(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ImportError("libcuda.so.1: cannot open shared object file")
    monkeypatch.setattr(
        "veilgraph.runtime.devices.cuda.drivers.gpus.import_module", refuse(missing), raising=True
    )
    with pytest.raises(UsageError, match=r"PyCUDA finds no NVIDIA driver: libcuda\.so\.1"):
        load_pycuda()


def test_no_gpu(cuda: Any) -> None:
    cuda.Device.gpus = 0
    with pytest.raises(UsageError, match="There is no GPU in this machine"):
        load_pycuda()
    cuda.init = refuse(cuda.Error("cuInit failed: no CUDA-capable device is detected"))
    with pytest.raises(UsageError, match="finds no GPU: cuInit failed: no CUDA-capable device"):
        load_pycuda()


def test_a_driver_too_old(cuda: Any) -> None:
    cuda.get_driver_version = lambda: 11080
    with pytest.raises(UsageError, match=r"too old: it is of CUDA 11\.8, and 12\.0 is the least"):
        load_pycuda()


def test_no_such_gpu(cuda: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no GPU number 1: this machine has 1") as caught:
        PyCudaDriver(load_pycuda(), 1, Cubins(tmp_path))
    assert "cuda:0" in caught.value.hint


def test_a_gpu_says_what_it_is(cuda: Any, tmp_path: Path) -> None:
    gpu = PyCudaDriver(load_pycuda(), 0, Cubins(tmp_path)).gpu
    assert (gpu.name, gpu.arch, gpu.multiprocessors) == ("NVIDIA H200", "sm_90", 132)


def test_memory_that_is_not_there(cuda: Any, tmp_path: Path) -> None:
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(tmp_path))
    cuda.mem_alloc = refuse(cuda.MemoryError("cuMemAlloc failed: out of memory"))
    with pytest.raises(MemoryError, match="out of memory"):
        driver.allocate(1 << 40)
    cuda.pagelocked_empty = refuse(cuda.MemoryError("cuMemHostAlloc failed: out of memory"))
    with pytest.raises(MemoryError, match="cuMemHostAlloc"):
        driver.pinned(1 << 40)
    cuda.mem_alloc = refuse(cuda.Error("cuMemAlloc failed:\n context is destroyed"))
    with pytest.raises(DriverFault, match=r"^cuMemAlloc failed: context is destroyed$"):
        driver.allocate(1)


def test_machine_code_that_the_driver_does_not_take(cuda: Any, tmp_path: Path) -> None:
    store(tmp_path / "cubins", f"add-{ADD.digest}-sm_90.cubin", b"no code")
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(tmp_path / "cubins"))
    cuda.module_from_buffer = refuse(cuda.Error("device kernel image is invalid"))
    launch = Launch(ADD, "add", (1, 1, 1), (32, 1, 1), ())
    with pytest.raises(UsageError, match=r"The driver \(CUDA 13\.0\) takes no machine code of"):
        driver.kernel(launch)


@pytest.mark.parametrize(
    ("static", "dynamic", "asks"), [(0, 48, False), (0, 49, True), (20, 40, True)]
)
def test_a_block_asks_for_more_shared_memory_than_it_gets(
    cuda: Any, tmp_path: Path, static: int, dynamic: int, asks: bool
) -> None:
    """What a kernel declares counts too: 48 KiB are for both."""
    cuda.gpu.static_shared = static << 10
    function = Function(cuda.gpu, ADD, "add")
    unasked = function.most_shared
    cuda.module_from_buffer = lambda cubin: SimpleNamespace(get_function=lambda entry: function)
    store(tmp_path, f"add-{ADD.digest}-sm_90.cubin", b"code")
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(tmp_path))
    driver.kernel(Launch(ADD, "add", (1, 1, 1), (32, 1, 1), (), dynamic << 10))
    assert function.most_shared == (dynamic << 10 if asks else unasked)


def test_a_mark_that_was_never_set_is_reached(cuda: Any) -> None:
    """CUDA's own rule, without asking it: some drivers call it an error."""
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(Path()))
    with driver.current():
        driver.event().synchronize()


def test_a_launch_that_is_refused_while_a_graph_is_made(cuda: Any) -> None:
    """The capture ends, so that the stream's handle is free for others."""
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(Path()), FakeGraphCalls(cuda.gpu))

    class Refusing:
        def prepared_async_call(self, *args: Any, **named: Any) -> None:
            raise cuda.Error("cuLaunchKernel failed: invalid value")

    with driver.current(), pytest.raises(DriverFault, match="cuLaunchKernel failed"):
        driver.graph([(PyCudaKernel(Refusing(), (1, 1, 1), (32, 1, 1), 0), b"")])
    assert all(stream.kept is None for stream in cuda.gpu.streams.values())
    assert not cuda.gpu.graphs


def test_all_is_freed_in_the_context(cuda: Any) -> None:
    driver = PyCudaDriver(load_pycuda(), 0, Cubins(Path()))
    with driver.current():
        address = driver.allocate(100)
        assert address % 256 == 0
        driver.release(address)
    assert cuda.gpu.contexts == 0
    assert not cuda.gpu.allocated
    with pytest.raises(DriverFault, match="no currently active context"):
        driver.allocate(100)
