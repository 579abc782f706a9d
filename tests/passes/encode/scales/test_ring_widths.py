"""Which ring each value is in: its accumulator's, or the widest of the accumulators that read
it.
"""

from __future__ import annotations

import numpy as np
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.mlir import context
from veilgraph.passes.encode.scales.accumulators import Structure, analyse
from veilgraph.passes.encode.scales.ring_widths import Readers, Rings, find_readers
from veilgraph.passes.graph.public_factors import constant

WEIGHTS = {name: np.eye(4, dtype=np.float32) for name in "wvu"} | {"b": np.ones(4, np.float32)}


class Built:
    """A graph of matmuls on x [1, 4], and what reads what in it."""

    def __init__(self) -> None:
        self.graph = Graph.create(context(), {"x": (1, 4), "z": (1, 4)}, WEIGHTS)
        self.values = dict(self.graph.inputs | self.graph.parameters)

    def make(self, name: str, kind: type[ops.GraphOp], *operands: str, **named: object) -> None:
        with self.graph.end(name):
            self.values[name] = kind.build(*(self.values[o] for o in operands), **named)

    def number(self, name: str, number: float) -> None:
        with self.graph.end(name):
            self.values[name] = constant(number, self.values["x"])

    def done(self, output: str) -> tuple[Structure, Readers]:
        self.graph.finish({"y": self.values[output]})
        structure = analyse(self.graph)
        return structure, find_readers(self.graph, structure)

    def rings(self, output: str, **accumulators: int) -> dict[str, tuple[int, int]]:
        """(computed in, kept in) of every value, the accumulators of these values as given, others
        24.
        """
        structure, readers = self.done(output)
        values = self.named()
        given = {structure.rings.root(values[name]): k for name, k in accumulators.items()}
        every = {accumulator: given.get(accumulator, 24) for accumulator in readers.accumulators}
        rings = Rings.of_accumulators(structure, readers, every)
        return {name: (rings.of(value), rings.stored(value)) for name, value in values.items()}

    def named(self) -> dict[str, ir.Value]:
        """The values of the finished program."""
        made = {name_of(op): op.operation.results[0] for op in self.graph.operations}
        return self.graph.inputs | self.graph.parameters | made


def chain() -> Built:
    """Two layers, and two readers of the first."""
    made = Built()
    made.make("a", ops.Matmul, "x", "w")
    made.make("h", ops.Relu, "a")
    made.make("c", ops.Matmul, "h", "v")
    made.make("d", ops.Matmul, "h", "u")
    made.make("y", ops.Add, "c", "d")
    return made


def test_a_stored_value_is_in_its_reader_s_ring() -> None:
    rings = chain().rings("y", a=32, c=48)
    assert rings["x"] == rings["w"] == (32, 32)
    assert rings["a"] == (32, 48), "computed in its accumulator's, truncated into its reader's"
    assert rings["h"] == rings["v"] == rings["u"] == (48, 48)
    assert rings["c"] == rings["d"] == (48, 48), "what meets in a sum is one accumulator"


def test_of_several_readers_the_widest_counts() -> None:
    made = chain()
    made.make("r", ops.Relu, "y")
    made.make("e", ops.Matmul, "r", "w")
    made.make("s", ops.Matmul, "x", "u")
    made.make("q", ops.Add, "e", "s")
    rings = made.rings("q", a=24, c=32, q=56)
    assert rings["x"] == rings["w"] == rings["u"] == (56, 56)
    assert rings["h"] == (32, 32)
    assert rings["r"] == (56, 56)


def test_residuals_and_biases_are_read_in_the_accumulator_s_ring() -> None:
    made = Built()
    made.make("a", ops.Matmul, "x", "w")
    made.make("sum", ops.Add, "a", "z")
    made.make("y", ops.Add, "sum", "b")
    rings = made.rings("y", a=40)
    assert rings["z"] == rings["b"] == (40, 40)


def test_a_factor_stays_in_the_ring_of_what_it_scales() -> None:
    made = Built()
    made.number("third", 0.375)
    made.make("a", ops.Matmul, "x", "w")
    made.make("scaled", ops.Mul, "a", "third")
    made.make("h", ops.Relu, "scaled")
    made.make("y", ops.Matmul, "h", "v")
    rings = made.rings("y", a=48, y=32)
    assert rings["scaled"] == (48, 32)


def test_a_weight_added_to_stored_values_is_in_their_ring() -> None:
    made = Built()
    made.make("sum", ops.Add, "x", "b")
    made.make("h", ops.Relu, "sum")
    made.make("y", ops.Matmul, "h", "w")
    rings = made.rings("y", y=40)
    assert rings["x"] == rings["b"] == rings["sum"] == rings["h"] == (40, 40)


def test_what_nothing_multiplies_is_an_accumulator_of_its_own() -> None:
    made = Built()
    made.make("larger", ops.Maximum, "x", "z")
    structure, readers = made.done("larger")
    root = structure.stored.root(made.named()["x"])
    assert readers.accumulators == (root,)
    assert readers.neighbours() == {root: (root,)}


def test_an_output_is_kept_where_it_is_made() -> None:
    made = Built()
    made.make("a", ops.Matmul, "x", "w")
    made.make("y", ops.Relu, "a")
    assert made.rings("y", a=40)["y"] == (40, 40)


def test_accumulators_that_meet_are_neighbours() -> None:
    made = chain()
    made.make("r", ops.Relu, "y")
    made.make("e", ops.Matmul, "r", "w")
    structure, readers = made.done("e")
    values = made.named()
    first, second, third = (structure.rings.root(values[name]) for name in "ace")
    neighbours = readers.neighbours()
    assert set(neighbours[first]) == {first, second, third}, "third reads the same weights"
    assert set(neighbours[second]) == {first, second, third}


def test_where_a_program_trains_a_sum_over_rows_is_lifted_for_its_reader() -> None:
    graph = Graph.create(context(), {"x": (128, 4), "f": (1, 4)}, {"w": WEIGHTS["w"]})
    with graph.end("c"):
        c = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
    with graph.end("total"):
        total = ops.ReduceSum.build(graph.inputs["x"], axes=(0,), keepdims=True)
    with graph.end("y"):
        y = ops.Mul.build(total, graph.inputs["f"])
    graph.finish({"c": c, "y": y})
    structure = analyse(graph)
    root = structure.stored.root(graph.inputs["x"])
    wide, narrow = structure.rings.root(c), structure.rings.root(y)
    assert set(find_readers(graph, structure).of[root]) == {wide, narrow}
    assert find_readers(graph, structure, trains=True).of[root] == (wide,)


def test_where_a_program_trains_rings_around_functions_are_free() -> None:
    made = Built()
    made.make("a", ops.Matmul, "x", "w")
    made.make("s", ops.Sigmoid, "a")
    made.make("y", ops.Matmul, "s", "v")
    structure, readers = made.done("y")
    values = made.named()
    a, s, y = (values[name] for name in "asy")
    root = structure.stored.root(s)
    assert readers.around_function(root) == (structure.rings.root(y),)
    trained = find_readers(made.graph, structure, trains=True)
    for value in (a, s):
        assert trained.around_function(structure.stored.root(value)) == (s,)
    assert trained.width(root, {s: 64, structure.rings.root(y): 32}) == 64


def test_what_a_state_becomes_is_computed_in_its_ring() -> None:
    """It would be lifted into that ring, else; what is added to it is in that ring too."""
    made = Built()
    made.make("forward", ops.Matmul, "x", "w")
    made.make("step", ops.Mul, "u", "v")
    made.make("after", ops.Sub, "w", "step")
    made.graph.turn_into_states(["w"])
    made.graph.finish({"y": made.values["forward"], "w.next": made.values["after"]})
    structure, values = analyse(made.graph), made.named()
    forward, step = (structure.rings.root(values[name]) for name in ("forward", "step"))
    for trains, wanted in ((False, 24), (True, 40)):
        readers = find_readers(made.graph, structure, trains=trains)
        every = dict.fromkeys(readers.accumulators, 24) | {forward: 40, step: 24}
        rings = Rings.of_accumulators(structure, readers, every)
        assert rings.of(values["after"]) == rings.of(values["step"]) == wanted
        assert rings.stored(values["w"]) == 40


def test_a_bias_that_is_a_state_widens_no_layer() -> None:
    """Few elements are added to many; they are reduced for that."""
    made = Built()
    made.make("product", ops.Matmul, "x", "w")
    made.make("layer", ops.Add, "product", "b")
    made.make("y", ops.Relu, "layer")
    made.make("step", ops.Mul, "b", "x")
    made.make("after", ops.Sub, "b", "step")
    made.graph.turn_into_states(["b"])
    made.graph.finish({"y": made.values["y"], "b.next": made.values["after"]})
    structure, values = analyse(made.graph), made.named()
    readers = find_readers(made.graph, structure, trains=True)
    step = structure.rings.root(values["step"])
    every = dict.fromkeys(readers.accumulators, 24) | {step: 40}
    rings = Rings.of_accumulators(structure, readers, every)
    assert rings.stored(values["b"]) == 40
    assert rings.of(values["layer"]) == 24


def test_what_is_padded_is_stored_unless_it_is_part_of_a_sum() -> None:
    """It is truncated before, and kept in the ring of what reads it."""
    made = Built()
    made.make("product", ops.Matmul, "x", "w")
    made.make("padded", ops.Pad, "product", low=(0, 4), high=(0, 4), value=0.0)
    structure, _ = made.done("padded")
    assert made.named()["padded"] not in structure.deferred
