"""The party level as text, and back: one node a line.

    parties alice bob carol
    layer 1 conv1
    draw 0 alice carol offline
    %0 = input {name = "x"} : words<32>[3, 4] @alice online 1
    %1 = draw {number = 0} : words<32>[3, 4] @alice offline 1
    %2 = sub %0 %1 : words<32>[3, 4] @alice online 1
    %3 = input {name = "x"} : words<32>[3, 4] @alice online1 1

Operands before attributes, type and shape, party, phase (with the entry's number, but for entry
0), number of the layer. Layers, draws and
nodes are counted without gaps, so what a text makes takes no more memory than its length allows.
The text of a stranger's plan is read here: what the printer does not write is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.files.beside import Beside
from veilgraph.ir.party import ops
from veilgraph.ir.party._native import count_lines, print_lines, read_lines
from veilgraph.ir.party.columns import Columns, Nodes, Pairs, columns_of
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind, Type

MOST_LINES = 3 << 20  # that a host reads: a program of as many takes 5 s and 1.5 GB to verify
MOST_RANK = 32
MOST_ELEMENTS = 1 << 40
MOST_PARTIES = 16
MOST_ENTRIES = 64
MOST_TYPES = 1 << 10  # that are remembered
_PHASES = {phase.name.lower(): phase for phase in Phase}
_KINDS = "|".join(kind.value for kind in Kind)
_VALUE = r'-?\d{1,20}|\[[-\d, ]{0,999}\]|"(?:[^"\\]|\\.)*"|#'
_ATTRIBUTE = re.compile(rf"(\w{{1,40}}) = ({_VALUE})(?:, |$)", re.ASCII)
_TENSOR = re.compile(rf"((?:{_KINDS})<\d{{1,5}}>)\[([\d, ]{{0,999}})\]", re.ASCII)
_PLACE = re.compile(r"(\w+) (\w+)", re.ASCII)
_HELD = "#"  # in a text of attributes: the value of `number`, which has a column of its own


def print_program(program: Program) -> str:
    """The program's text.

    Raises:
        ResourceLimitError: more lines than a host reads.
    """
    count = 1 + len(program.layers[1:]) + len(program.draws) + len(program.nodes)
    if count > MOST_LINES:
        raise ResourceLimitError(
            f"The program of all parties has {count:,} lines, and hosts read {MOST_LINES:,}.",
            "Compile for fewer rows at once, or with rings that the compiler chooses.",
        )
    return _with_nodes("\n".join([*_head(program), ""]), program)


def _head(program: Program) -> Iterator[str]:
    yield "parties " + " ".join(program.parties)
    for number, name in enumerate(program.layers):
        if number:
            yield f"layer {number} {_word(name)}"
    for draw in program.draws:
        holders = " ".join(program.parties[i] for i in sorted(draw.holders))
        yield f"draw {draw.number} {holders} {draw.phase.name.lower()}"


def _word(name: str) -> str:
    """A model's name for a node as it is, quoted if it is not one plain part of a line."""
    is_plain = name.isprintable() and name == name.strip() and not name.startswith('"')
    return name if name and is_plain else json.dumps(name)


def _with_nodes(head: str, program: Program) -> str:
    """The head, and the lines of all nodes. What repeats is made text once."""
    columns = columns_of(program.nodes)
    return print_lines(
        head,
        *(columns.op, columns.tensor, columns.attributes, columns.number, columns.place),
        *(columns.layer, columns.first, columns.args),
        [op.name for op in ops.ALL],
        [f" : {type}[{', '.join(map(str, shape))}] @" for shape, type in columns.tensors],
        [
            f"{program.parties[party]} {phase.name.lower()}{entry or ''} "
            for party, phase, entry in columns.places
        ],
        [_described(pairs) for pairs in columns.pairs],
    )


def _described(pairs: Pairs) -> tuple[str, str]:
    """Attributes as a line has them: what stands before the number that is counted, and behind."""
    values = ["" if value is None else json.dumps(value) for _, value in pairs]
    told = [f"{name} = {value}" for (name, _), value in zip(pairs, values, strict=True)]
    if not pairs:
        return "", ""
    counted = next((i for i, (_, value) in enumerate(pairs) if value is None), len(pairs) - 1)
    before, behind = ", ".join(told[: counted + 1]), told[counted + 1 :]
    return f" {{{before}", "".join(f", {each}" for each in behind) + "}"


def parse_program(text: str) -> Program:
    """The program that `text` says; its nodes are held to their grammar by `check_party`.

    Raises:
        ValueError: a line that says nothing, numbers out of order, or more than a host reads.
    """
    return _Reading().run(text)


class _Reading:
    """A text under way: its head line by line, then its nodes as columns."""

    def __init__(self) -> None:
        self.program = Program(())
        self._drawn: dict[str, tuple[frozenset[int], Phase]] = {}  # by what a line says of a draw

    def run(self, text: str) -> Program:
        if count_lines(text, MOST_LINES) > MOST_LINES:
            raise ValueError(f"it has more than {MOST_LINES} lines")
        end = text.find("\n%")
        head = text.removesuffix("\n") if end < 0 else text[:end]
        lines = head.split("\n")
        layers = 1 + sum(line.startswith("layer ") for line in lines)
        with Beside(partial(read_lines, text, [op.name for op in ops.ALL], layers)) as read:
            self._head(lines)
            self.program.nodes = Nodes(self._columns(read.result()))
        return self.program

    def _head(self, lines: Sequence[str]) -> None:
        """Parties, layers and draws."""
        word, _, rest = lines[0].partition(" ")
        parties = tuple(rest.split(" "))
        known = len(set(parties)) == len(parties) <= MOST_PARTIES
        if word != "parties" or not (known and all(name.isidentifier() for name in parties)):
            raise ValueError("its first line does not name its parties")
        self.program.parties = parties
        draws = self.program.draws
        for line in lines[1:]:
            if not line.startswith("draw "):
                self._layer(line)
                continue
            number, _, told = line[5:].partition(" ")
            if number != str(len(draws)):
                raise ValueError(f"a draw out of order: {_shown(line)}")
            drawn = self._drawn.get(told) or self._drawing(line, told)
            draws.append(Draw(len(draws), *drawn))

    def _layer(self, line: str) -> None:
        layers = self.program.layers
        start = f"layer {len(layers)} "
        if not line.startswith(start):
            raise ValueError(f"not a node: {_shown(line)}")
        name = line.removeprefix(start)
        quoted = json.loads(name) if name.startswith('"') else name
        if not isinstance(quoted, str) or _word(quoted) != name:
            raise ValueError(f"no name of a layer: {_shown(line)}")
        layers.append(quoted)

    def _drawing(self, line: str, told: str) -> tuple[frozenset[int], Phase]:
        """Who holds a draw, and its phase; many lines say the same."""
        *names, phase = told.split(" ")
        parties = self.program.parties
        holders = frozenset(parties.index(name) for name in names if name in parties)
        if len(holders) != len(names) or not holders:
            raise ValueError(f"a draw of nobody: {_shown(line)}")
        self._drawn[told] = found = holders, _phase(phase)
        return found

    def _columns(self, read: tuple[Any, ...]) -> Columns:
        """Of what `read_lines` gave."""
        if len(read) == 2:
            reason, line = read
            raise ValueError(f"{reason}: {_shown(line)}")
        op, place, tensor, attributes, number, layer, first, args, places, tensors, pairs = read
        return Columns(
            *(op, place, tensor, attributes, number, layer, first, args),
            places=[self._place(each) for each in places],
            tensors=[_tensor(each) for each in tensors],
            pairs=[tuple(sorted(_attributes(each))) for each in pairs],
        )

    def _place(self, text: str) -> tuple[int, Phase, int]:
        match = _PLACE.fullmatch(text)
        if match is None or match[1] not in self.program.parties:
            raise ValueError(f"{_shown(text)} is at no party")
        return self.program.parties.index(match[1]), *_phase_of_entry(match[2])


def _tensor(text: str) -> tuple[Shape, Type]:
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise ValueError(f"there is no type {_shown(text)}")
    shape = tuple(int(size) for size in match[2].split(", ")) if match[2] else ()
    if len(shape) > MOST_RANK:
        raise ValueError(f"there is no type {_shown(text)}")
    if prod(max(size, 1) for size in shape) > MOST_ELEMENTS:
        raise ValueError(f"a tensor has too many elements: {_shown(text)}")
    return shape, _type(match[1])


@lru_cache(MOST_TYPES)
def _type(text: str) -> Type:
    """One object of each type, so that comparing two is quick."""
    return Type.parse(text)


def _phase(word: str) -> Phase:
    if word not in _PHASES:
        raise ValueError(f"there is no phase {_shown(word)}")
    return _PHASES[word]


def _phase_of_entry(word: str) -> tuple[Phase, int]:
    """A node's phase, and the number of its entry: written without zeros in front, or left out."""
    name = word.rstrip("0123456789")
    number = word.removeprefix(name)
    if number and (number.startswith("0") or int(number[:9]) >= MOST_ENTRIES):
        raise ValueError(f"there is no phase {_shown(word)}")
    return _phase(name), int(number or 0)


def _attributes(text: str) -> Iterator[tuple[str, Any]]:
    seen, start = set(), 0
    while start < len(text):
        match = _ATTRIBUTE.match(text, start)
        if match is None or match[1] in seen:
            raise ValueError(f"these are no attributes: {_shown(text)}")
        seen.add(match[1])
        start = match.end()
        value = None if match[2] == _HELD else json.loads(match[2])
        yield match[1], tuple(value) if isinstance(value, list) else value


def _shown(text: str) -> str:
    """The start of a stranger's text, safe to print."""
    return ascii(text[:80])
