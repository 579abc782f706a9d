"""Masks are bounded by what the samples' scores ask for."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import example
from models import model, run_onnx
from onnx import ModelProto, helper

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.masks import FAR, MASKED
from veilgraph.ir.graph.program import Graph, attributes, kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.bound_masks import BoundMasks

CAUSAL = np.triu(np.ones((4, 4), bool), 1)


def masked(replaced: bool) -> ModelProto:
    """A causal softmax of scores that are added to minus infinity, or replaced by it."""
    node = helper.make_node
    if replaced:
        arrays = {"m": CAUSAL, "c": np.float32(-np.inf)}
        nodes = [node("Where", ["m", "c", "s"], ["a"], "mask")]
    else:
        arrays = {"m": np.where(CAUSAL, np.finfo(np.float32).min, 0).astype(np.float32)}
        nodes = [node("Add", ["s", "m"], ["a"], "mask")]
    nodes.append(node("Softmax", ["a"], ["y"], "softmax", axis=-1))
    return model(nodes, {"s": (1, 4, 4)}, ["y"], arrays)


def scores(apart: float) -> np.ndarray:
    """Three samples whose rows reach so far; what is masked is the largest of each."""
    found = np.random.default_rng(3).normal(size=(3, 1, 4, 4)).astype(np.float32)
    found[1] += apart * CAUSAL
    return found


def test_docstring_example() -> None:
    before, after = example(BoundMasks.__doc__, context())
    changed = BoundMasks().run(before)
    changed.verify()
    assert changed.text(names=False) == after.text(names=False)


def largest(graph: Graph) -> float:
    """Of all that the program knows."""
    known = [
        np.asarray(attributes(op)["value"]) for op in graph.operations if kind_of(op) == "constant"
    ]
    return max(float(np.abs(array).max()) for array in (*known, *graph.weights.values()))


@pytest.mark.parametrize(
    ("replaced", "lifted", "apart", "far"),
    [
        (False, 0, 0, FAR),
        (False, 0, 480, FAR),
        (False, 0, 1200, 4 * FAR),
        (False, 1200, 0, FAR),
        (True, 0, 1200, FAR),  # what is masked has no score
        (True, -1200, 0, 4 * FAR),  # and lies as far below zero
    ],
)
def test_masks_are_as_far_as_scores_are_apart(
    replaced: bool, lifted: float, apart: float, far: float
) -> None:
    graph = import_model(masked(replaced))
    assert largest(graph) == MASKED
    samples = (scores(apart) + lifted).astype(np.float32)
    held = BoundMasks({"s": samples}).run(graph)
    assert largest(held) == far
    for s in samples:
        wanted = run_onnx(masked(replaced), {"s": s})["y"]
        np.testing.assert_allclose(evaluate(held, {"s": s})["y"], wanted, atol=1e-3)


def test_without_samples_and_without_masks() -> None:
    graph = BoundMasks().run(import_model(masked(replaced=False)))
    assert largest(graph) == FAR
    plain = import_model(
        model([helper.make_node("Softmax", ["s"], ["y"], "softmax")], {"s": (1, 4)}, ["y"])
    )
    before = plain.text()
    assert BoundMasks({"s": np.zeros((1, 1, 4), np.float32)}).run(plain).text() == before


def test_scores_far_apart_are_masked_in_secret() -> None:
    """With -1024 the second sample's largest numbers would show through the mask."""
    proto, samples = masked(replaced=False), scores(1200)
    plan, weights = veilgraph.compile(proto, calibrate={"s": samples})
    for s in samples:
        found = veilgraph.simulate(plan, weights, {"s": s}).outputs["y"]
        np.testing.assert_allclose(found, run_onnx(proto, {"s": s})["y"], atol=5e-3)
