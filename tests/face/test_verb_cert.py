"""`veilgraph cert`: keys and certificates from the command line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from verbs import json_of, reason, run_verb

from veilgraph.runtime.session.certificates import fingerprint, load_certificate


def test_init_makes_a_key_and_tells_the_fingerprint(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    result = run_verb("cert", "init", "alice", "--dir", folder, "--host", "alice.example")
    assert result.exit_code == 0
    assert stat.S_IMODE((folder / "alice.key").stat().st_mode) == 0o600
    found = fingerprint(load_certificate(folder / "alice.crt")).hex()
    assert f"fingerprint: {found}" in result.stdout


def test_issue_keeps_the_key(tmp_path: Path) -> None:
    first = json_of("cert", "init", "alice", "--dir", tmp_path)
    key = Path(first["key"]).read_bytes()
    second = json_of("cert", "issue", "alice", "--dir", tmp_path, "--days", "30")
    assert Path(second["key"]).read_bytes() == key
    assert second["fingerprint"] != first["fingerprint"]
    assert second["name"] == "alice"


def test_force_replaces_the_key(tmp_path: Path) -> None:
    key = Path(json_of("cert", "init", "alice", "--dir", tmp_path)["key"])
    before = key.read_bytes()
    assert reason("cert", "init", "alice", "--dir", tmp_path)[0] == 2
    assert run_verb("cert", "init", "alice", "--dir", tmp_path, "--force").exit_code == 0
    assert key.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("init", "../alice"), "can't be a party's name"),
        (("init", "alice", "--days", "0"), "can't be valid for 0 days"),
        (("issue", "alice"), "alice.key can't be read"),
        (("init",), "NAME is missing."),
    ],
)
def test_refuses(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, told = reason("cert", *arguments, "--dir", tmp_path)
    assert code == 2
    assert sentence in told
    assert not list(tmp_path.iterdir())


def test_show_reads_the_fingerprint_aloud(tmp_path: Path) -> None:
    made = json_of("cert", "init", "alice", "--dir", tmp_path)
    result = run_verb("cert", "show", made["certificate"])
    assert result.exit_code == 0
    assert "is of alice, from 20" in result.stdout
    lines = result.stdout.splitlines()[2:]
    assert [len(line.split()) for line in lines] == [4, 4, 4, 4]
    assert "".join("".join(line.split()) for line in lines) == made["fingerprint"]
    told = json_of("cert", "show", made["certificate"])
    assert (told["name"], told["fingerprint"]) == ("alice", made["fingerprint"])
    code, why = reason("cert", "show", made["key"])
    assert code == 2
    assert "holds no certificate" in why


def test_one_certificate_takes_the_place_of_another(tmp_path: Path) -> None:
    first = json_of("cert", "init", "alice", "--dir", tmp_path)
    code, why = reason("cert", "retire", "alice", "--dir", tmp_path)
    assert (code, "holds one certificate" in why) == (2, True)
    second = json_of("cert", "issue", "alice", "--dir", tmp_path, "--beside")
    both = json_of("cert", "show", first["certificate"])
    assert both["fingerprint"] == first["fingerprint"]
    assert both["next"]["fingerprint"] == second["fingerprint"] != first["fingerprint"]
    assert run_verb("cert", "show", first["certificate"]).stdout.count("is of alice") == 2
    code, why = reason("cert", "issue", "alice", "--dir", tmp_path, "--beside")
    assert (code, "holds 2 certificates already" in why) == (2, True)
    assert run_verb("cert", "retire", "alice", "--dir", tmp_path).exit_code == 0
    left = json_of("cert", "show", first["certificate"])
    assert left["fingerprint"] == second["fingerprint"]
    assert "next" not in left
