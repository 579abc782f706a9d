"""Matrix products, which matmul and conv2d share: the processor's (*.h), and a GPU's."""

# A GPU's side of kernels begins with what steps there are, which has its products from here.
import veilgraph.kernels.cuda  # noqa: F401
