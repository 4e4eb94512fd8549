"""Kernels for TPUs, which the ``pallas`` backend builds through Mosaic."""
