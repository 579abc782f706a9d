"""Truncation in every suite, from any ring into any other: floor or floor plus one, unbiased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conformance import SETTINGS, Integers, Setting, Trace
from receivers import asked

from veilgraph.ir.meaning.integers import center
from veilgraph.ir.meaning.party import Array, DrawSource, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.types import Type
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.parties import Member, Operation
from veilgraph.targets.suites import rep3_rotation

SIZES = (1, 2, 63, 64, 65, 191, 192, 193, 577)

settings = pytest.mark.parametrize("setting", SETTINGS, ids=str)
secure = pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)


def truncated(
    setting: Setting,
    z: Integers,
    k: int,
    f: int,
    K: int,
    form: str = "shared",
    turn: int = 0,
    masks: Integers | None = None,
) -> Integers:
    """What is revealed of z, truncated, or lifted where f is 0; `masks` are a draw's values."""
    trace = Trace(setting, turn)
    x = trace.share("x", z.shape, k)
    x = additive(trace.parties, x) if form == "additive" else x
    first = len(trace.program.draws)
    op, attrs = ("truncate", {"bits": f}) if f else ("lift", {})
    trace.reveal(trace.apply(op, z.shape, K, attrs, x))
    draws = uniform_draws(np.random.default_rng([k, f, K, z.size]))
    if masks is not None:
        draws = with_mask(draws, first, masks)
    return trace.run({"x": z}, draws)


def with_mask(draws: DrawSource, number: int, values: Integers) -> DrawSource:
    """One draw's values; every other one is the same number for all elements.

    So a mask, or what two parts are shifted by, takes on every value for each element.
    """

    def source(draw: Draw, shape: Shape, type: Type) -> Array:
        if draw.number != number:
            drawn = draws(draw, (1,), type)
            return np.broadcast_to(drawn[..., :1], (*drawn.shape[:-1], *shape)).copy()
        assert values.max() < 1 << type.bits
        found: Array = values.astype(np.uint64).reshape(shape)
        return found

    return source


def rounding(z: Integers, y: Integers, f: int, K: int) -> Integers:
    """What y is above floor(z / 2^f), in Z_2^K."""
    return center(y - (z >> f), K)


@settings
@pytest.mark.parametrize("k", [3, 4, 8, 9])
def test_every_secret_of_a_small_ring(setting: Setting, k: int) -> None:
    z = np.tile(np.arange(-(1 << (k - 2)), 1 << (k - 2)), 32)
    for f in range(1, k - 1):
        for K in {max(k - f - 1, 2), k - f, k - f + 1, k - 1, k, k + 1, 2 * k, 64}:
            if k - 1 - f <= K:  # else the result does not fit
                error = rounding(z, truncated(setting, z, k, f, K), f, K)
                assert set(error) <= {0, 1}, (f, K)


@secure
@pytest.mark.parametrize("k", [4, 5, 6])
def test_every_secret_under_every_mask(
    setting: Setting, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into every ring by every f; the probability of rounding up is exactly the fraction dropped.

    Where the result needs no more than the operand's upper bits, every z of the ring is truncated.
    """
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 1 << 40)  # one mask, of one role
    for f in range(k - 1):
        for K in range(2, 10):
            if f == 0 and k >= K:
                continue  # that is a reduction
            least = min(k, K + f)  # the mask's width
            bound = 1 << (k - 1 if k - f >= K else k - 2)
            z, r = np.meshgrid(np.arange(-bound, bound), np.arange(1 << least), indexing="ij")
            y = truncated(setting, z.ravel(), k, f, K, masks=r.ravel()).reshape(z.shape)
            error = rounding(z, y, f, K)
            assert set(np.unique(error)) <= {0, 1}, (f, K)
            share = (z[:, 0] & ((1 << f) - 1)) / (1 << f)
            np.testing.assert_array_equal(error.mean(axis=1), share, err_msg=str((f, K)))


@pytest.mark.parametrize("form", ["shared", "additive"])
@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.suite.name == "rep3"], ids=str)
def test_sizes_and_roles(setting: Setting, size: int, turn: int, form: str) -> None:
    z = np.resize(np.arange(-64, 64) * 5 % 128 - 64, size)
    assert set(rounding(z, truncated(setting, z, 8, 3, 8, form, turn), 3, 8)) <= {0, 1}


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.suite.name == "rep3"], ids=str)
def test_a_tensor_whose_halves_go_two_ways(setting: Setting, turn: int) -> None:
    size = 6 * rep3_rotation.SMALLEST_HALVED
    z = np.resize(np.arange(-64, 64) * 5 % 128 - 64, size)
    assert set(rounding(z, truncated(setting, z, 8, 3, 8, "additive", turn), 3, 8)) <= {0, 1}


@settings
@pytest.mark.parametrize(
    ("k", "f", "K"),
    [(24, 8, 24), (32, 12, 32), (32, 30, 32), (40, 14, 40), (52, 1, 52), (64, 16, 64), (64, 62, 64),
     (64, 20, 40), (40, 10, 32), (32, 8, 64), (24, 4, 40), (33, 9, 31), (64, 40, 24), (24, 0, 32),
     (32, 0, 64), (40, 0, 48), (31, 0, 33)],
)  # fmt: skip
def test_real_rings_up_to_their_bounds(setting: Setting, k: int, f: int, K: int) -> None:
    low, high = -(1 << (k - 2)), (1 << (k - 2)) - 1
    edges = [low, low + 1, high, high - 1, 0, 1, -1, (1 << f) - 1, 1 << f, -(1 << f), (1 << f) + 1]
    spread = np.random.default_rng(k).integers(low, high, 3000, endpoint=True)
    small = spread >> np.arange(3000) % (k - 1)  # of every magnitude
    z = np.concatenate([np.tile(np.clip(edges, low, high), 20), spread, small])
    assert set(rounding(z, truncated(setting, z, k, f, K), f, K)) <= {0, 1}
    if f == 0:
        np.testing.assert_array_equal(truncated(setting, z, k, f, K), z)


@secure
@pytest.mark.parametrize(("k", "f"), [(8, 3), (8, 6), (9, 4), (32, 4)])
def test_rounding_is_unbiased(setting: Setting, k: int, f: int) -> None:
    """P(round up) is the dropped fraction, within six standard deviations of each residue."""
    repeats = 1 << (16 - f)
    residues = np.tile(np.arange(1 << f), repeats)
    whole = np.random.default_rng(5).integers(-(1 << (k - 2 - f)), 1 << (k - 2 - f), residues.size)
    z = (whole << f) + residues
    up = rounding(z, truncated(setting, z, k, f, k), f, k).reshape(repeats, -1).mean(0)
    share = np.arange(1 << f) / (1 << f)
    assert up[0] == 0
    assert (np.abs(up - share) <= 6 * np.sqrt(share * (1 - share) / repeats)).all()


@settings
@pytest.mark.parametrize(
    ("k", "f", "K"), [(8, 3, 4), (8, 3, 8), (7, 1, 6), (9, 2, 12), (24, 9, 16)]
)
def test_rounding_off_is_a_function_of_the_value(setting: Setting, k: int, f: int, K: int) -> None:
    """Whatever the mask is: halves go up."""
    bound = 1 << (min(k, 12) - 2)
    z = np.repeat(np.arange(-bound, bound - (1 << (f - 1)), dtype=np.int64), 16)
    trace = Trace(setting)
    x = additive(trace.parties, trace.share("x", z.shape, k))
    trace.reveal(trace.apply("round_off", z.shape, K, {"bits": f}, x))
    found = trace.run({"x": z}, uniform_draws(np.random.default_rng([k, f, K])))
    np.testing.assert_array_equal(found, center((z + (1 << (f - 1))) >> f, K))


@secure
@pytest.mark.parametrize("form", ["shared", "additive"])
@pytest.mark.parametrize("receiver", [0, 1])
def test_what_is_truncated_for_one_receiver(setting: Setting, receiver: int, form: str) -> None:
    """Unbiased, at most one unit off, for any z; and the receiver shifts nothing by itself."""
    k, f = 10, 4
    z = np.repeat(np.arange(-512, 512, dtype=np.int64), 64)
    trace = Trace(setting)
    x = trace.share("x", z.shape, k)
    x = additive(trace.parties, x) if form == "additive" else x
    op = Operation("reveal_truncated", z.shape, k - f, {"bits": f})
    protocol = setting.suite.reveal_truncated
    clear = protocol(trace.parties, op, Member(receiver), x)
    trace.program.output(clear, receiver, "y", 0)
    found = trace.run({"x": z}, uniform_draws(np.random.default_rng(receiver)), receiver)
    up = rounding(z, found, f, k - f)
    assert set(up) <= {0, 1}
    expected = (z.reshape(-1, 64)[:, 0] % (1 << f)) / (1 << f)
    assert np.abs(up.reshape(-1, 64).mean(1) - expected).max() < 0.4
    assert abs(up.mean() - expected.mean()) < 0.01
    schedule = batch_rounds(trace.program)
    live = [schedule.program.nodes[i] for i in schedule.live]
    assert not [n for n in live if n.party == receiver and n.op is ops.SHR]
    verify_masking(schedule, coalitions(setting.target), asked(schedule.program))


@pytest.mark.parametrize("op", ["truncate", "truncate_relu"])
def test_a_receiver_is_given_the_role_without_a_threshold(op: str) -> None:
    """In rep3, for each party that may receive; in additive where one party alone gets c."""
    attrs = {"bits": 4, "window_bits": 9, "dropped_bits": 4}
    for setting in (s for s in SETTINGS if s.computing > 1):
        if op == "truncate_relu" and setting.suite.security.provider:
            continue  # all get c
        for receiver in range(setting.computing):
            trace = Trace(setting)
            trace.parties = replace(trace.parties, receiver=Member(receiver), fixed_roles=True)
            z = np.arange(-120, 120, dtype=np.int64)
            x = additive(trace.parties, trace.share("x", z.shape, 12))
            trace.reveal(trace.apply(op, z.shape, 8, attrs, x))
            schedule = batch_rounds(trace.program)
            live = [schedule.program.nodes[i] for i in schedule.live]
            assert {n.party for n in live if n.op is ops.SHR} - {receiver, setting.computing}
            assert not [n for n in live if n.op is ops.SHR and n.party == receiver]
            verify_masking(schedule, coalitions(setting.target), asked(schedule.program))
