"""align_messages: messages that are alike go in one round, where that costs less time.

Messages that go as early as they can save rounds: of two parties who tell each other something, one
is often ready a round before the other. But then each round has one busy link, and the others wait.
Messages of a layer are alike if they are of one type and wait for as many of that type in that
layer: those of a tensor's three chunks, whose roles are rotated, and both ways of an exchange. In
one round they load all links the same, for at most a round a layer more.

    early:     round 0: a->b 1 MB    round 1: b->a 1 MB    round 2: ...
    aligned:                         round 1: a->b 1 MB, b->a 1 MB    round 2: ...

The price of a program is its rounds, and in each round its busiest link. Messages that are large
enough, by several measures, are all aligned, and the cheapest choice is taken. It is priced in
integers, so that all hosts find the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns
from veilgraph.ir.plan.tables import MOST_COUNTED_BYTES
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.targets.machines import MACHINE
from veilgraph.targets.networks import Network
from veilgraph.targets.variants import Goal


def round_bytes_of(network: Network, goal: Goal) -> int:
    """What a link carries in the time of a round, in bytes; 0 where rounds are to be fewest."""
    if goal is Goal.FEWEST_ROUNDS:
        return 0
    carried = MACHINE.round_on(network) * network.bytes_per_second
    return max(1, int(min(carried, MOST_COUNTED_BYTES)))


def align_messages(columns: Columns, round_bytes: int) -> npt.NDArray[np.int64]:
    """Of each message the place that it is not at before, as `Schedule.places`; 0 where it is free.

    Args:
        round_bytes: what a link carries in the time of a round; 0 leaves all as early as can be.
    """
    if not round_bytes:
        return np.zeros(len(columns), np.int64)
    return native.align_messages(
        facts_of(columns),
        columns.stage,
        columns.layer,
        columns.kind,
        columns.party,
        np.array(columns.message_bytes, np.int64),
        round_bytes,
        columns.first,
        columns.args,
    )
