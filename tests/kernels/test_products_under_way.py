"""No register of a product by wgmma is touched before its wait, in what nvcc makes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ptx import early_uses

from veilgraph.kernels.conv2d.residues.residues import IMAGES
from veilgraph.kernels.cuda import FLAGS, ROOT, DeviceShape
from veilgraph.kernels.gemm.limbs import MmaTile, Ring, Tiling, stages_of, tiles_of
from veilgraph.kernels.gemm.residues.byte_products import BLOCKS, WGMMA, WGMMA_PAIRS, Engine, Right
from veilgraph.kernels.gemm.residues.byte_products import source as byte_products
from veilgraph.kernels.gemm.residues.residues import Basis

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc on the path")
HOPPER = DeviceShape(1, "sm_90")
BODY = """
.visible .entry late(
)
{
loop:
    {
    wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1, %r2}, {%r5, %r6}, %rd1, adds;
    }
    wgmma.commit_group.sync.aligned;
    FIRST
    @%p1 bra loop;
    wgmma.wait_group.sync.aligned 0;
    st.global.u32 [%rd2], %r1;
    mov.u32 %r5, 0;
}
"""


def ptx(folder: Path, text: str) -> str:
    """What nvcc makes of a source for sm_90a."""
    unit, made = folder / "unit.cu", folder / "unit.ptx"
    unit.write_text(text, encoding="utf-8")
    command = [
        str(NVCC),
        *FLAGS,
        "-ptx",
        "-arch=sm_90a",
        "-I",
        str(ROOT),
        str(unit),
        "-o",
        str(made),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made.read_text()


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("add.s32 %r7, %r6, %r5;", 0),  # what products read may be read
        ("add.s32 %r7, %r1, %r5;", 1),
        ("mov.u32 %r2, 0;", 1),
        ("mov.u32 %r6, 0;", 1),
        ("wgmma.wait_group.sync.aligned 0;\n    mov.u32 %r6, %r1;", 0),
        ("wgmma.wait_group.sync.aligned 1;\n    mov.u32 %r6, %r1;", 1),
    ],
)
def test_the_scan_finds_what_is_early(line: str, count: int) -> None:
    assert len(early_uses(BODY.replace("FIRST", line))) == count


def test_the_scan_follows_branches() -> None:
    """At the head of a loop, the products of the round before are under way."""
    assert not early_uses(BODY.replace("FIRST", ""))
    head = BODY.replace("FIRST", "").replace("loop:", "loop:\n    mov.u32 %r5, %r9;")
    assert early_uses(head) == ["late: mov.u32 %r5, %r9;"]


@needs_nvcc
@pytest.mark.parametrize("engine", [WGMMA, WGMMA_PAIRS], ids=["one", "pairs"])
@pytest.mark.parametrize("right", [BLOCKS, IMAGES], ids=lambda right: right.type)
def test_sums_of_bytes(tmp_path: Path, engine: Engine, right: Right) -> None:
    found = ptx(tmp_path, byte_products(Basis(5, 12), engine, right).text)
    assert found.count("wgmma.mma_async") == 2
    assert not early_uses(found)


@needs_nvcc
@pytest.mark.parametrize("kernel", ["matmul", "conv2d"])
@pytest.mark.parametrize("ring", [Ring(32, 4), Ring(64, 8)], ids=["32", "64"])
def test_sums_and_fragments_of_limbs(tmp_path: Path, kernel: str, ring: Ring) -> None:
    tiles = [tile for tile in tiles_of(ring, HOPPER) if not isinstance(tile, MmaTile)]
    tilings = [Tiling(ring, tile, stages_of(ring, tile, HOPPER), (1, 1, 1)) for tile in tiles]
    found = ptx(tmp_path, "\n".join(tiling.source(kernel)[0].text for tiling in tilings))
    assert found.count("wgmma.mma_async") == 2 * ring.products * len(tiles)
    assert not early_uses(found)
