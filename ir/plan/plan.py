"""A compiled program, and what it says: the entries of its file, and their digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.given import Given
from veilgraph.ir.plan.tables import (
    BUFFER,
    FORMAT_VERSION,
    KEPT,
    MESSAGE,
    MOST_COUNTED_BYTES,
    STEP,
    Direction,
    Layer,
    Magnitudes,
    Manifest,
    PartyPlan,
    Phase,
    Tensor,
    rows_of,
)

TABLES = {
    "steps.bin": STEP,
    "buffers.bin": BUFFER,
    "messages.bin": MESSAGE,
    "params.bin": np.dtype("<i8"),
    "kept.bin": KEPT,
}


@dataclass(frozen=True)
class Plan:
    """A compiled program: manifest, every party's tables, public constants, layers, IR text.

    `ranges`, the exact one of each layer, `magnitudes` and `model_name` are known where the plan
    was compiled, and there alone: they say more about weights, samples and their owner than the
    layers do, and are neither in the file nor in the digest.
    """

    manifest: Manifest
    programs: Mapping[str, PartyPlan]
    layers: tuple[Layer, ...]
    constants: bytes = b""
    ir: Mapping[str, str] = field(default_factory=dict)
    magnitudes: tuple[Magnitudes, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    model_name: str = ""

    @property
    def known_layers(self) -> tuple[Layer, ...]:
        """The layers, with their exact ranges where these are known."""
        if not self.ranges:
            return self.layers
        pairs = zip(self.layers, self.ranges, strict=True)
        return tuple(replace(layer, range_low=e[0], range_high=e[1]) for layer, e in pairs)

    def layers_of(self, entry: int = 0) -> tuple[Layer, ...]:
        """All layers but those whose steps are in other entries' runs alone.

        A layer without a step of its own is fused into another's: it has no multiply-adds.
        """
        known = self.known_layers
        return tuple(known[number] for number in self.layer_numbers(entry))

    def layer_numbers(self, entry: int = 0) -> Sequence[int]:
        """The places of `layers_of` among all layers."""
        every = range(len(self.layers))
        if len(self.manifest.entries) == 1:
            return every
        tables = [p.steps[p.steps["phase"] != Phase.SETUP] for p in self.programs.values()]
        own, others = (
            {int(n) for t in tables for n in t["layer"][(t["entry"] == entry) == is_own]}
            for is_own in (True, False)
        )
        return [number for number in every if number in own or number not in others]

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex over everything that decides what is computed and sent."""
        return digest_of(self, as_json(manifest_fields(self)))

    def party(self, name: str) -> PartyPlan:
        return self.programs[name]

    @property
    def secret_weights(self) -> tuple[Tensor, ...]:
        """Each weight that the plan does not hold, once: a party's own, or one that is shared."""
        programs = self.programs.values()
        owned = [tensor for program in programs for tensor in program.weights]
        shared = {share.name: share for program in programs for share in program.shares}
        return (*owned, *shared.values())

    def rounds(self, phase: Phase, entry: int = 0) -> int:
        """Rounds of messages in a phase of an entry, as any party counts them."""
        tables = (rows_of(p.messages, phase, entry) for p in self.programs.values())
        return max((int(rows["round"].max()) + 1 for rows in tables if len(rows)), default=0)

    def messages(self, phase: Phase, entry: int = 0) -> npt.NDArray[np.int64]:
        """Messages of one phase of an entry: round, sender, receiver and bytes, by rounds."""
        found = []
        for number, party in enumerate(self.manifest.parties):
            rows = rows_of(self.programs[party].messages, phase, entry)
            sent = rows[rows["direction"] == Direction.SEND]
            # The file may be one that nobody has checked.
            sizes = np.minimum(sent["bytes"], MOST_COUNTED_BYTES)
            columns = (sent["round"], np.full(len(sent), number), sent["peer"], sizes)
            found.append(np.column_stack([column.astype(np.int64) for column in columns]))
        pieces = np.concatenate(found)
        links, message = np.unique(pieces[:, :3], axis=0, return_inverse=True)
        sizes = np.zeros(len(links), np.int64)
        np.add.at(sizes, message.ravel(), pieces[:, 3])
        return np.column_stack([links, sizes])

    def sent_bytes(self, phase: Phase, entry: int = 0) -> dict[str, int]:
        """Payload by link, as {"alice->bob": bytes}, of one phase of an entry."""
        names = self.manifest.parties
        total: dict[str, int] = {}
        for party, program in self.programs.items():
            rows = rows_of(program.messages, phase, entry)
            sent = rows[rows["direction"] == Direction.SEND]
            for peer in np.unique(sent["peer"]).tolist():
                count = sent["bytes"][sent["peer"] == peer].sum(dtype=np.uint64)
                total[f"{party}->{names[peer]}"] = int(count)
        return dict(sorted(total.items()))


# What it says


def digest_of(
    plan: Plan, manifest: bytes, texts: Callable[[], Mapping[str, bytes]] | None = None
) -> str:
    """SHA-256 in hex over every entry: its name, length and content.

    Of the manifest, its fields as `as_json` has them: how YAML is laid out is its library's choice.

    Args:
        texts: gives the plan's IR in UTF-8 when all else is hashed; None where the plan has it.
    """
    found = hashlib.sha256()
    for name, content in entries(plan, manifest, texts):
        found.update(f"{name}:{len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def entries(
    plan: Plan, manifest: bytes, texts: Callable[[], Mapping[str, bytes]] | None = None
) -> Iterator[tuple[str, bytes | memoryview]]:
    """Name and content of each entry; of tables not copied where they lie as in the file.

    Args:
        texts: as `digest_of`.
    """
    yield "manifest.yaml", manifest
    yield "layers.json", _json_rows([_plain(layer) for layer in plan.layers])
    yield "constants.bin", plan.constants
    for name, program in plan.programs.items():
        tables = (program.steps, program.buffers, program.messages, program.params, program.kept)
        for file, table in zip(TABLES, tables, strict=True):
            stored = np.ascontiguousarray(table, TABLES[file])
            yield f"parties/{name}/{file}", stored.view(np.uint8).data
    if texts is None:
        for level, text in sorted(plan.ir.items()):
            yield f"ir/{level}", text.encode()
    else:
        for level, content in sorted(texts().items()):
            yield f"ir/{level}", content


def as_json(value: Any) -> bytes:
    """The bytes by which a digest tells what a manifest says."""
    return json.dumps(value, indent=0, sort_keys=True, allow_nan=False).encode()


def _json_rows(rows: Sequence[Mapping[str, str | int | float | None]]) -> bytes:
    """`as_json` of flat rows, which json encodes in C where it is asked for no indents."""
    lines = (
        json.dumps(row, sort_keys=True, allow_nan=False, separators=(",\n", ": "))[1:-1]
        for row in rows
    )
    text = ",\n".join(f"{{\n{line}\n}}" for line in lines)
    return f"[\n{text}\n]".encode() if text else b"[]"


def _plain(record: Any) -> dict[str, Any]:
    """A dataclass as plain values; an infinite bound as null."""
    return {
        name: (None if isinstance(v, float) and math.isinf(v) else _listed(v))
        for name, v in vars(record).items()
    }


def _listed(value: Any) -> Any:
    if isinstance(value, Given):
        return _plain(value)
    return [_listed(each) for each in value] if isinstance(value, tuple) else value


def manifest_fields(plan: Plan) -> dict[str, Any]:
    """The manifest as plain values, with the costs and the programs' own fields."""
    fields = {"format": FORMAT_VERSION, **_plain(plan.manifest)}
    fields["receivers"] = {k: list(v) for k, v in plan.manifest.receivers.items()}
    fields["owners"] = dict(plan.manifest.owners)
    fields["states"] = dict(plan.manifest.states)
    fields["disclosures"] = [_plain(d) for d in plan.manifest.disclosures]
    costs = {name: _cost(plan, entry) for entry, name in enumerate(plan.manifest.entries)}
    fields["cost"] = next(iter(costs.values())) if len(costs) == 1 else costs
    fields["programs"] = {name: _program_fields(p) for name, p in plan.programs.items()}
    return fields


def _cost(plan: Plan, entry: int) -> dict[str, Any]:
    """Of each phase of an entry."""
    return {
        phase.name.lower(): {
            "rounds": plan.rounds(phase, entry),
            "bytes": plan.sent_bytes(phase, entry),
        }
        for phase in Phase
    }


def _program_fields(program: PartyPlan) -> dict[str, Any]:
    return {
        "arena_bytes": program.arena_bytes,
        "keys": [list(holders) for holders in program.keys],
        **{
            kind: [_plain(t) for t in getattr(program, kind)]
            for kind in ("inputs", "weights", "shares", "outputs", "states")
        },
    }
