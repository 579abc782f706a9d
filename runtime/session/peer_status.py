"""What one side thinks of a certificate that it knows or is shown, and how long it still is one."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from cryptography import x509

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.session.certificates import UNREADABLE, load_certificate
from veilgraph.runtime.session.config import Config

LOG = logging.getLogger("veilgraph.session")
SOON = timedelta(days=30)  # before a certificate's end; a new one has to reach all others


class PeerStatus(IntEnum):
    """What one side thinks of the identity that the other has shown."""

    WELCOME = 0
    UNKNOWN = 1
    EXPIRED = 2
    NOT_YET_VALID = 3
    SWAPPED = 4  # a known party, but not one that belongs at this end
    ABSENT = 5  # a known party that takes no part in this session, from stores
    TO_STORES = 6  # welcome, to a session that runs from stores
    UNLINKED = 7  # a known party, but not one that a link is wanted to

    @property
    def reason(self) -> str:
        """Why not, to go on after "refused this party's certificate: "."""
        return {
            PeerStatus.WELCOME: "it is fine",
            PeerStatus.UNKNOWN: "it is none that parties.yaml names",
            PeerStatus.EXPIRED: "it has expired",
            PeerStatus.NOT_YET_VALID: "it is not valid yet",
            PeerStatus.SWAPPED: "it belongs to another party than the one expected here",
            PeerStatus.ABSENT: "it is of a party that takes no part in a run from stores",
            PeerStatus.TO_STORES: "it is fine",
            PeerStatus.UNLINKED: "it is of a party that no link is wanted to",
        }[self]


def validity(der: bytes) -> PeerStatus:
    """Whether a certificate (DER) may be used now; UNKNOWN if it is no certificate at all."""
    try:
        certificate = x509.load_der_x509_certificate(der)
    except UNREADABLE:
        return PeerStatus.UNKNOWN
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return PeerStatus.EXPIRED
    return (
        PeerStatus.NOT_YET_VALID if now < certificate.not_valid_before_utc else PeerStatus.WELCOME
    )


def way_out(owner: str, der: bytes, status: PeerStatus, judge: str) -> str:
    """What to do about a certificate (DER) of `owner` whose dates `judge` does not accept.

    Args:
        judge: whose clock says so, such as "this host's" or "bob's".
    """
    certificate = x509.load_der_x509_certificate(der)
    here = f"the clock here says {_utc(datetime.now(UTC))} UTC"
    if status is PeerStatus.EXPIRED:
        return (
            f"It ended at {_utc(certificate.not_valid_after_utc)} UTC, and {here}. {owner} makes a "
            "new one with `veilgraph cert issue`, and everyone pins it."
        )
    start = _utc(certificate.not_valid_before_utc)
    return (
        f"It begins at {start} UTC, an hour before {owner}'s clock when it was made, and {here}. "
        f"Set {judge} clock if it is behind; if {owner}'s was ahead, `veilgraph cert issue` there."
    )


def require_valid(der: bytes, owner: str, what: str) -> None:
    """PeerError unless a certificate (DER) of `owner` may be used now.

    Args:
        what: it is used for, as the begin of the sentence: "alice.share is signed with".
    """
    status = validity(der)
    if status is not PeerStatus.WELCOME:
        raise PeerError(
            f"{what} a certificate of {owner} that does not count: {status.reason}.",
            way_out(owner, der, status, "this host's"),
        )


def _utc(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def ends(config: Config) -> dict[str, datetime]:
    """When the last certificate of each party ends that is known here, this party's own among them.

    Of its own it is the one that it shows.
    """
    own = {config.me.name: (load_certificate(config.certificate),)}
    known = {party.name: party.certificates for party in config.parties} | own
    return {
        name: max(x509.load_der_x509_certificate(each).not_valid_after_utc for each in certificates)
        for name, certificates in known.items()
        if certificates
    }


def warn_of_ends(config: Config) -> None:
    """Logs a warning for each party whose last certificate ends within 30 days."""
    now = datetime.now(UTC)
    for name, end in ends(config).items():
        if end - now <= SOON:
            LOG.warning(
                "The certificate of %s ends at %s UTC, in %d days: `veilgraph cert issue %s "
                "--beside` there makes the next, which all others then accept.",
                name, _utc(end), max(0, (end - now).days), name,
            )  # fmt: skip
