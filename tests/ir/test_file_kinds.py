"""What kind of file a path leads to."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from veilgraph.ir.files.file_kinds import FileKind, kind_of, mistaken

SAFETENSORS = (40).to_bytes(8, "little") + b'{"__metadata__":{"%s":"x"}}'.ljust(40)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", FileKind.EMPTY),
        (b"import torch\n", FileKind.TEXT),
        ("h\N{LATIN SMALL LETTER E WITH ACUTE}".encode()[:-1], FileKind.TEXT),  # cut in a letter
        (b"\x93NUMPY\x01\x00", FileKind.ARRAY),
        (b"veilrest" + bytes(100), FileKind.AT_REST),
        (b"\x80\x02\x8a\nl", FileKind.PICKLE),
        (SAFETENSORS % b"veilgraph.plan", FileKind.WEIGHTS),
        (SAFETENSORS % b"format", FileKind.SAFETENSORS),
        (b"\x08\x0a\x12\x07pytorch", None),
        (b"PK\x03\x04 cut", FileKind.ARCHIVE),
        (b"\xff\xfe\xfd", None),
    ],
)
def test_by_its_first_bytes(tmp_path: Path, content: bytes, kind: FileKind | None) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    assert kind_of(file) is kind


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["manifest.yaml", "layers.json"], FileKind.PLAN),
        (["x.npy", "y.npy"], FileKind.ARRAYS),
        (["net/data.pkl", "net/version"], FileKind.PICKLE),
        (["net/models/model.json", "net/archive_format"], FileKind.EXPORTED),
        (["serialized_exported_program.json", "version"], FileKind.EXPORTED),
        (["x.txt"], FileKind.ARCHIVE),
    ],
)
def test_a_zip_by_its_entries(tmp_path: Path, names: list[str], kind: FileKind) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    assert kind_of(file) is kind


def test_what_is_not_there_has_no_kind(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "none") is None
    assert kind_of(tmp_path) is FileKind.FOLDER


def test_a_damaged_file_is_not_taken_for_another(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(b"\x93NUMPY")
    assert (
        mistaken(file, FileKind.ARRAY, ".npy file") == f"{file} is no .npy file, or a damaged one."
    )
    told = mistaken(file, FileKind.PLAN, "plan")
    assert told == f"{file} is a .npy file of one array, and no plan."
