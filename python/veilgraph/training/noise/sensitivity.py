"""How far one row can move a step's update where gradients are shortened, roundings counted.

A step multiplies the gradient g of all parameters together, B times the mean loss's, by a factor r
and the step size. In real numbers r = 1 / sqrt(max(|g|^2 / (B C)^2, 1)), so that |r g| <= B C. In a
plan's integers r is larger by roundings; rounded_factors.py finds how much.

With C' the longest r |g| / B, and with what is truncated behind the product, replacing a row moves
the mean gradient by 2 C' at most. A discrete Gaussian of variance sigma^2 in each element then
gives rho-zCDP with rho = (2 C')^2 / (2 sigma^2) (Canonne, Kamath, Steinke, NeurIPS 2020, theorem 4,
and the multivariate one that follows from it; zCDP is definition 1.1 of Bun and Steinke, TCC 2016),
and the rhos of steps add up, each of which follows from those before (there, lemma 2.3). A sum of
several discrete Gaussians is only nearly one (Kairouz, Liu, Steinke, ICML 2021, section 3): but for
10^-60 where variances are 16 or more, to which noises.py holds parts. No amplification is claimed:
the order of rows is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch_mlir import ir

from veilgraph.checks.plan_programs import program_of
from veilgraph.ir.plan.tables import EACH, STATE
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Secrecy, Tensor
from veilgraph.ir.training import STEP, STEP_SIZE, Recipe
from veilgraph.plans import Plan
from veilgraph.training.noise.rounded_factors import (
    FLOAT_SLACK,
    RoundedFactor,
    Unknown,
    base,
    defining,
    is_same,
    same,
    size_of,
    unit_of,
)

SLACK = 0.125  # by which a shortened gradient may be longer than it is asked to be


@dataclass(frozen=True)
class Sensitivity:
    """How long a mean gradient is once it is shortened.

    Attributes:
        norm: C', at most.
        reach: of gradients up to this norm; nothing is known of longer ones.
    """

    norm: float
    reach: float

    @property
    def of_a_row(self) -> float:
        """How far another row in place of one, or other rows of an owner, move it at most."""
        return 2 * self.norm

    @staticmethod
    def worst(found: Sequence[Sensitivity]) -> Sensitivity:
        """What holds of all of these."""
        return Sensitivity(max(s.norm for s in found), min(s.reach for s in found))

    def rho(self, spread: float) -> float:
        """Of zero-concentrated differential privacy of one step with noise of this spread."""
        return self.of_a_row**2 / (2 * spread**2)


def sensitivity_of(plan: Plan, rate: float, slack: float = SLACK) -> Sensitivity | None:
    """Of the steps of a plan, at this learning rate.

    Args:
        slack: where shortened gradients may be longer than clip_norm by more than this share, and
            longer than at clip_norm itself, the reach ends.

    Returns:
        None where gradients are not shortened or have no noise, or the plan's program is not one
        that this can follow.
    """
    recipe = Recipe.of(plan.manifest.options)
    if recipe.clip_norm is None or recipe.noise is None:
        return None
    program = program_of(plan, plan.manifest.entries.index(STEP))
    if program is None:
        return None
    try:
        return _Steps(program, recipe.clip_norm * recipe.rows, rate / recipe.rows).found(
            recipe.clip_norm, slack
        )
    except Unknown:
        return None


@dataclass(frozen=True)
class _Product:
    """What a step takes of one gradient: `gradient` times `factor`, rounded by `unit` each."""

    gradient: ir.Value
    factor: ir.Value
    unit: float


@dataclass
class _Steps:
    """The shortening in a step's program.

    Attributes:
        limit: B C.
        size: the step size, which is told in whole units of its encoding.
        finer: as of `RoundedFactor`.
    """

    program: SecretProgram
    limit: float
    size: float
    finer: dict[ir.Value, float] = field(default_factory=dict)

    def found(self, norm: float, slack: float) -> Sensitivity | None:
        products = [p for value in self._noised() for p in self._products(value, 0.0)]
        if not products:
            raise Unknown
        found = [self._found_told(products, told, norm, slack) for told in self._told()]
        return Sensitivity.worst(found)

    def _found_told(
        self, products: list[_Product], told: float, norm: float, slack: float
    ) -> Sensitivity:
        longest, largest, reach = 0.0, 0.0, math.inf
        for value in dict.fromkeys(each.factor for each in products):
            factor = RoundedFactor(value, self.limit, self.step_size, told, self.finer)
            factor.require_gradients({base(each.gradient)[0] for each in products})
            share, end = factor.longest(slack)
            longest, reach = max(longest, share), min(reach, end)
            largest = max(largest, factor.largest(end))
        rounded = self._rounded(products, largest) / (told * self.limit)
        return Sensitivity((longest + rounded) * norm * (1 + FLOAT_SLACK), reach * norm)

    def _rounded(self, products: list[_Product], largest: float) -> float:
        """The norm of what roundings add to an update at most."""
        before = after = 0.0
        for each in products:
            count = math.prod(Tensor.of(each.gradient).shape)
            gradient, unit = base(each.gradient)
            before += count * (unit + self.finer.get(gradient, 0.0)) ** 2
            after += count * each.unit**2
        return largest * math.sqrt(before) + math.sqrt(after)

    def _noised(self) -> Iterator[ir.Value]:
        """What noise is added to."""
        for value, argument in zip(
            self.program.block.arguments, self.program.arguments, strict=True
        ):
            if argument.owner == EACH:
                (add,) = (use.owner for use in value.uses)
                yield next(x for x in add.operands if x != value)

    @cached_property
    def step_size(self) -> ir.Value:
        names = [argument.name for argument in self.program.arguments]
        return self.program.block.arguments[names.index(STEP_SIZE)]

    def _told(self) -> list[float]:
        """The step size in whole units: the two that it may be told in."""
        unit = unit_of(self.step_size)
        units = self.size / unit
        return [unit * max(count, 1) for count in {math.floor(units), math.ceil(units)}]

    def _products(self, value: ir.Value, unit: float) -> Iterator[_Product]:
        """What of a sum is a gradient times its factor."""
        op = defining(value)
        operands = [] if op is None else list(op.operation.operands)
        sized = [x for x in operands if self._is_sized(x)]
        if type(op) is ops.Mul and len(sized) == 1:
            (gradient,) = (x for x in operands if x not in sized)
            yield _Product(gradient, same(sized[0]), unit)
        elif type(op) in (ops.Truncate, ops.RoundOff):
            yield from self._products(operands[0], unit + unit_of(value))
        elif op is not None and (isinstance(op, ops.Add | ops.Sub | ops.Neg) or is_same(op)):
            for each in operands:
                yield from self._products(each, unit)
        elif not self._is_of_states(value):
            raise Unknown

    def _is_of_states(self, value: ir.Value) -> bool:
        """Whether it is made of what the step finds, and of public numbers: no row bears on it."""
        left, seen = [value], {value}
        while left:
            each = left.pop()
            op = defining(each)
            if op is not None:
                left += [x for x in op.operation.operands if x not in seen]
                seen |= {*op.operation.operands}
                continue
            argument = self.program.arguments[each.arg_number]
            is_public = argument.tensor.encoding.secrecy is Secrecy.PUBLIC
            if not (is_public or argument.owner == STATE):
                return False
        return True

    def _is_sized(self, value: ir.Value) -> bool:
        """Whether the step size is a factor of it, one of a number."""
        if value == self.step_size:
            return True
        op = defining(value)
        is_number = op is not None and size_of(value) == 1
        return is_number and any(map(self._is_sized, value.owner.operands))
