"""The change of options that should bring a layer back under the tolerance.

An error halves with every bit: what a layer lacks is the logarithm of how far it is off, and
SPARE_BITS for chance. For plans whose rings were chosen the outputs' error is scaled instead. That
is an estimate, for the bits that it buys may go to other layers: SAFETY is left, and another check
is advised. A ring that is given is filled with bits up to an error of 1e-4: beyond FINEST, and
where more bits may not fit it, it is chosen anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

WIDTH_STEP_BITS = 8
WIDEST_BITS = 64
MAX_ERROR = 5e-3  # what `compile` allows where nothing is said
FINEST = 1e-3  # worst error of layers, for which a ring that is given is filled with bits
SAFETY = 2.0  # the worst element of a layer does not follow the mean of the outputs
SPARE_BITS = 2
ELSEWHERE = "Give more samples to --calibrate: wider rings alone won't do."


def bits_lacking(relative: float, tolerance: float) -> int:
    """How many more bits bring an error under the tolerance; 0 where it is."""
    if relative <= tolerance:
        return 0
    return WIDEST_BITS if not tolerance else max(1, math.ceil(math.log2(relative / tolerance)))


def suggestion(
    options: Mapping[str, object],
    ring_bits: int,
    relative: float,
    tolerance: float,
    measured: float,
) -> str:
    """What to compile with, by the options that the plan was compiled with.

    Args:
        ring_bits: of the layer that is off.
        relative: its worst error, as a share of its largest value.
        measured: the outputs' mean error, as a share of their mean size.
    """
    bits = bits_lacking(relative, tolerance) + SPARE_BITS
    ring, frac = options.get("ring", "auto"), options.get("frac_bits")
    if isinstance(frac, int):
        # A product has twice as many, and more than half of a ring is never fraction.
        if _candidate_width(2 * (frac + bits) + WIDTH_STEP_BITS) > WIDEST_BITS:
            return ELSEWHERE
        ringed = " --ring auto" if isinstance(ring, int) else ""
        return f"{bits} more bits should do: compile with --frac-bits {frac + bits}{ringed}."
    if isinstance(ring, int) and tolerance >= FINEST:
        wider = _candidate_width(ring_bits + bits)
        if wider > WIDEST_BITS:
            return ELSEWHERE
        return f"{bits} more bits should do: compile with --ring {wider}."
    if not tolerance:
        return ELSEWHERE
    given = options.get("max_error")
    allowed = float(given) if isinstance(given, int | float) else MAX_ERROR
    smaller = _rounded_down(min(allowed, measured or allowed) * tolerance / relative / SAFETY)
    ringed = "--ring auto " if isinstance(ring, int) else ""
    return f"Probably {ringed}--max-error {smaller} would do: compile with it, and check again."


def _candidate_width(bits: int) -> int:
    return -(-bits // WIDTH_STEP_BITS) * WIDTH_STEP_BITS


def _rounded_down(x: float) -> str:
    """One digit, not above x."""
    scale = 10.0 ** math.floor(math.log10(x))
    return f"{math.floor(x / scale + 1e-9) * scale:.1g}"
