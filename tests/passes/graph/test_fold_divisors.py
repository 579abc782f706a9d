"""Factors that go into weights, forwards and back, and those that stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from before_after import listing
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.fold_divisors import FoldDivisors
from veilgraph.passes.graph.public_factors import constant, scaling

ONES = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}
POOL = {"kernel": (3, 3), "strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0)}
IMAGE = (1, 3, 6, 6)
Body = Callable[[Graph, ir.Value], ir.Value]


def program(body: Body, shape: tuple[int, ...] = IMAGE) -> Graph:
    """y = body(x), with weights to use: kernel k, bias b, channel scale s, dense d."""
    generator = np.random.default_rng(1)
    shapes = {"k": (3, 3, 1, 1), "l": (3, 3, 1, 1), "b": (3,), "s": (3, 1, 1), "d": (3, 5)}
    weights = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    graph = Graph.create(context(), {"x": shape}, weights)
    with graph.end("body"):
        y = body(graph, graph.inputs["x"])
    graph.finish({"y": y})
    return graph


def conv(graph: Graph, x: ir.Value, kernel: str = "k", bias: str | None = None) -> ir.Value:
    b = graph.parameters[bias] if bias else None
    return ops.Conv.build(x, graph.parameters[kernel], bias=b, groups=1, **ONES)


def mean(x: ir.Value, **changed: object) -> ir.Value:
    return ops.AvgPool.build(x, **(POOL | {"count_include_pad": True} | changed))


def globally(x: ir.Value) -> ir.Value:
    return ops.ReduceMean.build(x, axes=(2, 3), keepdims=False)


def folded(graph: Graph) -> tuple[Graph, list[str]]:
    """The program after the pass, which computes the same, and its operations' kinds."""
    x = np.random.default_rng(2).standard_normal(tuple(graph.inputs["x"].type.shape))
    expected = evaluate(graph, {"x": x}, dtype=np.float64)["y"]
    FoldDivisors().run(graph).verify()
    found = evaluate(graph, {"x": x}, dtype=np.float64)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return graph, [kind_of(op) for op in graph.operations]


def test_docstring_example() -> None:
    before, after = example(FoldDivisors.__doc__, context())
    weights = before.weights["w"]
    changed, _ = folded(before)
    assert changed.text(names=False) == after.text(names=False)
    np.testing.assert_array_equal(changed.weights["w"], weights / 4)


FREE: list[tuple[str, Body, list[str]]] = [
    ("into a bias's conv", lambda g, x: conv(g, mean(x), bias="b"), ["sum_pool", "conv"]),
    (
        "through relu, max pool and padding",
        lambda g, x: conv(
            g,
            ops.Pad.build(
                ops.MaxPool.build(ops.Relu.build(mean(x)), dilations=(1, 1), **POOL),
                low=(0, 0, 1, 0),
                high=(0, 0, 0, 1),
                value=0.0,
            ),
        ),
        ["sum_pool", "relu", "max_pool", "pad", "conv"],
    ),
    (
        "through layout into a matmul",
        lambda g, x: ops.Matmul.build(globally(x), g.parameters["d"]),
        ["reduce_sum", "matmul"],
    ),
    (
        "through a bias",
        lambda g, x: conv(g, ops.Add.build(mean(x), g.parameters["s"])),
        ["sum_pool", "add", "conv"],
    ),
    (
        "through a difference",
        lambda g, x: conv(g, ops.Sub.build(g.parameters["s"], mean(x))),
        ["sum_pool", "sub", "conv"],
    ),
    (
        "through branches that agree",
        lambda g, x: conv(
            g,
            ops.Slice.build(
                ops.concat([mean(x), mean(x)], 1),
                starts=(0, 1, 0, 0),
                steps=(1, 1, 1, 1),
                shape=(1, 3, 4, 4),
            ),
        ),
        ["sum_pool", "sum_pool", "concat", "slice", "conv"],
    ),
    (
        "into a channel's scale",
        lambda g, x: ops.Mul.build(mean(x), g.parameters["s"]),
        ["sum_pool", "mul"],
    ),
    (
        "back into a conv",
        lambda g, x: globally(ops.Relu.build(conv(g, x, bias="b"))),
        ["conv", "relu", "reduce_sum"],
    ),
    (
        "back through a sum of convs",
        lambda g, x: mean(ops.Add.build(conv(g, x), conv(g, x, "l"))),
        ["conv", "conv", "add", "sum_pool"],
    ),
    (
        "two means in a row",
        lambda g, x: ops.Matmul.build(globally(mean(x)), g.parameters["d"]),
        ["sum_pool", "reduce_sum", "matmul"],
    ),
]


@pytest.mark.parametrize("case", FREE, ids=lambda case: case[0])
def test_factors_that_cost_nothing(case: tuple[str, Body, list[str]]) -> None:
    _, kinds = folded(program(case[1]))
    assert kinds == case[2]


def test_a_factor_without_weights_is_multiplied_once() -> None:
    graph, kinds = folded(program(lambda g, x: ops.Add.build(mean(x), mean(x))))
    assert kinds.count("mul") <= 1
    graph, kinds = folded(program(lambda g, x: mean(ops.Relu.build(x))))
    assert kinds == ["relu", "sum_pool", "constant", "mul"]
    assert name_of(graph.operations[-1]) == "body", "the mean itself keeps its name"


def test_a_factor_without_weights_is_multiplied_where_elements_are_fewest() -> None:
    """Before a mean is spread, once for all that reads it, and behind what leaves some out."""

    def spread(graph: Graph, x: ir.Value) -> ir.Value:
        y = mean(x)
        parts = [
            ops.Pad.build(y, low=(0, 0, i, 0), high=(0, 0, 2 - i, 0), value=0.0) for i in (0, 2)
        ]
        return ops.Mul.build(ops.Add.build(*parts), ops.Add.build(*parts))

    def moved(graph: Graph, x: ir.Value) -> ir.Value:
        y = ops.Reshape.build(mean(x), shape=(3, 16))
        turned = ops.Transpose.build(y, permutation=(1, 0))
        return ops.Matmul.build(y, turned)

    def cut(graph: Graph, x: ir.Value) -> ir.Value:
        part = ops.Slice.build(mean(x), starts=(0, 0, 0, 0), steps=(1,) * 4, shape=(1, 3, 1, 4))
        return ops.Mul.build(part, part)

    _, kinds = folded(program(spread))
    assert kinds == ["sum_pool", "constant", "mul", "pad", "pad", "add", "add", "mul"]
    _, kinds = folded(program(moved))
    assert kinds == ["sum_pool", "constant", "mul", "reshape", "transpose", "matmul"]
    _, kinds = folded(program(cut))
    assert kinds == ["sum_pool", "slice", "constant", "mul", "mul"]


def test_weights_that_others_read_are_left_alone() -> None:
    def twice(graph: Graph, x: ir.Value) -> ir.Value:
        return ops.Add.build(conv(graph, mean(x)), mean(conv(graph, x)))

    graph = program(twice)
    kernel = graph.weights["k"]
    changed, _ = folded(graph)
    np.testing.assert_array_equal(changed.weights["k"], kernel)


def test_values_that_others_read_are_left_alone() -> None:
    def both(graph: Graph, x: ir.Value) -> ir.Value:
        rectified = ops.Relu.build(conv(graph, x))
        return ops.Add.build(
            globally(rectified), ops.ReduceSum.build(rectified, axes=(2, 3), keepdims=False)
        )

    _, kinds = folded(program(both))
    assert kinds.count("relu") == 1
    assert "mul" in kinds


def test_a_negative_factor_does_not_pass_a_relu() -> None:
    def negated(graph: Graph, x: ir.Value) -> ir.Value:
        return conv(graph, ops.Relu.build(ops.Mul.build(mean(x), constant(-0.3, x))))

    _, kinds = folded(program(negated))
    assert kinds == ["sum_pool", "constant", "mul", "relu", "conv"]


def test_factors_of_few_bits_stay_where_they_are() -> None:
    graph, _ = folded(program(lambda g, x: conv(g, ops.Mul.build(x, constant(0.375, x)))))
    assert listing(graph).splitlines()[1] == "%2 = mul %x, %1"
    assert scaling(graph.operations[1]) is not None


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_padding_that_does_not_count_has_a_share_a_window(strides: tuple[int, int]) -> None:
    def padded(graph: Graph, x: ir.Value) -> ir.Value:
        return mean(x, strides=strides, pads_low=(1, 2), pads_high=(1, 0), count_include_pad=False)

    graph, kinds = folded(program(padded))
    assert kinds == ["sum_pool", "constant", "mul"]
    ones = evaluate(graph, {"x": np.ones(IMAGE)})["y"]
    np.testing.assert_allclose(ones, 1, rtol=1e-6)


def test_what_is_scaled_says_so_in_its_name() -> None:
    graph, _ = folded(program(lambda g, x: conv(g, ops.Relu.build(mean(x)))))
    names = [name_of(op) for op in graph.operations]
    assert names[-1] == "body"
    assert all("scaled" in name for name in names[:-1])
