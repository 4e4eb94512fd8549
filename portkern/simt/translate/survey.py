"""Surveys where each construct of a file stands: in which function, under which #if, in which
macro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from portkern.cuda_source.lexer import (
    ELSES,
    OPEN,
    Branches,
    Directive,
    Kind,
    Macro,
    SourceCode,
)
from portkern.cuda_source.names import UNDECLARED, DeclaredNames

ASM = frozenset(["asm", "__asm__", "__asm"])
#: What a macro may consist of to be the same as what it stands for, wherever it is used.
_WORDS = ASM | {
    "__shared__",
    "__constant__",
    "__device__",
    "__global__",
    "__host__",
    "__forceinline__",
    "__noinline__",
    "__inline__",
    "__restrict__",
    "__volatile__",
    "static",
    "inline",
    "extern",
    "const",
    "constexpr",
    "volatile",
}
_WITH_ARGUMENTS = frozenset(["__attribute__", "__align__", "alignas", "__launch_bounds__"])
#: Parentheses after these are not a parameter list.
NO_PARAMETERS = _WITH_ARGUMENTS | {"decltype", "__declspec", "noexcept", "explicit", "requires"}
_AFTER_PARAMETERS = frozenset(["mutable", "noexcept", "constexpr", "__device__", "__host__"])


@dataclass(frozen=True)
class Scope:
    """The kind of thing that a '{' opens: "namespace", "class", "function" (a lambda too),
    "block" or "values"."""

    kind: str
    function: bool = False  # statements of a function
    device: bool = False  # which is marked __device__ or __global__
    host: bool = False  # or __host__


_FILE = Scope("namespace")


class _Open(NamedTuple):
    """An open '{' and those around it."""

    scope: Scope
    head: int  # of the declaration that it is part of
    outer: _Open | None


@dataclass(frozen=True)
class SourcePlace:
    scope: Scope
    conditional: bool  # within #if, other than an include guard
    last: int  # where its macro or file ends
    macro: Macro | None = None  # the #define whose body it is in


class SourceFunction(NamedTuple):
    """A device function: its declaration begins at ``head``, its '{' is ``body``."""

    head: int
    body: int


@dataclass
class World:
    """Facts that files rewritten together share, in the order of their includes."""

    macros: dict[str, list[Macro]] = field(default_factory=dict)
    words: dict[str, frozenset[str]] = field(default_factory=dict)  # what a macro stands for
    shared: dict[str, str] = field(default_factory=dict)  # namespace-scope __shared__: its local
    declared: DeclaredNames = UNDECLARED
    stubs: int = 0
    waits: bool = False  # a thread may wait for what another one stores
    objects: bool = False  # kernels are executed as they are compiled for the target

    def define(self, macro: Macro) -> None:
        self.macros.setdefault(macro.name, []).append(macro)
        if macro.params is None and (words := self._words_of(macro)):
            self.words[macro.name] = self.words.get(macro.name, frozenset()) | words

    def _words_of(self, macro: Macro) -> frozenset[str]:
        """The words that the body consists of; none when it has anything else."""
        used: set[str] = set()
        depth, last = 0, ""
        for token in macro.body:
            if token.text == "(" and (depth or last in _WITH_ARGUMENTS):
                depth += 1
            elif depth:
                depth -= token.text == ")"
            elif token.text in _WORDS:
                used.add(token.text)
            elif token.text in self.words:
                used |= self.words[token.text]
            elif token.text == "__launch_bounds__":
                used.add(token.text)
            elif token.text not in _WITH_ARGUMENTS:
                return frozenset()
            last = token.text
        return frozenset(used)

    def stands_for(self, text: str) -> frozenset[str]:
        return self.words.get(text) or frozenset([text])


class Survey:
    """One pass over a file. ``places`` has the tokens of ``watched``, in order."""

    def __init__(
        self,
        code: SourceCode,
        world: World,
        watched: frozenset[str],
        include: Callable[[Directive], None],
    ) -> None:
        self.places: dict[int, SourcePlace] = {}
        self.functions: list[SourceFunction] = []
        self._code, self._world, self._include = code, world, include
        self._named = watched
        self._watched = set(watched) | set(world.words) | {"{", "}", ";"}
        self._open: _Open | None = None
        self._head = 0  # where the present declaration or statement begins
        # What is open, the head, and whether a declaration had begun there.
        self._branches = Branches[tuple[_Open | None, int, bool]]()
        self._guard = int(_has_guard(code))
        self._walk()

    def _walk(self) -> None:
        at, code, begun = 0, self._code, False
        for d in code.directives:
            self._range(at, d.begin)
            begun = d.begin > max(at, self._head) or (begun and self._head < at)
            operands = code.text[d.begin + 2 : d.end]
            now = self._branches.pass_by(d, operands, (self._open, self._head, begun))
            self._open, self._head, begun = now
            if d.name in ELSES and not begun:  # else it would begin with what the other branch has
                self._head = d.end
            if d.name == "define":
                self._define(d)
            elif d.name in ("include", "include_next", "import"):
                self._include(d)
                self._watched.update(self._world.words)
            at = d.end
        self._range(at, len(code.tokens))

    @property
    def _scope(self) -> Scope:
        return self._open.scope if self._open else _FILE

    @property
    def _conditional(self) -> bool:
        return self._branches.depth > self._guard

    def _define(self, d: Directive) -> None:
        macro = self._code.macro(d, self._conditional)
        if not macro.name:
            return
        self._world.define(macro)
        if macro.name in self._world.words:  # its uses are rewritten, so it stays as it is
            self._watched.add(macro.name)
            return
        place = SourcePlace(Scope("macro", function=True), self._conditional, d.end, macro)
        for i in range(d.body, d.end):
            if self._code.text[i] in self._watched:
                self._point(i, place)

    def _point(self, i: int, place: SourcePlace) -> None:
        text = self._code.text[i]
        if text in self._named or not self._named.isdisjoint(self._world.words.get(text, ())):
            self.places[i] = place

    def _range(self, first: int, last: int) -> None:
        text, watched = self._code.text, self._watched
        for i in range(first, last):
            if text[i] not in watched:
                continue
            if text[i] == "{":
                self._open = _Open(self._opened(i), self._head, self._open)
                self._head = i + 1
            elif text[i] == "}":
                closed, self._head = self._open, i + 1
                if closed is not None:
                    self._open = closed.outer
                    if closed.scope.kind == "values":  # the declaration goes on
                        self._head = closed.head
            elif text[i] == ";":
                self._head = i + 1
            else:
                self._point(i, SourcePlace(self._scope, self._conditional, len(text) - 1))

    def _opened(self, i: int) -> Scope:
        """The scope that the '{' at ``i`` opens."""
        outer = self._scope
        first = _lambda(self._code, i, self._head)
        if first is None:
            kind = _kind(self._code, self._head, i, inside=outer.function)
            if kind in ("block", "values"):
                return Scope(kind, outer.function, outer.device, outer.host)
            if kind != "function":
                return Scope(kind)
            first = self._head
        head = self._code.outside_directives(first, i)
        marks = set().union(*map(self._world.stands_for, head))
        device, host = bool(marks & {"__device__", "__global__"}), "__host__" in marks
        if not device and outer.function:  # a lambda is compiled for where it stands
            return Scope("function", True, outer.device, outer.host)
        if device and not outer.device:
            self.functions.append(SourceFunction(first, i))
        return Scope("function", True, device, host)


def _has_guard(code: SourceCode) -> bool:
    """Whether the file is one #ifndef whose macro it defines first."""
    ds = code.directives
    if len(ds) < 3 or ds[0].begin != 0 or ds[1].name != "define" or ds[-1].name != "endif":
        return False
    operands = [t for t in code.text[2 : ds[0].end] if t not in ("!", "defined", "(", ")")]
    if ds[0].name not in ("ifndef", "if") or operands != [code.text[ds[1].begin + 2]]:
        return False
    depth = 0
    for d in ds[:-1]:
        depth += (d.name in ("if", "ifdef", "ifndef")) - (d.name == "endif")
        if depth == 0:
            return False
    return True


def _lambda(code: SourceCode, brace: int, first: int) -> int | None:
    """The beginning of the lambda whose body opens at ``brace``; None: it is something else."""
    i = brace - 1
    for j in range(i, max(i - 12, first), -1):  # a trailing return type
        if code.text[j] == "->":
            i = j - 1
            break
    while i > first and code.text[i] in _AFTER_PARAMETERS:
        i -= 1
    if code.text[i] == ")":
        i = code.partner[i] - 1
    if i < first:
        return None
    while i > first and code.text[i] in _AFTER_PARAMETERS:
        i -= 1
    if code.text[i] != "]":
        return None
    begin = code.partner[i]
    if begin < first:
        return None
    before = code.tokens[begin - 1] if begin > first else None
    # A subscript, and not a capture, follows a name or a bracket: `int a[] {`, `f()[0]`.
    subscripted = before is not None and (
        before.text in (")", "]") or (before.kind is Kind.NAME and before.text != "return")
    )
    return None if subscripted else begin


def _significant(code: SourceCode, first: int, last: int) -> Iterator[int]:
    """Tokens of a declaration that are not in brackets, template headers or directives."""
    i = first
    while i < last:
        d = code.directive(i)
        if d is not None:
            i = d.end
            continue
        yield i
        if code.text[i] in OPEN:
            i = max(i, code.partner[i])
        elif code.text[i] == "template" and code.text[i + 1] == "<":
            i = max(i, code.close_angle(i + 1, last))
        i += 1


def _kind(code: SourceCode, first: int, brace: int, *, inside: bool) -> str:
    """The kind of scope that the '{' at ``brace`` opens, by the declaration that begins at
    ``first``."""
    text = code.text
    if brace > first and text[brace - 1] in ("=", ",", "(", "return", "["):
        return "values"
    record = parameters = bases = False
    for i in _significant(code, first, brace):
        if text[i] == "namespace" or (text[i] == "extern" and i + 2 == brace):
            return "namespace"
        if text[i] == "enum":
            return "values"
        if text[i] in ("struct", "class", "union"):
            record, parameters = True, False
        elif text[i] == "=" and text[i - 1] != "operator" and not inside:
            return "values"
        elif text[i] == ":":
            bases = True
        elif text[i] == "(" and i > first and text[i - 1] not in NO_PARAMETERS:
            parameters = parameters or not (record and bases)
    if record and not parameters:
        return "class"
    if inside:
        return "block"
    if not parameters:
        return "values"
    # In a constructor's `: a{1}, b(2) {` only the last brace opens the body.
    member = bases and code.tokens[brace - 1].kind is Kind.NAME
    return "values" if member and text[brace - 1] not in ("const", "try") else "function"
