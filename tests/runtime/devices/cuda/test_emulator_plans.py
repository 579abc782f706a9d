"""Whole plans on the emulator, alone and beside the CPU: the wire does not tell devices apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from interpreters import known_keys
from small_plans import FILTERED, FILTERS, W, X, check_answer, filtered_plan, small_plan
from three_parties import connect_all, connect_native, load_all, run_threads, write_parties
from whole_plans import check_devices, check_digits, check_prepared, check_tiny

from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.residues.residues import by_residues
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.party import Party
from veilgraph.runtime.phases import AlternatingPhase, phase_loop
from veilgraph.runtime.transcript import Transcript

EMULATOR, CPU = "host-emulator", "cpu"


pytestmark = pytest.mark.usefixtures("emulator_cache")


@pytest.mark.parametrize(
    "devices", [(EMULATOR,) * 3, (EMULATOR, EMULATOR, CPU), (CPU, CPU, EMULATOR)]
)
@pytest.mark.parametrize("ring_bits", [32, 40])
def test_a_layer(ring_bits: int, devices: Sequence[str]) -> None:
    """In words of 32 and of 64 bits; two inferences, so that run numbers change."""
    check_devices(small_plan(ring_bits), [{"x": X}, {"x": -X}], {"w": W}, devices)


def test_a_layer_from_a_store() -> None:
    check_prepared(small_plan(), [{"x": X}, {"x": -X}], {"w": W}, (EMULATOR, EMULATOR, CPU))


def test_a_layer_over_tls(tmp_path: Path) -> None:
    """Native links read and write the memory that messages are staged in."""
    plan = small_plan()
    links = connect_all(connect_native, load_all(write_parties(tmp_path)))
    keys = known_keys(3, 1)

    def act(index: int) -> tuple[dict[str, Any], Transcript]:
        name = plan.manifest.parties[index]
        with Party(plan, name, links[index], keys[index], ready(EMULATOR, plan, name)) as party:
            assert isinstance(phase_loop(party.device, party.links, []), AlternatingPhase)
            party.share_weights({"w": W})
            return party.infer({"x": X} if party.program.inputs else {})

    done = run_threads([lambda i=i: act(i) for i in range(3)])
    check_answer(done[1][0]["y"])
    for _, transcript in done:
        record = transcript.phases[Phase.ONLINE]
        assert 0 < (record.encryption_seconds or 0) < record.network_seconds <= record.seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "devices"),
    [("rep3", (CPU, EMULATOR, EMULATOR)), ("additive", (EMULATOR, CPU, EMULATOR))],
)
def test_a_lenet(suite: str, devices: Sequence[str]) -> None:
    check_digits(suite, devices)


def test_a_gelu() -> None:
    check_tiny("gelu", "rep3", (EMULATOR,) * 3)


def test_a_convolution_by_residues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs, of weights that setup makes: packed once for both inferences."""
    monkeypatch.setattr(conv2d, "launches", by_residues)
    images = [{"x": FILTERED}, {"x": -FILTERED}]
    check_devices(filtered_plan(), images, {"w": FILTERS}, (EMULATOR, CPU, EMULATOR))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["softmax", "attention", "mixed_rings"])
@pytest.mark.parametrize(
    ("suite", "devices"), [("rep3", (EMULATOR, CPU, EMULATOR)), ("additive", (EMULATOR,) * 3)]
)
def test_a_tiny_model(model: str, suite: str, devices: Sequence[str]) -> None:
    """Exponentials, quotients, batched products of secrets, words of 32 and of 64 bits."""
    check_tiny(model, suite, devices)
