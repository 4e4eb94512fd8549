"""The case of a Triton kernel: what a launch of it in its file gives, and for the rest sizes and
strides by the names of its parameters. What is assumed of a launch is a guess."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.port.proof.guesses import GRID, Guess
from portkern.port.triton_arithmetic import MOST_BITS
from portkern.port.triton_host import LaunchHost, Of, calls_of, has_others, is_of_settings
from portkern.port.triton_infer import Constant, Inference
from portkern.port.triton_source import Setting, TritonKernel

#: No multiple of a tile, and less than the least stride of rows.
SIZE = 24
_ROW = 32
#: Programs on an axis whose number the launch's text does not say.
_PROGRAMS = 3
_MOST_PROGRAMS = 1024
_OF_ROWS = re.compile(r"row|seq|batch|head|token|group|_[bnmht]$|_(bs|bsz)$", re.IGNORECASE)
#: The part of a stride's name that names the axis: ``grad_attn_batch`` is grad_attn's.
_AXIS = re.compile(r"_(batch|head|seq|token|group|row|col|dim|feature|hidden|channel|[a-z])\d*$")

Scalar = int | float | bool
Grid = tuple[int, ...]


@dataclass(frozen=True)
class TritonCase:
    """``launch`` says what the grid is; '' where it is not in the text."""

    scalars: Mapping[str, Scalar]
    constants: Mapping[str, Constant]
    grid: Grid
    launch: str
    guesses: tuple[Guess, ...]

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.scalars.items())
        grid = f"grid {self.launch}, {_times(self.grid)}" if self.launch else _times(self.grid)
        return (
            f"{grid} programs; {values or 'no scalars'}; buffers of normal numbers, indices below 4"
        )


class TritonLaunch:
    """A launch of a kernel in a module; ``call`` is None where nothing there launches it, and
    ``has_more`` says that something may launch it in a way that is not read."""

    def __init__(
        self, module: ast.Module, kernel: str, call: ast.Call | None, has_more: bool
    ) -> None:
        self._kernel = next(
            n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == kernel
        )
        self._host = LaunchHost(module, call)
        self._given, self._is_open = _arguments(self._kernel, call)
        self._call, self._has_more = call, has_more
        self._guesses: list[Guess] = []
        self._known: dict[str, int] = {}

    @property
    def text(self) -> str:
        grid = self._grid()
        return ast.unparse(grid) if grid is not None else ""

    def case(
        self,
        types: Inference,
        settings: Mapping[str, Setting] | None = None,
        kernel: TritonKernel | None = None,
    ) -> TritonCase:
        """The case with a configuration's settings; what code of the library computes when it is
        launched (``triton.heuristics``) is left to it. Raises ValueError or RecursionError for
        numbers and expressions that only an attacker means."""
        self._guesses, self._known = [], {}
        if self._has_more:
            self._guesses.append(Guess("launches that are not read", "those that are"))
        for decorator in self._kernel.decorator_list:
            if (name := _decorates(decorator)) not in _READ:
                self._guesses.append(Guess(f"what @{name} does to a launch", "nothing"))
        computed = set(kernel.heuristics) if kernel else set()
        if kernel and kernel.unread:
            self._guesses.append(Guess("configurations of autotune", "; ".join(kernel.unread)))
        constants: dict[str, Constant] = dict.fromkeys(computed & types.constants.keys(), True)
        known = types.constants.keys() | types.signature.keys()
        constants |= {name: value for name, value in (settings or {}).items() if name in known}
        late = [name for name in types.constants if name not in constants]
        for name in [n for n in late if self._is_measured(n)]:
            constants[name] = types.constants[name]
            self._note(name, types.constants[name])
            late.remove(name)
        constants |= {name: None for name in types.signature if self._is_none(name)}
        scalars = self._scalars({n: v for n, v in _scalars(types).items() if n not in constants})
        for name in late:
            constants[name] = self._constant(name, types.constants[name])
        grid = self._sizes(constants)
        _refuse_large({**constants, **scalars})
        return TritonCase(scalars, constants, grid, self.text, tuple(self._guesses))

    def _is_measured(self, name: str) -> bool:
        return name in self._given and self._host.is_size(self._given[name])

    def _is_none(self, name: str) -> bool:
        node = self._expression(name)
        node = self._host.resolved(node) if node is not None else None
        return isinstance(node, ast.Constant) and node.value is None

    def _expression(self, name: str) -> ast.expr | None:
        """The expression that the launch gives a parameter, or the kernel's default."""
        if name in self._given or self._call is None or self._is_open:
            return self._given.get(name)
        default = _default(self._kernel, name)
        return self._host.of_module(default) if default is not None else None

    def _note(self, name: str, value: object) -> None:
        """The host's expression that gives a parameter has its value from here on."""
        if name in self._given and isinstance(value, int):
            self._known.setdefault(self._host.text(self._given[name]), value)

    def _scalars(self, proposed: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The values that the launch's text says, or that follow from the others' in it."""
        made: dict[str, Scalar] = {}
        given = {name: node for name in proposed if (node := self._expression(name)) is not None}
        for name, node in given.items():
            value = proposed[name]
            if (said := _said(self._host.resolved(node), value)) is not None:
                made[name] = said
            elif self._host.is_leaf(node):
                self._note(name, value)
                of_other = self._known.get(self._host.text(node), value)
                made[name] = of_other if isinstance(value, int) else value
        for name, value in proposed.items():
            if name in made:
                continue
            found = self._scalar(given[name], value) if name in given else None
            if found is None and self._call is not None:
                self._guesses.append(Guess(f"value of {name}", str(value)))
            made[name] = value if found is None else found
            self._note(name, made[name])
        return {name: made[name] for name in proposed}

    def _scalar(self, node: ast.expr, proposed: Scalar) -> Scalar | None:
        """The value of what is computed; of a fraction that is computed from data any may be."""
        if isinstance(proposed, int):
            return self._value(node, SIZE)
        return proposed if self._host.is_of_data(node) else None

    def _constant(self, name: str, assumed: Constant) -> Constant:
        """A constant that the launch gives, or leaves to the kernel; else one that is assumed."""
        node = self._expression(name)
        if node is not None:
            node = self._host.resolved(node)
            if isinstance(node, ast.Constant) and isinstance(
                node.value, bool | int | float | str | None
            ):
                return node.value
            if isinstance(node, ast.Attribute) and isinstance(assumed, dict):
                if assumed.get("dtype") == _DTYPES.get(node.attr):
                    return assumed
            value = self._value(node, SIZE, of=Of.CODE)
            if value is not None:
                return value
        told = assumed.get("dtype") if isinstance(assumed, dict) else assumed
        self._guesses.append(Guess(f"constexpr {name}", str(told)))
        return assumed

    # ---- the grid

    def _grid(self) -> ast.expr | None:
        function = self._call.func if self._call is not None else None
        return function.slice if isinstance(function, ast.Subscript) else None

    def _sizes(self, constants: Mapping[str, Constant]) -> Grid:
        """Programs on each axis, for values of the kernel's parameters."""
        grid = self._grid()
        grid = self._host.resolved(grid) if grid is not None else None
        if isinstance(grid, ast.Lambda) and is_of_settings(grid.args):
            grid = grid.body
        if not isinstance(grid, ast.Tuple | ast.List) or len(grid.elts) > 3:
            sizes = (_PROGRAMS,) * max(_axes(self._kernel), 1)
            self._guesses.append(Guess(GRID, _times(sizes)))
            return sizes
        found = [self._value(part, _PROGRAMS, constants, of=Of.GRID) for part in grid.elts]
        sizes = tuple(n if n is not None and n > 0 else _PROGRAMS for n in found)
        if sizes != tuple(found):
            self._guesses.append(Guess(GRID, _times(sizes)))
        if math.prod(sizes) > _MOST_PROGRAMS:
            less = tuple(min(size, _PROGRAMS) for size in sizes)
            self._guesses.append(Guess(f"grid of {_times(sizes)} programs", _times(less)))
            return less
        return sizes

    def _value(
        self,
        node: ast.expr,
        any_: int,
        settings: Mapping[str, Constant] | None = None,
        *,
        of: Of = Of.DATA,
    ) -> int | None:
        return self._host.value(node, self._known, settings or {}, any_, of)


def launches(module: ast.Module, kernel: str, most: int | None = None) -> list[TritonLaunch]:
    """The first launches of a kernel in its module; one without a call where there is none."""
    calls: list[ast.Call | None] = [*calls_of(module, kernel)[:most]]
    has_more = has_others(module, kernel)
    return [TritonLaunch(module, kernel, call, has_more) for call in calls or [None]]


#: Decorators of a kernel of which it is known what they do to a launch.
_READ = frozenset("jit triton_jit autotune heuristics staticmethod".split())
_DTYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
}


def _times(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes))


def _refuse_large(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise ValueError(f"{name} is a number of more than {MOST_BITS} bits")


def _decorates(decorator: ast.expr) -> str:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _said(node: ast.expr, proposed: Scalar) -> Scalar | None:
    """The number that an expression says, as one of the proposed one's type; None for others."""
    is_less = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) and is_less else node
    if not isinstance(number, ast.Constant) or not isinstance(number.value, bool | int | float):
        return None
    value = -number.value if is_less else number.value
    if isinstance(proposed, float):
        return float(value)
    return value if isinstance(value, int) else None


def _arguments(kernel: ast.FunctionDef, call: ast.Call | None) -> tuple[dict[str, ast.expr], bool]:
    """The arguments by parameters, and whether there may be more than the text of the call says."""
    if call is None:
        return {}, True
    names = [a.arg for a in (*kernel.args.posonlyargs, *kernel.args.args)]
    stars = [n for n, node in enumerate(call.args) if isinstance(node, ast.Starred)]
    plain = call.args[: stars[0]] if stars else call.args
    given = dict(zip(names, plain, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return given, bool(stars) or any(keyword.arg is None for keyword in call.keywords)


def _default(kernel: ast.FunctionDef, name: str) -> ast.expr | None:
    listed = [*kernel.args.posonlyargs, *kernel.args.args]
    both = [*zip(reversed(listed), reversed(kernel.args.defaults), strict=False)]
    both += [
        (parameter, default)
        for parameter, default in zip(kernel.args.kwonlyargs, kernel.args.kw_defaults, strict=True)
        if default is not None
    ]
    return next((default for parameter, default in both if parameter.arg == name), None)


def _scalars(types: Inference) -> dict[str, Scalar]:
    """Values by the names of parameters."""
    scalars: dict[str, Scalar] = {}
    strides = _strides([name for name in types.signature if "stride" in name.lower()])
    for name, type_ in types.signature.items():
        if type_.startswith("*"):
            continue
        if type_.startswith(("fp", "bf")):
            scalars[name] = 1e-5 if "eps" in name.lower() else 0.5
        elif type_ == "i1":
            scalars[name] = True
        else:
            scalars[name] = strides.get(name, _integer(name))
    return scalars


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
