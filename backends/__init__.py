"""One folder per toolchain; each holds a Backend, its guide for authors and its kernels."""
