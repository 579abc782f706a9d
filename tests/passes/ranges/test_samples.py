"""The samples' file: read when it fits, refused with a sentence when not."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.passes.ranges.samples import read_samples

SHAPES = {"x": (1, 3), "y": (2,)}
GOOD = {"x": np.arange(12).reshape(4, 1, 3), "y": np.ones((4, 2), np.float16)}


def save(folder: Path, **arrays: object) -> Path:
    path = folder / "samples.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_samples_come_as_float32(tmp_path: Path) -> None:
    found = read_samples(save(tmp_path, **GOOD), SHAPES)
    assert {name: array.dtype for name, array in found.items()} == dict.fromkeys("xy", np.float32)
    np.testing.assert_array_equal(found["x"], GOOD["x"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": None}, "no array for y; its arrays: x"),
        ({"z": np.ones(4)}, "no input: z"),
        ({"x": np.ones((4, 3))}, "x in .* is 4 x 3, but must be samples x 1 x 3"),
        ({"x": np.ones((4, 1, 4))}, "is 4 x 1 x 4"),
        ({"x": np.float32(1)}, "a single number"),
        ({"x": np.ones((0, 1, 3)), "y": np.ones((0, 2))}, "is 0 x 1 x 3"),
        ({"y": np.ones((3, 2))}, "different numbers of samples"),
        ({"y": np.full((4, 2), 1j)}, "complex128, but must hold real"),
        ({"y": np.full((4, 2), "a")}, "must hold real"),
        ({"y": np.full((4, 2), None)}, "must hold real"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    arrays = {n: a for n, a in (GOOD | changed).items() if a is not None}
    with pytest.raises(UsageError, match=message) as caught:
        read_samples(save(tmp_path, **arrays), SHAPES)
    assert "numpy.savez" in caught.value.hint


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_samples_that_lack_a_number(tmp_path: Path, number: float) -> None:
    file = save(tmp_path, **(GOOD | {"y": np.full((4, 2), number)}))
    with pytest.raises(UsageError, match=r"y in .* holds a NaN or an infinite number") as caught:
        read_samples(file, SHAPES)
    assert "Leave out the samples" in caught.value.hint


def test_files_that_are_none(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.npz"
    garbage.write_bytes(b"PK\x03\x04 this is no archive")
    one = tmp_path / "one.npy"
    np.save(one, np.zeros(3))
    whole = save(tmp_path, **GOOD).read_bytes()
    mixed = tmp_path / "mixed.npz"
    with zipfile.ZipFile(mixed, "w") as archive:
        archive.writestr("x", b"")
    said = {
        tmp_path / "missing.npz": "missing.npz can't be read: No such file or directory.",
        tmp_path: "can't be read: Is a directory.",
        garbage: "garbage.npz is no .npz file, or a damaged one.",
        one: "one.npy is a .npy file of one array, and no .npz file.",
        mixed: "mixed.npz is no .npz file, or a damaged one.",
    }
    for path, message in said.items():
        with pytest.raises(UsageError) as caught:
            read_samples(path, SHAPES)
        assert caught.value.message.endswith(message)
        assert caught.value.hint
    for length in range(1, len(whole), 97):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"no \.npz file"):
            read_samples(tmp_path / "cut.npz", SHAPES)


def test_a_damaged_file_is_told_and_is_no_bug(tmp_path: Path) -> None:
    """Compressed too, where zlib has errors of its own."""
    file = tmp_path / "damaged.npz"
    np.savez_compressed(file, **GOOD)  # type: ignore[arg-type]
    whole = file.read_bytes()
    for place in range(30, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 0x5A
        file.write_bytes(damaged)
        with suppress(UsageError):  # some bytes are read by nobody
            read_samples(file, SHAPES)


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (header((10**12, 2)), "cut short"),
        (header((4, 10**12)), "must be samples x 2"),
        (b"\x93NUMPY\x09\x00" + header((4, 2))[8:], "or a damaged one"),
        (b"not an array", "or a damaged one"),
        (header((4, 2)) + b"\0" * 31, "or a damaged one"),
    ],
)
def test_hostile_members_are_refused_before_anything_is_allocated(
    tmp_path: Path, member: bytes, message: str
) -> None:
    path = tmp_path / "samples.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("y.npy", member)
    with pytest.raises(UsageError, match=message):
        read_samples(path, {"y": (2,)})
