"""Runs a model so that it is afterwards what it was: buffers, attributes, random numbers."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


class ModelState:
    """Keeps what a model's forward may change: buffers, and attributes beside its parameters."""

    _TABLES = ("_parameters", "_modules", "_buffers")

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.versions = {name: one._version for name, one in model.named_parameters()}
        memo: dict[int, Any] = {id(one): one for one in (*model.parameters(), *model.modules())}
        self.kept = []
        for module in model.modules():
            plain = {n: v for n, v in module.__dict__.items() if n not in self._TABLES}
            plain = {n: v for n, v in plain.items() if not n.endswith("_hooks")}
            copies = {name: _copy(value, memo) for name, value in plain.items()}
            buffers = {n: (b, None if b is None else b.clone()) for n, b in module._buffers.items()}
            self.kept.append((module, plain, copies, buffers))

    def restore(self) -> None:
        with torch.no_grad():
            for module, plain, copies, buffers in self.kept:
                for name in [*module.__dict__]:
                    new = name not in plain and name not in self._TABLES
                    if new and not name.endswith("_hooks"):
                        del module.__dict__[name]
                for name, value in plain.items():
                    _put_back(value, copies[name])
                    module.__dict__[name] = value
                for name in [*module._buffers]:
                    if name not in buffers:
                        del module._buffers[name]
                for name, (tensor, saved) in buffers.items():
                    module._buffers[name] = tensor
                    if tensor is not None and saved is not None:
                        tensor.copy_(saved)

    @property
    def changed(self) -> list[str]:
        """Parameters that were written to."""
        now = {name: one._version for name, one in self.model.named_parameters()}
        return [name for name in self.versions if now.get(name) != self.versions[name]]


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """Returns a copy, or the value where it cannot be copied."""
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - an attribute may be anything: a lock, a process group
        return value


def _put_back(value: Any, saved: Any) -> None:
    """The contents of what may have changed, in the very object."""
    if value is saved:
        return
    if isinstance(value, list | deque):
        value.clear()
        value.extend(copy.copy(saved))
    elif isinstance(value, dict | set):
        value.clear()
        value.update(saved)
    elif isinstance(value, torch.Tensor) and value.shape == saved.shape:
        value.copy_(saved)


def copied(tree: Any) -> Any:
    return pytree.tree_map(
        lambda one: one.detach().clone() if type(one) in (torch.Tensor, nn.Parameter) else one, tree
    )


def run_model(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any], *, training: bool
) -> list[torch.Tensor]:
    """The tensors that a model gives, with ``training`` also its parameters' gradients; random
    numbers are the same each time, and the process's own go on where they were."""
    given, named = copied(tuple(given)), copied(dict(named))
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices), torch.set_grad_enabled(training):
        torch.manual_seed(0)
        made = pytree.tree_leaves(model(*given, **named))
        found = [one for one in made if isinstance(one, torch.Tensor)]
        if training:
            found += gradients(found, [p for p in model.parameters() if p.requires_grad])
    return [one.detach().clone() for one in found]


def gradients(made: Sequence[torch.Tensor], wanted: Sequence[Any]) -> list[torch.Tensor]:
    """Returns those of a sum with weights that differ, without inputs that have none."""
    total: Any = 0.0
    for one in made:
        if one.is_floating_point() and one.requires_grad:
            weights = torch.linspace(-1, 1, max(one.numel(), 1), device=one.device)
            total = total + (one.float() * weights[: one.numel()].view(one.shape)).sum()
    if not isinstance(total, torch.Tensor) or not wanted:
        return []
    found = torch.autograd.grad(total, [*wanted], allow_unused=True)
    return [one for one in found if one is not None]
