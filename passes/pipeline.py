"""The ordered list of passes, a reason a line. `compile.py` runs it; `--dump-phases` shows it.

A stage reads and replaces parts of one `Program` (program.py); `--dump-phases` writes the level's
text after each. Two stages repeat others: `verify_accuracy` encodes again, for a smaller error,
until the samples pass, and `choose_approximations` encodes once more with coarser functions. Both
call `_encoded`, which runs `encode_fixed_point` and the steps of `ENCODED` behind it. `compile`
lowers the last stage's schedule (passes/plan/lower.py), and `emit_plan` makes the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from veilgraph.ir.graph.program import Graph
from veilgraph.ir.legality import check_graph, check_secret
from veilgraph.ir.party.legality import check_party
from veilgraph.ir.plan.tables import PUBLIC, divided
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.encode.aim import TARGET_SHARE
from veilgraph.passes.encode.encode_fixed_point import FINE, MAX_ERROR, EncodeFixedPoint
from veilgraph.passes.encode.functions.choose_approximations import (
    COARSE_UNITS,
    ChooseApproximations,
    Price,
)
from veilgraph.passes.graph.approximate import Approximate
from veilgraph.passes.graph.bound_masks import BoundMasks
from veilgraph.passes.graph.drop_clips import DropClips
from veilgraph.passes.graph.fold_batch_norm import FoldBatchNorm
from veilgraph.passes.graph.fold_constants import FoldConstants
from veilgraph.passes.graph.fold_divisors import FoldDivisors
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.graph.normalize_by_sums import NormalizeBySums
from veilgraph.passes.graph.pool_average import PoolAverage
from veilgraph.passes.graph.recognize_activations import RecognizeActivations
from veilgraph.passes.graph.reveal_as import RevealAs
from veilgraph.passes.graph.scale_columns import ScaleColumns
from veilgraph.passes.graph.share_comparisons import ShareComparisons
from veilgraph.passes.graph.training.copy_weights import CopyWeights
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import expand_protocols, is_revealed
from veilgraph.passes.party.prune import prune
from veilgraph.passes.party.verify_masking import verify_own
from veilgraph.passes.program import Level, Program, Protection
from veilgraph.passes.ranges.calibrate import assume, calibrate, mean_sizes
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.count_questions import CountQuestions
from veilgraph.passes.secret.exact_rounding import ExactRounding
from veilgraph.passes.secret.fine_noise import FineNoise
from veilgraph.passes.secret.fuse_pools import FusePools
from veilgraph.passes.secret.keep_states import KeepStates
from veilgraph.passes.secret.local_truncations import LocalTruncations
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.passes.secret.narrow_rings import NarrowRings
from veilgraph.passes.secret.protocols.choose_protocols import ChooseProtocols
from veilgraph.passes.secret.round_outputs import UNKNOWN_BITS, RoundOutputs, enough_bits
from veilgraph.passes.trials import Trials, verifying

Stage = tuple[str, str, Callable[[Program], None]]


def _graph(run: Callable[[Program], Graph]) -> Callable[[Program], None]:
    def stage(program: Program) -> None:
        program.graph = run(program)

    return stage


def _pool_average(program: Program) -> None:
    if program.options.average_pools:
        program.graph = PoolAverage().run(program.graph)


def _drop_clips(program: Program) -> None:
    if program.options.samples is not None and not program.options.keep_clips:
        program.dropped_clips = DropClips(program.options.samples).run(program.graph)


def _reveal_as(program: Program) -> None:
    if program.options.reveal_as:
        program.graph = RevealAs(program.options.reveal_as).run(program.graph)


def _keep_decisions(program: Program) -> None:
    """Drops the outputs that were there to be measured."""
    hidden, names = program.options.hidden, list(program.secret.outputs)
    if not hidden.isdisjoint(names):
        program.secret.keep_outputs([name for name in names if name not in hidden])


def _scale_columns(program: Program) -> None:
    """Of what owners give in secret; other entries may read the same input in another way."""
    options, graph = program.options, program.graph
    if options.samples is None or options.is_joined:
        return
    known = {*graph.states, *options.announced, *options.given_by_all}
    known |= set(graph.whole)  # integers have no scale
    tables = [n for n in graph.inputs if n not in known and program.target.owner(n) != PUBLIC]
    flags = {name: len(given.flagged) for name, given in graph.given.items()}
    program.column_exponents = ScaleColumns(options.samples, tables, flags).run(graph)
    exponents = program.column_exponents
    samples = {
        n: divided(x, exponents.get(n, ())).astype(np.float32) for n, x in options.samples.items()
    }
    program.options = replace(options, samples=samples)


def _copy_weights(program: Program) -> None:
    if program.options.updates:
        program.graph = CopyWeights().run(program.graph)


def _infer_visibility(program: Program) -> None:
    target, graph = program.target, program.graph
    owners = {name: target.owner(name) for name in graph.inputs if name not in graph.states}
    owners |= program.options.given_by_all
    named = owners | {"weights": target.weights_owner}
    program.visibility = InferVisibility(named, program.options.announced).run(graph)
    program.level = Level.VISIBLE


def _ranges(program: Program) -> None:
    options, graph = program.options, program.graph
    places = {
        name: RealRange(0.0, float(given.highest), RangeSource.PROVEN)
        for name, given in graph.given.items()
        if given.takes_text and name in graph.inputs
    }
    if options.samples is None:
        program.ranges = assume(graph).stating("input", places)
    else:
        updates = options.updates.values()
        tolerances = options.tolerances
        found = calibrate(graph, options.samples, program.watch.at, updates, tolerances)
        found = found.reaching(options.reached)
        found = found.stating("input", {**options.state_ranges, **places})
        program.ranges = found.rounding_again(graph, options.updates)


def _encoding(program: Program) -> EncodeFixedPoint:
    options = program.options
    return EncodeFixedPoint(
        ring_bits=options.ring_bits,
        frac_bits=options.frac_bits,
        max_error=options.max_error,
        aim=program.aim,
        spare=program.misses,
        target=program.target,
        trusts_ranges=options.trusts_ranges,
        trains=bool(options.updates),
        rates=options.rates,
        decisions=options.decided_in,
    )


def _encode(program: Program) -> None:
    encode = _encoding(program)
    program.secret = encode.run(program.graph, program.visibility, program.ranges)
    program.level = Level.SECRET


def _merge(program: Program, secret: SecretProgram) -> SecretProgram:
    return MergeTruncations().run(secret)


def _exact_rounding(program: Program, secret: SecretProgram) -> SecretProgram:
    is_exact = program.options.protection is Protection.EXACT
    return ExactRounding().run(secret) if is_exact else secret


def _choose(program: Program, secret: SecretProgram) -> SecretProgram:
    return ChooseComparison().run(secret)


def _fuse_pools(program: Program, secret: SecretProgram) -> SecretProgram:
    return FusePools(program.target.suite).run(secret)


def _round_outputs(program: Program, secret: SecretProgram) -> SecretProgram:
    """With outputs as coarse as the user says, or as the error allowed lets them be."""
    options = program.options
    exact = options.decisions | options.hidden | set(options.states.values())
    revealed = [name for name in secret.outputs if name not in exact]
    bits = dict.fromkeys(revealed, options.frac_bits or UNKNOWN_BITS)
    if options.frac_bits is None and program.ranges.outputs:
        # In a ring that the user chose nothing is allowed, but an error is aimed at, or predicted.
        met = MAX_ERROR if options.ring_bits is None else max(FINE, secret.predicted_error)
        sizes = mean_sizes(program.ranges.outputs)
        allowed = options.max_error or met
        if options.updates:  # what a step may be off by says nothing of the loss that it tells
            allowed = min(allowed, MAX_ERROR)
        bits = {n: enough_bits(sizes[n], allowed) for n in revealed if n in sizes}
    return RoundOutputs(bits).run(secret)


def _keep_states(program: Program, secret: SecretProgram) -> SecretProgram:
    return KeepStates(program.options.states, program.options.like).run(secret)


def _fine_noise(program: Program, secret: SecretProgram) -> SecretProgram:
    return FineNoise().run(secret)


def _narrow_rings(program: Program, secret: SecretProgram) -> SecretProgram:
    return NarrowRings().run(secret)


def _local_truncations(program: Program, secret: SecretProgram) -> SecretProgram:
    is_free = program.options.frac_bits is None and len(program.target.everyone) > 1
    return LocalTruncations().run(secret) if is_free else secret


# Behind `encode_fixed_point`, in this order, whenever a program is encoded.
ENCODED: tuple[tuple[str, str, Callable[[Program, SecretProgram], SecretProgram]], ...] = (
    ("merge_truncations", "one truncation a linear chain, fused with the comparison after it",
     _merge),
    ("exact_rounding", "only on request: a value alone says how it is rounded, and no threshold",
     _exact_rounding),
    ("choose_comparison", "a comparison looks at the bits that can differ, and no others",
     _choose),
    ("fuse_pools", "a max pool compares before the ReLU, in the few bits of its window",
     _fuse_pools),
    ("round_outputs", "bits that the error allowed does not need tell of weights alone",
     _round_outputs),
    ("keep_states", "a run finds a state in the encoding that another left it in", _keep_states),
    ("fine_noise", "noise hides integers if it is added to these, and not to their high bits",
     _fine_noise),
    ("narrow_rings", "what windows alone read is truncated into no wider ring than they are",
     _narrow_rings),
    ("local_truncations", "a product has no bits that make its truncation look for an overflow",
     _local_truncations),
)  # fmt: skip


def _secret(
    run: Callable[[Program, SecretProgram], SecretProgram],
) -> Callable[[Program], None]:
    def stage(program: Program) -> None:
        program.secret = run(program, program.secret)

    return stage


def _encoded(program: Program, encode: EncodeFixedPoint) -> SecretProgram:
    """The graph encoded anew, with all steps behind it."""
    secret = encode.run(program.graph, program.visibility, program.ranges)
    for _, _, run in ENCODED:
        secret = run(program, secret)
    return secret


def revealed(program: Program) -> list[str]:
    """The outputs that go to somebody."""
    states, target = program.options.states, program.target
    return [name for name in program.secret.outputs if is_revealed(name, states, target)]


def _encode_again(program: Program) -> SecretProgram:
    return _encoded(program, _encoding(program))


def _verify_accuracy(program: Program) -> None:
    """Encodes again as long as the samples say that it was not exact enough; the best is taken."""
    if program.options.samples is not None:
        Trials(program, partial(_encode_again, program), program.options.samples).run()


def _choose_approximations(program: Program) -> None:
    """Where the encoding is free to choose, and the samples have borne out what was predicted."""
    options, encoding = program.options, _encoding(program)
    is_predicted = program.secret.predicted_error > 0 and not program.misses
    if options.max_error is None or options.samples is None or not is_predicted:
        return
    is_free = encoding.narrows(program.graph, program.ranges)
    if not (is_free and ChooseApproximations.applies_to(program.graph)):
        return
    program.watch.at("a trial with coarser functions")
    choose = ChooseApproximations(
        TARGET_SHARE * options.max_error,
        verifying(program, options.samples),
        lambda: _encoded(program, replace(encoding, fit_units=COARSE_UNITS)),
        lambda secret: Price.of(secret, program.target),
    )
    program.secret = choose.run(program.secret)


def _choose_protocols(program: Program) -> None:
    options = program.options
    choose = ChooseProtocols(
        program.target,
        options.goal,
        not options.is_prepared,
        options.most_store,
        options.roles,
        options.states,
    )
    program.choices = choose.run(program.secret)


def _expand(program: Program) -> None:
    fixed_roles = program.options.protection is Protection.ROLES
    states = program.options.states
    expanded = expand_protocols(
        program.secret, program.target, fixed_roles, program.choices, states
    )
    program.expanded = prune(expanded)
    program.level = Level.PARTY


def _batch_rounds(program: Program) -> None:
    program.schedule = batch_rounds(program.expanded.program, program.pace)
    program.level = Level.SCHEDULED


def _verify_masking(program: Program) -> None:
    verify_own(program.schedule, program.target, revealed(program))


def count_questions(program: Program) -> None:
    """Of receivers of numbers who do not have the weights."""
    target, forms, secret = program.target, program.options.reveal_as, program.secret
    numbers = [name for name in revealed(program) if name not in forms or not forms[name].decides]
    received = {
        who: (party, [name for name in numbers if who in target.receiver(name)])
        for party, who in enumerate(target.everyone)
        if who != target.weights_owner
    }
    count = CountQuestions(program.ranges, program.expanded, program.schedule, program.entry)
    is_hidden = target.weights_owner != PUBLIC and len(target.everyone) > 1
    asking = {who: (party, names) for who, (party, names) in received.items() if names}
    program.questions = count.run(secret, asking) if is_hidden else []


def check(program: Program) -> None:
    """Holds the level that a stage worked on to its grammar: a wrong pass fails at its own exit."""
    match program.level:
        case Level.GRAPH | Level.VISIBLE:
            check_graph(program.graph, encodable=program.level is Level.VISIBLE)
        case Level.SECRET:
            check_secret(program.secret)
        case Level.PARTY:
            check_party(program.expanded.program)
        case Level.SCHEDULED:
            pass  # checked when it was made; later stages only place it


# What every program of the secret level goes through, whoever made it.
CHOSEN: Stage = (
    "choose_protocols", "of an op's protocols the cheapest on the network, or what a user named",
    _choose_protocols,
)  # fmt: skip
# What entries of one plan go through together (passes/party/join_entries.py).
TO_PARTIES: tuple[Stage, ...] = (
    # party: messages, draws, local computation
    ("expand_protocols", "each op becomes its protocol in the suite; what nothing needs goes",
     _expand),
    ("batch_rounds", "messages that need no other message share a round", _batch_rounds),
    ("verify_masking", "what nothing hides, or nobody asked for, stops the compiler",
     _verify_masking),
)  # fmt: skip
PIPELINE: tuple[Stage, ...] = (
    # graph: tensor maths on real numbers
    ("bound_masks", "what is masked lies below all scores, and no further than a ring holds",
     _graph(lambda p: BoundMasks(p.options.samples).run(p.graph))),
    ("reveal_as", "only on request: a class leaves the computation, and no scores", _reveal_as),
    ("fold_constants", "what depends on weights alone is computed once, where they are known",
     _graph(lambda p: FoldConstants().run(p.graph))),
    ("recognize_activations", "a GELU that is written out is one function, and no product",
     _graph(lambda p: RecognizeActivations().run(p.graph))),
    ("drop_clips", "a quantiser's clip that no sample reaches costs comparisons, and does nothing",
     _drop_clips),
    ("pool_average", "only on request: a max pool costs comparisons, an average pool nothing",
     _pool_average),
    ("fold_batch_norm", "a scale and a shift of a convolution are its weights'",
     _graph(lambda p: FoldBatchNorm().run(p.graph))),
    ("fold_constants after batch norms", "they left arithmetic on weights",
     _graph(lambda p: FoldConstants().run(p.graph))),
    ("approximate", "all becomes sums, products, comparisons, functions of one number",
     _graph(lambda p: Approximate().run(p.graph))),
    ("normalize_by_sums", "a variance from sums of integers is not truncated, nor is the mean",
     _graph(lambda p: NormalizeBySums().run(p.graph))),
    ("fold_divisors", "an average is a sum; its divisor goes into the next layer's weights",
     _graph(lambda p: FoldDivisors().run(p.graph))),
    ("fold_constants after divisors", "so did they",
     _graph(lambda p: FoldConstants().run(p.graph))),
    ("scale_columns", "columns of unlike sizes get scales of their own, at their owner",
     _scale_columns),
    ("share_comparisons", "a backward pass reads the bit of a comparison that is there",
     _graph(lambda p: ShareComparisons().run(p.graph))),
    ("copy_weights", "a weight that trains has bits for its steps, more than its layer needs",
     _copy_weights),
    ("infer_visibility", "what is public needs no protocol", _infer_visibility),
    ("ranges", "scales and windows come from where values lie", _ranges),
    # secret: fixed-point ring maths
    ("encode_fixed_point", "rings and scales by the depth still to come", _encode),
    *((name, reason, _secret(run)) for name, reason, run in ENCODED),
    ("verify_accuracy", "the samples show a plan to be exact enough; else it is encoded again",
     _verify_accuracy),
    ("choose_approximations", "only with an error allowed: coarser Fourier series, if cheaper",
     _choose_approximations),
    ("keep_decisions", "what a class is made of was there to be measured, and stays secret",
     _keep_decisions),
    CHOSEN,
    *TO_PARTIES,
    ("count_questions", "whoever receives numbers may fit weights to how they were rounded",
     count_questions),
)  # fmt: skip
# Of a program that is joined with others.
JOINED = PIPELINE[: PIPELINE.index(CHOSEN) + 1]
