"""Statements in C about one element, as Python about a block of elements: a lane for each. A
condition is a mask of lanes, a local that changes is a block, and what all lanes have in common
stays a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from portkern.worker.lowering.body import KINDS, Kind
from portkern.worker.lowering.operations import Unwritable, widest

if TYPE_CHECKING:
    from tree_sitter import Node

#: Known when the kernel is compiled, the same in all lanes, or an element for each.
Spread = Literal["number", "scalar", "block"]
_SPREADS: Sequence[Spread] = ("number", "scalar", "block")
_COMPARED = frozenset("== != < <= > >=".split())
_LOGICAL = {"&&": "&", "||": "|"}
_SIGNED = {"INFINITY": 'float("inf")', "NAN": 'float("nan")'}
#: The functions of lanes that share a row; each gets what all of them have together.
ROW_FUNCTIONS = ("row_sum", "row_max", "row_min", "row_any")


@dataclass(frozen=True)
class Term:
    text: str
    kind: Kind
    spread: Spread = "block"


def spread_of(terms: Sequence[Term]) -> Spread:
    return max((term.spread for term in terms), key=_SPREADS.index)


class LoweredLanes(ABC):
    """Writes statements one after the other. ``names``: what is known, as terms. ``pointers``: of
    tensors, by name, the kind that their elements are computed as. ``registers``: tensors of one
    element per lane. ``mask``: of lanes that have work."""

    #: What each function of C is, of its arguments; a name with an underscore is a helper's.
    functions: Mapping[str, str]
    #: What makes stores seen by later loads, where the language needs it.
    barrier = ""
    #: Tensors that are read again after an element of them was stored.
    read_again: frozenset[str] = frozenset()

    def __init__(
        self,
        names: Mapping[str, Term],
        pointers: Mapping[str, Kind],
        registers: Mapping[str, Kind],
        *,
        indent: int = 1,
    ) -> None:
        self.names, self.pointers, self.registers = dict(names), pointers, registers
        self.lines: list[str] = []
        self.shape, self.zero, self.mask = "(BLOCK,)", "zero", "live"
        self._indent, self._masks, self._declared = indent, 0, dict[str, str]()
        self.called: set[str] = set()

    def say(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self._indent += 1
        yield
        self._indent -= 1

    def write(self, lines: Sequence[str]) -> None:
        """C, as a body has it."""
        for statement in parsed([line for line in lines if "#pragma" not in line]):
            self._statement(statement)

    def number(self, text: str) -> Term:
        """The term for an expression in C."""
        [statement] = parsed([f"{text};"])
        return self._term(statement.named_children[0])

    # ---- statements

    def _statement(self, node: Node) -> None:
        children = node.named_children
        match node.type:
            case "declaration":
                self._declaration(node)
            case "expression_statement":
                self._assignment(children[0])
            case "compound_statement":
                for child in children:
                    self._statement(child)
            case "if_statement":
                self._if(node)
            case "for_statement":
                self._for(node)
            case "comment":
                pass
            case _:
                raise Unwritable(f"a statement ({text_of(node)[:60]})")

    def _declaration(self, node: Node) -> None:
        kind, declarator = kind_named(text_of(field(node, "type"))), field(node, "declarator")
        name = text_of(field(declarator, "declarator"))
        value = self.converted(self._term(field(declarator, "value")), kind)
        if any(child.type == "type_qualifier" for child in node.children):
            self.say(f"{name} = {value.text}")
            self.names[name] = Term(name, kind, value.spread)
            return
        self.say(f"{name} = {self.full(value)}")
        self.names[name] = Term(name, kind)
        self._declared[name] = self.mask
        self.begun(name, kind)

    def _assignment(self, node: Node) -> None:
        left, right = field(node, "left"), self._term(field(node, "right"))
        sign = text_of(field(node, "operator"))[:-1]
        if left.type == "subscript_expression":
            self._stored(left, right)
            return
        old = self._term(left)
        added = right if sign == "+" else self._addend(field(node, "right"), old)
        if old.kind == "double" and added is not None:
            self.add(old, self.converted(added, "double"))
            return
        new = self.converted(self._binary(sign, old, right) if sign else right, old.kind)
        self._assigned(old, new)

    def _assigned(self, old: Term, new: Term) -> None:
        if self.mask != self._declared[old.text]:
            self.say(f"{old.text} = {self.where(Term(self.mask, 'bool'), new, old)}")
        else:
            self.say(f"{old.text} = {new.text if new.spread == 'block' else self.full(new)}")

    def _addend(self, node: Node, old: Term) -> Term | None:
        """The term that is added to a local, where its next value is such a sum."""
        if node.type != "binary_expression" or text_of(field(node, "operator")) != "+":
            return None
        if text_of(field(node, "left")) != old.text:
            return None
        return self._term(field(node, "right"))

    def add(self, total: Term, value: Term) -> None:
        """Adds a value to a local of doubles."""
        self._assigned(total, self._binary("+", total, value))

    def _stored(self, left: Node, value: Term) -> None:
        name, index = self._element(left)
        if name in self.registers:
            kind = self.registers[name]
            held = self.converted(value, kind)
            self.say(f"{name} = {held.text if held.spread == 'block' else self.full(held)}")
            self.names[name] = Term(name, kind)
            return
        held = value if value.spread == "block" else replace(value, text=self.full(value))
        self.say(self.store(name, self.placed(index), held))
        if name in self.read_again and self.barrier:
            self.say(self.barrier)

    def _if(self, node: Node) -> None:
        condition = self.converted(self._term(field(node, "condition").named_children[0]), "bool")
        outer, self._masks = self.mask, self._masks + 1
        self.mask = f"mask{self._masks}"
        self.say(f"{self.mask} = {outer} & {self._each(condition).text}")
        self._statement(field(node, "consequence"))
        if field(node, "alternative", required=False):
            raise Unwritable("a condition with an alternative")
        self.mask = outer

    def _for(self, node: Node) -> None:
        counter = text_of(field(field(field(node, "initializer"), "declarator"), "declarator"))
        bound = self._term(field(field(node, "condition"), "right"))
        if bound.spread == "block":
            raise Unwritable("a loop whose length differs by element")
        body = field(node, "body")
        changed = [one for name in assigned(body) for one in self.parts(name)]
        self.names[counter] = Term(counter, "int64_t", "scalar")
        with self.loop(counter, bound.text, changed):
            self._statement(body)

    # ---- expressions

    def _term(self, node: Node) -> Term:
        children = node.named_children
        match node.type:
            case "identifier":
                return self._name(text_of(node))
            case "number_literal":
                text = text_of(node)
                kind: Kind = "float" if text.endswith("f") else "double"
                whole = text.isdigit()
                return Term(text.rstrip("f"), "int64_t" if whole else kind, "number")
            case "true" | "false":
                return Term(node.type.capitalize(), "bool", "number")
            case "parenthesized_expression":
                inner = self._term(children[0])
                return (
                    inner if inner.text.isidentifier() else replace(inner, text=f"({inner.text})")
                )
            case "unary_expression":
                return self._unary(text_of(field(node, "operator")), self._term(children[0]))
            case "binary_expression":
                left, right = self._term(field(node, "left")), self._term(field(node, "right"))
                return self._binary(text_of(field(node, "operator")), left, right)
            case "conditional_expression":
                return self._chosen([self._term(child) for child in children])
            case "cast_expression":
                kind = kind_named(text_of(field(node, "type")))
                return self.converted(self._term(field(node, "value")), kind)
            case "subscript_expression":
                return self._loaded(node)
            case "call_expression":
                arguments = [self._term(one) for one in field(node, "arguments").named_children]
                return self._called(text_of(field(node, "function")), arguments)
        raise Unwritable(f"an expression ({text_of(node)[:60]})")

    def _name(self, name: str) -> Term:
        if name in self.names:
            return self.names[name]
        if name in _SIGNED:
            return Term(_SIGNED[name], "float", "number")
        if name in ("INT64_MIN", "INT64_MAX"):
            return Term(str(self.integers[name == "INT64_MAX"]), "int64_t", "number")
        raise Unwritable(f"the name {name}")

    def _unary(self, sign: str, value: Term) -> Term:
        if sign == "!":
            held = self.converted(value, "bool")
            return Term(f"({held.text} == 0)", "bool", held.spread)
        held = self.converted(value, widest([value.kind, "int64_t"]))
        return Term(f"({sign}{held.text})", held.kind, held.spread)

    def _binary(self, sign: str, left: Term, right: Term) -> Term:
        kind: Kind = widest([left.kind, right.kind])
        if sign in _LOGICAL:
            kind, sign = "bool", _LOGICAL[sign]
        elif not (sign in "&|^" or sign in ("==", "!=")):
            kind = widest([kind, "int64_t"])
        pair = [self.converted(term, kind) for term in (left, right)]
        spread = spread_of(pair)
        if kind == "bool" and spread == "block":
            pair = [self._each(one) for one in pair]
        if kind == "int64_t" and sign in ("/", "%") and spread != "number":
            return Term(self.divided(sign, *pair), kind, spread)
        sign = "//" if sign == "/" and kind == "int64_t" else sign
        text = f"({pair[0].text} {sign} {pair[1].text})"
        return Term(text, "bool" if sign in _COMPARED else kind, spread)

    def _chosen(self, parts: Sequence[Term]) -> Term:
        condition, yes, no = parts
        kind = widest([yes.kind, no.kind])
        condition, yes, no = (
            self.converted(condition, "bool"), self.converted(yes, kind), self.converted(no, kind)
        )  # fmt: skip
        spread = spread_of([condition, yes, no])
        if spread == "number":
            return Term(f"({yes.text} if {condition.text} else {no.text})", kind, spread)
        return Term(self.where(self._each(condition), yes, no), kind)

    def _each(self, condition: Term) -> Term:
        """The condition for each lane: a mask and Python's True make a number."""
        if condition.spread == "block":
            return condition
        return Term(f"(({self.zero} + {condition.text}) != 0)", "bool")

    def _called(self, name: str, arguments: Sequence[Term]) -> Term:
        if name in ("scalar_t", "float", "double", "int64_t", "bool") or name in KINDS:
            kind: Kind = arguments[0].kind if name == "scalar_t" else kind_named(name)
            return self.converted(arguments[0], kind)
        if name in ROW_FUNCTIONS:
            [given] = arguments
            return Term(self.in_row(name, given), given.kind)
        plain = name if name in self.functions else name.removesuffix("f")
        if plain not in self.functions:
            raise Unwritable(f"{plain} in {self.language}")
        kind = "float" if plain != name else "double"
        held = [self.converted(one, kind) for one in arguments]
        blocks = [one.text if one.spread == "block" else self.full(one) for one in held]
        self.called.add(plain)
        return Term(self.functions[plain].format(*blocks), kind)

    def _loaded(self, node: Node) -> Term:
        name, index = self._element(node)
        if name in self.registers:
            return Term(name, self.registers[name])
        return Term(self.load(name, self.placed(index), self.pointers[name]), self.pointers[name])

    def _element(self, node: Node) -> tuple[str, Term]:
        [index] = field(node, "indices").named_children
        return text_of(field(node, "argument")), self._term(index)

    def placed(self, index: Term) -> str:
        return index.text if index.spread == "block" else f"({self.zero} + {index.text})"

    def converted(self, term: Term, kind: Kind) -> Term:
        """The term converted as C does it; what is known beforehand Python converts itself."""
        if term.kind == kind:
            return term
        if kind == "bool":
            return Term(f"({term.text} != 0)", kind, term.spread)
        if term.spread == "number":
            whole = kind == "int64_t" and term.kind in ("float", "double")
            if whole and (not term.text.strip("()-").replace(".", "").isdigit()):
                raise Unwritable(f"{term.text} as an integer")
            text = str(int(float(term.text.strip("()")))) if whole else term.text
            return Term(text, kind, "number")
        return Term(self.convert(self.placed(term), kind), kind)

    # ---- what languages differ in

    @abstractmethod
    def begun(self, name: str, kind: Kind) -> None:
        """A local that changes was declared."""

    def parts(self, name: str) -> list[str]:
        """The names under which a local that is declared outside of a loop is kept."""
        return [name] if name in self._declared else []

    language: str
    integers: tuple[int, int]

    @abstractmethod
    def convert(self, block: str, kind: Kind) -> str: ...

    @abstractmethod
    def full(self, value: Term) -> str:
        """A block of it."""

    @abstractmethod
    def where(self, condition: Term, yes: Term, no: Term) -> str: ...

    @abstractmethod
    def divided(self, sign: str, left: Term, right: Term) -> str:
        """Integers, rounded to zero, or what is left then."""

    @abstractmethod
    def load(self, name: str, place: str, kind: Kind) -> str: ...

    @abstractmethod
    def store(self, name: str, place: str, value: Term) -> str: ...

    @abstractmethod
    def in_row(self, name: str, value: Term) -> str: ...

    @abstractmethod
    @contextmanager
    def loop(self, counter: str, bound: str, changed: Sequence[str]) -> Iterator[None]:
        """``changed``: locals from outside that it assigns to."""
        yield


def parsed(lines: Sequence[str]) -> list[Node]:
    """The statements."""
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_cuda.language()))
    text = "\n".join(["void f() {", *lines, "}"])
    root = parser.parse(text.encode()).root_node
    if root.has_error:
        raise Unwritable(f"statements that do not parse ({text[:200]})")
    return list(field(root.named_children[0], "body").named_children)


def field(node: Node, name: str, *, required: bool = True) -> Node:
    found = node.child_by_field_name(name)
    assert found is not None or not required, (name, text_of(node))
    return found  # type: ignore[return-value]


def text_of(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def kind_named(name: str) -> Kind:
    for kind in KINDS:
        if kind == name:
            return kind
    raise Unwritable(f"the type {name}")


def assigned(node: Node) -> list[str]:
    """Names that are assigned to in a statement, in order."""
    found = []
    if node.type == "assignment_expression" and field(node, "left").type == "identifier":
        found.append(text_of(field(node, "left")))
    for child in node.named_children:
        found += assigned(child)
    return list(dict.fromkeys(found))
