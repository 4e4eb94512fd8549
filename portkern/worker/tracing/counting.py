"""The cost of each operation of a graph, and the inputs that break its known shortcuts: one rule
per family of ATen operators. For products :class:`torch.utils.flop_counter.FlopCounterMode` says
the same; it counts nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a file is traced, in a worker

from portkern.worker.tracing.symbols import sizes_of

Node = torch.fx.Node

#: Views, copies and what only moves or makes elements.
_MOVES = frozenset(
    """
    view reshape transpose permute t flatten unsqueeze squeeze expand expand_as slice select split
    split_with_sizes chunk unbind cat stack contiguous clone to detach dropout narrow roll pad
    getitem flip repeat zeros zeros_like ones ones_like arange movedim copy unfold tril triu diag
    masked_fill eq view_as type_as lift_fresh_copy unflatten _to_copy alias embedding
    index_select gather index sym_size empty full full_like empty_like where _assert_tensor_metadata
    pixel_shuffle
    """.split()
)
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1}
_PRODUCTS |= {"baddbmm": 1}
_NORMS = frozenset(("layer_norm", "group_norm", "instance_norm", "batch_norm", "rms_norm"))
_SOFT = frozenset(("softmax", "log_softmax", "_softmax", "_log_softmax", "logsumexp"))
_SUMS = frozenset("sum mean cumsum var std var_mean norm linalg_vector_norm".split())
_LOSSES = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div cosine_similarity cross_entropy_loss".split()
)
_PICKS = frozenset("max min amax amin argmax argmin topk sort max_pool1d max_pool2d".split())


@dataclass(frozen=True)
class CountedWork:
    """Floating-point operations of one node, and what breaks shortcuts of it: ``peaks(x, 1)``.
    ``steep``: it takes powers of what was computed before, less its maximum."""

    flops: sympy.Expr
    adversaries: tuple[str, ...] = ()
    sums: bool = False
    steep: bool = False


def operation(node: Node) -> str:
    name = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
    return str(name).rstrip("_")


def shape_of(node: Any) -> list[sympy.Expr]:
    value = node.meta["val"]
    return sizes_of((value[0] if isinstance(value, tuple | list) else value).shape)


def count(node: Node, inputs: Mapping[str, str]) -> CountedWork:
    """The work of a call in a graph; ``inputs``: the operator's inputs by the names of their
    nodes."""
    nodes = [one for one in node.args if isinstance(one, Node) and not _is_number(one)]
    name = operation(node)
    try:
        out = sympy.prod(shape_of(node))
    except (AttributeError, KeyError, IndexError):  # of sizes, not of tensors
        return CountedWork(sympy.Integer(0))
    if name in _MOVES:
        return CountedWork(sympy.Integer(0))
    for names, rule in _RULES:
        if name in names:
            return rule(_Call(node, name, nodes, out, inputs))
    if name.startswith("conv"):
        return _convolution(_Call(node, name, nodes, out, inputs))
    if "avg_pool" in name or "max_pool" in name:
        return CountedWork(sympy.prod(shape_of(nodes[0])))
    if not nodes:
        return CountedWork(sympy.Integer(0))
    whole = sympy.prod(shape_of(nodes[0]))
    return CountedWork(
        out if _is_pointwise(node) else sympy.Max(whole, out), sums=not _is_pointwise(node)
    )


def _is_number(node: Node) -> bool:
    """Whether it stands for a length, or what is computed from lengths."""
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat)


def _is_pointwise(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or operation(node) in (
        "hardswish",
        "relu6",
    )


@dataclass(frozen=True)
class _Call:
    node: Node
    name: str
    nodes: Sequence[Node]
    out: sympy.Expr
    inputs: Mapping[str, str]

    def input(self, number: int) -> str:
        """The operator's input that this operand is, if it is one as it stands."""
        return self.inputs.get(self.nodes[number].name, "") if number < len(self.nodes) else ""

    def dim(self, position: int, *names: str) -> int | None:
        """The dimension that an operand says, if it says a single one."""
        given: object = self.node.args[position] if len(self.node.args) > position else None
        for name in names:
            given = self.node.kwargs.get(name, given)
        if isinstance(given, list | tuple) and len(given) == 1:
            given = given[0]
        return given if isinstance(given, int) and not isinstance(given, bool) else None


def _product(call: _Call) -> CountedWork:
    first, second = call.nodes[_PRODUCTS[call.name] :][:2]
    flops = 2 * call.out * shape_of(first)[-1]
    a, b = call.inputs.get(first.name, ""), call.inputs.get(second.name, "")
    across = -1 if call.name in ("linear", "mv", "dot") or len(shape_of(second)) == 1 else -2
    return CountedWork(flops, _of_product(a, -1, b, across), sums=True)


def _of_product(a: str, a_dim: int, b: str, b_dim: int) -> tuple[str, ...]:
    if not (a and b):
        return ()
    if a == b:
        return (f"whole({a})",)
    return f"cancelling({a}, {a_dim}, {b}, {b_dim})", f"whole({a}, {b})"


def _convolution(call: _Call) -> CountedWork:
    weight, source = shape_of(call.nodes[1]), shape_of(call.nodes[0])
    if "transpose" in call.name:
        return CountedWork(2 * sympy.prod(source) * sympy.prod(weight[1:]), sums=True)
    found = _of_product(call.input(0), 1, call.input(1), 1)
    if weight[1] != source[1]:  # groups: halves of the channels are other kernels'
        found = found[1:]
    return CountedWork(2 * call.out * sympy.prod(weight[1:]), found, sums=True)


def _einsum(call: _Call) -> CountedWork:
    equation: Any = call.node.args[0]
    operands: Any = call.node.args[1]
    left, _, kept = equation.replace(" ", "").partition("->")
    lengths: dict[str, sympy.Expr] = {}
    for letters, operand in zip(left.split(","), operands, strict=True):
        lengths |= dict(zip(letters.replace("...", ""), shape_of(operand), strict=False))
    summed = [length for letter, length in lengths.items() if letter not in kept]
    return CountedWork(2 * call.out * sympy.prod(summed), sums=True)


def _attention(call: _Call) -> CountedWork:
    keys = shape_of(call.nodes[1])[-2]
    queries = sympy.prod(shape_of(call.nodes[0]))
    query, key = call.input(0), call.input(1)
    found = _of_product(query, -1, key, -1)
    return CountedWork(2 * keys * (queries + call.out), found, sums=True)


def _norm(call: _Call) -> CountedWork:
    source = call.input(0)
    return CountedWork(
        8 * sympy.prod(shape_of(call.nodes[0])), (f"far({source})",) if source else (), True
    )


def _soft(call: _Call) -> CountedWork:
    source, dim = call.input(0), call.dim(1, "dim")
    found = (
        (f"peaks({source}, {dim})", f"masked({source}, {dim})")
        if source and dim is not None
        else ()
    )
    whole = sympy.prod(shape_of(call.nodes[0]))
    return CountedWork(5 * whole, found, sums=True, steep=not source)


def _sum(call: _Call) -> CountedWork:
    whole, source, dim = sympy.prod(shape_of(call.nodes[0])), call.input(0), call.dim(1, "dim")
    if call.name in ("var", "std", "var_mean"):
        return CountedWork(4 * whole, (f"far({source})",) if source else (), sums=True)
    plain = source and dim is not None and call.name in ("sum", "mean", "cumsum")
    return CountedWork(whole, (f"cancelling({source}, {dim})",) if plain else (), sums=True)


def _loss(call: _Call) -> CountedWork:
    whole = sympy.prod(shape_of(call.nodes[0]))
    if call.name == "cross_entropy_loss":
        source = call.input(0)
        found = (f"peaks({source}, 1)",) if source else ()
        return CountedWork(5 * whole, found, sums=True, steep=not source)
    return CountedWork((6 if call.name == "cosine_similarity" else 3) * whole, sums=True)


def _pick(call: _Call) -> CountedWork:
    return CountedWork(sympy.prod(shape_of(call.nodes[0])))


def _recurrent(call: _Call) -> CountedWork:
    """Each step multiplies all matrices of all layers."""
    weights: Any = call.node.args[2]
    products = sympy.Add(*(sympy.prod(shape_of(one)) for one in weights if len(shape_of(one)) > 1))
    return CountedWork(2 * products * sympy.prod(shape_of(call.nodes[0])[:-1]), sums=True)


def _bag(call: _Call) -> CountedWork:
    """Sums what it looks up."""
    return CountedWork(_looked_up(call.node), sums=True)


def _looked_up(bag: Node) -> sympy.Expr:
    """How many elements of its table an embedding bag reads."""
    table, indices = bag.args[:2]
    return sympy.prod(shape_of(indices)) * shape_of(table)[-1]


#: The operation as torch exports it, in inference or not.
_BAGS = frozenset(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"))
_RULES: Sequence[tuple[frozenset[str], Callable[[_Call], CountedWork]]] = (
    (frozenset(_PRODUCTS), _product),
    (frozenset(("einsum",)), _einsum),
    (frozenset(("scaled_dot_product_attention",)), _attention),
    (_NORMS, _norm),
    (_SOFT, _soft),
    (_SUMS, _sum),
    (_LOSSES, _loss),
    (_PICKS, _pick),
    (frozenset(("recurrent",)), _recurrent),
    (_BAGS, _bag),
)


#: What takes elements of its first operand, and no more.
_TAKES = _BAGS | frozenset("embedding index_select gather slice select narrow index".split())


def read_in_part(source: Node) -> sympy.Expr | None:
    """How many elements of an input are read at most, where that is not all of it."""
    users = list(source.users)
    if any(operation(user) not in _TAKES or user.args[0] is not source for user in users):
        return None
    read = sympy.Add(*map(_taken, users))
    return sympy.Min(read, sympy.prod(shape_of(source)))


def _taken(user: Node) -> sympy.Expr:
    return _looked_up(user) if operation(user) in _BAGS else sympy.prod(shape_of(user))


#: What holds places, or differences of them, against a number.
_COMPARES = frozenset("lt le gt ge eq ne remainder floor_divide clamp clamp_min clamp_max".split())
#: A number that is no more than this is reached at all sizes but those of one or none.
_SEEN_ANYWAY = 8


def thresholds(node: Node) -> list[tuple[int, sympy.Symbol]]:
    """Whole numbers that integers of this node are held against, with the lengths along which
    these are: a causal window's width, with the number of tokens."""
    if node.op != "call_function" or operation(node) not in _COMPARES:
        return []
    value = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
    if not isinstance(value, torch.Tensor) or value.is_floating_point():
        return []
    numbers = [one for one in node.args[1:] if type(one) is int and one > _SEEN_ANYWAY]
    sizes = [size for size in sizes_of(value.shape) if isinstance(size, sympy.Symbol)]
    return [(number, size) for number in numbers for size in sizes]
