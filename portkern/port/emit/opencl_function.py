"""Functions in OpenCL C: every pointer gets the address space of what it points to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source.lexer import SourceCode
from portkern.cuda_source.syntax import SourceKernel
from portkern.port.emit import opencl_names
from portkern.port.emit.context import Item, expanded, filled_in
from portkern.port.emit.emitted import EmittedInstance
from portkern.port.emit.rewriting import Rewriting, declared_name, line_of, walk
from portkern.port.emit.uniformity import divergence

if TYPE_CHECKING:
    from tree_sitter import Node

_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_INTEGERS = re.compile(r"(const\s+)?(unsigned|int|uint|size_t|long|short|u?int\d+_t|bool)(\s+\w+)*")
_CONSTANT = re.compile(r"\s*(static\s+)?(const|constexpr)\s+([\w\s]+?)\s+(\w+)\s*=([\s\w+*/()-]*);")


class CannotEmit(Exception):
    """Left by :func:`portkern.port.emit.opencl.emit` as a value; ``line`` is of the file."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass(frozen=True)
class Variable:
    """``space`` is '' for what is neither a pointer nor an array."""

    type: str
    space: str = ""


def is_integer(type_: str) -> bool:
    return _INTEGERS.fullmatch(type_.strip()) is not None


class Functions:
    """The functions of one file; helpers are made when a call asks for them, once for each
    combination of address spaces and template arguments."""

    def __init__(self, items: Sequence[Item], aliases: Mapping[str, str]) -> None:
        self._items, self._aliases = items, aliases
        self.helpers: dict[str, str] = {}
        self.atomics: dict[str, str] = {}
        self.globals = {
            name: Variable(item.text.split("[")[0].split()[-2], "constant")
            for item in items
            if item.kind == "constant" and "[" in item.text.split("=")[0]
            for name in item.names
        }
        self.constants = {n for i in items if i.kind == "constant" for n in i.names}

    def kernel(self, kernel: SourceKernel, text: str, instance: EmittedInstance) -> str:
        bound = dict(zip((p.name for p in kernel.template), instance.template, strict=False))
        function = _Function(self, prepared(text, bound), kernel.line)
        return function.written(instance.name, {}, is_kernel=True)

    def helper(self, name: str, count: int) -> Item | None:
        chosen = [i for i in self._items if i.kind == "function" and name in i.names]
        fitting = [i for i in chosen if len(_parameters(i.text)) == count]
        return next(iter(fitting if len(chosen) > 1 else chosen), None)

    def type_of(self, name: str) -> str:
        return self._aliases.get(name, name)

    def called(self, item: Item, name: str, spaces: Sequence[str], template: Sequence[str]) -> str:
        """The name of the helper for a call."""
        parts = [name, *(re.sub(r"\W+", "_", t) for t in template), *(s for s in spaces if s)]
        made = "_".join(parts)
        if made not in self.helpers:
            self.helpers[made] = ""  # it may call itself
            names = _template_names(item.text)
            text = expanded(item.text, self._items)
            text = prepared(text, dict(zip(names, template, strict=False)))
            function = _Function(self, text, item.line)
            written = function.written(made, dict(enumerate(spaces)), is_kernel=False)
            del self.helpers[made]  # those that it calls come before it
            self.helpers[made] = written
        return made


def prepared(text: str, bound: Mapping[str, str]) -> str:
    """The function without its template, and with casts as C writes them."""
    code = SourceCode(text)
    first = 0
    if code.text[0] == "template":
        first = code.close_angle(1, len(code.tokens)) + 1
    pieces: list[str] = []
    closing: set[int] = set()
    i = first
    while i < len(code.tokens):
        token = code.tokens[i]
        if token.text in _CASTS and code.text[i + 1] == "<":
            angle = code.close_angle(i + 1, len(code.tokens))
            pieces.append(f"{token.gap}(({code.flat(i + 2, angle)})(")
            closing.add(code.partner[angle + 1])
            i = angle + 2
            continue
        pieces.append(token.gap + token.text + (")" if i in closing else ""))
        i += 1
    lines = "\n" * text[: code.tokens[first].begin].count("\n")
    return lines + filled_in("".join(pieces).lstrip() if first else "".join(pieces), bound)


def _parameters(text: str) -> list[str]:
    read = Rewriting(text)
    listed = next(walk(read.root, "parameter_list"), None)
    return [read.text(p) for p in listed.named_children] if listed is not None else []


def _template_names(text: str) -> list[str]:
    match = re.match(r"template\s*<([^>]*)>", text)
    return [part.split("=")[0].split()[-1] for part in match[1].split(",")] if match else []


class _Function:
    def __init__(self, functions: Functions, text: str, first_line: int) -> None:
        self._functions, self._first_line = functions, first_line
        self._source = Rewriting(text)
        self._variables: dict[str, Variable] = dict(functions.globals)
        self._dynamic = ""
        self._constants = set(functions.constants)

    def written(self, name: str, spaces: Mapping[int, str], *, is_kernel: bool) -> str:
        root = self._source.root
        definition = next(walk(root, "function_definition"), root)
        body = definition.child_by_field_name("body")
        listed = next(walk(definition, "parameter_list"), None)
        if body is None or listed is None:
            raise CannotEmit("the grammar does not read it", self._first_line)
        if problem := divergence(self._source, body):
            raise CannotEmit(problem[0], self._first_line + problem[1])
        parameters = [p for p in listed.named_children if p.type == "parameter_declaration"]
        written = [
            self._parameter(p, spaces.get(n, ""), is_kernel=is_kernel)
            for n, p in enumerate(parameters)
        ]
        for declaration in walk(body, "declaration"):
            self._declaration(declaration, is_kernel=is_kernel)
        for node in walk(body, "cast_expression", "call_expression", "assignment_expression"):
            self._expression(node)
        written += [self._dynamic] if self._dynamic else []
        head = "__kernel void" if is_kernel else f"static {self._returned(definition)}"
        text = f"{head} {name}({', '.join(written)}) {self._source.now(body)}"
        return (
            opencl_names.respelled(text).replace("static ", "", 1)
            if is_kernel
            else ("static " + opencl_names.respelled(text).lstrip())
        )

    def _refuse(self, reason: str, node: Node) -> CannotEmit:
        return CannotEmit(reason, self._first_line + line_of(node))

    def _returned(self, definition: Node) -> str:
        type_ = self._source.text(definition.child_by_field_name("type"))
        declarator = definition.child_by_field_name("declarator")
        if declarator is not None and declarator.type != "function_declarator":
            raise self._refuse("a function that returns a pointer or a reference", definition)
        return type_

    # ---- declarations

    def _parameter(self, node: Node, space: str, *, is_kernel: bool) -> str:
        source = self._source
        declarator = node.child_by_field_name("declarator")
        name = source.text(declared_name(declarator)) if declarator is not None else ""
        type_ = source.text(node.child_by_field_name("type"))
        text = source.text(node)
        if any(inner.type == "reference_declarator" for inner in walk(node)):
            raise self._refuse(f"'{name}' is a reference", node)
        if not _is_pointer(declarator):
            self._variables[name] = Variable(type_)
            if is_kernel:
                text = re.sub(r"\bbool\b", "uchar", re.sub(r"\bsize_t\b", "ulong", text))
            return text
        if source.text(declarator).count("*") > 1:
            raise self._refuse(f"'{name}' points to pointers", node)
        if is_kernel and re.fullmatch(r"\w+3", type_):
            raise self._refuse(f"'{name}' points to {type_}, which OpenCL keeps in 4 words", node)
        space = "global" if is_kernel else space
        self._variables[name] = Variable(type_, space or "private")
        if is_kernel:
            text = re.sub(r"\bbool\b", "uchar", re.sub(r"\bsize_t\b", "ulong", text))
        return f"__{space} {text}" if space not in ("", "private") else text

    def _declaration(self, node: Node, *, is_kernel: bool) -> None:
        source = self._source
        text = source.text(node)
        type_ = source.text(node.child_by_field_name("type"))
        if type_ == "auto":
            raise self._refuse("a local of type auto", node)
        if "__shared__" in text.split("=")[0]:
            return self._shared(node, text, type_, is_kernel=is_kernel)
        constant = _CONSTANT.fullmatch(text)
        if constant and is_integer(constant[3]):
            names = set(re.findall(r"[A-Za-z_]\w*", constant[5]))
            if "constexpr" in text or (names <= self._constants and names | {constant[5].strip()}):
                self._constants.add(constant[4])
                source.replace(node, f"enum {{ {constant[4]} ={constant[5]} }};")
                self._variables[constant[4]] = Variable(type_)
                return None
        spaces = set()
        for declarator in node.children_by_field_name("declarator"):
            spaces |= self._declared(node, declarator, type_)
        if len(spaces) > 1:
            raise self._refuse("pointers into different memories in one declaration", node)
        for space in spaces - {"private"}:
            source.insert(node.start_byte, f"__{space} ")
        return None

    def _declared(self, node: Node, declarator: Node, type_: str) -> set[str]:
        source = self._source
        name = source.text(declared_name(declarator))
        if any(inner.type == "reference_declarator" for inner in walk(declarator)):
            raise self._refuse(f"'{name}' is a reference", node)
        value = declarator.child_by_field_name("value")
        plain = declarator.child_by_field_name("declarator") if value is not None else declarator
        if plain is None or plain.type not in ("pointer_declarator", "array_declarator"):
            self._variables[name] = Variable(type_)
            return set()
        if plain.type == "array_declarator":
            self._variables[name] = Variable(type_, "private")
            return set()
        space = self._space(value) if value is not None else self._assigned(node, name)
        if not space:
            raise self._refuse(f"what '{name}' points to cannot be decided", node)
        before = self._variables.get(name)
        if before and before.space != space:
            raise self._refuse(f"two pointers '{name}' into different memories", node)
        self._variables[name] = Variable(type_, space)
        return {space}

    def _assigned(self, node: Node, name: str) -> str:
        """The space of what is assigned to a pointer after its declaration."""
        root = node
        while root.parent is not None:
            root = root.parent
        for assignment in walk(root, "assignment_expression"):
            if self._source.text(assignment.child_by_field_name("left")) == name:
                return self._space(assignment.child_by_field_name("right"))
        return ""

    def _shared(self, node: Node, text: str, type_: str, *, is_kernel: bool) -> None:
        if not is_kernel:
            raise self._refuse("shared memory in a function that the kernel calls", node)
        names = [
            self._source.text(declared_name(d)) for d in node.children_by_field_name("declarator")
        ]
        for name in names:
            self._variables[name] = Variable(type_, "local")
        plain = re.sub(r"__align__\s*\([^)]*\)|alignas\s*\([^)]*\)", "", text)
        if "extern" not in text:
            local = re.sub(r"\bstatic\b\s*", "", plain).replace("__shared__", "__local", 1)
            self._source.replace(node, local)
            return
        if self._dynamic:
            raise self._refuse("a second name for the shared memory of the launch", node)
        self._dynamic = f"__local {type_}* {names[0]}"
        self._source.replace(node, "")

    # ---- expressions

    def _space(self, node: Node | None) -> str:
        """The address space that an expression points into; '' where it cannot be said."""
        if node is None:
            return ""
        if node.type == "identifier":
            variable = self._variables.get(self._source.text(node))
            return variable.space if variable else ""
        if node.type == "conditional_expression":
            ways = [node.child_by_field_name(f) for f in ("consequence", "alternative")]
            spaces = {self._space(way) for way in ways}
            return spaces.pop() if len(spaces) == 1 else ""
        root = self._root(node)
        variable = self._variables.get(self._source.text(root)) if root is not None else None
        if variable is None:
            return ""
        return variable.space or "private"

    def _root(self, node: Node) -> Node | None:
        """The variable that a pointer's expression begins with."""
        for field in ("argument", "value", "left", "operand"):
            inner = node.child_by_field_name(field)
            if inner is None:
                continue
            root = self._root(inner)
            if root is not None and (field != "left" or self._pointer(root)):
                return root
        right = node.child_by_field_name("right")
        if right is not None:
            return self._root(right)
        if node.type == "parenthesized_expression":
            return self._root(node.named_children[0])
        return node if node.type == "identifier" else None

    def _pointer(self, root: Node) -> bool:
        variable = self._variables.get(self._source.text(root))
        return variable is not None and variable.space != ""

    def _expression(self, node: Node) -> None:
        if node.type == "cast_expression":
            self._cast(node)
        elif node.type == "assignment_expression":
            self._pointer_assigned(node)
        else:
            self._call(node)

    def _cast(self, node: Node) -> None:
        type_ = node.child_by_field_name("type")
        if type_ is None or "*" not in self._source.text(type_):
            return
        space = self._space(node.child_by_field_name("value"))
        if not space:
            raise self._refuse("what this cast points to cannot be decided", node)
        if space != "private":
            self._source.insert(type_.start_byte, f"__{space} ")

    def _pointer_assigned(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        name = self._source.text(left)
        variable = self._variables.get(name)
        if variable is None or not variable.space or self._source.text(node.children[1]) != "=":
            return
        if left is not None and left.type == "identifier":
            space = self._space(right)
            if space != variable.space:
                raise self._refuse(f"'{name}' points into different memories", node)

    def _call(self, node: Node) -> None:
        source = self._source
        function = node.child_by_field_name("function")
        listed = node.child_by_field_name("arguments")
        if function is None or listed is None:
            return
        arguments = listed.named_children
        name, template = source.text(function), list[str]()
        if function.type == "template_function":
            name = source.text(function.child_by_field_name("name"))
            given = function.child_by_field_name("arguments")
            template = [source.text(a) for a in given.named_children] if given is not None else []
        if name == "__syncthreads":
            source.replace(node, "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)")
        elif name in opencl_names.ATOMICS or name in ("atomicInc", "atomicDec"):
            self._atomic(node, function, name, arguments)
        elif (item := self._functions.helper(name, len(arguments))) is not None:
            spaces = self._spaces(item, arguments, node)
            template = template or self._deduced(item, arguments, node)
            source.replace(function, self._functions.called(item, name, spaces, template))

    def _spaces(self, item: Item, arguments: Sequence[Node], node: Node) -> list[str]:
        spaces = []
        for parameter, argument in zip(_parameters(item.text), arguments, strict=False):
            space = self._space(argument) if re.search(r"[*\[]", parameter) else ""
            if re.search(r"[*\[]", parameter) and not space:
                raise self._refuse("what this argument points to cannot be decided", node)
            spaces.append(space)
        return spaces

    def _deduced(self, item: Item, arguments: Sequence[Node], node: Node) -> list[str]:
        names = _template_names(item.text)
        types = []
        for name in names:
            for parameter, argument in zip(_parameters(item.text), arguments, strict=False):
                root = self._root(argument)
                variable = self._variables.get(self._source.text(root)) if root else None
                if re.search(rf"\b{name}\b", parameter) and variable is not None:
                    types.append(variable.type)
                    break
        if len(types) < len(names):
            raise self._refuse(f"the template of '{next(iter(item.names))}' is not spelled", node)
        return types

    def _atomic(self, node: Node, function: Node, name: str, arguments: Sequence[Node]) -> None:
        root = self._root(arguments[0]) if arguments else None
        variable = self._variables.get(self._source.text(root)) if root else None
        if variable is None or not variable.space:
            raise self._refuse(f"what {name} changes cannot be decided", node)
        type_ = self._functions.type_of(variable.type)
        made = (
            opencl_names.atomic(name, type_, variable.space)
            if name[6:9] not in ("Inc", "Dec")
            else None
        )
        if made is None:
            raise self._refuse(f"{name} on {type_} has no counterpart", node)
        if made[1]:
            self._functions.atomics[made[0]] = made[1]
        self._source.replace(function, made[0])


def _is_pointer(declarator: Node | None) -> bool:
    if declarator is None:
        return False
    return any(n.type in ("pointer_declarator", "array_declarator") for n in walk(declarator))
