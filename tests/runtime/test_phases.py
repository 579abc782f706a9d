"""A phase as one native call, and in turns: the same answers, counts and ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreters import known_keys
from small_interpreters import busy_interpreter, interpreter, step
from small_plans import (
    LARGE,
    MIXED,
    ROWS,
    W,
    X,
    check_answer,
    large_plan,
    mixed_plan,
    small_plan,
)
from three_parties import (
    Connect,
    connect_all,
    connect_native,
    load_all,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import PeerError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND, Phase
from veilgraph.runtime._native import LongRound
from veilgraph.runtime._native import Phase as NativeRounds
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.party import Party
from veilgraph.runtime.phases import (
    AlternatingPhase,
    NativePhase,
    Piece,
    StepRange,
    phase_loop,
    step_ranges,
)
from veilgraph.runtime.transcript import PhaseRecord, Transcript


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan()


def parties(plan: Plan, connect: Connect, folder: Path) -> list[Party]:
    links = connect_all(connect, load_all(write_parties(folder)))
    keys = known_keys(3, 1)
    names = plan.manifest.parties
    return [Party(plan, names[i], links[i], keys[i]) for i in range(3)]


def each_does(session: list[Party], act: Callable[[Party], Any]) -> list[Any]:
    def work(party: Party) -> Any:
        with party:
            return act(party)

    return run_threads([lambda p=p: work(p) for p in session])


def infer(party: Party) -> tuple[dict[str, Any], Transcript]:
    party.share_weights({"w": W})
    return party.infer({"x": X} if party.program.inputs else {})


def test_every_kind_gives_the_answer(plan: Plan, connect: Connect, tmp_path: Path) -> None:
    """Transcripts are compared with the plan as they are made."""
    session = parties(plan, connect, tmp_path)
    done = each_does(session, infer)
    check_answer(done[1][0]["y"])
    for party, (_, transcript) in zip(session, done, strict=True):
        record = transcript.phases[Phase.ONLINE]
        assert 0 < record.network_seconds <= record.seconds
        native = isinstance(party.links, NativeLinks)
        assert (record.encryption_seconds is not None) == native
        assert not native or 0 < (record.encryption_seconds or 0) < record.network_seconds


def test_native_links_run_native_phases(plan: Plan, connect: Connect, tmp_path: Path) -> None:
    for party in parties(plan, connect, tmp_path):
        loop = phase_loop(party.device, party.links, [])
        kind = NativePhase if isinstance(party.links, NativeLinks) else AlternatingPhase
        assert isinstance(loop, kind)
        party.close()


def test_a_trace_has_every_step_once(plan: Plan, connect: Connect, tmp_path: Path) -> None:
    def act(party: Party) -> Any:
        party.share_weights({"w": W})
        party.device.trace()
        party.infer({"x": X} if party.program.inputs else {})
        return party.device.spans

    for name, spans in zip(
        plan.manifest.parties, each_does(parties(plan, connect, tmp_path), act), strict=True
    ):
        steps = plan.party(name).steps
        ran = [i for i in range(len(steps)) if steps["phase"][i] != Phase.SETUP]
        assert [step for step, _, _ in spans] == ran
        assert any(steps["kernel"][i] == ROUND for i in ran)
        times = [time for _, start, end in spans for time in (start, end)]
        assert times == sorted(times)


def test_a_peer_that_is_gone_is_named_with_the_round(
    plan: Plan, connect: Connect, tmp_path: Path
) -> None:
    def act(party: Party) -> Any:
        party.share_weights({"w": W})
        if party.program.party == "bob":
            return party.links.close()
        return party.infer({"x": X} if party.program.inputs else {})

    alice, _, carol = each_does(parties(plan, connect, tmp_path), act)
    for error in (alice, carol):
        assert isinstance(error, PeerError)
        assert "bob" in error.message
        assert "in step o" in error.message or "here: step o" in error.message
        assert " round " in error.message


# Rounds that begin while steps run


@pytest.fixture(scope="module")
def large() -> Plan:
    return large_plan()


def numbers(party: Party) -> dict[str, Any]:
    values = np.arange(LARGE, dtype=np.float32) - LARGE / 2
    return {t.name: values for t in party.program.inputs}


def test_messages_in_pieces_arrive_whole(large: Plan, connect: Connect, tmp_path: Path) -> None:
    """Native parties overlap, those of Python's `ssl` take turns; both have one wire."""
    done = each_does(parties(large, connect, tmp_path), lambda party: party.infer(numbers(party)))
    expected = np.maximum(np.arange(LARGE) - LARGE / 2, 0) / 16
    np.testing.assert_array_equal(done[1][0]["y"], expected)


def test_a_round_begins_before_its_steps_end(large: Plan, tmp_path: Path) -> None:
    def act(party: Party) -> int:
        party.device.trace()
        party.infer(numbers(party))
        steps, spans = party.program.steps, party.device.spans
        rounds = {s: start for s, start, _ in spans if steps["kernel"][s] == ROUND}
        ends = {s: end for s, _, end in spans}
        return sum(rounds[s] < ends.get(s - 1, 0) for s in rounds)

    assert all(count > 0 for count in each_does(parties(large, connect_native, tmp_path), act))


def test_a_round_begins_with_its_own_segment(tmp_path: Path) -> None:
    """Carol sits out the first round and computes meanwhile; then all send each other much."""
    plan = mixed_plan()
    before, own = step_ranges(plan.party("carol"), Phase.ONLINE)[:2]
    assert before.first < before.last == own.first < own.last
    assert not before.has_round
    assert {piece.step for piece in own.receives} == {own.first}
    x = np.arange(4 * ROWS).reshape(ROWS, 4) % 1000 - 500

    def act(party: Party) -> Any:
        party.share_weights({"w": MIXED})
        return party.infer({t.name: x for t in party.program.inputs})

    done = each_does(parties(plan, connect_native, tmp_path), act)
    check_answer(done[1][0]["y"], x, MIXED)


def test_a_peer_that_goes_while_steps_run_is_named(large: Plan, tmp_path: Path) -> None:
    """By one of the others at least: the last may see first that this one went for it."""

    def act(party: Party) -> Any:
        if party.program.party == "bob":
            return party.links.close()
        return party.infer(numbers(party))

    alice, _, carol = each_does(parties(large, connect_native, tmp_path), act)
    assert isinstance(alice, PeerError)
    assert isinstance(carol, PeerError)
    assert "bob" in alice.message or "bob" in carol.message
    assert "bob" in alice.message or "carol" in alice.message
    assert "bob" in carol.message or "alice" in carol.message


def test_a_step_that_fails_ends_the_round_that_it_was_in(tmp_path: Path) -> None:
    """The interpreter is busy: the round is left, and the peers are told."""
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    busy = busy_interpreter()
    steps = StepRange(0, 1, "relu", [Piece(1, 0, 8, 0, 0)], [Piece(1, 8, 8, 0, 0)])
    loop = NativePhase(busy, links[0], [steps])
    worker = threading.Thread(target=busy.run, args=(0, 8, 0))
    worker.start()
    time.sleep(0.05)
    with pytest.raises(RuntimeError, match="running already"):
        loop.run(1, PhaseRecord())
    worker.join()
    with pytest.raises(PeerError, match="alice stopped"):
        links[1].exchange({}, {0: bytearray(8)}, "relu")
    for each in links:
        each.close()


def test_a_signal_ends_a_phase(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    awaiting = [StepRange(0, 1, "relu round 1", [], [Piece(1, 0, 8, 1, 0)])]
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        NativePhase(interpreter(), links[0], awaiting).run(1, PhaseRecord())
    with pytest.raises(PeerError, match="alice stopped"):
        links[1].exchange({}, {0: bytearray(8)}, "relu")
    for each in links:
        each.close()


# Rounds whose parts another device releases


def test_a_long_round_goes_part_by_part(tmp_path: Path) -> None:
    """Nothing is sent before it is released; what came is told as it comes."""
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    parts, came = [bytearray(b"a" * 20_000), bytearray(b"b" * 30_000)], bytearray(50_000)
    sent = LongRound(links[0].rounds, {1: [(parts[0], 1), (parts[1], 2)]}, {})
    received = LongRound(links[1].rounds, {}, {0: came})
    for number in (b"1", b"2"):
        parts[1][:] = number * 30_000
        with links[1].during(received, "relu"), links[0].during(sent, "relu"):
            assert sent.release(1)
            assert received.wait_for(0, 20_000)
            assert came[:20_000] == parts[0]
            parts[1][-1:] = b"c"  # it has not gone yet
            assert sent.release(2)
            assert received.wait_for(0, 50_000)
        assert came == parts[0] + parts[1]
    assert links[0].sent_bytes[1] == links[1].received_bytes[0] == 100_000
    for each in links:
        each.close()


def test_a_signal_ends_a_long_round(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    awaited = LongRound(links[0].rounds, {}, {1: bytearray(8)})
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), links[0].during(awaited, "relu"):
        awaited.wait_for(1, 8)
    with pytest.raises(PeerError, match="alice stopped"):
        links[1].exchange({}, {0: bytearray(8)}, "relu")
    for each in links:
        each.close()


def test_a_peer_that_is_silent_in_a_long_round(tmp_path: Path) -> None:
    """Patience counts from the first wait on."""
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    links[0].timeout_seconds = 0.3
    awaited = LongRound(links[0].rounds, {}, {1: bytearray(8)})
    with pytest.raises(PeerError, match="bob"), links[0].during(awaited, "relu"):
        wait_twice(awaited)
    for each in links:
        each.close()


def wait_twice(awaited: LongRound) -> None:
    time.sleep(0.6)
    assert awaited.release(1)
    assert not awaited.wait_for(1, 8)
    assert not awaited.release(2)


def test_a_long_round_with_nobody(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    with pytest.raises(KeyError, match="no link to this peer"):
        LongRound(links[0].rounds, {7: [(b"", 0)]}, {})
    for each in links:
        each.close()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 2, [], []), "steps out of range"),
        ((1, 0, [], []), "steps out of range"),
        ((0, 0, [(1, 0, 257, 0, 0)], []), "beyond the arena"),
        ((0, 0, [], [(2, 257, 0, 0, 0)]), "beyond the arena"),
        ((0, 0, [], [(2, 1 << 63, 1 << 63, 0, 0)]), "beyond the arena"),
        ((0, 0, [(0, 0, 1, 0, 0)], []), "party 0, to whom there is no link"),
        ((0, 0, [], [(9, 0, 1, 0, 0)]), "party 9, to whom there is no link"),
        ((0, 1, [(1, 0, 8, 0, 4096)], []), "no part of its step"),
        ((0, 1, [(1, 0, 8, 0, 0), (1, 8, 8, 7, 0)], []), "not made by the steps before it"),
        ((0, 1, [(1, 0, 8, 0, 0)], [(1, 8, 8, 1, 0)]), "no place yet when its round begins"),
    ],
)
def test_phases_stay_inside_their_interpreter(
    tmp_path: Path, row: tuple[Any, ...], message: str
) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    phase = NativeRounds(interpreter(), links[0].rounds)
    with pytest.raises(ValueError, match=message):
        phase.add(*row)
    for each in links:
        each.close()


def test_a_round_is_no_kernel_step(tmp_path: Path) -> None:
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    phase = NativeRounds(interpreter([step(), step(ROUND, buffer_count=0)]), links[0].rounds)
    with pytest.raises(ValueError, match="is a round"):
        phase.add(0, 2, [], [])
    for each in links:
        each.close()
