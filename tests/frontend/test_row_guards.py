"""Guards of rows that are masked whole, as ONNX's body of Attention writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
SOFTMAX = "a = Add(s, b)  p = Softmax <axis=-1> (a)"
GUARD = f"{SOFTMAX}  r = ReduceMax <keepdims=1> (b, last)  e = Equal(r, far)  z = Where(e, zero, p)"
SECRET = "b = Where(m, zero, far)"
TURNED = "n = Not(m)  b = Where(n, far, zero)"
MOVED = """f = Where(m, zero, far)  w = Transpose <perm=[0,2,1]> (f)
           u = Transpose <perm=[0,2,1]> (w)
           v = Identity(u)  b = Add(zero, v)"""
PADDED = "h = Slice(m, nought, three, last)  f = Where(h, zero, far)  b = Pad(f, pads, far, last)"
PADDED_NUMBERS = "b = Pad(t, pads, far, last)"
NOT_PADDED = "f = Where(m, zero, far)  b = Pad(f, none, far)"
TWO = "f = Where(m, zero, far)  b = Add(f, known)"
KNOWN = "b = Identity(known)"
CONSTANTS: dict[str, Array] = {
    "zero": np.array(0, np.float32),
    "far": np.array(-np.inf, np.float32),
    "last": np.array([-1]),
    "first": np.array([1]),
    "nought": np.array([0]),
    "three": np.array([3]),
    "pads": np.array([0, 1]),
    "none": np.zeros(6, np.int64),
    "other": np.array(0.5, np.float32),
    "known": np.where(np.tri(4) > 0, 0, -np.inf).astype(np.float32),
}
SEEN = np.array([[[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [0, 0, 0, 1]]], bool)


def model(body: str) -> onnx.ModelProto:
    """A model of scores s and t, and of a mask m, of those that it reads."""
    lines = body.replace(")  ", ")\n")
    text = f'<ir_version: 10, opset_import: ["" : 21]> g () => (float[1,4,4] z) {{{lines}}}'
    made = onnx.parser.parse_model(text)
    read = {name for node in made.graph.node for name in node.input}
    kinds = {"s": TensorProto.FLOAT, "m": TensorProto.BOOL, "t": TensorProto.FLOAT}
    for name, kind in kinds.items():
        if name in read:
            shape = [1, 4, 3 if name == "t" else 4]
            made.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in CONSTANTS.items() if name in read
    )
    return made


@pytest.mark.parametrize(
    ("masks", "products"),
    [
        *((SECRET, 1), (TURNED, 1), (MOVED, 1), (PADDED, 1), (PADDED_NUMBERS, 1)),
        *((NOT_PADDED, 1), (TWO, 2), (KNOWN, 0)),
    ],
    ids=["secret", "turned", "moved", "padded", "padded-numbers", "not-padded", "two", "known"],
)
def test_a_guarded_softmax_is_that_of_onnxruntime(masks: str, products: int) -> None:
    """Rows of which nothing is seen are zero; the guard is a product, and no maximum."""
    made = model(f"{masks}  {GUARD}")
    feeds: dict[str, Array] = {"s": np.random.default_rng(1).normal(size=(1, 4, 4)) * 3, "m": SEEN}
    feeds["s"] = feeds["s"].astype(np.float32)
    feeds["t"] = feeds["s"][..., 1:] / 2
    feeds = {info.name: feeds[info.name] for info in made.graph.input}
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    given = {name: x.astype(np.float32) for name, x in feeds.items()}
    graph = import_model(made)
    np.testing.assert_allclose(evaluate(graph, given)["z"], wanted, atol=1e-6)
    kinds = [kind_of(op) for op in graph.operations]
    assert "reduce_max" not in kinds
    assert kinds[kinds.index("softmax") :].count("mul") == products
    plan, weights = veilgraph.compile(made, calibrate={n: x[None] for n, x in given.items()})
    found = veilgraph.simulate(plan, weights, given).outputs["z"]
    np.testing.assert_allclose(found, wanted, atol=2e-3)


@pytest.mark.parametrize(
    "body",
    [
        f"b = Log(s)  {GUARD}",
        f"b = Pad(s, none, other)  {GUARD}",
        f"{SECRET}  {GUARD.replace('(e, zero', '(e, other')}",
        f"{SECRET}  {GUARD.replace('last', 'first')}",
        f"{SECRET}  {GUARD.replace('Add(s, b)', 'Add(s, s)')}",
        f"{SECRET}  {GUARD.replace('Softmax', 'LogSoftmax')}",
        f"f = Where(m, other, far)  b = Identity(f)  {GUARD}",
        f"f = Where(m, zero, far)  c = Add(f, f)  b = Reshape(c, shape)  {GUARD}",
    ],
    ids=[
        "of-data",
        "padded",
        "no-zero",
        "by-column",
        "other-scores",
        "logarithm",
        "no-mask",
        "of-a-sum",
    ],
)
def test_what_is_no_guard_is_refused(body: str) -> None:
    made = model(body)
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 4, 4]), "shape"))
    with pytest.raises(UsageError, match="no mask that only a softmax reads"):
        import_model(made)
