"""The party level as text, and back: one node a line.

    parties alice bob carol
    layer 1 conv1
    draw 0 alice carol offline
    %0 = input {name = "x"} : words<32>[3, 4] @alice online 1
    %1 = draw {number = 0} : words<32>[3, 4] @alice offline 1
    %2 = sub %0 %1 : words<32>[3, 4] @alice online 1

Operands before attributes, type and shape, party, phase, number of the layer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from veilgraph.ir.party import Draw, Node, Program
from veilgraph.ir.plan import Phase
from veilgraph.ir.types import Type

_NODE = re.compile(
    r"%(?P<id>\d+) = (?P<op>\w+)(?P<args>(?: %\d+)*)(?: \{(?P<attrs>.*)\})? : "
    r"(?P<type>\w+<\d+>)\[(?P<shape>[\d, ]*)\] @(?P<party>\w+) (?P<phase>\w+) (?P<layer>\d+)"
)


def print_program(program: Program, nodes: Iterable[int] | None = None) -> str:
    """The program's text; `nodes` restricts it to some of them, in order."""
    return "\n".join(_lines(program, nodes)) + "\n"


def _lines(program: Program, nodes: Iterable[int] | None) -> Iterator[str]:
    yield "parties " + " ".join(program.parties)
    for number, name in enumerate(program.layers):
        if name:
            yield f"layer {number} {_word(name)}"
    for draw in program.draws:
        holders = " ".join(program.parties[i] for i in sorted(draw.holders))
        yield f"draw {draw.number} {holders} {draw.phase.name.lower()}"
    for i in range(len(program.nodes)) if nodes is None else nodes:
        yield print_node(program, program.nodes[i])


def _word(name: str) -> str:
    """A model's name for a node as it is, quoted if it is not one plain stretch of a line."""
    plain = name.isprintable() and name == name.strip() and not name.startswith('"')
    return name if plain else json.dumps(name)


def print_node(program: Program, node: Node) -> str:
    args = "".join(f" %{i}" for i in node.args)
    attrs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in node.attrs)
    attrs = f" {{{attrs}}}" if attrs else ""
    shape = ", ".join(map(str, node.shape))
    place = f"@{program.parties[node.party]} {node.phase.name.lower()} {node.layer}"
    return f"%{node.id} = {node.op}{args}{attrs} : {node.type}[{shape}] {place}"


def parse_program(text: str) -> Program:
    """The program that `text` says.

    Raises:
        ValueError: a line that says nothing, or nodes out of order.
    """
    program = Program(())
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "parties":
            program.parties = tuple(rest.split())
        elif word == "layer":
            number, _, name = rest.partition(" ")
            program.layers.extend([""] * (int(number) + 1 - len(program.layers)))
            program.layers[int(number)] = json.loads(name) if name.startswith('"') else name
        elif word == "draw":
            program.draws.append(_draw(program, rest.split()))
        elif word:
            _parse_node(program, line.strip())
    return program


def _draw(program: Program, words: list[str]) -> Draw:
    number, *holders, phase = words
    indices = frozenset(program.parties.index(name) for name in holders)
    return Draw(int(number), indices, Phase[phase.upper()])


def _parse_node(program: Program, line: str) -> None:
    match = _NODE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a node: {line}")
    args = tuple(int(arg[1:]) for arg in match["args"].split())
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    program.layer = int(match["layer"])
    made = program.node(
        match["op"],
        program.parties.index(match["party"]),
        args,
        shape,
        Type.parse(match["type"]),
        Phase[match["phase"].upper()],
        **dict(_attributes(match["attrs"] or "")),
    )
    program.layer = 0
    if made != int(match["id"]):
        raise ValueError(f"node {match['id']} is out of order, or the same as {made}: {line}")


def _attributes(text: str) -> Iterator[tuple[str, Any]]:
    decoder, start = json.JSONDecoder(), 0
    while start < len(text):
        name, _, _ = text[start:].partition(" = ")
        value, start = decoder.raw_decode(text, start + len(name) + len(" = "))
        start += len(", ")
        yield name, tuple(value) if isinstance(value, list) else value
