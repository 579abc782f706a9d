"""The change of options that should bring a layer back under the tolerance.

An error halves with every bit: what a layer lacks is the logarithm of how far it is off. For plans
whose rings were chosen the bound on the outputs' error is scaled instead. That is an estimate, for
the bits that it buys may go to other layers: SAFETY is left, and another check is advised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

RUNG_BITS = 8
WIDEST_BITS = 64
MAX_ERROR = 5e-3  # what `compile` allows where nothing is said
SAFETY = 4.0  # two bits: the worst element of a layer does not follow the mean of the outputs
ELSEWHERE = "Give more samples to --calibrate: wider rings alone won't do."


def bits_lacking(relative: float, tolerance: float) -> int:
    """How many more bits bring an error under the tolerance; 0 where it is."""
    if relative <= tolerance:
        return 0
    return WIDEST_BITS if not tolerance else max(1, math.ceil(math.log2(relative / tolerance)))


def remedy(options: Mapping[str, object], ring_bits: int, relative: float, tolerance: float) -> str:
    """What to compile with, by the options that the plan was compiled with.

    Args:
        ring_bits: of the layer that is off.
        relative: its worst error, as a share of its largest value.
    """
    bits = bits_lacking(relative, tolerance)
    ring, frac = options.get("ring", "auto"), options.get("frac_bits")
    lacking = f"About {bits} more bit{'s' if bits > 1 else ''} would do: "
    if isinstance(frac, int):
        # A product has twice as many, and more than half of a ring is never fraction.
        wanted = frac + bits
        wider = _rung(2 * wanted + RUNG_BITS)
        if wider > WIDEST_BITS:
            return ELSEWHERE
        ringed = f" --ring {max(wider, ring)}" if isinstance(ring, int) and wider > ring else ""
        return f"{lacking}compile with --frac-bits {wanted}{ringed}."
    if isinstance(ring, int):
        wider = _rung(ring_bits + bits)
        return ELSEWHERE if wider > WIDEST_BITS else f"{lacking}compile with --ring {wider}."
    if not tolerance:
        return ELSEWHERE
    given = options.get("max_error")
    allowed = float(given) if isinstance(given, int | float) else MAX_ERROR
    smaller = _rounded_down(allowed * tolerance / relative / SAFETY)
    return f"Probably --max-error {smaller} would do: compile with it, and check again."


def _rung(bits: int) -> int:
    return -(-bits // RUNG_BITS) * RUNG_BITS


def _rounded_down(x: float) -> str:
    """One digit, not above x."""
    scale = 10.0 ** math.floor(math.log10(x))
    return f"{math.floor(x / scale + 1e-9) * scale:.1g}"
