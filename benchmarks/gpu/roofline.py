"""The roofline of a GPU: convolutions and products of known networks, in one ring.

    python -m benchmarks.gpu.roofline [--device cuda:0] [--quick] [--json] [--write]

Layers of a ResNet-50 and a VGG-16 at batch 8 and of a MobileNetV2 at batch 1, and the products of a
BERT-base at 128 tokens, modulo 2^64: multiply-adds a second over multiply-adds a byte of inputs,
weights and outputs, each counted once. The roof is the GPU's own copy and the best of our products
of 8192 cubed. With --write also gpu_roofline.png, if matplotlib is installed. Without a GPU it
says so, and measures nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.calls import Call, Filtered, Product, bert_base, vgg16_layers
from benchmarks.gpu.facts import add_option as add_device
from benchmarks.gpu.facts import facts
from benchmarks.gpu.matmul import TERA, opened, ring_rates
from benchmarks.gpu.rates import copies_and_draws
from benchmarks.harness.reporting import RESULTS, Findings, parser, report
from benchmarks.kernels import Layer, mobilenet_v2, resnet50
from veilgraph.ir.errors import VeilgraphError
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.reports.tables import Table

BITS = 64
GIGA = 1e9
FIGURE = "gpu_roofline.png"
Point = tuple[float, float]  # multiply-adds a byte, multiply-adds a second


def point(bench: Bench, call: Call) -> Point:
    buffers = call.buffers(BITS)
    launches = conv2d.launches if isinstance(call, Filtered) else matmul.launches
    seconds = bench.seconds(launches, buffers, call.params(BITS))
    return call.multiply_adds / sum(b.bytes for b in buffers), call.multiply_adds / seconds


def layer_points(bench: Bench, quick: bool) -> dict[str, list[Point]]:
    """A point a distinct layer, by network."""
    if quick:
        calls: dict[str, list[Call]] = {"quick": [Filtered(Layer(4, 8, 8, 3), 1)]}
        calls["BERT-base"] = [Product(2, 8, 8, 8)]
    else:
        networks = {"ResNet-50": (resnet50(), 8), "VGG-16": (vgg16_layers(), 8)}
        networks["MobileNetV2"] = mobilenet_v2(), 1
        calls = {
            name: [Filtered(layer, batch) for layer in layers]
            for name, (layers, batch) in networks.items()
        }
        calls["BERT-base"] = [shape for shape, _ in bert_base(128)]
    return {name: [point(bench, call) for call in dict.fromkeys(c)] for name, c in calls.items()}


def roof_shares(points: Sequence[Point], bandwidth: float, peak: float) -> list[float]:
    """What each layer reaches of what the roof allows it."""
    return [rate / min(intensity * bandwidth, peak) for intensity, rate in points]


def table(points: Mapping[str, Sequence[Point]], bandwidth: float, peak: float) -> Table:
    rows = []
    for name, found in points.items():
        for (intensity, rate), share in zip(
            found, roof_shares(found, bandwidth, peak), strict=True
        ):
            rows.append([name, f"{intensity:.1f}", f"{rate / TERA:.3f}", f"{share:.2f}"])
    title = f"Under {bandwidth / GIGA:.0f} GB/s and {peak / TERA:.2f} T multiply-adds a second"
    return Table.of("network|#multiply-adds a byte|#T multiply-adds/s|#of the roof", rows, title)


def figures(device: str, quick: bool) -> Findings:
    where = facts(device)
    runs, side, copied = (1, 64, 1 << 12) if quick else (9, 8192, 1 << 28)
    bench = Bench(opened(device), runs)
    bandwidth = copies_and_draws(device, copied, runs)[0].bytes_per_second
    peak = TERA * max(r.rate for r in ring_rates(bench, side) if r.ring == BITS)
    points = layer_points(bench, quick)
    return Findings(
        [table(points, bandwidth, peak)],
        {"gpu": where, "bandwidth": bandwidth, "peak": peak, "points": points},
        [f"On: {where}."],
    )


def measured(options: argparse.Namespace) -> Findings:
    """The figures, with --write drawn; a note in their place where the device can't be had."""
    try:
        found = figures(options.device, options.quick)
    except VeilgraphError as error:
        if options.write:
            raise SystemExit(error.message) from error
        return Findings(notes=[f"Nothing measured: {error.message}"])
    if options.write and find_spec("matplotlib") is None:
        found.notes.append("No figure: matplotlib is not installed.")
    elif options.write:
        from benchmarks.harness.roofline import draw  # matplotlib is the user's to install

        roof = found.figures["bandwidth"], found.figures["peak"]
        gpu = found.figures["gpu"].partition(",")[0]
        draw(RESULTS.with_name(FIGURE), found.figures["points"], *roof, gpu)
        found.notes.append(f"![Roofline of a GPU]({FIGURE})")
    return found


def main() -> None:
    made = parser(__doc__)
    add_device(made)
    options = made.parse_args()
    report("gpu.roofline", options, lambda: measured(options))


if __name__ == "__main__":
    main()
