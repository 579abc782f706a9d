"""A million truncations and comparisons on the native interpreter, with real randomness: none
wrong.

The slow ones are 10^8 truncations and 10^7 comparisons; benchmarks/exactness.py prints theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import SETTINGS, Integers, Setting, Trace
from interpreters import plan_of, run_interpreters, signed

from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.keys import SessionKeys

ELEMENTS = 1_000_000
secure = pytest.mark.parametrize("setting", SETTINGS[:2], ids=str)


def fresh_keys(parties: int) -> list[SessionKeys]:
    """Keys of all parties, as a session makes them."""
    keys = {frozenset({i, j}): fresh_nonce() for i in range(parties) for j in range(i + 1)}
    return [SessionKeys({h: key for h, key in keys.items() if i in h}) for i in range(parties)]


def computed(setting: Setting, op: str, k: int, z: Integers, **attrs: Any) -> Integers:
    """`op` of z, of which float64 must hold every element."""
    trace = Trace(setting)
    x = trace.share("x", z.shape, k)
    trace.reveal(trace.apply(op, z.shape, k, attrs, x))
    keys = fresh_keys(len(setting.target.everyone))
    (ran,) = run_interpreters(plan_of(trace.expanded), keys, [{"x": z}])
    return signed(ran.outputs[0, "y"], k)


@secure
@pytest.mark.parametrize(("k", "f"), [(32, 12), (40, 16), (64, 20)])
def test_truncations_up_to_the_bound(setting: Setting, k: int, f: int) -> None:
    check_truncations(setting, k, f, seed=k)


def check_truncations(setting: Setting, k: int, f: int, seed: int) -> None:
    """Spread evenly up to 2^(k-2): floor or floor plus one, and the errors' mean is zero."""
    bound, coarse = 1 << (k - 2), max(k - 55, 0)
    z = np.random.default_rng(seed).integers(-bound >> coarse, bound >> coarse, ELEMENTS) << coarse
    error = computed(setting, "truncate", k, z, bits=f) - (z >> f)
    assert ((error == 0) | (error == 1)).all()
    dropped = (z & ((1 << f) - 1)) / (1 << f)
    deviation = np.sqrt((dropped * (1 - dropped)).sum()) / ELEMENTS
    assert abs((error - dropped).mean()) < 6 * deviation


@secure
@pytest.mark.parametrize(("k", "w", "t"), [(32, 24, 0), (40, 34, 8), (64, 50, 0), (64, 63, 20)])
def test_comparisons_at_the_edges(setting: Setting, k: int, w: int, t: int) -> None:
    check_comparisons(setting, k, w, t, ELEMENTS // 4, seed=w)


def check_comparisons(setting: Setting, k: int, w: int, t: int, elements: int, seed: int) -> None:
    """The last numbers of the window on both sides, and those around zero."""
    rng = np.random.default_rng(seed)
    near, fine = rng.integers(0, 64, elements), 1 << max(w - 53, 0)
    top, bottom = (1 << (w - 1)) - (1 << t), -(1 << (w - 1))
    edges = np.stack([top - near * fine, bottom + near * fine, near - 32, -near << t])
    z = np.where(np.abs(edges) < 1 << 52, edges, edges // fine * fine)
    z = z[rng.integers(0, 4, elements), np.arange(elements)]
    y = computed(setting, "relu", k, z, window_bits=w, dropped_bits=t)
    passed = (z < 0) & (z > -(1 << t)) & (y == z)
    assert ((y == np.maximum(z, 0)) | passed).all()


@pytest.mark.slow
def test_a_hundred_million_truncations() -> None:
    rings = ((32, 12), (32, 4), (40, 16), (64, 20))
    for batch in range(100):
        check_truncations(SETTINGS[0], *rings[batch % len(rings)], seed=1000 + batch)


@pytest.mark.slow
def test_ten_million_comparisons() -> None:
    windows = ((32, 24, 0), (32, 31, 12), (40, 34, 8), (64, 63, 0), (64, 40, 16))
    for batch in range(10):
        check_comparisons(SETTINGS[0], *windows[batch % len(windows)], ELEMENTS, seed=1000 + batch)
