"""Probabilities of support vector machines: Platt's of each pair of classes, coupled.

    r_ij = sigmoid(-(A s_ij + B))                              i rather than j, by score s_ij
    p minimises sum over i, j of (r_ji p_i - r_ij p_j)^2       Wu, Lin and Weng, JMLR 2004, method 2

The minimum is p = adj(Q) 1 over its sum, with Q_ii = sum of r_ji^2 and Q_ij = -r_ji r_ij. Of three
classes these are products of four numbers below 1, and their sum lies between 1 and 4. Runtimes
come there by iterations, which stop within 0.005 / classes.
"""

from __future__ import annotations

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.forest import numbers
from veilgraph.frontend.onnx.nodes import Steps

MOST_CLASSES = 3


def coupled(s: Steps, scores: str, classes: int) -> str:
    """Probabilities, [rows, classes], of the scores of all pairs, [rows, pairs].

    Raises:
        Unsupported: more than three classes.
    """
    if classes > MOST_CLASSES:
        raise Unsupported(
            f"Its probabilities of {classes} classes are coupled in pairs.",
            "Convert it with scores, or take a model of at most three classes.",
        )
    slope, start = numbers(s, "prob_a"), numbers(s, "prob_b")
    straight = s("Mul", scores, s.weight(-slope[None], "slope"))
    wins = s("Sigmoid", s("Add", straight, s.weight(-start[None], "start")))
    losses = s("Sub", s.numbers(1.0), wins)
    if classes == 2:
        return s("Concat", wins, losses, axis=1)
    return _of_three(s, wins, losses)


def _of_three(s: Steps, wins: str, losses: str) -> str:
    """Of r_01, r_02, r_12 and r_10, r_20, r_21."""
    pairs = ((0, 1), (0, 2), (1, 2))
    squares = s("Mul", losses, losses), s("Mul", wins, wins)
    other = s("Mul", wins, losses)  # -Q_ij
    diagonal = []
    for i in range(3):
        parts = [
            s.slice(squares[0] if i == first else squares[1], 1, place, place + 1)
            for place, (first, second) in enumerate(pairs)
            if i in (first, second)
        ]
        diagonal.append(s("Add", *parts))
    beside = {pair: s.slice(other, 1, place, place + 1) for place, pair in enumerate(pairs)}

    def entry(i: int, j: int) -> str:
        """The cofactor of Q, whose entries beside the diagonal are below 0."""
        k = 3 - i - j
        if i == j:
            a, b = (n for n in range(3) if n != i)
            square = s("Mul", beside[a, b], beside[a, b])
            return s("Sub", s("Mul", diagonal[a], diagonal[b]), square)
        around = (beside[min(i, k), max(i, k)], beside[min(j, k), max(j, k)])
        return s("Add", s("Mul", beside[i, j], diagonal[k]), s("Mul", *around))

    found = {(i, j): entry(i, j) for i in range(3) for j in range(i, 3)}
    rows = [
        s("Add", s("Add", *(found[min(i, j), max(i, j)] for j in range(2))), found[i, 2])
        for i in range(3)
    ]
    total = s("Add", s("Add", rows[0], rows[1]), rows[2])
    return s("Div", s("Concat", *rows, axis=1), total)
