"""Ring products on a GPU: every way beside what others do and what the GPU can.

    python -m benchmarks.gpu.matmul [--device cuda:0] [--quick] [--tune] [--json] [--write]

Products of large matrices modulo 2^64, 2^40 and 2^32, by limbs, by residues and on the integer
units; beside cuBLAS: ten float64 products of 16-bit blocks, batched (CryptGPU's way), six of
22-bit blocks where they are exact (CrypTen's), int8 (the ceiling), fp16 and fp32 (what cleartext
costs), and int8 in our residues' place of a kernel of our own. The float64 ways are charged their
products alone, neither splitting nor putting together. Then convolutions of ResNet-50 and VGG-16,
layer by layer, and all linear layers of one party of a ResNet-50 and of a BERT-base, in rep3 two
products each. Rates are multiply-adds of the ring a second, of random words. Issue 7 says what each
has to reach. Without a GPU it says so, and measures nothing.

--tune measures tiles, stages, parts and ways of many calls, the networks' own among them, alone and
as one party's pairs, and writes the fastest to this checkout's kernels/gemm/tuned.json, for this
GPU's architecture. What is installed has them after `make`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.gpu import cublas_residues
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.calls import (
    PAIRS,
    Filtered,
    Product,
    Way,
    bert_base,
    network_calls,
    vgg16_layers,
)
from benchmarks.gpu.cublas import FLOAT16, FLOAT32, FLOAT64, INT8, Cublas, find_cublas
from benchmarks.gpu.facts import add_option as add_device
from benchmarks.gpu.tuning import QUICK, grid_calls, tuned
from benchmarks.harness.reporting import ROOT, Findings, parser, report
from benchmarks.kernels import Layer
from benchmarks.kernels import resnet50 as resnet50_layers
from veilgraph.ir.errors import UsageError, VeilgraphError
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.gemm import limbs, tuning
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.residues import Shape, by_residues
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.devices.cuda.cubins import Cubins, cache_folder
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.drivers.pycuda import PyCudaDriver
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.names import CPU, HOST_EMULATOR, DeviceName

TERA = 1e12
RINGS = (64, 40, 32)
LEAST = {64: 28.0, 40: 45.0, 32: 60.0}  # T multiply-adds a second; issue 7, of an H100 or H200
LEAST_SHARE = 0.75  # of cuBLAS int8, divided by the products of the way
LEAST_OVER_FLOAT64 = 8.0
LEAST_CONVOLUTIONS = 0.6  # of the matmul rate of the ring
MOST_SECONDS = {"ResNet-50, batch 1": 15e-3, "BERT-base, sequence 128": 12e-3}
EXACT_FLOAT64_BITS = 53
FLOAT64_WAYS = {16: 10, 22: 6}  # bits of a block: products modulo 2^64

WAYS: dict[str, Way] = {
    "integers": matmul.by_integers,
    "limbs": matmul.by_limbs,
    "residues": by_residues,
}


# Large products


@dataclass(frozen=True)
class Rate:
    """T multiply-adds a second of a way; `products` of bytes each, 0 where it has none."""

    ring: int
    way: str
    rate: float
    products: int = 0
    asked: float = 0.0

    def row(self, ceiling: float) -> list[str]:
        share = f"{self.rate * self.products / ceiling:.2f}" if self.products and ceiling else ""
        asked = f"{self.asked:.0f}" if self.asked else "report"
        return [f"2^{self.ring}", self.way, f"{self.rate:.2f}", asked, share]


def products_of(way: str, bits: int, depth: int) -> int:
    """Products of bytes for one of the ring."""
    ring = limbs.Ring.of(64 if bits > 32 else 32, bits)
    if way == "limbs":
        return ring.products
    return Shape(ring, 1, 1, 1, (depth,)).basis.count if way == "residues" else 0


def ring_rates(bench: Bench, side: int) -> list[Rate]:
    """Every way of ours on cubes; the integer units on one of a quarter of the side."""
    found = []
    for bits, (name, way) in product(RINGS, WAYS.items()):
        shape = Product.cube(max(64, side // 4) if name == "integers" else side)
        seconds = bench.seconds(way, shape.buffers(bits), [bits])
        rate = shape.multiply_adds / seconds / TERA
        found.append(Rate(bits, name, rate, products_of(name, bits, side)))
    for bits in RINGS:
        best = max((r for r in found if r.ring == bits), key=lambda rate: rate.rate)
        found[found.index(best)] = replace(best, asked=LEAST[bits])
    return found


def float64_blocks(bits: int, depth: int) -> int:
    """Products of float64 blocks modulo 2^64; 0 where sums of them are not exact."""
    exact = 2 * bits + (depth - 1).bit_length() <= EXACT_FLOAT64_BITS
    return FLOAT64_WAYS[bits] if exact else 0


def cublas_rates(bench: Bench, cublas: Cublas, side: int) -> Iterator[tuple[str, float]]:
    """By name: its own products, and ours by residues with its int8 product as the engine."""
    shape = Product.cube(side)
    for kind in (INT8, FLOAT16, FLOAT32, FLOAT64):
        seconds = bench.cublas_seconds(cublas, kind, shape)
        yield f"cuBLAS {kind.name}", shape.multiply_adds / seconds / TERA
    for bits in RINGS:
        seconds = cublas_residues.seconds(bench, cublas, side, bits)
        yield f"2^{bits} by residues, cuBLAS int8 inside", shape.multiply_adds / seconds / TERA


def baselines(bench: Bench, side: int) -> tuple[list[list[str]], dict[str, float], str]:
    """Rows of cuBLAS, its rates by name, and a note where it is absent."""
    library = find_cublas()
    if library is None:
        return [], {}, "No baselines: there is no libcublas here."
    with bench.memory():
        cublas = Cublas(library)
    rates = dict(cublas_rates(bench, cublas, side))
    for bits in FLOAT64_WAYS:
        for depth in (side, 512):
            count = float64_blocks(bits, depth)
            if count:
                shape = Product(1, side // 2, side // 2, depth)
                seconds = bench.cublas_seconds(cublas, FLOAT64, shape, count)
                name = f"2^64 by fp64 blocks of {bits} bits, depth {depth}"
                rates[name] = shape.multiply_adds / seconds / TERA
    return [[name, f"{rate:.2f}"] for name, rate in rates.items()], rates, ""


# Layers


def layer_seconds(bench: Bench, layer: Layer, batch: int, pairs: int, bits: int) -> float:
    call = Filtered(layer, batch, pairs)
    return bench.seconds(conv2d.launches, call.buffers(bits), call.params(bits))


def convolution_rows(
    bench: Bench, name: str, layers: Sequence[Layer], batch: int, matmul_rates: dict[int, float]
) -> list[list[str]]:
    """Each layer of a network and all of them, in each ring: rate, and share of the matmul rate."""
    rows = []
    for bits in RINGS:
        work, spent = 0, 0.0
        for layer in layers:
            seconds = layer_seconds(bench, layer, batch, 1, bits)
            rate = batch * layer.multiply_adds / seconds / TERA
            work += batch * layer.multiply_adds * layer.count
            spent += seconds * layer.count
            where = f"{layer.channels}x{layer.size} to {layer.filters}, {layer.kernel}x"
            where += f"{layer.kernel}/{layer.stride}"
            rows.append([f"{name} {where}", f"2^{bits}", f"{rate:.2f}",
                         f"{rate / matmul_rates[bits]:.2f}", "report"])  # fmt: skip
        rate = work / spent / TERA
        share = f"{rate / matmul_rates[bits]:.2f}"
        rows.append([f"{name}, all", f"2^{bits}", f"{rate:.2f}", share, f"{LEAST_CONVOLUTIONS}"])
    return rows


def one_party(bench: Bench, quick: bool) -> dict[tuple[str, int], float]:
    """Seconds of all linear layers of networks, two products each."""
    found: dict[tuple[str, int], float] = {}
    resnet, bert = resnet50_layers(), bert_base(128)
    if quick:
        resnet, bert = [Layer(4, 4, 8, 3)], [(Product(2, 8, 8, 8, PAIRS), 1)]
    for bits in RINGS:
        last = Product(1, 1, 1000, 2048, PAIRS).buffers(bits)
        dense = bench.seconds(matmul.launches, last, [bits])
        layers = sum(layer_seconds(bench, each, 1, PAIRS, bits) * each.count for each in resnet)
        found["ResNet-50, batch 1", bits] = dense + layers
        found["BERT-base, sequence 128", bits] = sum(
            count * bench.seconds(matmul.launches, shape.buffers(bits), [bits])
            for shape, count in bert
        )
    return found


# All


def opened(device: str) -> Driver:
    """The GPU's driver, or the emulator's, to try the script.

    Raises:
        UsageError: there is no such device.
    """
    name = DeviceName.parse(device)
    if name.kind == HOST_EMULATOR:
        return EmulatorDriver(cache_folder().with_name("host-emulator"))
    if name.kind == CPU:
        raise UsageError("benchmarks.kernels is for the CPU.", "Name a GPU, like cuda:0.")
    return PyCudaDriver(load_pycuda(), name.index, Cubins(cache_folder(), None, find_nvcc()))


def figures(bench: Bench, quick: bool, gpu: str, has_cublas: bool) -> Findings:
    side, batch = (64, 1) if quick else (8192, 8)
    found = Findings(notes=[f"On: {gpu}."])
    rates = ring_rates(bench, side)
    rows, others, note = baselines(bench, side) if has_cublas else ([], {}, "No cuBLAS here.")
    ceiling = others.get("cuBLAS int8", 0.0)
    best = {bits: max(r.rate for r in rates if r.ring == bits) for bits in RINGS}
    networks = {"ResNet-50": resnet50_layers(), "VGG-16": vgg16_layers()}
    if quick:
        networks = {"quick": [Layer(4, 8, 8, 3)]}
    convolutions = [
        row
        for name, layers in networks.items()
        for row in convolution_rows(bench, name, layers, batch, best)
    ]
    parties = one_party(bench, quick)
    seconds = [
        [name, f"2^{bits}", units.seconds(spent), units.seconds(MOST_SECONDS[name])]
        for (name, bits), spent in parties.items()
    ]
    blocks = max((rate for name, rate in others.items() if "blocks" in name), default=0.0)
    if blocks:
        found.notes.append(
            f"2^64 is {best[64] / blocks:.1f} times the best float64 way; {LEAST_OVER_FLOAT64:.0f} "
            f"asked. Shares of int8 asked: {LEAST_SHARE}."
        )
    found.notes += [note] if note else []
    found.tables = [
        Table.of("ring|way|#T multiply-adds/s|#at least|#share of int8 / products",
                 [rate.row(ceiling) for rate in rates]),
        Table.of("baseline|#T multiply-adds/s", rows),
        Table.of("convolutions|ring|#T multiply-adds/s|#of matmul|#at least", convolutions),
        Table.of("all linear layers, one party|ring|#seconds|#at most", seconds),
    ]  # fmt: skip
    found.figures = {
        "gpu": gpu,
        "rates": [vars(rate) for rate in rates],
        "baselines": others,
        "one_party": {f"{name}, 2^{bits}": spent for (name, bits), spent in parties.items()},
    }
    return found


def measured(options: argparse.Namespace) -> Findings:
    """The figures; a note in their place where the device can't be had."""
    try:
        driver = opened(options.device)
        bench = Bench(driver, 1 if options.quick else 9)
        if options.tune:
            rows = tuned(bench, QUICK if options.quick else [*grid_calls(), *network_calls()])
            if not options.quick:
                tuning.write(driver.gpu.arch, rows, ROOT / "kernels/gemm/tuned.json")
            return Findings(
                figures={"rows": [vars(row) for row in rows]},
                notes=[f"{len(rows)} shapes measured on {driver.gpu.name}."],
            )
        has_cublas = isinstance(driver, PyCudaDriver)
        return figures(bench, options.quick, driver.gpu.name, has_cublas)
    except VeilgraphError as error:
        if options.write or (options.tune and not options.quick):
            raise SystemExit(error.message) from error
        return Findings(notes=[f"Nothing measured: {error.message}"])


def main() -> None:
    made = parser(__doc__)
    add_device(made)
    made.add_argument("--tune", action="store_true", help="write this checkout's tuned.json")
    options = made.parse_args()
    report("gpu.matmul", options, lambda: measured(options))


if __name__ == "__main__":
    main()
