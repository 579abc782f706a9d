"""What a plan carries of one entry at two levels, with weights and exact ranges.

A plan of several entries names a weight by its entry where two entries have different ones of one
name, and lists the layers of an entry after those of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.checks.reference_runs import Array, Feeds
from veilgraph.compilation.entries import WEIGHT_NAMES, tensor_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import STATE, Layer, Tensor
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RealRange
from veilgraph.plans import Plan
from veilgraph.reports.text import plan_inputs

ENDS = ("reveal", "keep")  # layers of what an entry returns, behind those of its operations


@dataclass(frozen=True)
class PlanPrograms:
    """One entry of a plan.

    Attributes:
        inputs: what owners give to a run.
        states: what a run finds as another left it.
    """

    secret: SecretProgram
    graph: Graph
    inputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]

    @staticmethod
    def of(plan: Plan, weights: Feeds, entry: int) -> PlanPrograms:
        """Of the entry with this number.

        Args:
            weights: the plan's own.

        Raises:
            UsageError: a plan that does not carry its programs.
        """
        own = _weights_of(plan, weights, entry)
        try:
            secret = _secret(plan, entry, own)
            graph = Graph.parse(context(), _text(plan, "graph", entry), own)
            if all(name_of(op) for op in secret.operations):
                _state_exact_ranges(plan, secret, entry)
                inputs = tuple(plan_inputs(plan, entry))
                return PlanPrograms(secret, graph, inputs, _states(secret))
        except (KeyError, ValueError, ir.MLIRError):
            pass
        raise UsageError(
            "This plan does not carry its programs at the graph and the secret level.",
            "Compile the model again.",
        )


def program_of(plan: Plan, entry: int) -> SecretProgram | None:
    """An entry's program at the secret level, without weights; None where the plan has none."""
    try:
        return _secret(plan, entry, {})
    except (KeyError, ValueError, ir.MLIRError):
        return None


def states_of(plan: Plan, entry: int) -> tuple[Tensor, ...]:
    """The states that an entry reads; none where the plan does not carry its program."""
    program = program_of(plan, entry) if plan.manifest.states else None
    return () if program is None else _states(program)


def _states(secret: SecretProgram) -> tuple[Tensor, ...]:
    return tuple(tensor_of(a, secret.margin) for a in secret.arguments if a.owner == STATE)


def _secret(plan: Plan, entry: int, weights: Feeds) -> SecretProgram:
    margin = float(str(plan.manifest.options["margin"]))
    return SecretProgram.parse(context(), _text(plan, "secret", entry), weights, margin)


def _text(plan: Plan, level: str, entry: int) -> str:
    names = plan.manifest.entries
    return plan.ir[level if len(names) == 1 else f"{level}.{names[entry]}"]


def _weights_of(plan: Plan, weights: Feeds, entry: int) -> dict[str, Array]:
    """An entry's weights under its own names, besides all others."""
    named = plan.manifest.options.get(WEIGHT_NAMES)
    every = named if isinstance(named, Mapping) else {}
    own = every.get(plan.manifest.entries[entry], {})
    renamed = own.items() if isinstance(own, Mapping) else ()
    return {**weights, **{str(n): weights[str(to)] for n, to in renamed if str(to) in weights}}


def _state_exact_ranges(plan: Plan, secret: SecretProgram, entry: int) -> None:
    """Lets a program have the plan's exact ranges, where they are known."""
    if not plan.ranges:
        return
    start = 1  # behind the layer of what belongs to none
    for before in range(entry):
        _, start = _exact_ranges(plan, _secret(plan, before, {}), start)
    stated, _ = _exact_ranges(plan, secret, start)
    secret.state_ranges(stated)


def _exact_ranges(plan: Plan, secret: SecretProgram, start: int) -> tuple[list[RealRange], int]:
    """Ranges of arguments, then of operations; and where the layers of the next entry begin.

    What is truncated as it is revealed has no layer, and what is public has none: these keep the
    range that the text says.

    Args:
        start: where the entry's layers begin.
    """
    found, stated = start, []
    kinds = [(a.name, a.role) for a in secret.arguments]
    kinds += [(name_of(op), op.operation.name.removeprefix("secret.")) for op in secret.operations]
    for kind, (known, is_layer) in zip(kinds, secret.stated_ranges(), strict=True):
        if is_layer and _is(plan.layers[found : found + 1], kind):
            low, high = plan.ranges[found]
            known, found = RealRange(low, high, known.source), found + 1
        stated.append(known)
    while found < len(plan.layers) and plan.layers[found].op in ENDS:
        found += 1
    return stated, found


def _is(layers: Sequence[Layer], kind: tuple[str, str]) -> bool:
    return any((layer.name, layer.op) == kind for layer in layers)
