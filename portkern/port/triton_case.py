"""Inputs for a Triton kernel: sizes and strides by the names of its parameters, and the grid of
the launch that its file writes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.port.triton_infer import Constant, Inference

#: No multiple of a tile, and less than the least stride of rows.
SIZE = 24
_ROW = 32
#: Programs on an axis whose number the launch's text does not say.
_PROGRAMS = 3
_MOST_PROGRAMS = 64
_DEPTH = 12
_OF_ROWS = re.compile(r"row|seq|batch|head|token|group|_[bnmht]$|_(bs|bsz)$", re.IGNORECASE)
#: Of a tensor's stride, what names the axis: ``grad_attn_batch`` is grad_attn's.
_AXIS = re.compile(r"_(batch|head|seq|token|group|row|col|dim|feature|hidden|channel|[a-z])\d*$")
_IS_TILES = re.compile(r"^(ceil_?div|cdiv)$", re.IGNORECASE)

Scalar = int | float | bool
Grid = tuple[int, ...]


@dataclass(frozen=True)
class TritonCase:
    """``launch`` says what the grid is; '' where it is not in the text."""

    scalars: Mapping[str, Scalar]
    launch: str

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.scalars.items())
        grid = f"grid {self.launch}" if self.launch else f"{_PROGRAMS} programs on each axis"
        return f"{grid}; {values or 'no scalars'}; buffers of normal numbers, indices below 4"


class LaunchText:
    """The first launch of a kernel in a module, with the function it stands in."""

    def __init__(self, module: ast.Module, kernel: str) -> None:
        self._kernel = next(
            n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == kernel
        )
        self._call: ast.Call | None = None
        self._assigned: dict[str, ast.expr] = {}
        for scope in (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)):
            call = next((c for c in ast.walk(scope) if _launches(c, kernel)), None)
            if isinstance(call, ast.Call) and self._call is None:
                self._call = call
                self._assigned = dict(_assigned(scope))

    @property
    def grid(self) -> ast.expr | None:
        if self._call is None or not isinstance(self._call.func, ast.Subscript):
            return None
        return self._call.func.slice

    def sizes(self, values: Mapping[str, Constant]) -> Grid:
        """Programs on each axis, for values of the kernel's parameters."""
        axes = _axes(self._kernel)
        known = {**values, **self._host(values)}
        grid = self.grid
        for _ in range(_DEPTH):
            if isinstance(grid, ast.Name) and grid.id in self._assigned:
                grid = self._assigned[grid.id]
            elif isinstance(grid, ast.Lambda):
                grid = grid.body
        parts = grid.elts if isinstance(grid, ast.Tuple | ast.List) else [grid] if grid else []
        sizes = [self._size(part, known) for part in parts[:3]]
        sizes += [_PROGRAMS] * (axes - len(sizes))
        if math.prod(sizes) > _MOST_PROGRAMS:
            sizes = [min(size, _PROGRAMS) for size in sizes]
        return tuple(sizes) or (1,)

    def _host(self, values: Mapping[str, Constant]) -> dict[str, Constant]:
        """The values of the host's expressions in a launch, by their text."""
        if self._call is None:
            return {}
        arguments = self._kernel.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        given = [*zip(names, self._call.args, strict=False)]
        given += [(k.arg, k.value) for k in self._call.keywords if k.arg]
        return {ast.unparse(node): values[name] for name, node in given if name in values}

    def _size(self, node: ast.expr, known: Mapping[str, Constant]) -> int:
        value = self._value(node, known, 0)
        return value if value is not None and 0 < value <= _MOST_PROGRAMS else _PROGRAMS

    def _value(self, node: ast.expr, known: Mapping[str, Constant], depth: int) -> int | None:
        text = ast.unparse(node)
        named = known.get(text)
        if isinstance(named, int):
            return named
        if depth > _DEPTH:
            return None
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name) if name in self._assigned:
                return self._value(self._assigned[name], known, depth + 1)
            case ast.Subscript(slice=ast.Constant(value=str() as name)):
                value = known.get(name)
                return value if isinstance(value, int) else None
            case ast.BinOp(left=left, op=op, right=right):
                return _operated(op, self._all([left, right], known, depth))
            case ast.Call(func=function, args=args) if not node.keywords:
                return _called(function, self._all(args, known, depth))
        return None

    def _all(
        self, nodes: Sequence[ast.expr], known: Mapping[str, Constant], depth: int
    ) -> list[int]:
        """Empty where one is not known."""
        values = [self._value(node, known, depth + 1) for node in nodes]
        whole = [value for value in values if value is not None]
        return whole if len(whole) == len(values) else []


def propose(launch: LaunchText, inference: Inference) -> TritonCase:
    scalars: dict[str, Scalar] = {}
    strides = _strides([name for name in inference.signature if "stride" in name.lower()])
    for name, type_ in inference.signature.items():
        if type_.startswith("*"):
            continue
        if type_.startswith(("fp", "bf")):
            scalars[name] = 1e-5 if "eps" in name.lower() else 0.5
        elif type_ == "i1":
            scalars[name] = True
        else:
            scalars[name] = strides.get(name, _integer(name))
    return TritonCase(scalars, ast.unparse(launch.grid) if launch.grid is not None else "")


def _integer(name: str) -> int:
    if "ignore" in name.lower():
        return -100
    if re.search(r"per_(program|block)|num_(stages|splits)|n_?groups|offset", name, re.IGNORECASE):
        return 2
    return SIZE


def _strides(names: Sequence[str]) -> dict[str, int]:
    """The stride of each name, from the last of a tensor's: 1, or that of rows where it is of
    rows by its name."""
    groups: dict[str, list[str]] = {}
    for name in names:
        head = name.lower().split("stride")[0].strip("_")
        head = _AXIS.sub("", head) if head else re.sub(r"(_?\d+|.)$", "", name)
        groups.setdefault(head, []).append(name)
    strides: dict[str, int] = {}
    for members in groups.values():
        is_rows = len(members) == 1 or _OF_ROWS.search(members[-1].lower().replace("_stride", ""))
        stride = _ROW if is_rows else 1
        for name in reversed(members):
            strides[name] = stride
            stride = _ROW if stride == 1 else stride * SIZE
    return strides


def _axes(kernel: ast.FunctionDef) -> int:
    axes = [0]
    for call in (n for n in ast.walk(kernel) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "axis")]
        if name == "program_id" and given and isinstance(given[0], ast.Constant):
            axes.append(int(str(given[0].value)) + 1 if isinstance(given[0].value, int) else 0)
    return max(axes)


def _launches(node: ast.AST, kernel: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
        return False
    function = node.func.value
    return getattr(function, "id", getattr(function, "attr", "")) == kernel


def _assigned(scope: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    pairs: list[tuple[str, ast.expr]] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            pairs.append((node.targets[0].id, node.value))
        elif isinstance(node, ast.FunctionDef) and node is not scope:
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
            pairs += [(node.name, returned[0])] if returned else []
    return pairs


def _operated(op: ast.operator, values: Sequence[int]) -> int | None:
    match op, values:
        case ast.Add(), [a, b]:
            return a + b
        case ast.Sub(), [a, b]:
            return a - b
        case ast.Mult(), [a, b]:
            return a * b
        case ast.FloorDiv(), [a, b] if b:
            return a // b
    return None


def _called(function: ast.expr, values: Sequence[int]) -> int | None:
    name = getattr(function, "attr", getattr(function, "id", ""))
    if _IS_TILES.match(name) and len(values) == 2 and values[1] > 0:
        return -(-values[0] // values[1])
    if name == "next_power_of_2" and len(values) == 1 and values[0] > 0:
        return 1 << (values[0] - 1).bit_length()
    if name in ("min", "max") and values:
        return min(values) if name == "min" else max(values)
    return None
