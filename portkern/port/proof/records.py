"""Structs that a kernel takes by value: each member is an argument of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source import tree
from portkern.cuda_source.source_map import Parameter
from portkern.port.proof import width
from portkern.port.proof.element import bound_type, element_of, plain_type
from portkern.port.proof.expression import of_template
from portkern.port.proof.outcome import Refused

if TYPE_CHECKING:
    from tree_sitter import Node

#: How often one name of a type may stand for another, and how deep structs are within structs.
_DEPTH = 4
#: Of all members of one struct, elements of arrays counted one by one.
_MOST_MEMBERS = 128
#: In a class's body, what has no value of its own.
_NO_DATA = frozenset(
    """{ } : ; comment alias_declaration type_definition function_definition declaration
    template_declaration static_assert_declaration using_declaration""".split()
)
_OF_WIDTH = re.compile(r"warp|lane|wave", re.IGNORECASE)


@dataclass(frozen=True)
class Record:
    """A class as it is defined; ``members`` are called ``.n`` or ``.sizes[2]``, and arrays have
    their ``[length]`` behind the name. ``problem``: why its members cannot be given values."""

    template: tuple[str, ...]
    bases: tuple[str, ...]
    members: tuple[Parameter, ...]
    problem: str = ""


def records(texts: Iterable[str]) -> Mapping[str, Record]:
    """The classes that the texts define, by their names; of two of one name, neither."""
    found: dict[str, Record | None] = {}
    for text in texts:
        if "struct" in text or "class" in text:
            for node in tree.nodes(tree.root(text), "struct_specifier", "class_specifier"):
                body, name = node.child_by_field_name("body"), _name(node)
                if body is not None and name:
                    known = _record(node, body)
                    same = found.get(name, known) == known
                    found[name] = known if same else None
    return {name: record for name, record in found.items() if record is not None}


def members(
    parameter: Parameter, known: Mapping[str, str], of: Mapping[str, Record]
) -> tuple[Parameter, ...] | Refused | None:
    """The members of a parameter, called ``p.n``, with the template's arguments in their types;
    None for a parameter that is not a struct of the source's."""
    found = _members(parameter.type, known, of, _DEPTH)
    if found is None:
        return None
    if isinstance(found, str) or len(found) > _MOST_MEMBERS:
        why = found if isinstance(found, str) else f"it has {len(found)} members"
        return Refused(f"'{parameter.name}' is of type {plain_type(parameter.type)}: {why}")
    return tuple(Parameter(m.type, f"{parameter.name}{m.name}") for m in found)


def of_width(own: Sequence[Parameter], known: Mapping[str, str], text: str) -> Refused | None:
    """The reason why whole numbers among the members cannot be made up: on a machine of another
    width the port's host code may store others there."""
    asked = width.is_asked(text)
    for member in own:
        element = None if "*" in member.type else element_of(plain_type(member.type), known)
        if element is None or element[0].is_float:
            continue
        words = " ".join([_last(member), *_assigned(member, text)])
        if asked or _OF_WIDTH.search(words):
            why = "may depend on the width of warps, which host code asks for"
            return Refused(f"'{member.name}' {why}")
    return None


def set_to(member: Parameter, text: str) -> str:
    """The one expression that host code sets a member to, as ``p.n = x.size(0);``, else what the
    class has for it; '' where there is none, or there are several."""
    found = _assigned(member, text) or {member.default}
    return found.pop() if len(found) == 1 else ""


def _assigned(member: Parameter, text: str) -> set[str]:
    name = re.escape(_last(member))
    set_ = rf"\w(?:\.|->)\s*{name}\s*=(?!=)\s*([^;{{}}=]{{1,200}}?)\s*;"
    return {" ".join(match[1].split()) for match in re.finditer(set_, text)}


def _last(member: Parameter) -> str:
    return member.name.rpartition(".")[2]


# ---- definitions


def _name(node: Node) -> str:
    """``P`` of ``struct P {…}`` and of ``typedef struct {…} P;``."""
    name, parent = node.child_by_field_name("name"), node.parent
    if name is None and parent is not None and parent.type == "type_definition":
        name = parent.child_by_field_name("declarator")
    return tree.text(name) if name is not None and name.type == "type_identifier" else ""


def _record(node: Node, body: Node) -> Record:
    parent = node.parent
    template = parent if parent is not None and parent.type == "template_declaration" else None
    bases = [child for child in node.children if child.type == "base_class_clause"]
    names = tuple(_template(template)) if template is not None else ()
    of = tuple(
        tree.text(part)
        for base in bases
        for part in base.named_children
        if part.type not in ("access_specifier", "comment")
    )
    try:
        return Record(names, of, tuple(_data(body, node.type == "struct_specifier")))
    except _Unreadable as problem:
        return Record(names, of, (), str(problem))


def _template(node: Node) -> Iterator[str]:
    listed = node.child_by_field_name("parameters")
    for part in listed.named_children if listed is not None else ():
        yield re.split(r"\s*=", tree.text(part))[0].split()[-1]


class _Unreadable(Exception):
    """Raised for a class whose members cannot be told."""


def _data(body: Node, is_public: bool) -> Iterator[Parameter]:
    for part in body.children:
        if part.type == "access_specifier":
            is_public = tree.text(part).startswith("public")
        elif part.type == "field_declaration":
            for member in _declared(part):
                if not is_public:
                    raise _Unreadable(f"its member{member.name} is not public")
                yield member
        elif part.type not in _NO_DATA:
            raise _Unreadable(f"it has {' '.join(tree.text(part).split())[:40]!r} in it")


def _declared(node: Node) -> Iterator[Parameter]:
    """The members that one declaration has; none for a function or what is static."""
    words = [c for c in node.children if c.type in ("type_qualifier", "storage_class_specifier")]
    spelled = " ".join(map(tree.text, words))
    type_ = tree.text(node.child_by_field_name("type"))
    if "static" in spelled.split():
        return
    if any(child.type == "bitfield_clause" for child in node.children) or "{" in type_:
        raise _Unreadable(f"it has {' '.join(tree.text(node).split())[:40]!r} in it")
    declarators = node.children_by_field_name("declarator")
    value = node.child_by_field_name("default_value") if len(declarators) == 1 else None
    for declarator in declarators:
        name = tree.text(declarator)
        if "(" in name and not name.lstrip("*& ").startswith("("):
            continue  # a function of its own
        match = re.fullmatch(r"((?:\*|\s|\w+\s+|__restrict__)*)(\w+)((?:\s*\[\w+\])*)", name)
        if match is None:
            raise _Unreadable(f"it has {name!r} in it")
        whole = f"{spelled} {type_} {match[1]}".strip()
        yield Parameter(whole, f".{match[2]}{match[3]}", tree.text(value))


# ---- uses


def _members(
    type_: str, known: Mapping[str, str], of: Mapping[str, Record], depth: int
) -> list[Parameter] | str | None:
    name = plain_type(type_).rstrip("&")
    for _ in range(_DEPTH):
        if name not in known or known[name] == name:
            break
        name = plain_type(known[name])
    match = re.fullmatch(r"(?:\w*::)*(\w+)\s*(?:<(.*)>)?", name)
    record = of.get(match[1]) if match else None
    if match is None or record is None or not depth:
        return None
    given = of_template(match[2]) if match[2] else []
    if len(given) != len(record.template):
        return f"it has {len(record.template)} arguments of a template, of which {len(given)} show"
    bound = {**known, **dict(zip(record.template, (known.get(t, t) for t in given), strict=True))}
    found: list[Parameter] = []
    for base in record.bases:
        inner = _members(bound_type(base, bound), known, of, depth - 1)
        if inner is None or isinstance(inner, str):
            return inner or f"its base {base} is not defined here"
        found += inner
    for member in record.members:
        own = bound_type(member.type, bound)
        inner = None if "*" in own else _members(own, known, of, depth - 1)
        if isinstance(inner, str):
            return inner
        if (places := _places(member.name, bound)) is None:
            return f"how long its member{member.name} is, is not known"
        for place in places:
            within = inner or [Parameter(own, "", member.default)]
            found += [Parameter(m.type, place + m.name, m.default) for m in within]
            if len(found) > _MOST_MEMBERS:
                return f"it has more than {_MOST_MEMBERS} members"
    return record.problem or found


def _places(name: str, bound: Mapping[str, str]) -> list[str] | None:
    """``.n`` itself, or each element of the array ``.sizes[4]``; None for one of a length that is
    not known."""
    plain, *lengths = re.findall(r"[.\w]+", name)
    sizes = [int(n) for n in (bound.get(text, text) for text in lengths) if n.isdigit()]
    if len(sizes) != len(lengths):
        return None
    elements = itertools.islice(itertools.product(*map(range, sizes)), _MOST_MEMBERS + 1)
    return [plain + "".join(f"[{i}]" for i in at) for at in elements]
