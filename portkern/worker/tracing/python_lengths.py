"""Python's own functions of lengths, which return numbers where torch's tracer hands them symbols:
a length would be fixed without a word by ``len`` of a tensor or ``math.sqrt`` of a head's size."""

from __future__ import annotations

import math
import types
from typing import Any

import torch  # noqa: TID253 - imported where a file is traced, in a worker


def _len(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim:
        return value.shape[0]
    return len(value)


def _sqrt(value: Any) -> Any:
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return torch.sym_sqrt(value)
    return math.sqrt(value)


def keep_symbols(namespace: dict[str, Any]) -> None:
    """Has a file's functions keep symbols where these functions are called by their usual names."""
    replaced = types.ModuleType("math")
    vars(replaced).update({**vars(math), "sqrt": _sqrt})
    for name, value in [*namespace.items()]:
        if value is math:
            namespace[name] = replaced
        elif value is math.sqrt:
            namespace[name] = _sqrt
    namespace.setdefault("len", _len)
