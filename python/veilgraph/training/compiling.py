"""From a model to a plan that trains it.

A plan has the entries `step`, `start`, and, where somebody receives what they tell, `evaluate` and
`reveal`. All are over the same states: the parameters, and with momentum their velocities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.choices import choosing, require_error, ring_bits_of
from veilgraph.compilation.compile import (
    Dump,
    Progress,
    Weights,
    lower_joined,
    lower_program,
    steps_of,
)
from veilgraph.compilation.freed_memory import reused
from veilgraph.compilation.models import (
    Model,
    model_name,
    require_no_weights,
)
from veilgraph.compilation.native_products import NativeProducts
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.batch_owners import BatchOwners
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.plan.tables import COMMON, EACH, UNSAVED
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.ir.training import (
    AUDIT,
    CORRECT,
    CORRECT_SUM,
    COUNTED,
    EVALUATE,
    LABELS,
    LOSS,
    MOST_ANSWERS,
    OVERFLOW,
    REVEAL,
    SGD,
    SHARE,
    START,
    STEP,
    TRAINING,
    Noise,
    Optimizer,
    Rate,
    Recipe,
    require_noise,
    require_norm,
)
from veilgraph.library import AnyPlan, opened_plan
from veilgraph.passes.graph.reveal_as import Form
from veilgraph.passes.graph.training.checks import require_trainable
from veilgraph.passes.graph.training.programs import Training
from veilgraph.passes.program import Options, Program
from veilgraph.plans import Plan
from veilgraph.targets.target import Around, Target, target_at
from veilgraph.training.audits import AUDIT_PASSES, audit_of
from veilgraph.training.batches import checked, decided, weighs
from veilgraph.training.models import counters, judged_by, tied_names
from veilgraph.training.other_plans import kept_in, require_fine, require_reached
from veilgraph.training.rehearsal import Rehearsed, rehearse
from veilgraph.training.row_shares import SHARE_PASSES, shares_of
from veilgraph.training.runs.asked import rate_of, require_count

PARAMETERS = "parameters"  # in place of an output's name: what `reveal` tells
EXACT = 2.0**-12  # error of the parameters as they begin and as they are told, relative to them
LOSS_ERROR = 2.0**-8  # of the mean loss of several steps, relative to it
MAX_NOISE = 0.05


def compile_training(
    model: Model,
    samples: Mapping[str, npt.ArrayLike],
    *,
    loss: str | Callable[..., Any],
    batch: int | Mapping[str, int],
    optimizer: Optimizer | None = None,
    clip_norm: float | None = None,
    rate: Rate = 0.1,
    steps: int = 100,
    freeze: Sequence[str] = (),
    reveal: Mapping[str, str | Sequence[str]] | None = None,
    reveal_as: str | Mapping[str, str] | None = None,
    loss_every: int | None = None,
    audit: bool = True,
    share_once: bool = False,
    noise: float | None = None,
    max_noise: float = MAX_NOISE,
    max_error: float | None = None,
    ring: int | str = "auto",
    frac_bits: int | None = None,
    owners: Mapping[str, str] | None = None,
    like: AnyPlan | None = None,
    dump_phases: str | Path | None = None,
    progress: Progress | None = None,
    **around: Unpack[Around],
) -> tuple[Plan, Weights]:
    """Compiles a step of training, and what goes with it.

    The plan's entries are `step` (a batch in, parameters updated), `start` (parameters become what
    `model` has), `evaluate` (the model's outputs, where `reveal` names one), `reveal` (the
    parameters, where `reveal` names them) and `audit`. By default nobody receives anything but what
    an audit tells every party that computes: whether some state left its bounds, one bit.

    Args:
        model: as in `compile`; a PyTorch module in training mode. Its weights are the parameters.
        samples: rows that whoever compiles may see, like those that it will train on: an array an
            input, an example a row, and `labels` where the loss has a name. Class numbers for
            cross_entropy, else a row like the model's output.
        loss: "cross_entropy" or "binary_cross_entropy" of logits, "mse", or the output that is the
            loss, the mean over the batch. Of a PyTorch module also a function of its output and
            of labels, both tensors, as `torch.nn.HuberLoss()`: it returns one number, and takes
            class numbers as one-hot rows.
        batch: rows of a step; the first extent of each input. Where several owners have rows of
            their own, how many each gives to a step: {"alice": 96, "bob": 32}. Each then gives
            all inputs of its rows, and labels too.
        optimizer: `SGD()` if None.
        clip_norm: the mean gradient of all parameters together is shortened to this norm where it
            is longer, as by `torch.nn.utils.clip_grad_norm_`.
        rate: the learning rate of the rehearsal, or a function of the number of its step. A run may
            use any that keeps values in the rehearsed ranges.
        steps: of the rehearsal.
        freeze: patterns of parameters that stay as they are: "features.*".
        reveal: who receives what, by name: "loss" of each step, an output of the model,
            "parameters", or "correct", how many answers of all rows that are evaluated are their
            labels'.
        reveal_as: as in `compile`, of outputs of the model.
        loss_every: so many steps after which the mean of their losses is told, and no step's own:
            an epoch, for one. The sum is a state. None lets each step tell its loss.
        audit: whether the plan has that entry; without it nothing tells that a value overflowed.
        share_once: rows are shared once, before the first step, and each party keeps its shares of
            them in memory. A step finds its batch there, and sends no rows.
        noise: the standard deviation of what is added to each element of the mean gradient of a
            step, beside what curious parties know: each party that computes adds its own part.
        max_noise: what rounding may add to the variance of a parameter's gradient, as a share of
            the variance between batches that the rehearsal saw.
        max_error: root mean square of what updates are off by, relative to their own, in place of
            what `max_noise` says.
        ring, frac_bits: as in `compile`.
        owners: party by input name, `labels` and `step_size` too; "weights" owns the parameters as
            they begin.
        like: a plan that trains the same model, or the path of one. All parties can go on from its
            checkpoints with the plan that is made: states are kept as that keeps them. What else
            is asked for may differ: batch, rate, loss, receivers. Its parameters may be anywhere
            where that plan's rehearsal saw them, so this one's has to get as far: give the model
            with the parameters that `rehearse` found.
        dump_phases, progress: as in `compile`.
        around: `suite`, `network`, the parties by their roles, and by what protocols are chosen
            (`protocols`, `goal`, `roles`, `prepared`, `most_store`), as in `compile`.

    Returns:
        The plan, and the parameters as they begin, for their owner.

    Raises:
        UsageError: an option, rows or a model that make no sense.
        UnsupportedError: all operations that can't be compiled, or have no derivative.
        AccuracyError: training that leaves float32, or an error that no ring holds.
    """
    require_no_weights(model)
    receivers = {n: (w,) if isinstance(w, str) else tuple(w) for n, w in (reveal or {}).items()}
    if unknown := sorted(around.keys() - Around.__annotations__):
        raise TypeError(f"compile_training() got an unexpected keyword argument {unknown[0]!r}")
    whose, count = _batch(batch)
    how = SGD() if optimizer is None else optimizer
    _check(samples, how, steps, max_noise, max_error)
    require_norm(clip_norm)
    require_noise(noise, how)
    graph, classes = judged_by(model, samples, count, loss)
    training = Training(
        graph,
        loss if isinstance(loss, str) else LOSS,
        how,
        tuple(freeze),
        clip_norm,
        share_once,
        noise is not None,
        whose,
        classes=classes,
        loss_every=_loss_every(loss_every, receivers),
        counts=CORRECT in receivers,
    )
    require_trainable(training)
    rows = _rows(training, samples)
    training = replace(training, weighted=_is_weighted(training, rows))
    chosen = _target(training, receivers, owners, around, audit)
    graphs = _graphs(training, receivers)
    forms = _forms(reveal_as or {}, training, receivers)
    further = (*(SHARE_PASSES if share_once else ()), *(AUDIT_PASSES if audit else ()))
    counter = steps_of("rehearse", len(graphs), progress, further)
    counter.begin("rehearse")
    parties = len(chosen.parties)
    added = None if noise is None else Noise(noise, parties - chosen.coalition)
    with reused():
        found = rehearse(
            training, rows, rate_of(rate), steps, max_noise, noise=added, parties=parties
        )
    common = Options(ring_bits=ring_bits_of(ring), frac_bits=frac_bits, is_joined=True)
    common = choosing(common, around)
    given = _options(training, graphs, found, common, max_error, forms)
    if like is not None:
        shapes = {name: shape_of(graphs[STEP].inputs[name]) for name in training.states}
        other = opened_plan(like)
        kept = kept_in(other, shapes, chosen)
        require_fine(kept, found.variances, training.kept)
        require_reached(other, found.ranges, training.begun)
        given[STEP] = replace(given[STEP], like=kept)
    programs = {
        name: Program(chosen, given[name], graph, products=NativeProducts())
        for name, graph in graphs.items()
    }
    dump = Dump(dump_phases)
    for program in programs.values():
        lower_program(program, counter, dump)
    if share_once:
        programs[SHARE], passes = shares_of(programs[STEP], training, common)
        lower_program(programs[SHARE], counter, dump, passes)
    if audit:
        programs[AUDIT], passes = audit_of(programs[STEP], training, common)
        lower_program(programs[AUDIT], counter, dump, passes)
    plan, weights = lower_joined(programs, graphs, counter, dump, leader=0)
    counter.end()
    return _stating(plan, training, model, added), weights


def _batch(given: int | Mapping[str, int]) -> tuple[BatchOwners, int]:
    """Whose the rows of a batch are, and how many; UsageError for numbers that are none."""
    if not isinstance(given, Mapping):
        return BatchOwners(), require_count(given, "A batch of {} rows")
    counts = {w: require_count(rows, f"A batch of {{}} rows of {w}") for w, rows in given.items()}
    if not counts:
        raise UsageError("A batch has rows of nobody.", "Name an owner, as alice=96.")
    return BatchOwners(counts), sum(counts.values())


def _check(
    samples: Any, optimizer: Any, steps: int, max_noise: float, max_error: float | None
) -> None:
    """Raises UsageError for what makes no sense."""
    if not isinstance(samples, Mapping):
        raise UsageError(
            f"Samples are given as one {type(samples).__name__}, without names.",
            "Give an array by the name of each input, and `labels`.",
        )
    if not isinstance(optimizer, Optimizer):
        raise UsageError(
            f"An optimizer of type {type(optimizer).__name__} makes no sense.",
            "Give veilgraph.SGD(...), Adam(...) or AdamW(...).",
        )
    if steps < 1:
        raise UsageError(f"A rehearsal of {steps} steps shows nothing.", "Give 1 or more.")
    if not 0 < max_noise <= 1:
        raise UsageError(
            f"A noise of {max_noise!r} can't be allowed.",
            "Give a share of the variance between batches above 0 and up to 1, such as 0.05.",
        )
    require_error(max_error)


def _target(
    training: Training,
    receivers: Mapping[str, tuple[str, ...]],
    owners: Mapping[str, str] | None,
    around: Around,
    audit: bool,
) -> Target:
    """Whom everything is from and for; step sizes are told to every party that computes.

    So is what an audit finds.
    """
    outputs = training.forward.outputs
    for name in receivers:
        own = (LOSS, PARAMETERS, CORRECT)
        if name not in own and (name not in outputs or name == training.loss):
            known = [*own, *(n for n in outputs if n != training.loss)]
            raise UsageError(f"There is no `{name}` to reveal.", f"Known are {', '.join(known)}.")
    named = {name: who for name, who in receivers.items() if name != PARAMETERS}
    told = dict.fromkeys(training.begun, receivers.get(PARAMETERS, ()))
    chosen = target_at(around, _owners(training, owners or {}), named | told)
    announced = {
        name: tuple(who for who in chosen.parties if who != chosen.owner(name))
        for name in training.announced
    }
    kept = {name: who for name, who in chosen.receivers.items() if who}
    announced |= {OVERFLOW: chosen.parties} if audit else {}
    if chosen.suite.states is None:
        raise UsageError(
            f"Suite {chosen.suite.name} keeps nothing from run to run, so nothing is trained.",
            "Take another --suite.",
        )
    assert kept.keys().isdisjoint(announced), "what the plan tells has a name of its own"
    return replace(chosen, receivers=kept | announced)


def _owners(training: Training, given: Mapping[str, str]) -> dict[str, str]:
    """Of all that has one, each owner's rows among it."""
    found = dict(given)
    for name in training.row_shapes:
        parts = training.batch.owners(name)
        if parts and name in given:
            raise UsageError(
                f"All rows of `{name}` are {given[name]}'s, and of a batch they are those of "
                f"{', '.join(training.batch.rows)}.",
                "Leave out that owner, or give `batch` as one number.",
            )
        found |= parts
    return found


def _graphs(training: Training, receivers: Mapping[str, tuple[str, ...]]) -> dict[str, Graph]:
    """A program for each entry, the step first."""
    tells_each = LOSS in receivers and not training.loss_every
    graphs = {STEP: training.step(reveals_loss=tells_each), START: training.start()}
    if training.loss_every:
        graphs[LOSS] = training.telling()
    outputs = [name for name in training.forward.outputs if name in receivers]
    if outputs or training.counts:
        graphs[EVALUATE] = training.evaluation(outputs)
    if training.counts:
        graphs[CORRECT] = training.answering()
    if PARAMETERS in receivers:
        graphs[REVEAL] = training.release()
    return graphs


def _rows(
    training: Training, samples: Mapping[str, npt.ArrayLike]
) -> dict[str, npt.NDArray[np.float32]]:
    """The samples of a step's own inputs."""
    shapes = training.row_shapes
    for name in samples:
        if name not in shapes:
            raise UsageError(
                f"There are samples of `{name}`, which is no input of a step.",
                f"Its inputs are {', '.join(shapes)}.",
            )
    return checked(samples, shapes, replace(training.labels, weighted=True))


def _is_weighted(training: Training, rows: Mapping[str, npt.NDArray[np.float32]]) -> bool:
    """Whether rows of labels have weights, for which a step multiplies once more."""
    return training.labels.loss == "cross_entropy" and bool(weighs(rows[LABELS]).any())


def _forms(
    given: str | Mapping[str, str], training: Training, receivers: Mapping[str, tuple[str, ...]]
) -> dict[str, Form]:
    """What is revealed in place of outputs of the model, by name."""
    told = [name for name in training.forward.outputs if name in receivers]
    named = dict.fromkeys(told, given) if isinstance(given, str) else given
    for name in named:
        if name not in told:
            known = ", ".join(told) or "none"
            raise UsageError(
                f"Nobody receives an output `{name}` of the model.",
                f"The outputs that somebody receives are: {known}.",
            )
    return {name: Form.parse(text) for name, text in named.items()}


def _options(
    training: Training,
    graphs: Mapping[str, Graph],
    found: Rehearsed,
    common: Options,
    max_error: float | None,
    forms: Mapping[str, Form],
) -> dict[str, Options]:
    """What is decided about each entry's program."""
    states, updates = training.states, training.updates
    samples = {**found.samples, **{s: found.samples[n] for n, s in training.held.items()}}
    counted, counts = _counted(training, samples)
    own = {
        name: {
            n: x
            for n, x in (samples if name == STEP else samples | counted).items()
            if n in graph.inputs
        }
        for name, graph in graphs.items()
    }
    ranges = {
        name: {n: r for n, r in {**found.ranges, **counts}.items() if n in graph.inputs}
        for name, graph in graphs.items()
    }
    every = {
        STEP: replace(
            common,
            max_error=max_error or (found.allowed if common.frac_bits is None else None),
            tolerances=_tolerances(training, found, max_error),
            states=states,
            updates=updates,
            announced=training.announced,
            rates=training.rates,
            reached=found.reached,
            given_by_all={
                **dict.fromkeys(training.masks, COMMON),
                **dict.fromkeys(training.noises.values(), EACH),
            },
        ),
        START: replace(common, ring_bits=None, frac_bits=None, max_error=EXACT, states=states),
        EVALUATE: replace(
            common,
            reveal_as=forms,
            states=training.counting,
            counted=training.counted,
            given_by_all={COUNTED: COMMON} if training.counts else {},
        ),
        CORRECT: replace(common, ring_bits=None, frac_bits=None, states=training.counting),
        LOSS: replace(
            common,
            ring_bits=None,
            frac_bits=None,
            max_error=LOSS_ERROR,
            states={name: states[name] for name in training.summed},
        ),
        REVEAL: replace(common, ring_bits=None, frac_bits=None, max_error=EXACT),
    }
    return {
        name: replace(every[name], samples=own[name], state_ranges=ranges[name]) for name in graphs
    }


def _counted(
    training: Training, samples: Mapping[str, npt.NDArray[np.float32]]
) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, RealRange]]:
    """What an evaluation that counts takes besides: as many answers as there may be, of labels that
    decide; and where their sum lies.
    """
    if not training.counts:
        return {}, {}
    labels = {
        name: decided(samples[name], training.labels) for name in training.batch.parts(LABELS)
    }
    count = len(next(iter(labels.values())))
    most = np.full((count, 1), MOST_ANSWERS, np.float32)
    every = np.ones((count, training.rows), np.float32)
    known = RealRange(0.0, float(MOST_ANSWERS), RangeSource.PROVEN)
    return {**labels, COUNTED: every, CORRECT_SUM: most}, {CORRECT_SUM: known}


def _tolerances(training: Training, found: Rehearsed, max_error: float | None) -> dict[str, float]:
    """How many times as much outputs of a step may be off by, by output."""
    least = max_error or found.allowed
    sums = {training.updates[name]: LOSS_ERROR / least for name in training.summed}
    return {
        **({} if max_error else found.tolerances),
        **{name: tolerance for name, tolerance in sums.items() if tolerance > 1.0},
    }


def _loss_every(given: int | None, receivers: Mapping[str, tuple[str, ...]]) -> int:
    """UsageError for an interval that makes no sense, or of what nobody is told."""
    if given is None:
        return 0
    if given < 1:
        raise UsageError(f"A loss after each {given} steps makes no sense.", "Give 1 or more.")
    if LOSS not in receivers:
        raise UsageError(
            f"A loss would be told after each {given} steps, and nobody receives it.",
            "Name who does, as `reveal` of loss, or leave out the interval.",
        )
    return given


def _stating(plan: Plan, training: Training, model: Model, noise: Noise | None) -> Plan:
    """The plan, its manifest with how it trains."""
    recipe = Recipe(
        training.loss,
        training.optimizer,
        training.clip_norm,
        training.rows,
        training.labels.classes,
        training.parameters,
        tied_names(model, training.begun),
        training.statistics,
        counters(model, training),
        training.masks,
        noise,
        training.shares,
        training.batch,
        training.weighted,
        training.loss_every,
    )
    options = {**plan.manifest.options, TRAINING: recipe.stated()}
    unsaved = [*training.held.values(), *training.counting]
    options |= {UNSAVED: unsaved} if unsaved else {}
    return replace(
        plan, model_name=model_name(model), manifest=replace(plan.manifest, options=options)
    )
