"""A plan's exact integers beside ONNX Runtime's real numbers, or torch's, layer by layer.

The plan's secret level is run in integers modulo 2^K, its truncations rounding at random as the
protocols' do. Each layer that a node of the model has is compared with that node's tensor. Passes
move public factors between layers (a mean is kept as a sum), so a layer may hold its node's values
over a constant: that constant is found on the plan's graph level, where numbers are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.checks.accuracy import Accuracy, Decisions, decisions
from veilgraph.checks.kept_states import KeptStates
from veilgraph.checks.layer_errors import (
    Check,
    DecisionError,
    Floats,
    LayerError,
    OutputError,
    headroom_bits,
    proportion,
)
from veilgraph.checks.onnx_references import reference_of
from veilgraph.checks.plan_programs import PlanPrograms
from veilgraph.checks.reference_runs import Array, Feeds, Reference
from veilgraph.compilation.models import Model
from veilgraph.compilation.native_products import NativeProducts
from veilgraph.compilation.parts import Parts
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.graph.program import name_of
from veilgraph.ir.graph.table_options import Categories, TableOptions, Trees
from veilgraph.ir.meaning import graph as real_numbers
from veilgraph.ir.meaning.secret import Evaluation, Excursion, evaluate
from veilgraph.ir.plan.given import PLAIN
from veilgraph.ir.plan.tables import CATEGORIES, LACKS, STATE, TREES, Tensor, divided
from veilgraph.ir.secret.ops import SecretOp
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.ir.secret.types import Tensor as SecretTensor
from veilgraph.passes.graph.reveal_as import Form
from veilgraph.passes.ranges.samples import NONE, Shape
from veilgraph.passes.secret.round_outputs import as_revealed
from veilgraph.plans import Plan
from veilgraph.reports.text import plan_inputs
from veilgraph.runtime.simulate import entry_of

TOLERANCE = 0.05


def check(
    plan: Plan,
    weights: Feeds,
    model: Model,
    samples: Feeds,
    tolerance: float | None = None,
    tell: Callable[[str], None] = lambda doing: None,
    labels: Decisions | None = None,
    avgpool: bool = False,
    entry: str | None = None,
) -> Check:
    """Runs a plan's integers and its model on samples, and compares them.

    Args:
        weights: the plan's own.
        model: the model that the plan was compiled from.
        samples: one array an input, samples on a new first axis. A state is as its array says, or
            else zero at first and then what the sample before left, in the plan and in the model.
        tolerance: of a layer's worst difference over its node's largest magnitude; if None it is
            TOLERANCE, and layers that drift are an error where outputs do so too.
        tell: called with what is being done.
        labels: what is right for each sample, to count right decisions of the first output.
        avgpool: say also what the model decides with average pools in place of max pools.
        entry: which of the plan's entries is compared; the first if None.

    Raises:
        UsageError: labels that don't fit, a model that is not the entry's, no such entry, or a plan
            that does not carry its program.
        AccuracyError: a sample or a weight that its encoding can't hold.
    """
    number = entry_of(plan, entry)
    programs, parts = PlanPrograms.of(plan, weights, number), Parts.in_plan(plan)
    shapes = {tensor.name: tensor.shape for tensor in (*programs.inputs, *programs.states)}
    encodings = {tensor.name: tensor.given for tensor in plan_inputs(plan, number)}
    taken = parts.whole({n: encodings.get(n, PLAIN).shape(shape) for n, shape in shapes.items()})
    averaged = bool(plan.manifest.options.get("avgpool"))
    reference = _reference(plan, taken, model, averaged)
    original = _reference(plan, taken, model, False) if averaged else reference
    pooled = _reference(plan, taken, model, True) if avgpool else None
    accuracy = Accuracy(labels) if labels is not None or avgpool else None
    comparison = _Comparison(plan, programs, reference, accuracy)
    kept = KeptStates(plan.manifest.states, programs, samples)
    count = min((len(array) for array in samples.values()), default=1)
    for row in range(count):
        tell(f"sample {row + 1} of {count}")
        sample = {name: array[row] for name, array in samples.items()}
        real = {**sample, **kept.real}
        asked = parts.joined(real, encodings)
        tensors = reference.run(asked)
        wanted = original.run(asked) if averaged else tensors
        averages = pooled.run(asked) if pooled else None
        evaluation = comparison.add({**sample, **kept.plan}, real, tensors, wanted, averages)
        kept.go_on(evaluation.outputs, wanted)
    found = comparison.result(TOLERANCE if tolerance is None else tolerance)
    found.judges_layers = tolerance is not None
    return found


def require_samples(
    samples: Feeds, shapes: Mapping[str, Shape], states: Mapping[str, Shape] = NONE
) -> None:
    """UsageError unless each input has samples of its shape, and all as many.

    Args:
        states: shapes of what may be given, and may be left out.
    """
    shapes = {**shapes, **{name: shape for name, shape in states.items() if name in samples}}
    for name, shape in shapes.items():
        found = samples[name].shape if name in samples else None
        if found is None or found[1:] != shape or found[0] == 0:
            told = "none are given" if found is None else f"they have shape {found}"
            raise UsageError(
                f"Samples of `{name}` don't fit: {told}.",
                f"Give an array of shape (samples, {', '.join(map(str, shape))}).",
            )
    if extra := [name for name in samples if name not in shapes]:
        known = ", ".join((*shapes, *states)) or "none"
        raise UsageError(f"The plan has no input `{extra[0]}`.", f"Its inputs are {known}.")
    if len({len(array) for array in samples.values()}) > 1:
        raise UsageError("Inputs have different numbers of samples.", "Give as many of each.")


def _reference(
    plan: Plan, taken: Mapping[str, Shape], model: Model, average_pools: bool
) -> Reference:
    named = plan.manifest.options.get("public")
    public = [str(name) for name in named] if isinstance(named, list | tuple) else []
    return reference_of(model, taken, average_pools, public, _table_options(plan))


def _table_options(plan: Plan) -> TableOptions:
    options = plan.manifest.options
    return TableOptions(
        Trees(options.get(TREES, Trees.PUBLIC.value)),
        Categories(options.get(CATEGORIES, Categories.PUBLIC.value)),
        options.get(LACKS) is True,
    )


class _Comparison:
    """The layers that nodes of the model have, and how far they were off so far.

    Args:
        programs: of the entry.
        reference: gives each node's tensor.
        accuracy: counts decisions, if that is asked for.
    """

    def __init__(
        self, plan: Plan, programs: PlanPrograms, reference: Reference, accuracy: Accuracy | None
    ) -> None:
        self._options, self._accuracy = plan.manifest.options, accuracy
        self._program, self._graph = programs.secret, programs.graph
        self._taken = (*programs.inputs, *programs.states)
        self._reference = reference
        self._tensors = _tensors_of_layers(self._program, reference.nodes)
        self._layers: dict[str, LayerError] = {}
        self._forms = _forms(plan)
        self._outputs = {
            name: self._error_of(name)(name, ("output",), *_encoding(value))
            for name, value in self._program.outputs.items()
        }
        self._excursions: dict[tuple[str, str], Excursion] = {}
        self._samples = 0
        for name in self._outputs:
            if name not in reference.outputs:
                raise _another_model(f"has no output `{name}`, which the plan computes")

    def add(
        self,
        sample: Mapping[str, npt.NDArray[Any]],
        real: Feeds,
        tensors: Mapping[str, Array],
        original: Mapping[str, Array],
        pooled: Mapping[str, Array] | None,
    ) -> Evaluation:
        """Compares one sample; what the plan makes of it.

        Args:
            sample: what the plan is given, the states that it keeps among them.
            real: what the model is given.
            tensors: ONNX Runtime's, of the model with the plan's pools.
            original: those of the model as it is.
            pooled: those of the model with average pools, if they are asked for.
        """
        sample, real = self._encoded(sample), self._encoded(real)
        if not self._samples:
            self._layers = self._comparable(real, tensors)
        evaluation = self._evaluate(sample, tensors)
        for each in (*outside(self._taken, sample), *evaluation.excursions):
            key = (each.name, each.op)
            self._excursions[key] = joined(self._excursions.get(key), each)
        for name, error in self._outputs.items():
            found, wanted = evaluation.outputs[name], original[name]
            if name in self._forms:
                wanted = self._forms[name].of(wanted).astype(np.float32)
            if found.shape != wanted.shape:
                raise _another_model(f"has another shape of output `{name}` than the plan")
            error.add(found, wanted)
        self._count(evaluation, original, pooled)
        self._samples += 1
        return evaluation

    def _encoded(self, sample: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """What owners encode of what they give."""
        exponents = {tensor.name: tensor.column_exponents for tensor in self._taken}
        return {name: divided(x, exponents.get(name, ())) for name, x in sample.items()}

    def _count(
        self,
        evaluation: Evaluation,
        original: Mapping[str, Array],
        pooled: Mapping[str, Array] | None,
    ) -> None:
        """Counts the first output's decisions."""
        if self._accuracy is None:
            return
        name = next(iter(self._outputs))
        if not original[name].ndim or original[name].shape[-1] < 2:
            raise UsageError(
                f"Output {name} decides nothing: its last axis has one number.",
                "Leave out --labels and --avgpool.",
            )
        found = decisions(evaluation.outputs[name], self._forms.get(name))
        averaged = None if pooled is None else decisions(pooled[name])
        self._accuracy.add(found, decisions(original[name]), averaged)

    def _error_of(self, name: str) -> type[OutputError]:
        decides = name in self._forms and self._forms[name].decides
        return DecisionError if decides else OutputError

    def result(self, tolerance: float) -> Check:
        """What all samples showed."""
        outputs = list(self._outputs.values())
        return Check(
            list(self._layers.values()),
            outputs,
            self._excursions,
            self._samples,
            tolerance,
            self._options,
            self._accuracy,
        )

    def _evaluate(
        self, sample: Mapping[str, npt.NDArray[Any]], tensors: Mapping[str, Array]
    ) -> Evaluation:
        """The plan's integers on a sample; adds what they show to the layers."""
        values: dict[str, Floats] = {}

        def observe(op: SecretOp, integers: npt.NDArray[np.int64], reals: Floats) -> None:
            if (layer := self._layers.get(name_of(op))) is not None:
                layer.headroom_bits = min(layer.headroom_bits, headroom_bits(op, integers))
                values[layer.name] = reals  # of several operations the last one counts

        try:
            # Seeded, so that a check that is repeated says the same; nothing here is secret.
            rounding = np.random.default_rng(self._samples)
            evaluation = evaluate(self._program, sample, rounding, observe, NativeProducts())
        except OverflowError as error:
            raise AccuracyError(
                f"A sample or a weight does not fit the plan's encoding: {error}.",
                "Compile with a wider --ring.",
            ) from error
        for name, reals in values.items():
            self._layers[name].add(reals, tensors[self._tensors[name]])
        return evaluation

    def _comparable(self, sample: Feeds, tensors: Mapping[str, Array]) -> dict[str, LayerError]:
        """The layers that hold their node's values, or those over a constant."""
        factors: dict[str, float | None] = {}

        def observe(name: str, value: npt.NDArray[Any]) -> None:
            if name in self._tensors:
                factors[name] = proportion(value, tensors[self._tensors[name]])

        real_numbers.evaluate(self._graph, sample, observe)
        found = {}
        for name, ops in _ops_by_name(self._program).items():
            result = ops[-1].operation.results[0]
            factor = factors.get(name)
            if factor is None and self._has_shape_of_its_node(name, result, tensors):
                factor = 1.0  # its values are others: that is what there is to show
            if factor is not None:
                kinds = tuple(op.operation.name.partition(".")[2] for op in ops)
                found[name] = LayerError(name, kinds, *_encoding(result), factor)
        return found

    def _has_shape_of_its_node(
        self, name: str, result: ir.Value, tensors: Mapping[str, Array]
    ) -> bool:
        if name not in self._reference.nodes or name not in self._tensors:
            return False
        return tuple(result.type.shape) == tensors[self._tensors[name]].shape


def _forms(plan: Plan) -> dict[str, Form]:
    """What the plan reveals in place of outputs."""
    return {name: Form.parse(form) for name, form in plan.manifest.forms.items()}


def _another_model(what: str) -> UsageError:
    return UsageError(f"The model {what}.", "Give the model that the plan was compiled from.")


def _ops_by_name(program: SecretProgram) -> dict[str, list[SecretOp]]:
    found: dict[str, list[SecretOp]] = {}
    rounded = {as_revealed(name) for name in program.outputs}  # no layer drifts by that
    for op in program.operations:
        if name_of(op) not in rounded:
            found.setdefault(name_of(op), []).append(op)
    return found


def _tensors_of_layers(program: SecretProgram, nodes: Mapping[str, str]) -> dict[str, str]:
    """The tensor of the node that each layer ends, by the layer's name.

    A layer is named after its node, or, as a step on the way, after it and a suffix: "fc1",
    "fc1/matmul". The last one in the program ends the node.
    """
    last: dict[str, str] = {}
    for name in _ops_by_name(program):
        node = next((prefix for prefix in _prefixes(name) if prefix in nodes), None)
        if node is not None:
            last[node] = name
    return {name: nodes[node] for node, name in last.items()}


def _prefixes(name: str) -> Iterator[str]:
    """a/b/c, a/b, a."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _encoding(value: ir.Value) -> tuple[int, int]:
    encoding = SecretTensor.of(value).encoding
    return encoding.ring_bits, encoding.frac_bits


def outside(taken: Sequence[Tensor], sample: Mapping[str, npt.NDArray[Any]]) -> Iterator[Excursion]:
    """Inputs whose owner would be refused by the plan, and states that nobody refuses."""
    for tensor in taken:
        x = sample[tensor.name]
        outside = int(np.count_nonzero((x < tensor.low) | (x > tensor.high)))
        if outside:
            declared = RealRange(tensor.low, tensor.high, RangeSource.CALIBRATED)
            low, high = float(x.min()), float(x.max())
            kind = "state" if tensor.owner == STATE else "input"
            yield Excursion(tensor.name, kind, declared, low, high, outside)


def joined(before: Excursion | None, found: Excursion) -> Excursion:
    """The same operation's excursions on several samples, as one."""
    if before is None:
        return found
    low, high = min(before.low, found.low), max(before.high, found.high)
    return Excursion(found.name, found.op, found.declared, low, high, before.count + found.count)
