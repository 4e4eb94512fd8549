"""Which branches of #if a compiler for AMD, or for NVIDIA, takes; the others are not the target's.

Three answers: taken, not taken, and None where a condition depends on anything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_DIRECTIVE = re.compile(
    r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE
)
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_CALL = re.compile(r"\b\w+\s*\([^()]*\)")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")

#: A macro's value where it is known; None: it is not defined.
Macros = Mapping[str, "int | None"]
_ON_AMD = (
    "__HIP_PLATFORM_AMD__ __HIP_PLATFORM_HCC__ __HIPCC__ __HIP__ USE_ROCM GGML_USE_HIP USE_HIP"
).split()
_ON_AMD_DEVICE = ["__HIP_DEVICE_COMPILE__", "__AMDGCN__"]
_ON_NVIDIA = ["__HIP_PLATFORM_NVIDIA__", "__HIP_PLATFORM_NVCC__", "__NVCC__", "__CUDA_ARCH__"]
# A host compilation defines none of the device's macros, so they stay unknown here.
_ON_NVIDIA += ["__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__PTX__", "__NVPTX__"]
#: Those of AMD's that builds define, and no compiler: PyTorch's extensions, CMake files.
_BY_BUILDS = ("USE_ROCM", "GGML_USE_HIP", "USE_HIP")
AMD: Macros = dict.fromkeys(_ON_AMD, 1) | dict.fromkeys(_ON_NVIDIA)
AMD_DEVICE: Macros = {**AMD, **dict.fromkeys(_ON_AMD_DEVICE, 1)}
NVIDIA: Macros = {
    **dict.fromkeys([*_ON_AMD, *_ON_AMD_DEVICE]),
    **dict.fromkeys(["__NVCC__", "__CUDACC__"], 1),
}
#: What device code of a current NVIDIA GPU sees.
NVIDIA_DEVICE: Macros = {**NVIDIA, "__CUDA_ARCH__": 900}


@dataclass(frozen=True)
class Guard:
    """One #if or #elif that the target's compiler looks at."""

    start: int
    condition: str
    alternative: bool  # whether an #else or #elif follows


@dataclass
class _Open:
    """An #if whose #endif was not met yet."""

    taken: bool | None  # by a branch so far
    live: bool | None  # whether the branch at hand is compiled
    start: int  # where it began
    guards: list[int] = field(default_factory=list)


def asked_of_builds(texts: Iterable[str]) -> tuple[str, ...]:
    """The macros by which some of the texts ask whether they are built for AMD."""
    conditions = [
        match[2] for text in texts for match in _DIRECTIVE.finditer(text) if "USE_" in match[2]
    ]
    names = {name for condition in conditions for name in _NAME.findall(condition)}
    return tuple(name for name in _BY_BUILDS if name in names)


def value(condition: str, macros: Macros) -> bool | None:
    """Whether ``condition`` holds; None where that cannot be known."""
    text = _DEFINED.sub(lambda m: _presence(m[1] or m[2], macros), condition.replace("\\\n", " "))
    text = _CALL.sub("_unknown", _SUFFIX.sub(r"\1", text))
    text = _NAME.sub(lambda m: _number(m[0], macros), text)
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    try:
        result = _evaluated(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if result is None else bool(result)


def _presence(name: str, macros: Macros) -> str:
    return "_unknown" if name not in macros else str(int(macros[name] is not None))


def _number(name: str, macros: Macros) -> str:
    if name in ("true", "false"):
        return str(int(name == "true"))
    return "_unknown" if name not in macros else str(macros[name] or 0)


def _evaluated(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _evaluated(operand)
            return None if inner is None else int(not inner)
        case ast.BoolOp(op=op, values=values):
            results = [_evaluated(operand) for operand in values]
            decisive = isinstance(op, ast.Or)
            if any(result is not None and bool(result) == decisive for result in results):
                return int(decisive)
            return None if None in results else int(not decisive)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(_evaluated(left), op, _evaluated(right))
        case _:
            return None


def _compared(left: int | None, op: ast.cmpop, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    match op:
        case ast.Lt() | ast.GtE():
            return int((left < right) == isinstance(op, ast.Lt))
        case ast.Gt() | ast.LtE():
            return int((left > right) == isinstance(op, ast.Gt))
        case ast.Eq() | ast.NotEq():
            return int((left == right) == isinstance(op, ast.Eq))
        case _:
            return None


def branches(code: str, macros: Macros) -> tuple[list[tuple[int, int]], list[Guard]]:
    """The ranges that are not compiled, and the conditions that are looked at."""
    dead: list[tuple[int, int]] = []
    guards: list[Guard] = []
    stack: list[_Open] = []
    for match in _DIRECTIVE.finditer(code):
        name, rest = match[1], match[2].strip()
        if name in ("if", "ifdef", "ifndef"):
            inside_dead = bool(stack) and stack[-1].live is False
            condition = rest if name == "if" else f"{'!' * (name == 'ifndef')}defined({rest})"
            opened = _Open(False, False, match.end())
            if not inside_dead:
                opened.live = opened.taken = value(condition, macros)
                opened.guards.append(len(guards))
                guards.append(Guard(match.start(), condition, alternative=False))
            else:
                opened.taken = True
            stack.append(opened)
        elif stack:
            _close(stack[-1], match, dead, guards)
            if name == "endif":
                stack.pop()
            else:
                _next_branch(stack[-1], match, rest if name == "elif" else "1", macros, guards)
    for opened in stack:
        if opened.live is False:
            dead.append((opened.start, len(code)))
    return dead, guards


def _close(
    opened: _Open, match: re.Match[str], dead: list[tuple[int, int]], guards: list[Guard]
) -> None:
    if opened.live is False:
        dead.append((opened.start, match.start()))
    if match[1] != "endif":
        for index in opened.guards:
            guard = guards[index]
            guards[index] = Guard(guard.start, guard.condition, alternative=True)


def _next_branch(
    opened: _Open, match: re.Match[str], condition: str, macros: Macros, guards: list[Guard]
) -> None:
    opened.start = match.end()
    if opened.taken:
        opened.live = False
        return
    result = value(condition, macros)
    if match[1] == "elif":
        opened.guards.append(len(guards))
        guards.append(Guard(match.start(), condition, alternative=False))
    # After a branch that may have been taken, it is uncertain whether this one is compiled.
    opened.live = result if result is False or opened.taken is False else None
    if result is not False:
        opened.taken = result
