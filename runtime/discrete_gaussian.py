"""Discrete Gaussian noise, exact: from uniform bits by integer comparisons, no floating point.

Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (NeurIPS 2020), algorithms
1 to 3: a Bernoulli draw of exp(-g) is a race of Bernoulli draws of g / k, a discrete Laplace number
a race of these, and the Gaussian a Laplace number that is accepted. P(x) is in proportion to
exp(-x^2 / (2 s)) over all integers x. All numbers are drawn at once, and integers have no bound.

Bits come from a key that nobody else has, of the one randomness module; each draw of it is used
once. How long a call takes depends on what it draws, as in any sampling by rejection.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.runtime import randomness

Bits = npt.NDArray[np.bool_]
Integers = npt.NDArray[Any]  # Python's, of any size
WORD_BITS = 64


class Sampler:
    """Noise of one party.

    Args:
        key: a stream that is this sampler's alone; fresh, from the operating system, if None.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = randomness.fresh_seed() if key is None else key
        self._draw = 0

    def gaussian(self, variance: int, count: int) -> Integers:
        """`count` numbers with P(x) in proportion to exp(-x^2 / (2 variance)).

        Args:
            variance: s, 1 or more. The true variance is s but for less than 10^-6 of it.
        """
        assert variance >= 1
        scale, found = isqrt(variance) + 1, np.zeros(count, object)
        left = np.arange(count)
        while left.size:
            y = self._laplace(scale, left.size)
            top = (abs(y) * scale - variance) ** 2
            accepted = self._exponential(top, 2 * variance * scale**2)
            found[left[accepted]] = y[accepted]
            left = left[~accepted]
        return found

    def _laplace(self, scale: int, count: int) -> Integers:
        """P(x) in proportion to exp(-|x| / scale)."""
        found, left = np.zeros(count, object), np.arange(count)
        while left.size:
            u = self._below(scale, left.size)
            accepted = self._exponential(u, scale)
            x = u + scale * self._successes(left.size)
            negative = self._words(left.size) & np.uint64(1) == 1
            accepted &= ~(negative & (x == 0))
            found[left[accepted]] = np.where(negative, -x, x)[accepted]
            left = left[~accepted]
        return found

    def _successes(self, count: int) -> Integers:
        """How many Bernoulli draws of exp(-1) succeed before one fails."""
        found, left = np.zeros(count, object), np.arange(count)
        while left.size:
            left = left[self._race(np.ones(left.size, object), 1)]
            found[left] += 1
        return found

    def _exponential(self, top: Integers, bottom: int) -> Bits:
        """1 with probability exp(-top / bottom), of any size."""
        whole, rest = top // bottom, top % bottom
        found = self._race(rest, bottom)
        left, passed = np.flatnonzero(found & (whole > 0)), 0
        while left.size:
            holds = self._race(np.ones(left.size, object), 1)
            found[left[~holds]] = False
            passed += 1
            left = left[holds & (whole[left] > passed)]
        return found

    def _race(self, top: Integers, bottom: int) -> Bits:
        """1 with probability exp(-top / bottom), which is at most 1: algorithm 1."""
        found, left, number = np.zeros(len(top), bool), np.arange(len(top)), 0
        while left.size:
            number += 1
            goes_on = self._bernoulli(top[left], bottom * number)
            found[left[~goes_on]] = number % 2 == 1
            left = left[goes_on]
        return found

    def _bernoulli(self, top: Integers, bottom: int) -> Bits:
        """1 with probability top / bottom: uniform words against the digits of the quotient."""
        found, left, rest = np.zeros(len(top), bool), np.arange(len(top)), top
        while left.size:
            shifted = rest << WORD_BITS
            digits, rest = shifted // bottom, shifted % bottom
            words = self._words(left.size).astype(object)
            found[left] = words < digits
            undecided = (words == digits).astype(bool)
            left, rest = left[undecided], rest[undecided]
        return found

    def _below(self, end: int, count: int) -> Integers:
        """Uniform integers in [0, end): words that would favour some are drawn again."""
        words = -(-end.bit_length() // WORD_BITS)
        whole = 1 << (WORD_BITS * words)
        fair, found, left = whole - whole % end, np.zeros(count, object), np.arange(count)
        while left.size:
            drawn = np.zeros(left.size, object)
            for _ in range(words):
                drawn = (drawn << WORD_BITS) + self._words(left.size).astype(object)
            accepted = (drawn < fair).astype(bool)
            found[left[accepted]] = drawn[accepted] % end
            left = left[~accepted]
        return found

    def _words(self, count: int) -> npt.NDArray[np.uint64]:
        found = randomness.elements(self._key, 0, self._draw, count, WORD_BITS)
        self._draw += 1
        return found.astype(np.uint64)
