"""ONNX files to checked models: read without weights, lifted, functions written out."""
