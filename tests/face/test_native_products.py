"""Products by the kernels have the bits of ir/meaning/, whatever rings, shapes and windows."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.compilation.native_products import NativeProducts
from veilgraph.ir.meaning.integers import Integers, NumpyProducts, Windows, center

NATIVE, REFERENCE = NativeProducts(least=0), NumpyProducts()
RINGS = (8, 19, 24, 32, 33, 40, 52, 56, 64)


def numbers(generator: np.random.Generator, shape: tuple[int, ...], bits: int) -> Integers:
    """Of all of a ring, its ends among them."""
    half = 1 << (bits - 1)
    made = generator.integers(-half, half - 1, shape, np.int64, endpoint=True)
    made.flat[:2] = -half, half - 1
    return made


def assert_alike(found: Integers, wanted: Integers, ring_bits: int) -> None:
    assert found.dtype == wanted.dtype == np.int64
    np.testing.assert_array_equal(center(found, ring_bits), center(wanted, ring_bits))


@pytest.mark.parametrize("ring_bits", RINGS)
@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((3, 5), (5, 4)),
        ((2, 3, 5), (5, 4)),
        ((2, 3, 3, 5), (2, 3, 5, 4)),
        ((3, 5), (2, 5, 4)),
        ((2, 1, 3, 5), (3, 5, 1)),
        ((1, 70), (70, 33)),
        ((5,), (5, 4)),
        ((3, 5), (5,)),
        ((0, 5), (5, 4)),
        ((3, 0), (0, 4)),
    ],
)
def test_matrices(ring_bits: int, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    generator = np.random.default_rng(ring_bits)
    given = [
        numbers(generator, shape, ring_bits) if np.prod(shape) > 1 else np.zeros(shape, np.int64)
        for shape in (x, w)
    ]
    found = NATIVE.matmul(*given, ring_bits)
    assert_alike(found, REFERENCE.matmul(*given, ring_bits), ring_bits)


def test_a_transposed_operand() -> None:
    generator = np.random.default_rng(0)
    x, w = (numbers(generator, (2, 4, 6), 32) for _ in range(2))
    found = NATIVE.matmul(x, w.transpose(0, 2, 1), 32)
    assert_alike(found, REFERENCE.matmul(x, w.transpose(0, 2, 1), 32), 32)


@pytest.mark.parametrize("ring_bits", [32, 40, 64])
@pytest.mark.parametrize("copied", [1, 4 * 73 * 3, 1000])
@pytest.mark.parametrize("x", [(3, 70), (2, 3, 70), (1, 70)])
@pytest.mark.parametrize("w", [(70, 128), (70, 131), (70, 260), (2, 70, 131)])
def test_columns_in_turn(
    ring_bits: int, copied: int, x: tuple[int, ...], w: tuple[int, ...]
) -> None:
    """Whatever share of a matrix's columns is copied at a time."""
    generator, products = np.random.default_rng(ring_bits), NativeProducts(least=0, copied=copied)
    given = [numbers(generator, shape, ring_bits) for shape in (x, w)]
    found = products.matmul(*given, ring_bits)
    assert_alike(found, REFERENCE.matmul(*given, ring_bits), ring_bits)


@pytest.mark.parametrize("seed", range(60))
def test_convolutions(seed: int) -> None:
    """Of random windows; of one to three spatial dimensions."""
    generator = np.random.default_rng(seed)
    ring_bits, rank = RINGS[seed % len(RINGS)], (2, 2, 2, 1, 3)[seed % 5]

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(generator.integers(low, high, rank, endpoint=True).tolist())

    windows = Windows(each(1, 3), each(1, 2), each(0, 2), each(0, 2), each(1, 2))
    groups, depth, filters = generator.integers(1, 3, 3, endpoint=True).tolist()
    x = numbers(generator, (2, groups * depth, *each(6, 9)), ring_bits)
    w = numbers(generator, (groups * filters, depth, *windows.kernel), ring_bits)
    found = NATIVE.conv(x, w, windows, groups, ring_bits)
    assert_alike(found, REFERENCE.conv(x, w, windows, groups, ring_bits), ring_bits)


def test_a_depthwise_convolution() -> None:
    generator = np.random.default_rng(1)
    windows = Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    x, w = numbers(generator, (1, 17, 9, 9), 40), numbers(generator, (17, 1, 3, 3), 40)
    found = NATIVE.conv(x, w, windows, 17, 40)
    assert_alike(found, REFERENCE.conv(x, w, windows, 17, 40), 40)


@pytest.mark.parametrize("least", [59, 60, 61])
def test_small_products_have_the_same_bits(least: int) -> None:
    """Of 60 products of two numbers, where a kernel is for so many, or for more."""
    generator, products = np.random.default_rng(7), NativeProducts(least=least)
    x, w = numbers(generator, (3, 5), 40), numbers(generator, (5, 4), 40)
    assert_alike(products.matmul(x, w, 40), REFERENCE.matmul(x, w, 40), 40)
    image, kernel = numbers(generator, (1, 1, 4, 6), 40), numbers(generator, (1, 1, 1, 1), 40)
    windows = Windows((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    kernels = np.concatenate([kernel] * 2), np.concatenate([kernel] * 3)
    for each in kernels:
        found = products.conv(image, each, windows, 1, 40)
        assert_alike(found, REFERENCE.conv(image, each, windows, 1, 40), 40)
