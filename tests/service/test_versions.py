"""What parties, clients and files state of themselves, and that the page of upgrades has it.

Plans in kept/ were compiled by earlier commits, of y = x @ w with w = linspace(-1, 1, 12) of shape
(4, 3), for the client `patient`: format6.plan by f6c0b59~1, format7-early.plan by f6c0b59,
lowering1.plan by 69bba24, lowering2.plan by 9e41d13, and format7.plan by the commit that raised the
lowering to 3. Add one when a number of the page changes; take none away.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Hospital, compiled, members, until

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.tables import FORMAT_VERSION
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.runtime.client import wire
from veilgraph.runtime.session.handshake import PROTOCOL_VERSION
from veilgraph.runtime.store.at_rest import FORMAT
from veilgraph.serving import client
from veilgraph.serving.client import Client
from veilgraph.verification.verify import verify

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
KEPT = Path(__file__).parent / "kept"
KEPT_W = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)


def test_the_page_of_upgrades_has_each_version() -> None:
    section = PAGE.read_text().split("## 7. Upgrade")[1]
    rows = dict(re.findall(r"^\| ([a-z][^|:,]*)[^|]* \| (\d+) \|", section, re.M))
    assert {name.strip(): int(number) for name, number in rows.items()} == {
        "format of plans": FORMAT_VERSION,
        "lowering": LOWERING_VERSION,
        "protocol between parties": PROTOCOL_VERSION,
        "files at rest": FORMAT,
        "what clients and parties say": wire.VERSION,
    }


def test_a_plan_of_an_earlier_format_is_refused_by_its_number() -> None:
    with pytest.raises(UsageError, match="of format 6, and this Veilgraph reads format 7") as told:
        veilgraph.Plan.load(KEPT / "format6.plan")
    assert "Compile the model again with this version, at all parties" in told.value.hint


def test_a_plan_from_before_its_format_was_final_is_refused() -> None:
    """Between commits of one unreleased version a format grew under its number."""
    with pytest.raises(UsageError, match="a Given has not the fields of one"):
        veilgraph.Plan.load(KEPT / "format7-early.plan")


@pytest.mark.parametrize("lowering", range(1, LOWERING_VERSION))
def test_a_plan_of_an_earlier_lowering_is_read_and_not_verified(lowering: int) -> None:
    plan = veilgraph.Plan.load(KEPT / f"lowering{lowering}.plan")
    with pytest.raises(
        SecurityAbort, match=f"of lowering {lowering}, .* lowering {LOWERING_VERSION}"
    ):
        verify(plan)
    x = np.array([[0.5, -0.25, 1, 0]], np.float32)
    y = veilgraph.simulate(plan, {"w": KEPT_W}, {"x": x}).outputs["y"]
    np.testing.assert_allclose(y, x @ KEPT_W, atol=0.01)


def test_a_plan_of_these_versions_is_verified_and_runs() -> None:
    plan = veilgraph.Plan.load(KEPT / "format7.plan")
    assert plan.manifest.lowering == LOWERING_VERSION, "it was changed: keep another plan here"
    assert verify(plan).rows == 1
    x = np.array([[0.5, -0.25, 1, 0]], np.float32)
    y = veilgraph.simulate(plan, {"w": KEPT_W}, {"x": x}).outputs["y"]
    np.testing.assert_allclose(y, x @ KEPT_W, atol=0.01)


def test_a_plan_of_another_lowering_is_served_by_who_trusts_its_author(tmp_path: Path) -> None:
    plan = veilgraph.Plan.load(KEPT / "format7.plan")
    manifest = replace(plan.manifest, lowering=LOWERING_VERSION + 1)
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", replace(plan, manifest=manifest), {"w": KEPT_W})
    with pytest.raises(SecurityAbort, match=f"is of lowering {LOWERING_VERSION + 1}"):
        hospital.service("alice")
    with hospital.served(trust_author=True) as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as asking:
            y = asking.run({"x": np.eye(1, 4, dtype=np.float32)})["y"]
    np.testing.assert_allclose(y, KEPT_W[:1], atol=0.01)


def test_a_client_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party tells it so, and it tells so of a party that states none."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    send = wire.send

    def newer(link: Any, fields: Any, elements: bytes = b"") -> None:
        send(link, {**fields, "version": 9} if fields.get("ask") else fields, elements)

    def older(link: Any, fields: Any, elements: bytes = b"") -> None:
        send(link, {k: v for k, v in fields.items() if k != "version" or "ask" in fields}, elements)

    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        monkeypatch.setattr(client.wire, "send", newer)
        with pytest.raises(UsageError, match="speaks version 4 with clients, and the client 9"):
            Client("small", hospital.client)
        monkeypatch.setattr(client.wire, "send", older)
        with pytest.raises(UsageError, match="alice speaks version none that is known with clie"):
            Client("small", hospital.client)
