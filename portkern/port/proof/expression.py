"""The values of names in a source's host code, as far as sizes of launches need them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from portkern.port.proof import arithmetic
from portkern.port.proof.changed import changes
from portkern.port.proof.commas import closed, split
from portkern.port.proof.element import element_of
from portkern.port.proof.recording import Size

#: How often a name may lead to another.
_DEPTH = 8
#: A declaration is no longer than 500 characters: each of many without an end would have all that
#: follows looked at.
_SIZEOF = re.compile(r"\bsizeof\s*+\(\s*+([\w:]++(?: ++[\w:]++)*+)\s*+\)")
_NAMED = re.compile(
    r"\b(?:int|unsigned|unsigned int|size_t|ssize_t|ptrdiff_t|long|auto|bool|u?int(?:8|16|32|64)_t|"
    r"u?int(?:32|64)?|[iu](?:32|64)|u?ll|U?LL|(?:index|idx|size)_t|Index|dim3)\s++(\w++)\s*+"
    r"(?:=\s*+([^;{}]{0,499}?[^;{}\s])|\(([^;{}]{0,500})\)|(?:=\s*+)?\{([^;{}]{0,500}+)\})\s*+;"
)
#: A loop of the host begins a launch's argument at its first value.
_LOOP = re.compile(
    r"\bfor\s*+\(\s*+(?:\w++\s++(?=\w))*+(\w++)\s*+=\s*+([^;,{}]{0,499}?[^;,{}\s])\s*+[;,]"
)
_ASSIGNED = re.compile(r"^[ \t]*+(\w++)\s*+=\s*+([^;{}=]{0,499}?[^;{}=\s])\s*+;", re.MULTILINE)
#: ``dim3 grid, block(32, 4);`` and then ``grid.x = n;``.
_DIM3 = re.compile(r"\bdim3\s++([^;{}]{1,500}+);")
_DECLARATOR = re.compile(r"(\w+)\s*(?:=\s*(.+)|\((.*)\))?", re.DOTALL)
_AXIS = re.compile(r"\b(\w++)\.([xyz])\s*+=(?!=)\s*+([^;{}=]{0,499}?[^;{}=\s])\s*+;")
_DEFINED = re.compile(
    r"^[ \t]*+#[ \t]*+define[ \t]++(\w++)[ \t]++(.*?[^ \t\n])[ \t]*+(?://.*+)?$", re.MULTILINE
)
#: Macros with arguments, and functions that do no more than return.
_MACRO = re.compile(
    r"^[ \t]*+#[ \t]*+define[ \t]++(\w++)\(([\w \t,]*+)\)[ \t]*+(.*?[^ \t\n])[ \t]*+(?://.*+)?$",
    re.MULTILINE,
)
#: What stands before the brace of a function's or lambda's body, behind its parameters.
_BODY = re.compile(
    r"\)(?:\s++|const\b|noexcept\b|override\b|mutable\b|->\s*+[\w:<>]++(?:\s*+[*&])?+)*+$"
)
#: So many characters before a brace are looked at for parameters, so many of these for ``_BODY``,
#: and so many braces around a place.
_MOST_HEAD, _MOST_BEHIND, _MOST_BRACES = 4000, 500, 50
_CONTROL = re.compile(r"\b(?:if|for|while|switch|catch)\s*+(?:constexpr\s*+)?$")
#: Before a brace: a loop, and a lambda that has variables around it themselves.
_AGAIN = re.compile(
    r"\bdo\s*+$|\b(?:for|while)\s*+(\((?:[^()]|\((?:[^()]|\([^()]*+\))*+\))*+\))\s*+$"
)
_BY_REFERENCE = re.compile(
    r"\[[^\[\]&]*+&[^\[\]]*+\]\s*+(?:\((?:[^()]|\([^()]*+\))*+\)[\w\s\->:<>*&]*+)?$"
)
_CONST = re.compile(r"\bconst(?:expr)?\s++(?:\w++::)?$")
#: Braces around names that are known behind them too.
_OPEN_SCOPE = re.compile(r"\b(?:namespace|struct|class|enum|union|extern)\b[^;{}()]*+$")
_PARAMETER = re.compile(r"[\w:<>,*&\s]+[\s*&](\w+)\s*(?:\[\w*\]\s*)?(?:=.*)?", re.DOTALL)
_NAME = re.compile(
    r"(?<![\w.>])[A-Za-z_]\w*(?:(?:\.|->)[A-Za-z_]\w*)*(?!\s*(?:[\w(]|<[\w:, *]*>|::))"
)
_RETURNS = re.compile(
    r"\b(\w++)\s*+\(([^(){};]{0,500}+)\)\s*+\{\s*+return\s++([^;{}]{1,500}+);\s*+\}"
)


class _Declared:
    """The declarations of one text, read once for all who ask."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.macros = {m[1]: m[2] for m in _DEFINED.finditer(text)}
        self.functions = {
            m[1]: (tuple(re.findall(r"\b(\w++)\s*+(?:,|$)", m[2])), m[3])
            for of in (_RETURNS, _MACRO)
            for m in of.finditer(text)
        }
        self._declared = [
            (m.start(), *one) for m in _NAMED.finditer(text) for one in _initialised(m)
        ]
        self._declared += [(m.start(), m[1], m[2]) for m in _LOOP.finditer(text)]
        shapes = [(m.start(), *one) for m in _DIM3.finditer(text) for one in _declarators(m[1])]
        self._declared += [shape for shape in shapes if shape[2]]
        self._declared.sort()
        self._assigned = [
            (m.start(), m[1], m[2])
            for m in _ASSIGNED.finditer(text)
            if m[1] not in re.findall(r"\w+", m[2])
        ]
        plain = [(at, name, "1") for at, name, of in shapes if not of]
        self._dim3s = sorted([*self._declared, *self._assigned, *plain])
        self._axes = [(m.start(), m[1], "xyz".index(m[2]), m[3]) for m in _AXIS.finditer(text)]
        self._ends = [m.start() for m in re.finditer(r"^\}", text, re.MULTILINE)]
        self._closed = _closed(text, [at for at, *_ in (*self._declared, *shapes)])
        self._before: dict[int, Mapping[str, str]] = {}

    def before(self, offset: int) -> Mapping[str, str]:
        """A later declaration hides an earlier one, and any hides what is assigned to a parameter,
        unless that is of itself. What other functions say of a parameter's name is not of it."""
        if offset not in self._before:
            begin, own = self._function(offset), self._parameters(offset)

            def seen(statements: Sequence[tuple[int, str, str]]) -> dict[str, str]:
                return {
                    name: text
                    for at, name, text in statements
                    if at < offset and (at > begin or name not in own)
                    if not begin < self._closed.get(at, offset) < offset
                }

            names = seen(self._assigned)
            names.update({n: text for n, text in self.macros.items() if n not in own})
            names.update(seen(self._declared))
            names.update(self._shapes(offset))
            self._before[offset] = names
        return self._before[offset]

    def _shapes(self, offset: int) -> Mapping[str, str]:
        """The shapes of each ``dim3`` that has an axis assigned after its declaration: that axis
        as assigned, the others as they were declared."""
        function, shapes = self._function(offset), dict[str, str]()
        declared = {
            name: (at, text)
            for at, name, text in self._dim3s
            if at < offset and not function < self._closed.get(at, offset) < offset
        }
        for at, name, axis, text in self._axes:
            begin, before = declared.get(name, (offset, ""))
            if max(begin, function) < at < offset and name not in re.findall(r"\w+", text):
                axes = [*split(_unwrapped(shapes.get(name, before))), "1", "1"][:3]
                axes[axis] = text
                shapes[name] = ", ".join(axes)
        return shapes

    def is_local(self, name: str, offset: int) -> bool:
        begin = self._function(offset)
        return any(n == name and begin < at < offset for at, n, _ in self._declared)

    def is_changed(self, name: str, offset: int) -> bool:
        """Whether the function at the offset gives the name another value than the one that its
        last declaration has, or its only assignment."""
        begin = self._function(offset)
        every = [at for at, of, _ in self._declared if of == name and begin < at]
        own = [at for at in every if at < offset and not self._closed.get(at, offset) < offset]
        first = max(own, default=begin)
        until = self._until(first, offset)
        since = self._text[first:until]
        given = len(re.findall(rf"\b{re.escape(name)}\s*+(?:=(?!=)|[({{])", since))
        hidden = sum(first < at < until for at in every if at not in own)
        last = max((at for at, of, _ in self._declared if of == name and at < offset), default=0)
        is_const = _CONST.search(self._text, max(last - 40, 0), last) is not None
        return given - hidden > 1 or (not is_const and changes(name, since, self._text))

    def _until(self, begin: int, offset: int) -> int:
        """Where the last code stands that may run before what is at the offset: behind it, where
        a loop or a lambda that has others' variables themselves is around it."""
        opened = list[int]()
        for brace in re.finditer(r"[{}]", self._text[begin:offset]):
            if brace[0] == "{":
                opened.append(begin + brace.start())
            elif opened:
                opened.pop()
        for at in opened[:_MOST_BRACES]:
            head = self._text[max(at - _MOST_HEAD, 0) : at]
            if _AGAIN.search(head):
                inner = closed(self._text[at + 1 :], "{", "}")
                return max(offset, at + len(inner or ""))
            if _BY_REFERENCE.search(head):
                after = bisect_left(self._ends, offset)
                return self._ends[after] if after < len(self._ends) else len(self._text)
        return offset

    def _parameters(self, offset: int) -> frozenset[str]:
        """The parameters of the functions and lambdas that the offset is in."""
        begin, opened = self._function(offset), list[int]()
        for brace in re.finditer(r"[{}]", self._text[begin:offset]):
            if brace[0] == "{":
                opened.append(begin + brace.start())
            elif opened:
                opened.pop()
        return frozenset(
            name for at in opened[-_MOST_BRACES:] for name in self._declared_before(begin, at)
        )

    def _declared_before(self, begin: int, brace: int) -> list[str]:
        """The names between the parentheses before a function's brace."""
        head = self._text[max(begin, brace - _MOST_HEAD) : brace]
        end, depth = _BODY.search(head, max(len(head) - _MOST_BEHIND, 0)), 0
        for at in range(end.start() if end else -1, -1, -1):
            depth += (head[at] == ")") - (head[at] == "(")
            if depth == 0:
                of_control = _CONTROL.search(head[:at])
                pieces = () if of_control or not end else split(head[at + 1 : end.start()])
                return [m[1] for m in map(_PARAMETER.fullmatch, pieces) if m]
        return []

    def _function(self, offset: int) -> int:
        """The beginning of a function: as most are written, one ends where a line begins with its
        brace."""
        before = bisect_left(self._ends, offset)
        return self._ends[before - 1] if before else 0


def _initialised(match: re.Match[str]) -> list[tuple[str, str]]:
    """The variables of a declaration, ``a = 1, b = 2``, each with its value."""
    first, *others = split(match[2]) if match[2] else [match[3] or match[4] or ""]
    more = (re.fullmatch(r"(\w+)\s*=(?!=)\s*(.+)", text, re.DOTALL) for text in others)
    return [(match[1], first), *((one[1], one[2]) for one in more if one)]


def _declarators(text: str) -> list[tuple[str, str]]:
    """``grid, block(32, 4)``: each name with what it is, which may be nothing."""
    found = map(_DECLARATOR.fullmatch, split(text))
    return [(one[1], one[2] or one[3] or "") for one in found if one]


def _closed(text: str, places: Sequence[int]) -> Mapping[int, int]:
    """Where the block that each place is in is closed, for those whose is."""
    closed, waiting = dict[int, int](), sorted(places, reverse=True)
    blocks = [list[int]()]
    for brace in re.finditer(r"[{}]", text):
        at = brace.start()
        while waiting and waiting[-1] < at:
            blocks[-1].append(waiting.pop())
        if brace[0] == "{":
            is_open = _OPEN_SCOPE.search(text, max(at - 200, 0), at)
            blocks.append(blocks[-1] if is_open else [])
        elif len(blocks) > 1:
            block = blocks.pop()
            if block is not blocks[-1]:
                closed |= dict.fromkeys(block, at)
    return closed


@lru_cache(maxsize=16)
def _read(text: str) -> _Declared:
    return _Declared(text)


class Names:
    """The values of names: ``given`` ones, then what the text before an offset declares last,
    then its macros. ``types`` says what names of types stand for."""

    def __init__(
        self, text: str, given: Mapping[str, int], types: Mapping[str, str] | None = None
    ) -> None:
        self.given, self._types = dict(given), types or {}
        self._read = _read(text)

    def before(self, offset: int) -> Mapping[str, str]:
        return self._read.before(offset)

    def is_local(self, name: str, offset: int) -> bool:
        """Whether the function at the offset declares it."""
        return self._read.is_local(name, offset)

    def is_changed(self, expression: str, offset: int) -> bool:
        """Whether a name that the expression depends on has more than one value before it."""
        return any(self._read.is_changed(n, offset) for n in self.reached(expression, offset))

    def reached(self, expression: str, offset: int) -> Mapping[str, str]:
        """The names that the expression depends on, with what they are declared as."""
        known, queue, found = self.before(offset), self.free(expression), dict[str, str]()
        while queue:
            name = queue.pop()
            if name not in found and name not in self.given:
                found[name] = known.get(name, "")
                queue += self.free(found[name])
        return found

    def value(self, expression: str, offset: int) -> int | None:
        """The value of an expression; None where a part of it is not known."""
        return self._value(expression, self.before(offset), _DEPTH)

    def shape(self, expression: str, offset: int) -> Size | None:
        """The size that a ``dim3`` or a number stands for; None where a part of it is not known."""
        return self._shape(expression, self.before(offset))

    def _shape(self, expression: str, known: Mapping[str, str]) -> Size | None:
        text = expression.strip()
        for _ in range(_DEPTH):
            if text not in known or text in self.given:
                break
            text = known[text].strip()
        parts = [self._value(part, known, _DEPTH) for part in split(_unwrapped(text))]
        if not 1 <= len(parts) <= 3 or any(part is None or part <= 0 for part in parts):
            return None
        x, y, z = [*(part or 1 for part in parts), 1, 1][:3]
        return x, y, z

    def free(self, expression: str) -> list[str]:
        """Names in it that no macro gives a value, in their order; a member is one, ``p.n``."""
        names = _NAME.findall(_SIZEOF.sub("1", expression))
        return [name for name in dict.fromkeys(names) if name not in self._read.macros]

    def unknown(self, expression: str, offset: int) -> list[str]:
        """Names that its value needs and that nothing gives one: those it mentions itself, or
        through what they are declared as. What is declared by more than arithmetic, as
        ``n = x.size(0)``, is such a name."""
        known, open_ = self.before(offset), dict[str, None]()
        queue, seen = self.free(expression), set[str]()
        while queue:
            name = queue.pop(0)
            if name in seen or element_of(name, {}) is not None:
                continue
            if self._value(name, known, _DEPTH) is not None or self._shape(name, known):
                continue
            seen.add(name)
            of = name if name in known else name.partition(".")[0]
            parts = self.free(known.get(of, ""))
            if of not in known or not parts or re.search(r"[.>]\s*\w+\s*\(", known[of]):
                open_[name] = None
            else:
                queue += parts
        return list(open_)

    def _value(self, expression: str, known: Mapping[str, str], depth: int) -> int | None:
        number = self._evaluated(expression, known, depth, {})
        return None if number is None else int(number)

    def _evaluated(
        self, expression: str, known: Mapping[str, str], depth: int, own: Mapping[str, float]
    ) -> float | None:
        """``own`` are values of a function's parameters, which hide other names."""
        if depth == 0:
            return None

        def named(name: str) -> float | None:
            if name in own:
                return own[name]
            if name in self.given:
                return self.given[name]
            return self._value(known[name], known, depth - 1) if name in known else None

        def member(name: str, axis: str) -> float | None:
            for whole in (f"{name}.{axis}", f"{name}->{axis}"):
                if whole in self.given:
                    return self.given[whole]
            shape = self._shape(name, known) if axis in ("x", "y", "z") else None
            return shape["xyz".index(axis)] if shape else None

        def called(name: str, values: Sequence[float]) -> float | None:
            parameters, body = self._read.functions.get(name, ((), ""))
            if not body or len(parameters) != len(values):
                return None
            return self._evaluated(
                body, known, depth - 1, dict(zip(parameters, values, strict=True))
            )

        return arithmetic.evaluate(expression, named, member, called, self._types)


def _unwrapped(text: str) -> str:
    """``dim3(a, b)`` is ``a, b``."""
    text = re.sub(r"^(?:::)?dim3\s*(?=[({])", "", text.strip())
    return text[1:-1] if text[:1] in ("(", "{") and text[-1:] in (")", "}") else text
