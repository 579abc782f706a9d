"""Comparison functions: every threshold and point of small trees, kernels against their reference,
what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import DEVICES, call, displaced
from hypothesis import given, settings
from hypothesis import strategies as st

from veilgraph.kernels.compare.declaration import WORDS, Params
from veilgraph.kernels.compare.reference import compare_parts, compare_words

Array = npt.NDArray[Any]
devices = pytest.mark.parametrize("device", DEVICES)


def blocks(rng: np.random.Generator, count: int) -> Array:
    return displaced(rng.integers(0, 2**64, (count, 2), np.uint64))


def word_of(params: Params) -> type[Any]:
    return np.uint32 if params.lanes == 4 else np.uint64


def numbers(rng: np.random.Generator, count: int, word: type[Any]) -> Array:
    return rng.integers(0, np.iinfo(word).max, count, word, endpoint=True)


def sections(params: Params, words: Array, count: int) -> list[Array]:
    seeds = count * params.levels * params.lanes
    return np.split(words, [seeds + j * count * params.rows for j in range(params.payloads)])


def sides(make: Params) -> list[Params]:
    return [replace(make, party=i) for i in (0, 1)]


def reduced(make: Params, rows: Array) -> Array:
    """Rows of numbers in the rings of their payloads."""
    return rows & np.array([(1 << bits) - 1 for bits in make.rings], rows.dtype)[:, None]


@pytest.mark.parametrize("rings", [(32,), (7, 32), (32, 32, 15), (1, 64), (40, 40, 3)])
@pytest.mark.parametrize("index_bits", [3, 4, 6])
def test_parts_add_up_to_the_payload_below_every_threshold(
    index_bits: int, rings: tuple[int, ...]
) -> None:
    rng, make = np.random.default_rng(index_bits), Params(WORDS, index_bits, *rings)
    payloads = len(rings)
    places = np.arange(1 << index_bits, dtype=np.uint64)
    thresholds, points = (each.ravel() for each in np.meshgrid(places, places))
    count, key = len(points), blocks(rng, 1)
    roots = [blocks(rng, count) for _ in range(2)]
    values = [numbers(rng, count, word_of(make)) for _ in range(payloads)]
    words = compare_words(make, key, *roots, thresholds, values)
    assert words.shape == (count * make.size,)
    cut = sections(make, words, count)
    parts = [
        compare_parts(side, key, root, points, cut).reshape(payloads, count)
        for side, root in zip(sides(make), roots, strict=True)
    ]
    expected = [np.where(points < thresholds, value, 0) for value in values]
    np.testing.assert_array_equal(
        reduced(make, parts[0] + parts[1]), reduced(make, np.array(expected))
    )
    assert all((part != 0).mean() > 0.3 for part in parts)
    high = compare_parts(sides(make)[0], key, roots[0], points + np.uint64(1 << index_bits), cut)
    np.testing.assert_array_equal(high, parts[0].reshape(-1))  # read modulo 2^index_bits


@devices
@settings(deadline=None, max_examples=25)
@given(data=st.data(), seed=st.integers(0, 2**32), threads=st.sampled_from([1, 2]))
def test_kernels_make_what_the_reference_makes(
    device: str, data: st.DataObject, seed: int, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    payloads = data.draw(st.integers(1, 3))
    widest = data.draw(st.sampled_from([32, 64]))
    rings = [data.draw(st.integers(1, widest)) for _ in range(payloads)]
    make = Params(WORDS, data.draw(st.integers(3, 63)), *rings)
    count = data.draw(st.sampled_from([0, 1, 5, 33, 70]))
    word, kinds = word_of(make), st.sampled_from([np.uint32, np.uint64])
    key, roots = blocks(rng, 1), [blocks(rng, count) for _ in range(2)]
    thresholds = numbers(rng, count, data.draw(kinds))
    values = [numbers(rng, count, data.draw(kinds)) for _ in range(payloads)]
    words = displaced(np.zeros(count * make.size, word))
    flat = [words, key.reshape(-1), *(each.reshape(-1) for each in roots)]
    call("compare", [*flat, thresholds, *values], make.values(), device=device, threads=threads)
    np.testing.assert_array_equal(words, compare_words(make, key, *roots, thresholds, values))
    points = np.where(rng.random(count) < 0.5, thresholds, numbers(rng, count, thresholds.dtype))
    seeds, *rest = sections(make, words, count)
    cut = [displaced(seeds), *(each.astype(data.draw(kinds)) for each in rest)]
    for side, root in zip(sides(make), roots, strict=True):
        parts = np.full(payloads * count, 7, word)
        operands = [parts, key.reshape(-1), root.reshape(-1), points.astype(thresholds.dtype), *cut]
        call("compare", operands, side.values(), device=device, threads=threads)
        np.testing.assert_array_equal(parts, compare_parts(side, key, root, points, cut))


COUNT, BITS = 2, 5  # three levels


def operands(party: int) -> list[Array]:
    """Of two elements with one payload in 32 bits."""
    params = Params(party, BITS, 32)
    key, root = np.zeros(2, np.uint64), np.zeros(2 * COUNT, np.uint64)
    known, row = np.zeros(COUNT, np.uint32), np.zeros(COUNT * params.rows, np.uint32)
    if party == WORDS:
        return [np.zeros(COUNT * params.size, np.uint32), key, root, root.copy(), known, known + 0]
    seeds = np.zeros(COUNT * params.levels * 4, np.uint32)
    return [np.zeros(COUNT, np.uint32), key, root, known, seeds, row]


WRONG: dict[str, tuple[int, dict[int, Array], str]] = {
    "parts of other words": (0, {0: np.zeros(COUNT, np.uint64)}, "words of another width"),
    "more parts": (0, {0: np.zeros(COUNT + 1, np.uint32)}, "wrong number of words"),
    "no key": (0, {1: np.zeros(0, np.uint64)}, "wrong number of words"),
    "one root": (1, {2: np.zeros(2, np.uint64)}, "wrong number of words"),
    "roots of words": (0, {2: np.zeros(8, np.uint32)}, "not blocks in a row"),
    "roots with gaps": (0, {2: np.zeros(8, np.uint64)[::2]}, "not words in a row"),
    "points with gaps": (0, {3: np.zeros(4, np.uint32)[::2]}, "not words in a row"),
    "fewer seeds": (0, {4: np.zeros(20, np.uint32)}, "wrong number of words"),
    "seeds of other words": (1, {4: np.zeros(24, np.uint64)}, "words of another width"),
    "fewer numbers": (0, {5: np.zeros(13, np.uint32)}, "wrong number of words"),
    "fewer words made": (WORDS, {0: np.zeros(37, np.uint32)}, "wrong number of words"),
    "one second root": (WORDS, {3: np.zeros(2, np.uint64)}, "wrong number of words"),
    "one payload": (WORDS, {5: np.zeros(1, np.uint64)}, "wrong number of words"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_tree_does_not_fit_is_refused(what: str) -> None:
    party, changed, reason = WRONG[what]
    given = [changed.get(i, each) for i, each in enumerate(operands(party))]
    with pytest.raises(ValueError, match=reason):
        call("compare", given, Params(party, BITS, 32).values())


def refused(given: Sequence[Array], params: Params) -> None:
    with pytest.raises(ValueError, match="wrong number of buffers"):
        call("compare", given, params.values())


@pytest.mark.parametrize("party", range(3))
def test_another_number_of_buffers_is_refused(party: int) -> None:
    given, params = operands(party), Params(party, BITS, 32)
    call("compare", given, params.values())
    refused(given[:5], params)
    refused([*given, given[5]], params)
