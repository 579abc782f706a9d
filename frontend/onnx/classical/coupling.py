"""Probabilities of support vector machines: Platt's of each pair of classes, coupled.

    r_ij = sigmoid(-(A s_ij + B))                              i rather than j, by score s_ij
    p minimises sum over i, j of (r_ji p_i - r_ij p_j)^2       Wu, Lin and Weng, JMLR 2004, method 2

The minimum is p = adj(Q) 1 over its sum, with Q_ii = sum of r_ji^2 and Q_ij = -r_ji r_ij. Of three
classes these are products of four numbers below 1, and their sum lies between 1 and 4. Of n
classes Faddeev and LeVerrier's products of matrices end in adj(Q) without a division:

    M_1 = 1,  M_(k+1) = Q M_k - trace(Q M_k) / k,  adj(Q) = (-1)^(n-1) M_n

Q is linear in r and r^2, and is taken 4 / n times, so that where no class is likelier than another
the sum is n. Runtimes come there by iterations, which stop within 0.005 / classes: ours and ONNX
Runtime's differ by 0.0017 at most on digits of 4 to 10 classes.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.onnx.classical.forest import numbers
from veilgraph.frontend.onnx.nodes import Steps

Floats = NDArray[np.float64]


def coupled(s: Steps, scores: str, classes: int) -> str:
    """Probabilities, [rows, classes], of the scores of all pairs, [rows, pairs]."""
    slope, start = numbers(s, "prob_a"), numbers(s, "prob_b")
    straight = s("Mul", scores, s.weight(-slope[None], "slope"))
    wins = s("Sigmoid", s("Add", straight, s.weight(-start[None], "start")))
    losses = s("Sub", s.numbers(1.0), wins)
    if classes == 2:
        return s("Concat", wins, losses, axis=1)
    return _of_three(s, wins, losses) if classes == 3 else _of_many(s, wins, classes)


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


def _of_many(s: Steps, wins: str, classes: int) -> str:
    """By products of matrices, which are flat between these: p, [rows, classes]."""
    of_squares, of_wins, constant = _forms(classes)
    squares = s("MatMul", s("Mul", wins, wins), s.numbers(of_squares))
    linear = s("Add", s("MatMul", wins, s.numbers(of_wins)), s.numbers(constant[np.newaxis]))
    flat = s("Add", squares, linear)
    square = s.integers(-1, classes, classes)
    q = s("Reshape", flat, square)
    for k in range(1, classes - 1):
        m = s("Reshape", s("MatMul", flat, s.numbers(_without_trace(classes, k))), square)
        flat = s("Reshape", s("MatMul", q, m), s.integers(-1, classes**2))
    summed = np.repeat(np.eye(classes), classes, axis=0) * (-1) ** (classes - 1)
    last = _without_trace(classes, classes - 1) @ summed
    found = s("MatMul", flat, s.numbers(last))
    return s("Div", found, s("MatMul", found, s.numbers(np.ones((classes, 1)))))


def _forms(classes: int) -> tuple[Floats, Floats, Floats]:
    """Q as r^2 A + r B + C, r being of pairs i < j: r_ji = 1 - r_ij."""
    pairs = list(combinations(range(classes), 2))
    a, b = (np.zeros((len(pairs), classes, classes)) for _ in range(2))
    c: Floats = np.zeros((classes, classes))
    for place, (i, j) in enumerate(pairs):
        a[place, [i, j, i, j], [i, j, j, i]] = 1
        b[place, [i, i, j], [i, j, i]] = (-2, -1, -1)
        c[i, i] += 1
    factor, size = 4 / classes, classes**2
    return factor * a.reshape(-1, size), factor * b.reshape(-1, size), factor * c.reshape(size)


def _without_trace(classes: int, k: int) -> Floats:
    """Takes a matrix less a k-th of its trace on the diagonal, both flat."""
    one = np.eye(classes).reshape(-1)
    return np.eye(classes**2) - np.outer(one, one) / k
