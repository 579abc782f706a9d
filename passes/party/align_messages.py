"""align_messages: messages wait for others where that costs less time.

Messages that go as early as they can save rounds: of two parties who tell each other something, one
is often ready a round before the other. But then each round has one busy link, and the others wait.
Messages of a layer are alike if they are of one type and wait for as many of that type in that
layer: those of a tensor's three chunks, whose roles are rotated, and both ways of an exchange. In
one round they load all links the same, for at most a round a layer more.

    early:     round 0: a->b 1 MB    round 1: b->a 1 MB    round 2: ...
    aligned:                         round 1: a->b 1 MB, b->a 1 MB    round 2: ...

Products count where a few take longer than a round. What a party sends in a round is sent when all
of it is made: of a message made of a product and another that a peer's product waits for, both are
late, and the products follow each other. The first then goes a round later.

    early:     round 0: a->b x, a->b made of a's product     round 1: b->a made of b's product of x
    held:      round 0: a->b x     round 1: a->b made of a's product     round 2: b->a ...

The price of a program is its rounds, in each round its busiest link, and what the slowest party
multiplies before it. Messages that are large enough, by several measures, are all aligned, the
cheapest choice is taken, and messages are held if that is cheaper still. Prices are sums of
integers, so that all hosts find the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns
from veilgraph.ir.plan.tables import MOST_COUNTED_BYTES, Pace
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.targets.machines import MACHINE
from veilgraph.targets.networks import Network
from veilgraph.targets.variants import Goal


def pace_of(network: Network, goal: Goal) -> Pace:
    """What the time of a round is worth on a network; nothing where rounds are to be fewest."""
    if goal is Goal.FEWEST_ROUNDS:
        return Pace()
    seconds = MACHINE.round_on(network)
    worth = seconds * network.bytes_per_second, 1e9 * seconds
    return Pace(*(max(1, int(min(each, MOST_COUNTED_BYTES))) for each in worth))


def align_messages(
    columns: Columns, pace: Pace, work: npt.NDArray[np.int64], slow: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Of each message the place that it is not at before, as `Schedule.places`; 0 where it is free.

    Args:
        pace: of no bytes it leaves all as early as can be.
        work: nanoseconds of each product.
        slow: which products others wait for.
    """
    if not pace.bytes:
        return np.zeros(len(columns), np.int64)
    return native.align_messages(
        facts_of(columns),
        columns.stage,
        columns.layer,
        columns.kind,
        columns.party,
        np.array(columns.message_bytes, np.int64),
        pace.bytes,
        work,
        slow,
        pace.nanoseconds,
        columns.first,
        columns.args,
    )
