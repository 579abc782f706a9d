"""Ranges of steps that come again, as one launch each.

A GPU takes some microseconds of its host for every launch, and small steps take less than that.
So the launches of a range of steps are kept as a graph once it comes a second time, and replayed
from then on: what runs once, as setup does, is not worth one. Nothing in a launch differs between
inferences: their number, by which randomness is drawn, is read from the GPU's memory when a kernel
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from veilgraph.runtime.devices.cuda.drivers.interface import Driver, Graph, Launched

LEAST_LAUNCHES = 2  # of a range of steps: a graph of one takes longer than its launch


@dataclass
class Graphs:
    """The graphs of a device, by the steps that they run.

    Args:
        driver: the GPU's.
        launches: of steps [first, last), in order.
    """

    driver: Driver
    launches: Callable[[int, int], Sequence[Launched]]
    _made: dict[tuple[int, int], Graph | None] = field(default_factory=dict)

    def find(self, first: int, last: int) -> Graph | None:
        """The graph of steps [first, last), or None where they have to be launched one by one."""
        steps = first, last
        if steps not in self._made:
            self._made[steps] = None
            return None
        if self._made[steps] is None:
            found = self.launches(first, last)
            if len(found) < LEAST_LAUNCHES:
                return None
            self._made[steps] = self.driver.graph(found)
        return self._made[steps]

    def close(self) -> None:
        for graph in self._made.values():
            if graph is not None:
                graph.close()
        self._made.clear()
