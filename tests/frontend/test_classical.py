"""Operators of ai.onnx.ml, written as tensor operators, against ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from models import model, run_onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from operator_rows import INT64, Row, check_matches_onnxruntime, feeds_of, ints, model_of

from veilgraph.frontend.onnx.classical import forest as forest_module
from veilgraph.frontend.onnx.classical import trees as trees_module
from veilgraph.frontend.onnx.classical.expand import DOMAIN, RULES
from veilgraph.frontend.onnx.classical.forest import Forest, Question, completed
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.graph.table_options import TableOptions, Trees
from veilgraph.ir.meaning.graph import evaluate

ROWS, COLUMNS = 40, 4
TABLE = (ROWS, COLUMNS)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
NAMES = [b"approved", b"refused", b"unsure"]


def row(operator: str, attributes: Mapping[str, Any], **more: Any) -> Row:
    given = {"shapes": [TABLE], "domain": DOMAIN} | more
    return Row(operator, attributes=attributes, **given)


def forest(
    kind: str, targets: Sequence[int], modes: Sequence[str], weights: Sequence[float] = (-1, 1)
) -> dict[str, Any]:
    """The attributes of three random trees: a leaf, a chain, and a full tree of depth 3.

    Args:
        targets: which of them leaves add to; some leaves to two.
        weights: what leaves' weights lie between.
    """
    rng = np.random.default_rng(7)
    nodes: list[tuple[int, int, str, int, int]] = [(0, 0, "LEAF", 0, 0)]
    for i in range(4):
        nodes.append((1, 2 * i, modes[i % len(modes)], 2 * i + 1, 2 * i + 2))
        nodes.append((1, 2 * i + 1, "LEAF", 0, 0))
    nodes.append((1, 8, "LEAF", 0, 0))
    for i in range(15):
        leaf = i > 6
        mode = "LEAF" if leaf else modes[i % len(modes)]
        nodes.append((2, i, mode, 0 if leaf else 2 * i + 1, 0 if leaf else 2 * i + 2))
    ends = [node for node in nodes if node[2] == "LEAF"]
    added = [(node[0], node[1], targets[i % len(targets)]) for i, node in enumerate(ends)]
    if len(targets) > 1:
        added += [
            (node[0], node[1], targets[(i + 1) % len(targets)]) for i, node in enumerate(ends[:3])
        ]
    return {
        "nodes_treeids": [node[0] for node in nodes],
        "nodes_nodeids": [node[1] for node in nodes],
        "nodes_modes": [node[2] for node in nodes],
        "nodes_truenodeids": [node[3] for node in nodes],
        "nodes_falsenodeids": [node[4] for node in nodes],
        "nodes_featureids": rng.integers(0, COLUMNS, len(nodes)).tolist(),
        "nodes_values": rng.integers(-1, 2, len(nodes)).astype(float).tolist(),
        f"{kind}_treeids": [entry[0] for entry in added],
        f"{kind}_nodeids": [entry[1] for entry in added],
        f"{kind}_ids": [entry[2] for entry in added],
        f"{kind}_weights": rng.uniform(*weights, len(added)).tolist(),
    }


def regressor(modes: Sequence[str] = MODES[:1], targets: int = 1, **more: Any) -> Row:
    attributes = forest("target", range(targets), modes) | {"n_targets": targets} | more
    return row("TreeEnsembleRegressor", attributes)


def classifier(
    labels: Sequence[int], classes: Sequence[int], weights: Sequence[float] = (-1, 1), **more: Any
) -> Row:
    attributes = forest("class", classes, MODES[:1], weights)
    given = attributes | {"classlabels_int64s": list(labels)} | more
    return row("TreeEnsembleClassifier", given, outputs=2, gives=INT64, then=TensorProto.FLOAT)


def opposite(labels: Sequence[int], **more: Any) -> Row:
    """Two classes whose scores differ by their sign, as CatBoost writes them."""
    attributes = forest("class", [0], MODES[:1], (-1, 1))
    for name in ("treeids", "nodeids"):
        attributes[f"class_{name}"] = [each for each in attributes[f"class_{name}"] for _ in "01"]
    weights = attributes["class_weights"]
    attributes["class_ids"] = [0, 1] * len(weights)
    attributes["class_weights"] = [signed for each in weights for signed in (-each, each)]
    given = attributes | {"classlabels_int64s": list(labels)} | more
    return row("TreeEnsembleClassifier", given, outputs=2, gives=INT64, then=TensorProto.FLOAT)


TREES = [
    *(regressor([mode]) for mode in MODES),
    regressor(MODES, targets=3),
    regressor(aggregate_function="AVERAGE", base_values=[0.5]),
    regressor(aggregate_function="MIN"),
    regressor(MODES, aggregate_function="MAX", base_values=[0.5]),
    regressor(MODES[:2], targets=2, base_values=[0.5, -2.0]),
    regressor(targets=2, post_transform="LOGISTIC"),
    classifier([0, 1, 2], [0, 1, 2], (0, 1)),
    classifier([5, 3, 9], [0, 1, 2], (0, 1), post_transform="SOFTMAX"),
    classifier([0, 1, 2], [0, 2], base_values=[0.1, 0.3, -0.2], post_transform="LOGISTIC"),
    classifier([0, 1], [0], (0, 1)),
    classifier([3, 7], [0], (0, 0.4), base_values=[0.1]),
    classifier([0, 1], [0], (0, 0.4), post_transform="LOGISTIC"),
    classifier([0, 1], [0]),
    classifier([0, 1], [0], base_values=[0.25], post_transform="LOGISTIC"),
    opposite([0, 1], post_transform="LOGISTIC"),
]


def test_labels_of_opposite_scores_are_those_of_the_file() -> None:
    """ONNX Runtime says 0 and 1 there, whatever labels are; ONNX and CatBoost do not."""
    rows = np.random.default_rng(1).normal(size=TABLE).astype(np.float32)
    places, named = (
        evaluate(import_model(model_of(opposite(labels, post_transform="LOGISTIC"))), {"x0": rows})
        for labels in ([0, 1], [7, 3])
    )
    label, scores = places
    np.testing.assert_array_equal(named[label], np.where(places[label] == 1, 3, 7))
    np.testing.assert_array_equal(named[scores], places[scores])


@pytest.mark.parametrize("case", TREES, ids=range(len(TREES)))
def test_completed_trees(case: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large ensembles are written, whose answers would take large matrices to pick."""
    monkeypatch.setattr(forest_module, "MOST_PICKED", 0)
    check_matches_onnxruntime(case)


def test_trees_of_a_line_are_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    depth, ends = 8, [~i for i in range(8)] + [~8]
    line = Forest(
        [0],
        np.zeros(depth, np.int64),
        [Question.AT_MOST] * depth,
        np.arange(depth, dtype=np.float32),
        np.array([*range(1, depth), ends[-1]]),
        np.array(ends[:depth]),
        np.zeros((depth + 1, 1), np.float32),
        np.zeros(depth, np.float32),
    )
    assert completed(line) is None
    monkeypatch.setattr(forest_module, "MOST_PICKED", 0)
    assert completed(line) is None
    monkeypatch.setattr(forest_module, "MOST_PADDED", 1 << depth)
    levels = completed(line)
    assert levels is not None
    assert list(map(len, levels)) == [2**level for level in range(depth + 1)]
    assert set(levels[-1].tolist()) == set(ends)


@pytest.mark.parametrize("case", TREES, ids=range(len(TREES)))
def test_trees(case: Row) -> None:
    """Whole numbers as columns and thresholds, so that equal ones are asked about too."""
    check_matches_onnxruntime(case)
    proto = model_of(case)
    feeds = {"x0": np.random.default_rng(3).integers(-2, 3, TABLE).astype(np.float32)}
    graph, expected = import_model(proto), run_onnx(proto, feeds)
    for name, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6)


EXTREMES = [case for case in TREES if case.attributes.get("aggregate_function") in ("MIN", "MAX")]
ALIKE = [
    case
    for case in TREES
    if len(set(case.attributes["nodes_modes"]) - {"LEAF"}) == 1 and case not in EXTREMES
]


def hidden(case: Row, **changed: Any) -> Graph:
    """A row of trees whose structure is secret, with other attributes."""
    altered = row(
        case.operator,
        {**case.attributes, **changed},
        **{key: getattr(case, key) for key in ("outputs", "gives", "then")},
    )
    return import_model(model_of(altered), tables=TableOptions(Trees.SECRET))


@pytest.mark.parametrize("case", ALIKE, ids=range(len(ALIKE)))
def test_trees_whose_structure_is_secret(case: Row) -> None:
    proto = model_of(case)
    feeds = {"x0": np.random.default_rng(3).integers(-2, 3, TABLE).astype(np.float32)}
    graph, expected = hidden(case), run_onnx(proto, feeds)
    for name, value in evaluate(graph, feeds).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6)
    (told,) = graph.structures.values()
    assert told == "there are 3 trees, the deepest of depth 4; their structure is secret"


def test_a_secret_structure_is_in_weights_alone() -> None:
    """Other columns, other thresholds, and the trees' places changed: the program is the same."""
    case = regressor()
    nodes = len(case.attributes["nodes_modes"])
    names = ("nodes_treeids", "target_treeids")
    turned = {name: [2 - tree for tree in case.attributes[name]] for name in names}
    columns = np.random.default_rng(11).integers(0, COLUMNS, nodes).tolist()
    first, second = hidden(case), hidden(case, nodes_featureids=columns, **turned)
    assert first.text() == second.text()
    assert {n: w.shape for n, w in first.weights.items()} == {
        n: w.shape for n, w in second.weights.items()
    }
    apart = [n for n, w in first.weights.items() if not np.array_equal(w, second.weights[n])]
    assert any("columns" in name for name in apart)
    assert import_model(model_of(case)).text() != first.text()


def test_a_width_that_is_left_open_is_taken_from_the_shape() -> None:
    proto = model_of(regressor())
    closed = import_model(proto, tables=TableOptions(Trees.SECRET))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
    assert (
        import_model(proto, {"x0": TABLE}, tables=TableOptions(Trees.SECRET)).text()
        == closed.text()
    )


def test_secret_structures_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown_width = model_of(regressor())
    node, given = unknown_width.graph.node[0], unknown_width.graph.input[0].name
    keep = numpy_helper.from_array(np.ones(COLUMNS, bool), "keep")
    unknown_width.graph.initializer.append(keep)
    some = helper.make_node("Compress", [given, "keep"], ["some"], axis=1)
    node.input[0] = "some"
    unknown_width.graph.node.insert(0, some)

    def refused(proto: ModelProto) -> str:
        with pytest.raises(UnsupportedError) as caught:
            import_model(proto, tables=TableOptions(Trees.SECRET))
        return caught.value.offenders[-1].reason

    assert refused(model_of(regressor(MODES[:2]))).startswith("Its nodes ask unlike questions, and")
    assert EXTREMES
    for case in EXTREMES:
        assert "over trees, and their structure is secret" in refused(model_of(case))
    assert refused(unknown_width).startswith(
        "How many columns its trees may ask about is not known"
    )
    monkeypatch.setattr(trees_module, "MOST_HIDDEN", 44)
    assert refused(model_of(regressor())).startswith("Its 3 trees are too deep to hide their")
    monkeypatch.setattr(trees_module, "MOST_HIDDEN", 45)
    import_model(model_of(regressor()), tables=TableOptions(Trees.SECRET))


def linear(labels: Sequence[int], scores: int, **more: Any) -> Row:
    rng = np.random.default_rng(scores)
    attributes = {
        "coefficients": rng.standard_normal(scores * COLUMNS).tolist(),
        "intercepts": rng.standard_normal(scores).tolist(),
        "classlabels_ints": list(labels),
    }
    given = attributes | more
    return row("LinearClassifier", given, outputs=2, gives=INT64, then=TensorProto.FLOAT)


def machine(
    kernel: str, params: Sequence[float] = (0.0, 0.0, 0.0), vectors: int = 5, **more: Any
) -> Row:
    rng = np.random.default_rng(vectors)
    attributes = {
        "coefficients": rng.standard_normal(vectors or COLUMNS).tolist(),
        "kernel_type": kernel,
        "kernel_params": list(params),
        "n_supports": vectors,
        "support_vectors": rng.standard_normal(vectors * COLUMNS).tolist(),
        "rho": [0.3],
    }
    return row("SVMRegressor", attributes | more)


def voting(per_class: Sequence[int], **more: Any) -> Row:
    rng, count, classes = np.random.default_rng(9), sum(per_class), len(per_class)
    attributes = {
        "classlabels_ints": list(range(1, 2 * classes, 2)),
        "coefficients": rng.standard_normal((classes - 1) * count).tolist(),
        "kernel_type": "RBF",
        "kernel_params": [0.25, 0.0, 3.0],
        "vectors_per_class": list(per_class),
        "support_vectors": rng.standard_normal(count * COLUMNS).tolist(),
        "rho": rng.uniform(-0.2, 0.2, classes * (classes - 1) // 2).tolist(),
    }
    given = attributes | more
    return row("SVMClassifier", given, outputs=2, gives=INT64, then=TensorProto.FLOAT)


OTHERS = [
    voting([3, 4]),
    voting([3, 1, 4]),
    voting([2, 3, 1, 2], kernel_type="LINEAR"),
    machine("LINEAR"),
    machine("LINEAR", vectors=0, support_vectors=[0.0]),
    machine("POLY", (0.5, 1.0, 3.0)),
    machine("SIGMOID", (0.5, -0.25, 0.0)),
    machine("RBF", (0.25, 0.0, 0.0)),
    machine("RBF", (0.25, 0.0, 0.0), one_class=1),
    linear([0, 1, 2], 3),
    linear([4, 2, 8], 3, post_transform="SOFTMAX", multi_class=1),
    linear([0, 1, 2], 3, post_transform="LOGISTIC"),
    linear([0, 1], 1, post_transform="LOGISTIC"),
    linear([0, 1], 1),
    linear([0, 1], 2, post_transform="SOFTMAX"),
    row("LinearRegressor", {"coefficients": [1.0, -2.0, 0.5, 3.0], "intercepts": [0.25]}),
    row("LinearRegressor", {"coefficients": [0.5] * 8, "targets": 2, "post_transform": "NONE"}),
    row("Scaler", {"offset": [1.0, 0.0, -2.0, 3.0], "scale": [0.5, 1.0, 2.0, 0.1]}),
    row("Scaler", {"offset": [0.5], "scale": [2.0]}),
    *(row("Normalizer", {"norm": norm}, positive=True) for norm in ("MAX", "L1", "L2")),
    row(
        "Imputer",
        {"imputed_value_int64s": [7], "replaced_value_int64": -1},
        takes=INT64,
        gives=INT64,
    ),
    row("Binarizer", {"threshold": 0.25}),
    row("OneHotEncoder", {"cats_int64s": [-1, 0, 3]}, takes=INT64, shapes=[(6, 1)]),
    row("OneHotEncoder", {"cats_int64s": [2, 1]}, takes=INT64, shapes=[(7,)], opset=11),
    row(
        "LabelEncoder",
        {"keys_int64s": [-2, 0, 3], "values_int64s": [5, 7, 2], "default_int64": 9},
        takes=INT64,
        gives=INT64,
    ),
    row("LabelEncoder", {"keys_int64s": [1, 2], "values_floats": [0.5, -1.5]}, takes=INT64),
    row("FeatureVectorizer", {"inputdimensions": [4, 2]}, shapes=[TABLE, (ROWS, 2)]),
    row("ArrayFeatureExtractor", {}, initialisers={"i": ints(2, 0)}),
]


def test_every_rule_has_a_case() -> None:
    elsewhere = {"CategoryMapper", "TreeEnsemble", "ZipMap"}  # below, and text in tests/face
    assert {case.operator for case in (*TREES, *OTHERS)} | elsewhere == set(RULES)


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_others(case: Row) -> None:
    check_matches_onnxruntime(case)


def single(operator: str, **attributes: Any) -> ModelProto:
    return model_of(row(operator, attributes))


def tampered(**changed: Any) -> ModelProto:
    return model_of(row("TreeEnsembleRegressor", regressor().attributes | changed))


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (single("OneHotEncoder", cats_strings=["a", "b"]), "It encodes text, and reads no column"),
        (single("LabelEncoder", keys_strings=["a"], values_int64s=[1]), "It encodes text, and"),
        (single("LabelEncoder", keys_int64s=[1], values_strings=["a"]), "It makes text."),
        (single("CategoryMapper", cats_int64s=[1], cats_strings=["a"]), "It makes text."),
        (single("DictVectorizer", int64_vocabulary=[1]), "No rule writes it as tensor"),
        (model_of(regressor(targets=2, aggregate_function="MAX")), "It takes the MAX over trees"),
        (tampered(base_values=[1.0, 2.0, 3.0]), "It has 3 base values for 1 targets."),
        (tampered(post_transform="LOGISTIC"), "Runtimes make different things of its scores."),
        (tampered(nodes_modes=["LEAF", "BRANCH_ODD", *["LEAF"] * 23]), "Its nodes ask in the"),
        (model_of(classifier([0, 1], [0, 1])), "Runtimes make different things of its scores."),
        (model_of(opposite([0, 1])), "Runtimes make different things of its scores."),
        (model_of(classifier([0, 1, 2], [0])), "Some rows get no score for a class, and"),
        (model_of(linear([0, 1], 1, post_transform="SOFTMAX")), "Its softmax is of one score."),
        (model_of(linear([0, 1, 2], 3, post_transform="PROBIT")), "Its scores go through PROBIT."),
    ],
)
def test_refused(proto: ModelProto, reason: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_model(proto)
    assert caught.value.offenders[0].reason.startswith(reason)


def without(name: str, position: int, value: Any) -> ModelProto:
    """The regressor's model with one entry of an attribute changed."""
    given = list(regressor().attributes[name])
    given[position] = value
    return tampered(**{name: given})


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (without("nodes_truenodeids", 1, 99), "A child is node 99 of tree 1, which isn't there."),
        (without("nodes_truenodeids", 7, 0), "A node of it has two parents"),
        (without("nodes_truenodeids", 3, 4), "A node of it has two parents"),
        (without("nodes_values", 1, np.nan), "A threshold or a weight of it is no number."),
        (without("target_weights", 1, np.nan), "A threshold or a weight of it is no number."),
        (without("nodes_nodeids", 1, 2), "Two of its nodes share a number."),
        (without("target_nodeids", 1, 0), "Node 0 of tree 1 has a weight for 0, and is no leaf."),
        (without("target_ids", 1, 4), "has a weight for 4, and is no leaf."),
        (tampered(nodes_modes=["BRANCH_LEQ"] * 25), "Its trees have nodes, and no leaf."),
    ],
)
def test_nodes_that_are_no_trees(proto: ModelProto, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        import_model(proto)


def test_a_forest_of_leaves_alone() -> None:
    """Its answer is the same for all rows."""
    leaf = {
        "nodes_treeids": [0, 1],
        "nodes_nodeids": [0, 0],
        "nodes_modes": ["LEAF", "LEAF"],
        "nodes_truenodeids": [0, 0],
        "nodes_falsenodeids": [0, 0],
        "nodes_featureids": [0, 0],
        "nodes_values": [0.0, 0.0],
        "target_treeids": [0, 1],
        "target_nodeids": [0, 0],
        "target_ids": [0, 0],
        "target_weights": [1.5, 0.25],
        "n_targets": 1,
    }
    case = row("TreeEnsembleRegressor", leaf)
    check_matches_onnxruntime(case)
    feeds = feeds_of(case)
    (found,) = evaluate(hidden(case), feeds).values()
    np.testing.assert_array_equal(found, np.full((ROWS, 1), 1.75))


def test_equal_questions_are_asked_once() -> None:
    """Two trees that ask the same have one comparison."""
    case = regressor()
    attributes = dict(case.attributes)
    apart = len({*zip(attributes["nodes_featureids"], attributes["nodes_values"], strict=True)})
    graph = import_model(model_of(case))
    (step,) = [op for op in graph.operations if kind_of(op) == "step"]
    assert shape_of(step.results[0])[1] <= apart


def test_the_order_of_thresholds_is_the_owners() -> None:
    """Questions of a column stand as its nodes do: other thresholds give the same program."""
    case = regressor()
    thresholds = np.random.default_rng(2).permutation(len(case.attributes["nodes_values"]))
    texts = []
    for values in (thresholds, -thresholds):
        changed = {**case.attributes, "nodes_values": values.astype(float).tolist()}
        texts.append(import_model(model_of(row(case.operator, changed))).text())
    assert texts[0] == texts[1]


def test_trees_whose_children_are_positions() -> None:
    """TreeEnsemble, of version 5: a tree of two questions, and one that is a leaf."""
    modes = np.array([0, 3, 0], np.uint8)  # x <= t, x > t, x <= t
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain=DOMAIN,
        n_targets=2,
        aggregate_function=0,
        nodes_featureids=[1, 0, 2],
        nodes_modes=numpy_helper.from_array(modes),
        nodes_splits=numpy_helper.from_array(np.array([0.5, -0.25, 0.0], np.float32)),
        nodes_truenodeids=[1, 0, 3],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 3],
        nodes_falseleafs=[1, 1, 1],
        tree_roots=[0, 2],
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=numpy_helper.from_array(np.array([1.0, 2.0, 3.0, 4.0], np.float32)),
    )
    proto = model([node], {"x": TABLE}, ["y"])
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 5))
    x = np.random.default_rng(0).standard_normal(TABLE).astype(np.float32)
    found = evaluate(import_model(proto), {"x": x})["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x})["y"], rtol=1e-6)


def test_a_list_of_maps_goes_out_as_columns() -> None:
    """ZipMap, which exporters put behind a classifier."""
    proto = model_of(linear([0, 1, 2], 3))
    columns = run_onnx(proto, feeds := feeds_of(linear([0, 1, 2], 3)))["y1"]
    zipped = helper.make_node("ZipMap", ["y1"], ["z"], domain=DOMAIN, classlabels_int64s=[0, 1, 2])
    proto.graph.node.append(zipped)
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    proto.graph.output[1].CopyFrom(helper.make_value_info("z", maps))
    np.testing.assert_allclose(evaluate(import_model(proto), feeds)["z"], columns, rtol=1e-5)


@pytest.mark.parametrize("per_class", [(3, 4), (3, 1, 4), (2, 3, 1, 2), (2, 1, 1, 2, 1, 1)])
def test_probabilities_of_support_vectors(per_class: Sequence[int]) -> None:
    """ONNX Runtime's iterations stop early, within 0.005 over the number of classes a step."""
    pairs = len(per_class) * (len(per_class) - 1) // 2
    slopes = {
        "prob_a": np.resize([-2.0, -1.0, -3.0, -1.5, -2.5], pairs).tolist(),
        "prob_b": np.resize([0.25, -0.5, 0.0, 0.1, -0.2], pairs).tolist(),
    }
    case = voting(per_class, **slopes)
    proto, feeds = model_of(case), feeds_of(case)
    expected, found = run_onnx(proto, feeds), evaluate(import_model(proto), feeds)
    np.testing.assert_array_equal(found["y0"], expected["y0"])
    np.testing.assert_allclose(found["y1"], expected["y1"], rtol=0, atol=0.0025)
    np.testing.assert_allclose(found["y1"].sum(axis=1), 1, atol=1e-5)


MACHINES: list[tuple[Row, type[Exception], str]] = [
    (machine("RBF", coefficients=[1.0, 2.0]), UsageError, "2 coefficients and 20 numbers for 5"),
    (machine("POLY", (1.0, 0.0, 2.5)), UnsupportedError, "Its kernel is POLY of degree 2.5"),
    (machine("RBF", vectors=0, support_vectors=[0.0]), UnsupportedError, "no support vectors"),
    (voting([3, 4], support_vectors=[1.0] * 9), UsageError, "9 numbers for 7 support vectors"),
    (voting([3, 4], prob_a=[1.0, 2.0], prob_b=[0.0]), UsageError, "2 and 1 numbers for the"),
    (voting([3, 4], vectors_per_class=[0, 0]), UnsupportedError, "It has no support vectors"),
    (machine("LINEAR", post_transform="LOGISTIC"), UnsupportedError, "Its scores are transformed"),
]


@pytest.mark.parametrize(("case", "kind", "told"), MACHINES, ids=lambda x: str(x)[:20])
def test_support_vectors_that_are_refused(case: Row, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        import_model(model_of(case))
