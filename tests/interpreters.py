"""Party-level programs run twice: by the oracle, and lowered, by native interpreters with known
keys.

Both draw the same AES streams, so outputs and messages must be equal bit for bit. Keys that a test
knows exist here alone: production code can't be seeded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.meaning.party import DrawSource, Evaluation, evaluate
from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.text import print_program
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND_BYTES, ROUND_TIME, Manifest, Pace, Phase, Tensor
from veilgraph.ir.roles import COMPUTING
from veilgraph.ir.types import Kind, Type
from veilgraph.passes.party.batch_rounds import FREE, Schedule, batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.prune import prune
from veilgraph.passes.plan.emit_plan import emit_plan
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.interface import Ready
from veilgraph.runtime.encoding import word_dtype
from veilgraph.runtime.links.links import Buffer, Links
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.party import Party
from veilgraph.runtime.randomness import bits, elements
from veilgraph.runtime.session.keys import Holders, SessionKeys
from veilgraph.runtime.simulate import in_threads

Array = npt.NDArray[Any]
Where: TypeAlias = str | Callable[[Plan, str], Ready]  # a device by name, or one made otherwise
Wire = dict[tuple[str, int, int], bytes]  # (round, sender, receiver) -> what was sent


def signed(x: Array, bits: int) -> npt.NDArray[np.int64]:
    """Ring elements as the integers nearest to zero."""
    above = np.uint64(64 - bits)
    return (x.astype(np.uint64) << above).view(np.int64) >> above.astype(np.int64)


def ring(x: npt.ArrayLike, bits: int) -> npt.NDArray[np.uint64]:
    """Integers as elements of Z_2^bits."""
    return np.asarray(x, np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)


# Lowering


def plan_of(expanded: Expanded, suite: str = "rep3", pace: Pace = FREE) -> Plan:
    """The plan of a party-level program, its messages taken as they are (see verify_masking)."""
    expanded = prune(expanded)
    program = expanded.program
    manifest = Manifest(
        veilgraph_version="test",
        lowering=LOWERING_VERSION,
        suite=suite,
        security="",
        parties=program.parties,
        roles=dict.fromkeys(program.parties, COMPUTING.name),
        owners={t.name: t.owner for t in tensors_of(program, [ops.INPUT])},
        receivers={},
        network={"name": "lan", "bytes_per_second": 1.25e9, "round_trip_seconds": 2e-4},
        ring_bits=64,
        encoding="integers",
        options={ROUND_BYTES: pace.bytes, ROUND_TIME: pace.nanoseconds},
    )
    named = tensors_of(program, [op for op in ops.ALL if op.listed])
    return emit_plan(
        expanded,
        batch_rounds(program, pace),
        manifest,
        named,
        {"party": print_program(program)},
    )


def tensors_of(program: Program, kinds: Sequence[PartyOp]) -> list[Tensor]:
    """The named tensors of a program; what is given is integers (no fraction bits)."""
    return [
        Tensor(
            n["name"],
            n.shape,
            n.type.bits,
            n["frac_bits"] if n.op is ops.OUTPUT else 0,
            program.parties[n.party],
            0,
        )
        for n in nodes_of(program.nodes, *kinds)
    ]


# Known randomness


def known_keys(parties: int, seed: int) -> list[SessionKeys]:
    """Every party's keys, from a seed: of up to three holders each."""

    def key(holders: Holders) -> bytes:
        return hashlib.sha256(f"{seed}:{sorted(holders)}".encode()).digest()

    sets = [frozenset(c) for n in (1, 2, 3) for c in combinations(range(parties), n)]
    return [SessionKeys({h: key(h) for h in sets if i in h}) for i in range(parties)]


def known_draws(keys: Sequence[SessionKeys], run: int) -> DrawSource:
    """The draws of inference `run` under these keys, as runtime/randomness.py defines them."""
    setup, own = [each.setup() for each in keys], [each.ratchet().at(run).keys() for each in keys]

    def draw(draw: Draw, shape: Shape, type: Type) -> Array:
        in_setup = draw.phase == Phase.SETUP
        key = (setup if in_setup else own)[min(draw.holders)][draw.holders]
        number = 0 if in_setup else run
        count = int(np.prod(shape, dtype=np.int64))
        if type.kind is Kind.PLANES:
            words = bits(key, number, draw.number, type.bits, count)
            drawn = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :count]
            return drawn.reshape(type.bits, *shape)
        if type.kind is Kind.BLOCKS:
            return elements(key, number, draw.number, 2 * count, 64).reshape(*shape, 2)
        lane = next(width for width in (8, 16, 32, 64) if width >= type.bits)
        raw = elements(key, number, draw.number, count, lane).astype(np.uint64)
        return (raw & np.uint64((1 << type.bits) - 1)).reshape(shape)

    return draw


# The oracle's messages as bytes


def packed(value: Array, type: Type) -> bytes:
    """A value as it is on the wire: its exact bits, padded with zeros to 8 bytes (each plane)."""
    if type.kind is Kind.WORDS:
        shifts = np.arange(type.bits, dtype=np.uint64)
        rows = ((value.reshape(-1, 1) >> shifts) & np.uint64(1)).astype(np.uint8).reshape(1, -1)
    elif type.kind is Kind.BLOCKS:
        return value.astype("<u8").tobytes()
    else:
        rows = value.reshape(type.bits, -1)
    padding = np.zeros((len(rows), -rows.shape[1] % 64), np.uint8)
    return np.packbits(np.hstack([rows, padding]), axis=1, bitorder="little").tobytes()


def expected_wire(schedule: Schedule, evaluation: Evaluation) -> Wire:
    """What each party sends each other in each round, by the oracle."""
    wire: Wire = {}
    nodes = schedule.program.nodes
    for i in schedule.live:
        node = nodes[i]
        if node.op is ops.SEND:
            content = packed(evaluation.values[i], node.type)
            assert len(content) == node.type.message_bytes(node.elements)
            name = f"{node.phase.name.lower()} round {schedule.round_of(node) + 1}"
            link = name, nodes[node.args[0]].party, node.party
            wire[link] = wire.get(link, b"") + content
    return wire


# Interpreters


@dataclass
class Recorded:
    """Links that remember what is sent over them."""

    links: Links
    wire: Wire = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.party, self.names = self.links.party, self.links.names
        self.reset_counters()

    @property
    def native(self) -> None:
        """None: each round is seen here."""

    def reset_counters(self) -> None:
        self.links.reset_counters()
        self.sent_bytes, self.received_bytes = self.links.sent_bytes, self.links.received_bytes

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        for peer, content in sends.items():
            self.wire[step, self.party, peer] = bytes(content)
        self.links.exchange(sends, receives, step)

    def close(self) -> None:
        self.links.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.links.__exit__(kind, error, trace)


@dataclass(frozen=True)
class Ran:
    """One inference: outputs as ring elements by (party, name), and the bytes of every message.

    The first inference has the setup's messages too.
    """

    outputs: dict[tuple[int, str], npt.NDArray[np.uint64]]
    wire: Wire


def run_interpreters(
    plan: Plan,
    keys: Sequence[SessionKeys],
    batches: Sequence[Mapping[str, Array]],
    weights: Mapping[str, Array] | None = None,
    threads: int = 1,
    isa: str | None = None,
    devices: Sequence[Where] | None = None,
) -> list[Ran]:
    """A session of all parties on threads, with these keys; one inference a batch of inputs.

    `devices` are those of the parties in the plan's order; all on the CPU if None.
    """
    places = _places(plan, devices, threads=threads, isa=isa)

    def work(links: Links) -> list[Ran]:
        recorded = Recorded(links)
        name = plan.manifest.parties[links.party]
        own = {tensor.name for tensor in plan.party(name).inputs}
        done = []
        with Party(plan, name, recorded, keys[links.party], places[name]) as party:
            party.share_weights(weights or {})
            for inputs in batches:
                party.infer({n: x for n, x in inputs.items() if n in own})
                done.append(Ran(_outputs(party, links.party), recorded.wire.copy()))
                recorded.wire.clear()
        return done

    parties = plan.manifest.parties
    by_party = in_threads(work, loopback(len(parties), parties))
    return [
        Ran(
            {key: value for ran in rans for key, value in ran.outputs.items()},
            {link: content for ran in rans for link, content in ran.wire.items()},
        )
        for rans in zip(*by_party, strict=True)
    ]


def run_prepared(
    plan: Plan,
    keys: Sequence[SessionKeys],
    batches: Sequence[Mapping[str, Array]],
    weights: Mapping[str, Array] | None = None,
    devices: Sequence[Where] | None = None,
) -> list[dict[tuple[int, str], npt.NDArray[np.uint64]]]:
    """As `run_interpreters`, the offline phases all ahead and elsewhere; outputs alone."""
    places = _places(plan, devices)

    def work(links: Links) -> list[dict[tuple[int, str], npt.NDArray[np.uint64]]]:
        name = plan.manifest.parties[links.party]
        own = {tensor.name for tensor in plan.party(name).inputs}
        before = Party(plan, name, links, keys[links.party], places[name])
        before.share_weights(weights or {})
        ratchet = keys[links.party].ratchet()  # as if it were live: the same draws
        prepared = [before.prepare(ratchet.at(i + 1))[0] for i in range(len(batches))]
        done = []
        with Party(plan, name, links, None, places[name]) as party:
            # Only what the plan says is kept is there.
            party.device.copy_in(0, b"\xa5" * party.program.arena_bytes)
            party.restore(Phase.SETUP, before.kept(Phase.SETUP))
            for inputs, offline in zip(batches, prepared, strict=True):
                party.infer({n: x for n, x in inputs.items() if n in own}, offline)
                done.append(_outputs(party, links.party))
        return done

    parties = plan.manifest.parties
    by_party = in_threads(work, loopback(len(parties), parties))
    return [
        {key: value for outputs in each for key, value in outputs.items()}
        for each in zip(*by_party, strict=True)
    ]


def _places(plan: Plan, devices: Sequence[Where] | None, **options: Any) -> dict[str, Ready]:
    parties = plan.manifest.parties
    chosen = zip(parties, devices or ["cpu"] * len(parties), strict=True)
    return {
        party: ready(where, plan, party, **options)
        if isinstance(where, str)
        else where(plan, party)
        for party, where in chosen
    }


def _outputs(party: Party, index: int) -> dict[tuple[int, str], npt.NDArray[np.uint64]]:
    found = {}
    for tensor in party.program.outputs:
        dtype = word_dtype(tensor.ring_bits)
        size = tensor.elements * dtype.itemsize
        raw = party.device.copy_out((tensor.offset, size)).view(dtype).astype(np.uint64)
        mask = np.uint64((1 << tensor.ring_bits) - 1)
        found[index, tensor.name] = (raw & mask).reshape(tensor.shape)
    return found


# Both


def check_interpreters(
    expanded: Expanded,
    batches: Sequence[Mapping[str, npt.NDArray[np.int64]]],
    weights: Mapping[str, npt.NDArray[np.int64]] | None = None,
    seed: int = 1,
    threads: int = 1,
    pace: Pace = FREE,
) -> list[Evaluation]:
    """Holds that the interpreters compute and send what the oracle does; returns the oracle's runs.

    With the offline phases in their turn, and with all of them prepared before.

    Args:
        batches: of signed integers that float64 holds exactly, since owners give real numbers.
        pace: what the time of a round is worth, by which messages are aligned.
    """
    program = expanded.program
    keys = known_keys(len(program.parties), seed)
    plan = plan_of(expanded, pace=pace)
    schedule = batch_rounds(program, pace)
    evaluations = []
    for number, ran in enumerate(run_interpreters(plan, keys, batches, weights, threads), start=1):
        given = {**(weights or {}), **batches[number - 1]}
        sources = {name: value.astype(np.int64).view(np.uint64) for name, value in given.items()}
        draws = known_draws(keys, number)
        expected = evaluate(program, sources, draws, expanded.constants)
        wire = expected_wire(schedule, expected)
        if number > 1:
            wire = {link: sent for link, sent in wire.items() if not link[0].startswith("setup")}
        assert ran.wire.keys() == wire.keys()
        for link, sent in wire.items():
            assert ran.wire[link] == sent, f"{link} differs"
        assert ran.outputs.keys() == expected.outputs.keys()
        for place, value in expected.outputs.items():
            np.testing.assert_array_equal(ran.outputs[place], value, err_msg=str(place))
        evaluations.append(expected)
    for outputs, expected in zip(
        run_prepared(plan, keys, batches, weights), evaluations, strict=True
    ):
        for place, value in expected.outputs.items():
            np.testing.assert_array_equal(outputs[place], value, err_msg=f"prepared, {place}")
    return evaluations
