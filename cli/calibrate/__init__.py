"""`slipstick calibrate`: constants fitted to measurements, of kernels, stacks and serving engines."""
