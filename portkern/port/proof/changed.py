"""Whether host code may give a variable another value after its declaration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.proof.commas import closed, split
from portkern.port.proof.element import element_of

#: Assigned, counted, by its address, out of a stream, bound to a reference or by ``auto [a, b]``.
_CHANGED = (
    r"(?:\+\+|--)\s*+{0}\b|\b{0}\s*+(?:\+\+|--|(?:<<|>>|[-+*/%|&^])=)|[(,={{]\s*+&\s*+{0}\b(?!\s*+[.\[])"
    r"|(?<![<>])>>\s*+{0}\b(?!\s*+[(=])|\bauto\s*+&{{0,2}}\s*+\[[^\]]*?\b{0}\b[^\]]*+\]"
)
_BOUND = r"(\bconst\b[\w:\s]{{0,60}}+)?&\s*+\w++\s*+[=({{]\s*+{0}\s*+[;,)}}]"
#: A whole argument, as ``n`` of ``f(n, 1)`` and of ``P p{{n}}``.
_ARGUMENT = r"(?<=[(,{{])\s*+{0}\s*+(?=[,)}}])"
_CALLEE = re.compile(r"((?:\w++\s*+::\s*+)*+)(\w++)$")
_BEFORE = re.compile(r"(\w++|[>*&.])\s*+$")
#: What takes numbers as they are: words of the language, checks, and arithmetic.
_BY_VALUE = re.compile(
    r"if|while|for|switch|return|sizeof|dim3|uint3|assert|v?f?s?n?printf|make_(?:u?int\d|tuple|pair)|"
    r"(?:fast_?)?(?:min|max|clamp|abs|pow\w*|sqrtf?|ceilf?|floorf?|roundf?|log\w*|exp2?f?)|"
    r"\w*(?:ceil|div|round_?up|align|next_?pow|prev_?pow|is_pow|last_?pow|multiple)\w*|"
    r"\w*(?:CHECK|ASSERT|DISPATCH|ERROR|WARN|LOG|LAUNCH|CEIL|DIV|MIN|MAX|ALIGN|ROUND)\w*|"
    r"(?:cuda|hip|cu[A-Z]|cublas|cudnn|cufft|curand|cusparse|nccl|hipblas)\w*|(?:m|c|re)?alloc|memset",
    re.DOTALL,
)
#: Methods of tensors and containers.
_METHODS = re.compile(
    r"sizes?|strides?|dim|view|reshape|narrow|slice|select|expand|resize_?|reserve|push_back|"
    r"emplace_back|at|assign|fill_?|set_?\w*|index|unsqueeze|squeeze|flatten|sum|mean|new_\w+|"
    r"zeros|empty|ones|write|append|count|find|packed_accessor\w*|accessor"
)
#: What of the standard library takes a variable itself.
_OF_STD = frozenset(
    "tie swap exchange ref from_chars getline forward_as_tuple addressof invoke apply forward "
    "move get iter_swap".split()
)
#: Types of which a variable has copies of what it is made of.
_OF_VALUES = re.compile(
    r"dim3|auto|u?int[234]|\w*_t|[sS]tring|vector|array|pair|tuple|Tensor|else|return"
)
_LIBRARIES = frozenset(["std", "at", "torch", "c10", "thrust", "cub"])
_NO_TYPES = frozenset("return else new throw case do goto and or not in".split())
_TWO_WORDS = re.compile(
    r"(?:[\w:<>,\[\]]++[\s*&]++)++\w++(?:\s*+\[\w*+\])?+\s*+(?:=.*)?", re.DOTALL
)
_MOST_TEXT, _MOST_CALLS = 2000, 200


def changes(name: str, since: str, text: str) -> bool:
    """Whether the code between a variable's declaration and its use may change it by more than a
    plain assignment. What a function takes by reference is looked up in the whole text; one that
    is not there may, unless it is known to take numbers as they are."""
    plain = re.escape(name)
    if re.search(_CHANGED.format(plain), since):
        return True
    if any(not bound[1] for bound in re.finditer(_BOUND.format(plain), since)):
        return True
    calls = [at.start() for at in re.finditer(_ARGUMENT.format(plain), since)]
    return len(calls) > _MOST_CALLS or any(_is_taken(since, at, text) for at in calls)


def _is_taken(since: str, at: int, text: str) -> bool:
    """Whether the call that has an argument at a place may change it."""
    number, depth = 0, 0
    for i in range(at - 1, max(at - _MOST_TEXT, -1), -1):
        character = since[i]
        if depth == 0 and (character in "[;" or since.startswith("<<<", i)):
            return False
        number += depth == 0 and character == ","
        depth += (character in ")]}") - (character in "([{")
        if depth < 0:
            return _takes(since[max(i - _MOST_TEXT, 0) : i].rstrip(), number, text)
    return True


def _takes(head: str, number: int, text: str) -> bool:
    """Whether what stands before a parenthesis may change its argument of this number."""
    if head.endswith(">>>"):
        return False
    is_template, head = head.endswith(">"), _without_template(head)
    called = _CALLEE.search(head)
    if called is None:
        return head.endswith((")", "]"))
    before, name = _BEFORE.search(head[: called.start()]), called[2]
    space = re.match(r"\w*", called[1])
    of = space[0] if space is not None else ""
    if of in _LIBRARIES:
        return name in _OF_STD
    if is_template and name.endswith("_cast"):
        return False
    is_method = before is not None and (before[1] == "." or head[: called.start()].endswith("->"))
    if found := list(_parameters(name, number, text)):
        return any(map(_is_reference, found))
    if is_method:
        return _METHODS.fullmatch(name) is None
    if _BY_VALUE.fullmatch(name) or element_of(name, {}) is not None:
        return _macro_assigns(name, text)
    if before is None or before[1] in _NO_TYPES or before[1] in "*&.":
        return not _is_made_of_values(name, number, text)
    return _constructs(head[: called.start()].rstrip(), number, text)


def _constructs(type_: str, number: int, text: str) -> bool:
    """Whether a variable of the type takes what it is made of by reference: ``Parser p(n)``."""
    of = _CALLEE.search(_without_template(type_))
    if of is None or of[1].partition("::")[0].strip() in _LIBRARIES:
        return False
    name = of[2]
    if _OF_VALUES.fullmatch(name) or element_of(name, {}) is not None:
        return False
    defined = re.search(rf"\b(?:struct|class)\s++{re.escape(name)}\b[^;{{}}()]*+\{{", text)
    if defined is None:
        return True
    if found := list(_parameters(name, number, text, is_constructor=True)):
        return any(map(_is_reference, found))
    body = closed(text[defined.end() : defined.end() + _MOST_TEXT], "{", "}")
    return body is None or re.search(r"&\s*+\w++\s*+;", body) is not None


def _is_made_of_values(name: str, number: int, text: str) -> bool:
    """Whether a text defines a struct of the name, as ``Params`` in ``f(Params{n, 1})``, without
    macros, and it is made of copies: of numbers and pointers, by functions that take no reference
    to this one."""
    if any(map(_is_reference, _parameters(name, number, text, is_constructor=True))):
        return False
    start = rf"\b(?:struct|class)\s++{re.escape(name)}\b([^;{{}}()]*+)\{{"
    found = list(re.finditer(start, text))
    bodies = [closed(text[at.end() : at.end() + _MOST_TEXT], "{", "}") or "&" for at in found]
    macros = re.findall(r"#[ \t]*+define[ \t]++(\w++)", text)
    if not {*macros}.isdisjoint(re.findall(r"\w++", " ".join([name, *bodies]))):
        return False
    inherits = any(":" in at[1] for at in found)
    return bool(found) and not inherits and all(map(_has_values, bodies))


def _has_values(body: str) -> bool:
    """Whether all members of a struct are numbers and pointers; its functions aside."""
    left = ""
    while left != body:
        left, body = body, re.sub(r"\{[^{}]*+\}", ";", body)
    for member in body.split(";"):
        declared = re.sub(r"(?s)=.*|\b(?:static|constexpr|public:|private:)", "", member)
        first = split(declared)[0]
        type_ = re.match(r"(.*[\s*])\w++(?:\s*+\[\w*+\])*+$", first, re.DOTALL)
        is_function = "(" in declared and not re.search(r"&\s*+\w++\s*+$|\(\s*+&", declared)
        if not declared.strip() or is_function:
            continue
        if "&" in declared or type_ is None:
            return False
        if "*" not in first and element_of(type_[1].strip(), {}) is None:
            return False
    return True


def _without_template(head: str) -> str:
    depth = 0
    for i in range(len(head) - 1, -1, -1) if head.endswith(">") else ():
        depth += (head[i] == ">") - (head[i] == "<")
        if depth == 0:
            return head[:i].rstrip()
    return head


def _parameters(
    name: str, number: int, text: str, *, is_constructor: bool = False
) -> Iterator[str]:
    """The parameter of this number of each function, constructor or lambda of the name that a text
    declares."""
    declared = rf"\b{re.escape(name)}\s*+(?:=\s*+\[[^\]]{{0,200}}+\]\s*+)?\("
    for found in re.finditer(declared, text):
        before = _BEFORE.search(text[max(found.start() - 100, 0) : found.start()])
        is_whole = "=" in found[0] or is_constructor
        if not is_whole and (before is None or before[1] in _NO_TYPES or before[1] == "."):
            continue
        inner = closed(text[found.end() : found.end() + _MOST_TEXT], "([{<", ")]}>")
        pieces = split(inner, "([{<", ")]}>") if inner is not None else []
        if pieces and "..." in pieces[-1] and number >= len(pieces) - 1:
            yield pieces[-1]
        elif number < len(pieces) and _is_parameter(pieces[number]):
            yield pieces[number]


def _is_parameter(piece: str) -> bool:
    """Whether it declares one: a type and a name, a type alone, or a reference."""
    if piece.startswith("&"):
        return False
    is_type = element_of(piece, {}) is not None
    return is_type or piece.endswith("&") or _TWO_WORDS.fullmatch(piece) is not None


def _is_reference(parameter: str) -> bool:
    return "&" in parameter.partition("=")[0] and not re.search(r"\bconst\b", parameter)


def _macro_assigns(name: str, text: str) -> bool:
    """Whether a text defines a macro of the name that assigns something."""
    body = rf"(?m)^[ \t]*+#[ \t]*+define[ \t]++{re.escape(name)}\((?:\\\n|[^\n])*+"
    return any(re.search(r"(?<![=!<>])=(?!=)", macro[0]) for macro in re.finditer(body, text))
