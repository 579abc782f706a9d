"""The model owner's file: private, bound to its plan, and refused when it is not whole."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.runtime.store.weights import load_weights, save_weights

DIGEST = "ab" * 32
WEIGHTS = {
    "fc/w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.float32(np.nan) * np.ones((), np.float32),
    "odd name ü": np.zeros((0, 3), np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.weights"
    save_weights(WEIGHTS, file, DIGEST)
    return file


def test_round_trip(path: Path) -> None:
    found = load_weights(path, DIGEST)
    assert found.keys() == WEIGHTS.keys()
    for name, value in WEIGHTS.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, np.float32)
        np.testing.assert_array_equal(found[name], value)


def test_slices_and_transposes_are_written_as_they_read(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    save_weights({"w": whole.T[1:, ::2]}, tmp_path / "w", DIGEST)
    np.testing.assert_array_equal(load_weights(tmp_path / "w", DIGEST)["w"], whole.T[1:, ::2])


def test_the_same_bytes_whatever_the_order(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    save_weights(dict(reversed(WEIGHTS.items())), again, DIGEST)
    assert again.read_bytes() == path.read_bytes()


def test_only_the_owner_may_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    save_weights(WEIGHTS, path, DIGEST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_weights_of_another_plan(path: Path) -> None:
    with pytest.raises(SecurityAbort, match="the weights of another plan") as caught:
        load_weights(path, "cd" * 32)
    assert caught.value.exit_code == 6


def test_tensors_without_a_plan(tmp_path: Path) -> None:
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "plain.safetensors")
    with pytest.raises(SecurityAbort):
        load_weights(tmp_path / "plain.safetensors", DIGEST)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no weights file"):
        load_weights(tmp_path / "model.weights", DIGEST)
    with pytest.raises(UsageError, match=r"is a directory, and no weights file\."):
        load_weights(tmp_path, DIGEST)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * 8 + b"{}", bytes(8)])
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.weights"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.weights is .*no weights file") as caught:
        load_weights(file, DIGEST)
    assert "compile" in caught.value.hint


def test_files_cut_short(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises((UsageError, SecurityAbort)):
            load_weights(path, DIGEST)


def test_a_file_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        save_weights(WEIGHTS, tmp_path / "nowhere" / "model.weights", DIGEST)
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="can't be written"):
        save_weights(WEIGHTS, tmp_path / "taken", DIGEST)
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
