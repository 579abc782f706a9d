"""Which of a party's steps pay on a GPU, and which on its host.

A step costs what was measured on each side; a value that is made on one side and read on the other
costs one copy, however many read it there. What comes from peers and what goes to them is the
host's. The partition of least cost is a minimum cut (H. Stone, "Multiprocessor scheduling with the
aid of network flow algorithms", IEEE Transactions on Software Engineering, 1977): a node a step,
host's side and GPU's side; edges to the two ends cost what the step costs on the other side, edges
between steps what their copies cost. All on the host, and all on the GPU, are two of the cuts that
it is the least of, so it is never worse than either, by these costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

HOST, GPU = 0, 1


@dataclass(frozen=True)
class Work:
    """A step: seconds on each side; a round has `fixed`, and costs nothing here."""

    host_seconds: float
    gpu_seconds: float
    fixed: bool = False


@dataclass(frozen=True)
class Value:
    """Something that one step makes and others read; `maker` None: an input, the host's.

    `copy_seconds` are those of one copy, either way.
    """

    maker: int | None
    readers: tuple[int, ...]
    copy_seconds: float


def cost(work: Sequence[Work], values: Sequence[Value], sides: Sequence[int]) -> float:
    """Seconds of a partition, one step and one copy after another."""
    total = 0.0
    for each, side in zip(work, sides, strict=True):
        if not each.fixed:
            total += each.gpu_seconds if side == GPU else each.host_seconds
    for value in values:
        made = HOST if value.maker is None else sides[value.maker]
        if any(sides[reader] != made for reader in value.readers):
            total += value.copy_seconds
    return total


def partition_of(work: Sequence[Work], values: Sequence[Value]) -> list[int]:
    """HOST or GPU for each step, of least `cost`; a fixed one is the host's."""
    host, gpu = len(work), len(work) + 1
    graph = _Flow(len(work) + 2)
    for step, each in enumerate(work):
        if each.fixed:
            graph.add(host, step, float("inf"))
        else:
            graph.add(host, step, each.gpu_seconds)  # cut if the step is on the GPU
            graph.add(step, gpu, each.host_seconds)
    for value in values:
        made = host if value.maker is None else value.maker
        readers = [reader for reader in value.readers if reader != made]
        if len(readers) == 1:
            graph.add(made, readers[0], value.copy_seconds)
            graph.add(readers[0], made, value.copy_seconds)
        elif readers:
            # Cut once if any reader is on the other side, whichever that is.
            to_gpu, to_host = graph.node(), graph.node()
            graph.add(made, to_gpu, value.copy_seconds)
            graph.add(to_host, made, value.copy_seconds)
            for reader in readers:
                graph.add(to_gpu, reader, float("inf"))
                graph.add(reader, to_host, float("inf"))
    hosts = graph.cut(host, gpu)
    return [HOST if step in hosts else GPU for step in range(len(work))]


class _Flow:
    """A network whose least cut is found by flows along shortest paths (E. Dinitz, 1970)."""

    def __init__(self, nodes: int) -> None:
        self._edges: list[dict[int, float]] = [{} for _ in range(nodes)]

    def node(self) -> int:
        self._edges.append({})
        return len(self._edges) - 1

    def add(self, start: int, end: int, capacity: float) -> None:
        self._edges[start][end] = self._edges[start].get(end, 0.0) + capacity
        self._edges[end].setdefault(start, 0.0)

    def cut(self, source: int, sink: int) -> set[int]:
        """The nodes on the source's side of a least cut."""
        least = 1e-12 * max(
            (c for edges in self._edges for c in edges.values() if c < float("inf")), default=0.0
        )
        while True:
            levels = self._levels(source, least)
            if sink not in levels:
                return set(levels)
            self._fill(source, sink, levels, least)

    def _levels(self, source: int, least: float) -> dict[int, int]:
        """How far from the source what can still be reached is."""
        levels, waiting = {source: 0}, deque([source])
        while waiting:
            node = waiting.popleft()
            for end, left in self._edges[node].items():
                if left > least and end not in levels:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _fill(self, source: int, sink: int, levels: Mapping[int, int], least: float) -> None:
        """Flows along paths that go up a level at a time, until none is left."""
        untried = {node: iter(list(self._edges[node])) for node in levels}
        path = [source]
        while path:
            node = path[-1]
            if node == sink:
                path = self._push(path, least)
                continue
            onward = next(
                (
                    end
                    for end in untried[node]
                    if levels.get(end) == levels[node] + 1 and self._edges[node][end] > least
                ),
                None,
            )
            if onward is not None:
                path.append(onward)
                continue
            path.pop()  # a dead end: its edge has been taken from those to be tried

    def _push(self, path: Sequence[int], least: float) -> list[int]:
        """As much as a path takes; what is left of it before its first full edge."""
        steps = list(pairwise(path))
        amount = min(self._edges[a][b] for a, b in steps)
        for a, b in steps:
            self._edges[a][b] -= amount
            self._edges[b][a] += amount
        full = next(i for i, (a, b) in enumerate(steps) if self._edges[a][b] <= least)
        return list(path[: full + 1])
