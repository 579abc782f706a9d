"""Whether the exact integers answer as exactly as was promised, on the samples.

    allowed: 0.1%, measured on 2 samples: 0.09%   ->  the program, and its sentence says so
    allowed: 0.1%, measured on 2 samples: 0.15%   ->  encoded again, for less

Predictions come from derivatives; this is the last word before a plan is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.meaning.integers import NumpyProducts, Products
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.types import MAX_RING_BITS

Sample = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Measured:
    """A program, and how far its outputs were off on the samples, relative to their size."""

    program: SecretProgram
    error: float


@dataclass(frozen=True)
class VerifyAccuracy:
    """Runs a program in exact integers, its truncations rounding as the protocols do.

    Attributes:
        samples: inputs by name.
        outputs: what the graph makes of them in real numbers; of those that are measured.
        given: how many samples there are; the first of them are measured, for exact integers are
            slow. 0: those measured are all.
        products: who multiplies.
        at: told which sample is measured.
        sizes: root mean squares that errors of some outputs are relative to.
    """

    samples: Sequence[Sample]
    outputs: Sequence[Sample]
    given: int = 0
    products: Products = field(default_factory=NumpyProducts)
    at: Callable[[str], None] = lambda doing: None
    sizes: Mapping[str, float] = field(default_factory=dict)

    def measure(self, program: SecretProgram, most: float = math.inf) -> Measured:
        """Mean difference of an output over its mean size, of the output where that is largest.

        Of an output of `sizes` it is the root of the mean square. Once it is sure to be above
        `most` no further sample is run, and it is told as far as it has come.
        """
        differences, error = dict.fromkeys(self._totals, 0.0), 0.0
        # Seeded, so that compiling again says the same; nothing here is secret.
        rounding = np.random.default_rng(0)
        pairs = zip(self.samples, self.outputs, strict=True)
        for number, (sample, wanted) in enumerate(pairs, 1):
            self.at(f"sample {number} of {len(self.samples)} in exact integers")
            found = evaluate(program, sample, rounding, products=self.products).outputs
            for name in differences:
                off = found[name] - wanted[name]
                each = np.square(off) if name in self.sizes else np.abs(off)
                differences[name] += float(each.sum())
            error = max(self._error(*pair) for pair in differences.items())
            if error > most:
                break
        return Measured(program, error)

    @cached_property
    def _totals(self) -> Mapping[str, float]:
        """The sizes of each output on all samples together; their squares, of `sizes`."""
        totals = dict.fromkeys(self.outputs[0], 0.0)
        for outputs, name in product(self.outputs, totals):
            wanted, known = outputs[name], self.sizes.get(name)
            if known is None:
                totals[name] += float(np.abs(wanted, dtype=np.float64).sum())
            else:
                totals[name] += known**2 * wanted.size
        return totals

    def _error(self, name: str, difference: float) -> float:
        error = difference / (self._totals[name] or 1.0)
        return math.sqrt(error) if name in self.sizes else error

    def told(self, found: Measured, allowed: float) -> SecretProgram:
        """The program, its sentence with what was measured; and that it is much, where it is."""
        program = found.program
        measured = f"measured {found.error:.1e} on {_counted(self.samples, self.given)}"
        if found.error > allowed:
            measured += f": more than the {_percent(allowed)} aimed at, and no ring does better"
        return replace(program, encoding=f"{program.encoding}, {measured}")


def missed(found: Measured, allowed: float, given: str) -> AccuracyError:
    """What a user is told whose bound can't be held.

    Args:
        found: the most exact program.
        given: what the user chose in place of the encoding, as in "In a ring of 32 bits"; may be
            empty.
    """
    where = given or f"Even with rings of up to {MAX_RING_BITS} bits"
    return AccuracyError(
        f"{where} the outputs are {_percent(found.error)} of their size off on the samples, where "
        f"{_percent(allowed)} is allowed.",
        "Take --ring auto without --frac-bits, or allow more."
        if given
        else "Allow more with --max-error.",
    )


def _percent(share: float) -> str:
    """However small."""
    return f"{100 * share:.2g}%"


def _counted(samples: Sequence[Sample], given: int) -> str:
    if given > len(samples):
        return f"the first {len(samples)} of {given} samples"
    return f"{len(samples)} sample{'s' if len(samples) > 1 else ''}"
