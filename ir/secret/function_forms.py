"""Forms: what building blocks compute in a real function's place, in integers.

A secret program says which function is wanted, where, and how exactly. How it is computed is its
suite's choice among building blocks (targets/functions/). The block fits a form, which the program
carries as parameters; they are opaque to it. Here a form is read back, for its block's protocol,
and for what a program means exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from veilgraph.ir.secret.exponential import ExpSegments, ExpSums
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.shapes import require

Integers = npt.NDArray[np.int64]
BLOCK = "block"  # of parameters, the one that says which block they are for


class FunctionForm(Protocol):
    """Integers that say what is computed. Each element is opened under a mask.

    Attributes:
        block: the name of its building block, and of that block's protocol.
    """

    block: ClassVar[str]

    @property
    def window_bits(self) -> int:
        """Of what is opened, and of its mask."""

    @property
    def read_bits(self) -> int:
        """The low bits of an element that bear on its value."""

    @property
    def frac_bits(self) -> int:
        """Of the values."""

    @property
    def sum_bits(self) -> int:
        """Of the ring that values are computed in."""

    @property
    def table_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the public tables that the protocol takes behind its operand."""

    def tables(self) -> tuple[Integers, ...]:
        """Those tables, in the widest ring."""

    def parameters(self) -> dict[str, Any]:
        """Integers and tuples of integers, by name."""

    def check(self, ring_bits: int) -> None:
        """ValueError where the parameters make no sense for an operand's ring."""

    def values(self, z: Integers, mask: Integers) -> Integers:
        """What parties compute of integers z under a mask, modulo 2^sum_bits, signed."""


class RowForm(FunctionForm, Protocol):
    """Of sums along the last axis, in whose place come `count` numbers."""

    @property
    def count(self) -> int:
        """How many segments there are."""


Kind = TypeVar("Kind", bound=FunctionForm)
FUNCTION_FORMS: Mapping[str, type[FunctionForm]] = {
    kind.block: kind for kind in (FourierSeries, ExpSegments)
}
ROW_FORMS: Mapping[str, type[RowForm]] = {ExpSums.block: ExpSums}


def carried(form: FunctionForm) -> dict[str, Any]:
    """A form as a secret program carries it."""
    return {BLOCK: form.block, **form.parameters()}


def function_form(parameters: Mapping[str, Any]) -> FunctionForm:
    """The form of a function; ValueError or KeyError where there is none."""
    return _read(FUNCTION_FORMS, parameters)


def row_form(parameters: Mapping[str, Any]) -> RowForm:
    """The form of sums along rows; ValueError or KeyError where there is none."""
    return _read(ROW_FORMS, parameters)


def _read(kinds: Mapping[str, type[Kind]], parameters: Mapping[str, Any]) -> Kind:
    named = dict(parameters)
    kind = kinds.get(named.pop(BLOCK))
    require(kind is not None, f"no building block computes {parameters[BLOCK]}")
    assert kind is not None
    for name, value in named.items():
        require(isinstance(value, int | tuple), f"{name} is neither an integer nor some")
    return kind(**named)
