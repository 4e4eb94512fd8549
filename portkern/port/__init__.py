"""Takes CUDA kernels to other GPUs: found, translated, built, and shown to compute the same."""
