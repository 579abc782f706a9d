"""Coarser Fourier series, where an error is allowed and they cost less.

Rings are chosen already (width_search.py). A perceptron with two GELUs, 5% allowed:

    Fourier series within half a unit     328 kB
    Fourier series within 8 units         286 kB
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.party import ops as party_ops
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.encode.verify_accuracy import VerifyAccuracy
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import expand_protocols
from veilgraph.targets.functions.catalogue import FUNCTIONS, Domain
from veilgraph.targets.target import Target

COARSE_UNITS = 8.0  # 16 save 3 to 5% more, for two to three times the error
FITTED = frozenset(
    name.split()[0] for name, f in FUNCTIONS.items() if f.domain is not Domain.POSITIVE
)


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
        sends = [node for node in nodes if node.op is party_ops.SEND and node.phase != Phase.SETUP]
        bits = sum(8 * node.type.message_bytes(node.elements) for node in sends)
        return Price(bits, schedule.rounds[Phase.OFFLINE] + schedule.rounds[Phase.ONLINE])


@dataclass(frozen=True)
class ChooseApproximations:
    """Takes coarse Fourier series, if the samples pass them and they cost less.

    Before::

        %2 = masked_function %1  19 terms

    After::

        %2 = masked_function %1  10 terms

    They may trust no function's operand to stay in its range that was not trusted before.

    Attributes:
        allowed_error: error of the outputs on the samples, relative to their size, that is taken.
        verify: measures it.
        encode: the program with COARSE_UNITS; may raise AccuracyError.
        price: what a program costs.
    """

    allowed_error: float
    verify: VerifyAccuracy
    encode: Callable[[], SecretProgram]
    price: Callable[[SecretProgram], Price]

    @staticmethod
    def applies_to(graph: Graph) -> bool:
        """Whether there are functions that coarser series make cheaper."""
        return any(kind_of(op) in FITTED for op in graph.operations)

    def run(self, program: SecretProgram) -> SecretProgram:
        """
        Args:
            program: with fine series, exact enough.
        """
        try:
            coarse = self.encode()
        except AccuracyError:
            return program
        if not set(coarse.trusting) <= set(program.trusting):
            return program
        measured = self.verify.measure(coarse, self.allowed_error)
        if measured.error > self.allowed_error or self.price(coarse) >= self.price(program):
            return program
        return self.verify.told(measured, self.allowed_error)
