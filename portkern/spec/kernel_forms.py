"""The form that a kernel's file has: portkern's own, or one that models and collections of others
use. What can be called as it is becomes a candidate of that form; else the form is named.

``entry``      a function that is named after the op and is given its outputs: portkern's own
``module``     a class ``ModelNew``, KernelBench's form
``returns``    a function in Python that launches kernels and returns what it made
``extension``  C++ or CUDA whose functions take and return ``torch::Tensor``
``kernel``     nothing that launches the kernels
``else``       something that none of these is
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from portkern.spec.foreign_text import python_tree
from portkern.spec.module_form import CLASS, defines_class

FormKind = Literal["entry", "module", "returns", "extension", "kernel", "else"]
#: The language whose launchers may return tensors.
_RETURNING = "triton"
#: Languages whose files are not Python, which a class is all the same.
_NATIVE = frozenset({"cuda", "hip", "c++"})
#: Languages of kernels that a class may hold.
MODULES = frozenset({_RETURNING, *_NATIVE})
_JIT = re.compile(r"\b(?:jit|autotune|heuristics|njit|kernel)\b")
_LOADED = re.compile(r"\bload_inline\b|\bcpp_extension\b")
_IN_TRITON = re.compile(r"@\s*(?:triton\.)?jit\b|@\s*\w+\.jit\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"?", re.DOTALL)
_TENSOR = r"(?:torch|at)\s*::\s*Tensor"
_OF_TENSORS = re.compile(rf"(?<![\w:<]){_TENSOR}\s+(\w+)\s*\([^;{{}}()]*\)\s*\{{")
_EXPORTED = re.compile(r"\bm\s*\.\s*def\s*\(\s*\"(\w+)\"\s*,\s*&?\s*(\w+)")
_BINDS = re.compile(r"\bPYBIND11_MODULE\s*\(")
_SKIPPED = r"(?:(?!__global__)[^;{}()])*?"
_GLOBAL = re.compile(
    rf"__global__{_SKIPPED}(?:__launch_bounds__\s*\([^)]*\){_SKIPPED})?\b(?!__launch)(\w+)\s*\("
)
_FUNCTION = re.compile(r"^[\w:*&<>, \t\"]+?[\s*&](\w+)\s*\([^;{}()]*\)\s*\{", re.MULTILINE)
_MOST_NAMES = 3
#: What may give a module names that do not stand in its text.
_BINDERS = frozenset("exec eval globals locals vars setattr sys".split())


@dataclass(frozen=True)
class KernelForm:
    """``name`` of what is called, where there is one. ``words`` say what the file holds."""

    kind: FormKind
    name: str = ""
    words: str = ""


@lru_cache(maxsize=256)
def of(
    source: str, op: str, language: str, inputs: int, scalars: tuple[str, ...] = ()
) -> KernelForm:
    """The form of the kernel in a file in ``language``, for an op that takes so many tensors,
    and scalars by name. Names that nobody can read from the text, such as those of a macro,
    count as portkern's own form: a compiler will say."""
    if language in _NATIVE:
        return _module(source, language) or _native(source, op)
    module = _module(source, language)
    if module:
        return module
    try:
        tree = python_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return KernelForm("entry", op)
    return _python(tree, op, inputs, scalars, returning=language == _RETURNING)


def wanted(op: str, language: str) -> str:
    """The expectation that a file did not meet, in words."""
    also = f" or a class {CLASS}" if language in MODULES else ""
    return f"expected a function {op} in {language} that is given its outputs{also}"


def extension_module(source: str, called: str) -> str:
    """A file with a class ``ModelNew`` that builds ``source`` and calls one of its functions."""
    on_gpu = "__global__" in source or "<<<" in source
    kind = "cuda_sources" if on_gpu else "cpp_sources"
    declared = "" if not on_gpu or _BINDS.search(source) else f"{_declaration(source, called)};"
    functions = "" if _BINDS.search(source) else f", functions=[{called!r}]"
    beside = f"cpp_sources={declared!r}, " if on_gpu else ""
    return (
        "import torch\nfrom torch.utils.cpp_extension import load_inline\n\n"
        f"SOURCE = {_quoted(source)}\n"
        f'extension = load_inline(name="own", {beside}{kind}=SOURCE{functions})\n\n\n'
        f"class {CLASS}(torch.nn.Module):\n    def forward(self, *given):\n"
        f"        return extension.{called}(*given)\n"
    )


def _quoted(source: str) -> str:
    """The source as a Python literal, raw where Python can hold it so, which keeps its lines."""
    plain = "'''" not in source and not source.endswith(("'", "\\")) and "\r" not in source
    return f"r'''{source}'''" if plain else repr(source)


def _declaration(source: str, called: str) -> str:
    match = next((m for m in _OF_TENSORS.finditer(source) if m[1] == called), None)
    return " ".join(match[0].rstrip("{").split()) if match else ""


def _module(source: str, language: str) -> KernelForm | None:
    """The form of a Python module, whatever the language: its kernels are in texts, or in
    Triton."""
    if not defines_class(source):
        return None
    in_triton, loaded = bool(_IN_TRITON.search(source)), bool(_LOADED.search(source))
    holds = "Triton kernels" if in_triton else "an extension" if loaded else "no kernel"
    words = f"a class {CLASS} with {holds}"
    other = (language == "triton" and loaded and not in_triton) or (
        language in _NATIVE and in_triton and not loaded
    )
    fits = language in MODULES and not other
    return KernelForm("module" if fits else "else", CLASS, words)


# ---- C and its relatives


def _native(source: str, op: str) -> KernelForm:
    text = _COMMENT.sub(lambda m: " " if m[0][0] == "/" else '""', source)
    tensors = _OF_TENSORS.findall(text)
    if tensors:
        exported = {function: name for name, function in _EXPORTED.findall(source)}
        chosen = next(
            (name for name in (op, "forward", *exported, *tensors[-1:]) if name in tensors), ""
        )
        called = exported.get(chosen, chosen)
        return KernelForm("extension", called, f"an extension of PyTorch with {_listed(tensors)}")
    if re.search(rf"\b{re.escape(op)}\b", text) or "##" in text:
        return KernelForm("entry", op)
    functions = [name for name in _FUNCTION.findall(text) if name not in ("if", "for", "while")]
    kernels = list(dict.fromkeys(_GLOBAL.findall(text)))
    others = [name for name in functions if name not in kernels]
    if kernels and "<<<" not in text and "hipLaunchKernel" not in text:
        return KernelForm("kernel", kernels[0], f"{_kernels(kernels)} and nothing that launches it")
    if others:
        return KernelForm("else", others[0], f"the {_functions(others)}")
    return KernelForm("entry", op)


# ---- Python


def _python(
    tree: ast.Module, op: str, inputs: int, scalars: Sequence[str], *, returning: bool
) -> KernelForm:
    bound = set(_bound(tree))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # Elsewhere what is decorated so may be called as it is.
    kernels = [name for name, node in functions.items() if returning and _is_kernel(node)]
    if any(map(_hides_names, ast.walk(tree))):
        return KernelForm("entry", op)
    if op in bound and op not in kernels:
        own = functions.get(op)
        if returning and own and _takes(own, scalars) == inputs and _returns(own):
            return KernelForm("returns", op, f"a function {op} that returns its result")
        return KernelForm("entry", op)
    launchers = [
        name for name, node in functions.items() if name not in kernels and _launches(node)
    ]
    called = {name for one in launchers for name in _called(functions[one])}
    outer = [name for name in launchers if name not in called]
    if returning and len(outer) == 1 and _returns(functions[outer[0]]):
        takes = _takes(functions[outer[0]], scalars)
        words = f"a function {outer[0]} that takes {takes} and returns its result"
        return KernelForm("returns" if takes == inputs else "else", outer[0], words)
    if outer:
        return KernelForm("else", outer[0], f"the {_functions(outer)}")
    if kernels:
        return KernelForm("kernel", kernels[0], f"{_kernels(kernels)} and nothing that launches it")
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if classes:
        return KernelForm("else", classes[0], f"a class {classes[0]}")
    return (
        KernelForm("entry", op)
        if not functions
        else KernelForm("else", next(iter(functions)), f"the {_functions([*functions])}")
    )


def _hides_names(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    return isinstance(node, ast.Name) and node.id in _BINDERS


def _bound(tree: ast.Module) -> Iterator[str]:
    """Names that the module has, also those that are bound under a condition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(_JIT.search(ast.unparse(decorator)) for decorator in node.decorator_list)


def _launches(node: ast.FunctionDef) -> bool:
    """``kernel[grid](…)``, or a call of another that does, which is seen where that is."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Subscript)
        and isinstance(part.func.value, ast.Name)
        for part in ast.walk(node)
    )


def _called(node: ast.FunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            yield part.func.id


def _returns(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(part, ast.Return)
        and part.value is not None
        and not (isinstance(part.value, ast.Constant) and part.value.value is None)
        for part in ast.walk(node)
    )


def _takes(node: ast.FunctionDef, scalars: Sequence[str]) -> int:
    """Parameters that have no default and are not a scalar's."""
    given = [*node.args.posonlyargs, *node.args.args]
    needed = given[: len(given) - len(node.args.defaults)]
    return sum(one.arg not in scalars for one in needed)


def _kernels(names: Sequence[str]) -> str:
    return f"the {'kernel' if len(names) == 1 else 'kernels'} {_listed(names)}"


def _functions(names: Sequence[str]) -> str:
    return f"{'function' if len(names) == 1 else 'functions'} {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    few = list(dict.fromkeys(names))
    more = f" and {len(few) - _MOST_NAMES} more" if len(few) > _MOST_NAMES else ""
    return ", ".join(few[:_MOST_NAMES]) + more
