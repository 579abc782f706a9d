"""Launches of conv2d by residues: images and weights to bytes, N products of bytes, and words of
those. kernels/gemm/residues/residues.py has the formulas, image_planes.py how images lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.divisors import BOUND, divisor
from veilgraph.kernels.conv2d.residues.image_planes import Axis, ImagePlanes
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    PACKED,
    SCRATCH,
    THREADS,
    Argument,
    DeviceShape,
    Launch,
    Packed,
    Pointer,
    Sums,
    grid_stride,
)
from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.residues import byte_products
from veilgraph.kernels.gemm.residues.byte_products import STEP, Places, plane_bytes
from veilgraph.kernels.gemm.residues.residues import MAX_DEPTH, Basis, constants
from veilgraph.kernels.matmul.residues import MAX_SCRATCH

MOST_TAPS = 64  # kernels/conv2d/residues/byte_images.cuh has it too
IMAGES = byte_products.Right("ByteConvolution", "kernels/conv2d/residues/byte_images.cuh")
_LINES, _QUAD = 8, 4  # of a warp's and a thread's reductions


@dataclass(frozen=True)
class Shape:
    """A call: products of filters and images, group by group.

    `is_packed` says whether the weights' residues are made once a session.
    """

    ring: limbs.Ring
    groups: int
    filters: int
    planes: ImagePlanes
    is_packed: bool

    @staticmethod
    def of(c: Convolution) -> Shape:
        (images, channels, h, w), (_, _, kh, kw) = c.images.shape, c.weights.shape
        _, _, oh, ow = c.out.shape
        p = c.params
        rows = Axis(h, oh, kh, p.stride_h, p.pad_top, p.dilation_h)
        columns = Axis(w, ow, kw, p.stride_w, p.pad_left, p.dilation_w)
        planes = ImagePlanes(images, channels // c.groups, len(c.pairs), rows, columns)
        ring = limbs.Ring.of(c.out.word_bits, p.bits)
        return Shape(ring, c.groups, c.filters, planes, all(w.is_fixed for _, w in c.pairs))

    @property
    def basis(self) -> Basis:
        return Basis.of(self.ring, self.planes.pairs * self.planes.channels * self.planes.taps)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Of the products: entries, rows and columns."""
        return self.groups, self.filters, self.planes.outputs

    @property
    def pitch(self) -> int:
        """Bytes from filter to filter of t_i."""
        return byte_products.pitch_of(self.planes.outputs)

    @property
    def weight_bytes(self) -> int:
        return self.groups * self.basis.count * plane_bytes(self.filters, self.planes.depth)

    @property
    def places(self) -> tuple[int, int, int]:
        """Where in scratch memory t_i begin, the images' residues, and where they end; the weights'
        lie before, unless they are packed."""
        planes = self.groups * self.basis.count
        t = 0 if self.is_packed else self.weight_bytes
        start = t + planes * self.filters * self.pitch
        return t, start, start + planes * self.planes.plane_bytes

    @property
    def is_able(self) -> bool:
        """Whether places fit 31 bits, sums 32, residues the scratch memory, and taps a launch."""
        planes = self.planes
        if min(planes.rows.used, planes.columns.used, planes.channels) < 1:
            return False
        fits = planes.depth <= MAX_DEPTH and planes.most_lines < BOUND
        return fits and planes.taps <= MOST_TAPS and self.places[2] <= MAX_SCRATCH


@cache
def source(word_bits: int, basis: Basis) -> Source:
    """The kernels around the products: to residues, and back."""
    name = basis.name(word_bits)
    text = f"""#include "kernels/conv2d/residues/residues.cuh"

{constants(basis)}
VEIL_IMAGE_RESIDUES({name}, uint{word_bits}_t)
"""
    kernels = ("reduce_images", "reduce_weights", "combine_images")
    return Source("image_residues", text, tuple(f"veil_{kernel}_{name}" for kernel in kernels))


def by_residues(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """On tensor cores, where a Shape is able: 2 launches a pair, and 2; a launch less for each
    pair's weights that are packed."""
    c = Convolution.of(buffers, params)
    shape = Shape.of(c)
    left, reductions = _weights(c, shape, device)
    return (
        *reductions,
        *(_reduced_images(c, shape, pair, device) for pair in range(len(c.pairs))),
        _product(shape, left, device),
        _combined(c, shape, device),
    )


def _launch(
    c: Convolution,
    shape: Shape,
    kernel: str,
    items: int,
    arguments: tuple[Argument, ...],
    device: DeviceShape,
) -> Launch:
    """A kernel of `source` over so many threads' work."""
    entry = f"veil_{kernel}_{shape.basis.name(c.out.word_bits)}"
    made, grid = source(c.out.word_bits, shape.basis), grid_stride(items, device)
    return Launch(made, entry, grid, (THREADS, 1, 1), arguments, 0, shape.places[2])


def _weights(
    c: Convolution, shape: Shape, device: DeviceShape
) -> tuple[Argument, tuple[Launch, ...]]:
    """Where the residues of weights are, and what makes them at each inference."""
    pairs = range(len(c.pairs))
    if not shape.is_packed:
        out = Pointer(SCRATCH, 0)
        return out, tuple(_reduced_weights(c, shape, pair, out, device) for pair in pairs)
    out = Pointer(PACKED, 0)
    made = (_reduced_weights(c, shape, pair, out, device) for pair in pairs)
    return Packed(shape.weight_bytes, tuple(replace(each, scratch_bytes=0) for each in made)), ()


def _reduced_weights(
    c: Convolution, shape: Shape, pair: int, out: Pointer, device: DeviceShape
) -> Launch:
    planes = shape.planes
    extents = shape.groups, shape.filters, planes.channels, planes.taps
    arguments: tuple[Argument, ...] = (
        out, c.pairs[pair][1].pointer, *extents,
        planes.blocks, pair * planes.blocks, planes.depth,
    )  # fmt: skip
    quads = shape.groups * shape.filters * planes.blocks * STEP // _QUAD
    return _launch(c, shape, "reduce_weights", quads, arguments, device)


def _reduced_images(c: Convolution, shape: Shape, pair: int, device: DeviceShape) -> Launch:
    planes = shape.planes
    phases = planes.rows.phases * planes.columns.phases
    across = -(-planes.filled // _LINES)
    arguments: tuple[Argument, ...] = (
        Pointer(SCRATCH, shape.places[1]), c.pairs[pair][0].pointer,
        shape.groups, planes.channels, *planes.rows.arguments(), *planes.columns.arguments(),
        *planes.lines(planes.front), planes.filled,
        planes.plane_bytes, planes.block_bytes, planes.piece_bytes,
        planes.blocks, pair * planes.blocks, across, *divisor(planes.blocks), *divisor(across),
    )  # fmt: skip
    lines = shape.groups * planes.blocks * phases * across * _LINES
    return _launch(c, shape, "reduce_images", lines * STEP // _QUAD, arguments, device)


def _product(shape: Shape, left: Argument, device: DeviceShape) -> Launch:
    planes = shape.planes
    t, right, end = shape.places
    taps = planes.tap_places()
    strides = planes.plane_bytes, planes.block_bytes, planes.piece_bytes
    more = (*strides, len(taps), *taps, *(MOST_TAPS - len(taps)) * (0,))
    places = Places(left, Pointer(SCRATCH, t), Pointer(SCRATCH, right), IMAGES, more)
    return byte_products.multiply(shape.basis, shape.extents, planes.depth, places, device, end)


def _combined(c: Convolution, shape: Shape, device: DeviceShape) -> Launch:
    planes, t = shape.planes, Pointer(SCRATCH, shape.places[0])
    extents = shape.groups, shape.filters, planes.rows.out, planes.columns.out, shape.pitch
    arguments: tuple[Argument, ...] = (c.out.pointer, t, *extents, *planes.lines(0))
    quads = shape.groups * shape.filters * shape.pitch // _QUAD
    launch = _launch(c, shape, "combine_images", quads, arguments, device)
    return replace(launch, sums=_sums(c, shape, t))


def _sums(c: Convolution, shape: Shape, t: Pointer) -> Sums:
    """What `combine_images` stores."""
    _, filters, oh, ow = c.out.shape
    row = shape.planes.columns.pitch
    strides = filters, shape.filters, oh * ow, ow, shape.pitch, shape.planes.rows.pitch * row, row
    divisors = map(divisor, (oh * ow, ow, filters, shape.filters))
    return Sums(
        c.out.pointer,
        c.out.word_bits,
        c.out.elements,
        f'#include "kernels/conv2d/residues/combined.cuh"\n\n{constants(shape.basis)}',
        ("const uint8_t* t", "const __grid_constant__ OutputElements outputs"),
        (t, *strides, *(word for each in divisors for word in each)),
        f"combined_images<uint{c.out.word_bits}_t, Basis::kCount>"
        "(tile, t, outputs, Basis::kProduct, kModuli)",
    )
