"""Plans on disk: a zip with fixed order and dates, read as untrusted input.

    manifest.yaml             for people: target, owners, outputs, disclosures, cost, digest
    layers.json               one row a layer
    constants.bin             public tensors
    parties/NAME/*.bin        STEP, BUFFER, MESSAGE tables and int64 parameters; stored, not
                              compressed, so that they can be memory-mapped
    ir/LEVEL                  the text of each level

Sizes and names are checked before anything is allocated; nothing is unpickled or extracted.
docs/plan-format.md is the same for people who write tools.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.files.beside import Beside
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.files.plain_yaml import plain_yaml
from veilgraph.ir.files.whole_files import PUBLIC, placed_whole
from veilgraph.ir.plan.checks import check, hints_of, record, typed
from veilgraph.ir.plan.plan import TABLES, Plan, as_json, digest_of, entries, manifest_fields
from veilgraph.ir.plan.tables import (
    FORMAT_VERSION,
    Layer,
    Manifest,
    PartyPlan,
)

DATE = (1980, 1, 1, 0, 0, 0)
MOST_TEXT = 256 << 20  # of the manifest, the layers and all IR together
TEXTS = ("manifest.yaml", "layers.json")
IR = "ir/"
HINT = "Compile the model again, or ask for the plan again."
MODEL = "This is a model: `veilgraph compile` makes a plan of it."
OTHER_FILES = {
    ".onnx": MODEL,
    ".pt2": MODEL,
    ".weights": "These are weights; the plan is the .plan beside them.",
}
# What zipfile, zlib, PyYAML, json and the checks raise on a file that is no plan; encrypted entries
# and unknown compressions are RuntimeErrors.
DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, yaml.YAMLError, OSError, EOFError),
    *(KeyError, ValueError, RuntimeError),
)


def save(plan: Plan, path: str | Path) -> None:
    """Writes the plan; the same plan gives the same bytes. A failure leaves no half file.

    Raises:
        UsageError: a place that can't be written to, or a plan that no party would read.
    """
    path = Path(path)
    if (text_bytes := sum(len(text) for text in plan.ir.values())) > MOST_TEXT:
        raise UsageError(
            f"The plan's programs are {text_bytes >> 20} MiB of text, and a party reads no more "
            f"than {MOST_TEXT >> 20} MiB.",
            "Split the model into parts with fewer operations.",
        )
    try:
        with placed_whole(path, PUBLIC) as file, zipfile.ZipFile(file, "w") as archive:
            for name, content in entries(plan, _manifest_text(plan)):
                entry = zipfile.ZipInfo(name, DATE)
                is_text = name.startswith(IR)
                entry.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
    except OSError as error:
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
        raise UsageError(f"There is no plan {path}.", "Check the path.") from error
    except DAMAGES as error:
        told = mistaken(path, FileKind.PLAN, "plan")
        if type(error) is ValueError:  # our own words; others are those of libraries
            told = f"{told.removesuffix('.')}: {error}."
        hint = OTHER_FILES.get(Path(path).suffix, HINT)
        raise UsageError(told, hint) from error


# Writing


def _manifest_text(plan: Plan) -> bytes:
    return _yaml(manifest_fields(plan)) + f"digest: {plan.digest}\n".encode()


def _yaml(fields: Mapping[str, Any]) -> bytes:
    text: str = yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()


class _Dumper(yaml.SafeDumper):
    """Plain YAML: the same list twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


# Reading


def _read(archive: zipfile.ZipFile, path: Path) -> Plan:
    texts, others = _sane_entries(archive, path.stat().st_size)
    # Texts are inflated while all else is read and hashed, and hashed while it is looked at.
    with Beside(partial(_texts, archive, texts)) as inflated:
        contents = {entry.filename: archive.read(entry) for entry in others}
        fields = plain_yaml(contents.pop("manifest.yaml"))
        if not isinstance(fields, dict) or not isinstance(fields.get("format"), int):
            raise ValueError("its manifest names no format")
        if fields["format"] != FORMAT_VERSION:
            raise UsageError(
                f"{path} is a plan of format {fields['format']}, and this Veilgraph reads format "
                f"{FORMAT_VERSION}.",
                "Compile the model again with this version, at all parties.",
            )
        stated = fields.pop("digest")
        plan = _plan(fields, contents)
        # The manifest as it is read: what it says of the tables is held against them meanwhile.
        with Beside(partial(_digested, plan, inflated, fields)) as digested:
            check(plan)
            # As text: 1, 1.0 and true are equal to Python, and have digests of their own.
            is_so = _as_text(fields) == _as_text(manifest_fields(plan))
            ir = {level: content.decode() for level, content in inflated.result().items()}
            found = digested.result()
    if not is_so:
        raise ValueError("its manifest says what its tables do not")
    if found != stated:
        raise SecurityAbort(f"{path} was changed after it was compiled: its digest differs.", HINT)
    whole = dataclasses.replace(plan, ir=ir)
    vars(whole)["digest"] = found  # as the cached property would
    return whole


def _plan(fields: Mapping[str, Any], contents: dict[str, bytes]) -> Plan:
    """What a manifest and the other entries say; of the texts nothing yet."""
    names = [f.name for f in dataclasses.fields(Manifest)]
    others = {name: value for name, value in fields.items() if name not in (*names, "programs")}
    typed(Mapping[str, object], others, "manifest")  # compared as JSON, which tells nothing else
    programs = typed(Mapping[str, Mapping[str, object]], fields["programs"], "programs")
    layers = json.loads(contents.pop("layers.json"))
    plan = Plan(
        manifest=record(Manifest, {name: fields[name] for name in names}),
        programs={name: _program(contents, name, each) for name, each in programs.items()},
        layers=typed(tuple[Layer, ...], layers, "layers"),
        constants=contents.pop("constants.bin"),
    )
    if contents:
        raise ValueError(f"it has an entry that no plan has: {min(contents)!r}")
    return plan


def _digested(plan: Plan, texts: Beside[dict[str, bytes]], fields: Mapping[str, Any]) -> str:
    """The digest of a plan whose texts are not there yet."""
    return digest_of(plan, as_json(fields), texts.result)


def _as_text(fields: Mapping[str, Any]) -> str:
    """What a manifest says, to be compared: json encodes in C what it does not lay out."""
    return json.dumps(fields, sort_keys=True, allow_nan=False)


def _texts(archive: zipfile.ZipFile, entries: Sequence[zipfile.ZipInfo]) -> dict[str, bytes]:
    """The IR's, by level."""
    return {each.filename.removeprefix(IR): _text(archive, each) for each in entries}


def _text(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """A text, of which no more is inflated than its entry says.

    In one piece: zipfile copies three times what it inflates.
    """
    stored = copy(entry)  # its bytes as they lie in the file, of which the entry has no checksum
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, entry.compress_size
    del stored.CRC
    with archive.open(stored) as file:
        content = file.read()
    size = entry.file_size
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, max(size, 1))
    content = content[:size]
    if len(content) != size:
        raise ValueError(f"{entry.filename} is not as long as it says")
    if zlib.crc32(content) != entry.CRC:
        raise zipfile.BadZipFile(f"{entry.filename} has another checksum")
    return content


def _sane_entries(
    archive: zipfile.ZipFile, file_bytes: int
) -> tuple[list[zipfile.ZipInfo], list[zipfile.ZipInfo]]:
    """IR texts, and all others, once their sizes are sane: only texts are compressed, in the one
    way that can be inflated piece by piece.
    """
    entries = archive.infolist()
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("its entries are repeated")
    if sum(entry.compress_size for entry in entries) > file_bytes:
        raise ValueError("its entries are larger than the file")
    texts, others, text_bytes = list[zipfile.ZipInfo](), list[zipfile.ZipInfo](), 0
    for entry in entries:
        name, is_ir = entry.filename, entry.filename.startswith(IR)
        stored = entry.compress_type == zipfile.ZIP_STORED
        if not is_ir and not (stored and entry.file_size == entry.compress_size):
            raise ValueError(f"{name} is compressed, or not as long as it says")
        if not stored and entry.compress_type != zipfile.ZIP_DEFLATED:
            raise ValueError(f"{name} is compressed in a way that no plan is")
        if is_ir or name in TEXTS:
            text_bytes += entry.file_size
        (texts if is_ir else others).append(entry)
    if text_bytes > MOST_TEXT:
        raise ValueError("its text is too large")
    return texts, others


def _program(contents: dict[str, bytes], name: str, stated: Mapping[str, object]) -> PartyPlan:
    """A party's program, its tables taken out of `contents`."""
    tables: dict[str, Any] = {}
    for file, dtype in TABLES.items():
        content = contents.pop(f"parties/{name}/{file}")
        if len(content) % dtype.itemsize:
            raise ValueError(f"{name}'s {file} is cut short")
        tables[file.removesuffix(".bin")] = np.frombuffer(content, dtype)
    hints = hints_of(PartyPlan)
    if stated.keys() != set(hints) - tables.keys() - {"party"}:
        raise ValueError(f"{name}'s program has not the fields of one")
    values: dict[str, Any] = {key: typed(hints[key], v, key) for key, v in stated.items()}
    return PartyPlan(party=name, **values, **tables)
