"""How a party joins a session over the network: links, handshake, machine."""

from __future__ import annotations

from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import Plan
from veilgraph.runtime.config import Config
from veilgraph.runtime.handshake import open_session
from veilgraph.runtime.links import TlsLinks
from veilgraph.runtime.party import Party
from veilgraph.runtime.session_ids import SpentSessions


def join(
    plan: Plan,
    config: Config,
    *,
    device: str = "cpu",
    threads: int = 1,
    isa: str | None = None,
    insecure_plaintext: bool = False,
    timeout_seconds: float | None = None,
) -> Party:
    """This host's party of `plan`, connected with all others that hold the same plan.

    Raises:
        UsageError: parties.yaml names other parties than the plan.
        PeerError: a peer that does not come, or shows another certificate.
        SecurityAbort: a peer with another plan, or a session id that was used before.
    """
    config = config.for_parties(plan.manifest.parties)
    links = TlsLinks.connect(
        config, insecure_plaintext=insecure_plaintext, timeout_seconds=timeout_seconds
    )
    try:
        spent = SpentSessions(config.state_dir, config.me.name)
        digest = bytes.fromhex(plan.digest)
        session = open_session(links, digest, plan.manifest.ring_bits, spent)
        return Party(plan, config.me.name, links, session.keys, device, threads, isa)
    except BaseException as error:
        links.__exit__(type(error), error, error.__traceback__)
        raise


def config_of(path: str | Path, party: str) -> Config:
    """parties.yaml at `path`, checked to be this party's own."""
    config = Config.load(Path(path))
    if config.me.name != party:
        raise UsageError(
            f"{path} is the configuration of {config.me.name}, not of {party}.",
            "Each party has a file of its own, with its name and key under `me:`.",
        )
    return config
