"""What kind of file a path leads to, by its first bytes: for users who gave one for another.

Nothing is loaded: a head is read, and of a zip the names of its entries.
"""

from __future__ import annotations

import codecs
import zipfile
from enum import Enum
from pathlib import Path

HEAD_BYTES = 4096
LENGTH_BYTES = 8  # of a safetensors header, little endian, in front of it
ZIP = b"PK\x03\x04"
AT_REST = b"veilrest"
PICKLE_VERSIONS = (b"\x02", b"\x03", b"\x04", b"\x05")


class FileKind(Enum):
    """Its value follows "model.npz is ..."."""

    FOLDER = "a directory"
    EMPTY = "empty"
    TEXT = "a text file"
    PLAN = "a plan"
    WEIGHTS = "the weights of a plan"
    AT_REST = "a party's encrypted file"
    SAFETENSORS = "a safetensors file: weights"
    ARRAY = "a .npy file of one array"
    ARRAYS = "an .npz file of arrays"
    PARQUET = "a Parquet file"
    EXPORTED = "a .pt2 archive of torch.export"
    PICKLE = "a file of torch.save (a pickle)"
    ARCHIVE = "a zip archive"  # of something else, or a damaged one of the above


MAGICS = {AT_REST: FileKind.AT_REST, b"\x93NUMPY": FileKind.ARRAY, b"PAR1": FileKind.PARQUET}


def kind_of(path: str | Path) -> FileKind | None:
    """The kind of file, None where it is another, or can't be read."""
    path = Path(path)
    if path.is_dir():
        return FileKind.FOLDER
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    if not head:
        return FileKind.EMPTY
    if head.startswith(ZIP):
        return _of_zip(path)
    for magic, kind in MAGICS.items():
        if head.startswith(magic):
            return kind
    if head[:1] == b"\x80" and head[1:2] in PICKLE_VERSIONS:
        return FileKind.PICKLE
    if head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        is_ours = b'"veilgraph.plan"' in head
        return FileKind.WEIGHTS if is_ours else FileKind.SAFETENSORS
    return FileKind.TEXT if _is_text(head) else None


def mistaken(path: str | Path, wanted: FileKind, name: str) -> str:
    """What is wrong with a file that can't be read as the kind that is wanted.

    Args:
        name: of that kind, behind "no": "plan".

    >>> mistaken("/", FileKind.PLAN, "plan")
    '/ is a directory, and no plan.'
    """
    kind = kind_of(path)
    if kind is None or kind in (wanted, FileKind.ARCHIVE):
        return f"{path} is no {name}, or a damaged one."
    return f"{path} is {kind.value}, and no {name}."


def _of_zip(path: Path) -> FileKind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return FileKind.ARCHIVE
    ends = {name.rpartition("/")[2] for name in names}
    if "manifest.yaml" in names:
        return FileKind.PLAN
    if "archive_format" in ends or "serialized_exported_program.json" in ends:
        return FileKind.EXPORTED
    if "data.pkl" in ends:
        return FileKind.PICKLE
    is_arrays = bool(names) and all(name.endswith(".npy") for name in names)
    return FileKind.ARRAYS if is_arrays else FileKind.ARCHIVE


def _is_text(head: bytes) -> bool:
    """Whether these are letters and what stands between them; the last one may be cut."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\r\n\t\f" for c in text)
