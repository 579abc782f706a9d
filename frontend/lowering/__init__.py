"""From torch-mlir's aten core to the graph level; translate.py is the door."""
