"""``__shared__`` declarations: each becomes a reference into the running block's memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from portkern.cuda_source.lexer import CLOSE, Kind, Macro, SourceCode
from portkern.simt.translate.edit import SourceDraft, Writer
from portkern.simt.translate.launches import display

Range = tuple[int, int]
_QUALIFIERS = frozenset(["const", "volatile", "__volatile__"])
_DROPPED = frozenset(
    ["__shared__", "static", "extern", "inline", "__device__", "thread_local", "register"]
)
_BUILTIN = frozenset(
    "void bool char short int long float double signed unsigned wchar_t char8_t char16_t "
    "char32_t __int128".split()
)
_ALIGN = frozenset(["alignas", "__align__", "__builtin_align__"])
_ATTRIBUTE = frozenset(["__attribute__", "__attribute"])
_RECORD = frozenset(["struct", "class", "union", "enum"])
_TYPE_OF = frozenset(["decltype", "typeof", "__typeof__"])
_LONGEST_TYPE = 64  # tokens before __shared__
_RESTRICT = frozenset(["__restrict__", "__restrict", "restrict"])


@dataclass(frozen=True)
class Declarator:
    first: int
    name: Range  # one token, or several pasted in a macro
    before: str  # what stands before the name and after it, attributes left out
    after: str
    alignment: tuple[str, ...]

    @property
    def abstract(self) -> str:
        return f"{self.before}{self.after}"


@dataclass
class SharedDeclaration:
    first: int
    last: int  # the ';', which stays
    external: bool = False
    type: str = ""
    body: Range | None = None  # of a struct defined in place, its keyword to its '}'
    tag: str = ""  # and its name
    alignment: tuple[str, ...] = ()
    declarators: list[Declarator] = field(default_factory=list)


class Unparsed(Exception):
    """Why a declaration is not understood."""


def rewrite_shared(draft: SourceDraft, i: int) -> int:
    """The declaration that has ``__shared__`` at ``i``; where to go on after it."""
    place = draft.places[i]
    try:
        if place.scope.kind == "class":
            raise Unparsed("a static member")
        declaration = _Parser(draft, i).parse()
    except Unparsed as failure:
        draft.report(i, "SX011", f"a __shared__ declaration that cannot be parsed: {failure}")
        while draft.code.text[i] in _DROPPED:
            i += 1
        return i
    names = _Names(draft.code, place.macro)
    if place.scope.function:
        draft.replace(
            declaration.first, declaration.last, lambda w: _write_local(w, names, declaration)
        )
    else:
        _namespace(draft, i, names, declaration)
    return declaration.last


# ---- parsing ------------------------------------------------------------------------------


class _Parser:
    """Declaration specifiers in any order, then declarators."""

    def __init__(self, draft: SourceDraft, at: int) -> None:
        self.code, self.text, self.world = draft.code, draft.code.text, draft.world
        self.at, self.end = at, draft.places[at].last
        self.low = draft.code.earliest(at)
        self.i = at  # the next token
        self.result = SharedDeclaration(at, at)

    def parse(self) -> SharedDeclaration:
        try:
            return self._from(self._first())
        except Unparsed:
            first = self._first_before_type()
            if first is None:
                raise
        return self._from(first)

    def _from(self, first: int) -> SharedDeclaration:
        self.i = first
        self.result = SharedDeclaration(first, first)
        self._specifiers()
        self._declarators()
        if self._next not in (";", ""):
            raise Unparsed(f"{self._next!r} is not expected")
        if self.code.has_directive(first, self.i) and self.code.directive(first) is None:
            raise Unparsed("directives within the declaration")
        self.result.last = self.i
        return self.result

    @property
    def _next(self) -> str:
        return self.text[self.i] if self.i < self.end else ""

    def _first(self) -> int:
        """Back over the specifiers before ``__shared__``."""
        i = self.at
        while i > self.low:
            before = self.text[i - 1]
            words = self.world.stands_for(before)
            if words <= _DROPPED | _QUALIFIERS:
                i -= 1
            elif before == ")" and self._attribute(self.code.partner[i - 1] - 1):
                i = self.code.partner[i - 1] - 1
            elif before == "]" and self._attribute_at(self.code.partner[i - 1])[1] == i:
                i = self.code.partner[i - 1]
            else:
                break
        return i

    def _attribute(self, i: int) -> bool:
        return i >= self.low and self.text[i] in _ALIGN | _ATTRIBUTE

    def _first_before_type(self) -> int | None:
        """``float __shared__ x[4];`` begins where its statement does."""
        i = self._first()
        low = max(self.low, i - _LONGEST_TYPE)
        while i > low:
            token = self.code.tokens[i - 1]
            if token.text == ">":
                i = self.code.open_angle(i - 1, self.low)
                if i < 0:
                    return None
            elif token.text in ("::", "*") or token.kind is Kind.NAME:
                i -= 1
            else:
                break
        return i if i < self._first() else None

    def _specifiers(self) -> None:
        parts: list[str] = []
        typed = False
        while self.i < self.end:
            text, token = self.text[self.i], self.code.tokens[self.i]
            words = self.world.stands_for(text)
            if words <= _DROPPED | _QUALIFIERS:
                self.result.external |= "extern" in words
                parts += sorted(words & _QUALIFIERS)
                self.i += 1
            elif self._skip_attribute():
                pass
            elif text in _BUILTIN and self.text[self.i + 1] != "##":
                parts.append(text)
                typed = True
                self.i += 1
            elif typed or text in ("auto", "*", "&", "("):
                break
            elif text in _RECORD:
                parts.append(self._record())
                typed = True
            elif text == "::" or token.kind is Kind.NAME:
                parts.append(self._type_name())
                typed = True
            else:
                break
        if not typed:
            raise Unparsed("no type is found")
        self.result.type = " ".join(filter(None, parts))

    def _skip_attribute(self) -> bool:
        """Go past an attribute; its alignment is kept."""
        alignment, after = self._attribute_at(self.i)
        self.result.alignment += alignment
        moved = after > self.i
        self.i = after
        return moved

    def _attribute_at(self, i: int) -> tuple[tuple[str, ...], int]:
        """The alignment that an attribute at ``i`` asks for, and where it ends."""
        text, partner = self.text, self.code.partner
        if i < self.low:
            return (), i
        if text[i] == "[" and text[i + 1] == "[" and partner[i] > i:
            return (), partner[i] + 1
        closing = partner[i + 1] if i + 1 < len(text) else -1
        if text[i] not in _ALIGN | _ATTRIBUTE or text[i + 1] != "(" or closing < 0:
            return (), i
        if text[i] in _ALIGN:
            return (self.code.flat(i + 2, closing),), closing + 1
        sizes = []
        for j in range(i + 3, closing):
            if text[j] in ("aligned", "__aligned__"):
                last = partner[j + 1]
                sized = text[j + 1] == "(" and last > 0
                sizes.append(self.code.flat(j + 2, last) if sized else "16")
        return tuple(sizes), closing + 1

    def _record(self) -> str:
        """An elaborated type, or a struct defined here."""
        begin = self.i
        self.i += 1
        while (after := self._attribute_at(self.i)[1]) > self.i:
            self.i = after
        if self.code.tokens[self.i].kind is Kind.NAME:
            self.result.tag = self._type_name()
        i = self.i
        while i < self.end and self.text[i] not in ("{", ";", "*", "[", "=", "("):
            i += 1
        if self.text[i] == "{" and self.code.partner[i] > 0:
            self.i = self.code.partner[i] + 1
            self.result.body = (begin, self.i)
            return f"{self.text[begin]} {self.result.tag}" if self.result.tag else ""
        return self.code.flat(begin, self.i)

    def _type_name(self) -> str:
        """A name with its scopes and template arguments, as far as it goes."""
        begin, text, tokens = self.i, self.text, self.code.tokens
        if text[self.i] in _TYPE_OF and text[self.i + 1] == "(":
            self.i = max(self.i, self.code.partner[self.i + 1]) + 1
            return self.code.flat(begin, self.i)
        if text[self.i] == "typename":
            self.i += 1
        while self.i < self.end:
            if text[self.i] in ("::", "template", "##"):
                self.i += 1
                continue
            if tokens[self.i].kind not in (Kind.NAME, Kind.NUMBER):
                break
            self.i += 1
            if self._next == "<":
                closing = self.code.close_angle(self.i, self.end)
                if closing < 0:
                    raise Unparsed("its template arguments do not end")
                self.i = closing + 1
            closing = self.code.partner[self.i]
            if self._next == "(" and closing > 0 and tokens[closing + 1].kind is Kind.NAME:
                self.i = closing + 1  # a macro that makes a type
            if self._next not in ("::", "##"):
                break
        return self.code.flat(begin, self.i)

    def _declarators(self) -> None:
        while True:
            self.result.declarators.append(self._declarator())
            if self._next != ",":
                return
            self.i += 1

    def _declarator(self) -> Declarator:
        begin, text, tokens = self.i, self.text, self.code.tokens
        name: Range | None = None
        before: list[int] = []
        after: list[int] = []
        alignment: tuple[str, ...] = ()
        while self._next not in (",", ";", ""):
            i = self.i
            stated, self.i = self._attribute_at(i)
            if self.i > i:
                alignment += stated
                continue
            self.i += 1
            if text[i] in ("=", "{") or (text[i] == "(" and name is not None and name[1] == i):
                raise Unparsed("a __shared__ variable has no initialiser")
            if text[i] == "[":
                self.i = max(i, self.code.partner[i]) + 1
                after += range(i, self.i)
            elif name is None and tokens[i].kind is Kind.NAME and self._is_name(i):
                while self._next == "##" and self.i + 1 < self.end:
                    self.i += 2
                name = (i, self.i)
            elif text[i] in _RESTRICT:
                pass
            elif tokens[i].kind is Kind.NAME and name is not None:
                raise Unparsed(f"{text[i]!r} is not expected")
            elif text[i] in CLOSE and (text[i] != ")" or self.code.partner[i] < begin):
                raise Unparsed(f"{text[i]!r} is not expected")
            else:
                (before if name is None else after).append(i)
        if name is None:
            raise Unparsed("no name is found")
        return Declarator(begin, name, self._words(before), self._words(after), alignment)

    def _is_name(self, i: int) -> bool:
        text = self.text[i]
        return text not in _QUALIFIERS | _RESTRICT and self.text[i + 1] != "::"

    def _words(self, indices: list[int]) -> str:
        tokens = (self.code.tokens[i] for i in indices)
        return "".join(f" {token.text}" if token.gap else token.text for token in tokens)


# ---- writing ------------------------------------------------------------------------------


class _Names:
    """Names made of a variable's: within a macro its name may be a parameter, or pasted."""

    def __init__(self, code: SourceCode, macro: Macro | None) -> None:
        self._code, self._macro = code, macro
        self._params = (macro.params if macro else None) or frozenset()

    def plain(self, d: Declarator) -> str:
        return self._code.flat(*d.name)

    def made(self, prefix: str, d: Declarator) -> str:
        first, last = d.name
        pasted = last > first + 1 or self._code.text[first] in self._params
        return f"{prefix}{'##' if pasted else ''}{self.plain(d)}"

    def shown(self, d: Declarator) -> str:
        return display(self._code, d.name, self._macro)


def _write_local(w: Writer, names: _Names, declaration: SharedDeclaration) -> None:
    base = _write_body(w, names, declaration)
    for n, d in enumerate(declaration.declarators):
        if n:
            w.put("; ")
        w.reach(d.first)
        write = _dynamic if declaration.external else _static
        w.put(write(names, declaration, d, base))


def _write_body(w: Writer, names: _Names, declaration: SharedDeclaration) -> str:
    """Define the struct that the declaration defines; the type to use from then on."""
    if declaration.body is None:
        return declaration.type
    first, last = declaration.body
    w.reach(first)
    if declaration.tag:
        w.copy(first, last)
        w.put("; ")
        return declaration.type
    made = names.made("simt_b_", declaration.declarators[0])
    w.put(f"using {made} = ")
    w.copy(first, last)
    w.put("; ")
    return f"{declaration.type} {made}".strip()


def _static(names: _Names, declaration: SharedDeclaration, d: Declarator, base: str) -> str:
    return f"{_storage(names, declaration, d, base)} {_reference(names, declaration, d)}"


def _storage(names: _Names, declaration: SharedDeclaration, d: Declarator, base: str) -> str:
    variable, type_ = names.made("simt_v_", d), names.made("simt_t_", d)
    text = f"static ::simt::SharedVariable {variable}; using {type_} = {base}{_spaced(d.abstract)};"
    alignment = declaration.alignment + d.alignment
    if alignment:
        specifiers = " ".join(f"alignas({a})" for a in alignment)
        text += f" struct {specifiers} {names.made('simt_s_', d)} {{ char byte; }};"
    return text


def _reference(names: _Names, declaration: SharedDeclaration, d: Declarator) -> str:
    variable, type_ = names.made("simt_v_", d), names.made("simt_t_", d)
    aligned = declaration.alignment + d.alignment
    align = f", alignof({names.made('simt_s_', d)})" if aligned else ""
    place = f"::simt::shared<{type_}{align}>({variable}, {names.shown(d)})"
    return f"{type_}& {names.plain(d)} = {place}"


def _dynamic(names: _Names, _: SharedDeclaration, d: Declarator, base: str) -> str:
    """``extern __shared__ T x[];`` is a pointer; with a bound it stays an array."""
    name = names.plain(d)
    if d.abstract.replace(" ", "") == "[]":
        return f"{base}* {name} = ::simt::dynamic_shared<{base}>()"
    type_ = names.made("simt_t_", d)
    rest = d.after.lstrip()
    if rest.startswith("[]"):
        alias = f"using {type_} = {base}{_spaced(d.before + rest[2:])};"
        return f"{alias} {type_}* {name} = ::simt::dynamic_shared<{type_}>()"
    alias = f"using {type_} = {base}{_spaced(d.abstract)};"
    return f"{alias} {type_}& {name} = *::simt::dynamic_shared<{type_}>()"


def _spaced(abstract: str) -> str:
    return f" {abstract.strip()}" if abstract.strip() else ""


# ---- at namespace scope -------------------------------------------------------------------


def _namespace(draft: SourceDraft, i: int, names: _Names, declaration: SharedDeclaration) -> None:
    """A variable of the file: every device function that names it gets a local reference to it.

    What has no body to put that into still sees ``extern __shared__ T x[];`` as an object that
    converts to a pointer.
    """
    conditional = draft.places[i].conditional
    texts: list[str] = []

    def write(w: Writer) -> None:
        base = _write_body(w, names, declaration)
        for n, (d, text) in enumerate(zip(declaration.declarators, texts, strict=True)):
            w.put("; " if n else "")
            w.reach(d.first)
            w.put(text.replace("@", base))

    for d in declaration.declarators:
        name, type_ = names.plain(d), names.made("simt_t_", d)
        if not declaration.external:
            local = f"{_reference(names, declaration, d)};"
            texts.append(_storage(names, declaration, d, "@").removesuffix(";"))
        elif d.after.lstrip().startswith("[]"):
            element = _spaced(d.before + d.after.lstrip()[2:])
            local = f"{type_}* {name} = ::simt::dynamic_shared<{type_}>();"
            known = name in draft.world.shared and not conditional
            text = f"using {type_} = @{element}"
            again = (
                "" if known else f"; [[maybe_unused]] static ::simt::DynamicShared<{type_}> {name}"
            )
            texts.append(text + again)
        else:
            local = f"{type_}& {name} = *::simt::dynamic_shared<{type_}>();"
            texts.append(f"using {type_} = @{_spaced(d.abstract)}")
        if name not in draft.world.shared:
            draft.declared[name] = i
        draft.world.shared[name] = f"[[maybe_unused]] {local}"
    draft.replace(declaration.first, declaration.last, write)
