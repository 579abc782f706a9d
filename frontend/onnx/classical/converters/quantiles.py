"""QuantileTransformer: each column's distribution function, a line between neighbouring quantiles.

skl2onnx writes a search in halves, by indices that depend on the row. Here every quantile is asked
at once, whether a number is above it, h, and whether it is at least as large, g:

    slope, start = sums over quantiles of g and h times what changes there
    y            = slope x + start

Where quantiles are equal the function jumps, and at the jump itself it is in the middle: half of
what changes goes by g, and half by h. The first quantile is 0, and the last is 1. How many
quantiles there are everybody learns, and nothing of which of them are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.onnx.classical.converters.nodes import Nodes

Floats = NDArray[np.float64]


def quantile_transformer(scope: Any, operator: Any, container: Any) -> None:
    """QuantileTransformer to a uniform distribution: [rows, columns]."""
    model = operator.raw_operator
    if model.output_distribution != "uniform":
        raise NotImplementedError(
            f"its output's distribution is {model.output_distribution!r}, and not uniform"
        )
    s = Nodes(scope, operator, container)
    knots = np.asarray(model.quantiles_, np.float32).T  # [columns, quantiles]
    changes = np.stack([_changes(row.astype(float), model.references_) for row in knots])
    wide, limits = s("Unsqueeze", s.x, s.integers(2)), s.constant(knots[np.newaxis])
    asked = [s.truth(kind, wide, limits) for kind in ("GreaterOrEqual", "Greater")]
    answers = s("Transpose", s("Concat", *asked, axis=2), perm=[1, 0, 2])
    found = s("Transpose", s("MatMul", answers, s.constant(changes)), perm=[2, 1, 0])
    slope, start = (
        s("Squeeze", s("Slice", found, s.integers(i), s.integers(i + 1)), s.integers(0))
        for i in range(2)
    )
    s("Add", s("Mul", s.x, slope), start, into=operator.outputs[0].full_name)


def _changes(knots: Floats, references: Floats) -> Floats:
    """What slope and start change by at each quantile, by g and then by h, [2 quantiles, 2]."""
    unique, first = np.unique(knots, return_index=True)
    last = len(knots) - 1 - np.unique(knots[::-1], return_index=True)[1]
    low, high = references[first], references[last]  # below and above a jump
    high[-1] = 1.0
    slopes = np.append((low[1:] - high[:-1]) / np.diff(unique), 0.0)
    lines = np.stack([slopes, high - slopes * unique], axis=1)  # from each quantile on
    before = np.concatenate([np.zeros((1, 2)), lines[:-1]])
    changed = np.zeros((2, len(knots), 2))
    changed[:, first] = (lines - before) / 2
    for by, at in ((0, -1), (1, 0)):  # the last is passed at itself, the first above it alone
        changed[:, first[at]] = 0.0
        changed[by, first[at]] = (lines - before)[at]
    return changed.reshape(-1, 2)
