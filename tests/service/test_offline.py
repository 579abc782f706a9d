"""Clients that are offline: files of shares, runs on them, and answers put together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import SAMPLES, SUITES, Hospital, answer_to, members
from serving import compiled as compiled_for_one
from test_meetings import S, X, answers, at_once, compiled, hospital_of

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import PeerError, ResourceLimitError, SecurityAbort, UsageError
from veilgraph.runtime.encoding import word_dtype
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import load_certificates, self_signed
from veilgraph.runtime.session.peer_status import PeerStatus
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.store.client_files import ANSWER, INPUT, ClientFile, load_client_file
from veilgraph.serving.offline import answer, reveal, share, sharing_of


class Post:
    """A hospital whose parties have one plan each, and get and give files."""

    def __init__(self, hospital: Hospital) -> None:
        self.hospital, self.folder = hospital, hospital.folder
        for party in hospital.parties:
            content = yaml.safe_load((self.folder / f"{party}.yaml").read_text())
            content["timeout_seconds"] = 5
            (self.folder / f"{party}.yaml").write_text(yaml.safe_dump(content))
        first = next(self.folder.glob("*.models/*/1/model.plan"))
        self.plan = self.folder / "model.plan"
        shutil.copy(first, self.plan)
        self.weights = next(self.folder.glob("*.models/*/1/model.weights"))
        self.owner = self.weights.parents[2].name.removesuffix(".models")
        self.computing = veilgraph.Plan.load(self.plan).manifest.computing

    def share(self, name: str, inputs: Any, **options: Any) -> dict[str, Path]:
        return share(self.plan, self.folder / f"{name}.yaml", inputs, self.folder, **options)

    def run(self, party: str, files: Sequence[Path]) -> Callable[[], Any]:
        weights = self.weights if party == self.owner else None
        config = self.folder / f"{party}.yaml"
        return lambda: answer(self.plan, party, config, files, self.folder, weights=weights)

    def answered(self, *shared: dict[str, Path]) -> list[Any]:
        """What each party wrote by role, or its error."""
        return at_once(
            *(
                self.run(party, [each[party] for each in shared if party in each])
                for party in self.hospital.parties
            )
        )


@pytest.fixture(params=SUITES)
def two(request: Any, tmp_path: Path) -> Post:
    return Post(hospital_of(tmp_path, *compiled(request.param)))


@pytest.fixture
def one(tmp_path: Path) -> Post:
    plan, weights = compiled_for_one("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    return Post(hospital)


def of(role: str, written: Sequence[Any]) -> list[Path]:
    assert all(isinstance(each, dict) for each in written), written
    return [each[role] for each in written if each]


def test_two_clients_that_are_offline(two: Post) -> None:
    shared = two.share("patient", {"x": X[0]}, role="patient"), two.share(
        "doctor", {"s": S[0]}, role="doctor"
    )  # fmt: skip
    assert {path.stat().st_mode & 0o777 for each in shared for path in each.values()} == {0o600}
    assert [*shared[0]] == list(two.computing)
    written = two.answered(*shared)
    for role, names in (("patient", {"y"}), ("doctor", {"y", "z"})):
        files = of(role, written)
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        revealed = reveal(two.plan, two.folder / f"{role}.yaml", files, role=role)
        found = revealed.outputs
        requests = {json.loads(r.splitlines()[0])["request"] for r in revealed.receipts.values()}
        assert [*revealed.receipts] == list(two.computing)
        assert len(requests) == 1
        assert set(found) == names
        for name, value in found.items():
            np.testing.assert_allclose(value, answers(X[0], S[0])[name], atol=0.02)


def test_a_file_is_used_once(one: Post) -> None:
    shared = one.share("patient", {"x": SAMPLES[0]})
    files = of("patient", one.answered(shared))
    np.testing.assert_allclose(
        reveal(one.plan, one.hospital.client, files).outputs["y"], answer_to(SAMPLES[0]), atol=0.01
    )
    for error in one.answered(shared):
        assert isinstance(error, SecurityAbort | PeerError)
    assert any("patient was used before" in str(error) for error in one.answered(shared))


def test_files_of_different_sharings(one: Post) -> None:
    first = one.share("patient", {"x": SAMPLES[0]})
    kept = one.folder / "first"
    first["bob"].rename(kept)
    second = one.share("patient", {"x": SAMPLES[0]})
    errors = one.answered({**second, "bob": kept})
    assert any("given files of another sharing" in str(error) for error in errors)
    files = of("patient", one.answered(second))  # none was used
    assert reveal(one.plan, one.hospital.client, files).outputs["y"].shape == (1, 5)


def test_answers_of_an_older_sharing_or_another_run(one: Post) -> None:
    """By whoever keeps the files, or by parties that forgot what was used."""
    first = one.share("patient", {"x": SAMPLES[0]})
    older = of("patient", one.answered(first))
    kept = [path.rename(path.with_suffix(".older")) for path in older]
    told = sharing_of(one.share("patient", {"x": SAMPLES[1]})["bob"])
    with pytest.raises(SecurityAbort, match=f"answer sharing [0-9a-f]+, and not {told}"):
        reveal(one.plan, one.hospital.client, kept, sharing=told)
    told = sharing_of(kept[0])
    assert reveal(one.plan, one.hospital.client, kept, sharing=told).outputs["y"].shape == (1, 5)
    first = one.share("patient", {"x": SAMPLES[0]})
    files = [path.rename(path.with_suffix(".first")) for path in of("patient", one.answered(first))]
    for spent in one.folder.glob("*.state/spent-sessions-*"):
        spent.unlink()
    again = of("patient", one.answered(first))
    with pytest.raises(SecurityAbort, match="of different runs of one sharing"):
        reveal(one.plan, one.hospital.client, [files[0], *again[1:]])


def test_a_sharing_is_used_up_by_its_writer_alone(two: Post) -> None:
    """Neither by who shares under its id, nor by another role's file that was used."""
    written = two.share("patient", {"x": X[0]}, role="patient")
    shared = {party: path.rename(path.with_suffix(".kept")) for party, path in written.items()}
    doctor = two.share("doctor", {"s": S[0]}, role="doctor")
    of("doctor", two.answered(two.share("patient", {"x": X[0]}, role="patient"), doctor))
    errors = two.answered(shared, doctor)
    assert any("file of doctor was used before" in str(error) for error in errors), errors
    fresh = two.share("doctor", {"s": S[0]}, role="doctor")
    of("doctor", two.answered(shared, fresh))


def test_a_file_for_another_party_plan_or_key(one: Post, tmp_path: Path) -> None:
    shared = one.share("patient", {"x": SAMPLES[0]})
    with pytest.raises(SecurityAbort, match="is bob's, and this is alice"):
        one.run("alice", [shared["bob"]])()
    other = compiled_for_one("rep3", max_error=0.1)[0]
    other.save(tmp_path / "other.plan")
    with pytest.raises(SecurityAbort, match="belongs to another plan"):
        answer(tmp_path / "other.plan", "alice", tmp_path / "alice.yaml", [shared["alice"]],
               tmp_path)  # fmt: skip
    digest = veilgraph.Plan.load(one.plan).digest
    with pytest.raises(SecurityAbort, match="doesn't open with alice's private key"):
        load_client_file(shared["alice"], INPUT, digest, "alice", tmp_path / "bob.key")


def test_who_may_not_ask(one: Post) -> None:
    shared = one.share("patient", {"x": SAMPLES[0]})
    enrolled = one.folder / "clients" / "patient.crt"
    enrolled.rename(one.folder / "away.crt")
    with pytest.raises(PeerError, match=r"Who signed .*patient.alice.share may not ask"):
        one.run("alice", [shared["alice"]])()


def test_rows_a_day_and_the_audit_log(one: Post) -> None:
    config = one.folder / "alice.yaml"
    content = yaml.safe_load(config.read_text())
    content["me"]["rows_a_day"] = 1
    config.write_text(yaml.safe_dump(content))
    of("patient", one.answered(one.share("patient", {"x": SAMPLES[0]})))
    with pytest.raises(ResourceLimitError, match="patient has asked about 1 of the 1 rows"):
        one.run("alice", [one.share("patient", {"x": SAMPLES[0]})["alice"]])()
    log = (one.folder / "alice.state" / "asked-alice.jsonl").read_bytes().splitlines()
    told = [json.loads(line.partition(b"\t")[0])["what"] for line in log]
    assert told == ["asked", "answered", "over its number"]


def test_files_that_are_missing_or_too_many(two: Post) -> None:
    shared = two.share("patient", {"x": X[0]}, role="patient")
    with pytest.raises(UsageError, match="file of doctor is missing"):
        two.run("alice", [shared["alice"]])()
    with pytest.raises(UsageError, match="is patient's, whose file is there already"):
        two.run("alice", [shared["alice"], shared["alice"]])()
    with pytest.raises(UsageError, match="The plan has several clients"):
        two.share("patient", {"x": X[0]})
    with pytest.raises(UsageError, match="The plan has no client nurse"):
        two.share("patient", {"x": X[0]}, role="nurse")
    with pytest.raises(UsageError, match="The plan has no client nurse"):
        two.share(
            "patient", {"x": X[0]}, role="patient", others={"nurse": two.folder / "doctor.crt"}
        )


def test_a_client_names_who_the_other_is(two: Post) -> None:
    others = {"doctor": two.folder / "doctor.crt"}
    shared = two.share("patient", {"x": X[0]}, role="patient", others=others)
    stranger = two.share("stranger", {"s": S[0]}, role="doctor")
    for error in two.answered(shared, stranger):
        assert isinstance(error, SecurityAbort | PeerError), error
        if isinstance(error, SecurityAbort):
            assert "patient shared for another doctor" in str(error)
    doctor = two.share("doctor", {"s": S[0]}, role="doctor")
    files = of("doctor", two.answered(shared, doctor))
    assert reveal(two.plan, two.folder / "doctor.yaml", files, role="doctor").outputs


def test_answers_that_do_not_fit(one: Post) -> None:
    files = of("patient", one.answered(one.share("patient", {"x": SAMPLES[0]})))
    config = one.hospital.client
    with pytest.raises(UsageError, match="The file of carol is missing"):
        reveal(one.plan, config, files[:2])
    with pytest.raises(UsageError, match="is bob's, whose file is there already"):
        reveal(one.plan, config, [*files, files[1]])
    kept = one.folder / "kept"
    files[0].rename(kept)
    others = of("patient", one.answered(one.share("patient", {"x": SAMPLES[1]})))
    with pytest.raises(SecurityAbort, match="of different sharings or inferences"):
        reveal(one.plan, config, [kept, *others[1:]])
    with pytest.raises(SecurityAbort, match="holds clientinput, and clientanswer is expected"):
        reveal(one.plan, config, [one.folder / "patient.alice.share"])
    content = yaml.safe_load(config.read_text())  # another alice than who signed
    content["parties"][0]["certificate"] = "patient.crt"
    config.write_text(yaml.safe_dump(content))
    with pytest.raises(SecurityAbort, match="is not signed by a party that computes"):
        reveal(one.plan, config, others)


@pytest.fixture(scope="module")
def posted(tmp_path_factory: Any) -> tuple[Post, dict[str, bytes]]:
    """Files of both kinds, whole."""
    folder = tmp_path_factory.mktemp("posted")
    plan, weights = compiled_for_one("rep3")
    hospital = Hospital(folder, members(plan))
    hospital.put("small/1", plan, weights)
    post = Post(hospital)
    shared = post.share("patient", {"x": SAMPLES[0]})
    files = of("patient", post.answered(shared))
    return post, {INPUT: shared["alice"].read_bytes(), ANSWER: files[0].read_bytes()}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_is_cut_flipped_or_put_in_is_refused(posted: Any, data: Any) -> None:
    post, contents = posted
    kind, content = data.draw(st.sampled_from(sorted(contents.items())))
    place = data.draw(st.integers(0, len(content) - 1))
    match data.draw(st.sampled_from(("cut", "flip", "put in"))):
        case "cut":
            damaged = content[:place]
        case "flip":
            damaged = bytearray(content)
            damaged[place] ^= data.draw(st.integers(1, 255))
        case _:
            damaged = (
                content[:place] + data.draw(st.binary(min_size=1, max_size=9)) + content[place:]
            )
    path = post.folder / "damaged"
    path.write_bytes(damaged)
    reader = {INPUT: "alice", ANSWER: "patient"}[kind]
    digest = veilgraph.Plan.load(post.plan).digest
    with pytest.raises((SecurityAbort, UsageError)):
        load_client_file(path, kind, digest, reader, post.folder / f"{reader}.key")


def test_by_the_command_line(one: Post) -> None:
    np.save(one.folder / "x.npy", SAMPLES[0])
    plan, folder, run = str(one.plan), str(one.folder), CliRunner().invoke
    given = ["--config", str(one.hospital.client), "--input", f"x=@{one.folder / 'x.npy'}"]
    shared = run(main, ["share", plan, *given, "--folder", folder])
    assert "patient.alice.share is for alice, and for nobody else." in shared.output
    name = {party: one.folder / f"patient.{party}.share" for party in one.computing}
    by_verb = [
        "answer", plan, str(name["carol"]), "--party", "carol", "--config",
        str(one.folder / "carol.yaml"), "--folder", folder,
    ]  # fmt: skip
    # click's runner takes over the process's streams: one party of three is run by it
    *_, told = at_once(
        one.run("alice", [name["alice"]]), one.run("bob", [name["bob"]]),
        lambda: run(main, by_verb),
    )  # fmt: skip
    assert "patient.carol.answer is for patient, and for nobody else." in told.output, told
    files = [str(one.folder / f"patient.{party}.answer") for party in one.computing]
    found = run(main, ["reveal", plan, "--config", str(one.hospital.client), *files, "--json"])
    np.testing.assert_allclose(
        json.loads(found.output)["outputs"]["y"]["values"], answer_to(SAMPLES[0]), atol=0.01
    )


def test_a_client_whose_certificate_nothing_is_encrypted_to(one: Post) -> None:
    """It is told so before its file is used."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "patient")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (one.folder / "patient.key").write_bytes(own)
    (one.folder / "patient.crt").write_bytes(made)
    (one.folder / "clients" / "patient.crt").write_bytes(made)
    shared = one.share("patient", {"x": SAMPLES[0]})
    with pytest.raises(UsageError, match="encrypted to an Ed25519 key alone"):
        one.run("alice", [shared["alice"]])()


def days_ago(post: Post, name: str, *places: str) -> None:
    """Puts a certificate of a key in place that ended yesterday."""
    key = load_private_key(post.folder / f"{name}.key")
    made = self_signed(key, name, ["127.0.0.1"], datetime.now(UTC) - timedelta(days=3), 2)
    for place in places:
        (post.folder / place).write_bytes(made.public_bytes(Encoding.PEM))


def test_certificates_that_have_expired(one: Post) -> None:
    """Neither is anything written for them, nor are files taken that they signed."""
    shared = one.share("patient", {"x": SAMPLES[0]})
    files = of("patient", one.answered(shared))
    days_ago(one, "patient", "patient.crt")
    with pytest.raises(PeerError, match=r"signed with a certificate of patient .* has expired"):
        one.share("patient", {"x": SAMPLES[0]})
    certificates.issue(one.folder, "patient", ["127.0.0.1"])
    bob = (one.folder / "bob.crt").read_bytes()
    days_ago(one, "bob", "bob.crt")
    with pytest.raises(
        PeerError, match=r"encrypted to a certificate of bob .* has expired"
    ) as told:
        one.share("patient", {"x": SAMPLES[0]})
    assert "bob makes a new one with `veilgraph cert issue`" in str(told.value)
    old = (one.folder / "bob.crt").read_bytes()
    (one.folder / "bob.crt").write_bytes(old + bob)  # the next one is there
    one.share("patient", {"x": SAMPLES[0]})
    assert reveal(one.plan, one.hospital.client, files).outputs["y"].shape == (1, 5)


def test_files_that_an_expired_certificate_signed(one: Post, monkeypatch: Any) -> None:
    days_ago(one, "patient", "patient.crt", "clients/patient.crt")
    days_ago(one, "bob", "bob.crt")
    with monkeypatch.context() as then:
        then.setattr("veilgraph.serving.offline.require_valid", lambda *_: None)
        then.setattr("veilgraph.serving.offline.validity", lambda _: PeerStatus.WELCOME)
        shared = one.share("patient", {"x": SAMPLES[0]})
    with pytest.raises(PeerError, match=r"alice.share is signed with .* of patient .* has expired"):
        one.run("alice", [shared["alice"]])()
    plan = veilgraph.Plan.load(one.plan)
    outputs = plan.party("patient").outputs
    words = {"y": np.zeros(5, word_dtype(outputs[0].ring_bits))}
    file = ClientFile(ANSWER, "patient", plan.digest, bytes(32), {"party": "bob"}, (1, 3), words)
    patient = certificates.issue(one.folder, "patient").certificate
    file.save(one.folder / "of-bob", load_certificates(patient)[0], outputs,
              one.folder / "bob.key", one.folder / "bob.crt")  # fmt: skip
    with pytest.raises(PeerError, match=r"of-bob is signed with a certificate of bob .* expired"):
        reveal(one.plan, one.hospital.client, [one.folder / "of-bob"])


@pytest.mark.parametrize("role", [33 * "p", "m\u00fcller"])
def test_a_client_whose_name_files_can_not_have(
    tmp_path: Path, monkeypatch: Any, role: str
) -> None:
    """Of a plan from before compiling refused it: told before anything is sent, or used up."""
    roles = {"clients": (role,), "owners": {"x": role}, "receivers": {"y": (role,)}}
    with monkeypatch.context() as before:
        before.setattr("veilgraph.targets.target.is_name", lambda _: True)
        plan, weights = compiled_for_one("rep3", **roles)
    hospital = Hospital(tmp_path, [name for name in plan.manifest.parties if name != role])
    hospital.put("small/1", plan, weights)
    post = Post(hospital)
    said = rf"Files can't be of a client that is called '{role}'"
    with pytest.raises(UsageError, match=said):
        post.share("patient", {"x": SAMPLES[0]})
    with pytest.raises(UsageError, match=said):
        reveal(post.plan, hospital.client, [])
    for party in post.computing:
        config = tmp_path / f"{party}.yaml"
        own = post.weights if party == post.owner else None
        with pytest.raises(UsageError, match=said):
            answer(post.plan, party, config, [], tmp_path, weights=own, trust_author=True)
