"""Long messages of a device on the emulator: parts in their order, and bytes that are the CPU's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copying_plans import BYTES, COUNT, RECEIVE, SEND, copying_plan, fill, opened, rounds, whole
from interpreters import known_keys
from small_plans import large_plan
from three_parties import connect_all, connect_native, load_all, run_threads, write_parties

from veilgraph.ir.errors import DeviceError, PeerError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND, Phase
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.cuda import staging
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.long_rounds import StagedLongRound
from veilgraph.runtime.devices.interface import Piece
from veilgraph.runtime.party import Party
from veilgraph.runtime.phases import LongRoundStep

EMULATOR, CPU = "host-emulator", "cpu"
ELEMENTS = 9000


@pytest.fixture
def plan() -> Plan:
    """Two places are filled and sent, one after the other; a third is received, and read."""
    steps = [fill(0, 0), fill(1, 1), *rounds(1), fill(1, 0), fill(3, 0)]
    messages = [(SEND, 1, 0, 0, 3 * BYTES), (RECEIVE, 1, 0, 2 * BYTES, 2 * BYTES)]
    return copying_plan(steps, messages, params=[5, 6])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", BYTES // 2)


def send(offset: int, count: int, step: int, peer: int = 1) -> Piece:
    return Piece(peer, offset, count, step, 0)


def values(view: Any) -> set[int]:
    return set(np.frombuffer(view, np.uint64).tolist())


def test_parts_are_there_in_the_order_of_their_steps(plan: Plan, driver: Driver) -> None:
    device = opened(plan, driver)
    made = device.long_round(0, 2, [send(BYTES, BYTES, 1), send(0, BYTES, 0, peer=2)], [])
    assert [number for _, number in made.sends[1]] == [3, 4]
    assert [number for _, number in made.sends[2]] == [1, 2]
    for run in (1, 2, 3):
        made.begin(run)
        found = {}
        for number in made.parts():
            found.update({n: values(v) for p in made.sends.values() for v, n in p if n == number})
        assert found == {1: {5}, 2: {5}, 3: {6}, 4: {6}}


def test_a_part_waits_for_no_later_step(
    plan: Plan, emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    """On a driver that works as late as it may, the first part is there after its step alone."""
    called: list[int] = []
    real = emulator.runner.call
    monkeypatch.setattr(
        emulator.runner, "call", lambda *args: called.append(len(called)) or real(*args)
    )
    device = opened(plan, emulator)
    made = device.long_round(0, 2, [send(0, BYTES, 0), send(BYTES, BYTES, 1)], [])
    made.begin(1)
    assert [len(called) for _ in made.parts()] == [1, 1, 2, 2]


def test_what_two_peers_get_is_copied_once(plan: Plan, emulator: EmulatorDriver) -> None:
    device = opened(plan, emulator)
    pieces = [send(0, BYTES, 0), send(0, BYTES, 0, peer=2), send(0, BYTES // 2, 0, peer=3)]
    made = device.long_round(0, 2, pieces, [])
    assert [n for _, n in made.sends[1]] == [n for _, n in made.sends[2]]
    assert np.shares_memory(made.sends[1][0][0], made.sends[2][0][0])
    assert not np.shares_memory(made.sends[1][0][0], made.sends[3][0][0])
    made.begin(1)
    assert list(made.parts()) == [1, 2, 3]
    assert {values(v) == {5} for parts in made.sends.values() for v, _ in parts} == {True}


def test_what_comes_is_delivered_bit_by_bit(plan: Plan, driver: Driver) -> None:
    """Peers in turn; steps that read its place before see what was there, those after what came."""
    device = opened(plan, driver)
    receives = [send(3 * BYTES, BYTES, 0), send(2 * BYTES, BYTES, 0, peer=2)]
    made = device.long_round(0, 2, [send(0, BYTES, 0)], receives)
    half = BYTES // 2
    assert list(made.arrivals) == [(1, half), (2, half), (1, BYTES), (2, BYTES)]
    for run in (1, 2):
        made.begin(run)
        assert list(made.parts()) == [1, 2]
        for peer, view in made.receives.items():
            np.frombuffer(view, np.uint64)[:] = 10 * run + peer
        for number in range(4):
            made.deliver(number)
        found = whole(device, plan)
        wanted = np.repeat([5, 6, 10 * run + 2, 10 * run + 1], COUNT)
        assert (found == wanted).all()


def test_the_last_rounds_messages_have_left_when_the_next_begins(
    plan: Plan, driver: Driver
) -> None:
    device = opened(plan, driver)
    first = device.long_round(0, 2, [], [send(2 * BYTES, BYTES, 0)])
    second = device.long_round(2, 2, [], [send(3 * BYTES, BYTES, 0)])
    for number, made in enumerate((first, second), start=7):
        made.begin(1)
        assert list(made.parts()) == []
        made.receives[1].view(np.uint64)[:] = number
        made.deliver(0)
        made.deliver(1)
    assert (whole(device, plan)[2 * COUNT :] == np.repeat([7, 8], COUNT)).all()


def test_a_long_round_may_be_larger_than_none_of_its_program(
    plan: Plan, emulator: EmulatorDriver, monkeypatch: Any
) -> None:
    monkeypatch.setattr("veilgraph.runtime.devices.cuda.device.PIECE_BYTES", 0)
    device = opened(plan, emulator)
    with pytest.raises(AssertionError, match="larger than those of its program"):
        device.long_round(0, 2, [send(0, 8 * BYTES, 0)], [])


# Over links


@pytest.fixture
def long_plan(emulator_cache: None, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Of messages that count as long, in pieces of several steps and parts of them."""
    monkeypatch.setattr("veilgraph.passes.plan.cut_messages.PIECE_BYTES", 1 << 13)
    monkeypatch.setattr("veilgraph.passes.plan.assign_buffers.LARGE_MESSAGE_BYTES", 1 << 14)
    monkeypatch.setattr("veilgraph.runtime.phases.LARGE_MESSAGE_BYTES", 1 << 14)
    return large_plan(ELEMENTS)


def session(devices: Sequence[str], folder: Path, plan: Plan) -> list[Party]:
    links = connect_all(connect_native, load_all(write_parties(folder)))
    keys, names = known_keys(3, 1), plan.manifest.parties
    return [
        Party(plan, names[i], links[i], keys[i], ready(devices[i], plan, names[i]))
        for i in range(3)
    ]


def infer(party: Party) -> Any:
    values = np.arange(ELEMENTS, dtype=np.float32) - ELEMENTS / 2
    return party.infer({tensor.name: values for tensor in party.program.inputs})


@pytest.mark.parametrize("devices", [(EMULATOR, CPU, EMULATOR), (CPU, EMULATOR, CPU)])
def test_long_messages_between_devices(
    long_plan: Plan, devices: Sequence[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """Transcripts are compared with the plan, answers with the model."""
    turns: list[str] = []
    real = LongRoundStep.run
    monkeypatch.setattr(
        LongRoundStep, "run", lambda self, *args: turns.append("") or real(self, *args)
    )
    parties = session(devices, tmp_path, long_plan)

    def act(party: Party) -> Any:
        with party:
            return [infer(party) for _ in range(3)]

    done = run_threads([lambda p=p: act(p) for p in parties])
    expected = np.maximum(np.arange(ELEMENTS) - ELEMENTS / 2, 0) / 16
    for answer, _ in done[1]:
        np.testing.assert_array_equal(answer["y"], expected)
    assert len(turns) >= 3 * devices.count(EMULATOR)


def test_a_trace_has_long_rounds(long_plan: Plan, tmp_path: Path) -> None:
    parties = session((EMULATOR, CPU, CPU), tmp_path, long_plan)

    def act(party: Party) -> Any:
        with party:
            party.device.trace()
            infer(party)
            return party.device.spans

    spans = run_threads([lambda p=p: act(p) for p in parties])[0]
    steps = long_plan.party("alice").steps
    kernels, ran = steps["kernel"], np.flatnonzero(steps["phase"] != Phase.SETUP)
    assert sorted(step for step, _, _ in spans) == ran.tolist()
    ends = {step: end for step, _, end in spans}
    starts = {step: start for step, start, _ in spans}
    assert any(starts[s] < ends.get(s - 1, 0) for s in np.flatnonzero(kernels == ROUND))


def test_a_peer_that_goes_is_named(long_plan: Plan, tmp_path: Path) -> None:
    parties = session((EMULATOR, CPU, CPU), tmp_path, long_plan)

    def act(party: Party) -> Any:
        with party:
            if party.program.party == "bob":
                return party.links.close()
            return infer(party)

    alice, _, carol = run_threads([lambda p=p: act(p) for p in parties])
    for error in (alice, carol):
        assert isinstance(error, PeerError)
        assert "bob" in error.message


def test_a_gpu_that_fails_in_a_long_round_ends_it_for_all(
    long_plan: Plan, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its links are given up, and the others hear who was the reason."""

    def fail(self: StagedLongRound) -> Any:
        raise DeviceError("The GPU failed.")

    monkeypatch.setattr(StagedLongRound, "parts", fail)
    parties = session((EMULATOR, CPU, CPU), tmp_path, long_plan)

    def act(party: Party) -> Any:
        with party:
            return infer(party)

    alice, bob, carol = run_threads([lambda p=p: act(p) for p in parties])
    assert isinstance(alice, DeviceError)
    for error in (bob, carol):
        assert isinstance(error, PeerError)
        assert "alice" in error.message
