"""nvcc takes every CUDA source, for the architectures that are supported and as PTX.

Here and not with the kernels' tests because printed kernels come from plans: of protocols of a
suite, as the golden files have them, and of a whole network. What is not marked slow takes a minute
of a processor in all: every written kernel, a ring of each way, and a few printed kernels. What
nvcc reports of a text is kept, as nvcc, its flags, the text and what it includes say it all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from conformance import SETTINGS
from protocol_plans import protocol_plan

import veilgraph
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND
from veilgraph.kernels import KERNELS
from veilgraph.kernels.conv2d import depthwise
from veilgraph.kernels.conv2d.declaration import Params as Convolution
from veilgraph.kernels.conv2d.residues.residues import IMAGES
from veilgraph.kernels.conv2d.residues.residues import by_residues as convolution_by_residues
from veilgraph.kernels.conv2d.residues.residues import source as image_residues
from veilgraph.kernels.cuda import (
    FLAGS,
    ROOT,
    Buffer,
    DeviceShape,
    Kind,
    Launch,
    Source,
    buffers_of,
)
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.cuda.steps import launches
from veilgraph.kernels.fused.cuda import ended, with_sums
from veilgraph.kernels.fused.declaration import instruction, program
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.gemm.limbs import (
    TILES,
    MmaTile,
    Ring,
    Tiling,
    stages_of,
    stages_worth,
    tiles_of,
)
from veilgraph.kernels.gemm.pack import source as pack
from veilgraph.kernels.gemm.residues.byte_products import (
    BLOCKS,
    MMA,
    WGMMA,
    WGMMA_PAIRS,
    Engine,
    Right,
)
from veilgraph.kernels.gemm.residues.byte_products import source as byte_products
from veilgraph.kernels.gemm.residues.residues import Basis
from veilgraph.kernels.gemm.residues.residues import source as residues
from veilgraph.kernels.matmul.cuda import by_limbs
from veilgraph.kernels.matmul.residues import by_residues
from veilgraph.runtime.devices.cuda.archs import build_flag

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc on the path")
SM_90A = ("-gencode=arch=compute_90a,code=sm_90a",)
PTX = ("-gencode=arch=compute_90,code=compute_90",)  # which has no wgmma
HOPPER = SM_90A + PTX
TARGETS = ("-gencode=arch=compute_80,code=sm_80", *HOPPER)
WRITTEN = tuple(kernel for kernel in KERNELS if (ROOT / "kernels" / kernel / "cuda.cu").is_file())
RINGS = tuple(
    Ring(bits, limbs) for bits, limbs in ((32, 3), (32, 4), (64, 5), (64, 6), (64, 7), (64, 8))
)
BASES = tuple(
    Basis(*each) for each in ((3, 8), (4, 10), (5, 12), (6, 14), (7, 16), (8, 18), (8, 19))
)
PROTOCOLS = (
    "mul",
    "truncate_relu",
    "maximum",
    "max_pool",
    "truncate_relu_pool",
    "masked_function",
    "exp_sums",
    "masked_exp",
)
SUITES = {setting.suite.name: setting for setting in reversed(SETTINGS)}  # the fewest parties
SUMS = ((1, 2), (2, 1), (2, 2))  # addends of left and right factors
Reports = Mapping[tuple[str, str], str]  # by kernel and architecture


def compiled(folder: Path, text: str, targets: Sequence[str] = TARGETS) -> Reports:
    """What the assembler reports of each kernel on each architecture of `targets`."""
    flags = (*FLAGS, *targets, "-Xptxas", "-v", "--fatbin")
    digest = sha256("\0".join((*flags, text)).encode()).hexdigest()
    kept = Path(os.environ["NVCC_FOLDER"], digest)  # of conftest.py
    if not kept.exists():
        kept_whole(kept, assembled(folder, text, flags))
    parts = re.split(r"Compiling entry function '(\w+)' for '(sm_\d+a?)'", kept.read_text("utf-8"))
    names = zip(parts[1::3], parts[2::3], strict=True)
    reports = dict(zip(names, parts[3::3], strict=True))
    assert {arch for _, arch in reports} == set(re.findall(r"code=(sm_\d+a?)", str(targets)))
    return reports


def assembled(folder: Path, text: str, flags: Sequence[str]) -> str:
    """What nvcc prints of a text that it takes."""
    unit = folder / "unit.cu"
    unit.write_text(text, encoding="utf-8")
    command = [str(NVCC), *flags, "-I", str(ROOT), str(unit)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def kept_whole(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all, for other workers and later runs."""
    with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)


def together(sources: Iterable[Source]) -> str:
    """Printed kernels as one unit, each under a name of its own: headers are read once."""
    return "\n".join(
        source.text.replace("veil_fused(", f"veil_fused_{number}(")
        for number, source in enumerate(sources)
    )


def printed(plan: Plan) -> dict[str, Source]:
    """The distinct fused programs of all parties, by digest."""
    found: dict[str, Source] = {}
    for mine in plan.programs.values():
        for step in mine.steps:
            if step["kernel"] == ROUND or KERNELS[step["kernel"]] != "fused":
                continue
            first, last = step["first_buffer"], step["first_buffer"] + step["buffer_count"]
            begin, end = step["first_param"], int(step["first_param"]) + int(step["param_count"])
            params = [int(value) for value in mine.params[begin:end]]
            buffers = buffers_of(mine.buffers[first:last])
            for launch in launches("fused", buffers, params, DeviceShape(132)):
                found[launch.source.digest] = launch.source
    return found


def limb_kernels(kernel: str, ring: Ring, device: DeviceShape) -> list[Source]:
    """All that tilings of a ring may choose on an architecture, with the most stages."""
    return [
        Tiling(ring, tile, stages_of(ring, tile, device), (1, 1, 1)).source(kernel)[0]
        for tile in tiles_of(ring, device)
    ]


def kernels_of_sums(ring: Ring, device: DeviceShape) -> list[Source]:
    """Those of matmul that make sums of shares while they load them."""
    plain = (
        Tiling(ring, tile, stages_of(ring, tile, device), (1, 1, 1))
        for tile in tiles_of(ring, device)
    )
    made = (each.of_sums(terms, device) for each, terms in product(plain, SUMS))
    return [each.source("matmul")[0] for each in made if each is not None]


def fewer_stages(kernel: str, ring: Ring, device: DeviceShape) -> list[Source]:
    """What a table of measured tilings may choose beside them."""
    return [
        Tiling(ring, tile, stages, (1, 1, 1)).source(kernel)[0]
        for tile in tiles_of(ring, device)
        for stages in stages_worth(ring, tile, device)[:-1]
    ]


def in_one_unit(sources: Iterable[Source]) -> str:
    return "\n".join(source.text for source in sources)


def spilling(reports: Reports) -> list[tuple[str, str]]:
    """Kernels and architectures of which some bytes have no register."""
    return [where for where, report in reports.items() if spilled(report)]


def instructions(cubin: Path) -> str:
    """The disassembly of machine code; skips the test where there is no cuobjdump."""
    packaged = Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/cuobjdump")
    found = shutil.which("cuobjdump") or next(map(str, packaged), None)
    if found is None:
        pytest.skip("there is no cuobjdump: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    path = f"{Path(found).parent}:{os.environ['PATH']}"  # it calls nvdisasm
    command = [found, "-sass", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def disassembled(folder: Path, text: str, arch: str) -> tuple[list[str], str]:
    """The assembler's report of each kernel, and the instructions of all."""
    unit, cubin = folder / "unit.cu", folder / "unit.cubin"
    unit.write_text(text, encoding="utf-8")
    command = [str(NVCC), *FLAGS, "-cubin", build_flag(arch), "-Xptxas", "-v", "-I", str(ROOT)]
    done = subprocess.run(
        [*command, str(unit), "-o", str(cubin)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    warnings, *reports = done.stderr.split("Compiling entry function")
    assert "C75" not in warnings, warnings  # wgmma's: products that the assembler had to serialise
    return reports, instructions(cubin)


def spilled(report: str) -> int:
    """Bytes that a kernel stores for want of registers."""
    (found,) = re.findall(r"(\d+) bytes spill stores", report)
    return int(found)


@needs_nvcc
@pytest.mark.parametrize("kernel", WRITTEN)
def test_written_kernels(tmp_path: Path, kernel: str) -> None:
    text = file_source(f"kernels/{kernel}/cuda.cu").text
    reports = compiled(tmp_path, text, HOPPER)
    assert reports
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.parametrize("kernel", ["matmul", "conv2d"])
def test_limbs_of_a_ring(tmp_path: Path, kernel: str) -> None:
    """The ring of most limbs, as machine code, and as PTX what is for any GPU."""
    sources = limb_kernels(kernel, Ring(64, 8), DeviceShape(1, "sm_90"))
    reports = compiled(tmp_path, in_one_unit(sources), SM_90A)
    assert len(reports) == len(sources)
    assert not spilling(reports)
    compiled(tmp_path, in_one_unit(limb_kernels(kernel, Ring(64, 8), DeviceShape(1))), PTX)


@needs_nvcc
def test_sums_in_products_of_a_ring(tmp_path: Path) -> None:
    """The ring of most limbs, by groups and by warps, where no room is left in registers."""
    sources = kernels_of_sums(Ring(64, 8), DeviceShape(1, "sm_90"))
    reports = compiled(tmp_path, in_one_unit(sources), SM_90A)
    assert len(reports) == len(sources)
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.parametrize("word_bits", [32, 64])
def test_depthwise_kernels(tmp_path: Path, word_bits: int) -> None:
    shapes = product(depthwise.KERNELS, depthwise.STRIDES)
    sources = [depthwise.source(word_bits, *shape)[0] for shape in shapes]
    reports = compiled(tmp_path, in_one_unit(sources), HOPPER)
    assert len(reports) == len(sources)
    assert not spilling(reports)


@needs_nvcc
def test_parts_are_added_without_spills(tmp_path: Path) -> None:
    assert not spilling(compiled(tmp_path, (ROOT / "kernels/gemm/parts.cu").read_text(), HOPPER))


@needs_nvcc
@pytest.mark.parametrize("made", [residues, image_residues])
def test_residues_of_a_ring(tmp_path: Path, made: Callable[[int, Basis], Source]) -> None:
    reports = compiled(tmp_path, made(64, Basis(8, 18)).text, HOPPER)
    assert reports
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.parametrize(("suite", "op"), [("rep3", "mul"), ("additive", "truncate_relu")])
def test_a_few_printed_kernels(tmp_path: Path, suite: str, op: str) -> None:
    sources = printed(protocol_plan(SUITES[suite], op, 40, 40))
    reports = compiled(tmp_path, together(sources.values()), HOPPER)
    assert len(reports) == len(sources)
    assert not spilling(reports)


@needs_nvcc
def test_reports_of_two_architectures_are_kept_apart(tmp_path: Path) -> None:
    """A kernel that spills on one of them shows, whichever is compiled last."""
    text = """
#if __CUDA_ARCH__ == 800
#define BOUNDS __launch_bounds__(1024, 2)
#else
#define BOUNDS
#endif
extern "C" __global__ void BOUNDS many(float* x, int step) {
  float held[64];
  for (int i = 0; i < 64; ++i) held[i] = x[i * step];
  for (int i = 0; i < 64; ++i) x[i * step] = held[63 - i] * held[i];
}
"""
    assert spilling(compiled(tmp_path, text)) == [("many", "sm_80")]


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kernel", WRITTEN)
def test_written_kernels_everywhere(tmp_path: Path, kernel: str) -> None:
    text = file_source(f"kernels/{kernel}/cuda.cu").text
    assert not spilling(compiled(tmp_path, text))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("basis", BASES, ids=lambda basis: f"{basis.limbs}-{basis.count}")
@pytest.mark.parametrize(("made", "count"), [(residues, 2), (image_residues, 3)])
def test_residues_do_not_spill(
    tmp_path: Path, made: Callable[[int, Basis], Source], count: int, basis: Basis, arch: str
) -> None:
    text = made(32 if basis.limbs <= 4 else 64, basis).text
    reports, _ = disassembled(tmp_path, text, arch)
    assert len(reports) == count
    assert not [report for report in reports if spilled(report)]


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "arch", "instruction", "count"),
    [
        (MMA, "sm_80", "IMMA.16832.S8.S8", 2 * 4 * 8),  # halves of a step, down and across
        (MMA, "sm_90", "IMMA.16832.S8.S8", 2 * 4 * 8),
        (WGMMA, "sm_90", "IGMMA.64x256x32.S8.S8", 2),
        (WGMMA_PAIRS, "sm_90", "IGMMA.64x256x32.S8.S8", 2),
    ],
)
@pytest.mark.parametrize("right", [BLOCKS, IMAGES], ids=lambda right: right.type)
@pytest.mark.parametrize("basis", BASES, ids=lambda basis: f"{basis.limbs}-{basis.count}")
def test_byte_products_are_on_tensor_cores(
    tmp_path: Path,
    basis: Basis,
    right: Right,
    engine: Engine,
    arch: str,
    instruction: str,
    count: int,
) -> None:
    """No spills, no products that wait for each other, and bytes are stored 16 at a time."""
    (report,), found = disassembled(tmp_path, byte_products(basis, engine, right).text, arch)
    assert not spilled(report)
    assert found.count(instruction) == count
    stores = set(re.findall(r"\bSTG\S*", found))
    assert stores == {"STG.E.128"}
    assert ("UBLKCP" in found) == (engine is not MMA)
    assert ("UBLKCP.S.G.MULTICAST" in found) == (engine is WGMMA_PAIRS)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matmul", "conv2d"])
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"{ring.word_bits}-{ring.limbs}")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_limbs_are_on_tensor_cores(tmp_path: Path, kernel: str, ring: Ring, arch: str) -> None:
    """No spills, and in each kernel at least the integer matrix instructions of a step."""
    device = DeviceShape(1, arch)
    text = in_one_unit(limb_kernels(kernel, ring, device))
    reports, found = disassembled(tmp_path, text, arch)
    assert len(reports) == len(tiles_of(ring, device))
    assert not [report for report in reports if spilled(report)]
    of_warps = [tile for tile in tiles_of(ring, device) if isinstance(tile, MmaTile)]
    of_a_step = sum(ring.products * tile.down * tile.across for tile in of_warps)
    assert found.count("IMMA.16832.S8.S8") == of_a_step
    for tile in set(tiles_of(ring, device)) - set(of_warps):  # two steps; a in registers
        made = re.findall(rf"IGMMA\.64x{tile.columns}x32\.S8\.S8 R\d+, R\d+, gdesc", found)
        assert len(made) == 2 * ring.products


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"{ring.word_bits}-{ring.limbs}")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sums_in_products_do_not_spill(tmp_path: Path, ring: Ring, arch: str) -> None:
    """And are multiplied by the same instructions as factors from memory."""
    sources = kernels_of_sums(ring, DeviceShape(1, arch))
    reports, found = disassembled(tmp_path, in_one_unit(sources), arch)
    assert len(reports) == len(sources)
    assert not [report for report in reports if spilled(report)]
    of_groups = sum("GroupTile" in source.text for source in sources)
    assert found.count("IGMMA.") == 2 * ring.products * of_groups
    of_warps = [source for source in sources if "LimbTile" in source.text]
    assert found.count("IMMA.16832.S8.S8") >= ring.products * len(of_warps)


@needs_nvcc
@pytest.mark.slow
def test_packing_does_not_spill(tmp_path: Path) -> None:
    planes = sorted({plane for tile in TILES for plane in tile.planes})
    reports = compiled(
        tmp_path, "\n".join(pack(ring, plane)[0].text for ring in RINGS for plane in planes)
    )
    assert len(reports) == 2 * 3 * len(RINGS)
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.WORDS32, Kind.WORDS64])
def test_sums_made_by_the_program_that_follows_do_not_spill(tmp_path: Path, kind: Kind) -> None:
    bits = 64 if kind is Kind.WORDS64 else 32

    def buffers(*shapes: tuple[int, ...]) -> list[Buffer]:
        strides = ([prod(s[axis + 1 :]) for axis in range(len(s))] for s in shapes)
        return [Buffer(0, 0, kind, bits, s, tuple(t)) for s, t in zip(shapes, strides, strict=True)]

    matrices = buffers((1, 64, 96), (1, 64, 8192), (1, 8192, 96))
    images = buffers((2, 64, 14, 14), (2, 512, 14, 14), (64, 512, 3, 3))
    params = [int(value) for value in Convolution(bits, pad_top=1, pad_left=1).values()]
    for made in (
        by_residues(matrices, [bits], DeviceShape(1)),
        by_limbs(matrices, [bits], DeviceShape(132)),
        convolution_by_residues(images, params, DeviceShape(1)),
    ):
        sums = made[-1].sums
        assert sums is not None
        streams = [Buffer(0, 0, kind, bits, (sums.elements,), (1,))] * 2
        lines = [instruction(op=op, word=bits, a=a, b=0) for op, a in ((Op.LOAD, 0), (Op.STORE, 1))]
        copied = program(sums.elements, 1, 0, lines).tolist()
        (launch,) = with_sums(streams, copied, DeviceShape(1), {0: sums})
        assert not spilling(compiled(tmp_path, launch.source.text))


def with_program(kernel: str, tiling: Tiling) -> str | None:
    """The kernel of a tiling that ends in the sum of its sums and two streams, if it may."""
    bits = tiling.ring.word_bits
    kind = Kind.WORDS64 if bits == 64 else Kind.WORDS32
    streams = [Buffer(0, i << 20, kind, bits, (4096,), (1,)) for i in range(4)]
    ending = tiling.ending(kernel, streams[0], [64])
    if ending is None:
        return None
    lines = [
        *(instruction(op=Op.LOAD, word=bits, dst=i, a=i) for i in range(3)),
        *(instruction(op=Op.ADD, word=bits, dst=0, a=0, b=i) for i in (1, 2)),
        instruction(op=Op.STORE, word=bits, a=3, b=0),
    ]
    alone = Launch(tiling.source(kernel)[0], "", (1, 1, 1), (1, 1, 1), (0, 0, 0), ending=ending)
    return ended(streams, program(4096, 3, 0, lines).tolist(), alone, 0).source.text


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matmul", "conv2d"])
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"{ring.word_bits}-{ring.limbs}")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_limbs_that_end_in_a_program(tmp_path: Path, kernel: str, ring: Ring, arch: str) -> None:
    device, targets = DeviceShape(1, arch), SM_90A if arch == "sm_90" else TARGETS[:1]
    for tile in tiles_of(ring, device):
        made = Tiling(ring, tile, stages_of(ring, tile, device), (1, 1, 1))
        text = with_program(kernel, made)
        assert text is None or not spilling(compiled(tmp_path, text, targets))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matmul", "conv2d"])
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"{ring.word_bits}-{ring.limbs}")
def test_limbs_with_fewer_stages(tmp_path: Path, kernel: str, ring: Ring) -> None:
    """Beside those with the most; what is for any GPU also as PTX."""
    device, any_gpu = DeviceShape(1, "sm_90"), DeviceShape(1)
    sources = [*fewer_stages(kernel, ring, device), *limb_kernels(kernel, ring, device)]
    reports = compiled(tmp_path, in_one_unit(sources), SM_90A)
    compiled(tmp_path, in_one_unit(fewer_stages(kernel, ring, any_gpu)), PTX)
    assert len(reports) == len(sources)
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("suite", ["rep3", "additive"])
@pytest.mark.parametrize("ring_bits", [32, 40, 64])
@pytest.mark.parametrize("op", PROTOCOLS)
def test_printed_kernels_do_not_spill(tmp_path: Path, op: str, ring_bits: int, suite: str) -> None:
    sources = printed(protocol_plan(SUITES[suite], op, ring_bits, ring_bits))
    reports = compiled(tmp_path, together(sources.values()))
    assert len(reports) == 2 * len(sources)
    assert not spilling(reports)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("suite", ["rep3", "additive"])
@pytest.mark.parametrize("ring", [32, 64])
def test_printed_kernels_of_a_whole_plan(tmp_path: Path, suite: str, ring: int) -> None:
    """A LeNet's: convolutions, comparisons, pools and dense layers."""
    dealer = {"parties": ["alice", "bob"], "dealer": "dave"} if suite == "additive" else {}
    plan, _ = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite=suite,
        ring=ring,
        calibrate=DIGITS / "calibration.npz",
        shapes={"image": (1, 1, 28, 28)},
        **dealer,
    )
    sources = printed(plan)
    assert len(sources) > 20
    assert not spilling(compiled(tmp_path, together(sources.values())))
