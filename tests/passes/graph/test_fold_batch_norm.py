"""Folding of batch normalisation: the docstring's example, and every place it can sit in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.attributes import Shape
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.fold_batch_norm import FoldBatchNorm
from veilgraph.passes.graph.fold_constants import FoldConstants

SIDE: dict[str, tuple[int, int]] = {
    "strides": (1, 1),
    "pads_low": (1, 1),
    "pads_high": (1, 1),
    "dilations": (1, 1),
}
Build = Callable[[Graph], ir.Value]


def program(inputs: dict[str, Shape], weights: dict[str, Shape], build: Build) -> Graph:
    """A program of random weights, whose last operation is named "last"."""
    rng = np.random.default_rng(3)
    arrays = {n: rng.uniform(0.5, 2, s).astype(np.float32) for n, s in weights.items()}
    graph = Graph.create(context(), inputs, arrays)
    with graph.end("last"):
        y = build(graph)
    graph.finish({"y": y})
    return graph


def norm(graph: Graph, x: ir.Value) -> ir.Value:
    names = ("gamma", "beta", "mean", "variance")
    return ops.BatchNorm.build(x, *(graph.parameters[name] for name in names), epsilon=1e-3)


def conv(graph: Graph, bias: str | None = None) -> ir.Value:
    given = None if bias is None else graph.parameters[bias]
    x, w = graph.inputs["x"], graph.parameters["w"]
    return ops.Conv.build(x, w, bias=given, groups=1, **SIDE)


def by_channel(channels: int) -> dict[str, Shape]:
    return dict.fromkeys(("gamma", "beta", "mean", "variance"), (channels,))


def conv_then_norm(graph: Graph) -> ir.Value:
    return norm(graph, conv(graph))


def conv_bias_norm_scale_shift(graph: Graph) -> ir.Value:
    scaled = ops.Mul.build(norm(graph, conv(graph, "b")), graph.parameters["s"])
    return ops.Add.build(scaled, graph.parameters["t"])


def conv_times_number(graph: Graph) -> ir.Value:
    return ops.Add.build(ops.Mul.build(ops.constant(3.0), conv(graph)), ops.constant(0.5))


def conv_minus_over(graph: Graph) -> ir.Value:
    shifted = ops.Sub.build(conv(graph, "b"), graph.parameters["t"])
    return ops.Div.build(shifted, graph.parameters["s"])


def linear_then_norm(graph: Graph) -> ir.Value:
    product = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
    return norm(graph, ops.Add.build(product, graph.parameters["b"]))


def norm_alone(graph: Graph) -> ir.Value:
    return norm(graph, graph.inputs["x"])


def norm_scale_shift(graph: Graph) -> ir.Value:
    scaled = ops.Mul.build(norm(graph, graph.inputs["x"]), graph.parameters["s"])
    return ops.Add.build(scaled, graph.parameters["t"])


def norm_of_a_value_read_twice(graph: Graph) -> ir.Value:
    x = conv(graph)
    return ops.Add.build(norm(graph, x), x)


def spread_over_pixels(graph: Graph) -> ir.Value:
    return ops.Mul.build(conv(graph), graph.parameters["s"])


def conv_over_one_axis(graph: Graph) -> ir.Value:
    flat = ops.Reshape.build(conv(graph), shape=(2, 3, 25))
    return norm(graph, flat)


def secret_kernel(graph: Graph) -> ir.Value:
    """Kernel and bias are inputs: nothing is known to fold into."""
    x, w, b = graph.inputs.values()
    y = ops.Conv.build(x, w, bias=b, groups=1, **SIDE)
    return ops.Add.build(ops.Mul.build(y, graph.parameters["s"]), graph.parameters["t"])


def secret_matmul(graph: Graph) -> ir.Value:
    x, w = graph.inputs.values()
    return ops.Mul.build(ops.Matmul.build(x, w), graph.parameters["s"])


def flattened_first(graph: Graph) -> ir.Value:
    flat = ops.Reshape.build(conv(graph), shape=(2, 75))
    return ops.Add.build(ops.Mul.build(flat, graph.parameters["p"]), graph.parameters["p"])


def secret_bias(graph: Graph) -> ir.Value:
    x, b = graph.inputs.values()
    y = ops.Conv.build(x, graph.parameters["w"], bias=b, groups=1, **SIDE)
    return ops.Add.build(y, graph.parameters["t"])


def known_first(graph: Graph) -> ir.Value:
    scaled = ops.Mul.build(graph.parameters["s"], graph.inputs["x"])
    shifted = ops.Add.build(graph.parameters["t"], scaled)
    return ops.Mul.build(graph.parameters["s"], ops.Add.build(shifted, graph.parameters["t"]))


def along_the_line(graph: Graph) -> ir.Value:
    flat = ops.Reshape.build(conv(graph), shape=(2, 3, 25))
    return ops.Mul.build(flat, graph.parameters["p"])


def sum_of_secrets(graph: Graph) -> ir.Value:
    x = graph.inputs["x"]
    return ops.Mul.build(ops.Add.build(x, ops.Mul.build(x, x)), graph.parameters["s"])


def input_plus_then_scaled(graph: Graph) -> ir.Value:
    shifted = ops.Add.build(graph.inputs["x"], graph.parameters["t"])
    return ops.Mul.build(shifted, graph.parameters["s"])


CONV: tuple[dict[str, Shape], dict[str, Shape]] = (
    {"x": (2, 4, 5, 5)},
    {"w": (3, 4, 3, 3), "b": (3,), "s": (3, 1, 1), "t": (1, 3, 1, 1), **by_channel(3)},
)
CASES: list[tuple[Build, dict[str, Shape], dict[str, Shape], str]] = [
    (conv_then_norm, *CONV, "conv"),
    (conv_bias_norm_scale_shift, *CONV, "conv"),
    (conv_times_number, *CONV, "conv"),
    (conv_minus_over, *CONV, "conv"),
    (conv_over_one_axis, *CONV, "conv reshape"),
    (linear_then_norm, {"x": (2, 4)}, {"w": (4, 3), "b": (3,), **by_channel(3)}, "matmul add"),
    (norm_alone, {"x": (2, 3, 5, 5)}, by_channel(3), "mul add"),
    (
        norm_scale_shift,
        {"x": (2, 3, 5)},
        {"s": (3, 1), "t": (3, 1), **by_channel(3)},
        "mul add",
    ),
    (norm_of_a_value_read_twice, *CONV, "conv mul add add"),
    (
        secret_kernel,
        {"x": (2, 4, 5, 5), "w": (3, 4, 3, 3), "b": (3,)},
        {"s": (3, 1, 1), "t": (3, 1, 1)},
        "conv mul add",
    ),
    (secret_matmul, {"x": (2, 4), "w": (4, 3)}, {"s": (3,)}, "matmul mul"),
    (
        flattened_first,
        {"x": (2, 4, 5, 5)},
        {"w": (3, 4, 3, 3), "p": (75,)},
        "conv reshape mul add",
    ),
    (secret_bias, {"x": (2, 4, 5, 5), "b": (3,)}, {"w": (3, 4, 3, 3), "t": (3, 1, 1)}, "conv add"),
    (known_first, {"x": (2, 3, 4)}, {"s": (3, 1), "t": (3, 1)}, "mul add"),
    (along_the_line, {"x": (2, 4, 5, 5)}, {"w": (3, 4, 3, 3), "p": (25,)}, "conv reshape mul"),
    (sum_of_secrets, {"x": (2, 3, 4)}, {"s": (3, 1)}, "mul add mul"),
    (input_plus_then_scaled, {"x": (2, 3, 4)}, {"s": (3, 1), "t": (4,)}, "add mul"),
    (spread_over_pixels, {"x": (2, 4, 5, 5)}, {"w": (3, 4, 3, 3), "s": (5, 5)}, "conv mul"),
]


def test_docstring_example() -> None:
    before, after = example(FoldBatchNorm.__doc__, context())
    x = {"x": np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)}
    expected = evaluate(before, x)["y"]
    folded = FoldBatchNorm().run(before)
    folded.verify()
    assert folded.text(names=False) == after.text(names=False)
    np.testing.assert_allclose(evaluate(folded, x)["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "inputs", "weights", "left"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_folds(
    build: Build, inputs: dict[str, Shape], weights: dict[str, Shape], left: str
) -> None:
    graph = program(inputs, weights, build)
    rng = np.random.default_rng(5)
    x = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in inputs.items()}
    expected = evaluate(graph, x)["y"]
    FoldConstants().run(FoldBatchNorm().run(graph)).verify()
    assert " ".join(kind_of(op) for op in graph.operations if kind_of(op) != "constant") == left
    assert name_of(graph.operations[-1]) == "last"
    np.testing.assert_allclose(evaluate(graph, x)["y"], expected, rtol=1e-4, atol=1e-4)


def test_steps_dont_take_the_names_of_nodes_they_no_longer_compute() -> None:
    graph = Graph.create(context(), {"x": (2, 3)}, dict.fromkeys("stuv", np.full(3, 2)))
    values = [graph.inputs["x"]]
    for node, kind, weight in (("n1", ops.Mul, "s"), ("n2", ops.Add, "t"), ("n3", ops.Mul, "u")):
        with graph.end(node):
            values.append(kind.build(values[-1], graph.parameters[weight]))
    graph.finish({"y": values[-1]})
    x = {"x": np.ones((2, 3), dtype=np.float32)}
    before: dict[str, float] = {}
    evaluate(graph, x, lambda name, value: before.update({name: value.max()}))
    FoldConstants().run(FoldBatchNorm().run(graph))
    after: dict[str, float] = {}
    evaluate(graph, x, lambda name, value: after.update({name: value.max()}))
    assert len(after) == 2
    assert after.keys() & before.keys() == {"n3"}
    assert after["n3"] == before["n3"]
