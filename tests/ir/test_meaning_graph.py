"""The NumPy meaning of the graph level: every operation has one, windows against plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning import graph as meaning
from veilgraph.ir.meaning.graph import MEANING, evaluate
from veilgraph.ir.mlir import context

Array = NDArray[np.float64]
PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
PADS = st.tuples(st.integers(0, 2), st.integers(0, 2))

PLAIN = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}


def test_every_operation_has_a_meaning() -> None:
    assert set(ops.OPERATIONS) == set(MEANING)


def chain() -> Graph:
    graph = Graph.create(context(), {"x": (2, 3)}, {"w": np.full((3, 2), 0.5)})
    with graph.end("fc"):
        y = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
    with graph.end("act"):
        y = ops.Sub.build(ops.Relu.build(y), ops.constant(1.0))
    graph.finish({"y": y})
    return graph


def test_evaluate_observes_operations_in_order() -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []
    x = np.array([[1, 2, 3], [-1, -2, -3]], dtype=np.float32)
    outputs = evaluate(chain(), {"x": x}, lambda name, value: seen.append((name, value.shape)))
    assert seen == [
        ("fc", (2, 2)),
        ("act/relu", (2, 2)),
        ("act/constant", ()),
        ("act", (2, 2)),
    ]
    np.testing.assert_array_equal(outputs["y"], [[2, 2], [-1, -1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_evaluate_computes_in_the_type_asked_for(dtype: type) -> None:
    types = set()
    evaluate(chain(), {"x": np.ones((2, 3))}, lambda _, value: types.add(value.dtype), dtype)
    assert types == {np.dtype(dtype)}


def test_an_output_may_be_an_input_or_a_weight() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {"w": np.ones(3)})
    graph.finish({"a": graph.inputs["x"], "b": graph.parameters["w"], "c": graph.inputs["x"]})
    outputs = evaluate(graph, {"x": np.array([1.0, 2.0])})
    assert [outputs[name].tolist() for name in "abc"] == [[1, 2], [1, 1, 1], [1, 2]]


@pytest.mark.parametrize(
    "inputs", [{}, {"x": np.ones((2, 4))}, {"x": np.ones((2, 3)), "z": np.ones(1)}]
)
def test_evaluate_refuses_other_inputs(inputs: dict[str, Array]) -> None:
    with pytest.raises(ValueError, match="but the program takes"):
        evaluate(chain(), inputs)


def windows(
    x: Array,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    out: tuple[int, int],
) -> Array:
    """What each output of a window sees, [N, C, H', W', kh, kw], by plain loops."""
    seen = np.empty((*x.shape[:2], *out, *kernel))
    for i, j, k, m in itertools.product(*map(range, (*out, *kernel))):
        row, column = i * strides[0] + k * dilations[0], j * strides[1] + m * dilations[1]
        seen[:, :, i, j, k, m] = x[:, :, row, column]
    return seen


def padded(x: Array, low: tuple[int, int], high: tuple[int, int], value: float) -> Array:
    widths = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    return np.pad(x, widths, constant_values=value)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 3, 4), (2, 2, 4), (4, 1, 4), (4, 1, 8), (2, 3, 2)]),
    PAIRS,
    PAIRS,
    PADS,
    PADS,
    PAIRS,
)
def test_conv_is_the_sum_over_windows(
    channels: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    low: tuple[int, int],
    high: tuple[int, int],
    dilations: tuple[int, int],
) -> None:
    groups, inner, outer = channels
    rng = np.random.default_rng(math.prod((*kernel, *strides, *low)))
    x = rng.standard_normal((2, groups * inner, 8, 7))
    w = rng.standard_normal((outer, inner, *kernel))
    bias = rng.standard_normal(outer)
    attributes = {
        "strides": strides,
        "pads_low": low,
        "pads_high": high,
        "dilations": dilations,
        "groups": groups,
    }
    graph = Graph.create(context(), {"x": x.shape}, {"w": w, "b": bias})
    weights = graph.parameters
    with graph.end("y"):
        y = ops.Conv.build(graph.inputs["x"], weights["w"], bias=weights["b"], **attributes)
    graph.finish({"y": y})
    actual = evaluate(graph, {"x": x}, dtype=np.float64)["y"]
    out = actual.shape[2:]
    seen = windows(padded(x, low, high, 0), kernel, strides, dilations, (out[0], out[1]))
    by_group = seen.reshape(2, groups, inner, *seen.shape[2:])
    kernels = graph.weights["w"].astype(np.float64).reshape(groups, -1, inner, *kernel)
    expected = np.einsum("ngihwkl,goikl->ngohw", by_group, kernels).reshape(actual.shape)
    np.testing.assert_allclose(actual, expected + graph.weights["b"][:, None, None], atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_convolutions_take_a_few_images_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    rng = np.random.default_rng(at_once)
    x, w = rng.standard_normal((5, 4, 6, 6)), rng.standard_normal((6, 2, 3, 3))
    alone = [meaning.conv((1, 6, 4, 4), image[None], w, groups=2, **PLAIN) for image in x]
    monkeypatch.setattr(meaning, "UNROLLED_BYTES", at_once * 4 * 9 * 16 * 8)
    assert len(list(meaning.image_groups(x, 9 * 16))) == -(-5 // at_once)
    together = meaning.conv((5, 6, 4, 4), x, w, groups=2, **PLAIN)
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 3), PAIRS, st.integers(0, 1), st.integers(0, 1), st.booleans())
def test_pools_are_reductions_of_windows(
    side: int, strides: tuple[int, int], below: int, above: int, include: bool
) -> None:
    x = np.random.default_rng(side).standard_normal((1, 2, 8, 7))
    low, high, kernel = (below, below), (above, above), (side, side)
    out = tuple((n + below + above - side) // s + 1 for n, s in zip((8, 7), strides, strict=True))
    result = (1, 2, out[0], out[1])
    inner = padded(x, low, high, np.nan)
    seen = windows(inner, kernel, strides, (1, 1), (out[0], out[1]))
    counted = side * side if include else (~np.isnan(seen)).sum(axis=(4, 5))
    mean = meaning.avg_pool(result, x, kernel, strides, low, high, include)
    np.testing.assert_allclose(mean, np.nansum(seen, axis=(4, 5)) / counted)
    total = meaning.sum_pool(result, x, kernel, strides, low, high)
    np.testing.assert_allclose(total, np.nansum(seen, axis=(4, 5)), atol=1e-12)
    largest = meaning.max_pool(result, x, kernel, strides, low, high, (1, 1))
    np.testing.assert_array_equal(largest, np.nanmax(seen, axis=(4, 5)))


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        (ops.Sign, {}, np.sign),
        (ops.Rsqrt, {}, lambda x: np.abs(x) ** -0.5),
        (ops.Silu, {}, lambda x: x / (1 + np.exp(-x))),
        (ops.HardSigmoid, {}, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        (ops.HardSwish, {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
        (ops.Erf, {}, np.vectorize(math.erf)),
        (
            ops.Gelu,
            {"approximate": "none"},
            lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
        ),
    ],
)
def test_unary_operations(
    kind: type[ops.Unary], attributes: dict[str, str], expected: np.ufunc
) -> None:
    x = np.linspace(0.1, 5, 50) if kind is ops.Rsqrt else np.linspace(-5, 5, 51)
    actual = MEANING[kind](x.shape, x, **attributes)
    np.testing.assert_allclose(actual, expected(x), atol=1e-12)


def test_extremes_do_not_overflow() -> None:
    x = np.array([-1e4, 0, 1e4])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(meaning.sigmoid(x), [0, 0.5, 1])
        np.testing.assert_array_equal(np.exp(meaning.log_softmax(x, 0)), [0, 0, 1])
