"""A party of a test that trains, in a process of its own.

It imports what the product needs and no more. A process imports the module of what it runs: with
the test's own, each would import PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import veilgraph
from veilgraph.ir.errors import PeerError, VeilgraphError

STEPS = 60


def options(folder: Path, name: str, data: dict[str, Any], rows: int) -> dict[str, Any]:
    return {
        "data": data,
        "rows": rows,
        "weights": folder / "model.weights" if name == "bob" else None,
        "checkpoint": folder / f"{name}.checkpoint",
        "resume": True,
        "trust_author": True,
    }


def train(
    folder: Path, name: str, data: dict[str, Any], rows: int, rate: float, sender: Any
) -> None:
    """Trains to the end, from wherever all are; tells its steps, and how it ended."""
    try:
        plan, config = veilgraph.Plan.load(folder / "model.plan"), folder / f"{name}.yaml"
        with veilgraph.Trainer(plan, name, config, **options(folder, name, data, rows)) as trainer:
            sender.send(("begins", trainer.step, trainer.session.id))
            if trainer.step < STEPS:
                trainer.fit(
                    rate=rate,
                    steps=STEPS - trainer.step,
                    every=1,
                    on_step=lambda number, loss: sender.send(("did", number, loss)),
                )
            sender.send(("ends", trainer.reveal(), trainer.revealed))
    except PeerError as error:
        sender.send(("lost", str(error), None))
    except VeilgraphError as error:
        sender.send(("refused", f"{name}: {error}", None))
    finally:
        sender.close()
