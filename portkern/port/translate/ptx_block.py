"""Inline PTX of several instructions, or with registers of its own, as a block of CUDA C++.

Operands and registers become variables of the block, which have the types of their constraints;
each instruction becomes one statement on them. Functions of a warp come out as CUDA's, for the rule
of :mod:`.warps` to see. Where an instruction has no equivalent here, no block is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from portkern.cuda_source.comments import without_comments
from portkern.port.translate.ptx_tables import REGISTERS, STATEMENTS, VALUES
from portkern.simt.translate.asm_statement import Asm, Operand

#: What a register holds: an integer of so many bits, a float, or a predicate.
_Class = Literal["16", "32", "64", "f32", "f64", "pred"]
_CPP: Mapping[_Class, str] = {
    "16": "unsigned short",
    "32": "unsigned",
    "64": "unsigned long long",
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
_SIGNED = {"16": "short", "32": "int", "64": "long long"}
_CONSTRAINTS: Mapping[str, _Class] = {"h": "16", "r": "32", "l": "64", "f": "f32", "d": "f64"}
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_DECLARED = re.compile(r"\.reg\s*\.(\w+)\s+(.+)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)\s*%{0,2}(\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
#: Comparisons that are false of a NaN, and those for integers alone.
_COMPARED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OF_INTEGERS = {"ne": "!=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


class _Unknown(Exception):
    """An instruction, or a use of one, that has no equivalent."""


@dataclass(frozen=True)
class _Value:
    """An operand: a variable of the block, or a constant, which is of any class."""

    text: str
    held: _Class | None = None


@dataclass(frozen=True)
class _Type:
    """A PTX type: ``kind`` is u, s, b or f."""

    kind: str
    bits: int

    @property
    def held(self) -> _Class:
        name = "pred" if self.kind == "pred" else f"{'f' if self.kind == 'f' else ''}{self.bits}"
        held = next((held for held in _CPP if held == name), None)
        if held is None:
            raise _Unknown(name)
        return held


def block(asm: Asm) -> str:
    """One statement on one line; "" where an instruction has no equivalent."""
    try:
        return _Block(asm).text()
    except _Unknown:
        return ""


class _Block:
    def __init__(self, asm: Asm) -> None:
        self._asm = asm
        self._names: dict[str, _Value] = {}
        self._operands = [self._operand(n, o) for n, o in enumerate((*asm.outputs, *asm.inputs))]
        self._declared: list[str] = []

    def _operand(self, number: int, operand: Operand) -> _Value:
        letter = operand.constraint.lstrip("=+&")
        value = _Value(f"({operand.expression})")
        if letter not in ("n", "i"):
            if letter not in _CONSTRAINTS:
                raise _Unknown(letter)
            value = _Value(f"ptx_{number}", _CONSTRAINTS[letter])
        if operand.name:
            self._names[f"[{operand.name}]"] = value
        return value

    def text(self) -> str:
        statements = list(self._statements())
        outputs = self._asm.outputs
        results = [f"({o.expression}) = ptx_{n};" for n, o in enumerate(outputs)]
        held = [*self._variables(), *self._declared, *statements, *results]
        return f"do {{ {' '.join(held)} }} while (0)"

    def _variables(self) -> Iterator[str]:
        for number, operand in enumerate((*self._asm.outputs, *self._asm.inputs)):
            value = self._operands[number]
            if value.held is None:
                continue
            given = number >= len(self._asm.outputs) or "+" in operand.constraint
            start = operand.expression if given else "0"
            yield f"{_CPP[value.held]} {value.text} = ({_CPP[value.held]})({start});"

    def _statements(self) -> Iterator[str]:
        text = without_comments(self._asm.template)
        for part in text.split(";"):
            plain = " ".join(part.split()).lstrip("{ ")
            if plain.strip("} "):
                yield from self._statement(plain if "{" in plain else plain.rstrip("} "))

    def _statement(self, text: str) -> Iterator[str]:
        registers = _DECLARED.fullmatch(text)
        if registers is not None:
            self._declare(registers[1], registers[2])
            return
        match = _INSTRUCTION.fullmatch(text)
        if match is None:
            raise _Unknown(text)
        made = self._instruction(match[3], [part.strip() for part in match[4].split(",")])
        guard = self._read(match[2], _Type("pred", 0)) if match[2] else ""
        yield f"if ({match[1]}{guard}) {{ {made} }}" if guard else made

    def _declare(self, type_: str, names: str) -> None:
        held = _type(type_).held
        for name in names.split(","):
            listed = re.fullmatch(r"%{0,2}(\w+)\s*(?:<(\d{1,2})>)?", name.strip())
            if listed is None:
                raise _Unknown(name)
            count = range(int(listed[2])) if listed[2] else ("",)
            for each in (f"{listed[1]}{n}" for n in count):
                if each in self._names:
                    raise _Unknown(each)  # in a scope within another
                self._names[each] = _Value(f"ptx_{each}", held)
                self._declared.append(f"{_CPP[held]} ptx_{each} = 0;")

    # ---- operands

    def _value(self, text: str) -> _Value:
        numbered = re.fullmatch(r"%(\d+)", text)
        if numbered is not None and int(numbered[1]) < len(self._operands):
            return self._operands[int(numbered[1])]
        name = text.lstrip("%")
        if name in self._names:
            return self._names[name]
        if _NUMBER.fullmatch(text):
            return _Value(text)
        if text.startswith("%") and name in REGISTERS:
            return _Value(REGISTERS[name], "64" if name.endswith("64") else "32")
        raise _Unknown(text)

    def _read(self, text: str, type_: _Type) -> str:
        if text.startswith("!") and type_.kind == "pred":
            return f"!{self._read(text[1:].strip(), type_)}"
        value = self._value(text)
        if value.held is None:
            return _constant(value.text, type_)
        if value.held == type_.held:
            return f"({_SIGNED[value.held]}){value.text}" if type_.kind == "s" else value.text
        crossing = {
            ("f32", "32"): "__float_as_uint",
            ("32", "f32"): "__uint_as_float",
        }.get((value.held, type_.held))
        if crossing is None or type_.kind == "s":
            raise _Unknown(text)
        return f"{crossing}({value.text})"

    def _write(self, text: str, type_: _Type, value: str) -> str:
        to = self._value(text)
        if to.held is None or not to.text.startswith("ptx_"):
            raise _Unknown(text)
        if to.held == type_.held:
            return f"{to.text} = {value};"
        if (to.held, type_.held) == ("f32", "32"):
            return f"{to.text} = __uint_as_float({value});"
        if (to.held, type_.held) == ("32", "f32"):
            return f"{to.text} = __float_as_uint({value});"
        raise _Unknown(text)

    # ---- instructions

    def _instruction(self, opcode: str, operands: Sequence[str]) -> str:
        if whole := STATEMENTS.get(f"{opcode} {', '.join(operands)}".strip()):
            return f"{whole};"
        for rule in (self._compare, self._integer, self._bits, self._warp, self._cast, self._form):
            made = rule(opcode, operands)
            if made:
                return made
        raise _Unknown(opcode)

    def _compare(self, opcode: str, operands: Sequence[str]) -> str:
        if set_ := re.fullmatch(r"setp\.(\w+)\.(\w+)", opcode):
            type_ = _type(set_[2])
            known = _COMPARED if type_.kind == "f" else _COMPARED | _OF_INTEGERS
            if set_[1] not in known or len(operands) != 3:
                raise _Unknown(opcode)
            a, b = (self._read(part, type_) for part in operands[1:])
            return self._write(operands[0], _Type("pred", 0), f"{a} {known[set_[1]]} {b}")
        if chosen := re.fullmatch(r"selp\.(\w+)", opcode):
            type_, (to, a, b, which) = _type(chosen[1]), _four(operands)
            condition = self._read(which, _Type("pred", 0))
            either = f"{condition} ? {self._read(a, type_)} : {self._read(b, type_)}"
            return self._write(to, type_, either)
        return ""

    def _integer(self, opcode: str, operands: Sequence[str]) -> str:
        match = re.fullmatch(r"(mov|[a-z]+(?:\.(?:lo|wide))?)\.([usb]\d\d|pred|f32|f64)", opcode)
        if match is None:
            return ""
        name, type_ = match[1], _type(match[2])
        form = _INTEGERS.get(name)
        if name == "mov":
            return self._write(operands[0], type_, self._read(operands[1], type_))
        if form is None or type_.kind == "f" or len(operands) != form.count + 1:
            return ""
        if type_.kind == "pred":
            if name not in ("and", "or", "xor", "not"):
                raise _Unknown(opcode)
            given = [self._read(part, type_) for part in operands[1:]]
            return self._write(
                operands[0],
                type_,
                "!{}".format(*given) if name == "not" else f" {_BETWEEN[name]} ".join(given),
            )
        return self._computed(name, type_, form, operands)

    def _computed(self, name: str, type_: _Type, form: _Form, operands: Sequence[str]) -> str:
        """The statement for an integer instruction, in unsigned arithmetic, which wraps, but for
        what a sign changes."""
        plain = _Type("u", type_.bits)
        read = [plain if form.wraps else type_] * form.count
        if name in ("shl", "shr"):
            read[1] = _Type("u", 32)
        result = plain
        if name.endswith(".wide"):
            result = _Type("u", 2 * type_.bits)
            read[2:] = [result] * (form.count - 2)
        given = [self._read(part, t) for part, t in zip(operands[1:], read, strict=True)]
        if name.endswith(".wide"):
            cast = _SIGNED[result.held] if type_.kind == "s" else _CPP[result.held]
            given[:2] = [f"({cast}){part}" for part in given[:2]]
        shown = form.text(given, type_)
        return self._write(operands[0], result, f"({_CPP[result.held]})({shown})")

    def _bits(self, opcode: str, operands: Sequence[str]) -> str:
        u32 = _Type("u", 32)
        if match := re.fullmatch(r"bfe\.([us])32", opcode):
            to, a, at, count = _four(operands)
            x = self._read(a, _Type(match[1], 32))
            p, n = self._count(at), self._count(count)
            return self._write(to, u32, _field(x, p, n, signed=match[1] == "s"))
        if opcode == "bfi.b32" and len(operands) == 5:
            a, b = (self._read(part, u32) for part in operands[1:3])
            p, n = self._count(operands[3]), self._count(operands[4])
            mask = f"({p} > 31u ? 0u : ({n} > 31u ? ~0u : (1u << {n}) - 1u) << {p})"
            moved = f"({p} > 31u ? 0u : {a} << {p})"
            return self._write(operands[0], u32, f"({b} & ~{mask}) | ({moved} & {mask})")
        if match := re.fullmatch(r"shf\.([lr])\.(clamp|wrap)\.b32", opcode):
            to, low, high, by = _four(operands)
            lo, hi, n = (self._read(part, u32) for part in (low, high, by))
            n = f"({n} & 31u)" if match[2] == "wrap" else f"({n} > 32u ? 32u : {n})"
            pair = f"((unsigned long long){hi} << 32 | {lo})"
            shifted = f"{pair} << {n} >> 32" if match[1] == "l" else f"{pair} >> {n}"
            return self._write(to, u32, f"(unsigned)({shifted})")
        if opcode == "lop3.b32" and len(operands) == 5 and _NUMBER.fullmatch(operands[4]):
            values = [self._read(part, u32) for part in operands[1:4]]
            return self._write(operands[0], u32, table_of(int(operands[4], 0), values))
        if opcode == "prmt.b32":
            to, low, high, which = _four(operands)
            if not _NUMBER.fullmatch(which) or int(which, 0) & 0x8888:
                raise _Unknown(which)  # a byte's sign, which the intrinsic does not repeat
            a, b, s = (self._read(part, u32) for part in (low, high, which))
            return self._write(to, u32, f"__byte_perm({a}, {b}, {s})")
        return ""

    def _count(self, operand: str) -> str:
        """A number of bits, or a place: the operand's lowest byte."""
        if re.fullmatch(r"\d{1,2}", operand):
            return f"{operand}u"
        return f"({self._read(operand, _Type('u', 32))} & 255u)"

    def _warp(self, opcode: str, operands: Sequence[str]) -> str:
        u32, pred = _Type("u", 32), _Type("pred", 0)
        if match := re.fullmatch(r"vote(\.sync)?\.(ballot|any|all)\.(b32|pred)", opcode):
            mask = self._read(operands[2], u32) if match[1] else "__activemask()"
            given = self._read(operands[1], pred)
            type_ = u32 if match[2] == "ballot" else pred
            return self._write(operands[0], type_, f"__{match[2]}_sync({mask}, {given})")
        if match := re.fullmatch(r"shfl\.sync\.(idx|up|down|bfly)\.b32", opcode):
            to, value, lane, clamp, mask = _five(operands)
            width = _segment(self._value(clamp).text, up=match[1] == "up")
            name = {"idx": "__shfl", "bfly": "__shfl_xor"}.get(match[1], f"__shfl_{match[1]}")
            a, b, m = (self._read(part, u32) for part in (value, lane, mask))
            return self._write(to, u32, f"{name}_sync({m}, {a}, {b}{width})")
        if match := re.fullmatch(r"redux\.sync\.(add|min|max|and|or|xor)\.([usb])32", opcode):
            value = self._read(operands[1], _Type(match[2], 32))
            mask = self._read(operands[2], u32)
            return self._write(operands[0], u32, f"__reduce_{match[1]}_sync({mask}, {value})")
        if opcode == "match.any.sync.b32":
            value, mask = (self._read(part, u32) for part in operands[1:3])
            return self._write(operands[0], u32, f"__match_any_sync({mask}, {value})")
        if opcode == "activemask.b32":
            return self._write(operands[0], u32, "__activemask()")
        if opcode == "bar.warp.sync":
            return f"__syncwarp({self._read(operands[0], u32)});"
        return ""

    def _cast(self, opcode: str, operands: Sequence[str]) -> str:
        """``cvt`` from floats to integers, which keeps within them; between integers; and back."""
        match = re.fullmatch(r"cvt(?:\.(r[nzmp]i?))?(?:\.ftz)?(\.sat)?\.(\w+)\.(\w+)", opcode)
        if match is None:
            return ""
        mode, to, source = match[1] or "", _type(match[3]), _type(match[4])
        if source.kind == "f" and to.kind in "us" and mode.endswith("i") and source.bits == 32:
            kind = "int" if to.kind == "s" or to.bits < 32 else "uint"
            if to.bits > 32:
                raise _Unknown(opcode)
            how = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}[mode[:2]]
            value = f"__float2{kind}_{how}({self._read(operands[1], source)})"
            if to.bits < 32:
                low = -(1 << to.bits - 1) if to.kind == "s" else 0
                high = (1 << to.bits - (to.kind == "s")) - 1
                value = f"min(max({value}, {low}), {high})"
            # a register of 32 bits takes what is narrower, with its sign
            return self._write(operands[0], _Type("u", max(to.bits, 32)), f"(unsigned){value}")
        if match[2] or ("f" in (source.kind, to.kind) and (mode, to) != ("rn", _Type("f", 32))):
            raise _Unknown(opcode)
        if source.kind == "f" or source.bits < 32 or to.bits < 32:
            raise _Unknown(opcode)
        cast = "float" if to.kind == "f" else _CPP[to.held]
        return self._write(operands[0], to, f"({cast})({self._read(operands[1], source)})")

    def _form(self, opcode: str, operands: Sequence[str]) -> str:
        """The statement for an instruction that has an intrinsic of its own; "" for others."""
        form, type_ = VALUES.get(opcode), _type(opcode.rpartition(".")[2])
        if form is None or form.count("{") != len(operands) - 1:
            return ""
        given = [self._read(part, type_) for part in operands[1:]]
        narrow = opcode.startswith(("popc", "clz"))
        result = _Type("u", 32) if narrow else type_
        return self._write(operands[0], result, form.format("", *given))


@dataclass(frozen=True)
class _Form:
    """The expression that an instruction computes from ``count`` operands; ``wraps``: in
    unsigned arithmetic."""

    count: int
    of: Callable[[Sequence[str], _Type], str]
    wraps: bool = True

    def text(self, given: Sequence[str], type_: _Type) -> str:
        return self.of(given, type_)


def _shifted(given: Sequence[str], type_: _Type) -> str:
    """The expression of a shift to the right: by more than there are bits, nothing is left but
    the sign."""
    a, n = given
    most = type_.bits - 1
    if type_.kind == "s":
        return f"{a} >> ({n} > {most}u ? {most}u : {n})"
    return f"{n} > {most}u ? 0 : {a} >> {n}"


_BETWEEN = {"and": "&", "or": "|", "xor": "^"}
_INTEGERS: Mapping[str, _Form] = {
    "add": _Form(2, lambda v, _: f"{v[0]} + {v[1]}"),
    "sub": _Form(2, lambda v, _: f"{v[0]} - {v[1]}"),
    "mul.lo": _Form(2, lambda v, _: f"1u * {v[0]} * {v[1]}"),
    "mad.lo": _Form(3, lambda v, _: f"1u * {v[0]} * {v[1]} + {v[2]}"),
    "mul.wide": _Form(2, lambda v, _: f"{v[0]} * {v[1]}", wraps=False),
    "mad.wide": _Form(3, lambda v, _: f"{v[0]} * {v[1]} + {v[2]}", wraps=False),
    "and": _Form(2, lambda v, _: f"{v[0]} & {v[1]}"),
    "or": _Form(2, lambda v, _: f"{v[0]} | {v[1]}"),
    "xor": _Form(2, lambda v, _: f"{v[0]} ^ {v[1]}"),
    "not": _Form(1, lambda v, _: f"~{v[0]}"),
    "neg": _Form(1, lambda v, _: f"0 - {v[0]}"),
    "min": _Form(2, lambda v, _: f"{v[0]} < {v[1]} ? {v[0]} : {v[1]}", wraps=False),
    "max": _Form(2, lambda v, _: f"{v[0]} > {v[1]} ? {v[0]} : {v[1]}", wraps=False),
    "shl": _Form(2, lambda v, t: f"{v[1]} > {t.bits - 1}u ? 0 : {v[0]} << {v[1]}"),
    "shr": _Form(2, _shifted, wraps=False),
}


def table_of(table: int, values: Sequence[str]) -> str:
    """``lop3``: any function of three bits, by its table of eight."""
    a, b, c = values
    terms = [
        " & ".join(v if row & bit else f"~{v}" for v, bit in ((a, 4), (b, 2), (c, 1)))
        for row in range(8)
        if table >> row & 1
    ]
    return " | ".join(f"({term})" for term in terms) or "0"


def _field(x: str, at: str, count: str, *, signed: bool) -> str:
    """``count`` bits of ``x`` from ``at``; beyond its end are zeros, or its sign."""
    if not signed:
        kept = f"({count} > 31u ? ~0u : (1u << {count}) - 1u)"
        return f"({at} > 31u ? 0u : {x} >> {at}) & {kept}"
    # moved up to the sign's place and back, in 64 bits, where the sign is there already
    moved = f"((long long){x} >> ({at} > 31u ? 31u : {at}))"
    by = f"(64u - ({count} > 32u ? 32u : {count}))"
    field = f"(unsigned)((long long)((unsigned long long){moved} << {by}) >> {by})"
    return f"{count} == 0u ? 0u : {field}"


def _type(name: str) -> _Type:
    if name == "pred":
        return _Type("pred", 0)
    match = re.fullmatch(r"([usbf])(8|16|32|64)", name)
    if match is None:
        raise _Unknown(name)
    return _Type(match[1], int(match[2]))


def _constant(text: str, type_: _Type) -> str:
    if type_.kind == "pred":
        raise _Unknown(text)
    if text[:2] in ("0f", "0F"):
        return f"__int_as_float(0x{text[2:]})" if type_.bits == 32 else _unknown(text)
    if text[:2] in ("0d", "0D"):
        return f"__longlong_as_double(0x{text[2:]}ll)" if type_.bits == 64 else _unknown(text)
    if type_.kind == "f":
        raise _Unknown(text)
    cast = _SIGNED[str(type_.bits)] if type_.kind == "s" else _CPP[type_.held]
    return f"({cast}){text}"


def _unknown(text: str) -> str:
    raise _Unknown(text)


def _four(operands: Sequence[str]) -> tuple[str, str, str, str]:
    if len(operands) != 4:
        raise _Unknown(str(operands))
    a, b, c, d = operands
    return a, b, c, d


def _five(operands: Sequence[str]) -> tuple[str, str, str, str, str]:
    if len(operands) != 5:
        raise _Unknown(str(operands))
    a, b, c, d, e = operands
    return a, b, c, d, e


def _segment(clamp: str, *, up: bool) -> str:
    """The width that the third operand of ``shfl`` stands for, as a further argument."""
    if not _NUMBER.fullmatch(clamp):
        raise _Unknown(clamp)
    value = int(clamp, 0)
    width = 32 - (value >> 8 & 31)
    if value & 31 != (0 if up else 31) or width & width - 1:
        raise _Unknown(clamp)
    return "" if width == 32 else f", {width}"
