"""Encodes a program again and again, until it is exact enough on the samples, and no more exact.

trial 1   predicted 4.8%, measured 9.3%    6.4% are allowed
trial 2   predicted 2.5%, measured 3.1%    exact enough, and more exact than that
trial 3   halfway between the two          measured 4.9%, and cheaper: it is taken
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.encode.aim import TARGET_SHARE, Aim
from veilgraph.passes.encode.encode_fixed_point import MAX_ERROR, UNUSABLE
from veilgraph.passes.encode.functions.choose_approximations import Price
from veilgraph.passes.encode.verify_accuracy import Measured, VerifyAccuracy, missed
from veilgraph.passes.program import Options, Program, Samples

LARGEST_CUT = 0.7  # of the target, where the samples say that it was too high
MOST_CUTS = 4  # before what is predicted is trusted no more
ON_TARGET = 2  # times less than is aimed at may be predicted: widths are coarse
LEAST_TARGET_SHARE = 2.0**-30  # more than any ring can do
TOO_EXACT = 2 / 3  # of the error allowed, and less: there may be something cheaper
MOST_BETWEEN = 3  # trials between two: a step of training runs a thousand times

Encode = Callable[[], SecretProgram]


def verifying(program: Program, given: Samples) -> VerifyAccuracy:
    """What measures encodings of a program on samples."""
    outputs = _measured(program)
    samples = [{name: x[i] for name, x in given.items()} for i in range(len(outputs))]
    return VerifyAccuracy(
        samples,
        outputs,
        min(map(len, given.values()), default=0),
        program.products,
        program.watch.at,
        program.ranges.update_sizes,
    )


def _measured(program: Program) -> list[Mapping[str, npt.NDArray[np.float32]]]:
    """The outputs that samples are judged by: a decision is right or wrong, and has no error.

    Where states are updated it is their updates: the states themselves hardly change in a run.
    """
    options = program.options
    decisions = options.decisions
    updates = {*options.updates.values()}
    return [
        {n: x for n, x in outputs.items() if n not in decisions and (n in updates or not updates)}
        for outputs in program.ranges.outputs
    ]


@dataclass(frozen=True)
class _Tried:
    """What a trial aimed at, and what it was measured with."""

    aim: Aim
    measured: Measured


@dataclass(frozen=True)
class Trials:
    """Takes the cheapest encoding that it finds to be exact enough.

    Attributes:
        program: encoded once. Its `secret` becomes what is taken, its `aim` what that aimed at.
        encode: encodes it anew, as its `aim` and `misses` say.
        samples: to measure on.
    """

    program: Program
    encode: Encode
    samples: Samples

    @property
    def allowed(self) -> float:
        """The error that is aimed at."""
        options = self.program.options
        chosen = options.ring_bits is None and options.frac_bits is None
        return options.max_error or (MAX_ERROR if chosen else UNUSABLE)

    def run(self) -> None:
        """Tries until samples are content, and takes the best.

        Raises:
            AccuracyError: no trial is exact enough for the user, or to be of use.
        """
        program, options = self.program, self.program.options
        verify = verifying(program, self.samples)
        best = found = before = self._tried(verify, program.secret)
        while (
            found.measured.error > self.allowed
            and options.frac_bits is None
            and program.misses <= MOST_CUTS
        ):
            self._tell(found.measured)
            before = found
            self._make_finer(found.measured)
            found = self._tried(verify, self.encode())
            best = min(best, found, key=lambda tried: tried.measured.error)
        if options.updates and before is not found and found.measured.error <= self.allowed:
            best = self._between(verify, before.aim, found)
        program.aim = best.aim
        if best.measured.error > (options.max_error or UNUSABLE):
            raise missed(best.measured, self.allowed, _given(options))
        program.secret = verify.told(best.measured, self.allowed)

    def _tried(
        self, verify: VerifyAccuracy, encoded: SecretProgram, most: float = math.inf
    ) -> _Tried:
        return _Tried(self.program.aim, verify.measure(encoded, most))

    def _tell(self, found: Measured) -> None:
        number = self.program.misses + 1
        self.program.watch.tried(
            f"trial {number} of at most {MOST_CUTS + 2} is off by {found.error:.3%}, and "
            f"{self.allowed:.3%} is allowed"
        )
        self.program.watch.at(f"trial {number + 1}, encoding")

    def _make_finer(self, found: Measured) -> None:
        """Aims at as much less as the samples ask for.

        First at less noise before masks, if that may be why; then at less than was predicted, of
        all. After a few tries derivatives have nothing to say about this program: then all of it is
        in one ring, its bits shared evenly.
        """
        program = self.program
        program.misses += 1
        weight = self._mask_weight(found)
        if program.misses == 1 and weight > program.aim.mask_weight:
            program.aim = replace(program.aim, mask_weight=weight)
            return
        predicted = ON_TARGET * found.program.predicted_error / self.allowed
        cut = min(LARGEST_CUT, TARGET_SHARE * self.allowed / found.error)
        share = max(LEAST_TARGET_SHARE, min(program.aim.share, predicted) * cut)
        program.aim = replace(program.aim, share=share)
        if program.misses > MOST_CUTS:
            program.ranges = program.ranges.without_gains()

    def _mask_weight(self, found: Measured) -> float:
        """How many times as much noise has to count in what leads to masks of derivatives.

        Noise of s turns a share of s of a ReLU's signs over, those of numbers near zero, and a
        derivative is then wrong by all of it. So the square of the error grows as s, c s, where
        derivatives predict s^2. A trial says c. Half of the square that is aimed at is for that:
        with the weight, noise takes the half where c s does.
        """
        predicted, s = found.program.predicted_error, found.program.mask_error
        unseen = max(found.error**2 - predicted**2, 0.0)
        half = (TARGET_SHARE * self.allowed) ** 2 / 2
        return float((unseen / s) ** 2 / half) if s else 0.0

    def _between(self, verify: VerifyAccuracy, missed_with: Aim, found: _Tried) -> _Tried:
        """The cheapest of what was `found` and of trials between it and one that missed."""
        best, program = found, self.program
        for number in range(MOST_BETWEEN):
            if found.measured.error >= TOO_EXACT * self.allowed:
                break
            program.aim = missed_with.between(found.aim)
            program.watch.at(f"trial {number + 1} of at most {MOST_BETWEEN} between the last two")
            try:
                tried = self._tried(verify, self.encode(), self.allowed)
            except AccuracyError:
                break
            if tried.measured.error > self.allowed:
                missed_with = tried.aim
                continue
            found = tried
            prices = (Price.of(each.measured.program, program.target) for each in (found, best))
            if next(prices) < next(prices):
                best = found
        return best


def _given(options: Options) -> str:
    """What the encoding could not choose."""
    if options.frac_bits is not None:
        return f"With {options.frac_bits} fraction bits for every value"
    return f"In a ring of {options.ring_bits} bits" if options.ring_bits else ""
