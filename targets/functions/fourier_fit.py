"""Fourier series that are close to real functions on an interval, the rest of the period free.

    triangle    x/2 + an even function: odd multiples of cosines     gelu, silu, softplus
    square      a constant + an odd function: odd multiples of sines     sigmoid, tanh, erf
    free        every multiple, cosines and sines     exp, log, sqrt, rsqrt, reciprocal

The coefficients are least squares on Chebyshev's points, with as few terms as keep the error under
a goal that is measured between the points. All in decimal arithmetic of 36 digits, so that every
machine finds the same integers. A free sum is a Fourier extension (Huybrechs, SIAM J. Numer. Anal.
2010): a smooth function on part of a period, which needs not be periodic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import Enum
from functools import cache, partial
from itertools import chain, pairwise
from math import factorial
from operator import mul

DIGITS = 36
PI = Decimal("3.14159265358979323846264338327950288419716939937511")
MOST_TERMS = 48
COUNTS = (*range(1, 13), *range(14, 25, 2), 27, 30, 34, 38, 43, MOST_TERMS)
FIRST_PLACES = (3, 7, 15, len(COUNTS) - 1)  # in COUNTS, where nothing is known yet
MULTIPLES = (
    1,
    3,
    5,
    7,
)  # of the window's own frequency: a finer choice of periods than powers of two
Function = Callable[[Decimal], Decimal]


class Family(Enum):
    """Which terms a function is made of."""

    TRIANGLE = "triangle"
    SQUARE = "square"
    FREE = "free"


@dataclass(frozen=True)
class Fit:
    """constant + sum of cosines[j] cos(k_j t) + sines[j] sin(k_j t), t = 2 pi x / period.

    k_j is 1, 3, 5, ... or, of a free one, 1, 2, 3, ...; `error` is the worst that was found.
    """

    period: Decimal
    constant: Decimal
    cosines: tuple[Decimal, ...]
    sines: tuple[Decimal, ...]
    error: Decimal


def fit(
    function: Function,
    family: Family,
    interval: tuple[Decimal, Decimal],
    periods: Sequence[Decimal],
    goal: Decimal,
) -> Fit | None:
    """The fit with the fewest terms; of equal ones that of the first period. None if none will do.

    More terms are taken to be closer: each period is tried with fewer terms than the best so far,
    and with fewer still only where these do.

    Args:
        function: what the terms sum to to be; even for a triangle, odd for a square.
        interval: where; for a triangle or a square from 0 on.
        goal: the error that is good enough.
    """

    samples = cache(partial(_samples, function, family, interval))

    def attempt(period: Decimal, place: int) -> Fit | None:
        return _fitted(samples(COUNTS[place]), family, period, COUNTS[place], goal)

    with localcontext() as context:
        context.prec = DIGITS
        best: Fit | None = None
        place = len(COUNTS)  # in COUNTS, of the best
        for period in periods:
            if place == 0:
                break
            least, found = 0, None
            for tried in FIRST_PLACES if best is None else (place - 1,):
                if (found := attempt(period, tried)) is not None:
                    best, place = found, tried
                    break
                least = tried + 1
            while found is not None and least < place:
                middle = (least + place) // 2
                if (closer := attempt(period, middle)) is None:
                    least = middle + 1
                else:
                    best, place = closer, middle
        return best


@dataclass(frozen=True)
class _Samples:
    """Where a fit is made and where it is measured, and what the function is there."""

    points: Sequence[Decimal]
    wanted: Sequence[Decimal]
    between: Sequence[Decimal]
    wanted_between: Sequence[Decimal]


def _samples(
    function: Function, family: Family, interval: tuple[Decimal, Decimal], count: int
) -> _Samples:
    """Of a fit of so many terms, whatever its period."""
    points = _points(interval, 2 * _unknowns(family, count) + 6)
    between = list(_between(interval, points))
    return _Samples(points, [*map(function, points)], between, [*map(function, between)])


def _unknowns(family: Family, count: int) -> int:
    return 2 * count + 1 if family is Family.FREE else count + 1


def _fitted(
    samples: _Samples, family: Family, period: Decimal, count: int, goal: Decimal
) -> Fit | None:
    """None where the error is above the goal, which the first point tells that is too far off."""
    frequency = 2 * PI / period
    rows = [_row(family, frequency * x, count) for x in samples.points]
    columns = list(zip(*rows, strict=True))
    is_free = family is Family.FREE
    matrix = _products_of_all(columns) if is_free else _products_of_odd(family, columns)
    for i, row in enumerate(matrix):  # keeps coefficients from growing where terms hardly differ
        row[i] += (goal / 8) ** 2
    constant, *rest = _solved(
        _cholesky(matrix), [_dot(column, samples.wanted) for column in columns]
    )
    if family is Family.SQUARE:
        constant = Decimal(0)
    worst = Decimal(0)
    for x, y in zip(samples.between, samples.wanted_between, strict=True):
        worst = max(worst, abs(y - constant - _sum(family, frequency * x, rest)))
        if worst > goal:
            return None
    zeros = (Decimal(0),) * count
    if family is Family.FREE:
        return Fit(period, constant, tuple(rest[::2]), tuple(rest[1::2]), worst)
    if family is Family.TRIANGLE:
        return Fit(period, constant, tuple(rest), zeros, worst)
    return Fit(period, constant, zeros, tuple(rest), worst)


def _points(interval: tuple[Decimal, Decimal], count: int) -> list[Decimal]:
    """Chebyshev's, both ends included."""
    low, high = interval
    middle, radius = (low + high) / 2, (high - low) / 2
    return [middle - radius * cos_sin(PI * i / (count - 1))[0] for i in range(count)]


def _between(interval: tuple[Decimal, Decimal], points: Sequence[Decimal]) -> Iterator[Decimal]:
    yield from interval
    for a, b in pairwise(points):
        yield from (a + (b - a) * part / 4 for part in (1, 2, 3))


def _row(family: Family, angle: Decimal, count: int) -> list[Decimal]:
    """1 (0 of a square), and the terms at an angle."""
    first, before, twice = _recurrence(family, angle)
    terms = [_multiples(*ends, twice, count) for ends in zip(first, before, strict=True)]
    row = [Decimal(family is not Family.SQUARE)]
    row += chain.from_iterable(zip(*terms, strict=True))
    return row


def _sum(family: Family, angle: Decimal, coefficients: Sequence[Decimal]) -> Decimal:
    """Of the terms at an angle, each with its coefficient: Clenshaw's, from the last term on."""
    first, before, twice = _recurrence(family, angle)
    total = Decimal(0)
    for kind, (one, zero) in enumerate(zip(first, before, strict=True)):
        last = after = Decimal(0)
        for coefficient in reversed(coefficients[kind :: len(first)]):
            last, after = coefficient + twice * last - after, last
        total += last * one - after * zero
    return total


def _recurrence(
    family: Family, angle: Decimal
) -> tuple[Sequence[Decimal], Sequence[Decimal], Decimal]:
    """Of cosine and sine, those that are terms: the first, and what is before it. Each next one is
    the third, twice the step's cosine, times the last, less the one before it.
    """
    cos, sin = cos_sin(angle)
    if family is Family.FREE:
        return (cos, sin), (Decimal(1), Decimal(0)), 2 * cos
    step = 2 * (cos * cos - sin * sin)
    return ((cos,), (cos,), step) if family is Family.TRIANGLE else ((sin,), (-sin,), step)


def _multiples(first: Decimal, before: Decimal, twice: Decimal, count: int) -> list[Decimal]:
    found = [before, first]
    for _ in range(count - 1):
        before, first = first, twice * first - before
        found.append(first)
    return found[1:]


def cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """By Taylor's series of a 16th of the angle, doubled four times."""
    part = angle % (2 * PI) / 16
    square = part * part
    cos = sin = Decimal(0)
    for even, odd in _taylor():
        cos, sin = even - square * cos, odd - square * sin
    sin *= part
    for _ in range(4):
        cos, sin = cos * cos - sin * sin, 2 * cos * sin
    return cos, sin


@cache
def _taylor() -> list[tuple[Decimal, Decimal]]:
    """1 / (2 n)! and 1 / (2 n + 1)!, the last first; terms below 10^-40 of a 16th are left out."""
    with localcontext() as context:
        context.prec = DIGITS + 2
        pairs = [(factorial(2 * n), factorial(2 * n + 1)) for n in reversed(range(14))]
        return [(1 / Decimal(even), 1 / Decimal(odd)) for even, odd in pairs]


def _dot(a: Sequence[Decimal], b: Sequence[Decimal]) -> Decimal:
    return sum(map(mul, a, b), Decimal(0))


def _products_of_odd(family: Family, columns: Sequence[Sequence[Decimal]]) -> list[list[Decimal]]:
    """Of each column with those up to itself, where columns are 1 (0 of a square), and cosines or
    sines of odd multiples of an angle: a product of two is half a sum, or a difference, of cosines
    of two even multiples, so sums of each of these are all that it takes.
    """
    constant, *terms = columns
    sign = 1 if family is Family.TRIANGLE else -1
    even = [Decimal(len(constant))]  # sums of the cosines of 0, 2, 4, ... times the angle
    for j, term in enumerate(terms):
        even.append(sign * (2 * _dot(terms[0], term) - even[j]))
    for j, term in enumerate(terms[1:], 1):
        even.append(sign * (2 * _dot(terms[-1], term) - even[len(terms) - 1 - j]))
    found = [[_dot(constant, constant)]]
    for j, term in enumerate(terms):
        products = [(even[j - k] + sign * even[j + k + 1]) / 2 for k in range(j + 1)]
        found.append([_dot(constant, term), *products])
    return found


def _products_of_all(columns: Sequence[Sequence[Decimal]]) -> list[list[Decimal]]:
    """The same where columns are 1, and cosines and sines of all multiples of an angle: a product
    of two is half a sum of two multiples', so sums of each multiple are all that it takes.
    """
    cosines, sines = columns[1::2], columns[2::2]
    zero = Decimal(0)
    cos = [Decimal(len(columns[0])), *(sum(c, zero) for c in cosines)]
    sin = [zero, *(sum(s, zero) for s in sines)]
    for c, s in zip(cosines, sines, strict=True):  # of the last multiple and this one together
        cos.append(_dot(cosines[-1], c) - _dot(sines[-1], s))
        sin.append(_dot(sines[-1], c) + _dot(cosines[-1], s))
    found = [cos[:1]]
    for j in range(1, len(cosines) + 1):
        of_cos, of_sin = [cos[j]], [sin[j]]
        for k in range(1, j + 1):
            of_cos += (cos[j - k] + cos[j + k]) / 2, (sin[j + k] - sin[j - k]) / 2
            of_sin += (sin[j + k] + sin[j - k]) / 2, (cos[j - k] - cos[j + k]) / 2
        found += [of_cos[:-1], of_sin]
    return found


def _cholesky(matrix: list[list[Decimal]]) -> list[list[Decimal]]:
    """L with L L^T the symmetric matrix, of which the lower half is given."""
    lower: list[list[Decimal]] = []
    for i, given in enumerate(matrix):
        row: list[Decimal] = []
        for j in range(i):
            row.append((given[j] - _dot(row, lower[j][:j])) / lower[j][j])
        row.append((given[i] - _dot(row, row)).sqrt())
        lower.append(row)
    return lower


def _solved(lower: list[list[Decimal]], right: list[Decimal]) -> list[Decimal]:
    forward: list[Decimal] = []
    for row, wanted in zip(lower, right, strict=True):
        forward.append((wanted - _dot(row[:-1], forward)) / row[-1])
    size = len(lower)
    found = [Decimal(0)] * size
    for i in reversed(range(size)):
        rest = sum((lower[j][i] * found[j] for j in range(i + 1, size)), Decimal(0))
        found[i] = (forward[i] - rest) / lower[i][i]
    return found


@cache
def exp(x: Decimal) -> Decimal:
    return x.exp()


def tanh(x: Decimal) -> Decimal:
    small = exp(-2 * abs(x))
    return ((1 - small) / (1 + small)).copy_sign(x)


def erf(x: Decimal) -> Decimal:
    """By its series; 1 where 1 - erf is below 10^-16."""
    if abs(x) > 6:
        return Decimal(1).copy_sign(x)
    with localcontext() as context:
        context.prec = 2 * DIGITS
        square, term, total, number = x * x, x, x, 0
        while abs(term) > Decimal(10) ** -DIGITS:
            number += 1
            term = -term * square / number
            total += term / (2 * number + 1)
        return total * 2 / PI.sqrt()


def arctangent(x: Decimal) -> Decimal:
    """By its series, after halving the angle until the tangent is small."""
    small, halvings = abs(x), 0
    while small > Decimal("0.1"):
        small, halvings = small / (1 + (1 + small * small).sqrt()), halvings + 1
    square, power, total, number = small * small, small, small, 1
    while abs(power) > Decimal(10) ** -DIGITS:
        power, number = -power * square, number + 2
        total += power / number
    return (total * Decimal(2) ** halvings).copy_sign(x)
