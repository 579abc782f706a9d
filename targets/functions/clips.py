"""Functions with an end: what lies below it has the function's value there, by the same opening.

Members know c = x + r modulo 2^w, w bits being enough for the function and for x - edge, and their
provider knows r. So c - edge is x - edge under the mask r, and says together with r whether x is at
least the edge: a bit s (targets/blocks/window.py). With F the function's sum,

    s (F - beyond) + beyond

is F where x is at least the edge, else `beyond`, before anything is truncated. F is opened under a
mask beside what the comparison opens; where a tree compares, which opens nothing, s is a factor of
each number that is dealt of r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilgraph.ir.party.program import Value
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.types import words
from veilgraph.targets.blocks.window import Compare, Parts, non_negative
from veilgraph.targets.functions.masked_series import of_mask, of_opened
from veilgraph.targets.parties import Operation, Provider, Sharing


@dataclass(frozen=True)
class Clip:
    """An end of a function.

    Attributes:
        edge: an integer of the operand.
        beyond: the result of what is less, an integer.
        compared_bits, dropped_bits: the window of the operand less the edge.
    """

    edge: int
    beyond: int
    compared_bits: int
    dropped_bits: int

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> Clip | None:
        """None of a function without an end."""
        if "edge" not in attributes:
            return None
        names = ("edge", "beyond", "compared_bits", "dropped_bits")
        return Clip(*(attributes[name] for name in names))

    def parameters(self) -> dict[str, int]:
        """As the protocols have them."""
        return dict(vars(self))


def opened_bits(op: Operation) -> int:
    """Of the operand of a Fourier series: its own window, or that of a wider comparison."""
    series, clip = FourierSeries.of(op.attrs), Clip.of(op.attrs)
    return max(series.window_bits, 0 if clip is None else clip.compared_bits)


def clipped_sums(
    d: Provider, op: Operation, c: Value, r: Value, tables: Sequence[Sharing], compare: Compare
) -> Parts:
    """Parts of the series' sum, or of `beyond` in its place.  The rounds of `compare`.

    Args:
        c: x + r in `opened_bits`, at the members.
        r: at the provider.
    """
    series, clip = FourierSeries.of(op.attrs), Clip.of(op.attrs)
    assert clip is not None, "the function has no end"
    bits, window = series.sum_bits, series.window_bits
    beyond = clip.beyond << int(op["bits"])
    ring, const = words(bits), c.program.const
    compared = (c - const(clip.edge, (), c.type)).mod(clip.compared_bits)
    mask = r.mod(clip.compared_bits)
    above = non_negative(d, compared, mask, clip.dropped_bits, compare)
    own = of_mask(series, r.mod(window), tables)
    known = of_opened(series, c.mod(window), tables)
    kept = above.of_sum(d, known, own, const(series.constant - beyond, (), ring))
    return d.plus_public(kept, const(beyond, (), ring))
