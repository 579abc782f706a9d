"""Matrix products, which matmul and conv2d share: the processor's (*.h), and a GPU's."""
