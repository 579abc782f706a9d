"""Bodies of protocols that are placed make the program that they would have made."""

from __future__ import annotations

from collections import Counter

import pytest

from veilgraph.ir.mlir import context
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.templates import Template, recording
from veilgraph.ir.party.text import print_program
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.ir.types import words
from veilgraph.passes.party.expand_protocols import expand_protocols
from veilgraph.targets.alike_bodies import run
from veilgraph.targets.parties import Form, Parties, Provider, Sharing
from veilgraph.targets.suites import rep3_rotation
from veilgraph.targets.target import target

ANY = RealRange(-8.0, 8.0, RangeSource.PROVEN)
W32 = words(32)


def alike_layers(elements: int, layers: int) -> SecretProgram:
    """Layers of products, truncations and ReLUs, with two equal ReLUs of one value in each."""
    tensor = Tensor((elements,), Encoding(32, 4))
    arguments = [
        Argument(n, "input", who, tensor, ANY) for n, who in (("x", "alice"), ("y", "bob"))
    ]
    made = SecretProgram.create(context(), arguments, {})
    x, y = made.block.arguments
    for number in range(layers):
        with made.at(f"layer{number}"):
            product = ops.Mul.build(x, y, range=ANY)
            x = ops.Truncate.build(product, range=ANY, stated=Stated(ring_bits=32), bits=4)
            first = ops.Relu.build(x, range=ANY, window_bits=12, dropped_bits=0)
            second = ops.Relu.build(x, range=ANY, window_bits=12, dropped_bits=0)
            x = ops.Add.build(first, second, range=ANY)
    made.finish({"z": x})
    return made


@pytest.mark.parametrize("elements", [20, 400])
@pytest.mark.parametrize("fixed_roles", [False, True])
def test_what_is_placed_is_what_would_be_made(
    elements: int, fixed_roles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, chosen, placed = alike_layers(elements, 9), target("rep3"), list[bool]()
    place = Template.placed

    def counted(self: Template, *given: object) -> object:
        found = place(self, *given)  # type: ignore[arg-type]
        placed.append(found is not None)
        return found

    monkeypatch.setattr(Template, "placed", counted)
    ours = print_program(expand_protocols(secret, chosen, fixed_roles).program)
    assert sum(placed) > 5, "nothing was placed"
    monkeypatch.setattr(rep3_rotation, "run", lambda p, body, x: body(p, x))
    assert print_program(expand_protocols(secret, chosen, fixed_roles).program) == ours


def parties_with(program: Program) -> Parties:
    return Parties(program, (0, 1, 2), bodies={})


def test_an_operand_that_was_read_before_is_not_placed() -> None:
    """Of equal nodes a program has one: those of a value that others read are there already."""
    program = Program(("a", "b", "c"))
    first, second = (program.source("input", n, 0, (4,), W32) for n in "xy")
    doubled = second + second
    p = parties_with(program)

    def body(q: Parties, x: Sharing) -> Sharing:
        return x.map(lambda v: (v + v) * 3)

    for value in (first, second):
        made = run(p, body, Sharing((value,), Form.CLEAR))
        assert made.parts[0].shape == (4,)
    rows = [node for node in program.nodes if node.op.name == "add"]
    assert [node.id for node in rows].count(doubled.at[0]) == 1
    assert len(rows) == 2


def test_bodies_that_close_over_unlike_things_are_unlike() -> None:
    program = Program(("a", "b", "c"))
    x, y = (program.source("input", n, 0, (4,), W32) for n in "xy")

    def times(factor: object) -> None:
        def body(q: Parties, part: Sharing) -> Sharing:
            return part.map(lambda v: v * factor if isinstance(factor, int) else v * factor[0])  # type: ignore[index]

        for value in (x, y):
            run(p, body, Sharing((value,), Form.CLEAR))

    p = parties_with(program)
    for factor in (3, 5, [7], [9]):  # nobody says when two lists are the same
        times(factor)
    found = Counter(node.op.name for node in program.nodes)
    assert found["mul"] == 8


def test_who_is_dealt_less_decides_whether_a_body_is_the_same() -> None:
    """The deals of a body that is placed are as they would have been decided."""
    texts = []

    def body(q: Parties, part: Sharing) -> Sharing:
        d = Provider(q, 2, (0, 1))
        return Sharing(d.deal(d.own(part.parts[0])), Form.ADDITIVE)

    for bodies in ({}, None):
        program = Program(("a", "b", "c"))
        p = Parties(program, (0, 1, 2), bodies=bodies)
        for number in range(12):
            value = program.source("input", f"x{number}", 2, (4,), words(8 * (1 + number % 3)))
            run(p, body, Sharing((value,), Form.CLEAR))
        texts.append(print_program(program))
    assert texts[0] == texts[1]


def test_a_recording_of_a_node_of_others_is_no_template() -> None:
    program = Program(("a", "b", "c"))
    x, y = (program.source("input", n, 0, (4,), W32) for n in "xy")
    with recording(program, [x.at[0]]) as record:
        result = x + y
        assert record.template([result.at[0]]) is None
    with recording(program, [x.at[0], y.at[0]]) as record:
        result = x * y
        assert record.template([result.at[0]]) is not None
