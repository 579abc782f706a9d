"""Facts of operations as bits, for native passes: each is one of ir/party/ops.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import Columns
from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.passes import _native as native


def _facts(op: PartyOp) -> int:
    holds = {
        native.ROOT: op.is_root,
        native.EARLY: op.early,
        native.SEND: op is ops.SEND,
        native.KEPT: op.runs is Runs.KEPT,
        native.VIEW: op.runs is Runs.VIEW,
        native.LOADED: op.runs is Runs.LOADED,
        native.REMADE: op.runs is Runs.REMADE,
        native.ELEMENTWISE: op.elementwise,
        native.FUSIBLE: op.fusible,
        native.RESHAPE: op is ops.RESHAPE,
        native.CONST: op is ops.CONST,
        native.DRAW: op is ops.DRAW,
        native.LOOKUP: op is ops.LOOKUP,
        native.CAST: op is ops.CAST,
        native.SOME_PLANES: op is ops.SOME_PLANES,
        native.STACK: op is ops.STACK,
    }
    return sum(bit for bit, is_so in holds.items() if is_so)


_FACTS = np.array([_facts(op) for op in ops.ALL], np.uint32)


def facts_of(columns: Columns) -> npt.NDArray[np.uint32]:
    """Of each node the facts of its operation."""
    return _FACTS.take(columns.op)
