"""A plan's manifest: what people are told of a compiled program, and what it discloses to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.parts import PARTS
from veilgraph.ir.graph.ops import Constant, facts_of
from veilgraph.ir.graph.program import attributes, name_of
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.party.ops import COMPARE_WORDS, POINT_WORDS
from veilgraph.ir.plan.given import HALF_BITS, Given
from veilgraph.ir.plan.tables import (
    CATEGORIES,
    CLIPS,
    DERIVATIVES,
    LABELS,
    LACKS,
    NO_DERIVATIVES,
    PUBLIC,
    REVEAL_AS,
    ROUND_BYTES,
    ROUND_TIME,
    SHARED,
    TREES,
    WEIGHTS,
    Disclosure,
    Manifest,
)
from veilgraph.ir.secret.types import Secrecy
from veilgraph.ir.secret.types import Tensor as SecretTensor
from veilgraph.passes.graph.reveal_as import scope
from veilgraph.passes.party.expand_protocols import givers
from veilgraph.passes.pipeline import revealed
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.passes.program import Program

LISTED = 8  # numbers of a public constant that a disclosure shows
POINTS = "nothing of an index, as long as AES-128 under a known key is a random permutation"
POINT_ASSUMPTION = (
    "words of its point function are hidden by a root that each party lacks; 10^9 secret indices "
    "under one key leave 92 bits of security"
)
COMPARISON_TREES = (
    "nothing of what is compared, as long as AES-128 under a known key is a random permutation"
)
TREE_ASSUMPTION = (
    "words of comparison functions are hidden by a root that each party lacks; 10^9 comparisons "
    "under one key leave 90 bits of security"
)
OTHERS = "; any other text counts as one more"
PUBLIC_NUMBERS = "the architecture's, an integer of the model, or asked for with --public"


def manifest_of(program: Program) -> Manifest:
    """That of a program whose last stage has run."""
    chosen, secret = program.target, program.secret
    encodings = [SecretTensor.of(op.operation.results[0]).encoding for op in secret.operations]
    rings = [e for e in encodings if e.secrecy is Secrecy.SECRET]
    inputs = [a for a in secret.arguments if a.is_input]
    announced = [a.name for a in secret.arguments if a.is_announced]
    return Manifest(
        veilgraph_version=version("veilgraph"),
        lowering=LOWERING_VERSION,
        suite=chosen.suite.name,
        security=str(chosen.suite.security),
        parties=chosen.everyone,
        roles={party.name: party.role.name for party in chosen.members},
        owners={name: who for a in inputs for name, who in givers(a, chosen).items()}
        | {WEIGHTS: chosen.weights_owner},
        receivers={name: chosen.receiver(name) for name in [*revealed(program), *announced]},
        states=dict(program.options.states),
        network=dict(asdict(chosen.network)),
        ring_bits=max((e.ring_bits for e in rings), default=64),
        encoding=secret.encoding,
        disclosures=tuple(disclosures(program)),
        options={
            "ring": program.options.ring_bits or "auto",
            "frac_bits": program.options.frac_bits,
            "max_error": program.options.max_error,
            "avgpool": program.options.average_pools,
            "margin": secret.margin,
            "protect_weights": program.options.protection.value,
            "trust_ranges": program.options.trusts_ranges,
            "keep_clips": program.options.keep_clips,
            "public": list(program.options.public),
            TREES: program.options.tables.trees.value,
            CATEGORIES: program.options.tables.categories.value,
            LACKS: any(given.flagged for given in program.graph.given.values()),
            "protocols": {op: variant.name for op, variant in chosen.protocols.items()},
            "goal": program.options.goal.value,
            ROUND_BYTES: program.pace.bytes,
            ROUND_TIME: program.pace.nanoseconds,
            "prepared": program.options.is_prepared,
            "most_store": program.options.most_store,
            "roles": program.options.roles.value,
            REVEAL_AS: {name: str(form) for name, form in program.options.reveal_as.items()},
            LABELS: {name: list(texts) for name, texts in program.graph.labels.items()},
            PARTS: {
                name: {part: list(places) for part, places in of.items()}
                for name, of in program.options.parts.items()
            },
        },
    )


def disclosures(program: Program) -> Iterator[Disclosure]:
    """What is told, to whom and why, beside messages under masks."""
    everyone = "every party"
    target, forms = program.target, program.options.reveal_as
    asked = [(name, target.receivers[name], "asked for") for name in target.receivers]
    default = [(n, (target.default_owner,), "the default") for n in revealed(program)]
    for name, receivers, why in (*asked, *(d for d in default if d[0] not in target.receivers)):
        alone = f", its {forms[name]} alone" if name in forms else ""
        yield Disclosure(f"output {name}{alone}", ", ".join(receivers), why)
    for asked_alike in program.questions:
        kind = DERIVATIVES if asked_alike.layer else NO_DERIVATIVES
        yield Disclosure(kind, asked_alike.receiver, str(asked_alike))
    yield from _disclosed_weights(program)
    graph = "the graph: operators, shapes, strides, which columns and elements are picked"
    yield Disclosure(graph, everyone, "it is in the plan")
    for name, learnt in program.graph.structures.items():
        yield Disclosure(f"of the trees of {name}: {learnt}", everyone, "it is in the plan")
    for name in program.graph.labels:
        yield Disclosure(f"the names of classes of output {name}", everyone, "they are in the plan")
    if program.options.columns:
        yield Disclosure("names of columns", everyone, "they are in the plan")
    for name, given in program.graph.given.items():
        yield from _of_given(name, given, program.options.columns.get(name, ()))
    yield Disclosure(
        "ring, fraction bits and window of every tensor, its range to a power of two; what inputs "
        "may be, to 1/16 bit",
        everyone,
        "scales follow from ranges: weights and samples show in them to a power of two; rings also "
        "from how much each layer bears on the outputs",
    )
    for name, exponents in program.column_exponents.items():
        yield Disclosure(
            f"how large the columns of {name} are beside the largest number, as powers of two: "
            f"{', '.join(map(str, exponents))}",
            everyone,
            "columns have scales of their own, which follow from the samples",
        )
    if program.options.samples is not None:
        yield Disclosure(
            "the outputs' error on the samples, predicted and measured, to two digits",
            everyone,
            "the plan says how exact it is; the error follows from the weights and the samples",
        )
    if program.dropped_clips.bounds:
        yield Disclosure(CLIPS, everyone, str(program.dropped_clips))
    if any(facts_of(op).is_real_function for op in program.graph.operations):
        yield Disclosure(
            "the interval on which each real function holds, to 1/16 bit",
            everyone,
            "its coefficients, bounds and thresholds follow from its operand's range and margin",
        )
    made = nodes_of(program.expanded.program.nodes, POINT_WORDS, COMPARE_WORDS)
    has = {node.op for node in made if node.entry == program.entry}
    if POINT_WORDS in has:
        yield Disclosure(POINTS, "parties that hold one-hot rows", POINT_ASSUMPTION)
    if COMPARE_WORDS in has:
        yield Disclosure(COMPARISON_TREES, "parties that compare by trees", TREE_ASSUMPTION)
    rankings = tuple(scope(name, form) for name, form in forms.items())
    for op in program.graph.operations:
        # The tables that a ranking is made of follow from what was asked for.
        if isinstance(op, Constant) and not name_of(op).startswith(rankings):
            numbers = np.asarray(attributes(op)["value"]).ravel()
            what = f"constant {name_of(op)} = {_listed(numbers)}"
            yield Disclosure(what, everyone, PUBLIC_NUMBERS)


def _of_given(name: str, given: Given, columns: Sequence[str]) -> Iterator[Disclosure]:
    """Tables of categories, and which numbers may be missing."""
    everyone = "every party"
    for column, table in enumerate(given.categories):
        many = len(given.categories) > 1
        of = f"column {columns[column] if columns else column} of {name}" if many else name
        yield Disclosure(
            f"the categories of {of}: {', '.join(table)}" + OTHERS * given.others[column],
            everyone,
            "owners write text as its place among them; so is an encoder whose numbers are places",
        )
    if given.flagged:
        named = ", ".join(columns[i] if columns else str(i) for i in given.flagged)
        yield Disclosure(
            f"the columns of {name} in which a number may be missing: {named}",
            everyone,
            "the model has a branch for it",
        )
    if given.is_hashed:
        yield Disclosure(
            f"{name} is text, of which owners write {2 * HALF_BITS} bits of its hash; how many "
            "categories the model knows of it",
            everyone,
            "the plan says how text is written, and shapes how many are compared",
        )
    if given.lacks:
        yield Disclosure(f"the keys of {name}", everyone, "they are in the plan")


def _disclosed_weights(program: Program) -> Iterator[Disclosure]:
    """To whom they are disclosed where no party owns them."""
    owner, count = (
        program.target.weights_owner,
        sum(a.size for a in program.secret.weights.values()),
    )
    what = f"the weights: all {count} numbers, as they are encoded"
    if owner == PUBLIC:
        yield Disclosure(what, "every party", "asked for; they are in the plan")
    if owner == SHARED:
        parties, least = program.target.parties, program.target.coalition + 1
        who = "all parties" if least == len(parties) else f"any {least} parties"
        yield Disclosure(
            what,
            f"{who} together" if least > 1 else parties[0],
            "asked for: their files hold shares, at any time; the file of one dealing alone says "
            "nothing",
        )


def _listed(numbers: npt.NDArray[Any]) -> str:
    """The first of them, and how many there are."""
    if numbers.size <= LISTED:
        return str(numbers.tolist())
    shown = ", ".join(map(str, numbers[:LISTED].tolist()))
    return f"[{shown}, ...], {numbers.size} numbers"
