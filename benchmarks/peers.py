"""Kernels that users install instead of ours, as baselines where they are installed: Liger's
(Triton) and quack's (CuTe)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from portkern.evaluator.workers import Baseline

#: The lines of a function ``run`` of the operator's inputs, by package and operator. What they call
#: allocates its output and does nothing else; a call that waits for the GPU is not among them.
PEERS: Mapping[str, Mapping[str, str]] = {
    "liger_kernel": {
        "softmax": """
from liger_kernel.ops.softmax import _softmax_forward
def run(x):
    return _softmax_forward(x)[0]
""",
        "rmsnorm": """
from liger_kernel.ops.rms_norm import rms_norm_forward
def run(x, weight, eps):
    return rms_norm_forward(x, weight, eps, 0.0, "llama", None)[0]
""",
        "layernorm": """
from liger_kernel.ops.layer_norm import layer_norm_forward
def run(x, weight, bias, eps):
    return layer_norm_forward(x, weight, bias, eps)[0]
""",
    },
    "quack": {
        "softmax": """
from quack.softmax import softmax
def run(x):
    return softmax(x)
""",
        "rmsnorm": """
from quack.rmsnorm import rmsnorm
def run(x, weight, eps):
    return rmsnorm(x, weight, eps=eps)
""",
        "cross_entropy": """
from quack.cross_entropy import cross_entropy
def run(logits, target):
    return cross_entropy(logits, target, reduction="none")
""",
        "topk": """
from quack.topk import topk
def run(x, k):
    values, indices = topk(x, k)
    return values, indices.long()
""",
    },
}


def installed(op: str) -> dict[str, Baseline]:
    """The peers' kernels for the operator that can be called here, by package."""
    found = {}
    for package, functions in PEERS.items():
        spec = importlib.util.find_spec(package) if op in functions else None
        if spec is not None and spec.origin is not None:
            found[package] = Baseline(functions[op], (Path(spec.origin).parents[1],))
    return found
