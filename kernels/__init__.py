"""Local computation: one folder a kernel (declaration.py, reference.py, cpu.cpp, cuda.cu).

`KERNELS` names them in the order that plans and native libraries use.
"""

KERNELS: tuple[str, ...] = ("fused", "matmul", "conv2d", "pool_sum", "reduce_sum", "copy", "fill")
