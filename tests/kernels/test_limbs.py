"""Products on tensor cores by limbs: every tile, ring and view, and as deep as sums are exact."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import EMULATOR, GPU, call, with_fixed
from hypothesis import given, settings
from hypothesis import strategies as st
from test_linear import assert_equal_in_ring, junk, matrix, random_words, seeds

from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind
from veilgraph.kernels.cuda.launch import Packed
from veilgraph.kernels.gemm.limbs import (
    FLAT,
    GROUP_32,
    GROUP_64,
    GROUP_80,
    NAMES,
    SMALL,
    STEP,
    TALL,
    TILES,
    WIDE,
    Access,
    Ring,
    Tile,
    Tiling,
    WgmmaTile,
    access,
    is_worth,
    stages_of,
    tiles_of,
    tiling,
    tiling_of,
)
from veilgraph.kernels.gemm.pack import packed
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.reference import matmul as matmul_reference

Words = npt.NDArray[Any]
devices = pytest.mark.parametrize("device", [EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu)])
SM80, SM89, SM90 = (DeviceShape(1, arch) for arch in ("sm_80", "sm_89", "sm_90"))
RINGS = [(np.uint32, 24), (np.uint32, 32), *((np.uint64, bits) for bits in (40, 48, 53, 64))]
rings = pytest.mark.parametrize(("word", "bits"), RINGS)


def product(
    pairs: Sequence[tuple[Words, Words]],
    bits: int,
    device: str,
    shape: DeviceShape = SM80,
    sides: Collection[int] = (),
    made: Tiling | None = None,
) -> None:
    """By limbs, with the factors of some sides (0: left, 1: right) packed; held against the
    reference."""
    a, b = pairs[0]
    out = junk((a.shape[0], a.shape[1], b.shape[2]), a.dtype.type)
    operands = [out, *(each for pair in pairs for each in pair)]
    way = with_fixed(partial(matmul.by_limbs, made=made), sides)
    call("matmul", operands, [bits], device=device, way=way, shape=shape)
    assert_equal_in_ring(out, matmul_reference(pairs), bits)


@devices
@rings
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_products_of_views(device: str, word: type[Any], bits: int, data: st.DataObject) -> None:
    batch, rows, columns = (data.draw(st.integers(1, most)) for most in (2, 40, 40))
    seed = data.draw(seeds)
    pairs = [
        (
            data.draw(matrix((batch, rows, depth), word, seed + p)),
            data.draw(matrix((batch, depth, columns), word, seed + p + 99)),
        )
        for p, depth in enumerate(data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=5)))
    ]
    shape = DeviceShape(data.draw(st.sampled_from([1, 40])), "sm_80")
    product(pairs, bits, device, shape, data.draw(st.sets(st.integers(0, 1))))


@devices
@pytest.mark.parametrize(
    ("tile", "word", "bits"),
    [
        (GROUP_80, np.uint32, 24), (GROUP_80, np.uint32, 32), (GROUP_64, np.uint64, 40),
        (GROUP_32, np.uint64, 48), (GROUP_32, np.uint64, 53), (GROUP_32, np.uint64, 64),
    ],
)  # fmt: skip
@settings(deadline=None, max_examples=8)
@given(st.data())
def test_products_of_views_by_groups(
    device: str, tile: WgmmaTile, word: type[Any], bits: int, data: st.DataObject
) -> None:
    """Around one tile and two, with parts that end within a pair."""
    rows, columns = (data.draw(st.integers(1, side + 3)) for side in (tile.rows, tile.columns))
    seed = data.draw(seeds)
    depths = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=3))
    pairs = [
        (
            data.draw(matrix((1, rows, depth), word, seed + p)),
            data.draw(matrix((1, depth, columns), word, seed + p + 99)),
        )
        for p, depth in enumerate(depths)
    ]
    ring, parts = Ring.of(8 * word().itemsize, bits), data.draw(st.integers(1, 3))
    made = tiling_of(ring, tile, stages_of(ring, tile, SM90), parts, (1, rows, columns), depths)
    product(pairs, bits, device, SM90, data.draw(st.sets(st.integers(0, 1))), made)


@devices
@rings
@pytest.mark.parametrize("shape", [(70, 130), (16, 150), (150, 16), (1, 1)])
@pytest.mark.parametrize("turned", [False, True])
def test_tiles(
    device: str, word: type[Any], bits: int, shape: tuple[int, int], turned: bool
) -> None:
    """Several tiles each way; steps that are full, and one that isn't."""
    rng = np.random.default_rng(bits)
    rows, columns = shape
    a = random_words(rng, (1, rows, 132), word)
    b = random_words(rng, (1, 132, columns), word)
    if turned:
        a = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
        b = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
    for sides in ((), (0, 1)):
        product([(a, b)], bits, device, sides=sides)


@devices
@pytest.mark.parametrize(("word", "bits"), [(np.uint32, 32), (np.uint64, 40), (np.uint64, 64)])
@pytest.mark.parametrize("name", NAMES)
def test_tiles_stages_and_parts_that_a_row_may_choose(
    device: str, word: type[Any], bits: int, name: str
) -> None:
    """Each tile that a ring leaves registers for, from one stage on, with packed factors too."""
    ring, tile = Ring.of(8 * word().itemsize, bits), NAMES[name]
    rng = np.random.default_rng(3)
    extents = 2, tile.rows + 3, tile.columns + 5
    a = random_words(rng, (2, extents[1], 5 * STEP + 7), word)
    b = random_words(rng, (2, 5 * STEP + 7, extents[2]), word)
    a[0, 0], a[0, -1] = all_least(word, (1,)), all_most(word, (1,))
    b[0, :, 0], b[0, :, -1] = all_least(word, (1,)), all_most(word, (1,))
    most = stages_of(ring, tile, SM90) if tile in tiles_of(ring, SM90) else 0
    for stages in range(1, most + 1):
        made = tiling_of(ring, tile, stages, stages, extents, [a.shape[2]])
        for sides in ((), (stages % 2,)):
            product([(a, b)], bits, device, SM90, sides, made)


@devices
def test_a_batch_of_one_matrix_is_packed_once(device: str) -> None:
    """One of stride 0 over the batch, as weights beside images."""
    rng = np.random.default_rng(4)
    a = np.broadcast_to(random_words(rng, (1, 5, 40), np.uint64), (3, 5, 40))
    product([(a, random_words(rng, (3, 40, 6), np.uint64))], 64, device, sides=(0, 1))


def test_what_packed_factors_take() -> None:
    """Limbs of whole tiles and steps: a byte of each limb, an entry once for all that share it."""
    buffer = Buffer(0, 0, Kind.WORDS64, 40, (3, 65, 33), (0, 33, 1))
    found, entry, tile, step = packed(buffer, (0, 33, 1), (3, 65, 33), Ring(64, 5), SMALL, 0, SM90)
    assert isinstance(found, Packed)
    assert found.bytes == 5 * 128 * 64
    assert (entry, tile * 8, step * 8) == (0, 5 * 64 * 64, 5 * 64 * 32)
    assert (
        packed(buffer, (1, 1, 1), (3, 65, 33), Ring(64, 5), SMALL, 0, SM90)[1] * 8 == 5 * 128 * 64
    )


def all_least(word: type[Any], shape: tuple[int, ...]) -> Words:
    """Elements whose limbs are all -128: plus 128 in each byte, zero."""
    return np.full(shape, -int("80" * word().itemsize, 16) % (1 << 8 * word().itemsize), word)


def all_most(word: type[Any], shape: tuple[int, ...]) -> Words:
    """Elements whose limbs are all 127."""
    return np.full(shape, int("7f" * word().itemsize, 16), word)


@devices
@pytest.mark.parametrize(("word", "bits"), [(np.uint32, 32), (np.uint64, 48), (np.uint64, 64)])
@pytest.mark.parametrize("steps", [-1, 0, 1])
@pytest.mark.parametrize("arch", [SM80, SM90], ids=lambda arch: arch.arch)
def test_the_deepest_exact_sums(
    device: str, word: type[Any], bits: int, steps: int, arch: DeviceShape
) -> None:
    """All limbs -128 or 127, a step less, as many, and one more than 32-bit sums hold.

    A step less is done without packed factors alone: they are read alike at any depth.
    """
    ring = Ring.of(8 * word().itemsize, bits)
    depth = (ring.exact_depth or 8 * STEP) + steps * STEP
    tile: Tile = FLAT if arch is SM80 else GROUP_32
    made = tiling_of(ring, tile, stages_of(ring, tile, arch), 1, (1, 2, 2), [depth])
    ends = np.concatenate([all_least(word, (1, 1)), all_most(word, (1, 1))])
    a = np.broadcast_to(ends[None], (1, 2, depth))
    b = np.broadcast_to(ends.T[None], (1, depth, 2))
    for sides in ((), (0, 1))[: 1 if steps < 0 else 2]:
        product([(a, b)], bits, device, arch, sides, made)


def test_where_sums_stop_being_exact() -> None:
    """Of each weight that must not wrap: what it holds at the depth said, and at a step more."""
    for limbs in range(5, 9):
        depth = Ring(64, limbs).exact_depth
        assert depth is not None
        most = [(w + 1) * depth << 14 for w in range(limbs) if limbs - w > 4]
        assert max(most) < 1 << 31 <= max(most) + (limbs - 4) * STEP << 14
    assert Ring(32, 4).exact_depth is None


@devices
@rings
def test_parts_are_added(device: str, word: type[Any], bits: int) -> None:
    """Depths cut into parts, across pairs of different depths and strides."""
    rng = np.random.default_rng(5)
    depths = (300, 33, 500)
    pairs = [
        (random_words(rng, (1, 9, d), word), random_words(rng, (1, d, 20), word)) for d in depths
    ]
    pairs[1] = (pairs[1][0][:, :, ::-1], pairs[1][1][:, ::-1])
    shape = DeviceShape(3, "sm_80")
    assert tiling(Ring.of(8 * word().itemsize, bits), (1, 9, 20), depths, shape).parts == 3
    product(pairs, bits, device, shape)


@rings
@pytest.mark.parametrize("device", [SM80, SM89, SM90], ids=lambda device: device.arch)
def test_tiles_fit_shared_memory(word: type[Any], bits: int, device: DeviceShape) -> None:
    """Where a tile doesn't, another is taken, on every architecture."""
    ring = Ring.of(8 * word().itemsize, bits)
    for extents in ((1, 512, 512), (1, 1, 512), (1, 512, 1)):
        made = tiling(ring, extents, [512], device)
        assert 1 <= made.stages == stages_of(ring, made.tile, device)
        assert made.shared_bytes <= device.shared_bytes
        assert made.tile is not WIDE or ring.limbs <= 5
        assert not isinstance(made.tile, WgmmaTile) or device is SM90


def test_tiles_by_shape() -> None:
    ring = Ring(32, 4)
    for device in (SM80, SM90):
        assert tiling(ring, (1, 64, 64), [64], device).tile is SMALL
        assert tiling(ring, (1, 8, 512), [64], device).tile is FLAT
        assert tiling(ring, (1, 512, 8), [64], device).tile is TALL
    of_mma = {(t.rows, t.columns) for t in TILES if not isinstance(t, WgmmaTile)}
    assert of_mma == {(64, 128), (64, 64), (16, 128), (128, 16)}


def test_tiles_of_groups_are_for_the_one_architecture_that_has_them() -> None:
    """Of those, the widest that a ring's sums leave registers for; less where it would be empty."""
    large = 1, 8000, 8000
    widest = {3: GROUP_80, 4: GROUP_80, 5: GROUP_64, 6: GROUP_32, 7: GROUP_32, 8: GROUP_32}
    for limbs, tile in widest.items():
        ring = Ring(32 if limbs <= 4 else 64, limbs)
        assert tiling(ring, large, [64], SM90).tile is tile
        for device in (SM80, SM89):
            assert not isinstance(tiling(ring, large, [64], device).tile, WgmmaTile)
    assert tiling(Ring(32, 4), (1, 512, 512), [64], SM90).tile is GROUP_64
    assert tiling(Ring(32, 4), (1, 512, 160), [64], SM90).tile is GROUP_80


def test_what_is_compiled_depends_on_no_number_of_multiprocessors() -> None:
    few, many = (tiling(Ring(64, 8), (1, 100, 100), [1 << 14], DeviceShape(m)) for m in (1, 132))
    assert few.source("matmul") == many.source("matmul")
    assert (few.parts, many.parts) == (1, 33)


def test_limbs_are_not_worth_it_where_tiles_are_empty() -> None:
    ring = Ring(64, 8)
    assert is_worth(ring, (1, 512, 512), [512], SM90)
    assert is_worth(ring, (1, 1, 1000), [2048], SM90)
    assert not is_worth(ring, (1, 512, 512), [1], SM90)
    assert not is_worth(ring, (1, 512, 512), [2**31], SM90)  # counted in 32 bits


def test_how_factors_are_read() -> None:
    def read(strides: tuple[int, int], offset: int = 0, batch: tuple[int, int] = (1, 0)) -> Access:
        shape, steps = (batch[0], 64, 64), (batch[1], *strides)
        buffer = Buffer(0, offset, Kind.WORDS64, 64, shape, steps)
        return access([(buffer, *strides)])

    assert read((64, 1)) is Access.VECTORS_ALONG_DEPTHS
    assert read((1, 64)) is Access.VECTORS_ALONG_LINES
    assert read((65, 1)) is Access.WORDS_ALONG_DEPTHS
    assert read((64, 1), offset=8) is Access.WORDS_ALONG_DEPTHS
    assert read((64, 1), batch=(2, 65)) is Access.WORDS_ALONG_DEPTHS
    assert read((1, 65)) is Access.WORDS_ALONG_LINES
    assert read((-1, 64)) is Access.WORDS_ALONG_LINES
