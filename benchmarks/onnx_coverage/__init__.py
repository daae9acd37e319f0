"""What ONNX files are read: the node tests and models that the onnx package ships, and models that others ship."""
