"""The networks of the package ddddocr: two readers of letters, and a detector of them.

The reader (`common.onnx`) takes grey pictures 64 high and of any width, bound here to 160: a
convolutional trunk, an LSTM in both directions, 8,210 characters a column. An older one
(`common_old.onnx`) is the same, quantised with ONNX Runtime's own operators. The detector
(`common_det.onnx`) is YOLOX (Ge et al., 2021) on 416x416, with 80 sigmoid units. Pictures are words
drawn with PIL, on white for the readers and on photographs for the detector. What the networks say
is decided as the package does: a column's largest is its letter, and boxes count that score enough
and overlap no better one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto
from PIL import Image

from benchmarks.models.pictures import (
    Array,
    photographs,
    random_square,
    resized,
    word,
    write,
)
from benchmarks.models.recipe import CNN_ERROR, Arrays, Case, Recipe, Sources, largest

READER_HEIGHT, READER_WIDTH = 64, 160
DETECTOR_SIZE = 416
STRIDES = (8, 16, 32)
LEAST_SCORE, MOST_OVERLAP = 0.1, 0.45  # the package's own
SAME_PLACE = 0.9  # overlap of two boxes that are the same
READINGS, DETECTIONS = (8, 8), (3, 2)  # samples to calibrate on, and to test
QUANTISED_ERROR = 0.05  # ONNX Runtime rounds activations to 8 bits, and a plan does not


def _model(sources: Sources, name: str) -> ModelProto:
    return onnx.load_from_string(sources.wheels.read("ddddocr", f"ddddocr/{name}.onnx"))


def _reader(sources: Sources, name: str = "common") -> Case:
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(sum(READINGS)):
        image = Image.new("RGB", (READER_WIDTH, READER_HEIGHT), "white")
        write(image, word(rng), rng, size=40)
        drawn.append(np.asarray(image.convert("L"), np.float32)[None, None] / 255)
    return _case(_model(sources, name), "input1", np.stack(drawn), READINGS[0])


def _detector(sources: Sources) -> Case:
    rng = np.random.default_rng(0)
    images = list(photographs(sources.wheels).values())
    drawn = []
    for i in range(sum(DETECTIONS)):
        image = images[i % len(images)]
        square = image.crop(random_square(image, rng))
        square = square.resize((DETECTOR_SIZE, DETECTOR_SIZE), Image.Resampling.BILINEAR)
        write(square, word(rng), rng, size=80)
        pixels = resized(square, (0, 0, *square.size), *square.size)
        drawn.append(pixels[None, ::-1])  # blue comes first
    return _case(_model(sources, "common_det"), "images", np.stack(drawn), DETECTIONS[0])


def _case(model: ModelProto, name: str, samples: Array, calibrations: int) -> Case:
    return Case(model, {name: samples[:calibrations]}, {name: samples[calibrations:]})


def boxes(output: Array) -> npt.NDArray[np.float64]:
    """Boxes that count, [n, 5]: left, top, right and bottom in pixels, and the score.

    Args:
        output: [1, 3549, 6]: of each cell of the three grids its box's centre (from the cell's
            corner, in cells) and the logarithm of its size, two scores whose product counts.
    """
    raw = output[0].astype(np.float64)
    grids = [_grid(stride) for stride in STRIDES]
    corners, strides = (np.concatenate(parts) for parts in zip(*grids, strict=True))
    centres = (raw[:, :2] + corners) * strides
    halves = np.exp(raw[:, 2:4]) * strides / 2
    scores = raw[:, 4] * raw[:, 5]
    found = np.column_stack([centres - halves, centres + halves, scores])
    found = found[np.argsort(-scores, kind="stable")]
    kept: list[npt.NDArray[np.float64]] = []
    for box in found[found[:, 4] > LEAST_SCORE]:
        if all(overlap(box, better) <= MOST_OVERLAP for better in kept):
            kept.append(box)
    return np.array(kept).reshape(-1, 5)


def _grid(stride: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    side = DETECTOR_SIZE // stride
    rows, columns = np.indices((side, side))
    corners = np.stack([columns, rows], -1).reshape(-1, 2)
    return corners, np.full((side * side, 1), stride)


def overlap(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Intersection over union of two boxes."""
    sides = np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    union = float(np.prod(a[2:4] - a[:2]) + np.prod(b[2:4] - b[:2])) - shared
    return shared / union if union else 0.0


def same_boxes(ours: Arrays, theirs: Arrays) -> tuple[int, int]:
    """How many boxes lie where ONNX Runtime's do, and of how many."""
    found, wanted = boxes(ours["output"]), boxes(theirs["output"])
    same = sum(any(overlap(box, each) >= SAME_PLACE for each in found) for box in wanted)
    return same, max(len(found), len(wanted))


RECIPES = (
    Recipe(
        name="ddddocr_reader",
        title="ddddocr's reader",
        weights="pretrained",
        inputs="words drawn on white, 1x64x160",
        most_error=CNN_ERROR,
        make=_reader,
        agree=largest(-1),
        decisions="columns' characters",
    ),
    Recipe(
        name="ddddocr_reader_quantised",
        title="ddddocr's older reader, quantised",
        weights="pretrained",
        inputs="words drawn on white, 1x64x160",
        most_error=QUANTISED_ERROR,
        make=lambda sources: _reader(sources, "common_old"),
        agree=largest(-1),
        decisions="columns' characters",
    ),
    Recipe(
        name="ddddocr_detector",
        title="ddddocr's detector (YOLOX)",
        weights="pretrained",
        inputs="words drawn on photographs, 3x416x416",
        most_error=CNN_ERROR,
        make=_detector,
        agree=same_boxes,
        decisions="boxes",
        checked=1,
    ),
)
