"""Three parties that train, a process each over mutual TLS, any of which may be killed."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np

import veilgraph
from benchmarks.training.digits import RATE, State
from veilgraph.ir.errors import PeerError, VeilgraphError
from veilgraph.ir.training import Rate
from veilgraph.measuring.processes import write_configs

NAMES = ("alice", "bob", "carol")
PATIENCE = 600.0  # seconds that a party waits for what the others tell


@dataclass(frozen=True)
class Run:
    """What all parties do.

    Attributes:
        folder: that holds the plan, the weights, rows and keys.
        steps: after which training ends.
        every: steps between checkpoints; None saves none.
        seed: of the order of rows.
        rate: of every step.
    """

    folder: Path
    steps: int
    every: int | None
    seed: int
    rate: Rate = RATE


def written(
    folder: Path,
    plan: veilgraph.Plan,
    weights: State,
    rows: Mapping[str, Mapping[str, Any]],
    timeout_seconds: float = 60.0,
) -> None:
    """All that parties read; rows are by owner."""
    plan.save(folder / "model.plan")
    veilgraph.save_weights(weights, folder / "model.weights", plan)
    for name, own in rows.items():
        np.savez(folder / f"{name}.npz", **own)
    write_configs(folder, NAMES, timeout_seconds)


def party(run: Run, name: str, sender: Any) -> None:
    """Trains to the end, from wherever all are; tells its steps, what they took, and how it ended.

    They took seconds, and bytes of memory: the most that this process held.
    """
    folder, rows = run.folder, run.folder / f"{name}.npz"
    data = dict(np.load(rows)) if rows.exists() else None
    try:
        with veilgraph.Trainer(
            folder / "model.plan",
            name,
            folder / f"{name}.yaml",
            data=data,
            rows=len(np.load(folder / "bob.npz")["labels"]),
            weights=folder / "model.weights" if name == "bob" else None,
            checkpoint=folder / f"{name}.checkpoint" if run.every else None,
            resume=run.every is not None,
            seed=run.seed,
            trust_author=True,
        ) as trainer:
            sender.send(("begins", trainer.step, trainer.session.id))
            start = time.perf_counter()
            if trainer.step < run.steps:
                trainer.fit(
                    rate=run.rate,
                    steps=run.steps - trainer.step,
                    every=run.every,
                    on_step=lambda number, loss: sender.send(("did", number, loss)),
                )
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            sender.send(("took", time.perf_counter() - start, most))
            sender.send(("ends", trainer.reveal(), trainer.revealed))
    except PeerError as error:
        sender.send(("lost", str(error), None))
    except VeilgraphError as error:
        sender.send(("refused", f"{name}: {error}", None))
    finally:
        sender.close()


class Attempt:
    """Three processes that train."""

    def __init__(self, run: Run) -> None:
        context = _context()
        pipes = {name: context.Pipe(duplex=False) for name in NAMES}
        self._receivers = {name: receiver for name, (receiver, _) in pipes.items()}
        self._processes = {
            name: context.Process(target=party, args=(run, name, sender))
            for name, (_, sender) in pipes.items()
        }
        for name, process in self._processes.items():
            process.start()
            pipes[name][1].close()

    def told(self, name: str) -> Iterator[tuple[Any, Any, Any]]:
        """What a party tells, until it ends."""
        while True:
            if not self._receivers[name].poll(PATIENCE):
                raise SystemExit(f"{name} told nothing for {PATIENCE:.0f} s.")
            try:
                yield self._receivers[name].recv()
            except EOFError:
                return

    def kill(self, name: str, seen: int, seconds: float) -> None:
        """Once a party has told `seen` things, and some time after."""
        for number, _ in enumerate(self.told(name), 1):
            if number >= seen:
                break
        time.sleep(seconds)
        self._processes[name].kill()

    def end(self) -> dict[str, list[tuple[Any, Any, Any]]]:
        """All that each has still to tell, when all processes are gone."""
        found = {name: list(self.told(name)) for name in NAMES}
        for process in self._processes.values():
            process.join(PATIENCE)
        return found


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.training.parties"])
    return context


def ended(found: dict[str, list[tuple[Any, Any, Any]]]) -> tuple[State, list[float]]:
    """The parameters and the losses that alice was told; stops at whatever else happened."""
    *steps, (how, parameters, _) = found["alice"]
    if how != "ends":
        raise SystemExit(f"A run broke off: {parameters}")
    return parameters, [loss for what, _, loss in steps if what == "did"]
