"""Support vector machines: scores = sum over support vectors v of c_v K(x, v), plus rho.

    LINEAR   x v                      POLY      (gamma x v + coef0)^degree
    RBF      exp(-gamma |x - v|^2)    SIGMOID   tanh(gamma x v + coef0)

Support vectors, coefficients, gamma and coef0 are the model owner's; the kernel, its degree and how
many vectors there are everybody learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.coupling import coupled
from veilgraph.frontend.onnx.classical.forest import Floats, Integers, numbers
from veilgraph.frontend.onnx.classical.scores import label
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
        x = _kernel(s, x, _vectors(s, count, coefficients))
    elif s.attribute("kernel_type", "LINEAR") != "LINEAR":
        raise Unsupported("It has a kernel, and no support vectors.", "")
    scores = s("MatMul", x, s.weight(coefficients[:, np.newaxis], "coefficients"))
    scores = s("Add", scores, s.weight(numbers(s, "rho")[:1], "rho"))
    if not s.attribute("one_class", 0):
        return s.finish(scores)
    above = s("Cast", s("Greater", scores, s.numbers(0.0)), to=TensorProto.FLOAT)
    return s.finish(s.plus(s.times(above, 2.0), -1.0))


def classifier(s: Steps) -> list[NodeProto]:
    """SVMClassifier: a score a pair of classes, whose sign is a vote for the one or the other.

    The label is the class with the most votes, the first of equals. Two classes have one score s,
    which goes out as -s and s. Of a model that was fitted with probabilities these go out.
    """
    per_class = np.asarray(s.attribute("vectors_per_class", []), np.int64)
    if not per_class.any() or s.attribute("post_transform", "NONE") != "NONE":
        raise Unsupported("It has no support vectors, or its scores are transformed.", "")
    count, classes = int(per_class.sum()), len(per_class)
    pairs = list(combinations(range(classes), 2))
    coefficients = numbers(s, "coefficients")
    vectors = _vectors(s, count * (classes - 1), coefficients, count)
    x = _kernel(s, s("Cast", s.operand(0), to=TensorProto.FLOAT), vectors)
    weights = _of_pairs(coefficients.reshape(classes - 1, count), per_class, pairs)
    scores = s("MatMul", x, s.weight(weights, "coefficients"))
    scores = s("Add", scores, s.weight(numbers(s, "rho")[: len(pairs)], "rho"))
    wins = s("Cast", s("Greater", scores, s.numbers(0.0)), to=TensorProto.FLOAT)
    shares = _probabilities(s, scores, classes)
    if classes == 2:
        lost = s("Cast", s("Sub", s.numbers(1.0), wins), to=TensorProto.INT64)
        both = shares or s("Concat", s("Neg", scores), scores, axis=1)
        return s.finish(label(s, s.reshape(lost, (-1,))), both)
    ballots = np.zeros((len(pairs), classes), np.float32)
    for number, (first, second) in enumerate(pairs):
        ballots[number, [first, second]] = 1, -1
    seconds = (ballots < 0).sum(axis=0, keepdims=True)
    votes = s("Add", s("MatMul", wins, s.numbers(ballots)), s.numbers(seconds))
    return s.finish(label(s, s("ArgMax", votes, axis=1, keepdims=0)), shares or scores)


def _probabilities(s: Steps, scores: str, classes: int) -> str:
    """Those of a classifier that has them; "" of others.

    Raises:
        UsageError: it hasn't two numbers for each pair.
    """
    given, pairs = [len(numbers(s, f"prob_{name}")) for name in "ab"], classes * (classes - 1) // 2
    if not any(given):
        return ""
    if given != [pairs, pairs]:
        raise UsageError(
            f"Node {s.node.name} has {given[0]} and {given[1]} numbers for the probabilities of "
            f"{pairs} pairs.",
            NOT_A_MODEL,
        )
    return coupled(s, scores, classes)


def _of_pairs(
    coefficients: Floats, per_class: Integers, pairs: Sequence[tuple[int, int]]
) -> Floats:
    """What each vector adds to the score of each pair, [vectors, pairs].

    A vector of class i has a coefficient for each other class, in their order.
    """
    ends = np.cumsum(per_class)
    own = [slice(end - size, end) for end, size in zip(ends, per_class, strict=True)]
    found = np.zeros((int(ends[-1]), len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        found[own[i], number] = coefficients[j - 1, own[i]]
        found[own[j], number] = coefficients[i, own[j]]
    return found


def _vectors(s: Steps, expected: int, coefficients: Floats, count: int = 0) -> Floats:
    """The support vectors, [vectors, columns]; as many as `count`, or as coefficients expected."""
    vectors, count = numbers(s, "support_vectors"), count or expected
    if len(coefficients) != expected or not len(vectors) or len(vectors) % count:
        raise UsageError(
            f"Node {s.node.name} has {len(coefficients)} coefficients and {len(vectors)} numbers "
            f"for {count} support vectors.",
            NOT_A_MODEL,
        )
    return vectors.reshape(count, -1)


def _kernel(s: Steps, x: str, vectors: Floats) -> str:
    """K(x, v) of each row and each vector, [rows, vectors]."""
    gamma, coef0, degree = (*map(float, numbers(s, "kernel_params")), 0.0, 0.0, 0.0)[:3]
    kind = s.attribute("kernel_type", "LINEAR")
    if kind == "LINEAR":
        return s("MatMul", x, s.weight(vectors.T, "vectors"))
    if kind == "RBF":
        # gamma |x - v|^2 = gamma (x x - 2 x v + v v); gamma may follow from the rows' variance
        ones = np.ones((vectors.shape[1], 1))
        square = s("MatMul", s("Mul", x, x), s.weight(gamma * ones, "gamma"))
        cross = s("MatMul", x, s.weight(-2 * gamma * vectors.T, "vectors"))
        sizes = s.weight(gamma * (vectors**2).sum(axis=1)[np.newaxis], "sizes")
        distance = s("Relu", s("Add", s("Add", cross, square), sizes))
        return s("Exp", s("Neg", distance))
    product = s("MatMul", x, s.weight(gamma * vectors.T, "vectors"))
    shifted = s("Add", product, s.weight([coef0], "coef0"))
    if kind == "SIGMOID":
        return s("Tanh", shifted)
    if kind != "POLY" or degree != round(degree) or not 1 <= degree <= MOST_DEGREE:
        raise Unsupported(f"Its kernel is {kind} of degree {degree:g}.", "")
    return s("Pow", shifted, s.numbers(degree))
