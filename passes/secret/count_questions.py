"""How many equal questions tell a receiver one derivative of its output: the price of a weight.

Equal questions are rounded anew. Who knows the threshold of a unit's truncation knows up to one
number how the unit was rounded, and fits outputs to that. Let V be what one last place of the unit
does to an output, s the output's own standard deviation over equal questions. The regressor has
variance 1/6, so after n questions least squares is off by s sqrt(6 / n): V is known to one standard
deviation after

    n = 6 (s / V)^2        s^2 = sum of all inner roundings' V^2 / 6 + 1/6 of the output's own unit

Li et al., USENIX Security 2023, describe the thresholds; docs/protocols.md says which role knows
one. What is fitted here is a sum of outputs with random signs, as calibration differentiates them:
a rounding that bears on several outputs is counted with what it does to all of them. A receiver's
figure is the least over the outputs that it gets, each with the roundings that it depends on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.party import ops as party_ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RangeSource, RealRange, Tensor
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.ranges.calibrate import Ranges, Statistics, mean_sizes
from veilgraph.passes.ranges.noise_gains import normal_power
from veilgraph.passes.secret.round_outputs import as_revealed

ROUNDING = 1 / 6  # variance of rounding at random, in units of the last place squared
UNKNOWN = Statistics(RealRange(0.0, 0.0, RangeSource.ASSUMED))
ROUNDED = (secret_ops.Truncate, secret_ops.Function)


@dataclass(frozen=True)
class Questions:
    """The least number over layers and units that a receiver has a threshold of.

    Attributes:
        layer: "" where it has no threshold of what its outputs depend on.
        count: None where no samples tell.
    """

    receiver: str
    layer: str = ""
    count: float | None = None

    def __str__(self) -> str:
        if not self.layer:
            return (
                f"{self.receiver} knows no threshold of a rounding that its outputs depend on: "
                "equal questions give outputs to average, and nothing to fit them to"
            )
        if self.count is None:
            return (
                "Without samples it is not known how many equal questions tell "
                f"{self.receiver} a weight"
            )
        count = _round(self.count)
        return (
            f"{self.receiver} learns one derivative of layer {self.layer} to one standard "
            f"deviation from about {count:,} equal question{'s' if count > 1 else ''}"
        )


def _round(count: float) -> int:
    """The next of 1, 2, 5, 10, 20, ... downward: more digits would tell of the weights."""
    power = 10 ** math.floor(math.log10(max(count, 1.0)))
    return next(int(d * power) for d in (5, 2, 1) if d * power <= max(count, 1.0))


@dataclass(frozen=True)
class CountQuestions:
    """Counts for a program of which protocols are known; no options.

    Attributes:
        ranges: with what noise on each value does.
        schedule: of the party level: a party knows the threshold of a layer where it shifts what
            was opened, or its mask.
        entry: the program's number, where the schedule is that of several.
    """

    ranges: Ranges
    expanded: Expanded
    schedule: Schedule
    entry: int = 0

    def run(
        self, program: SecretProgram, receivers: Mapping[str, tuple[int, Sequence[str]]]
    ) -> list[Questions]:
        """One a receiver.

        Args:
            receivers: of numbers, not of decisions alone, by name; each with its party's number,
                and with the outputs that it receives as numbers.
        """
        return [
            self._least(receiver, party, outputs, program)
            for receiver, (party, outputs) in receivers.items()
        ]

    def _least(
        self, receiver: str, party: int, outputs: Sequence[str], program: SecretProgram
    ) -> Questions:
        """The least over outputs; a layer of which nothing is known where no samples tell."""
        shifting, rows = self._shifting(party), _rows(program)
        found = Questions(receiver)
        for name in outputs:
            rounded = _roundings(program, name)
            known = {n: op for n, op in rounded.items() if _is_known(n, op, shifting)}
            heard = {n: self._of(n).peak * rows * _unit(op) ** 2 for n, op in known.items()}
            if not heard:
                continue
            layer = max(heard, key=lambda n: heard[n])
            if not heard[layer]:
                found = found if found.layer else Questions(receiver, layer)
                continue
            noise = self._own_noise(program, name)
            for n, op in rounded.items():
                noise += ROUNDING * _unit(op) ** 2 * (self._of(n).gain or 0.0)
            count = max(1.0, noise / (ROUNDING * heard[layer]))
            if found.count is None or count < found.count:
                found = Questions(receiver, layer, count)
        return found

    def _shifting(self, party: int) -> set[tuple[str, int]]:
        """The layers in which a party shifts what was opened, or its mask, and by how many bits."""
        return {
            (self.expanded.notes[node.layer].name, node["bits"])
            for node in self.schedule.nodes_of(party_ops.SHR)
            if node.party == party and _is_of(node, self.entry)
        }

    def _of(self, name: str) -> Statistics:
        """A layer is an operation's, or an input's that is truncated before anything else."""
        known = self.ranges.known
        return known.get(("operation", name)) or known.get(("input", name)) or UNKNOWN

    def _own_noise(self, program: SecretProgram, name: str) -> float:
        """Variance of an output's own rounding, relative to its size as gains are."""
        value = program.outputs[name]
        if not self.ranges.outputs or isinstance(value, ir.BlockArgument):
            return 0.0
        op, sizes = value.owner.opview, mean_sizes(self.ranges.outputs)
        if op.location.name_str not in map(as_revealed, program.outputs):  # equal ones share it
            return 0.0
        power = normal_power(sizes.get(name, 0.0))
        return ROUNDING * _unit(op) ** 2 / power / len(program.outputs)


def _is_of(node: Node, entry: int) -> bool:
    """Whether runs of this entry make a node, or read what setup makes."""
    return node.entry == entry or node.phase == Phase.SETUP


def _is_known(name: str, op: SecretOp, shifting: set[tuple[str, int]]) -> bool:
    """Whether who shifts so much in these layers knows a layer's threshold."""
    if isinstance(op, secret_ops.Function):
        return name in {layer for layer, _ in shifting}
    return (name, _bits(op)) in shifting


def _roundings(program: SecretProgram, output: str) -> dict[str, SecretOp]:
    """The last rounding at random of each layer that an output depends on, by the layer's name;
    none of outputs."""
    outputs = {as_revealed(name) for name in program.outputs}
    borne, found = {program.outputs[output]}, dict[str, SecretOp]()
    for op in reversed(program.operations):
        if op.operation.results[0] not in borne:
            continue
        borne.update(op.operation.operands)
        name = op.location.name_str
        at_random = isinstance(op, ROUNDED) and not isinstance(op, secret_ops.RoundOff)
        if at_random and name not in outputs:
            found.setdefault(name, op)
    return found


def _bits(op: SecretOp) -> int:
    bits: int = secret_ops.attributes_of(op)["bits"]
    return bits


def _unit(op: SecretOp) -> float:
    """What the last place of a result stands for."""
    return math.ldexp(1.0, -Tensor.of(op.operation.results[0]).encoding.frac_bits)


def _rows(program: SecretProgram) -> int:
    """How many questions one inference is: rows that all inputs and outputs have."""
    inputs = [a.tensor.shape for a in program.arguments if a.is_input]
    shapes = [*inputs, *(shape_of(value) for value in program.outputs.values())]
    extents = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return extents.pop() if len(extents) == 1 else 1
