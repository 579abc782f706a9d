"""Fused programs that differ in names alone, compiled once.

A transformer's blocks and a network's stages have the same actions, over other nodes, draws and
lengths. The **form** of an action says all that its compilation reads, nodes numbered from 0 in the
order in which the form meets them. Actions of one form share one program; its streams, its draws
and its number of elements are each action's own.

    before:  fused {%7 = draw 3, %8 = sub %5 %7}    fused {%27 = draw 9, %28 = sub %25 %27}
    after:   one program; streams %5 and %8 with draw 3, streams %25 and %28 with draw 9
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node, broadcast_pattern, of_one_length
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION
from veilgraph.passes.party.batch_rounds import Position
from veilgraph.passes.plan.fuse_local import Action, LocalSteps, is_inline, through_reshapes
from veilgraph.passes.plan.fused_code import Code, FusedCode, Stream

Form = tuple[Hashable, ...]
_WORDS = INSTRUCTION.itemsize // 8  # of an instruction; the last one is its immediate
_OWN: Form = ()  # in place of an operand's description: an earlier node of the action


@dataclass(frozen=True)
class Template:
    """The program of a form.

    `streams` are numbers of nodes in the form, and whether a stream is a message. `draws` are
    indices of `params` that hold the number of a draw, each with its node's number in the form.
    """

    params: npt.NDArray[np.int64]
    streams: tuple[tuple[int, bool], ...]
    draws: tuple[tuple[int, int], ...]

    @staticmethod
    def of(code: Code, numbers: dict[int, int]) -> Template:
        """The program of an action; `numbers` are those of the action's nodes in its form."""
        return Template(
            code.params,
            tuple((numbers[stream.node], stream.message) for stream in code.streams),
            tuple((HEADER + _WORDS * row + _WORDS - 1, numbers[i]) for row, i in code.draws),
        )


Templates = dict[Form, Template]


class FusedPrograms:
    """The fused programs of one party.

    Args:
        templates: of the forms met so far, by any party of the same program.
    """

    def __init__(
        self,
        steps: LocalSteps,
        party: int,
        keys: dict[frozenset[int], int],
        templates: Templates,
    ) -> None:
        self.steps = steps
        self.program = steps.schedule.program
        self.party = party
        self.keys = keys
        self.templates = templates
        self.code = FusedCode(steps, party, keys)

    def compile(self, action: Action, position: Position) -> Code:
        """The program of an action, as `FusedCode` compiles it."""
        form, numbers = self._form(action, position)
        template = self.templates.get(form)
        if template is None:
            code = self.code.compile(action, position)
            self.templates[form] = Template.of(code, numbers)
            return code
        nodes, ids, first = self.program.nodes, list(numbers), self.program.nodes[action.nodes[0]]
        params = template.params.copy()
        params[0] = elements = first.elements * first.type.per_element
        for index, number in template.draws:
            params[index] = nodes[ids[number]]["number"]
        streams = [Stream(ids[number], message) for number, message in template.streams]
        return Code(elements, streams, params)

    def _form(self, action: Action, position: Position) -> tuple[Form, dict[int, int]]:
        """What the compilation of an action reads, and the numbers of nodes in it."""
        nodes, stored, draws = self.program.nodes, self.steps.stored, self.program.draws
        numbers: dict[int, int] = {}
        made: set[int] = set()
        form: list[Hashable] = []
        for i in action.nodes:
            node = nodes[i]
            op, type = node.op, node.type
            form += (op, type.kind, type.bits, i in stored, len(node.args))
            if op is ops.SEND:
                form.append(node.party == self.party)
            elif op is ops.DRAW:
                form.append(self.keys[draws[node["number"]].holders])
            else:
                form.append(node.attrs)
            if op is ops.LOOKUP:
                self._operand(node, node.args[0], position, numbers, made, form)
                form.append(numbers.setdefault(node.args[1], len(numbers)))
            elif op is not ops.SEND or node.party != self.party:
                for arg in node.args:
                    self._operand(node, arg, position, numbers, made, form)
            form.append(numbers.setdefault(i, len(numbers)))
            if op is not ops.SEND:
                made.add(i)
        return tuple(form), numbers

    def _operand(
        self,
        node: Node,
        arg: int,
        position: Position,
        numbers: dict[int, int],
        made: set[int],
        form: list[Hashable],
    ) -> None:
        """Adds an operand's number and its description: how it is read."""
        near = through_reshapes(self.program, arg)
        i, op, type = near.id, near.op, near.type
        if op is ops.CONST:
            description: Form = (op, type.kind, type.bits, near["value"])
        elif not of_one_length(near, node):
            pattern = broadcast_pattern(self.program.nodes[arg].shape, node.shape)
            i, description = arg, (op, type.kind, type.bits, pattern)
        elif i in made:
            description = _OWN
        elif op is ops.DRAW and is_inline(near, node, position):
            key = self.keys[self.program.draws[near["number"]].holders]
            description = (op, type.kind, type.bits, key)
        else:
            is_packed = op is ops.SEND and i not in self.steps.unpacked
            description = (type.kind, type.bits, is_packed)
        form += (numbers.setdefault(i, len(numbers)), description)
