"""The demo: digits of alice's, a network of bob's, and three processes that see neither.

Everything is real: the ONNX file is compiled, certificates are made, the processes speak TLS 1.3
with both sides authenticated, and their answers are put beside ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.pricing import Prediction, predict
from veilgraph.measuring.processes import simulate_processes, write_configs
from veilgraph.measuring.spread import Spread
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.runtime.simulate import Answer
from veilgraph.runtime.store.weights import save_weights

DIGITS = Path("examples", "digits")
FILES = ("digits.onnx", "calibration.npz", "heldout.npz")
INPUT, OUTPUT = "image", "logits"
SHAPE = (1, 1, 28, 28)
WHITE = 255
SHADES = " ▄▀█"  # by upper and lower half: of a character that shows two pixels
INK = 96  # of 255: what is drawn as ink
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Demo:
    """What came of it, a row a digit.

    Attributes:
        images: uint8 [n, 1, 28, 28], white ink on black.
        labels: what the digits are.
        logits: of the three parties, float32 [n, 10].
        references: ONNX Runtime's, float32 [n, 10].
    """

    plan: Plan
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    logits: Floats
    references: Floats
    answer: Answer
    predicted: Prediction

    @property
    def answers(self) -> list[int]:
        return [int(row.argmax()) for row in self.logits]

    @property
    def worst_error(self) -> float:
        """Largest difference of a logit from ONNX Runtime's."""
        return float(np.abs(self.logits - self.references).max())


def find_examples(given: Path | None = None) -> Path:
    """The folder of the digits: as given, examples/digits here or above, or the package's own.

    Raises:
        UsageError: none of these has the files.
    """
    here = Path.cwd()
    places = here, *here.parents, Path(__file__).parents[1]
    candidates = [given] if given is not None else [place / DIGITS for place in places]
    for folder in candidates:
        if all((folder / name).is_file() for name in FILES):
            return folder
    raise UsageError(
        f"The digits are not in {given or DIGITS}: it needs {', '.join(FILES)}.",
        "Name the folder with --examples, or leave it out.",
    )


def run_demo(
    examples: Path, count: int, out: Path | None, tell: Callable[[str], None] = lambda doing: None
) -> Demo:
    """Compiles, runs three processes on `count` held-out digits, and asks ONNX Runtime too.

    Args:
        out: a folder for the plan, the weights, and each party's key, certificate and
            configuration, so that the parties can be run by hand; nothing stays if None.

    Raises:
        UsageError: fewer digits than asked for, or a folder that can't be written.
    """
    images, labels = _digits(examples / "heldout.npz", count)
    plan, weights = veilgraph.compile(
        examples / "digits.onnx",
        shapes={INPUT: SHAPE},
        calibrate=examples / "calibration.npz",
        max_error=0.001,
        progress=lambda name: tell(f"compiling: {name}"),
    )
    batches = [image[np.newaxis].astype(np.float32) / WHITE for image in images]
    if out is not None:
        tell(f"writing {out}")
        _keep(out, plan, weights, batches[0])
    tell("three processes share the weights and classify")
    answer, _ = simulate_processes(plan, weights, [{INPUT: x} for x in [batches[0], *batches]])
    tell("asking ONNX Runtime")
    references = _references(examples / "digits.onnx", batches)
    measured = Answer(plan, answer.outputs, answer.setup_seconds, answer.runs[1:])
    logits = np.concatenate([run.outputs[OUTPUT] for run in measured.runs])
    return Demo(plan, images, labels, logits, references, measured, predict(plan))


def _digits(path: Path, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    with np.load(path, allow_pickle=False) as heldout:
        images, labels = heldout["images"], heldout["labels"]
    if count > len(images):
        raise UsageError(f"There are {len(images)} held-out digits, not {count}.", "Ask for fewer.")
    return images[:count], labels[:count]


def _references(model: Path, batches: list[Floats]) -> Floats:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([OUTPUT], {INPUT: x})[0] for x in batches])


def _keep(out: Path, plan: Plan, weights: dict[str, Floats], image: Floats) -> None:
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} can't be made: {error.strerror}.", "Name a folder.") from error
    plan.save(out / "digits.plan")
    save_weights(weights, out / "digits.weights", plan.digest)
    np.save(out / "image.npy", image)
    if not (out / f"{plan.manifest.parties[0]}.yaml").exists():
        write_configs(out, plan.manifest.parties)


# What is shown


def tables(demo: Demo) -> list[Table | str]:
    """Answers beside ONNX Runtime's, then what they cost."""
    right = sum(map(int.__eq__, demo.answers, demo.labels.tolist()))
    same = sum(map(int.__eq__, demo.answers, demo.references.argmax(axis=1).tolist()))
    total = len(demo.labels)
    return [
        _answers(demo),
        f"{same} of {total} answers are ONNX Runtime's, {right} of {total} are the label; no logit "
        f"differs by more than {units.real(demo.worst_error)}.",
        _costs(demo),
        f"Encoding: {demo.plan.manifest.encoding}.",
        "Measured: three processes on this machine, mutual TLS 1.3 on loopback, median of "
        f"{total} digits after one to warm up. Predicted: for the network "
        f"`{demo.predicted.network.name}`.",
    ]


def _answers(demo: Demo) -> Table:
    rows = []
    for number, label in enumerate(demo.labels):
        ours, theirs = demo.logits[number], demo.references[number]
        rows.append(
            (
                number + 1,
                label,
                ours.argmax(),
                theirs.argmax(),
                f"{ours.max():.4f}",
                f"{theirs.max():.4f}",
                f"{np.abs(ours - theirs).max():.5f}",
            )
        )
    headings = (
        "#digit|#label|#three parties|#ONNX Runtime|#their logit|#its logit|#largest difference"
    )
    return Table.of(headings, rows)


def _costs(demo: Demo) -> Table:
    predicted, cost, runs = demo.predicted, demo.predicted.cost, demo.answer.runs
    spreads = {p: Spread.of([r.seconds(p) for r in runs]) for p in (Phase.OFFLINE, Phase.ONLINE)}
    rows: list[tuple[Any, ...]] = [
        ("setup, once a session", cost.setup, demo.answer.setup_seconds, predicted.setup_seconds),
        ("offline", cost.offline, spreads[Phase.OFFLINE].median, predicted.offline_seconds),
        ("online", cost.online, spreads[Phase.ONLINE].median, predicted.online_seconds),
    ]
    return Table.of(
        "phase|#rounds|#sent by all|#measured|#predicted",
        [
            (name, phase.rounds, units.size(phase.total_bytes), *map(units.seconds, times))
            for name, phase, *times in rows
        ],
    )


def drawing(images: npt.NDArray[np.uint8], in_a_row: int = 5) -> list[str]:
    """Lines: the digits in block characters, half their width and a quarter of their height."""
    small = images[:, 0].reshape(len(images), 14, 2, 14, 2).max(axis=(2, 4)) > INK
    blocks = small[:, 0::2] * 2 + small[:, 1::2] * 1
    lines = []
    for first in range(0, len(blocks), in_a_row):
        for row in range(blocks.shape[1]):
            digits = blocks[first : first + in_a_row, row]
            lines.append("  ".join("".join(SHADES[b] for b in digit) for digit in digits).rstrip())
    return lines
