"""The calls of operators in a model's forwards, on a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from . import _modules
from ._call import ForwardCall, NoTrace
from ._modules import KNOWN
from ._report import Kept
from ._running import ModelState, copied, run_model


@dataclass(eq=False)
class Site:
    """One call of an operator that a module's forward has or is. ``tensors`` are those of the
    sample, ``place`` counts the calls of a traced forward, and ``check`` is what it asks first."""

    operator: str
    tensors: list[torch.Tensor]
    theirs: Callable[..., Any]
    ours: Callable[[Any], Callable[..., Any]]
    key: Any
    place: int | None = None
    check: Callable[[], object] = bool

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Raises NoTrace where the module's own forward is called all the same."""
        found: list[tuple[Any, ...]] = []

        def asked(*given: Any) -> Any:
            found.append(given)
            raise _AskedError

        with suppress(_AskedError):
            self.ours(asked)(*self.tensors)
        if not found:
            raise NoTrace("these inputs are not for the operator")
        return found[0]


class _AskedError(Exception):
    pass


@dataclass(eq=False)
class Used:
    """A module and the first call of it on the sample."""

    module: nn.Module
    names: tuple[str, ...]
    calls: int = 0
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    traced: _modules.TracedForward | None = None
    call: ForwardCall | None = None

    @property
    def kind(self) -> str:
        return type(self.module).__name__


def sites(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[Used | Kept]:
    """The modules that the sample calls, with the calls of operators in its forward, or why none
    is. Modules of torch's own that are none of them are left out."""
    state = ModelState(model)
    used = _observed(model, given, named, state)
    for one in used:
        reason = _modules.refused(one.module)
        known = KNOWN.get(type(one.module))
        if known is None and type(one.module).__module__.startswith("torch."):
            continue
        reason = reason or ("" if one.calls else "the sample does not call it")
        if not reason:
            try:
                if known:
                    reason = known.refuse(one.module)
                    one.sites = [] if reason else [_of_known(one)]
                else:
                    _of_traced(one)
                    reason = "" if one.sites else "nothing in its forward is one of the operators"
            except NoTrace as error:
                reason = str(error)
            finally:
                state.restore()
        yield Kept(one.names, one.kind, reason) if reason else one


def _observed(
    model: nn.Module, given: Sequence[Any], named: Mapping[str, Any], state: ModelState
) -> list[Used]:
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    used = {id(one): Used(one, tuple(names[id(one)])) for one in model.modules()}

    def seen(module: nn.Module, given: Any, named: Any) -> None:
        one = used[id(module)]
        if not one.calls:
            one.given, one.named = copied(given), copied(named)
        one.calls += 1

    hooks = [one.module.register_forward_pre_hook(seen, with_kwargs=True) for one in used.values()]
    try:
        run_model(model, given, named, training=False)
    finally:
        for hook in hooks:
            hook.remove()
        state.restore()
    return list(used.values())


def _of_known(one: Used) -> Site:
    """Raises NoTrace for a call that no forward of the operators takes."""
    own: Any = type(one.module)
    given = [*one.given, *one.named.values()]
    if not given or not all(type(tensor) is torch.Tensor for tensor in given):
        raise NoTrace("it is called with something else than tensors")
    known, bare = KNOWN[own], own.__new__(own)
    bare.__dict__.update(one.module.__dict__, _parameters=dict(one.module._parameters))
    names = [name for name, value in one.module._parameters.items() if value is not None]

    def of(forward: Any) -> Callable[..., Any]:
        def run(*tensors: Any) -> Any:
            bare._parameters.update(zip(names, tensors[len(given) :], strict=True))
            return forward(bare, *tensors[: len(given)])

        return run

    tensors = [*given, *(one.module._parameters[name] for name in names)]
    operator = known.operator_of(one.module)
    return Site(
        operator,
        [tensor.detach() for tensor in tensors if tensor is not None],
        of(own.forward),
        lambda called: of(known.make(called, own.forward)),
        (own, operator),
    )


def _of_traced(one: Used) -> None:
    call = ForwardCall.of(one.given, one.named)
    tensors = call.tensors(one.given, one.named)
    assert tensors is not None
    with torch.no_grad():
        found = _modules.trace(one.module, call, tensors)
    one.traced, one.call = found, call
    for place, match in enumerate(found.matches):
        inputs = [found.values[node].detach() for node in match.inputs]
        words = tuple(str(node.target) for node in match.nodes)
        check = partial(_modules.asks, one.module, found.guard, call, one.given, one.named)
        one.sites.append(
            Site(match.operator, inputs, match.theirs, match.ours, words, place, check)
        )
