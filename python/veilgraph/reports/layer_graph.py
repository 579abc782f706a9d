"""The layers of a plan as a graph, read off its program's text, and drawn beside a table.

A party's host has no MLIR, so the text is read as lines. It is untrusted: what does not look like
an operation is passed over, and a plan without text has rows without edges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veilgraph.ir.plan.tables import AS_KEPT, AS_REVEALED
from veilgraph.reports.markup import Element, tag

PLACE = re.compile(r"^(#loc\d*) = loc\(\"((?:[^\"\\]|\\.)*)\"\)$")
ARGUMENT = re.compile(r"(%arg\d+): [^%]*? loc\((?:\"((?:[^\"\\]|\\.)*)\"|(#loc\d*))\)")
OPERATION = re.compile(r"^\s*(%\d+) = \"?[\w.]+\"?\(?([^({]*).* loc\((#loc\d*)\)$")
RETURN = re.compile(r"^\s*return (%[^:]*):")
WINDOW = re.compile(r"window_bits = (\d{1,3}) : i64")
VALUE = re.compile(r"%\w+")
MOST_LINES = 200_000
ROW = 34  # pixels, of a row of the table
LANE = 12  # pixels between edges that pass rows by
MOST_LANES = 12


@dataclass
class LayerGraph:
    """Which layers read which, by name.

    Attributes:
        sources: the layers that each layer reads.
        returned: the layers that are outputs, in order.
        windows: bits, without the sign, of the narrowest comparison or function in another layer
            that reads a layer's last result.
    """

    sources: dict[str, list[str]] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    windows: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> LayerGraph:
        """The graph that a program's text shows: operations of one name are one layer."""
        lines = text.splitlines()[:MOST_LINES]
        places = {found[1]: found[2] for line in lines if (found := PLACE.match(line))}
        graph, makers = LayerGraph(), dict[str, str]()
        windows, last = dict[str, int](), dict[str, str]()
        for line in lines:
            if "func.func" in line:
                for value, name, place in ARGUMENT.findall(line):
                    makers[value] = name or places.get(place, "")
                    last[makers[value]] = value
            elif found := OPERATION.match(line):
                name = places.get(found[3], "")
                values = VALUE.findall(found[2])
                if name.endswith((AS_REVEALED, AS_KEPT)):  # no layer of the model: an end, rounded
                    makers[found[1]] = makers.get(values[0], "")
                    continue
                makers[found[1]], last[name] = name, found[1]
                read = [makers.get(value, "") for value in values]
                known = graph.sources.setdefault(name, [])
                if window := WINDOW.search(line):
                    for value in values:
                        if makers.get(value) != name:
                            windows[value] = min(windows.get(value, 64), int(window[1]) - 1)
                known += [each for each in read if each not in (name, "", *known)]
            elif found := RETURN.match(line):
                graph.returned = [makers.get(value, "") for value in VALUE.findall(found[1])]
        graph.windows = {name: windows[made] for name, made in last.items() if made in windows}
        return graph

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
