"""The ``@triton.jit`` functions of a Python source, read with ``ast`` and never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from portkern.port.triton_values import MOST_CONFIGS, Constants, Unknown
from portkern.spec.foreign_text import python_tree

#: Arguments of ``triton.Config`` that are the compiler's, not the kernel's.
KNOBS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim")


@dataclass(frozen=True)
class TritonParameter:
    """``default`` and ``annotation`` as written, '' without."""

    name: str
    constexpr: bool
    annotation: str = ""
    default: str = ""


#: A parameter's value in a configuration.
Setting = int | float | bool | str | None


@dataclass(frozen=True)
class TritonConfig:
    """One of ``triton.autotune``'s: the kernel's parameters and the compiler's knobs."""

    values: Mapping[str, Setting]
    knobs: Mapping[str, int]

    def __str__(self) -> str:
        both = {**self.values, **self.knobs}
        return " ".join(f"{name}={value}" for name, value in both.items()) or "defaults"


@dataclass(frozen=True)
class TritonKernel:
    """``heuristics`` are parameters that code computes at the launch; ``helper`` is a function
    that other kernels of the file call, or that returns a value, and nobody launches. ``unread``
    says what of its configurations could not be evaluated."""

    name: str
    path: PurePosixPath
    line: int
    last_line: int
    parameters: tuple[TritonParameter, ...]
    configs: tuple[TritonConfig, ...] = ()
    heuristics: tuple[str, ...] = ()
    helper: bool = False
    unread: tuple[str, ...] = ()


def kernels(text: str, path: PurePosixPath) -> tuple[TritonKernel, ...]:
    """The Triton kernels of a file, in their order. Raises SyntaxError, with its line, for what
    is not Python."""
    module = python_tree(text)
    constants = Constants(module)
    jitted = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list))
    ]
    jitted.sort(key=lambda node: node.lineno)
    called = _called(jitted)
    launched = _launched(module)
    return tuple(
        _kernel(node, path, constants, node.name not in launched and _helps(node, called))
        for node in jitted
    )


def _kernel(
    node: ast.FunctionDef, path: PurePosixPath, constants: Constants, helper: bool
) -> TritonKernel:
    configs: list[TritonConfig] = []
    heuristics: list[str] = []
    unread: list[str] = []
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        name = _last(decorator.func)
        if name == "autotune":
            listed, reasons = _configs(decorator, constants)
            configs += listed
            unread += reasons
        elif name == "heuristics":
            heuristics += _keys(decorator)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return TritonKernel(
        node.name,
        path,
        first,
        node.end_lineno or node.lineno,
        tuple(_parameters(node)),
        tuple(configs),
        tuple(heuristics),
        helper,
        tuple(unread),
    )


def _parameters(node: ast.FunctionDef) -> Iterator[TritonParameter]:
    listed = [*node.args.posonlyargs, *node.args.args]
    defaults: list[ast.expr | None] = [None] * (len(listed) - len(node.args.defaults))
    both = [*zip(listed, [*defaults, *node.args.defaults], strict=True)]
    both += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    for parameter, default in both:
        annotation = ast.unparse(parameter.annotation) if parameter.annotation else ""
        yield TritonParameter(
            parameter.arg,
            annotation.strip("'\"").endswith("constexpr"),
            annotation,
            ast.unparse(default) if default is not None else "",
        )


def _configs(decorator: ast.Call, constants: Constants) -> tuple[list[TritonConfig], list[str]]:
    given = next((k.value for k in decorator.keywords if k.arg == "configs"), None)
    given = given or (decorator.args[0] if decorator.args else None)
    if given is None:
        return [], ["autotune without configs"]
    try:
        listed = constants.value(given)
    except Unknown as error:
        return [], [f"line {error.line}: autotune's configs need {error}"]
    entries = list(listed) if isinstance(listed, Sequence) and not isinstance(listed, str) else []
    configs = [_config(entry) for entry in entries[:MOST_CONFIGS] if isinstance(entry, Mapping)]
    dropped = len(entries) - MOST_CONFIGS
    return configs, [f"{dropped} further configs were left out"] if dropped > 0 else []


def _config(entry: Mapping[str, object]) -> TritonConfig:
    knobs = {k: v for k, v in entry.items() if k in KNOBS and isinstance(v, int)}
    values = {
        k: v
        for k, v in entry.items()
        if k not in KNOBS and (v is None or isinstance(v, bool | int | float | str))
    }
    return TritonConfig(values, knobs)


def _keys(decorator: ast.Call) -> list[str]:
    given = next((k.value for k in decorator.keywords if k.arg == "values"), None)
    given = given or (decorator.args[0] if decorator.args else None)
    keys = given.keys if isinstance(given, ast.Dict) else []
    return [key.value for key in keys if isinstance(key, ast.Constant) and type(key.value) is str]


def _is_jit(decorator: ast.expr) -> bool:
    """``triton.jit``, ``jit`` or ``triton_jit``, with arguments or without; not numba's."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(node, ast.Attribute):
        return node.attr == "jit" and _last(node.value) in ("triton", "tt")
    return isinstance(node, ast.Name) and node.id in ("jit", "triton_jit")


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _helps(node: ast.FunctionDef, called: set[str]) -> bool:
    """Whether kernels call the function, of this file or, as it returns a value, of others: what is
    launched returns none."""
    returned = (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value)
    is_valued = any(not (isinstance(v, ast.Constant) and v.value is None) for v in returned)
    return is_valued or node.name in called


def _called(jitted: Sequence[ast.FunctionDef]) -> set[str]:
    """Functions that kernels call."""
    return {
        _last(call.func) for node in jitted for call in ast.walk(node) if isinstance(call, ast.Call)
    }


def _launched(module: ast.Module) -> set[str]:
    """Functions that are launched: ``k[grid](…)``."""
    return {
        _last(call.func.value)
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)
    }
