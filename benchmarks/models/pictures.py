"""Natural inputs: photographs of scikit-image and scikit-learn, and words drawn with PIL."""

from __future__ import annotations

import io
import string

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from benchmarks.models.wheels import Wheels

Array = npt.NDArray[np.float32]
PHOTOGRAPHS = {
    "astronaut": ("scikit-image", "skimage/data/astronaut.png"),
    "chelsea": ("scikit-image", "skimage/data/chelsea.png"),
    "coffee": ("scikit-image", "skimage/data/coffee.png"),
    "rocket": ("scikit-image", "skimage/data/rocket.jpg"),
    "china": ("scikit-learn", "sklearn/datasets/images/china.jpg"),
    "flower": ("scikit-learn", "sklearn/datasets/images/flower.jpg"),
}
LETTERS = string.ascii_lowercase + string.digits


def photographs(wheels: Wheels) -> dict[str, Image.Image]:
    """All of PHOTOGRAPHS in red, green and blue.

    Raises:
        Unavailable: a package can't be had.
    """
    return {
        name: Image.open(io.BytesIO(wheels.read(*place))).convert("RGB")
        for name, place in PHOTOGRAPHS.items()
    }


def resized(image: Image.Image, box: tuple[int, int, int, int], width: int, height: int) -> Array:
    """A part of a picture (left, top, right, bottom) as numbers [3, height, width] up to 255."""
    part = image.crop(box).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(part, np.float32).transpose(2, 0, 1)


def random_square(
    image: Image.Image, rng: np.random.Generator, least: float = 0.3, most: float = 1.0
) -> tuple[int, int, int, int]:
    """A square of a picture, its side a part of the shorter one."""
    side = int(min(image.size) * rng.uniform(least, most))
    left, top = (int(rng.integers(0, length - side + 1)) for length in image.size)
    return left, top, left + side, top + side


def word(rng: np.random.Generator, length: int = 4) -> str:
    return "".join(rng.choice(list(LETTERS), length))


def write(image: Image.Image, text: str, rng: np.random.Generator, size: int) -> None:
    """Draws the letters of a text from left to right, each a little higher or lower."""
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size)
    step = image.width / (len(text) + 1)
    for i, letter in enumerate(text):
        left = step * (i + 0.5) + rng.uniform(-0.1, 0.1) * step
        top = (image.height - size) / 2 + rng.uniform(-0.15, 0.15) * image.height
        ink = tuple(int(v) for v in rng.integers(0, 110, 3))
        draw.text((left, top), letter, fill=ink, font=font)
