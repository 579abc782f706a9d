"""align_messages: messages wait for others where that costs less time.

Messages that go as early as they can save rounds: of two parties who tell each other something, one
is often ready a round before the other. But then each round has one busy link, and the others wait.
Messages of a layer are alike if they are of one type and wait for as many of that type in that
layer: those of a tensor's three chunks, whose roles are rotated, and both ways of an exchange. In
one round they load all links the same, for at most a round a layer more.

    early:     round 0: a->b 1 MB    round 1: b->a 1 MB    round 2: ...
    aligned:                         round 1: a->b 1 MB, b->a 1 MB    round 2: ...

Products count, and sums and comparisons like them. What a party sends in a round is
sent when all of it is made: of a message made of a product and another that a peer's product waits
for, both are late, and the products follow each other. So a product may run behind what its party
sends meanwhile. Where a few take longer than a round, a message made of one may go in the last
round that does for who reads it, or even a round later:

    early:     round 0: a->b x, a->b made of a's product     round 1: b->a made of b's product of x
    held:      round 0: a->b x     round 1: a->b made of a's product     round 2: b->a ...

Messages that are large enough, by several measures, are all aligned, and what costs least is taken:
rounds, and in each round its busiest link. Then products are all early, behind what is sent, or
held, by the time at which the last party would be done. Prices are integers, bytes that a link
carries meanwhile, so that all hosts find the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns
from veilgraph.ir.plan.tables import MOST_COUNTED_BYTES, Pace
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.products import nanoseconds
from veilgraph.targets.machines import MACHINE
from veilgraph.targets.networks import Network
from veilgraph.targets.variants import Goal

NOTHING, SENDS, MESSAGES = range(3)  # what goes before a product, as passes/native/rounds.h has it
SEVERAL = 4  # products of a layer at a party, which together take longer than a round


def pace_of(network: Network, goal: Goal) -> Pace:
    """What the time of a round is worth on a network; nothing where rounds are to be fewest."""
    if goal is Goal.FEWEST_ROUNDS:
        return Pace()
    seconds = MACHINE.round_on(network)
    worth = seconds * network.bytes_per_second, 1e9 * seconds
    return Pace(*(max(1, int(min(each, MOST_COUNTED_BYTES))) for each in worth))


def align_messages(
    columns: Columns, pace: Pace
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Of each message the place that it is not at before, as `Schedule.places`, 0 where it is free;
    and what goes before each node: NOTHING, what its party SENDS, or MESSAGES made of it, too.
    """
    if not pace.bytes:
        return np.zeros(len(columns), np.int64), np.zeros(len(columns), np.uint8)
    work = _bytes_meanwhile(columns, pace)
    return native.align_messages(
        facts_of(columns),
        columns.stage,
        columns.layer,
        columns.kind,
        columns.party,
        columns.message_bytes,
        pace.bytes,
        work,
        np.where(work > pace.bytes // SEVERAL, MESSAGES, np.sign(work)).astype(np.uint8),
        columns.first,
        columns.args,
    )


def _bytes_meanwhile(columns: Columns, pace: Pace) -> npt.NDArray[np.int64]:
    """What a link carries while a product is made; 0 of all other nodes."""
    found = np.zeros(len(columns), np.int64)
    if pace.nanoseconds:
        for i, spent in nanoseconds(columns):
            found[i] = min(spent * pace.bytes // pace.nanoseconds, MOST_COUNTED_BYTES)
    return found
