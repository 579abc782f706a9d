"""What every suite must do, written once: tracing an op in a suite, and the cases of each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning.integers import Windows
from veilgraph.ir.meaning.party import DrawSource, evaluate, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Type, words
from veilgraph.passes.party.expand_protocols import Expanded, LayerNote
from veilgraph.passes.party.prune import prune
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.parties import Form, Member, Operation, Sharing
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES, rep3
from veilgraph.targets.target import Target, target

Integers = npt.NDArray[np.int64]
NAMES = ("alice", "bob", "carol", "erin", "frank")
CLIENTS = ("gina", "hugo")


@dataclass(frozen=True)
class Setting:
    """A suite, how many parties compute, and the variant of comparisons that is taken."""

    suite: Suite
    computing: int
    clients: int = 0
    comparison: str = ""  # the suite's first

    def __str__(self) -> str:
        fewest, most = self.suite.security.parties
        beside = "-client" * self.clients + f"-{self.comparison}" * bool(self.comparison)
        return (
            self.suite.name if fewest == most else f"{self.suite.name}-{self.computing}"
        ) + beside

    @property
    def target(self) -> Target:
        dealer = "dealer" if self.suite.security.provider else None
        clients = CLIENTS[: self.clients]
        return target(
            self.suite.name,
            NAMES[: self.computing],
            receivers={"y": clients} if clients else {},
            dealer=dealer,
            clients=clients,
            protocols={"compare": self.comparison} if self.comparison else {},
        )


SETTINGS = (
    Setting(SUITES["rep3"], 3),
    Setting(SUITES["additive"], 2),
    Setting(SUITES["additive"], 3),
    Setting(SUITES["additive"], 5),
    Setting(SUITES["cleartext"], 1),
)
# With each comparison that is not the suite's first.
COMPARING = tuple(
    replace(setting, comparison=variant.name)
    for setting in SETTINGS[:3]
    for variant in setting.suite.protocols["compare"][1:]
    if not variant.needs.lacking(setting.computing, provider=True)
)


class Trace:
    """A program under construction in one suite, by ops of the secret level."""

    def __init__(self, setting: Setting, turn: int = 0) -> None:
        self.setting = setting
        self.program = Program(setting.target.everyone)
        target = setting.target
        self.parties = replace(target.placed(self.program), chosen=target.protocols)
        self.expanded = Expanded(self.program)
        for _ in range(turn):  # protocols take turns in roles, layer by layer
            self._layer("", "")

    def _layer(self, name: str, op: str):  # type: ignore[no-untyped-def]
        self.expanded.notes.append(LayerNote(name, op))
        return self.program.in_layer(name)

    def share(
        self, name: str, shape: Shape, ring_bits: int, owner: int = 0, role: str = "input"
    ) -> Sharing:
        phase = Phase.SETUP if role == "weight" else Phase.ONLINE
        with self._layer(name, role), self.program.in_phase(phase):
            value = self.program.source(role, name, owner, shape, words(ring_bits))
            shared: Sharing = self.setting.suite.share(self.parties, Member(owner), value)
        return shared

    def public(self, value: Integers, ring_bits: int) -> Sharing:
        type = words(ring_bits)
        if value.size and (value == value.flat[0]).all():
            constant = self.program.const(int(value.flat[0]), value.shape, type)
            return Sharing((constant,), Form.PUBLIC)
        self.expanded.constants.append(value)
        self.expanded.constant_rings.append(ring_bits)
        number = len(self.expanded.constants) - 1
        return Sharing((self.program.constant(number, value.shape, type),), Form.PUBLIC)

    def apply(
        self,
        op: str,
        shape: Shape,
        ring_bits: int,
        attrs: Mapping[str, Any],
        *operands: Sharing,
        variant: str = "",
    ) -> Sharing:
        """Args: variant: of the op's protocol; the suite's first unless told."""
        offered = self.setting.suite.offered(op)
        of_name = {v.name: v.function for v in self.setting.suite.protocols[op]}
        with self._layer(f"{op}{self.program.layer}", op):
            operation = Operation(op, shape, ring_bits, attrs)
            protocol = of_name[variant] if variant else offered
            result: Sharing = protocol(self.parties, operation, *operands)
        return result

    def held(self, x: Sharing, form: str) -> Sharing:
        """A replicated x of rep3 as three parts, or as parts of two where roles are fixed."""
        if self.setting.suite.name != "rep3" or form == "shared":
            return x
        if form == "pair":
            self.parties = replace(self.parties, rotates=False)
            return rep3.pair_of(self.parties, rep3.pair(self.parties, x))
        return rep3.masked(self.parties, additive(self.parties, x))

    def reveal(self, x: Sharing, name: str = "y", party: int = 0) -> None:
        with self._layer(name, "reveal"):
            value: Any = self.setting.suite.reveal(self.parties, Member(party), x)
            self.program.output(value, party, name, 0)

    def run(
        self, inputs: Mapping[str, Integers], draws: DrawSource | None = None, party: int = 0
    ) -> Integers:
        """The oracle's output y, as signed integers, by the nodes alone that an output needs."""
        sources = {name: value.view(np.uint64) for name, value in inputs.items()}
        draws = draws or uniform_draws(np.random.default_rng(1))
        needed = prune(self.expanded)
        done = evaluate(needed.program, sources, draws, needed.constants)
        bits = next(nodes_of(needed.program.nodes, ops.OUTPUT)).type.bits
        return integers.center(done.outputs[party, "y"].view(np.int64), bits)


class Masked:
    """Draws, and the index's mask among them.

    It is what one party draws alone, chunk by chunk; or the sum of what each draws with the dealer
    first of all.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        self._draw = uniform_draws(np.random.default_rng(seed))
        self._setting = setting
        self._own: dict[int, Integers] = {}

    def __call__(self, draw: Draw, shape: Shape, type: Type) -> npt.NDArray[Any]:
        drawn = self._draw(draw, shape, type)
        if len(draw.holders) == 1 or self._setting.computing in draw.holders:
            self._own[draw.number] = drawn.astype(np.int64)
        return drawn

    @property
    def mask(self) -> Integers | int:
        drawn = [self._own[number] for number in sorted(self._own)]
        if not drawn:
            return 0  # cleartext
        if self._setting.suite.security.provider:
            return np.ravel(sum(drawn[1 : self._setting.computing], drawn[0]))
        return np.concatenate([part.ravel() for part in drawn])


@dataclass(frozen=True)
class Case:
    """One op on operands of these shapes, and what it computes modulo 2^64."""

    name: str
    op: str
    operands: tuple[Shape, ...]
    result: Shape
    reference: Callable[..., npt.NDArray[Any]]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def check(self, setting: Setting, ring_bits: int, form: str, public: int | None) -> None:
        """Runs it in the oracle on random ring elements; `public` is an operand's position."""
        rng = np.random.default_rng(ring_bits)
        values = [
            integers.center(rng.integers(-(1 << 63), (1 << 63) - 1, s, endpoint=True), ring_bits)
            for s in self.operands
        ]
        trace = Trace(setting)
        operands, inputs = [], {}
        for j, value in enumerate(values):
            if j == public:
                operands.append(trace.public(value, ring_bits))
                continue
            inputs[f"x{j}"] = value
            x = trace.share(f"x{j}", value.shape, ring_bits, j % setting.computing)
            operands.append(additive(trace.parties, x) if form == "additive" and j != 1 else x)
        y = trace.apply(self.op, self.result, ring_bits, self.attrs, *operands)
        assert y.shape == self.result
        receiver = setting.computing - 1
        trace.reveal(y, party=receiver)
        with np.errstate(over="ignore"):
            expected = integers.center(self.reference(*values).astype(np.int64), ring_bits)
        np.testing.assert_array_equal(trace.run(inputs, party=receiver), expected)


def conv_case(
    name: str, x: Shape, w: Shape, result: Shape, low: Shape, high: Shape, **attrs: Any
) -> Case:
    geometry = {"strides": (1, 1), "dilations": (1, 1), "groups": 1, **attrs}
    windows = Windows(w[2:], geometry["strides"], low, high, geometry["dilations"])
    named = {**geometry, "pads_low": low, "pads_high": high}
    return Case(
        name, "conv", (x, w), result,
        lambda a, b: integers.conv(a, b, windows, geometry["groups"]), named,
    )  # fmt: skip


def _geometry(kernel: Shape, strides: Shape, low: Shape, high: Shape) -> dict[str, Any]:
    return {"kernel": kernel, "strides": strides, "pads_low": low, "pads_high": high}


def _summed(**geometry: Any) -> Callable[[Integers], Integers]:
    windows = Windows(dilations=(1, 1), **geometry)
    return lambda x: integers.sum_pool(x, windows)


POOL = _geometry((3, 2), (2, 1), (1, 0), (2, 1))
LINEAR_CASES = (
    Case("add", "add", ((2, 3), (2, 3)), (2, 3), np.add),
    Case("add row", "add", ((2, 3), (3,)), (2, 3), np.add),
    Case("add column", "add", ((1, 3), (4, 1)), (4, 3), np.add),
    Case("sub", "sub", ((2, 3), (2, 3)), (2, 3), np.subtract),
    Case("sub scalar", "sub", ((), (2, 3)), (2, 3), np.subtract),
    Case("neg", "neg", ((5,),), (5,), np.negative),
    Case("scale", "scale", ((5,),), (5,), lambda x: x * 11, {"factor": 11}),
    Case("scale by less", "scale", ((5,),), (5,), lambda x: x * -3, {"factor": -3}),
    Case("reinterpret", "reinterpret", ((5,),), (5,), np.copy),
    Case("sum_pool", "sum_pool", ((2, 3, 5, 4),), (2, 3, 3, 4), _summed(**POOL), POOL),
    Case("reduce_sum", "reduce_sum", ((2, 3, 4),), (2, 1, 4), lambda x: x.sum(1, keepdims=True),
         {"axes": (1,), "keepdims": True}),
    Case("reduce_sum away", "reduce_sum", ((2, 3, 4),), (3,), lambda x: x.sum((0, 2)),
         {"axes": (-1, 0), "keepdims": False}),
    Case("reshape", "reshape", ((2, 6),), (3, 4), lambda x: x.reshape(3, 4)),
    Case("broadcast", "broadcast", ((3, 1),), (2, 3, 4), lambda x: np.broadcast_to(x, (2, 3, 4))),
    Case("transpose", "transpose", ((2, 3, 4),), (4, 2, 3), lambda x: x.transpose(2, 0, 1),
         {"permutation": (2, 0, 1)}),
    Case("slice", "slice", ((7, 5),), (3, 2), lambda x: x[1::2, 3:1:-1],
         {"starts": (1, 3), "steps": (2, -1)}),
    Case("pad", "pad", ((2, 3),), (5, 4), lambda x: np.pad(x, ((1, 2), (0, 1))),
         {"low": (1, 0), "high": (2, 1)}),
    Case("concat", "concat", ((2, 3), (2, 1)), (2, 4), lambda x, y: np.hstack([x, y]),
         {"axis": -1}),
    Case("concat first", "concat", ((2, 3), (1, 3)), (3, 3), lambda x, y: np.vstack([x, y]),
         {"axis": 0}),
)  # fmt: skip
BILINEAR_CASES = (
    Case("mul", "mul", ((70,), (70,)), (70,), np.multiply),
    Case("mul row", "mul", ((2, 3, 4), (3, 1)), (2, 3, 4), np.multiply),
    Case("mul scalar", "mul", ((), (5,)), (5,), np.multiply),
    Case("mul outer", "mul", ((4, 1), (1, 3)), (4, 3), np.multiply),
    Case("matmul", "matmul", ((2, 5), (5, 3)), (2, 3), np.matmul),
    Case("matmul batch", "matmul", ((4, 2, 5), (4, 5, 3)), (4, 2, 3), np.matmul),
    Case("matmul rank 2", "matmul", ((2, 3, 2, 5), (5, 3)), (2, 3, 2, 3), np.matmul),
    Case("matmul broadcast", "matmul", ((2, 1, 2, 5), (3, 5, 3)), (2, 3, 2, 3), np.matmul),
    Case("matmul rank 2 left", "matmul", ((2, 5), (3, 5, 4)), (3, 2, 4), np.matmul),
    conv_case("conv", (2, 3, 5, 4), (4, 3, 3, 2), (2, 4, 3, 3), (0, 0), (0, 0)),
    conv_case("conv uneven", (1, 2, 5, 4), (3, 2, 3, 2), (1, 3, 3, 6), (1, 0), (2, 3),
              strides=(2, 1)),
    conv_case("conv groups", (1, 4, 3, 3), (6, 2, 2, 2), (1, 6, 2, 2), (0, 0), (0, 0), groups=2),
    conv_case("conv depthwise", (1, 3, 4, 4), (3, 1, 3, 3), (1, 3, 4, 4), (1, 1), (1, 1),
              groups=3),
    conv_case("conv dilated", (1, 1, 7, 6), (2, 1, 3, 2), (1, 2, 5, 2), (1, 0), (1, 0),
              strides=(1, 2), dilations=(2, 3)),
)  # fmt: skip
