"""`veilgraph run`: three parties, each by its own command line, over TLS on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from verbs import Compiled, reason, run_verb

import veilgraph
from veilgraph.commands import outputs
from veilgraph.commands import run as run_module
from veilgraph.commands.files import write_array
from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import write_configs

PARTIES = ("alice", "bob", "carol")
OWN: Mapping[str, Sequence[str]] = {
    "alice": ("--input", "image=@image.npy"),
    "bob": ("--weights", "digits.weights"),
    "carol": (),
}


def command(party: str, *more: str) -> list[str]:
    return ["run", "digits.plan", "--party", party, "--config", f"{party}.yaml", *OWN[party], *more]


def run_parties(*commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Runs these commands at the same time; exit code, output and error of each."""
    processes = [
        subprocess.Popen([sys.executable, "-m", "veilgraph.cli", *each], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for each in commands
    ]  # fmt: skip
    ended = [process.communicate(timeout=60) for process in processes]
    return [(p.returncode, *e) for p, e in zip(processes, ended, strict=True)]


@pytest.fixture
def configured(copied: Compiled) -> Compiled:
    """With keys, certificates and a configuration for each party."""
    write_configs(copied.folder, PARTIES)
    return copied


def test_numbers_of_inferences_that_differ(configured: Compiled) -> None:
    alice, bob, carol = run_parties(
        command("alice", "--iterations", "2"),
        command("bob", "--iterations", "3"),
        command("carol", "--iterations", "2"),
    )
    assert [code for code, _, _ in (alice, bob, carol)] == [6, 6, 6]
    assert "bob runs 3 inferences, and this party expects 2." in alice[2].replace("\n", " ")


def test_three_parties_compute_the_answer(configured: Compiled) -> None:
    options = ("--json", "--iterations", "2", "--threads", "1")
    ended = run_parties(*(command(party, *options) for party in PARTIES))
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    alice, bob, carol = (json.loads(out) for _, out, _ in ended)
    assert np.argmax(alice["outputs"]["logits"]["values"]) == 1
    assert bob["outputs"] == carol["outputs"] == {}
    plan = configured.plan
    for phase in Phase:
        name = phase.name.lower()
        sent = {**alice["sent_bytes"][name], **bob["sent_bytes"][name], **carol["sent_bytes"][name]}
        assert sent == plan.sent_bytes(phase)
    assert bob["party"] == "bob"
    # Alice is in the role that says next to nothing online.
    assert max(each["rounds"] for each in (alice, bob, carol)) == plan.rounds(Phase.ONLINE)
    assert set(alice["online_seconds"]) == {"median", "min", "max"}
    links = alice["online_links"]
    assert links["network"] == "lan"
    assert 0 < links["measured"] <= alice["online_seconds"]["max"]


def test_a_session_is_told_as_it_goes_on_request(configured: Compiled) -> None:
    options = ("--iterations", "2", "-vv", "--log-json")
    ended = run_parties(*(command(party, *options) for party in PARTIES))
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    for party, (_, _, told) in zip(PARTIES, ended, strict=True):
        lines = [json.loads(line) for line in told.splitlines()]
        said = [line["message"].rpartition(", ")[0] for line in lines if line["level"] == "info"]
        assert said == [
            f"{party}: the plan is verified",
            f"{party}: connected with all parties",
            f"{party}: weights are shared",
            f"{party}: inference 1 of 2",
            f"{party}: inference 2 of 2",
        ]
        assert {line["party"] for line in lines if line["level"] == "info"} == {party}
        others = ", ".join(name for name in PARTIES if name != party)
        assert f"inference 2 of 2 with {others}" in [line["message"] for line in lines]


def test_parties_with_different_plans_abort(configured: Compiled) -> None:
    shape = ("--shape", "image=1x1x28x28")
    run_verb("compile", "digits.onnx", "-o", "other.plan", *shape)
    carol = ["other.plan" if word == "digits.plan" else word for word in command("carol")]
    ended = run_parties(command("alice"), command("bob"), carol)
    assert 6 in [code for code, _, _ in ended]
    assert all(code in (5, 6) and not out for code, out, _ in ended)
    assert any("a plan with the digest" in told for _, _, told in ended)


def test_a_peer_that_never_comes_ends_the_run(configured: Compiled) -> None:
    options = ("--timeout", "1", "--output", "logits=@logits.npy")
    ((code, out, told),) = run_parties(command("alice", *options))
    assert (code, out) == (5, "")
    assert "within 1 seconds" in told
    assert not Path("logits.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("digits.plan", "--party", "eve", "--config", "alice.yaml"), "of alice, not of eve"),
        (("digits.plan", "--party", "bob", "--config", "bob.yaml"), "and none were given"),
        (("digits.plan", "--party", "carol", "--config", "alice.yaml"), "of alice, not of carol"),
        (("digits.plan", "--party", "carol", "--config", "no.yaml"), "no.yaml"),
        (("digits.plan", "--party", "carol"), "--config is missing.\nHint: Write --config FILE; "),
        (tuple(command("carol", "--output", "logits=@l.npy")[1:]), "--output names `logits`"),
        (tuple(command("alice", "--output", "logits=@.")[1:]), ". is a directory."),
        (
            tuple(command("alice", "--output", "logits=@image.npy")[1:]),
            "image.npy is read here, and would be overwritten.",
        ),
        (
            tuple(command("alice", "--output", "logits=@alice.yaml")[1:]),
            "alice.yaml is read here, and would be overwritten.",
        ),
        (tuple(command("alice", "--timeout", "0")[1:]), "--timeout: 0 is not above 0"),
        (tuple(command("alice", "--timeout", "inf")[1:]), "--timeout: inf is not above"),
        (tuple(command("alice", "--timeout", "86401")[1:]), "and at most 86400."),
        (tuple(command("alice", "--timeout", "nan")[1:]), "at most 86400, not nan."),
        (tuple(command("alice", "--device", "abacus")[1:]), "There is no device `abacus`."),
        (tuple(command("alice", "--device", "host-emulator")[1:]), "imitates a GPU, for tests"),
    ],
)
def test_refuses(configured: Compiled, arguments: tuple[str, ...], sentence: str) -> None:
    code, told = reason("run", *arguments)
    assert code == 2
    assert sentence in told


def of_image(change: str) -> np.ndarray[Any, Any]:
    image = np.load("image.npy")
    changed: np.ndarray[Any, Any] = {
        "shape": image[0],
        "range": image * 1000,
        "nan": np.full_like(image, np.nan),
    }[change]
    return changed


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [
        ("missing", 2, "alice owns input `image`, and it was not given."),
        ("name", 2, "alice has no input `imag`."),
        ("shape", 2, "has shape 1x28x28, and the plan needs 1x1x28x28."),
        ("range", 4, "outside the range"),
        ("nan", 2, "not finite"),
    ],
)
def test_an_input_is_looked_at_before_a_peer_is_called(
    configured: Compiled, change: str, code: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake at one party must not end the session of all."""
    monkeypatch.setattr(run_module, "Session", None)  # none is opened
    words = command("alice")[: -len(OWN["alice"])]
    if change == "name":
        words += ["--input", "imag=@image.npy"]
    elif change != "missing":
        np.save("changed.npy", of_image(change))
        words += ["--input", "image=@changed.npy"]
    found, told = reason(*words)
    assert (found, sentence in told.replace("\n", " ")) == (code, True), told


class Breaks:
    """A session whose second inference fails."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.transcripts: list[None] = []

    def __enter__(self) -> Breaks:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, inputs: object, entry: str | None) -> dict[str, Any]:
        if self.transcripts:
            raise PeerError("bob is lost.", "Ask bob.")
        self.transcripts.append(None)
        return {"logits": np.arange(10, dtype=np.float32)}


@pytest.mark.parametrize("writes", [True, False])
def test_an_answer_outlives_the_failure_after_it(
    configured: Compiled, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    monkeypatch.setattr(run_module, "Session", Breaks)
    more = ("--output", "logits=@l.npy") if writes else ()
    code, told = reason(*command("alice", "--iterations", "3", *more))
    assert code == 5
    assert "1 of 3 inferences ended; this is the last one's answer." in told
    if writes:
        np.testing.assert_array_equal(np.load("l.npy"), np.arange(10))
    else:
        assert "logits, 10: 0 1 2 3 4 5 6 7 8 9" in told


def test_an_answer_that_cannot_be_written_is_kept_elsewhere(
    configured: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, array: Any, name: str) -> None:
        if path.name == path.as_posix():
            raise UsageError("l.npy can't be written: no room.")
        write_array(path, array, name)

    monkeypatch.setattr(outputs, "write_array", refuses)
    with pytest.raises(UsageError, match="no room") as told:
        outputs.values(
            {"logits": np.ones(3, np.float32)},
            {"logits": Path("l.npy")},
            veilgraph.Plan.load("digits.plan"),
        )
    place = told.value.hint.removeprefix("The answer is kept in ").removesuffix(".")
    np.testing.assert_array_equal(np.load(place), np.ones(3))


@pytest.mark.parametrize("name", ["abacus", "host-emulator"])
def test_a_device_in_the_configuration_is_looked_at_too(configured: Compiled, name: str) -> None:
    content = yaml.safe_load(Path("carol.yaml").read_text())
    content["me"]["device"] = name
    Path("carol.yaml").write_text(yaml.safe_dump(content))
    code, told = reason(*command("carol"))
    assert code == 2
    assert name in told


def test_a_device_is_made_ready_before_anybody_is_waited_for(
    configured: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's kernels may take minutes to compile, longer than peers wait."""
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    code, told = reason(*command("carol", "--device", "cuda", "--timeout", "1"))
    assert code == 2
    assert "package pycuda" in told


def test_plaintext_is_refused_beyond_loopback(configured: Compiled) -> None:
    content = yaml.safe_load(Path("carol.yaml").read_text())
    content["parties"][0]["host"] = "192.0.2.1"
    Path("carol.yaml").write_text(yaml.safe_dump(content))
    code, told = reason(*command("carol", "--insecure-plaintext"))
    assert code == 2
    assert "not a loopback address" in told
