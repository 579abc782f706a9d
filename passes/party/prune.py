"""prune: what no output needs goes, and what is left is numbered without gaps.

What a plan says of its program is then all of it: the text has every node, every public tensor and
every layer, and who reads it lowers the same program.

    before:  %0 = input   %1 = neg %0   %2 = add %0 %0   %3 = output %2
    after:   %0 = input   %1 = add %0 %0   %2 = output %1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import Columns, Nodes, columns_of
from veilgraph.ir.party.program import Program
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.expand_protocols import Expanded


def prune(expanded: Expanded) -> Expanded:
    """The same program without dead nodes and public tensors; draws keep their numbers."""
    program = expanded.program
    columns = columns_of(program.nodes)
    live = native.live(facts_of(columns), columns.first, columns.args) != 0
    kept = _with_rows(columns, live)
    numbers = _renumber(kept)
    pruned = Program(program.parties)
    pruned.draws, pruned.layers, pruned.nodes = program.draws, program.layers, Nodes(kept)
    return replace(
        expanded,
        program=pruned,
        constants=[expanded.constants[number] for number in numbers],
        constant_rings=[expanded.constant_rings[number] for number in numbers],
    )


def _with_rows(columns: Columns, kept: npt.NDArray[np.bool_]) -> Columns:
    """Some rows, which read none of the others."""
    counts = np.diff(columns.first)
    row = np.cumsum(kept, dtype=np.int32) - 1
    own = ("op", "place", "tensor", "attributes", "number", "layer")
    return replace(
        columns,
        **{name: getattr(columns, name)[kept] for name in own},
        first=np.concatenate([[0], np.cumsum(counts[kept])]),
        args=row[columns.args[np.repeat(kept, counts)]],
    )


def _renumber(columns: Columns) -> Sequence[int]:
    """Numbers public tensors without gaps, in the order in which they are met; the old numbers."""
    rows = columns.rows_of(ops.CONSTANT)
    met = dict.fromkeys(columns.number[rows].tolist())
    places = {number: place for place, number in enumerate(met)}
    columns.number[rows] = [places[number] for number in columns.number[rows].tolist()]
    return list(met)
