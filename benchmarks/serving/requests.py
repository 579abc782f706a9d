"""How many requests a service answers, beside inferences back to back in one session.

    python -m benchmarks.serving.requests [--quick] [--json] [--write]

Three processes of `veilgraph serve` on loopback, and clients in processes of their own that ask
back to back. In the same run the plan's parties are processes of one session, as `bench
--processes` has them: its rate is one over the seconds of an inference, offline and online. One
client alone is timed with inferences prepared ahead, beside the session's online seconds. Both
rates are of rows. Of a plan of several rows clients ask about one each, which they share an
inference for, or about all of them. All processes share this machine's cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

import veilgraph
from benchmarks.harness.reporting import ROOT, Findings, parser, report, spread
from benchmarks.harness.sessions import Ours
from benchmarks.harness.workloads import lenet
from benchmarks.serving.ward import Ward
from veilgraph.ir.errors import VeilgraphError
from veilgraph.measuring.spread import Spread
from veilgraph.reports.tables import Table
from veilgraph.serving.client import Client

AHEAD, START_SECONDS, PAUSE_SECONDS = 32, 120.0, 4.0
HEADINGS = (
    "model|#clients|#rows of each|#rows a second|#session, rows a second|#of session|"
    "#one client|#session online"
)


def _compiled(model: Any, samples: Mapping[str, Any], **options: Any) -> Ours:
    (name,) = samples
    plan, weights = veilgraph.compile(
        model,
        calibrate=samples,
        clients=("patient",),
        owners={name: "patient", "weights": "bob"},
        **options,
    )
    return Ours(plan, weights, {name: samples[name][0]})


def digits() -> Ours:
    """The example's network and samples."""
    folder = ROOT / "examples" / "digits"
    shaped = {"image": samples_of_digits()[:, None]}
    options: dict[str, Any] = {"shapes": {"image": (1, 1, 28, 28)}, "max_error": 0.001}
    receivers = {"logits": ("patient",)}
    return _compiled(folder / "digits.onnx", shaped, receivers=receivers, **options)


def samples_of_digits() -> Any:
    """[n, 1, 28, 28], of which each is a row."""
    images = np.load(ROOT / "examples" / "digits" / "calibration.npz")["image"]
    return images.reshape(-1, 1, 28, 28).astype(np.float32)


def small_lenet(batch: int = 1) -> Ours:
    """The workload of other benchmarks; weights are its graph's."""
    network = lenet(batch)
    samples = network.samples(2, seed=1)
    image = {name: array for name, array in samples.items() if network.owners[name] == 0}
    return _compiled(network.onnx(), image, receivers={network.output: ("patient",)})


@contextmanager
def served(ours: Ours, folder: Path, clients: int) -> Iterator[list[Path]]:
    """Three parties serve the plan as `model`; the paths are configs, of a client each."""
    with Ward(folder, {"model/1": ours}, clients, AHEAD) as ward:
        yield ward.clients


def _client(config: Path) -> Client:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return Client("model", config)
        except VeilgraphError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _ask(
    config: Path, inputs: Mapping[str, Any], count: int, barrier: Barrier
) -> tuple[float, float]:
    """When this client's first request began, and its last ended."""
    with _client(config) as client:
        client.run(inputs)
        barrier.wait(START_SECONDS)
        start = time.monotonic()
        for _ in range(count):
            client.run(inputs)
        return start, time.monotonic()


def requests_a_second(configs: Sequence[Path], inputs: Mapping[str, Any], each: int) -> float:
    """Of a process a client, each of which asks so often; all begin together."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(len(configs), spawn) as pool:
        barrier = manager.Barrier(len(configs))
        asked = [pool.submit(_ask, config, inputs, each, barrier) for config in configs]
        times = [done.result() for done in asked]
    return len(configs) * each / (max(end for _, end in times) - min(start for start, _ in times))


def latencies(config: Path, inputs: Mapping[str, Any], count: int) -> list[float]:
    """Seconds of one client's requests; all inferences they take are prepared ahead."""
    assert count < AHEAD
    seconds = []
    with _client(config) as client:
        client.run(inputs)
        time.sleep(PAUSE_SECONDS)
        for _ in range(count):
            start = time.perf_counter()
            client.run(inputs)
            seconds.append(time.perf_counter() - start)
    return seconds


def _rows(
    name: str, ours: Ours, clients: list[int], each: int, most: int = 1
) -> list[dict[str, Any]]:
    """Of one workload, whose clients ask about `most` rows at a time."""
    rows = len(next(iter(ours.inputs.values())))
    asked = {name: array[:most] for name, array in ours.inputs.items()}
    ours.run(each)
    with tempfile.TemporaryDirectory() as folder, served(ours, Path(folder), max(clients)) as found:
        alone = latencies(found[0], asked, min(each, AHEAD - 2))
        rates = [requests_a_second(found[:count], asked, each) for count in clients]
    ours.run(each)  # on both sides of the service, as load on the machine changes
    session = rows / Spread.of(ours.seconds).median
    return [
        {
            "model": name,
            "clients": count,
            "rows": most,
            "rows_a_second": most * rate,
            "session_a_second": session,
            "latency_seconds": alone,
            "online_seconds": ours.online_seconds,
        }
        for count, rate in zip(clients, rates, strict=True)
    ]


def _row(found: dict[str, Any]) -> list[str]:
    rate, session = found["rows_a_second"], found["session_a_second"]
    times = (spread(Spread.of(found[name])) for name in ("latency_seconds", "online_seconds"))
    shown = f"{rate:.0f}", f"{session:.0f}", f"{rate / session:.2f}"
    return [found["model"], str(found["clients"]), str(found["rows"]), *shown, *times]


def measure(options: argparse.Namespace) -> Findings:
    batched = partial(small_lenet, 16)
    cases: list[tuple[str, Callable[[], Ours], int]] = [
        ("digits", digits, 1),
        ("LeNet", small_lenet, 1),
        ("LeNet, 16 rows", batched, 1),
        ("LeNet, 16 rows", batched, 16),
    ]
    clients, each = [1, 4, 8, 16], 120
    if options.quick:
        cases, clients, each = cases[:1], [2], 3
    load = os.getloadavg()[0]
    rows = [row for name, made, most in cases for row in _rows(name, made(), clients, each, most)]
    title = "Requests that a service answers, beside inferences back to back in one session"
    note = f"Load of the machine before: {load:.1f}."
    figures = {"cases": rows, "load": load}
    return Findings([Table.of(HEADINGS, [*map(_row, rows)], title)], figures, [note])


def main() -> None:
    options = parser(__doc__).parse_args()
    report("serving.requests", options, lambda: measure(options))


if __name__ == "__main__":
    main()
