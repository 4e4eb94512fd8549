"""Runs CUDA and HIP source on a CPU, at the warp width of any target, and checks what it does.

``translate`` turns launches, ``__shared__`` and inline assembly into C++; ``include`` holds headers
with CUDA's and HIP's names; ``runtime`` the fibers, checkers and host API that they call.
``execute`` makes libraries and programs of sources and runs them; its ``emulate`` is the venue of
the cuda and hip backends. What cannot be modelled is refused with a number and a line.
"""
