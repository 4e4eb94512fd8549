"""A kernel's body cut at its barriers: what the threads of a block do one after the other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portkern.cuda_source.comments import without_comments
from portkern.port.emit.limits import RefusedEmission
from portkern.port.emit.rewriting import Rewriting, declared_name, line_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

BARRIER = "__syncthreads"
_NAME = BARRIER.encode()
_LOOPS = ("for_statement", "while_statement", "do_statement")
_BLOCK_WIDE = re.compile(r"\b(__shared__|constexpr)\b")
_DROPPED = re.compile(r"\b(const|constexpr|static|volatile|register)\b\s*")
_LITERAL = re.compile(r"[\w\s+*/()<>-]*")


class CannotCut(Exception):
    """A body that is not cut here, with why. Left by :func:`cut` as a value."""

    def __init__(self, reason: str, node: Node) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line_of(node)


@dataclass
class Cut:
    """``block`` are declarations that all threads share, ``fields`` those of a thread that live
    across a barrier, by name; ``lines`` the code of one block."""

    block: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def has_barrier(node: Node) -> bool:
    calls = walk(node, "call_expression")
    functions = (call.child_by_field_name("function") for call in calls)
    return any(function is not None and function.text == _NAME for function in functions)


def cut(source: Rewriting, body: Node, changed: Sequence[str] = ()) -> Cut | RefusedEmission:
    """Cuts a compound statement at its barriers. ``changed`` are declarations of parameters that
    threads change; such a parameter has to be passed as ``given_`` and its name. The line of a
    refusal counts from the text's first as 0."""
    cutter = _Cutter(source)
    try:
        cutter.parameters(changed)
        cutter.collect(body)
        cutter.statements(body.named_children, 0)
    except CannotCut as problem:
        return RefusedEmission(problem.reason, problem.line)
    return cutter.result


class _Cutter:
    def __init__(self, source: Rewriting) -> None:
        self._source = source
        self._constants: set[str] = set()
        self.result = Cut()

    # ---- declarations

    def parameters(self, declarations: Sequence[str]) -> None:
        for declaration in declarations:
            name = re.findall(r"\w+", declaration)[-1]
            self.result.fields[name] = declaration
            self._each(f"{name} = given_{name};", 0)

    def collect(self, body: Node) -> None:
        """Shared arrays and constants, and the locals that more than one phase names."""
        for declaration in walk(body, "declaration"):
            text = self._source.text(declaration)
            if "__shared__" in text.split("=")[0]:
                self.result.block.append(shared_array(text))
                self._source.replace(declaration, "")
        self._collect_block(body)

    def _collect_block(self, block: Node) -> None:
        phases = self._phases(block)
        for n, phase in enumerate(phases):
            for statement in phase:
                if statement.type == "declaration":
                    later = [s for other in phases[n + 1 :] for s in other]
                    self._declared(statement, later)
                elif has_barrier(statement):
                    self._loop_locals(statement)

    def _phases(self, block: Node) -> list[list[Node]]:
        """Statements between barriers, and each statement around barriers by itself."""
        phases: list[list[Node]] = [[]]
        for statement in block.named_children:
            if has_barrier(statement):
                phases += [[statement], []]
            else:
                phases[-1].append(statement)
        return phases

    def _declared(self, declaration: Node, later: list[Node]) -> None:
        text = self._source.text(declaration)
        if "__shared__" in text.split("=")[0]:
            return
        if self._is_constant(declaration):
            self.result.block.append(
                re.sub(r"\bconst\b", "constexpr", text, count=1)
                if "constexpr" not in text
                else text
            )
            self._source.replace(declaration, "")
            return
        names = {self._source.text(declared_name(d)) for d in _declarators(declaration)}
        used = {self._source.text(i) for s in later for i in walk(s, "identifier")}
        if names & used:
            self._to_fields(declaration)

    def _is_constant(self, declaration: Node) -> bool:
        text = self._source.text(declaration)
        if "constexpr" in text.split("=")[0]:
            return True
        head, _, value = text.partition("=")
        names = set(re.findall(r"[A-Za-z_]\w*", value))
        plain = re.match(
            r"\s*(static\s+)?const\s+(int|unsigned|size_t|unsigned int)\s+\w+\s*$", head
        )
        known = names <= self._constants and _LITERAL.fullmatch(value.rstrip("; \n"))
        if plain and known and re.search(r"\d", value):
            self._constants.add(head.split()[-1])
            return True
        return False

    def _to_fields(self, declaration: Node) -> None:
        """A declaration becomes fields and assignments."""
        type_node = declaration.child_by_field_name("type")
        if type_node is None or self._source.text(type_node) == "auto":
            raise CannotCut("a local of type auto lives across a barrier", declaration)
        type_ = self._source.text(type_node)
        first = _declarators(declaration)[0]
        pointed = any(d.type == "pointer_declarator" for d in walk(first))
        qualifier = "const " if pointed and "const" in self._head(declaration, type_node) else ""
        assignments = []
        for declarator in _declarators(declaration):
            value = declarator.child_by_field_name("value")
            plain = (
                declarator.child_by_field_name("declarator") if value is not None else declarator
            )
            name = self._source.text(declared_name(declarator))
            if plain is None or any(d.type == "reference_declarator" for d in walk(plain)):
                raise CannotCut(f"the reference '{name}' lives across a barrier", declaration)
            declared = _DROPPED.sub("", self._source.text(plain))
            self._add_field(name, f"{qualifier}{type_} {declared}", declaration)
            if value is None:
                continue
            if value.type == "argument_list":
                raise CannotCut(f"'{name}' is built by a constructor before a barrier", declaration)
            assignments.append(self._assigned(name, f"{type_} initial_{declared}", value, plain))
        self._source.replace(declaration, " ".join(assignments))

    def _head(self, declaration: Node, type_node: Node) -> str:
        children = [c for c in declaration.children if c.start_byte < type_node.end_byte]
        return " ".join(self._source.text(c) for c in children)

    def _assigned(self, name: str, initial: str, value: Node, plain: Node) -> str:
        text = self._source.now(value)
        if value.type != "initializer_list":
            return f"{name} = {text};"
        if plain.type == "array_declarator":
            return f"{{ const {initial} = {text}; memcpy({name}, initial_{name}, sizeof {name}); }}"
        return f"{name} = {text};"

    def _add_field(self, name: str, declaration: str, node: Node) -> None:
        before = self.result.fields.setdefault(name, declaration)
        if before != declaration:
            raise CannotCut(f"two locals '{name}' of different types live across barriers", node)

    def _loop_locals(self, statement: Node) -> None:
        """Collects the locals of a loop or branch that has a barrier in it."""
        if statement.type == "for_statement":
            start = statement.child_by_field_name("initializer")
            if start is not None and start.type == "declaration":
                self._to_fields(start)
        for inner in statement.named_children:
            if not has_barrier(inner) or inner.type == "expression_statement":
                continue
            if inner.type == "compound_statement":
                self._collect_block(inner)
            elif inner.type in (*_LOOPS, "if_statement", "else_clause"):
                self._loop_locals(inner)

    # ---- statements

    def statements(self, statements: list[Node], depth: int) -> None:
        pending: list[Node] = []
        for statement in statements:
            if statement.type == "comment" or not has_barrier(statement):
                pending.append(statement)
                continue
            if statement.type != "expression_statement":
                while pending and pending[-1].type == "preproc_call":
                    pending.pop()  # a pragma for the loop
            self._phase(pending, depth)
            pending = []
            self._around_barrier(statement, depth)
        self._phase(pending, depth)

    def _around_barrier(self, node: Node, depth: int) -> None:
        if node.type == "expression_statement":
            if node.named_children[0].type != "call_expression":
                raise CannotCut("a barrier within an expression", node)
            self._line(depth, "// __syncthreads()")
        elif node.type == "compound_statement":
            self.statements(node.named_children, depth)
        elif node.type == "for_statement":
            self._for(node, depth)
        elif node.type == "while_statement":
            self._loop(node, node.child_by_field_name("condition"), None, depth)
        elif node.type == "if_statement":
            self._if(node, depth)
        else:
            raise CannotCut(f"a barrier within a {node.type.replace('_', ' ')}", node)

    def _for(self, node: Node, depth: int) -> None:
        start = node.child_by_field_name("initializer")
        if start is not None:
            text = self._source.now(start).strip()
            self._each(text if text.endswith(";") else f"{text};", depth)
        self._loop(
            node, node.child_by_field_name("condition"), node.child_by_field_name("update"), depth
        )

    def _loop(self, node: Node, condition: Node | None, update: Node | None, depth: int) -> None:
        body = node.child_by_field_name("body")
        if body is None or condition is None:
            raise CannotCut("a loop around a barrier without a condition", node)
        _no_jumps(body)
        self._line(depth, f"while ({self._asked(condition)}) {{")
        self._inner(body, depth + 1)
        if update is not None:
            self._each(f"{self._source.now(update)};", depth + 1)
        self._line(depth, "}")

    def _if(self, node: Node, depth: int) -> None:
        condition = node.child_by_field_name("condition")
        then = node.child_by_field_name("consequence")
        otherwise = node.child_by_field_name("alternative")
        if condition is None or then is None:
            raise CannotCut("an if that cannot be read around a barrier", node)
        self._line(depth, f"if ({self._asked(condition)}) {{")
        self._inner(then, depth + 1)
        if otherwise is not None:
            self._line(depth, "} else {")
            for inner in otherwise.named_children:
                self._inner(inner, depth + 1)
        self._line(depth, "}")

    def _inner(self, node: Node, depth: int) -> None:
        children = node.named_children if node.type == "compound_statement" else [node]
        self.statements(children, depth)

    def _asked(self, condition: Node) -> str:
        text = self._source.now(condition).strip()
        return f"threads.all([&](Thread& self) {{ {self._bound(text)}return {text}; }})"

    def _phase(self, statements: list[Node], depth: int) -> None:
        if not statements:
            return
        for statement in statements:
            for node in walk(statement, "return_statement"):
                self._source.replace(node, "{ self.returned = true; return; }")
        begin, end = statements[0].start_byte, statements[-1].end_byte
        margin = " " * statements[0].start_point.column
        text = textwrap.dedent(margin + self._source.between(begin, end)).strip()
        if re.sub(r"[;\s]", "", without_comments(text)):
            self._each(text, depth)

    def _each(self, text: str, depth: int) -> None:
        self._line(depth, "threads.each([&](Thread& self) {")
        bound = self._bound(text)
        if bound:
            self._line(depth + 1, bound.strip())
        self.result.lines.append(textwrap.indent(text, "    " * (depth + 1)))
        self._line(depth, "});")

    def _bound(self, text: str) -> str:
        """References to what the text uses of a thread's own."""
        names = [n for n in ("threadIdx", *self.result.fields) if re.search(rf"\b{n}\b", text)]
        return "".join(f"auto& {name} = self.{name}; " for name in names)

    def _line(self, depth: int, text: str) -> None:
        self.result.lines.append("    " * depth + text)


def _declarators(declaration: Node) -> list[Node]:
    return declaration.children_by_field_name("declarator")


def shared_array(text: str) -> str:
    """A shared array's declaration for one block; '' for one whose size the launch says."""
    if re.search(r"\bextern\b", text):
        match = re.search(r"__shared__\s+(.*?)(\w+)\s*\[\s*\]", text, re.DOTALL)
        if match is None:
            return ""
        type_ = re.sub(
            r"__align__\s*\([^)]*\)|alignas\s*\([^)]*\)|\bvolatile\b", "", match[1]
        ).strip()
        return f"{type_}* const {match[2]} = reinterpret_cast<{type_}*>(dynamic_shared.data());"
    plain = re.sub(r"\b(__shared__|static|volatile)\b\s*", "", text)
    return re.sub(r"__align__\s*\(", "alignas(", plain)


def _no_jumps(body: Node) -> None:
    """``break`` and ``continue`` of the loop itself would have to leave all phases at once."""
    stack = list(body.children)
    while stack:
        node = stack.pop()
        if node.type in ("break_statement", "continue_statement"):
            word = node.type.split("_")[0]
            raise CannotCut(f"{word} out of a loop with a barrier in it", node)
        if node.type in (*_LOOPS, "switch_statement", "lambda_expression"):
            continue
        stack.extend(node.children)
