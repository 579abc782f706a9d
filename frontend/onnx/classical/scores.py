"""What classifiers make of their scores: probabilities, and the label of the best class.

Labels are public. One that is a whole number goes out as that number. Of one that is text its
place in the list of classes goes out, and who reads the answer looks it up there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # by number, from 5 on


def transformed(s: Steps, scores: str, transform: str) -> str:
    """Scores, [rows, targets], after the node's post_transform.

    Raises:
        Unsupported: one that isn't a softmax or a logistic function.
    """
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return s("Sigmoid", scores)
        case "SOFTMAX":
            return s("Softmax", scores, axis=1)
    raise Unsupported(f"Its scores go through {transform}.", "Convert it with raw scores.")


@dataclass(frozen=True)
class OneScore:
    """How the score s of the second of two classes decides alone.

    Attributes:
        limit: the second class wins above it.
        shares: the first class's score is 1 - s, and not -s.
    """

    limit: float
    shares: bool


def classified(s: Steps, scores: str, one: OneScore | None = None) -> list[NodeProto]:
    """A classifier's two outputs, the label and the scores of all classes.

    Args:
        scores: [rows, classes], or [rows, 1] with `one`.
    """
    transform = s.attribute("post_transform", "NONE")
    if one is None:
        best = s("ArgMax", scores, axis=1, keepdims=0)
        return s.finish(label(s, best), transformed(s, scores, transform))
    hit = s("Greater", scores, s.numbers(one.limit))
    best = s.reshape(s("Cast", hit, to=TensorProto.INT64), (-1,))
    second = transformed(s, scores, transform)
    shares = one.shares or transform == "LOGISTIC"
    first = s("Sub", s.numbers(1.0), second) if shares else s("Neg", second)
    return s.finish(label(s, best), s("Concat", first, second, axis=1))


def label(s: Steps, best: str) -> str:
    """The label of a class, given its place."""
    labels = s.attribute("classlabels_int64s", []) or s.attribute("classlabels_ints", [])
    if labels in ([], list(range(len(labels)))):
        return best
    return s("Gather", s.numbers(labels, np.int64), best, axis=0)
