"""Kernels in Pallas for NVIDIA GPUs from Hopper on, through Mosaic; backend ``pallas`` has them."""
