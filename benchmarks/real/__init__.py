"""Public CUDA code, run from local checkouts by ``benchmarks/simt_real.py``."""
