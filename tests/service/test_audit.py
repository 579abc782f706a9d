"""Who asked what is written down, counted, and can't be changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def ended() -> Iterator[list[AuditLog]]:
    """Logs of processes that have ended: a file is one process's at a time."""
    yield OPEN
    while OPEN:
        OPEN.pop().close()


OPEN: list[AuditLog] = []


def opened(files: certificates.CertificateFiles, most: int | None = None) -> AuditLog:
    while OPEN:
        OPEN.pop().close()
    key = certificates.load_private_key(files.key)
    der = certificates.load_certificate(files.certificate)
    OPEN.append(AuditLog(files.key.parent / "state" / "asked", key, der, most))
    return OPEN[-1]


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
    while OPEN:
        OPEN.pop()._file.close()  # its process was killed
    with pytest.raises(SecurityAbort, match="Line 2 of"):
        opened(files)


@pytest.mark.parametrize("left", [0, 1, 3])
def test_an_end_that_was_cut_off_is_noticed(
    files: certificates.CertificateFiles, left: int
) -> None:
    log = opened(files)
    for number in range(4):
        log.ask({**FACTS, "request": str(number)})
    log.close()
    OPEN.clear()
    path = files.key.parent / "state" / "asked"
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:left]))
    with pytest.raises(SecurityAbort, match=f"has {left} lines, and had 4: its end was cut off"):
        opened(files)
    path.write_bytes(whole)
    opened(files).ask(FACTS)


def test_a_head_that_is_missing_or_changed(files: certificates.CertificateFiles) -> None:
    opened(files).ask(FACTS)
    OPEN.pop().close()
    head = files.key.parent / "state" / "asked.head"
    content = head.read_bytes()
    head.write_bytes(content.replace(b'"lines": 1', b'"lines": 0'))
    with pytest.raises(SecurityAbort, match=r"asked.head is not as this party wrote it"):
        opened(files)
    head.unlink()
    with pytest.raises(SecurityAbort, match=r"asked.head is missing"):
        opened(files)
    head.write_bytes(content)
    opened(files)


def test_the_head_follows_within_a_second(files: certificates.CertificateFiles) -> None:
    """So a process that is killed leaves it behind by no more, and never ahead."""
    log = opened(files)
    head = files.key.parent / "state" / "asked.head"
    log.ask(FACTS)
    until(lambda: b'"lines": 1' in head.read_bytes(), 5.0)
    log.ask(FACTS)
    log._file.close()  # it was killed before that
    OPEN.clear()
    assert b'"lines": 1' in head.read_bytes()
    opened(files)
    assert b'"lines": 2' in head.read_bytes()


def test_a_log_from_before_there_were_heads(
    files: certificates.CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr("veilgraph.runtime.service.audit._NUMBER", "none")
        old.setattr(AuditLog, "_write_head", lambda self: None)
        opened(files).ask(FACTS)
        OPEN.pop().close()
    assert not (files.key.parent / "state" / "asked.head").exists()
    opened(files).ask(FACTS)
    opened(files)


def test_two_processes_of_one_party(files: certificates.CertificateFiles) -> None:
    opened(files)
    key = certificates.load_private_key(files.key)
    der = certificates.load_certificate(files.certificate)
    with pytest.raises(UsageError, match="written to by another process of this party"):
        AuditLog(files.key.parent / "state" / "asked", key, der, None)


def test_a_file_that_changes_under_a_process(files: certificates.CertificateFiles) -> None:
    log = opened(files)
    log.ask(FACTS)
    (files.key.parent / "state" / "asked").write_bytes(b"")
    with pytest.raises(ResourceLimitError, match="another process changed it"):
        log.ask(FACTS)


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
