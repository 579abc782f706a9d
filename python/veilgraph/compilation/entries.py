"""Entries: several models in one plan, over the same weights and states.

{"step": a.onnx, "reveal": b.onnx}     a session runs one or the other, as its parties agree
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.manifests import manifest_of
from veilgraph.compilation.models import Model, import_model
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions
from veilgraph.ir.party.legality import check_party
from veilgraph.ir.party.text import print_program
from veilgraph.ir.plan.checks import MOST_ENTRIES
from veilgraph.ir.plan.given import PLAIN
from veilgraph.ir.plan.tables import LABELS, PUBLIC, REVEAL_AS, Disclosure, Manifest, Tensor
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Tensor as SecretTensor
from veilgraph.passes.party.expand_protocols import (
    Common,
    Entry,
    announced_to,
    givers,
    is_revealed,
)
from veilgraph.passes.party.join_entries import join_entries, states_of
from veilgraph.passes.plan.emit_plan import emit_plan, exact_ranges
from veilgraph.passes.program import Level, Program, Protection
from veilgraph.plans import Plan
from veilgraph.targets.target import Target

WEIGHT_NAMES = "weight_names"  # an option of the manifest: see `Common.names`
Weights = dict[str, npt.NDArray[np.float32]]


def require_entries(
    models: Mapping[str, Model],
    shapes: Mapping[str, Sequence[int]] | None,
    public: Collection[str],
    example_inputs: Any,
    columns: Mapping[str, Sequence[str]] | None,
) -> None:
    """Raises UsageError for names that are none, or options that name one model's own."""
    if not 1 <= len(models) <= MOST_ENTRIES or not all(name.isidentifier() for name in models):
        raise UsageError(
            f"Entries are named {', '.join(models) or 'nothing'}.",
            f"Give up to {MOST_ENTRIES} models, their names plain words.",
        )
    if len(models) > 1 and (shapes or public or columns or example_inputs is not None):
        raise UsageError(
            "Shapes, columns, public parameters and example inputs are one model's, and here are "
            "several.",
            "Give models whose shapes are fixed, and --calibrate.",
        )


def import_entries(
    models: Mapping[str, Model],
    shapes: Mapping[str, Sequence[int]] | None,
    example_inputs: Any,
    public: Collection[str],
    tables: TableOptions = AS_USUAL,
) -> tuple[dict[str, Graph], Any]:
    """Each model at the graph level, and the samples that example inputs are.

    Raises:
        UsageError, UnsupportedError: as `import_model`; or an input that is of two shapes.
    """
    graphs, examples = {}, None
    for name, model in models.items():
        graphs[name], examples = import_model(model, shapes, example_inputs, public, tables=tables)
    found: dict[str, tuple[int, ...]] = {}
    for graph in graphs.values():
        for name, value in graph.inputs.items():
            shape = shape_of(value)
            if found.setdefault(name, shape) != shape:
                raise UsageError(
                    f"Input `{name}` has one shape in one entry, and another in another.",
                    "Give inputs that differ different names.",
                )
    return graphs, examples


def names_of(graphs: Mapping[str, Graph]) -> tuple[list[str], list[str]]:
    """All inputs and all outputs, by name."""
    inputs = dict.fromkeys(name for graph in graphs.values() for name in graph.inputs)
    outputs = dict.fromkeys(name for graph in graphs.values() for name in graph.outputs)
    return list(inputs), list(outputs)


def joined(programs: Mapping[str, Program], leader: int | None = None) -> Common:
    """Takes programs, by their entries' names, down to the party level, where they are one.

    Raises:
        UsageError, MaskingError: as `join_entries`, for `leader` too.
    """
    first = next(iter(programs.values()))
    fixed_roles = first.options.protection is Protection.ROLES
    common, schedule = join_entries(
        _entries(programs), first.target, fixed_roles, leader, first.pace
    )
    check_party(common.expanded.program)
    for number, program in enumerate(programs.values()):
        program.entry, program.level = number, Level.SCHEDULED
        program.expanded, program.schedule = common.expanded, schedule
    return common


def _entries(programs: Mapping[str, Program]) -> list[Entry]:
    return [
        Entry(name, program.secret, program.options.states, program.choices)
        for name, program in programs.items()
    ]


def emit_entries(
    programs: Mapping[str, Program], common: Common, leader: int | None = None
) -> tuple[Plan, Weights]:
    """The plan of programs that are joined, and the weights of all."""
    entries, every = _entries(programs), list(programs.values())
    texts = {
        f"{level}.{name}": text
        for name, program in programs.items()
        for level, text in (("graph", program.graph.text()), ("secret", program.secret.text()))
    }
    values = _all_weights(entries, common)
    plan = emit_plan(
        common.expanded,
        every[0].schedule,
        _manifest(list(programs), [manifest_of(program) for program in every], common),
        list(_tensors(entries, common, every, leader)),
        {**texts, "party": print_program(common.expanded.program)},
    )
    magnitudes = tuple(m for program in every for m in program.ranges.magnitudes)
    plan = replace(plan, ranges=exact_ranges(common.expanded), magnitudes=magnitudes)
    return Plan.of(plan), values


def _all_weights(entries: Sequence[Entry], common: Common) -> Weights:
    """Those that are shared, and public ones, which `check` needs; each under a name of its own."""
    found = dict(common.values)
    for entry in entries:
        renamed = common.names.get(entry.name, {})
        for name, weight in entry.secret.weights.items():
            if name in renamed or np.array_equal(found.setdefault(name, weight), weight):
                continue
            common.names.setdefault(entry.name, {})[name] = f"{entry.name}.{name}"
            found[f"{entry.name}.{name}"] = weight
    return found


def _manifest(names: Sequence[str], manifests: Sequence[Manifest], common: Common) -> Manifest:
    """What a plan of all entries says to people."""
    disclosures: dict[Disclosure, None] = {}
    for each in manifests:
        disclosures |= dict.fromkeys(each.disclosures)
    said = (f"{name}: {m.encoding}" for name, m in zip(names, manifests, strict=True))
    merged = {option: _merged(manifests, option) for option in (REVEAL_AS, LABELS)}
    renamed = {WEIGHT_NAMES: common.names} if common.names else {}
    return replace(
        manifests[0],
        owners={name: who for m in manifests for name, who in m.owners.items()},
        receivers={name: who for m in manifests for name, who in m.receivers.items()},
        states={name: after for m in manifests for name, after in m.states.items()},
        entries=tuple(names),
        encoding=". ".join(said),
        ring_bits=max(each.ring_bits for each in manifests),
        disclosures=tuple(disclosures),
        options={**manifests[0].options, **merged, **renamed},
    )


def _merged(manifests: Sequence[Manifest], option: str) -> dict[str, object]:
    """An option that says something of outputs by name, of those of all entries."""
    stated = (each.options[option] for each in manifests)
    return {name: said for each in stated if isinstance(each, dict) for name, said in each.items()}


def _tensors(
    entries: Sequence[Entry], common: Common, programs: Sequence[Program], leader: int | None
) -> Iterator[Tensor]:
    """Inputs by entry, weights, states, and outputs by entry."""
    for number, (entry, program) in enumerate(zip(entries, programs, strict=True)):
        for argument in entry.secret.arguments:
            if argument.is_input and argument.owner != PUBLIC:
                tensor = _as_given(tensor_of(argument, entry.secret.margin), program)
                for name, owner in givers(argument, program.target).items():
                    yield replace(tensor, name=name, owner=owner, entry=number)
    margin = max(entry.secret.margin for entry in entries)
    for argument in (*common.arguments, *states_of(entries, leader)):
        yield tensor_of(argument, margin)
    for number, entry in enumerate(entries):
        for tensor in outputs_of(entry.secret, programs[0].target, entry.states):
            yield replace(tensor, entry=number)


def tensors_of(program: Program) -> Iterator[Tensor]:
    """Inputs, weights, states and outputs, their places still open."""
    secret = program.secret
    for argument in secret.arguments:
        if argument.owner != PUBLIC:  # else it is a constant
            exponents = program.column_exponents.get(argument.name, ())
            tensor = _as_given(tensor_of(argument, secret.margin), program)
            yield replace(tensor, column_exponents=exponents)
    yield from outputs_of(secret, program.target, program.options.states)


def _as_given(tensor: Tensor, program: Program) -> Tensor:
    """With the names of its columns, and how its owner writes them."""
    graph = program.graph
    names = program.options.columns.get(tensor.name, graph.columns.get(tensor.name, ()))
    return replace(tensor, columns=names, given=graph.given.get(tensor.name, PLAIN))


def outputs_of(
    secret: SecretProgram, chosen: Target, states: Mapping[str, str]
) -> Iterator[Tensor]:
    """What goes to somebody."""
    for argument in secret.arguments:
        if argument.is_announced:
            told = ",".join(announced_to(argument, chosen))
            encoding = argument.tensor.encoding
            shape, bits = argument.tensor.shape, (encoding.ring_bits, encoding.frac_bits)
            yield Tensor(argument.name, shape, *bits, told, 0)
    for name, value in secret.outputs.items():
        if not is_revealed(name, states, chosen):
            continue
        tensor = SecretTensor.of(value)
        encoding = tensor.encoding
        owner = ",".join(chosen.receiver(name))
        yield Tensor(name, tensor.shape, encoding.ring_bits, encoding.frac_bits, owner, 0)


def tensor_of(argument: Argument, margin: float) -> Tensor:
    """What a program is given, its place still open, with what its owner may give."""
    low, high = _accepted(argument, margin)
    encoding = argument.tensor.encoding
    return Tensor(
        argument.name,
        argument.tensor.shape,
        encoding.ring_bits,
        encoding.frac_bits,
        argument.owner,
        0,
        low,
        high,
    )


def _accepted(argument: Argument, margin: float) -> tuple[float, float]:
    """What an owner may give; weights are as they are."""
    everything = (-math.inf, math.inf)
    return everything if argument.is_weight else argument.range.accepted(margin)
