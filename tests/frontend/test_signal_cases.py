"""ONNX's own node cases of windows and mel filters, each times a secret.

Nothing in such a case is secret, so `benchmarks.node_cases` leaves it out.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.meaning.graph import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
WINDOWS = ("blackmanwindow", "hammingwindow", "hannwindow")
FORMS = ("", "_expanded", "_symmetric", "_symmetric_expanded")  # expanded: ONNX's body of the node
CASES = (*(window + form for window in WINDOWS for form in FORMS), "melweightmatrix")


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' numbers
        named = {case.name.removeprefix("test_"): case for case in collect_testcases(None)}
    return {name: case for name, case in named.items() if name.startswith((*WINDOWS, "melw"))}


def test_all_cases_are_named() -> None:
    assert set(cases()) == set(CASES)


def times_a_secret(name: str) -> tuple[ModelProto, Array, Array]:
    """A model with the case in it, what is secret there, and what it should make of it."""
    case = cases()[name]
    model = ModelProto()
    model.CopyFrom(case.model)
    given, (window,) = case.data_sets[0]
    for info, value in zip(model.graph.input, given, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
    del model.graph.input[:]
    x = np.random.default_rng(1).normal(size=(3, *window.shape)).astype(np.float32)
    model.graph.input.append(helper.make_tensor_value_info("secret", TensorProto.FLOAT, x.shape))
    made = model.graph.output.pop().name
    model.graph.node.append(helper.make_node("Mul", ["secret", made], ["product"]))
    output = helper.make_tensor_value_info("product", TensorProto.FLOAT, x.shape)
    model.graph.output.append(output)
    return model, x, x * np.asarray(window, np.float32)


@pytest.mark.parametrize("name", CASES)
def test_a_window_within_a_model_is_what_onnx_expects(name: str) -> None:
    model, x, wanted = times_a_secret(name)
    graph = import_model(model)
    # Written out, it follows from Constant nodes of numbers, which are the model owner's.
    assert bool(graph.weights) == name.endswith("_expanded")
    np.testing.assert_allclose(evaluate(graph, {"secret": x})["product"], wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["hannwindow", "hannwindow_symmetric_expanded", "melweightmatrix"])
def test_all_parties_compute_with_it(name: str) -> None:
    model, x, wanted = times_a_secret(name)
    plan, weights = veilgraph.compile(model, calibrate={"secret": x[None]})
    found = veilgraph.simulate(plan, weights, {"secret": x}).outputs["product"]
    np.testing.assert_allclose(found, wanted, atol=2e-3)
