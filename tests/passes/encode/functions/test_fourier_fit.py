"""Fits in decimal arithmetic: cosines, error functions, least squares, and what a fit promises."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import pytest

from veilgraph.targets.functions import fourier_fit
from veilgraph.targets.functions.fourier_fit import COUNTS, DIGITS, Family, cos_sin, erf, fit, tanh


@pytest.fixture(autouse=True)
def digits():  # type: ignore[no-untyped-def]
    with localcontext() as context:
        context.prec = DIGITS
        yield


@pytest.mark.parametrize("x", ["0", "0.1", "-1.5", "3", "5.9", "7", "-40"])
def test_functions(x: str) -> None:
    number, exact = Decimal(x), float(x)
    assert float(erf(number)) == pytest.approx(math.erf(exact), abs=1e-15)
    assert float(tanh(number)) == pytest.approx(math.tanh(exact), abs=1e-15)
    cos, sin = cos_sin(number)
    assert (float(cos), float(sin)) == pytest.approx((math.cos(exact), math.sin(exact)), abs=1e-15)
    assert abs(cos * cos + sin * sin - 1) < Decimal(10) ** -(DIGITS - 3)


@pytest.mark.parametrize("family", Family)
def test_a_fit_is_as_close_as_it_says(family: Family) -> None:
    part = {
        Family.TRIANGLE: lambda x: (1 + (2 * x).exp()).ln() - x,
        Family.SQUARE: tanh,
        Family.FREE: lambda x: (x / 2).exp(),
    }[family]
    low = Decimal(-2) if family is Family.FREE else Decimal(0)
    goal = Decimal("1e-4")
    found = fit(part, family, (low, Decimal(2)), [Decimal(8), Decimal(10)], goal)
    assert found is not None
    assert found.error <= goal
    x = np.linspace(float(low), 2, 500)
    step = 1 if family is Family.FREE else 2
    angles = 2 * np.pi * x / float(found.period)
    total = np.full(x.shape, float(found.constant))
    for j, (a, b) in enumerate(zip(found.cosines, found.sines, strict=True)):
        total += float(a) * np.cos((1 + step * j) * angles)
        total += float(b) * np.sin((1 + step * j) * angles)
    exact = np.array([float(part(Decimal(float(v)))) for v in x])
    assert np.abs(total - exact).max() < 1.2e-4


def test_no_fit_where_series_are_too_few() -> None:
    found = fit(lambda x: tanh(1000 * x), Family.SQUARE, (Decimal(0), Decimal(2)), [Decimal(8)],
                Decimal("1e-4"))  # fmt: skip
    assert found is None


def test_few_fits_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with an LSTM has hundreds of functions, and each fit takes a tenth of a second."""
    tried: list[tuple[Decimal, int]] = []
    solve = fourier_fit._fitted

    def counted(samples, family, period, count, goal):  # type: ignore[no-untyped-def]
        tried.append((period, count))
        return solve(samples, family, period, count, goal)

    monkeypatch.setattr(fourier_fit, "_fitted", counted)
    interval, goal = (Decimal(0), Decimal(4)), Decimal("1e-5")
    periods = [Decimal(18), Decimal(20), Decimal(22), Decimal(24)]
    found = fit(tanh, Family.SQUARE, interval, periods, goal)
    assert found is not None
    assert len(tried) == len(set(tried)) <= 12
    samples = partial(fourier_fit._samples, tanh, Family.SQUARE, interval)
    fewest = min(
        count
        for period in periods
        for count in COUNTS[:12]
        if solve(samples(count), Family.SQUARE, period, count, goal) is not None
    )
    assert len(found.sines) == fewest
