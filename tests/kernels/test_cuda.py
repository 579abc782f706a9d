"""The door of the CUDA kernels: sources and their digests, launches and their arguments."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gpus import GpuRunner

from veilgraph.ir.plan import tables as plan
from veilgraph.kernels.cuda import (
    ROOT,
    Buffer,
    DeviceShape,
    Keys,
    Kind,
    Launch,
    Pointer,
    Run,
    Source,
    key_schedules,
)
from veilgraph.kernels.cuda.emulator import EmulatorRunner
from veilgraph.kernels.cuda.launch import SCRATCH
from veilgraph.kernels.cuda.steps import launches
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver

DEVICE = DeviceShape(multiprocessors=1)
TEXT = """
#include "kernels/cuda/strided.cuh"
extern "C" __global__ void add(uint64_t* out, uint64_t value) { out[threadIdx.x] += value; }
"""
ADD = Source("add", TEXT, ("add",))


def test_kinds_are_those_of_plans() -> None:
    assert {k.name: k.value for k in Kind} == {k.name: k.value for k in plan.BufferKind}


def test_a_source_knows_all_its_headers() -> None:
    assert ADD.headers == (
        "kernels/cuda/emulator/device.cuh",
        "kernels/cuda/emulator/fibers.cuh",
        "kernels/cuda/prelude.cuh",
        "kernels/cuda/strided.cuh",
    )
    assert all((ROOT / path).is_file() for path in ADD.headers)


def test_a_digest_says_what_is_compiled() -> None:
    assert ADD.digest == Source("other name", TEXT, ("add",)).digest
    assert ADD.digest != Source("add", TEXT + " ", ("add",)).digest
    shorter = TEXT.replace('#include "kernels/cuda/strided.cuh"', "")
    assert ADD.digest != Source("add", shorter, ("add",)).digest


def test_arguments_are_bound_in_order() -> None:
    arguments = (Pointer(1, 8), Keys(), Run(), -1, Pointer(0, 0))
    launch = Launch(ADD, "add", (1, 1, 1), (32, 1, 1), arguments)
    assert launch.bind([1000, 2000], 3000, 7).tolist() == [2008, 3000, 7, 2**64 - 1, 1000]


def test_key_schedules() -> None:
    """FIPS 197, appendix A.1: the last round key."""
    keys = bytes(16) + bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    schedules = key_schedules(keys)
    assert schedules.shape == (2, 176)
    assert schedules[1, 160:].tobytes().hex() == "d014f9a8c9ee2589e13f0cc8b6630ca6"


def test_nothing_to_compute_is_no_launch() -> None:
    empty = Buffer(0, 0, Kind.WORDS32, 32, (3, 0), (0, 1))
    assert launches("fill", [empty], [1], DEVICE) == ()
    assert launches("copy", [empty, empty], [], DEVICE) == ()


@pytest.mark.parametrize(
    ("strides", "entry"),
    [((700, 20, 1), "run"), ((700, 1, 35), "turned64"), ((1, 60, 3), "words64")],
)
def test_copies_by_the_way_their_strides_allow(strides: tuple[int, ...], entry: str) -> None:
    out = Buffer(0, 0, Kind.WORDS64, 64, (3, 35, 20), (700, 20, 1))
    x = Buffer(0, 1 << 20, Kind.WORDS64, 64, (3, 35, 20), strides)
    (launch,) = launches("copy", [out, x], [], DEVICE)
    assert launch.entry == f"veil_copy_{entry}"


def test_the_emulator_compiles_once(tmp_path: Path) -> None:
    """For processes that want the same at the same time, and for those that come later."""
    folder, calls, compiler = tmp_path / "kept", tmp_path / "calls", tmp_path / "compiler"
    folder.mkdir()
    compiler.write_text(f'#!/bin/sh\necho >> {calls}\nexec g++ "$@"\n')
    compiler.chmod(0o700)
    launch = Launch(ADD, "add", (1, 1, 1), (32, 1, 1), (Pointer(0, 0), 5))

    def added() -> bool:
        memory = np.zeros(32, np.uint64)
        EmulatorRunner(folder, str(compiler)).run(launch, [memory])
        return memory.tolist() == 32 * [5]

    started = []
    for _ in range(2):
        started.append(os.fork())
        if started[-1] == 0:
            os._exit(0 if added() else 1)
    assert [os.waitpid(pid, 0)[1] for pid in started] == [0, 0]
    assert added()
    names = sorted(path.name.partition("-")[0] + path.suffix for path in folder.iterdir())
    assert names == ["add.so", "emulator.gch", "emulator.h", "emulator_bodies.so", "lock"]
    assert len(calls.read_text().splitlines()) == 3


def test_a_launch_through_a_driver(emulator_folder: Path) -> None:
    """As kernels are called on a GPU: over copies of the regions, with key schedules."""
    text = """
#include "kernels/cuda/prelude.cuh"
extern "C" __global__ void mix(uint64_t* out, const uint8_t* keys, const uint64_t* run) {
  out[threadIdx.x] += keys[175] + 1000 * *run;
}
"""
    launch = Launch(
        Source("mix", text, ("mix",)),
        "mix",
        (1, 1, 1),
        (32, 1, 1),
        (Pointer(1, 0), Keys(), Run()),
    )
    regions = [np.arange(4, dtype=np.uint64), np.arange(32, dtype=np.uint64)]
    GpuRunner(EmulatorDriver(emulator_folder)).run(launch, regions, bytes(range(16)), 2)
    last = int(key_schedules(bytes(range(16)))[0, 175])
    assert regions[0].tolist() == list(range(4))
    assert regions[1].tolist() == [i + last + 2000 for i in range(32)]


def test_the_emulator_holds_arguments_against_parameters(emulator_folder: Path) -> None:
    launch = Launch(ADD, "add", (1, 1, 1), (32, 1, 1), (Pointer(0, 0),))
    with pytest.raises(AssertionError, match="not the kernel's parameters"):
        EmulatorRunner(emulator_folder).run(launch, [np.zeros(32, np.uint64)])


def test_the_emulator_compiles_no_nonsense(tmp_path: Path) -> None:
    launch = Launch(Source("bad", "}", ("bad",)), "bad", (1, 1, 1), (32, 1, 1), ())
    with pytest.raises(subprocess.CalledProcessError):
        EmulatorRunner(tmp_path).run(launch, [])
    assert not list(tmp_path.glob("bad*"))


SUM = """
#include "kernels/cuda/prelude.cuh"
extern "C" __global__ void sum(uint64_t* out, const uint64_t* in) {
  __shared__ uint64_t part[256];
  part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned step = blockDim.x / 2; step >= 32; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }
  __syncthreads();
  uint64_t mine = part[threadIdx.x % 32];
  for (unsigned step = 16; step > 0; step /= 2) {
    mine += __shfl_xor_sync(veil::kAllLanes, mine, step);
  }
  if (threadIdx.x == 0) veil::add_to(out, mine);
}
"""


@pytest.mark.parametrize("threads", [32, 64, 256])
def test_threads_of_the_emulator_meet(emulator_folder: Path, threads: int) -> None:
    """A sum over blocks through shared memory, shuffles and an atomic addition."""
    blocks = 5
    values = np.arange(1 + blocks * threads, dtype=np.uint64)
    launch = Launch(
        Source("sum", SUM, ("sum",)),
        "sum",
        (blocks, 1, 1),
        (threads, 1, 1),
        (Pointer(0, 0), Pointer(0, 8)),
    )
    total = int(values[1:].sum())
    EmulatorRunner(emulator_folder).run(launch, [values])
    assert int(values[0]) == total


VECTORS = """
#include "kernels/cuda/prelude.cuh"
extern "C" __global__ void twice(uint4* at) { at[threadIdx.x].x *= 2; }
"""


@pytest.mark.parametrize(("offset", "status"), [(16, 0), (8, -signal.SIGILL)])
def test_the_emulator_traps_vectors_that_are_not_aligned(
    emulator_folder: Path, offset: int, status: int
) -> None:
    """As a GPU does, and ends the program."""
    pid = os.fork()
    if pid == 0:
        launch = Launch(
            Source("twice", VECTORS, ("twice",)),
            "twice",
            (1, 1, 1),
            (32, 1, 1),
            (Pointer(0, offset),),
        )
        faulthandler.disable()  # nobody wants to read of it
        EmulatorRunner(emulator_folder).run(launch, [np.zeros(132, np.uint32)])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status


def test_what_nvcc_refuses_the_emulator_refuses(emulator_folder: Path) -> None:
    """CUDA has no atomic addition for uint64_t, which is no unsigned long long on Linux."""
    text = SUM.replace("veil::add_to(out, mine)", "atomicAdd(out, mine)")
    launch = Launch(Source("sum", text, ("sum",)), "sum", (1, 1, 1), (32, 1, 1), (Pointer(0, 0),))
    with pytest.raises(subprocess.CalledProcessError):
        EmulatorRunner(emulator_folder).run(launch, [np.zeros(1, np.uint64)])


def test_scratch_memory_is_a_region() -> None:
    launch = Launch(ADD, "add", (1, 1, 1), (32, 1, 1), (Pointer(SCRATCH, 16),), scratch_bytes=64)
    assert launch.bind([1000, 2000, 5000], 3000, 0).tolist() == [5016]
