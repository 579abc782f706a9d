"""States of a model: inputs that a run finds as another left them, in shares that parties keep.

    state={"count": "count_next"}     what a run returns as count_next, the next one takes as count

A state is zero at first. Where it lies is seen on samples, which are taken for runs one after the
other, or said by the user; then samples of the state itself are spread over that range. Nobody
sees a state, so nothing tells while parties run that it left its range: its ring has room for a
margin, as all calibrated values have, and beyond that it wraps around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.party.expand_protocols import is_revealed
from veilgraph.passes.ranges.calibrate import outward
from veilgraph.targets.target import Target

Samples = Mapping[str, NDArray[np.float32]]
Bounds = tuple[float, float]
SPREAD = 8  # samples of a state whose range is given, where a model has no other inputs


@dataclass(frozen=True)
class States:
    """What a user says of a model's states.

    Attributes:
        following: of each state's input, by name, the output that it is in the next run.
        bounds: where states lie, of those of which the user says so.
    """

    following: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def check(self, graphs: Sequence[Graph], target: Target) -> None:
        """Holds what a user says to the models of all entries.

        Raises:
            UsageError: a state that is no input, or whose next value is no output or has another
                shape; a state that somebody owns; a range of no state, or one that makes no
                sense; or a suite without states.
        """
        if self.following and target.suite.states is None:
            raise UsageError(
                f"Suite {target.suite.name} keeps nothing from run to run, so it has no states.",
                "Take another --suite, or leave out --state.",
            )
        for name, (low, high) in self.bounds.items():
            if name not in self.following:
                known = ", ".join(self.following) or "none"
                raise UsageError(f"`{name}` is no state.", f"The states are: {known}.")
            if not (-np.inf < low <= 0 <= high < np.inf and low < high):
                raise UsageError(
                    f"State `{name}` can't lie between {low:g} and {high:g}.",
                    "Give a lower and an upper bound, like -1000:1000; a state begins as zero.",
                )
        for name, following in self.following.items():
            _check_pair(graphs, name, following)
            if name in target.owners:
                raise UsageError(
                    f"State `{name}` has no owner: all parties keep shares of it.",
                    f"Leave out --owner {name}.",
                )

    def read_by(self, graph: Graph) -> list[str]:
        """The states that a model reads."""
        return [name for name in self.following if name in graph.inputs]

    def kept_by(self, graph: Graph) -> dict[str, str]:
        """The states that a model gives another value, and the outputs that these are."""
        return {name: after for name, after in self.following.items() if after in graph.outputs}

    def revealed(self, graph: Graph, target: Target) -> list[str]:
        """The outputs of `graph` that go to somebody, and may take another form."""
        return [name for name in graph.outputs if is_revealed(name, self.following, target)]


def _check_pair(graphs: Sequence[Graph], name: str, following: str) -> None:
    inputs = [graph.inputs[name] for graph in graphs if name in graph.inputs]
    outputs = [graph.outputs[following] for graph in graphs if following in graph.outputs]
    if not inputs:
        known = dict.fromkeys(given for graph in graphs for given in graph.inputs)
        raise UsageError(
            f"The model has no input `{name}` to be a state.", f"Its inputs are {', '.join(known)}."
        )
    if not outputs:
        known = dict.fromkeys(given for graph in graphs for given in graph.outputs)
        raise UsageError(
            f"The model has no output `{following}` for state `{name}` to become.",
            f"Its outputs are {', '.join(known)}.",
        )
    shape = shape_of(inputs[0])
    for value in (*inputs, *outputs):
        if shape_of(value) != shape:
            raise UsageError(
                f"State `{name}` has shape {_shown(shape)}, and {_shown(shape_of(value))} too.",
                "Give it and what it becomes one shape: a run finds what another left.",
            )


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"


def rolled(graph: Graph, states: States, samples: Samples) -> dict[str, NDArray[np.float32]]:
    """Each state before each sample's run, and after the last; samples on a new first axis.

    Raises:
        AccuracyError: a state that leaves the range which was given for it.
    """
    names, kept = states.read_by(graph), states.kept_by(graph)
    shapes = {n: shape_of(graph.inputs[n]) for n in names}
    shapes |= {n: shape_of(graph.outputs[after]) for n, after in kept.items()}
    found = {name: [np.zeros(shape, np.float32)] for name, shape in shapes.items()}
    runs = min((len(array) for array in samples.values()), default=0)
    for number in range(runs if kept else 0):  # what no run changes stays zero
        now = {name: found[name][-1] for name in names}
        given = {n: array[number] for n, array in samples.items()} | now
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            outputs = evaluate(graph, given)
        for name, after in kept.items():
            found[name].append(np.asarray(outputs[after], np.float32))
    for name, reached in found.items():
        _check_reached(name, np.stack(reached), states.bounds.get(name))
    return {name: np.stack(reached) for name, reached in found.items()}


def _check_reached(name: str, reached: NDArray[np.float32], bounds: Bounds | None) -> None:
    if not np.isfinite(reached).all():
        raise AccuracyError(
            f"State `{name}` is not finite after runs on the samples.",
            "It grows without end: look at the model, or give fewer samples.",
        )
    if bounds is not None and reached.size:
        low, high = float(reached.min()), float(reached.max())
        if low < bounds[0] or high > bounds[1]:
            raise AccuracyError(
                f"State `{name}` reaches {low if low < bounds[0] else high:.6g} on the samples, "
                f"outside its range [{bounds[0]:.6g}, {bounds[1]:.6g}].",
                "Give it a wider range, or samples like those of real runs.",
            )


def ranges_of(states: States, reached: Sequence[Samples]) -> dict[str, RealRange]:
    """Where states lie: as the user says, or as the samples of any entry show."""
    found = {}
    for name in states.following:
        seen = [_extremes(each[name]) for each in reached if name in each]
        low, high = states.bounds.get(name) or _hull(seen)
        found[name] = RealRange(*outward(low, high), RangeSource.CALIBRATED)
    return found


def _extremes(array: NDArray[np.float32]) -> Bounds:
    return float(array.min(initial=0)), float(array.max(initial=0))


def _hull(seen: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in seen), max(high for _, high in seen)


def with_states(
    graph: Graph,
    states: States,
    samples: Samples,
    reached: Samples,
    ranges: Mapping[str, RealRange],
) -> Samples:
    """The samples of all inputs: of a state what runs found, or numbers all over its range.

    The latter where the user gave a range, and where no run of this entry changes the state.
    """
    count = min((len(array) for array in samples.values()), default=SPREAD)
    kept, own = states.kept_by(graph), {}
    for name in states.read_by(graph):
        found = reached[name]
        if name in states.bounds or name not in kept:
            found = _spread((ranges[name].low, ranges[name].high), (count, *found.shape[1:]))
        own[name] = found[:count]
    return {**samples, **own}


def _spread(bounds: Bounds, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers all over a range, its ends among them; the same every time, and no secret."""
    numbers = np.random.default_rng(0).uniform(*bounds, shape)
    for row, bound in zip(numbers, bounds, strict=False):
        row[...] = bound
    return numbers.astype(np.float32)
