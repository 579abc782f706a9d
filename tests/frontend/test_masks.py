"""Masks before a softmax, as exporters write them: minus infinity, or a type's least number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning.graph import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
LEAST = float(np.finfo(np.float32).min)
CAUSAL = np.triu(np.ones((4, 4), np.float32), 1)
KEPT = np.array([[1, 1, 1, 0]])
# How a model of scores s, of constants m and c, and of a mask k that is an input, masks.
ADDED = "y = Add(s, m)  z = Softmax <axis=-1> (y)"
MOVED = "e = Expand(m, shape)  y = Add(s, e)  t = Reshape(y, shape)  z = Softmax <axis=-1> (t)"
REPLACED = "y = Where(m, c, s)  z = Softmax <axis=-1> (y)"
KEEPING = "y = Where(m, s, c)  z = Softmax <axis=-1> (y)"
BIASED = "y = Where(m, zero, c)  a = Add(s, y)  z = Softmax <axis=-1> (a)"
BERT = """f = Cast <to=1> (k)  n = Sub(one, f)  m = Mul(n, c)
          y = Add(s, m)  z = Softmax <axis=-1> (y)"""
TURNED = """f = Cast <to=1> (k)  n = Sub(f, one)  p = Neg(c)  m = Mul(n, p)
            y = Add(m, s)  z = Softmax <axis=-1> (y)"""


def model(body: str, constants: dict[str, Array], kept: str = "") -> onnx.ModelProto:
    """A model of scores s [1, 4, 4], and of a mask k [1, 4] of type `kept` where there is one."""
    inputs = f"float[1,4,4] s{f', {kept}[1,4] k' if kept else ''}"
    lines = body.replace(")  ", ")\n")
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float[1,4,4] z) {{{lines}}}'
    made = onnx.parser.parse_model(text)
    shared = {"shape": np.array([1, 4, 4]), "one": np.array(1, np.float32), **constants}
    shared["zero"] = np.array(0, np.float32)
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in shared.items() if name in read
    )
    return made


def number(value: float) -> Array:
    return np.array(value, np.float32)


MASKED = [
    pytest.param(ADDED, {"m": np.where(CAUSAL, -np.inf, 0).astype(np.float32)}, "", id="added"),
    pytest.param(ADDED, {"m": (CAUSAL * LEAST)[None]}, "", id="added-least"),
    pytest.param(ADDED, {"m": np.where(CAUSAL, LEAST * 4.0, 0)}, "", id="added-double"),
    pytest.param(MOVED, {"m": (CAUSAL * LEAST)}, "", id="moved"),
    pytest.param(REPLACED, {"m": CAUSAL > 0, "c": number(-np.inf)}, "", id="replaced"),
    pytest.param(KEEPING, {"m": CAUSAL < 1, "c": number(-np.inf)}, "", id="keeping"),
    pytest.param(BIASED, {"m": CAUSAL < 1, "c": number(LEAST)}, "", id="biased"),
    pytest.param(BERT, {"c": number(LEAST)}, "int64", id="bert"),
    pytest.param(BERT, {"c": number(-65504)}, "bool", id="bert-half"),
    pytest.param(TURNED, {"c": number(-1e9)}, "int64", id="turned"),
]


@pytest.mark.parametrize(("body", "constants", "kept"), MASKED)
def test_a_masked_softmax_is_that_of_onnxruntime(
    body: str, constants: dict[str, Array], kept: str
) -> None:
    made = model(body, constants, kept)
    feeds: dict[str, Array] = {"s": np.random.default_rng(1).normal(size=(1, 4, 4)) * 4}
    feeds["s"] = feeds["s"].astype(np.float32)
    if kept:
        feeds["k"] = KEPT.astype(kept)
    if not any(array.dtype == np.float64 for array in constants.values()):
        session = onnxruntime.InferenceSession(made.SerializeToString())
        (wanted,) = session.run(None, feeds)
    else:  # of which only we make float32
        far = np.exp(np.where(CAUSAL > 0, -np.inf, feeds["s"]))
        wanted = far / far.sum(-1, keepdims=True)
    given = {name: x.astype(np.float32) for name, x in feeds.items()}
    graph = import_model(made)
    np.testing.assert_allclose(evaluate(graph, given)["z"], wanted, atol=1e-6)
    plan, weights = veilgraph.compile(made, calibrate={n: x[None] for n, x in given.items()})
    found = veilgraph.simulate(plan, weights, given).outputs["z"]
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    assert (found[wanted == 0] < 1e-3).all()


LOGARITHM = "y = Add(s, m)  z = LogSoftmax <axis=-1> (y)"
SHOWN = "z = Add(s, m)"
DOUBLED = "y = Add(s, m)  w = Add(y, y)  x = Softmax <axis=-1> (y)  z = Add(x, w)"
POSITIVE = "n = Neg(m)  y = Add(s, n)  z = Softmax <axis=-1> (y)"
SCALED = "m = Mul(k, c)  y = Add(s, m)  z = Softmax <axis=-1> (y)"
ENDLESS = {"m": np.where(CAUSAL, -np.inf, 0).astype(np.float32)}


@pytest.mark.parametrize(
    ("body", "constants", "kept", "named"),
    [
        (LOGARITHM, ENDLESS, "", "Weight m holds -inf"),
        (SHOWN, ENDLESS, "", "Weight m holds -inf"),
        (DOUBLED, ENDLESS, "", "Weight m holds -inf"),
        (POSITIVE, ENDLESS, "", "Weight m holds -inf"),
        (ADDED, {"m": np.full((4, 4), LEAST, np.float32)}, "", "Weight m holds -3.403e"),
        (ADDED, {"m": number(-np.inf)}, "", "holds -inf"),
        (SCALED, {"c": number(LEAST)}, "float", "holds -3.403e"),
    ],
    ids=["logarithm", "shown", "elsewhere", "positive", "whole-rows", "one-number", "real-mask"],
)
def test_what_is_no_mask_is_refused_by_its_name(
    body: str, constants: dict[str, Array], kept: str, named: str
) -> None:
    with pytest.raises(UsageError) as caught:
        import_model(model(body, constants, kept))
    assert named in caught.value.message
    assert "no mask that only a softmax reads" in caught.value.message
    assert "truth values" in caught.value.hint


def test_ordinary_numbers_before_a_softmax_stay() -> None:
    mask = CAUSAL * np.float32(-1e4)
    graph = import_model(model(ADDED, {"m": mask}))
    np.testing.assert_array_equal(graph.weights["m"], mask)
