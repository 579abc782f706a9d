"""How a party joins a session over the network: links, handshake, machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan import Phase, Plan
from veilgraph.runtime.config import Config
from veilgraph.runtime.handshake import open_session
from veilgraph.runtime.native_links import open_links
from veilgraph.runtime.party import Party, Prepared
from veilgraph.runtime.session_ids import SpentSessions
from veilgraph.runtime.shaping import Shape
from veilgraph.runtime.store import Store, StoredSession
from veilgraph.runtime.transcript import Transcript


@dataclass(frozen=True)
class Joined:
    """A party in a session, and the session's id."""

    party: Party
    session_id: bytes


def join(
    plan: Plan,
    config: Config,
    *,
    device: str = "cpu",
    threads: int = 1,
    isa: str | None = None,
    insecure_plaintext: bool = False,
    timeout_seconds: float | None = None,
    shape: Shape | None = None,
    stored: StoredSession | None = None,
) -> Joined:
    """This host's party of `plan`, connected with all others that hold the same plan.

    With `stored` its keys are those of a store, and only parties that compute online take part.

    Raises:
        UsageError: parties.yaml names other parties than the plan.
        PeerError: a peer that does not come, or shows another certificate.
        SecurityAbort: a peer with another plan, or a session id that was used before.
    """
    config = config.for_parties(plan.manifest.parties)
    if stored is not None and plan.manifest.dealer:
        config = config.without(plan.manifest.dealer)
    links = open_links(
        config,
        insecure_plaintext=insecure_plaintext,
        timeout_seconds=timeout_seconds,
        shape=shape,
    )
    try:
        spent = SpentSessions(config.state_dir, config.me.name)
        digest = bytes.fromhex(plan.digest)
        session = open_session(links, digest, plan.manifest.ring_bits, spent)
        keys = session.keys if stored is None else stored.keys
        return Joined(Party(plan, config.me.name, links, keys, device, threads, isa), session.id)
    except BaseException as error:
        links.__exit__(type(error), error, error.__traceback__)
        raise


@dataclass(frozen=True)
class FromStore:
    """A party that runs prepared inferences: its memory is set up, and the dealer is not there."""

    party: Party
    store: Store
    store_id: bytes

    def infer(
        self, inputs: Mapping[str, npt.ArrayLike]
    ) -> tuple[dict[str, npt.NDArray[np.float32]], Transcript]:
        """The next inference that every party still has; see `Party.infer`, `Store`."""
        self.party.encoded(inputs)  # what is wrong with them is said before anything is spent
        number = self.store.agree(self.party.links, self.store_id)
        memory = self.store.take(number, self.store_id)
        return self.party.infer(inputs, Prepared(number, memory))


def store_at(folder: Path, config: Config) -> Store:
    """The store of this host's party."""
    spent = SpentSessions(config.state_dir, f"{config.me.name}-store")
    return Store(folder, config.key.read_bytes(), spent)


def prepare(party: Party, session_id: bytes, store: Store, count: int) -> list[Transcript]:
    """Fills a store with `count` offline phases; the weights are shared already.

    Raises:
        UsageError: the folder holds a store already.
        ResourceLimitError: no room; what was stored before is whole.
    """
    digest = bytes.fromhex(party.plan.digest)
    store.create(StoredSession(digest, session_id, party.keys, party.kept(Phase.SETUP)))
    transcripts = []
    for _ in range(count):
        prepared, transcript = party.prepare()
        store.add(prepared.number, prepared.memory)
        transcripts.append(transcript)
    return transcripts


def join_from_store(plan: Plan, config: Config, folder: Path, **options: Any) -> FromStore:
    """This host's party of `plan`, connected with all others that compute, on a store.

    Raises:
        SecurityAbort: a store of another plan; otherwise as `join`, without a dealer.
    """
    store = store_at(folder, config)
    stored = store.session()
    if stored.plan_digest.hex() != plan.digest:
        raise SecurityAbort(
            f"The store {folder} was prepared for another plan.", "Prepare one for this plan."
        )
    joined = join(plan, config, stored=stored, **options)
    joined.party.restore(Phase.SETUP, stored.memory)
    return FromStore(joined.party, store, stored.id)


def config_of(path: str | Path, party: str) -> Config:
    """parties.yaml at `path`, checked to be this party's own."""
    config = Config.load(Path(path))
    if config.me.name != party:
        raise UsageError(
            f"{path} is the configuration of {config.me.name}, not of {party}.",
            "Each party has a file of its own, with its name and key under `me:`.",
        )
    return config
