"""BackendBench's operators: traces of calls as text (``Operator: aten.add.Tensor`` and, below it,
``cnt: 3, ((T([2, 3], f16), 1), {})``), or rows with ``op_name`` and ``args``.

A problem is an operator with calls that differ in nothing but the sizes of their tensors; the sizes
are its cases. Arguments are read, never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import rows
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import read_text
from portkern.spec.from_torch.names import operator_name

_DTYPES = {
    "bf16": "bfloat16",
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "b8": "bool",
    "u8": "uint8",
}
_COMPLEX = ("c32", "c64", "c128")
_NUMBERS = {"inf": 'float("inf")', "nan": 'float("nan")'}
#: The most cases of one problem; traces have hundreds.
_MOST_CASES = 64
_TEXT = """\
import torch

# {title}
_CASES = [
{cases}]
_DTYPES = {dtypes!r}


def _made(shape, dtype):
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.randint(0, 2, shape) > 0
    if kind.is_floating_point:
        return torch.rand(shape, dtype=kind)
    return torch.randint(0, 2, shape, dtype=kind)


def get_input_groups():
    return [list(map(_made, case, _DTYPES)) for case in _CASES]


def {name}({taken}):
    return torch.ops.{operator}({given})
"""


@dataclass
class _Variant:
    """One operator with fixed arguments but for the sizes of tensors."""

    operator: str
    given: str
    dtypes: tuple[str, ...]
    place: str
    cases: dict[tuple[tuple[int, ...], ...], None] = field(default_factory=dict)


@dataclass
class _Arguments:
    """The arguments of a call, as they are read: ``shapes`` and ``dtypes`` of its tensors in
    order."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)

    def text(self, node: ast.expr) -> str:
        """The node as Python that has the tensors as ``x0``, ``x1`` … Raises ConfigError."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "T":
            return self._tensor(node)
        if isinstance(node, ast.List | ast.Tuple):
            inner = ", ".join(map(self.text, node.elts))
            return f"[{inner}]"
        if isinstance(node, ast.Dict) and None not in node.keys:
            pairs = zip(node.keys, node.values, strict=True)
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in pairs if k) + "}"
        if isinstance(node, ast.Name) and node.id in _NUMBERS:
            return _NUMBERS[node.id]
        if isinstance(node, ast.Name) and node.id in _DTYPES:
            return f"torch.{_DTYPES[node.id]}"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"-{self.text(node.operand)}"
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Attribute | ast.Call) and "torch." in ast.unparse(node):
            return self._of_torch(ast.unparse(node))
        raise ConfigError(
            f"has {ast.unparse(node)[:60]!r} in its arguments, expected tensors as "
            "T([2, 3], f32), numbers, texts and lists of these"
        )

    def _tensor(self, node: ast.Call) -> str:
        parts = [ast.unparse(part).strip("'\"") for part in node.args]
        if len(parts) not in (2, 3) or parts[1] in _COMPLEX or parts[1] not in _DTYPES:
            raise ConfigError(
                f"has {ast.unparse(node)[:60]!r}, expected T(sizes, dtype) with one of "
                f"{', '.join(_DTYPES)}"
            )
        try:
            sizes = ast.literal_eval(node.args[0])
        except ValueError as error:
            raise ConfigError(f"has sizes {parts[0]!r}, expected numbers") from error
        if not isinstance(sizes, list | tuple) or not all(type(n) is int for n in sizes):
            raise ConfigError(f"has sizes {parts[0]!r}, expected a list of numbers")
        self.shapes.append(tuple(sizes))
        self.dtypes.append(_DTYPES[parts[1]])
        return f"x{len(self.shapes) - 1}"

    def _constant(self, value: object) -> str:
        """A dtype or a device may stand there as a text."""
        if isinstance(value, str) and value in _DTYPES:
            return f"torch.{_DTYPES[value]}"
        if isinstance(value, str) and value.startswith("torch."):
            return self._of_torch(value)
        return repr(value)

    @staticmethod
    def _of_torch(text: str) -> str:
        if text.startswith("torch.device("):
            return 'torch.device("cpu")'
        if re.fullmatch(r"torch\.\w+", text):
            return text
        raise ConfigError(f"has {text[:60]!r} in its arguments, expected a dtype or a device")


def read(path: Path) -> list[Item]:
    """Reads a ``.txt`` trace, rows, or a folder of either. Raises ConfigError where there are no
    calls."""
    variants: dict[tuple[str, str, tuple[str, ...], tuple[int, ...]], _Variant] = {}
    bad: list[Item] = []
    for place, operator, arguments in _calls(path):
        try:
            _add(variants, place, operator, arguments)
        except ConfigError as error:
            name = operator or Path(place).name
            bad.append(UnreadableProblem(name, "", place, str(error)))
    if not variants and not bad:
        raise ConfigError(
            f"No call in {path}; expected 'Operator: aten.add.Tensor' and 'cnt: 1, (…)' in a .txt "
            "file, or rows with op_name and args"
        )
    return [*map(_problem, variants.values()), *bad]


def _calls(path: Path) -> Iterator[tuple[str, str, str | ConfigError]]:
    """Place, operator and arguments of each."""
    if path.is_dir():
        texts = sorted(path.rglob("*.txt"))
        if texts:
            for file in texts:
                yield from _of_trace(file)
            return
    if path.suffix == ".txt":
        yield from _of_trace(path)
        return
    for row in rows.of(path):
        try:
            if row.problem:
                raise ConfigError(row.problem)
            yield row.place, row.field("op_name", str), row.field("args", str)
        except ConfigError as error:
            yield row.place, "", error


def _of_trace(file: Path) -> Iterator[tuple[str, str, str | ConfigError]]:
    operator = ""
    for number, line in enumerate(read_text(file).split("\n"), 1):
        if match := re.match(r"Operator: (\S+)\s*$", line):
            operator = match[1]
        elif match := re.match(r"cnt: \d+, (.*)", line):
            yield f"{file}:{number}", operator, match[1]


def _add(
    variants: dict[tuple[str, str, tuple[str, ...], tuple[int, ...]], _Variant],
    place: str,
    operator: str,
    arguments: str | ConfigError,
) -> None:
    """Raises ConfigError."""
    if isinstance(arguments, ConfigError):
        raise arguments
    if not re.fullmatch(r"\w+(\.\w+){1,2}", operator):
        raise ConfigError(f"is of operator {operator!r}, expected one such as aten.add.Tensor")
    given, read = _given(arguments)
    ranks = tuple(map(len, read.shapes))
    key = operator, given, tuple(read.dtypes), ranks
    variant = variants.setdefault(key, _Variant(operator, given, tuple(read.dtypes), place))
    if len(variant.cases) < _MOST_CASES:
        variant.cases[tuple(read.shapes)] = None


def _given(arguments: str) -> tuple[str, _Arguments]:
    """Parses the arguments of ``((…), {…})``. Raises ConfigError."""
    try:
        tree = ast.parse(arguments.strip().strip("'\""), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"has arguments that cannot be read: {error}") from error
    if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:
        raise ConfigError(f"has arguments {arguments[:60]!r}, expected ((positional), {{named}})")
    positional, named = tree.elts
    if not isinstance(positional, ast.Tuple) or not isinstance(named, ast.Dict):
        raise ConfigError(f"has arguments {arguments[:60]!r}, expected ((positional), {{named}})")
    read = _Arguments()
    parts = [read.text(one) for one in positional.elts]
    for key, value in zip(named.keys, named.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"has arguments {arguments[:60]!r}, expected names as keys")
        parts.append(f"{name}={read.text(value)}")
    if not read.shapes:
        raise ConfigError("has no tensor among its arguments")
    return ", ".join(parts), read


def _problem(variant: _Variant) -> Item:
    base = variant.operator.removeprefix("aten.").partition(".")[0]
    count = len(variant.dtypes)
    text = _TEXT.format(
        title=f"{variant.operator}: {variant.place}".encode("ascii", "replace").decode(),
        cases="".join(f"    {[list(shape) for shape in case]!r},\n" for case in variant.cases),
        dtypes=list(variant.dtypes),
        name=_name(base),
        taken=", ".join(f"x{number}" for number in range(count)),
        operator=variant.operator,
        given=variant.given,
    )
    return Problem(variant.operator, "", variant.place, text.encode())


def _name(base: str) -> str:
    """The operator's name; one that works in place ends in an underscore."""
    return operator_name(base.strip("_"))
