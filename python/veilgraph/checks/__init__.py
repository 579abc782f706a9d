"""How exact a plan is, beside ONNX Runtime and PyTorch."""
