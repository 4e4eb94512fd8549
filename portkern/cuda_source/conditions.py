"""Which branches of #if a compiler for AMD, or for NVIDIA, takes; the others are not the target's.

Three answers: taken, not taken, and None where a condition depends on anything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from portkern.cuda_source.lexer import ELSES, IFS, Directive, SourceCode

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
#: Macros of AMD's that builds define and no compiler does: PyTorch's extensions, CMake files.
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
    """One #if or #elif that the target's compiler looks at; ``start`` is the offset of its '#'."""

    start: int
    condition: str
    alternative: bool  # whether an #else or #elif follows


@dataclass
class _Open:
    """An #if whose #endif was not met yet."""

    taken: bool | None  # by a branch so far
    live: bool | None  # whether the branch at hand is compiled
    begin: int  # its first token
    guards: list[int] = field(default_factory=list)


def asked_of_builds(texts: Iterable[str]) -> tuple[str, ...]:
    """The macros by which some of the texts ask whether they are built for AMD."""
    names: set[str] = set()
    for text in texts:
        code = SourceCode(text if any(name in text for name in _BY_BUILDS) else "")
        for d in code.directives:
            if d.name in IFS or d.name in ELSES:
                names.update(code.text[d.begin + 2 : d.end])
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


def branches(code: SourceCode, macros: Macros) -> tuple[list[tuple[int, int]], list[Guard]]:
    """The ranges of tokens that are not compiled, and the conditions that are looked at."""
    dead: list[tuple[int, int]] = []
    guards: list[Guard] = []
    stack: list[_Open] = []
    for d in code.directives:
        if d.name in IFS:
            inside_dead = bool(stack) and stack[-1].live is False
            opened = _Open(False, False, d.end)
            if inside_dead:
                opened.taken = True
            else:
                _ask(opened, code, d, macros, guards)
                opened.taken = opened.live
            stack.append(opened)
        elif stack and (d.name in ELSES or d.name == "endif"):
            opened = stack[-1]
            if opened.live is False:
                dead.append((opened.begin, d.begin))
            if d.name == "endif":
                stack.pop()
                continue
            for index in opened.guards:
                guards[index] = replace(guards[index], alternative=True)
            _next_branch(opened, code, d, macros, guards)
    dead += [(opened.begin, len(code.tokens)) for opened in stack if opened.live is False]
    return dead, guards


def _ask(
    opened: _Open, code: SourceCode, d: Directive, macros: Macros, guards: list[Guard]
) -> None:
    """Whether the branch is compiled that the directive begins, as far as its condition says."""
    condition = code.flat(d.begin + 2, d.end)
    if d.name.endswith("def"):
        condition = f"{'!' * d.name.endswith('ndef')}defined({condition})"
    if d.name == "else":
        condition = "1"
    else:
        opened.guards.append(len(guards))
        guards.append(Guard(code.tokens[d.begin].begin, condition, alternative=False))
    opened.live = value(condition, macros)


def _next_branch(
    opened: _Open, code: SourceCode, d: Directive, macros: Macros, guards: list[Guard]
) -> None:
    opened.begin = d.end
    if opened.taken:
        opened.live = False
        return
    _ask(opened, code, d, macros, guards)
    result = opened.live
    # After a branch that may have been taken, it is uncertain whether this one is compiled.
    if result and opened.taken is None:
        opened.live = None
    if result is not False:
        opened.taken = result
