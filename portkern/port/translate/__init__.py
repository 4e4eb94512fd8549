"""CUDA source as HIP and back: names, types, launches and what only looks alike."""
