"""Products by residues with cuBLAS's int8 product in the middle, in place of a kernel of ours.

reduce     ours, as it is: cuBLAS would have the bytes in rows, which costs no more to write
multiply   cuBLAS, one batch of all moduli, 32-bit sums to memory
sums       to t_i and to words, a kernel of this benchmark alone
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.calls import Product
from benchmarks.gpu.cublas import INT8, Cublas
from veilgraph.kernels.cuda import Buffer, DeviceShape, Launch, Pointer, Source
from veilgraph.kernels.cuda.launch import SCRATCH, THREADS, grid_stride
from veilgraph.kernels.gemm.residues import byte_products, residues
from veilgraph.kernels.gemm.residues.residues import Basis
from veilgraph.kernels.matmul.residues import Shape, by_residues

_SUMS = """
extern "C" __global__ void __launch_bounds__(256) veil_sums(
    WORD* out, const int32_t* r, int64_t count) {
  using namespace veil;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    uint64_t sum = 0, fraction = uint64_t{1} << (kFractionBits - 1);
#pragma unroll
    for (int m = 0; m < Basis::kCount; ++m) {
      const uint32_t biased = static_cast<uint32_t>(r[m * count + i]) + kScales[m].begin;
      const uint64_t t = scaled_residue(biased, kScales[m]);
      sum += t * kModuli[m].weight;
      fraction += t * kModuli[m].fraction;
    }
    out[i] = static_cast<WORD>(sum - (fraction >> kFractionBits) * Basis::kProduct);
  }
}
"""


def sums_source(word_bits: int, basis: Basis) -> Source:
    """int32_t [moduli, elements] to words."""
    constants = residues.source(word_bits, basis).text
    scales = byte_products.source(basis, byte_products.MMA).text
    text = constants + scales + _SUMS.replace("WORD", f"uint{word_bits}_t")
    return Source("cublas_sums", text, ("veil_sums",))


def sums(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """From SCRATCH to the output."""
    out, basis = buffers[0], Shape.of(buffers, params[0]).basis
    source, arguments = sums_source(out.word_bits, basis), (Pointer(SCRATCH, 0), out.elements)
    grid, scratch = grid_stride(out.elements, device), 4 * basis.count * out.elements
    launch = Launch(
        source, "veil_sums", grid, (THREADS, 1, 1), (out.pointer, *arguments), 0, scratch
    )
    return (launch,)


def reductions(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """Of both factors."""
    return tuple(
        each
        for each in by_residues(buffers, params, device)
        if each.entry.startswith("veil_reduce")
    )


def seconds(bench: Bench, cublas: Cublas, side: int, bits: int) -> float:
    """Of a product of matrices so wide and high, its three steps one after another."""
    shape = Product.cube(side)
    buffers = shape.buffers(bits)
    around = sum(bench.seconds(way, buffers, [bits]) for way in (reductions, sums))
    count = Shape.of(buffers, bits).basis.count
    return around + bench.cublas_seconds(cublas, INT8, shape, count)
