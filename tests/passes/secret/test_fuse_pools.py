"""Max pools that compare before the ReLU: where they may, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veilgraph.ir.meaning import secret as meaning
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import expand_protocols
from veilgraph.passes.secret.fuse_pools import FUSED, FusePools
from veilgraph.targets.suites import SUITES
from veilgraph.targets.suites.rep3 import REP3
from veilgraph.targets.target import Target, target

KNOWN = RealRange(-8.0, 8.0, RangeSource.PROVEN)
WINDOW = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
SHAPE = (1, 24, 4, 4)
TARGETS = {
    "rep3": target("rep3"),
    "additive": target("additive", ("alice", "bob"), dealer="dora"),
    "additive of 3": target("additive", ("alice", "bob", "carol"), dealer="dora"),
}


def pooled(k: int = 32, window_bits: int = 17, is_read: bool = False) -> SecretProgram:
    """The max pool of a truncated ReLU, which an output may read too."""
    x = Argument("x", "input", "alice", Tensor(SHAPE, Encoding(k, 12)), KNOWN)
    made = SecretProgram.create(context(), [x], {})
    with made.at("relu"):
        relu = ops.TruncateRelu.build(
            made.block.arguments[0],
            range=KNOWN,
            stated=Stated(ring_bits=20),
            bits=6,
            window_bits=window_bits,
            dropped_bits=6,
        )
    with made.at("pool"):
        pool = ops.MaxPool.build(
            relu, range=KNOWN, dilations=(1, 1), window_bits=12, dropped_bits=0, **WINDOW
        )
    made.finish({"y": pool, "r": relu} if is_read else {"y": pool})
    return made


def names(program: SecretProgram) -> list[str]:
    return [op.operation.name for op in program.operations]


def test_a_pool_takes_its_relu() -> None:
    program = FusePools(REP3).run(pooled())
    (op,) = program.operations
    assert op.operation.name == f"secret.{FUSED}"
    assert op.location.name_str == "pool"
    assert Tensor.of(program.outputs["y"]) == Tensor((1, 24, 2, 2), Encoding(20, 6))


def test_what_else_is_read_stays() -> None:
    program = FusePools(REP3).run(pooled(is_read=True))
    assert names(program) == ["secret.truncate_relu", "secret.max_pool"]


@pytest.mark.parametrize(("window_bits", "fused"), [(17, 1), (18, 2)])
def test_differences_need_a_bit_of_the_ring(window_bits: int, fused: int) -> None:
    assert len(FusePools(REP3).run(pooled(18, window_bits)).operations) == fused


def test_a_suite_without_the_protocol_is_left_alone() -> None:
    others = {name: v for name, v in REP3.protocols.items() if name != FUSED}
    program = FusePools(replace(REP3, protocols=others)).run(pooled())
    assert len(program.operations) == 2


def test_every_suite_has_the_protocol() -> None:
    assert all(FUSED in suite.protocols for suite in SUITES.values())


def test_integers_are_the_same() -> None:
    x = np.random.default_rng(1).uniform(-8, 8, SHAPE).astype(np.float32)
    apart = meaning.evaluate(pooled(), {"x": x})
    together = meaning.evaluate(FusePools(REP3).run(pooled()), {"x": x})
    np.testing.assert_array_equal(apart.outputs["y"], together.outputs["y"])


def cost(program: SecretProgram, to: Target) -> tuple[int, int, int]:
    """Rounds online, bits online and offline."""
    schedule = batch_rounds(expand_protocols(program, to).program)
    bits = dict.fromkeys(Phase, 0)
    for node in (schedule.program.nodes[i] for i in schedule.live):
        if node.op.name == "send":
            bits[node.phase] += node.type.bits * node.elements
    return schedule.rounds[Phase.ONLINE], bits[Phase.ONLINE], bits[Phase.OFFLINE]


@pytest.mark.parametrize("name", ["rep3", "additive"])
def test_it_costs_less(name: str) -> None:
    """No round more, fewer bits online, and half of those that are dealt."""
    apart, together = (
        cost(pooled(), TARGETS[name]),
        cost(FusePools(REP3).run(pooled()), TARGETS[name]),
    )
    assert together[0] <= apart[0]
    assert together[1] < 0.9 * apart[1]
    assert together[2] < 0.5 * apart[2]


def test_more_parties_take_the_relu_first() -> None:
    to = TARGETS["additive of 3"]
    apart, together = cost(pooled(), to), cost(FusePools(REP3).run(pooled()), to)
    assert together == apart
