"""The ordered list of passes, a reason a line. `compilation.py` runs it; `--dump-phases` shows it.

A stage reads and replaces parts of one `Program`; what a level's text looks like after each stage
is in `Program.text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from veilgraph.ir.graph import Graph
from veilgraph.ir.legality import check_graph, check_secret
from veilgraph.ir.party_legality import check_party
from veilgraph.ir.plan import PUBLIC
from veilgraph.ir.secret import SecretProgram
from veilgraph.passes.approximate import Approximate
from veilgraph.passes.batch_rounds import Schedule, batch_rounds
from veilgraph.passes.bound_masks import BoundMasks
from veilgraph.passes.choose_approximations import COARSE_UNITS, ChooseApproximations, Price
from veilgraph.passes.choose_comparison import ChooseComparison
from veilgraph.passes.count_questions import CountQuestions, Questions
from veilgraph.passes.encode_fixed_point import AIM, FINE, MAX_ERROR, UNUSABLE, EncodeFixedPoint
from veilgraph.passes.exact_rounding import ExactRounding
from veilgraph.passes.expand_protocols import Expanded, expand_protocols
from veilgraph.passes.fold_batch_norm import FoldBatchNorm
from veilgraph.passes.fold_constants import FoldConstants
from veilgraph.passes.fold_divisors import FoldDivisors
from veilgraph.passes.infer_visibility import InferVisibility, Visibility
from veilgraph.passes.merge_truncations import MergeTruncations
from veilgraph.passes.normalize_by_sums import NormalizeBySums
from veilgraph.passes.pool_average import PoolAverage
from veilgraph.passes.prune import prune
from veilgraph.passes.ranges import Ranges, assume, calibrate
from veilgraph.passes.reveal_as import Form, RevealAs, before, scope
from veilgraph.passes.round_outputs import UNKNOWN_BITS, RoundOutputs, enough_bits, mean_sizes
from veilgraph.passes.verify_accuracy import Measured, VerifyAccuracy, missed
from veilgraph.passes.verify_masking import coalitions, verify_masking
from veilgraph.targets.target import Target

Samples = Mapping[str, npt.NDArray[np.float32]]
LARGEST_CUT = 0.7  # of the aim, where the samples say that it was too high
MOST_CUTS = 4  # before what is predicted is trusted no more
ON_TARGET = 2  # times less than is aimed at may be predicted: rungs are coarse
LEAST_AIM = 2.0**-30  # more than any ring can do


class Protection(Enum):
    """What is done about thresholds of inner truncations that a receiver knows."""

    NONE = "none"
    ROLES = "roles"  # the receiver has the role that knows none, where a protocol has one
    EXACT = "exact"  # truncations are put right by comparisons


@dataclass(frozen=True)
class Options:
    """What a user may decide about the passes.

    Attributes:
        samples: real inputs for calibration, samples on a new first axis; None: ranges unknown.
        ring_bits: width of every ring; None lets the encoding choose.
        frac_bits: of every value; None lets the encoding choose.
        average_pools: take average pools in place of max pools.
        max_error: mean error of the outputs, relative to their mean size, that is allowed on the
            samples; None leaves it to the encoding. Of an output that is revealed as a decision
            it is that of the numbers it is made of.
        reveal_as: what is revealed in place of outputs, by name.
        trusts_ranges: real functions hold on calibrated ranges with their margin, and no further.
        public: the model's parameters that every party may know, which the front door made
            constants.
        protection: of weights from a receiver who knows how values are rounded.
    """

    samples: Samples | None = None
    ring_bits: int | None = None
    frac_bits: int | None = None
    average_pools: bool = False
    max_error: float | None = None
    reveal_as: Mapping[str, Form] = field(default_factory=dict)
    trusts_ranges: bool = False
    public: tuple[str, ...] = ()
    protection: Protection = Protection.NONE


@dataclass
class Program:
    """A program on its way down; each level is there once a stage has made it."""

    target: Target
    options: Options
    graph: Graph
    aim: float = AIM  # share of the error allowed that the encoding predicts at most
    misses: int = 0  # how often the samples said that this was not enough
    visibility: Visibility = field(init=False)
    ranges: Ranges = field(init=False)
    secret: SecretProgram = field(init=False)
    expanded: Expanded = field(init=False)
    schedule: Schedule = field(init=False)
    questions: list[Questions] = field(init=False)


Stage = tuple[str, str, Callable[[Program], None]]


def _graph(run: Callable[[Program], Graph]) -> Callable[[Program], None]:
    def stage(program: Program) -> None:
        program.graph = run(program)

    return stage


def _pool_average(program: Program) -> None:
    if program.options.average_pools:
        program.graph = PoolAverage().run(program.graph)


def _reveal_as(program: Program) -> None:
    if program.options.reveal_as:
        program.graph = RevealAs(program.options.reveal_as).run(program.graph)


def _measured(program: Program) -> list[Mapping[str, npt.NDArray[np.float32]]]:
    """The outputs that samples are judged by: a decision is right or wrong, and has no error."""
    decisions = {name for name, form in program.options.reveal_as.items() if form.decides}
    return [
        {name: value for name, value in outputs.items() if name not in decisions}
        for outputs in program.ranges.outputs
    ]


def _hidden(program: Program) -> set[str]:
    """The outputs that are there to be measured."""
    return {before(name, form) for name, form in program.options.reveal_as.items()}


def _keep_decisions(program: Program) -> None:
    """Drops the outputs that were there to be measured."""
    hidden, names = _hidden(program), list(program.secret.outputs)
    if not hidden.isdisjoint(names):
        program.secret.keep_outputs([name for name in names if name not in hidden])


def _infer_visibility(program: Program) -> None:
    target, graph = program.target, program.graph
    owners = {name: target.owner(name) for name in graph.inputs}
    named = owners | {"weights": target.weights_owner}
    program.visibility = InferVisibility(named).run(graph)


def _ranges(program: Program) -> None:
    options, graph = program.options, program.graph
    program.ranges = assume(graph) if options.samples is None else calibrate(graph, options.samples)


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
        decisions=tuple(scope(*named) for named in options.reveal_as.items() if named[1].decides),
    )


def _encode(program: Program) -> None:
    encode = _encoding(program)
    program.secret = encode.run(program.graph, program.visibility, program.ranges)


def _secret(run: Callable[[SecretProgram], SecretProgram]) -> Callable[[Program], None]:
    def stage(program: Program) -> None:
        program.secret = run(program.secret)

    return stage


_merge = _secret(lambda secret: MergeTruncations().run(secret))


def _exact_rounding(program: Program) -> None:
    if program.options.protection is Protection.EXACT:
        program.secret = ExactRounding().run(program.secret)


_choose = _secret(lambda secret: ChooseComparison().run(secret))


def _rounded(program: Program, secret: SecretProgram) -> SecretProgram:
    """With outputs as coarse as the user says, or as the error allowed lets them be."""
    options = program.options
    decisions = {name for name, form in options.reveal_as.items() if form.decides}
    exact = decisions | _hidden(program)
    revealed = [name for name in secret.outputs if name not in exact]
    bits = dict.fromkeys(revealed, options.frac_bits or UNKNOWN_BITS)
    if options.frac_bits is None and program.ranges.outputs:
        # In a ring that the user chose nothing is allowed, but an error is aimed at, or predicted.
        met = MAX_ERROR if options.ring_bits is None else max(FINE, secret.predicted_error)
        sizes = mean_sizes(program.ranges.outputs)
        allowed = options.max_error or met
        bits = {n: enough_bits(sizes[n], allowed) for n in revealed if n in sizes}
    return RoundOutputs(bits).run(secret)


def _round_outputs(program: Program) -> None:
    program.secret = _rounded(program, program.secret)


def _verifying(program: Program, given: Samples) -> VerifyAccuracy:
    outputs = _measured(program)
    samples = [{name: x[i] for name, x in given.items()} for i in range(len(outputs))]
    return VerifyAccuracy(samples, outputs)


def _verify_accuracy(program: Program) -> None:
    """Encodes again as long as the samples say that it was not exact enough; the best is taken."""
    options = program.options
    if options.samples is None:
        return
    verify = _verifying(program, options.samples)
    chosen = options.ring_bits is None and options.frac_bits is None
    allowed = options.max_error or (MAX_ERROR if chosen else UNUSABLE)
    best = found = verify.measure(program.secret)
    while found.error > allowed and options.frac_bits is None and program.misses <= MOST_CUTS:
        _encode_finer(program, found, allowed)
        found = verify.measure(program.secret)
        best = min(best, found, key=lambda measured: measured.error)
    if best.error > (options.max_error or UNUSABLE):
        raise missed(best, allowed, _given(options))
    program.secret = verify.told(best, allowed)


def _given(options: Options) -> str:
    """What the encoding could not choose."""
    if options.frac_bits is not None:
        return f"With {options.frac_bits} fraction bits for every value"
    return f"In a ring of {options.ring_bits} bits" if options.ring_bits else ""


def _encode_finer(program: Program, found: Measured, allowed: float) -> None:
    """Encodes for as much less than was predicted as the samples ask for.

    After a few tries derivatives have nothing to say about this program: then all of it is in one
    ring, its bits shared evenly.
    """
    program.misses += 1
    predicted = ON_TARGET * found.program.predicted_error / allowed
    cut = min(LARGEST_CUT, AIM * allowed / found.error)
    program.aim = max(LEAST_AIM, min(program.aim, predicted) * cut)
    if program.misses > MOST_CUTS:
        program.ranges = program.ranges.without_gains()
    for stage in (_encode, _merge, _exact_rounding, _choose, _round_outputs):
        stage(program)


def _choose_approximations(program: Program) -> None:
    """Where the encoding is free to choose, and the samples have borne out what was predicted."""
    options, encoding = program.options, _encoding(program)
    is_predicted = program.secret.predicted_error > 0 and not program.misses
    if options.max_error is None or options.samples is None or not is_predicted:
        return
    is_free = encoding.narrows(program.graph, program.ranges)
    if not (is_free and ChooseApproximations.applies_to(program.graph)):
        return

    def encoded() -> SecretProgram:
        coarse = replace(encoding, fit_units=COARSE_UNITS)
        plain = coarse.run(program.graph, program.visibility, program.ranges)
        merged = MergeTruncations().run(plain)
        if options.protection is Protection.EXACT:
            merged = ExactRounding().run(merged)
        return _rounded(program, ChooseComparison().run(merged))

    choose = ChooseApproximations(
        AIM * options.max_error,
        _verifying(program, options.samples),
        encoded,
        lambda secret: Price.of(secret, program.target),
    )
    program.secret = choose.run(program.secret)


def _expand(program: Program) -> None:
    fixed_roles = program.options.protection is Protection.ROLES
    program.expanded = prune(expand_protocols(program.secret, program.target, fixed_roles))


def _batch_rounds(program: Program) -> None:
    program.schedule = batch_rounds(program.expanded.program)


def _verify_masking(program: Program) -> None:
    target = program.target
    receivers = {
        name: [target.parties.index(who) for who in target.receiver(name)]
        for name in program.secret.outputs
    }
    verify_masking(program.schedule, coalitions(target), receivers)


def _count_questions(program: Program) -> None:
    """Of receivers of numbers who do not have the weights."""
    target, forms, secret = program.target, program.options.reveal_as, program.secret
    numbers = [name for name in secret.outputs if name not in forms or not forms[name].decides]
    received = {
        who: (party, [name for name in numbers if who in target.receiver(name)])
        for party, who in enumerate(target.parties)
        if who != target.weights_owner
    }
    count = CountQuestions(program.ranges, program.expanded, program.schedule)
    is_hidden = target.weights_owner != PUBLIC and len(target.parties) > 1
    asking = {who: (party, names) for who, (party, names) in received.items() if names}
    program.questions = count.run(secret, asking) if is_hidden else []


def check(program: Program) -> None:
    """Holds the level that a stage worked on to its grammar: a wrong pass fails at its own exit."""
    if hasattr(program, "schedule"):
        return  # the party-level program was checked when it was made; later stages only place it
    if hasattr(program, "expanded"):
        check_party(program.expanded.program)
    elif hasattr(program, "secret"):
        check_secret(program.secret)
    else:
        check_graph(program.graph, encodable=hasattr(program, "visibility"))


PIPELINE: tuple[Stage, ...] = (
    # graph: tensor maths on real numbers
    ("bound_masks", "what is masked lies below all scores, and no further than a ring holds",
     _graph(lambda p: BoundMasks(p.options.samples).run(p.graph))),
    ("reveal_as", "only on request: a class leaves the computation, and no scores", _reveal_as),
    ("fold_constants", "what depends on weights alone is computed once, where they are known",
     _graph(lambda p: FoldConstants().run(p.graph))),
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
    ("infer_visibility", "what is public needs no protocol", _infer_visibility),
    ("ranges", "scales and windows come from where values lie", _ranges),
    # secret: fixed-point ring maths
    ("encode_fixed_point", "rings and scales by the depth still to come", _encode),
    ("merge_truncations", "one truncation a linear chain, fused with the comparison after it",
     _merge),
    ("exact_rounding", "only on request: a value alone says how it is rounded, and no threshold",
     _exact_rounding),
    ("choose_comparison", "a comparison looks at the bits that can differ, and no others",
     _choose),
    ("round_outputs", "bits that the error allowed does not need tell of weights alone",
     _round_outputs),
    ("verify_accuracy", "a plan is made of what the samples have shown to be exact enough",
     _verify_accuracy),
    ("choose_approximations", "only with an error allowed: coarser sums of waves, if cheaper",
     _choose_approximations),
    ("keep_decisions", "what a class is made of was there to be measured, and stays secret",
     _keep_decisions),
    # party: messages, draws, local computation
    ("expand_protocols", "each op becomes its protocol in the suite; what nothing needs goes",
     _expand),
    ("batch_rounds", "messages that need no other message share a round", _batch_rounds),
    ("verify_masking", "what nothing hides, or nobody asked for, stops the compiler",
     _verify_masking),
    ("count_questions", "whoever receives numbers may fit weights to how they were rounded",
     _count_questions),
    # emit_plan follows: it lowers the schedule (passes/lower.py), and makes the plan of its tables
)  # fmt: skip
