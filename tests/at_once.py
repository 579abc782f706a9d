"""Parties at work at the same time, a thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from veilgraph.ir.errors import VeilgraphError


def at_once(parties: Iterable[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """What each party's work gives, or the user error that ended it, by name."""
    results: dict[str, Any] = {}

    def run(party: str) -> None:
        try:
            results[party] = work(party)
        except VeilgraphError as error:
            results[party] = error

    threads = [threading.Thread(target=run, args=(party,)) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
