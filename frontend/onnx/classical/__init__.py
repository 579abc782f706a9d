"""Operators of the domain ai.onnx.ml, written as tensor operators."""
