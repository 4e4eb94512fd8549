"""The settings of a ``setup.py``'s extensions, found by reading it: it is not executed here."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from portkern.port.build_variables import MOST_CHARACTERS
from portkern.spec.foreign_text import python_tree

_EXTENSIONS = frozenset(
    ["CUDAExtension", "CppExtension", "SyclExtension", "Extension", "load", "load_inline"]
)
#: List items that a value may have; sums of sums grow without end.
_MOST_PARTS = 10_000
_Value = str | list["_Value"] | dict[str, "_Value"] | None
#: Built when they are called, not by setup.py.
_AT_RUN_TIME = frozenset(["load", "load_inline"])
#: What scripts call the answer whether it is built for AMD.
_AMD = re.compile(r"_?(is_|use_|with_|has_)?(rocm|hip)(_\w+)?", re.IGNORECASE)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Module:
    """One extension, by the name that Python imports it by, with its files, folders of headers and
    macros."""

    name: str
    sources: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()


@dataclass
class ExtensionSettings:
    """The settings of all extensions together, and of those whose name is known, each."""

    include: list[Path] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)
    sources: list[Path] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)

    def add(self, name: _Value, own: ExtensionSettings) -> None:
        self.include += own.include
        self.defines += own.defines
        self.sources += own.sources
        if isinstance(name, str) and _MODULE.fullmatch(name) and own.sources:
            files, folders = tuple(dict.fromkeys(own.sources)), tuple(dict.fromkeys(own.include))
            self.modules.append(Module(name, files, folders, tuple(dict.fromkeys(own.defines))))


def read(text: str, file: Path) -> ExtensionSettings | str:
    """The settings of all extensions of the script together; else why it cannot be read."""
    try:
        module = python_tree(text)
    except SyntaxError as error:
        return f"does not parse as Python: {error}"
    folding = _Folding(file)
    folding.learn(module)
    extensions = ExtensionSettings()
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and _name(call.func) in _EXTENSIONS:
            _take(call, folding, extensions, file.parent)
    return extensions


def _take(call: ast.Call, folding: _Folding, extensions: ExtensionSettings, folder: Path) -> None:
    given = {k.arg: folding.value(k.value) for k in call.keywords if k.arg}
    own = ExtensionSettings()
    sources = given.get("sources")
    if sources is None and len(call.args) > 1:
        sources = folding.value(call.args[1])
    own.sources += [folder / path for path in _texts(sources)]
    for name in ("include_dirs", "extra_include_paths"):
        own.include += [folder / path for path in _texts(given.get(name))]
    macros = given.get("define_macros")
    for pair in macros if isinstance(macros, list) else []:
        parts = [part for part in pair if part is not None] if isinstance(pair, list) else []
        if parts and all(isinstance(part, str) for part in parts):
            own.defines.append("=".join(str(part) for part in parts))
    for name in ("extra_compile_args", "extra_cuda_cflags", "extra_cflags"):
        flags = list(_texts(given.get(name)))
        own.defines += [flag[2:] for flag in flags if flag.startswith("-D")]
        own.include += [folder / flag[2:] for flag in flags if flag.startswith("-I")]

    module = given.get("name", folding.value(call.args[0]) if call.args else None)
    extensions.add(None if _name(call.func) in _AT_RUN_TIME else module, own)


def _texts(value: _Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class _Folding:
    """Values of expressions that only paths and constants go into; None for all others."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._names: dict[str, _Value] = {"__file__": str(file)}

    def learn(self, module: ast.Module) -> None:
        """The values of names, in the order of assignments, of functions too; but not those of
        branches that only a build for AMD takes."""
        of_amd = {id(node) for branch in _of_amd(module) for node in ast.walk(branch)}
        for node in ast.walk(module):
            if id(node) in of_amd:
                continue
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=given):
                    self._names[name] = self.value(given)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as given):
                    self._names[name] = self.value(given)
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=given):
                    before, more = self._names.get(name), self.value(given)
                    self._names[name] = _sum(before, more)

    def value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return str(number)
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Dict(keys=keys, values=values):
                names = [self.value(key) if key is not None else None for key in keys]
                pairs = zip(names, values, strict=True)
                return {str(name): self.value(given) for name, given in pairs}
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _sum(self.value(left), self.value(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                first, second = self.value(left), self.value(right)
                both = isinstance(first, str) and isinstance(second, str)
                return os.path.join(str(first), str(second)) if both else None  # noqa: PTH118
            case ast.JoinedStr(values=parts):
                texts = [
                    self.value(p.value if isinstance(p, ast.FormattedValue) else p) for p in parts
                ]
                known = all(isinstance(text, str) for text in texts)
                return "".join(str(text) for text in texts) if known else None
            case ast.Attribute(value=inner, attr="parent"):
                path = self.value(inner)
                return str(Path(path).parent) if isinstance(path, str) else None
            case ast.ListComp(elt=element, generators=[ast.comprehension() as loop]):
                return self._comprehension(element, loop)
            case ast.Call():
                return self._call(node)
        return None

    def _comprehension(self, element: ast.expr, loop: ast.comprehension) -> _Value:
        parts = self.value(loop.iter)
        if not isinstance(loop.target, ast.Name) or not isinstance(parts, list):
            return None
        before, values = dict(self._names), list[_Value]()
        for part in parts:
            self._names[loop.target.id] = part
            values.append(self.value(element))
        self._names = before
        return values

    def _call(self, call: ast.Call) -> _Value:
        name, arguments = _name(call.func), [self.value(a) for a in call.args]
        texts = [a for a in arguments if isinstance(a, str)]
        if isinstance(call.func, ast.Attribute) and not arguments:
            inner = self.value(call.func.value)
            return inner if name in ("resolve", "absolute", "as_posix") else None
        if len(texts) != len(arguments) or not texts:
            return self._of_list(name, arguments)
        if name == "join":
            return os.path.join(*texts)  # noqa: PTH118
        if name == "dirname":
            return str(Path(texts[0]).parent)
        if name in ("abspath", "realpath", "Path", "str", "normpath", "fspath", "resolve"):
            return os.path.join(*texts)  # noqa: PTH118
        if name in ("glob", "rglob", "iglob"):
            inner = self.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
            return self._glob(inner if isinstance(inner, str) else "", texts[0], name)
        if name == "getcwd":
            return str(self.file.parent)
        return None

    def _of_list(self, name: str, arguments: list[_Value]) -> _Value:
        first = arguments[0] if arguments else None
        return first if name in ("list", "sorted", "set", "tuple") else None

    def _glob(self, base: str, pattern: str, name: str) -> _Value:
        folder = self.file.parent / base
        path = Path(pattern)
        if path.is_absolute():
            if not path.is_relative_to(self.file.parent):
                return None
            folder, pattern = self.file.parent, str(path.relative_to(self.file.parent))
        try:
            paths = folder.rglob(pattern) if name == "rglob" else folder.glob(pattern)
            return [str(path) for path in sorted(paths)[:1000]]
        except (OSError, ValueError, NotImplementedError):
            return None


def _of_amd(module: ast.Module) -> Iterator[ast.stmt]:
    """The statements of branches that only a build for AMD takes."""
    for node in ast.walk(module):
        if isinstance(node, ast.If) and (asks := _asks_for_amd(node.test)) is not None:
            yield from node.body if asks else node.orelse


def _asks_for_amd(test: ast.expr) -> bool | None:
    """Whether a condition holds for AMD alone, or for others alone; None for any other."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            asks = _asks_for_amd(inner)
            return None if asks is None else not asks
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(None)]):
            return None if _asks_for_amd(left) is None else False
        case ast.Compare(left=left, comparators=[ast.Constant(None)]):
            return _asks_for_amd(left)
        case ast.BoolOp(op=ast.And(), values=parts):
            return True if any(_asks_for_amd(part) for part in parts) else None
        case ast.Call(func=function):
            return _asks_for_amd(function)
        case ast.Attribute(value=ast.Attribute(attr="version"), attr="hip"):
            return True
        case ast.Attribute() | ast.Name():
            return True if _AMD.fullmatch(_name(test)) else None
    return None


def _sum(first: _Value, second: _Value) -> _Value:
    """A list of which only a part is known is that part."""
    if isinstance(first, str) and isinstance(second, str):
        return first + second if len(first) + len(second) <= MOST_CHARACTERS else None
    lists = [part for part in (first, second) if isinstance(part, list)]
    if sum(map(len, lists)) > _MOST_PARTS:
        return None
    return [value for part in lists for value in part] if lists else None
