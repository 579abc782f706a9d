"""One party's part: what it refuses, what it counts, and that nothing is left or used twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from interpreters import known_keys, run_interpreters, signed
from small_plans import W, X, check_answer, small_plan

from veilgraph.ir.errors import (
    AccuracyError,
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    UsageError,
)
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Direction, Phase
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cpu import CpuDevice
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.party import Party, Prepared, encoded_inputs
from veilgraph.runtime.simulate import in_threads
from veilgraph.runtime.transcript import predict

T = TypeVar("T")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan()


def alone(plan: Plan, name: str) -> Party:
    """A party whose peers never come: good for what happens before the first message."""
    index = plan.manifest.parties.index(name)
    links = loopback(3, plan.manifest.parties, timeout_seconds=0.2)[index]
    return Party(plan, name, links, known_keys(3, 1)[index])


def session(plan: Plan, act: Callable[[Party], T]) -> list[T]:
    """Every party does `act`, once the weights are shared."""
    keys = known_keys(3, 1)

    def work(links: Links) -> T:
        name = plan.manifest.parties[links.party]
        with Party(plan, name, links, keys[links.party]) as party:
            party.share_weights({"w": W})
            return act(party)

    return in_threads(work, loopback(3, plan.manifest.parties, timeout_seconds=5))


def with_alice(plan: Plan, **fields: Any) -> Plan:
    """The plan with some fields of alice's program changed."""
    alice = replace(plan.party("alice"), **fields)
    return replace(plan, programs={**plan.programs, "alice": alice})


def arena_of(party: Party) -> npt.NDArray[np.uint8]:
    """The memory of a party on the CPU, which is there to be seen after its device was closed."""
    assert isinstance(party.device, CpuDevice)
    return party.device.interpreter.arena


def inputs_of(party: Party) -> Mapping[str, Any]:
    return {"x": X} if party.program.inputs else {}


# What it refuses


def test_a_missing_weight(plan: Plan) -> None:
    with pytest.raises(UsageError, match="carol owns weight `w`, and it is not there"):
        alone(plan, "carol").share_weights({"v": W})


def test_a_weight_of_another_shape(plan: Plan) -> None:
    with pytest.raises(UsageError, match="`w` has shape 3x6, and the plan needs 6x3"):
        alone(plan, "carol").share_weights({"w": W.T})


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, UsageError, "alice owns input `x`, and it was not given"),
        ({"x": X, "z": X}, UsageError, "alice has no input `z`"),
        ({"x": X[:2]}, UsageError, "has shape 2x6"),
        ({"x": X * np.nan}, UsageError, "not finite"),
        ({"x": X * 100}, AccuracyError, "outside the range"),
    ],
)
def test_inputs_that_do_not_fit(
    plan: Plan, inputs: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Refused before anything is sent."""
    party = alone(plan, "alice")
    with pytest.raises(error, match=message):
        party.infer(inputs)
    assert party.runs == 0
    assert not any(party.links.sent_bytes.values())


def test_a_name_with_a_space_is_quoted_for_a_shell(plan: Plan) -> None:
    program = plan.programs["alice"]
    named = replace(program, inputs=(replace(program.inputs[0], name="the rows"),))
    with pytest.raises(UsageError) as caught:
        encoded_inputs(named, {})
    assert caught.value.hint == "Give it with --input 'the rows=@FILE.npy'."


def test_inputs_of_another_party(plan: Plan) -> None:
    with pytest.raises(UsageError, match="bob has no input `x`") as caught:
        alone(plan, "bob").infer({"x": X})
    assert "none" in caught.value.hint


def test_a_peer_that_never_comes(plan: Plan) -> None:
    start = time.perf_counter()
    with pytest.raises(PeerError, match="setup round 1"):
        alone(plan, "alice").share_weights({})
    assert time.perf_counter() - start < 5


def test_no_such_device(plan: Plan) -> None:
    with pytest.raises(UsageError, match="no device `abacus`"):
        ready("abacus", plan, "alice")


def test_more_memory_than_there_is(plan: Plan) -> None:
    huge = with_alice(plan, arena_bytes=1 << 50)
    with pytest.raises(ResourceLimitError, match=r"needs 1048576\.00 GiB"):
        ready("cpu", huge, "alice").open(bytes(48))


def test_a_step_out_of_bounds(plan: Plan) -> None:
    """A plan that passes plan_file's checks still has every step proved by the interpreter."""
    buffers = plan.party("alice").buffers.copy()
    buffers["offset"] += 1 << 30
    with pytest.raises(UsageError, match="The plan can't be run"):
        ready("cpu", with_alice(plan, buffers=buffers), "alice").open(bytes(48))


# What it counts


def test_the_transcript_is_the_prediction(plan: Plan) -> None:
    for name, (setup, done) in zip(
        plan.manifest.parties,
        session(plan, lambda p: (p.setup, p.infer(inputs_of(p))[1])),
        strict=True,
    ):
        records = {**setup.phases, **done.phases}
        assert set(records) == set(Phase)
        for phase, record in records.items():
            expected = predict(plan.party(name), phase)
            assert record.rounds == expected.rounds
            assert record.sent_bytes == expected.sent_bytes
            assert record.received_bytes == expected.received_bytes
            assert record.seconds >= record.network_seconds >= 0


def test_predictions_add_up_to_the_plan(plan: Plan) -> None:
    parties = plan.manifest.parties
    for phase in Phase:
        predicted = {
            f"{name}->{parties[peer]}": size
            for name in parties
            for peer, size in predict(plan.party(name), phase).sent_bytes.items()
        }
        assert predicted == plan.sent_bytes(phase)


def test_a_transcript_that_differs_ends_the_run(plan: Plan) -> None:
    """If fewer bytes crossed than the plan says, something is wrong with us."""
    party = alone(plan, "alice")
    record = predict(party.program, Phase.ONLINE)
    party.setup.phases[Phase.ONLINE] = replace(record, rounds=record.rounds + 1)
    with pytest.raises(AssertionError, match="alice, online: the transcript has"):
        party.setup.check("alice", Phase.ONLINE, predict(party.program, Phase.ONLINE))


# Inferences


def test_inferences_of_one_session_differ_in_all_but_the_answer(plan: Plan) -> None:
    """Fresh draws each time: no message of an inference is that of another."""
    first, second = run_interpreters(plan, known_keys(3, 9), [{"x": X}, {"x": X}], {"w": W})
    online = [link for link in first.wire if not link[0].startswith("setup")]
    assert online
    assert all(first.wire[link] != second.wire[link] for link in online)
    for run in (first, second):
        check_answer((signed(run.outputs[1, "y"], 40) / 16).astype(np.float32))


def test_sessions_differ(plan: Plan) -> None:
    (one,) = run_interpreters(plan, known_keys(3, 1), [{"x": X}], {"w": W})
    (other,) = run_interpreters(plan, known_keys(3, 2), [{"x": X}], {"w": W})
    assert all(one.wire[link] != other.wire[link] for link in one.wire)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_nothing(plan: Plan, threads: int) -> None:
    ran = [run_interpreters(plan, known_keys(3, 1), [{"x": X}], {"w": W}, n) for n in (1, threads)]
    assert ran[0][0].wire == ran[1][0].wire


def test_prepared_inferences_are_used_in_order(plan: Plan) -> None:
    def act(party: Party) -> Any:
        ratchet = party.branch()
        first, second = (party.prepare(each)[0] for each in (ratchet, ratchet.next()))
        party.runs = 0
        party.infer(inputs_of(party), first)
        outputs, transcript = party.infer(inputs_of(party), second)
        with pytest.raises(SecurityAbort, match="its randomness was used"):
            party.infer(inputs_of(party), second)
        assert transcript.phases[Phase.OFFLINE].rounds == 0
        return outputs

    check_answer(session(plan, act)[1]["y"])


def test_what_was_prepared_last_is_run_from_where_it_lies(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, kept = list[int](), Party.kept
    answers = list[tuple[str, Any]]()

    def counted(party: Party, phase: Phase, entry: int = 0) -> bytes:
        assert party._left is not None
        copied.append(party._left[0].number)
        return kept(party, phase, entry)

    monkeypatch.setattr(Party, "kept", counted)

    def act(party: Party) -> Any:
        def infer(prepared: Prepared) -> None:
            answers.append((party.program.party, party.infer(inputs_of(party), prepared)[0]))

        def prepare(prepared: Prepared) -> None:
            party.prepare_ahead(prepared)

        first, second, third = (party.reserve() for _ in range(3))
        prepare(first)
        prepare(second)
        infer(second)
        infer(first)
        prepare(third)
        infer(third)
        with pytest.raises(SecurityAbort, match="its randomness was used"):
            party.infer(inputs_of(party), second)

    session(plan, act)
    answered = [found["y"] for name, found in answers if name == "bob"]
    assert len(answered) == 3
    for answer in answered:
        check_answer(answer)
    assert copied == [1] * 3  # at each party: the first, before the second


def test_what_was_reserved_is_prepared_once_and_run_once_or_never(plan: Plan) -> None:
    def act(party: Party) -> None:
        first, second, third = (party.reserve() for _ in range(3))
        with pytest.raises(SecurityAbort, match=r"Inference 2 .* its randomness was used"):
            party.infer(inputs_of(party), second)  # its offline phase is still to come
        party.prepare_ahead(second)
        party.forget(first)
        party.prepare_ahead(third)
        party.forget(third)
        for used in (first, second, third):
            with pytest.raises(SecurityAbort, match="its randomness was used"):
                party.prepare_ahead(used)
        with pytest.raises(SecurityAbort, match="its randomness was used"):
            party.infer(inputs_of(party), third)
        party.infer(inputs_of(party), second)
        _, transcript = party.infer(inputs_of(party))
        assert (party.runs, transcript.phases[Phase.OFFLINE].rounds > 0) == (4, True)

    session(plan, act)


def test_numbers_of_a_store_are_counted_by_themselves(plan: Plan) -> None:
    """Its keys are its own, so a number of this session's is another inference."""

    def act(party: Party) -> None:
        made, _ = party.prepare(party.branch())
        stored = Prepared(made.number, made.keys, made.memory, b"store")
        party.infer(inputs_of(party), stored)
        party.infer(inputs_of(party))
        with pytest.raises(SecurityAbort, match=r"Inference 1 .* its randomness was used"):
            party.infer(inputs_of(party), stored)
        assert (party.runs, party.done) == (2, 2)

    session(plan, act)


def test_more_inferences_than_draws_can_number(plan: Plan) -> None:
    party = alone(plan, "bob")
    keys = known_keys(3, 1)[1].setup()
    with pytest.raises(SecurityAbort, match="would repeat the randomness of another"):
        party.infer({}, Prepared(1 << 32, keys, b""))


def test_memory_is_wiped(plan: Plan) -> None:
    def act(party: Party) -> Any:
        party.infer(inputs_of(party))
        assert arena_of(party).any()
        return arena_of(party)

    assert not any(arena.any() for arena in session(plan, act))
    party = alone(plan, "bob")
    arena_of(party)[:] = 7
    party.close()
    assert not arena_of(party).any()


def test_an_error_wipes_too(plan: Plan) -> None:
    arenas = []

    def act(party: Party) -> None:
        arenas.append(arena_of(party))
        if party.program.party == "carol":
            raise UsageError("enough")
        party.infer(inputs_of(party))

    with pytest.raises(UsageError, match="enough"):
        session(plan, act)
    assert len(arenas) == 3
    assert not any(arena.any() for arena in arenas)


def test_the_first_cause_is_raised_and_stops_the_others(plan: Plan) -> None:
    """Not the parties that it stopped; and they do not wait for their timeout."""
    start = time.perf_counter()

    def act(party: Party) -> None:
        if party.program.party == "bob":
            raise AccuracyError("bob has had enough")
        party.infer(inputs_of(party))

    with pytest.raises(AccuracyError, match="bob has had enough"):
        session(plan, act)
    assert time.perf_counter() - start < 4
    assert threading.active_count() < 20


def test_every_message_has_its_other_end(plan: Plan) -> None:
    rows = [
        (name, Direction(int(m["direction"])), int(m["bytes"]))
        for name, program in plan.programs.items()
        for m in program.messages
    ]
    sent, received = (
        sorted(size for _, direction, size in rows if direction == d) for d in Direction
    )
    assert sent == received
