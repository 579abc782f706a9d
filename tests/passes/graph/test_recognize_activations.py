"""Activations that are written out: found however their factors stand, and nothing else is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import pi, sqrt

import numpy as np
import pytest
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.public_factors import constant
from veilgraph.passes.graph.recognize_activations import RecognizeActivations

X = np.linspace(-3, 3, 12).reshape(3, 4)
Written = Callable[[ir.Value], ir.Value]


def _by(x: ir.Value, number: float) -> ir.Value:
    return ops.Mul.build(x, constant(number, x))


def _and(x: ir.Value, number: float) -> ir.Value:
    return ops.Add.build(constant(number, x), x)


def _over(x: ir.Value, number: float) -> ir.Value:
    return ops.Div.build(x, constant(number, x))


def _cubed(x: ir.Value) -> ir.Value:
    return ops.Mul.build(ops.Mul.build(x, x), x)


def _gated(x: ir.Value) -> ir.Value:
    return ops.Mul.build(ops.Sigmoid.build(x), x)


def _by_tanh(x: ir.Value) -> ir.Value:
    """As `transformers` writes `gelu_new`."""
    inner = _by(ops.Add.build(x, _by(_cubed(x), 0.044715)), sqrt(2 / pi))
    return ops.Mul.build(_by(x, 0.5), _and(ops.Tanh.build(inner), 1.0))


def _by_nested_tanh(x: ir.Value) -> ir.Value:
    """As `transformers` writes `gelu_fast`."""
    square = ops.Mul.build(_by(x, 0.044715), x)
    inner = ops.Mul.build(_by(x, 0.7978845608), _and(square, 1.0))
    return ops.Mul.build(_by(x, 0.5), _and(ops.Tanh.build(inner), 1.0))


FOUND: dict[str, tuple[str, Written]] = {
    "erf, halved last": (
        "gelu",
        lambda x: _by(ops.Mul.build(x, _and(ops.Erf.build(_over(x, sqrt(2))), 1.0)), 0.5),
    ),
    "erf, x halved": (
        "gelu",
        lambda x: ops.Mul.build(_by(x, 0.5), _and(ops.Erf.build(_by(x, sqrt(0.5))), 1.0)),
    ),
    "erf, the gate halved": (
        "gelu",
        lambda x: ops.Mul.build(_by(_and(ops.Erf.build(_by(x, sqrt(0.5))), 1.0), 0.5), x),
    ),
    "erf, the gate a line": (
        "gelu",
        lambda x: ops.Mul.build(x, _and(_over(ops.Erf.build(_by(x, sqrt(0.5))), 2.0), 0.5)),
    ),
    "erf of a multiple": (
        "gelu",
        lambda x: ops.Mul.build(_by(x, -3.0), _and(ops.Erf.build(_by(x, 1.3)), 1.0)),
    ),
    "erf subtracted": (
        "gelu",
        lambda x: ops.Mul.build(
            x, ops.Sub.build(constant(1.0, x), ops.Erf.build(_by(x, -sqrt(0.5))))
        ),
    ),
    "tanh of a cube": ("gelu", _by_tanh),
    "tanh of a square, times x": ("gelu", _by_nested_tanh),
    "tanh of a cube, of a multiple": ("gelu", lambda x: _by_tanh(_by(x, 0.75))),
    "tanh of a multiple": (
        "silu",
        lambda x: ops.Mul.build(x, _and(ops.Tanh.build(_by(x, 0.5)), 1.0)),
    ),
    "sigmoid": ("silu", _gated),
    "sigmoid of a multiple": ("silu", lambda x: ops.Mul.build(x, ops.Sigmoid.build(_by(x, 1.702)))),
    "sigmoid, both of a multiple": ("silu", lambda x: _by(_gated(_by(x, 2.0)), 7.0)),
}


OTHERS: dict[str, Written] = {
    "another line": lambda x: ops.Mul.build(x, _and(ops.Erf.build(_by(x, sqrt(0.5))), 1.01)),
    "a shifted erf": lambda x: ops.Mul.build(x, _and(ops.Erf.build(_and(x, 0.5)), 1.0)),
    "another cube": lambda x: ops.Mul.build(
        x, _and(ops.Tanh.build(_by(ops.Add.build(x, _by(_cubed(x), 0.05)), sqrt(2 / pi))), 1.0)
    ),
    "an even power": lambda x: ops.Mul.build(
        x, _and(ops.Tanh.build(ops.Add.build(x, ops.Mul.build(x, x))), 1.0)
    ),
    "a sigmoid and a number": lambda x: ops.Mul.build(x, _and(ops.Sigmoid.build(x), 1.0)),
    "a sigmoid of a cube": lambda x: ops.Mul.build(x, ops.Sigmoid.build(_cubed(x))),
    "a gate of something else": lambda x: ops.Mul.build(x, ops.Sigmoid.build(ops.Relu.build(x))),
    "a step, nearly": lambda x: ops.Mul.build(x, ops.Sigmoid.build(_by(x, 2.0**22))),
    "a half, nearly": lambda x: ops.Mul.build(x, ops.Sigmoid.build(_by(x, 2.0**-12))),
    "a difference": lambda x: ops.Sub.build(x, ops.Sigmoid.build(x)),
}


def written(write: Written, also: Callable[[Graph], dict[str, ir.Value]] | None = None) -> Graph:
    graph = Graph.create(context(), {"x": X.shape}, {})
    with graph.end("y"):
        outputs = {"y": write(graph.inputs["x"])}
        outputs |= also(graph) if also is not None else {}
    graph.finish(outputs)
    return graph


def test_docstring_example() -> None:
    before, after = example(RecognizeActivations.__doc__, context())
    assert RecognizeActivations().run(before).text(names=False) == after.text(names=False)


@pytest.mark.parametrize("name", FOUND)
def test_what_is_written_out_is_one_function(name: str) -> None:
    kind, write = FOUND[name]
    graph = written(write)
    wanted = evaluate(graph, {"x": X}, dtype=np.float64)["y"]
    graph = RecognizeActivations().run(graph)
    graph.verify()
    found = evaluate(graph, {"x": X}, dtype=np.float64)["y"]
    assert np.abs(found - wanted).max() < 2e-5  # CUBE and roots have few digits where written
    kinds = Counter(map(kind_of, graph.operations))
    assert kinds[kind] == 1
    assert not kinds.keys() - {kind, "mul", "constant"}
    assert kinds["mul"] <= 2  # by what x is multiplied with, and what the activation is


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_none_stays(name: str) -> None:
    graph = written(OTHERS[name])
    before = graph.text()
    assert RecognizeActivations().run(graph).text() == before


def test_a_function_that_something_else_reads_stays() -> None:
    gates: list[ir.Value] = []

    def write(x: ir.Value) -> ir.Value:
        gates.append(ops.Sigmoid.build(x))
        return ops.Mul.build(x, gates[0])

    graph = written(write, lambda _: {"gate": gates[0]})
    before = graph.text()
    assert RecognizeActivations().run(graph).text() == before


def test_sums_of_sums_are_looked_at_in_time() -> None:
    """Each doubles the ways from the gate to x."""

    def write(x: ir.Value) -> ir.Value:
        inner = x
        for _ in range(40):
            inner = ops.Add.build(inner, inner)
        return ops.Mul.build(x, ops.Sigmoid.build(inner))

    graph = written(write)
    before = graph.text()
    assert RecognizeActivations().run(graph).text() == before


def test_a_gate_of_another_shape_is_no_activation() -> None:
    graph = Graph.create(context(), {"x": (1, 4), "rows": (3, 4)}, {})
    x, rows = graph.inputs.values()
    with graph.end("y"):
        y = ops.Mul.build(rows, ops.Sigmoid.build(x))
    graph.finish({"y": y})
    before = graph.text()
    assert RecognizeActivations().run(graph).text() == before
