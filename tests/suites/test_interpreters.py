"""Suites on native interpreters: bit by bit the oracle under known keys, right under fresh ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from conformance import BILINEAR_CASES, LINEAR_CASES, SETTINGS, Case, Integers, Setting, Trace
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreters import check_interpreters, plan_of

from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning.integers import Windows
from veilgraph.ir.party.node import Shape
from veilgraph.runtime.simulate import simulate
from veilgraph.targets.parties import Form, Sharing

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=str)


def exact(x: Integers, ring_bits: int) -> Integers:
    """Ring elements that an owner can give: float64 holds them, and the least one is left out."""
    x = np.maximum(integers.center(x, ring_bits), 1 - (1 << (ring_bits - 1)))
    return x if ring_bits <= 53 else x >> (ring_bits - 53) << (ring_bits - 53)


def numbers(seed: int, shape: Shape, ring_bits: int) -> Integers:
    drawn = np.random.default_rng(seed).integers(-(1 << 63), (1 << 63) - 1, shape, endpoint=True)
    return exact(np.asarray(drawn), ring_bits)


@every_setting
@pytest.mark.parametrize("case", [*LINEAR_CASES, *BILINEAR_CASES], ids=str)
def test_exact_ops(setting: Setting, case: Case) -> None:
    """Operand 1 is a weight, shared in the setup; two inferences on different inputs."""
    for ring_bits in (13, 32, 40, 64):
        trace = Trace(setting)
        operands: list[Sharing] = []
        inputs: dict[str, Shape] = {}
        weights: dict[str, Shape] = {}
        for j, shape in enumerate(case.operands):
            role = "weight" if j else "input"
            operands.append(trace.share(f"x{j}", shape, ring_bits, j % setting.computing, role))
            (weights if j else inputs)[f"x{j}"] = shape
        trace.reveal(trace.apply(case.op, case.result, ring_bits, case.attrs, *operands))
        batches = [{n: numbers(s, shape, ring_bits) for n, shape in inputs.items()} for s in (1, 2)]
        given = {n: numbers(3, shape, ring_bits) for n, shape in weights.items()}
        for batch, done in zip(
            batches, check_interpreters(trace.expanded, batches, given), strict=True
        ):
            values = [batch["x0"], *given.values()]
            with np.errstate(over="ignore"):
                expected = case.reference(*values).astype(np.int64)
            found = integers.center(done.outputs[0, "y"].view(np.int64), ring_bits)
            np.testing.assert_array_equal(found, integers.center(expected, ring_bits))


COMPARING: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("truncate", 1, {"bits": 5}),
    ("step", 1, {"window_bits": 17, "dropped_bits": 0}),
    ("step", 1, {"window_bits": 12, "dropped_bits": 4}),
    ("relu", 1, {"window_bits": 17, "dropped_bits": 0}),
    ("relu", 1, {"window_bits": 12, "dropped_bits": 4}),
    ("truncate_relu", 1, {"bits": 6, "window_bits": 16, "dropped_bits": 6}),
    ("maximum", 2, {"window_bits": 18, "dropped_bits": 0}),
)


@every_setting
@pytest.mark.parametrize("op", COMPARING, ids=str)
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 191, 192, 193, 577])
def test_ops_with_rounds(setting: Setting, op: tuple[str, int, dict[str, Any]], size: int) -> None:
    name, operands, attrs = op
    for ring_bits in (20, 64) if size % 2 else (32, 40):
        trace = Trace(setting, turn=size)
        shared = [trace.share(f"x{j}", (size,), ring_bits) for j in range(operands)]
        trace.reveal(trace.apply(name, (size,), ring_bits, attrs, *shared))
        batches = [{f"x{j}": numbers(j + n, (size,), ring_bits) for j in range(operands)}
                   for n in range(2)]  # fmt: skip
        check_interpreters(trace.expanded, batches)


# Random programs of secret ops


class RandomOps:
    """A random program of a suite's ops on vectors, in one ring; any values will do."""

    def __init__(self, choices: random.Random, setting: Setting) -> None:
        self.choices = choices
        self.trace = Trace(setting, choices.randrange(3))
        self.ring_bits = choices.choice((8, 24, 32, 40, 64))
        self.size = choices.choice((1, 5, 64, 200, 577))
        self.values: list[Sharing] = []
        self.names: dict[str, str] = {}
        for j in range(choices.randint(1, 3)):
            role = choices.choice(("input", "weight"))
            self.names[f"x{j}"] = role
            owner = choices.randrange(setting.computing)
            self.values.append(self.trace.share(f"x{j}", (self.size,), self.ring_bits, owner, role))

    def grow(self, operations: int) -> None:
        for _ in range(operations):
            op = self.choices.choice((*ATTRIBUTES, "add", "sub", "mul", "maximum", "concat"))
            x, y = (self.choices.choice(self.values) for _ in range(2))
            if op in ATTRIBUTES:
                self._apply(op, ATTRIBUTES[op](self.ring_bits), x)
            elif op == "concat":
                self._halves(x, y)
            else:
                y = self._public() if self.choices.random() < 0.3 else y
                self._apply(op, window(self.ring_bits), x, y)
        for number in range(2):
            party = self.choices.randrange(self.trace.setting.computing)
            self.trace.reveal(self.choices.choice(self.values[-4:]), f"y{number}", party)

    def _apply(self, op: str, attrs: dict[str, Any], *operands: Sharing) -> None:
        self.values.append(self.trace.apply(op, (self.size,), self.ring_bits, attrs, *operands))

    def _public(self) -> Sharing:
        value = numbers(self.choices.randrange(100), (self.size,), self.ring_bits)
        return self.trace.public(value, self.ring_bits)

    def _halves(self, x: Sharing, y: Sharing) -> None:
        joined = self.trace.apply("concat", (2 * self.size,), self.ring_bits, {"axis": 0}, x, y)
        every_second = {"starts": (self.choices.randrange(2),), "steps": (2,)}
        self._apply("slice", every_second, joined)


def window(ring_bits: int) -> dict[str, Any]:
    return {"window_bits": ring_bits - 1, "dropped_bits": 2}


ATTRIBUTES: dict[str, Any] = {
    "truncate": lambda k: {"bits": 3},
    "truncate_relu": lambda k: {"bits": 3, **window(k)},
    "step": window,
    "relu": window,
    "neg": lambda k: {},
    "scale": lambda k: {"factor": -5},
    "reshape": lambda k: {},
}


@every_setting
@settings(max_examples=25, deadline=None)
@given(choices=st.randoms(use_true_random=False), operations=st.integers(1, 7))
def test_random_programs(setting: Setting, choices: random.Random, operations: int) -> None:
    made = RandomOps(choices, setting)
    made.grow(operations)
    assert all(x.form is not Form.PUBLIC for x in made.values)

    def batch(seed: int, role: str) -> dict[str, Integers]:
        named = [name for name, own in made.names.items() if own == role]
        return {n: numbers(seed + i, (made.size,), made.ring_bits) for i, n in enumerate(named)}

    batches = [batch(1, "input"), batch(10, "input")]
    check_interpreters(made.trace.expanded, batches, batch(20, "weight"))


# A network, under fresh keys


@every_setting
@pytest.mark.parametrize(("ring_bits", "f"), [(32, 6), (40, 8), (52, 8), (64, 10)])
def test_a_small_network(setting: Setting, ring_bits: int, f: int) -> None:
    """conv, ReLU, max pool, matmul, truncation: within what rounding may add."""
    rng = np.random.default_rng(7)
    scale = 1 << f
    x = rng.integers(-scale, scale, (2, 3, 9, 8))
    w, v = rng.integers(-scale, scale, (4, 3, 3, 3)), rng.integers(-scale, scale, (4 * 2 * 2, 5))
    trace = Trace(setting)
    shared = trace.share("x", x.shape, ring_bits)
    kernel = trace.share("w", w.shape, ring_bits, setting.computing - 1, "weight")
    matrix = trace.share("v", v.shape, ring_bits, setting.computing - 1, "weight")
    geometry = {"strides": (2, 2), "pads_low": (1, 0), "pads_high": (0, 1), "dilations": (1, 1)}
    y = trace.apply("conv", (2, 4, 4, 4), ring_bits, {**geometry, "groups": 1}, shared, kernel)
    span = {"window_bits": 2 * f + 7, "dropped_bits": f}
    y = trace.apply("truncate_relu", (2, 4, 4, 4), ring_bits, {"bits": f, **span}, y)
    pool = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
    narrow = {"window_bits": f + 7, "dropped_bits": 0}
    y = trace.apply("max_pool", (2, 4, 2, 2), ring_bits, {**pool, "dilations": (1, 1), **narrow}, y)
    y = trace.apply("reshape", (2, 16), ring_bits, {}, y)
    y = trace.apply("matmul", (2, 5), ring_bits, {}, y, matrix)
    trace.reveal(trace.apply("truncate", (2, 5), ring_bits, {"bits": f}, y))
    answer = simulate(plan_of(trace.expanded), {"w": w, "v": v}, {"x": x})
    hidden = integers.conv(x, w, Windows((3, 3), (2, 2), (1, 0), (0, 1), (1, 1)), 1)
    pooling = Windows((2, 2), (2, 2), (0, 0), (0, 0), (1, 1))
    hidden = integers.max_pool(np.maximum(hidden >> f, 0), pooling)
    expected = hidden.reshape(2, 16) @ v / scale
    slack = np.abs(v).sum(0) / scale + 1
    assert (np.abs(answer.outputs["y"] - expected) <= slack).all()
