"""Functions that kernels for TPUs share. The guard lets these through by name."""
