"""Random faults from a seed while clients ask a service.

    python -m benchmarks.serving.faults [--quick] [--json] [--write] [--faults N] [--seed N]
                                     [--kinds KIND ...]

Three processes of `veilgraph serve` on loopback, links between them and with clients by way of
proxies. One fault after another: a party is killed and started again, ended and started again,
stopped and resumed, its disk is full, or its clock is off by a second to three years, alone or
while a link is cut and made anew; a link is cut, held, slowed, or a bit of it flipped; a client
vanishes in the middle of its request. After each a new client is to be answered within ten seconds.
All others ask on meanwhile: each request ends in time, in a right answer or an error.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.reporting import ROOT, Findings, parser, report, spread
from benchmarks.serving.asking import Asking, Question, back
from benchmarks.serving.requests import digits, samples_of_digits
from benchmarks.serving.ward import PARTIES, Ward
from veilgraph.ir.errors import VeilgraphError
from veilgraph.measuring.spread import Spread
from veilgraph.reports.tables import Table
from veilgraph.runtime.client import wire
from veilgraph.runtime.randomness import fresh_seed
from veilgraph.serving.client import Client
from veilgraph.serving.party_links import wire_receive, wire_send

FAULTS, CLIENTS, TIMEOUT_SECONDS, SLACK_SECONDS = 300, 4, 8.0, 3.0
BACK_SECONDS, START_SECONDS = 10.0, 120.0
LONGEST_SPELL, SLOW_BYTES = 1.0, 20_000.0
MOST_SKEW_SECONDS = 3 * 365 * 86400.0  # more than a certificate is valid
LINKS = ("cut", "hold", "throttle", "flip")
CLOCKS = ("clock", "clock, cut")
KINDS = ("kill", "restart", "stop", "full", *LINKS, "vanish", *CLOCKS)


def fault(ward: Ward, kind: str, draws: random.Random) -> None:
    """Begins and ends one."""
    party, spell = draws.choice(PARTIES), draws.uniform(0.05, LONGEST_SPELL)
    process = ward.processes[party]
    if kind in ("kill", "restart"):
        (process.kill if kind == "kill" else process.terminate)()
        process.wait()
        time.sleep(spell)
        ward.start(party)
    elif kind == "stop":
        process.send_signal(signal.SIGSTOP)
        time.sleep(spell)
        process.send_signal(signal.SIGCONT)
    elif kind == "full":  # no file may grow beyond nothing, as on a disk without room
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        time.sleep(spell)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    elif kind in CLOCKS:
        skew = MOST_SKEW_SECONDS ** draws.random() * draws.choice((-1, 1))
        ward.clocks[party].move(skew)
        if kind != "clock":
            proxy = draws.choice([*ward.links.values()])
            proxy.cut()
            proxy.mend()
            spell *= 3  # handshakes are tried meanwhile
        time.sleep(spell)
        ward.clocks[party].move(0.0)
    elif kind == "vanish":
        vanish(ward.clients[0], draws.randrange(6))
    else:
        proxy = draws.choice([*ward.links.values(), *ward.doors.values()])
        if kind == "throttle":
            proxy.throttle(SLOW_BYTES)
        else:
            {"cut": proxy.cut, "hold": proxy.hold, "flip": proxy.flip}[kind]()
        time.sleep(spell)
        proxy.mend()


def vanish(config: Path, step: int) -> None:
    """A client goes after it asked `step` parties, or got masks, or sent part of its input."""
    with suppress(VeilgraphError), Client("digits", config) as client:  # the service may be away
        asked = {
            "ask": "infer", "model": "digits", "plan": client.plan, "session": client._session,
            "role": client.role, "nonce": fresh_seed().hex(), "rows": 1,
        }  # fmt: skip
        links = list(client._links.items())
        for name, link in links[:step]:
            wire_send(name, link, asked)
        if step > len(links):
            size = wire.elements_bytes(client.inputs)
            for name, link in links:
                wire_receive(name, link, size)
            for name in client._receive[: step - len(links)]:
                wire_send(name, client._links[name], {}, bytes(size))


def faults(folder: Path, count: int, seed: int, of: Sequence[str] = KINDS) -> dict[str, Any]:
    """What came of so many."""
    draws, ours = random.Random(seed), digits()
    kinds = [of[number % len(of)] for number in range(count)]
    draws.shuffle(kinds)
    model = str(ROOT / "examples" / "digits" / "digits.onnx")
    question = Question.of("digits", model, samples_of_digits(), 1)
    took, dead = defaultdict[str, list[float]](list), list[str]()
    with Ward(
        folder,
        {"digits/1": ours},
        CLIENTS + 1,
        2,
        has_proxies=True,
        has_clocks=True,
        timeout_seconds=TIMEOUT_SECONDS,
    ) as ward:
        own, *others = ward.clients
        assert back(own, question, START_SECONDS) <= START_SECONDS, "the service did not begin"
        asking = Asking(others, [question], TIMEOUT_SECONDS + SLACK_SECONDS, seed)
        with asking.going_on() as found:
            for number, kind in enumerate(kinds):
                time.sleep(draws.uniform(0.0, 0.3))  # clients are amid their requests again
                fault(ward, kind, draws)
                took[kind].append(back(own, question, 3 * BACK_SECONDS))
                dead += [f"{party} after {kind}" for party in ended(ward)]
                print(f"{number + 1} of {count}, {kind}: {took[kind][-1]:.2f} s", file=sys.stderr)
    return {
        "faults": count, "seed": seed, "back_seconds": dict(sorted(took.items())),
        "answers": found.answers.total(), "errors": dict(found.errors), "wrong": found.wrong,
        "late": found.late, "twice": found.twice, "ended": dead,
    }  # fmt: skip


def ended(ward: Ward) -> list[str]:
    """Parties whose process ended by itself."""
    return [party for party, process in ward.processes.items() if process.poll() is not None]


def measure(options: argparse.Namespace) -> Findings:
    kinds = options.kinds or KINDS
    count = len(kinds) if options.quick else options.faults
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = {**faults(Path(folder), count, options.seed, kinds), "load": load}
    return findings(found)


def findings(found: dict[str, Any]) -> Findings:
    """What `faults` found, in words and a table."""
    rows = [
        [kind, str(len(times)), spread(Spread.of(times)), str(sum(t > BACK_SECONDS for t in times))]
        for kind, times in found["back_seconds"].items()
    ]
    headings = f"fault|#how often|#until a client is answered|#later than {BACK_SECONDS:g} s"
    count, seed = found["faults"], found["seed"]
    title = f"{count} faults of a service from seed {seed}, while {CLIENTS} clients ask"
    errors = ", ".join(f"{number} {kind}" for kind, number in found["errors"].items()) or "none"
    note = (
        f"{found['answers']} right answers, {len(found['wrong'])} wrong; errors: {errors}; "
        f"{len(found['late'])} requests later than {TIMEOUT_SECONDS + SLACK_SECONDS:g} s; "
        f"{found['twice']} inferences used twice; {len(found['ended'])} processes that ended by "
        f"themselves. Load of the machine before: {found['load']:.1f}."
    )
    return Findings([Table.of(headings, rows, title)], found, [note])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--faults", type=int, default=FAULTS, help="how many")
    made.add_argument("--kinds", nargs="+", choices=KINDS, help="of these alone")
    made.add_argument("--seed", type=int, default=1, help="of all that is drawn")
    options = made.parse_args()
    report("serving.faults", options, lambda: measure(options))


if __name__ == "__main__":
    main()
