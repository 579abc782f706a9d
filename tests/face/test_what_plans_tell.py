"""A plan is given to all parties: of a fitted model's numbers it tells what `--reveals` states.

Models are fitted so that their numbers are recognisable: rows, answers, categories and labels are
large whole numbers or have many digits. Then the plan's bytes and texts are searched for each
number of the ONNX file.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from sklearn import (
    calibration,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from verbs import run_verb
from xgboost import XGBClassifier, XGBRegressor

import veilgraph
from veilgraph.frontend.onnx.classical.expand import DOMAIN
from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.frontend.onnx.written_numbers import are_written
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph.table_options import TableOptions, Trees

Array = NDArray[Any]
ROWS = 4
LEAST_WHOLE = 5_000_000  # below it numbers of plans lie that are places and sizes
LEAST_WORD = 1 << 16  # of a number in fixed point: smaller words are there by chance
MOST_FRAC_BITS = 40
RUN = 6  # small whole numbers are told where as many stand side by side


def _random() -> np.random.Generator:
    return np.random.default_rng(20)


def table() -> Array:
    """Numbers of many digits, [60, 4]."""
    return _random().uniform(-3, 3, (60, 4)).astype(np.float32)


def classes(columns: tuple[int, ...] = (0, 1)) -> Array:
    """Two classes with large labels, of a table's columns."""
    return np.where(table()[:, columns].sum(axis=1) > 0, 9_000_011, 7_000_003)


def answers() -> Array:
    """Large whole numbers in order: a table like that looks like labels."""
    return np.sort(_random().choice(np.arange(6_000_000, 16_000_000), 60, replace=False))


def whole_table() -> Array:
    return _random().integers(6_000_000, 16_000_000, (60, 4)).astype(np.float32)


def with_gaps() -> Array:
    """A table in which some numbers are missing."""
    return np.where(_random().uniform(size=(60, 4)) < 0.1, np.float32(np.nan), table())


def small_answers() -> Array:
    """Whole numbers below 256 in order, with gaps."""
    return np.sort(_random().choice(256, 60, replace=False))


def single(operator: str, **attributes: Any) -> ModelProto:
    """A node of ai.onnx.ml on a table of four columns."""
    node = helper.make_node(operator, ["X"], ["y"], domain=DOMAIN, **attributes)
    ends = [
        helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4]),
    ]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:])
    versions = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def fit(estimator: Any, rows: Array, targets: Array) -> ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return converted(estimator.fit(rows, targets))


def xgboost(kind: Any, targets: Array) -> ModelProto:
    return fit(kind(n_estimators=3, max_depth=3, base_score=0.4321), table(), targets)


def small_tree(**options: Any) -> Any:
    return tree.DecisionTreeClassifier(max_depth=2, random_state=0, **options)


def combined(*, soft: bool = True) -> Any:
    members = [("a", small_tree()), ("b", linear_model.LogisticRegression())]
    voting = "soft" if soft else "hard"
    return ensemble.VotingClassifier(members, voting=voting, flatten_transform=False)


def stacked() -> Any:
    members = [("a", small_tree()), ("b", linear_model.LogisticRegression())]
    return ensemble.StackingClassifier(members, cv=2)


def with_columns(estimator: Any) -> Any:
    return pipeline.make_pipeline(preprocessing.StandardScaler(), estimator)


SEED = {"random_state": 0}
CATEGORIES = [6_000_017, 7_000_003, 8_000_009, 9_000_011]
DECIMALS = [1.2345678, 2.3456789, -1.7654321, 0.87654321]
MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "neighbours' answers": lambda: fit(neighbors.KNeighborsRegressor(3), table(), answers()),
    "neighbours' rows": lambda: fit(neighbors.KNeighborsRegressor(3), whole_table(), answers()),
    "neighbours' pairs": lambda: fit(
        neighbors.KNeighborsRegressor(3), table(), np.stack([answers(), answers()[::-1]], axis=1)
    ),
    "neighbours' classes": lambda: fit(neighbors.KNeighborsClassifier(3), table(), classes()),
    "neighbours' small answers": lambda: fit(
        neighbors.KNeighborsRegressor(3), table(), small_answers()
    ),
    "neighbours within a radius": lambda: fit(
        neighbors.RadiusNeighborsClassifier(2.5432, outlier_label=9_000_011), table(), classes()
    ),
    "AdaBoost": lambda: fit(ensemble.AdaBoostClassifier(n_estimators=3), table(), classes()),
    "AdaBoost, regression": lambda: fit(
        ensemble.AdaBoostRegressor(n_estimators=3, **SEED), table(), table()[:, 0] * 1.1
    ),
    "Platt": lambda: fit(with_columns(svm.SVC(probability=True, **SEED)), table() * 1.3, classes()),
    "SVR": lambda: fit(svm.SVR(), table(), table()[:, 0] * 1.1),
    "tree": lambda: fit(tree.DecisionTreeRegressor(max_depth=3), whole_table(), answers()),
    "tree, classes": lambda: fit(small_tree(), whole_table(), classes()),
    "boosting": lambda: fit(
        ensemble.GradientBoostingRegressor(n_estimators=3), table(), table()[:, 0] * 1.1
    ),
    "boosting by histograms": lambda: fit(
        ensemble.HistGradientBoostingRegressor(max_iter=3), table(), table()[:, 0] * 1.1
    ),
    "XGBoost": lambda: xgboost(XGBClassifier, (classes() > 8_000_000).astype(int)),
    "XGBoost, regression": lambda: xgboost(XGBRegressor, table()[:, 0] * 1.1),
    "isotonic": lambda: fit(
        calibration.CalibratedClassifierCV(small_tree(), method="isotonic", cv=2),
        table(),
        classes(),
    ),
    "voting": lambda: fit(combined(soft=False), table(), classes()),
    "stacking": lambda: fit(stacked(), table(), classes()),
    "bagging": lambda: fit(ensemble.BaggingClassifier(small_tree(), 3), table(), classes()),
    "isolation": lambda: fit(
        ensemble.IsolationForest(n_estimators=3, max_samples=16, **SEED), table(), classes()
    ),
    "naive Bayes": lambda: fit(naive_bayes.GaussianNB(), table(), classes()),
    "discretised": lambda: fit(
        preprocessing.KBinsDiscretizer(3, encode="ordinal", quantile_method="linear"),
        table(),
        classes(),
    ),
    "quantiles": lambda: fit(preprocessing.RobustScaler(), table(), classes()),
    "quantiles of all": lambda: fit(
        preprocessing.QuantileTransformer(n_quantiles=20), table(), classes()
    ),
    "powers": lambda: fit(preprocessing.PowerTransformer(), table(), classes()),
    "Imputer": lambda: single("Imputer", imputed_value_floats=DECIMALS, replaced_value_float=-1.0),
    "Scaler": lambda: single("Scaler", offset=DECIMALS, scale=DECIMALS[::-1]),
    "Binarizer": lambda: single("Binarizer", threshold=DECIMALS[0]),
    "LabelEncoder": lambda: single(
        "LabelEncoder", keys_floats=[0.0, 1.0], values_floats=DECIMALS[:2], default_float=1.357911
    ),
    "LabelEncoder, keys": lambda: single(
        "LabelEncoder", keys_floats=list(map(float, CATEGORIES)), values_floats=DECIMALS
    ),
}
# Their plans have tens of thousands of coefficients of series, some of which are like any number.
WITH_SERIES: Mapping[str, Callable[[], ModelProto]] = {
    "neighbours' weights": lambda: fit(
        neighbors.KNeighborsRegressor(3, weights="distance"), table(), answers()
    ),
    "neighbours for gaps": lambda: fit(impute.KNNImputer(n_neighbors=3), with_gaps(), classes()),
}
ON_WHOLE = ("neighbours' rows", "tree", "tree, classes")


def numbers_of(proto: ModelProto) -> Array:
    """All numbers of a file that are recognisable."""
    parts = [np.asarray(part, np.float64).reshape(-1) for part in tables_of(proto)]
    every = np.unique(np.concatenate(parts)).astype(np.float32)
    every = every[np.isfinite(every)]
    kept = [v for v in every if abs(v) >= LEAST_WHOLE or not (v == round(v) or are_written(v))]
    return np.array(kept, np.float64)


def tables_of(proto: ModelProto) -> Iterator[Array]:
    """The tensors and lists of a file."""
    yield from (numpy_helper.to_array(t) for t in proto.graph.initializer if t.data_type != 8)
    for node in proto.graph.node:
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            if attribute.type == AttributeProto.TENSOR:
                yield numpy_helper.to_array(value)
            elif attribute.type in (AttributeProto.FLOAT, AttributeProto.INT):
                yield np.array([value])
            elif attribute.type in (AttributeProto.FLOATS, AttributeProto.INTS):
                yield np.array(value)


def parts_of(plan: Any, folder: Path) -> dict[str, bytes]:
    """All that a plan's file has, and what `inspect` says of it."""
    path = folder / "model.plan"
    plan.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    said = run_verb("inspect", path, "--reveals", "--json")
    assert said.exit_code == 0, said.stderr
    return {**parts, "inspect --json": said.stdout.encode()}


WRITTEN = re.compile(rb"(?<![\w.])(?=(-?\d[\d.e+-]*))")  # a number, wherever one may begin


def found_in(parts: Mapping[str, bytes], numbers: Array) -> set[str]:
    """Where which of these numbers stands, in which form."""
    found = set()
    whole = numbers[numbers == np.round(numbers)]
    forms = {f: numbers.astype(f) for f in ("<f4", "<f8")}
    forms |= {f: whole.astype(f) for f in ("<i4", "<i8")}
    texts = {f"{v:.7g}"[:8].encode() for v in numbers if v != round(v)}
    texts |= {f"{v:e}".encode() for v in numbers} | {f"{v:.0f}".encode() for v in whole}
    lengths = {len(text) for text in texts}
    for name, content in parts.items():
        for form, values in forms.items():
            for start in range(0, np.dtype(form).itemsize, 4):
                words = _words(content[start:], form.replace("f", "u"))
                hits = _among(values.view(form.replace("f", "u")), words)
                found |= {f"{v} in {name} as {form}" for v in numbers_at(values, hits)}
        if not name.endswith(".bin"):
            written = set(WRITTEN.findall(content))
            begun = {number[:length] for number in written for length in lengths}
            found |= {f"{text.decode()} in {name}" for text in begun & texts}
    return found | set(_fixed(parts, numbers))


def numbers_at(values: Array, hits: Array) -> list[float]:
    return [float(value) for value in values[hits]]


def _words(content: bytes, form: str) -> Array:
    size = np.dtype(form).itemsize
    return np.unique(np.frombuffer(content[: len(content) // size * size], form))


def _among(values: Array, words: Array) -> Array:
    """Whether each value is one of some sorted words, which are many."""
    if not words.size:
        return np.zeros(values.shape, bool)
    places = np.searchsorted(words, values)
    return np.asarray(words[np.minimum(places, words.size - 1)] == values)


def _fixed(parts: Mapping[str, bytes], numbers: Array) -> Iterator[str]:
    """Numbers as fixed-point words: two of a model at one scale, or its only one."""
    for name, content in parts.items():
        if not name.endswith(("constants.bin", "params.bin")):
            continue
        for form in ("<i4", "<i8"):
            words = _words(content, form).astype(np.int64)
            for bits in range(MOST_FRAC_BITS + 1):
                given = np.round(numbers * 2.0**bits)
                size = np.abs(given)
                told = (size >= LEAST_WORD) & (size < 2.0 ** (8 * int(form[-1]) - 1))
                hits = _among(given[told].astype(np.int64), words)
                if hits.sum() >= min(2, len(numbers)):
                    yield f"{numbers_at(numbers[told], hits)} in {name}, {bits} fraction bits"


def compiled(proto: ModelProto, rows: Array, **options: Any) -> Any:
    shapes = {"X": (ROWS, rows.shape[1])}
    samples = {"X": rows.reshape(-1, ROWS, rows.shape[1])}
    return veilgraph.compile(proto, shapes=shapes, calibrate=samples, max_error=0.01, **options)


def rows_of(name: str) -> Array:
    return whole_table() if name in ON_WHOLE else table()


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_tells_no_fitted_number(name: str, tmp_path: Path) -> None:
    proto = MODELS[name]()
    plan, _ = compiled(proto, rows_of(name))
    stated = " ".join(d.what for d in plan.manifest.disclosures)
    numbers = np.array([v for v in numbers_of(proto) if f"{v:.6g}" not in stated])
    assert len(numbers)
    assert found_in(parts_of(plan, tmp_path), numbers) == set()


@pytest.mark.parametrize("name", WITH_SERIES)
def test_a_plan_with_many_series_tells_no_more_than_chance(name: str, tmp_path: Path) -> None:
    """What is told stands there whole, at one scale: a hundred numbers and more."""
    proto = WITH_SERIES[name]()
    plan, _ = compiled(proto, table())
    numbers = numbers_of(proto)
    found = found_in(parts_of(plan, tmp_path), numbers)
    assert len(numbers) > 200
    assert len(found) < 10
    assert all(place.count(",") < 20 for place in found)


@pytest.mark.parametrize("name", ["Imputer", "tree", "XGBoost", "neighbours' rows"])
def test_the_search_finds_weights_that_are_public(name: str, tmp_path: Path) -> None:
    proto = MODELS[name]()
    plan, _ = compiled(proto, rows_of(name), owners={"weights": "public"})
    assert found_in(parts_of(plan, tmp_path), numbers_of(proto))


def test_a_table_of_small_numbers_in_order_is_not_told(tmp_path: Path) -> None:
    plan, _ = compiled(MODELS["neighbours' small answers"](), table())
    run = small_answers()[:RUN]
    text = re.compile(r"\D+".join(rf"{n}(\.0+(e\+00)?)?" for n in run).encode())
    for name, content in parts_of(plan, tmp_path).items():
        for form in ("u1", "<u2", "<u4", "<u8", "<f4", "<f8"):
            assert run.astype(form).tobytes() not in content, (name, form)
        assert not text.search(content), name


@pytest.mark.parametrize(
    "targets",
    [np.arange(60.0), small_answers(), answers()[::-1], table()[:, 0]],
    ids=["places", "sorted", "falling", "real"],
)
def test_answers_of_neighbours_show_in_no_program(targets: Array) -> None:
    """Whatever they are, the program is the same."""
    model = fit(neighbors.KNeighborsRegressor(3), table(), targets)
    mixed = (_random().normal(size=60) * 1000).astype(targets.dtype)
    other = fit(neighbors.KNeighborsRegressor(3), table(), mixed)
    shapes = {"X": (ROWS, 4)}
    assert import_model(model, shapes).text() == import_model(other, shapes).text()


def test_numbers_that_could_be_an_architectures_are_not_told() -> None:
    """Of fitted single numbers none is public, as a 5 or a 0.25 in a Constant node would be."""
    encoder = single(
        "LabelEncoder", keys_floats=[0.0, 1.0], values_floats=[1.5, 2.5], default_float=0.5
    )
    for proto, other in (
        (encoder, 0.375),
        (single("Imputer", imputed_value_floats=[5.0], replaced_value_float=-1.0), 6.0),
        (fit(svm.SVR(gamma=0.25), table(), table()[:, 0]), 0.5),
    ):
        changed = ModelProto()
        changed.CopyFrom(proto)
        for attribute in changed.graph.node[0].attribute:
            if attribute.name == "default_float":
                attribute.f = other
            if attribute.name in ("imputed_value_floats", "kernel_params"):
                attribute.floats[0] = other
        texts = [import_model(given, {"X": (ROWS, 4)}).text() for given in (proto, changed)]
        assert texts[0] == texts[1]


HIDDEN: Mapping[str, Callable[[], Any]] = {
    "AdaBoost": lambda: ensemble.AdaBoostClassifier(small_tree(), n_estimators=3, **SEED),
    "bagging": lambda: ensemble.BaggingClassifier(small_tree(), 3, **SEED),
    "forest": lambda: ensemble.RandomForestClassifier(3, max_depth=2, **SEED),
    "stacking": stacked,
    "voting": combined,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_secret_structures_within_ensembles_show_in_no_program(name: str) -> None:
    """Trees that ask about other columns, as deep: the same program, weights of equal shapes."""
    graphs = [
        import_model(
            fit(HIDDEN[name](), table(), classes(asked)),
            {"X": (ROWS, 4)},
            tables=TableOptions(Trees.SECRET),
        )
        for asked in ((0, 1), (2, 3))
    ]
    assert graphs[0].structures == graphs[1].structures
    assert graphs[0].text() == graphs[1].text()
    shapes = [{n: w.shape for n, w in graph.weights.items()} for graph in graphs]
    assert shapes[0] == shapes[1]


def test_tables_that_are_read_by_leaves_are_refused_where_structures_are_secret() -> None:
    """A table with an entry a leaf says how many there are, and which nodes they are."""
    two = np.stack([classes(), classes((2, 3))], axis=1)
    forest = ensemble.IsolationForest(n_estimators=3, max_samples=16, **SEED)
    for proto in (fit(forest, table(), classes()), fit(small_tree(), table(), two)):
        import_model(proto, {"X": (ROWS, 4)})
        with pytest.raises(UnsupportedError, match="an entry a leaf"):
            import_model(proto, {"X": (ROWS, 4)}, tables=TableOptions(Trees.SECRET))


def test_a_gather_by_leaves_is_refused_where_structures_are_secret() -> None:
    """As the rule of ai.onnx.ml's own tables, for one of the default operators."""
    proto = fit(tree.DecisionTreeRegressor(max_depth=2, **SEED), table(), classes())
    made = proto.graph.output[0].name
    proto.graph.node.extend(
        [
            helper.make_node("Cast", [made], ["leaf"], to=TensorProto.INT64),
            helper.make_node("Gather", ["said", "leaf"], ["found"]),
        ]
    )
    said = numpy_helper.from_array(np.array([3.5, -1.25], np.float32), "said")
    proto.graph.initializer.append(said)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("found", 1, None))
    import_model(proto, {"X": (ROWS, 4)})
    with pytest.raises(UnsupportedError, match="looks up what a tree says, an entry a leaf"):
        import_model(proto, {"X": (ROWS, 4)}, tables=TableOptions(Trees.SECRET))


def test_text_that_is_no_label_is_refused() -> None:
    """Names of the rows that a model was fitted on would be in the plan, as labels are."""
    nodes = [
        helper.make_node("TopK", ["X", "one"], ["nearest", "place"]),
        helper.make_node("ArrayFeatureExtractor", ["names", "place"], ["y"], domain=DOMAIN),
    ]
    names = helper.make_tensor("names", TensorProto.STRING, [4], [b"Ada", b"Bo", b"Cy", b"Di"])
    ends = [
        helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 4]),
        helper.make_tensor_value_info("y", TensorProto.STRING, None),
    ]
    literals = [names, numpy_helper.from_array(np.array([1]), "one")]
    graph = helper.make_graph(nodes, "named", ends[:1], ends[1:], literals)
    versions = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", 21)]
    with pytest.raises(UnsupportedError, match="It makes text that is no label"):
        import_model(helper.make_model(graph, opset_imports=versions, ir_version=10), {"X": (4, 4)})
