"""All parties in one process: answers, counts and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_plans import W, X, check_answer, small_plan

from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.native import supported
from veilgraph.runtime.simulate import devices_of, simulate, simulate_many, split_inputs


@pytest.fixture(scope="module", params=[32, 40, 64])
def plan(request: pytest.FixtureRequest) -> Plan:
    return small_plan(request.param)


def test_an_answer(plan: Plan) -> None:
    answer = simulate(plan, {"w": W}, {"x": X})
    check_answer(answer.outputs["y"])
    assert answer.outputs["total"].shape == ()
    np.testing.assert_allclose(answer.outputs["total"], answer.outputs["y"].sum(), rtol=1e-6)
    assert answer.plan is plan
    assert answer.rounds == plan.rounds(Phase.ONLINE) == 1 + 2 + 1
    own = sum(sum(plan.sent_bytes(p).values()) for p in (Phase.OFFLINE, Phase.ONLINE))
    assert answer.sent_bytes == own > 0
    assert answer.online_seconds > 0 < answer.offline_seconds
    assert answer.setup_seconds > 0


@pytest.mark.parametrize("isa", supported())
def test_every_instruction_set(isa: str) -> None:
    check_answer(simulate(small_plan(), {"w": W}, {"x": X}, threads=2, isa=isa).outputs["y"])


def test_iterations_are_inferences_of_one_session(plan: Plan) -> None:
    answer = simulate(plan, {"w": W}, {"x": X}, iterations=3)
    assert len(answer.runs) == 3
    for run in answer.runs:
        check_answer(run.outputs["y"])
        assert set(run.transcripts) == set(plan.manifest.parties)
        assert all(set(t.phases) == {Phase.OFFLINE, Phase.ONLINE} for t in run.transcripts.values())
    assert answer.outputs is answer.runs[-1].outputs


def test_many_inputs(plan: Plan) -> None:
    batches = [{"x": X + n} for n in range(4)]
    answer = simulate_many(plan, {"w": W}, list(batches))
    for batch, run in zip(batches, answer.runs, strict=True):
        check_answer(run.outputs["y"], batch["x"])


def test_rounding_is_fresh_each_time() -> None:
    """Stochastic rounding: the same inputs do not always give the same last bit."""
    answer = simulate(small_plan(), {"w": W + 1}, {"x": X + 1}, iterations=12)
    seen = {run.outputs["y"].tobytes() for run in answer.runs}
    assert len(seen) > 1


def test_inputs_go_to_their_owners(plan: Plan) -> None:
    assert split_inputs(plan, {"x": X}) == {"alice": {"x": X}, "bob": {}, "carol": {}}
    owners = {"x": "bob", "weights": "carol"}
    manifest = replace(plan.manifest, owners=owners)
    assert split_inputs(replace(plan, manifest=manifest), {})["alice"] == {}


def test_an_input_that_the_model_has_not(plan: Plan) -> None:
    with pytest.raises(UsageError, match="The model has no input `z`") as caught:
        simulate(plan, {"w": W}, {"z": X})
    assert caught.value.hint == "Its inputs are x."


@pytest.mark.parametrize(
    ("weights", "inputs", "error"),
    [
        ({}, {"x": X}, UsageError),
        ({"w": W}, {}, UsageError),
        ({"w": W}, {"x": X[0]}, UsageError),
        ({"w": W}, {"x": X * 1e6}, AccuracyError),
        ({"w": np.full(W.shape, np.inf)}, {"x": X}, UsageError),
    ],
)
def test_what_a_party_refuses_is_raised(
    plan: Plan, weights: dict[str, object], inputs: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        simulate(plan, weights, inputs)  # type: ignore[arg-type]


def test_devices_of_parties(plan: Plan) -> None:
    assert devices_of(plan, "cuda") == dict.fromkeys(("alice", "bob", "carol"), "cuda")
    assert devices_of(plan, {"bob": "cuda:1"}) == {"alice": "cpu", "bob": "cuda:1", "carol": "cpu"}
    with pytest.raises(UsageError, match="eve is no party of this plan"):
        devices_of(plan, {"eve": "cpu"})
    with pytest.raises(UsageError, match="There is no device `abacus`"):
        simulate(plan, {"w": W}, {"x": X}, device={"bob": "abacus"})
