"""Local computation: one folder a kernel (declaration.py, reference.py, cpu.cpp, cuda.cu).

`KERNELS` is the list of them, in the order that plans and native libraries use; `declared.py` has
what each declares.
"""

KERNELS: tuple[str, ...] = (
    *("fused", "matmul", "conv2d", "pool_sum", "reduce_sum", "copy", "fill", "point"),
    "compare",
)

# Parts of a call are multiples of so many elements: the largest block of a kernel.
PART_ELEMENTS = 4096
