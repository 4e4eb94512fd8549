"""Kernels that cheat and kernels that only look odd: what the evaluator is tested with."""
