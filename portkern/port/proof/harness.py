"""A program of one file around a source's kernels: it fills buffers, launches, and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap

import jinja2

from portkern.port.proof.case import Buffer, ProofCase, Scalar, StructValue, Tensor
from portkern.port.proof.element import Element, element_of
from portkern.simt.execute.machine import Language

_TEMPLATE = "case.cu.j2"
#: The most shared memory of a launch without cudaFuncSetAttribute.
_GRANTED_SHARED = 48 << 10
HOST_TYPES: Mapping[str, str] = {
    "float64": "double",
    "float32": "float",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
}


@dataclass(frozen=True)
class _Filled:
    number: int
    dtype: str
    lanes: int
    fill: str
    elements: int
    values: str
    lo: int
    hi: int


@dataclass(frozen=True)
class _Record:
    """The argument at place ``at``; ``members`` are expressions behind the value's name, each
    with what it is set to."""

    number: int
    at: int
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Written:
    kernel: str
    grid: str
    block: str
    shared: int | str
    raises_shared: bool
    buffers: tuple[_Filled, ...]
    records: tuple[_Record, ...]
    arguments: tuple[str, ...]


def render(
    cases: Sequence[ProofCase],
    source: str,
    language: Language,
    *,
    known: Mapping[str, str],
    scopes: Mapping[str, str],
    title: str,
    command: str,
) -> str:
    """The program launches the case that its argument numbers, the first without one. ``source``
    is the text before its own, ``known`` says what names of types stand for, ``scopes`` the
    kernels' namespaces."""
    launches = [_written(case, known, scopes.get(case.kernel, "")) for case in cases]
    api = "hip" if language == "hip" else "cuda"
    return _template().render(
        launches=launches, source=source, api=api, title=title, command=command
    )


def _written(case: ProofCase, known: Mapping[str, str], scope: str) -> _Written:
    spelled = list(starmap(_spelled, enumerate(case.values)))
    buffers = [
        _filled(n, value.data if isinstance(value, Tensor) else value, known)
        for n, value in enumerate(case.values)
        if not isinstance(value, Scalar)
    ]
    records, arguments, rest = list[_Record](), list[str](), iter(spelled)
    for at, argument in enumerate(case.arguments):
        if isinstance(argument, StructValue):
            names = [member.name.removeprefix(argument.name) for member in argument.members]
            members = tuple((name, next(rest)) for name in names)
            records.append(_Record(len(records), at, members))
            arguments.append(f"record_{len(records) - 1}.value()")
        else:
            arguments.append(next(rest))
    template = f"<{', '.join(case.template)}>" if case.template else ""
    return _Written(
        f"{scope}{case.kernel}{template}",
        ", ".join(map(str, case.grid)),
        ", ".join(map(str, case.block)),
        case.shared,
        isinstance(case.shared, str) or case.shared > _GRANTED_SHARED,
        tuple(buffers),
        tuple(records),
        tuple(arguments),
    )


def _spelled(number: int, value: Buffer | Scalar | Tensor) -> str:
    if isinstance(value, Buffer):
        return f"({value.dtype}*)buffer_{number}"
    if isinstance(value, Tensor):
        sizes = ", ".join(map(str, value.sizes))
        data = f"({value.data.dtype}*)buffer_{number}"
        return f"portkern_case::viewed<{value.dtype}>({data}, {{{sizes}}})"
    return f"({value.dtype})({value.value})"


def _filled(number: int, buffer: Buffer, known: Mapping[str, str]) -> _Filled:
    element, lanes = element_of(buffer.dtype, known) or (None, 1)
    lo, hi = buffer.range or (0, 1)
    values = "range" if buffer.range else buffer.values
    return _Filled(number, buffer.dtype, lanes, _fill(element), buffer.size * lanes, values, lo, hi)


def _fill(element: Element | None) -> str:
    if element is None:
        return "Plain<float>"
    if element.name in ("float16", "bfloat16"):
        return "Half" if element.name == "float16" else "Bfloat16"
    return f"Plain<{HOST_TYPES[element.name]}>"


def suffix(language: Language) -> str:
    return ".hip" if language == "hip" else ".cu"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("portkern.port.proof"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(_TEMPLATE)
