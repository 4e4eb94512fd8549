"""Inline PTX with a known equivalent: one instruction becomes one assignment or call, several a
block."""

from __future__ import annotations

import re
from collections.abc import Callable

from portkern.cuda_source.comments import without_comments
from portkern.port.translate.draft import Draft
from portkern.port.translate.ptx_block import block, table_of
from portkern.port.translate.ptx_tables import REGISTERS, STATEMENTS, VALUES
from portkern.simt.translate.asm_statement import Asm, RefusedStatement, parse
from portkern.simt.translate.survey import ASM

_TYPES = {
    "f32": "float",
    "f64": "double",
    "u8": "unsigned char",
    "s8": "signed char",
    "u16": "unsigned short",
    "s16": "short",
    "b16": "unsigned short",
    "u32": "unsigned",
    "s32": "int",
    "b32": "unsigned",
    "u64": "unsigned long long",
    "s64": "long long",
    "b64": "unsigned long long",
}
_ACCESS = re.compile(
    r"(?P<what>ld|st)(?P<volatile>\.volatile)?\.global"
    r"(?P<hints>(?:\.(?:nc|ca|cg|cs|lu|wb|wt|L1::\w+|L2::\w+))*)(?P<vector>\.v[24])?\.(?P<type>\w+)"
)
_INSTRUCTION = re.compile(r"(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);?")
_ARGUMENT = re.compile(r"%(\d+)")
_WHY = "what the PTX does, as HIP"


def translate_ptx(draft: Draft) -> bool:
    """Whether anything was changed."""
    before = len(draft.changes)
    for i, text in enumerate(draft.code.text):
        if text in ASM:
            _statement(draft, i)
    return len(draft.changes) > before


def _statement(draft: Draft, i: int) -> None:
    code, opening = draft.code, i + 1
    while code.text[opening] in ("volatile", "__volatile__"):
        opening += 1
    if code.text[opening] != "(" or code.partner[opening] < 0:
        return
    parsed = parse(code, i, opening)
    alternatives = parsed if isinstance(parsed, RefusedStatement) else parsed.alternatives({})
    if isinstance(alternatives, RefusedStatement) or len(alternatives) != 1:
        return
    asm = alternatives[0].asm
    written = _equivalent(asm) or block(asm)
    if not written:
        return
    last = code.partner[opening] + 1
    draft.note(i, code.flat(i, last), written, _WHY)
    draft.replace(i, last, written)


def _equivalent(asm: Asm) -> str:
    """The HIP equivalent of a single PTX instruction that uses no variables; "" where there is
    none."""
    text = without_comments(asm.template)
    text = " ".join(text.split()).strip("{} ")
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        return ""
    opcode, operands = match["opcode"], match["operands"].strip()
    values = [f"({o.expression})" for o in (*asm.outputs, *asm.inputs)]
    if any(o.name or "+" in o.constraint for o in (*asm.outputs, *asm.inputs)):
        return ""
    for rule in (_statement_of, _register, _access, _value, _logic):
        written = rule(opcode, operands, values, asm)
        if written:
            return written
    return ""


_Rule = Callable[[str, str, list[str], Asm], str]


def _statement_of(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    if opcode.startswith("prefetch.global") and len(values) == 1:
        return f"(void){values[0]}"  # a hint
    return "" if values else STATEMENTS.get(f"{opcode} {operands}".strip(), "")


def _register(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    match = re.fullmatch(r"%0 ?, ?%%?([a-z][\w.]*)", operands)
    if match is None or not re.fullmatch(r"mov\.[usb](32|64)", opcode) or len(values) != 1:
        return ""
    expression = REGISTERS.get(match[1], "")
    return f"{values[0]} = {expression}" if expression else ""


def _value(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    form = VALUES.get(opcode, "")
    numbers = [_ARGUMENT.fullmatch(part.strip()) for part in operands.split(",")]
    if not form or len(asm.outputs) != 1 or None in numbers:
        return ""
    order = [int(match[1]) for match in numbers if match is not None]
    if order[:1] != [0] or max(order) >= len(values) or form.count("{") != len(order) - 1:
        return ""
    if opcode.startswith("bfe") and not all(
        asm.inputs[n - 1].constraint in ("n", "i") for n in order[2:]
    ):
        return ""  # with counts above 31, PTX and the builtin differ
    given = [values[n] for n in order]
    return f"{given[0]} = {form.format(*given)}"


def _logic(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    """``lop3``: any function of three bits, by its table of eight."""
    match = re.fullmatch(r"%0, ?%1, ?%2, ?%3, ?(0x[0-9a-fA-F]{1,2}|\d+)", operands)
    if opcode != "lop3.b32" or match is None or len(values) != 4:
        return ""
    return f"{values[0]} = {table_of(int(match[1], 0), values[1:])}"


def _access(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    match = _ACCESS.fullmatch(opcode)
    if match is None or match["type"] not in _TYPES:
        return ""
    type_ = _TYPES[match["type"]]
    count = int(match["vector"][2:]) if match["vector"] else 1
    load = match["what"] == "ld"
    address = len(asm.outputs) if load else 0
    registers = [f"%{n}" for n in range(count)] if load else [f"%{n + 1}" for n in range(count)]
    listed = ", ".join(registers)
    listed = f"{{{listed}}}" if count > 1 else listed
    expected = f"{listed}, [%{address}]" if load else f"[%{address}], {listed}"
    if operands.replace(" ", "") != expected.replace(" ", "") or len(values) != count + 1:
        return ""
    qualifier = "volatile " if match["volatile"] else ""
    pointer = f"(({'const ' if load else ''}{qualifier}{type_}*){values[address]})"
    places = [f"{pointer}[{n}]" for n in range(count)]
    held = values[:count] if load else values[1:]
    if load and count == 1:
        return f"{held[0]} = {places[0]}"
    if load:  # the results may be parts of the address
        last = f"auto p = {pointer}; " + " ".join(
            f"{value} = p[{n}];" for n, value in enumerate(held)
        )
        return f"do {{ {last} }} while (0)"
    return ", ".join(f"{place} = {value}" for place, value in zip(places, held, strict=True))
