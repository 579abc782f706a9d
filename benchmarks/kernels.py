"""Kernels on one core, beside float64 BLAS, memory bandwidth and OpenSSL's AES in the same run.

    python -m benchmarks.kernels [--quick] [--json] [--write]

Matmul: a product modulo 2^64, 2^40 and 2^32 of square matrices, in turns with NumPy's float64
product on one BLAS thread; where there is AMX, without it as well. Convolutions: the layers of
ResNet-50 and MobileNetV2 at 224x224, their multiply-adds over their seconds, so that each weighs by
its share; depthwise layers by the bytes of input, weights and output, beside a copy's bandwidth
(bytes read and written). Fused: bytes of streams, and bytes of AES-128-CTR draws beside OpenSSL's
AES-128-CTR. With --write also roofline.png, if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import os

# BLAS reads this when NumPy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.harness.kernel_calls import Call, Words, fused
from benchmarks.harness.reporting import RESULTS, Findings, parser, report
from veilgraph.kernels.conv2d import declaration as conv2d
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.matmul.declaration import Params as Product
from veilgraph.kernels.native import supported
from veilgraph.reports.tables import Table

LEAST = {64: 0.4, 40: 0.95, 32: 0.9}  # of float64 BLAS; issue 4, Ice Lake's figures
GIGA = 1e9


@dataclass(frozen=True)
class Layer:
    """A convolution: square images and filters, `count` times in the network."""

    channels: int
    filters: int
    size: int  # of the input
    kernel: int
    stride: int = 1
    groups: int = 1
    count: int = 1

    @property
    def out_size(self) -> int:
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def multiply_adds(self) -> int:
        return conv2d.multiply_adds([buffer.shape for buffer in self.buffers(64)])

    def buffers(self, word: int) -> tuple[Words, Words, Words]:
        weights = (self.filters, self.channels // self.groups, self.kernel, self.kernel)
        return (
            Words((1, self.filters, self.out_size, self.out_size), word),
            Words((1, self.channels, self.size, self.size), word),
            Words(weights, word),
        )

    def seconds(self, bits: int, runs: int) -> float:
        word, pad = 32 if bits <= 32 else 64, self.kernel // 2
        params = conv2d.Params(bits, self.stride, self.stride, pad, pad, groups=self.groups)
        return Call("conv2d", self.buffers(word), params.values()).median_seconds(runs)

    def moved_bytes(self, bits: int) -> int:
        """Of input, weights and output."""
        return sum(buffer.size_bytes for buffer in self.buffers(32 if bits <= 32 else 64))

    def point(self, bits: int, runs: int) -> tuple[float, float]:
        """Multiply-adds a byte, and multiply-adds a second."""
        rate = self.multiply_adds / self.seconds(bits, runs)
        return self.multiply_adds / self.moved_bytes(bits), rate


def resnet50() -> list[Layer]:
    found, channels = [Layer(3, 64, 224, 7, 2)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width, size, stride = 64 << stage, 56 >> stage, 2 if stage else 1
        before = size * stride
        found += [
            Layer(channels, width, before, 1),
            Layer(width, width, before, 3, stride),
            Layer(width, 4 * width, size, 1, count=blocks),
            Layer(channels, 4 * width, before, 1, stride),
            Layer(4 * width, width, size, 1, count=blocks - 1),
            Layer(width, width, size, 3, count=blocks - 1),
        ]
        channels = 4 * width
    return found


def mobilenet_v2() -> list[Layer]:
    """Expansion, channels, repeats and stride of each stage: Sandler et al., CVPR 2018, table 2."""
    found, channels, size = [Layer(3, 32, 224, 3, 2)], 32, 112
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
    for expansion, width, repeats, first in (
        *stages,
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for stride in (first, *[1] * (repeats - 1)):
            inner = channels * expansion
            found += [Layer(channels, inner, size, 1)] if expansion > 1 else []
            found.append(Layer(inner, inner, size, 3, stride, groups=inner))
            size //= stride
            found.append(Layer(inner, width, size, 1))
            channels = width
    return [*found, Layer(320, 1280, 7, 1)]


def timed(work: Callable[[], object], runs: int) -> float:
    """Median seconds of `runs` calls after one that isn't counted."""
    work()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return median(found)


@dataclass(frozen=True)
class Rate:
    """A kernel's speed, what it is beside, and issue 4's least ratio; 0: report only."""

    what: str
    unit: str
    rate: float
    beside: str
    reference: float
    least: float = 0.0

    @property
    def row(self) -> list[str]:
        return [
            self.what,
            f"{self.rate / GIGA:.2f} {self.unit}",
            self.beside,
            f"{self.reference / GIGA:.2f} {self.unit}",
            f"{self.rate / self.reference:.2f}",
            f"{self.least:g}" if self.least else "report",
        ]


def products(size: int, runs: int) -> list[Rate]:
    """Matmul in turns with float64 BLAS; rates in multiply-adds."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, size, size))
    best = supported()[-1]
    sets = (best, "avx512") if best == "amx" else (best,)
    calls = {
        (isa, bits): Call(
            "matmul", [Words((1, size, size), word)] * 3, Product(bits).values(), isa=isa
        )
        for isa in sets
        for bits, word in ((64, 64), (40, 64), (32, 32))
    }
    blas: list[float] = []
    ours: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for _ in range(runs):
        blas.append(timed(lambda: a @ b, 1))
        for key, call in calls.items():
            ours[key].append(call.median_seconds(1))
    work = size**3
    return [
        Rate(
            f"matmul {size} cubed, modulo 2^{bits}, {isa}",
            "G/s",
            work / median(ours[isa, bits]),
            "float64 BLAS",
            work / median(blas),
            LEAST[bits],
        )
        for isa, bits in calls
    ]


def convolutions(name: str, layers: list[Layer], matmul: dict[int, float], runs: int) -> list[Rate]:
    """All of a network's convolutions but the depthwise ones, in multiply-adds."""
    dense = [layer for layer in layers if layer.groups == 1]
    work = sum(layer.count * layer.multiply_adds for layer in dense)
    return [
        Rate(
            f"convolutions of {name}, modulo 2^{bits}",
            "G/s",
            work / sum(layer.count * layer.seconds(bits, runs) for layer in dense),
            "our matmul",
            matmul[bits],
            0.6,
        )
        for bits in matmul
    ]


def depthwise(name: str, layers: list[Layer], copy: float, runs: int) -> list[Rate]:
    """A network's depthwise convolutions, in bytes of input, weights and output."""
    found = [layer for layer in layers if layer.groups > 1]
    rates = []
    for bits in (64, 32):
        moved = sum(layer.moved_bytes(bits) for layer in found)
        rate = moved / sum(layer.seconds(bits, runs) for layer in found)
        what = f"depthwise of {name}, modulo 2^{bits}"
        rates.append(Rate(what, "GB/s", rate, "copy", copy, 0.5))
    return rates


def copy_bandwidth(size_bytes: int, runs: int) -> float:
    """Bytes a second read and written by a copy larger than the caches."""
    source = np.ones(size_bytes, np.uint8)
    target = np.empty_like(source)
    return 2 * size_bytes / timed(lambda: np.copyto(target, source), runs)


def programs(elements: int, copy: float, runs: int) -> list[Rate]:
    """The fused program on streams of 64-bit words: a sum, a product, and draws."""
    registers = {"word": 64, "dst": 2, "a": 0, "b": 1}
    loads = [{"op": Op.LOAD, "word": 64, "dst": i, "a": i} for i in range(2)]
    store = {"op": Op.STORE, "word": 64, "a": 2, "b": 2}
    rates = []
    for op in (Op.ADD, Op.MUL):
        program = fused(elements, 3, 0, [*loads, {"op": op, **registers}, store])
        call = Call("fused", [Words((elements,), 64)] * 3, program)
        rate = 3 * 8 * elements / call.median_seconds(runs)
        rates.append(Rate(f"fused {op.name.lower()} of two streams", "GB/s", rate, "copy", copy))
    draw = {"op": Op.DRAW, "word": 64, "dst": 0, "a": 0, "count": 64}
    total = {"op": Op.STORE, "word": 64, "a": 0, "b": 0}
    call = Call("fused", [Words((elements,), 64)], fused(elements, 1, 0, [draw, total]))
    rate = 8 * elements / call.median_seconds(runs)
    aes = openssl_aes(8 * elements, runs)
    return [*rates, Rate("fused draw, AES-128-CTR", "GB/s", rate, "OpenSSL AES-128-CTR", aes)]


def openssl_aes(size_bytes: int, runs: int) -> float:
    """Bytes a second of OpenSSL's AES-128 in counter mode, on one core."""
    zeros, into = bytes(size_bytes), bytearray(size_bytes + 15)
    encryptor = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
    return size_bytes / timed(lambda: encryptor.update_into(zeros, into), runs)


def rates(quick: bool) -> list[Rate]:
    runs = 3 if quick else 9
    found = products(128 if quick else 1024, runs)
    matmul = {bits: rate.rate for bits, rate in zip(LEAST, found, strict=False)}  # the best set's
    copy = copy_bandwidth((1 << 22) if quick else (1 << 28), runs)
    networks = {"ResNet-50": resnet50(), "MobileNetV2": mobilenet_v2()}
    for name, layers in networks.items():
        chosen = [min(layers, key=lambda layer: layer.multiply_adds)] if quick else layers
        if any(layer.groups == 1 for layer in chosen):
            found += convolutions(name, chosen, matmul, runs)
        if any(layer.groups > 1 for layer in chosen):
            found += depthwise(name, chosen, copy, runs)
    return found + programs(1 << (16 if quick else 23), copy, runs)


def measure(options: argparse.Namespace) -> Findings:
    found = Findings()
    measured = rates(options.quick)
    headings = "kernel|#ours|beside|#its rate|#ratio|#at least"
    found.tables.append(Table.of(headings, [rate.row for rate in measured], "One core"))
    found.figures["rates"] = [vars(rate) for rate in measured]
    if options.write and find_spec("matplotlib") is None:
        found.notes.append("No roofline: matplotlib is not installed.")
    elif options.write:
        _draw_roofline(measured)
        found.notes.append("![Roofline of the convolutions](roofline.png)")
    return found


def _draw_roofline(measured: list[Rate]) -> None:
    from benchmarks.harness.roofline import draw  # matplotlib is the user's to install

    points = {}
    for name, layers in (("ResNet-50", resnet50()), ("MobileNetV2", mobilenet_v2())):
        points[name] = [layer.point(64, runs=9) for layer in layers]
    bandwidth = next(rate.reference for rate in measured if rate.beside == "copy")
    draw(RESULTS.with_name("roofline.png"), points, bandwidth, measured[0].rate, "one core")


def main() -> None:
    options = parser(__doc__).parse_args()
    report("kernels", options, lambda: measure(options))


if __name__ == "__main__":
    main()
