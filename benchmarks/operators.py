"""Writes docs/operators.md: what can be compiled, how real functions are made, which cases pass.

    python -m benchmarks.operators [--jobs 2] [--every N M] [--outcomes FILE FILE] [--quick]

All of it comes from the code: `veilgraph ops`, fits of real functions measured on integers with
random masks, and the node cases of the package onnx (benchmarks/node_cases.py), which take long:
their outcomes, of each Nth in rep3 and each Mth in cleartext, may come from two files, one JSON
object a line, as `node_cases --json` prints them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.function_costs import ALONE, COMPOSED, LIKE, Cost, compiled
from benchmarks.node_cases import REASONS, Outcome, every, judge_all
from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.meaning.graph import MEANING
from veilgraph.ir.secret.fourier import Waves, values
from veilgraph.operators import OPERATORS
from veilgraph.passes.encode.functions.singularities import SINGULARITIES
from veilgraph.targets.functions.catalogue import FUNCTIONS, TURNING, Tail
from veilgraph.targets.functions.fourier_series import turning, waves_of

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
HEAD = """# Operators

What can be compiled, how real functions are computed, and which of ONNX's own test cases pass. Made
from the code by `python -m benchmarks.operators`; a test holds that it is current.

- [What can be compiled](#what-can-be-compiled)
- [Real functions](#real-functions)
- [Integers, and what rounds](#integers-and-what-rounds)
- [Quantised models](#quantised-models)
- [Control flow](#control-flow)
- [ONNX's node cases](#onnxs-node-cases)

## What can be compiled

`veilgraph ops` prints the same. Whatever else a model has, `veilgraph compile` names all of it at
once, with the nearest way out.
"""
FUNCTIONS_HEAD = """
## Real functions

Each is one opening of its operand under a mask, a sum of N waves that is local, and one truncation
([protocols.md](protocols.md#functions-of-a-masked-opening)): three rounds in `rep3`, two in
`additive`, no secret multiplication. Offline 2 N numbers are dealt. The waves are fitted when a
model is compiled, to the range of the operand with its margin, and to the fraction bits of operand
and result: the domains here are examples. The error is that of the sum, measured on 50,000 numbers
of the domain under random masks, before the truncation's own unit in the last place. With
`compile --max-error` sums may be off by 8 units of it, where samples pass that: plans say so in the
line "encoding". Those of log, sqrt, rsqrt and reciprocal never are.

Outside of its waves a sum is wrong without a word, so the domain is where an operand can be, and
not only where samples showed it: the compiler follows what owners may give (the calibrated range
with its margin, or what was declared) through every operation (`passes/ranges/value_ranges.py`),
and ends it where a product's ring ends, for what is larger is lost in the product. Sigmoid of x -
z, calibrated on differences of up to 1, is right for 20. Where waves over all of that would be too
many, or a result too large, a comparison chooses what the function is at its domain's end:

- sigmoid, tanh and erf are their limits there, GELU, SiLU and softplus 0 or x;
- the exponential counts as that of its calibrated range with its margin of two;
- log, sqrt, rsqrt and reciprocal take numbers of one sign, half and twice what was calibrated among
  them. Whatever is nearer to zero, or of the other sign, counts as the least number l of the domain
  (1/x of -1 is 1/l; up to a sixteenth below l either will do), what is beyond it as the largest;
- a softmax of inputs, their sums and maxima holds for all that they can be; of products as far as
  what waits for a truncation can be, and no more than twice as far as the margin. Where that is not
  all, the plan names it: `inspect` and `check` say in the line "encoding" what is trusted.

What cannot leave is not compared: 1 / (1 + sigmoid x) has no comparison. After a product the domain
is up to twice the range with its margin. A perceptron of GELUs dealt 15% more bytes for it in as
many rounds, a BERT-like encoder of three layers sent 8% more in as many rounds. `compile
--trust-ranges` saves it, and the comparisons of singularities (24 of that encoder's 180 rounds):
functions hold on calibrated ranges with their margin alone, and the plan lists those whose operand
could be elsewhere. Products, and sums of them, trust their ranges always: beyond two to four times
what was calibrated a ring overflows, which `check` reports. Comparisons of inputs, their sums and
maxima do not.

Beyond a ratio of 64 the operand of a function with a singularity is compared with powers of four,
and with l, and multiplied by one, so that the waves are those near 1: 9 to 11 rounds in `rep3`. In
that batch an end adds no round or one, and 24 to 35 bytes a number. Up to that ratio comparisons
run beside the waves and choose: 3 rounds more, 7 in place of 4 for the log of numbers from 0.3 to
3.4, and 46 bytes in place of 28. Division, powers, ELU, mish, LRN and normalisations are made of
these; a layer normalisation of up to 2,048 numbers takes its variance from sums of integers.

Softmax and log-softmax take exponentials of masked openings by pieces of the operand's range, and
no maximum where what it takes spans at most some 300 nats: some 17 rounds in `rep3` for
any number of classes, an absolute error below 2e-4 (softmax) and 5e-4 (log-softmax), measured over
normal logits of deviation 0.01 to 10 and rows of one winner among equals, up to 1000 classes
([protocols.md](protocols.md#exponentials-of-a-masked-opening)).
"""
COMPOSED_HEAD = """
Rounds are those of a plan in `rep3` of this function alone at 16 fraction bits, the sharing of its
input and the revealing of its output among them; products of two secrets, and comparisons, are an
element of its input. What is made of functions, on numbers that have the margin of two around them;
the error is the worst on them, in exact integers, against ONNX Runtime:
"""
CASES_HEAD = """
A Div by a secret takes divisors of one sign: where samples show both, it is refused, for there is
no bound on its result. A Pow by a whole known exponent up to 16 is squares and products, x^16 four
of them, and no approximation; by a fraction it is e^(a ln x) of a positive number, and a whole
exponent above 16 is refused.

## Integers, and what rounds

Floor, Ceil, Round, casts to integers, quotients and remainders are exact for the number that the
parties hold, whatever its range: a truncation makes the floor or one more, and a comparison tells
which (`passes/encode/integer_parts.py`). The number that they hold is the real one to an encoding
step: where a value is nearer to an integer than that (to a half, for Round), the result may be the
next integer. So the error of a function of steps is bounded in its operand, not in its result.
Inputs that are integers, and sums of such, are held exactly. Quotients and remainders take an
approximate quotient and put it right by comparisons: they are exact while quotients stay below some
ten thousands, or 2^18 in a ring of 64 bits.

## Quantised models

QDQ and QLinear models, those of `onnxruntime.quantization` among them, are decoded when they are
read (`frontend/onnx/operators/quantised.py`). Integer weights become the real numbers that they
stand for, and the owner's. A pair of QuantizeLinear and DequantizeLinear, as between all layers,
becomes a clip to the numbers that its type can say, or nothing where that can't be left; bounds are
public, as all single numbers are. The rounding in between is left out: a plan computes what the
quantised model approximates, and differs from ONNX Runtime by the noise of ONNX Runtime's rounding,
one part in 255 of a tensor's range each time. A plan gains nothing from 8-bit numbers, for its
rings follow from ranges and errors, and clips are comparisons: a small network of two convolutions
and a dense layer takes 47 rounds and 121 kB online where the same one in float32 takes 25 and 49
kB. Take the model in float32 where there is one. Only where integers are asked for, as an output or
by an operator that isn't listed, are they made, rounded as ONNX says. `com.microsoft`'s QGemm and
QLinearAdd, AveragePool, Concat, GlobalAveragePool, LeakyRelu, Mul, Sigmoid and DynamicQuantizeLSTM
are decoded too. DynamicQuantizeLinear is undone where its integers are multiplied and made real
again, with biases in units of its scale or without, and refused where they are asked for.

## Control flow

If, Loop and Scan are written out before anything else: `frontend/onnx/control_flow.py`. What is
decided by shapes, constants and the number of the turn is public. A secret condition of an If
computes both branches and chooses; a Loop whose end depends on data is refused.

## ONNX's node cases

The package onnx generates cases of single nodes. Those below are run by all parties of `rep3` in a
ring of 64 bits, each calibrated on its own input, and pass if they agree with the expected outputs
within 0.2% of their magnitude (`benchmarks/node_cases.py`), or within the precision of bfloat16 and
float16 where they are of these types. What a model gives as a constant, such as axes, indices and
the grid that an image is sampled on, is one here. The same cases are run by the suite `cleartext`,
which is the fixed-point arithmetic alone, without protocols. "Refused" is a sentence and exit code
3 or 4; "wrong" is a difference.
"""


@dataclass(frozen=True)
class Measured:
    """A function at some fraction bits: its waves, and the worst error of the sum."""

    waves: Waves
    error: float


def measured(name: str, bits: int) -> Measured | None:
    """On its domain of the table; None where no sum of waves is close enough."""
    low, high = DOMAINS[name]
    waves = (
        turning(name, high, bits, bits, 64)
        if name in TURNING
        else waves_of(name, low, high, bits, bits, 64)
    )
    if waves is None:
        return None
    rng = np.random.default_rng(bits)
    x = rng.integers(round(low * 2**bits), round(high * 2**bits), SAMPLES, endpoint=True)
    r = rng.integers(0, 1 << waves.window_bits, SAMPLES)
    found = np.ldexp(values(waves, x, r).astype(np.float64), -waves.frac_bits)
    wanted = _meaning(name)(np.ldexp(x.astype(np.float64), -bits))
    return Measured(waves, float(np.abs(found - wanted).max()))


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
    heading = ["function", "waves are", "domain"]
    heading += [f"{bits} bits: N; error" for bits in BITS]
    yield from table([*heading, COSTS, "far out"], map(_function_row, DOMAINS))
    yield COMPOSED_HEAD
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
        cells.append(f"{len(found.waves.cosines)}; {found.error:.1e}" if found else "none")
    cost = f"as {LIKE[name]}" if name in LIKE else _cost(compiled(ALONE[name], COST_BITS))
    return [name, family, f"[{low:g}, {high:g}]", *cells, cost, far]


def _far_out(name: str) -> str:
    if name not in FUNCTIONS:
        return "more bits are opened"
    return NORMALIZED if name in SINGULARITIES else FAR[FUNCTIONS[name].tail]


def node_cases(found: Sequence[Sequence[Outcome]], numbers: Sequence[int]) -> Iterator[str]:
    """The pass table, and what was left out and why."""
    yield "; ".join(map(counted, found, numbers, SUITES)) + "."
    yield ""
    left = Counter(o.why for o in found[0] if o.result == "left out")
    rows = [(left[reason], why) for reason, why in REASONS.items() if left[reason]]
    yield from table(("left out", "because"), rows)
    yield ""
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


def page(found: Sequence[Sequence[Outcome]], numbers: Sequence[int]) -> str:
    parts = [
        HEAD,
        *operators(),
        FUNCTIONS_HEAD,
        *functions(),
        CASES_HEAD,
        *node_cases(found, numbers),
    ]
    return "\n".join(parts) + "\n"


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
    PAGE.write_text(page(found, given.every))


if __name__ == "__main__":
    main()
