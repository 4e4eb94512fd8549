"""How a forward is called, and what a trace of it took for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: Values that may be kept and compared.
PLAIN = (type(None), bool, int, float, str, torch.dtype)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: What stands for an attribute that is not there.
GONE = torch.nn.Module()


class NoTrace(Exception):
    """Says in a few words why a forward stays as it is."""


@dataclass(frozen=True)
class ForwardCall:
    """How a forward is called: ``torch.Tensor`` where a tensor is, else the very value."""

    given: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, given: Sequence[Any], named: Mapping[str, Any]) -> ForwardCall:
        """Raises NoTrace."""
        return cls(tuple(map(_kind, given)), tuple((n, _kind(named[n])) for n in sorted(named)))

    def tensors(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
        """The tensors of a call; None for a call of another kind."""
        if len(given) != len(self.given) or len(named) != len(self.named):
            return None
        pairs = list(zip(self.given, given, strict=True))
        for name, kind in self.named:
            if name not in named:
                return None
            pairs.append((kind, named[name]))
        found = []
        for kind, value in pairs:
            if kind is torch.Tensor:
                if type(value) not in (torch.Tensor, torch.nn.Parameter):
                    return None
                found.append(value)
            elif type(value) is not type(kind) or value != kind:
                return None
        return found


def _kind(value: Any) -> Any:
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return torch.Tensor
    if isinstance(value, PLAIN):
        return value
    raise NoTrace(f"it is called with a {type(value).__name__}")


@dataclass(frozen=True)
class TraceGuard:
    """Values of attributes, and classes of children, that a trace took for granted."""

    values: tuple[tuple[str, Any], ...]
    children: tuple[tuple[str, type], ...] = ()

    def holds(self, module: torch.nn.Module) -> bool:
        for path, value in self.values:
            now = module
            for name in path.split("."):
                now = getattr(now, name, GONE)
            if type(now) is not type(value) or now != value:
                return False
        for path, kind in self.children:
            child = getattr(module, path, None)
            if type(child) is not kind or any(getattr(child, name) for name in HOOKS):
                return False
        return True
