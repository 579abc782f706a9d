"""Calls of matmul and conv2d that benchmarks of a GPU time, and those that networks make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import ClassVar, TypeAlias

from benchmarks.kernels import Layer
from benchmarks.kernels import resnet50 as resnet50_layers
from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.conv2d.residues import residues as filtered
from veilgraph.kernels.cuda import Buffer, DeviceShape, Launch
from veilgraph.kernels.cuda import Kind as Words
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.matmul.declaration import multiply_adds
from veilgraph.kernels.matmul.residues import Shape, by_residues

ALIGNMENT = 256
PAIRS = 2  # of a product in rep3

Way = Callable[[Sequence[Buffer], Sequence[int], DeviceShape], tuple[Launch, ...]]


def words(shapes: Sequence[tuple[int, ...]], bits: int) -> list[Buffer]:
    """Contiguous buffers one after another in the arena."""
    found, end = [], 0
    kind = Words.WORDS64 if bits > 32 else Words.WORDS32
    for shape in shapes:
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        found.append(Buffer(0, end, kind, 64 if bits > 32 else 32, shape, strides))
        end += -(-found[-1].bytes // ALIGNMENT) * ALIGNMENT
    return found


@dataclass(frozen=True)
class Product:
    """[batch, rows, depth] x [batch, depth, columns], `pairs` of them added up."""

    batch: int
    rows: int
    columns: int
    depth: int
    pairs: int = 1

    @staticmethod
    def cube(side: int) -> Product:
        return Product(1, side, side, side)

    kernel: ClassVar[str] = "matmul"

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.batch, self.rows, self.columns

    @property
    def depths(self) -> list[int]:
        return self.pairs * [self.depth]

    @property
    def multiply_adds(self) -> int:
        return multiply_adds([buffer.shape for buffer in self.buffers(64)])

    def params(self, bits: int) -> list[int]:
        return [bits]

    def ways(self, bits: int) -> dict[str, Way]:
        """All but limbs."""
        found: dict[str, Way] = {"integers": matmul.by_integers}
        if Shape.of(self.buffers(bits), bits).is_able:
            found["residues"] = by_residues
        return found

    @property
    def has_tilings(self) -> bool:
        """Whether `by_limbs` is a way of its own."""
        return True

    def by_limbs(self, made: limbs.Tiling) -> Way:
        return partial(matmul.by_limbs, made=made)

    def buffers(self, bits: int) -> list[Buffer]:
        a, b = (self.batch, self.rows, self.depth), (self.batch, self.depth, self.columns)
        return words([(self.batch, self.rows, self.columns), *self.pairs * (a, b)], bits)


@dataclass(frozen=True)
class Filtered:
    """A convolution of `batch` images, `pairs` of them added up; as products, a group an entry.

    Weights are the same at each inference, as a model's are.
    """

    layer: Layer
    batch: int
    pairs: int = 1

    @property
    def kernel(self) -> str:
        return self.convolution(64).kernel

    @property
    def extents(self) -> tuple[int, int, int]:
        layer = self.layer
        pixels = self.batch * layer.out_size**2
        return layer.groups, layer.filters // layer.groups, pixels

    @property
    def depths(self) -> list[int]:
        return self.pairs * [self.layer.channels // self.layer.groups * self.layer.kernel**2]

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.layer.multiply_adds * self.pairs

    def params(self, bits: int) -> list[int]:
        layer, pad = self.layer, self.layer.kernel // 2
        made = Params(bits, layer.stride, layer.stride, pad, pad, groups=layer.groups)
        return [int(value) for value in made.values()]

    def ways(self, bits: int) -> dict[str, Way]:
        """All but limbs."""
        found: dict[str, Way] = {"integers": conv2d.by_integers}
        if self.is_product:
            found = {"matrices": conv2d.by_matrices}
        if filtered.Shape.of(self.convolution(bits)).is_able:
            found["residues"] = filtered.by_residues
        return found

    @property
    def has_tilings(self) -> bool:
        """Whether `by_limbs` is a way of its own: else each image is a Product's."""
        return not self.is_product

    def by_limbs(self, made: limbs.Tiling) -> Way:
        return partial(conv2d.by_limbs, made=made)

    def buffers(self, bits: int) -> list[Buffer]:
        out, images, weights = (each.shape for each in self.layer.buffers(64))
        factors = self.pairs * ((self.batch, *images[1:]), weights)
        result, *made = words([(self.batch, *out[1:]), *factors], bits)
        return [result, *(replace(b, is_fixed=number % 2 == 1) for number, b in enumerate(made))]

    def convolution(self, bits: int) -> Convolution:
        return Convolution.of(self.buffers(bits), self.params(bits))

    @property
    def is_product(self) -> bool:
        """Whether each image is a matrix as it lies there."""
        return self.convolution(64).is_matmul

    def as_product(self) -> Product:
        """Images as matrices [channels, pixels], where it is one."""
        layer = self.layer
        pixels = layer.out_size**2
        return Product(self.batch, layer.filters, pixels, layer.channels, self.pairs)


Call: TypeAlias = Product | Filtered


def vgg16_layers() -> list[Layer]:
    """Of images of 224 x 224."""
    plan = [(3, 64, 224, 1), (64, 64, 224, 1), (64, 128, 112, 1), (128, 128, 112, 1)]
    plan += [(128, 256, 56, 1), (256, 256, 56, 2), (256, 512, 28, 1), (512, 512, 28, 2)]
    plan += [(512, 512, 14, 3)]
    return [Layer(c, f, size, 3, count=count) for c, f, size, count in plan]


def bert_base(sequence: int) -> list[tuple[Product, int]]:
    """Products of a BERT-base and how often each comes: 12 layers, 12 heads of 64."""
    hidden, inner, heads, layers = 768, 3072, 12, 12
    return [
        (Product(1, sequence, hidden, hidden, PAIRS), 4 * layers),
        (Product(1, sequence, inner, hidden, PAIRS), layers),
        (Product(1, sequence, hidden, inner, PAIRS), layers),
        (Product(heads, sequence, sequence, hidden // heads, PAIRS), layers),
        (Product(heads, sequence, hidden // heads, sequence, PAIRS), layers),
    ]


def network_calls() -> list[Call]:
    """Layers of ResNet-50 and VGG-16 at batch 1 and 8, and of a BERT-base, each once; a product
    alone, and one party's two."""
    found: dict[Call, None] = {}
    for layer, batch, pairs in product(
        [replace(each, count=1) for each in (*resnet50_layers(), *vgg16_layers())],
        (1, 8),
        (1, PAIRS),
    ):
        call = Filtered(layer, batch, pairs)
        if call.is_product:
            found[call.as_product()] = None
        if batch > 1 or not call.is_product:
            found[call] = None
    dense = [(1000, 2048), (4096, 25088), (4096, 4096), (1000, 4096)]  # of ResNet-50, and VGG-16
    products = [Product(1, batch, *each) for batch in (1, 8) for each in dense]
    products += [shape for shape, _ in bert_base(128)]
    for shape, pairs in product(products, (1, PAIRS)):
        found[replace(shape, pairs=pairs)] = None
    return list(found)
