"""Sizes and small tensors of an ONNX graph, worked out while it is read."""
