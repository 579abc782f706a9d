"""The programs of a plan that trains: a step, an evaluation, the start, an audit, the release.

Before::

    func.func @main(%x: tensor<4x3xf32> {graph.name = "x", graph.role = "input"},
        %w: tensor<3x1xf32> {graph.name = "w", graph.role = "weight"})
        -> (tensor<4x1xf32> {graph.name = "z"}) {
      %0 = "graph.matmul"(%x, %w) : (tensor<4x3xf32>, tensor<3x1xf32>) -> tensor<4x1xf32>
      return %0 : tensor<4x1xf32>
    }

After::

    func.func @main(%x: tensor<4x3xf32> {graph.name = "x", graph.role = "input"},
        %w: tensor<3x1xf32> {graph.name = "w", graph.role = "state"},
        %y: tensor<4x1xf32> {graph.name = "labels", graph.role = "input"},
        %rate: tensor<f32> {graph.name = "step_size", graph.role = "input"})
        -> (tensor<3x1xf32> {graph.name = "w.next"},
            tensor<3x1xf32> {graph.name = "w.update"}) {
      %0 = "graph.matmul"(%x, %w) : (tensor<4x3xf32>, tensor<3x1xf32>) -> tensor<4x1xf32>
      %1 = "graph.sub"(%0, %y) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
      %2 = "graph.constant"() {value = dense<2.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
      %3 = "graph.mul"(%1, %2) : (tensor<4x1xf32>, tensor<1x1xf32>) -> tensor<4x1xf32>
      %4 = "graph.transpose"(%x) {permutation = array<i64: 1, 0>}
          : (tensor<4x3xf32>) -> tensor<3x4xf32>
      %5 = "graph.matmul"(%4, %3) : (tensor<3x4xf32>, tensor<4x1xf32>) -> tensor<3x1xf32>
      %6 = "graph.mul"(%5, %rate) : (tensor<3x1xf32>, tensor<f32>) -> tensor<3x1xf32>
      %7 = "graph.sub"(%w, %6) : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>
      return %7, %6 : tensor<3x1xf32>, tensor<3x1xf32>
    }

That is a step with the loss `mse`. What is subtracted from a parameter is in updates.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from types import MappingProxyType

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.batch_owners import BatchOwners
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.training import (
    BEGUN,
    CORRECT,
    CORRECT_SUM,
    COUNTED,
    HELD,
    LABELS,
    LOSS,
    LOSS_SUM,
    NOISE,
    OVERFLOW,
    SGD,
    STEP_SIZE,
    Labels,
    Masks,
    Optimizer,
)
from veilgraph.passes.graph.derivatives.algebra import filled, reshaped, scaled, total
from veilgraph.passes.graph.differentiate import gradients
from veilgraph.passes.graph.public_factors import constant
from veilgraph.passes.graph.reveal_as import counting_scope
from veilgraph.passes.graph.training.batch_norms import (
    following,
    normalise_by_batch,
    share_of,
    statistics_of,
    unmoved_biases,
)
from veilgraph.passes.graph.training.correct_answers import correct_answers
from veilgraph.passes.graph.training.losses import LOSSES, Loss
from veilgraph.passes.graph.training.updates import Updates, shortening, updates_of

NONE: Mapping[str, Shape] = MappingProxyType({})


@dataclass(frozen=True)
class Training:
    """What is trained, how, and on what.

    Attributes:
        forward: the model, whose weights are the parameters.
        loss: by name, or the output that is one.
        optimizer: how parameters are updated.
        frozen: patterns of the parameters that stay as they are, as `features.*`.
        clip_norm: the mean gradient of all parameters together is shortened to this norm where it
            is longer, as by `torch.nn.utils.clip_grad_norm_`; None leaves it as it is.
        is_noisy: each party adds a part of some noise to what a step takes from a parameter.
        share_once: rows are shared once, and a step finds a batch of these shares as states.
        batch: whose the rows of a batch are.
        weighted: rows of labels of `cross_entropy` may sum to other numbers than 1.
        classes: numbers in a row of labels that the model's own loss takes; 0 if it takes none.
        loss_every: so many steps after which their mean loss is told; 0 where each tells its own.
        counts: evaluations count correct answers.
    """

    forward: Graph
    loss: str
    optimizer: Optimizer = field(default_factory=SGD)
    frozen: tuple[str, ...] = ()
    clip_norm: float | None = None
    share_once: bool = False
    is_noisy: bool = False
    batch: BatchOwners = field(default_factory=BatchOwners)
    weighted: bool = False
    classes: int = 0
    loss_every: int = 0
    counts: bool = False

    def read_by(self, norms: Sequence[ir.OpView]) -> list[str]:
        """The weights by which these batch norms normalise."""
        named = {value: name for name, value in self.forward.parameters.items()}
        read = [named.get(value) for op in norms for value in statistics_of(op)]
        return [name for name in dict.fromkeys(read) if name is not None]

    def _is_frozen(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.frozen)

    @property
    def named(self) -> Loss | None:
        """The loss, where it is no output."""
        return None if self.loss in self.forward.outputs else LOSSES.get(self.loss)

    @property
    def output(self) -> str:
        """The output that a named loss is of.

        Raises:
            UsageError: there are several.
        """
        first, *others = self.forward.outputs
        if others:
            raise UsageError(
                f"The loss {self.loss} is of one output, and the model has "
                f"{len(others) + 1}: {', '.join(self.forward.outputs)}.",
                "Give a model with one output, or let it compute its loss itself.",
            )
        return first

    @property
    def labels(self) -> Labels:
        """What rows of labels may be."""
        if self.named is None:
            return Labels("", self.classes)
        numbers = prod(shape_of(self.forward.outputs[self.output])[1:])
        return Labels(self.loss, numbers, self.weighted)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those that are trained, by name."""
        others = {*self.forward.fixed, *self.statistics, *self.masks}
        return tuple(
            name
            for name in self.forward.weights
            if name not in others and not self._is_frozen(name)
        )

    @property
    def masks(self) -> Masks:
        """By which a step's dropouts multiply: the share that is dropped, and the shape."""
        found = self.forward.masks.items()
        return {name: (dropped, self.forward.weights[name].shape) for name, dropped in found}

    @property
    def announced(self) -> tuple[str, ...]:
        """The public inputs of a step that one party tells the others."""
        return (*self.optimizer.factors, *self.shares)

    @property
    def rates(self) -> tuple[str, ...]:
        """The announced inputs that gradients are multiplied by."""
        return tuple(name for name in self.optimizer.factors if name.startswith(STEP_SIZE))

    @property
    def shares(self) -> dict[str, int]:
        """Of these a step's shares of means over all batches; see `Recipe.shares`."""
        return dict(found for op in self.followed_norms() if (found := share_of(op)) is not None)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Means and variances that follow the batches, by name."""
        return tuple(self.read_by(self.followed_norms()))

    @property
    def norms(self) -> dict[str, int]:
        """By how many batch norms each of these is read."""
        return Counter(name for op in self.followed_norms() for name in self.read_by([op]))

    def followed_norms(self) -> list[ir.OpView]:
        """The batch norms whose statistics follow the batches."""
        norms = following(self.forward)
        return [op for op in norms if not any(map(self._is_frozen, self.read_by([op])))]

    @property
    def begun(self) -> tuple[str, ...]:
        """The states that begin as the model has them, and that are released."""
        return (*self.parameters, *self.statistics)

    @property
    def moved(self) -> tuple[str, ...]:
        """The parameters that have a gradient other than zero."""
        still = set(unmoved_biases(self.forward)) if self.statistics else set[str]()
        return tuple(name for name in self.parameters if name not in still)

    @property
    def rows(self) -> int:
        """B: the first extent of every input."""
        return next(shape_of(value)[0] for value in self.forward.inputs.values())

    @property
    def noises(self) -> dict[str, str]:
        """Of each parameter whose updates have noise, the input that it is."""
        return {name: f"{name}{NOISE}" for name in self.moved} if self.is_noisy else {}

    @property
    def held(self) -> dict[str, str]:
        """Of each input of rows that are shared once, the state that holds a batch of them."""
        return {name: f"{name}{HELD}" for name in self.given_shapes} if self.share_once else {}

    @property
    def row_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a batch of rows, an input each."""
        outputs = self.forward.outputs
        labels = {LABELS: outputs[self.output]} if self.named else {}
        return {name: shape_of(x) for name, x in {**self.forward.inputs, **labels}.items()}

    @property
    def given_shapes(self) -> dict[str, tuple[int, ...]]:
        """The same as owners give it."""
        found = dict[str, tuple[int, ...]]()
        for name, shape in self.row_shapes.items():
            found |= self.batch.shapes(name, shape)
        return found

    @property
    def states(self) -> dict[str, str]:
        """Of each state, the output that it is in the next step."""
        return {name: f"{name}.next" for name in (*self.begun, *self.kept, *self.summed)}

    @property
    def summed(self) -> dict[str, Shape]:
        """The states that sum something over steps, with their shapes."""
        return {LOSS_SUM: (1,)} if self.loss_every else {}

    @property
    def kept(self) -> dict[str, str]:
        """The states that go with parameters, by name: the parameter that each is for."""
        kinds = self.optimizer.kept
        return {f"{name}{kind}": name for kind in kinds for name in self.moved}

    @property
    def from_zero(self) -> dict[str, Shape]:
        """The states that are zero at first, with their shapes."""
        shapes = {name: self.forward.weights[of].shape for name, of in self.kept.items()}
        return shapes | self.summed

    @property
    def updates(self) -> dict[str, str]:
        """Of states, the output by which a step is judged: what it adds to a parameter.

        A velocity is judged by itself, and Adam's means by the updates that they make.
        """
        every = (*self.moved, *self.statistics, *self.summed)
        taken = {name: f"{name}.update" for name in every}
        if not isinstance(self.optimizer, SGD):
            return taken
        if self.kept and not self.optimizer.nesterov:
            taken |= {name: f"{state}.next" for state, name in self.kept.items()}
        return taken | {state: f"{state}.next" for state in self.kept}

    # The programs

    def step(self, reveals_loss: bool = False) -> Graph:
        """A batch in, states updated; the loss is an output where somebody receives it.

        Raises:
            UnsupportedError: operations without derivative between a parameter and the loss, all
                of them.
            UsageError: a parameter that the loss does not depend on.
        """
        graph = self._with_states(self.from_zero, self.masks)
        shares = graph.add_inputs(dict.fromkeys(self.shares, ()))
        statistics = normalise_by_batch(graph, shares)
        labels = self._labels(graph)
        factors = graph.add_inputs(dict.fromkeys(self.optimizer.factors, ()))
        weights = self.forward.weights
        graph.add_inputs({noise: weights[name].shape for name, noise in self.noises.items()})
        found = gradients(graph, self.moved, lambda: self._seeds(graph, labels))
        updates = self._updates(graph, found, factors)
        still = set(self.parameters) - set(self.moved)
        outputs = {f"{name}.next": graph.inputs[name] for name in still}
        for name, taken in statistics.items():
            with graph.ahead_of_return(f"{name}.update/"):
                outputs |= {f"{name}.next": ops.Sub.build(graph.inputs[name], taken)}
                outputs[self.updates[name]] = taken
        for name, gradient in found.items():
            with graph.ahead_of_return(f"{name}.update/"):
                outputs |= self._updated(graph, name, gradient, updates)
        if reveals_loss or self.summed:
            with graph.ahead_of_return("loss/"):
                loss = self._loss(graph, labels)
                outputs |= {LOSS: loss} if reveals_loss else {}
                if self.summed:
                    total = ops.Add.build(graph.inputs[LOSS_SUM], loss)
                    outputs |= {self.states[LOSS_SUM]: total, self.updates[LOSS_SUM]: loss}
        graph.replace_outputs(outputs)
        self._take_apart(graph)
        for name, state in self.held.items():
            graph.hold_input(name, state)
        return graph

    def _take_apart(self, graph: Graph) -> None:
        """Lets a graph read the rows of each owner in place of whole batches."""
        for name, value in graph.inputs.items():
            if not self.batch.rows or name not in self.row_shapes:
                continue
            added = graph.add_inputs(self.batch.shapes(name, shape_of(value)))
            if name in graph.whole:
                graph.whole = {*graph.whole, *added}
            with graph.at_start(name):
                joined = ops.concat([*added.values()], 0)
            graph.inputs[name].replace_all_uses_with(joined)
            graph.drop_input(name)

    def sharing(self) -> Graph:
        """A batch of rows in, which are the states that a step finds."""
        graph = Graph.create(self.forward.module.context, self.given_shapes, {})
        graph.finish({f"{self.held[name]}.next": x for name, x in graph.inputs.items()})
        return graph

    def _with_states(
        self, others: Mapping[str, Shape] = NONE, masks: Collection[str] = ()
    ) -> Graph:
        """The model, whose parameters and statistics are states; and others, of these shapes.
        Dropouts multiply by the masks, which are inputs, and those without do nothing.
        """
        graph = self.forward.copy()
        for op in graph.operations:
            _drop_nothing(graph, op, [n for n in self.masks if n not in masks])
        graph.tidy()
        graph.turn_into_states((*self.begun, *masks))
        graph.declare_states([name for name in graph.states if name not in masks])
        if others:
            graph.add_inputs(others)
            graph.declare_states([*graph.states, *others])
        return graph

    def _labels(self, graph: Graph) -> ir.Value | None:
        if self.named is None:
            return None
        return graph.add_inputs({LABELS: self.row_shapes[LABELS]})[LABELS]

    def _seeds(self, graph: Graph, labels: ir.Value | None) -> Mapping[ir.Value, ir.Value]:
        """B times the mean loss's derivative by the model's output, or by itself."""
        if self.named is None or labels is None:
            value = graph.outputs[self.loss]
            return {value: filled(float(self.rows), shape_of(value))}
        z = graph.outputs[self.output]
        return {z: self.named.derivative(z, labels, self.weighted)}

    def _loss(self, graph: Graph, labels: ir.Value | None) -> ir.Value:
        if self.named is None or labels is None:
            return reshaped(graph.outputs[self.loss], (1,))
        return reshaped(self.named.mean(graph.outputs[self.output], labels), (1,))

    def _updates(
        self, graph: Graph, found: Mapping[str, ir.Value], factors: Mapping[str, ir.Value]
    ) -> Updates:
        """How parameters are updated by their gradients."""
        with graph.ahead_of_return("clip_norm/"):
            if self.clip_norm is None:
                return updates_of(self.optimizer, factors, self.rows)
            shorter = shortening([*found.values()], self.clip_norm * self.rows)
            return updates_of(self.optimizer, factors, self.rows, shorter)

    def _updated(
        self, graph: Graph, name: str, gradient: ir.Value, updates: Updates
    ) -> dict[str, ir.Value]:
        """A parameter and what goes with it after the step, and what was taken from it."""
        inputs = graph.inputs
        states = [state for state, of in self.kept.items() if of == name]
        noise = inputs[self.noises[name]] if self.is_noisy else None
        before = [inputs[state] for state in states]
        update, kept = updates.of(inputs[name], gradient, before, noise)
        after = {f"{name}.next": ops.Sub.build(inputs[name], update)}
        after |= {f"{s}.next": value for s, value in zip(states, kept, strict=True)}
        return after | {self.updates[name]: update}

    @property
    def counting(self) -> dict[str, str]:
        """The state that counts over an evaluation, with the output that it is in the next run."""
        return {CORRECT_SUM: f"{CORRECT_SUM}.next"} if self.counts else {}

    @property
    def counted(self) -> dict[str, str]:
        """Of outputs that count answers, the output of numbers that these are made of."""
        if not self.counts:
            return {}  # a loss of one's own has other outputs beside the numbers
        return dict.fromkeys(self.counting.values(), f"{self.output} that answers")

    def evaluation(self, outputs: Collection[str] | None = None) -> Graph:
        """The model on the parameters as they are, with these of its outputs, or all.

        Correct answers are added to their sum.
        """
        graph = self._with_states()
        found = {n: x for n, x in graph.outputs.items() if outputs is None or n in outputs}
        graph.replace_outputs(found | self._counts(graph))
        self._take_apart(graph)
        return graph

    def _counts(self, graph: Graph) -> dict[str, ir.Value]:
        """Outputs that count correct answers of a batch."""
        labels = self._labels(graph) if self.counts else None
        if self.named is None or labels is None:
            return {}
        added = graph.add_inputs({COUNTED: (self.rows,), CORRECT_SUM: (1,)})
        graph.declare_states([*graph.states, CORRECT_SUM])
        graph.whole = {*graph.whole, LABELS, *added}
        z, found = graph.outputs[self.output], dict[str, ir.Value]()
        for after, measured in self.counted.items():
            with graph.ahead_of_return(counting_scope(after)):
                correct = correct_answers(z, labels, added[COUNTED], by_class=self.named.by_row)
                found[after] = ops.Add.build(added[CORRECT_SUM], correct)
            found[measured] = z
        return found

    def answering(self) -> Graph:
        """The number of correct answers since it was told, which begins anew."""
        graph = Graph.create(self.forward.module.context, {CORRECT_SUM: (1,)}, {})
        graph.declare_states([CORRECT_SUM])
        graph.whole = {CORRECT_SUM}
        with graph.end(f"{CORRECT}/"):
            nothing = ops.Constant.build(value=np.zeros((1,), np.float32))
        graph.finish({CORRECT: graph.inputs[CORRECT_SUM], self.counting[CORRECT_SUM]: nothing})
        return graph

    def judgement(self) -> Graph:
        """The same, and the mean loss of the batch as an output."""
        graph = self._with_states()
        labels = self._labels(graph)
        with graph.ahead_of_return("loss/"):
            loss = self._loss(graph, labels)
        graph.replace_outputs({**graph.outputs, LOSS: loss})
        return graph

    def start(self) -> Graph:
        """Parameters and statistics become what the model has; what goes with them, zero."""
        weights = {f"{name}{BEGUN}": self.forward.weights[name] for name in self.begun}
        graph = Graph.create(self.forward.module.context, {}, weights)
        values = zip(self.begun, graph.parameters.values(), strict=True)
        outputs = {f"{name}.next": value for name, value in values}
        with graph.end("start/"):
            for state, shape in self.from_zero.items():
                zeros = np.zeros(shape, np.float32)
                outputs[self.states[state]] = ops.Constant.build(value=zeros)
        graph.finish(outputs)
        return graph

    def telling(self) -> Graph:
        """The mean loss of the steps since it was told, which begins anew."""
        graph = Graph.create(self.forward.module.context, self.summed, {})
        graph.declare_states([*self.summed])
        with graph.end("loss/"):
            mean = scaled(graph.inputs[LOSS_SUM], 1 / self.loss_every)
            nothing = ops.Constant.build(value=np.zeros(self.summed[LOSS_SUM], np.float32))
        graph.finish({LOSS: mean, self.states[LOSS_SUM]: nothing})
        return graph

    def release(self) -> Graph:
        """The parameters and statistics as they are, as outputs of their names."""
        shapes = {name: self.forward.weights[name].shape for name in self.begun}
        graph = Graph.create(self.forward.module.context, shapes, {})
        graph.finish(dict(graph.inputs))
        graph.declare_states(self.begun)
        return graph

    def audit(self, bounds: Mapping[str, float]) -> Graph:
        """1 if an element of a state is further from zero than its bound, by name; else 0."""
        every = {name: self.forward.weights[name].shape for name in self.begun} | self.from_zero
        shapes = {name: every[name] for name in bounds}
        graph = Graph.create(self.forward.module.context, shapes, {})
        graph.declare_states([*bounds])
        with graph.end("audit/"):
            bits = [bit for n, x in graph.inputs.items() for bit in _within(x, bounds[n])]
            inside = [_summed(bit) for bit in bits]
            every = filled(2.0 * sum(map(prod, shapes.values())), (1,))
            less = ops.Sub.build(total(inside), every)
            outside = ops.Sub.build(filled(1.0, (1,)), ops.Step.build(less))
        graph.finish({OVERFLOW: outside})
        return graph


def _drop_nothing(graph: Graph, op: ir.OpView, names: Sequence[str]) -> None:
    """Without a product with one of these masks."""
    masks = [graph.parameters[name] for name in names if name in graph.parameters]
    operands = list(op.operation.operands)
    kept = [value for value in operands if value not in masks]
    if masks and len(kept) == 1 < len(operands):
        assert isinstance(op, ops.Mul), "a mask is multiplied by"
        graph.replace(op, kept[0])


def _within(x: ir.Value, bound: float) -> tuple[ir.Value, ir.Value]:
    """1 where x >= -bound, and 1 where x <= bound."""
    limit = constant(bound, x)
    above, below = ops.Add.build(x, limit), ops.Sub.build(limit, x)
    return ops.Step.build(above), ops.Step.build(below)


def _summed(x: ir.Value) -> ir.Value:
    """The sum of all elements, in shape (1,)."""
    axes = tuple(range(len(shape_of(x))))
    return reshaped(ops.ReduceSum.build(x, axes=axes, keepdims=False) if axes else x, (1,))
