"""A module's own forward as a graph, and the operators that calls in it are equal to.

A trace sees one way through a forward. Only forwards in which nothing else can happen are taken:
:func:`unseen` says what stands against it, and :class:`Guard` is asked at each call.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import fx
from torch.nn import functional as F

Node = fx.Node
_PLAIN = (type(None), bool, int, float, str, torch.dtype)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class NoTrace(Exception):
    """Says in a few words why a forward stays as it is."""


@dataclass(frozen=True)
class Call:
    """How a forward is called: ``torch.Tensor`` where a tensor is, else the very value."""

    given: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, given: Sequence[Any], named: Mapping[str, Any]) -> Call:
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
    if isinstance(value, _PLAIN):
        return value
    raise NoTrace(f"it is called with a {type(value).__name__}")


@dataclass(frozen=True)
class Guard:
    """Values of attributes, and classes of children, that a trace took for granted."""

    values: tuple[tuple[str, Any], ...]
    children: tuple[tuple[str, type], ...] = ()

    def holds(self, module: torch.nn.Module) -> bool:
        for path, value in self.values:
            now = module
            for name in path.split("."):
                now = getattr(now, name, _GONE)
            if type(now) is not type(value) or now != value:
                return False
        for path, kind in self.children:
            child = getattr(module, path, None)
            if type(child) is not kind or any(getattr(child, name) for name in _HOOKS):
                return False
        return True


_GONE = torch.nn.Module()


# ---- What a trace would not see


def unseen(module: torch.nn.Module, call: Call) -> tuple[str, Guard]:
    """Why a trace of the forward could say less than its code, or '', and what it takes for
    granted."""
    reader = _Reader(module)
    try:
        reader.function(type(module).forward, call)
    except NoTrace as error:
        return str(error), Guard(())
    return "", Guard(tuple(sorted(reader.values.items(), key=lambda one: one[0])))


class _Reader:
    """Reads the text of a forward and of the functions that it calls."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.values: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.local: set[str] = set()
        self.fixed: set[str] = set()
        self.own = ""

    def function(self, function: Any, call: Call) -> None:
        if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
            raise NoTrace("its forward is not a plain function")
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, TypeError, SyntaxError, IndexError) as error:
            raise NoTrace("the text of its forward is not to be had") from error
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
            raise NoTrace("its forward is decorated")
        taken = tree.args
        if taken.vararg or taken.kwarg:
            raise NoTrace("its forward takes any arguments")
        closed = inspect.getclosurevars(function)
        self.names = {**closed.builtins, **function.__globals__, **closed.nonlocals}
        arguments = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
        self.own = arguments[0] if arguments else ""
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _stored(n)}
        self.local = {*arguments[1:], *stored}
        given = dict(zip(arguments[1:], call.given, strict=False)) | dict(call.named)
        defaults = {
            name: value.default
            for name, value in inspect.signature(function).parameters.items()
            if value.default is not value.empty
        }
        known = {**defaults, **given}
        self.fixed = {name for name in known if known[name] is not torch.Tensor} - stored
        # That an argument is None is known, as it is of the same kind in each call.
        self.asked = {*arguments[1:]} - stored
        for statement in tree.body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.target(target)
                self.expression(value)
            case ast.AnnAssign(target=target, value=optional):
                self.target(target)
                if optional is not None:
                    self.expression(optional)
            case ast.Return(value=optional):
                if optional is not None:
                    self.expression(optional)
            case ast.If(test=test, body=body, orelse=orelse):
                self.decided(test)
                for one in (*body, *orelse):
                    self.statement(one)
            case _:
                raise NoTrace(f"its forward has {_named(node)}")

    def target(self, node: ast.expr) -> None:
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        if not all(isinstance(part, ast.Name) for part in parts):
            raise NoTrace("its forward stores into something")

    def decided(self, node: ast.expr) -> None:
        """A condition that is the same for all calls of one kind."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]
            ) if name in self.asked:
                return
            case ast.BoolOp(values=values):
                for one in values:
                    self.decided(one)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.decided(operand)
            case ast.Compare(left=left, comparators=others):
                for one in (left, *others):
                    self.decided(one)
            case ast.Constant():
                return
            case ast.Name(id=name) if name in self.fixed:
                return
            case ast.Attribute() if self.path(node):
                self.attribute(self.path(node))
            case _:
                raise NoTrace("its forward depends on a condition")

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                return
            case ast.Name(id=name):
                if name not in self.local and name != self.own:
                    raise NoTrace(f"its forward reads {name!r}, which may change")
            case ast.Attribute():
                self.read(node)
            case ast.Call():
                self.called(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.decided(test)
                self.expression(body)
                self.expression(orelse)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.Subscript()
                | ast.Slice()
                | ast.Tuple()
                | ast.List()
                | ast.Dict()
            ):
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.expression(child)
            case _:
                raise NoTrace(f"its forward has {_named(node)}")

    def path(self, node: ast.expr) -> str:
        """``a.b`` of ``self.a.b``, else ''."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        return (
            ".".join(reversed(names)) if isinstance(node, ast.Name) and node.id == self.own else ""
        )

    def read(self, node: ast.Attribute) -> None:
        if path := self.path(node):
            self.attribute(path)
        elif (found := self.outer(node)) is not None:
            if not isinstance(found, (torch.dtype, float)):
                raise NoTrace(f"its forward reads {ast.unparse(node)}, which may change")
        else:
            self.expression(node.value)

    def attribute(self, path: str) -> None:
        """A child, a parameter or a buffer is read at each call; of others the value is kept."""
        value: Any = self.module
        for name in path.split("."):
            if isinstance(value, torch.Tensor):
                return  # x.dtype, x.shape: of a tensor that the trace knows
            if not isinstance(inspect.getattr_static(type(value), name, None), _SLOTS):
                raise NoTrace(f"its attribute {path!r} is computed")
            value = getattr(value, name, _GONE)
        if value is _GONE:
            raise NoTrace(f"it has no attribute {path!r}")
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return
        if isinstance(value, _PLAIN) or (
            isinstance(value, tuple) and all(isinstance(one, _PLAIN) for one in value)
        ):
            self.values[path] = value
            return
        raise NoTrace(f"its attribute {path!r} is a {type(value).__name__}")

    def outer(self, node: ast.expr) -> Any:
        """Returns what a name of the surrounding module leads to, else None."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local or node.id == self.own else self.names.get(node.id)
        if isinstance(node, ast.Attribute) and (parent := self.outer(node.value)) is not None:
            return getattr(parent, node.attr, None) if inspect.ismodule(parent) else None
        return None

    def called(self, node: ast.Call) -> None:
        inner = [*node.args, *(one.value for one in node.keywords)]
        for one in inner:
            self.expression(one)
        if path := self.path(node.func):
            child: Any = self.module
            for name in path.split("."):
                child = getattr(child, name, None)
            if not isinstance(child, torch.nn.Module):
                raise NoTrace(f"its forward calls its own {path!r}")
            return
        function = self.outer(node.func)
        if function is None:
            if isinstance(node.func, ast.Attribute):
                self.expression(node.func.value)  # a method of a tensor
                return
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r}")
        if not _of_torch(function):
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r}")
        seen = {n.id for one in inner for n in ast.walk(one) if isinstance(n, ast.Name)}
        if not seen & self.local and not function.__module__ == "math":
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r} without a tensor")


#: What a class has under the name of an attribute that an instance keeps.
_SLOTS = (type(None), *_PLAIN, tuple)


def _of_torch(function: Any) -> bool:
    place = str(getattr(function, "__module__", None) or "")
    return (callable(function) and (place in ("torch", "math") or place.startswith("torch."))) or (
        isinstance(function, types.BuiltinFunctionType) and place in ("", "torch._C._nn")
    )


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _named(node: ast.AST) -> str:
    known = {
        ast.For: "a loop",
        ast.While: "a loop",
        ast.With: "a context",
        ast.AugAssign: "a change in place",
        ast.Expr: "a statement without a result",
        ast.Try: "a handler of errors",
        ast.Raise: "an error of its own",
        ast.Assert: "an assertion",
    }
    return known.get(type(node), f"a {type(node).__name__}")


# ---- The trace


class _Tracer(fx.Tracer):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        number = iter(range(100))

        def one(kind: Any) -> Any:
            if kind is not torch.Tensor:
                return kind
            return self.create_proxy("placeholder", f"given_{next(number)}", (), {})

        given = [one(kind) for kind in self._call.given]
        named = {name: one(kind) for name, kind in self._call.named}
        return (lambda *taken: root_fn(*taken, **named)), [self.root, *given]


def traced(module: torch.nn.Module, call: Call) -> fx.Graph:
    """Raises NoTrace."""
    try:
        graph = _Tracer(call).trace(module)
    except Exception as error:  # whatever a user's forward raises for a stand-in of a tensor
        raise NoTrace(f"it cannot be traced: {str(error).splitlines()[0][:80]}") from error
    for node in graph.nodes:
        if _in_place(node):
            raise NoTrace("its forward changes a tensor in place")
        if node.op == "get_attr" and str(node.target).startswith("_tensor_constant"):
            raise NoTrace("its forward makes a tensor of its own")
    return graph


def _in_place(node: Node) -> bool:
    if node.op == "call_method":
        return str(node.target).endswith("_")
    if node.op != "call_function":
        return False
    name = getattr(node.target, "__name__", "")
    changed = node.target in _CHANGING or (name.endswith("_") and not name.endswith("__"))
    return changed or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True


_CHANGING = {
    operator.setitem,
    *(
        getattr(operator, name)
        for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imatmul", "ipow", "iand")
    ),
}


class _Values(fx.Interpreter):
    """Runs a graph and keeps what each node gave."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        self.values[n] = made = super().run_node(n)
        return made


def values(module: torch.nn.Module, graph: fx.Graph, tensors: Sequence[Any]) -> dict[Node, Any]:
    ran = _Values(fx.GraphModule(module, graph))
    ran.run(*tensors)
    return ran.values


# ---- What calls are equal to


@dataclass(frozen=True, eq=False)
class Match:
    """``nodes`` are what one call of ``operator`` stands for, the last gives the result; ``inputs``
    is what the call gets; ``children`` are modules among the nodes."""

    operator: str
    nodes: tuple[Node, ...]
    inputs: tuple[Any, ...]
    make: Callable[[Any, Any], Any]
    children: tuple[tuple[str, type], ...] = ()

    @property
    def theirs(self) -> Callable[..., Any]:
        """The nodes as a function of the inputs."""
        graph = fx.Graph()
        known = {node: graph.placeholder(f"x{place}") for place, node in enumerate(self.inputs)}
        for node in self.nodes:
            if node.op == "call_module":
                arguments = tuple(known[one] for one in node.args if isinstance(one, Node))
                known[node] = graph.call_function(F.silu, arguments)
            else:
                known[node] = graph.node_copy(node, lambda one: known[one])
        graph.output(known[self.nodes[-1]])
        return fx.GraphModule(torch.nn.Module(), graph)

    def ours(self, called: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = self.make(called, self.theirs)
        return made


def _plainly(called: Any, theirs: Any) -> Any:
    del theirs
    return called


@dataclass
class _Finder:
    module: torch.nn.Module
    values: Mapping[Any, Any]
    found: list[Match] = field(default_factory=list)
    used: set[Node] = field(default_factory=set)

    def all(self, graph: fx.Graph) -> list[Match]:
        # From the end: what several nodes stand for goes before a part of it.
        for node in reversed(list(graph.nodes)):
            if node in self.used:
                continue
            for match in self.of(node):
                if not self.used & {*match.nodes} and self.fits(match):
                    self.found.append(match)
                    self.used |= {*match.nodes}
                    break
        return list(reversed(self.found))

    def fits(self, match: Match) -> bool:
        """Whether a match can be replaced: all inputs are tensors, nobody else reads what is
        between, and nothing that may change a tensor in place happens there."""
        inner, known = {*match.nodes[:-1]}, {*match.nodes, *match.inputs}
        if any(one not in known for node in match.nodes for one in node.all_input_nodes):
            return False
        if any(user not in match.nodes for node in inner for user in node.users):
            return False
        if not all(isinstance(self.values.get(one), torch.Tensor) for one in match.inputs):
            return False
        node = match.nodes[0]
        while node is not match.nodes[-1]:
            if node.op == "call_module" and node not in inner and not self.quiet(node):
                return False
            node = node.next
        return True

    def quiet(self, node: Node) -> bool:
        """Modules of torch's own, which change nothing in place."""
        return all(
            type(one).__module__.startswith("torch.nn.modules.")
            and not getattr(one, "inplace", False)
            and not any(getattr(one, name) for name in _HOOKS)
            for one in self.module.get_submodule(str(node.target)).modules()
        )

    def of(self, node: Node) -> Iterator[Match]:
        yield from self.silu_mul(node)
        yield from self.rmsnorm(node)
        yield from self.bias_gelu(node)
        rule = _RULES.get(node.target) if node.op in ("call_function", "call_method") else None
        if rule is None or (node.op == "call_method") != isinstance(node.target, str):
            return
        names, find = rule
        arguments = _bound(node, names)
        if arguments is not None and (made := find(self, arguments)) is not None:
            operator_name, inputs, make = made
            if all(isinstance(one, Node) for one in inputs):
                yield Match(operator_name, (node,), tuple(inputs), make)

    # ---- several nodes

    def silu(self, node: Any) -> tuple[Any, tuple[Node, ...], tuple[tuple[str, type], ...]] | None:
        """The input, the nodes and the child of what is silu of something."""
        if not isinstance(node, Node):
            return None
        if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
            child = self.module.get_submodule(str(node.target))
            plain = (
                type(child) is torch.nn.SiLU and not child.inplace and "." not in str(node.target)
            )
            if (
                plain
                and not any(getattr(child, name) for name in _HOOKS)
                and "forward" not in child.__dict__
            ):
                return node.args[0], (node,), ((str(node.target), torch.nn.SiLU),)
        if node.target is F.silu and (said := _bound(node, ("input", "inplace"))):
            return (said["input"], (node,), ()) if not said.get("inplace") else None
        if pair := _product(node):
            for one, other in (pair, pair[::-1]):
                if _is(other, (torch.sigmoid, F.sigmoid, "sigmoid")) and other.args == (one,):
                    return one, (other, node), ()
        return None

    def silu_mul(self, node: Node) -> Iterator[Match]:
        pair = _product(node)
        for gate, up in (pair, pair[::-1]) if pair else ():
            if (said := self.silu(gate)) and isinstance(up, Node) and isinstance(said[0], Node):
                x, inner, children = said
                a, b = self.values.get(x), self.values.get(up)
                if (
                    isinstance(a, torch.Tensor)
                    and isinstance(b, torch.Tensor)
                    and a.shape == b.shape
                ):
                    yield Match("silu_mul", _ordered((*inner, node)), (x, up), _alike, children)

    def bias_gelu(self, node: Node) -> Iterator[Match]:
        said = _bound(node, ("input", "approximate")) if node.target is F.gelu else None
        if not said or said.get("approximate", "none") != "none":
            return
        added = said["input"]
        if (
            isinstance(added, Node)
            and added.target in (operator.add, torch.add)
            and len(added.args) == 2
            and not added.kwargs
        ):
            for x, bias in (added.args, added.args[::-1]):
                if isinstance(x, Node) and self.vector(bias):
                    yield Match("bias_gelu", (added, node), (x, bias), _alike)

    def vector(self, node: Any) -> bool:
        """Whether it is a parameter or a buffer of one dimension."""
        one = self.values.get(node) if isinstance(node, Node) and node.op == "get_attr" else None
        return isinstance(one, torch.Tensor) and one.dim() == 1

    def rmsnorm(self, node: Node) -> Iterator[Match]:
        """x * rsqrt(mean(x²) + eps) * weight, in any of the ways that it is written."""
        pair = _product(node)
        for weight, scaled in (pair, pair[::-1]) if pair else ():
            if not self.vector(weight) or not isinstance(scaled, Node):
                continue
            inner: list[Node] = [node]
            if (said := self.normalised(_cast(scaled, inner), inner)) is None:
                continue
            x, eps = said
            own = self.values.get(x)
            if isinstance(own, torch.Tensor) and own.shape[-1:] == self.values[weight].shape:
                make = _with_eps(eps)
                yield Match("rmsnorm", _ordered(inner), (x, weight), make)

    def normalised(self, node: Node, inner: list[Node]) -> tuple[Node, float] | None:
        inner.append(node)
        pair = _product(node)
        for x, scale in (pair, pair[::-1]) if pair else ():
            tried = list(inner)
            if isinstance(scale, Node) and (under := _root(scale, tried)) is not None:
                said = self.mean_square(x, under, tried)
                if said is not None:
                    inner[:] = tried
                    return said
        if _is(node, (operator.truediv, torch.div)) and len(node.args) == 2:
            x, below = node.args
            if _is(below, (torch.sqrt, "sqrt")):
                inner.append(below)
                return self.mean_square(x, below.args[0], inner)
        return None

    def mean_square(self, x: Any, under: Any, inner: list[Node]) -> tuple[Node, float] | None:
        """The input and eps, where ``under`` is mean(x², -1) + eps."""
        if not isinstance(under, Node) or under.target not in (operator.add, torch.add, "add"):
            return None
        if len(under.args) != 2 or under.kwargs:
            return None
        mean, eps = under.args if isinstance(under.args[0], Node) else under.args[::-1]
        if not isinstance(eps, float) or not _is(mean, (torch.mean, "mean")):
            return None
        said = _bound(mean, ("input", "dim", "keepdim"))
        if not said or said.get("dim") not in (-1, (-1,), [-1]) or said.get("keepdim") is not True:
            return None
        squared = said["input"]
        if not isinstance(squared, Node) or (base := _squared(squared)) is None:
            return None
        inner += [under, mean, squared]
        wide: list[Node] = []
        known, first = _cast(x, wide), _cast(base, wide)
        if known is not first or not isinstance(known, Node):
            return None
        inner += [one for one in dict.fromkeys(wide) if one not in inner]
        return known, eps


def _root(node: Node, inner: list[Node]) -> Any:
    """Returns the term, where it is one over the square root of that."""
    if _is(node, (torch.rsqrt, "rsqrt")):
        inner.append(node)
        return node.args[0]
    if _is(node, (operator.pow, torch.pow, "pow")) and len(node.args) == 2 and node.args[1] == -0.5:
        inner.append(node)
        return node.args[0]
    if _is(node, (operator.truediv,)) and node.args[0] in (1, 1.0):
        below = node.args[1]
        if _is(below, (torch.sqrt, "sqrt")):
            inner += [node, below]
            return below.args[0]
    return None


def _squared(node: Node) -> Any:
    if (
        _is(node, (operator.pow, torch.pow, "pow"))
        and len(node.args) == 2
        and node.args[1] in (2, 2.0)
    ):
        return node.args[0]
    if _is(node, (torch.square, "square")):
        return node.args[0]
    pair = _product(node)
    return pair[0] if pair and pair[0] is pair[1] else None


def _cast(node: Any, inner: list[Node]) -> Any:
    """The tensor below conversions to float32 and back to an input's own dtype."""
    while _is(node, ("float", "to", "type_as")) and not node.kwargs:
        kind = node.args[1] if len(node.args) == 2 else None
        if node.target == "to" and _is(kind, (getattr,)) and kind.args[1] == "dtype":
            inner.append(kind)
        elif node.target == "to" and kind is not torch.float32:
            break
        inner.append(node)
        node = node.args[0]
    return node


def _product(node: Any) -> tuple[Any, Any] | None:
    if not _is(node, (operator.mul, torch.mul, "mul")) or len(node.args) != 2 or node.kwargs:
        return None
    return node.args


def _is(node: Any, targets: Sequence[Any]) -> TypeGuard[Node]:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return False
    return any(
        node.target is one or (isinstance(one, str) and node.target == one) for one in targets
    )


def _ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(sorted(dict.fromkeys(nodes)))


def _alike(called: Any, theirs: Any) -> Any:
    """Promotion of dtypes is the framework's own."""

    def run(*tensors: Any) -> Any:
        first, second = tensors
        return called(first, second) if first.dtype == second.dtype else theirs(first, second)

    return run


def _with_eps(eps: float) -> Any:
    def make(called: Any, theirs: Any) -> Any:
        def run(x: Any, weight: Any) -> Any:
            return called(x, weight, eps) if x.dtype == weight.dtype else theirs(x, weight)

        return run

    return make


# ---- One call each

_Said = Mapping[str, Any]
_Found = tuple[str, Sequence[Any], Callable[[Any, Any], Any]] | None


def _bound(node: Node, names: Sequence[str]) -> dict[str, Any] | None:
    """Arguments by name; None for one that is not known."""
    if len(node.args) > len(names) or {*node.kwargs} - {*names}:
        return None
    said = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return said if names[0] in said else None


def _softmax(finder: _Finder, said: _Said) -> _Found:
    del finder
    if said.get("dim") != -1 or said.get("dtype") is not None:
        return None
    return "softmax", [said["input"]], _plainly


def _last(name: str) -> Any:
    def find(finder: _Finder, said: _Said) -> _Found:
        del finder
        plain = said.get("dim") == -1 and not said.get("keepdim") and said.get("dtype") is None
        return (name, [said["input"]], _plainly) if plain else None

    return find


def _relu(finder: _Finder, said: _Said) -> _Found:
    del finder
    return None if said.get("inplace") else ("relu", [said["input"]], _plainly)


def _gelu(finder: _Finder, said: _Said) -> _Found:
    del finder
    return (
        ("gelu", [said["input"]], _plainly) if said.get("approximate", "none") == "none" else None
    )


def _over_last(finder: _Finder, said: _Said) -> bool:
    """Whether a normalisation is over the last axis, whatever the input's length."""
    shape, weight = said.get("normalized_shape"), finder.values.get(said.get("weight"))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1:
        return False
    if isinstance(shape, Node):
        sliced = _is(shape, (operator.getitem,)) and shape.args[1] == slice(-1, None, None)
        return sliced and finder.values[shape] == weight.shape
    return isinstance(shape, tuple | list) and tuple(shape) == tuple(weight.shape)


def _layer_norm(finder: _Finder, said: _Said) -> _Found:
    eps = said.get("eps", 1e-5)
    if not _over_last(finder, said) or not isinstance(eps, float) or said.get("bias") is None:
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        return lambda x, weight, bias: called(x, weight, bias, eps)

    return "layernorm", [said["input"], said["weight"], said["bias"]], make


def _rms_norm(finder: _Finder, said: _Said) -> _Found:
    eps = said.get("eps")
    if not _over_last(finder, said) or not isinstance(eps, float):
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        return lambda x, weight: called(x, weight, eps)

    return "rmsnorm", [said["input"], said["weight"]], make


def _attention(finder: _Finder, said: _Said) -> _Found:
    del finder
    plain = said.get("is_causal") is True and said.get("attn_mask") is None
    plain = plain and said.get("dropout_p", 0.0) == 0.0 and said.get("scale") is None
    if not plain or said.get("enable_gqa"):
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        # Heads are a view of what a projection gave; the race counts what it costs to copy them.
        return lambda q, k, v: called(q.contiguous(), k.contiguous(), v.contiguous())

    return "attention", [said["query"], said["key"], said["value"]], make


def _cross_entropy(finder: _Finder, said: _Said) -> _Found:
    odd = ("weight", "size_average", "reduce")
    reduction = said.get("reduction", "mean")
    if any(said.get(name) is not None for name in odd) or said.get("label_smoothing", 0.0):
        return None
    target = finder.values.get(said["target"])
    if said.get("ignore_index", -100) != -100 or not isinstance(target, torch.Tensor):
        return None
    return "cross_entropy", [said["input"], said["target"]], reduced(reduction)


def reduced(reduction: str) -> Any:
    """The losses of rows as the framework sums them up; of other inputs its own loss."""

    def make(called: Any, theirs: Any) -> Any:
        def run(logits: Any, target: Any) -> Any:
            if logits.dim() != 2 or target.dim() != 1 or target.dtype != torch.int64:
                return theirs(logits, target)
            losses = called(logits, target)
            if reduction == "none":
                return losses
            if reduction == "sum":
                return losses.sum()
            # Rows of the index that is ignored have no loss, and do not count. The sum of many may
            # be beyond 16 bits where their mean is not.
            wide = losses.dtype in (torch.float16, torch.bfloat16)
            total = losses.sum(dtype=torch.float32 if wide else None)
            return (total / (target != -100).sum()).to(losses.dtype)

        return run

    return make


def _embedding(finder: _Finder, said: _Said) -> _Found:
    del finder
    odd = ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")
    if any(said.get(name) not in (None, False) for name in odd):
        return None
    return "embedding", [said["weight"], said["input"]], _plainly


def _linear(finder: _Finder, said: _Said) -> _Found:
    del finder
    given = [said["input"], said["weight"]]
    bias = said.get("bias")
    return (
        ("linear", given, _plainly) if bias is None else ("linear_bias", [*given, bias], _plainly)
    )


def _matmul(finder: _Finder, said: _Said) -> _Found:
    a, b = (finder.values.get(said.get(name)) for name in ("input", "other"))
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return None
    kind = "matmul" if a.dim() >= 2 and b.dim() == 2 else "bmm" if a.dim() == b.dim() == 3 else ""
    return (kind, [said["input"], said["other"]], _plainly) if kind else None


_LOSS = (
    "input target weight size_average ignore_index reduce reduction label_smoothing".split(),
    _cross_entropy,
)
_PRODUCT = (("input", "other"), _matmul)
_RULES: Mapping[Any, tuple[Sequence[str], Any]] = {
    F.softmax: (("input", "dim", "_stacklevel", "dtype"), _softmax),
    torch.softmax: (("input", "dim", "dtype"), _softmax),
    "softmax": (("input", "dim", "dtype"), _softmax),
    F.relu: (("input", "inplace"), _relu),
    torch.relu: (("input",), _relu),
    "relu": (("input",), _relu),
    F.gelu: (("input", "approximate"), _gelu),
    F.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _layer_norm),
    F.rms_norm: (("input", "normalized_shape", "weight", "eps"), _rms_norm),
    F.scaled_dot_product_attention: (
        "query key value attn_mask dropout_p is_causal scale enable_gqa".split(),
        _attention,
    ),
    F.cross_entropy: _LOSS,
    F.embedding: (
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse".split(),
        _embedding,
    ),
    F.linear: (("input", "weight", "bias"), _linear),
    torch.matmul: _PRODUCT,
    torch.bmm: _PRODUCT,
    operator.matmul: _PRODUCT,
    "matmul": _PRODUCT,
    "bmm": _PRODUCT,
    torch.cumsum: (("input", "dim", "dtype"), _last("cumsum")),
    "cumsum": (("input", "dim", "dtype"), _last("cumsum")),
    torch.argmax: (("input", "dim", "keepdim"), _last("argmax")),
    "argmax": (("input", "dim", "keepdim"), _last("argmax")),
}


def matches(module: torch.nn.Module, graph: fx.Graph, known: Mapping[Node, Any]) -> list[Match]:
    """The matches in the order of the graph; no two share a node."""
    return _Finder(module, known).all(graph)


def rewritten(
    module: torch.nn.Module, graph: fx.Graph, taken: Sequence[tuple[Match, Any]]
) -> Callable[..., Any]:
    """A forward of the module and the tensors of a call, in which matches call what is given."""
    for match, called in taken:
        with graph.inserting_before(match.nodes[-1]):
            made = graph.call_function(match.ours(called), match.inputs)
        match.nodes[-1].replace_all_uses_with(made)
        for node in reversed(match.nodes):
            graph.erase_node(node)
    graph.lint()
    # The class of a graph's module has the code, which reads children and parameters of ``self``.
    forward: Callable[..., Any] = type(fx.GraphModule(module, graph)).forward
    return forward
