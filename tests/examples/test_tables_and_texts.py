"""The examples credit and text: scripts, data and notebooks do what their pages say."""

from __future__ import annotations

import io
import json
import runpy
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = ("credit/credit.ipynb", "text/text.ipynb")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all examples, whose modules are imported anew."""
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples")
    for name in ("messages", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder the current one, from which modules are imported, as Jupyter does."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)


def printed(script: Path, *arguments: str) -> list[str]:
    """The lines that a script prints."""
    before = sys.argv
    sys.argv = [str(script), *arguments]
    try:
        with redirect_stdout(io.StringIO()) as told:
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before
    return told.getvalue().splitlines()


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebooks_cells_print_what_it_shows(
    name: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter((copied / name).parent, monkeypatch)
    notebook = json.loads((copied / name).read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        with redirect_stdout(io.StringIO()) as told:
            exec("".join(cell["source"]), names)
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert told.getvalue() == shown, f"cell {number}"
        assert cell["execution_count"] == number


def test_a_score_is_what_its_page_shows(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(copied / "credit", monkeypatch)
    assert printed(Path("score.py")) == [
        "repays with probability 0.70; did not repay",
        "5 rounds, 312 bytes",
    ]


def test_a_topic_is_what_its_page_shows(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(copied / "text", monkeypatch)
    assert printed(Path("classify.py")) == ["topic: delivery", "8 rounds, 11536 bytes"]


def test_the_score_is_right_as_often_as_its_page_says() -> None:
    heldout = arrays(EXAMPLES / "credit" / "heldout.npz")
    session = onnxruntime.InferenceSession(EXAMPLES / "credit" / "credit.onnx")
    (score,) = session.run(None, {"row": heldout["rows"]})
    assert np.count_nonzero((score[:, 0] > 0.5) == heldout["repaid"]) == 738
    assert np.count_nonzero(heldout["repaid"]) == 657
    assert arrays(EXAMPLES / "credit" / "calibration.npz")["row"].shape == (256, 1, 8)


def test_the_same_loans_are_made_again(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(copied / "credit", monkeypatch)
    printed(Path("train.py"), "--out", "again")
    for name in ("calibration.npz", "heldout.npz"):
        committed, again = arrays(Path(name)), arrays(Path("again", name))
        assert committed.keys() == again.keys()
        for key, array in committed.items():
            np.testing.assert_allclose(again[key], array, atol=0.011)  # the second decimal
    models = [onnx.load(Path(folder, "credit.onnx")) for folder in (".", "again")]
    weights = [[onnx.numpy_helper.to_array(t) for t in m.graph.initializer] for m in models]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_the_same_messages_are_made_again(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(copied / "text", monkeypatch)
    told = printed(Path("train.py"), "--out", "again")
    assert float(told[1].split()[2].rstrip("%")) > 97
    committed, again = arrays(Path("heldout.npz")), arrays(Path("again", "heldout.npz"))
    assert committed["messages"].tolist() == again["messages"].tolist()
    assert committed["topics"].tolist() == again["topics"].tolist()


def test_words_are_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "messages", raising=False)
    made = runpy.run_path(str(EXAMPLES / "text" / "messages.py"))
    shares = made["counts"]("Parcel, PARCEL and an unknownword: late!")
    assert shares.shape == (1, len(made["VOCABULARY"])) == (1, 66)
    assert shares[0, made["PLACES"]["parcel"]] == pytest.approx(2 / 3)
    assert shares.sum() == pytest.approx(1)
    assert not made["counts"]("").any()
