"""With `consent` in its parties.yaml a party takes part in what that covers, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_plans_to_verify import WAYS, plan_of
from verbs import Compiled, json_of, reason, run_verb

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.consent import OPENINGS
from veilgraph.session import Session
from veilgraph.verification import findings
from veilgraph.verification.consent import accepting_lines, require_accepted
from veilgraph.verification.signatures import sign, signature_file
from veilgraph.verification.verify import verify

FILE = Path("alice.yaml")
RUN = ("run", "digits.plan", "--party", "alice", "--config", FILE)
RUN = (*RUN, "--input", "image=@image.npy", "--timeout", "0.5")
REVEAL = {"reveal": {"logits": ["alice"]}, "openings": ["constants"]}


@pytest.fixture
def author(copied: Compiled) -> str:
    """The public key that signed digits.plan; parties have configurations without consent."""
    write_configs(copied.folder, copied.plan.manifest.parties)
    key = str(json_of("cert", "author", "author.key")["public_key"])
    assert run_verb("sign", "digits.plan", "--key", "author.key").exit_code == 0
    return key


def consenting(*entries: dict[str, Any], **top: Any) -> None:
    """Puts entries into alice's configuration."""
    content = yaml.safe_load(FILE.read_text()) | {"consent": list(entries)} | top
    FILE.write_text(yaml.safe_dump(content))


def lines_of(told: str) -> list[str]:
    """The YAML of a refusal."""
    return [line.removeprefix("  ") for line in told.splitlines() if line.startswith("  ")]


def test_without_consent_nothing_changes(author: str) -> None:
    """A run goes as far as looking for its peers: exit code 5."""
    Path("digits.plan.sig").write_text("none")
    assert reason(*RUN)[0] == 5
    assert reason(*RUN, "--trust-author")[0] == 5


def test_the_lines_of_a_refusal_accept_the_plan(author: str) -> None:
    consenting()
    code, told = reason(*RUN)
    assert code == 6
    assert "does not consent to the plan: no entry is for its digest" in told
    assert "Hint: Ask its author; or put these lines into parties.yaml" in told
    content = FILE.read_text().replace("consent: []\n", "")
    FILE.write_text(content + "\n".join(lines_of(told)) + "\n")
    assert reason(*RUN)[0] == 5
    assert Config.load(FILE).consent


@pytest.mark.parametrize("way", WAYS)
def test_the_lines_accept_every_kind_of_plan(way: str) -> None:
    plan = plan_of(way)
    (entry,) = yaml.safe_load("\n".join(accepting_lines(plan, verify(plan))))["consent"]
    assert entry["plan"] == plan.digest
    assert {name: set(to) for name, to in entry["reveal"].items()} == {
        name: set(to) for name, to in plan.manifest.receivers.items()
    }
    assert set(entry["openings"]) <= set(OPENINGS)
    assert ("public weights" in entry["openings"]) == (way == "rep3, public weights")
    assert ("shared weights" in entry["openings"]) == ("shared" in way)


def test_a_listed_author_is_accepted(author: str) -> None:
    consenting({"author": "bob", **REVEAL}, authors={"bob": author})
    assert reason(*RUN)[0] == 5
    shown = run_verb("verify", "digits.plan", "--config", FILE)
    assert shown.exit_code == 0
    assert f"signed by          bob, the key {author}" in shown.stdout
    Path("digits.plan.sig").unlink()
    code, told = reason(*RUN)
    assert code == 6
    assert "or for an author who signed it (listed: bob)" in told


def test_another_author_is_not(author: str) -> None:
    other = json_of("cert", "author", "other.key")["public_key"]
    consenting({"author": "carol", **REVEAL}, authors={"carol": other})
    code, told = reason(*RUN)
    assert code == 6
    assert "who signed it (listed: carol)" in told


def test_a_signature_that_does_not_fit_ends_a_run(author: str) -> None:
    line = Path("digits.plan.sig").read_text()
    other = json_of("cert", "author", "other.key")["public_key"]
    Path("digits.plan.sig").write_text(line.replace(author, other))
    consenting({"author": "bob", **REVEAL}, authors={"bob": other})
    code, told = reason(*RUN)
    assert code == 6
    assert "does not fit the plan" in told


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"reveal": {"logits": ["bob"]}}, "output logits to alice"),
        ({"reveal": {}}, "output logits to alice"),
        ({"reveal": {"other": "alice"}}, "output logits to alice"),
        ({"max_error": 0.0001}, "an error of 0.001, and 0.0001 is accepted at most"),
        ({"rings": [40, 64]}, "rings of "),
    ],
)
def test_what_an_entry_does_not_accept_is_told(
    author: str, copied: Compiled, change: dict[str, Any], sentence: str
) -> None:
    consenting({"plan": copied.plan.digest, **REVEAL, **change})
    for arguments in (RUN, ("prepare", *RUN[1:6], "--store", "s", "--count", "1")):
        code, told = reason(*arguments)
        assert code == 6
        assert sentence in told.splitlines()[0]
        assert lines_of(told)[0] == "consent:"
        assert lines_of(told)[1] == f"- plan: {copied.plan.digest}"
    assert not Path("s").exists()


def test_what_an_entry_may_leave_open(author: str, copied: Compiled) -> None:
    found = verify(copied.plan)
    exact = {"max_error": 0.001, "rings": list(found.rings)}
    wide = {"reveal": {"logits": ["alice", "bob"], "probabilities": "bob"}}
    for change in ({}, exact, wide, {"openings": list(OPENINGS)}):
        consenting({"plan": "0" * 64}, {"plan": copied.plan.digest, **REVEAL, **change})
        assert reason(*RUN)[0] == 5


@pytest.mark.parametrize(
    ("way", "change", "sentence"),
    [
        ("rep3", {"max_error": 0.5}, r"states no error, and 0\.5 is accepted at most"),
        ("rep3", {"openings": []}, r"opening `constants` \(constants of the plan\)"),
        ("rep3, public weights", {"openings": ["constants"]}, "opening `public weights`"),
        ("rep3, shared weights", {"openings": ["constants"]}, "opening `shared weights`"),
        ("rep3, two receivers", {"reveal": {"y": ["bob", "carol"]}}, "output y to alice"),
    ],
)
def test_each_kind_of_what_is_revealed_is_asked_for(
    way: str, change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    plan = plan_of(way)
    write_configs(tmp_path, plan.manifest.parties)
    (entry,) = yaml.safe_load("\n".join(accepting_lines(plan, verify(plan))))["consent"]
    file = tmp_path / "carol.yaml"
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(content | {"consent": [entry]}))
    require_accepted(plan, Config.load(file))
    file.write_text(yaml.safe_dump(content | {"consent": [entry | change]}))
    with pytest.raises(SecurityAbort, match=sentence):
        require_accepted(plan, Config.load(file))


def test_trust_in_the_author_is_no_consent(author: str, copied: Compiled) -> None:
    consenting({"plan": copied.plan.digest, **REVEAL})
    code, told = reason(*RUN, "--trust-author")
    assert code == 2
    assert "--trust-author would take any" in told
    assert "Hint: Leave out --trust-author" in told


def test_python_finds_the_signature_beside_the_plan(author: str, copied: Compiled) -> None:
    consenting({"author": "bob", **REVEAL}, authors={"bob": author})
    with pytest.raises(Exception, match=r"bob|carol") as caught:
        Session("digits.plan", "alice", FILE, timeout_seconds=0.5)
    assert getattr(caught.value, "exit_code", 0) == 5
    with pytest.raises(SecurityAbort, match="does not consent"):
        Session(copied.plan, "alice", FILE, timeout_seconds=0.5)


def test_verify_tells_what_run_would(author: str, copied: Compiled) -> None:
    consenting({"plan": copied.plan.digest})
    shown = run_verb("verify", "digits.plan", "--config", FILE)
    assert shown.exit_code == 6
    assert "output logits  10 numbers" in shown.stdout
    assert "does not consent to the plan: output logits to alice." in shown.stderr
    told = json.loads(run_verb("verify", "digits.plan", "--config", FILE, "--json").stdout)
    assert "output logits to alice" in told["refused"]
    consenting({"plan": copied.plan.digest, **REVEAL})
    assert json_of("verify", "digits.plan", "--config", FILE)["refused"] is None


def test_names_of_a_plan_stay_names_in_the_lines(tmp_path: Path) -> None:
    """An output's name is its author's choice: it makes up no other entry."""
    plan = plan_of()
    evil = "y: [bob]\n- author: eve"
    found = verify(plan)
    first = found.revealed[0]
    lied = findings.Verified(
        **vars(found)
        | {"revealed": (findings.Revealed(f"output {evil}", 3, ("bob",), (), first.kind),)}
    )
    (entry,) = yaml.safe_load("\n".join(accepting_lines(plan, lied)))["consent"]
    assert entry["reveal"] == {evil: ["bob"]}
    assert all(line.isprintable() for line in accepting_lines(plan, lied))


def test_a_signature_is_of_the_plan_that_runs(tmp_path: Path, author: str) -> None:
    other: Plan = plan_of()
    sign(other, Path("author.key"), signature_file(Path("digits.plan")))
    consenting({"author": "bob", **REVEAL}, authors={"bob": author})
    assert reason(*RUN)[0] == 6


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c.update(consent={}), "consent must be a list of entries"),
        (lambda c: c.update(consent=None), "consent must be a list of entries"),
        (lambda c: c.update(consent=["bob"]), "consent[0] must be a mapping"),
        (lambda c: c.update(consent=[{}]), "must have either `plan` or `author`"),
        (lambda c: c.update(consent=[{"plan": "0" * 64, "author": "bob"}]), "must have either"),
        (lambda c: c.update(consent=[{"plan": "abc"}]), "a digest of 64 hex digits"),
        (lambda c: c.update(consent=[{"author": "eve"}]), "a name under `authors`"),
        (lambda c: c["consent"][0].update(reveal=["y"]), "a mapping of outputs to parties"),
        (lambda c: c["consent"][0].update(reveal={"y": 3}), "a mapping of outputs to parties"),
        (lambda c: c["consent"][0].update(reveal={"y": ["a b"]}), "can't be a party's name"),
        (lambda c: c["consent"][0].update(openings=["all"]), "a list of some of: constants,"),
        (lambda c: c["consent"][0].update(openings="constants"), "a list of some of"),
        (lambda c: c["consent"][0].update(max_error=2), "a number above 0, at most 1"),
        (lambda c: c["consent"][0].update(max_error=True), "a number above 0, at most 1"),
        (lambda c: c["consent"][0].update(rings=[65]), "a list of widths from 1 to 64"),
        (lambda c: c["consent"][0].update(rings=32), "a list of widths from 1 to 64"),
        (lambda c: c["consent"][0].update(errors=1), "consent[0].errors is no known key"),
        (lambda c: c.update(authors=["bob"]), "authors must be a mapping"),
        (lambda c: c.update(authors={"bob": "abc"}), "a public key, 44 characters"),
        (lambda c: c.update(authors={"b b": "abc"}), "can't be a party's name"),
        (lambda c: c["authors"].update(eve=c["authors"]["bob"]), "another key than the other"),
    ],
)
def test_a_section_that_makes_no_sense(
    author: str, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    consenting({"author": "bob", **REVEAL}, authors={"bob": author})
    content = yaml.safe_load(FILE.read_text())
    change(content)
    FILE.write_text(yaml.safe_dump(content))
    with pytest.raises(UsageError) as caught:
        Config.load(FILE)
    assert sentence in caught.value.message
