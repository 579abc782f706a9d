"""Writes the tables of docs/operators.md: what can be compiled, real functions, which cases pass.

    python -m benchmarks.operators [--jobs 2] [--every N M] [--outcomes FILE FILE] [--quick]

All of it comes from the code: `veilgraph ops`, fits of real functions measured on integers with
random masks, and the node cases of the package onnx (benchmarks/node_cases.py), which take long:
their outcomes, of each Nth in rep3 and each Mth in cleartext, may come from two files, one JSON
object a line, as `node_cases --json` prints them. The prose between the tables is the page's own.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.functions.costs import ALONE, COMPOSED, LIKE, Cost, compiled
from benchmarks.node_cases import REASONS, Outcome, every, judge_all
from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.meaning.graph import MEANING
from veilgraph.ir.secret.fourier import FourierSeries, values
from veilgraph.operators import OPERATORS
from veilgraph.passes.encode.functions.singularities import SINGULARITIES
from veilgraph.targets.functions.catalogue import FUNCTIONS, TURNING, Tail
from veilgraph.targets.functions.fourier_series import series_of, turning

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
BITS = (12, 16, 20)
COST_BITS = 16
COSTS = "rounds; products; comparisons"
SAMPLES = 50_000
QUICK = ("erf", "cos")
SUITES = ("rep3", "cleartext")
RESULTS = ("passes", "refused", "wrong")
DOMAINS = {  # what the table shows; a plan takes the operand's range with its margin
    **dict.fromkeys(("sigmoid", "gelu none", "gelu tanh", "silu", "softplus"), (-8.0, 8.0)),
    **dict.fromkeys(("tanh", "erf", "atan"), (-4.0, 4.0)),
    **dict.fromkeys(("sin", "cos"), (-8.0, 8.0)),
    "exp": (-8.0, 1.0),
    **dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal"), (0.25, 4.0)),
}
FAR = {
    Tail.NONE: "as at its end, two comparisons",
    Tail.FLAT: "its limits, two comparisons",
    Tail.LINE: "clipped, two comparisons, and the line added",
    Tail.ZERO: "as at its ends, a comparison each",
}
NORMALIZED = "brought near 1, a batch of comparisons and two products"
COUNTS = re.compile(r"^.*cases pass \(.*\.$", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """A function at some fraction bits: its Fourier series, and the worst error of the sum."""

    series: FourierSeries
    error: float


def measured(name: str, bits: int) -> Measured | None:
    """On its domain of the table; None where no Fourier series is close enough."""
    low, high = DOMAINS[name]
    series = (
        turning(name, high, bits, bits, 64)
        if name in TURNING
        else series_of(name, low, high, bits, bits, 64)
    )
    if series is None:
        return None
    rng = np.random.default_rng(bits)
    x = rng.integers(round(low * 2**bits), round(high * 2**bits), SAMPLES, endpoint=True)
    r = rng.integers(0, 1 << series.window_bits, SAMPLES)
    found = np.ldexp(values(series, x, r).astype(np.float64), -series.frac_bits)
    wanted = _meaning(name)(np.ldexp(x.astype(np.float64), -bits))
    return Measured(series, float(np.abs(found - wanted).max()))


def _meaning(name: str) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    kind, *form = name.split()
    named = {"approximate": form[0]} if form else {}
    compute = {op.OPERATION_NAME: MEANING[op] for op in graph_ops.OPERATIONS}[f"graph.{kind}"]
    return lambda x: compute(x.shape, x, **named)


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield f"|{' --- |' * len(heading)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def operators() -> Iterator[str]:
    rows = [(o.name, o.forms, o.becomes) for o in OPERATORS]
    yield from table(("operator", "forms", "what it costs the parties"), rows)


def functions() -> Iterator[str]:
    heading = ["function", "series is", "domain"]
    heading += [f"{bits} bits: N; error" for bits in BITS]
    yield from table([*heading, COSTS, "far out"], map(_function_row, DOMAINS))


def composed() -> Iterator[str]:
    heading = ["function", "calibrated on", *(f"{bits} bits: error" for bits in BITS), COSTS]
    yield from table(heading, map(_composed_row, COMPOSED))


def _composed_row(name: str) -> list[str]:
    node = COMPOSED[name]
    found = {bits: compiled(node, bits) for bits in BITS}
    errors = [f"{made[1]:.1e}" if made else "refused" for made in found.values()]
    return [name, node.domain, *errors, _cost(found[COST_BITS])]


def _cost(found: tuple[Cost, float] | None) -> str:
    return str(found[0]) if found else ""


def _function_row(name: str) -> list[str]:
    low, high = DOMAINS[name]
    family = FUNCTIONS[name].family.value if name in FUNCTIONS else "itself"
    far = _far_out(name)
    cells = []
    for bits in BITS:
        found = measured(name, bits)
        cells.append(f"{len(found.series.cosines)}; {found.error:.1e}" if found else "none")
    cost = f"as {LIKE[name]}" if name in LIKE else _cost(compiled(ALONE[name], COST_BITS))
    return [name, family, f"[{low:g}, {high:g}]", *cells, cost, far]


def _far_out(name: str) -> str:
    if name not in FUNCTIONS:
        return "more bits are opened"
    return NORMALIZED if name in SINGULARITIES else FAR[FUNCTIONS[name].tail]


def left_out(found: Sequence[Sequence[Outcome]]) -> Iterator[str]:
    """Why cases are not run, and how many."""
    left = Counter(o.why for o in found[0] if o.result == "left out")
    rows = [(left[reason], why) for reason, why in REASONS.items() if left[reason]]
    yield from table(("left out", "because"), rows)


def node_cases(found: Sequence[Sequence[Outcome]]) -> Iterator[str]:
    """What became of the cases that are run, by operator."""
    counts = [Counter((o.operator, o.result) for o in outcomes) for outcomes in found]
    names = sorted({o.operator for outcomes in found for o in outcomes if o.result != "left out"})
    columns = [(i, result) for i in range(len(found)) for result in RESULTS]
    rows_by_name = [(n, *(counts[i][n, result] or "" for i, result in columns)) for n in names]
    first, *others = RESULTS
    heading = [word for suite in SUITES for word in (f"{suite}: {first}", *others)]
    yield from table(("operator", *heading), rows_by_name)


def counted(outcomes: Sequence[Outcome], number: int, suite: str) -> str:
    """How many of the cases that are run pass; of each `number`th by name."""
    run = [outcome for outcome in outcomes if outcome.result != "left out"]
    passing = sum(outcome.result == "passes" for outcome in run)
    taken = f"of every {number}th by name, " if number > 1 else ""
    share = passing / max(1, len(run))
    return f"{taken}{passing} of {len(run)} cases pass ({share:.0%}) in `{suite}`"


def with_table(page: str, made: Iterable[str]) -> str:
    """The page with a table in place of the one that has the same heading.

    Raises:
        ValueError: the page has no such table, or has two.
    """
    heading, *rows = made
    parts = page.split(f"\n{heading}\n")
    if len(parts) != 2:
        raise ValueError(
            f"docs/operators.md has {len(parts) - 1} tables with the heading {heading}"
        )
    _, _, after = parts[1].partition("\n\n")
    return "\n".join((parts[0], heading, *rows, "\n" + after if after else ""))


def with_tables(page: str, found: Sequence[Sequence[Outcome]], numbers: Sequence[int]) -> str:
    """The page with all of its tables, and its counts of cases, made again."""
    for made in (operators(), functions(), composed(), left_out(found), node_cases(found)):
        page = with_table(page, made)
    counts = "; ".join(map(counted, found, numbers, SUITES)) + "."
    return COUNTS.sub(lambda _: counts, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, nargs=2, default=(1, 1))
    parser.add_argument("--outcomes", type=Path, nargs=2)
    parser.add_argument("--quick", action="store_true", help="print lines of the page; write none")
    given = parser.parse_args()
    if given.quick:
        rows = ("| " + " | ".join(_function_row(name)) + " |" for name in QUICK)
        print("\n".join((*operators(), *rows)))
        return
    if given.outcomes:
        files = [path.read_text().splitlines() for path in given.outcomes]
        found = [[Outcome(**json.loads(line)) for line in lines] for lines in files]
    else:
        chosen = zip(map(every, given.every), SUITES, strict=True)
        found = [list(judge_all(cases, given.jobs, suite)) for cases, suite in chosen]
    PAGE.write_text(with_tables(PAGE.read_text(), found, given.every))


if __name__ == "__main__":
    main()
