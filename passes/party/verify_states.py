"""verify_states: parts of states lie where runs look for them, and all are replaced or none is.

What a run finds of a state at a party is what a run before it left there, whatever their entries.
So every entry that keeps a state keeps all of its parts, each once and at all of its holders, in
one shape and ring; and none is read that is never kept. Parts are secrets and hide nothing: that
is verify_masking's part, and docs/protocols.md has the induction over runs.

    accepted:  keep %5 {name = "s", part = 0, of = 2} @alice    keep %6 {.., part = 1, ..} @bob
    refused:   keep %5 {name = "s", part = 0, of = 2} @alice    (bob still has a part of the old)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.verify_outputs import MaskingError

Place = tuple[int, int]  # party, and part


def state_nodes(schedule: Schedule) -> Sequence[Node]:
    """What reads or keeps parts of states."""
    return schedule.nodes_where(lambda op: op is ops.STATE or op is ops.KEEP)


def verify_states(schedule: Schedule) -> None:
    """That all entries mean the same states, and leave them whole.

    Raises:
        MaskingError: naming the state.
    """
    places = _places(schedule)
    for node in state_nodes(schedule):
        name, at = node["name"], (node.party, node["part"])
        if node["of"] != _parts(places.get(name, ())):
            raise MaskingError(f"state {name!r} has not the parts that it says")
        if at not in places[name]:
            who = schedule.program.parties[node.party]
            raise MaskingError(f"{who} reads a part of state {name!r} that it never keeps")
    _verify_forms(schedule)
    _verify_whole(schedule, places)


def _places(schedule: Schedule) -> dict[str, set[Place]]:
    """Where the parts of each state are kept, by name."""
    found: dict[str, set[Place]] = {}
    for node in schedule.nodes_of(ops.KEEP):
        found.setdefault(node["name"], set()).add((node.party, node["part"]))
    return found


def _parts(places: Iterable[Place]) -> int:
    """How many there are; 0 unless they are counted from 0 without gaps."""
    numbers = {part for _, part in places}
    return len(numbers) if numbers == set(range(len(numbers))) else 0


def _verify_forms(schedule: Schedule) -> None:
    forms: dict[str, tuple[object, ...]] = {}
    for node in state_nodes(schedule):
        form = node.shape, node.type
        if forms.setdefault(node["name"], form) != form:
            raise MaskingError(f"state {node['name']!r} has two shapes or rings")


def _verify_whole(schedule: Schedule, places: dict[str, set[Place]]) -> None:
    """That an entry keeps each part of a state at each holder once, or none."""
    kept: dict[tuple[int, str], Counter[Place]] = {}
    for node in schedule.nodes_of(ops.KEEP):
        found = kept.setdefault((node.entry, node["name"]), Counter())
        found[node.party, node["part"]] += 1
    for (_, name), found in kept.items():
        if found != Counter(places[name]):
            raise MaskingError(f"state {name!r} is replaced in part, or twice")
