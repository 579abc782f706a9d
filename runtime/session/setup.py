"""How a party joins a session over the network: links, handshake, interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.names import require_device
from veilgraph.runtime.links.native import open_links
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.party import Party, Prepared, encoded_inputs
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.handshake import NO_DEALING, Origin, Terms, open_session
from veilgraph.runtime.session.keys import holders_of
from veilgraph.runtime.session.peer_status import warn_of_ends
from veilgraph.runtime.session.private_keys import secret_of
from veilgraph.runtime.session.session_ids import SpentSessions
from veilgraph.runtime.store.position import StoreState
from veilgraph.runtime.store.store import Store, StoredSession, purpose, store_id
from veilgraph.runtime.store.stored_runs import OpenStore
from veilgraph.runtime.transcript import Transcript


@dataclass(frozen=True)
class Joined:
    """A party in a session, the session's id, and where its states come from."""

    party: Party
    session_id: bytes
    origin: Origin


def join(
    plan: Plan,
    config: Config,
    *,
    inferences: int = 0,
    device: str | None = None,
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    insecure_plaintext: bool = False,
    shape: Shape | None = None,
    from_store: bool = False,
    dealing: bytes = NO_DEALING,
    secret: bytes | None = None,
    origins: tuple[Origin, ...] = (),
) -> Joined:
    """This host's party of `plan`, connected with all others that hold the same plan.

    With `from_store` inferences bring their keys, and only parties that are there online take part.
    `device` and `cubins` are those of parties.yaml unless given. `dealing` is the id of the shares
    of weights that this party loads. `secret` is that of its private key, where it was read before.
    `origins` says from where its states may come, newest first.

    Raises:
        UsageError: parties.yaml names other parties than the plan, or there is no such device.
        PeerError: a peer that does not come, or shows another certificate.
        SecurityAbort: a peer with another plan, another number of inferences (0: left open), shares
            of another dealing, states of another run, or without a store where this party has one;
            a session id that was used before, or a peer whose randomness repeats.
    """
    config = _taking_part(plan, config, from_store=from_store)
    device, cubins = device or config.device, cubins or config.cubins
    require_device(device)
    name = config.me.name
    place = ready(device, plan, name, threads=threads, isa=isa, cubins=cubins)
    links = open_links(config, insecure_plaintext=insecure_plaintext, shape=shape)
    try:
        spent = SpentSessions(config.state_dir, name)
        digest, ring_bits = bytes.fromhex(plan.digest), plan.manifest.ring_bits
        terms = Terms(digest, ring_bits, inferences, from_store, dealing, origins)
        holders = () if from_store else holders_of(plan)
        session = open_session(links, terms, spent, secret or secret_of(config.key), holders)
        keys = None if from_store else session.keys
        return Joined(Party(plan, name, links, keys, place), session.id, session.origin)
    except BaseException as error:
        links.__exit__(type(error), error, error.__traceback__)
        raise


def _taking_part(plan: Plan, config: Config, from_store: bool) -> Config:
    """The configuration with the parties of this session: with stores, who is there online."""
    manifest = plan.manifest
    config = config.for_parties(manifest.parties)
    absent = [name for name in manifest.parties if not manifest.role(name).online]
    return config.without(absent) if from_store else config


@dataclass(frozen=True)
class FromStore:
    """A party that runs prepared inferences: its memory is set up; who only prepares is away.

    Attributes:
        entry: the number of the entry that they were prepared for.
        origin: where the states come from.
    """

    party: Party
    store: Store
    store_id: bytes
    session_id: bytes
    entry: int
    origin: Origin

    def infer(
        self, inputs: Mapping[str, npt.ArrayLike], entry: int = 0, wanted: int = 1
    ) -> tuple[dict[str, npt.NDArray[np.float32]], Transcript]:
        """The next inference that every party still has; see `Party.infer`, `Store`.

        Args:
            wanted: inferences to come in this session; with fewer left, none is spent.

        Raises:
            UsageError: the store is for runs of another entry.
        """
        names = self.party.plan.manifest.entries
        if entry != self.entry:
            raise UsageError(
                f"The store {self.store.folder} was prepared for entry `{names[self.entry]}`, and "
                f"this run is of `{names[entry]}`.",
                f"Run --entry {names[self.entry]}, or prepare a store with --entry {names[entry]}.",
            )
        encoded_inputs(self.party.program, inputs, entry)  # refused before anything is spent
        number = self.store.agree(self.party.links, self.store_id, wanted)
        taken = self.store.take(number, self.store_id)
        return self.party.infer(inputs, Prepared(number, taken.keys, taken.memory), entry)


def store_at(folder: Path, config: Config) -> Store:
    """The store of this host's party."""
    return _store(folder, config, secret_of(config.key))


def _store(folder: Path, config: Config, secret: bytes) -> Store:
    return Store(folder, secret, StoreState(config.state_dir, config.me.name, secret))


def require_store(plan: Plan, party: str, store: Path | None) -> None:
    """UsageError unless a party that takes part online names a store, and others none."""
    role = plan.manifest.role(party)
    if not role.online and store is not None:
        raise UsageError(f"{party} is the {role}, and keeps nothing.", "Leave the store out here.")
    if role.online and store is None:
        raise UsageError(
            f"Nothing says where {party} keeps what is prepared.", "Name a folder with --store."
        )


def prepare(
    party: Party,
    session_id: bytes,
    store: Store | None,
    count: int,
    entry: int = 0,
    ended: Callable[[Transcript], None] = lambda transcript: None,
) -> list[Transcript]:
    """Runs `count` offline phases of an entry into a store; the weights are shared already.

    Who takes no part in what comes after has no store, and keeps nothing.

    Args:
        ended: called after each inference.

    Raises:
        UsageError: the folder holds a store already.
        ResourceLimitError: no room; what was stored before is whole.
        SecurityAbort: a peer that prepares another entry.
    """
    party.agree_on(entry)
    if store is not None:
        store.claim()
    wanted, ratchet = _purposes(party.plan)[entry], party.branch()
    first = ratchet.number
    made = store_id(session_id, first)
    transcripts: list[Transcript] = []
    try:
        if store is not None:
            store.create(StoredSession(wanted, made, party.kept(Phase.SETUP)), ratchet)
        for _ in range(count):
            prepared, transcript = party.prepare(ratchet, entry)
            if store is not None:
                store.add(ratchet, made, prepared.memory)
            ratchet = ratchet.next()
            transcripts.append(transcript)
            ended(transcript)
    except BaseException:
        if store is not None and not transcripts:
            store.discard(made, first)  # another try, once it can work, finds the folder free
        raise
    return transcripts


def join_from_store(
    plan: Plan, config: Config, folder: Path, *, inferences: int = 0, **options: Any
) -> FromStore:
    """This host's party of `plan`, connected with all others that are there online, on a store.

    Raises:
        UsageError: this party takes no part online, and keeps nothing.
        ResourceLimitError: the store has fewer inferences left than the session is for.
        SecurityAbort: a store of another plan; otherwise as `join`.
    """
    _taking_part(plan, config, from_store=True)
    secret = secret_of(config.key)
    opened = _opened(plan, folder, config, secret)
    store, stored = opened.store, opened.session
    store.require(stored.id, inferences)
    joined = join(plan, config, inferences=inferences, from_store=True, secret=secret, **options)
    joined.party.restore(Phase.SETUP, stored.memory)
    return FromStore(joined.party, store, stored.id, joined.session_id, opened.entry, joined.origin)


def open_store(plan: Plan, config: Config, folder: Path, entry: int) -> OpenStore:
    """This party's store of runs of an entry, for a session whose other runs are live.

    Raises:
        UsageError: a party that keeps nothing, a store of another entry, or no store.
        SecurityAbort: a store of another plan, or a file that was changed.
    """
    names = plan.manifest.entries
    require_store(plan, config.me.name, folder)
    opened = _opened(plan, folder, config, secret_of(config.key))
    if opened.entry != entry:
        raise UsageError(
            f"The store {folder} was prepared for entry `{names[opened.entry]}`, and runs of "
            f"`{names[entry]}` are taken from it here.",
            f"Prepare one with --entry {names[entry]}.",
        )
    return opened


def _opened(plan: Plan, folder: Path, config: Config, secret: bytes) -> OpenStore:
    store = _store(folder, config, secret)
    stored, purposes = store.session(), _purposes(plan)
    if stored.purpose not in purposes:
        raise SecurityAbort(
            f"The store {folder} was prepared for another plan.", "Prepare one for this plan."
        )
    return OpenStore(store, stored, purposes.index(stored.purpose))


def _purposes(plan: Plan) -> list[bytes]:
    """What stores of each entry are for."""
    digest = bytes.fromhex(plan.digest)
    return [purpose(digest, name) for name in plan.manifest.entries]


def config_of(path: str | Path, party: str) -> Config:
    """parties.yaml at `path`, checked to be this party's own.

    It warns of certificates that are about to end.
    """
    config = Config.load(Path(path))
    if config.me.name != party:
        raise UsageError(
            f"{path} is the configuration of {config.me.name}, not of {party}.",
            "Each party has a file of its own, with its name and key under `me:`.",
        )
    warn_of_ends(config)
    return config
