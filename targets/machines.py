"""How fast a party computes: figures that were measured, for predictions and for prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilgraph.targets.networks import Network

PLANE_WORK = 8  # times the work of the bytes of words


@dataclass(frozen=True)
class Machine:
    """How fast one party computes, on one thread.

    Attributes:
        name: the processor that was measured, for people.
        multiply_adds_per_second: of matmul and conv2d, for rings up to so many bits.
        memory_bytes_per_second: of what kernels read and write besides, which others' steps and
            the wait for a message have put out of caches.
        words_per_second: words of 32 bits that instructions of fused programs make.
        drawn_bytes_per_second: of streams of keys.
        dealing_bytes_per_second: offline, by the bytes that a party sends and receives there.
        answering_bytes_per_second: element-wise work online, by the bytes of messages that it
            makes and of dealt randomness that it uses.
        round_seconds: of a round beyond the network's time: sealing, waking, small kernels.
    """

    name: str
    multiply_adds_per_second: Mapping[int, float]
    memory_bytes_per_second: float
    words_per_second: float
    drawn_bytes_per_second: float
    dealing_bytes_per_second: float
    answering_bytes_per_second: float
    round_seconds: float

    def round_on(self, network: Network) -> float:
        """Seconds of a round in which nothing is sent."""
        return network.seconds(1, 0) + self.round_seconds

    def multiplying(self, multiply_adds: float, ring_bits: int, moved_bytes: float = 0) -> float:
        """Seconds of so many multiply-adds, of operands and results of so many bytes."""
        widths = sorted(self.multiply_adds_per_second)
        width = next((width for width in widths if ring_bits <= width), widths[-1])
        own = multiply_adds / self.multiply_adds_per_second[width]
        return own + moved_bytes / self.memory_bytes_per_second

    def dealing(self, sent_bytes: float, received_bytes: float) -> float:
        """Seconds of a party that sends and receives so much offline."""
        return (sent_bytes + received_bytes) / self.dealing_bytes_per_second

    def answering(self, sent_bytes: float, dealt_bytes: float, plane_bytes: float = 0) -> float:
        """Seconds of a party that sends so much online, and was sent so much offline.

        Of two members who use what was dealt each draws one half, and is sent the other. Of what is
        sent, bit planes take work of their own: products of masks, a message a plane.
        """
        made = sent_bytes + PLANE_WORK * plane_bytes
        return (made + 2 * dealt_bytes) / self.answering_bytes_per_second


# Steps of five networks' plans: products and instructions fitted to each alone, memory to what they
# take in inferences of three processes. Rounds are those of a LeNet on the loopback. The rates by
# which protocols are chosen are of 100,000 ReLUs in `rep3` by merges, tables and trees, of three
# processes on two cores: what they take is priced within a third.
# A plan's rounds depend on them: raise LOWERING_VERSION (passes/plan/version.py) with any of them.
MACHINE = Machine(
    name="one core of an EPYC with AVX-512",
    multiply_adds_per_second={64: 6.0e10},
    memory_bytes_per_second=5.0e9,
    words_per_second=4.0e10,
    drawn_bytes_per_second=4.0e10,
    dealing_bytes_per_second=2.8e9,
    answering_bytes_per_second=2.4e9,
    round_seconds=1e-4,
)
