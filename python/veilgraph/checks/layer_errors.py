"""How far a plan's layers are from a model's nodes, added up over samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.checks.accuracy import Accuracy
from veilgraph.checks.promises import Judgement, Promise, promise
from veilgraph.checks.suggestions import suggestion
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph.program import name_of
from veilgraph.ir.meaning.secret import Excursion
from veilgraph.ir.plan.tables import REVEAL_AS
from veilgraph.ir.secret.ops import (
    Add,
    ClippedFunction,
    Constant,
    Neg,
    RealFunction,
    SecretOp,
    Step,
    attributes_of,
)
from veilgraph.ir.secret.types import RangeSource, RealRange, Tensor
from veilgraph.passes.ranges.magnitudes import MagnitudeCount
from veilgraph.reports.units import counted
from veilgraph.targets.functions.ends import Sides, limited_sides

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.float32]
PROPORTIONAL = 1e-3  # relative residual up to which one tensor is another times a constant


@dataclass
class LayerError:
    """How far a layer is from its node's tensor, over all samples.

    Attributes:
        ops: of the secret level, in order.
        factor: what the layer's values are multiplied by to be the node's.
        worst: largest absolute difference; `difference_sum` the sum of all `count` of them.
        largest: the node's largest magnitude; `size_sum` the sum of all of them.
        magnitudes: of the layer's own values, not those of the node.
        headroom_bits: how many times the layer's largest integer could double and still be right.
    """

    name: str
    ops: tuple[str, ...]
    ring_bits: int
    frac_bits: int
    factor: float = 1.0
    worst: float = 0.0
    largest: float = 0.0
    difference_sum: float = 0.0
    size_sum: float = 0.0
    count: int = 0
    headroom_bits: float = math.inf
    magnitudes: MagnitudeCount = field(default_factory=MagnitudeCount)

    @property
    def mean(self) -> float:
        """The mean absolute difference."""
        return self.difference_sum / max(self.count, 1)

    @property
    def mean_relative(self) -> float:
        """The mean difference over the node's mean magnitude: what `compile --max-error` bounds."""
        return self.difference_sum / (self.size_sum or 1.0)

    @property
    def relative(self) -> float:
        """The worst difference over the node's largest magnitude."""
        return self.worst / self.largest if self.largest else self.worst

    def add(self, found: Floats, wanted: Array) -> None:
        """Takes one sample into account."""
        if not found.size:
            return
        self.magnitudes.add(found)
        difference = np.abs(self.factor * found - wanted)
        self.worst = max(self.worst, float(difference.max()))
        self.largest = max(self.largest, float(np.abs(wanted).max()))
        self.difference_sum += float(difference.sum())
        self.size_sum += float(np.abs(wanted, dtype=np.float64).sum())
        self.count += difference.size


@dataclass
class OutputError(LayerError):
    """The same of an output; `agreeing` of `decisions` have their largest value at one place.

    `by_sample` has the differences and the sizes, each summed over a sample's elements.
    """

    agreeing: int = 0
    decisions: int = 0
    by_sample: list[tuple[float, float]] = field(default_factory=list)

    def add(self, found: Floats, wanted: Array) -> None:
        before = self.difference_sum, self.size_sum
        super().add(found, wanted)
        sums = self.difference_sum - before[0], self.size_sum - before[1]
        self.by_sample.append(sums)
        if found.ndim and found.shape[-1] > 1:
            same = found.argmax(axis=-1) == wanted.argmax(axis=-1)
            self.agreeing += int(np.count_nonzero(same))
            self.decisions += same.size


@dataclass
class DecisionError(OutputError):
    """The same of positions: right or wrong, each of them a decision."""

    def add(self, found: Floats, wanted: Array) -> None:
        LayerError.add(self, found, wanted)
        self.agreeing += int(np.count_nonzero(found == wanted))
        self.decisions += found.size


@dataclass(repr=False)
class Check:
    """What comparing a plan with its model showed.

    Attributes:
        layers: in program order.
        outputs: against the model as it is, even where the plan has other pools.
        excursions: what left its declared range, by name and op.
        tolerance: of a layer's worst difference over its node's largest magnitude.
        judges_layers: a layer beyond the tolerance is an error by itself. If not, it is one where
            an output is beyond it too: `compile` spares bits where outputs don't show it.
        options: that the plan was compiled with.
        accuracy: of decisions, where it was asked for.
    """

    layers: list[LayerError]
    outputs: list[OutputError]
    excursions: dict[tuple[str, str], Excursion]
    samples: int
    tolerance: float
    options: Mapping[str, object] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    judges_layers: bool = True

    def __repr__(self) -> str:
        status = self.status()
        told = "no layer drifts" if status is None else status.message
        return f"<Check on {counted(self.samples, 'sample')}: {told}>"

    def rows(self) -> list[dict[str, str | int | float]]:
        """A row a layer, then a row an output: `pandas.DataFrame(check.rows())`."""
        return [
            {
                "name": layer.name,
                "ops": "+".join(layer.ops),
                "ring_bits": layer.ring_bits,
                "frac_bits": layer.frac_bits,
                "worst_error": layer.worst,
                "mean_error": layer.mean,
                "mean_relative_error": layer.mean_relative,
                "relative_error": layer.relative,
                "headroom_bits": layer.headroom_bits,
            }
            for layer in (*self.layers, *self.outputs)
        ]

    @property
    def first_drift(self) -> LayerError | None:
        """The first layer, or else output, whose error is beyond the tolerance."""
        compared = [*self.layers, *self.outputs]
        return next((each for each in compared if each.relative > self.tolerance), None)

    @property
    def is_harmless(self) -> bool:
        """Whether layers that drift are no error, since no output does."""
        shown = any(output.relative > self.tolerance for output in self.outputs)
        return not self.judges_layers and not shown

    @property
    def promise(self) -> Promise | None:
        """How the outputs keep to `--max-error`, where the plan was compiled with it.

        It is of the numbers that a decision is made of, and of the plan's own pools: of outputs in
        another form, and of plans with average pools, nothing is said.
        """
        allowed, forms = self.options.get("max_error"), self.options.get(REVEAL_AS)
        changed = forms if isinstance(forms, Mapping) else {}
        measured = [output.by_sample for output in self.outputs if output.name not in changed]
        if not isinstance(allowed, int | float) or self.options.get("avgpool") or not measured:
            return None
        return promise(float(allowed), measured)

    def status(self) -> AccuracyError | None:
        """What is wrong, if anything is."""
        if self.excursions:
            first = next(iter(self.excursions.values()))
            return AccuracyError(
                f"Values left their range: {first}.",
                f"Compile with samples like these in --calibrate: {_beyond(first)}.",
            )
        if (drifting := self.first_drift) is None or self.is_harmless:
            kept = self.promise
            if kept is None or kept.judgement is not Judgement.MISSED:
                return None
            return AccuracyError(
                str(kept), "Compile with more samples in --calibrate, or a smaller --max-error."
            )
        worst = max((*self.layers, *self.outputs), key=lambda each: each.relative)
        return AccuracyError(
            f"`{drifting.name}` is the first layer that drifts: {drifting.worst:.3g} off, "
            f"{drifting.relative:.1%} of its largest value, where {self.tolerance:.1%} is allowed.",
            self.advice(worst),
        )

    def advice(self, layer: LayerError) -> str:
        """The smallest change that should fix a layer; "" for one that is exact enough."""
        if layer.relative <= self.tolerance:
            return ""
        measured = max((output.mean_relative for output in self.outputs), default=0.0)
        return suggestion(self.options, layer.ring_bits, layer.relative, self.tolerance, measured)


def _beyond(excursion: Excursion) -> str:
    """How far outside its range a value was."""
    declared = max(abs(excursion.declared.low), abs(excursion.declared.high))
    reached = max(abs(excursion.low), abs(excursion.high))
    if not declared or reached <= declared:
        return "they reach where none was"
    return f"they reach {reached / declared:.3g} times as far"


def proportion(found: npt.NDArray[np.float32], wanted: Array) -> float | None:
    """The constant c with c found = wanted, by least squares; None where there is none."""
    if found.shape != wanted.shape or not np.isfinite(wanted).all():  # masks are minus infinity
        return None
    x, y = found.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    square = float(x @ x)
    if not square:
        return None if y.any() else 1.0
    factor = float(x @ y) / square
    residual = float(np.abs(factor * x - y).max(initial=0.0))
    return factor if residual <= PROPORTIONAL * float(np.abs(y).max(initial=0.0)) else None


def headroom_bits(op: SecretOp, integers: npt.NDArray[np.int64]) -> float:
    """How many times the largest integer of an op's result could double and still be right.

    The ring bounds it, and so do a truncation (2^(k-2)) and the window of a comparison that reads
    it (2^(w-1)). Windows of functions bound what samples showed alone: what has been clipped or
    brought near 1 for a function fills its window by design; and they bound just the sides on
    which no comparison beside the function decides (targets/functions/ends.py).
    """
    if not integers.size or isinstance(op, Constant):
        return math.inf
    lowest, highest = int(integers.min()), int(integers.max())
    largest = max(-lowest, highest)
    if not largest:
        return math.inf
    seen = RealRange.of(op).source is not RangeSource.PROVEN
    limits = [Tensor.of(op.operation.results[0]).encoding.ring_bits - 1]
    upper_limits: list[int] = []
    for use in op.operation.results[0].uses:
        if not isinstance(use.owner, SecretOp):
            continue
        named = attributes_of(use.owner)
        if "bits" in named:
            limits.append(limits[0] - 1)
        if "window_bits" in named:
            limits.append(named["window_bits"] - 1)
        if isinstance(use.owner, RealFunction) and seen:
            sides, bits = _limited_sides(use.owner), named["form"]["window_bits"] - 1
            limits += [bits] if sides is Sides.BOTH else []
            upper_limits += [bits] if sides is Sides.ABOVE else []
    upper = min(upper_limits) - math.log2(highest) if upper_limits and highest > 0 else math.inf
    return min(min(limits) - math.log2(largest), upper)


def _limited_sides(function: RealFunction) -> Sides:
    """As comparisons of the operand in the same layer leave them: of x - low, and of high - x."""
    at_least = _in_layer(function, function.operation.operands[0], Add)
    at_most = [value for moved in at_least for value in _in_layer(function, moved, Neg)]
    has_lower, has_upper = (
        any(isinstance(use.owner, Step) for value in moved for use in value.uses)
        for moved in (at_least, at_most)
    )
    has_lower |= isinstance(function, ClippedFunction)
    return limited_sides(attributes_of(function)["function"], has_lower, has_upper)


def _in_layer(function: RealFunction, value: ir.Value, kind: type[SecretOp]) -> list[ir.Value]:
    """What ops of one kind in the function's layer make of a value."""
    name = name_of(function)
    owners = (use.owner for use in value.uses)
    return [
        owner.operation.results[0]
        for owner in owners
        if isinstance(owner, kind) and name_of(owner) == name
    ]
