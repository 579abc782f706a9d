"""`veilgraph compile --train`: the options of a plan that trains, and what they are no use for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from click.core import ParameterSource

import veilgraph
from veilgraph.commands import arguments
from veilgraph.commands.files import read_archive
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import OPTIMIZERS, SGD, Optimizer
from veilgraph.plans import Plan
from veilgraph.reports.units import size
from veilgraph.targets.target import Around
from veilgraph.training.plan_steps import step_bytes

Command = TypeVar("Command", bound=Callable[..., Any])
TAKEN = ("ring", "frac_bits", "max_error", "reveal_as", "owners", "dump_phases")
ELSEWHERE = ("receivers", "calibrate")  # under other names
ANYWAY = ("model", "destination", "force", "certificates", "as_json")
DEFAULT = "sgd"
USUAL_MOMENTUM = 0.9  # of the optimizer that others are compared with


@dataclass(frozen=True)
class Trained:
    """What the command line says of training; None and () where it says nothing."""

    loss: str | None
    batch: str | None
    optimizer: str | None
    momentum: float | None
    nesterov: bool | None
    betas: str | None
    eps: float | None
    weight_decay: float | None
    clip_norm: float | None
    rate: float | None
    rehearse: int | None
    freeze: tuple[str, ...]
    max_noise: float | None
    audit: bool | None
    share_once: bool | None
    noise: float | None
    like: Path | None
    loss_every: int | None


OPTIONS = (
    click.option(
        "--train",
        "loss",
        metavar="LOSS",
        help="Compile a plan that trains MODEL: by cross_entropy, binary_cross_entropy, mse, or an "
        "output that is the loss. --calibrate gives rows like those of training, an array an "
        "input, and `labels`. --reveal names who receives `loss`, `parameters` or an output; "
        "nobody does else.",
    ),
    click.option(
        "--batch",
        metavar="ROWS|PARTY=ROWS,...",
        help="With --train: rows of a step. Where several owners have rows of their own, how many "
        "each gives: alice=96,bob=32.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice([*OPTIMIZERS]),
        help="With --train: by what a step is made. What Adam sends beside SGD is said, for which "
        "the model is compiled twice.  [default: sgd]",
    ),
    click.option("--momentum", type=float, metavar="M", help="With --train: of SGD.  [default: 0]"),
    click.option(
        "--nesterov",
        is_flag=True,
        default=None,
        help="With --train and --momentum: Nesterov's, which rounds a parameter twice a step.",
    ),
    click.option(
        "--loss-every",
        type=int,
        metavar="STEPS",
        help="With --train and --reveal loss=PARTY: so many steps after which the mean of their "
        "losses is told.  [default: each step's own]",
    ),
    click.option(
        "--like",
        type=arguments.PATH,
        metavar="PLAN",
        help="With --train: all parties can go on from checkpoints of this other plan, which may "
        "have another batch, rate or loss.",
    ),
    click.option("--betas", metavar="B1,B2", help="With --train: of Adam.  [default: 0.9,0.999]"),
    click.option("--eps", type=float, metavar="E", help="With --train: of Adam.  [default: 0.001]"),
    click.option(
        "--weight-decay",
        type=float,
        metavar="D",
        help="With --train: of the optimizer.  [default: 0, of adamw 0.01]",
    ),
    click.option(
        "--clip-norm",
        type=float,
        metavar="NORM",
        help="With --train: a gradient, of all parameters together, is shortened to this norm "
        "where it is longer.",
    ),
    click.option(
        "--rate",
        type=float,
        metavar="R",
        help="With --train: the rehearsal's learning rate; a run takes any that keeps values in "
        "the rehearsed ranges.  [default: 0.1]",
    ),
    click.option(
        "--rehearse",
        type=int,
        metavar="STEPS",
        help="With --train: steps in float32 that show where values lie.  [default: 100]",
    ),
    click.option(
        "--freeze",
        multiple=True,
        metavar="PATTERN",
        help="With --train: parameters that stay as they are, as 'features.*'. May be repeated.",
    ),
    click.option(
        "--max-noise",
        type=float,
        metavar="SHARE",
        help="With --train: what rounding may add to the variance of gradients between batches.  "
        "[default: 0.05]",
    ),
    click.option(
        "--no-audit",
        "audit",
        flag_value=False,
        type=bool,
        default=None,
        help="With --train: nobody is told whether a parameter left its bounds.",
    ),
    click.option(
        "--noise",
        type=float,
        metavar="SIGMA",
        help="With --train: the standard deviation of what is added to each element of a mean "
        "gradient. Each party that computes adds a part, which nobody else knows.",
    ),
    click.option(
        "--share-once",
        is_flag=True,
        default=None,
        help="With --train: rows are shared once, before the first step, and each party keeps its "
        "shares in memory; a step sends none.",
    ),
)


def options(command: Command) -> Command:
    """Adds the options of training to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def separated(given: Mapping[str, Any], *, compares: bool) -> tuple[Trained, dict[str, Any]]:
    """What is said of training, and all other options.

    Raises:
        UsageError: options of training without --train, or --train where plans are compared.
    """
    names = [field.name for field in fields(Trained)]
    trained = Trained(**{name: given[name] for name in names})
    others = {name: value for name, value in given.items() if name not in names}
    said = [name for name in names if getattr(trained, name) not in (None, ())]
    if trained.loss is None and said:
        raise UsageError(
            f"{_option(said[0])} is said of training, and nothing is trained.",
            "Add --train LOSS, or leave it out.",
        )
    if trained.loss is not None and compares:
        raise UsageError(
            "Comparisons are of plans that infer, and this one trains.", "Leave out --train."
        )
    return trained, others


def _option(name: str) -> str:
    return "--no-audit" if name == "audit" else f"--{name.replace('_', '-')}"


def compiled(
    model: Any, trained: Trained, given: Mapping[str, Any], tell: Callable[[str], None] | None
) -> tuple[Plan, dict[str, Any]]:
    """The plan, and the parameters as they begin.

    Raises:
        UsageError: no rows, no batch, or an option that has no meaning for training; and what
            `compile_training` raises.
    """
    _refuse_others()
    if given["calibrate"] is None or trained.batch is None:
        raise UsageError(
            "Training is compiled for a batch, and rehearsed on rows.",
            "Give --batch ROWS and --calibrate FILE.npz: an array an input, and `labels`.",
        )
    optimizer = _optimizer(trained)
    numbers: dict[str, Any] = {
        "rate": trained.rate,
        "steps": trained.rehearse,
        "max_noise": trained.max_noise,
        "audit": trained.audit,
        "share_once": trained.share_once,
        "noise": trained.noise,
        "like": trained.like,
        "loss_every": trained.loss_every,
    }
    around: Any = {name: given[name] for name in Around.__annotations__}
    plan, weights = veilgraph.compile_training(
        model,
        _rows(given["calibrate"]),
        loss=trained.loss or "",
        batch=_batch(trained.batch),
        optimizer=optimizer,
        clip_norm=trained.clip_norm,
        freeze=trained.freeze,
        reveal=given["receivers"],
        progress=tell,
        **{name: number for name, number in numbers.items() if number is not None},
        **{name: given[name] for name in TAKEN},
        **around,
    )
    return plan, dict(weights)


def price(
    model: Any,
    trained: Trained,
    given: Mapping[str, Any],
    plan: Plan,
    tell: Callable[[str], None] | None,
) -> str:
    """What a step of this plan sends beside one of SGD; "" where it is one.

    Args:
        model, trained, given: what the plan was compiled from.
        tell: told which pass is run of the plan that it is compared with.
    """
    name = trained.optimizer or DEFAULT
    if OPTIMIZERS[name] is SGD:
        return ""
    beside = replace(
        trained,
        optimizer=DEFAULT,
        momentum=USUAL_MOMENTUM,
        betas=None,
        eps=None,
        weight_decay=None,
    )
    other, _ = compiled(model, beside, {**given, "dump_phases": None}, tell)
    sent, less = step_bytes(plan), step_bytes(other)
    return (
        f"A step of {name} sends {size(sent)}, offline and online. One of sgd with momentum "
        f"{USUAL_MOMENTUM} would send {size(less)}."
    )


def _optimizer(trained: Trained) -> Optimizer:
    """UsageError for numbers that it does not take."""
    name = trained.optimizer or DEFAULT
    kind, betas = OPTIMIZERS[name], trained.betas
    said = {
        "momentum": trained.momentum,
        "nesterov": trained.nesterov,
        "betas": None if betas is None else _betas(betas),
        "eps": trained.eps,
        "weight_decay": trained.weight_decay,
    }
    given: dict[str, Any] = {n: number for n, number in said.items() if number is not None}
    for option in given:
        if option not in kind.__dataclass_fields__:
            raise UsageError(f"--{option} is no option of {name}.", "Leave it out.")
    return kind(**given)


def _batch(given: str) -> int | dict[str, int]:
    """UsageError for what is no number of rows, and none by owner."""
    named = [each.rpartition("=") for each in given.split(",")]
    try:
        counts = [(who.strip(), int(rows)) for who, _, rows in named]
    except ValueError:
        counts = []
    owners = dict(counts)
    if len(owners) != max(len(named), 1) or ("" in owners and len(owners) > 1):
        raise UsageError(
            f"--batch {given} says no number of rows.", "Give --batch 128, or alice=96,bob=32."
        )
    return owners.get("", owners)


def _betas(given: str) -> tuple[float, float]:
    try:
        first, second = map(float, given.split(","))
    except ValueError:
        raise UsageError(
            f"--betas {given} are no two numbers.", "Give --betas 0.9,0.999."
        ) from None
    return first, second


def _rows(file: Path) -> dict[str, Any]:
    """Arrays by name; real numbers as float32."""
    return {
        name: array.astype(np.float32) if array.dtype.kind == "f" else array
        for name, array in read_archive(file).items()
    }


def _refuse_others() -> None:
    """UsageError for an option that somebody gave and that training has no meaning for."""
    context = click.get_current_context()
    known = {*TAKEN, *ELSEWHERE, *ANYWAY, *Around.__annotations__}
    known |= {field.name for field in fields(Trained)}
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in known and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{parameter.opts[0]} has no meaning for a plan that trains.", "Leave it out."
            )
