"""The carry tree over digits, for any suite that can AND shared bit planes.

A digit is (G, P): whether it generates a borrow, and whether it passes one on. Neighbours join by
(G, P) o (G', P') = (G + P G', P P'), lowest first, so D digits take ceil(log2 D) levels and
2 (D - 1) - ceil(log2 D) gates. P has no plane for the lowest digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veilgraph.ir.party.program import stack
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.suite import Parties, Sharing

And = Callable[[Parties, Sharing, Sharing], Sharing]


def borrow(
    p: Parties, G: Sharing, P: Sharing | None, both: And, last: And | None = None
) -> Sharing:
    """The borrow out of the highest digit, additive.

    Args:
        both: ANDs planes, in the form that the next level needs.
        last: ANDs the last gate's, in additive form; `both` if None.
    """
    while G.type.bits > 2:
        assert P is not None
        G, P = _level(p, G, P, both)
    if P is None:
        return additive(p, G)
    gate = (last or both)(p, P, picked(G, 0, 1))
    return xor(gate, additive(p, picked(G, 1, 1)))


def _level(p: Parties, G: Sharing, P: Sharing, both: And) -> tuple[Sharing, Sharing | None]:
    """Neighbours joined, an odd top digit passed on: 2 floor(D / 2) - 1 gates."""
    count = G.type.bits
    half, odd = count // 2, count % 2
    high_P = picked(P, 0, half, 2)
    done = both(
        p,
        stacked([high_P, picked(high_P, 1, half - 1)]),
        stacked([picked(G, 0, half, 2), picked(P, 1, half - 1, 2)]),
    )
    new_G = xor(picked(G, 1, half, 2), picked(done, 0, half))
    new_P = picked(done, half, half - 1)
    if odd:
        new_G = stacked([new_G, picked(G, count - 1, 1)])
        new_P = stacked([new_P, picked(P, count - 2, 1)])
    return new_G, new_P


def picked(x: Sharing, start: int, count: int, step: int = 1) -> Sharing:
    """Planes start, start + step, ... of a sharing."""
    return x.map(lambda part: part.plane(start, count, step))


def stacked(sharings: Sequence[Sharing]) -> Sharing:
    """The planes of several sharings, one after another."""
    count = len(sharings[0].parts)
    parts = (stack([s.parts[j] for s in sharings]) for j in range(count))
    return Sharing(tuple(parts), sharings[0].form)


def xor(x: Sharing, y: Sharing) -> Sharing:
    """The XOR of two boolean sharings of one form."""
    return Sharing(tuple(a ^ b for a, b in zip(x.parts, y.parts, strict=True)), x.form)
