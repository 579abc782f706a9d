"""The layers of a plan as a graph, read off its program's text, and drawn beside a table.

A party's host has no MLIR, so the text is read as lines. It is untrusted: what does not look like
an operation is passed over, and a plan without text has rows without edges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veilgraph.ir.plan.tables import AS_KEPT, AS_REVEALED
from veilgraph.plans import Plan
from veilgraph.reports.markup import Element, tag
from veilgraph.targets.functions.ends import Sides, limited_sides

PLACE = re.compile(r"^(#loc\d*) = loc\(\"((?:[^\"\\]|\\.)*)\"\)$")
ARGUMENT = re.compile(r"(%arg\d+): ([^%]*?) loc\((?:\"((?:[^\"\\]|\\.)*)\"|(#loc\d*))\)")
NAME = re.compile(r"secret\.name = \"((?:[^\"\\]|\\.)*)\"")
WEIGHT = 'secret.role = "weight"'
OPERATION = re.compile(r"^\s*(%\d+) = \"?([\w.]+)\"?\(?([^({]*).* loc\((#loc\d*)\)$")
RETURN = re.compile(r"^\s*return (%[^:]*):")
WINDOW = re.compile(r"window_bits = (\d{1,3}) : i64")
FUNCTION = re.compile(r"secret\.function.* function = \"(\w+)\"")
COMPARISON, NEGATION = "secret.step", "secret.neg"
SHIFTS = ("secret.add", NEGATION)  # a comparison with an end of a function's: x - low, high - x
VALUE = re.compile(r"%\w+")
MOST_LINES = 200_000
ROW = 34  # pixels, of a row of the table
LANE = 12  # pixels between edges that pass rows by
MOST_LANES = 12


@dataclass
class LayerGraph:
    """Which layers read which, by name; what weights and constants alone make is no layer's.

    Attributes:
        sources: the layers that each layer reads.
        returned: the layers that are outputs or next values of states, in order.
        outputs: the names of these, in the same order.
        windows: bits, without the sign, of the narrowest comparison or function in another layer
            that reads a layer's last result.
        upper_windows: the same of what bounds positive results alone.
        functions: the real functions of each layer, each once, in order.
    """

    sources: dict[str, list[str]] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    windows: dict[str, int] = field(default_factory=dict)
    upper_windows: dict[str, int] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    @staticmethod
    def of(plan: Plan, entry: int = 0) -> LayerGraph:
        """The graph of an entry, by its number."""
        names = plan.manifest.entries
        level = "secret" if len(names) == 1 else f"secret.{names[entry]}"
        return LayerGraph.parse(plan.ir.get(level, ""))

    @staticmethod
    def parse(text: str) -> LayerGraph:
        """The graph that a program's text shows: operations of one name are one layer."""
        lines = text.splitlines()[:MOST_LINES]
        places = {found[1]: found[2] for line in lines if (found := PLACE.match(line))}
        reader = _Reader(places)
        for line in lines:
            reader.read(line)
        return reader.graph()

    def edges(self, rows: Sequence[str]) -> list[tuple[int, int]]:
        """(from, to) between rows, by their places; each from an earlier to a later row."""
        places: Mapping[str, int] = {name: i for i, name in reversed(list(enumerate(rows)))}
        return sorted(
            {
                (places[source], row)
                for row, name in enumerate(rows)
                for source in self.sources.get(name, ())
                if source in places and places[source] < row
            }
        )


@dataclass
class _Reader:
    """What the lines of a program have said so far.

    Attributes:
        places: the names that the text's places stand for.
        makers: the layer of each value; "" of what follows from constants and weights alone, whose
            place is that of whichever layer came first.
        last: each layer's last value.
        compared: what an operand was in a layer before constants were added and its sign changed.
        lower, upper: operands that a layer compares with a least, or with a largest number.
    """

    places: Mapping[str, str]
    makers: dict[str, str] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    windows: dict[str, int] = field(default_factory=dict)
    function_windows: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    compared: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    lower: set[tuple[str, str]] = field(default_factory=set)
    upper: set[tuple[str, str]] = field(default_factory=set)
    functions: dict[str, list[str]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def graph(self) -> LayerGraph:
        both, above = dict(self.windows), dict[str, int]()
        for key, (function, bits) in self.function_windows.items():
            sides = limited_sides(function, key in self.lower, key in self.upper)
            for limits in {Sides.BOTH: [both], Sides.ABOVE: [above]}.get(sides, []):
                limits[key[1]] = min(limits.get(key[1], 64), bits)
        last = self.last.items()
        return LayerGraph(
            self.sources,
            self.returned,
            {name: both[made] for name, made in last if made in both},
            {name: above[made] for name, made in last if made in above},
            self.functions,
            self.outputs,
        )

    def read(self, line: str) -> None:
        """Takes one line into account."""
        if "func.func" in line:
            for value, attributes, name, place in ARGUMENT.findall(line):
                made = name or self.places.get(place, "")
                self.makers[value] = "" if WEIGHT in attributes else made
                self.last[made] = value
            self.outputs = NAME.findall(line.rpartition(") -> (")[2])
        elif found := OPERATION.match(line):
            name = self.places.get(found[4], "")
            self._operation(line, found[1], found[2], name, VALUE.findall(found[3]))
        elif found := RETURN.match(line):
            self.returned = [self.makers.get(value, "") for value in VALUE.findall(found[1])]

    def _operation(self, line: str, made: str, kind: str, name: str, operands: list[str]) -> None:
        read = [self.makers.get(value, "") for value in operands]
        if name.endswith((AS_REVEALED, AS_KEPT)):  # no layer of the model: an end, rounded
            self.makers[made] = read[0] if read else ""
            return
        self.makers[made] = name if any(read) else ""
        self.last[name] = made
        known = self.sources.setdefault(name, [])
        known += [each for each in read if each not in (name, "", *known)]
        if function := FUNCTION.search(line):
            names = self.functions.setdefault(name, [])
            names += [each for each in function.groups() if each not in names]
        for value in operands:
            base, is_negated = self.compared.get((name, value), (value, False))
            if kind == COMPARISON:
                (self.upper if is_negated else self.lower).add((name, base))
            elif kind in SHIFTS and not any(self.makers.get(v) for v in operands if v != value):
                self.compared[name, made] = base, is_negated or kind == NEGATION
            if self.makers.get(value) != name and (window := WINDOW.search(line)):
                self._window(line, (name, value), int(window[1]) - 1)

    def _window(self, line: str, key: tuple[str, str], bits: int) -> None:
        """Bits in which a layer, the first of `key`, looks at another's value, the second."""
        if function := FUNCTION.search(line):
            self.function_windows[key] = function[1], bits
        else:
            self.windows[key[1]] = min(self.windows.get(key[1], 64), bits)


def drawing(edges: Sequence[tuple[int, int]], rows: int) -> Element:
    """Nodes one under the other, an edge to the next row straight, others around at the left."""
    lanes = _lanes([edge for edge in edges if edge[1] - edge[0] > 1])
    width = LANE * (max(lanes.values(), default=0) + 2)
    x = width - LANE
    lines = [tag("path", d=_path(edge, x, lanes.get(edge, 0)), class_="edge") for edge in edges]
    nodes = [tag("circle", cx=x, cy=row * ROW + ROW / 2, r=4, class_="node") for row in range(rows)]
    return tag(
        "svg",
        *lines,
        *nodes,
        width=width,
        height=rows * ROW,
        viewBox=f"0 0 {width} {rows * ROW}",
        role="img",
        aria_label="Which layer reads which",
    )


def _lanes(edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """A lane for each edge, short ones inside, where it meets no other; the last is shared."""
    lanes: dict[tuple[int, int], int] = {}
    taken: list[list[tuple[int, int]]] = []
    for edge in sorted(edges, key=lambda e: (e[1] - e[0], e)):
        for number, others in enumerate(taken):
            if all(edge[1] <= a or b <= edge[0] for a, b in others):
                others.append(edge)
                lanes[edge] = number + 1
                break
        else:
            if len(taken) < MOST_LANES:
                taken.append([])
            taken[-1].append(edge)
            lanes[edge] = len(taken)
    return lanes


def _path(edge: tuple[int, int], x: float, lane: int) -> str:
    top, bottom = (row * ROW + ROW / 2 for row in edge)
    if not lane:
        return f"M{x} {top}V{bottom}"
    left = x - lane * LANE
    return (
        f"M{x} {top}C{left} {top} {left} {top} {left} {top + ROW / 2}"
        f"V{bottom - ROW / 2}C{left} {bottom} {left} {bottom} {x} {bottom}"
    )
