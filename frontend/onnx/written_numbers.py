"""Numbers that architectures are written with, told from those that are learnt.

Exporters write a Python number of a model's code (the 0.5 of a GELU, the bounds of a ReLU6, the
scale of an attention) as a Constant node of one element, and a few write a parameter so. Nothing
but the number tells which it is. A written one is

    an integer up to 4096, or one with up to 8 significant bits     6, 255, 0.125, 0.375
    a decimal of up to two digits                                   0.1, 1e-5, 2.5, -1e9
    a root or an inverse of an integer up to 4096                   sqrt(2), 1 / 6, 1 / sqrt(80)
    a fourth root of an integer up to 1024, or its inverse          64^(-1/4)
    one of NAMED                                                    pi, 0.044715

as a float32, with either sign. A learnt number is one of these by a chance of less than one in
5,000 between 0.01 and 100. Training that left it where it began leaves it there: 0.25, say.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from difflib import get_close_matches
from functools import cache

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError

MOST_INTEGER, MOST_FOURTH_ROOT = 4096, 1024
MOST_BITS = 8
DIGITS, EXPONENTS = 2, range(-38, 38)
LISTED = 8  # parameters, at most, for who named none
LARGEST = float(np.finfo(np.float32).max)
NAMED = (
    *(math.pi, 2 * math.pi, math.pi / 2, math.pi / 180, math.e, math.log(2), math.log(10)),
    *(1 / math.pi, 1 / math.log(2), 1 / math.log(10)),
    *(math.sqrt(2 / math.pi), 1 / math.sqrt(2 * math.pi), 0.044715, 1.702),  # GELU's forms
    *(LARGEST, float(np.finfo(np.float16).max), math.inf),  # what masks hold
)


def are_written(values: NDArray[np.float32]) -> bool:
    """Whether each of these numbers is one that architectures are written with."""
    return all(_is_written(float(value)) for value in np.asarray(values, np.float32).flat)


def _is_written(value: float) -> bool:
    magnitude = abs(value)
    mantissa = math.frexp(magnitude)[0] * 2**MOST_BITS if math.isfinite(magnitude) else 0.5
    return mantissa.is_integer() or magnitude in _written()


def require_known(public: Collection[str], known: Collection[str]) -> None:
    """Raises UsageError for the name of a weight to publish that the model doesn't have."""
    for name in public:
        if name not in known:
            raise UsageError(
                f"The model has no parameter {name!r} to make public.", _named(name, known)
            )


def _named(name: str, known: Collection[str]) -> str:
    """Parameters with names like this one; the first few of all where there are none."""
    if near := get_close_matches(name, known, n=3, cutoff=0.3):
        return f"Parameters with names like it: {', '.join(near)}."
    if not known:
        return "It has none."
    others = len(known) - LISTED
    more = f", and {others} more" if others > 0 else ""
    return f"Its parameters are: {', '.join(list(known)[:LISTED])}{more}."


@cache
def _written() -> frozenset[float]:
    """The magnitudes, as float32 has them."""
    integers = np.arange(1, MOST_INTEGER + 1, dtype=np.float64)
    fourths = integers[:MOST_FOURTH_ROOT] ** 0.25
    roots = np.sqrt(integers)
    decimals = [float(f"{d}e{e}") for d in range(1, 10**DIGITS) for e in EXPONENTS]
    others = np.array([*decimals, *NAMED])
    numbers = np.concatenate(
        [integers, 1 / integers, roots, 1 / roots, fourths, 1 / fourths, others]
    )
    with np.errstate(over="ignore"):
        return frozenset(numbers.astype(np.float32).astype(float).tolist())
