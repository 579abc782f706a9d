"""Figures that others published on networks of ours: WORKLOADS says where they are from.

None is ours, and none was measured on our hardware: each has its own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilgraph.reports import units
from veilgraph.reports.tables import Table

CRYPTGPU = "CryptGPU", "3 parties, a V100 each, 1.25 GB/s, 0.2 ms"
PIRANHA = "Piranha P-Falcon", "3 parties, V100; online only, constant randomness"
MB = 1e6


@dataclass(frozen=True)
class Published:
    """Seconds of an inference, and bytes that were sent (0: not said).

    Attributes:
        network: as `Network.name` says it.
        differs: how their network is not ours, if it isn't.
    """

    network: str
    by: tuple[str, str]  # system, hardware
    seconds: float
    sent_bytes: float = 0.0
    differs: str = ""


_ELEVEN = "eleven convolutions"
PUBLISHED = (
    Published("ReLU 32,000,000", CRYPTGPU, 16.3),
    Published("LeNet, batch 1", CRYPTGPU, 0.38, 3.0 * MB),
    Published("LeNet, batch 1", PIRANHA, 0.031, 2.49 * MB),
    Published("AlexNet-CIFAR, batch 1", CRYPTGPU, 0.91, 2.43 * MB),
    Published("AlexNet-CIFAR, batch 1", PIRANHA, 0.131, 1.96 * MB),
    Published("AlexNet-CIFAR, batch 64", CRYPTGPU, 1.09, 160 * MB),
    Published("AlexNet-ImageNet, batch 1", CRYPTGPU, 1.52, 240 * MB),
    Published("VGG16-CIFAR, batch 1", CRYPTGPU, 2.14, 56.2 * MB, _ELEVEN),
    Published("VGG16-CIFAR, batch 1", PIRANHA, 0.469, 88.4 * MB, _ELEVEN),
    Published("VGG16-CIFAR, batch 64", CRYPTGPU, 11.76, 3600 * MB, _ELEVEN),
    Published("ResNet-50, batch 1", CRYPTGPU, 9.31, 3080 * MB),
    Published("ResNet-50, batch 8", CRYPTGPU, 42.99, 24700 * MB),
)


def beside(ours: Mapping[str, float]) -> Table:
    """Published figures of the networks that were measured; `ours` has seconds by network."""
    rows = [
        [
            row.network + (f" ({row.differs})" if row.differs else ""),
            *row.by,
            units.size(row.sent_bytes) if row.sent_bytes else "",
            units.seconds(row.seconds),
            units.seconds(ours[row.network]),
            f"{row.seconds / ours[row.network]:.1f}",
        ]
        for row in PUBLISHED
        if row.network in ours
    ]
    headings = "network|system|their hardware|#their bytes|#theirs|#ours|#times faster"
    return Table.of(headings, rows, "Published, each on its authors' hardware")
