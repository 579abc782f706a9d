"""The cheapest plan with real functions that is exact enough: one ring for all, coarser waves.

Rings chosen one by one keep sums of waves in the widest, and whatever meets them is lifted there,
which escalation.py does not price. Here plans are priced as they are. A small encoder, 5% allowed:

    rings of 24, 32 and 64 bits, waves within half a unit     7.8 MB, 195 rounds
    ring of 32 bits                                           4.4 MB, 171 rounds
    ring of 32 bits, waves within 8 units                     4.2 MB, 171 rounds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph import Graph, kind_of
from veilgraph.ir.legality import CALLS, INTEGER_VALUED
from veilgraph.ir.plan import Phase
from veilgraph.ir.secret import SecretProgram
from veilgraph.passes.assign_buffers import message_bytes
from veilgraph.passes.batch_rounds import batch_rounds
from veilgraph.passes.expand_protocols import expand_protocols
from veilgraph.passes.real_functions import FIT_UNITS, FUNCTIONS, Domain
from veilgraph.passes.rings import RUNGS
from veilgraph.passes.verify_accuracy import Measured, VerifyAccuracy
from veilgraph.targets.target import Target

COARSE_UNITS = 8.0  # 16 save 3 to 5% more, for two to three times the error
MOST_RINGS = 2  # that are tried
FITTED = frozenset(
    name.split()[0] for name, f in FUNCTIONS.items() if f.domain is not Domain.POSITIVE
)


@dataclass(frozen=True)
class Choice:
    """How a program with real functions may be encoded.

    Attributes:
        ring_bits: of all values.
        fit_units: what sums of waves may be off by, in units of their result's last place.
    """

    ring_bits: int
    fit_units: float


@dataclass(frozen=True, order=True)
class Price:
    """What all parties send in one inference, in bits; of equal prices fewer rounds are less."""

    bits: int
    rounds: int

    @staticmethod
    def of(program: SecretProgram, target: Target) -> Price:
        """Counted on the program's protocols."""
        schedule = batch_rounds(expand_protocols(program, target).program)
        nodes = (schedule.program.nodes[i] for i in schedule.live)
        sends = [node for node in nodes if node.op == "send" and node.phase != Phase.SETUP]
        bits = sum(8 * message_bytes(node.type, node.elements) for node in sends)
        return Price(bits, schedule.rounds[Phase.OFFLINE] + schedule.rounds[Phase.ONLINE])


@dataclass(frozen=True)
class ChooseApproximations:
    """Takes the first choice that the samples pass, if it costs less than what is there.

    Before::

        %1 = matmul %x, %w       ring 24
        %2 = lift %1             ring 64
        %3 = masked_function %2  ring 64, 19 waves

    After::

        %1 = matmul %x, %w       ring 24
        %2 = truncate %1         ring 24
        %3 = masked_function %2  ring 24, 10 waves

    A choice may trust no function's operand to stay in its range that was not trusted before.

    Attributes:
        aim: error of the outputs on the samples, relative to their size, that is taken.
        verify: measures it.
        encode: the program of a choice; may raise AccuracyError.
        price: what a program costs.
        units: what sums of waves may be off by, the cheapest first.
    """

    aim: float
    verify: VerifyAccuracy
    encode: Callable[[Choice], SecretProgram]
    price: Callable[[SecretProgram], Price]
    units: Sequence[float]

    @staticmethod
    def applies_to(graph: Graph) -> bool:
        """Whether there are real functions, and neither integer parts nor truth values: no
        derivative says how many bits these need, and samples may miss where they turn."""
        kinds = {kind_of(op) for op in graph.operations}
        return not kinds.isdisjoint(CALLS) and kinds.isdisjoint(INTEGER_VALUED)

    @staticmethod
    def units_of(graph: Graph) -> Sequence[float]:
        """Coarse ones too where there are functions that they make cheaper."""
        is_fitted = any(kind_of(op) in FITTED for op in graph.operations)
        return (COARSE_UNITS, FIT_UNITS) if is_fitted else (FIT_UNITS,)

    def run(self, program: SecretProgram, least_ring_bits: int) -> SecretProgram:
        """
        Args:
            program: what was chosen otherwise, exact enough.
            least_ring_bits: the first ring that is tried.
        """
        held = next((m for m in self._measured(program, least_ring_bits) if self._holds(m)), None)
        if held is None or self.price(held.program) >= self.price(program):
            return program
        return self.verify.told(held, self.aim)

    def _measured(self, program: SecretProgram, least_ring_bits: int) -> Iterator[Measured]:
        """The choices that may be taken, the cheapest first."""
        for choice in choices(least_ring_bits, self.units):
            try:
                tried = self.encode(choice)
            except AccuracyError:
                continue  # a value does not fit the ring, or no waves do
            if set(tried.trusting) <= set(program.trusting):
                yield self.verify.measure(tried)

    def _holds(self, measured: Measured) -> bool:
        return measured.error <= self.aim


def choices(least_ring_bits: int, units: Sequence[float]) -> Iterator[Choice]:
    """From the cheapest on: a rung costs more than waves do."""
    rungs = [ring_bits for ring_bits in RUNGS if ring_bits >= least_ring_bits]
    for ring_bits in rungs[:MOST_RINGS]:
        yield from (Choice(ring_bits, each) for each in units)
