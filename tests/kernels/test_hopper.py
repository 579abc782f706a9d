"""Instructions of sm_90a: sums of a group of warps as the PTX ISA has them, and copies in bulk, on
the emulator and on a GPU that has them; the emulator does late what is asynchronous.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import EMULATOR, GPU
from gpus import GpuRunner, first_gpu

from veilgraph.kernels.cuda import Launch, Pointer, Source
from veilgraph.kernels.cuda.emulator import EmulatorRunner

devices = pytest.mark.parametrize("device", [EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu)])
GROUP, ROWS, COLUMNS, DEPTHS = 128, 64, 256, 64
MULTIPLY = """
#include "kernels/cuda/hopper.cuh"
extern "C" __global__ void multiply(int32_t* sums, int32_t* early, const uint8_t* factors) {
  uint8_t* shared = veil::dynamic_shared();
  const int thread = threadIdx.x;
  for (int i = thread; i < (64 + 256) * 64; i += blockDim.x) shared[i] = factors[i];
  veil::show_words();
  __syncthreads();
  int32_t c[128];
  for (int i = 0; i < 128; ++i) c[i] = sums[128 * thread + i];
  const auto a = veil::shared_address(shared), b = veil::shared_address(shared + 64 * 64);
  veil::begin_products();
  for (int half = 0; half < 2; ++half) {
    veil::multiply_bytes(c, veil::matrix_at(a + 32 * half), veil::matrix_at(b + 32 * half));
    veil::end_products();
    veil::begin_products();
  }
LOOK
  veil::wait_for_products<0>();
  for (int i = 0; i < 128; ++i) sums[128 * thread + i] = c[i];
}
"""
LOOK = """
  veil::wait_for_products<1>();
  for (int i = 0; i < 128; ++i) early[128 * thread + i] = c[i];
"""  # at sums that are not done, which only the emulator allows
# Two products, with the registers of the second one's left factor as they are by the wait.
HELD = """
#include "kernels/cuda/group_products.cuh"
extern "C" __global__ void held(int32_t* sums, const uint32_t* left, const uint8_t* right) {
  constexpr int kColumns = COLUMNS, kMatrix = 144, kHalf = kColumns / 8 * kMatrix;
  uint8_t* shared = veil::dynamic_shared();
  const int thread = threadIdx.x;
  for (int i = thread; i < 2 * kColumns * 32; i += blockDim.x) {
    const int line = i / 32 % kColumns, plane = i / 32 / kColumns;
    shared[plane * 2 * kHalf + i % 32 / 16 * kHalf + line / 8 * kMatrix + line % 8 * 16 + i % 16] =
        right[i];
  }
  veil::show_words();
  __syncthreads();
  int32_t c[kColumns / 2];
  for (int i = 0; i < kColumns / 2; ++i) c[i] = sums[kColumns / 2 * thread + i];
  uint32_t a[2][4];
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = left[8 * thread + i];
  veil::begin_products();
  for (int plane = 0; plane < 2; ++plane) {
    const auto at = veil::shared_address(shared + plane * 2 * kHalf);
    veil::multiply_bytes(c, a[plane], veil::core_matrices_at(at, kHalf, kMatrix));
  }
  veil::end_products();
LOOK
  veil::wait_for_products<0>();
  for (int i = 0; i < kColumns / 2; ++i) sums[kColumns / 2 * thread + i] = c[i];
}
"""
CHANGE = "for (int i = 0; i < 4; ++i) a[1][i] = 0;"  # too early, which only the emulator allows
COPY = """
#include "kernels/cuda/hopper.cuh"
extern "C" __global__ void copy(uint8_t* out, const uint8_t* in) {
  uint8_t* shared = veil::dynamic_shared();
  const auto barrier = veil::shared_address(shared + 128);
  const int lane = threadIdx.x;
  if (lane == 0) {
    for (int i = 96; i < 128; ++i) shared[i] = 1;
    veil::make_barrier(barrier, 1);
    veil::show_barriers();
  }
  __syncthreads();
  veil::wait_for_phase(barrier, 1);
  for (unsigned turn = 0; turn < 2; ++turn) {
    if (lane == 0) {
      veil::arrive_and_expect(barrier, 96);
      veil::copy_in_bulk(veil::shared_address(shared), in + 96 * turn, 64, barrier);
      veil::copy_in_bulk(veil::shared_address(shared + 64), in + 96 * turn + 64, 32, barrier);
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i) out[256 * turn + 4 * lane + i] = shared[4 * lane + i];
    __syncthreads();
    veil::wait_for_phase(barrier, turn);
    for (int i = 0; i < 4; ++i) out[256 * turn + 128 + 4 * lane + i] = shared[4 * lane + i];
    __syncthreads();
  }
}
"""

# The first lane waits for the other warp, and its own warp's lanes for all; MEET may be a wait.
APART = """
#include "kernels/cuda/hopper.cuh"
extern "C" __global__ void apart() {
  const auto barrier = veil::shared_address(veil::dynamic_shared());
  if (threadIdx.x == 0) veil::make_barrier(barrier, 1);
  veil::show_barriers();
  __syncthreads();
  if (threadIdx.x >= 32) __syncwarp();
  if (threadIdx.x == 32) veil::arrive(barrier);
  if (threadIdx.x == 0) veil::wait_for_phase(barrier, 0);
  MEET
  __syncthreads();
}
"""
# In a process of its own, which ends where the emulator refuses.
RUN = """
import sys
from pathlib import Path
from veilgraph.kernels.cuda import Launch, Source
from veilgraph.kernels.cuda.emulator import EmulatorRunner
launch = Launch(Source("apart", sys.argv[2], ("apart",)), "apart", (1, 1, 1), (64, 1, 1), (), 16)
EmulatorRunner(Path(sys.argv[1])).run(launch, [])
"""


def run(
    device: str,
    folder: Path,
    name: str,
    text: str,
    threads: int,
    shared: int,
    arrays: list[npt.NDArray[Any]],
) -> None:
    """One block over arrays, a region each."""
    pointers = tuple(Pointer(i, 0) for i in range(len(arrays)))
    source = Source(name, text, (name,))
    launch = Launch(source, name, (1, 1, 1), (threads, 1, 1), pointers, shared)
    if device == EMULATOR:
        EmulatorRunner(folder).run(launch, arrays)
        return
    if first_gpu().gpu.arch != "sm_90":
        pytest.skip(f"the GPU is of {first_gpu().gpu.arch}")
    GpuRunner(first_gpu()).run(launch, arrays)


def swizzled(lines: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Lines of 64 bytes, each piece of 16 where the 64-byte swizzle has it."""
    out = np.empty_like(lines)
    for number, line in enumerate(lines):
        for piece in range(4):
            place = piece ^ (number // 2) % 4
            out[number, 16 * place : 16 * place + 16] = line[16 * piece : 16 * piece + 16]
    return out


def of_threads(matrix: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """PTX ISA, register fragments of wgmma .m64nNk32: what each thread holds."""
    out = np.empty((GROUP, matrix.shape[1] // 2), np.int32)
    for thread in range(GROUP):
        warp, lane = divmod(thread, 32)
        for i in range(matrix.shape[1] // 2):
            row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
            out[thread, i] = matrix[row, 8 * (i // 4) + lane % 4 * 2 + i % 2]
    return out


@devices
@pytest.mark.parametrize("extreme", [False, True])
def test_sums_of_a_group_are_where_the_isa_has_them(
    emulator_folder: Path, extreme: bool, device: str
) -> None:
    """Modulo 2^32, and each bundle of products when a wait covers it."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, (lines, DEPTHS), np.int8) for lines in (ROWS, COLUMNS))
    c = rng.integers(-(2**31), 2**31, (ROWS, COLUMNS), np.int32)
    if extreme:
        a[:], b[:], c[:] = -128, -128, 2**31 - 1
    sums, early = of_threads(c), np.zeros((GROUP, GROUP), np.int32)
    factors = np.concatenate([swizzled(a), swizzled(b)])
    text = MULTIPLY.replace("LOOK", LOOK if device == EMULATOR else "")
    run(device, emulator_folder, "multiply", text, GROUP, factors.nbytes, [sums, early, factors])
    left, right = a.astype(np.int64), b.astype(np.int64)
    half = c + left[:, :32] @ right[:, :32].T
    if device == EMULATOR:
        np.testing.assert_array_equal(early, of_threads(half.astype(np.int32)))
    both = half + left[:, 32:] @ right[:, 32:].T
    np.testing.assert_array_equal(sums, of_threads(both.astype(np.int32)))


def fragments(lines: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """PTX ISA, register fragments of wgmma .m64nNk32: 16 bytes of each thread of 64 x 32."""
    out = np.empty((GROUP, 4, 4), np.int8)
    for thread in range(GROUP):
        warp, lane = divmod(thread, 32)
        for i in range(4):
            row, depth = 16 * warp + lane // 4 + i % 2 * 8, lane % 4 * 4 + i // 2 * 16
            out[thread, i] = lines[row, depth : depth + 4]
    return out


@devices
@pytest.mark.parametrize("columns", [32, 64, 80])
@pytest.mark.parametrize("case", ["random", "extreme", "early"])
def test_left_factors_in_registers(
    emulator_folder: Path, columns: int, case: str, device: str
) -> None:
    """Modulo 2^32; what changes before the wait is multiplied as it is by then."""
    if case == "early" and device == GPU:
        pytest.skip("nobody knows what a GPU makes of that")
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(-128, 128, (2, lines, 32), np.int8) for lines in (ROWS, columns))
    c = rng.integers(-(2**31), 2**31, (ROWS, columns), np.int32)
    if case == "extreme":
        a[:], b[:], c[:] = -128, -128, 2**31 - 1
    sums, left = of_threads(c), np.stack([fragments(each) for each in a], axis=1)
    text = HELD.replace("COLUMNS", str(columns)).replace("LOOK", CHANGE if case == "early" else "")
    shared = 2 * 2 * columns // 8 * 144
    run(device, emulator_folder, "held", text, GROUP, shared, [sums, left, b])
    used = a.astype(np.int64)
    if case == "early":
        used[1] = 0
    expected = c + sum(x @ y.T for x, y in zip(used, b.astype(np.int64), strict=True))
    np.testing.assert_array_equal(sums, of_threads(expected.astype(np.int32)))


@devices
def test_copies_in_bulk_are_there_when_their_phase_is_over(
    emulator_folder: Path, device: str
) -> None:
    """On the emulator there is junk in their place until then; nothing else is touched."""
    values = np.random.default_rng(2).integers(-128, 128, (2, 96), np.int8)
    out = np.zeros((2, 2, 128), np.int8)
    run(device, emulator_folder, "copy", COPY, 32, 136, [out, values])
    if device == EMULATOR:
        assert (out[:, 0, :96].view(np.uint8) == 0xA5).all()
    np.testing.assert_array_equal(out[:, 1, :96], values)
    assert (out[:, :, 96:] == 1).all()


@pytest.mark.parametrize("meet", ["__syncwarp();", ""])
def test_a_warp_reaches_a_barrier_as_one(emulator_folder: Path, meet: str) -> None:
    """A GPU has no rule for lanes that come apart (PTX ISA, "barrier"); the emulator refuses."""
    command = [sys.executable, "-c", RUN, str(emulator_folder), APART.replace("MEET", meet)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == bool(meet), done.stderr
    assert ("lanes of a warp reach a barrier apart" in done.stderr) == (not meet)
