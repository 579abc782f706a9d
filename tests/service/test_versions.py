"""What parties, clients and files state of themselves, and that the page of upgrades has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from serving import Hospital, compiled, members, until

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import FORMAT_VERSION
from veilgraph.passes.plan.version import LOWERING_VERSION
from veilgraph.runtime.client import wire
from veilgraph.runtime.session.handshake import PROTOCOL_VERSION
from veilgraph.runtime.store.at_rest import FORMAT
from veilgraph.serving import client
from veilgraph.serving.client import Client

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


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
        with pytest.raises(UsageError, match="speaks version 3 with clients, and the client 9"):
            Client("small", hospital.client)
        monkeypatch.setattr(client.wire, "send", older)
        with pytest.raises(UsageError, match="alice speaks version none that is known with clie"):
            Client("small", hospital.client)
