"""What links can do: round trips and bytes a second, measured between live peers.

Every pair of parties measures its link by itself, one pair after another at each party, so that no
two links of a host share its line meanwhile. Of either direction: PINGS round trips of a byte, of
which the median counts; then transfers, each twice as long as the one before, until one takes
LEAST_SECONDS and LEAST_ROUND_TRIPS, so that a connection has come to its full rate, or has
MOST_BYTES. Three of that length follow, and their median counts. A transfer ends with a byte back,
whose round trip is taken off.

A direction takes at most 5 * MOST_BYTES; on links of 100 kB/s and more it takes at most five
seconds or sixty round trips, whichever is longer. At the end each party tells its peers what it has
found.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.native import open_links
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.config import MAX_PARTIES, Config
from veilgraph.runtime.session.handshake import MEASUREMENT, Terms, agree_on_id

PINGS = 15
LEAST_SECONDS = 0.5
LEAST_ROUND_TRIPS = 5
MOST_BYTES = 1 << 25
_FIRST_BYTES = 1 << 16
_COUNTED = 3  # transfers
_UNCOUNTED_PINGS = 2  # caches and pages are warm then
_PAIR_SECONDS = 30.0  # how long a peer may be busy with another one, before it counts as silent
_SIZE = struct.Struct("<Q")
_FOUND = struct.Struct(f"<{2 * MAX_PARTIES}d")
_STEP = "measuring links"


@dataclass(frozen=True)
class Rates:
    """What a link does in one direction: seconds there and back, bytes a second."""

    round_trip_seconds: float
    bytes_per_second: float


Found = dict[tuple[str, str], Rates]


def measure_links(config: Config, shape: Shape | None = None) -> Found:
    """What the links to my peers do, and what those between them do, where they measured them too.

    Every peer calls this at the same time, with the same list of parties in the same order.

    Args:
        config: with links to those parties that are to be measured; see `Config.linked_with`.
        shape: of a network to imitate; only where all hosts are loopback.

    Returns:
        By names of the sender and the receiver.

    Raises:
        PeerError: a peer that does not come, is lost, silent, or shows another certificate.
        SecurityAbort: a peer that runs a plan, has another list, or does not keep to this text.
    """
    names = config.names
    with open_links(config, shape=shape) as links:
        agree_on_id(links, Terms(MEASUREMENT, 0), fresh_nonce())
        rounds = list(_opponents(config.party, len(names)))
        links.timeout_seconds = max(links.timeout_seconds, _PAIR_SECONDS * len(rounds))
        own = {peer: _measured(links, peer) for peer in rounds if peer in config.peers}
        told = _tell(links, own)
    told[config.party] = own
    known = config.peers | {config.party}
    return {
        (names[sender], names[receiver]): rates
        for sender, found in sorted(told.items())
        for receiver, rates in sorted(found.items())
        if receiver in known
    }


def _opponents(me: int, parties: int) -> Iterator[int]:
    """With whom a party measures, round by round; in each round all pairs are disjoint.

    One party stays while the others move around a circle; with an odd number, who meets the empty
    place rests.
    """
    places = parties + parties % 2
    last = places - 1
    for number in range(last):
        if me == last:
            other = next(i for i in range(last) if 2 * i % last == number)
        else:
            other = (number - me) % last
            other = last if other == me else other
        if other < parties:
            yield other


def _measured(links: Links, peer: int) -> Rates:
    """The direction to a peer, while the peer measures the other: the lower index begins."""
    if links.party < peer:
        rates = _probe(links, peer)
        _answer(links, peer)
        return rates
    _answer(links, peer)
    return _probe(links, peer)


def _probe(links: Links, peer: int) -> Rates:
    """Measures towards a peer who answers."""
    pings = [_timed(links, peer, b"\0") for _ in range(_UNCOUNTED_PINGS + PINGS)]
    round_trip = median(pings[_UNCOUNTED_PINGS:])
    content = memoryview(bytes(MOST_BYTES))
    enough = max(LEAST_SECONDS, LEAST_ROUND_TRIPS * round_trip)
    size = _FIRST_BYTES
    while _transfer(links, peer, content[:size]) < enough + round_trip and size < MOST_BYTES:
        size *= 2
    spent = median(_transfer(links, peer, content[:size]) for _ in range(_COUNTED))
    links.exchange({peer: _SIZE.pack(0)}, {}, _STEP)
    return Rates(round_trip, size / max(spent - round_trip, spent / 100))


def _transfer(links: Links, peer: int, content: memoryview) -> float:
    start = time.perf_counter()
    links.exchange({peer: _SIZE.pack(len(content))}, {}, _STEP)
    _timed(links, peer, content)
    return time.perf_counter() - start


def _timed(links: Links, peer: int, content: bytes | memoryview) -> float:
    """Seconds until a message has been answered by a byte."""
    start = time.perf_counter()
    links.exchange({peer: content}, {peer: bytearray(1)}, _STEP)
    return time.perf_counter() - start


def _answer(links: Links, peer: int) -> None:
    """Answers a peer who measures, and takes no more from it than the module's text says."""
    for _ in range(_UNCOUNTED_PINGS + PINGS):
        _take(links, peer, bytearray(1))
    buffer = memoryview(bytearray(MOST_BYTES))
    most = _COUNTED + 1 + (MOST_BYTES // _FIRST_BYTES).bit_length()
    left = 5 * MOST_BYTES
    for _ in range(most):
        told = bytearray(_SIZE.size)
        links.exchange({}, {peer: told}, _STEP)
        (size,) = _SIZE.unpack(told)
        if size == 0:
            return
        if size > min(left, MOST_BYTES):
            break
        left -= size
        _take(links, peer, buffer[:size])
    raise SecurityAbort(
        f"{links.names[peer]} sends more than a measurement of a link takes.",
        "Ask who runs it which version of veilgraph that is.",
    )


def _take(links: Links, peer: int, buffer: bytearray | memoryview) -> None:
    links.exchange({}, {peer: buffer}, _STEP)
    links.exchange({peer: b"\0"}, {}, _STEP)


def _tell(links: Links, own: dict[int, Rates]) -> dict[int, dict[int, Rates]]:
    """What every peer has found, by receiver; each tells all of its peers."""
    flat = [math.nan] * (2 * MAX_PARTIES)
    for peer, rates in own.items():
        flat[2 * peer : 2 * peer + 2] = rates.round_trip_seconds, rates.bytes_per_second
    received = {peer: bytearray(_FOUND.size) for peer in own}
    links.exchange(dict.fromkeys(own, _FOUND.pack(*flat)), received, _STEP)
    return {peer: _read(links, peer, bytes(content)) for peer, content in received.items()}


def _read(links: Links, peer: int, content: bytes) -> dict[int, Rates]:
    flat = _FOUND.unpack(content)
    found = {}
    for receiver in range(len(links.names)):
        round_trip, rate = flat[2 * receiver : 2 * receiver + 2]
        if math.isnan(round_trip) and math.isnan(rate):
            continue
        if not (0 < round_trip < math.inf and 0 < rate < math.inf) or receiver == peer:
            raise SecurityAbort(
                f"{links.names[peer]} tells figures of links that none can have.",
                "Ask who runs it which version of veilgraph that is.",
            )
        found[receiver] = Rates(round_trip, rate)
    return found
