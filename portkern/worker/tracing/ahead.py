"""Imports and look-ups that tracing a file and running it need at their first call, which take
seconds: a process that workers are forked from does them once, for a function of its own."""

from __future__ import annotations

from portkern.worker.lowering import plain
from portkern.worker.tracing.trace import trace

__all__ = ["plain"]

_SOURCE = """
import torch

def ahead(x, y):
    return (x @ y).relu().sum(0)

def get_inputs():
    return [torch.randn(4, 3), torch.randn(3, 2)]
"""

trace(_SOURCE, "ahead.py", "", "ahead")
