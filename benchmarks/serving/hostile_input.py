"""Input that strangers may send, damaged at random: each case is refused by name, or makes sense.

    python -m benchmarks.serving.hostile_input [--quick] [--json] [--write] [--seed N]
                                            [--cases N] [--only WORDS ...]

What is read is what a party or a client reads of others: the text of a plan's program with all
that verifies it, a plan's file, its tables opened and run, a weights file, ONNX models, messages of
clients, what parties state to clients, what peers say in frames, in turns and in greetings,
handshakes at a port, files of offline clients and what is encrypted in them, and requests to a
gateway. A case is a sound input with a few of its bytes or lines changed, taken out, put in or
doubled; of an ONNX model, fields. Whatever is raised but the errors that are promised is a finding,
and so is a case of more than a few seconds, or memory beyond a bound. It ends the run with the seed
and the case. A crash of native code ends the process: run it with a build for AddressSanitizer and
UBSan, as `make sanitize` does, to see more of them.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from benchmarks.harness.reporting import Findings, parser, report
from benchmarks.serving import odd_models, odd_tables
from benchmarks.serving.open_port import OpenPort
from benchmarks.serving.share_files import SharedFile
from benchmarks.serving.ward import PARTIES
from veilgraph.compilation.models import import_model
from veilgraph.ir.errors import PeerError, SecurityAbort, VeilgraphError
from veilgraph.ir.party.legality import IllegalParty, check_party
from veilgraph.ir.party.text import parse_program
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.independent_rows import independent_rows
from veilgraph.passes.party.verify_masking import MaskingError, verify_view
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime._native import Stream
from veilgraph.runtime.client import wire
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.service.agenda import TURN_BYTES, Item, Stage, Statement
from veilgraph.runtime.session.handshake import PROTOCOL_VERSION, Terms, _Hello
from veilgraph.serving.gateway import _inputs, _object, _Refused
from veilgraph.serving.statements import stated_by

LEAST_CASES = 1000
HEADINGS = (
    "what is read|#cases|#refused|#made sense|#cases a second|#the longest took|#memory grew by"
)
MOST_CHANGES = 5
MOST_SECONDS, MOST_MEMORY_BYTES = 20.0, 1 << 30  # of a case; that a target's cases may add
PIECES = (
    b"%",
    b"-1",
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b"#",
    b"\0",
    b"\xff",
    b"\n",
    b"9" * 20,
    b"NaN",
)


def damaged(sound: bytes, draw: random.Random) -> bytes:
    """A few changes at random places; by lines too, where there are some."""
    lines = sound.split(b"\n")
    if len(lines) > 10 and draw.random() < 0.7:
        for _ in range(draw.randint(1, 2)):
            i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
            lines[i] = draw.choice((lines[j], _changed(lines[i], draw)))
        return b"\n".join(lines)
    for _ in range(draw.randint(1, MOST_CHANGES)):
        sound = _changed(sound, draw)
    return sound


def _changed(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content) + 1)
    cut = at + draw.choice((0, 1, 1, 2, 8))
    match draw.randrange(4):
        case 0:
            return content[:at] + draw.choice(PIECES) + content[at:]
        case 1:
            return content[:at] + content[cut:]
        case 2:
            return content[:at] + content[at:cut] + content[at:]
        case _:
            return (
                content[:at] + bytes(draw.randrange(256) for _ in range(cut - at)) + content[cut:]
            )


@dataclass(frozen=True)
class Target:
    """What reads an input, a sound one, and the errors that are promised for others."""

    name: str
    read: Callable[[bytes], object]
    sound: bytes
    errors: tuple[type[BaseException], ...]
    cases: int
    damage: Callable[[bytes, random.Random], bytes] = damaged


# What is read


def _small() -> tuple[Plan, Any]:
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 2, 4)
    return veilgraph.compile(
        model,
        calibrate={"x": samples},
        clients=("patient",),
        owners={"x": "patient", "weights": "bob"},
        receivers={"y": ("patient",)},
    )


def _verified(text: bytes) -> None:
    program = parse_program(text.decode("utf-8", "replace"))
    check_party(program)
    independent_rows(program)
    verify_view(batch_rounds(program), [0])


def _from_file(
    folder: Path, name: str, load: Callable[[Path], object]
) -> Callable[[bytes], object]:
    def read(content: bytes) -> object:
        (folder / name).write_bytes(content)
        return load(folder / name)

    return read


def _frames(content: bytes) -> object:
    """What a peer sends on a link in native code, in place of a frame of 64 bytes."""
    near, far = socket.socketpair()
    with near:
        near.sendall(content)
        near.shutdown(socket.SHUT_WR)
        received = bytearray(64)
        links = NativeLinks(0, ("alice", "bob"), {1: Stream.plain(far.detach())}, 5.0)
        with links:
            links.exchange({}, {1: received}, "a step")
        return received


def _description(plan: Plan) -> dict[str, Any]:
    """What a party states of a plan to a client."""
    role = plan.party("patient")
    stated = {
        "receivers": ["alice", "bob"],
        "inputs": [wire.described(each) for each in role.inputs],
        "outputs": [wire.described(each) for each in role.outputs],
    }
    return {
        "plan": plan.digest, "session": "ab" * 32, "suite": "rep3", "rows": 2,
        "computing": ["alice", "bob", "carol"], "labels": {"y": ["cat", "dog"]},
        "forms": {"y": "argmax"}, "roles": {"patient": stated},
    }  # fmt: skip


def _stated(content: bytes) -> object:
    return stated_by("alice", _object(content))


def _message(content: bytes) -> object:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(content[: 1 << 16])
        near.shutdown(socket.SHUT_WR)
        return wire.receive(far, 1 << 12, 1.0)


def _of_length(read: Callable[[bytes], object], length: int) -> Callable[[bytes], object]:
    """Of what comes in frames of one length."""
    return lambda content: read(content[:length].ljust(length, b"\0"))


def targets(folder: Path, plan: Plan, weights: Any, port: OpenPort, most: int) -> list[Target]:
    """All that is read, each with as many cases as its speed allows in about a minute."""
    plan.save(folder / "sound.plan")
    veilgraph.save_weights(weights, folder / "sound.weights", plan)
    near, far = socket.socketpair()
    with near, far:
        wire.send(near, {"ask": "infer", "model": "small", "rows": 1, "nonce": "ab" * 16}, b"12")
        message = far.recv(1 << 16)
    items = tuple(Item(bytes([n]) * 16, Stage.KNOWN, n, 1) for n in range(5))
    hello = _Hello(PROTOCOL_VERSION, 1, Terms(bytes(32), 32), bytes(32), "alice, bob, carol").pack()
    asked = {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [0.5] * 8}
    request = json.dumps({"inputs": [asked], "id": "1"}).encode()
    program = (ValueError, IllegalParty, MaskingError)
    shared = SharedFile(folder, plan)
    frame = b"".join((struct.pack("<QQ", 0, 64), bytes(64)))
    return [
        Target("a plan's program", _verified, plan.ir["party"].encode(), program, most // 10),
        Target("a plan's file", _from_file(folder, "a.plan", Plan.load),
               (folder / "sound.plan").read_bytes(), (VeilgraphError,), most // 50),
        Target("a weights file",
               _from_file(folder, "a.weights", lambda p: veilgraph.load_weights(p, plan)),
               (folder / "sound.weights").read_bytes(), (VeilgraphError,), most // 20),
        *(Target(f"tables of {party}, run", tables.run, tables.content,
                 (ValueError, VeilgraphError), most // 50, odd_tables.changed)
          for party, tables in ((each, odd_tables.Tables(plan, each)) for each in PARTIES)),
        Target("an ONNX model, its bytes", lambda content: import_model(content, None),
               odd_models.sound(), (VeilgraphError,), most // 1000),
        Target("an ONNX model, its fields", lambda content: import_model(content, None),
               odd_models.sound(), (VeilgraphError,), most // 400, odd_models.changed),
        Target("a client's share file", shared.load, shared.content, (VeilgraphError,),
               most // 50),
        Target("what a share file holds", shared.load_sealed, shared.inner, (VeilgraphError,),
               most // 50),
        Target("what a share file says", shared.load_signed, shared.facts, (VeilgraphError,),
               most // 50),
        Target("what a party states to a client", _stated,
               json.dumps(_description(plan)).encode(), (PeerError, _Refused), most // 20),
        Target("a peer's frames", _frames, frame, (VeilgraphError,), most // 20),
        *(Target(f"{who} handshake at a port", port.say, hello, (), most // 100)
          for who, hello in port.hellos.items()),
        Target("a client's message", _message, message, (wire.WireError,), most // 4),
        Target("what a peer says in a turn", _of_length(Statement.unpack, TURN_BYTES),
               Statement(items).pack(), (SecurityAbort,), most // 4),
        Target("a peer's greeting", _of_length(_Hello.unpack, len(hello)), hello, (), most // 10),
        Target("a request to a gateway", lambda content: _inputs(_object(content), content),
               request, (_Refused,), most // 4),
    ]  # fmt: skip


class _Hangs(BaseException):
    pass


def _hangs(*_: object) -> None:
    raise _Hangs(f"no end after {MOST_SECONDS} s")


def run(target: Target, seed: int) -> dict[str, Any]:
    """All cases of a target.

    Raises:
        SystemExit: an error that was not promised, a case without an end, or too much memory, with
            the case.
    """
    draw, counts = random.Random(f"{seed} {target.name}"), Counter[bool]()
    target.read(target.sound)
    signal.signal(signal.SIGALRM, _hangs)
    before, start, longest = _peak_bytes(), time.perf_counter(), 0.0
    for number in range(target.cases):
        case, begun = target.damage(target.sound, draw), time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
        try:
            target.read(case)
            counts[True] += 1
        except target.errors:
            counts[False] += 1
        except (Exception, _Hangs) as error:
            raise SystemExit(
                f"{target.name}, seed {seed}, case {number}: {error!r} of {case!r}"
            ) from error
        signal.setitimer(signal.ITIMER_REAL, 0)
        longest = max(longest, time.perf_counter() - begun)
        if (more := _peak_bytes() - before) > MOST_MEMORY_BYTES:
            raise SystemExit(
                f"{target.name}, seed {seed}, case {number}: {more} bytes of memory for {case!r}"
            )
        if number % 1000 == 999:
            print(f"{target.name}: {number + 1}", file=sys.stderr)
    rate = target.cases / (time.perf_counter() - start)
    return {"read": target.name, "cases": target.cases, "refused": counts[False],
            "sense": counts[True], "cases_a_second": rate, "longest_seconds": longest,
            "more_memory_bytes": _peak_bytes() - before}  # fmt: skip


def _peak_bytes() -> int:
    """Of this process, so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(options: argparse.Namespace) -> Findings:
    most = 2000 if options.quick else options.cases
    with tempfile.TemporaryDirectory() as folder:
        plan, weights = _small()
        (Path(folder) / "port").mkdir()
        port = OpenPort(Path(folder) / "port", plan)
        with port.open():
            chosen = [
                target
                for target in targets(Path(folder), plan, weights, port, most)
                if not options.only or any(each in target.name for each in options.only)
            ]
            rows = [run(target, options.seed) for target in chosen]
    return findings(rows, options.seed)


def findings(rows: list[dict[str, Any]], seed: int) -> Findings:
    shown = [
        [row["read"], f"{row['cases']:,}", f"{row['refused']:,}", f"{row['sense']:,}",
         f"{row['cases_a_second']:,.0f}", units.seconds(row["longest_seconds"]),
         units.size(row["more_memory_bytes"])]
        for row in rows
    ]  # fmt: skip
    total = sum(row["cases"] for row in rows)
    title = f"Damaged input, {total:,} cases from seed {seed}: no error but those promised"
    return Findings([Table.of(HEADINGS, shown, title)], {"cases": rows, "seed": seed})


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seed", type=int, default=1, help="of all cases")
    made.add_argument(
        "--cases", type=int, default=1_000_000, help="of all kinds together, about so many"
    )
    made.add_argument("--only", nargs="+", metavar="WORDS", help="what has these in its name")
    options = made.parse_args()
    if options.cases < LEAST_CASES:
        made.error(f"--cases: at least {LEAST_CASES}, of which each kind has one")
    report("serving.hostile_input", options, lambda: measure(options))


if __name__ == "__main__":
    main()
