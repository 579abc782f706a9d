"""What a kernel declares: its parameters, by name, and what a call of it costs.

A kernel's declaration.py is the one place that says it. A step's parameters in a plan, the struct
that C++ reads them by (`cpp.py`), and the names that the CUDA side uses all come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Any, Self, TypeAlias, get_args, get_type_hints

Shape: TypeAlias = tuple[int, ...]
_INT64 = 1 << 63


@dataclass(frozen=True)
class Range:
    """What a parameter may be, both ends included; every other value is refused by `check`."""

    least: int
    most: int


ANY = Range(-_INT64, _INT64 - 1)
Bits: TypeAlias = Annotated[int, Range(1, 64)]  # a ring's width


@dataclass(frozen=True)
class Params:
    """A step's parameters: the fields of a subclass are their names, in the order of the table.

    A field is an int, or an `Annotated` one with the Range that it has to lie in.
    """

    def values(self) -> tuple[int, ...]:
        """As a step has them, int64 each."""
        return astuple(self)

    @classmethod
    def of(cls, values: Sequence[int]) -> Self:
        """Of a step, by name."""
        return cls(*values)

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        """Those of a party-level op of the kernel's name, in a ring of so many bits.

        Raises:
            NotImplementedError: no op becomes this kernel by itself.
        """
        raise NotImplementedError(f"{cls.__module__} says no op's parameters")

    @classmethod
    def ranges(cls) -> dict[str, Range]:
        """Of each parameter, by name and in order."""
        hints = get_type_hints(cls, include_extras=True)
        return {field.name: _range(hints[field.name]) for field in fields(cls)}


def _range(hint: Any) -> Range:
    return next((each for each in get_args(hint) if isinstance(each, Range)), ANY)


@dataclass(frozen=True)
class NoParams(Params):
    """Of a kernel that its buffers say everything about."""

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        return cls()


def no_products(shapes: Sequence[Shape]) -> int:
    """Of a kernel that multiplies nothing."""
    return 0


@dataclass(frozen=True)
class Kernel:
    """A kernel that a plan may call.

    Attributes:
        name: that of its folder, and of the party-level op that becomes it, if there is one.
        params: the names of its parameters.
        multiply_adds: products of ring elements in a call whose buffers have these shapes.
        has_tail: more parameters follow those that have names.
        takes_sums: on some device it adds while it loads: what a factor is the sum of has to lie
            in memory until the call is done.
    """

    name: str
    params: type[Params]
    multiply_adds: Callable[[Sequence[Shape]], int] = no_products
    has_tail: bool = False
    takes_sums: bool = False
