"""Kernels that a model calls: a library of torch operators from the records of runs."""
