"""join_entries: several programs of the secret level become one of the party level.

Their weights are shared once where they are the same: of one name, encoding and value. Their states
are kept in one encoding, with as many bits as any of them needs; each reads and writes it in its
own. Setup is for all of them, and every run is of one entry.

    step:    main(%count : ring 24, 13 bits)  ...  return %count_next
    reveal:  main(%count : ring 32, 16 bits)  ...  return %y
    after:   one program; count lies in a ring of 32 bits, with 16 fraction bits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.plan.tables import STATE, Pace
from veilgraph.ir.secret.program import Argument
from veilgraph.ir.secret.types import Encoding, RealRange, Tensor
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.passes.party.batch_rounds import FREE, Schedule, batch_rounds
from veilgraph.passes.party.expand_protocols import Common, Entry, expand_entries
from veilgraph.passes.party.prune import prune
from veilgraph.passes.party.verify_masking import verify_own
from veilgraph.targets.target import Target


def join_entries(
    entries: Sequence[Entry],
    target: Target,
    fixed_roles: bool,
    leader: int | None = None,
    pace: Pace = FREE,
) -> tuple[Common, Schedule]:
    """One program of all entries, its messages in rounds and its masks checked.

    Args:
        leader: the entry as which its states are kept; others, and all if None, have as many bits
            as any entry needs.
        pace: as for `batch_rounds`.

    Raises:
        UsageError: an entry that returns what is public.
        MaskingError: as verify_masking.
    """
    kept = {state.name: state.tensor.encoding for state in states_of(entries, leader)}
    common = expand_entries(entries, target, fixed_roles, kept)
    common.expanded = prune(common.expanded)
    schedule = batch_rounds(common.expanded.program, pace)
    outputs = [n["name"] for n in nodes_of(common.expanded.program.nodes, ops.OUTPUT)]
    verify_own(schedule, target, outputs)
    return common, schedule


def states_of(entries: Sequence[Entry], leader: int | None = None) -> Iterator[Argument]:
    """Each state once, with the encoding that it is kept in and where it lies."""
    found: dict[str, list[Argument]] = {}
    led = [] if leader is None else _states(entries[leader])
    for argument in (*led, *(state for entry in entries for state in _states(entry))):
        alike = found.setdefault(argument.name, [])
        if argument.name not in {state.name for state in led} or not alike:
            alike.append(argument)
    for alike in found.values():
        encoding = _widest([argument.tensor.encoding for argument in alike])
        first = alike[0]
        low, high = min(a.range.low for a in alike), max(a.range.high for a in alike)
        known = RealRange(low, high, first.range.source)
        yield replace(first, tensor=Tensor(first.tensor.shape, encoding), range=known)


def _states(entry: Entry) -> list[Argument]:
    """That an entry finds."""
    return [argument for argument in entry.secret.arguments if argument.owner == STATE]


def _widest(encodings: Sequence[Encoding]) -> Encoding:
    """As many fraction bits, and bits before the point, as any has; of fractions what fits."""
    whole = max(e.ring_bits - e.frac_bits for e in encodings)
    frac_bits = min(max(e.frac_bits for e in encodings), MAX_RING_BITS - whole)
    return Encoding(whole + frac_bits, frac_bits)
