"""CUDA and HIP source as text: tokens, conditions, functions, kernels, launches and constants."""
