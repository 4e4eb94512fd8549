"""One launch of a kernel with its inputs: ``kernel.yaml``, proposed or written by hand."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import yaml

from portkern.errors import ConfigError
from portkern.port.proof.guesses import Guess
from portkern.port.proof.recording import Size
from portkern.spec.foreign_text import Malformed, read_text, yaml_value
from portkern.spec.safe_name import short

_RANGE = re.compile(r"range\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)")
#: ``Traits<64, sizeof(float)>::kBytes``
_CONSTANT = re.compile(r"[\w:]+(?:<(?:sizeof\([\w: *]+\)|[\w:<>, *-])*>)?::\w+")
_KEYS = frozenset(["kernel", "template", "grid", "block", "shared", "arguments"])
_BUFFER_KEYS = frozenset(["name", "kind", "dtype", "size", "values", "output"])
_TENSOR_KEYS = frozenset(["name", "kind", "dtype", "element", "sizes", "values", "output"])
_RECORD_KEYS = frozenset(["name", "kind", "dtype", "members"])
_SCALAR_KEYS = frozenset(["name", "kind", "dtype", "value"])
#: What a case may ask for, so that a slip of the pen does not fill the memory.
MOST_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Buffer:
    """``dtype`` is the type of C++ that the parameter points to, ``size`` counts those. ``values``:
    ``normal``, ``uniform`` (0 to 1), ``zeros`` or ``range(lo,hi)``, integers without hi."""

    name: str
    dtype: str
    size: int
    values: str
    output: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.size <= MOST_ELEMENTS:
            raise ConfigError(
                f"Got size {self.size} of {self.name!r}, expected 1 to {MOST_ELEMENTS}"
            )
        if self.values not in ("normal", "uniform", "zeros") and self.range is None:
            raise ConfigError(
                f"Got values {self.values!r} of {self.name!r}, expected normal, uniform, zeros or "
                "range(lo,hi)"
            )

    @property
    def range(self) -> tuple[int, int] | None:
        match = _RANGE.fullmatch(self.values)
        return (int(match[1]), int(match[2])) if match and int(match[1]) < int(match[2]) else None


@dataclass(frozen=True)
class Scalar:
    """``value`` is an expression of C++."""

    name: str
    dtype: str
    value: str


@dataclass(frozen=True)
class Tensor:
    """A dense tensor of these ``sizes``, whose elements are ``data``, by an accessor, whose type is
    ``dtype``."""

    dtype: str
    sizes: tuple[int, ...]
    data: Buffer

    @property
    def name(self) -> str:
        return self.data.name


@dataclass(frozen=True)
class StructValue:
    """A struct by value, whose type is ``dtype``. ``members`` are called as they are reached from
    ``name``: ``p.n``, ``p.sizes[2]``."""

    name: str
    dtype: str
    members: tuple[Buffer | Scalar | Tensor, ...]


Argument = Buffer | Scalar | Tensor | StructValue


@dataclass(frozen=True)
class ProofCase:
    """``shared`` is a number of bytes, or a constant of a class that the case's compiler knows.
    ``guesses`` are what nothing says of the launch; a case that somebody wrote has none."""

    kernel: str
    template: tuple[str, ...]
    grid: Size
    block: Size
    shared: int | str
    arguments: tuple[Argument, ...]
    guesses: tuple[Guess, ...] = field(default=(), compare=False)

    @property
    def values(self) -> tuple[Buffer | Scalar | Tensor, ...]:
        """Its arguments, with the members of structs in their places."""
        whole = (a.members if isinstance(a, StructValue) else (a,) for a in self.arguments)
        return tuple(value for of in whole for value in of)

    def with_types(self, types: Sequence[str]) -> ProofCase:
        """The same with the types of another text's kernel, one per argument."""
        if len(types) != len(self.arguments):
            raise ConfigError(
                f"Got {len(self.arguments)} arguments of {self.kernel}, expected {len(types)}"
            )
        pairs = zip(self.arguments, types, strict=True)
        return replace(self, arguments=tuple(replace(a, dtype=t) for a, t in pairs))

    def __str__(self) -> str:
        scalars = [f"{a.name}={a.value}" for a in self.values if isinstance(a, Scalar)]
        buffers = [f"{a.name}{_extent(a)}" for a in self.values if not isinstance(a, Scalar)]
        template = f"<{', '.join(self.template)}>" if self.template else ""
        shape = f"grid {shape_text(self.grid)}, block {shape_text(self.block)}"
        return ", ".join([f"{self.kernel}{template}: {shape}", *scalars, *buffers])


def _extent(argument: Buffer | Tensor) -> str:
    sizes = argument.sizes if isinstance(argument, Tensor) else (argument.size,)
    return "".join(f"[{size}]" for size in sizes)


def shape_text(size: Size) -> str:
    """``64x4``: the extents without those behind the last that is not 1."""
    return "x".join(map(str, size)).removesuffix("x1").removesuffix("x1")


def to_yaml(case: ProofCase) -> str:
    return yaml.safe_dump(
        {
            "kernel": case.kernel,
            "template": list(case.template),
            "grid": list(case.grid),
            "block": list(case.block),
            "shared": case.shared,
            "arguments": list(map(_entry, case.arguments)),
        },
        sort_keys=False,
        default_flow_style=None,
    )


def _entry(argument: Argument) -> dict[str, object]:
    entry: dict[str, object] = {"name": argument.name}
    if isinstance(argument, StructValue):
        members = list(map(_entry, argument.members))
        return entry | {"kind": "record", "dtype": argument.dtype, "members": members}
    if isinstance(argument, Scalar):
        return entry | {"kind": "scalar", "dtype": argument.dtype, "value": argument.value}
    is_tensor = isinstance(argument, Tensor)
    data = argument.data if isinstance(argument, Tensor) else argument
    entry |= {"kind": "tensor" if is_tensor else "buffer", "dtype": argument.dtype}
    if isinstance(argument, Tensor):
        entry |= {"element": data.dtype, "sizes": list(argument.sizes)}
    else:
        entry |= {"size": argument.size}
    return entry | {"values": data.values} | ({"output": True} if data.output else {})


def read_cases(path: Path) -> Mapping[str, ProofCase]:
    """The cases of a file, which has one or a list of them, by kernel. Raises ConfigError with
    what is wrong in it."""
    try:
        data = yaml_value(read_text(path))
    except Malformed as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    entries = data if isinstance(data, list) else [data]
    cases: dict[str, ProofCase] = {}
    for entry in entries:
        try:
            case = _case(_mapping(entry, _KEYS, "a case"))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        cases[case.kernel] = case
    return cases


def _case(entry: Mapping[str, object]) -> ProofCase:
    arguments = entry.get("arguments", [])
    if not isinstance(arguments, list):
        raise ConfigError(f"Got arguments {arguments!r}, expected a list")
    template = entry.get("template") or []
    if not isinstance(template, list):
        raise ConfigError(f"Got template {template!r}, expected a list")
    given = tuple(map(_argument, arguments))
    names = [value.name for a in given for value in (a, *_members(a))]
    for name, times in Counter(names).items():
        if times > 1:
            raise ConfigError(f"Got {times} arguments called {short(name)}, expected one")
    return ProofCase(
        str(entry.get("kernel", "")),
        tuple(map(str, template)),
        _size(entry.get("grid", 1), "grid"),
        _size(entry.get("block", 256), "block"),
        _shared(entry.get("shared", 0)),
        given,
    )


def _members(argument: Argument) -> tuple[Buffer | Scalar | Tensor, ...]:
    return argument.members if isinstance(argument, StructValue) else ()


def _argument(entry: object) -> Argument:
    kind = cast("Mapping[str, object]", entry).get("kind") if isinstance(entry, dict) else None
    if kind == "scalar":
        scalar = _mapping(entry, _SCALAR_KEYS, "a scalar")
        value = scalar.get("value", 0)
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        return Scalar(str(scalar["name"]), str(scalar.get("dtype", "int")), spelled)
    if kind == "tensor":
        return _tensor(_mapping(entry, _TENSOR_KEYS, "a tensor"))
    if kind == "record":
        return _record(_mapping(entry, _RECORD_KEYS, "a record"))
    if kind != "buffer":
        kinds = "buffer, scalar, tensor or record"
        raise ConfigError(f"Got an argument {entry!r}, expected kind: {kinds}")
    buffer = _mapping(entry, _BUFFER_KEYS, "a buffer")
    size = _integer(buffer.get("size", 1), "size")
    return _buffer(buffer, str(buffer.get("dtype", "float")), size)


def _buffer(entry: Mapping[str, object], dtype: str, size: int) -> Buffer:
    values = str(entry.get("values", "normal"))
    return Buffer(str(entry["name"]), dtype, size, values, bool(entry.get("output", False)))


def _record(entry: Mapping[str, object]) -> StructValue:
    given, name = entry.get("members", []), str(entry["name"])
    members = list(map(_argument, given)) if isinstance(given, list) else []
    plain = [m for m in members if not isinstance(m, StructValue) and _is_of(m.name, name)]
    if not isinstance(given, list) or len(plain) != len(members):
        raise ConfigError(
            f"Got members {given!r} of {name!r}, expected a list of buffers, scalars and tensors "
            f"whose names are as {name}.n or {name}.sizes[2]"
        )
    return StructValue(name, str(entry.get("dtype", "")), tuple(plain))


def _is_of(member: str, record: str) -> bool:
    return re.fullmatch(r"(?:\.\w+(?:\[\d+\])*)+", member.removeprefix(record)) is not None


def _tensor(entry: Mapping[str, object]) -> Tensor:
    given = entry.get("sizes", [1])
    if not isinstance(given, list) or not given:
        raise ConfigError(f"Got sizes {given!r}, expected a list of numbers")
    sizes = tuple(_integer(size, "sizes") for size in given)
    data = _buffer(entry, str(entry.get("element", "float")), math.prod(sizes))
    return Tensor(str(entry.get("dtype", "")), sizes, data)


def _mapping(entry: object, keys: frozenset[str], what: str) -> Mapping[str, object]:
    if not isinstance(entry, dict) or ("name" in keys and "name" not in entry):
        raise ConfigError(f"Got {entry!r} for {what}, expected {', '.join(sorted(keys))}")
    unknown = {str(key) for key in entry} - keys
    if unknown:
        raise ConfigError(
            f"Got {', '.join(short(key)[1:-1] for key in sorted(unknown))} in {what}, "
            f"expected {', '.join(sorted(keys))}"
        )
    return cast("Mapping[str, object]", entry)


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"Got {name} {value!r}, expected a number of at least 0")
    return value


def _shared(value: object) -> int | str:
    is_constant = isinstance(value, str) and _CONSTANT.fullmatch(value) is not None
    return str(value) if is_constant else _integer(value, "shared")


def _size(value: object, name: str) -> Size:
    parts = value if isinstance(value, list) else [value]
    numbers = [_integer(part, name) for part in parts]
    if not 1 <= len(numbers) <= 3 or 0 in numbers:
        raise ConfigError(f"Got {name} {value!r}, expected one to three numbers above 0")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z
