"""Whether outputs are as exact as a plan was compiled to be: `--max-error`, judged on samples.

The promise is of a mean over samples: the sum of differences over the sum of sizes. A few samples
say little about a mean, so it is judged on LEAST_SAMPLES and more, and is missed where it is beyond
what the spread between them explains: CHANCE standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

LEAST_SAMPLES = 4  # as many as `compile` measures on
CHANCE = 3.0  # standard errors


class Judgement(Enum):
    """What samples say about a promise."""

    KEPT = "kept"
    MISSED = "missed"
    UNDECIDED = "undecided"  # above it, and within chance
    TOO_FEW = "too few samples"


@dataclass(frozen=True)
class Promise:
    """A plan's promise beside what was found.

    Attributes:
        allowed: mean difference over mean size that the plan was compiled for.
        measured: that of the output where it is largest.
    """

    allowed: float
    measured: float
    samples: int
    judgement: Judgement

    def __str__(self) -> str:
        told = f"Compiled for a mean error of {self.allowed:.3%}: {self.measured:.3%} "
        count = f"{self.samples} sample{'' if self.samples == 1 else 's'}"
        match self.judgement:
            case Judgement.TOO_FEW:
                return (
                    f"{told}on {count}, too few to judge a mean: give --inputs {LEAST_SAMPLES} or "
                    "more."
                )
            case Judgement.UNDECIDED:
                return f"{told}on {count}, which may be chance: give --inputs more."
        return f"{told}on {count}, {self.judgement.value}."


def promise(allowed: float, outputs: list[list[tuple[float, float]]]) -> Promise:
    """Judges the differences and sizes, summed by sample, of each output."""
    errors = [_ratio(pairs) for pairs in outputs]
    samples = min(len(pairs) for pairs in outputs)
    if samples < LEAST_SAMPLES:
        judgement = Judgement.TOO_FEW
    elif max(errors) <= allowed:
        judgement = Judgement.KEPT
    elif any(_is_beyond_chance(allowed, pairs) for pairs in outputs):
        judgement = Judgement.MISSED
    else:
        judgement = Judgement.UNDECIDED
    return Promise(allowed, max(errors), samples, judgement)


def _ratio(pairs: list[tuple[float, float]]) -> float:
    differences, sizes = map(sum, zip(*pairs, strict=True))
    return float(differences) / (float(sizes) or 1.0)


def _is_beyond_chance(allowed: float, pairs: list[tuple[float, float]]) -> bool:
    excess = np.array([difference - allowed * size for difference, size in pairs])
    return bool(excess.sum() > CHANCE * math.sqrt(excess.size) * excess.std(ddof=1))
