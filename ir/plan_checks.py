"""What the plan of a stranger must hold before anything of it is used.

Types of all fields, and that tables, tensors, keys and parties fit each other. That no step leaves
its party's memory is proved step by step by the kernels, when a party opens its program.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan import (
    PUBLIC,
    ROUND,
    SHARED,
    WEIGHTS,
    Direction,
    PartyPlan,
    Phase,
    Plan,
    Share,
    Tensor,
)

MOST_PARTIES = 16
MOST_EXTENT = 1 << 40
MOST_RANK = 32
MOST_FRAC_BITS = 64
MOST_INTEGER = 1 << 63

R = TypeVar("R")


# Fields


def record(kind: type[R], fields: object) -> R:
    """Fields as read as a dataclass of plan.py; None is an infinite bound.

    Raises:
        ValueError: a field is missing, unknown, or not of the type that the dataclass declares.
    """
    hints = get_type_hints(kind)
    if not isinstance(fields, dict) or fields.keys() != hints.keys():
        raise ValueError(f"a {kind.__name__} has not the fields of one")
    values = {name: _bound(name) if v is None else v for name, v in fields.items()}
    return kind(**{name: typed(hints[name], value, name) for name, value in values.items()})


def _bound(name: str) -> float | None:
    if name.endswith("low"):
        return -math.inf
    return math.inf if name.endswith("high") else None


def typed(hint: Any, value: Any, name: str) -> Any:
    """`value` as a `hint` of those that plan.py uses.

    Raises:
        ValueError: it is none; `name` says where.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(typed(inner[0], each, name) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {typed(str, key, name): typed(inner[1], each, name) for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        return record(cast(type[Any], hint), value)
    if hint is object or (hint is str and isinstance(value, str)):
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if hint is int and is_number and abs(value) < MOST_INTEGER:
        return value
    if hint is float and (is_number or isinstance(value, float)) and not math.isnan(value):
        return float(value)
    raise ValueError(f"{name} is {str(value)[:40]!r}, not what it should be")


# The whole


def check(plan: Plan) -> None:
    """What the machine does not check when it opens the tables.

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
        _check_steps(program)
        _check_kept(program)
        _check_keys(name, program, set(parties))
        _check_tensors(name, program)
    _check_shares(plan)
    _check_links(plan)


def _check_names(plan: Plan) -> None:
    manifest = plan.manifest
    receivers = (name for each in manifest.receivers.values() for name in each)
    dealer = (manifest.dealer,) if manifest.dealer else ()
    nobody = ((WEIGHTS, PUBLIC), (WEIGHTS, SHARED))
    owners = {who for what, who in manifest.owners.items() if (what, who) not in nobody}
    named = {*owners, *receivers, *dealer}
    if not named <= set(manifest.parties):
        raise ValueError("it gives something to who is no party")
    if not 1 <= manifest.ring_bits <= 64:
        raise ValueError(f"there is no ring of {manifest.ring_bits} bits")
    figures = [manifest.network.get(n) for n in ("bytes_per_second", "round_trip_seconds")]
    if not all(isinstance(n, int | float) and 0 <= n < math.inf for n in figures) or not figures[0]:
        raise ValueError("its network has no sane figures")


def _check_messages(program: PartyPlan, parties: int, me: int) -> None:
    m = program.messages
    inside = (_ends(m) <= program.arena_bytes).all() and not (m["offset"] % 8).any()
    known = (m["peer"] < parties).all() and (m["peer"] != me).all()
    if not (inside and known and (m["phase"] <= max(Phase)).all() and (m["direction"] <= 1).all()):
        raise ValueError("a message lies outside its party's memory")


def _ends(table: npt.NDArray[np.void]) -> npt.NDArray[np.object_]:
    """Where rows end; as Python integers, which do not overflow."""
    ends: npt.NDArray[np.object_] = table["offset"].astype(object) + table["bytes"].astype(object)
    return ends


def _check_steps(program: PartyPlan) -> None:
    """Phases one after another; a round for each message, each once and in order."""
    steps, messages = program.steps, program.messages
    if (steps["phase"] > max(Phase)).any() or (np.diff(steps["phase"].astype(int)) < 0).any():
        raise ValueError("its phases are not one after another")
    rounds = steps[steps["kernel"] == ROUND]
    found = [(int(r["phase"]), int(r["round"])) for r in rounds]
    if found != sorted({(int(m["phase"]), int(m["round"])) for m in messages}):
        raise ValueError("its rounds are not those of its messages")
    if (messages["step"] >= len(program.steps)).any():
        raise ValueError("a message is made by a step that is not there")
    if (messages["elements"] >= MOST_EXTENT).any():
        raise ValueError("a message is made by elements that are not there")


def _check_kept(program: PartyPlan) -> None:
    kept = program.kept
    inside = (_ends(kept) <= program.arena_bytes).all() and (kept["phase"] <= Phase.OFFLINE).all()
    sizes = (int(kept["bytes"][kept["phase"] == p].astype(object).sum()) for p in Phase)
    if not inside or max(sizes) > program.arena_bytes:
        raise ValueError("what it keeps lies outside its party's memory")


def _check_keys(name: str, program: PartyPlan, parties: set[str]) -> None:
    for holders in program.keys:
        if name not in holders or not 1 <= len(set(holders)) == len(holders) <= 2:
            raise ValueError(f"{name} has a key that it does not hold")
        if not parties.issuperset(holders):
            raise ValueError(f"{name} has a key with who is no party")


def _check_tensors(name: str, program: PartyPlan) -> None:
    for kind in (program.inputs, program.weights, program.outputs):
        if len({tensor.name for tensor in kind}) < len(kind):
            raise ValueError(f"{name} has two tensors of one name")
    for tensor in program.tensors:
        if not _is_inside(tensor, program.arena_bytes):
            raise ValueError(f"tensor {tensor.name!r} lies outside its party's memory")


def _is_inside(tensor: Tensor, arena_bytes: int) -> bool:
    word = 4 if tensor.ring_bits <= 32 else 8
    sane = 1 <= tensor.ring_bits <= 64 and abs(tensor.frac_bits) <= MOST_FRAC_BITS
    shaped = len(tensor.shape) <= MOST_RANK and all(0 <= n < MOST_EXTENT for n in tensor.shape)
    size = math.prod(tensor.shape) * word
    placed = tensor.offset % word == 0 and 0 <= tensor.offset <= arena_bytes - size
    return sane and shaped and placed


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
    sent, received = (
        sorted(row for name in plan.programs for row in _crossing(plan, name, direction))
        for direction in (Direction.SEND, Direction.RECEIVE)
    )
    if sent != received:
        raise ValueError("its parties do not agree on their messages")


def _crossing(plan: Plan, name: str, direction: Direction) -> Iterator[tuple[int, ...]]:
    """(sender, receiver, phase, round, number, bytes) of one party's pieces of one direction."""
    me, messages = plan.manifest.parties.index(name), plan.programs[name].messages
    pieces: Counter[tuple[int, ...]] = Counter()
    for row in messages[messages["direction"] == direction]:
        peer = int(row["peer"])
        ends = (me, peer) if direction == Direction.SEND else (peer, me)
        message = (*ends, int(row["phase"]), int(row["round"]))
        yield (*message, pieces[message], int(row["bytes"]))
        pieces[message] += 1
