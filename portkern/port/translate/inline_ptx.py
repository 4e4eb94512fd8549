"""Inline PTX with a known equivalent: one instruction becomes one assignment or call."""

from __future__ import annotations

import re
from collections.abc import Callable

from portkern.port.translate.draft import Draft
from portkern.simt.translate.asm_statement import Alternative, Asm, Refused, parse
from portkern.simt.translate.survey import ASM

_LANE = "(__lane_id() & 31)"
#: Special registers, as the type that they are read as and an expression; a warp has 32 lanes.
_REGISTERS = {
    "laneid": _LANE,
    "lanemask_lt": f"((1u << {_LANE}) - 1)",
    "lanemask_le": f"((2u << {_LANE}) - 1)",
    "lanemask_eq": f"(1u << {_LANE})",
    "lanemask_gt": f"(0xfffffffeu << {_LANE})",
    "lanemask_ge": f"(0xffffffffu << {_LANE})",
    "smid": "__smid()",
    "tid.x": "threadIdx.x",
    "tid.y": "threadIdx.y",
    "tid.z": "threadIdx.z",
    "ntid.x": "blockDim.x",
    "ctaid.x": "blockIdx.x",
    "nctaid.x": "gridDim.x",
    "clock64": "clock64()",
    "clock": "(unsigned)clock64()",
}
#: Instructions of one result: what it is of the operands, by number.
_VALUES = {
    "fma.rn.f32": "fmaf({1}, {2}, {3})",
    "fma.rn.f64": "fma({1}, {2}, {3})",
    "add.f32": "({1} + {2})",
    "add.rn.f32": "__fadd_rn({1}, {2})",
    "mul.f32": "({1} * {2})",
    "mul.rn.f32": "__fmul_rn({1}, {2})",
    "max.f32": "fmaxf({1}, {2})",
    "min.f32": "fminf({1}, {2})",
    "ex2.approx.f32": "exp2f({1})",
    "ex2.approx.ftz.f32": "exp2f({1})",
    "lg2.approx.f32": "log2f({1})",
    "lg2.approx.ftz.f32": "log2f({1})",
    "rcp.approx.f32": "(1.0f / {1})",
    "rcp.approx.ftz.f32": "(1.0f / {1})",
    "rcp.rn.f32": "__frcp_rn({1})",
    "sqrt.approx.f32": "sqrtf({1})",
    "sqrt.approx.ftz.f32": "sqrtf({1})",
    "rsqrt.approx.f32": "rsqrtf({1})",
    "rsqrt.approx.ftz.f32": "rsqrtf({1})",
    "sin.approx.f32": "__sinf({1})",
    "cos.approx.f32": "__cosf({1})",
    "tanh.approx.f32": "tanhf({1})",
    "popc.b32": "__popc({1})",
    "popc.b64": "__popcll({1})",
    "clz.b32": "__clz({1})",
    "clz.b64": "__clzll({1})",
    "brev.b32": "__brev({1})",
    "brev.b64": "__brevll({1})",
    "prmt.b32": "__byte_perm({1}, {2}, {3})",
    "mul.hi.u32": "__umulhi({1}, {2})",
    "mul.hi.s32": "__mulhi({1}, {2})",
    "mul.hi.u64": "__umul64hi({1}, {2})",
    "mad.lo.u32": "((unsigned)({1}) * (unsigned)({2}) + (unsigned)({3}))",
    "mad.lo.s32": "(int)((unsigned)({1}) * (unsigned)({2}) + (unsigned)({3}))",
    "shf.l.wrap.b32": "__funnelshift_l({1}, {2}, {3})",
    "shf.r.wrap.b32": "__funnelshift_r({1}, {2}, {3})",
    "bfe.u32": "__bitextract_u32({1}, {2}, {3})",
}
#: Instructions without a result.
_STATEMENTS = {
    "membar.cta": "__threadfence_block()",
    "membar.gl": "__threadfence()",
    "membar.sys": "__threadfence_system()",
    "fence.acq_rel.cta": "__threadfence_block()",
    "fence.acq_rel.gpu": "__threadfence()",
    "fence.acq_rel.sys": "__threadfence_system()",
    "bar.sync 0": "__syncthreads()",
    "barrier.sync 0": "__syncthreads()",
    "trap": "__builtin_trap()",
    "brkpt": "__builtin_trap()",
}
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


def translate_ptx(draft: Draft) -> None:
    for i, text in enumerate(draft.code.text):
        if text in ASM:
            _statement(draft, i)


def _statement(draft: Draft, i: int) -> None:
    code, opening = draft.code, i + 1
    while code.text[opening] in ("volatile", "__volatile__"):
        opening += 1
    if code.text[opening] != "(" or code.partner[opening] < 0:
        return
    parsed = parse(code, i, opening)
    alternatives = parsed if isinstance(parsed, Refused) else parsed.alternatives({})
    if isinstance(alternatives, Refused) or len(alternatives) != 1:
        return
    written = _equivalent(alternatives[0])
    if not written:
        return
    last = code.partner[opening] + 1
    draft.note(i, code.flat(i, last), written, _WHY)
    draft.replace(i, last, written)


def _equivalent(alternative: Alternative) -> str:
    asm = alternative.asm
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", asm.template, flags=re.DOTALL)
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
    return "" if values else _STATEMENTS.get(f"{opcode} {operands}".strip(), "")


def _register(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    match = re.fullmatch(r"%0 ?, ?%%?([a-z][\w.]*)", operands)
    if match is None or not re.fullmatch(r"mov\.[usb](32|64)", opcode) or len(values) != 1:
        return ""
    expression = _REGISTERS.get(match[1], "")
    return f"{values[0]} = {expression}" if expression else ""


def _value(opcode: str, operands: str, values: list[str], asm: Asm) -> str:
    form = _VALUES.get(opcode, "")
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
    table = int(match[1], 0)
    a, b, c = values[1:]
    terms = [
        " & ".join(v if row & bit else f"~{v}" for v, bit in ((a, 4), (b, 2), (c, 1)))
        for row in range(8)
        if table >> row & 1
    ]
    return f"{values[0]} = {' | '.join(f'({term})' for term in terms) or '0'}"


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
