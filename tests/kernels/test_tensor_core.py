"""Tensor-core instructions, lane by lane as the PTX ISA lays fragments out, and asynchronous
copies: the emulator's, which are late, and a GPU's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from calling import EMULATOR, RUNNERS, runner

from veilgraph.kernels.cuda import Launch, Pointer, Source

MULTIPLY = """
#include "kernels/cuda/tensor_core.cuh"
extern "C" __global__ void multiply(int32_t* c, const uint32_t* a, const uint32_t* b) {
  const int lane = threadIdx.x;
  int32_t sums[4];
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) sums[i] = c[4 * lane + i], left[i] = a[4 * lane + i];
  for (int i = 0; i < 2; ++i) right[i] = b[2 * lane + i];
  veil::multiply_bytes(sums, left, right);
  for (int i = 0; i < 4; ++i) c[4 * lane + i] = sums[i];
}
"""
LOAD = """
#include "kernels/cuda/tensor_core.cuh"
extern "C" __global__ void load(uint32_t* out, const uint32_t* lines) {
  uint8_t* shared = veil::dynamic_shared();
  for (int i = 0; i < 4; ++i) {
    veil::copy_async<4>(veil::shared_address(shared + 16 * threadIdx.x + 4 * i),
                        lines + 4 * threadIdx.x + i, 4);
  }
  veil::end_copies();
  veil::wait_for_copies<0>();
  __syncthreads();
  uint32_t held[4];
  veil::load_matrices(held, veil::shared_address(shared + 16 * (31 - threadIdx.x)));
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = held[i];
}
"""
COPY = """
#include "kernels/cuda/tensor_core.cuh"
extern "C" __global__ void copy(uint64_t* out, const uint64_t* in) {
  auto* words = reinterpret_cast<uint64_t*>(veil::dynamic_shared()) + 3 * threadIdx.x;
  const int valid[3] = {8, 5, 0};
  for (int i = 0; i < 3; ++i) {
    veil::copy_async<8>(veil::shared_address(words + i), in + threadIdx.x, valid[i]);
    veil::end_copies();
  }
  veil::wait_for_copies<1>();
  for (int i = 0; i < 3; ++i) out[6 * threadIdx.x + i] = words[i];
  veil::wait_for_copies<0>();
  for (int i = 0; i < 3; ++i) out[6 * threadIdx.x + 3 + i] = words[i];
}
"""


def run(
    device: str, name: str, text: str, arrays: list[npt.NDArray[np.uint64]], shared: int = 0
) -> None:
    """One warp over arrays, a region each; the first is written."""
    pointers = tuple(Pointer(i, 0) for i in range(len(arrays)))
    source = Source(name, text, (name,))
    launch = Launch(source, name, (1, 1, 1), (32, 1, 1), pointers, shared)
    runner(device).run(launch, arrays)


@pytest.mark.parametrize("device", RUNNERS)
@pytest.mark.parametrize("extreme", [False, True])
def test_fragments_of_multiply(device: str, extreme: bool) -> None:
    """PTX ISA, matrix fragments for mma.m16n8k32: element by element, sums modulo 2^32."""
    rng = np.random.default_rng(1)
    a = rng.integers(-128, 128, (16, 32), np.int8)
    b = rng.integers(-128, 128, (32, 8), np.int8)
    c = rng.integers(-(2**31), 2**31, (16, 8), np.int32)
    if extreme:
        a[:], b[:], c[:] = -128, -128, 2**31 - 1
    left, right = np.zeros((32, 16), np.int8), np.zeros((32, 8), np.int8)
    sums = np.zeros((32, 4), np.int32)
    for lane in range(32):
        group, place = divmod(lane, 4)
        for i in range(16):
            row = group if i < 4 or 8 <= i < 12 else group + 8
            left[lane, i] = a[row, place * 4 + i % 4 + (0 if i < 8 else 16)]
        for i in range(8):
            right[lane, i] = b[place * 4 + i % 4 + (0 if i < 4 else 16), group]
        for i in range(4):
            sums[lane, i] = c[group + (0 if i < 2 else 8), place * 2 + i % 2]
    run(device, "multiply", MULTIPLY, [sums, left, right])
    expected = (c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    for lane in range(32):
        group, place = divmod(lane, 4)
        for i in range(4):
            assert sums[lane, i] == expected[group + (0 if i < 2 else 8), place * 2 + i % 2]


@pytest.mark.parametrize("device", RUNNERS)
def test_matrices_are_loaded_a_row_for_four_lanes(device: str) -> None:
    lines = np.random.default_rng(2).integers(0, 256, (32, 16), np.uint8)
    out = np.zeros((32, 4), np.uint32)
    run(device, "load", LOAD, [out, lines], 32 * 16)
    for lane in range(32):
        for matrix in range(4):
            line = lines[31 - (8 * matrix + lane // 4)]
            expected = line[lane % 4 * 4 : lane % 4 * 4 + 4].view(np.uint32)[0]
            assert out[lane, matrix] == expected


@pytest.mark.parametrize("device", RUNNERS)
def test_copies_have_zeros_behind_them_and_the_emulators_are_late(device: str) -> None:
    """On the emulator a group that no wait covers has not been copied: there is junk until then."""
    values = np.random.default_rng(3).integers(0, 2**64, 32, np.uint64)
    out = np.zeros((32, 6), np.uint64)
    run(device, "copy", COPY, [out, values], 32 * 24)
    partial, junk = values & np.uint64(2**40 - 1), np.uint64(int("a5" * 8, 16))
    np.testing.assert_array_equal(out[:, 0], values)
    np.testing.assert_array_equal(out[:, 1], partial)
    if device == EMULATOR:
        np.testing.assert_array_equal(out[:, 2], junk)
    np.testing.assert_array_equal(out[:, 3], values)
    np.testing.assert_array_equal(out[:, 4], partial)
    np.testing.assert_array_equal(out[:, 5], 0)
