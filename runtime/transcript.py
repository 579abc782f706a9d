"""What a party did, counted while it ran: rounds, bytes by link, seconds by phase.

It must equal what the plan predicts, byte for byte; a difference is a bug, and ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veilgraph.ir.plan.tables import Direction, PartyPlan, Phase, rows_of


@dataclass
class PhaseRecord:
    """One phase of one party: seconds in all, and those spent in links.

    `encryption_seconds` are those of TLS itself, on all links together; None where it isn't known.
    `kernels` has calls and nanoseconds by kernel.
    """

    seconds: float = 0.0
    network_seconds: float = 0.0
    encryption_seconds: float | None = None
    rounds: int = 0
    sent_bytes: dict[int, int] = field(default_factory=dict)
    received_bytes: dict[int, int] = field(default_factory=dict)
    kernels: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Transcript:
    """The phases of a session's setup, or of one inference.

    `spans`: step, start and end in nanoseconds of all that ran, where a trace was asked for.
    """

    phases: dict[Phase, PhaseRecord] = field(default_factory=dict)
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def check(self, party: str, phase: Phase, predicted: PhaseRecord) -> None:
        """Compares a phase with what the plan predicts of it for this party."""
        record = self.phases[phase]
        counted = (record.rounds, record.sent_bytes, record.received_bytes)
        expected = (predicted.rounds, predicted.sent_bytes, predicted.received_bytes)
        if counted != expected:
            raise AssertionError(
                f"{party}, {phase.name.lower()}: the transcript has {counted} (rounds, "
                f"bytes sent and received by peer), and the plan predicts {expected}"
            )


def predict(program: PartyPlan, phase: Phase, entry: int = 0) -> PhaseRecord:
    """Rounds that this party takes part in, and bytes by peer, as the plan states them."""
    record = PhaseRecord()
    messages = rows_of(program.messages, phase, entry)
    record.rounds = len(set(messages["round"].tolist()))
    for row in messages:
        is_send = row["direction"] == Direction.SEND
        by_peer = record.sent_bytes if is_send else record.received_bytes
        peer, count = int(row["peer"]), int(row["bytes"])
        if count:  # a message of no elements takes a round, and nobody counts its bytes
            by_peer[peer] = by_peer.get(peer, 0) + count
    return record
