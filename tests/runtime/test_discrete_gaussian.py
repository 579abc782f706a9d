"""The sampler of discrete Gaussian noise: its distribution, exact bits, and streams of its own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from veilgraph.runtime import randomness
from veilgraph.runtime.discrete_gaussian import Sampler

COUNT = 60_000
MOST = 6.0  # standard deviations that a count may be off by


def density(variance: float, x: int) -> float:
    far = range(-60, 61)
    return math.exp(-(x**2) / (2 * variance)) / sum(math.exp(-(i**2) / (2 * variance)) for i in far)


@pytest.mark.parametrize("variance", [1, 2, 7, 40])
def test_each_number_comes_as_often_as_it_is_likely(variance: int) -> None:
    found = Sampler(bytes(16)).gaussian(variance, COUNT)
    for x in range(-8, 9):
        wanted = density(variance, x)
        spread = math.sqrt(COUNT * wanted * (1 - wanted)) + 1
        assert abs(int((found == x).sum()) - COUNT * wanted) < MOST * spread


@pytest.mark.parametrize("variance", [10**6 + 3, 2**80, 3**100])
def test_numbers_of_any_size(variance: int) -> None:
    """In standard deviations they are a normal's: mean, variance, and the share within one."""
    found = Sampler(bytes(16)).gaussian(variance, COUNT)
    real = np.array([x / math.isqrt(variance) for x in found])
    assert abs(real.mean()) < MOST / math.sqrt(COUNT)
    assert abs(real.var() - 1) < MOST * math.sqrt(2 / COUNT)
    assert abs((np.abs(real) < 1).mean() - 0.6827) < MOST * 0.5 / math.sqrt(COUNT)


class Given(Sampler):
    """Words that a test gives."""

    def __init__(self, *words: int) -> None:
        super().__init__(bytes(16))
        self.words = list(words)

    def _words(self, count: int) -> np.ndarray:
        taken, self.words = self.words[:count], self.words[count:]
        return np.array(taken, np.uint64)


def test_a_bernoulli_draw_compares_all_digits() -> None:
    """1 / 3 is 0x5555 and so on without end: a word that is equal is followed by another."""
    third = int(Fraction(2**64, 3))
    for words, wanted in (
        ((third - 1,), True),
        ((third + 1,), False),
        ((third, third - 1), True),
        ((third, third, third + 1), False),
    ):
        assert Given(*words)._bernoulli(np.array([1], object), 3).tolist() == [wanted]
    certain = Given(2**64 - 1)._bernoulli(np.array([5], object), 5)
    never = Given(0, 1)._bernoulli(np.array([0], object), 5)
    assert (certain.tolist(), never.tolist()) == ([True], [False])


def test_uniform_numbers_favour_none() -> None:
    """Words beyond the last whole multiple are drawn again."""
    fair = 2**64 - 2**64 % 3
    assert Given(fair, 2)._below(3, 1).tolist() == [2]
    assert Given(fair - 1)._below(3, 1).tolist() == [2]


def test_samplers_have_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh from the operating system, and no draw is made twice."""
    assert not np.array_equal(Sampler().gaussian(10**6, 20), Sampler().gaussian(10**6, 20))
    used: list[tuple[bytes, int]] = []
    elements = randomness.elements

    def watched(key: bytes, run: int, draw: int, count: int, lane_bits: int) -> np.ndarray:
        used.append((key, draw))
        return elements(key, run, draw, count, lane_bits)

    monkeypatch.setattr(randomness, "elements", watched)
    sampler = Sampler()
    first, second = sampler.gaussian(10**6, 50), sampler.gaussian(10**6, 50)
    assert not np.array_equal(first, second)
    assert len(used) == len(set(used)) > 4
