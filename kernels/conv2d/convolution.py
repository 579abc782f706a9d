"""A call of conv2d: its operands, its shape as kernels take it, and what it is besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from veilgraph.kernels.conv2d import depthwise
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.divisors import BOUND, divisor
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.gemm import limbs

_FEW_FILTERS = 8  # of a group, for which a tile would be mostly empty


@dataclass(frozen=True)
class Convolution:
    """A call: out [N, O, OH, OW], images [N, C, H, W] and weights [O, C / groups, KH, KW]."""

    out: Buffer
    pairs: tuple[tuple[Buffer, Buffer], ...]
    params: Params

    @staticmethod
    def of(buffers: Sequence[Buffer], params: Sequence[int]) -> Convolution:
        out, *factors = buffers
        return Convolution(
            out, tuple(zip(factors[::2], factors[1::2], strict=True)), Params.of(params)
        )

    @property
    def images(self) -> Buffer:
        return self.pairs[0][0]

    @property
    def weights(self) -> Buffer:
        return self.pairs[0][1]

    @property
    def groups(self) -> int:
        return self.params.groups

    @property
    def filters(self) -> int:
        """Of a group."""
        return self.weights.shape[0] // self.groups

    @property
    def pixels(self) -> int:
        """Of all images: outputs of a filter."""
        return self.out.elements // self.weights.shape[0]

    @property
    def depths(self) -> list[int]:
        """Products that a pair has in an output."""
        return len(self.pairs) * [self.weights.elements // self.weights.shape[0]]

    @property
    def extents(self) -> tuple[int, int, int]:
        """Of the products: groups, rows, columns."""
        return self.groups, self.filters, self.pixels

    @property
    def is_thin(self) -> bool:
        return self.groups > 1 and self.filters < _FEW_FILTERS

    @property
    def has_strips(self) -> bool:
        """Whether there is a kernel that makes its outputs by strips."""
        return self.is_small and depthwise.is_able(self.params, self.weights.shape)

    @property
    def strip_threads(self) -> int:
        count, filters, rows, columns = self.out.shape
        return count * filters * depthwise.strips_of(rows) * columns

    @property
    def is_small(self) -> bool:
        """Whether places and coordinates fit 31 bits, with nothing to divide by that is 0."""
        p = self.params
        (_, _, h, w), (_, _, kh, kw), (_, _, oh, ow) = (
            b.shape for b in (self.images, self.weights, self.out)
        )
        reach = max(
            h + p.pad_top + oh * p.stride_h + kh * p.dilation_h,
            w + p.pad_left + ow * p.stride_w + kw * p.dilation_w,
        )
        most = max(self.out.elements, self.weights.elements, reach)
        return most < limbs.MAX_EXTENT < BOUND and kh * kw > 0

    @property
    def is_matmul(self) -> bool:
        """Whether each image is a matrix [channels, pixels] as it lies there: a 1 x 1 kernel over
        all of it. Images apart may fill their tiles less than all together."""
        together = -(-self.pixels // limbs.SMALL.columns)
        apart = self.images.shape[0] * -(
            -self.out.shape[2] * self.out.shape[3] // limbs.SMALL.columns
        )
        p = self.params
        return (
            self.groups == 1
            and self.weights.shape[2:] == (1, 1)
            and p.stride_h == p.stride_w == 1
            and p.pad_top == p.pad_left == 0
            and self.images.shape[2:] == self.out.shape[2:]
            and 4 * apart <= 5 * together
        )

    @property
    def kernel(self) -> str:
        """What rows of kernels/gemm/tuned.json call it."""
        return "conv2d_matrices" if self.is_matmul else "conv2d"

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The struct Convolution of windows.cuh."""
        images, weights = self.images.shape, self.weights.shape
        return (*self.params.values(), *images, weights[0], *weights[2:], *self.out.shape[2:])

    @property
    def small_shape(self) -> tuple[int, ...]:
        """The struct SmallConvolution of small_windows.cuh."""
        (kh, kw), (oh, ow) = self.weights.shape[2:], self.out.shape[2:]
        divided_by = (oh * ow, ow, kh * kw, kw, self.weights.shape[0], self.filters)
        divisors = map(divisor, divided_by)
        return (*self.shape, *(word for each in divisors for word in each))
