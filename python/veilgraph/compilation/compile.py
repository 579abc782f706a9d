"""From a model to a plan: the whole pipeline on a page.

Runs where the model's owner is: the weights are known here, and leave in a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.choices import (
    choosing,
    forms,
    one_of,
    protection,
    require_error,
    require_secrets,
    ring_bits_of,
)
from veilgraph.compilation.entries import (
    emit_entries,
    import_entries,
    joined,
    names_of,
    require_entries,
    tensors_of,
)
from veilgraph.compilation.freed_memory import give_back
from veilgraph.compilation.manifests import manifest_of
from veilgraph.compilation.models import Model, model_name, require_no_weights
from veilgraph.compilation.native_products import NativeProducts
from veilgraph.compilation.parts import Columns, parts_of
from veilgraph.compilation.samples import Samples, lack_numbers, samples_of
from veilgraph.compilation.states import States, ranges_of, rolled, with_states
from veilgraph.compilation.steps import Steps
from veilgraph.compilation.take_apart import take_apart
from veilgraph.frontend.onnx.classical.fitted import columns_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import Categories, TableOptions, Trees
from veilgraph.ir.party.text import print_program
from veilgraph.ir.plan.tables import ONLY_ENTRY
from veilgraph.passes.collection import paused_collection
from veilgraph.passes.pipeline import JOINED, PIPELINE, Stage, check, count_questions
from veilgraph.passes.plan.emit_plan import emit_plan, exact_ranges
from veilgraph.passes.program import Level, Options, Program
from veilgraph.plans import Plan
from veilgraph.targets.functions.kept_fits import fits_kept_in
from veilgraph.targets.target import target
from veilgraph.targets.variants import Choosing

Weights = dict[str, npt.NDArray[np.float32]]
Progress = Callable[[str], None]
HINT_SAMPLES = "Give some to --calibrate."


def compile(
    model: Model | Mapping[str, Model],
    *,
    example_inputs: Any = None,
    suite: str = "rep3",
    parties: Sequence[str] | None = None,
    dealer: str | None = None,
    clients: Sequence[str] = (),
    network: str = "lan",
    owners: Mapping[str, str] | None = None,
    receivers: Mapping[str, str | Sequence[str]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    columns: Columns | None = None,
    public: Sequence[str] = (),
    trees: str = "public-structure",
    categories: str = "public",
    calibrate: str | Path | Samples | None = None,
    ring: int | str = "auto",
    frac_bits: int | None = None,
    max_error: float | None = None,
    avgpool: bool = False,
    reveal_as: str | Mapping[str, str] | None = None,
    trust_ranges: bool = False,
    keep_clips: bool = False,
    protect_weights: str = "none",
    protocols: Mapping[str, str] | None = None,
    goal: str = "auto",
    prepared: bool = False,
    most_store: int | None = None,
    roles: str = "auto",
    state: Mapping[str, str] | None = None,
    state_range: Mapping[str, tuple[float, float]] | None = None,
    cache: str | Path | None = None,
    dump_phases: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[Plan, Weights]:
    """Compiles an ONNX or a PyTorch model.

    Args:
        model: of ONNX a path, the file's bytes, or a model in memory; of PyTorch a module, an
            exported program, or a `.pt2` archive as path or bytes. Several by name become entries
            of one plan, over the same weights and states: {"step": ..., "reveal": ...}.
        example_inputs: what a module is exported with, tensors or NumPy arrays: one, a tuple of
            them, or a mapping by argument name. They are the samples too, where `calibrate` gives
            none.
        suite: the protocols, hence the security: "rep3", "additive" with a dealer, or "cleartext"
            for tests.
        parties: names in the order P0, P1, ...; alice, bob, carol if None.
        dealer: name of the host that deals correlated randomness, for suites that have one.
        clients: names of hosts that compute nothing, and own inputs or weights or receive outputs.
        network: "lan", "wan" or a YAML file; what costs are predicted for.
        owners: party by input name, or by columns with commas between them where `columns` or the
            model names them; "weights" names all weights. A table X whose columns are several
            owners' becomes an input for each: X.bank, X.bureau. Unless told otherwise the first
            party owns the inputs, and the second the weights. Weights that are "public" lie in the
            plan for every party to read, and what is linear in them costs no message. Of weights
            that are "shared" every party loads shares, which `deal` makes: no party has them.
        receivers: a party or several by output name; the first party unless told otherwise.
        shapes: shapes of inputs that the model leaves open, by name.
        columns: names of the columns of an input [rows, columns], in the model's order; a fitted
            model may know them.
        public: names of the model's own parameters that every party may know: an ONNX initialiser's
            or what a Constant node makes, PyTorch's `fc.bias`. All others are the owner's, single
            numbers included.
        trees: "public-structure": every party may read which column each node of a decision tree
            asks about, and where leaves are. "secret-structure": these are weights; how many trees
            there are, and how deep the deepest is, stays public.
        categories: "public": the plan has the text that the model tells apart. "secret": it is a
            weight; owners of text write it as a hash, and text that is no category isn't refused.
        calibrate: samples of all inputs, one array an input with samples on a new first axis, or an
            .npz file of them. Without it ranges are unknown, and the ring is 64 bits wide.
        ring: bits of one ring for all values, a multiple of 8 up to 64, or "auto": a ring for each
            layer, the least bytes that are exact enough.
        frac_bits: fraction bits of every value, in place of those that the encoding chooses.
        max_error: mean error of the outputs, relative to their mean size, that is allowed on the
            samples; 0.005 for "auto" unless told otherwise. With it coarser approximations of real
            functions are tried too, and taken where plans send less.
        avgpool: take average pools in place of max pools.
        reveal_as: "argmax", "topk:5" or "softmax", in place of every output or by output name: the
            last step is computed in secret, and its receiver learns no more than that. `max_error`
            is then that of the numbers a decision is made of.
        trust_ranges: trust that no value leaves its calibrated range with its margin: real
            functions hold there and no further, which saves bytes and comparisons. Otherwise they
            hold wherever an input that is accepted can lead, as far as rings hold it.
        keep_clips: keep every clip of a quantised model. Otherwise one that no sample of
            `calibrate` reaches is left out.
        protect_weights: against a receiver who asks equal questions and knows how values were
            rounded: "roles" gives it the role that knows no threshold in every truncation that has
            one (rep3), "exact" rounds by comparisons, after which thresholds say nothing; "none"
            does neither. Functions of a masked opening (GELU, softmax) stay rounded at random, and
            outputs are rounded, in each case.
        protocols: the variant of a suite's protocol by op or building block, for all layers. Of
            what is not named each layer takes what `goal` says.
        goal: by what protocols are chosen: "auto" is the least seconds on `network`, rounds of
            parallel layers counted once; "least-bytes"; or "fewest-rounds". All but the last let
            messages wait for others that are alike where all links are loaded the same then.
        prepared: the offline phase is prepared ahead (`veilgraph prepare`), and no part of the
            price of protocols.
        most_store: bytes that an inference prepared ahead may take in a party's store.
        roles: "rotated" lets parties take turns in the roles of rep3's protocols, so that all links
            carry the same; "fixed" saves a round a layer, and two parties send nearly all; "auto"
            is whatever `goal` prefers.
        state: of each input that is a state, the output that it is in the next run: {"count":
            "count_next"}. Parties keep shares of it from run to run, and nobody sees it; it is zero
            at first. Its next value is revealed where `receivers` names it, and else to nobody.
        state_range: where a state lies, (low, high) by name; of others the samples tell, taken as
            runs one after the other. A state that leaves its range by more than the margin wraps
            around, and nothing can tell.
        cache: a folder where fits of functions are kept from one compilation to the next.
        dump_phases: a folder for the program's text after each pass.
        progress: called as each step begins and goes on: "17 of 31, verify_accuracy: sample 2 of
            4; about 40 s left". The logger `veilgraph.compile` has a record of each as it ends,
            with its seconds (steps.py).

    Returns:
        The plan, and the weights that their owner keeps (`runtime.weights.save_weights` writes
        them). Of public weights they are what `check` needs, and no run; of shared ones what `deal`
        takes, and they stay where this was called.

    Raises:
        UsageError: an option or a file that makes no sense.
        UnsupportedError: all nodes that can't be compiled.
        AccuracyError: a value that does not fit the ring, or outputs that are off by more than is
            allowed even in rings of 64 bits.
    """
    receivers = {n: (w,) if isinstance(w, str) else w for n, w in (receivers or {}).items()}
    require_error(max_error)
    owned, parts = parts_of(owners or {}, columns_of(model) if columns is None else columns)
    chosen = target(suite, parties, network, owned, receivers, dealer, clients, protocols)
    require_no_weights(model)
    models = dict(model) if isinstance(model, Mapping) else {ONLY_ENTRY: model}
    tables = TableOptions(
        one_of(Trees, trees, "The structure of trees can't be"),
        one_of(Categories, categories, "Categories of text can't be"),
        lack_numbers(calibrate),
    )
    steps = steps_of("import", len(models), progress)
    steps.begin("import")
    require_entries(models, shapes, public, example_inputs, columns)
    graphs, examples = import_entries(models, shapes, example_inputs, public, tables)
    require_secrets(tables, graphs, chosen)
    for graph in graphs.values():
        take_apart(graph, parts)
    inputs, outputs = names_of(graphs)
    chosen.check_names(inputs, outputs)
    states = States(dict(state or {}), dict(state_range or {}))
    states.check(list(graphs.values()), chosen)
    for graph in graphs.values():
        graph.declare_states(states.read_by(graph))
    samples = samples_of(examples if calibrate is None else calibrate, graphs, parts)
    if (states.bounds or max_error is not None) and samples is None:
        what = "A largest error" if max_error is not None else "The range of a state"
        raise UsageError(f"{what} is held on samples, and there are none.", HINT_SAMPLES)
    revealed = forms(reveal_as, [n for g in graphs.values() for n in states.revealed(g, chosen)])
    options = Options(
        ring_bits=ring_bits_of(ring),
        frac_bits=frac_bits,
        average_pools=avgpool,
        max_error=max_error,
        reveal_as=revealed,
        trusts_ranges=trust_ranges,
        keep_clips=keep_clips,
        public=tuple(public),
        tables=tables,
        protection=protection(protect_weights, chosen),
        columns=parts.columns,
        parts=parts.of,
    )
    by: Choosing = {"goal": goal, "roles": roles, "prepared": prepared, "most_store": most_store}
    options = choosing(options, by)
    programs = [
        Program(chosen, each, graph, products=NativeProducts())
        for graph, each in zip(
            graphs.values(), _options_of(graphs, options, states, samples), strict=True
        )
    ]
    dump = Dump(dump_phases)
    with fits_kept_in(None if cache is None else Path(cache)):
        for program in programs:
            lower_program(program, steps, dump)
    if len(programs) == 1:
        steps.begin("emit_plan")
        plan, weights = _emitted(programs[0])
    else:
        entries = dict(zip(graphs, programs, strict=True))
        plan, weights = lower_joined(entries, graphs, steps, dump)
    steps.end()
    named = ", ".join(filter(None, map(model_name, models.values())))
    return replace(plan, model_name=named), weights


def steps_of(
    first: str, programs: int, progress: Progress | None, others: Sequence[str] = ()
) -> Steps:
    """The steps of a compilation: what comes first, all passes a program, and making the plan.

    Args:
        others: passes of programs that take fewer.
    """
    passes = PIPELINE if programs == 1 else JOINED * programs
    together = ["emit_plan"] if programs == 1 else ["join_entries", "emit_plan"]
    return Steps([first, *(name for name, _, _ in passes), *others, *together], progress)


@paused_collection()
def lower_program(
    program: Program, steps: Steps, dump: Dump, passes: Sequence[Stage] | None = None
) -> None:
    """Takes a program through all passes, or those given: down to the party level, or to where it
    is joined with others.
    """
    program.watch = steps
    for name, _, run in passes or (JOINED if program.options.is_joined else PIPELINE):
        steps.begin(name)
        run(program)
        dump.write(name, program)
        check(program)


@paused_collection()
def lower_joined(
    programs: Mapping[str, Program],
    asked: Iterable[str],
    steps: Steps,
    dump: Dump,
    leader: int | None = None,
) -> tuple[Plan, Weights]:
    """The plan of several programs, by their entries' names, and the weights of all.

    Args:
        asked: the entries of which equal questions are counted.
        leader: as for `join_entries`.
    """
    steps.begin("join_entries")
    common = joined(programs, leader)
    dump.write("join_entries", next(iter(programs.values())))
    for name in asked:
        count_questions(programs[name])
    steps.begin("emit_plan")
    return emit_entries(programs, common, leader)


@paused_collection()
def _emitted(program: Program) -> tuple[Plan, Weights]:
    """The plan of one program, and its weights."""
    give_back()
    plan = emit_plan(
        program.expanded,
        program.schedule,
        manifest_of(program),
        list(tensors_of(program)),
        {},
    )
    # Printed after tables are made: the text of a large program is as large as they are.
    give_back()
    text = {
        "graph": program.graph.text(),
        "secret": program.secret.text(),
        "party": print_program(program.expanded.program),
    }
    kept, magnitudes = exact_ranges(program.expanded), tuple(program.ranges.magnitudes)
    plan = replace(plan, ir=text, ranges=kept, magnitudes=magnitudes)
    return Plan.of(plan), dict(program.secret.weights)


def _options_of(
    graphs: Mapping[str, Graph], options: Options, states: States, samples: Weights | None
) -> Iterator[Options]:
    """What is decided about each program: the same, but for its own inputs, outputs and states."""
    own = [
        {name: x for name, x in (samples or {}).items() if name in graph.inputs}
        for graph in graphs.values()
    ]
    reached = [rolled(graph, states, x) for graph, x in zip(graphs.values(), own, strict=True)]
    ranges = ranges_of(states, reached)
    for graph, x, found in zip(graphs.values(), own, reached, strict=True):
        known = samples is not None
        yield replace(
            options,
            samples=with_states(graph, states, x, found, ranges) if known else None,
            reveal_as={n: form for n, form in options.reveal_as.items() if n in graph.outputs},
            states=states.kept_by(graph),
            state_ranges={name: ranges[name] for name in graph.states} if known else {},
            is_joined=len(graphs) > 1,
        )


class Dump:
    """The text of the level that a pass works on, numbered in order."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = Path(folder) if folder is not None else None
        self.count = 0
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, program: Program) -> None:
        if self.folder is None:
            return
        self.count += 1
        match program.level:
            case Level.GRAPH | Level.VISIBLE:
                text, suffix = program.graph.text(), "graph.mlir"
            case Level.SECRET:
                text, suffix = str(program.secret.module), "secret.mlir"
            case Level.PARTY | Level.SCHEDULED:
                text, suffix = print_program(program.expanded.program), "party"
        file = self.folder / f"{self.count:02}-{name.replace(' ', '-')}.{suffix}"
        file.write_text(text)
