"""Which values share scales, how accumulators are split, and what doesn't fit."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.encode.scales.accumulators import analyse
from veilgraph.passes.encode.scales.constraints import INVERSE_SIGNIFICANT, Budget
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Scales, choose_scales
from veilgraph.passes.graph.public_factors import constant
from veilgraph.passes.ranges.calibrate import Statistics, weight_statistics

POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}


class Network:
    """A graph under construction, and what is said to be known about its values."""

    def __init__(self, **weights: np.ndarray) -> None:
        self.graph = Graph.create(context(), {"x": (1, 4), "z": (1, 4)}, weights)
        self.known: dict[ir.Value, Statistics] = {}
        for value in self.graph.inputs.values():
            self.say(value, 1.0)
        for name, value in self.graph.parameters.items():
            self.known[value] = Statistics(weight_statistics(weights[name]).range, 1.0)

    def __getitem__(self, name: str) -> ir.Value:
        return (self.graph.inputs | self.graph.parameters)[name]

    def say(self, value: ir.Value, bound: float, gain: float | None = 1.0) -> ir.Value:
        known = RealRange(-bound, bound, RangeSource.CALIBRATED)
        self.known[value] = Statistics(known, gain)
        return value

    def make(self, build: type[ops.GraphOp], *operands: ir.Value, bound: float = 1.0) -> ir.Value:
        with self.graph.end(f"op{len(list(self.graph.block.operations))}"):
            return self.say(build.build(*operands), bound)

    def problem(self, y: ir.Value, **budget: object) -> ScaleProblem:
        self.graph.finish({"y": y})
        options = {"margin": 2.0, "goal": 1e-9} | budget
        return ScaleProblem.of(self.graph, self.known, Budget(**options))  # type: ignore[arg-type]

    def scales(self, y: ir.Value, ring_bits: int = 32, **budget: object) -> Scales:
        """The scales where all is in one ring."""
        problem = self.problem(y, **budget)
        return choose_scales(problem, problem.attempt(problem.one_ring(ring_bits)))


def eye(size: float = 0.5) -> np.ndarray:
    return (size * np.eye(4)).astype(np.float32)


def test_accumulators_use_the_whole_ring() -> None:
    n = Network(w=eye())
    y = n.make(ops.Matmul, n["x"], n["w"], bound=3.0)
    scales = n.scales(y)
    # reach 6 below 2^3: 30 - 3 bits
    assert scales.wide[y] == 27
    assert scales.stored[n["x"]] + scales.stored[n["w"]] == 27
    assert scales.infeasible == ()


@pytest.mark.parametrize("ring_bits", [24, 32, 40, 48, 64])
@pytest.mark.parametrize("bound", [0.01, 1.0, 1.9, 2.0, 300.0])
def test_every_ring_and_range_fits(ring_bits: int, bound: float) -> None:
    n = Network(w=eye(), v=eye())
    h = n.make(ops.Matmul, n["x"], n["w"], bound=bound)
    h = n.make(ops.Relu, h, bound=bound)
    y = n.make(ops.Matmul, h, n["v"], bound=7 * bound)
    scales = n.scales(y, ring_bits=ring_bits)
    for total, x, w in ((h.owner.operands[0], n["x"], n["w"]), (y, h, n["v"])):
        bits = scales.stored[x] + scales.stored[w]
        reach = n.known[total].range.magnitude(2.0) * 2.0**bits
        assert 2.0 ** (ring_bits - 4) <= reach < 2.0 ** (ring_bits - 2)
    assert scales.infeasible == ()


def test_a_value_with_louder_noise_gets_more_bits() -> None:
    found = []
    for gain in (1.0, 16.0, 256.0):
        n = Network(w=eye())
        n.say(n["x"], 1.0, gain)
        y = n.make(ops.Matmul, n["x"], n["w"])
        found.append(n.scales(y).stored[n["x"]])
    assert found == [found[0], found[0] + 1, found[0] + 2], "a fourth root"


def test_a_sum_is_one_accumulator_with_room_for_its_largest_member() -> None:
    n = Network(w=eye(), v=eye())
    small = n.make(ops.Matmul, n["x"], n["w"], bound=0.1)
    large = n.make(ops.Matmul, n["z"], n["v"], bound=20.0)
    y = n.make(ops.Add, small, large, bound=1.0)
    wide = n.scales(y).wide
    assert wide[small] == wide[large] == wide[y] == 24  # reach 40 below 2^6


def test_what_is_tied_shares_a_scale() -> None:
    n = Network(w=eye(), v=eye())
    total = n.make(ops.Matmul, n["x"], n["w"])
    rectified = n.make(ops.Relu, total)
    larger = n.make(ops.Maximum, rectified, n["z"], bound=50.0)
    y = n.make(ops.Matmul, larger, n["v"])
    stored = n.scales(y).stored
    assert stored[total] == stored[rectified] == stored[larger] == stored[n["z"]]
    assert stored[larger] <= 32 - 2 - 7 - 1, "the largest, and its differences, fit"


def test_a_residual_may_have_another_scale_but_no_more_than_the_sum() -> None:
    n = Network(w=eye())
    product = n.make(ops.Matmul, n["x"], n["w"])
    y = n.make(ops.Add, product, n["z"], bound=2.0**20)
    scales = n.scales(y)
    assert scales.stored[n["z"]] <= scales.wide[y] == 30 - 22


def test_products_of_activations_share_the_accumulator() -> None:
    n = Network(w=eye())
    y = n.make(ops.Mul, n["x"], n["z"], bound=1.0)
    scales = n.scales(y)
    assert scales.stored[n["x"]] + scales.stored[n["z"]] <= scales.wide[y] == 28
    n = Network(w=eye())
    square = n.make(ops.Mul, n["x"], n["x"], bound=1.0)
    assert n.scales(square).stored[n["x"]] == 14


def test_a_bias_is_encoded_with_the_accumulator() -> None:
    n = Network(w=eye(), b=np.ones(4, np.float32))
    product = n.make(ops.Matmul, n["x"], n["w"])
    y = n.make(ops.Add, product, n["b"])
    stored = n.scales(y).stored
    assert stored[n["b"]] == stored[n["x"]] + stored[n["w"]]


def test_weights_used_twice_fit_both_places() -> None:
    n = Network(w=eye())
    first = n.make(ops.Matmul, n["x"], n["w"], bound=0.5)
    second = n.make(ops.Matmul, n["z"], n["w"], bound=500.0)
    scales = n.scales(n.make(ops.Maximum, first, second, bound=500.0))
    for total, x in ((first, n["x"]), (second, n["z"])):
        assert scales.stored[x] + scales.stored[n["w"]] <= scales.wide[total]


def test_a_goal_that_is_reached_needs_no_more_bits() -> None:
    found = []
    for goal in (1e-2, 1e-3, 1e-4):
        n = Network(w=eye(), v=eye())
        h = n.make(ops.Relu, n.make(ops.Matmul, n["x"], n["w"]))
        y = n.make(ops.Matmul, h, n["v"])
        scales = n.scales(y, ring_bits=64, goal=goal)
        assert scales.error <= goal
        found.append(scales.stored[h])
    assert found[0] < found[1] < found[2] < 24


def test_the_least_inverse_keeps_its_significant_bits() -> None:
    n = Network(w=eye())
    z = n.say(n["z"], 64.0)
    with n.graph.end("root"):
        root = ops.Rsqrt.build(z)
    n.known[root] = Statistics(RealRange(0.125, 4.0, RangeSource.CALIBRATED), 1.0)
    y = n.make(ops.Matmul, n.make(ops.Mul, n["x"], root), n["w"])
    assert n.scales(y, ring_bits=64, goal=1e-1).stored[root] == 3 + INVERSE_SIGNIFICANT


def test_unknown_values_get_sixteen_bits() -> None:
    n = Network(w=eye(), c=eye(0.01))
    h = n.make(ops.Relu, n.make(ops.Matmul, n["x"], n["w"]))
    y = n.make(ops.Matmul, h, n["c"])
    n.known = {v: k for v, k in n.known.items() if v in n.graph.parameters.values()}
    stored = n.scales(y, ring_bits=64).stored
    assert [stored[v] for v in (n["x"], n["w"], h)] == [16, 16, 16]
    assert stored[n["c"]] == 22, "small weights keep 16 significant bits"


def test_a_value_whose_noise_nothing_predicts_is_as_exact_as_a_float() -> None:
    """In a ring with headroom for more: 24 bits of fraction, as many as float32 has of
    significand.
    """
    n = Network(w=eye())
    n.say(n["x"], 1.0, gain=None)
    y = n.make(ops.Matmul, n["x"], n["w"])
    exact = np.finfo(np.float32).nmant + 1
    assert n.scales(y, ring_bits=64).stored[n["x"]] == exact
    n = Network(w=eye())
    n.say(n["x"], 1.0, gain=1e9)
    y = n.make(ops.Matmul, n["x"], n["w"])
    assert n.scales(y, ring_bits=64).stored[n["x"]] > exact, "the ring is no limit"


def test_factors_of_a_product_give_up_bits_alike_until_it_fits() -> None:
    """Small numbers keep their significant bits, but for those that their product has no headroom
    for.

    Each has 14 at the least, and the product of |x| < 2^-6 is said to reach 2: headroom for 24 - 2
    - 2.
    """
    for kind in ("apart", "of one scale", "a square"):
        n = Network(w=eye(), v=eye())
        x, z = (n.say(n[name], 2.0**-8, gain=0.0) for name in ("x", "z"))
        z = x if kind == "a square" else z
        product = n.make(ops.Mul, x, z, bound=1.0)
        y = n.make(ops.Matmul, n.make(ops.Relu, product), n["w"])
        if kind == "of one scale":
            larger = n.make(ops.Maximum, x, z, bound=2.0**-8)
            y = n.make(ops.Add, y, n.make(ops.Matmul, larger, n["v"]))
        scales = n.scales(y, ring_bits=24)
        assert scales.stored[x] + scales.stored[z] == scales.wide[product] == 20
        assert scales.stored[x] == scales.stored[z] == 10
        assert scales.infeasible == ()


def test_in_a_step_of_training_the_quieter_factor_gives_up_more() -> None:
    """Each has 14 bits at the least, and both 20; z is 16 times as loud as x: four bits more."""
    for gain, apart in ((1.0, 0), (4.0**4, 4)):
        n = Network(w=eye())
        x, z = n.say(n["x"], 2.0**-8), n.say(n["z"], 2.0**-8, gain=gain)
        product = n.make(ops.Mul, x, z, bound=1.0)
        y = n.make(ops.Matmul, n.make(ops.Relu, product), n["w"])
        scales = n.scales(y, ring_bits=24, trains=True)
        assert scales.stored[x] + scales.stored[z] == scales.wide[product] == 20
        assert scales.stored[z] - scales.stored[x] == apart


def test_what_leads_to_masks_counts_for_more_and_is_told_without() -> None:
    """z is behind the ReLU: its noise turns no sign over."""
    found = []
    for weight in (1.0, 4.0**4):
        n = Network(w=eye())
        masked = n.make(ops.Relu, n.make(ops.Matmul, n["x"], n["w"]))
        y = n.make(ops.Matmul, n.make(ops.Mul, masked, n["z"]), n["w"])
        problem = n.problem(y, trains=True, mask_weight=weight)
        trial = problem.attempt(problem.one_ring(32))
        roots = [problem.structure.stored.root(n[name]) for name in ("x", "z")]
        found.append([problem.constraints[root].noise for root in roots])
        scales = choose_scales(problem, trial)
        assert 0 < scales.mask_error < scales.error
        masks = {root: each.noise for root, each in problem.constraints.items() if each.masks}
        alone = sum(noise * 4.0 ** -trial.scales[root] for root, noise in masks.items()) / weight
        assert scales.mask_error == pytest.approx(alone**0.5)
    assert np.divide(found[1], found[0]).tolist() == [4.0**4, 1.0]


def test_a_states_rounding_turns_no_mask_over() -> None:
    n = Network(w=eye())
    n.graph.declare_states(["z"])
    y = n.make(ops.Relu, n.make(ops.Mul, n["x"], n["z"]))
    problem = n.problem(y, trains=True, mask_weight=100.0)
    masks = {root for root, each in problem.constraints.items() if each.masks}
    assert problem.structure.stored.root(n["x"]) in masks
    assert problem.structure.stored.root(n["z"]) not in masks


@pytest.mark.parametrize("trains", [False, True])
def test_what_a_function_takes_fills_its_ring_in_a_step_of_training(trains: bool) -> None:
    n = Network(w=eye())
    product = n.make(ops.Mul, n["x"], n["z"], bound=1.0)
    y = n.make(ops.Sigmoid, product)
    scales = n.scales(y, ring_bits=48, trains=trains)
    assert scales.filled(product) == (scales.wide[product] if trains else 0)
    assert scales.filled(n["x"]) == 0


def test_factors_give_up_bits_behind_a_product_with_a_weight_too() -> None:
    """The layer in front leaves its weight to adapt; the product of activations behind it still
    has 24 - 2 - 2 bits of headroom, and its factors 14 each.
    """
    n = Network(w=eye(), v=eye())
    x, z = (n.say(n[name], 2.0**-8, gain=0.0) for name in ("x", "z"))
    layer = n.make(ops.Matmul, x, n["v"])
    product = n.make(ops.Mul, x, z, bound=1.0)
    y = n.make(ops.Add, n.make(ops.Matmul, n.make(ops.Relu, product), n["w"]), layer)
    scales = n.scales(y, ring_bits=24)
    assert scales.stored[x] + scales.stored[z] == scales.wide[product] == 20
    assert scales.infeasible == ()


def test_what_seems_to_do_nothing_shares_its_product_evenly() -> None:
    """No noise of x bears on the outputs, that of w does: no ratio of the two is formed."""
    n = Network(w=eye())
    n.say(n["x"], 1.0, gain=0.0)
    y = n.make(ops.Matmul, n["x"], n["w"])
    scales = n.scales(y, ring_bits=32)
    assert scales.stored[n["x"]] == scales.wide[y] // 2


def test_fixed_fraction_bits_are_not_taken_from_a_product() -> None:
    n = Network()
    product = n.make(ops.Mul, n["x"], n["z"], bound=100.0)
    scales = n.scales(n.make(ops.Relu, product, bound=100.0), ring_bits=24, frac_bits=9)
    assert [scales.stored[n[name]] for name in "xz"] == [9, 9]
    assert product in scales.infeasible, "200 times 2^18 is beyond 2^22"


def test_fixed_fraction_bits_are_taken_and_checked() -> None:
    n = Network(w=eye(), b=np.ones(4, np.float32))
    product = n.make(ops.Matmul, n["x"], n["w"], bound=100.0)
    y = n.make(ops.Add, product, n["b"], bound=100.0)
    scales = n.scales(y, frac_bits=11)
    assert [scales.stored[n[name]] for name in "xwb"] == [11, 11, 22]
    assert scales.infeasible == ()
    n = Network(w=eye())
    product = n.make(ops.Matmul, n["x"], n["w"], bound=100.0)
    assert n.scales(product, frac_bits=12).infeasible == (product,)


def test_a_factor_of_few_bits_is_no_product() -> None:
    n = Network(w=eye())
    with n.graph.end("factor"):
        eighth = constant(-0.375, n["x"])
    y = n.make(ops.Mul, n["x"], eighth)
    n.graph.finish({"y": y})
    structure = analyse(n.graph)
    assert structure.products == []
    ((result, operand, factor),) = structure.factors
    assert (result, operand, factor.integer, factor.exponent) == (y, n["x"], -3, -3)


def test_the_loudest_value_is_named() -> None:
    n = Network(w=eye())
    n.say(n["z"], 1.0, 1e6)
    y = n.make(ops.Add, n.make(ops.Matmul, n["x"], n["w"]), n["z"])
    assert n.scales(y, frac_bits=4).dominant == n["z"]


def test_a_product_of_a_product_takes_the_stored_scale() -> None:
    n = Network(w=eye(), v=eye(), b=np.ones(4, np.float32))
    first = n.make(ops.Matmul, n["x"], n["w"])
    second = n.make(ops.Matmul, first, n["v"])
    y = n.make(ops.Add, second, n["b"])
    scales = n.scales(y)
    assert scales.stored[n["b"]] == scales.stored[first] + scales.stored[n["v"]]
    assert scales.infeasible == ()


def test_a_constant_that_needs_bits_gets_them() -> None:
    found = []
    for number in (0.75, 0.8):
        n = Network(w=eye())
        with n.graph.end("number"):
            addend = constant(number, n["x"])
        n.say(addend, 1.0, 1e6)
        h = n.make(ops.Relu, n.make(ops.Add, n["x"], addend))
        y = n.make(ops.Matmul, h, n["w"])
        found.append(n.scales(y).stored[h])
    assert found[1] > found[0], "0.75 is exact with two fraction bits, 0.8 never is"


def test_integers_have_no_fraction_bits_and_cost_no_product() -> None:
    """x where x >= 0, else z: the truth value is an integer, and nothing waits for a truncation."""
    n = Network()
    positive = n.make(ops.Step, n["x"])
    chosen = n.make(ops.Mul, positive, n.make(ops.Sub, n["x"], n["z"], bound=2.0))
    y = n.make(ops.Add, chosen, n["z"])
    scales = n.scales(y)
    assert scales.stored[positive] == 0
    assert scales.stored[chosen] == scales.stored[n["x"]] == scales.stored[n["z"]]
    assert scales.wide == {}


def test_a_public_matrix_of_integers_costs_no_truncation() -> None:
    n = Network()
    with n.graph.end("sums"):
        triangle = ops.Constant.build(value=np.tri(4, dtype=np.float32))
    y = n.make(ops.Matmul, n["x"], triangle, bound=4.0)
    scales = n.scales(y)
    assert scales.stored[triangle] == 0
    assert scales.stored[y] == scales.stored[n["x"]]
    assert y not in scales.wide


def test_an_integer_that_meets_others_is_shifted_up_to_them() -> None:
    n = Network(w=eye())
    positive = n.make(ops.Step, n["x"])
    total = n.make(ops.Add, positive, n["z"], bound=2.0)
    y = n.make(ops.Matmul, total, n["w"])
    scales = n.scales(y)
    assert scales.stored[positive] == 0
    assert scales.stored[total] == scales.stored[n["z"]] > 0


@pytest.mark.parametrize(("ring_bits", "frac_bits"), [(32, 24), (48, 24), (56, 32), (64, 40)])
def test_what_a_threshold_is_asked_of_is_finer_in_the_widest_rings(
    ring_bits: int, frac_bits: int
) -> None:
    n = Network(t=np.full((1, 4), 0.1, np.float32))
    n.say(n["x"], 0.2, gain=0.0)
    apart = n.make(ops.Sub, n["x"], n["t"])
    n.say(apart, 0.3, gain=0.0)
    scales = n.scales(n.make(ops.Step, apart), ring_bits=ring_bits)
    assert scales.stored[n["x"]] == frac_bits


def test_what_is_computed_and_compared_is_not() -> None:
    n = Network(w=eye())
    product = n.make(ops.Matmul, n["x"], n["w"])
    n.say(product, 1.0, gain=0.0)
    scales = n.scales(n.make(ops.Step, product), ring_bits=64)
    assert scales.stored[product] <= 24


@pytest.mark.parametrize("is_convolution", [False, True])
def test_a_bias_that_is_given_is_no_finer_than_the_products_that_it_is_added_to(
    is_convolution: bool,
) -> None:
    """It would be truncated in each step, or not fit the product's ring."""
    shapes = {"x": (2, 3, 4, 4), "k": (3, 3, 1, 1), "b": (3,)} if is_convolution else {}
    graph = Graph.create(context(), shapes or {"x": (2, 4), "k": (4, 4), "b": (4,)}, {})
    x, k, b = graph.inputs.values()
    ones = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}
    with graph.end("product"):
        y = (
            ops.Conv.build(x, k, bias=b, groups=1, **ones)
            if is_convolution
            else ops.Matmul.build(x, k)
        )
    if not is_convolution:
        with graph.end("sum"):
            y = ops.Add.build(y, b)
    with graph.end("end"):
        end = ops.Relu.build(y)
    graph.finish({"y": end})
    known = RealRange(-1.0, 1.0, RangeSource.CALIBRATED)
    values = [*graph.inputs.values(), *(op.operation.results[0] for op in graph.operations)]
    statistics = {value: Statistics(known, 1.0) for value in values}
    problem = ScaleProblem.of(graph, statistics, Budget(2.0, 1e-9, None, trains=True))
    x, k, b = graph.inputs.values()
    for trial in (
        problem.attempt(problem.one_ring(32)),
        problem.changed(problem.attempt(problem.one_ring(24)), problem.readers.accumulators[0], 32),
    ):
        stored = choose_scales(problem, trial).stored
        assert stored[b] <= stored[x] + stored[k]
