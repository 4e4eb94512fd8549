"""Elements of buffers: the type that a kernel's parameter points to, and what rounding may do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from portkern.simt.torch_extension.values import DTYPES


@dataclass(frozen=True)
class Element:
    """``ulps`` of the largest value of a buffer are what another order of a sum may change, for
    that is what another width of the warp changes: 64 roundings where sums are kept in the type
    itself; 8 and 4 of the narrow types, whose sums are kept in float and rounded once or a few
    times. 0 for integers, which no order changes."""

    name: str
    size: int
    ulps: int = 0
    mantissa: int = 0

    @property
    def rounding(self) -> float:
        """The largest rounding error of a value from 1 to 2: half of what its last bit is worth."""
        return 2.0 ** -(self.mantissa + 1)

    @property
    def is_float(self) -> bool:
        return self.ulps > 0

    def values(self, content: bytes) -> npt.NDArray[np.float64]:
        """The values in a content as float64; a rest that is shorter than an element is left
        out."""
        whole = content[: len(content) // self.size * self.size]
        if self.name == "bfloat16":
            wide = np.frombuffer(whole, np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).astype(np.float64)
        return np.frombuffer(whole, np.dtype(self.name)).astype(np.float64)


ELEMENTS: Mapping[str, Element] = {
    element.name: element
    for element in (
        Element("float64", 8, 64, 52),
        Element("float32", 4, 64, 23),
        Element("float16", 2, 8, 10),
        Element("bfloat16", 2, 4, 7),
        *(Element(f"{kind}int{bits}", bits // 8) for kind in ("", "u") for bits in (8, 16, 32, 64)),
    )
}

#: Spellings of types, without vector lengths.
_NAMES: Mapping[str, str] = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "_Float16": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "hip_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16",
    "bfloat16": "bfloat16",
    "c10::Half": "float16",
    "at::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "at::BFloat16": "bfloat16",
    "char": "int8",
    "uchar": "uint8",
    "bool": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "signed": "int32",
    "unsigned": "uint32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "size_t": "uint64",
    "std::size_t": "uint64",
    "ssize_t": "int64",
    "ptrdiff_t": "int64",
    **{f"{kind}int{bits}_t": f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
}
_VECTOR = re.compile(
    r"^(?:HIP_vector_type<)?"
    r"(float|double|int|uint|char|uchar|short|ushort|long|ulong|longlong|ulonglong)([1234])$"
)
_WORDS = frozenset(["signed", "unsigned", "short", "long", "int", "char"])
#: Numbers of a real and an imaginary part.
_COMPLEX = re.compile(r"(?:::)?(?:thrust|std|cuda::std|hip::std|c10|at)::complex<(float|double)>")
_VECTORS = {"longlong": "int64", "ulonglong": "uint64"}
_PAIRS = {
    "cuFloatComplex": "float32",
    "cuComplex": "float32",
    "cuDoubleComplex": "float64",
    "hipFloatComplex": "float32",
    "hipComplex": "float32",
    "hipDoubleComplex": "float64",
    "half2": "float16",
    "__half2": "float16",
    "nv_bfloat162": "bfloat16",
    "__nv_bfloat162": "bfloat16",
    "__hip_bfloat162": "bfloat16",
    "dim3": "uint32",
}
#: What structs of numbers of one kind stand for (:func:`records.rows`).
_ROW = re.compile(r"(\w+)\[(\d{1,3})\]")
_QUALIFIERS = re.compile(
    r"\b(const|volatile|__restrict__|__restrict|restrict|struct|typename|__grid_constant__)\b"
)


def of_tensor(dtype: int) -> Element | None:
    """The element of a tensor, by PyTorch's number of its type."""
    name = DTYPES.get(dtype, "")
    return ELEMENTS.get("uint8" if name == "bool" else name)


def plain_type(type_: str) -> str:
    """``const T *__restrict__`` is ``T*``."""
    return re.sub(r"\s*([*&])\s*", r"\1", " ".join(_QUALIFIERS.sub(" ", type_).split()))


def bound_type(spelled: str, bound: Mapping[str, str]) -> str:
    """A type with the template's arguments in it."""
    return re.sub(r"\w+", lambda word: bound.get(word[0], word[0]), spelled)


def element_of(type_: str, bound: Mapping[str, str]) -> tuple[Element, int] | None:
    """The element and the vector's length of a type that is not a pointer; ``bound`` says what
    names of a template or of ``typedef`` stand for. None for a type that is not known."""
    name = plain_type(type_)
    for _ in range(4):
        if name not in bound or bound[name] == name:
            break
        name = plain_type(bound[name])
    if name in _NAMES:
        return ELEMENTS[_NAMES[name]], 1
    if integer := _integer(name):
        return ELEMENTS[integer], 1
    if match := _COMPLEX.fullmatch(name):
        return ELEMENTS[_NAMES[match[1]]], 2
    if name in _PAIRS:
        return ELEMENTS[_PAIRS[name]], 2
    if (match := _ROW.fullmatch(name)) and match[1] in ELEMENTS:
        return ELEMENTS[match[1]], int(match[2])
    if match := _VECTOR.match(name):
        kind, length = match.groups()
        return ELEMENTS[_VECTORS.get(kind) or _NAMES[kind]], int(length)
    return None


def _integer(name: str) -> str:
    """The element of an integer's type whose words stand in any order, as ``short unsigned int``;
    '' for another."""
    words = Counter(name.split())
    if words.total() < 2 or not words.keys() <= _WORDS or words["int"] > 1:
        return ""
    bits = 64 if words["long"] else 16 if words["short"] else 8 if words["char"] else 32
    return f"{'u' if words['unsigned'] else ''}int{bits}"


def aliases(text: str, defines: Sequence[str] = ()) -> dict[str, str]:
    """The names that ``typedef``, ``using`` and macros of a text give to simple types, with the
    types. Of two branches of an ``#if`` that asks what is defined, the one that ``defines``
    (``NAME`` or ``NAME=value``) and the text's own macros choose; others count as not taken
    where there is an ``#else``."""
    names: dict[str, str] = {}
    macros = {define.partition("=")[0] for define in defines}
    branches: list[tuple[bool, bool]] = []  # whether this one is taken; whether one before was
    for line in text.splitlines():
        if match := _CONDITION.match(line):
            _enter(branches, match[1], match[2], macros)
            continue
        if not all(taken for taken, _ in branches):
            continue
        if match := _TYPEDEF.match(line):
            names.setdefault(match[2], match[1].strip())
        elif match := _USING.match(line):
            names.setdefault(match[1], match[2].strip())
        elif match := _DEFINE.match(line):
            macros.add(match[1])
            if match[2]:
                names.setdefault(match[1], match[2].strip())
    return names


def _enter(
    branches: list[tuple[bool, bool]], directive: str, condition: str, macros: set[str]
) -> None:
    if directive == "endif":
        del branches[-1:]
    elif directive.startswith("if"):
        holds = _holds(directive, condition, macros)
        branches.append((holds, holds))
    elif branches:
        before = branches[-1][1]
        holds = not before and (directive == "else" or _holds("if", condition, macros))
        branches[-1] = (holds, before or holds)


def _holds(directive: str, condition: str, macros: set[str]) -> bool:
    """A condition that asks for more than what is defined holds where it stands alone: most are
    guards of versions."""
    if directive in ("ifdef", "ifndef"):
        name = condition.split()[0] if condition.split() else ""
        return (name in macros) == (directive == "ifdef")
    asked = _ASKED.findall(condition)
    if not asked:
        return condition.strip() != "0"
    answers = [(name in macros) != bool(negated) for negated, name in asked]
    return any(answers) if "||" in condition else all(answers)


_CONDITION = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|if|elif|else|endif)\b(.*)$")
_ASKED = re.compile(r"(!?)\s*defined\s*\(?\s*(\w+)")
_TYPEDEF = re.compile(r"^[ \t]*typedef\s+([\w:<>, ]+?)\s+(\w+)\s*;")
_USING = re.compile(r"^[ \t]*using\s+(\w+)\s*=\s*([\w:<>, ]+?)\s*;")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[ \t]+([A-Za-z_][\w ]*?))?[ \t]*$")
