"""Columns of text, and dictionaries: encoded where they are given, by tables that the plan has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow
import pyarrow.parquet
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from verbs import ran, reason

import veilgraph
from veilgraph.frontend.onnx.classical.expand import DOMAIN
from veilgraph.frontend.onnx.classical.text_columns import text_columns
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.plan.given import Given
from veilgraph.ir.plan.tables import Phase

ROWS = 4
CITIES = ("Lima", "Oslo", "Rome")
Array = NDArray[Any]


def node(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    domain = DOMAIN if operator[-6:] in ("ncoder", "Mapper", "orizer", "ractor") else ""
    return helper.make_node(operator, inputs, [output], output, domain=domain, **attributes)


def model_of(
    nodes: Sequence[NodeProto],
    widths: Mapping[str, int],
    literals: Mapping[str, Array] | None = None,
    kind: int = TensorProto.FLOAT,
) -> ModelProto:
    """A model of inputs of text, [rows, width], whose last node makes the output y."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.STRING, [None, width])
        for name, width in widths.items()
    ]
    y = helper.make_tensor_value_info("y", kind, None)
    known = [numpy_helper.from_array(array, name) for name, array in (literals or {}).items()]
    graph = helper.make_graph(nodes, "main", ends, [y], known)
    versions = [helper.make_opsetid(DOMAIN, 4), helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def expected(proto: ModelProto, given: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return np.asarray(session.run(None, dict(given))[0], np.float32)


def texts(columns: int = 1, known: Sequence[str] = CITIES, count: int = ROWS) -> Array:
    drawn = np.random.default_rng(0).integers(0, len(known), (count, columns))
    return np.array(known, object)[drawn]


def one_hot(inputs: Sequence[str], output: str, known: Sequence[str], zeros: int) -> NodeProto:
    return node("OneHotEncoder", inputs, output, cats_strings=list(known), zeros=zeros)


def labels(inputs: Sequence[str], output: str, values: Sequence[float], **more: Any) -> NodeProto:
    keys = list(CITIES)
    return node("LabelEncoder", inputs, output, keys_strings=keys, values_floats=values, **more)


KEYS = numpy_helper.from_array(np.array(CITIES, object), "keys")
VALUES = numpy_helper.from_array(np.float32([3, 1, 2]), "values")
MAPPED = {"cats_int64s": [9, 4, 6], "default_int64": -7}
CASES: dict[str, tuple[ModelProto, dict[str, Array], tuple[bool, ...]]] = {
    "OneHotEncoder": (model_of([one_hot(["x"], "y", CITIES, 0)], {"x": 1}), {}, (False,)),
    "what is unknown": (
        model_of([one_hot(["x"], "y", CITIES, 1)], {"x": 1}),
        {"x": np.array([["Rome"], ["Paris"], ["Lima"], ["Bonn"]], object)},
        (True,),
    ),
    "two columns, one table": (
        model_of([one_hot(["x"], "y", CITIES, 0)], {"x": 2}),
        {"x": texts(2)},
        (False,),
    ),
    "LabelEncoder": (model_of([labels(["x"], "y", [0.5, 7.25, -1])], {"x": 1}), {}, (False,)),
    "a default": (
        model_of([labels(["x"], "y", [0.5, 7.25, -1], default_float=9.5)], {"x": 1}),
        {"x": np.array([["Rome"], ["Paris"], ["Lima"], ["Bonn"]], object)},
        (True,),
    ),
    "places": (model_of([labels(["x"], "y", [0.0, 1.0, 2.0])], {"x": 1}), {}, (False,)),
    "tensors": (
        model_of(
            [node("LabelEncoder", ["x"], "y", keys_tensor=KEYS, values_tensor=VALUES)],
            {"x": 1},
        ),
        {},
        (False,),
    ),
    "CategoryMapper": (
        model_of(
            [
                node("CategoryMapper", ["x"], "z", cats_strings=CITIES, **MAPPED),
                node("Cast", ["z"], "y", to=TensorProto.FLOAT),
            ],
            {"x": 1},
        ),
        {"x": np.array([["Rome"], ["Paris"], ["Lima"], ["Oslo"]], object)},
        (True,),
    ),
    "columns that move": (
        model_of(
            [
                node("Concat", ["a", "b"], "joined", axis=1),
                node("Identity", ["joined"], "same"),
                node("Gather", ["same", "turned"], "picked", axis=1),
                node("ArrayFeatureExtractor", ["picked", "first"], "one"),
                node("Reshape", ["one", "flat"], "row"),
                labels(["row"], "y", [0.5, 7.25, -1]),
            ],
            {"a": 1, "b": 2},
            {
                "turned": np.array([2, 0, 1]),
                "first": np.array([0]),
                "flat": np.array([-1, 1]),
            },
        ),
        {"a": texts(1), "b": np.concatenate([texts(1), texts(1)[::-1]], axis=1)},
        (True,),
    ),
    "tables that differ": (
        model_of(
            [
                node("Gather", ["x", "second"], "one", axis=1),
                one_hot(["one"], "first", ("Rome", "Lima"), 1),
                one_hot(["x"], "all", CITIES, 1),
                node("Flatten", ["first"], "two"),
                node("Flatten", ["all"], "six"),
                node("Concat", ["two", "six"], "y", axis=1),
            ],
            {"x": 2},
            {"second": np.array([1])},
        ),
        {"x": texts(2)},
        (True, True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_encoders_of_text(case: str) -> None:
    proto, given, others = CASES[case]
    feeds = given or {"x": texts()}
    shapes = {name: array.shape for name, array in feeds.items()}
    samples = {name: array[np.newaxis] for name, array in feeds.items()}
    plan, weights = veilgraph.compile(proto, shapes=shapes, calibrate=samples)
    found = veilgraph.simulate(plan, weights, feeds).outputs["y"]
    np.testing.assert_allclose(found, expected(proto, feeds), atol=0.01)
    inputs = [t for p in plan.programs.values() for t in p.inputs]
    assert {t.given.others for t in inputs if t.name == next(iter(feeds))} <= {others, others[:1]}


def test_places_have_no_scale_and_go_on_as_they_are() -> None:
    shapes = {"x": (ROWS, 1)}
    plan, _ = veilgraph.compile(CASES["places"][0], shapes=shapes)
    other, _ = veilgraph.compile(CASES["LabelEncoder"][0], shapes=shapes)
    assert plan.rounds(Phase.ONLINE) < other.rounds(Phase.ONLINE)
    (x,) = plan.programs["alice"].inputs
    assert (x.frac_bits, x.low, x.high) == (0, 0.0, 2.0)


def test_what_is_told_of_categories() -> None:
    plan, _ = veilgraph.compile(CASES["tables that differ"][0], shapes={"x": (ROWS, 2)})
    told = [d.what for d in plan.manifest.disclosures if "categories" in d.what]
    assert told == [
        "the categories of column 0 of x: Lima, Oslo, Rome; any other text counts as one more",
        "the categories of column 1 of x: Rome, Lima, Oslo; any other text counts as one more",
    ]


BAD: dict[str, tuple[Any, str]] = {
    "unknown": ([["Oslo"], ["Paris"], ["Rome"], ["Oslo"]], "in row 1, column 0, that is no categ"),
    "numbers": (np.ones((ROWS, 1)), "`x` holds in row 0, column 0, what is no text"),
    "missing": (np.array([["Oslo"], [None], ["Rome"], ["Oslo"]], object), "no text in row 1, col"),
    "NaN": (np.array([["Oslo"], ["Rome"], [np.nan], ["Oslo"]], object), "no text in row 2, col"),
    "too many": (texts(1, count=5), "`x` has shape 5x1, and the plan needs 4x1"),
}


@pytest.mark.parametrize("case", BAD)
def test_text_that_does_not_fit(case: str) -> None:
    plan, weights = veilgraph.compile(CASES["OneHotEncoder"][0], shapes={"x": (ROWS, 1)})
    given, told = BAD[case]
    with pytest.raises(UsageError, match=told) as caught:
        veilgraph.simulate(plan, weights, {"x": given})
    if "too many" not in case:
        assert caught.value.hint == "Its categories are 'Lima', 'Oslo', 'Rome'."


def test_text_of_another_width() -> None:
    plan, weights = veilgraph.compile(CASES["tables that differ"][0], shapes={"x": (ROWS, 2)})
    with pytest.raises(UsageError, match="`x` has shape 4x3, and the plan 2 columns of text"):
        veilgraph.simulate(plan, weights, {"x": texts(3)})


def test_text_where_numbers_are_wanted() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1])
    proto = model_of([node("Neg", ["x"], "y")], {})
    proto.graph.input.append(x)
    plan, weights = veilgraph.compile(proto)
    with pytest.raises(UsageError, match="`x` holds in row 1, column 0, what is no number"):
        veilgraph.simulate(plan, weights, {"x": np.array([[1.5], ["Oslo"]], object)})
    with pytest.raises(UsageError, match="Samples of `x` have type <U4, and need real numbers"):
        veilgraph.compile(proto, calibrate={"x": np.array([[["1"], ["Oslo"]]])})


UNENCODED: dict[str, tuple[ModelProto, str]] = {
    "nothing encodes it": (
        model_of([node("Identity", ["x"], "y")], {"x": 1}, kind=TensorProto.STRING),
        "It is text, and nothing in the model encodes it",
    ),
    "a node of text": (
        model_of([node("StringNormalizer", ["x"], "y")], {"x": 1}, kind=TensorProto.STRING),
        "It is text, and nothing in the model encodes it",
    ),
    "an encoder of numbers": (
        model_of([node("OneHotEncoder", ["x"], "y", cats_int64s=[1, 2])], {"x": 1}),
        "It reads text, and nothing encodes that",
    ),
    "rows that mix": (
        model_of(
            [node("Transpose", ["x"], "turned", perm=[1, 0]), one_hot(["turned"], "y", CITIES, 0)],
            {"x": 2},
        ),
        "It reads text, and nothing encodes that",
    ),
    "text of text": (
        model_of(
            [node("LabelEncoder", ["x"], "y", keys_strings=CITIES, values_strings=CITIES)],
            {"x": 1},
            kind=TensorProto.STRING,
        ),
        "It makes text",
    ),
}


@pytest.mark.parametrize("case", UNENCODED)
def test_text_that_nothing_encodes(case: str) -> None:
    proto, told = UNENCODED[case]
    with pytest.raises(UnsupportedError) as caught:
        veilgraph.compile(
            proto,
            shapes={"x": (ROWS, proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value)},
        )
    assert any(told in each.reason for each in caught.value.offenders), str(caught.value)


def test_a_category_that_is_no_text() -> None:
    encoder = one_hot(["x"], "y", CITIES, 0)
    encoder.attribute[0].strings[0] = b"\xff"
    with pytest.raises(UsageError, match="A category of the model is no text"):
        veilgraph.compile(model_of([encoder], {"x": 1}))


# Files


NAMES = ("age", "city", "job", "income")
JOBS = ("cook", "nurse")


def table(count: int = 64) -> Array:
    """Rows of four columns, as a data frame's: numbers beside text."""
    rng = np.random.default_rng(1)
    columns = [
        rng.integers(18, 80, count).astype(object),
        np.array(CITIES, object)[rng.integers(0, 3, count)],
        np.array(JOBS, object)[rng.integers(0, 2, count)],
        rng.uniform(0, 1e5, count).round(2).astype(object),
    ]
    return np.stack(columns, axis=1)


def pipeline(classifier: Any = None, encoder: Any = None) -> Pipeline:
    """Fitted on that table."""
    columns = ColumnTransformer(
        [
            ("text", encoder or OneHotEncoder(), [1]),
            ("jobs", OneHotEncoder(handle_unknown="ignore"), slice(2, 3)),
            ("numbers", StandardScaler(), [0, 3]),
        ]
    )
    rows = table()
    targets = np.where((rows[:, 0].astype(int) > 40) ^ (rows[:, 1] == "Oslo"), "yes", "no")
    return make_pipeline(columns, LogisticRegression() if classifier is None else classifier).fit(
        rows, targets
    )


def samples() -> dict[str, Array]:
    rows = table()
    kinds = [np.float32, object, object, np.float32]
    return {f"X{i}": rows[:, i].reshape(-1, ROWS, 1).astype(kind) for i, kind in enumerate(kinds)}


CLASSIFIERS = (LogisticRegression(), RandomForestClassifier(5, max_depth=3, random_state=0))
ENCODERS = (
    OneHotEncoder(handle_unknown="ignore"),
    OneHotEncoder(drop="first"),
    OrdinalEncoder(),
    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    TargetEncoder(target_type="binary", cv=2),
)


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=["linear", "trees"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_pipelines_of_text(encoder: Any, classifier: Any) -> None:
    fitted = pipeline(classifier, encoder)
    plan, weights = veilgraph.compile(fitted, shapes={"X0": (ROWS, 1)}, calibrate=samples())
    rows = table()[:ROWS]
    given = {name: array[0] for name, array in samples().items()}
    label, probabilities = veilgraph.simulate(plan, weights, given).outputs.values()
    (names,) = plan.labels.values()
    assert [names[int(i)] for i in label] == fitted.predict(rows).tolist()
    np.testing.assert_allclose(probabilities, fitted.predict_proba(rows), atol=0.005)


def test_which_columns_are_text() -> None:
    assert text_columns(pipeline()) == {1, 2}
    assert text_columns(StandardScaler().fit(np.ones((4, 2)))) == frozenset()
    both = FeatureUnion([("a", OneHotEncoder()), ("b", OrdinalEncoder())])
    assert text_columns(both.fit(table()[:, 1:3])) == {0, 1}
    masks = ColumnTransformer([("a", OneHotEncoder(), [False, True, False, False])])
    assert text_columns(masks.fit(table())) == {1}
    assert text_columns(ColumnTransformer([("a", OrdinalEncoder(), 1)])) == frozenset()


def csv(path: Path, rows: Array, names: Sequence[str] = NAMES) -> Path:
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]))
    return path


def named(fitted: Pipeline) -> ModelProto:
    """The pipeline's file, whose inputs have the columns' names."""
    proto: ModelProto = veilgraph.frontend.onnx.classical.fitted.converted(fitted)
    for i, name in enumerate(NAMES):
        for each in proto.graph.node:
            each.input[:] = [name if x == f"X{i}" else x for x in each.input]
        proto.graph.input[i].name = name
    return proto


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(named(pipeline()), tmp_path / "score.onnx")
    csv(tmp_path / "rows.csv", table())
    return tmp_path


def test_text_from_calibration_to_an_answer(folder: Path) -> None:
    plan, weights = folder / "score.plan", folder / "score.weights"
    owners = ("--owner", "income,city=bank", "--parties", "clinic,bank,vendor")
    calibrate = ("--calibrate", folder / "rows.csv", "--shape", f"age={ROWS}x1")
    ran("compile", folder / "score.onnx", "-o", plan, *owners[2:], *calibrate)
    rows, answer = table()[:11], folder / "answer.csv"
    fitted = pipeline()
    arrow = {name: rows[:, i].tolist() for i, name in enumerate(NAMES)}
    arrow["city"] = pyarrow.array(arrow["city"]).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table(arrow), folder / "given.parquet")
    csv(folder / "given.csv", rows[:, [3, 1, 0, 2]], [NAMES[i] for i in (3, 1, 0, 2)])
    for file in ("given.csv", "given.parquet"):
        given = ("--weights", weights, "--input", f"@{folder / file}")
        ran("simulate", plan, *given, "--output", f"label=@{answer}")
        _, *found = answer.read_text().splitlines()
        assert found == fitted.predict(rows).tolist()
    compared = ("--model", folder / "score.onnx", "--inputs", folder / "rows.csv")
    assert "No layer drifts" in ran("check", plan, "--weights", weights, *compared)
    assert "the categories of city: Lima, Oslo, Rome" in ran("inspect", plan, "--reveals")
    assert "online" in ran("bench", plan, "--iterations", "1")
    np.save(folder / "city.npy", rows[:ROWS, 1:2].astype(str))
    one = ("--input", f"city=@{folder / 'city.npy'}", "--input", f"@{folder / 'four.csv'}")
    csv(folder / "four.csv", rows[:ROWS, [0, 2, 3]], [NAMES[i] for i in (0, 2, 3)])
    assert "label, 4:" in ran("simulate", plan, "--weights", weights, *one)


REFUSED = {
    "unknown": ("Paris", "nurse", "has a category that the model doesn't know under `city`"),
    "empty": ("", "nurse", "has no text under `city`"),
    "empty, though others are known": ("Oslo", "", "has no text under `job`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_cells_of_text_that_are_refused(folder: Path, case: str) -> None:
    plan = folder / "score.plan"
    given = ("--shape", f"age={ROWS}x1")
    ran("compile", folder / "score.onnx", "-o", plan, *given)
    city, job, told = REFUSED[case]
    rows = table()[:ROWS]
    rows[2, 1:3] = city, job
    file = csv(folder / "bad.csv", rows)
    weights = ("--weights", folder / "score.weights")
    code, said = reason("simulate", plan, *weights, "--input", f"@{file}")
    assert code == 2
    assert f"Row 3 of {file} {told}." in said
    calibrate = ("compile", folder / "score.onnx", "-o", folder / "b.plan", "--calibrate", file)
    code, said = reason(*calibrate, *given)
    assert code == 2
    assert told in said


def test_other_text_is_taken_where_the_model_says_what_it_is(folder: Path) -> None:
    plan, weights = veilgraph.compile(
        folder / "score.onnx", shapes={"age": (ROWS, 1)}, calibrate=folder / "rows.csv"
    )
    rows = table()[:ROWS]
    rows[:, 2] = "pilot"
    file = csv(folder / "pilots.csv", rows)
    given = dict.fromkeys(NAMES, file)
    found = veilgraph.simulate(plan, weights, given).outputs["probabilities"]
    np.testing.assert_allclose(found, pipeline().predict_proba(rows), atol=0.005)


def test_a_parquet_column_that_is_no_text(folder: Path) -> None:
    plan, weights = veilgraph.compile(folder / "score.onnx", shapes={"age": (ROWS, 1)})
    rows = table()[:ROWS]
    columns = {name: rows[:, i].tolist() for i, name in enumerate(NAMES)} | {"city": [1, 2, 3, 4]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "x.parquet")
    with pytest.raises(UsageError, match="has int64 under `city`, and the model text"):
        veilgraph.simulate(plan, weights, {"city": folder / "x.parquet"})


class Frame:
    """What of a data frame is asked for."""

    def __init__(self, columns: Sequence[str], rows: Array) -> None:
        self.columns, self.rows = list(columns), rows
        self.iloc = self

    def __getitem__(self, place: tuple[slice, list[int]]) -> Array:
        found: Array = self.rows[place]
        return found

    def to_dict(self, kind: str) -> list[dict[str, Any]]:
        assert kind == "records"
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def test_a_data_frame_stands_for_all_inputs() -> None:
    frame = Frame(NAMES, table())
    plan, weights = veilgraph.compile(named(pipeline()), shapes={"age": (ROWS, 1)}, calibrate=frame)
    rows = Frame([*NAMES[::-1], "more"], np.column_stack([table()[:ROWS, ::-1], np.ones(ROWS)]))
    found = veilgraph.simulate(plan, weights, rows).outputs["probabilities"]
    np.testing.assert_allclose(found, pipeline().predict_proba(table()[:ROWS]), atol=0.005)
    with pytest.raises(UsageError, match="The data frame has no column `job`"):
        veilgraph.simulate(plan, weights, Frame(NAMES[:2], table()[:ROWS, :2]))
    with pytest.raises(UsageError, match="The data frame has 3 rows, and a sample of `age` has 4"):
        veilgraph.compile(
            named(pipeline()), shapes={"age": (ROWS, 1)}, calibrate=Frame(NAMES, table()[:3])
        )


def test_text_of_several_owners() -> None:
    """Columns of one table of text, each its owner's."""
    proto = model_of(
        [
            node("Gather", ["x", "second"], "one", axis=1),
            one_hot(["one"], "jobs", JOBS, 1),
            node("Gather", ["x", "first"], "other", axis=1),
            one_hot(["other"], "cities", CITIES, 0),
            node("Concat", ["jobs", "cities"], "y", axis=2),
        ],
        {"x": 2},
        {"second": np.array([1]), "first": np.array([0])},
    )
    rows = np.concatenate([texts(1), texts(1, JOBS)], axis=1)
    plan, weights = veilgraph.compile(
        proto,
        shapes={"x": (ROWS, 2)},
        columns={"x": ("city", "job")},
        parties=("clinic", "bank", "vendor"),
        owners={"job": "bank", "x": "clinic", "weights": "vendor"},
        calibrate={"x": rows[np.newaxis]},
    )
    given = {t.name: t.given for p in plan.programs.values() for t in p.inputs}
    assert given == {
        "x.clinic": Given((CITIES,), (False,)),
        "x.bank": Given((JOBS,), (True,)),
    }
    found = veilgraph.simulate(plan, weights, {"x": rows}).outputs["y"]
    np.testing.assert_allclose(found, expected(proto, {"x": rows}), atol=0.01)
    rows[1, 0] = "Paris"
    with pytest.raises(UsageError, match="clinic` holds text in row 1, column `city`, that is"):
        veilgraph.simulate(plan, weights, {"x": rows})


# Dictionaries

KEYS_OF_MAP = ("age", "city=Oslo", "rate")


def map_model(**vocabulary: Any) -> ModelProto:
    w = numpy_helper.from_array(np.float32([[0.5], [2], [-1]]), "w")
    nodes = [
        helper.make_node("DictVectorizer", ["x"], ["v"], "v", domain=DOMAIN, **vocabulary),
        node("MatMul", ["v", "w"], "y"),
    ]
    proto = model_of(nodes, {"x": 1})
    proto.graph.initializer.append(w)
    key = TensorProto.INT64 if "int64_vocabulary" in vocabulary else TensorProto.STRING
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    proto.graph.input[0].type.CopyFrom(helper.make_map_type_proto(key, value))
    return proto


MAPS: list[dict[str, float]] = [{"age": 2.0, "rate": 0.5}, {"city=Oslo": 1.0, "x": 9.0}]


def test_dictionaries_become_columns(tmp_path: Path) -> None:
    plan, weights = veilgraph.compile(
        map_model(string_vocabulary=KEYS_OF_MAP), shapes={"x": (2, 3)}, calibrate={"x": MAPS * 4}
    )
    (x,) = plan.programs["alice"].inputs
    assert (x.columns, x.shape, x.given.lacks) == (KEYS_OF_MAP, (2, 3), True)
    file = tmp_path / "rows.csv"
    file.write_text("rate,age\n0.5,2\n,\n")  # no column `city=Oslo`
    arrow = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"age": pyarrow.array([2.0, None]), "rate": [0.5, 0.0]}), arrow
    )
    frame = Frame(["rate", "age"], np.float32([[0.5, 2], [0, 0]]))
    forms: list[tuple[Any, list[float]]] = [
        (MAPS, [0.5, 2.0]),
        (np.float32([[2, 0, 0.5], [0, 1, 0]]), [0.5, 2.0]),
        (file, [0.5, 0.0]),
        (arrow, [0.5, 0.0]),
        (frame, [0.5, 0.0]),
    ]
    for given, answer in forms:
        found = veilgraph.simulate(plan, weights, {"x": given}).outputs["y"]
        np.testing.assert_allclose(found[:, 0], answer, atol=0.01)
    assert "the keys of x" in [d.what for d in plan.manifest.disclosures]


def test_keys_that_are_numbers() -> None:
    plan, weights = veilgraph.compile(map_model(int64_vocabulary=[7, 9, 8]))
    found = veilgraph.simulate(plan, weights, {"x": {7: 2.0, 8: 1.0}}).outputs["y"]
    np.testing.assert_allclose(found, [[0.0]], atol=0.01)


def test_a_map_of_text_is_refused() -> None:
    proto = map_model(int64_vocabulary=[7, 9, 8])
    proto.graph.input[0].type.map_type.value_type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnsupportedError, match="It is no tensor"):
        veilgraph.compile(proto)
