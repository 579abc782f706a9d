"""How many equal questions tell a receiver one derivative of its output: the price of a weight.

Equal questions are rounded anew. Who knows the threshold of a unit's truncation knows up to one
number how the unit was rounded, and fits outputs to that. Let V be what one last place of the unit
does to an output, s the output's own standard deviation over equal questions. The regressor has
variance 1/6, so after n questions least squares is off by s sqrt(6 / n): V is known to one standard
deviation after

    n = 6 (s / V)^2        s^2 = sum of all inner roundings' V^2 / 6 + 1/6 of the output's own unit

Li et al., USENIX Security 2023, describe the thresholds; docs/protocols.md says which role knows
one. What is fitted here is a sum of all outputs with random signs, as calibration differentiates
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir import secret_ops
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.meaning.gradients import normal_power
from veilgraph.ir.secret import SecretProgram
from veilgraph.ir.secret_ops import SecretOp
from veilgraph.ir.secret_types import RangeSource, RealRange, Tensor
from veilgraph.passes.batch_rounds import Schedule
from veilgraph.passes.expand_protocols import Expanded
from veilgraph.passes.ranges import Ranges, Statistics
from veilgraph.passes.round_outputs import as_revealed, mean_sizes

ROUNDING = 1 / 6  # variance of rounding at random, in units of the last place squared
FUNCTIONS = (secret_ops.MaskedFunction, secret_ops.MaskedExp)
UNKNOWN = Statistics(RealRange(0.0, 0.0, RangeSource.ASSUMED))
ROUNDED = (secret_ops.Truncate, *FUNCTIONS)


@dataclass(frozen=True)
class Questions:
    """The least number over layers and units that a receiver has a threshold of.

    Attributes:
        count: None where no samples tell.
    """

    receiver: str
    layer: str
    count: float | None

    def __str__(self) -> str:
        if self.count is None:
            return f"Without samples it is not known how many equal questions tell {self.receiver}"
        return (
            f"{self.receiver} learns one derivative of layer {self.layer} to one standard "
            f"deviation from about {_round(self.count):,} equal questions"
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
    """

    ranges: Ranges
    expanded: Expanded
    schedule: Schedule

    def run(self, program: SecretProgram, receivers: Mapping[str, int]) -> list[Questions]:
        """One a receiver that knows a threshold.

        Args:
            receivers: of numbers, not of decisions alone, by name; each with its party's number.
        """
        rounded = dict(_roundings(program))
        found = []
        for name, party in receivers.items():
            known = self._known(party, rounded)
            if known:
                found.append(self._least(name, rounded, known, program))
        return found

    def _known(self, party: int, rounded: Mapping[str, SecretOp]) -> list[str]:
        """The layers whose thresholds a party knows."""
        shifting = set()
        for i in self.schedule.live:
            node = self.schedule.program.nodes[i]
            if node.party == party and node.op == "shr":
                shifting.add((self.expanded.notes[node.layer].name, node["bits"]))
        layers = {name for name, _ in shifting}
        return [
            name
            for name, op in rounded.items()
            if (name in layers if isinstance(op, FUNCTIONS) else (name, _bits(op)) in shifting)
        ]

    def _least(
        self, receiver: str, rounded: Mapping[str, SecretOp], known: list[str], p: SecretProgram
    ) -> Questions:
        noise, rows = self._own_noise(p), _rows(p)
        for name, op in rounded.items():
            noise += ROUNDING * _unit(op) ** 2 * (self._of(name).gain or 0.0)
        heard = {name: self._of(name).peak * rows * _unit(rounded[name]) ** 2 for name in known}
        layer = max(heard, key=lambda name: heard[name])
        if not heard[layer]:
            return Questions(receiver, layer, None)
        return Questions(receiver, layer, max(1.0, noise / (ROUNDING * heard[layer])))

    def _of(self, name: str) -> Statistics:
        """A layer is an operation's, or an input's that is truncated before anything else."""
        known = self.ranges.known
        return known.get(("operation", name)) or known.get(("input", name)) or UNKNOWN

    def _own_noise(self, program: SecretProgram) -> float:
        """Variance of the outputs' own rounding, relative to their size as gains are."""
        if not self.ranges.outputs:
            return 0.0
        sizes, noise = mean_sizes(self.ranges.outputs), [0.0]
        for name, value in program.outputs.items():
            if isinstance(value, ir.BlockArgument):
                continue
            op = value.owner.opview
            if op.location.name_str == as_revealed(name):
                noise.append(ROUNDING * _unit(op) ** 2 / normal_power(sizes.get(name, 0.0)))
        return sum(noise) / len(program.outputs)


def _roundings(program: SecretProgram) -> Iterator[tuple[str, SecretOp]]:
    """The last rounding of each layer, at random, by the layer's name; none of outputs."""
    outputs = {as_revealed(name) for name in program.outputs}
    for op in program.operations:
        at_random = isinstance(op, ROUNDED) and not isinstance(op, secret_ops.RoundOff)
        if at_random and op.location.name_str not in outputs:
            yield op.location.name_str, op


def _bits(op: SecretOp) -> int:
    bits: int = secret_ops.attributes_of(op)["bits"]
    return bits


def _unit(op: SecretOp) -> float:
    """What the last place of a result stands for."""
    return math.ldexp(1.0, -Tensor.of(op.operation.results[0]).encoding.frac_bits)


def _rows(program: SecretProgram) -> int:
    """How many questions one inference is: rows that all inputs and outputs have."""
    inputs = [a.tensor.shape for a in program.arguments if a.role == "input"]
    shapes = [*inputs, *(shape_of(value) for value in program.outputs.values())]
    extents = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return extents.pop() if len(extents) == 1 else 1
