"""Support vector machines: scores = sum over support vectors v of c_v K(x, v), plus rho.

    LINEAR   x v                      POLY      (gamma x v + coef0)^degree
    RBF      exp(-gamma |x - v|^2)    SIGMOID   tanh(gamma x v + coef0)

Support vectors and coefficients are the model owner's; the kernel, its degree and how many vectors
there are everybody learns.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.forest import numbers
from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.ir.errors import UsageError

MOST_DEGREE = 8  # products that a power is made of


def regressor(s: Steps) -> list[NodeProto]:
    """SVMRegressor: one score a row; of a single class 1 where it is above 0, else -1."""
    if s.attribute("post_transform", "NONE") != "NONE":
        raise Unsupported("Its scores are transformed.", "Convert it with raw scores.")
    count, coefficients = s.attribute("n_supports", 0), numbers(s, "coefficients")
    x = s("Cast", s.operand(0), to=TensorProto.FLOAT)
    if count:
        vectors = numbers(s, "support_vectors")
        if len(coefficients) != count or not len(vectors) or len(vectors) % count:
            raise UsageError(
                f"Node {s.node.name} has {len(coefficients)} coefficients and {len(vectors)} "
                f"numbers for {count} support vectors.",
                NOT_A_MODEL,
            )
        x = _kernel(s, x, vectors.reshape(count, -1))
    elif s.attribute("kernel_type", "LINEAR") != "LINEAR":
        raise Unsupported("It has a kernel, and no support vectors.", "")
    scores = s("MatMul", x, s.weight(coefficients[:, np.newaxis], "coefficients"))
    scores = s("Add", scores, s.weight(numbers(s, "rho")[:1], "rho"))
    if not s.attribute("one_class", 0):
        return s.finish(scores)
    above = s("Cast", s("Greater", scores, s.numbers(0.0)), to=TensorProto.FLOAT)
    return s.finish(s.plus(s.times(above, 2.0), -1.0))


def _kernel(s: Steps, x: str, vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> str:
    """K(x, v) of each row and each vector, [rows, vectors]."""
    gamma, coef0, degree = (*map(float, numbers(s, "kernel_params")), 0.0, 0.0, 0.0)[:3]
    kind = s.attribute("kernel_type", "LINEAR")
    if kind == "LINEAR":
        return s("MatMul", x, s.weight(vectors.T, "vectors"))
    if kind == "RBF":
        # |x - v|^2 = x x - 2 x v + v v
        square = s("MatMul", s("Mul", x, x), s.numbers(np.ones((vectors.shape[1], 1))))
        cross = s("MatMul", x, s.weight(-2 * vectors.T, "vectors"))
        sizes = s.weight((vectors**2).sum(axis=1)[np.newaxis], "sizes")
        distance = s("Relu", s("Add", s("Add", cross, square), sizes))
        return s("Exp", s.times(distance, -gamma))
    product = s("MatMul", x, s.weight(gamma * vectors.T, "vectors"))
    shifted = s("Add", product, s.weight([coef0], "coef0"))
    if kind == "SIGMOID":
        return s("Tanh", shifted)
    if kind != "POLY" or degree != round(degree) or not 1 <= degree <= MOST_DEGREE:
        raise Unsupported(f"Its kernel is {kind} of degree {degree:g}.", "")
    return s("Pow", shifted, s.numbers(degree))
