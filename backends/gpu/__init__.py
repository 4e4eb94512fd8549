"""Kernels that the CUDA and the HIP backend both compile, and the headers that make one of two."""

from pathlib import Path

#: ``portkern/portable.h``.
INCLUDE = Path(__file__).parent / "include"
