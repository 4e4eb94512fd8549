"""The types of a Triton kernel's parameters and the values of its constants, for which it is
compiled.

Triton's kernels have no types: a launch gives them. Without one they are inferred from how the
kernel uses its parameters, and what was assumed is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portkern.spec.foreign_text import python_tree

#: A constant of the kernel; ``{"dtype": "fp32"}`` is one of Triton's types.
Constant = int | float | bool | str | None | dict[str, str]

_ADDRESSED = frozenset(
    "load store atomic_add atomic_cas atomic_xchg atomic_max atomic_min atomic_or atomic_and "
    "atomic_xor make_block_ptr make_tensor_descriptor".split()
)
_POINTER = re.compile(r"_ptrs?$|_pointer$|^ptr_|^p_")
_EXTENT = re.compile(r"stride|_size|n_|num", re.IGNORECASE)
_FLOAT = re.compile(
    r"eps|scale|alpha|beta|gamma|^lr$|temp|softcap|momentum|dropout|prob|lambda|decay|clip|smooth|"
    r"sigma|threshold|^p$|bias_correction|inv_|coef|limit|value|weight|ratio|factor",
    re.IGNORECASE,
)
_INTEGERS = re.compile(
    r"idx|index|indices|ids?(_|$)|target|label|seqlen|offset|lengths?(_|$)|lens?(_|$)|table|lock|"
    r"counts?(_|$)|slot|perm|histogram|batch_ids|argmax|rows?_map|expert",
    re.IGNORECASE,
)
_MASK = re.compile(r"mask", re.IGNORECASE)
_SIZE = re.compile(r"block|tile|chunk|^b[mnktvcds]$|_size$|^BLOCK|width|^n_?rows?|num_rows", re.I)
_FLAG = re.compile(
    r"^(has|is|use|even|with|return|compute|store|do|reuse|need|enable|apply|should|save)_|"
    r"(_flag|contiguous|causal|fused)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Inference:
    """``signature``: the type of each parameter that is not a constant (``*fp32``, ``i32``);
    ``constants``: a value for each of the others. ``assumed`` says for which there was no more
    than a name to go by."""

    signature: Mapping[str, str]
    constants: Mapping[str, Constant]
    assumed: tuple[str, ...]


def infer(text: str) -> Mapping[str, Inference]:
    """The types and constants of each function of the source, by name. Raises SyntaxError."""
    module = python_tree(text)
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    launches = _launches(module)
    numbers = dict(_numbers(module))
    uses = {name: _Uses(node, functions, numbers) for name, node in functions.items()}
    return {name: _inferred(node, uses[name], launches) for name, node in functions.items()}


def _inferred(
    node: ast.FunctionDef, uses: _Uses, launches: Mapping[str, Mapping[str, Constant]]
) -> Inference:
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    assumed: list[str] = []
    launched = launches.get(node.name, {})
    listed = [*node.args.posonlyargs, *node.args.args]
    plain: list[ast.expr | None] = [None] * (len(listed) - len(node.args.defaults))
    defaults = [*plain, *node.args.defaults, *node.args.kw_defaults]
    for parameter, default in zip([*listed, *node.args.kwonlyargs], defaults, strict=True):
        name = parameter.arg
        annotation = ast.unparse(parameter.annotation).strip("'\"") if parameter.annotation else ""
        value = default.value if isinstance(default, ast.Constant) else None
        if annotation.endswith("constexpr"):
            if name in launched:
                constants[name] = launched[name]
            elif isinstance(value, bool | int | float | str):
                constants[name] = value
            else:
                constants[name], sure = uses.constant(name)
                assumed += [] if sure else [f"{name}={constants[name]}"]
            continue
        kind, sure = uses.kind(name, annotation)
        if isinstance(value, float):
            kind, sure = "fp32", True
        signature[name] = kind
        assumed += [] if sure else [f"{name}: {kind}"]
    return Inference(signature, constants, tuple(assumed))


class _Uses:
    """How a function uses its parameters."""

    def __init__(
        self,
        node: ast.FunctionDef,
        functions: Mapping[str, ast.FunctionDef],
        numbers: Mapping[str, object],
    ) -> None:
        self.node, self.functions, self.numbers = node, functions, numbers
        self.names = {a.arg for a in (*node.args.posonlyargs, *node.args.args)}
        self._pointers: set[str] | None = None

    def kind(self, name: str, annotation: str) -> tuple[str, bool]:
        """The type, and whether the source says so."""
        if annotation.startswith("*"):
            return annotation, True
        written = {"float": "fp32", "int": "i32", "bool": "i1"}.get(annotation)
        written = written or _dtype(annotation.rpartition(".")[2])
        if name in self.pointers() or "pointer" in annotation:
            if _MASK.search(name):
                return "*i1", False
            integer = _INTEGERS.search(name)
            return ("*i64" if integer else "*fp32"), not integer
        if written:
            return written, True
        extent = _EXTENT.search(name)
        if _POINTER.search(name) and not extent:
            return "*fp32", False
        if _FLOAT.search(name) and not extent:
            return "fp32", False
        return "i32", True

    def pointers(self, depth: int = 0) -> set[str]:
        """Parameters that addresses begin with, in this function or in those that it calls."""
        if self._pointers is not None:
            return self._pointers
        bases: dict[str, set[str]] = {name: {name} for name in self.names}
        for _ in range(4):  # an address is made in a few steps
            for target, value in self._assigned():
                base = _base(value)
                if base in bases and target not in self.names:
                    bases.setdefault(target, set()).update(bases[base])
        bases_used: set[str] = set()
        for call in (n for n in ast.walk(self.node) if isinstance(n, ast.Call)):
            called = _last(call.func)
            if called in _ADDRESSED:
                given = call.args[0] if call.args else next((k.value for k in call.keywords), None)
                base = _base(given) if given is not None else ""
                bases_used |= bases.get(base, set())
            elif called in self.functions and called != self.node.name and depth < 4:
                bases_used |= self._passed(call, bases, depth)
        self._pointers = bases_used & self.names if depth == 0 else None
        return bases_used & self.names

    def _passed(self, call: ast.Call, bases: Mapping[str, set[str]], depth: int) -> set[str]:
        """The parameters that a call passes on to a function which uses them as addresses."""
        inner = self.functions[_last(call.func)]
        wanted = _Uses(inner, self.functions, self.numbers).pointers(depth + 1)
        names = [a.arg for a in (*inner.args.posonlyargs, *inner.args.args)]
        given = [*zip(names, call.args, strict=False)]
        given += [(k.arg, k.value) for k in call.keywords if k.arg]
        return {
            name
            for parameter, value in given
            if parameter in wanted
            for name in bases.get(_base(value), set())
        }

    def _assigned(self) -> Iterator[tuple[str, ast.expr]]:
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, node.value

    def constant(self, name: str) -> tuple[Constant, bool]:
        """A value, and whether the source says so."""
        compared = list(self._compared(name))
        texts = [value for value in compared if isinstance(value, str)]
        if texts:
            return texts[0], False
        if self._is_dtype(name):
            return {"dtype": "fp32"}, False
        if self._is_flag(name):
            return True, False
        if _FLOAT.search(name) and not _SIZE.search(name):
            return 0.5, False
        numbers = [value for value in compared if isinstance(value, int)]
        if numbers and not _SIZE.search(name):
            return numbers[0], False
        if _SIZE.search(name) or name.isupper():
            return self._size(), False
        return 1 if "stride" in name else 16, False

    def _size(self) -> int:
        """The size to assume for a tile's side: larger where a kernel has only one."""
        flat = not any(isinstance(n, ast.Constant) and n.value is None for n in ast.walk(self.node))
        sizes = sum(bool(_SIZE.search(name)) for name in self.names)
        if flat and sizes < 2:
            return 1024
        return 64 if sizes < 3 else 32

    def _compared(self, name: str) -> Iterator[object]:
        for node in ast.walk(self.node):
            if isinstance(node, ast.Compare) and _last(node.left) == name:
                for value in node.comparators:
                    if isinstance(value, ast.Constant):
                        yield value.value
                    elif _last(value) in self.numbers:
                        yield self.numbers[_last(value)]

    def _is_dtype(self, name: str) -> bool:
        if re.search(r"dtype|_type$", name, re.IGNORECASE):
            return True
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and _last(node.func) == "to":
                if any(isinstance(a, ast.Name) and a.id == name for a in node.args):
                    return True
            if isinstance(node, ast.keyword) and node.arg in ("dtype", "out_dtype"):
                if isinstance(node.value, ast.Name) and node.value.id == name:
                    return True
        return False

    def _is_flag(self, name: str) -> bool:
        if _FLAG.search(name):
            return True
        for node in ast.walk(self.node):
            tests = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
            parts = [p for t in tests for p in (t.values if isinstance(t, ast.BoolOp) else [t])]
            parts = [p.operand if isinstance(p, ast.UnaryOp) else p for p in parts]
            if any(isinstance(part, ast.Name) and part.id == name for part in parts):
                return True
        return False


def _base(node: ast.expr) -> str:
    """The name that an address begins with: of ``x + row * n + columns`` it is x."""
    while True:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ("to", "cast", "multiple_of", "max_contiguous"):
                return ""
            is_method = node.func.attr == "to"
            if not is_method and not node.args:
                return ""
            node = node.func.value if is_method else node.args[0]
        else:
            return node.id if isinstance(node, ast.Name) else ""


def _launches(module: ast.Module) -> Mapping[str, Mapping[str, Constant]]:
    """Constants that ``kernel[grid](…, NAME=value)`` gives, of the first launch of each."""
    given: dict[str, dict[str, Constant]] = {}
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Subscript):
            continue
        known = given.setdefault(_last(call.func.value), {})
        for keyword in call.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg and isinstance(value, bool | int | float | str):
                known.setdefault(keyword.arg, value)
    return given


def _numbers(module: ast.Module) -> Iterator[tuple[str, object]]:
    """Names of the file that stand for a constant, ``tl.constexpr(…)`` or not."""
    for node in module.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and _last(value.func) == "constexpr" and value.args:
            value = value.args[0]
        if isinstance(value, ast.Constant):
            yield from ((_last(target), value.value) for target in targets if _last(target))


def _dtype(name: str) -> str:
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
    names |= {"int32": "i32", "int64": "i64", "int1": "i1", "int8": "i8", "uint32": "u32"}
    return names.get(name, "")


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
