"""Code that OpenCL kernels share: headers for SOURCE (``#include <portkern/…>``), and functions
that choose among the kernels there. The guard lets these functions through by name."""
