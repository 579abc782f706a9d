"""Images as residues, so that every tap of a convolution reads runs of memory.

Outputs are numbered line by line: image after image, each of pitch_h rows, each of pitch_w places.
Images lie as their outputs do, one byte a channel, with gaps between rows and between images that
are at least as wide as the padding, and zero. So the window of the output at place p begins as far
from the first image's start as that of output 0, plus p, and a tap of it is as far from that in all
windows, across the ends of rows and images too:

    row 0 of 3, padded by 1:   x x x 0            tap (i, j) of output p is line
    row 1                      x x x 0                front + p + shift(i) pitch_w + shift(j)
    row 2                      x x x 0            where shift(i) = i - 1, and `front` lines are zero
    the gap to the next image  0 0 0 0            before the first row

A step of a tile, 256 outputs by 64 channels of a tap, is then 256 neighbouring lines of 64
channels, or four runs of 4 KiB: copied in bulk like any matrix, without a look at rows and columns.
In return what is made in gaps is thrown away: 4% for a kernel of 3 x 3 on images of 56 x 56, 15% on
14 x 14. A 1 x 1 kernel has no gaps.

With a stride s, neighbouring outputs read lines s apart. So rows are dealt into phases, and columns
likewise: number p has row (p dilation - pad) mod s and every s-th from there, side by side. It is
read by tap p and by every tap whose offset is the same modulo s.

A plane, for one modulus and group: [pair and 64 channels][phase][16 channels][line][16 bytes].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd

from veilgraph.kernels.conv2d.divisors import divisor
from veilgraph.kernels.gemm.residues.byte_products import COLUMNS, STEP

PIECE = 16  # bytes of a run's line; kernels/conv2d/residues/byte_images.cuh has it too
_PIECES = STEP // PIECE


@dataclass(frozen=True)
class Axis:
    """Rows or columns: of an image, of its outputs, and of the kernel."""

    size: int
    out: int
    kernel: int
    stride: int
    pad: int
    dilation: int

    @property
    def phases(self) -> int:
        return min(self.kernel, self.stride // gcd(self.stride, self.dilation))

    @property
    def first(self) -> int:
        """Of the rows of phase 0."""
        return -self.pad % self.stride

    def shift(self, tap: int) -> int:
        """From an output's row to that of a tap, in the tap's phase."""
        return (tap * self.dilation - self.pad) // self.stride

    @property
    def before(self) -> int:
        """Rows of zeros that windows reach before an image."""
        return -self.shift(0)

    @property
    def reach(self) -> int:
        """Rows that windows have before those of the last tap."""
        return self.shift(self.kernel - 1) + self.before

    @property
    def used(self) -> int:
        """Rows of a phase, as far as windows read them; not positive where all lie beside it."""
        return min(-(-self.size // self.stride), self.out + self.shift(self.kernel - 1))

    @property
    def pitch(self) -> int:
        """Rows from image to image, or columns from row to row."""
        after = self.out + self.shift(self.kernel - 1) - self.used
        return max(self.out, self.used + max(self.before, after))

    def arguments(self) -> tuple[int, ...]:
        """The struct ImageAxis of residues.cuh."""
        shape = self.size, self.stride, self.first, self.dilation, self.used, self.phases
        return (*shape, *divisor(self.stride), *divisor(self.phases))


@dataclass(frozen=True)
class ImagePlanes:
    """Of `images` images, the residues of `channels` channels each (of a group) for every pair."""

    images: int
    channels: int
    pairs: int
    rows: Axis
    columns: Axis

    @property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel

    @property
    def blocks(self) -> int:
        """Of 64 channels that a pair has, the last one filled up."""
        return -(-self.channels // STEP)

    @property
    def depth(self) -> int:
        """Of all pairs, whole steps."""
        return self.pairs * self.blocks * self.taps * STEP

    @property
    def outputs(self) -> int:
        """Places of outputs of a filter, up to the last one, gaps among them."""
        before = (self.images - 1) * self.rows.pitch + self.rows.out - 1
        return before * self.columns.pitch + self.columns.out

    @property
    def front(self) -> int:
        """Lines of zeros before the first image."""
        return self.rows.before * self.columns.pitch + self.columns.before

    @property
    def reach(self) -> int:
        """Lines from an output's first tap to its last one."""
        return self.rows.reach * self.columns.pitch + self.columns.reach

    @property
    def filled(self) -> int:
        """Lines that taps of outputs read."""
        return self.outputs + self.reach

    @property
    def piece_bytes(self) -> int:
        """Of 16 channels of a phase, of the lines that tiles read."""
        return (-(-self.outputs // COLUMNS) * COLUMNS + self.reach) * PIECE

    @property
    def block_bytes(self) -> int:
        """Of 64 channels of all phases."""
        return self.rows.phases * self.columns.phases * _PIECES * self.piece_bytes

    @property
    def plane_bytes(self) -> int:
        """Of a group, for one modulus."""
        return self.pairs * self.blocks * self.block_bytes

    @property
    def most_lines(self) -> int:
        """A bound of every number of a line, those of the place before the first image too."""
        return self.piece_bytes // PIECE + self.rows.pitch * self.columns.pitch

    def tap_places(self) -> list[int]:
        """Bytes from the first output's line of a block to where each tap reads it."""
        kernel = product(range(self.rows.kernel), range(self.columns.kernel))
        return [self._place(i, j) for i, j in kernel]

    def _place(self, i: int, j: int) -> int:
        phase = i % self.rows.phases * self.columns.phases + j % self.columns.phases
        shift = self.rows.shift(i) * self.columns.pitch + self.columns.shift(j)
        return phase * _PIECES * self.piece_bytes + (self.front + shift) * PIECE

    def lines(self, front: int) -> tuple[int, ...]:
        """The struct ImageLines of residues.cuh."""
        image, row = self.rows.pitch * self.columns.pitch, self.columns.pitch
        return self.images, front, image, row, *divisor(image), *divisor(row)
