"""Python, through its own parser: Triton, Pallas, Numba and the host side of OpenCL.

Names are followed to what they stand for: imports and their aliases, plain assignments, and
``getattr``, ``__import__`` and ``importlib`` with constant strings.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from portkern.guard import extensions, native, rules, shared
from portkern.guard.lookups import Lookups
from portkern.guard.tree import (
    attributes_made_of,
    called_by_pallas,
    constant,
    is_main,
    is_strict,
    is_true,
    own_attributes,
    unused,
    words,
)

_IMPORTERS = (
    "builtins.__import__",
    "importlib.import_module",
    "importlib.__import__",
    "importlib._bootstrap._gcd_import",
    "_frozen_importlib._gcd_import",
    "pkgutil.resolve_name",
    "pydoc.locate",
    "runpy.run_module",
)
#: What ``globals()`` is, by the name that it goes under here.
_NAMESPACE = "globals()"
_ITEM_METHODS = ("get", "pop", "setdefault", "__getitem__")
_LIBRARY = "ctypes.CDLL()"
_LIBRARY_OPENERS = (
    "ctypes.CDLL",
    "ctypes.PyDLL",
    "ctypes.cdll.LoadLibrary",
    "ctypes.pydll.LoadLibrary",
)
_SECRETIVE = ("os", "sys", "builtins", "ctypes", "torch", "subprocess", "importlib")

Found = set[tuple[int, str]]


def parse(source: str) -> ast.Module | None:
    """The source's tree; None for what is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes and comparisons in the candidate
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def read(tree: ast.Module, language: str, entry: str, *, module: bool = False) -> Found:
    """Lines and rules. Who does the work is asked only of what ``entry`` leads to: many a kernel
    brings its reference along. ``module``: the entry is a class of torch.nn, which may be made of
    others that hold its parameters; who calls one of them lets it do the work."""
    reader = _Reader(tree, language, module)
    reader.unused = set(unused(tree, entry))
    try:
        reader.run()
        reader.find_none(entry)
    except RecursionError:
        reader.places.add((1, "G406"))
    return reader.places


@dataclass
class _Scope:
    """Meanings of names: a dotted name, or None for something of the source's own."""

    parent: _Scope | None = None
    names: dict[str, str | None] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        if name == "__builtins__":
            return "builtins"
        return f"builtins.{name}" if hasattr(builtins, name) else None

    def bind(self, name: str, target: str | None) -> None:
        """Binds a name; an alias stays one, as ``torch = None`` may be in the other branch."""
        if target is not None or self.names.get(name) is None:
            self.names[name] = target


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module, language: str, is_module: bool = False) -> None:
        self.tree, self.language, self.is_module = tree, language, is_module
        self.layers: set[str] = set()
        self.extensions: set[str] = set()
        self.namespaces = extensions.registered(tree)
        self.places: Found = set()
        self.scope = self.module = _Scope()
        self.in_kernel = self.in_function = self.makes_kernels = self.makes_code = False
        self.in_annotation = False
        self.kernels = set(called_by_pallas(tree)) if language.startswith("pallas") else set()
        self.unused: set[ast.AST] = set()
        self.in_unused = False
        self.own_attributes = set(own_attributes(tree))
        self.later: list[Callable[[], None]] = []
        self.asks_process = False  # for its environment or its modules
        self.interpreters: list[ast.AST] = []  # texts that name one
        self.lookups = Lookups()

    def run(self) -> None:
        """Functions are read once their module has been, for they see all of its names."""
        self.visit(self.tree)
        if self.is_module:
            self.layers = attributes_made_of(self.tree, self._is_layer)
            self.extensions = extensions.held(self.tree, self._is_loader)
        while self.later:
            self.later.pop(0)()
        for text in self.interpreters if self.asks_process else ():
            self.hit(text, "G206")
        for node in self.lookups.hits():
            self.hit(node, "G204")

    def find_none(self, entry: str) -> None:
        """A file without any kernel; where ``entry`` is missing too, the backend says so."""
        if self.language not in rules.KERNEL_MAKERS or self.makes_kernels or self.makes_code:
            return
        functions = (node for node in self.tree.body if isinstance(node, ast.FunctionDef))
        lines = [function.lineno for function in functions if function.name == entry]
        if lines or entry in self.module.names:
            self.places.add(((lines or [1])[-1], "G304"))

    def hit(self, node: ast.AST, rule: str) -> None:
        if not (self.in_unused and rule in rules.ABOUT_THE_WORK):
            self.places.add((getattr(node, "lineno", 1), rule))

    # what an expression stands for

    def name(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self.scope.find(node.id)
        if isinstance(node, ast.NamedExpr):
            return self.name(node.value)
        if isinstance(node, ast.Attribute):
            base = self.name(node.value)
            return _join(base, node.attr)
        if isinstance(node, ast.Subscript):
            base, key = self.name(node.value), constant(node.slice)
            return self._item(base, key) if base and key else None
        return self._result(node) if isinstance(node, ast.Call) else None

    def _item(self, base: str, key: str) -> str | None:
        if base == "sys.modules":
            return key
        if base == _NAMESPACE:
            return self.module.find(key)
        if base.endswith(".__dict__") or base == "builtins":
            return _join(base.removesuffix(".__dict__"), key)
        return None

    def _result(self, call: ast.Call) -> str | None:
        """The result of a call, where that is a module or a part of one."""
        function = self.name(call.func)
        first = _first_text(call)
        if function in _IMPORTERS and first:
            top, _, _ = first.partition(".")
            return top if function == "builtins.__import__" else first.replace(":", ".")
        if function in rules.NAMESPACES and not call.args:
            return _NAMESPACE
        base, _, method = (function or "").rpartition(".")
        if method in _ITEM_METHODS and base and first:
            return self._item(base, first)
        if function == "builtins.getattr" and len(call.args) > 1:
            key = constant(call.args[1])
            return _join(self.name(call.args[0]), key) if key else None
        if function == "builtins.vars" and call.args:
            return _join(self.name(call.args[0]), "__dict__")
        return _LIBRARY if function in _LIBRARY_OPENERS else None

    # bindings

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._bind_name(node, alias.asname or top, alias.name if alias.asname else top)
            self._evaluate(node, alias.name, imported=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self.lookups.relative_imports.append(node)
        for alias in node.names:
            if node.level:
                self._bind_name(node, alias.asname or alias.name, None)
            elif alias.name == "*":
                self._star(node, module)
            else:
                name = f"{module}.{alias.name}"
                self._bind_name(node, alias.asname or alias.name, _join(module, alias.name))
                self._evaluate(node, name if self._is_shared(name) else module, imported=True)

    def _star(self, node: ast.ImportFrom, module: str) -> None:
        """Binds the names that rules know; whether they are used is seen where they are."""
        self._evaluate(node, module, imported=True)
        known = [*rules.PYTHON, *rules.FILE_WRITERS, *rules.FILE_OPENERS, *rules.LOOKUPS]
        known += _IMPORTERS
        known += [f"{m}.{n}" for m in ("torch", "jax.numpy", "numpy") for n in rules.HEAVY]
        for name in known:
            home, _, last = name.rpartition(".")
            if home == module:
                self.scope.bind(last, name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target, node.value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target, target.id, self.name(value))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, other in zip(target.elts, value.elts, strict=False):
                self._bind(part, other)
        else:
            self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._refer(node)
        else:
            self._bind_name(node, node.id, None)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self._bind_name(node, node.name, None)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        if {"__name__", *rules.PACKAGE_NAMES} & set(node.names):
            self.hit(node, "G204")

    def _bind_name(self, node: ast.AST, name: str, target: str | None) -> None:
        self.scope.bind(name, target)
        if name in rules.PACKAGE_NAMES:
            self.hit(node, "G204")

    # scopes

    def visit_If(self, node: ast.If) -> None:
        """Skips what stands under ``if __name__ == "__main__"``, which never runs here."""
        if is_main(node.test) and "__name__" not in self.scope.names:
            self._visit_all(node.orelse)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind_name(node, node.name, None)
        self._visit_all(node.decorator_list)
        made = any(self._is_maker(decorator) for decorator in node.decorator_list)
        if node.name in ("__torch_function__", "__torch_dispatch__"):
            self.hit(node, "G203")
        self._function(node, made or node.name in self.kernels)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, kernel=False)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, kernel: bool
    ) -> None:
        taken = node.args
        self._visit_all([*taken.defaults, *(d for d in taken.kw_defaults if d is not None)])
        parameters = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
        parameters += [extra for extra in (taken.vararg, taken.kwarg) if extra is not None]
        annotations = [parameter.annotation for parameter in parameters]
        for annotation in [*annotations, getattr(node, "returns", None)]:
            self._annotation(annotation)
        inner = _Scope(self.scope, dict.fromkeys(parameter.arg for parameter in parameters))
        inside, unused = self.in_kernel or kernel, self.in_unused or node in self.unused
        body = [node.body] if isinstance(node, ast.Lambda) else node.body

        def read_body() -> None:
            self.scope, self.in_kernel, self.in_unused = inner, inside, unused
            self.in_function = True
            self._visit_all(body)

        self.later.append(read_body)

    def _annotation(self, node: ast.expr | None) -> None:
        """Names of types do nothing there; calls are executed."""
        if node is not None:
            self.in_annotation = True
            self.visit(node)
            self.in_annotation = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind_name(node, node.name, None)
        if any(self.name(base) == "torch.Tensor" for base in node.bases):
            self.hit(node, "G203")
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        kept = self.scope, self.in_unused
        self.scope, self.in_unused = _Scope(self.scope), self.in_unused or node in self.unused
        self._visit_all(node.body)
        self.scope, self.in_unused = kept

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _is_layer(self, node: ast.expr) -> bool:
        return bool(rules.LAYER.fullmatch(self.name(node) or ""))

    def _is_loader(self, node: ast.expr) -> bool:
        """Whether a node loads extensions, also where the name is imported in a function that
        nobody has looked at yet."""
        last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        return last == "load_inline" or self.name(node) in rules.EXTENSION_LOADERS

    def _calls_layer(self, node: ast.Call) -> bool:
        """``self.fc(x)``, ``self.fc.forward(x)``, ``nn.ReLU()(x)``."""
        called: ast.expr = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("forward", "__call__"):
            called = called.value
        while isinstance(called, ast.Subscript):
            called = called.value
        if isinstance(called, ast.Call):
            return self._is_layer(called.func)
        if isinstance(called, ast.Attribute):
            return called.attr in self.layers
        return isinstance(called, ast.Name) and called.id in self.layers

    def _is_maker(self, node: ast.expr) -> bool:
        name = self.name(node.func if isinstance(node, ast.Call) else node)
        return name in rules.KERNEL_MAKERS.get(self.language, ())

    # uses

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._attribute(node, node.attr)
        base = self.name(node.value)
        asks = node.attr in rules.INSIDES and self.language == "triton"
        if base is None and self.in_kernel and asks:
            self.hit(node, "G206")
        if isinstance(node.ctx, ast.Load):
            pass
        elif node.attr in rules.PACKAGE_NAMES or base == "builtins.__spec__":
            self.hit(node, "G204")
        elif base:
            interpreted = base.startswith(rules.SETTINGS) and _is_interpreter(node.attr)
            self.hit(node, "G303") if interpreted else self._replace(node, base)
        self._refer(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        base = self.name(node.value)
        if not isinstance(node.ctx, ast.Load) and base:
            self._replace_item(node, base)
        elif self.in_function and isinstance(node.ctx, ast.Store):
            self._keep(node)
        own = isinstance(node.slice, ast.Name) and node.slice.id == "__name__"
        if base == "sys.modules" and not own and constant(node.slice) is None:
            self.hit(node, "G501")
        self._refer(node)
        if isinstance(node.ctx, ast.Load) or base not in ("os.environ", "os.environb"):
            self.visit(node.slice)

    def _refer(self, node: ast.Name | ast.Attribute | ast.Subscript) -> None:
        name = self.name(node)
        if name is not None and isinstance(node.ctx, ast.Load):
            self._evaluate(node, name)
        below: ast.expr = node
        while isinstance(below, ast.Attribute | ast.Subscript) and (name or below is node):
            below = below.value
        if not isinstance(below, ast.Name):
            self.visit(below)

    def _attribute(self, node: ast.AST, attribute: str) -> None:
        self.lookups.attribute(attribute)
        if attribute in self.own_attributes:
            return
        if attribute in rules.FRAME_ATTRIBUTES:
            self.hit(node, "G201")
        elif attribute in rules.OBJECT_ATTRIBUTES:
            self.hit(node, "G202")

    def _replace(self, node: ast.AST, base: str | None) -> None:
        """An attribute of ``base`` is set or deleted; objects of the source's own are its own."""
        if base is None or base.startswith("builtins.") or base.startswith(_LIBRARY):
            return
        self.hit(node, "G508" if base.startswith(rules.SETTINGS) else "G203")

    def _replace_item(self, node: ast.Subscript, base: str) -> None:
        key = constant(node.slice) or ""
        if self.is_module and base == "os.environ" and key in rules.BUILD_VARIABLES:
            return
        if base in ("os.environ", "os.environb"):
            self.hit(node, "G303" if _is_interpreter(key) else "G105")
        elif base.endswith(".__dict__") or base == "builtins" or (base == "sys.modules" and key):
            self.hit(node, "G203")

    def _keep(self, node: ast.Subscript) -> None:
        """An entry of a container of the module is set from a function."""
        root = self.scope
        while root.parent is not None:
            if isinstance(node.value, ast.Name) and node.value.id in root.names:
                return
            root = root.parent
        if isinstance(node.value, ast.Name) and node.value.id in root.names:
            self.hit(node, "G503")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Goes along the left side in a loop: a generated sum may have hundreds of terms."""
        outer = not self.in_kernel or self.language == "numba"
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            if isinstance(left.op, ast.MatMult) and outer:
                self.hit(left, "G301")
            self.visit(left.right)
            left = left.left
        self.visit(left)
        self.lookups.text(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.is_module and isinstance(node.value, str) and rules.FAST_FLAG.match(node.value):
            self.hit(node, "G401")
        if isinstance(node.value, str) and rules.INTERPRETER_TEXT.search(node.value):
            self.interpreters.append(node)
        self.lookups.text(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.lookups.text(node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A text that stands alone says something to readers."""
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Lets a source ask whether it is the program, which looks nothing up."""
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides):
            sides = [side for side in sides if constant(side) != "__main__"]
        self._visit_all(sides)

    def visit_keyword(self, node: ast.keyword) -> None:
        """``globals().update(__package__=...)``."""
        if node.arg in rules.PACKAGE_NAMES:
            self.lookups.texts.append(node)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.in_annotation = False
        name = self.name(node.func)
        if self.is_module and self._calls_layer(node):
            self.hit(node, "G301")
        if name is not None:
            self._call(node, name)
        elif isinstance(node.func, ast.Attribute):
            self._method(node, node.func)
        self.visit(node.func)
        result = self._result(node)
        if result not in (None, _LIBRARY):
            self._evaluate(node, result or "")
        kept = self.in_kernel
        for index, argument in enumerate(node.args):  # a lambda may be the kernel
            self.in_kernel = kept or (index == 0 and _calls_pallas(name or ""))
            self.visit(argument)
        self.in_kernel = kept
        self._visit_all(node.keywords)

    def _asks_its_value(self, node: ast.Call, name: str) -> bool:
        """Whether a kernel of Triton asks what one of its values is made of, which is one thing
        where it is compiled and another where it is interpreted; of a module it may."""
        inside = self.in_kernel and self.language == "triton"
        return inside and name in rules.REFLECTION and not (node.args and self.name(node.args[0]))

    def _call(self, node: ast.Call, name: str) -> None:
        if self._asks_its_value(node, name):
            self.hit(node, "G206")
        self.makes_kernels |= name in rules.KERNEL_MAKERS.get(self.language, ())
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        text = [constant(argument) or "" for argument in node.args]
        if _calls_pallas(name) and is_true(given.get("interpret")):
            self.hit(node, "G303")
        if name.startswith("numba.") and "fastmath" in given and not is_strict(given["fastmath"]):
            self.hit(node, "G401")
        if name in ("builtins.setattr", "builtins.delattr") and node.args:
            self._replace(node, self.name(node.args[0]))
        if name == "builtins.getattr" and len(text) > 1:
            self._attribute(node, text[1])
            if not text[1] and self.name(node.args[0]) in _SECRETIVE:
                self.hit(node, "G501")
        if name in _IMPORTERS and not _first_text(node):
            self.hit(node, "G501")
        if name.startswith("ctypes.") and any(map(rules.VENDOR_LIBRARY.search, text)):
            self.hit(node, "G302")
        if name in ("builtins.exec", "builtins.eval", "builtins.compile"):
            self._executed(node, text[0] if text else "")
        self._file(node, name, text, given)

    def _executed(self, node: ast.Call, text: str) -> None:
        """Text that is known is read as the rest is; text that is made may hold kernels."""
        tree = parse(text) if text else None
        if tree is not None:
            self.places |= {(node.lineno, rule) for _, rule in read(tree, "", "")}
        else:
            self.makes_code = True

    def _file(
        self, node: ast.Call, name: str, text: list[str], given: dict[str | None, ast.expr]
    ) -> None:
        opens, writer = name in rules.FILE_OPENERS, name in rules.FILE_WRITERS
        if not (opens or writer or name in rules.FILE_READERS):
            return
        path = text[0] if text else constant(given.get("file")) or ""
        mode = (text[1] if len(text) > 1 else "") or constant(given.get("mode")) or ""
        if opens and len(node.args) > 1 and not mode:  # os.open's flags
            writer = any(a.endswith(("WRONLY", "RDWR", "CREAT")) for a in words(node.args[1]))
        if rules.PROCESS_FILE.match(path):
            self.hit(node, "G103")
        elif (writer or (opens and set(mode) & set("wax+"))) and path:
            self.hit(node, "G108" if path.startswith(rules.TEMPORARY) else "G104")
        elif opens or writer:
            self.hit(node, "G108")

    def _method(self, node: ast.Call, function: ast.Attribute) -> None:
        """A method of an object that nobody knows statically, most likely an array."""
        name, base = function.attr, function.value
        if name in rules.PATH_WRITERS and isinstance(base, ast.Call):
            path = constant(base.args[0]) if base.args else None
            if self.name(base.func) == "pathlib.Path" and path:
                self.hit(node, "G108" if path.startswith(rules.TEMPORARY) else "G104")
        if name in self.own_attributes or self.language == "opencl":
            return  # methods of an OpenCL program are its kernels
        if extensions.is_held(base, self.extensions, self._is_loader):
            return  # functions of an extension are the source's own, which is read as well
        if self.in_kernel:
            if self.language == "numba" and name in rules.BLAS_IN_NUMBA:
                self.hit(node, "G301")
            return
        if name in rules.HEAVY_METHODS:
            self.hit(node, "G301")
        elif name in rules.LIGHT_METHODS:
            works = self.is_module or self.language == "triton"
            self.hit(node, "G301" if works else "G507")
        elif name in rules.LOOKS_AT_DATA:
            self.hit(node, "G504")

    def _evaluate(self, node: ast.AST, name: str, imported: bool = False) -> None:
        """A use of ``name``. An import alone does nothing, except for what has no honest use."""
        if self._is_shared(name):
            self.hit(node, "G408")
            return
        rule = _longest(name)
        self.lookups.name(name)
        if self.in_annotation and rule != "G204":
            return
        self.makes_kernels |= name in rules.KERNEL_MAKERS.get(self.language, ())
        if imported:
            if rule in ("G204", "G303"):
                self.hit(node, rule)
            return
        if name in rules.FILE_WRITERS:
            return  # its call says which file
        if rule is not None:
            self.hit(node, rule)
        self.asks_process |= rule == "G509" or name.startswith("sys.modules")
        top, _, rest = name.partition(".")
        if name.startswith((f"{_LIBRARY}.", "ctypes.cdll.")):
            self._native(node, name.rpartition(".")[2])
        elif top in rules.VENDOR_MODULES:
            self.hit(node, "G302")
        elif top == "torch" and rest and rule is None and not self._is_registered(rest):
            if not _is_glue(rest) and not (self.is_module and rules.OF_MODULES.fullmatch(name)):
                self.hit(node, "G301")
        elif top in ("jax", "numpy", "operator"):
            self._array_operator(node, name)

    def _is_registered(self, rest: str) -> bool:
        """``ops.mine.conv`` of a namespace that the source fills."""
        head, *parts = rest.split(".")
        return head == "ops" and bool(parts) and parts[0] in self.namespaces

    def _is_shared(self, name: str) -> bool:
        """Exactly such a function: its attributes lead to the module and from there on."""
        return name in shared.functions(self.language)

    def _native(self, node: ast.AST, function: str) -> None:
        for rule in {rules.NATIVE.get(function), *native.called(function, [])} - {None}:
            self.hit(node, str(rule))

    def _array_operator(self, node: ast.AST, name: str) -> None:
        last = name.rpartition(".")[2]
        if self.in_kernel and self.language != "numba":
            return
        library = name.startswith(("jax.nn.", "jax.scipy.", "jax.numpy.linalg.", "jax.numpy.fft."))
        library |= name.startswith(("numpy.linalg.", "numpy.fft."))
        if self.in_kernel:  # of Numba, which compiles most operators itself
            if last in rules.BLAS_IN_NUMBA or name.startswith("numpy.linalg."):
                self.hit(node, "G301")
        elif library or last in rules.HEAVY:
            self.hit(node, "G301")
        elif last in rules.LIGHT and not name.startswith("operator."):
            self.hit(node, "G507")


def _join(base: str | None, attribute: str) -> str | None:
    """The full name of an attribute; for a module that others import, the module itself."""
    if base is None:
        return None
    if attribute in rules.REEXPORTED and not base.startswith(_LIBRARY):
        return attribute
    if attribute == "__self__" and base.startswith("builtins."):
        return "builtins"
    return f"{base}.{attribute}"


def _calls_pallas(name: str) -> bool:
    """Whether a dotted name is one of those that run their first argument as a kernel."""
    return name.endswith((".pallas_call", ".mosaic_gpu.kernel"))


def _first_text(call: ast.Call) -> str | None:
    """The text that a function is called with first, or as its ``name``."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    return constant(next(iter([*call.args, *given]), None))


def _is_interpreter(setting: str) -> bool:
    return any(word in setting.upper() for word in ("INTERPRET", "DISABLE_JIT"))


def _longest(name: str) -> str | None:
    """The rule of ``name`` or of the nearest that it is in."""
    while name:
        if name in rules.PYTHON:
            return rules.PYTHON[name]
        name = name.rpartition(".")[0]
    return None


def _is_glue(name: str) -> bool:
    """``name`` is what follows ``torch.``"""
    parts = name.split(".")
    heads = {".".join(parts[: i + 1]) for i in range(len(parts))}
    return name in rules.TORCH_MODULES or bool(heads & rules.TORCH_GLUE)
