"""Truncation in every suite: floor or floor plus one, unbiased, for every secret in small rings."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import SETTINGS, Integers, Setting, Trace

from veilgraph.ir.meaning.integers import center
from veilgraph.ir.meaning.party import uniform_draws
from veilgraph.targets.linear import additive

SIZES = (1, 2, 63, 64, 65, 191, 192, 193, 577)

settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)
secure = pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)


def truncated(
    setting: Setting, z: Integers, k: int, f: int, K: int, form: str = "shared", turn: int = 0
) -> Integers:
    trace = Trace(setting, turn)
    x = trace.share("x", z.shape, k)
    x = additive(x) if form == "additive" else x
    trace.reveal(trace.apply("truncate", z.shape, K, {"bits": f}, x))
    return trace.run({"x": z}, uniform_draws(np.random.default_rng([k, f, K, z.size])))


def rounding(z: Integers, y: Integers, f: int, K: int) -> Integers:
    """What y is above floor(z / 2^f), in Z_2^K."""
    return center(y - (z >> f), K)


@settings
@pytest.mark.parametrize("k", [3, 4, 8, 9])
def test_every_secret_of_a_small_ring(setting: Setting, k: int) -> None:
    z = np.tile(np.arange(-(1 << (k - 2)), 1 << (k - 2)), 32)
    for f in range(1, k - 1):
        for K in {max(k - f - 1, 2), k - f, k - f + 1, k - 1, k, k + 1, 2 * k, 64}:
            if k - 1 - f <= K:  # else the result does not fit
                error = rounding(z, truncated(setting, z, k, f, K), f, K)
                assert set(error) <= {0, 1}, (f, K)


@pytest.mark.parametrize("form", ["shared", "additive"])
@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.suite.name == "rep3"], ids=str)
def test_sizes_and_roles(setting: Setting, size: int, turn: int, form: str) -> None:
    z = np.resize(np.arange(-64, 64) * 5 % 128 - 64, size)
    assert set(rounding(z, truncated(setting, z, 8, 3, 8, form, turn), 3, 8)) <= {0, 1}


@settings
@pytest.mark.parametrize(
    ("k", "f", "K"),
    [(24, 8, 24), (32, 12, 32), (32, 30, 32), (40, 14, 40), (52, 1, 52), (64, 16, 64), (64, 62, 64),
     (64, 20, 40), (40, 10, 32), (32, 8, 64), (24, 4, 40), (33, 9, 31)],
)  # fmt: skip
def test_real_rings_up_to_their_bounds(setting: Setting, k: int, f: int, K: int) -> None:
    low, high = -(1 << (k - 2)), (1 << (k - 2)) - 1
    edges = [low, low + 1, high, high - 1, 0, 1, -1, (1 << f) - 1, 1 << f, -(1 << f), (1 << f) + 1]
    spread = np.random.default_rng(k).integers(low, high, 3000, endpoint=True)
    small = spread >> np.arange(3000) % (k - 1)  # of every magnitude
    z = np.concatenate([np.tile(np.clip(edges, low, high), 20), spread, small])
    assert set(rounding(z, truncated(setting, z, k, f, K), f, K)) <= {0, 1}


@secure
@pytest.mark.parametrize(("k", "f"), [(8, 3), (8, 6), (9, 4), (32, 4)])
def test_rounding_is_unbiased(setting: Setting, k: int, f: int) -> None:
    """P(round up) is the dropped fraction, within six standard deviations of each residue."""
    repeats = 1 << (16 - f)
    residues = np.tile(np.arange(1 << f), repeats)
    whole = np.random.default_rng(5).integers(-(1 << (k - 2 - f)), 1 << (k - 2 - f), residues.size)
    z = (whole << f) + residues
    up = rounding(z, truncated(setting, z, k, f, k), f, k).reshape(repeats, -1).mean(0)
    share = np.arange(1 << f) / (1 << f)
    assert up[0] == 0
    assert (np.abs(up - share) <= 6 * np.sqrt(share * (1 - share) / repeats)).all()
