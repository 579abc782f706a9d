"""When each of a party's values is there: the time of what makes it, and of what reads it last.

Time counts a party's actions, and rounds between them. What a sum adds that a kernel reads lives as
long as the sum, if the kernel takes sums (kernels/kernel.py).

    before:  segment 0: draw %3, add %5 | round | segment 1: mul %7
    after:   %3 at 0, %5 at 1, the round at 2, %7 at 3
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Int64s
from veilgraph.ir.party.node import stage_of
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.declared import DECLARED
from veilgraph.passes.party.batch_rounds import place_of, position
from veilgraph.passes.plan.fuse_local import LocalSteps, base_of

FOREVER = 1 << 60
NEVER = -1
_TAKES_SUMS = np.array([op.kernel in DECLARED and DECLARED[op.kernel].takes_sums for op in ops.ALL])
_LOADED = np.array([op.runs is Runs.LOADED for op in ops.ALL])


class Lifetimes:
    """Those of one party.

    Attributes:
        first, last: of each node when it is made, and read last; NEVER where it is not.
        begins, ends: of each stage.
    """

    def __init__(self, steps: LocalSteps, party: int) -> None:
        self.steps, self.party = steps, party
        self._schedule, self._columns = steps.schedule, steps.schedule.columns
        self._own = steps.of_parties[party]
        self._number_places()
        self.first, self.last = np.full((2, len(self._columns)), NEVER, np.int64)
        self._visit()
        self._hold_outputs()

    def _number_places(self) -> None:
        """When each place's segment begins, and when its round is."""
        rounds = self._schedule.rounds
        places = [place_of((stage, i)) for stage in rounds for i in range(rounds[stage] + 1)]
        self._places = np.array(places, np.int64)
        bounds = np.searchsorted(self._own.place, [*places, FOREVER])
        order = np.arange(len(places))
        self._segment_time, self._round_time = bounds[:-1] + order, bounds[1:] + order
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        times = self._segment_time.tolist(), self._round_time.tolist()
        for place, begin, end in zip(places, *times, strict=True):
            stage, _ = position(place)
            self.begins.setdefault(stage, begin)
            self.ends[stage] = end + 1

    def segment_time(self, places: Int64s) -> Int64s:
        """When the segments of places begin."""
        return self._segment_time[np.searchsorted(self._places, places)]

    def round_time(self, places: Int64s) -> Int64s:
        """When the rounds at places are."""
        return self._round_time[np.searchsorted(self._places, places)]

    def _visit(self) -> None:
        own = self._own
        segment = np.searchsorted(self._places, own.place)
        times = np.arange(len(own)) + segment
        made = np.repeat(times, np.diff(own.nodes.first))
        self.first[own.nodes.rows[::-1]] = made[::-1]
        self.last[own.reads.rows] = np.repeat(times, np.diff(own.reads.first))
        self._hold_addends(segment, times)

    def _hold_addends(self, segment: Int64s, times: Int64s) -> None:
        """Addends of sums that products of the same segment read stay until these are done."""
        own, op, nodes = self._own, self._columns.op, len(self._columns)
        counts = np.diff(own.reads.first)
        read = np.repeat(segment, counts) * nodes + own.reads.rows  # which node, in which segment
        products = read[np.repeat(_TAKES_SUMS[op[own.leads]], counts)]
        is_sum = (op[own.leads] == NUMBERS[ops.ADD]) & (np.diff(own.nodes.first) == 1)
        sums = np.flatnonzero(is_sum & np.isin(segment * nodes + own.leads, products))
        if not len(sums):
            return
        _, at = np.unique(read[::-1], return_index=True)
        known, until = read[::-1][at], np.repeat(times, counts)[::-1][at]  # the last time of each
        held = until[np.searchsorted(known, segment[sums] * nodes + own.leads[sums])]
        addends = own.reads.take(sums)
        np.maximum.at(self.last, addends.rows, np.repeat(held, np.diff(addends.first)))

    def _hold_outputs(self) -> None:
        whole = len(self._own) + len(self._places)
        for node in self._schedule.nodes_of(ops.OUTPUT):
            if node.party == self.party:
                last = stage_of(Phase.ONLINE, node.entry)
                end = self.ends[last] if node.stage else whole
                self.last[base_of(self._schedule.program, node.args[0]).id] = end

    def of(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """First and last times of nodes in memory; setup's that a later phase reads stay."""
        op = self._columns.op[rows]
        first = np.where(_LOADED[op], 0, self.first[rows])
        inputs = np.flatnonzero(op == NUMBERS[ops.INPUT])
        first[inputs] = [self.begins[i] for i in self._columns.stage[rows[inputs]].tolist()]
        assert (first >= 0).all(), "memory for what is never made"
        last = np.where(self.last[rows] == NEVER, first, self.last[rows])
        return first, np.where(
            (first < self.setup_until) & (last >= self.setup_until), FOREVER, last
        )

    @cached_property
    def setup_until(self) -> int:
        return self.ends[Phase.SETUP]
