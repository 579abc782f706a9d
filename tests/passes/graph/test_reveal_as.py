"""Decisions and softmax inside the computation: the same as NumPy's, ties and many classes too."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import example
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.graph.ranking import GROUP
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.reveal_as import Form, FormKind, RevealAs, before


def revealed(x: NDArray[np.float32], text: str) -> dict[str, NDArray[np.float32]]:
    """What the rewritten identity makes of x."""
    graph = Graph.create(context(), {"x": x.shape}, {})
    graph.finish({"y": graph.inputs["x"]})
    RevealAs({"y": Form.parse(text)}).run(graph)
    graph.verify()
    return evaluate(graph, {"x": x})


def test_docstring_example() -> None:
    given, after = example(RevealAs.__doc__, context())
    assert RevealAs({"y": Form(FormKind.SOFTMAX)}).run(given).text(names=False) == after.text(
        names=False
    )


@pytest.mark.parametrize("extent", [2, 3, 10, GROUP, GROUP + 1, 3 * GROUP, 1000])
@pytest.mark.parametrize("text", ["argmax", "topk:1", "topk:2"])
def test_positions_are_those_of_the_largest(extent: int, text: str) -> None:
    rng = np.random.default_rng(extent)
    x = rng.standard_normal((3, extent)).astype(np.float32)
    found = revealed(x, text)
    np.testing.assert_array_equal(found["y"], Form.parse(text).of(x))
    np.testing.assert_array_equal(found[before("y", Form.parse(text))], x)


@pytest.mark.parametrize("extent", [5, 70])
def test_of_equal_numbers_the_first_wins(extent: int) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (8, extent)).astype(np.float32)
    for text in ("argmax", "topk:5"):
        np.testing.assert_array_equal(revealed(x, text)["y"], Form.parse(text).of(x))
    order = np.argsort(-x[0], kind="stable")[:5]
    assert Form.parse("topk:5").of(x)[0].tolist() == order.tolist()


def test_positions_beyond_what_multiplies_for_nothing() -> None:
    x = np.random.default_rng(1).standard_normal((1, 2500)).astype(np.float32)
    x[0, 2345] = 9
    assert revealed(x, "argmax")["y"].tolist() == [2345]


@pytest.mark.parametrize("shape", [(7,), (2, 3, 7)])
def test_any_rank_is_looked_at_along_its_last_axis(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    assert revealed(x, "argmax")["y"].shape == shape[:-1]
    assert revealed(x, "topk:3")["y"].shape == (*shape[:-1], 3)
    found = revealed(x, "softmax")
    assert list(found) == ["y"]
    np.testing.assert_allclose(found["y"], Form(FormKind.SOFTMAX).of(x), rtol=1e-5)


def test_other_outputs_stay() -> None:
    graph = Graph.create(context(), {"a": (4,), "b": (4,)}, {})
    graph.finish({"p": graph.inputs["a"], "q": graph.inputs["b"]})
    RevealAs({"q": Form(FormKind.ARGMAX)}).run(graph)
    assert list(graph.outputs) == ["p", "q", "q before argmax"]


def test_a_small_tensor_takes_two_comparisons_in_a_row() -> None:
    graph = Graph.create(context(), {"x": (1, 10)}, {})
    graph.finish({"y": graph.inputs["x"]})
    RevealAs({"y": Form(FormKind.ARGMAX)}).run(graph)
    assert [kind_of(op) for op in graph.operations].count("step") == 2


@pytest.mark.parametrize("text", ["max", "topk", "topk:0", "topk:x", "topk:-1", "argmax:2", ""])
def test_a_form_that_makes_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="Nothing can be revealed as"):
        Form.parse(text)


@pytest.mark.parametrize(
    ("shape", "text"), [((1, 4), "topk:5"), ((3, 1), "argmax"), ((), "argmax")]
)
def test_an_output_that_is_too_small(shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(UsageError, match="can't be revealed as"):
        revealed(np.zeros(shape, np.float32), text)
