"""Functions that a Numba kernel may import, as a C++ kernel includes ``harness.h``.

What a module here defines without a leading underscore is for kernels of any author: the guard lets
these functions through by name and nothing else of portkern. They are compiled into the kernel that
calls them, so none of them has a cache of its own.
"""
