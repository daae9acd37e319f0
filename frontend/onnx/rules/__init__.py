"""What each operator of ONNX is in the IR."""
