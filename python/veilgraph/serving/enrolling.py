"""A client that enrols itself at a party, by a token that it was given."""

from __future__ import annotations

from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.service.enrolled import signed_content
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.private_keys import load_private_key
from veilgraph.runtime.session.public_keys import party_signature
from veilgraph.serving.party_links import answer_of, reach


def enrol(config: ClientConfig, party: str, token: str) -> str:
    """Has a party put this client's certificate into its folder; gives the name that it has there.

    Args:
        party: one of the configuration's.
        token: of `veilgraph cert token` at that party.

    Raises:
        UsageError: a party that the file does not list.
        PeerError: a party that can't be reached, or a token that is none any more.
    """
    address = next((each for each in config.parties if each.name == party), None)
    if address is None:
        raise UsageError(f"The configuration lists no party {party}.", "--token PARTY=TOKEN")
    own = load_certificate(config.certificate)
    with reach(address, config, config.timeout_seconds, wire.ENROL) as link:
        shown = link.getpeercert(binary_form=True) or b""
        key = load_private_key(config.key)
        signature = party_signature(key, signed_content(token, shown, own))
        try:
            wire.send(link, {"token": token, "signature": signature}, own)
            answer, _ = answer_of(party, link, 0)
        except (OSError, wire.WireError) as error:
            raise PeerError(
                f"{party} ended the conversation: {error}.", "Ask who runs it what its log says."
            ) from error
    if not isinstance(name := answer.get("client"), str):
        raise PeerError(f"{party} is no service: it named no client.", "Ask who runs it.")
    return name
