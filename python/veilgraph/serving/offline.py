"""Clients that are offline: `share` writes a file a party, `answer` runs on them, `reveal` adds up.

A client's message in a plan is its input x plus the mask M, the sum of the parties' parts M[i] (see
runtime/service/seat.py). Its files hold parts s[i] whose sum is x. Party i sends s[i] + M[i] to the
parties that the client would send its message to, and these add them up: x + M. A coalition learns
no more from the addends. All s[i] of others but one are uniform, independent of x and of all draws,
so all addends but one are, and the last is what is missing to x + M, which the plan shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import PeerError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.ir.roles import NAME_RULE, is_name
from veilgraph.plans import Plan
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.encoding import Words, decode
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.party import encoded_inputs
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.service.audit import audit_of
from veilgraph.runtime.service.enrolled import Enrolled
from veilgraph.runtime.service.seat import members_of
from veilgraph.runtime.service.served import ByRole, Model, ServedPlan, clients_of, links_over
from veilgraph.runtime.session.certificates import (
    fingerprint,
    load_certificate,
    load_certificates,
)
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.connect import connect
from veilgraph.runtime.session.peer_status import PeerStatus, require_valid, validity
from veilgraph.runtime.session.private_keys import load_private_key, secret_of
from veilgraph.runtime.session.session_ids import SpentSessions
from veilgraph.runtime.session.setup import config_of
from veilgraph.runtime.store.at_rest import header_of
from veilgraph.runtime.store.certificate_locks import public_key
from veilgraph.runtime.store.client_files import ANSWER, INPUT, ClientFile, load_client_file
from veilgraph.runtime.store.share_files import split
from veilgraph.runtime.transcript import Transcript
from veilgraph.serving.models import Weights, load_model, tls_transport
from veilgraph.verification.receipts import Receipt, checked, receipt_of, signed

NAME = "offline/1"  # of the plan in state_dir, where setup is kept
Outputs = dict[str, npt.NDArray[np.float32]]


# At the client


def share(
    plan: str | Path,
    config: str | Path,
    inputs: Mapping[str, npt.ArrayLike],
    folder: str | Path,
    *,
    role: str | None = None,
    others: Mapping[str, str | Path] | None = None,
) -> dict[str, Path]:
    """Writes shares of a client's inputs, ROLE.PARTY.share in a folder, each for one party.

    Args:
        plan: path of model.plan.
        config: path of the client's parties.yaml.
        inputs: all inputs of the role by name, as the plan takes them.
        role: which of the plan's clients this is; may be left out where there is one.
        others: certificate files (PEM) of who must fill other roles; anybody, if left out.

    Returns:
        The files, by party.

    Raises:
        UsageError, AccuracyError: an input that does not fit or is outside its range; a file or a
            name that makes no sense.
        PeerError: a certificate of the client or of a party that is not valid now.
    """
    loaded, me = Plan.load(plan), ClientConfig.load(Path(config))
    role = role_of(loaded, role)
    pinned = {
        name: [fingerprint(der).hex() for der in load_certificates(Path(file))]
        for name, file in (others or {}).items()
    }
    if unknown := [name for name in pinned if name not in clients_of(loaded)]:
        raise UsageError(f"The plan has no client {unknown[0]}.", "Name one of its clients.")
    readers = _certificates(loaded, me)
    require_valid(load_certificate(me.certificate), me.name, "Files would be signed with")
    to = {party: _valid_one(party, each) for party, each in readers.items()}
    sharing, count = fresh_nonce(), len(readers)
    encoded = encoded_inputs(loaded.party(role), inputs)
    parts = {t.name: split(words.reshape(-1), t.ring_bits, count) for t, words in encoded}
    facts = {"role": role, "others": pinned}
    found = {}
    for number, (party, certificate) in enumerate(to.items()):
        own = {name: each[number] for name, each in parts.items()}
        file = ClientFile(INPUT, party, loaded.digest, sharing, facts, (number, count), own)
        found[party] = Path(folder) / f"{role}.{party}.share"
        tensors = [tensor for tensor, _ in encoded]
        file.save(found[party], certificate, tensors, me.key, me.certificate)
    return found


@dataclass(frozen=True)
class Revealed:
    """The outputs of a role by name, float32; and each party's receipt of the run, checked."""

    outputs: Outputs
    receipts: Mapping[str, bytes]


def reveal(
    plan: str | Path,
    config: str | Path,
    files: Sequence[str | Path],
    *,
    role: str | None = None,
    sharing: str | None = None,
) -> Revealed:
    """Puts the parties' parts of an answer together.

    Args:
        plan, config, role: as `share` has them.
        files: what each party wrote for this client, in any order.
        sharing: the id of what was shared, of `sharing_of`; answers of any, if left out.

    Raises:
        UsageError: a file that is none, or a party whose file is missing or there twice.
        PeerError: a party's certificate that is not valid any more.
        SecurityAbort: a file for another plan or client, one that was changed or that the party did
            not sign; files of different sharings or inferences.
    """
    loaded, me = Plan.load(plan), ClientConfig.load(Path(config))
    role = role_of(loaded, role)
    outputs = loaded.party(role).outputs
    signers, found = _certificates(loaded, me), dict[str, ClientFile]()
    for path in map(Path, files):
        file = load_client_file(path, ANSWER, loaded.digest, role, me.key, number=None)
        party = str(file.facts.get("party"))
        if file.writer not in signers.get(party, ()):
            raise SecurityAbort(
                f"{path} is not signed by a party that computes.", "Ask for it anew."
            )
        require_valid(file.writer, party, f"{path} is signed with")
        if party in found:
            raise UsageError(f"{path} is {party}'s, whose file is there already.", "Give one each.")
        file.require_words(path, outputs)
        found[party] = file
    if missing := [party for party in signers if party not in found]:
        raise UsageError(f"The file of {missing[0]} is missing.", "Give those of all parties.")
    if len({(each.sharing, each.number) for each in found.values()}) > 1:
        raise SecurityAbort(
            "The files are of different sharings or inferences.", "Give those of one answer."
        )
    told = next(iter(found.values())).sharing.hex()
    if sharing not in (None, told):
        raise SecurityAbort(
            f"The files answer sharing {told}, and not {sharing}.", "Give those of that one."
        )
    receipts = {name: _receipt(name, each, signers) for name, each in found.items()}
    if len({receipt.session for receipt in receipts.values()}) > 1:
        raise SecurityAbort(
            "The files are of different runs of one sharing.", "Give those of one answer."
        )
    parts = {t.name: [each.words[t.name] for each in found.values()] for t in outputs}
    whole = {t.name: decode(_sum(parts[t.name], t), t).reshape(t.shape) for t in outputs}
    return Revealed(whole, {name: _signed(each) for name, each in found.items()})


def sharing_of(path: Path) -> str:
    """The id of the sharing that a file is of, in hex; all files of one `share` have the same."""
    return header_of(path).session.hex()


def _signed(file: ClientFile) -> bytes:
    return str(file.facts.get("receipt")).encode()


def _receipt(party: str, file: ClientFile, signers: Mapping[str, tuple[bytes, ...]]) -> Receipt:
    content = _signed(file)
    receipt = checked(content, signers[party], f"of {party}", f"{party}'s key")
    if (receipt.party, receipt.plan, receipt.request) != (party, file.plan, file.sharing.hex()):
        raise SecurityAbort(f"{party} signed a receipt of another run.", "Tell who runs it.")
    return receipt


def role_of(plan: Plan, role: str | None) -> str:
    """The client that is meant; UsageError where the plan has none of this name, or several."""
    clients = clients_of(plan)
    _require_names(clients)
    if role is None and len(clients) == 1:
        return clients[0]
    if role not in clients:
        raise UsageError(
            f"The plan has no client {role}." if role else "The plan has several clients.",
            f"Say which this is, with --role: {', '.join(clients)}.",
        )
    return role


def _require_names(clients: Iterable[str]) -> None:
    """UsageError for a client's name that files can't have: of plans of earlier versions."""
    for name in clients:
        if not is_name(name):
            raise UsageError(
                f"Files can't be of a client that is called {name!r}.",
                f"Compile the plan with another name for it. {NAME_RULE}",
            )


def _certificates(plan: Plan, config: ClientConfig) -> dict[str, tuple[bytes, ...]]:
    """Of the parties that compute, in the plan's order."""
    known = {party.name: party.certificates for party in config.parties}
    if missing := [name for name in plan.manifest.computing if name not in known]:
        raise UsageError(f"parties.yaml lacks {missing[0]}.", "List all parties that compute.")
    return {name: known[name] for name in plan.manifest.computing}


def _valid_one(party: str, certificates: Sequence[bytes]) -> bytes:
    """The first that is valid now of a party's; PeerError if none is."""
    valid = [each for each in certificates if validity(each) is PeerStatus.WELCOME]
    if not valid:
        require_valid(certificates[-1], party, "A file would be encrypted to")
    return valid[0]


def _sum(parts: Sequence[Words], tensor: Tensor) -> Words:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return wire.wrapped(total, tensor)


# At a party


def answer(
    plan: str | Path,
    party: str,
    config: str | Path,
    files: Sequence[str | Path],
    folder: str | Path,
    *,
    weights: str | Path | None = None,
    device: str | None = None,
    threads: int = 1,
    trust_author: bool = False,
) -> dict[str, Path]:
    """One inference on clients' files, together with the other parties, who have theirs.

    Args:
        plan: path of model.plan.
        party: this party's name.
        config: path of its parties.yaml; `me.clients` says who may ask, as in a service.
        files: of each client, the one for this party; none at a party that only deals.
        folder: where ROLE.PARTY.answer goes, for each client.
        weights: this party's, as `Session` takes them.
        device, threads, trust_author: as `Session` has them.

    Returns:
        The files, by role.

    Raises:
        UsageError: a file or a name that makes no sense.
        PeerError: a client that may not ask, or whose certificate is not valid now; a party that
            did not come or is lost.
        SecurityAbort: a file that was used, or is of another plan or party, or was changed; files
            of different sharings; a plan that is refused.
        ResourceLimitError: a client that may ask about no more rows today.
    """
    own = config_of(config, party)
    given = None if weights is None else Path(weights)
    model = load_model(
        NAME, Path(plan), own, Weights(given, given),
        device=device or own.device, threads=threads, trust_author=trust_author,
    )  # fmt: skip
    _require_names(model.seats)
    asked = _read(model, own, list(map(Path, files)))
    lines = [_facts(own, model, file) for file in asked.values()]
    with closing(audit_of(own)) as audit:
        for facts in lines:
            audit.ask(facts)
        told = "not answered"
        try:
            written = _write(model, own, asked, _run(model, own, asked), Path(folder))
            told = "answered"
            return written
        finally:
            for facts in lines:
                audit.end(facts, told)


def _read(model: Model, config: Config, paths: Sequence[Path]) -> dict[str, ClientFile]:
    """A file of each role, by it, of clients that this party knows."""
    enrolled = Enrolled(config.clients, config.certificate, config.key)
    computing, me = model.plan.manifest.computing, config.me.name
    found = dict[str, ClientFile]()
    for path in paths:
        file = load_client_file(path, INPUT, model.plan.digest, me, config.key)
        role = str(file.facts.get("role"))
        if role not in model.seats:
            raise UsageError(f"{path} is for no client that {me} computes for.", "Leave it out.")
        if role in found:
            raise UsageError(f"{path} is {role}'s, whose file is there already.", "Give one each.")
        if (client := enrolled.name_of(file.writer)) is None:
            raise PeerError(f"Who signed {path} may not ask.", "Its certificate is not known here.")
        require_valid(file.writer, client, f"{path} is signed with")
        public_key(file.writer)  # UsageError now, and not once the file is used
        if file.words and file.part != (computing.index(me), len(computing)):
            raise SecurityAbort(f"{path} holds another party's part.", "Have all shared again.")
        file.require_words(path, model.seats[role].inputs)
        found[role] = file
    if missing := [role for role in model.seats if role not in found]:
        raise UsageError(f"The file of {missing[0]} is missing.", "Give one of each client.")
    for role, file in found.items():
        _require_others(role, file, found)
    return {role: found[role] for role in model.seats}


def _require_others(role: str, file: ClientFile, found: Mapping[str, ClientFile]) -> None:
    """SecurityAbort where a client named others than those who came."""
    named = file.facts.get("others")
    for other, known in named.items() if isinstance(named, dict) else ():
        came = fingerprint(found[other].writer).hex() if other in found else ""
        if not isinstance(known, list) or came not in known:
            raise SecurityAbort(
                f"{role} shared for another {other} than who signed that file.",
                "Ask both whom they agreed with.",
            )


def _facts(config: Config, model: Model, file: ClientFile) -> dict[str, str]:
    enrolled = Enrolled(config.clients, config.certificate, config.key)
    return {
        "client": str(enrolled.name_of(file.writer)), "certificate": fingerprint(file.writer).hex(),
        "role": str(file.facts["role"]), "model": NAME, "plan": model.plan.digest,
        "request": file.sharing.hex(), "rows": str(model.rows),
    }  # fmt: skip


@dataclass(frozen=True)
class _Ran:
    """An inference: its number, this party's part of what each client is told, and what it took."""

    number: int
    parts: ByRole
    session: bytes
    times: tuple[datetime, datetime]
    transcript: Transcript


def _run(model: Model, config: Config, asked: Mapping[str, ClientFile]) -> _Ran:
    began, inner = datetime.now(UTC), config.for_parties(members_of(model.plan))
    channels = connect(inner, inner.timeout_seconds, tls_transport())
    patience = inner.timeout_seconds, inner.least_bytes_per_second
    with ExitStack() as stack:
        for channel in channels.values():
            stack.callback(channel.close)
        links = stack.enter_context(links_over(channels, inner.party, inner.names, patience))
        by_name = {inner.names[peer]: channel for peer, channel in channels.items()}
        served = ServedPlan(model, inner, by_name, secret_of(config.key))
        stack.callback(served.close)
        _agree(links, model, asked)
        _spend(config, asked)
        ahead = served.take()
        served.complete(ahead)
        addends = {
            role: {name: words + asked[role].words[name] for name, words in each.items()}
            for role, each in served.masks(ahead).items()
        }
        given = {role: _exchanged(links, model, role, each) for role, each in addends.items()}
        whole = served.put_together([(0, model.rows, given)])
        parts, transcript = served.run(ahead, whole)
        times = began, datetime.now(UTC)
        return _Ran(ahead.prepared.number, parts, served.id, times, transcript)


def _agree(links: Links, model: Model, asked: Mapping[str, ClientFile]) -> None:
    """SecurityAbort unless all parties that compute were given files of the same sharings."""
    stated = hashlib.sha256(b"veilgraph sharings\0")
    for role, file in sorted(asked.items()):
        stated.update(role.encode() + b"\0" + file.sharing + fingerprint(file.writer))
    own = stated.digest()
    received = {peer: bytearray(len(own)) for peer in links.sent_bytes}
    links.exchange(dict.fromkeys(received, own), received, "which files clients gave")
    others = [
        links.names[peer]
        for peer, content in received.items()
        if links.names[peer] in model.plan.manifest.computing and bytes(content) != own
    ]
    if others and asked:
        raise SecurityAbort(
            f"{others[0]} was given files of another sharing.",
            "Give each party its own file, all of one `share`.",
        )


def _spend(config: Config, asked: Mapping[str, ClientFile]) -> None:
    """Files are used from here on, whatever becomes of the inference."""
    spent = SpentSessions(config.state_dir, config.me.name)
    # With the writer's name: nobody else can use up a sharing by its id.
    ids = [
        hashlib.sha256(
            b"veilgraph sharing\0" + file.sharing + fingerprint(file.writer) + role.encode()
        ).digest()
        for role, file in asked.items()
    ]
    for role, is_new in zip(asked, spent.spend(*ids, together=True), strict=True):
        if not is_new:
            raise SecurityAbort(
                f"The file of {role} was used before.", "Have the client share its input again."
            )


def _exchanged(links: Links, model: Model, role: str, own: Mapping[str, Words]) -> dict[str, Words]:
    """The client's message, of all parties' addends; of no use to who is sent nothing of it."""
    seat, names = model.seats[role], links.names
    content = wire.to_bytes(
        {t.name: wire.wrapped(own[t.name], t) for t in seat.inputs}, seat.inputs
    )
    computing = [peer for peer in links.sent_bytes if names[peer] in model.plan.manifest.computing]
    sends = {peer: content for peer in computing if names[peer] in seat.receivers}
    received = {peer: bytearray(len(content)) for peer in computing if seat.receives}
    if content:
        links.exchange(sends, received, f"what {role} gives")
    parts = [own, *(wire.from_bytes(bytes(each), seat.inputs) for each in received.values())]
    return {t.name: _sum([part[t.name] for part in parts], t) for t in seat.inputs}


def _write(
    model: Model,
    config: Config,
    asked: Mapping[str, ClientFile],
    ran: _Ran,
    folder: Path,
) -> dict[str, Path]:
    computing, me = model.plan.manifest.computing, config.me.name
    key, found = load_private_key(config.key), {}
    for role, file in asked.items():
        place = computing.index(me), len(computing)
        receipt = receipt_of(
            *(me, members_of(model.plan), model.plan.digest, ran.session, ran.times, Transcript()),
            *([ran.transcript], file.sharing.hex()),
        )
        facts = {"party": me, "receipt": signed(receipt, key).decode()}
        answered = ClientFile(
            *(ANSWER, role, model.plan.digest, file.sharing, facts, place),
            *(ran.parts[role], ran.number),
        )
        found[role] = folder / f"{role}.{me}.answer"
        outputs = model.seats[role].outputs
        answered.save(found[role], file.writer, outputs, config.key, config.certificate)
    return found
