"""All parties of a plan on this machine, a process each, over mutual TLS on loopback.

What `simulate --processes`, `bench --processes` and `demo` do: certificates made for this run
alone, in a folder that only this user can read and that is removed afterwards.
"""

from __future__ import annotations

import multiprocessing
import resource
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from veilgraph.ir.errors import PeerError, VeilgraphError
from veilgraph.plans import Plan
from veilgraph.runtime import certificates
from veilgraph.runtime.simulate import Answer, Run, split_inputs
from veilgraph.runtime.transcript import Transcript
from veilgraph.runtime.weights import load_weights, save_weights
from veilgraph.session import Session

Outputs = dict[str, npt.NDArray[np.float32]]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """What one party's process does."""

    folder: Path
    party: str
    batches: list[dict[str, npt.ArrayLike]]
    threads: int
    isa: str | None
    insecure_plaintext: bool


@dataclass(frozen=True)
class Report:
    """What one party's process tells its parent."""

    setup_seconds: float
    runs: list[tuple[Outputs, Transcript]]
    profile: dict[str, tuple[int, int]]
    peak_bytes: int


def simulate_processes(
    plan: Plan,
    weights: Mapping[str, npt.NDArray[np.float32]],
    batches: Sequence[Mapping[str, npt.ArrayLike]],
    *,
    threads: int = 1,
    isa: str | None = None,
    insecure_plaintext: bool = False,
) -> tuple[Answer, dict[str, Report]]:
    """One session with a process a party; every one of `batches` is an inference.

    Returns:
        The answer as `simulate` gives it, and each party's report.

    Raises:
        VeilgraphError: the first cause at any party, not the parties that it stopped.
    """
    own = [split_inputs(plan, inputs) for inputs in batches]
    with tempfile.TemporaryDirectory(prefix="veilgraph-") as name:
        folder = Path(name)
        plan.save(folder / "model.plan")
        save_weights(weights, folder / "model.weights", plan.digest)
        write_configs(folder, plan.manifest.parties)
        jobs = [
            Job(folder, p, [inputs[p] for inputs in own], threads, isa, insecure_plaintext)
            for p in plan.manifest.parties
        ]
        reports = dict(zip(plan.manifest.parties, _in_processes(jobs), strict=True))
    runs = []
    for number in range(len(batches)):
        outputs: Outputs = {}
        for report in reports.values():
            outputs.update(report.runs[number][0])
        transcripts = {name: report.runs[number][1] for name, report in reports.items()}
        runs.append(Run(outputs, transcripts))
    setup = max(report.setup_seconds for report in reports.values())
    return Answer(plan, runs[-1].outputs, setup, tuple(runs)), reports


def write_configs(folder: Path, parties: Sequence[str]) -> None:
    """Keys, certificates and a parties.yaml for each party, on free ports of loopback."""
    listed = []
    with free_ports(len(parties)) as ports:
        for party, port in zip(parties, ports, strict=True):
            files = certificates.init(folder, party, [LOOPBACK])
            address = {"name": party, "host": LOOPBACK, "port": port}
            listed.append({**address, "certificate": files.certificate.name})
    for party in parties:
        me = {"name": party, "key": f"{party}.key", "state_dir": f"{party}.state"}
        content = yaml.safe_dump({"parties": listed, "me": me}, sort_keys=False)
        (folder / f"{party}.yaml").write_text(content)


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Ports of loopback that nobody listens at, until they are let go."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    try:
        yield [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def _in_processes(jobs: Sequence[Job]) -> list[Report]:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in jobs]
    processes = [
        context.Process(target=_work, args=(job, sender), daemon=True)
        for job, (_, sender) in zip(jobs, pipes, strict=True)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    try:
        return _collect([job.party for job in jobs], [receiver for receiver, _ in pipes])
    finally:
        _end(processes)


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.join(timeout=5)
        if process.is_alive():
            process.terminate()


def _collect(parties: Sequence[str], receivers: Sequence[Connection]) -> list[Report]:
    results: dict[int, Report | VeilgraphError] = {}
    while len(results) < len(receivers):
        waiting = [r for i, r in enumerate(receivers) if i not in results]
        for ready in wait(waiting):
            i = receivers.index(ready)  # type: ignore[arg-type]
            try:
                results[i] = receivers[i].recv()
            except EOFError:
                results[i] = PeerError(f"The process of {parties[i]} ended without an answer.")
    errors = [r for r in results.values() if isinstance(r, VeilgraphError)]
    causes = [error for error in errors if not isinstance(error, PeerError)]
    if errors:
        raise (causes or errors)[0]
    return [r for _, r in sorted(results.items()) if isinstance(r, Report)]


def _work(job: Job, sender: Connection) -> None:
    """The body of one party's process."""
    try:
        sender.send(_run(job))
    except VeilgraphError as error:
        sender.send(error)


def _run(job: Job) -> Report:
    plan = Plan.load(job.folder / "model.plan")
    owns = bool(plan.party(job.party).weights)
    weights = load_weights(job.folder / "model.weights", plan.digest) if owns else None
    with Session(
        plan,
        job.party,
        job.folder / f"{job.party}.yaml",
        weights=weights,
        threads=job.threads,
        isa=job.isa,
        insecure_plaintext=job.insecure_plaintext,
    ) as session:
        outputs = [session.run(inputs) for inputs in job.batches]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        runs = list(zip(outputs, session.transcripts, strict=True))
        return Report(session.setup_seconds, runs, session.profile, peak)
