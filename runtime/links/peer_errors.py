"""What a user reads when a peer is lost, silent or out of step; the same on any kind of link."""

from __future__ import annotations

from veilgraph.ir.errors import PeerError, ResourceLimitError, SecurityAbort


def peer_silent(name: str, step: str, seconds: float) -> PeerError:
    """The error for a peer that kept quiet for too long."""
    return PeerError(
        f"{name} was silent for {seconds:g} seconds in step {step}.",
        f"Look whether {name} still runs and can be reached; "
        "`timeout_seconds` in parties.yaml sets how long to wait.",
    )


def peer_late(name: str, step: str, seconds: float, bytes_per_second: float) -> PeerError:
    """The error for a peer that moves bytes, but so slowly that the round has no end."""
    return PeerError(
        f"{name} was slower than {bytes_per_second:.15g} bytes a second in step {step}, after the "
        f"{seconds:g} seconds it may be silent.",
        f"If the link to {name} is no faster, lower `least_bytes_per_second` in parties.yaml; "
        f"if {name} computes for longer, raise `timeout_seconds`.",
    )


def peer_stopped(name: str, reason: str, step: str) -> PeerError:
    """The error for a peer that said it stopped; `reason` is the party that was to blame."""
    because = f" because of {reason}" if reason != name else ""
    return PeerError(f"{name} stopped{because} (here: step {step}).", f"Read what {name} printed.")


def peer_lost(name: str, step: str, what: str) -> PeerError:
    """The error for a link that broke."""
    return PeerError(
        f"The link to {name} broke in step {step}: {what}.", f"Read what {name} printed."
    )


def unexpected_message(name: str, step: str, found: str, expected: str) -> SecurityAbort:
    """The error for a message that the plan has no place for."""
    return SecurityAbort(
        f"{name} sent {found} in step {step}, where {expected} is due.",
        "The parties don't follow one plan: compare their versions of veilgraph.",
    )


def bytes_changed(name: str, step: str, what: str) -> SecurityAbort:
    """The error for bytes that TLS finds were not those sent."""
    return SecurityAbort(
        f"Bytes between this party and {name} were changed on the way in step {step} ({what}).",
        "Somebody or something on the network between the two alters traffic.",
    )


def session_too_long(name: str, step: str) -> ResourceLimitError:
    """The error for a key that has encrypted as much as it may, and can't be renewed."""
    return ResourceLimitError(
        f"The key of the link to {name} has encrypted as much as it may, in step {step}.",
        "Start a new session, or use a Python whose OpenSSL is shared: `veilgraph doctor`.",
    )
