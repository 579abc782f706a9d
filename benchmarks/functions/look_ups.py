"""What the cache lines of look-ups at secret indices show, for softmax, GELU and LayerNorm.

    python -m benchmarks.functions.look_ups [--quick] [--json] [--write]

Functions of a masked opening look numbers up in public tables: those who see c = x + r at bits of
c, who deals at bits of r. Either is uniform whatever x is, and is part of that party's view. So
whoever sees which lines of 64 bytes one host reads learns nothing of x. Whoever knows r as well
learns the bits of x below, and whoever sees the lines of both hosts all but one or two of them.
They are what an ideal observer gets, who tells each look-up from the next: one that sees a cache
once a microsecond sees as many look-ups at once as the last line says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.harness.kernel_calls import Call, Words, fused
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.harness.sessions import compiled
from benchmarks.harness.workloads import gelu, layer_norm, softmax
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.exponential import ExpSums
from veilgraph.ir.secret.fourier import FourierSeries, Split
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.kernels.fused.instructions import Op
from veilgraph.passes.secret.function_protocols import form_of
from veilgraph.reports.tables import Table

Indices = npt.NDArray[np.uint64]
WORDS_OF_A_LINE = 8
MOST_WINDOW_BITS = 22  # every c is looked at; wider windows are bounded by their lines
ELEMENTS, ENTRIES = 1 << 16, 1024
HEADINGS = (
    "function|op|#bits of the window|tables, in lines|#bits of x to who knows r|#to two hosts"
)


Found: TypeAlias = FourierSeries | ExpSums


@dataclass(frozen=True)
class Shown:
    """What look-ups of an op show of an element.

    Attributes:
        window_bits: of x, c and r.
        lines: of each table.
        given_mask_bits: of x, to whoever sees the lines of c and knows r; at most, if wide.
        two_hosts_bits: of x, to whoever sees the lines of both; None if wide.
    """

    function: str
    op: str
    window_bits: int
    lines: tuple[int, ...]
    given_mask_bits: float
    two_hosts_bits: float | None


def shown(function: str, op: str, found: Found) -> Shown:
    """By the lines of every c and every r of the window."""
    bits = found.window_bits
    lines = tuple(max((1 << index) // WORDS_OF_A_LINE, 1) for index in index_bits(found))
    if bits > MOST_WINDOW_BITS:
        return Shown(function, op, bits, lines, float(np.log2(lines).sum()), None)
    every = np.arange(1 << bits, dtype=np.uint64)
    of_c, of_r = (classes(places(found, every, opened)) for opened in (True, False))
    return Shown(function, op, bits, lines, *learnt(bits, of_c, of_r))


def index_bits(found: Found) -> list[int]:
    """Of each look-up of an element."""
    if isinstance(found, ExpSums):
        return [found.piece_bits - found.low_bits, found.low_bits]
    split = Split.of(found.window_bits)
    return [split.high, split.low] * len({found.first, found.step})


def places(found: Found, values: Indices, opened: bool) -> list[Indices]:
    """The indices at which a value is looked up, as targets/functions/masked_series.py and
    exponential.py do.
    """
    if isinstance(found, ExpSums):
        most = np.uint64((1 << found.piece_bits) - 1)
        lower = most - (values & most) if opened else values & most
        return _cut(lower, found.low_bits)
    split, made = Split.of(found.window_bits), []
    for multiple in sorted({found.first, found.step}):
        angle = values * np.uint64(multiple) % np.uint64(1 << found.window_bits)
        made += _cut(angle >> np.uint64(split.dropped), split.low)
    return made


def _cut(values: Indices, low_bits: int) -> list[Indices]:
    return [values >> np.uint64(low_bits), values & np.uint64((1 << low_bits) - 1)]


def classes(indices: Sequence[Indices]) -> npt.NDArray[np.int64]:
    """For each value a number that those share whose lines are the same."""
    code = np.zeros_like(indices[0])
    for each in indices:
        line = each // np.uint64(WORDS_OF_A_LINE)
        code = code * (line.max() + np.uint64(1)) + line
    found: npt.NDArray[np.int64] = np.unique(code, return_inverse=True)[1]
    return found


def learnt(
    bits: int, of_c: npt.NDArray[np.int64], of_r: npt.NDArray[np.int64], samples: int = 200
) -> tuple[float, float]:
    """Bits of a uniform x = c - r: from the class of c and r itself, and from both classes."""
    rng, size = np.random.default_rng(0), 1 << bits
    alone, both = [], []
    for c, r in rng.integers(size, size=(samples, 2)):
        like_c, like_r = np.flatnonzero(of_c == of_c[c]), np.flatnonzero(of_r == of_r[r])
        counts = np.unique((like_c[:, None] - like_r) % size, return_counts=True)[1]
        shares = counts / counts.sum()
        alone.append(bits - float(np.log2(len(like_c))))
        both.append(bits + float(np.sum(shares * np.log2(shares))))
    return float(np.mean(alone)), float(np.mean(both))


def of_plan(function: str, text: str) -> list[Shown]:
    """Of each op of a secret program that looks up."""
    program = SecretProgram.parse(context(), text, {}, 1.0)
    found = []
    for op in program.operations:
        form = form_of(op)
        if isinstance(form, FourierSeries | ExpSums):
            found.append(shown(function, form.block, form))
    return found


def look_up_seconds(runs: int) -> float:
    """Of one look-up among ENTRIES words, less what the same program takes without."""
    body = [
        {"op": Op.LOAD, "word": 64, "a": 0},
        {"op": Op.LOOKUP, "word": 64, "dst": 1, "a": 1},
        {"op": Op.STORE, "word": 64, "a": 0, "b": 1},
    ]
    bare = [body[0], {**body[2], "b": 0}]
    times = [
        Call("fused", (Words((ELEMENTS,), 64), Words((ENTRIES,), 64)), fused(ELEMENTS, 2, 0, each))
        for each in (body, bare)
    ]
    with_it, without = (call.median_seconds(runs) for call in times)
    return max(with_it - without, 0.0) / ELEMENTS


def measure(options: argparse.Namespace) -> Findings:
    rows = 2 if options.quick else 128
    cases = [(softmax(rows, 1000), 40), (gelu(rows, 3072), 40), (layer_norm(rows, 768), 64)]
    each = [
        row
        for network, ring in cases[: 1 if options.quick else None]
        for row in of_plan(network.name, compiled(network, "rep3", ring).plan.ir["secret"])
    ]
    cells = [
        (
            row.function,
            row.op,
            row.window_bits,
            ", ".join(map(str, row.lines)),
            f"{row.given_mask_bits:.1f}",
            "" if row.two_hosts_bits is None else f"{row.two_hosts_bits:.1f}",
        )
        for row in each
    ]
    found = Findings(tables=[Table.of(HEADINGS, cells, "what look-ups show an ideal observer")])
    nanoseconds = 1e9 * look_up_seconds(3 if options.quick else 101)
    found.figures = {"ops": [asdict(row) for row in each], "look_up_nanoseconds": nanoseconds}
    found.notes.append(f"A look-up takes {nanoseconds:.2f} ns of a core.")
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    report("functions.look_ups", options, lambda: measure(options))


if __name__ == "__main__":
    main()
