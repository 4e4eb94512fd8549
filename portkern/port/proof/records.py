"""Structs that a kernel takes by value: each member is an argument of its own."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source import tree
from portkern.cuda_source.source_map import Parameter
from portkern.port.proof.commas import of_template
from portkern.port.proof.element import bound_type, element_of, plain_type
from portkern.port.proof.outcome import Refused

if TYPE_CHECKING:
    from tree_sitter import Node

#: How often one name of a type may stand for another, and how deep structs are within structs.
_DEPTH = 4
#: The most members of one struct, elements of arrays counted one by one; the most classes that are
#: read for one, each as often as it is there; and the most characters of a type with its template's
#: arguments.
_MOST_MEMBERS, _MOST_CLASSES, _MOST_TYPE = 128, 256, 1000
#: Words of a class's body that begin no data.
_NO_DATA = frozenset(
    """{ } : ; comment alias_declaration type_definition function_definition template_declaration
    static_assert_declaration using_declaration""".split()
)
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_NAMES = ("identifier", "field_identifier", "type_identifier")
#: A macro with its parameters' parenthesis and what it stands for, whose lines end in ``\\``.
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w++)(\(?)((?:[^\n\\]|\\.)*+)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class StructClass:
    """A class as it is defined; ``members`` are called ``.n`` or ``.sizes[2]``, and arrays have
    their ``[length]`` behind the name. ``problem``: why its members cannot be given values."""

    template: tuple[str, ...]
    bases: tuple[str, ...]
    members: tuple[Parameter, ...]
    problem: str = ""


def records(texts: Iterable[str]) -> Mapping[str, StructClass]:
    """The classes that the texts define, by their names. Of two of one name, neither, as one that
    is specialised, or is defined in another's scope."""
    found: dict[str, StructClass | None] = {}
    texts = list(texts)
    macros = _Macros(texts)
    for text in texts:
        if "struct" in text or "class" in text:
            for node in tree.nodes(tree.root(text), "struct_specifier", "class_specifier"):
                body, name = node.child_by_field_name("body"), _name(node)
                if special := _special(node):
                    found[special] = None
                elif body is not None and name:
                    known = _record(node, body, name, macros)
                    same = found.get(name, known) == known
                    found[name] = known if same else None
    return {name: record for name, record in found.items() if record is not None}


def members(
    parameter: Parameter, known: Mapping[str, str], of: Mapping[str, StructClass]
) -> tuple[Parameter, ...] | Refused | None:
    """The members of a parameter, called ``p.n``, with the template's arguments in their types;
    None for a parameter that is not a struct of the source's."""
    try:
        found = _Reader(of).members(parameter.type, known, _DEPTH)
        if found is None:
            return None
        names = [member.name for member in found]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise _Unreadable(f"two members of it are called {twice[1:]}")
    except _Unreadable as problem:
        return Refused(f"'{parameter.name}' is of type {plain_type(parameter.type)}: {problem}")
    return tuple(Parameter(m.type, f"{parameter.name}{m.name}") for m in found)


def rows(of: Mapping[str, StructClass], known: Mapping[str, str]) -> dict[str, str]:
    """The classes whose members are all numbers of one kind, one after the other, each with the
    array that one of it is in memory: ``float64[4]``."""
    found: dict[str, str] = {}
    for name in of:
        own = members(Parameter(name, "p"), known, of)
        types = [plain_type(m.type) for m in own] if isinstance(own, tuple) else []
        elements = [element_of(type_, known) for type_ in types]
        kinds = {one[0].name for one in elements if one is not None}
        if len(kinds) == 1 and None not in elements and "bool" not in types:
            length = sum(one[1] for one in elements if one is not None)
            found[name] = f"{kinds.pop()}[{length}]"
    return found


def class_names(
    type_: str, known: Mapping[str, str], of: Mapping[str, StructClass]
) -> frozenset[str]:
    """The names of a type's class, its bases and the classes of its members."""
    names, open_ = set[str](), {_class_of(type_, known)[0]}
    while open_:
        name = open_.pop()
        if name not in of or name in names:
            continue
        names.add(name)
        for text in (*of[name].bases, *(member.type for member in of[name].members)):
            for word in re.findall(r"\w+", text):
                open_ |= {word, *re.findall(r"\w+", known.get(word, ""))}
    aliases = {alias for alias, text in known.items() if names & set(re.findall(r"\w+", text))}
    return frozenset(names | aliases)


# ---- definitions


def _name(node: Node) -> str:
    """``P`` of ``struct P {…}`` and of ``typedef struct {…} P;``."""
    name, parent = node.child_by_field_name("name"), node.parent
    if name is None and parent is not None and parent.type == "type_definition":
        name = parent.child_by_field_name("declarator")
    return tree.text(name) if name is not None and name.type == "type_identifier" else ""


def _special(node: Node) -> str:
    """``P`` of ``template <> struct P<float> {…}`` and of ``struct Outer::P {…}``."""
    name, parent = node.child_by_field_name("name"), node.parent
    is_declared = parent is not None and parent.type == "template_declaration"
    if name is None or not (is_declared or node.child_by_field_name("body") is not None):
        return ""
    plain = name
    while plain.type in ("qualified_identifier", "template_type"):
        inner = plain.child_by_field_name("name")
        if inner is None:
            return ""
        plain = inner
    return tree.text(plain) if plain != name else ""


class _Macros:
    """Names of macros: ``functions`` have parameters, ``statements`` stand for what ends in a
    semicolon, which may be a member."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.functions, self.statements = set[str](), set[str]()
        found = [match for text in texts if "define" in text for match in _DEFINE.finditer(text)]
        for match in (*found, *found):  # one may use another that follows it
            if match[2]:
                self.functions.add(match[1])
            if ";" in match[3] or not self.statements.isdisjoint(re.findall(r"\w+", match[3])):
                self.statements.add(match[1])


def _record(node: Node, body: Node, name: str, macros: _Macros) -> StructClass:
    parent = node.parent
    template = parent if parent is not None and parent.type == "template_declaration" else None
    bases = [child for child in node.children if child.type == "base_class_clause"]
    names = tuple[str, ...]()
    of = tuple(
        tree.text(part)
        for base in bases
        for part in base.named_children
        if part.type not in ("access_specifier", "comment")
    )
    try:
        names = tuple(_template(template)) if template is not None else ()
        data = _data(body, name, macros, is_public=node.type == "struct_specifier")
        return StructClass(names, of, tuple(data))
    except _Unreadable as problem:
        return StructClass(names, of, (), str(problem))


def _template(node: Node) -> Iterator[str]:
    """The names of a template's parameters, '' for one without."""
    listed = node.child_by_field_name("parameters")
    for part in listed.named_children if listed is not None else ():
        if part.type == "comment":
            continue
        if part.has_error or part.type not in _TEMPLATE:
            raise _unreadable(part, "among its template's parameters")
        yield next((tree.text(c) for c in part.children if c.type == _TEMPLATE[part.type]), "")


#: The kinds of parameters of templates, with what their names are.
_TEMPLATE: Mapping[str, str] = {
    "type_parameter_declaration": "type_identifier",
    "optional_type_parameter_declaration": "type_identifier",
    "parameter_declaration": "identifier",
    "optional_parameter_declaration": "identifier",
}


class _Unreadable(Exception):
    """Raised for a class whose members cannot be told."""


def _unreadable(node: Node, where: str = "in it") -> _Unreadable:
    return _Unreadable(f"it has {' '.join(tree.text(node).split())[:40]!r} {where}")


def _data(body: Node, name: str, macros: _Macros, *, is_public: bool) -> Iterator[Parameter]:
    for part in body.children:
        if macros.statements and not macros.statements.isdisjoint(_words(part)):
            raise _unreadable(part)
        if part.type == "access_specifier":
            is_public = tree.text(part).startswith("public")
        elif part.type == "field_declaration":
            for member in _declared(part, macros):
                if not is_public:
                    raise _Unreadable(f"its member{member.name} is not public")
                yield member
        elif part.type not in _NO_DATA and not _is_made_by(part, name):
            raise _unreadable(part)


def _words(part: Node) -> Iterator[str]:
    """The names in a declaration, but for those in a function's body."""
    for child in part.children:
        if child.type in ("function_definition", "declaration"):
            yield from _words(child)
        elif child.type not in ("compound_statement", "field_initializer_list"):
            yield from map(tree.text, tree.nodes(child, *_NAMES))


def _is_made_by(part: Node, name: str) -> bool:
    """Whether a declaration is one of constructors, destructors and conversions: what else has no
    type is a macro, which may stand for members."""
    own = part.children_by_field_name("declarator")
    return (
        part.type == "declaration"
        and not part.has_error
        and all(
            d.type == "operator_cast"
            or (
                d.type == "function_declarator"
                and tree.text(d.child_by_field_name("declarator")) in (name, f"~{name}")
            )
            for d in own
        )
        and bool(own)
    )


def _declared(node: Node, macros: _Macros) -> Iterator[Parameter]:
    """The members that one declaration has; none for a function or what is static."""
    words = [c for c in node.children if c.type in ("type_qualifier", "storage_class_specifier")]
    spelled = " ".join(map(tree.text, words))
    type_ = node.child_by_field_name("type")
    declarators = node.children_by_field_name("declarator")
    if "static" in spelled.split():
        return
    if type_ is None or any(child.type == "bitfield_clause" for child in node.children):
        raise _unreadable(node)
    if "{" in tree.text(type_) or not (declarators or type_.type in _CLASSES):
        raise _unreadable(node)
    for declarator in declarators:
        if _is_function(node, type_, declarator, macros):
            continue
        if node.has_error or (found := _member(declarator)) is None:
            raise _unreadable(node)
        pointers, name = found
        yield Parameter(f"{spelled} {tree.text(type_)} {pointers}".strip(), f".{name}")


def _is_function(node: Node, type_: Node, declarator: Node, macros: _Macros) -> bool:
    """Whether it declares a function and not, by a macro, a member: ``int d ALIGNED(8);`` looks
    much as ``HOST int f(T);`` does."""
    inner: Node | None = declarator
    while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
        inner = inner.named_children[-1] if inner.named_children else None
    name = inner.child_by_field_name("declarator") if inner is not None else None
    if inner is None or inner.type != "function_declarator" or name is None:
        return False
    if name.type == "operator_name":
        return True
    errors = [tree.text(child) for child in node.children if child.type == "ERROR"]
    is_named = type_.type == "sized_type_specifier" and any(
        child.type == "type_identifier" for child in type_.children
    )
    return (
        name.type in ("field_identifier", "identifier")
        and tree.text(name) not in macros.functions
        and not (is_named or declarator.has_error)
        and all(error == "void" or element_of(error, {}) is not None for error in errors)
    )


def _member(declarator: Node) -> tuple[str, str] | None:
    """``*const`` and ``x[4]`` of ``*const x[4]``; None for what is more than that."""
    pointers, lengths, node = list[str](), list[str](), declarator
    while node.type in ("pointer_declarator", "array_declarator"):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            return None
        if node.type == "pointer_declarator":
            pointers += [tree.text(child) for child in node.children if child != inner]
        else:
            lengths.append(tree.text(node.child_by_field_name("size")))
        node = inner
    if node.type != "field_identifier" or not all(re.fullmatch(r"\w+", n) for n in lengths):
        return None
    return " ".join(pointers), tree.text(node) + "".join(f"[{n}]" for n in reversed(lengths))


# ---- uses


def _class_of(type_: str, known: Mapping[str, str]) -> tuple[str, str]:
    """``P`` and ``float, 4`` of ``const ns::P<float, 4>&``, or of what stands for it."""
    name = plain_type(type_).rstrip("&")
    for _ in range(_DEPTH):
        if name not in known or known[name] == name:
            break
        name = plain_type(known[name])
    match = re.fullmatch(r"(?:\w*::)*(\w+)\s*(?:<(.*)>)?", name)
    return (match[1], match[2] or "") if match else ("", "")


class _Reader:
    """Reads one type's members, of so many classes at most."""

    def __init__(self, of: Mapping[str, StructClass]) -> None:
        self._of, self._left = of, _MOST_CLASSES

    def members(self, type_: str, known: Mapping[str, str], depth: int) -> list[Parameter] | None:
        """The members, with what comes behind the value's name; None for a type that is not a
        class of the source's. Raises _Unreadable."""
        name, listed = _class_of(type_, known)
        record = self._of.get(name)
        if record is None or not depth:
            return None
        self._left -= 1
        if self._left < 0:
            raise _Unreadable(f"it is made of more than {_MOST_CLASSES} classes")
        if record.problem:
            raise _Unreadable(record.problem)
        given = of_template(listed) if listed else []
        if len(given) != len(record.template):
            count = len(record.template)
            raise _Unreadable(f"it has {count} arguments of a template, of which {len(given)} show")
        own = dict(zip(record.template, (known.get(t, t) for t in given), strict=True))
        bound = {**known, **own}
        found: list[Parameter] = []
        for base in record.bases:
            inner = self.members(_bound(base, bound), bound, depth - 1)
            if inner is None:
                raise _Unreadable(f"its base {base} is not defined here")
            found += inner
        for member in record.members:
            found += self._of_member(member, bound, depth)
            if len(found) > _MOST_MEMBERS:
                raise _Unreadable(f"it has more than {_MOST_MEMBERS} members")
        return found

    def _of_member(
        self, member: Parameter, bound: Mapping[str, str], depth: int
    ) -> list[Parameter]:
        own = _bound(member.type, bound)
        inner = None if "*" in own else self.members(own, bound, depth - 1)
        within = [Parameter(own, "")] if inner is None else inner
        places = _places(member.name, bound)
        if len(places) * len(within) > _MOST_MEMBERS:
            raise _Unreadable(f"it has more than {_MOST_MEMBERS} members")
        return [Parameter(m.type, place + m.name) for place in places for m in within]


def _bound(type_: str, bound: Mapping[str, str]) -> str:
    spelled = bound_type(type_, bound)
    if len(spelled) > _MOST_TYPE:
        raise _Unreadable(f"a type in it has {len(spelled)} characters")
    return spelled


def _places(name: str, bound: Mapping[str, str]) -> list[str]:
    """``.n`` itself, or each element of the array ``.sizes[4]``. Raises _Unreadable for one of a
    length that is not known."""
    plain, *lengths = re.findall(r"[.\w]+", name)
    texts = [bound.get(text, text) for text in lengths]
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", text) for text in texts):
        raise _Unreadable(f"how long its member{name} is, is not known")
    sizes = list(map(int, texts))
    if math.prod(sizes) > _MOST_MEMBERS:
        raise _Unreadable(f"it has more than {_MOST_MEMBERS} members")
    elements = itertools.product(*map(range, sizes))
    return [plain + "".join(f"[{i}]" for i in at) for at in elements]
