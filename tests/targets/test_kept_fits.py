"""Fits are kept in a folder: the same numbers come back, and what is damaged is found again."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.targets.functions import kept_fits
from veilgraph.targets.functions.fourier_fit import Family, Fit, fit, tanh
from veilgraph.targets.functions.kept_fits import fits_kept_in, kept

INTERVAL, PERIODS = (Decimal(0), Decimal(2)), (Decimal(8), Decimal(16) / 3)
GOAL = Decimal(2) ** -8


class Counted:
    """Fits tanh, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Fit | None:
        self.times += 1
        return fit(tanh, Family.SQUARE, INTERVAL, PERIODS, GOAL)


def found(find: Counted, *, name: str = "tanh", goal: Decimal = GOAL) -> Fit | None:
    return kept(name, INTERVAL, PERIODS, goal, find)


def test_a_fit_is_found_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    find, folder = Counted(), tmp_path / "new" / "fits"
    with fits_kept_in(folder):
        first, again = found(find), found(find)
    assert first is not None
    assert first == again
    assert find.times == 1
    assert [*map(str, first.sines)] == [*map(str, again.sines)], "to the last digit"
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert found(find) == first
    assert find.times == 2, "nothing is read outside of the block"


def test_that_there_is_no_fit_is_kept_too(tmp_path: Path) -> None:
    with fits_kept_in(tmp_path):
        assert kept("tanh", INTERVAL, PERIODS, GOAL, lambda: None) is None
        find = Counted()
        assert found(find) is None
        assert find.times == 0


def test_what_is_asked_for_is_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = Counted()
    asks = [
        partial(found, find, name="erf"),
        partial(found, find, goal=GOAL / 2),
        partial(kept, "tanh", (Decimal(0), Decimal(1)), PERIODS, GOAL, find),
        partial(kept, "tanh", INTERVAL, PERIODS[:1], GOAL, find),
    ]
    with fits_kept_in(tmp_path):
        found(find)
        for number, ask in enumerate(asks, 2):
            ask()
            assert find.times == number
        monkeypatch.setattr(kept_fits, "_version", lambda: "another")
        found(find)
    assert find.times == len(asks) + 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: b"[]",
        lambda text: b"1",
        lambda text: b"[" * 100_000,
        lambda text: b"\xff" + text,
        lambda text: text.replace(b'"period": "8"', b'"period": "9"'),
        lambda text: text.replace(b'"cosines"', b'"sine"'),
        lambda text: text + b" " * kept_fits.MOST_BYTES,
        lambda text: json.dumps({**json.loads(text), "key": {}}).encode(),
    ],
)
def test_a_damaged_file_is_passed_over_and_told(
    damage: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    find = Counted()
    with fits_kept_in(tmp_path):
        first = found(find)
        (file,) = tmp_path.iterdir()
        whole = file.read_bytes()
        damaged = damage(whole)  # type: ignore[operator]
        assert damaged != whole
        file.write_bytes(damaged)
        assert found(find) == first
        assert find.times == 2
        (told,) = caplog.messages
        assert f"{file} is damaged" in told
        assert file.read_bytes() == whole, "written anew"
        assert found(find) == first
        assert find.times == 2


def test_what_can_not_be_written_is_told_and_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    find, folder = Counted(), tmp_path / "fits"
    with fits_kept_in(folder):
        folder.rmdir()
        assert found(find) is not None
    assert "its fit is not kept" in caplog.text
    assert not folder.exists()


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't keep fits"), fits_kept_in(tmp_path / "file"):
        raise AssertionError("not reached")
