"""Weights are shared once: what setup left is kept encrypted, and used if all have the same."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from serving import SAMPLES, SUITES, Hospital, W, answer_to, compiled, members, until

import veilgraph
from veilgraph.serving.client import Client

KEPT = "are shared since an earlier session"


def asked(hospital: Hospital, caplog: pytest.LogCaptureFixture, w: object = W) -> int:
    """Serves, asks once, leaves; how many parties went on from what they kept."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "veilgraph.service"), hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            y = client.run({"x": SAMPLES[0]})["y"]
    np.testing.assert_allclose(y, answer_to(SAMPLES[0], w), atol=0.01)
    return sum(KEPT in record.getMessage() for record in caplog.records)


def kept_by(hospital: Hospital, party: str) -> Path:
    (found,) = (hospital.folder / f"{party}.state").glob("setup-*")
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_a_second_start_sends_no_weights(
    suite: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, weights = compiled(suite)
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    assert asked(hospital, caplog) == 0
    assert asked(hospital, caplog) == len(hospital.parties)
    kept_by(hospital, "bob").unlink()
    assert asked(hospital, caplog) == 0
    assert asked(hospital, caplog) == len(hospital.parties)


def test_other_weights_of_the_same_plan_are_shared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    assert asked(hospital, caplog) == 0
    (owner,) = (party for party in hospital.parties if plan.party(party).weights)
    file = hospital.models(owner) / "small" / "1" / "model.weights"
    file.unlink()
    veilgraph.save_weights({name: -each for name, each in weights.items()}, file, plan)
    assert asked(hospital, caplog, -W) == 0
    assert asked(hospital, caplog, -W) == 3


def test_a_file_that_was_changed_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    asked(hospital, caplog)
    file = kept_by(hospital, "carol")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert asked(hospital, caplog) == 0
    assert any("Weights are shared anew" in record.getMessage() for record in caplog.records)


def test_the_file_holds_no_share_in_the_clear(tmp_path: Path) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        memory = services["bob"]._host.served["small"]._party.kept(0)
    file = kept_by(hospital, "bob")
    assert file.stat().st_mode & 0o077 == 0
    content = file.read_bytes()
    assert len(memory) >= 64
    assert not any(memory[i : i + 16] in content for i in range(0, len(memory) - 16, 16))
