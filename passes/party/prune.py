"""prune: what no output needs goes, and what is left is numbered without gaps.

What a plan says of its program is then all of it: the text has every node, every public tensor and
every layer, and who reads it lowers the same program.

    before:  %0 = input   %1 = neg %0   %2 = add %0 %0   %3 = output %2
    after:   %0 = input   %1 = add %0 %0   %2 = output %1
"""

from __future__ import annotations

from dataclasses import replace

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.passes.party.expand_protocols import Expanded


def prune(expanded: Expanded) -> Expanded:
    """The same program without dead nodes and public tensors; draws keep their numbers."""
    program = expanded.program
    pruned = Program(program.parties)
    pruned.draws, pruned.layers = program.draws, program.layers
    ids: dict[int, int] = {}
    numbers: dict[int, int] = {}  # of public tensors, old to new
    for i in _live(program):
        node = program.nodes[i]
        ids[i] = len(pruned.nodes)
        attrs = node.attrs
        if node.op is ops.CONSTANT:
            attrs = (("number", numbers.setdefault(node["number"], len(numbers))),)
        args = tuple([ids[arg] for arg in node.args])
        pruned.nodes.append(
            Node(
                *(ids[i], node.op, node.party, args, attrs),
                *(node.shape, node.type, node.phase, node.layer, node.entry),
            )
        )
    return replace(
        expanded,
        program=pruned,
        constants=[expanded.constants[number] for number in numbers],
        constant_rings=[expanded.constant_rings[number] for number in numbers],
    )


def _live(program: Program) -> list[int]:
    """Ids of the nodes that an output or a state needs, in order."""
    keep = [node.op.is_root for node in program.nodes]
    for node in reversed(program.nodes):
        if keep[node.id]:
            for arg in node.args:
                keep[arg] = True
    return [i for i, kept in enumerate(keep) if kept]
