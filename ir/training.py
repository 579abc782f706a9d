"""What a plan that trains and whoever runs it agree on: entries, names, and public factors.

No MLIR: hosts read it from a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from veilgraph.ir.batch_owners import ALL, BatchOwners
from veilgraph.ir.errors import UsageError
from veilgraph.ir.roles import given_by

if TYPE_CHECKING:
    import numpy.typing as npt

STEP, START, EVALUATE, REVEAL = "step", "start", "evaluate", "reveal"  # entries
SHARE = "share"  # the entry that shares a batch of rows, where steps read shares of rows
HELD = ".rows"  # behind the name of an input: the state that holds a batch of such shares
NOISE = ".noise"  # behind a parameter's name: what each party adds a part of to its update
AUDIT = "audit"  # the entry that tells whether a state is outside of its bounds
OVERFLOW = "overflow"  # its output: 1 if one is, else 0
STEP_SIZE, MOMENTUM, DECAY = "step_size", "momentum", "decay"  # a step's public inputs
AHEAD = "_ahead"  # behind their names: what Nesterov's momentum takes from a parameter
MEAN_KEPT, MEAN_NEW = "mean_kept", "mean_new"  # Adam's: of its means, and of gradients in them
SQUARE_KEPT, SQUARE_NEW = "square_kept", "square_new"
VELOCITY = ".velocity"  # behind a parameter's name: the state that is its last update
MEAN, SQUARE = ".mean", ".square"  # the states that are means of gradients and of their squares
MEAN_SHARE = "mean_share_"  # ahead of how many batches a mean over all was of at first
RUNNING_MEAN, COUNTER = "running_mean", "num_batches_tracked"  # buffers of PyTorch's batch norms
LABELS = "labels"  # the input that a named loss compares with
LOSS = "loss"  # the output that is a step's mean loss, and the entry that tells one of several
BEGUN = ".start"  # behind a state's name: the weight that it is at first
LOSS_SUM = "loss.sum"  # the state that is the sum of losses that were not told yet
CORRECT = "correct"  # the number of correct answers of an evaluation, and the entry that tells it
CORRECT_SUM = "correct.sum"  # the state that is their sum over the batches so far
COUNTED = "counted"  # a public input of `evaluate`: 1 for a row, 0 for what fills a batch
MOST_ANSWERS = 1 << 20  # of one evaluation
TRAINING = "training"  # of a manifest's options, what `Recipe.stated` says
Rate = float | Callable[[int], float]
Schedule = Callable[[int], float]
Array: TypeAlias = "npt.NDArray[Any]"
Masks = Mapping[str, tuple[float, tuple[int, ...]]]


def require_rate(rate: float) -> float:
    """A learning rate; UsageError unless it is a number above 0."""
    if not 0 < rate < float("inf"):
        raise UsageError(f"A learning rate of {rate!r} makes no sense.", "Give a number above 0.")
    return float(rate)


def schedule(rate: Rate) -> Schedule:
    """The learning rate by the number of a step; UsageError for one that is none, when asked.

    A schedule may begin or end with 0.
    """

    def by_step(step: int) -> float:
        if not callable(rate):
            return require_rate(rate)
        found = rate(step)
        return 0.0 if found == 0 else require_rate(found)

    return by_step


def _require_below_one(what: str, number: float) -> None:
    if not 0 <= number < 1:
        raise UsageError(f"A {what} of {number!r} makes no sense.", "Give a number in [0, 1).")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, as `torch.optim.SGD`.

    A step takes u = momentum u + step_size g + decay w from a parameter w; g is B times the
    gradient of the mean loss over B rows. u is the velocity times the learning rate, so a change of
    the rate changes the factor of u once.

    Attributes:
        momentum: of the velocity, in [0, 1); 0 keeps none.
        weight_decay: times a parameter is added to its gradient; in [0, 1).
        nesterov: a step takes what it adds to u and momentum times the u after that, so it has two
            roundings a parameter, and not one (Sutskever et al., ICML 2013).
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _require_below_one("momentum", self.momentum)
        _require_below_one("weight decay", self.weight_decay)
        if self.nesterov and not self.momentum:
            raise UsageError("Nesterov's momentum of 0 is none.", "Give a momentum, such as 0.9.")

    @property
    def kept(self) -> tuple[str, ...]:
        """Behind a parameter's name: the states that go with it."""
        return (VELOCITY,) if self.momentum else ()

    @property
    def factors(self) -> tuple[str, ...]:
        """The public inputs of a step, single numbers."""
        used = {STEP_SIZE: True, MOMENTUM: self.momentum > 0, DECAY: self.weight_decay > 0}
        names = tuple(name for name, is_used in used.items() if is_used)
        return names + tuple(f"{name}{AHEAD}" for name in names if self.nesterov)

    def values(self, rate: float, before: float, rows: int, number: int) -> dict[str, float]:
        """What these inputs are in a step.

        Args:
            rate: the learning rate, 0 or above.
            before: that of the step before. If it was 0, u is 0, where a velocity is not.
            rows: B.
            number: of the step, from 0 on.
        """
        every = {
            STEP_SIZE: rate / rows,
            MOMENTUM: self.momentum * rate / before if before else self.momentum,
            DECAY: self.weight_decay * rate,
        }
        further = {STEP_SIZE: 1 + self.momentum, MOMENTUM: self.momentum, DECAY: 1 + self.momentum}
        every |= {f"{name}{AHEAD}": further[name] * number for name, number in every.items()}
        return {name: every[name] for name in self.factors}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, ICLR 2015), as `torch.optim.Adam`, but for where eps is.

    A step takes rate m / sqrt(v + (B eps)^2) from a parameter; PyTorch has sqrt(v) + B eps. m and v
    are the means of g and g^2, both over their weights' sum (the bias that the paper corrects), so
    they lie where gradients lie from the first step on. g is B times the mean loss's gradient.

    Attributes:
        betas: the share of the means of m and v that stays in a step, in [0, 1).
        eps: of a gradient, below which a parameter's steps are shorter; above 0. The function takes
            numbers from (B eps)^2 on, so a tiny one costs bits.
        weight_decay: times a parameter is added to its gradient; in [0, 1).
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for beta in self.betas:
            _require_below_one("beta", beta)
        _require_below_one("weight decay", self.weight_decay)
        if not 0 < self.eps < float("inf"):
            raise UsageError(
                f"An eps of {self.eps!r} makes no sense.", "Give a number above 0, such as 0.001."
            )

    @property
    def kept(self) -> tuple[str, ...]:
        """Behind a parameter's name: the states that go with it."""
        return (MEAN, SQUARE)

    @property
    def factors(self) -> tuple[str, ...]:
        """The public inputs of a step, single numbers."""
        own = (STEP_SIZE, MEAN_KEPT, MEAN_NEW, SQUARE_KEPT, SQUARE_NEW)
        return (*own, DECAY) if self.weight_decay else own

    def values(self, rate: float, before: float, rows: int, number: int) -> dict[str, float]:
        """What these inputs are in a step; as of `SGD`."""
        (mean_kept, mean_new), (square_kept, square_new) = (
            _averaging(beta, number) for beta in self.betas
        )
        every = {
            STEP_SIZE: rate,
            MEAN_KEPT: mean_kept,
            MEAN_NEW: mean_new,
            SQUARE_KEPT: square_kept,
            SQUARE_NEW: square_new,
            DECAY: self._decay(rate, rows),
        }
        return {name: every[name] for name in self.factors}

    def _decay(self, rate: float, rows: int) -> float:
        return self.weight_decay * rows


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam, whose weight decay is no part of the gradient (Loshchilov and Hutter, ICLR 2019).

    Attributes:
        weight_decay: times the rate and a parameter is taken from it; in [0, 1).
    """

    weight_decay: float = 0.01

    def _decay(self, rate: float, rows: int) -> float:
        return self.weight_decay * rate


def _averaging(beta: float, number: int) -> tuple[float, float]:
    """Factors of the mean so far, and of what is new, for weights beta^i in step `number`."""
    whole = 1 - beta ** (number + 1)
    return beta * (1 - beta**number) / whole, (1 - beta) / whole


Optimizer = SGD | Adam
OPTIMIZERS: Mapping[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def require_norm(most: float | None) -> None:
    """UsageError unless gradients can be shortened to this norm; None leaves them as they are."""
    if most is not None and not 0 < most < float("inf"):
        raise UsageError(
            f"A norm of {most!r} makes no sense.", "Give a number above 0: gradients are no longer."
        )


def mean_shares(shares: Mapping[str, int], number: int) -> dict[str, float]:
    """A batch's share of the mean over all, in step `number` from 0 on; as `Recipe.shares`."""
    return {name: 1 / (batches + number + 1) for name, batches in shares.items()}


def require_noise(spread: float | None, optimizer: Optimizer) -> None:
    """UsageError unless updates of this optimizer can have noise of this spread; None is none."""
    if spread is None:
        return
    if not 0 < spread < float("inf"):
        raise UsageError(
            f"Noise of {spread!r} makes no sense.", "Give the standard deviation of a gradient's."
        )
    if not isinstance(optimizer, SGD) or optimizer.nesterov:
        raise UsageError(
            "Noise is added to what a step takes from a parameter once, and this optimizer makes "
            "two numbers of a gradient.",
            "Take SGD without nesterov.",
        )


@dataclass(frozen=True)
class Noise:
    """The noise of a step.

    Attributes:
        spread: the standard deviation of what is added to an element of the mean gradient, without
            what curious parties know of it.
        honest: of how many parties at least nobody knows the noise: n - t.
    """

    spread: float
    honest: int

    def variance(self, rate: float, frac_bits: int) -> int:
        """Of one party's part of an update, in units of 2^-frac_bits, squared; rounded up.

        The part is rate times the gradient's, as updates are.
        """
        spread = Fraction(rate) * Fraction(self.spread) * Fraction(2) ** frac_bits
        return math.ceil(spread * spread / self.honest)


@dataclass(frozen=True)
class Labels:
    """What rows of labels may be.

    Attributes:
        loss: that compares with them; of another name where the model computes its loss itself.
        classes: numbers in a row; 0 where there are no labels.
        weighted: rows of `cross_entropy` may sum to any number, which weighs the row; to 1 else.
        decide: each is one class, or 0 or 1: answers are counted that are the same.
    """

    loss: str
    classes: int
    weighted: bool = False
    decide: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a plan trains, as its manifest states it.

    Attributes:
        loss: by name, or the output of the model that is one.
        optimizer: by whose public factors a run goes.
        clip_norm: no gradient of all parameters together is longer; None where it may be.
        rows: B.
        classes: how many numbers a row of labels has; 0 where the model computes its loss itself.
        parameters: the states that are trained, by name.
        tied: further names that a module has for states, each with the state's.
        statistics: the states that are running means and variances of batches.
        masks: by which a step's dropouts multiply: the share that is dropped, and the shape, by
            name.
        counters: of a module's counts of batches, by name, where each begins and by how much a step
            raises it.
        noise: what each party adds a part of to the updates of all parameters; None if none does.
        shares: public inputs of a step that are its share of means over all batches, each with how
            many batches these were of at first.
        batch: whose the rows of a batch are.
        weighted: as of `Labels`.
        loss_every: so many steps after which their mean loss is told; 0 where each tells its own.
    """

    loss: str
    optimizer: Optimizer
    clip_norm: float | None
    rows: int
    classes: int
    parameters: tuple[str, ...]
    tied: Mapping[str, str] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    masks: Masks = field(default_factory=dict)
    noise: Noise | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    batch: BatchOwners = field(default_factory=BatchOwners)
    weighted: bool = False
    loss_every: int = 0

    @property
    def taken(self) -> Mapping[str, int]:
        """How many rows a step takes, by owner; under `ALL` where they are of the same examples."""
        return self.batch.rows or {ALL: self.rows}

    @property
    def labels(self) -> Labels:
        """What rows of labels may be."""
        return Labels(self.loss, self.classes, self.weighted)

    @property
    def answers(self) -> int:
        """How many answers a row has, where they can be counted."""
        return 1 if self.loss == "cross_entropy" else self.classes

    def tells_loss(self, steps: int) -> bool:
        """Whether the mean loss of the last steps is told after so many."""
        return self.loss_every > 0 and steps % self.loss_every == 0

    @property
    def announced(self) -> tuple[str, ...]:
        """The public inputs of a step, which their owner tells every party that computes."""
        return (*self.optimizer.factors, *self.shares)

    def is_row(self, name: str) -> bool:
        """Whether an input of a step is of rows, and none that all parties give."""
        who = name.rpartition("@")[2]
        noises = (f"{each}{NOISE}" for each in self.parameters)
        of_all = {given_by(each, who) for each in (*self.masks, *noises, COUNTED)}
        return name not in (*self.announced, *of_all)

    def named(self, revealed: Mapping[str, Array], steps: int) -> dict[str, Array]:
        """What was revealed after so many steps, by each name that the module's state_dict has."""
        import numpy as np  # verbs that compute nothing read rates by this module, and load none

        further = {name: revealed[state] for name, state in self.tied.items() if state in revealed}
        if revealed:
            counts = self.counters.items()
            further |= {name: np.array(begin + each * steps) for name, (begin, each) in counts}
        return {**revealed, **further}

    def stated(self) -> dict[str, Any]:
        """For a manifest's options."""
        name = next(name for name, kind in OPTIMIZERS.items() if type(self.optimizer) is kind)
        return asdict(self) | {"optimizer": {"name": name, **asdict(self.optimizer)}}

    @staticmethod
    def of(options: Mapping[str, Any]) -> Recipe:
        """What a manifest's options state.

        Raises:
            UsageError: they state none, or one that makes no sense.
        """
        found = options.get(TRAINING)
        refusal = UsageError(
            "This plan does not train.", "Take one that `compile --train` or compile_training made."
        )
        if not isinstance(found, dict):
            raise refusal
        try:
            optimizer = _optimizer(**found["optimizer"])
            parameters = tuple(map(str, found["parameters"]))
            tied = {str(name): str(state) for name, state in dict(found.get("tied", {})).items()}
            counters = dict(found.get("counters", {})).items()
            read = {
                "optimizer": optimizer,
                "parameters": parameters,
                "tied": tied,
                "statistics": tuple(map(str, found.get("statistics", ()))),
                "masks": {
                    str(name): (float(p), tuple(map(int, shape)))
                    for name, (p, shape) in dict(found.get("masks", {})).items()
                },
                "noise": None if found.get("noise") is None else _noise(**found["noise"]),
                "shares": {str(n): int(b) for n, b in dict(found.get("shares", {})).items()},
                "counters": {str(name): (int(n), int(each)) for name, (n, each) in counters},
                "batch": _batch(**found.get("batch", {})),
                "weighted": bool(found.get("weighted", False)),
                "loss_every": int(found.get("loss_every", 0)),
            }
            recipe = Recipe(**{**found, **read})
            whose = recipe.batch.rows.values()
            is_whole = recipe.rows > 0 <= min(recipe.classes, recipe.loss_every)
            is_whole = is_whole and sum(whose) in (0, recipe.rows)
        except (TypeError, KeyError, ValueError):
            raise refusal from None
        if not is_whole:
            raise refusal
        return recipe


def _noise(spread: float, honest: int) -> Noise:
    """What a manifest states of it; ValueError for what makes no sense."""
    found = Noise(float(spread), int(honest))
    if not 0 < found.spread < float("inf") or found.honest < 1:
        raise ValueError("no noise")
    return found


def _batch(rows: Mapping[str, int] | None = None) -> BatchOwners:
    """What a manifest states of owners; ValueError for what makes no sense."""
    found = {str(who): int(count) for who, count in dict(rows or {}).items()}
    if any(count < 1 for count in found.values()):
        raise ValueError("no batch")
    return BatchOwners(found)


def _optimizer(name: str, **numbers: Any) -> Optimizer:
    """What a manifest states of one; KeyError or TypeError for what states none."""
    if "betas" in numbers:
        numbers["betas"] = tuple(map(float, numbers["betas"]))
    return OPTIMIZERS[name](**numbers)
