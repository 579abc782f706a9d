"""Products by residues: the formula in NumPy, then the kernels, on operands at its bounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import chain, combinations
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import EMULATOR, GPU, call, with_fixed
from gpus import GpuRunner, first_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from test_limbs import all_least, all_most
from test_linear import assert_equal_in_ring, junk, matrix, random_words, seeds

from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind, Launch, Pointer, Source, placed
from veilgraph.kernels.cuda.emulator import EmulatorRunner
from veilgraph.kernels.cuda.launch import PACKED, Packed
from veilgraph.kernels.gemm.limbs import Ring
from veilgraph.kernels.gemm.residues.byte_products import (
    MMA,
    WGMMA,
    WGMMA_PAIRS,
    engine_of,
    plane_bytes,
    source,
)
from veilgraph.kernels.gemm.residues.residues import MAX_DEPTH, MODULI, Basis, largest, moduli_count
from veilgraph.kernels.gemm.residues.residues import source as residues_source
from veilgraph.kernels.gemm.residues.residues_reference import combined, product, residues_of
from veilgraph.kernels.matmul.reference import matmul as matmul_reference
from veilgraph.kernels.matmul.residues import MAX_SCRATCH, Shape, by_residues

Words = npt.NDArray[Any]
devices = pytest.mark.parametrize("device", [EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu)])
rings = pytest.mark.parametrize(
    ("word", "bits"), [(np.uint32, 24), (np.uint32, 32), (np.uint64, 40), (np.uint64, 64)]
)
SM90 = DeviceShape(132, "sm_90")
engines = pytest.mark.parametrize("arch", ["sm_80", "sm_90"])  # mma.sync, and wgmma


def test_moduli_have_no_common_factor() -> None:
    assert max(MODULI) == 256
    assert all(gcd(a, b) == 1 for a, b in combinations(MODULI, 2))


def test_how_many_moduli() -> None:
    """Of what limbs need 36, 15 and 10 products for."""
    assert [moduli_count(8, depth) for depth in (8192, 10_900, MAX_DEPTH)] == [18, 18, 19]
    assert moduli_count(5, 8192) == 12
    assert moduli_count(4, 8192) == 10
    assert MAX_DEPTH << 14 < 1 << 31


@pytest.mark.parametrize("limbs", range(3, 9))
def test_integers_of_the_range_come_back(limbs: int) -> None:
    """From their residues alone, around zero and at both ends of what a depth allows."""
    rng = np.random.default_rng(limbs)
    for depth in (1, 1000, MAX_DEPTH):
        basis = Basis(limbs, moduli_count(limbs, depth))
        most = depth * largest(limbs) ** 2
        integers = [0, 1, -1, most, -most, most - 1, 1 - most]
        integers += [int(rng.integers(-(2**62), 2**62)) * most >> 62 for _ in range(200)]
        residues = np.array([[p % m for p in integers] for m in basis.moduli], np.int64)
        assert combined(residues, basis).tolist() == [p % (1 << 64) for p in integers]


@rings
@pytest.mark.parametrize("depth", [1, 100, 11_000])
def test_the_formula(word: type[Any], bits: int, depth: int) -> None:
    """Random and extreme operands: sums of greatest magnitude, of either sign."""
    rng = np.random.default_rng(bits)
    a, b = random_words(rng, (4, depth), word), random_words(rng, (depth, 3), word)
    a[0], a[1] = all_least(word, (depth,)), all_most(word, (depth,))
    b[:, 0], b[:, 1] = all_least(word, (depth,)), all_most(word, (depth,))
    basis = Basis.of(Ring.of(8 * word().itemsize, bits), depth)
    expected = matmul_reference([(a[None], b[None])])[0]
    assert_equal_in_ring(product(a, b, basis).astype(word), expected, bits)


def test_residues_are_signed_bytes() -> None:
    basis = Basis(8, 18)
    x = random_words(np.random.default_rng(0), (1000,), np.uint64)
    for m, found in zip(basis.moduli, residues_of(x, basis), strict=True):
        assert (np.abs(found.astype(int)) <= m // 2).all()


def by_kernels(
    pairs: list[tuple[Words, Words]],
    bits: int,
    device: str,
    shape: DeviceShape,
    sides: Collection[int] = (),
) -> None:
    """With the factors of some sides (0: left, 1: right) packed."""
    if device == GPU and shape.arch != "sm_80" and shape.arch != first_gpu().gpu.arch:
        pytest.skip(f"the GPU is of {first_gpu().gpu.arch}")
    a, b = pairs[0]
    out = junk((a.shape[0], a.shape[1], b.shape[2]), a.dtype.type)
    operands = [out, *(each for pair in pairs for each in pair)]
    way = with_fixed(by_residues, sides)
    call("matmul", operands, [bits], device=device, way=way, shape=shape)
    assert_equal_in_ring(out, matmul_reference(pairs), bits)


@devices
@engines
@rings
@settings(deadline=None, max_examples=8)
@given(st.data())
def test_views(device: str, arch: str, word: type[Any], bits: int, data: st.DataObject) -> None:
    batch, rows, columns = (data.draw(st.integers(1, most)) for most in (2, 20, 20))
    seed = data.draw(seeds)
    pairs = [
        (
            data.draw(matrix((batch, rows, 70 + p), word, seed + p)),
            data.draw(matrix((batch, 70 + p, columns), word, seed + p + 99)),
        )
        for p in range(data.draw(st.integers(1, 2)))
    ]
    sides = data.draw(st.sets(st.integers(0, 1)))
    by_kernels(pairs, bits, device, DeviceShape(1, arch), sides)


@devices
@engines
@rings
def test_several_tiles_of_extremes(device: str, arch: str, word: type[Any], bits: int) -> None:
    """Rows and columns of the greatest elements among random ones, on edges of tiles."""
    assert engine_of(SM90, 230) is WGMMA_PAIRS
    assert engine_of(SM90, 20) is WGMMA
    rng = np.random.default_rng(bits)
    a, b = random_words(rng, (1, 230, 200), word), random_words(rng, (1, 200, 258), word)
    a[0, 127], a[0, 128] = all_least(word, (200,)), all_most(word, (200,))
    b[0, :, 255], b[0, :, 256] = all_least(word, (200,)), all_most(word, (200,))
    by_kernels([(a, b)], bits, device, DeviceShape(2, arch))
    by_kernels([(a, b)], bits, device, DeviceShape(2, arch), {0, 1})


SCALES = """
extern "C" __global__ void scale(uint32_t* out, const int32_t* sums) {{
  for (int i = threadIdx.x; i < {count}; i += blockDim.x) {{
    for (int m = 0; m < {moduli}; ++m) {{
      const veil::Scale& scale = veil::kScales[m];
      const uint32_t sum = static_cast<uint32_t>(sums[i]) + scale.begin;
      out[m * {count} + i] = veil::scaled_residue(sum, scale);
    }}
  }}
}}
"""


def test_scaled_residues_of_all_that_sums_may_be(emulator_folder: Path) -> None:
    """Both ends of |r| <= MAX_DEPTH 2^14, all remainders around zero, and any."""
    basis, most = Basis(8, 19), MAX_DEPTH << 14
    rng = np.random.default_rng(7)
    ends = [range(-most, -most + 600), range(-600, 600), range(most - 600, most + 1)]
    sums = np.array([*chain(*ends), *rng.integers(-most, most, 3000)], np.int32)
    text = source(basis, MMA).text + SCALES.format(count=len(sums), moduli=basis.count)
    out = np.zeros((basis.count, len(sums)), np.uint32)
    arguments = Pointer(0, 0), Pointer(1, 0)
    launch = Launch(Source("scale", text, ("scale",)), "scale", (1, 1, 1), (32, 1, 1), arguments)
    EmulatorRunner(emulator_folder).run(launch, [out, sums])
    for m, inverse, found in zip(basis.moduli, basis.inverses, out, strict=True):
        np.testing.assert_array_equal(found, sums.astype(np.int64) * inverse % m)


NEAREST = """
extern "C" __global__ void nearest(int8_t* out, const int32_t* sums) {{
  for (int i = threadIdx.x; i < {count}; i += blockDim.x) {{
    for (int m = 0; m < {moduli}; ++m) {{
      const uint32_t found = veil::nearest_residue(sums[i] + veil::kWholeBits, veil::kModuli[m]);
      out[m * {count} + i] = static_cast<int8_t>(found);
    }}
  }}
}}
"""


@devices
def test_nearest_residues_of_all_that_limbs_add_up_to(device: str, emulator_folder: Path) -> None:
    """Every |x| <= 2^17, for every modulus that sums may take."""
    basis = Basis(8, len(MODULI))
    sums = np.arange(-(1 << 17), (1 << 17) + 1, dtype=np.int32)
    text = residues_source(64, basis).text + NEAREST.format(count=len(sums), moduli=basis.count)
    out = np.zeros((basis.count, len(sums)), np.int8)
    arguments = Pointer(0, 0), Pointer(1, 0)
    source = Source("nearest", text, ("nearest",))
    launch = Launch(source, "nearest", (1, 1, 1), (256, 1, 1), arguments)
    runner = EmulatorRunner(emulator_folder) if device == EMULATOR else GpuRunner(first_gpu())
    runner.run(launch, [out, sums])
    for m, found in zip(basis.moduli, out, strict=True):
        assert ((sums - found) % m == 0).all()
        assert (np.abs(found.astype(int)) <= m // 2).all()


@devices
@engines
@pytest.mark.parametrize("rows", [9, 129])  # by blocks alone, and by pairs of them
def test_steps_that_take_their_turns_in_shared_memory(device: str, arch: str, rows: int) -> None:
    """More of them than there are places, over several tiles and pairs of odd depths."""
    rng = np.random.default_rng(11)
    pairs = [
        (random_words(rng, (2, rows, k), np.uint32), random_words(rng, (2, k, 21), np.uint32))
        for k in (1100, 3, 190)
    ]
    by_kernels(pairs, 32, device, DeviceShape(3, arch))


def test_when_residues_are_worth_it() -> None:
    def is_worth(limbs: int, side: int, depth: int, arch: str = "sm_90") -> bool:
        ring = Ring(32 if limbs <= 4 else 64, limbs)
        return Shape(ring, 1, side, side, (depth,)).is_worth(DeviceShape(132, arch))

    assert is_worth(8, 8192, 8192)
    assert is_worth(5, 8192, 8192)
    assert not is_worth(4, 8192, 8192, "sm_80")  # as many products, and bytes to move
    assert is_worth(4, 8192, 8192)  # as many, but by limbs they take twice the time
    kept = Shape(Ring(32, 4), 1, 8192, 8192, (8192,), (True, False))
    assert kept.is_worth(DeviceShape(132, "sm_90"))  # fewer bytes, and a product costs less
    assert not is_worth(8, 256, 256)
    assert not is_worth(8, 8192, 64)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "sm_120"])
def test_kernels_that_a_device_has_the_shared_memory_for(arch: str) -> None:
    device = DeviceShape(1, arch)
    for rows in (1, 128, 129, 4096):
        assert engine_of(device, rows).shared_bytes <= device.shared_bytes
    assert (engine_of(device, 4096) is MMA) == (arch != "sm_90")


def test_what_residues_are_not_able_to() -> None:
    """Sums beyond 32 bits, and more scratch memory than a party should be asked for."""
    ring = Ring(64, 8)
    assert Shape(ring, 1, 64, 64, (MAX_DEPTH,)).is_able
    assert not Shape(ring, 1, 64, 64, (MAX_DEPTH, 1)).is_able
    large = Shape(ring, 1, 1 << 15, 1 << 15, (8192,))
    assert large.places[2] > MAX_SCRATCH
    assert not large.is_able


def test_packed_residues_need_no_scratch_memory_and_no_launch() -> None:
    """What is fixed is reduced once, and counts for less where ways are compared."""
    moving = buffers_of_product()
    fixed = [moving[0], moving[1], replace(moving[2], is_fixed=True)]
    every_time, once = (by_residues(each, [64], SM90) for each in (moving, fixed))
    assert [launch.entry for launch in every_time[1:]] == [launch.entry for launch in once]
    assert once[0].scratch_bytes == every_time[0].scratch_bytes - 18 * plane_bytes(96, 128)
    right = once[1].arguments[2]
    assert isinstance(right, Packed)
    assert right.bytes == 18 * plane_bytes(96, 128)
    assert [launch.entry for launch in right.launches] == [every_time[1].entry]
    skinny = Shape(Ring(64, 8), 1, 128, 768, (4096,))
    assert not skinny.is_worth(SM90)
    assert replace(skinny, packed=(False, True)).is_worth(SM90)


def buffers_of_product() -> list[Buffer]:
    """[1, 64, 96] = [1, 64, 100] x [1, 100, 96] in words of 64 bits."""
    shapes = ((1, 64, 96), (1, 64, 100), (1, 100, 96))
    return [
        Buffer(0, 1 << 20 + i, Kind.WORDS64, 64, s, (s[1] * s[2], s[2], 1))
        for i, s in enumerate(shapes)
    ]


def test_what_is_packed_twice_has_one_place() -> None:
    moving = buffers_of_product()
    fixed = [moving[0], moving[1], replace(moving[2], is_fixed=True)]
    other = [*fixed[:2], replace(fixed[2], offset=64)]
    steps = [by_residues(each, [64], SM90) for each in (fixed, other, fixed)]
    laid = placed(steps)
    size = 18 * plane_bytes(96, 128)
    assert laid.bytes == 2 * -(-size // 256) * 256
    places = [step[1].arguments[2] for step in laid.steps]
    assert places == [Pointer(PACKED, place) for place in (0, laid.bytes // 2, 0)]
    assert [fill.arguments[0] for fill in laid.fills] == places[:2]
    assert [fill.arguments[1] for fill in laid.fills] == [fixed[2].pointer, Pointer(0, 64)]
