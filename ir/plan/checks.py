"""What the plan of a stranger must hold before anything of it is used.

Types of all fields, and that tables, tensors, keys and parties fit each other. That no step leaves
its party's memory is proved step by step by the kernels, when a party opens its program.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    PUBLIC,
    ROUND,
    SHARED,
    WEIGHTS,
    Direction,
    Manifest,
    PartyPlan,
    Phase,
    Share,
    Tensor,
)
from veilgraph.ir.roles import ROLES

MOST_PARTIES = 16
MOST_ENTRIES = 64
MOST_EXTENT = 1 << 40
MOST_RANK = 32
MOST_FRAC_BITS = 128  # a bias has those of a product, its two operands' together
MOST_INTEGER = 1 << 63

R = TypeVar("R")


# Fields


def record(kind: type[R], fields: object) -> R:
    """Fields as read as a dataclass of tables.py; None is an infinite bound.

    Raises:
        ValueError: a field is missing, unknown, or not of the type that the dataclass declares.
    """
    hints = hints_of(cast(Any, kind))
    if not isinstance(fields, dict) or fields.keys() != hints.keys():
        raise ValueError(f"a {kind.__name__} has not the fields of one")
    values = {
        name: typed(hints[name], _bound(name) if value is None else value, name)
        for name, value in fields.items()
    }
    return kind(**values)


@cache
def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """The types that a dataclass declares, by field; found once, which takes long."""
    return get_type_hints(kind)


def _bound(name: str) -> float | None:
    if name.endswith("low"):
        return -math.inf
    return math.inf if name.endswith("high") else None


@cache
def _made_of(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """A hint's origin and arguments, and whether it is a dataclass."""
    return get_origin(hint), get_args(hint), dataclasses.is_dataclass(hint)


def typed(hint: Any, value: Any, name: str) -> Any:
    """`value` as a `hint` of those that tables.py uses.

    Raises:
        ValueError: it is none; `name` says where.
    """
    if type(value) is hint is str:  # as most are
        return value
    if type(value) is hint is int and abs(value) < MOST_INTEGER:
        return value
    origin, inner, is_record = _made_of(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(typed(inner[0], each, name) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {typed(str, key, name): typed(inner[1], each, name) for key, each in value.items()}
    if is_record:
        return record(hint, value)
    if (hint is object and _is_plain(value)) or (hint is str and isinstance(value, str)):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if hint is int and is_number and abs(value) < MOST_INTEGER:
        return value
    if hint is float and (is_number or isinstance(value, float)) and not math.isnan(value):
        return float(value)
    raise ValueError(f"{name} is {str(value)[:40]!r}, not what it should be")


def _is_plain(value: object) -> bool:
    """Whether JSON says this and nothing else: no date, and no key that it would make a word of."""
    if isinstance(value, str):  # as most are
        return True
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, int):
        return abs(value) < MOST_INTEGER
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None


# The whole


def check(plan: Plan) -> None:
    """What the interpreter does not check when it opens the tables.

    Raises:
        ValueError: what does not fit.
    """
    parties = plan.manifest.parties
    if not 1 <= len(parties) <= MOST_PARTIES or len(set(parties)) < len(parties):
        raise ValueError("its parties are none, too many, or named alike")
    if not all(name.isidentifier() for name in parties):
        raise ValueError("a party's name is not a plain word")
    if tuple(plan.programs) != parties:
        raise ValueError("its programs are not those of its parties")
    _check_names(plan)
    for name, program in plan.programs.items():
        if not 0 <= program.arena_bytes < MOST_EXTENT:
            raise ValueError(f"{name}'s memory is of no sane size")
        _check_messages(program, len(parties), parties.index(name))
        _check_entries(program, len(plan.manifest.entries))
        _check_steps(program)
        _check_kept(program)
        _check_keys(name, program, set(parties))
        _check_tensors(name, program)
    _check_shares(plan)
    _check_states(plan)
    _check_links(plan)


def _check_names(plan: Plan) -> None:
    manifest = plan.manifest
    receivers = (name for each in manifest.receivers.values() for name in each)
    nobody = ((WEIGHTS, PUBLIC), (WEIGHTS, SHARED))
    owners = {who for what, who in manifest.owners.items() if (what, who) not in nobody}
    named = {*owners, *receivers}
    if not named <= set(manifest.parties):
        raise ValueError("it gives something to who is no party")
    _check_roles(manifest, named)
    entries = manifest.entries
    if not 1 <= len(set(entries)) == len(entries) <= MOST_ENTRIES:
        raise ValueError("its entries are none, too many, or named alike")
    if not all(name.isidentifier() for name in entries):
        raise ValueError("an entry's name is not a plain word")
    if not 1 <= manifest.ring_bits <= 64:
        raise ValueError(f"there is no ring of {manifest.ring_bits} bits")
    figures = [manifest.network.get(n) for n in ("bytes_per_second", "round_trip_seconds")]
    if not all(isinstance(n, int | float) and 0 <= n < math.inf for n in figures) or not figures[0]:
        raise ValueError("its network has no sane figures")


def _check_roles(manifest: Manifest, named: set[str]) -> None:
    """A role for each party; those who own or receive something are in one that may."""
    known = ROLES.keys() >= set(manifest.roles.values())
    if manifest.roles.keys() != set(manifest.parties) or not known:
        raise ValueError("its roles are not those of its parties")
    if not manifest.computing:
        raise ValueError("none of its parties computes")
    for name in sorted(named):
        if not manifest.role(name).owns:
            raise ValueError(f"it gives something to {name}, who is its {manifest.role(name)}")


def _check_messages(program: PartyPlan, parties: int, me: int) -> None:
    m = program.messages
    inside = _are_inside(m, program.arena_bytes) and not (m["offset"] % 8).any()
    known = (m["peer"] < parties).all() and (m["peer"] != me).all()
    if not (inside and known and (m["phase"] <= max(Phase)).all() and (m["direction"] <= 1).all()):
        raise ValueError("a message lies outside its party's memory")


def _are_inside(table: npt.NDArray[np.void], arena_bytes: int) -> bool:
    """Whether all rows end in memory; without sums, which could overflow."""
    offsets, sizes = table["offset"], table["bytes"]
    left = arena_bytes - np.minimum(offsets, arena_bytes)
    return bool(((offsets <= arena_bytes) & (sizes <= left)).all())


def _check_steps(program: PartyPlan) -> None:
    """Phases one after another, entry by entry; a round for each message, each once in order."""
    steps, messages = program.steps, program.messages
    if (steps["phase"] > max(Phase)).any() or (np.diff(_stages(steps)) < 0).any():
        raise ValueError("its phases are not one after another")
    rounds = steps[steps["kernel"] == ROUND]
    if not np.array_equal(_rounds(rounds), np.unique(_rounds(messages))):
        raise ValueError("its rounds are not those of its messages")
    if (messages["step"] >= len(program.steps)).any():
        raise ValueError("a message is made by a step that is not there")
    if (messages["elements"] >= MOST_EXTENT).any():
        raise ValueError("a message is made by elements that are not there")


def _stages(table: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Where rows are in the order of phases: setup, then each entry's offline and online one."""
    stages: npt.NDArray[np.int64] = table["phase"].astype(np.int64) + 2 * table["entry"]
    return stages


def _rounds(table: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """The rounds that rows are of, as numbers in the order of stages and rounds."""
    numbers: npt.NDArray[np.int64] = (_stages(table) << 32) + table["round"]
    return numbers


def _check_entries(program: PartyPlan, entries: int) -> None:
    for table in (program.steps, program.messages, program.kept):
        in_setup = table["phase"] == Phase.SETUP
        if (table["entry"] >= entries).any() or table["entry"][in_setup].any():
            raise ValueError("it does something in no entry that it has")
    if any(not 0 <= tensor.entry < entries for tensor in program.tensors):
        raise ValueError("it has a tensor in no entry that it has")


def _check_kept(program: PartyPlan) -> None:
    """That all lies in memory; what an online phase leaves are its states."""
    kept = program.kept
    inside = _are_inside(kept, program.arena_bytes) and (kept["phase"] <= max(Phase)).all()
    sizes: Counter[int] = Counter()
    for stage, size in zip(_stages(kept).tolist(), kept["bytes"].tolist(), strict=True):
        sizes[stage] += size
    if not inside or max(sizes.values(), default=0) > program.arena_bytes:
        raise ValueError("what it keeps lies outside its party's memory")
    left = kept[kept["phase"] == Phase.ONLINE]
    places = sorted(zip(left["offset"].tolist(), left["bytes"].tolist(), strict=True))
    if places != sorted((state.offset, _bytes(state)) for state in program.states):
        raise ValueError("what it keeps from run to run is not its states")


def _check_keys(name: str, program: PartyPlan, parties: set[str]) -> None:
    for holders in program.keys:
        if name not in holders or not 1 <= len(set(holders)) == len(holders):
            raise ValueError(f"{name} has a key that it does not hold")
        if not parties.issuperset(holders):
            raise ValueError(f"{name} has a key with who is no party")


def _check_tensors(name: str, program: PartyPlan) -> None:
    for kind in (program.inputs, program.weights, program.outputs):
        if len({(tensor.entry, tensor.name) for tensor in kind}) < len(kind):
            raise ValueError(f"{name} has two tensors of one name")
    for tensor in program.tensors:
        if not _is_inside(tensor, program.arena_bytes):
            raise ValueError(f"tensor {tensor.name!r} lies outside its party's memory")
        if not _has_its_columns(tensor):
            raise ValueError(f"tensor {tensor.name!r} has not as many columns as it says")


def _is_inside(tensor: Tensor, arena_bytes: int) -> bool:
    word = 4 if tensor.ring_bits <= 32 else 8
    placed = tensor.offset % word == 0 and 0 <= tensor.offset <= arena_bytes - _bytes(tensor)
    return _has_ring_and_shape(tensor) and placed


def is_sane(tensor: Tensor) -> bool:
    """Whether a tensor that others described can be one, wherever it lies."""
    is_small = _has_ring_and_shape(tensor) and math.prod(tensor.shape) < MOST_EXTENT
    return is_small and _has_its_columns(tensor)


def _has_ring_and_shape(tensor: Tensor) -> bool:
    sane = 1 <= tensor.ring_bits <= 64 and abs(tensor.frac_bits) <= MOST_FRAC_BITS
    return (
        sane and len(tensor.shape) <= MOST_RANK and all(0 <= n < MOST_EXTENT for n in tensor.shape)
    )


def _has_its_columns(tensor: Tensor) -> bool:
    """Whether exponents, names, flags and categories are those of its places, or none."""
    exponents, given = tensor.column_exponents, tensor.given
    (width,) = tensor.given_shape[-1:] or (0,)
    are_fitting = len(exponents) in (0, *tensor.shape[-1:]) and len(tensor.columns) in (0, width)
    flags = given.flagged
    are_flagged = all(0 <= i < width for i in flags) and len(set(flags)) == len(flags)
    tables = given.categories
    are_written = len(tables) == len(given.others) and len(tables) in (0, 1, width)
    known = are_written and all(
        (table or other) and len(set(table)) == len(table)
        for table, other in zip(tables, given.others, strict=True)
    )
    are_halved = not given.is_hashed or not tensor.shape or tensor.shape[-1] % 2 == 0
    alone = [bool(flags), bool(tables), given.is_hashed].count(True) <= 1
    sane = are_fitting and are_flagged and known and are_halved and alone
    return sane and all(abs(k) <= MOST_FRAC_BITS for k in exponents)


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * (4 if tensor.ring_bits <= 32 else 8)


def _check_states(plan: Plan) -> None:
    """As of shares; and that the states are those that the manifest names."""
    meant: dict[str, tuple[object, ...]] = {}
    for name, program in plan.programs.items():
        if len({state.key for state in program.states}) < len(program.states):
            raise ValueError(f"{name} has one part of a state twice")
        if program.states and not plan.manifest.role(name).computes:
            raise ValueError(f"a state lies at {name}, who is its {plan.manifest.role(name)}")
        for state in program.states:
            if not 0 <= state.part < state.parts <= MOST_PARTIES:
                raise ValueError(f"{name} has a part that no state has")
            if meant.setdefault(state.name, _meaning(state)) != _meaning(state):
                raise ValueError(f"its parties do not agree on the state {state.name!r}")
    if meant.keys() != plan.manifest.states.keys():
        raise ValueError("its states are not those that it names")


def _check_shares(plan: Plan) -> None:
    """Each party's parts are different ones, and all parties mean the same weight."""
    meant: dict[str, tuple[object, ...]] = {}
    for name, program in plan.programs.items():
        if len({share.key for share in program.shares}) < len(program.shares):
            raise ValueError(f"{name} has one share twice")
        for share in program.shares:
            if not 0 <= share.part < share.parts <= MOST_PARTIES:
                raise ValueError(f"{name} has a share that no weight has")
            if meant.setdefault(share.name, _meaning(share)) != _meaning(share):
                raise ValueError(f"its parties do not agree on the weight {share.name!r}")


def _meaning(share: Share) -> tuple[object, ...]:
    return share.shape, share.ring_bits, share.frac_bits, share.parts


def _check_links(plan: Plan) -> None:
    """What one party sends is what the other receives, piece by piece."""
    sent, received = (_crossing(plan, direction) for direction in Direction)
    if not all(np.array_equal(s, r) for s, r in zip(sent, received, strict=True)):
        raise ValueError("its parties do not agree on their messages")


def _crossing(plan: Plan, direction: Direction) -> tuple[npt.NDArray[Any], ...]:
    """All pieces one way: sender, receiver, phase, entry, round and bytes, message by message.

    A message's pieces are in one party's table, and stay in the order that they have there.
    """
    tables = [program.messages for program in plan.programs.values()]
    owners = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    messages = np.concatenate(tables)
    is_own = messages["direction"] == direction
    rows, own = messages[is_own], owners[is_own]
    peers = rows["peer"].astype(np.int64)
    ends = (own, peers) if direction == Direction.SEND else (peers, own)
    keys = (*ends, rows["phase"], rows["entry"], rows["round"])
    order = np.lexsort(keys[::-1])  # stable; its last key is the first to sort by
    return tuple(column[order] for column in (*keys, rows["bytes"]))
