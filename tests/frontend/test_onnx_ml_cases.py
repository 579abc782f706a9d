"""ONNX's own node cases of ai.onnx.ml."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from test_classical import model_of, row

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.table_options import TableOptions, Trees
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.plan.given import PLAIN

PREFIX = "test_ai_onnx_ml_"
CASES = (
    "array_feature_extractor",
    "binarizer",
    "label_encoder_string_int",
    "label_encoder_tensor_mapping",
    "label_encoder_tensor_value_only_mapping",
    "tree_ensemble_set_membership",
    "tree_ensemble_single_tree",
)
# The case has -1 for text that is no key, and its model does not say so: unknown text is refused.
REFUSED = "label_encoder_string_int_no_default"


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' numbers
        found = collect_testcases(None)
    return {c.name.removeprefix(PREFIX): c for c in found if c.name.startswith(PREFIX)}


def test_all_cases_are_named() -> None:
    assert set(cases()) == {*CASES, REFUSED}


@pytest.mark.parametrize("name", CASES)
def test_node_cases(name: str) -> None:
    case = cases()[name]
    (given, *rest), (wanted,) = case.data_sets[0]
    if name == "tree_ensemble_set_membership":  # no node says where a NaN goes
        given, wanted = given.copy(), wanted.copy()
        given[3], wanted[3] = given[4], wanted[4]
    infos = case.model.graph.input
    shapes = {infos[0].name: given.shape}
    assert not rest or name == "array_feature_extractor"
    for info, array in zip(list(infos[1:]), rest, strict=True):
        tensor = helper.make_tensor(info.name, TensorProto.INT64, array.shape, array)
        case.model.graph.initializer.append(tensor)
    graph = import_model(case.model, shapes)
    feeds = {n: graph.given.get(n, PLAIN).numbers(given, n).astype(np.float32) for n in shapes}
    (found,) = evaluate(graph, feeds).values()
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-4)


def test_text_that_a_model_says_nothing_of() -> None:
    case = cases()[REFUSED]
    (given,), _ = case.data_sets[0]
    plan, weights = veilgraph.compile(case.model, shapes={"X": given.shape})
    with pytest.raises(UsageError, match="that is no category of the model's"):
        veilgraph.simulate(plan, weights, {"X": given})


# Sets as questions of a tree

SETS = (2.0, 3.0, np.nan, 5.0, np.nan)


def members(*, modes: tuple[int, ...] = (6, 6), sets: Any = SETS, columns: Any = (0, 1)) -> Any:
    """A tree of two questions: is x0 2 or 3, and else, is x1 5?"""
    kind = TensorProto.FLOAT
    attributes = {
        "n_targets": 1, "tree_roots": [0], "nodes_featureids": list(columns),
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, (2,), modes),
        "nodes_splits": helper.make_tensor("s", kind, (2,), [np.nan, 1.0]),
        "membership_values": helper.make_tensor("v", kind, (len(sets),), sets),
        "nodes_truenodeids": [0, 1], "nodes_trueleafs": [1, 1], "nodes_falsenodeids": [1, 2],
        "nodes_falseleafs": [0, 1], "leaf_targetids": [0, 0, 0],
        "leaf_weights": helper.make_tensor("w", kind, (3,), [1.0, 10.0, 100.0]),
    }  # fmt: skip
    proto = model_of(row("TreeEnsemble", attributes, shapes=[(8, 2)]))
    next(each for each in proto.opset_import if each.domain).version = 5
    return proto


@pytest.mark.parametrize("sets", [SETS, SETS[:-1], (3.0, 3.0, 2.0, np.nan, 5.0)])
def test_sets(sets: tuple[float, ...]) -> None:
    rows = np.array([[2, 0], [3, 5], [4, 5], [0, 0], [5, 2], [2.5, 5], [3, 3], [1, 4]], np.float32)
    wanted = np.where(np.isin(rows[:, 0], (2, 3)), 1, np.where(rows[:, 1] == 5, 10, 100))
    plan, weights = veilgraph.compile(members(sets=sets), calibrate={"x0": rows[np.newaxis]})
    (found,) = veilgraph.simulate(plan, weights, {"x0": rows}).outputs.values()
    np.testing.assert_allclose(found[:, 0], wanted, atol=0.05)


def test_sets_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="It has 1 sets of members for 2 nodes"):
        import_model(members(sets=SETS[:3]))
    with pytest.raises(UnsupportedError, match="a member of an empty set"):
        import_model(members(sets=(np.nan, 5.0, np.nan)))
    with pytest.raises(UnsupportedError, match="in the mode of number 9"):
        import_model(members(modes=(9, 6), sets=SETS[3:]))
    with pytest.raises(UsageError, match="A node asks about column 7 of 2"):
        import_model(members(columns=(0, 7)))
    with pytest.raises(UnsupportedError, match="ask unlike questions, and their structure is"):
        import_model(members(), tables=TableOptions(Trees.SECRET))
