"""Formats of others: their operators and kernels read, ours written."""
