"""A GPU: its kernels beside its own copy, one party's local work, and three parties on it.

    python -m benchmarks.gpu.overview [--device cuda:0] [--quick] [--json] [--write]

Kernels: bytes of streams a second of the fused programs that move most in a ResNet-50 plan, beside
the driver's copy on the GPU (bytes read and written), and what draws take of them; AES-128-CTR
draws; depthwise convolutions. Local work: a party's steps and copies of one inference, offline and
online, with links that end each round at once, so that nothing waits for a network. Three parties:
threads of one process on one GPU, over queues; memory is that of all three, by their plans and as
the GPU told it. Published figures stand beside, each with its authors' hardware. Each network is
measured in a process of its own: what goes wrong there is told, and the others' figures stay.
Issue 6 says how much each has to reach on an H100 or H200. Without a GPU it says so, and measures
nothing. --quick takes a dense layer in place of the networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, ParamSpec, TypeVar

from benchmarks.gpu.facts import add_option as add_device
from benchmarks.gpu.facts import facts
from benchmarks.gpu.rates import (
    Rate,
    copies_and_draws,
    depthwise_layers,
    depthwise_rates,
    fused_rates,
)
from benchmarks.harness.alone import local_work
from benchmarks.harness.reporting import Findings, apart, parser, report, spread
from benchmarks.harness.together import PARTS, together, whole_bytes
from benchmarks.harness.workloads import (
    Network,
    alexnet_cifar,
    alexnet_imagenet,
    dense,
    lenet,
    relu,
    resnet50,
    vgg16_cifar,
)
from benchmarks.kernels import Layer
from benchmarks.peers.published import beside
from veilgraph.ir.errors import VeilgraphError
from veilgraph.measuring.spread import Spread
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.devices.cuda.drivers.interface import DriverFault
from veilgraph.runtime.devices.names import CPU, DeviceName

LOCAL_SECONDS = {  # issue 6, of an H100 or H200
    "ReLU 32,000,000": 40e-3,
    "VGG16-CIFAR, batch 1": 15e-3,
    "ResNet-50, batch 1": 0.12,
}
MOST_BYTES = {"VGG16-CIFAR, batch 128": 7.2e9}  # Piranha's training pass, 3 parties
RATES = "kernel|#rate|#at least|#of it draws|#at most"
LOCAL = "one party, no network|#seconds|#at most|#in steps|#steps|#rounds|#a round|#kernels|#arena"
TOGETHER = "three parties, one device|#offline and online|#online|#rounds|#bytes|#in steps|"
TOGETHER += "#in links|#other|#arenas|#by plan|#taken|#at most"

Given = ParamSpec("Given")
Found = TypeVar("Found")


def attempted(
    found: Findings,
    what: str,
    work: Callable[Given, Found],
    *args: Given.args,
    **named: Given.kwargs,
) -> Found | None:
    """A call in a process of its own; None, and a note why, where it failed."""
    try:
        return apart(work, *args, **named)
    except VeilgraphError as error:
        reason = error.message
    except DriverFault as fault:
        reason = f"The driver failed: {fault}."
    except MemoryError:
        reason = "This host has no memory for it."
    except BrokenProcessPool:
        reason = "Its process was ended."
    found.notes.append(f"{what} left out: {reason}")
    return None


def kernel_rates(found: Findings, device: str, quick: bool, runs: int) -> list[Rate]:
    """Copies and draws; then, beside the first copy, what a ResNet-50 and a MobileNetV2 run."""
    words = 1 << (12 if quick else 28)
    rates = attempted(found, "Copies and draws", copies_and_draws, device, words, runs) or []
    bar = rates[0].bytes_per_second if rates else 0.0
    network = dense(6, 4) if quick else resnet50(1)
    layers, batch = ([Layer(8, 8, 8, 3, groups=8)], 1) if quick else (depthwise_layers(), 32)
    rates += attempted(found, "Fused programs", fused_rates, network, device, bar, runs) or []
    what = "Depthwise convolutions"
    return rates + (attempted(found, what, depthwise_rates, layers, batch, device, bar, runs) or [])


def alone_networks(quick: bool) -> list[Network]:
    if quick:
        return [dense(6, 4)]
    return [relu(32_000_000), relu(1), vgg16_cifar(1), resnet50(1)]


def shared_networks(quick: bool) -> list[Network]:
    if quick:
        return [dense(6, 4)]
    small = [lenet(1), lenet(128), alexnet_cifar(1), alexnet_cifar(64), alexnet_imagenet(1)]
    return [*small, relu(32_000_000), vgg16_cifar(1), vgg16_cifar(64), vgg16_cifar(128),
            resnet50(1), resnet50(8)]  # fmt: skip


def each(
    found: Findings,
    work: Callable[[Network, str, int], dict[str, Any]],
    networks: Sequence[Network],
    device: str,
    runs: int,
) -> dict[str, dict[str, Any]]:
    """What is found of each network, by its name; those that failed are left out."""
    figures: dict[str, dict[str, Any]] = {}
    for network in networks:
        answer = attempted(found, network.name, work, network, device, runs)
        if answer is not None:
            figures[network.name] = answer
    return figures


def local_row(name: str, found: Mapping[str, Any]) -> list[str]:
    asked = LOCAL_SECONDS.get(name)
    return [
        name,
        spread(Spread(**found["seconds"])),
        units.seconds(asked) if asked else "report",
        units.seconds(found["steps_seconds"]["median"]),
        str(found["steps"]),
        str(found["rounds"]),
        units.seconds(found["seconds"]["median"] / max(1, found["rounds"])),
        str(found["kernels"]),
        units.size(found["memory_bytes"]),
    ]


def together_row(name: str, found: Mapping[str, Any]) -> list[str]:
    asked = MOST_BYTES.get(name)
    return [
        name,
        spread(Spread(**found["seconds"])),
        spread(Spread(**found["online_seconds"])),
        str(found["rounds"]),
        units.size(found["sent_bytes"]),
        *(units.percent(found["shares"][part]) for part in PARTS),
        units.size(sum(found["party_bytes"].values())),
        units.size(whole_bytes(found)),
        units.size(found["taken_bytes"]),
        units.size(asked) if asked else "report",
    ]


def figures(device: str, quick: bool, runs: int) -> Findings:
    where = facts(device)
    found = Findings(notes=[f"On: {where}."])
    rates = kernel_rates(found, device, quick, runs)
    alone = each(found, local_work, alone_networks(quick), device, runs)
    shared = each(found, together, shared_networks(quick), device, runs)
    found.tables = [
        Table.of(RATES, [rate.row for rate in rates]),
        Table.of(LOCAL, [local_row(*row) for row in alone.items()]),
        Table.of(TOGETHER, [together_row(*row) for row in shared.items()]),
        beside({name: row["seconds"]["median"] for name, row in shared.items()}),
    ]
    found.figures = {
        "gpu": where,
        "rates": [vars(rate) for rate in rates],
        "alone": alone,
        "together": shared,
    }
    return found


def measured(options: argparse.Namespace) -> Findings:
    """The figures; a note in their place where the device can't be had."""
    try:
        assert DeviceName.parse(options.device).kind != CPU, "benchmarks.kernels is for the CPU"
        return figures(options.device, options.quick, 3 if options.quick else 9)
    except VeilgraphError as error:
        if options.write:
            raise SystemExit(error.message) from error
        return Findings(notes=[f"Nothing measured: {error.message}"])


def main() -> None:
    made = parser(__doc__)
    add_device(made)
    options = made.parse_args()
    report("gpu.overview", options, lambda: measured(options))


if __name__ == "__main__":
    main()
