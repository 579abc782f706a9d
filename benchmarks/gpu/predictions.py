"""Convolutions of ResNet-50 and VGG-16 on a GPU, layer by layer: what is predicted.

    python -m benchmarks.gpu.predictions [--quick] [--json] [--write]

Counted for an H100 or H200 SXM, with a model's weights, as kernels/conv2d/costs.py counts where it
chooses between limbs and residues: whole waves of tiles with their edges, steps as the disassembly
has them, what passes through memory around products by residues, and a start of each launch.
Nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu.calls import Filtered, vgg16_layers
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.kernels import Layer
from benchmarks.kernels import resnet50 as resnet50_layers
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.costs import limbs_clocks, residues_clocks
from veilgraph.kernels.conv2d.residues.residues import Shape
from veilgraph.kernels.cuda import DeviceShape
from veilgraph.reports.tables import Table

GPU = DeviceShape(132, "sm_90")
CLOCK = 1.755e9
BATCH = 8
RINGS = (64, 40, 32)
MATMUL = {64: 33.1e12, 40: 47.9e12, 32: 59.5e12}  # multiply-adds a second of 8192 cubed, H100
LEAST_SHARE = 0.6


def predicted(call: Filtered, bits: int) -> tuple[float, str]:
    """Seconds, and the way that is chosen."""
    c = call.convolution(bits)
    shape = Shape.of(c)
    made = conv2d.launches(call.buffers(bits), call.params(bits), GPU)
    if made[-1].entry.startswith("veil_combine_images"):
        return residues_clocks(shape, GPU.arch) / CLOCK, "residues"
    assert not made[-1].entry.startswith("veil_combine")
    seconds = limbs_clocks(c, shape.ring, GPU.arch) / CLOCK
    return seconds, "limbs, by image" if c.is_matmul else "limbs"


def rows_of(name: str, layers: Sequence[Layer]) -> list[list[str]]:
    """Of each layer, and of all: rates in each ring, shares of large products', and ways."""
    found: dict[str, list[str]] = {}
    spent = dict.fromkeys(RINGS, 0.0)
    for layer in layers:
        where = f"{name} {layer.channels}x{layer.size} to {layer.filters}"
        row = [f"{where}, {layer.kernel}x{layer.kernel}/{layer.stride}"]
        for bits in RINGS:
            seconds, way = predicted(Filtered(layer, BATCH), bits)
            spent[bits] += layer.count * seconds
            row += [*_rates(BATCH * layer.multiply_adds / seconds, bits), way]
        found[row[0]] = row
    work = BATCH * sum(layer.multiply_adds * layer.count for layer in layers)
    total = [f"{name}, all"]
    for bits in RINGS:
        total += [*_rates(work / spent[bits], bits), f"{LEAST_SHARE} asked"]
    return [*found.values(), total]


def _rates(rate: float, bits: int) -> tuple[str, str]:
    return f"{rate / 1e12:.1f}", f"{rate / MATMUL[bits]:.2f}"


def measured(quick: bool) -> Findings:
    networks = {"ResNet-50": resnet50_layers(), "VGG-16": vgg16_layers()}
    if quick:
        networks = {"VGG-16": vgg16_layers()[-1:]}
    rows = [row for name, layers in networks.items() for row in rows_of(name, layers)]
    titles = "|".join(f"#2^{bits}|#share|way" for bits in RINGS)
    table = Table.of(f"predicted at batch {BATCH}, T multiply-adds/s|{titles}", rows)
    return Findings(figures={"rows": rows}, tables=[table])


def main() -> None:
    options = parser(__doc__).parse_args()
    report("gpu.predictions", options, lambda: measured(options.quick))


if __name__ == "__main__":
    main()
