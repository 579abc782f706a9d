"""Tables, units and arrays in files: how things are shown, read and written."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np
import pytest

from veilgraph.commands.files import check_destination, read_array, replacing, write_array
from veilgraph.ir.errors import UsageError
from veilgraph.reports import tables, units
from veilgraph.reports.tables import Table
from veilgraph.reports.text import brief

TABLE = Table.of("layer|#rounds", [("conv1", 0), ("relu1", 15)], "Cost")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What a test may redirect its output to; the environment is that of a terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_plain_text_is_aligned_and_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show("before", TABLE, Table.of("none", []), "after", "end")
    assert capsys.readouterr().out == (
        "before\n\nCost\nlayer  rounds\nconv1       0\nrelu1      15\n\nafter\nend\n"
    )


def test_terminal_gets_rules_and_colour(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        tables.show(TABLE, "[not markup]")
    shown = terminal.getvalue()
    assert "─" in shown
    assert "\x1b[" in shown
    assert "[not markup]" in shown


def test_no_color_is_honoured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(terminal):
        tables.show(TABLE)
    assert "\x1b[3" not in terminal.getvalue()
    assert "─" in terminal.getvalue()


def test_dumb_terminal_gets_plain_text(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stdout(terminal):
        tables.show(TABLE)
    assert terminal.getvalue() == TABLE.plain() + "\n"


def test_progress_is_shown_to_a_terminal(terminal: Terminal) -> None:
    with redirect_stderr(terminal), tables.progress("compiling") as tell:
        tell("compiling: import [1]")
    assert "compiling" in terminal.getvalue()


def test_progress_is_silent_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with tables.progress("compiling") as tell:
        tell("more")
    assert capsys.readouterr() == ("", "")


WIDE = Table.of(
    "layer|protocols|#ring|#rounds|range",
    [
        ("encoder.layers.0.attention", "truncate_relu", 24, 5, "[-1, 1] calibrated"),
        ("fc", "matmul", 32, 1, ""),
    ],
)


def test_a_table_too_wide_for_its_terminal_comes_as_records() -> None:
    assert WIDE.least_width() > 60
    assert WIDE.records(40).splitlines() == [
        "encoder.layers.0.attention",
        "  protocols truncate_relu, ring 24,",
        "  rounds 5, range [-1, 1] calibrated",
        "fc",
        "  protocols matmul, ring 32, rounds 1",
    ]


@pytest.mark.parametrize(("columns", "wide", "records"), [(40, 0, 1), (120, 0, 0), (40, 1, 0)])
def test_no_word_is_cut(
    columns: int,
    wide: bool,
    records: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    tables.show(WIDE, wide=bool(wide))
    out = capsys.readouterr().out
    for word in ("encoder.layers.0.attention", "truncate_relu", "calibrated"):
        assert word in out
    assert ("protocols matmul" in out) == bool(records)


def test_a_table_of_endless_lines_comes_as_records_in_a_file_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pager and a mail fold lines of 265 columns into nothing that one can read."""
    long = Table.of("layer|protocols|#rounds", [("relu1", "x" * 190, 15), ("fc", "y", 2)])
    tables.show(long)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "relu1"
    assert max(map(len, shown.splitlines())) <= tables.MOST_COLUMNS
    tables.show(long, wide=True)
    assert capsys.readouterr().out == long.plain() + "\n"
    for kept in (
        Table.of("layer|protocols", [("r", "x" * 180)]),
        Table.of("plan|", [("a", "x" * 300)]),
    ):
        tables.show(kept)
        assert capsys.readouterr().out == kept.plain() + "\n"


@pytest.mark.parametrize(
    ("ops", "chosen", "told"),
    [
        (["conv", "reshape", "add"], [], "conv+reshape+add"),
        (["add", "step"], ["", "compare=table"], "add+step (compare=table)"),
        (["add", "function", *["add", "step"] * 9], [""] * 20, "function+step and 18 more"),
        (["add", *["step"] * 9], ["", *["compare=table"] * 9], "step (compare=table) and 9 more"),
        (["reshape", "add"] * 9, [], "reshape+add and 16 more"),
    ],
)
def test_many_ops_of_a_layer_leave_room_for_numbers(
    ops: list[str], chosen: list[str], told: str
) -> None:
    assert brief(ops, chosen) == told


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_json({"name": "é", "low": None})
    assert json.loads(capsys.readouterr().out) == {"name": "é", "low": None}
    with pytest.raises(ValueError, match="JSON"):
        tables.show_json({"low": float("inf")})


# Units


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.size(0), "0 B"),
        (units.size(999), "999 B"),
        (units.size(1000), "1.00 kB"),
        (units.size(86_840), "86.8 kB"),
        (units.size(999_600), "1.00 MB"),
        (units.size(4.09e15), "4090 TB"),
        (units.amount(950), "950"),
        (units.amount(4.089e9), "4.09 G"),
        (units.seconds(0), "0 ms"),
        (units.duration(4.56), "4.56 s"),
        (units.duration(119.9), "120 s"),
        (units.duration(41 * 60), "41 minutes"),
        (units.duration(2.5 * 3600), "2.5 hours"),
        (units.duration(10 * 86400), "10 days"),
        (units.seconds(8.5e-4), "850 us"),
        (units.seconds(0.9996e-3), "1.00 ms"),
        (units.seconds(0.0123), "12.3 ms"),
        (units.seconds(0.9996), "1.00 s"),
        (units.seconds(4.5), "4.50 s"),
        (units.seconds(1234.5), "1234 s"),
        (units.percent(0.1234), "12.3%"),
        (units.real(1.83400), "1.834"),
        (units.shape((1, 3, 28, 28)), "1x3x28x28"),
        (units.shape(()), "()"),
    ],
)
def test_units(shown: str, text: str) -> None:
    assert shown == text


def test_infinity_is_null() -> None:
    assert units.finite(float("-inf")) is None
    assert units.finite(2.5) == 2.5


# Files


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.float32(3), np.zeros((0, 2))])
def test_arrays_come_back(tmp_path: Path, array: np.ndarray) -> None:
    write_array(tmp_path / "x.npy", array)
    found = read_array(tmp_path / "x.npy")
    np.testing.assert_array_equal(found, array)
    assert found.shape == array.shape
    assert (tmp_path / "x.npy").stat().st_mode & 0o077 == 0


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    write_array(path, np.zeros(3))
    with suppress(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]
    np.testing.assert_array_equal(read_array(path), np.zeros(3))


def npy(header: bytes, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty, and no .npy file."),
        (b"PK\x03\x04 an npz", "is no .npy file"),
        (
            npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n"),
            "cut short",
        ),
        (npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }\n"), "negative"),
        (npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"), "must hold real"),
        (npy(b"{'descr': '<U8', 'fortran_order': False, 'shape': (1,), }\n"), "must hold real"),
        (npy(b"", version=b"\x09\x00"), "of version (9, 0), which isn't read"),
        (npy(b"__import__('os').getcwd()\n"), "is no .npy file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_array(tmp_path / "x.npy")
    assert sentence in caught.value.message
    assert caught.value.hint


def test_what_is_no_file_is_refused_with_a_hint_that_fits(tmp_path: Path) -> None:
    """Of outputs alone it is said that they are printed without a place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for is_printed in (False, True):
        with pytest.raises(UsageError, match="is a device, a pipe or a socket") as caught:
            check_destination(pipe, is_printed=is_printed)
        assert ("printed" in caught.value.hint) is is_printed
        assert caught.value.hint.startswith("Name a file")


def test_destination_is_checked_before_any_work(tmp_path: Path) -> None:
    check_destination(tmp_path / "new.npy")
    for path in (tmp_path, tmp_path / "none" / "x"):
        with pytest.raises(UsageError):
            check_destination(path)
