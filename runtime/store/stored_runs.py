"""Runs of one entry from a store, in a session of all parties that runs other entries live.

A store goes with what its own session's setup left, and runs in this session with what this one's
did: that is put in place where the one follows the other. Who only deals has no store. It is there
for the other entries, and does nothing in a run whose offline phase is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.party import Party, Prepared, encoded_inputs
from veilgraph.runtime.store.store import (
    ANY,
    Store,
    StoredSession,
    common_to_all,
    made_elsewhere,
    used_up,
)
from veilgraph.runtime.transcript import Transcript

NO_STORE = bytes(32)  # in place of an id


@dataclass(frozen=True)
class OpenStore:
    """A store that was read: its folder, what its inferences have in common, and their entry."""

    store: Store
    session: StoredSession
    entry: int


class StoredRuns:
    """One party's runs of an entry whose offline phases were run before.

    Args:
        opened: this party's store; None where it keeps nothing.
        store_id: of the store, the same at all parties.
        entry: the number of the entry that it was prepared for.

    Attributes:
        left: runs that all parties have left, the same at each.
    """

    def __init__(self, party: Party, opened: OpenStore | None, store_id: bytes, entry: int) -> None:
        self.entry = entry
        self._party, self._opened, self._id = party, opened, store_id
        self._own_setup = party.kept(Phase.SETUP) if opened else b""
        self._is_own = True  # whether what this session's setup left is in its place
        _, self.left = self._common()

    @staticmethod
    def agreed(party: Party, opened: OpenStore | None, entry: int) -> StoredRuns | None:
        """What all parties take from stores; None where none has one. All call it at once.

        Raises:
            SecurityAbort: parties of which some have a store, or stores of different sessions.
        """
        own = opened.session.id if opened else NO_STORE
        names, plan = party.links.names, party.plan
        told = {names[peer]: found for peer, found in party.answers(own, "stores").items()}
        is_online = plan.manifest.role(party.program.party).online
        told |= {party.program.party: own} if is_online else {}
        having = {who: each for who, each in told.items() if plan.manifest.role(who).online}
        found = next((each for each in having.values() if each != NO_STORE), NO_STORE)
        if found == NO_STORE:
            return None
        for who, each in having.items():
            if each == NO_STORE:
                raise SecurityAbort(
                    f"{who} has no store, and others take prepared runs from one.",
                    "Give every party that takes part online its --store, or none.",
                )
            if each != found:
                raise made_elsewhere(who)
        return StoredRuns(party, opened, found, entry)

    def infer(
        self, inputs: Mapping[str, npt.ArrayLike]
    ) -> tuple[dict[str, npt.NDArray[np.float32]], Transcript]:
        """The next run that every party still has; see `Party.infer`, `Store`.

        Raises:
            ResourceLimitError: none is left; nothing was run.
        """
        party = self._party
        encoded_inputs(party.program, inputs, self.entry)  # refused before anything is spent
        party.agree_on(self.entry)
        number, left = self._common()
        if not left:
            self.left = 0
            raise used_up()
        self.left = left - 1
        if self._opened is None:
            return {}, party.stand_by()
        taken = self._opened.store.take(number, self._id)
        self._put_setup(is_own=False)
        prepared = Prepared(number, taken.keys, taken.memory, self._id)
        return party.infer(inputs, prepared, self.entry, is_agreed=True)

    def go_live(self) -> None:
        """Before a run whose offline phase is run now."""
        self._put_setup(is_own=True)

    def _put_setup(self, *, is_own: bool) -> None:
        if self._opened is not None and self._is_own != is_own:
            memory = self._own_setup if is_own else self._opened.session.memory
            self._party.restore(Phase.SETUP, memory)
            self._is_own = is_own

    def _common(self) -> tuple[int, int]:
        opened = self._opened
        own = ANY if opened is None else opened.store.offer(self._id)
        return common_to_all(self._party.links, self._id, own)
