"""All parties of a plan on this machine, a process each, over mutual TLS on loopback.

What `simulate --processes`, `bench --processes` and `demo` do: certificates made for this run
alone, in a folder that only this user can read and that is removed afterwards.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from veilgraph.ir import errors
from veilgraph.ir.errors import PeerError, VeilgraphError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.memory import Memory
from veilgraph.plans import Plan
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.names import require_device
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.session import certificates
from veilgraph.runtime.simulate import Answer, Devices, Run, devices_of, entry_of, split_inputs
from veilgraph.runtime.store.share_files import deal, shares_file
from veilgraph.runtime.store.weights import save_weights
from veilgraph.runtime.transcript import PhaseRecord, Transcript
from veilgraph.session import Session

Outputs = dict[str, npt.NDArray[np.float32]]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """What one party's process does; its inputs are arrays in the folder."""

    party: str
    entries: list[str]  # of each run, in order
    device: str
    cubins: str | None
    threads: int
    isa: str | None
    insecure_plaintext: bool
    trace: bool
    shape: Shape | None


@dataclass(frozen=True)
class Report:
    """What one party's process tells its parent."""

    setup_seconds: float
    runs: list[tuple[Outputs, Transcript]]
    peak_bytes: int


def simulate_processes(
    plan: Plan,
    weights: Mapping[str, npt.NDArray[np.float32]],
    batches: Sequence[Mapping[str, npt.ArrayLike]],
    *,
    device: Devices = "cpu",
    threads: int = 1,
    isa: str | None = None,
    cubins: Path | None = None,
    insecure_plaintext: bool = False,
    trace: bool = False,
    shape: Shape | None = None,
    entries: Sequence[str] | None = None,
) -> tuple[Answer, dict[str, Report]]:
    """One session with a process a party; every one of `batches` is an inference.

    With `trace` the transcripts of the last one say when each step ran; with `shape` links imitate
    those of a network. `device` is one for all parties, or each one's by name.
    `entries` names that of each batch; None stands for the plan's first.

    Returns:
        The answer as `simulate` gives it, and each party's report.

    Raises:
        VeilgraphError: the first cause at any party, not the parties that it stopped.
    """
    named = entries or plan.manifest.entries[:1] * len(batches)
    numbers = [entry_of(plan, name) for name in named]
    own = [split_inputs(plan, x, number) for x, number in zip(batches, numbers, strict=True)]
    devices = devices_of(plan, device)
    for name, each in devices.items():
        require_device(each)
        ready(each, plan, name, isa=isa, cubins=cubins)  # compiled before parties await each other
    kernels = None if cubins is None else str(cubins.absolute())
    with tempfile.TemporaryDirectory(prefix="veilgraph-") as name:
        folder = Path(name)
        plan.save(folder / "model.plan")
        save_weights(weights, folder / "model.weights", plan.digest)
        for party, dealt in deal(plan, weights).items():
            dealt.save(shares_file(folder / "model.plan", party))
        write_configs(folder, plan.manifest.parties)
        jobs = [
            Job(
                name,
                list(named),
                devices[name],
                kernels,
                threads,
                isa,
                insecure_plaintext,
                trace,
                shape,
            )
            for name in plan.manifest.parties
        ]
        for number, inputs in enumerate(own):
            for party, arrays in inputs.items():
                _save(_arrays(folder, party, "in", number), _numbers(arrays))
        reports = dict(zip(plan.manifest.parties, _in_processes(folder, jobs), strict=True))
    runs = []
    for number in range(len(batches)):
        outputs: Outputs = {}
        for report in reports.values():
            outputs.update(report.runs[number][0])
        transcripts = {name: report.runs[number][1] for name, report in reports.items()}
        runs.append(Run(outputs, transcripts, numbers[number]))
    setup = max(report.setup_seconds for report in reports.values())
    return Answer(plan, runs[-1].outputs, setup, tuple(runs)), reports


def write_configs(
    folder: Path, parties: Sequence[str], timeout_seconds: float | None = None
) -> None:
    """Keys, certificates and a parties.yaml for each party, on free ports of loopback."""
    listed = []
    with free_ports(len(parties)) as ports:
        for party, port in zip(parties, ports, strict=True):
            files = certificates.init(folder, party, [LOOPBACK])
            address = {"name": party, "host": LOOPBACK, "port": port}
            listed.append({**address, "certificate": files.certificate.name})
    for party in parties:
        me = {"name": party, "key": f"{party}.key", "state_dir": f"{party}.state"}
        waiting = {} if timeout_seconds is None else {"timeout_seconds": timeout_seconds}
        content = yaml.safe_dump({"parties": listed, "me": me, **waiting}, sort_keys=False)
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


def _arrays(folder: Path, party: str, what: str, number: int) -> Path:
    return folder / f"{party}.{what}.{number}.npz"


def _save(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    np.savez(path, allow_pickle=False, **dict(arrays))


def _load(path: Path) -> dict[str, npt.NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _numbers(arrays: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    """As arrays; what is no array of numbers goes as NaN, for its owner to refuse."""
    found = {name: np.asarray(value) for name, value in arrays.items()}
    return {n: x if x.dtype.kind in "fiub" else np.array(np.nan) for n, x in found.items()}


def _in_processes(folder: Path, jobs: Sequence[Job]) -> list[Report]:
    command = [sys.executable, "-m", "veilgraph.measuring.processes", str(folder)]
    processes = [
        subprocess.Popen([*command, json.dumps(asdict(job))], stdout=subprocess.PIPE)
        for job in jobs
    ]
    try:
        with ThreadPoolExecutor(len(jobs)) as pool:
            printed = list(pool.map(lambda process: process.communicate()[0], processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    results = [_read(folder, job, text) for job, text in zip(jobs, printed, strict=True)]
    failures = [r for r in results if isinstance(r, VeilgraphError)]
    causes = [error for error in failures if not isinstance(error, PeerError)]
    if failures:
        raise (causes or failures)[0]
    return [r for r in results if isinstance(r, Report)]


def _read(folder: Path, job: Job, printed: bytes) -> Report | VeilgraphError:
    if not printed:
        return PeerError(f"The process of {job.party} ended without an answer.")
    fields = json.loads(printed)
    if "error" in fields:
        kind: type[VeilgraphError] = getattr(errors, fields["error"])
        return kind(fields["message"], fields["hint"])
    runs = []
    for number, phases in enumerate(fields["runs"]):
        outputs = _load(_arrays(folder, job.party, "out", number))
        runs.append((outputs, _transcript(phases)))
    runs[-1][1].spans = [(step, start, end) for step, start, end in fields["spans"]]
    return Report(fields["setup_seconds"], runs, fields["peak_bytes"])


def _transcript(phases: Mapping[str, dict[str, Any]]) -> Transcript:
    transcript = Transcript()
    for name, fields in phases.items():
        for by_peer in ("sent_bytes", "received_bytes"):
            fields[by_peer] = {int(peer): count for peer, count in fields[by_peer].items()}
        fields["kernels"] = {kernel: (n, ns) for kernel, (n, ns) in fields["kernels"].items()}
        transcript.phases[Phase[name]] = PhaseRecord(**fields)
    return transcript


# One party's process


def _run(folder: Path, job: Job) -> dict[str, Any]:
    plan = Plan.load(folder / "model.plan")
    inputs = [_load(_arrays(folder, job.party, "in", number)) for number in range(len(job.entries))]
    with Session(
        plan,
        job.party,
        folder / f"{job.party}.yaml",
        weights=_weights_file(plan, job.party, folder),
        inferences=len(job.entries),
        device=job.device,
        cubins=job.cubins,
        threads=job.threads,
        isa=job.isa,
        insecure_plaintext=job.insecure_plaintext,
        shape=job.shape,
        trust_author=True,  # all parties are here, whoever compiled the plan
    ) as session:
        # Files are for before and after: the others would wait for them, and count it.
        runs = list(zip(inputs, job.entries, strict=True))
        outputs = [session.run(each, entry) for each, entry in runs[:-1]]
        if job.trace:
            session.trace()
        outputs.append(session.run(*runs[-1]))
        for number, arrays in enumerate(outputs):
            _save(_arrays(folder, job.party, "out", number), arrays)
        return {
            "setup_seconds": session.setup_seconds,
            "runs": [
                {phase.name: asdict(record) for phase, record in t.phases.items()}
                for t in session.transcripts
            ],
            "spans": session.transcripts[-1].spans,
            "peak_bytes": Memory.now().peak_bytes,
        }


def _weights_file(plan: Plan, party: str, folder: Path) -> Path | None:
    """What a party loads in setup."""
    program = plan.party(party)
    if program.shares:
        return shares_file(folder / "model.plan", party)
    return folder / "model.weights" if program.weights else None


def _job(fields: dict[str, Any]) -> Job:
    shape = fields.pop("shape")
    return Job(**fields, shape=shape and Shape(**shape))


def main(folder: str, job: str) -> None:
    """Does the job, and prints its report, or the error that ended it, as one JSON object."""
    try:
        report = _run(Path(folder), _job(json.loads(job)))
    except VeilgraphError as error:
        report = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
