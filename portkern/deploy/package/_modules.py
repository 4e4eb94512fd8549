"""Modules that call a library's operators: their class is another, all else is their own.

A class survives what a changed ``forward`` of an instance does not: deepcopy, pickle, weights that
are replaced, ``isinstance`` and ``state_dict``.
"""

from __future__ import annotations

import copy
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import _finder, _functions, _graph, _text
from ._call import ForwardCall, NoTrace, TraceGuard
from ._match import GraphMatch

#: Operators that a compiler fuses with what is around: there they are never replaced.
FUSED = frozenset({"add", "bias_gelu", "gelu", "relu", "silu_mul"})
Called = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Plan:
    """Which operators of which library a module calls. ``call`` is how a traced forward is called,
    ``seen`` the sizes in it, and ``taken`` which of the calls in it are replaced. ``compiled``:
    under ``torch.compile`` too."""

    library: str
    operators: tuple[str, ...]
    call: ForwardCall | None = None
    seen: tuple[Any, ...] = ()
    taken: tuple[int, ...] = ()
    compiled: bool = False


@dataclass(frozen=True)
class Known:
    """A class of torch's whose forward is one operator, or ``biased`` where it has a bias.
    ``refuse`` says why a module's is not, or ''; ``make`` has of the operator and of the class's
    own forward the new one."""

    operator: str
    refuse: Callable[[Any], str]
    make: Callable[[Any, Any], Callable[..., Any]]
    biased: str = ""

    def operator_of(self, module: Any) -> str:
        return self.biased if self.biased and module.bias is not None else self.operator


def _one_axis(module: Any) -> str:
    if len(module.normalized_shape) != 1:
        return f"it is over {len(module.normalized_shape)} axes"
    lacking = [name for name in ("weight", "bias") if getattr(module, name, module) is None]
    return f"it has no {lacking[0]}" if lacking else ""


def _layer_norm(called: Any, own: Any) -> Any:
    del own
    return lambda self, input: called(input, self.weight, self.bias, self.eps)


def _rms_norm(called: Any, own: Any) -> Any:
    del own

    def forward(self: Any, x: Any) -> Any:
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return called(x, self.weight, eps)

    return forward


def _activation(called: Any, own: Any) -> Any:
    del own
    return lambda self, input: called(input)


def _softmax(called: Any, own: Any) -> Any:
    def forward(self: Any, input: Any) -> Any:
        last = self.dim in (-1, input.dim() - 1)
        return called(input) if last and input.dim() else own(self, input)

    return forward


def _linear(called: Any, own: Any) -> Any:
    takes = len(called._schema.arguments) if hasattr(called, "_schema") else 0

    def forward(self: Any, input: Any) -> Any:
        given = (input, self.weight) if self.bias is None else (input, self.weight, self.bias)
        # One that lost its bias, or got one, is another operator's.
        return called(*given) if takes in (0, len(given)) else own(self, input)

    return forward


def _embedding(called: Any, own: Any) -> Any:
    del own
    return lambda self, input: called(self.weight, input)


def _cross_entropy(called: Any, own: Any) -> Any:
    def forward(self: Any, input: Any, target: Any) -> Any:
        made = _functions.reduced(self.reduction)
        return made(called, lambda *given: own(self, *given))(input, target)

    return forward


def _conv2d(called: Any, own: Any) -> Any:
    def forward(self: Any, input: Any) -> Any:
        if input.dim() != 4:
            return own(self, input)
        return called(input, self.weight, self.bias, self.stride[0], self.padding[0])

    return forward


def _maxpool2d(called: Any, own: Any) -> Any:
    def forward(self: Any, input: Any) -> Any:
        if input.dim() != 4:
            return own(self, input)
        window, stride, padding = (
            _side(one) for one in (self.kernel_size, self.stride, self.padding)
        )
        return called(input, window, stride, padding)

    return forward


def _side(size: Any) -> int:
    """The one length of a square, or 0."""
    sides = {size} if isinstance(size, int) else {*size} if isinstance(size, tuple) else {0}
    return int(sides.pop()) if len(sides) == 1 else 0


def _conv_refused(module: Any) -> str:
    if module.groups != 1 or {*module.dilation} != {1} or module.padding_mode != "zeros":
        return "it has groups, dilation or a padding of its own"
    square = _side(module.stride) and isinstance(module.padding, tuple)
    if not square or len({*module.padding}) != 1:
        return "its stride or padding differs between the axes"
    return "it has no bias" if module.bias is None else ""


def _pool_refused(module: Any) -> str:
    if module.return_indices or module.ceil_mode or _side(module.dilation) != 1:
        return "it gives indices, rounds up or has dilation"
    square = _side(module.kernel_size) and _side(module.stride)
    square = square and (_side(module.padding) or module.padding in (0, (0, 0)))
    return "" if square else "its window, stride or padding differs between the axes"


def _embedding_refused(module: Any) -> str:
    odd = [name for name in ("padding_idx", "max_norm") if getattr(module, name) is not None]
    odd += [name for name in ("scale_grad_by_freq", "sparse") if getattr(module, name)]
    return f"it has {odd[0]}" if odd else ""


def _loss_refused(module: Any) -> str:
    odd = module.weight is not None or module.ignore_index != -100 or module.label_smoothing
    return "it has weights, smoothing or an ignored index of its own" if odd else ""


KNOWN: Mapping[type, Known] = {
    nn.LayerNorm: Known("layernorm", _one_axis, _layer_norm),
    nn.RMSNorm: Known("rmsnorm", _one_axis, _rms_norm),
    nn.ReLU: Known("relu", lambda m: "it works in place" if m.inplace else "", _activation),
    nn.GELU: Known(
        "gelu", lambda m: "" if m.approximate == "none" else "it is tanh's", _activation
    ),
    nn.Softmax: Known("softmax", lambda m: "it has no dim" if m.dim is None else "", _softmax),
    nn.Linear: Known("linear", lambda m: "", _linear, "linear_bias"),
    nn.Embedding: Known("embedding", _embedding_refused, _embedding),
    nn.CrossEntropyLoss: Known("cross_entropy", _loss_refused, _cross_entropy),
    nn.Conv2d: Known("conv2d", _conv_refused, _conv2d),
    nn.MaxPool2d: Known("maxpool2d", _pool_refused, _maxpool2d),
}


# ---- Classes


class Applied:
    """The base of all classes that are made here."""

    portkern_plan: Plan
    portkern_own: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> Any:
        made: Any = super().__reduce_ex__(protocol)
        return _restored, (self.portkern_own, self.portkern_plan), *made[2:]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        kind: Any = type(self)
        memo[id(self)] = made = kind.__new__(kind)
        made.__setstate__(copy.deepcopy(super().__reduce_ex__(4)[2], memo))
        return made


def refused(module: nn.Module) -> str:
    """Why a module cannot have another class, or ''."""
    own = type(module)
    if isinstance(module, Applied):
        return f"it calls {module.portkern_plan.library} already"
    if "forward" in module.__dict__:
        return "its forward is its instance's own"
    if hasattr(module, "parametrizations"):
        return "its parameters are computed by parametrizations"
    if isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        return "it is a compiled or traced module"
    ways = ("__reduce__", "__reduce_ex__")
    if any(getattr(own, name) is not getattr(object, name) for name in ways):
        return "it is pickled in a way of its own"
    if hasattr(own, "__deepcopy__") or (
        hasattr(own, "__init_subclass__")
        and ("__init_subclass__" in {name for one in own.__mro__[:-1] for name in vars(one)})
    ):
        return "its class is copied or derived from in a way of its own"
    if own.__call__ is not nn.Module.__call__ or type(own) is not type:
        return "its class is called or made in a way of its own"
    return ""


@dataclass(frozen=True)
class TracedForward:
    """A forward's graph, what it takes for granted, and what in it is one of the operators.
    ``seen``: name, sizes and dtype of what its nodes gave."""

    graph: torch.fx.Graph
    guard: TraceGuard
    matches: tuple[GraphMatch, ...]
    values: Mapping[Any, Any]
    seen: tuple[Any, ...]


def trace(module: nn.Module, call: ForwardCall, tensors: list[Any]) -> TracedForward:
    """``tensors`` are what a call gave the module. Raises NoTrace."""
    guard, graph = _read(module, call)
    values = _graph.values(module, graph, tensors)
    seen = tuple(
        (node.name, tuple(one.shape), one.dtype)
        if isinstance(one, torch.Tensor)
        else (node.name, tuple(one), None)
        for node, one in values.items()
        if isinstance(one, torch.Tensor | torch.Size)
    )
    return TracedForward(graph, guard, tuple(_finder.matches(module, graph, values)), values, seen)


def trace_again(module: nn.Module, plan: Plan) -> TracedForward:
    """Traces the module anew without a call, from the sizes that one had. Raises NoTrace."""
    assert plan.call is not None
    guard, graph = _read(module, plan.call)
    known = {
        name: torch.Size(shape) if dtype is None else torch.empty(shape, dtype=dtype, device="meta")
        for name, shape, dtype in plan.seen
    }
    values = {node: known.get(node.name) for node in graph.nodes}
    found = tuple(_finder.matches(module, graph, values))
    if any(place >= len(found) for place in plan.taken):
        raise NoTrace("its forward is another one now")
    return TracedForward(graph, guard, found, values, plan.seen)


def _read(module: nn.Module, call: ForwardCall) -> tuple[TraceGuard, torch.fx.Graph]:
    reason, guard = _text.unseen(module, call)
    if reason:
        raise NoTrace(reason)
    return guard, _graph.traced(module, call)


#: One class for all modules that would have equal ones: a compiler looks at classes.
_classes: dict[Any, type[nn.Module]] = {}


def known_class(own: type[nn.Module], plan: Plan, called: Called) -> type[nn.Module]:
    known = KNOWN[own]
    return _class(own, plan, known.make(called[plan.operators[0]], own.forward), ())


def traced_class(
    module: nn.Module, plan: Plan, called: Called, found: TracedForward
) -> type[nn.Module]:
    own: Any = type(module)
    call = plan.call
    assert call is not None
    taken = [found.matches[place] for place in plan.taken]
    guard = TraceGuard(
        found.guard.values, tuple(child for match in taken for child in match.children)
    )
    pairs = [(match, called[match.operator]) for match in taken]
    text = str(found.graph)
    inner = _graph.rewritten(module, found.graph, pairs)

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        tensors = call.tensors(given, named)
        if tensors is None or not guard.holds(self) or _autocast(tensors):
            return own.forward(self, *given, **named)
        return inner(self, *tensors)

    return _class(own, plan, forward, (guard, text))


def asks(module: nn.Module, guard: TraceGuard, call: ForwardCall, given: Any, named: Any) -> bool:
    """Whether a call is one that the trace stands for."""
    tensors = call.tensors(given, named)
    return tensors is not None and guard.holds(module) and not _autocast(tensors)


def _autocast(tensors: list[Any]) -> bool:
    """Whether parts of a formula would be of other dtypes than the whole."""
    return bool(tensors) and torch.is_autocast_enabled(tensors[0].device.type)


def _class(own: type[nn.Module], plan: Plan, forward: Any, more: Any) -> type[nn.Module]:
    def chosen(self: Any, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return own.forward(self, *given, **named)
        return forward(self, *given, **named)

    key = own, plan, more
    if key not in _classes:
        body = {"forward": forward if plan.compiled else chosen}
        body |= {"portkern_plan": plan, "portkern_own": own, "__doc__": own.__doc__}
        body |= {"__module__": own.__module__, "__qualname__": own.__qualname__}
        _classes[key] = types.new_class(
            own.__name__, (Applied, own), None, lambda s: s.update(body)
        )
    return _classes[key]


def calls(library: str, wanted: Any) -> Called:
    """The operators of a library that is imported, by name. Raises AttributeError."""
    space = getattr(torch.ops, library)
    return {name: getattr(space, name).default for name in wanted}


# ---- Copies and files


def _restored(own: type[nn.Module], plan: Plan) -> nn.Module:
    """A module whose state follows; ``pickle`` and ``deepcopy`` call it."""
    waiting: Any = types.new_class(own.__name__, (_Waiting, own))
    waiting.portkern_plan, waiting.portkern_own = plan, own
    made: nn.Module = waiting.__new__(waiting)
    return made


class _Waiting:
    def __setstate__(self, state: Any) -> None:
        made: Any = self
        plan, own = made.portkern_plan, made.portkern_own
        made.__class__ = own
        if hasattr(own, "__setstate__"):
            made.__setstate__(state)
        else:
            made.__dict__.update(state)
        try:
            again(made, plan)
        except (AttributeError, NoTrace, RuntimeError) as error:
            warnings.warn(
                f"A {own.__name__} keeps its own forward: {error or type(error).__name__}; import "
                f"{plan.library} before the model is loaded",
                stacklevel=2,
            )


def again(module: nn.Module, plan: Plan) -> None:
    """Gives a module the class of what it is a copy of. Raises AttributeError where the library is
    not imported, and NoTrace."""
    called = calls(plan.library, plan.operators)
    if plan.call is None:
        module.__class__ = known_class(type(module), plan, called)
    else:
        module.__class__ = traced_class(module, plan, called, trace_again(module, plan))


def undo(model: nn.Module) -> int:
    """Gives all modules of a model, or of a copy of one, their own classes; how many that were."""
    found = [one for one in model.modules() if isinstance(one, Applied)]
    for one in found:
        one.__class__ = one.portkern_own  # type: ignore[assignment]
    return len(found)
