"""Point functions: every index of small trees, kernels against their reference, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from calling import DEVICES, call, displaced
from hypothesis import given, settings
from hypothesis import strategies as st

from veilgraph.kernels.native import supported
from veilgraph.kernels.point.declaration import WORDS, Params
from veilgraph.kernels.point.reference import point_rows, point_words

Array = npt.NDArray[Any]
devices = pytest.mark.parametrize("device", DEVICES)
word_types = pytest.mark.parametrize("lane_bits", [1, 2])


def blocks(rng: np.random.Generator, count: int) -> Array:
    return displaced(rng.integers(0, 2**64, (count, 2), np.uint64))


def word_of(lane_bits: int) -> type[Any]:
    return np.uint32 if lane_bits == 2 else np.uint64


@word_types
@pytest.mark.parametrize("index_bits", range(1, 8))
def test_rows_add_up_to_the_unit_of_every_index(index_bits: int, lane_bits: int) -> None:
    rng = np.random.default_rng(index_bits)
    count = 1 << index_bits
    indices = np.arange(count, dtype=np.uint64)
    key, roots = blocks(rng, 1), [blocks(rng, count) for _ in range(2)]
    make = Params(WORDS, index_bits, lane_bits)
    words = point_words(make, key, *roots, indices)
    assert words.shape == (count, make.levels + 2, 2)
    parts = [
        point_rows(Params(i, index_bits, lane_bits), key, roots[i], words, count) for i in (0, 1)
    ]
    np.testing.assert_array_equal(parts[0] + parts[1], np.eye(count))
    assert all((part != 0).mean() > 0.99 for part in parts)
    opened = rng.integers(0, 2**64, count, np.uint64)
    turned = [
        point_rows(Params(i, index_bits, lane_bits), key, roots[i], words, count, opened)
        for i in (0, 1)
    ]
    found = (opened - indices) & np.uint64(count - 1)
    np.testing.assert_array_equal(turned[0] + turned[1], np.eye(count)[found])


@devices
@settings(deadline=None, max_examples=25)
@given(data=st.data(), seed=st.integers(0, 2**32), threads=st.sampled_from([1, 2]))
def test_kernels_make_what_the_reference_makes(
    device: str, data: st.DataObject, seed: int, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    index_bits = data.draw(st.integers(1, 14 if device in supported() else 10))
    lane_bits, count = data.draw(st.sampled_from([1, 2])), data.draw(st.integers(0, 5))
    places = data.draw(st.integers(0, 1 << index_bits))
    key, roots = blocks(rng, 1), [blocks(rng, count) for _ in range(2)]
    word = data.draw(st.sampled_from([np.uint32, np.uint64]))
    indices = rng.integers(0, 2**32, count).astype(word)
    make = Params(WORDS, index_bits, lane_bits)
    words = displaced(np.zeros((count, make.levels + 2, 2), np.uint64))
    flat = [words.reshape(-1), key.reshape(-1), *(each.reshape(-1) for each in roots)]
    call("point", [*flat, indices], make.values(), device=device, threads=threads)
    expected = point_words(make, key, *roots, indices)
    np.testing.assert_array_equal(words, expected)
    given = [None, rng.integers(0, 2**32, count).astype(indices.dtype)]
    for party in (0, 1):
        for opened in given:
            params = Params(party, index_bits, lane_bits)
            rows = np.full((count, places), 7, word_of(lane_bits))
            operands = [rows, key.reshape(-1), roots[party].reshape(-1), words.reshape(-1)]
            operands += [] if opened is None else [opened]
            call("point", operands, params.values(), device=device, threads=threads)
            expected_rows = point_rows(params, key, roots[party], words, places, opened)
            np.testing.assert_array_equal(rows, expected_rows)


def operands(party: int) -> list[Array]:
    """Of two indices among 16 places: 4 blocks of words each, in 2 levels."""
    rows = [np.zeros((2, 16), np.uint32)] if party < WORDS else [np.zeros(16, np.uint64)]
    rest = [np.zeros(2, np.uint64), np.zeros(4, np.uint64)]
    rest += [np.zeros(4 if party == WORDS else 16, np.uint64), np.zeros(2, np.uint32)]
    return [*rows, *rest]


WRONG: dict[str, tuple[int, dict[int, Array], str]] = {
    "rows of other words": (0, {0: np.zeros((2, 16), np.uint64)}, "no matrix of such words"),
    "a row alone": (0, {0: np.zeros(32, np.uint32)}, "no matrix of such words"),
    "rows with gaps": (0, {0: np.zeros((2, 18), np.uint32)[:, :16]}, "no matrix of such words"),
    "more places": (1, {0: np.zeros((2, 17), np.uint32)}, "more places than a tree has"),
    "no key": (0, {1: np.zeros(0, np.uint64)}, "wrong number of blocks"),
    "one root": (1, {2: np.zeros(2, np.uint64)}, "wrong number of blocks"),
    "roots with gaps": (0, {2: np.zeros(8, np.uint64)[::2]}, "not blocks in a row"),
    "roots of words": (0, {2: np.zeros(4, np.uint32)}, "not blocks in a row"),
    "fewer words": (0, {3: np.zeros(14, np.uint64)}, "wrong number of blocks"),
    "fewer opened": (0, {4: np.zeros(1, np.uint32)}, "wrong number of words"),
    "fewer words made": (WORDS, {0: np.zeros(14, np.uint64)}, "wrong number of blocks"),
    "one second root": (WORDS, {3: np.zeros(2, np.uint64)}, "wrong number of blocks"),
    "indices with gaps": (WORDS, {4: np.zeros(4, np.uint64)[::2]}, "not words in a row"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_tree_does_not_fit_is_refused(what: str) -> None:
    party, changed, reason = WRONG[what]
    given = [changed.get(i, each) for i, each in enumerate(operands(party))]
    with pytest.raises(ValueError, match=reason):
        call("point", given, Params(party, 4, 2).values())


@pytest.mark.parametrize("party", range(3))
def test_another_number_of_buffers_is_refused(party: int) -> None:
    given = operands(party)
    call("point", given, Params(party, 4, 2).values())
    with pytest.raises(ValueError, match="wrong number of buffers"):
        call("point", given[:3], Params(party, 4, 2).values())
    with pytest.raises(ValueError, match="wrong number of buffers"):
        call("point", [*given, given[1]], Params(party, 4, 2).values())
