"""The native kernel libraries: where they are, and which of them this processor can run."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

INSTRUCTION_SETS: tuple[str, ...] = ("portable", "avx2", "avx512", "zen4", "amx")

# What runs, slowest first, by the number that processor.cpp gives a processor. `avx512` and `zen4`
# are the same instructions, for processors that multiply 64-bit lanes slowly or quickly.
_RUN_ON: tuple[tuple[str, ...], ...] = (
    ("portable",),
    ("portable", "avx2"),
    ("portable", "avx2", "zen4", "avx512"),
    ("portable", "avx2", "avx512", "zen4"),
    ("portable", "avx2", "zen4", "avx512", "amx"),
)


@cache  # what is installed is looked for in all of Python's folders
def _path(isa: str) -> Path:
    """Of the installed library; an editable install keeps it apart from this file."""
    return Path(str(distribution("veilgraph").locate_file(f"veilgraph/kernels/libveil_{isa}.so")))


@cache
def supported() -> tuple[str, ...]:
    """Instruction sets that this processor can run, slowest first."""
    processor = ctypes.CDLL(str(_path("portable"))).veil_instruction_set
    processor.restype = ctypes.c_int32
    return _RUN_ON[processor()]


def library(isa: str | None = None) -> Path:
    """The kernel library for an instruction set, by default the fastest one that runs here.

    Raises:
        ValueError: this processor cannot run `isa`, or there is no such set.
    """
    chosen = supported()[-1] if isa is None else isa
    if chosen not in supported():
        raise ValueError(f"instruction set {chosen!r} is not one of {', '.join(supported())}")
    return _path(chosen)
