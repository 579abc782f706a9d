"""Who asked what is written down, counted, and can't be changed afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from serving import SAMPLES, Hospital, compiled, members, until

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.runtime.service.audit import AuditLog
from veilgraph.runtime.session import certificates
from veilgraph.serving.client import Client

FACTS = {"client": "patient", "certificate": "ab" * 32, "request": "12"}


@pytest.fixture
def files(tmp_path: Path) -> certificates.CertificateFiles:
    return certificates.init(tmp_path, "alice", ["127.0.0.1"])


def opened(files: certificates.CertificateFiles, most: int | None = None) -> AuditLog:
    key = certificates.load_private_key(files.key)
    der = certificates.load_certificate(files.certificate)
    return AuditLog(files.key.parent / "state" / "asked", key, der, most)


def test_requests_of_a_day_are_counted_over_starts(files: certificates.CertificateFiles) -> None:
    log = opened(files, 3)
    log.ask(FACTS)
    log.ask(FACTS)
    log.end(FACTS, "answered")
    again = opened(files, 3)
    again.ask(FACTS)
    with pytest.raises(ResourceLimitError, match="has asked about 3 of the 3 rows"):
        again.ask(FACTS)
    again.ask({**FACTS, "certificate": "cd" * 32})


def test_a_request_counts_as_its_rows(files: certificates.CertificateFiles) -> None:
    """So a client learns no more of a model by asking about many rows at once."""
    log = opened(files, 20)
    log.ask({**FACTS, "rows": "16"})
    again = opened(files, 20)
    with pytest.raises(ResourceLimitError, match=r"16 of the 20 rows .* asks about 5 more"):
        again.ask({**FACTS, "rows": "5"})
    again.ask({**FACTS, "rows": "4"})


def test_days_are_counted_apart(
    files: certificates.CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(files, 1)
    log.ask(FACTS)
    monkeypatch.setattr("veilgraph.runtime.service.audit._today", lambda: "2100-01-01")
    log.ask(FACTS)


@pytest.mark.parametrize("change", ["a byte", "one out", "two swapped"])
def test_a_file_that_was_changed_is_refused(
    files: certificates.CertificateFiles, change: str
) -> None:
    log = opened(files)
    for number in range(4):
        log.ask({**FACTS, "request": str(number)})
    path = files.key.parent / "state" / "asked"
    lines = path.read_bytes().splitlines(keepends=True)
    if change == "a byte":
        lines[1] = lines[1].replace(b'"patient"', b'"doctors"')
    elif change == "one out":
        del lines[1]
    else:
        lines[1:3] = lines[2], lines[1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(SecurityAbort, match="Line 2 of"):
        opened(files)


def test_a_line_cut_short_by_a_crash_is_cut_off(files: certificates.CertificateFiles) -> None:
    log = opened(files)
    log.ask(FACTS)
    path = files.key.parent / "state" / "asked"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    opened(files).ask(FACTS)
    assert len(path.read_bytes().splitlines()) == 2
    opened(files)


def test_a_place_that_can_not_be_written_to(files: certificates.CertificateFiles) -> None:
    (files.key.parent / "state").write_text("")
    with pytest.raises(UsageError, match="can't be used"):
        opened(files)


def test_a_client_asks_as_often_as_it_may(tmp_path: Path) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    config = tmp_path / "carol.yaml"
    content = yaml.safe_load(config.read_text())
    content["me"]["rows_a_day"] = 2
    config.write_text(yaml.safe_dump(content))
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        for _ in range(2):
            with Client("small", hospital.client) as client:
                client.run({"x": SAMPLES[0]})
        with (
            Client("small", hospital.client) as client,
            pytest.raises(ResourceLimitError, match="patient has asked about 2 of the 2 rows"),
        ):
            client.run({"x": SAMPLES[0]})
    lines = (tmp_path / "carol.state" / "asked-carol.jsonl").read_bytes().splitlines()
    facts = [json.loads(line.partition(b"\t")[0]) for line in lines]
    assert [each["what"] for each in facts] == [
        "asked", "answered", "asked", "answered", "over its number"
    ]  # fmt: skip
    assert {each["plan"] for each in facts} == {plan.digest}
    assert {each["model"] for each in facts} == {"small/1"}
