"""10^8 truncations and 10^7 comparisons with real randomness: none wrong.

    python -m benchmarks.exactness [--quick]

Truncations: integers spread evenly up to 2^(k-2), truncated by rep3 on the native interpreter; the
result must be floor or floor plus one, and the mean of (result - exact quotient) near zero.
Comparisons: ReLU of integers at the edges of the window, the sharp upper one included, and around
zero; the result must be max(z, 0). --quick takes a hundredth.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Manifest, Tensor
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.prune import prune
from veilgraph.passes.plan.emit_plan import emit_plan
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.runtime.simulate import simulate_many
from veilgraph.targets.parties import Member, Operation, Parties
from veilgraph.targets.suites.rep3 import REP3

NAMES = ("alice", "bob", "carol")
ELEMENTS = 1_000_000
Reals = npt.NDArray[np.float64]


def plan_of(op: str, ring_bits: int, **attrs: int) -> Plan:
    """One op of rep3 on a vector of alice's, revealed to her."""
    program, shape = Program(NAMES), (ELEMENTS,)
    p = Parties(program, (0, 1, 2))
    x = program.source("input", "x", 0, shape, words(ring_bits))
    operation = Operation(op, shape, ring_bits, attrs)
    shared = REP3.share(p, Member(0), x)
    result = REP3.offered(op)(p, operation, shared)
    program.output(REP3.reveal(p, Member(0), result), 0, "y", 0)
    tensors = [Tensor(name, shape, ring_bits, 0, "alice", 0) for name in "xy"]
    owners, receivers = {"x": "alice"}, {"y": ("alice",)}
    version = LOWERING_VERSION
    roles = dict.fromkeys(NAMES, "computing")
    manifest = Manifest(
        "", version, "rep3", "", NAMES, roles, owners, receivers, {}, ring_bits, "integers"
    )
    expanded = prune(Expanded(program))
    return emit_plan(expanded, batch_rounds(expanded.program), manifest, tensors, {})


def truncations(batches: int, ring_bits: int, bits: int) -> tuple[int, float]:
    """How many are off by more than a unit in the last place, and the mean error in units."""
    rng, plan = np.random.default_rng(1), plan_of("truncate", ring_bits, bits=bits)
    bound = 1 << (ring_bits - 2)
    wrong, total = 0, 0.0
    for _ in range(batches):
        z = rng.integers(-bound, bound, ELEMENTS).astype(np.float64)
        y = simulate_many(plan, {}, [{"x": z}]).outputs["y"].astype(np.float64)
        error = y - np.floor(z / 2.0**bits)
        wrong += int(((error != 0) & (error != 1)).sum())
        total += float((y - z / 2.0**bits).mean())
    return wrong, total / batches


def comparisons(batches: int, ring_bits: int, window: int) -> int:
    """How many ReLUs at the edges of the window are wrong."""
    rng = np.random.default_rng(2)
    plan = plan_of("relu", ring_bits, window_bits=window, dropped_bits=0)
    half = 1 << (window - 1)
    wrong = 0
    for _ in range(batches):
        near = rng.integers(0, 64, ELEMENTS)
        edges = np.stack([half - 1 - near, near - half, near - 32])
        z = edges[rng.integers(0, 3, ELEMENTS), np.arange(ELEMENTS)].astype(np.float64)
        y = simulate_many(plan, {}, [{"x": z}]).outputs["y"]
        wrong += int((y != np.maximum(z, 0).astype(np.float32)).sum())
    return wrong


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a hundredth of everything")
    batches = 1 if options.parse_args().quick else 50
    start = time.monotonic()
    for ring_bits, bits in ((32, 12), (40, 16)):
        wrong, bias = truncations(batches, ring_bits, bits)
        count = batches * ELEMENTS
        print(
            f"{count} truncations, {ring_bits} bits by {bits}: {wrong} wrong, mean {bias:+.1e} ulp"
        )
    for ring_bits, window in ((32, 24), (40, 31)):
        wrong = comparisons(max(1, batches // 10), ring_bits, window)
        count = max(1, batches // 10) * ELEMENTS
        print(f"{count} comparisons, {ring_bits} bits, window of {window}: {wrong} wrong")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
