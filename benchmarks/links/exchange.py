"""Our links beside the same exchange in C++ over OpenSSL alone, on loopback: issue 4's table.

    python -m benchmarks.links.exchange [--quick] [--json] [--write]

Rounds: three processes, everyone sends an empty message to everyone and awaits theirs; a frame's
head makes that 16 bytes, which is what the program in peers/openssl_links.cpp sends. One way: from
one process to another, who then answers with a byte. Both sides speak TLS 1.3 with AES-128-GCM,
through the OpenSSL that this Python's `ssl` is linked with. In turns, so that noise hits all;
medians, with the least and the most. The ratios are of C++'s rate. Processor time is that of all
three parties together, which other work on the machine hardly changes.

"native" is what parties use: a phase of rounds is one call. "native, a call a round" comes from
Python each time; "Python" is what parties fall back on where OpenSSL can't be called.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from benchmarks.harness.reporting import Findings, parser, report, spread
from benchmarks.peers.environments import Unavailable
from veilgraph.kernels.native import library
from veilgraph.measuring.processes import free_ports, write_configs
from veilgraph.measuring.spread import Spread
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime._native import Interpreter, OpenSsl
from veilgraph.runtime.devices.interface import Piece
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.links.openssl import openssl
from veilgraph.runtime.links.tls import NativeTransport
from veilgraph.runtime.phases import NativePhase, StepRange
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.transcript import PhaseRecord

SOURCE = Path(__file__).parents[1] / "peers" / "openssl_links.cpp"
NAMES = ("alice", "bob", "carol")
REFERENCE = "C++ over OpenSSL"
KINDS: tuple[str, ...] = ("native", "native, a call a round", "Python")
PHASE_ROUNDS = 20  # about a LeNet's
PIECE_BYTES = 1 << 26  # one message of the transfer


@dataclass(frozen=True)
class Amount:
    """How much is done in a turn, and how many turns."""

    rounds: int
    transfer_bytes: int
    turns: int


class Side(Protocol):
    """Three parties, each a process; seconds of the slowest."""

    pids: list[int]

    def rounds(self, count: int) -> float: ...
    def transfer(self, size: int) -> float: ...


# C++ over OpenSSL


class Compiled:
    """The parties of peers/openssl_links.cpp."""

    def __init__(self, program: Path, folder: Path, ports: Sequence[int]) -> None:
        numbers = [str(port) for port in ports]
        files = [[str(folder / f"{name}.crt"), str(folder / f"{name}.key")] for name in NAMES]
        self.processes = [
            subprocess.Popen(
                [str(program), str(party), *files[party], *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for party in range(len(NAMES))
        ]
        self.pids = [process.pid for process in self.processes]
        self._answers()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def rounds(self, count: int) -> float:
        return self._ask(f"rounds {count}")

    def transfer(self, size: int) -> float:
        return self._ask(f"bulk {size}")

    def _ask(self, question: str) -> float:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(question + "\n")
            process.stdin.flush()
        return max(map(float, self._answers()))

    def _answers(self) -> list[str]:
        found = []
        for process in self.processes:
            assert process.stdout is not None
            found.append(process.stdout.readline().strip())
        if not all(found):
            raise Unavailable("the program over OpenSSL ended")
        return found


def compiled(folder: Path) -> Path:
    """The program, linked with the libraries that this process has loaded."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise Unavailable("no C++ compiler")
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    libraries = sorted(x for x in mapped if "/libssl" in x or "/libcrypto" in x)
    if len(libraries) != 2:
        raise Unavailable("this Python's ssl is linked with no libssl of its own")
    program = folder / "openssl_links"
    command = [compiler, "-O2", "-std=c++20", str(SOURCE), *libraries, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    return program


# Ours


class Ours:
    """Three processes with links of one kind."""

    def __init__(self, kind: str, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.pids = [], []
        for name in NAMES:
            mine, theirs = context.Pipe()
            arguments = (kind, folder / f"{name}.yaml", theirs)
            process = context.Process(target=_party, args=arguments, daemon=True)
            process.start()
            self.pipes.append(mine)
            self.pids.append(process.pid or 0)
        for pipe in self.pipes:
            assert pipe.recv() == "ready"

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)

    def rounds(self, count: int) -> float:
        return self._ask(("rounds", count))

    def transfer(self, size: int) -> float:
        return self._ask(("transfer", size))

    def _ask(self, question: tuple[str, int]) -> float:
        for pipe in self.pipes:
            pipe.send(question)
        return max(float(pipe.recv()) for pipe in self.pipes)


def _party(kind: str, file: Path, pipe: Any) -> None:
    with _links(kind, Config.load(file)) as links:
        rounds = _phase(links) if kind == KINDS[0] else lambda count: _rounds(links, count)
        pipe.send("ready")
        piece = bytearray(b"x") * PIECE_BYTES  # touched, so that no page is missing later
        acts: dict[str, Callable[[int], None]] = {
            "rounds": rounds,
            "transfer": lambda size: _transfer(links, size, piece),
        }
        while (question := pipe.recv()) is not None:
            start = time.perf_counter()
            acts[question[0]](question[1])
            pipe.send(time.perf_counter() - start)


def _links(kind: str, config: Config) -> Links:
    found = openssl()
    if kind in KINDS[:2] and isinstance(found, OpenSsl):
        return NativeLinks.connect(config, NativeTransport(found))
    return TlsLinks.connect(config)


def _phase(links: Links) -> Callable[[int], None]:
    """Runs rounds by phases of PHASE_ROUNDS each, on a machine without steps or memory."""
    assert isinstance(links, NativeLinks)
    interpreter = Interpreter(str(library()), b"", b"", b"", b"", 0, b"")
    nothing = [Piece(p, 0, 0, 0, 0) for p in range(len(NAMES)) if p != links.party]
    steps = StepRange(0, 0, "empty", nothing, nothing)
    phase = NativePhase(interpreter, links, [steps] * PHASE_ROUNDS)

    def run(count: int) -> None:
        for number in range(count // PHASE_ROUNDS):
            phase.run(number, PhaseRecord())

    return run


def _rounds(links: Links, count: int) -> None:
    peers = [party for party in range(len(NAMES)) if party != links.party]
    sends, receives = dict.fromkeys(peers, b""), {peer: bytearray() for peer in peers}
    for _ in range(count):
        links.exchange(sends, receives, "empty")


def _transfer(links: Links, size: int, piece: bytearray) -> None:
    if links.party == 2:
        return
    end = bytearray(1)
    for _ in range(size // PIECE_BYTES):
        if links.party == 0:
            links.exchange({1: piece}, {}, "one way")
        else:
            links.exchange({}, {0: piece}, "one way")
    sends, receives = ({}, {1: end}) if links.party == 0 else ({0: end}, {})
    links.exchange(sends, receives, "end")


# Both


@contextmanager
def sides(found: Findings) -> Iterator[dict[str, Side]]:
    """All sides that can be had here, by name; notes say why one is left out."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="veilgraph-links-")))
        started: dict[str, Side] = {}
        write_configs(folder, NAMES)
        try:
            program = compiled(folder)
            with free_ports(len(NAMES)) as found_ports:
                ports = list(found_ports)
            alone = Compiled(program, folder, ports)
            stack.callback(alone.close)
            started[REFERENCE] = alone
        except Unavailable as reason:
            found.notes.append(f"{REFERENCE} left out: {reason}")
        kinds = KINDS
        if not isinstance(callable_here := openssl(), OpenSsl):
            found.notes.append(f"native left out: {callable_here}")
            kinds = KINDS[-1:]
        for kind in kinds:
            inner = folder / kind
            inner.mkdir()
            write_configs(inner, NAMES)
            ours = Ours(kind, inner)
            stack.callback(ours.close)
            started[kind] = ours
        yield started


@dataclass
class Times:
    """Seconds of one side, a turn each."""

    rounds: list[float] = field(default_factory=list)
    transfers: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)  # of the rounds

    def take(self, side: Side, amount: Amount) -> None:
        before = _processor_seconds(side.pids)
        self.rounds.append(side.rounds(amount.rounds))
        self.processor.append(_processor_seconds(side.pids) - before)
        self.transfers.append(side.transfer(amount.transfer_bytes))


def _processor_seconds(pids: Sequence[int]) -> float:
    """That all threads of these processes have had so far."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def measure(amount: Amount) -> Findings:
    found = Findings()
    with sides(found) as started:
        times = {name: Times() for name in started}
        for _ in range(amount.turns + 1):  # one that isn't counted
            for name, side in started.items():
                times[name].take(side, amount)
    rows = []
    for name, each in times.items():
        a_round = [seconds / amount.rounds for seconds in each.rounds[1:]]
        rates = [amount.transfer_bytes / seconds for seconds in each.transfers[1:]]
        processor = [seconds / amount.rounds for seconds in each.processor[1:]]
        found.figures[name] = {
            "round_seconds": a_round,
            "round_processor_seconds": processor,
            "bytes_per_second": rates,
        }
        rate = f"{units.size(median(rates))}/s"
        rows.append([name, spread(Spread.of(a_round)), units.seconds(median(processor)), rate])
    reference = found.figures.get(REFERENCE)
    for row, figures in zip(rows, found.figures.values(), strict=True):
        row += _ratios(figures, reference) if reference else ["", ""]
    headings = (
        "links|#a round of three|#its processor time|#one way|#rounds, at least 0.7"
        "|#one way, at least 0.8"
    )
    found.tables.append(Table.of(headings, rows, "Links on loopback, TLS 1.3, AES-128-GCM"))
    found.figures = {"links": found.figures}
    return found


def _ratios(figures: dict[str, list[float]], reference: dict[str, list[float]]) -> list[str]:
    rounds = median(reference["round_seconds"]) / median(figures["round_seconds"])
    one_way = median(figures["bytes_per_second"]) / median(reference["bytes_per_second"])
    return [f"{rounds:.2f}", f"{one_way:.2f}"]


def main() -> None:
    options: argparse.Namespace = parser(__doc__).parse_args()
    quick, full = Amount(200, 1 << 27, 1), Amount(5000, 1 << 29, 7)
    report("links.exchange", options, lambda: measure(quick if options.quick else full))


if __name__ == "__main__":
    main()
