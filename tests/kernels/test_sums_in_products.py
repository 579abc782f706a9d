"""Products whose factors are sums that they make while they load: each way, tile, ring and view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import EMULATOR, GPU, Way, call
from gpus import first_gpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_limbs import SM80, SM90, all_least, all_most
from test_linear import assert_equal_in_ring, junk, random_words, seeds

from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind, Launch, Pointer
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.limbs import Access, Ring, Tiling, stages_of, tiles_of, tiling_of
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.reference import matmul as matmul_reference
from veilgraph.kernels.matmul.residues import by_residues

Words = npt.NDArray[Any]
devices = pytest.mark.parametrize("device", [EMULATOR, pytest.param(GPU, marks=pytest.mark.gpu)])
few_rings = pytest.mark.parametrize(
    ("word", "bits"), [(np.uint32, 24), (np.uint64, 40), (np.uint64, 64)]
)
FORMS = ("plain", "turned", "sliced", "reversed", "shared")
TERMS = ((1, 2), (2, 1), (2, 2))


@dataclass(frozen=True)
class Factor:
    """A matrix in memory, and what is added to it: as a view of the same strides, and how many
    bytes further on that lies."""

    words: Words
    addend: Words | None = None
    distance: int = 0

    @property
    def value(self) -> Words:
        return self.words if self.addend is None else self.words + self.addend


def factor(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    word: type[Any],
    form: str = "plain",
    is_sum: bool = True,
    gap: int = 0,
) -> Factor:
    """A view of random words; of a sum, two of equal strides, with `gap` words between them."""
    batch, rows, columns = shape
    inner = {
        "turned": (batch, columns, rows),
        "sliced": (batch, 2 * rows, columns + 3),
        "shared": (1, rows, columns),
    }.get(form, shape)
    count = int(np.prod(inner))
    data = random_words(rng, (2 * count + gap,), word)
    parts = [data[start : start + count].reshape(inner) for start in (0, count + gap)]
    views = [_view(part, form, shape) for part in parts]
    if not is_sum:
        return Factor(views[0])
    return Factor(views[0], views[1], (count + gap) * data.itemsize)


def _view(part: Words, form: str, shape: tuple[int, int, int]) -> Words:
    if form == "turned":
        return part.transpose(0, 2, 1)
    if form == "sliced":
        return part[:, ::2, 1 : shape[2] + 1]
    if form == "reversed":
        return part[:, ::-1, ::-1]
    return np.broadcast_to(part, shape) if form == "shared" else part


def of_sums(way: Way, distances: Mapping[int, int]) -> Way:
    """A product's way where some factors, by number, have addends so many bytes further on."""

    def made(
        buffers: Sequence[Buffer], params: Sequence[int], shape: DeviceShape
    ) -> tuple[Launch, ...]:
        out, *factors = buffers
        for number, distance in distances.items():
            at = factors[number].pointer
            addend = Pointer(at.region, at.offset + distance)
            factors[number] = replace(factors[number], addend=addend)
        return way([out, *factors], params, shape)

    return made


def check(
    pairs: Sequence[tuple[Factor, Factor]],
    bits: int,
    device: str,
    way: Way,
    shape: DeviceShape = SM80,
) -> None:
    if device == GPU and shape.arch not in ("sm_80", first_gpu().gpu.arch):
        pytest.skip(f"the GPU is of {first_gpu().gpu.arch}")
    factors = [each for pair in pairs for each in pair]
    a, b = factors[0].words, factors[1].words
    out = junk((a.shape[0], a.shape[1], b.shape[2]), a.dtype.type)
    distances = {n: each.distance for n, each in enumerate(factors) if each.addend is not None}
    operands = [out, *(each.words for each in factors)]
    call("matmul", operands, [bits], device=device, way=of_sums(way, distances), shape=shape)
    expected = matmul_reference([(a.value, b.value) for a, b in pairs])
    assert_equal_in_ring(out, expected, bits)


def by_limbs(made: Tiling) -> Way:
    return lambda buffers, params, shape: matmul.by_limbs(buffers, params, shape, made)


@st.composite
def products(
    draw: st.DrawFn, word: type[Any], most: tuple[int, int, int], terms: tuple[int, int]
) -> list[tuple[Factor, Factor]]:
    """Pairs of views, of which any factor of a side of two terms may be a sum, and one is."""
    batch, rows, columns = (draw(st.integers(1, extent)) for extent in most)
    rng = np.random.default_rng(draw(seeds))
    form, gap = st.sampled_from(FORMS), st.sampled_from([0, 1, 8])

    def side(shape: tuple[int, int, int], count: int, first: bool) -> Factor:
        is_sum = count == 2 and (first or draw(st.booleans()))
        return factor(rng, shape, word, draw(form), is_sum, draw(gap))

    depths = draw(st.lists(st.integers(1, 70), min_size=1, max_size=3))
    return [
        (
            side((batch, rows, depth), terms[0], p == 0),
            side((batch, depth, columns), terms[1], p == 0),
        )
        for p, depth in enumerate(depths)
    ]


@devices
@few_rings
@settings(deadline=None, max_examples=6)
@given(st.data())
def test_views_by_warps(device: str, word: type[Any], bits: int, data: st.DataObject) -> None:
    terms = data.draw(st.sampled_from(TERMS))
    pairs = data.draw(products(word, (2, 40, 40), terms))
    extents = pairs[0][0].words.shape[0], pairs[0][0].words.shape[1], pairs[0][1].words.shape[2]
    depths = [a.words.shape[2] for a, _ in pairs]
    shape = DeviceShape(data.draw(st.sampled_from([1, 40])), "sm_80")
    plain = limbs.tiling(Ring.of(8 * word().itemsize, bits), extents, depths, shape)
    made = plain.of_sums(terms, shape)
    assume(made is not None)  # a tile that is alone on its processor may leave no memory for sums
    assert made is not None
    check(pairs, bits, device, by_limbs(made), shape)


def groups() -> list[tuple[limbs.WgmmaTile, type[Any], int]]:
    return [
        (limbs.GROUP_80, np.uint32, 24), (limbs.GROUP_80, np.uint32, 32),
        (limbs.GROUP_64, np.uint64, 40), (limbs.GROUP_32, np.uint64, 53),
        (limbs.GROUP_32, np.uint64, 64),
    ]  # fmt: skip


@devices
@pytest.mark.parametrize(("tile", "word", "bits"), groups())
@settings(deadline=None, max_examples=6)
@given(st.data())
def test_views_by_groups(
    device: str, tile: limbs.WgmmaTile, word: type[Any], bits: int, data: st.DataObject
) -> None:
    """Around one tile and two, with parts that end within a pair."""
    terms = data.draw(st.sampled_from(TERMS))
    pairs = data.draw(products(word, (1, tile.rows + 3, tile.columns + 3), terms))
    extents = 1, pairs[0][0].words.shape[1], pairs[0][1].words.shape[2]
    depths = [a.words.shape[2] for a, _ in pairs]
    ring = Ring.of(8 * word().itemsize, bits)
    stages, parts = stages_of(ring, tile, SM90, terms), data.draw(st.integers(1, 3))
    plain = tiling_of(ring, tile, stages, parts, extents, depths)
    check(pairs, bits, device, by_limbs(replace(plain, terms=terms)), SM90)


@devices
@pytest.mark.parametrize(("word", "bits"), [(np.uint32, 32), (np.uint64, 40), (np.uint64, 64)])
@pytest.mark.parametrize("name", limbs.NAMES)
@pytest.mark.parametrize("form", ["plain", "turned", "odd"])
def test_every_tile(device: str, word: type[Any], bits: int, name: str, form: str) -> None:
    """Vectors along depths and along lines, and words; whole tiles and steps, and edges; two pairs,
    of which one has sums; extremes that wrap."""
    ring, tile = Ring.of(8 * word().itemsize, bits), limbs.NAMES[name]
    if tile not in tiles_of(ring, SM90):
        pytest.skip("sums of so many limbs leave it no registers")
    rng = np.random.default_rng(5)
    rows, columns, depth = tile.rows + 4, tile.columns + 4, 4 * limbs.STEP + 4
    turned, gap = {"plain": ("plain", 0), "turned": ("turned", 0), "odd": ("plain", 1)}[form]
    for terms in TERMS[:2]:
        sums = [
            (factor(rng, (1, rows, depth), word, turned, is_sum and terms[0] == 2, gap),
             factor(rng, (1, depth, columns), word, turned, is_sum and terms[1] == 2, gap))
            for is_sum in (True, False)
        ]  # fmt: skip
        for each in sums[0]:
            each.words[0, 0], each.words[0, -1] = all_least(word, (1,)), all_most(word, (1,))
            if each.addend is not None:
                each.addend[0, 0], each.addend[0, -1] = all_least(word, (1,)), all_most(word, (1,))
        stages = stages_of(ring, tile, SM90, terms)
        plain = tiling_of(ring, tile, stages, 1, (1, rows, columns), [depth, depth])
        check(sums, bits, device, by_limbs(replace(plain, terms=terms)), SM90)


@devices
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@few_rings
@settings(deadline=None, max_examples=4)
@given(st.data())
def test_views_by_residues(
    device: str, arch: str, word: type[Any], bits: int, data: st.DataObject
) -> None:
    terms = data.draw(st.sampled_from(TERMS))
    pairs = data.draw(products(word, (2, 20, 20), terms))
    check(pairs, bits, device, by_residues, DeviceShape(1, arch))


@devices
@few_rings
def test_sums_that_wrap_by_residues(device: str, word: type[Any], bits: int) -> None:
    """A sum is an element of the ring: its residues are those of its own balanced limbs."""
    rng = np.random.default_rng(bits)
    a, b = factor(rng, (1, 9, 200), word), factor(rng, (1, 200, 11), word)
    for each in (a, b):
        assert each.addend is not None
        each.words[0, :4], each.words[0, -4:] = all_least(word, (1,)), all_most(word, (1,))
        each.addend[0, :4], each.addend[0, -4:] = all_least(word, (1,)), all_most(word, (1,))
    check([(a, b)], bits, device, by_residues)


def buffers(
    batch: int, rows: int, columns: int, depth: int, addends: Sequence[int] = (2,)
) -> list[Buffer]:
    """A product's in words of 64 bits, the factors of some numbers (1: left, 2: right) sums."""
    shapes = ((batch, rows, columns), (batch, rows, depth), (batch, depth, columns))
    return [
        Buffer(
            0, n << 40, Kind.WORDS64, 64, s, (s[1] * s[2], s[2], 1),
            addend=Pointer(0, n + 4 << 40) if n in addends else None,
        )
        for n, s in enumerate(shapes)
    ]  # fmt: skip


H100 = DeviceShape(132, "sm_90")


def test_a_kernel_takes_sums_where_it_has_launches_of_them() -> None:
    modules = {name: import_module(f"veilgraph.kernels.{name}.cuda") for name in KERNELS}
    taking = {name for name, module in modules.items() if hasattr(module, "launches_of_sums")}
    assert taking == {name for name in KERNELS if DECLARED[name].takes_sums} == {"matmul"}


def test_launches_of_sums_go_the_same_way() -> None:
    """Attention's scores by limbs, with the sum's kernel; a large product by residues."""
    scores = buffers(12, 128, 128, 64)
    plain = matmul.launches([replace(each, addend=None) for each in scores], [64], H100)
    (launch,) = matmul.launches_of_sums(scores, [64], H100)
    assert plain[0].grid == launch.grid
    assert launch.entry == plain[0].entry.replace("_3", "_2_12")
    assert launch.shared_bytes <= H100.shared_bytes
    large = buffers(1, 2048, 4096, 4096)
    made = matmul.launches_of_sums(large, [64], H100)
    assert [each.entry for each in made] == [
        each.entry for each in matmul.launches([replace(b, addend=None) for b in large], [64], H100)
    ]
    assert made[-1].sums is not None


@pytest.mark.parametrize(
    ("extents", "addends"),
    [
        ((1, 4, 4, 8), (2,)),  # by integers
        ((1, 128, 128, 64), (1, 2)),  # no step is copied ahead in shared memory
        ((1, 1 << 16, 128, 96), (2,)),  # 512 tiles read the sum
        ((1, 0, 128, 64), (2,)),
    ],
)
def test_where_sums_had_better_be_made_before(
    extents: tuple[int, int, int, int], addends: tuple[int, ...]
) -> None:
    assert not matmul.launches_of_sums(buffers(*extents, addends), [64], H100)


def test_both_addends_have_to_be_aligned_for_vectors() -> None:
    (_, _, right) = buffers(1, 128, 128, 64)
    odd = replace(right, addend=Pointer(0, 8))
    assert limbs.access([(right, 1, 128)]) is Access.VECTORS_ALONG_LINES
    assert limbs.access([(odd, 1, 128)]) is Access.WORDS_ALONG_LINES
