"""Secret programs as protocols: layers, phases, public numbers, owners and receivers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from receivers import asked

from veilgraph.ir.meaning.party import evaluate, uniform_draws
from veilgraph.ir.mlir import context
from veilgraph.ir.party import ops as party_ops
from veilgraph.ir.party.legality import check_party
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded, expand_protocols
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.targets.target import Target, target

RING = 32
ANY = RealRange(-8.0, 8.0, RangeSource.PROVEN)
TARGETS = {
    "rep3": lambda **owners: target("rep3", **owners),
    "additive": lambda **owners: target("additive", ("alice", "bob"), dealer="dora", **owners),
    "cleartext": lambda **owners: target("cleartext", ("alice",)),
}


def argument(name: str, role: str, owner: str, shape: Sequence[int]) -> Argument:
    return Argument(name, role, owner, Tensor(tuple(shape), Encoding(RING, 4)), ANY)


def layer(constant: np.ndarray, owner: str = "alice", weights: str = "bob") -> SecretProgram:
    """y = relu(truncate(x w) + constant), and z = x."""
    arguments = [argument("x", "input", owner, (2, 3)), argument("w", "weight", weights, (3, 2))]
    made = SecretProgram.create(context(), arguments, {})
    x, w = made.block.arguments
    with made.at("fc1/matmul"):
        y = ops.Matmul.build(x, w, range=ANY)
    with made.at("fc1"):
        stated = Stated(ring_bits=RING)
        y = ops.Truncate.build(y, range=ANY, stated=stated, bits=4)
        public = ops.Constant.build(
            range=ANY, stated=Stated(ring_bits=RING, frac_bits=4), value=constant
        )
        y = ops.Add.build(y, public, range=ANY)
    with made.at("relu1"):
        y = ops.Relu.build(y, range=ANY, window_bits=12, dropped_bits=0)
    made.finish({"y": y, "z": x})
    return made


def expanded(secret: SecretProgram, chosen: Target) -> Expanded:
    made = expand_protocols(secret, chosen)
    check_party(made.program)
    verify_masking(batch_rounds(made.program), coalitions(chosen), asked(made.program))
    return made


@pytest.mark.parametrize("suite", TARGETS)
def test_a_layer(suite: str) -> None:
    """The same numbers in every suite, up to the rounding of the truncation."""
    chosen = TARGETS[suite]()
    weights = "bob" if "bob" in chosen.parties else "alice"
    bias = np.array([[16, -32]])
    made = expanded(layer(bias, weights=weights), chosen)
    x, w = np.arange(-30, 30, 10).reshape(2, 3), np.arange(-16, 32, 8).reshape(3, 2)
    sources = {"x": x.view(np.uint64), "w": w.view(np.uint64)}
    draws = uniform_draws(np.random.default_rng(1))
    done = evaluate(made.program, sources, draws, made.constants)
    found = done.outputs[0, "y"].astype(np.int64)
    assert ((found >= np.maximum((x @ w >> 4) + bias, 0)) & (
        found <= np.maximum((x @ w >> 4) + 1 + bias, 0)
    )).all()  # fmt: skip
    np.testing.assert_array_equal(done.outputs[0, "z"].view(np.int64) % 2**RING, x % 2**RING)


@pytest.mark.parametrize("suite", TARGETS)
def test_a_layer_whose_weights_come_from_files(suite: str) -> None:
    """Setup sends what hides weights at most, and the numbers are the same."""
    chosen = TARGETS[suite](owners={"weights": "shared"})
    made = expanded(layer(np.array([[16, -32]]), weights="shared"), chosen)
    x, w = np.arange(-30, 30, 10).reshape(2, 3), np.arange(-16, 32, 8).reshape(3, 2)
    parts = np.random.default_rng(3).integers(0, 2**RING, (len(chosen.parties), 3, 2))
    parts[-1] += w - parts.sum(axis=0)
    sources = {"x": x, **{f"{j}/w": part for j, part in enumerate(parts)}}
    draws = uniform_draws(np.random.default_rng(1))
    done = evaluate(made.program, {n: v.view(np.uint64) for n, v in sources.items()}, draws,
                    made.constants)  # fmt: skip
    above = done.outputs[0, "y"].astype(np.int64) - np.maximum((x @ w >> 4) + [[16, -32]], 0)
    assert set(np.unique(above)) <= {0, 1}
    nodes = [made.program.nodes[i] for i in batch_rounds(made.program).live]
    assert not [n for n in nodes if n.op is party_ops.WEIGHT]
    sent = [n for n in nodes if n.op is party_ops.SEND and n.phase == Phase.SETUP]
    assert len(sent) == (2 if suite == "additive" else 0)  # its opening under a dealt mask


def test_layers_are_noted() -> None:
    made = expanded(layer(np.array([[1, 2]])), TARGETS["rep3"]())
    notes = [(note.name, note.op) for note in made.notes]
    assert notes == [
        ("", ""),
        ("x", "input"),
        ("w", "weight"),
        ("fc1/matmul", "matmul"),
        ("fc1", "truncate"),
        ("fc1", "add"),
        ("relu1", "relu"),
        ("y", "reveal"),
        ("z", "reveal"),
    ]
    assert [made.program.layers[i] for i in range(len(notes))] == [name for name, _ in notes]
    assert made.notes[4].tensor == Tensor((2, 2), Encoding(RING, 4))
    assert made.notes[4].range == ANY


def test_weights_are_shared_in_the_setup_and_inputs_online() -> None:
    made = expanded(layer(np.array([[1, 2]])), TARGETS["rep3"]())
    nodes = made.program.nodes
    schedule = batch_rounds(made.program)
    first = {"x": 1, "w": 2}
    for name, phase in (("x", Phase.ONLINE), ("w", Phase.SETUP)):
        sent = [nodes[i] for i in schedule.live if nodes[i].op is party_ops.SEND]
        of_source = [node for node in sent if node.layer == first[name]]
        assert of_source
        assert {node.phase for node in of_source} == {phase}
    drawn = {n["number"] for n in nodes if n.op is party_ops.DRAW and n.layer == first["w"]}
    assert {made.program.draws[i].phase for i in drawn} == {Phase.SETUP}


def test_public_numbers() -> None:
    """A tensor of one number is written in the steps; others are the plan's constants."""
    same = expanded(layer(np.array([[5, 5]])), TARGETS["rep3"]())
    assert same.constants == []
    different = expanded(layer(np.array([[5, 6]])), TARGETS["rep3"]())
    (value,) = different.constants
    np.testing.assert_array_equal(value, [[5, 6]])
    assert different.constant_rings == [RING]


def test_owners_and_receivers() -> None:
    chosen = target(
        "rep3",
        owners={"x": "carol", "weights": "alice"},
        receivers={"y": ("bob", "carol"), "z": ("alice",)},
    )
    made = expanded(layer(np.array([[1, 2]]), owner="carol", weights="alice"), chosen)
    sources = {
        n["name"]: n.party
        for n in made.program.nodes
        if n.op in (party_ops.INPUT, party_ops.WEIGHT)
    }
    assert sources == {"x": 2, "w": 0}
    outputs = sorted((n["name"], n.party) for n in made.program.nodes if n.op is party_ops.OUTPUT)
    assert outputs == [("y", 1), ("y", 2), ("z", 0)]


def test_a_public_output_needs_no_protocol() -> None:
    made = SecretProgram.create(context(), [argument("x", "input", "alice", (2,))], {})
    with made.at("c"):
        stated = Stated(ring_bits=RING, frac_bits=4)
        value = ops.Constant.build(range=ANY, stated=stated, value=np.array([3, -4]))
    made.finish({"c": value})
    found = expanded(made, TARGETS["rep3"]())
    done = evaluate(found.program, {"x": np.zeros(2)}, uniform_draws(np.random.default_rng(1)),
                    found.constants)  # fmt: skip
    assert done.outputs[0, "c"].tolist() == [3, 2**RING - 4]
    assert not [
        n for n in batch_rounds(found.program).live if found.program.nodes[n].op is party_ops.SEND
    ]


def test_the_dealer_holds_nothing_but_keys() -> None:
    made = expanded(layer(np.array([[1, 2]])), TARGETS["additive"]())
    dealt = [n for n in made.program.nodes if n.party == 2]
    assert not [n for n in dealt if n.op.listed]  # nothing enters or leaves
    assert not [n for n in dealt if n.op is party_ops.SEND]  # a send stands at its receiver
    assert {n.phase for n in dealt} <= {Phase.SETUP, Phase.OFFLINE}


def test_equal_public_tensors_are_kept_once() -> None:
    made = SecretProgram.create(context(), [argument("x", "input", "alice", (3,))], {})
    (y,) = made.block.arguments
    stated = Stated(ring_bits=RING, frac_bits=4)
    for value in ([1, 2, 3], [1, 2, 3], [3, 2, 1]):
        with made.at("add"):
            public = ops.Constant.build(range=ANY, stated=stated, value=np.array(value))
            y = ops.Add.build(y, public, range=ANY)
    made.finish({"y": y})
    constants = expanded(made, TARGETS["rep3"]()).constants
    assert [value.tolist() for value in constants] == [[1, 2, 3], [3, 2, 1]]
