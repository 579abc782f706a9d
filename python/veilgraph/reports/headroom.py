"""How much headroom a layer's values have below what its ring and its readers hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veilgraph.measuring.pricing import LayerPrice
from veilgraph.reports.layer_graph import LayerGraph


@dataclass(frozen=True)
class Bounds:
    """The powers of two that a layer's values must stay below, and the largest that they have."""

    limit: float
    largest: float

    @property
    def headroom_bits(self) -> float:
        """How often the largest value could double and still be right."""
        return self.limit - self.largest


def bounds(price: LayerPrice, graph: LayerGraph) -> Bounds | None:
    """Those of a layer's calibrated range; None for an output, and where nothing is known."""
    last = price.last
    bound = max(abs(last.range_low), abs(last.range_high))
    known = last.range_source == "calibrated" and 0 < bound < math.inf
    if not known or "reveal" in price.ops:
        return None
    bits = min(last.ring_bits - 2, graph.windows.get(price.name, 64))
    found = Bounds(bits - last.frac_bits, math.log2(bound))
    upper_bits = graph.upper_windows.get(price.name)
    if upper_bits is None or last.range_high <= 0:
        return found
    upper = Bounds(upper_bits - last.frac_bits, math.log2(last.range_high))
    return min(found, upper, key=lambda each: each.headroom_bits)
