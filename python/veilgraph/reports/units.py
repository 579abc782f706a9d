"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

SIZES = ("B", "kB", "MB", "GB", "TB")
COUNTS = ("", "k", "M", "G", "T", "P")


def size(count: float) -> str:
    """Bytes, in powers of 1000: "950 B", "1.25 MB"."""
    return _scaled(count, SIZES)


def amount(number: float) -> str:
    """A large count: "950", "4.09 G"."""
    return _scaled(number, COUNTS).rstrip()


def counted(count: int, noun: str) -> str:
    """So many of something: "1 inference", "3 inferences"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(value: float) -> str:
    """A span of time: "850 us", "12.3 ms", "4.56 s"."""
    if value and value < 0.9995e-3:
        return f"{_digits(value * 1e6)} us"
    if value < 0.9995:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value)} s"


def duration(value: float) -> str:
    """A span of time that somebody waits: "4.56 s", "41 minutes", "3.2 hours", "12 days"."""
    for unit, length, from_ in (("days", 86_400, 2), ("hours", 3_600, 2), ("minutes", 60, 2)):
        if value >= from_ * length:
            count = value / length
            return f"{count:.0f} {unit}" if count >= 9.95 else f"{count:.1f} {unit}"
    return seconds(value)


def percent(share: float) -> str:
    """A share of one: "12.3%"."""
    return f"{100 * share:.1f}%"


def real(value: float) -> str:
    """A real number in four digits; "inf" for one without a bound."""
    return f"{value:.4g}"


def shape(extents: Sequence[int]) -> str:
    """A shape: "1x3x224x224"; "()" for a single number."""
    return "x".join(map(str, extents)) or "()"


def finite(value: float) -> float | None:
    """The number, or None (JSON's null) in place of an infinity."""
    return value if math.isfinite(value) else None


def _scaled(number: float, units: Sequence[str]) -> str:
    step = 0
    while number >= 999.5 and step < len(units) - 1:
        number, step = number / 1000, step + 1
    text = f"{number:g}" if step == 0 and number == int(number) else _digits(number)
    return f"{text} {units[step]}"


def _digits(number: float) -> str:
    """Three digits, more where they stand before the point."""
    rounded = float(f"{number:.3g}")
    if rounded == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(rounded)))
    return f"{number:.{places}f}"
