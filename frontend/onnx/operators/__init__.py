"""ONNX operators, written as simpler ONNX nodes before the importer sees them."""
