"""Plans on disk: a zip with fixed order and dates, read as untrusted input.

    manifest.yaml             for people: versions, target, owners, outputs, disclosures, cost,
    digest layers.json               one row a layer
    constants.bin             public tensors
    parties/NAME/*.bin        STEP, BUFFER, MESSAGE tables and int64 parameters; stored, not
                              compressed, so that they can be memory-mapped
    ir/LEVEL                  the text of each level

Sizes and names are checked before anything is allocated; nothing is unpickled or extracted.
docs/plan-format.md is the same for people who write tools.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan import (
    BUFFER,
    FORMAT_VERSION,
    KEPT,
    MESSAGE,
    STEP,
    Direction,
    Disclosure,
    Layer,
    Manifest,
    PartyPlan,
    Phase,
    Plan,
    Tensor,
)

DATE = (1980, 1, 1, 0, 0, 0)
MOST_BYTES = 8 << 30  # of all entries of a plan together
MOST_TEXT = 64 << 20  # of the manifest, or of the layers
TABLES = {
    "steps.bin": STEP,
    "buffers.bin": BUFFER,
    "messages.bin": MESSAGE,
    "params.bin": np.dtype("<i8"),
    "kept.bin": KEPT,
}
HINT = "Compile the model again, or ask for the plan again."


def digest(plan: Plan) -> str:
    """SHA-256 in hex over every entry: its name, length and content."""
    found = hashlib.sha256()
    for name, content in _entries(plan):
        found.update(f"{name}:{len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def save(plan: Plan, path: str | Path) -> None:
    """Writes the plan; the same plan gives the same bytes. A failure leaves no half file."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            for name, content in _entries(plan):
                entry = zipfile.ZipInfo(name, DATE)
                is_text = name.startswith("ir/")
                entry.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, _with_digest(plan, name, content))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"The plan can't be written to {path}: {error.strerror}.") from error


def load(path: str | Path) -> Plan:
    """Reads a plan.

    Raises:
        UsageError: no such file, or no plan of this version.
        SecurityAbort: the content does not have the digest that the manifest states.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, Path(path))
    except FileNotFoundError as error:
        raise UsageError(f"There is no plan {path}.") from error
    except (zipfile.BadZipFile, OSError, EOFError, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} is no plan, or a damaged one: {reason}", HINT) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is no plan: its manifest is not YAML.", HINT) from error


# Writing


def _entries(plan: Plan) -> list[tuple[str, bytes]]:
    """Name and content of each entry, the manifest without its digest."""
    entries = [
        ("manifest.yaml", _yaml(_manifest_fields(plan))),
        ("layers.json", _json([_plain(layer) for layer in plan.layers])),
        ("constants.bin", plan.constants),
    ]
    for name, program in plan.programs.items():
        tables = (program.steps, program.buffers, program.messages, program.params, program.kept)
        for file, table in zip(TABLES, tables, strict=True):
            entries.append((f"parties/{name}/{file}", table.astype(TABLES[file]).tobytes()))
    entries.extend((f"ir/{level}", text.encode()) for level, text in sorted(plan.ir.items()))
    return entries


def _with_digest(plan: Plan, name: str, content: bytes) -> bytes:
    if name != "manifest.yaml":
        return content
    return content + f"digest: {plan.digest}\n".encode()


def _yaml(fields: Mapping[str, Any]) -> bytes:
    return yaml.dump(fields, sort_keys=False, allow_unicode=True, width=100).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=0, sort_keys=True, allow_nan=False).encode()


def _plain(record: Any) -> dict[str, Any]:
    """A dataclass as plain values; an infinite bound as null."""
    fields = dataclasses.asdict(record)
    return {
        name: (None if isinstance(v, float) and math.isinf(v) else _listed(v))
        for name, v in fields.items()
    }


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _manifest_fields(plan: Plan) -> dict[str, Any]:
    fields = {"format": FORMAT_VERSION, **_plain(plan.manifest)}
    fields["receivers"] = {k: list(v) for k, v in plan.manifest.receivers.items()}
    fields["owners"] = dict(plan.manifest.owners)
    fields["disclosures"] = [_plain(d) for d in plan.manifest.disclosures]
    fields["cost"] = {
        phase.name.lower(): {"rounds": plan.rounds(phase), "bytes": plan.sent_bytes(phase)}
        for phase in Phase
    }
    fields["programs"] = {name: _program_fields(p) for name, p in plan.programs.items()}
    return fields


def _program_fields(program: PartyPlan) -> dict[str, Any]:
    return {
        "arena_bytes": program.arena_bytes,
        "keys": [list(holders) for holders in program.keys],
        **{
            kind: [_plain(t) for t in getattr(program, kind)]
            for kind in ("inputs", "weights", "outputs")
        },
    }


# Reading


def _read(archive: zipfile.ZipFile, path: Path) -> Plan:
    sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    if len(sizes) != len(archive.infolist()) or sum(sizes.values()) > MOST_BYTES:
        raise ValueError("its entries are repeated or too large")
    for name in ("manifest.yaml", "layers.json"):
        if sizes[name] > MOST_TEXT:
            raise ValueError(f"{name} is too large")
    fields = yaml.load(archive.read("manifest.yaml"), Loader=_loader())
    if not isinstance(fields, dict) or fields.get("format") != FORMAT_VERSION:
        raise ValueError(f"its format is not version {FORMAT_VERSION}")
    stated = fields.pop("digest")
    plan = Plan(
        manifest=_manifest(fields),
        programs={n: _program(archive, sizes, n, p) for n, p in fields["programs"].items()},
        layers=tuple(_layer(row) for row in json.loads(archive.read("layers.json"))),
        constants=archive.read("constants.bin"),
        ir={n.removeprefix("ir/"): archive.read(n).decode() for n in sizes if n.startswith("ir/")},
    )
    _check(plan)
    if plan.digest != stated:
        raise SecurityAbort(f"{path} was changed after it was compiled: its digest differs.", HINT)
    return plan


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    names = [f.name for f in dataclasses.fields(Manifest)]
    values = {name: fields[name] for name in names}
    values["parties"] = tuple(str(name) for name in values["parties"])
    values["receivers"] = {k: tuple(v) for k, v in values["receivers"].items()}
    values["disclosures"] = tuple(Disclosure(**d) for d in values["disclosures"])
    return Manifest(**values)


def _program(
    archive: zipfile.ZipFile, sizes: Mapping[str, int], name: str, fields: Mapping[str, Any]
) -> PartyPlan:
    tables = []
    for file, dtype in TABLES.items():
        entry = f"parties/{name}/{file}"
        if sizes[entry] % dtype.itemsize:
            raise ValueError(f"{entry} is cut short")
        tables.append(np.frombuffer(archive.read(entry), dtype))
    keys = tuple(tuple(map(str, holders)) for holders in fields["keys"])
    tensors = (tuple(map(_tensor, fields[k])) for k in ("inputs", "weights", "outputs"))
    steps, buffers, messages, params, kept = tables
    inputs, weights, outputs = tensors
    arena_bytes = int(fields["arena_bytes"])
    return PartyPlan(
        name, steps, buffers, messages, params, kept, arena_bytes, keys, inputs, weights, outputs
    )


def _tensor(fields: Mapping[str, Any]) -> Tensor:
    values = dict(fields)
    values["shape"] = tuple(int(n) for n in values["shape"])
    for bound, infinite in (("low", -math.inf), ("high", math.inf)):
        values[bound] = infinite if values[bound] is None else float(values[bound])
    return Tensor(**values)


def _layer(fields: Mapping[str, Any]) -> Layer:
    values = dict(fields)
    for bound, infinite in (("range_low", -math.inf), ("range_high", math.inf)):
        values[bound] = infinite if values[bound] is None else float(values[bound])
    return Layer(**values)


def _check(plan: Plan) -> None:
    """What the machine does not check when it opens the tables: messages, tensors and keys."""
    parties = plan.manifest.parties
    if set(plan.programs) != set(parties):
        raise ValueError("its programs are not those of its parties")
    for name, program in plan.programs.items():
        _check_messages(program, len(parties), parties.index(name))
        _check_kept(program)
        for tensor in (*program.inputs, *program.weights, *program.outputs):
            _check_tensor(tensor, program.arena_bytes)
        if any(name not in holders for holders in program.keys):
            raise ValueError(f"{name} has a key that it does not hold")
    _check_links(plan)


def _check_kept(program: PartyPlan) -> None:
    ends = program.kept["offset"].astype(object) + program.kept["bytes"].astype(object)
    if (ends > program.arena_bytes).any() or (program.kept["phase"] > Phase.OFFLINE).any():
        raise ValueError("what it keeps lies outside its party's memory")


def _check_messages(program: PartyPlan, parties: int, me: int) -> None:
    m = program.messages
    if not len(m):
        return
    offsets, sizes = m["offset"].astype(object), m["bytes"].astype(object)
    inside = (offsets + sizes <= program.arena_bytes).all() and not (m["offset"] % 8).any()
    known = (m["peer"] < parties).all() and (m["peer"] != me).all() and (m["phase"] <= 2).all()
    if not (inside and known and (m["direction"] <= 1).all()):
        raise ValueError("a message lies outside its party's memory")


def _check_tensor(tensor: Tensor, arena_bytes: int) -> None:
    word = 4 if tensor.ring_bits <= 32 else 8
    sane = 1 <= tensor.ring_bits <= 64 and all(n >= 0 for n in tensor.shape)
    size = math.prod(tensor.shape) * word
    if not sane or not 0 <= tensor.offset <= tensor.offset + size <= arena_bytes:
        raise ValueError(f"tensor {tensor.name} lies outside its party's memory")


def _check_links(plan: Plan) -> None:
    """What one party sends is what the other receives, message by message."""
    names = plan.manifest.parties

    def rows(party: str, direction: Direction) -> set[tuple[int, ...]]:
        messages = plan.programs[party].messages
        chosen = messages[messages["direction"] == direction]
        me = names.index(party)
        ends = (lambda p: (me, p)) if direction == Direction.SEND else (lambda p: (p, me))
        return {
            (*ends(int(r["peer"])), int(r["phase"]), int(r["round"]), int(r["bytes"]))
            for r in chosen
        }

    sent = set().union(*(rows(n, Direction.SEND) for n in names))
    received = set().union(*(rows(n, Direction.RECEIVE) for n in names))
    if sent != received:
        raise ValueError("its parties do not agree on their messages")
