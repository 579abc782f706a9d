"""What a variant promises of roundings: an exact result is the same whatever is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import SETTINGS, Integers, Setting, Trace

from veilgraph.ir.meaning.party import uniform_draws
from veilgraph.targets.suites import SUITES
from veilgraph.targets.variants import Rounding

X: Integers = np.arange(-600, 600, dtype=np.int64)
WINDOW = {"window_bits": 12, "dropped_bits": 0}
ATTRS = {
    "relu": WINDOW,
    "step": WINDOW,
    "lift": {},
    "round_off": {"bits": 5},
    "truncate": {"bits": 5},
    "truncate_relu": {"bits": 5, "window_bits": 12, "dropped_bits": 5},
}
ROUNDED = {
    "truncate",
    "truncate_relu",
    "truncate_relu_pool",
    "masked_function",
    "exp_sums",
    "masked_exp",
}
HIDING = [setting for setting in SETTINGS if setting.computing > 1]


def result(setting: Setting, op: str, seed: int) -> Integers:
    trace = Trace(setting)
    x = trace.share("x", X.shape, 24)
    trace.reveal(trace.apply(op, X.shape, 24, ATTRS[op], x))
    return trace.run({"x": X}, uniform_draws(np.random.default_rng(seed)))


@pytest.mark.parametrize("op", ATTRS)
@pytest.mark.parametrize("setting", HIDING, ids=str)
def test_exact_results_depend_on_no_draw(setting: Setting, op: str) -> None:
    variant, *_ = setting.suite.protocols[op]
    differences = set(np.unique(result(setting, op, 1) - result(setting, op, 2)))
    exact = variant.rounding is Rounding.EXACT
    assert differences == ({0} if exact else {-1, 0, 1})


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_what_is_said_to_be_rounded(suite: str) -> None:
    found = SUITES[suite].protocols.items()
    rounded = {op for op, (first, *_) in found if first.rounding is not Rounding.EXACT}
    assert rounded == ROUNDED
