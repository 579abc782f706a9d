"""Tables whose columns have names, and several owners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from sklearn.tree import DecisionTreeClassifier
from verbs import ran

import veilgraph
from veilgraph.cli import main
from veilgraph.commands.files import read_inputs
from veilgraph.compilation.parts import Parts, parts_of
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.encoding import encode

NAMES = ("age", "income", "visits", "rate")
SIZES = np.float32([90, 1e5, 12, 0.1])
OWNERS = {"income, rate": "bank", "X": "clinic", "weights": "vendor"}
PARTIES = ("clinic", "bank", "vendor")
ROWS = 4


def model() -> onnx.ModelProto:
    """score = X w + b, of rows of four columns."""
    w = numpy_helper.from_array(np.float32([[0.01], [2e-5], [-0.1], [5]]), "w")
    b = numpy_helper.from_array(np.float32([0.25]), "b")
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["rows", 4])
    y = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows", 1])
    nodes = [
        helper.make_node("MatMul", ["X", "w"], ["product"], "product"),
        helper.make_node("Add", ["product", "b"], ["score"], "score"),
    ]
    graph = helper.make_graph(nodes, "main", [x], [y], [w, b])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def table(count: int) -> npt.NDArray[np.float32]:
    generator = np.random.default_rng(5)
    return (generator.uniform(0.1, 1, (count, 4)) * SIZES).astype(np.float32)


def compiled(**options: Any) -> tuple[veilgraph.Plan, Any]:
    given = {"owners": OWNERS, "parties": PARTIES, "columns": {"X": NAMES}} | options
    samples = {"X": table(40).reshape(10, ROWS, 4)}
    return veilgraph.compile(model(), shapes={"X": (ROWS, 4)}, calibrate=samples, **given)


def score(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return rows @ np.float32([[0.01], [2e-5], [-0.1], [5]]) + np.float32(0.25)


def test_each_owner_gives_its_columns() -> None:
    plan, weights = compiled()
    inputs = {t.name: t for p in plan.programs.values() for t in p.inputs}
    assert {n: (t.owner, t.columns) for n, t in inputs.items()} == {
        "X.clinic": ("clinic", ("age", "visits")),
        "X.bank": ("bank", ("income", "rate")),
    }
    rows = table(ROWS)
    given = {"X.bank": rows[:, [1, 3]], "X.clinic": rows[:, [0, 2]]}
    for form in (given, {"X": rows}):
        found = veilgraph.simulate(plan, weights, form).outputs["score"]
        np.testing.assert_allclose(found, score(rows), atol=0.02)


def test_columns_of_both_owners_have_scales_of_their_own() -> None:
    plan, _ = compiled()
    inputs = {t.name: t for p in plan.programs.values() for t in p.inputs}
    assert inputs["X.bank"].column_exponents == (0, -20)
    assert inputs["X.clinic"].column_exponents == (-10, -13)


def test_check_compares_with_the_whole_table() -> None:
    plan, weights = compiled()
    rows = table(3 * ROWS).reshape(3, ROWS, 4)
    found = veilgraph.check(plan, weights, model(), {"X": rows})
    assert {layer.name for layer in found.layers} >= {"score"}
    assert found.status() is None


def test_one_owner_of_all_columns_gives_one_input() -> None:
    plan, _ = compiled(owners={"X": "bank", "weights": "vendor"})
    (x,) = plan.programs["bank"].inputs
    assert (x.name, x.columns) == ("X", NAMES)


def test_the_parts_of_a_table_are_put_together() -> None:
    _, parts = parts_of({"b,d": "q", "c": "p", "X": "r"}, {"X": ("a", "b", "c", "d")})
    x = np.arange(8.0).reshape(2, 4)
    split = parts.split({"X": x, "y": x})
    assert {n: array.shape for n, array in split.items()} == {
        "X.r": (2, 1),
        "X.q": (2, 2),
        "X.p": (2, 1),
        "y": (2, 4),
    }
    np.testing.assert_array_equal(parts.joined(split)["X"], x)
    assert parts.whole({n: array.shape for n, array in split.items()}) == {
        "X": (2, 4),
        "y": (2, 4),
    }
    assert parts.named(parts.columns | {"y": ()})["X"] == ("a", "b", "c", "d")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no owner": ({"owners": {"age,income": "bank"}}, "visits, rate of `X` have no owner"),
    "one without": ({"owners": {"age,income,visits": "bank"}}, "rate of `X` has no owner"),
    "two owners": ({"owners": OWNERS | {"rate": "clinic"}}, "`rate` has two owners"),
    "unknown": ({"owners": OWNERS | {"height": "bank"}}, "no input `height`"),
    "nobody": ({"owners": OWNERS | {"age": "mallory"}}, "mallory"),
    "too few names": ({"columns": {"X": NAMES[:3]}, "owners": {}}, "4x4, and 3 columns are named"),
    "another input": ({"columns": {"Z": NAMES}, "owners": {}}, "The model has no input `Z`"),
    "one name twice": (
        {"columns": {"X": ("a", "a", "b", "c")}, "owners": {"b": "bank", "X": "clinic"}},
        "Two columns are named `a`",
    ),
    "a comma": (
        {"columns": {"X": ("a,b", "c", "d", "e")}, "owners": {"c": "bank", "X": "clinic"}},
        "A column is named 'a,b'",
    ),
    "an empty name": (
        {"columns": {"X": ("a", "", "d", "e")}, "owners": {"d": "bank", "X": "clinic"}},
        "A column is named ''",
    ),
    "no input": ({"columns": NAMES}, "without the input that they are of"),
}


@pytest.mark.parametrize(("options", "told"), BAD.values(), ids=BAD.keys())
def test_columns_that_make_no_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compiled(**options)


def test_a_number_outside_names_its_column() -> None:
    plan, weights = compiled()
    rows = table(ROWS)
    rows[2, 3] = 7
    with pytest.raises(
        AccuracyError, match=r"`X.bank` holds a number in row 2, column `rate`, outside"
    ):
        veilgraph.simulate(plan, weights, {"X": rows})


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_missing_names_its_row_and_column(number: float) -> None:
    plan, weights = compiled()
    rows = table(ROWS)
    rows[2, 3] = number
    with pytest.raises(UsageError, match=rf"not finite: {number} in row 2, column `rate`\."):
        veilgraph.simulate(plan, weights, {"X": rows})


def csv(path: Path, rows: npt.NDArray[np.float32], names: tuple[str, ...]) -> Path:
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, its columns' names, and 41 rows to calibrate with."""
    onnx.save(model(), tmp_path / "score.onnx")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    csv(tmp_path / "rows.csv", table(41), NAMES)
    return tmp_path


def compile_verb(folder: Path) -> Path:
    plan = folder / "score.plan"
    owners = ("--owner", "income,rate=bank", "--owner", "X=clinic", "--owner", "weights=vendor")
    names = ("--columns", f"X={folder / 'names.txt'}", "--calibrate", folder / "rows.csv")
    parties = ("--parties", ",".join(PARTIES), "--shape", f"X={ROWS}x4")
    ran("compile", folder / "score.onnx", "-o", plan, *owners, *names, *parties)
    return plan


def test_csv_files_from_calibration_to_an_answer(folder: Path) -> None:
    plan, weights = compile_verb(folder), folder / "score.weights"
    rows = table(ROWS)
    given = csv(folder / "given.csv", rows[:, [3, 0, 2, 1]], ("rate", "age", "visits", "income"))
    answer = folder / "answer.csv"
    output = f"score=@{answer}"
    ran("simulate", plan, "--weights", weights, "--input", f"@{given}", "--output", output)
    header, *lines = answer.read_text().splitlines()
    assert header == "score"
    np.testing.assert_allclose(np.float32(lines), score(rows)[:, 0], atol=0.02)
    one = ("--input", f"X.bank=@{given}", "--input", f"X.clinic=@{given}")
    assert "score, 4x1:" in ran("simulate", plan, "--weights", weights, *one)
    samples = ("--model", folder / "score.onnx", "--inputs", folder / "rows.csv")
    assert "score" in ran("check", plan, "--weights", weights, *samples)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (table(ROWS)[:, :3], "`X` has shape 4x3, and the model 4 columns"),
        (np.ones((ROWS, 5)), "`X` has shape 4x5, and the model 4 columns"),
        (3.0, r"`X` has shape \(\), and the model 4 columns"),
        ([[1.0], [2.0, 3.0]], "`X` is no array: its rows have different lengths"),
    ],
)
def test_a_whole_table_of_another_width_is_refused(given: Any, told: str) -> None:
    plan, weights = compiled()
    with pytest.raises(UsageError, match=told):
        veilgraph.simulate(plan, weights, {"X": given})


def test_columns_called_as_what_has_a_meaning() -> None:
    names = ("age", "weights", "X", "rate")
    owners = {"X": "clinic", "weights": "vendor", "rate": "bank"}
    plan, _ = compiled(columns={"X": names}, owners=owners)
    assert plan.manifest.owners == {"X.clinic": "clinic", "X.bank": "bank", "weights": "vendor"}


class Frame:
    """What of a data frame is asked for."""

    def __init__(self, columns: list[str], table: npt.NDArray[Any]) -> None:
        self.columns, self.table = columns, table
        self.iloc = self

    def __getitem__(self, place: tuple[slice, list[int]]) -> npt.NDArray[Any]:
        return self.table[place]


@pytest.mark.parametrize("owners", [OWNERS, {"X": "bank", "weights": "vendor"}])
def test_columns_of_a_data_frame_are_taken_by_name(owners: dict[str, str]) -> None:
    plan, weights = compiled(owners=owners)
    rows = table(ROWS)
    frame = Frame(["rate", "id", *NAMES[:3]], np.column_stack([rows[:, 3], rows[:, 0], rows]))
    frame.table = frame.table[:, :5]
    found = veilgraph.simulate(plan, weights, {"X": frame}).outputs["score"]
    np.testing.assert_allclose(found, score(rows), atol=0.02)
    for columns, told in ((["rate", "id"], "no column"), ([*NAMES, "age", "rate"], "two columns")):
        with pytest.raises(UsageError, match=f"has {told} `(age|rate|income)`"):
            veilgraph.simulate(plan, weights, {"X": Frame(columns, rows)})


@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.int64])
def test_numbers_of_few_bits_are_divided_as_others(kind: type[Any]) -> None:
    tensor = Tensor("X", (1, 2), 64, 8, "alice", 0, column_exponents=(0, -13))
    words = encode(np.array([[50, 11]], kind), tensor).view(np.int64)
    np.testing.assert_array_equal(words, [[50 << 8, 11 << 21]])


REFUSED = {
    "other numbers of rows": (
        ("--input", "X.bank=@two.csv", "--input", "X.clinic=@rows.csv"),
        "`X.bank` has 2 rows, and `X.clinic` has 41",
    ),
    "no column": (("--input", "@ages.csv"), "ages.csv has no column"),
    "no CSV file": (("--input", "@names.txt"), "names.txt is given for no input"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_csv_files_that_do_not_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], told: str
) -> None:
    plan = compile_verb(folder)
    csv(folder / "two.csv", table(2), NAMES)
    csv(folder / "ages.csv", table(4)[:, :1], NAMES[:1])
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, ["simulate", str(plan), "--weights", "score.weights", *given])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_a_file_that_no_input_is_left_for(tmp_path: Path) -> None:
    path = csv(tmp_path / "rows.csv", table(2), NAMES)
    with pytest.raises(UsageError, match="there is no input that it could be of"):
        read_inputs({"": path}, [])


def test_a_cell_beyond_float32_to_calibrate_with(folder: Path) -> None:
    (folder / "rows.csv").write_text(",".join(NAMES) + "\n" + "1,1e39,1,1\n" * 4)
    with pytest.raises(UsageError, match="has numbers beyond those of float32"):
        veilgraph.compile(
            folder / "score.onnx",
            shapes={"X": (ROWS, 4)},
            columns={"X": NAMES},
            calibrate=folder / "rows.csv",
        )


def test_too_few_rows_to_calibrate_with(folder: Path) -> None:
    csv(folder / "rows.csv", table(3), NAMES)
    with pytest.raises(UsageError, match="has 3 rows, and a sample of `X` has 4"):
        veilgraph.compile(
            folder / "score.onnx",
            shapes={"X": (ROWS, 4)},
            columns={"X": NAMES},
            calibrate=folder / "rows.csv",
        )


def test_a_plan_without_names_takes_no_csv_file(folder: Path) -> None:
    plan, weights = veilgraph.compile(folder / "score.onnx", shapes={"X": (ROWS, 4)})
    with pytest.raises(UsageError, match="The columns of input `X` have no names"):
        veilgraph.simulate(plan, weights, {"X": folder / "rows.csv"})


def test_parts_of_a_plan_are_read_back(folder: Path) -> None:
    plan = veilgraph.Plan.load(compile_verb(folder))
    assert Parts.in_plan(plan).of == {"X": {"X.clinic": (0, 2), "X.bank": (1, 3)}}
    told = [d.what for d in plan.manifest.disclosures]
    assert "names of columns" in told


@pytest.mark.parametrize(
    ("content", "told"), [(None, "can't be read"), (b"age\xff", "names.txt is no text file")]
)
def test_names_that_cannot_be_read(folder: Path, content: bytes | None, told: str) -> None:
    names = folder / "names.txt"
    names.unlink()
    if content is not None:
        names.write_bytes(content)
    arguments = ["compile", str(folder / "score.onnx"), "--columns", f"X={names}"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_columns_of_unlike_sizes_are_drawn_for_a_benchmark() -> None:
    plan, _ = compiled()
    measured = veilgraph.bench(plan, iterations=1)
    assert measured.outputs["score"].shape == (ROWS, 1)


def test_text_labels_are_printed(tmp_path: Path) -> None:
    columns = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32)
    texts = np.where(columns.sum(axis=1) > 0, "approved", "refused")
    fitted = DecisionTreeClassifier(max_depth=3, random_state=0).fit(columns, texts)
    samples = {"X": columns.reshape(16, 4, 2)}
    plan, weights = veilgraph.compile(fitted, shapes={"X": (4, 2)}, calibrate=samples)
    assert plan.labels == {"label": ("approved", "refused")}
    plan.save(tmp_path / "tree.plan")
    veilgraph.save_weights(weights, tmp_path / "tree.weights", plan)
    np.save(tmp_path / "x.npy", columns[:4])
    answers = tmp_path / "answers.csv"
    given = ("--weights", tmp_path / "tree.weights", "--input", f"X=@{tmp_path / 'x.npy'}")
    expected = fitted.predict(columns[:4]).tolist()
    assert f"label, 4: {', '.join(expected)}" in ran("simulate", tmp_path / "tree.plan", *given)
    ran("simulate", tmp_path / "tree.plan", *given, "--output", f"label=@{answers}")
    assert answers.read_text().split() == ["label", *expected]
    told = json.loads(ran("simulate", tmp_path / "tree.plan", *given, "--json"))
    assert told["outputs"]["label"]["labels"] == expected
