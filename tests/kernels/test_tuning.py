"""What was measured decides, for shapes that are near."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_conv2d_limbs import convolution_of

from veilgraph.kernels.conv2d import costs
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.cuda import DeviceShape
from veilgraph.kernels.gemm import tuning
from veilgraph.kernels.gemm.limbs import (
    GROUP_80,
    NAMES,
    SMALL,
    WIDE,
    Ring,
    is_worth,
    stages_of,
    tiling,
)
from veilgraph.kernels.gemm.tuning import Row
from veilgraph.kernels.matmul.residues import Shape

SM90 = DeviceShape(132, "sm_90")
RING = Ring(32, 4)
ROW = Row(32, 4, 1, 1024, 1024, 1024, "limbs", "small", 1, 3)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table of its own, empty at first."""
    path = tmp_path / "tuned.json"
    path.write_text("{}")
    monkeypatch.setattr(tuning, "TABLE", path)
    tuning.table.cache_clear()
    yield path
    tuning.table.cache_clear()


def test_the_table_names_what_there_is() -> None:
    for arch, rows in tuning.table().items():
        for row in rows:
            ring = Ring(row.word_bits, row.limbs)
            assert row.way in tuning.WAYS
            if row.way == "limbs":
                assert 1 <= row.stages <= stages_of(ring, NAMES[row.tile], DeviceShape(1, arch))


def test_rows_are_written_and_found(measured: Path) -> None:
    tuning.write("sm_90", [ROW], measured)
    tuning.write("sm_80", [], measured)
    assert json.loads(measured.read_text()) == {"sm_80": [], "sm_90": [vars(ROW)]}
    assert tuning.nearest("sm_90", 32, 4, (1, 1024, 512), [1024]) == ROW
    assert tuning.nearest("sm_90", 32, 4, (2, 1024, 512), [512]) is None  # three octaves away


def test_pairs_and_kernels_have_rows_of_their_own(measured: Path) -> None:
    two, filtered = replace(ROW, pairs=2, parts=1), replace(ROW, kernel="conv2d", parts=5)
    tuning.write("sm_90", [ROW, two, filtered], measured)
    extents = 1, 1024, 1024
    assert tuning.nearest("sm_90", 32, 4, extents, [512, 512]) == two
    assert tuning.nearest("sm_90", 32, 4, extents, [1024]) == ROW
    assert tuning.nearest("sm_90", 32, 4, extents, [1024], "conv2d") == filtered
    assert tiling(RING, extents, [1024], SM90, "conv2d").parts == 5
    assert tuning.nearest("sm_90", 32, 3, extents, [1024]) is None


def test_the_table_that_is_written_is_the_one_named(measured: Path, tmp_path: Path) -> None:
    """A checkout's, which need not be the one that is installed."""
    checkout = tmp_path / "checkout.json"
    checkout.write_text('{"sm_80": []}')
    tuning.write("sm_90", [ROW], checkout)
    assert json.loads(checkout.read_text()) == {"sm_80": [], "sm_90": [vars(ROW)]}
    assert measured.read_text() == "{}"


def test_near_shapes_take_the_row(measured: Path) -> None:
    tuning.write("sm_90", [ROW, replace(ROW, rows=8192, way="integers")], measured)
    made = tiling(RING, (1, 1000, 2000), [1024], SM90)
    assert (made.tile, made.stages, made.parts) == (SMALL, 1, 3)
    assert tiling(RING, (1, 1024, 1024), [32], SM90).tile is GROUP_80  # five octaves away
    assert tiling(RING, (1, 1024, 1024), [1024], DeviceShape(132, "sm_80")).tile is WIDE
    assert tiling(Ring(32, 3), (1, 1024, 1024), [1024], SM90).tile is GROUP_80
    assert is_worth(RING, (1, 1024, 1024), [1024], SM90)
    assert not is_worth(RING, (1, 8192, 1024), [1024], SM90)


def test_residues_as_measured(measured: Path) -> None:
    shape = Shape(RING, 1, 1024, 1024, (1024,))
    assert not shape.is_worth(SM90)
    tuning.write("sm_90", [replace(ROW, way="residues")], measured)
    assert shape.is_worth(SM90)


def test_convolutions_as_measured(measured: Path) -> None:
    """Images that are matrices as they lie there have rows of their own."""

    def is_worth(kernel: int) -> bool:
        shapes = (2, 32, 16, 16), (64, 32, kernel, kernel), (2, 64, 16, 16)
        params = Params(64, pad_top=kernel // 2, pad_left=kernel // 2)
        return costs.is_worth(convolution_of(*shapes, params), SM90)

    matrices = Row(64, 8, 1, 64, 512, 32, "residues", kernel="conv2d_matrices")
    windows = replace(matrices, depth=288, kernel="conv2d", way="limbs", tile="small", stages=1)
    tuning.write("sm_90", [matrices, windows], measured)
    assert (is_worth(1), is_worth(3)) == (True, False)
    others = [replace(matrices, way="matrices"), replace(windows, way="residues")]
    tuning.write("sm_90", others, measured)
    assert (is_worth(1), is_worth(3)) == (False, True)
