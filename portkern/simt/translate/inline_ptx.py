"""Inline PTX as C++: reads an ``asm`` statement and writes calls of ``simt::ptx`` in its place.

A statement becomes one block. Operands and ``.reg`` declarations are untyped registers in it; each
instruction says what it reads them as. What is not modelled is a Diagnostic, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from portkern.cuda_source.comments import without_comments
from portkern.simt.diagnostics import CODES, Diagnostic
from portkern.simt.translate import ptx, ptx_arithmetic, ptx_async, ptx_memory, ptx_warp
from portkern.simt.translate.asm_statement import Asm, Operand
from portkern.simt.translate.ptx import UnmodelledPtx

WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}  # constraints, in bits
CONSTANTS = ("n", "i")
_OPERATORS = ("+", "-", "*", "/", "<<", ">>", "&", "^")
FAMILIES = (
    ptx_arithmetic,
    ptx_memory,
    ptx_async,
    ptx_warp,
)  # their import makes the instructions known

_TOKEN = re.compile(
    r"""(?P<operand>%\d+|%\[\w+\])
      | (?P<percent>%%?[A-Za-z_$][\w$]*(?:\.[xyz])?)
      | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b
          |\d+\.\d*(?:[eE][+-]?\d+)?|\d+U?\b)
      | (?P<name>[A-Za-z_$][\w$]*(?:(?:\.|::)[\w$]+)*)
      | (?P<modifier>(?:\.[\w$]+(?:::[\w$]+)*)+)
      | (?P<string>"[^"]*")
      | (?P<mark><<|>>|[-{}\[\](),;:@!|+*/<>~&^])""",
    re.VERBOSE,
)
# Looked for in the whole text: families of which nothing, or not this, is modelled.
_FOREIGN = {
    "SX010": re.compile(r"\btcgen05\b[\w.:]*"),
    "SX002": re.compile(
        r"\bcp\.reduce\.async\.bulk\b[\w.:]*|\bcp\.async\.bulk\.tensor[\w.:]*\.im2col\b[\w.:]*"
        r"|\btensormap\.[\w.:]*|\bfence\.proxy\.tensormap[\w.:]*|[\w.:]*\.multicast\b[\w.:]*"
    ),
    "SX003": re.compile(r"\b(?:tex|tld4|txq|suld|sust|sured|suq)\.[\w.:]*"),
    "SX009": re.compile(r"\b(?:getctarank|st\.async|red\.async)\b[\w.:]*"),
}


def translate(asm: Asm) -> str | Diagnostic:
    """A C++ block on one line that does what ``asm`` does, or why there is none."""
    try:
        return _Statement(asm).block()
    except UnmodelledPtx as error:
        return Diagnostic(error.code, f"{CODES[error.code].title}: {error}", line=asm.line)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnmodelledPtx(f"cannot read {text[at : at + 20].splitlines()[0]!r}")
        yield _Token(match.lastgroup or "", match.group())
        at = match.end()


class _Statement:
    """One ``asm`` statement while it is read."""

    def __init__(self, asm: Asm) -> None:
        self.asm = asm
        self.operands = (*asm.outputs, *asm.inputs)
        self.values = [self._value(i) for i in range(len(self.operands))]
        self.names = {o.name: v for o, v in zip(self.operands, self.values, strict=True) if o.name}
        self.scopes: list[dict[str, ptx.Register]] = [{}]
        self.labels: dict[str, None] = {}

    def _value(self, number: int) -> ptx.Register | ptx.Constant:
        operand = self.operands[number]
        letter = operand.constraint.lstrip("=+&")
        if number >= len(self.asm.outputs):
            if letter in CONSTANTS:
                return ptx.Constant(f"({operand.expression})")
            if letter.isdecimal() and int(letter) < len(self.asm.outputs):
                return self._tied(int(letter))
        if letter not in WIDTHS:
            raise UnmodelledPtx(f"constraint {operand.constraint!r} of operand %{number}")
        return ptx.Register(f"simt_{number}", WIDTHS[letter])

    def _tied(self, number: int) -> ptx.Register:
        value = self._value(number)
        assert isinstance(value, ptx.Register)  # an output is never a constant
        return value

    # -- the block

    def block(self) -> str:
        text = without_comments(self.asm.template).replace("%=", "")
        for code, pattern in _FOREIGN.items():
            if match := pattern.search(text):
                raise UnmodelledPtx(f"'{match.group()}'", code)
        body = " ".join(self._body(_Cursor(list(_tokens(text)))))
        carry = "bool simt_carry; " if "simt_carry" in body else ""
        if carry and not body[: body.index("simt_carry")].endswith("false, "):
            raise UnmodelledPtx("a carry from another asm statement")
        # of this block alone: the statement may stand in a function more than once
        labels = [f"__label__ {', '.join(self.labels)};"] if self.labels else []
        return " ".join(["{", *labels, *self._inputs(), carry + body, *self._results(), "}"])

    def _inputs(self) -> Iterator[str]:
        starts = {
            o.constraint: o.expression for o in self.asm.inputs if o.constraint.isdigit()
        }  # by the number of the output they are tied to
        for number, operand in enumerate(self.asm.outputs):
            start = operand.expression if "+" in operand.constraint else starts.get(str(number), "")
            yield self._declare(number, start)
        for number, operand in enumerate(self.asm.inputs, len(self.asm.outputs)):
            if operand.constraint.lstrip("=+&") in WIDTHS:
                yield self._declare(number, operand.expression)

    def _declare(self, number: int, start: str) -> str:
        width = WIDTHS[_letter(self.operands[number])]
        # two pairs: with one, `uint32_t(x)` would make it a function's declaration
        value = f"(({start}))" if start else ""
        return f"simt::ptx::Register<{width // 8}> simt_{number}{value};"

    def _results(self) -> Iterator[str]:
        for number, operand in enumerate(self.asm.outputs):
            to = f"({operand.expression})"
            yield f"{to} = simt::ptx::result<decltype({to})>(simt_{number});"

    # -- statements

    def _body(self, cursor: _Cursor) -> Iterator[str]:
        while not cursor.done:
            if cursor.skip(";"):
                continue
            if cursor.skip("{"):
                self.scopes.append({})
                yield "{"
            elif cursor.skip("}"):
                if len(self.scopes) == 1:
                    raise UnmodelledPtx("a '}' without its '{'")
                self.scopes.pop()
                yield "}"
            elif cursor.peek.text.startswith("."):
                yield from self._declaration(cursor)
            else:
                yield self._instruction(cursor)
        if len(self.scopes) > 1:
            raise UnmodelledPtx("a '{' without its '}'")

    def _declaration(self, cursor: _Cursor) -> Iterator[str]:
        directive = cursor.take().text
        if cursor.peek.kind == "modifier":
            directive += cursor.take().text
        parts = directive[1:].split(".")
        if parts == ["pragma"]:  # a hint to the assembler
            cursor.take("string")
            cursor.end()
            return
        if parts[0] != "reg" or len(parts) != 2 or parts[1] not in ptx.REGISTER_BITS:
            raise UnmodelledPtx(f"'{directive}'")
        bits = ptx.REGISTER_BITS[parts[1]]
        for name in self._declared(cursor):
            register = ptx.Register("simt_r_" + re.sub(r"\W", "_", name), bits)
            self.scopes[-1][name] = register
            if bits:
                yield f"simt::ptx::Register<{max(bits // 8, 1)}> {register.cpp};"
            else:
                yield f"[[maybe_unused]] bool {register.cpp} = false;"
        cursor.end()

    def _declared(self, cursor: _Cursor) -> Iterator[str]:
        while True:
            name = cursor.take("name", "percent").text.lstrip("%")
            if cursor.skip("<"):
                count = cursor.take("number").text
                if not re.fullmatch("[0-9]{1,4}", count):
                    raise UnmodelledPtx(f"'{count}' registers")
                cursor.expect(">")
                yield from (f"{name}{i}" for i in range(int(count)))
            else:
                yield name
            if not cursor.skip(","):
                return

    def _instruction(self, cursor: _Cursor) -> str:
        guard = self._guard(cursor)
        opcode = cursor.take("name").text
        if cursor.skip(":"):
            return f"{self._label(opcode)}: ;"
        while not cursor.done and cursor.peek.kind == "modifier":
            opcode += cursor.take().text
        if opcode in ("bra", "bra.uni"):
            target = self._label(cursor.take("name").text)
            cursor.end()
            return f"if ({guard or 'true'}) goto {target};"
        if not ptx.known(opcode):
            raise UnmodelledPtx(f"'{opcode}'")
        try:
            operands = list(self._operands(cursor))
        except UnmodelledPtx as error:
            raise UnmodelledPtx(f"'{opcode}': {error}", error.code) from error
        statement = ptx.write(opcode, operands)
        return f"if ({guard}) {{ {statement} }}" if guard else statement

    def _label(self, name: str) -> str:
        label = "simt_l_" + re.sub(r"\W", "_", name)
        self.labels[label] = None
        return label

    def _operands(self, cursor: _Cursor) -> Iterator[ptx.Operand]:
        """The operands up to the end of the statement, which is taken too."""
        while not cursor.at_end:
            yield self._operand(cursor)
            if not cursor.skip(","):
                break
        cursor.end()

    def _guard(self, cursor: _Cursor) -> str:
        if not cursor.skip("@"):
            return ""
        negated = cursor.skip("!")
        register = self._operand(cursor)
        if not isinstance(register, ptx.Register) or register.bits:
            raise UnmodelledPtx("a guard that is not a predicate")
        return f"!{register.cpp}" if negated else register.cpp

    # -- operands

    def _operand(self, cursor: _Cursor) -> ptx.Operand:
        if cursor.skip("{"):
            return ptx.Vector(tuple(self._list(cursor, "}")))
        if cursor.skip("["):
            return self._address(cursor)
        if cursor.skip("!"):
            inner = self._operand(cursor)
            if not isinstance(inner, ptx.Register) or inner.bits:
                raise UnmodelledPtx("'!' before what is not a predicate")
            return ptx.Not(inner)
        first = self._simple(cursor)
        if cursor.skip("|"):
            return ptx.Both(first, self._simple(cursor))
        return first

    def _list(self, cursor: _Cursor, close: str) -> Iterator[ptx.Operand]:
        while True:
            yield self._operand(cursor)
            if cursor.skip(close):
                return
            cursor.expect(",")

    def _simple(self, cursor: _Cursor) -> ptx.Operand:
        token = cursor.peek
        if token.kind == "number" or token.text in ("-", "~", "(", "+"):
            return self._constant(cursor)
        if token.kind == "operand" and isinstance(self._numbered(token), ptx.Constant):
            return self._constant(cursor)
        cursor.take("operand", "percent", "name")
        if token.kind == "operand":
            return self._numbered(token)
        name = token.text.lstrip("%")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name == "_":
            return ptx.Sink()
        if name == "WARP_SZ":
            return ptx.Constant("32")
        if token.kind == "percent":
            return ptx.special(name)
        raise UnmodelledPtx(f"'{name}', which is not a register of this asm statement")

    def _numbered(self, token: _Token) -> ptx.Register | ptx.Constant:
        if token.text.startswith("%["):
            name = token.text[2:-1]
            if name not in self.names:
                raise UnmodelledPtx(f"no operand is named '{name}'")
            return self.names[name]
        number = int(token.text[1:])
        if number >= len(self.values):
            raise UnmodelledPtx(
                f"operand %{number} of an asm statement that has {len(self.values)}"
            )
        return self.values[number]

    def _address(self, cursor: _Cursor) -> ptx.Address | ptx.Box:
        base = self._simple(cursor)
        offset = ""
        if cursor.skip(","):
            cursor.expect("{")
            coordinates = ptx.Vector(tuple(self._list(cursor, "}")))
            cursor.expect("]")
            return ptx.Box(ptx.Address(base, ""), coordinates)
        if not cursor.skip("]"):
            if cursor.peek.text == "+":
                cursor.take()
            constant = self._constant(cursor)
            offset = constant.cpp
            cursor.expect("]")
        return ptx.Address(base, offset)

    def _constant(self, cursor: _Cursor) -> ptx.Constant:
        """A constant expression, up to what cannot belong to one."""
        parts: list[str] = []
        bits: int | None = None
        depth, wanted = 0, True  # a value is next, not an operator
        while not cursor.done:
            token = cursor.peek
            if wanted and token.kind == "number":
                text, bits = ptx.number(token.text)
                parts.append(text)
                wanted = False
            elif wanted and token.kind == "operand":
                value = self._numbered(token)
                if not isinstance(value, ptx.Constant):
                    raise UnmodelledPtx(f"{token.text} in a constant expression")
                parts.append(value.cpp)
                wanted = False
            elif token.text in (("-", "~", "+", "(") if wanted else _OPERATORS) or (
                token.text == ")" and depth and not wanted
            ):
                depth += (token.text == "(") - (token.text == ")")
                wanted = token.text != ")"
                parts.append(token.text)
            else:
                break
            cursor.take()
        if depth or wanted:
            raise UnmodelledPtx("a constant expression that cannot be read")
        if len(parts) == 1:
            return ptx.Constant(parts[0], bits)
        return ptx.Constant(f"({''.join(parts)})")


def _letter(operand: Operand) -> str:
    return operand.constraint.lstrip("=+&")


class _Cursor:
    """A place in a list of tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    @property
    def at_end(self) -> bool:
        """Whether a statement ends here; the last one may lack its semicolon."""
        return self.done or self.peek.text in (";", "}")

    @property
    def peek(self) -> _Token:
        if self.done:
            raise UnmodelledPtx("the text ends within an instruction")
        return self.tokens[self.at]

    def take(self, *kinds: str) -> _Token:
        token = self.peek
        if kinds and token.kind not in kinds:
            raise UnmodelledPtx(f"'{token.text}' where {' or '.join(kinds)} should be")
        self.at += 1
        return token

    def skip(self, text: str) -> bool:
        if self.done or self.tokens[self.at].text != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.skip(text):
            got = "the end" if self.done else f"'{self.peek.text}'"
            raise UnmodelledPtx(f"{got} where '{text}' should be")

    def end(self) -> None:
        if not self.done and self.peek.text != "}":
            self.expect(";")
