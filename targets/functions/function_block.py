"""What a building block for real functions is: what it is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from veilgraph.ir.secret.function_forms import FunctionForm, carried

FIT_UNITS = 0.5  # of the last place, that a form may be off by: as much as rounding is


@dataclass(frozen=True)
class Wanted:
    """A function of each element of an operand.

    Attributes:
        function: its name in catalogue.py.
        least, most: where the operand can be.
        in_bits, out_bits: fraction bits of operand and result.
        ring_bits: of the operand.
        error: that the form may be off by, apart from the result's own rounding.
        terms: of a sum along rows, how many there are at the most; its error is a term's, relative.
    """

    function: str
    least: float
    most: float
    in_bits: int
    out_bits: int
    ring_bits: int
    error: float
    terms: int = 1


@dataclass(frozen=True)
class Fitted:
    """f(x - origin) for x in [least, most], to within `error`, and the form that a block found.

    Attributes:
        function: f, as a secret program names it.
        origin: what is to be added to the operand first.
    """

    function: str
    least: float
    most: float
    error: float
    form: FunctionForm
    origin: float = 0.0

    def attributes(self) -> dict[str, Any]:
        """As a secret program's operation has them."""
        return {
            "function": self.function,
            "least": self.least,
            "most": self.most,
            "origin": self.origin,
            "error": self.error,
            "form": carried(self.form),
        }


Fitter = Callable[[Wanted], Fitted | None]  # None: there is no form that is exact enough


@dataclass(frozen=True)
class FunctionBlock:
    """One way to compute functions. The protocol of the form's name computes it.

    Attributes:
        functions: that it fits, by name.
        fit: finds the form.
        typical: of an operand's ring, and of fraction bits of operand and result: a form as wide as
            most are, to count costs by before anything is fitted.
    """

    form: type[FunctionForm]
    functions: frozenset[str]
    fit: Fitter
    typical: Callable[[int, int, int], FunctionForm] | None = None
