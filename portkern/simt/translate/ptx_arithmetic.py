"""PTX instructions that need nobody else: arithmetic, bits, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.simt.translate.ptx import (
    F32,
    PRED,
    S32,
    TYPES,
    U32,
    U64,
    PtxCall,
    Register,
    Sink,
    Special,
    Type,
    UnmodelledPtx,
    Vector,
    instruction,
)

ROUNDINGS = {"rn": "nearest", "rz": "zero", "rm": "down", "rp": "up"}
WHOLE = {"rni": "nearest", "rzi": "zero", "rmi": "down", "rpi": "up"}
PAIRS_OF_INTEGERS = ("u16x2", "s16x2")


def _function(name: str, *parameters: str) -> str:
    """``simt::ptx::name<parameters>``; empty parameters are left out."""
    given = ", ".join(p for p in parameters if p)
    return f"simt::ptx::{name}<{given}>" if given else f"simt::ptx::{name}"


def _round(mode: str) -> str:
    mode = ROUNDINGS.get(mode) or WHOLE.get(mode) or "nearest"
    return f"simt::ptx::Round::{mode}"


# -- arithmetic


def _float(call: PtxCall, function: str, operands: int, type: Type, *, modes: bool = False) -> str:
    """A function of floats, with the modifiers that all of them share."""
    rounding = call.take(*ROUNDINGS)
    if rounding not in ("", "rn") and not (modes and type.name in ("f32", "f64")):
        raise UnmodelledPtx(f"'{call.opcode}' (.{rounding})")
    flush, saturate, relu = call.flag("ftz"), call.flag("sat"), call.flag("relu")
    call.count(operands + 1)
    mode = _round(rounding) if rounding not in ("", "rn") else ""
    values = [call.value(i + 1, type) for i in range(operands)]
    if flush:
        values = [f"{_function('flush', type.cpp)}({v})" for v in values]
    result = f"{_function(function, type.cpp, mode)}({', '.join(values)})"
    for wanted, name in ((flush, "flush"), (saturate, "saturate"), (relu, "relu")):
        if wanted:
            result = f"{_function(name, type.cpp)}({result})"
    return call.assign(0, type, result)


def _carry(call: PtxCall, type: Type, function: str, terms: Sequence[str], *, reads: bool) -> str:
    """Sums with the carry of this asm statement, which asm.py declares where it is named."""
    sets = call.flag("cc")
    call.count(len(call.operands))
    carried = "simt_carry" if reads else "false"
    out = "simt_carry" if sets else "simt_unused"
    result = f"simt::ptx::{function}<{type.cpp}>({terms[0]}, {terms[1]}, {carried}, {out})"
    declare = "" if sets else "[[maybe_unused]] bool simt_unused; "
    statement = f"{declare}{call.assign(0, type, result)}"
    return statement if sets else f"{{ {statement} }}"


def _two(call: PtxCall, type: Type) -> list[str]:
    call.arity(3)
    return [call.value(i, type) for i in (1, 2)]


@instruction("add", "sub")
def _add(call: PtxCall) -> str:
    type = call.type()
    if not type.integer:
        if type.name in PAIRS_OF_INTEGERS:
            call.count(3)
        return _float(call, call.name, 2, type, modes=True)
    if "cc" in call.rest:
        function = "add_carry" if call.name == "add" else "sub_borrow"
        return _carry(call, type, function, _two(call, type), reads=False)
    saturating = call.flag("sat")
    if saturating and type.name != "s32":
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(3)
    function = f"{call.name}_sat" if saturating else call.name
    return call.assign(0, type, f"simt::ptx::{function}<{type.cpp}>({call.values([type] * 2)})")


@instruction("addc", "subc")
def _addc(call: PtxCall) -> str:
    type = call.type("u32", "s32", "u64", "s64", "b32", "b64")
    function = "add_carry" if call.name == "addc" else "sub_borrow"
    return _carry(call, type, function, _two(call, type), reads=True)


@instruction("mul", "mad", "madc", "mul24", "mad24")
def _mul(call: PtxCall) -> str:
    type = call.type()
    adds = call.name.startswith("mad")
    if not type.integer:
        if call.name not in ("mul", "mad"):
            raise UnmodelledPtx(f"'{call.opcode}'")
        return _float(call, "fma" if adds else "mul", 3 if adds else 2, type, modes=True)
    small = call.name.endswith("24")
    part = call.need("lo") if small else call.need("lo", "hi", "wide")
    result = type.wide if part == "wide" else type
    call.arity(3 + adds)
    function = "mul24_lo" if small else f"mul_{part}<{type.cpp}>"
    product = f"simt::ptx::{function}({call.cast(1, type)}, {call.cast(2, type)})"
    if adds and (call.name == "madc" or "cc" in call.rest):
        addend = call.value(3, result)
        return _carry(call, result, "add_carry", (product, addend), reads=call.name == "madc")
    call.count(3 + adds)
    if adds:
        product = f"simt::ptx::add<{result.cpp}>({product}, {call.value(3, result)})"
    return call.assign(0, result, product)


@instruction("fma")
def _fma(call: PtxCall) -> str:
    return _float(
        call, "fma", 3, call.type("f32", "f64", "f16", "f16x2", "bf16", "bf16x2"), modes=True
    )


@instruction("neg", "abs")
def _neg(call: PtxCall) -> str:
    type = call.type()
    if not type.integer:
        return _float(call, call.name, 1, type)
    call.count(2)
    return call.assign(0, type, f"simt::ptx::{call.name}<{type.cpp}>({call.values([type])})")


@instruction("min", "max")
def _min(call: PtxCall) -> str:
    type = call.type()
    wins = "true" if call.flag("NaN") else ""
    if not type.integer and type.name not in PAIRS_OF_INTEGERS:
        flush = call.flag("ftz")
        call.count(3)
        values = [call.value(i, type) for i in (1, 2)]
        if flush:
            values = [f"{_function('flush', type.cpp)}({v})" for v in values]
        function = _function(call.name, type.cpp, wins)
        return call.assign(0, type, f"{function}({', '.join(values)})")
    relu = call.flag("relu")
    call.count(3)
    result = f"{_function(call.name, type.cpp)}({call.values([type] * 2)})"
    return call.assign(0, type, f"{_function('relu', type.cpp)}({result})" if relu else result)


@instruction("div", "rem")
def _div(call: PtxCall) -> str:
    type = call.type()
    if type.integer:
        call.count(3)
        result = f"simt::ptx::{call.name}<{type.cpp}>({call.values([type] * 2)})"
        return call.assign(0, type, result)
    if call.name == "rem" or type.name not in ("f32", "f64"):
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.take("approx", "full")
    return _float(call, "divide", 2, type, modes=True)


@instruction("rcp", "sqrt")
def _rcp(call: PtxCall) -> str:
    type = call.type("f32", "f64")
    call.take("approx")
    return _float(call, call.name, 1, type, modes=True)


@instruction("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _approximate(call: PtxCall) -> str:
    type = call.type("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    if (type.name == "f64") > (call.name == "rsqrt"):
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.need("approx")
    return _float(call, call.name, 1, type)


@instruction("sad", "copysign")
def _sad(call: PtxCall) -> str:
    type = call.type()
    count = 3 if call.name == "sad" else 2
    call.count(count + 1)
    result = f"simt::ptx::{call.name}<{type.cpp}>({call.values([type] * count)})"
    return call.assign(0, type, result)


@instruction("testp")
def _testp(call: PtxCall) -> str:
    which = call.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    type = call.type("f32", "f64")
    call.count(2)
    test = f"simt::ptx::testp<{type.cpp}>(simt::ptx::Class::{which}, {call.values([type])})"
    return call.assign(0, PRED, test)


@instruction("dp4a", "dp2a")
def _dp(call: PtxCall) -> str:
    half = call.need("lo", "hi") if call.name == "dp2a" else ""
    a, b = call.type("u32", "s32"), call.type("u32", "s32")
    call.count(4)
    names = {"u": "uint", "s": "int"}
    left = names[a.kind] + ("8_t" if call.name == "dp4a" else "16_t")
    values = call.values([U32] * 3)
    first = 2 if half == "hi" else 0
    return call.assign(0, U32, f"simt::ptx::dp<{left}, {names[b.kind]}8_t>({values}, {first})")


# -- bits


@instruction("and", "or", "xor", "not", "cnot")
def _bitwise(call: PtxCall) -> str:
    type = call.type("pred", "b16", "b32", "b64", "u16", "u32", "u64", "s32", "s64")
    unary = call.name in ("not", "cnot")
    call.count(2 if unary else 3)
    function = call.name if call.name == "cnot" else f"bit_{call.name}"
    values = call.values([type] * (1 if unary else 2))
    return call.assign(0, type, f"simt::ptx::{function}<{type.cpp}>({values})")


@instruction("shl", "shr")
def _shift(call: PtxCall) -> str:
    type = call.type()
    if not type.integer:
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(3)
    values = f"{call.value(1, type)}, {call.value(2, U32)}"
    return call.assign(0, type, f"simt::ptx::{call.name}<{type.cpp}>({values})")


@instruction("shf")
def _funnel(call: PtxCall) -> str:
    side, mode = call.need("l", "r"), call.need("clamp", "wrap")
    call.type("b32")
    call.count(4)
    clamp = "true" if mode == "clamp" else "false"
    return call.assign(0, U32, f"simt::ptx::shf_{side}({call.values([U32] * 3)}, {clamp})")


@instruction("lop3")
def _lop3(call: PtxCall) -> str:
    call.type("b32")
    call.count(5)
    return call.assign(0, U32, f"simt::ptx::lop3({call.values([U32] * 4)})")


@instruction("prmt")
def _prmt(call: PtxCall) -> str:
    call.type("b32")
    mode = call.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") or "index"
    call.count(4)
    values = call.values([U32] * 3)
    return call.assign(0, U32, f"simt::ptx::prmt({values}, simt::ptx::Permute::{mode})")


@instruction("bfe")
def _bfe(call: PtxCall) -> str:
    type = call.type("u32", "s32", "u64", "s64")
    call.count(4)
    values = call.values([type, U32, U32])
    return call.assign(0, type, f"simt::ptx::bfe<{type.cpp}>({values})")


@instruction("bfi")
def _bfi(call: PtxCall) -> str:
    type = call.type("b32", "b64")
    call.count(5)
    values = call.values([type, type, U32, U32])
    return call.assign(0, type, f"simt::ptx::bfi<{type.cpp}>({values})")


@instruction("popc", "clz", "brev", "bfind")
def _count_bits(call: PtxCall) -> str:
    type = call.type("b32", "b64", "u32", "s32", "u64", "s64")
    amount = "true" if call.flag("shiftamt") else ""
    if amount and call.name != "bfind":
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(2)
    result = type if call.name == "brev" else U32
    function = _function(call.name, type.cpp, amount)
    return call.assign(0, result, f"{function}({call.values([type])})")


@instruction("fns")
def _fns(call: PtxCall) -> str:
    call.type("b32")
    call.count(4)
    return call.assign(0, U32, f"simt::ptx::fns({call.values([U32, U32, S32])})")


# -- comparisons


_COMPARISONS = {
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "num")},
    **{name: name for name in ("equ", "neu", "ltu", "leu", "gtu", "geu")},
    **{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge", "nan": "is_nan"},
}
_LOGIC = {"and": "&&", "or": "||", "xor": "!="}


def _compare(call: PtxCall, function: str, type: Type, flush: bool, part: str = "") -> str:
    whole = TYPES[type.name.removesuffix("x2")] if part else type
    values = [call.cast(i, type) + part if part else call.value(i, type) for i in (1, 2)]
    if flush:
        values = [f"{_function('flush', whole.cpp)}({v})" for v in values]
    return f"simt::ptx::{function}<{whole.cpp}>({', '.join(values)})"


@instruction("setp")
def _setp(call: PtxCall) -> str:
    function = _COMPARISONS[call.need(*_COMPARISONS)]
    logic = _LOGIC.get(call.take(*_LOGIC), "")
    flush, type = call.flag("ftz"), call.type()
    call.count(4 if logic else 3)
    first, second = call.both(0)
    if type.kind == "p":
        tests = [_compare(call, function, type, flush, part) for part in (".lo", ".hi")]
    else:
        test = _compare(call, function, type, flush)
        tests = [test, f"!{test}"]
    if logic:
        tests = [f"({t}) {logic} bool({call.value(3, PRED)})" for t in tests]
    statement = call.assign(first, PRED, tests[0])
    if isinstance(second, Sink):
        return statement
    # The second result is computed first: an operand may be the register the first one goes to.
    late = call.assign(second, PRED, "simt_second")
    return f"{{ const bool simt_second = {tests[1]}; {statement} {late} }}"


@instruction("set")
def _set(call: PtxCall) -> str:
    function = _COMPARISONS[call.need(*_COMPARISONS)]
    logic = _LOGIC.get(call.take(*_LOGIC), "")
    flush = call.flag("ftz")
    to, type = call.type("u32", "s32", "f32"), call.type()
    if type.kind == "p":
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(4 if logic else 3)
    test = _compare(call, function, type, flush)
    if logic:
        test = f"({test}) {logic} bool({call.value(3, PRED)})"
    return call.assign(0, to, f"simt::ptx::truth<{to.cpp}>({test})")


@instruction("selp")
def _selp(call: PtxCall) -> str:
    type = call.type()
    call.count(4)
    return call.assign(0, type, f"simt::ptx::selp<{type.cpp}>({call.values([type, type, PRED])})")


@instruction("slct")
def _slct(call: PtxCall) -> str:
    flush, type, by = call.flag("ftz"), call.type(), call.type("s32", "f32")
    call.count(4)
    chosen = call.cast(3, by)
    if flush:
        chosen = f"{_function('flush', by.cpp)}({chosen})"
    values = call.values([type, type])
    return call.assign(0, type, f"simt::ptx::selp<{type.cpp}>({values}, {chosen} >= 0)")


# -- moves and conversions


@instruction("mov")
def _mov(call: PtxCall) -> str:
    type = call.type()
    call.count(2)
    to, source = call.operands
    if isinstance(to, Vector):
        return _unpack(call, to, type)
    if isinstance(source, Vector):
        return call.assign(0, type, _pack(call, source, type))
    if isinstance(source, Special):
        return call.assign(0, type, f"static_cast<{type.cpp}>{source.cpp}")
    if isinstance(source, Register):
        return call.assign(0, type, call.cast(1, type) if not type.bits else call.value(1, type))
    return call.assign(0, type, call.value(1, type))


def _element(call: PtxCall, vector: Vector, type: Type) -> Type:
    bits = type.bits // len(vector.at)
    if len(vector.at) not in (2, 4) or bits < 8:
        raise UnmodelledPtx(f"'{call.opcode}' with a vector of {len(vector.at)}")
    return TYPES[f"u{bits}"]


def _pack(call: PtxCall, vector: Vector, type: Type) -> str:
    element = _element(call, vector, type)
    parts = [
        f"static_cast<{type.cpp}>({call.cast(e, element)}) << {i * element.bits}"
        for i, e in enumerate(vector.at)
    ]
    return f"static_cast<{type.cpp}>({' | '.join(parts)})"


def _unpack(call: PtxCall, vector: Vector, type: Type) -> str:
    element = _element(call, vector, type)
    whole = TYPES[f"u{type.bits}"]
    parts = [
        call.assign(e, element, f"static_cast<{element.cpp}>(simt_whole >> {i * element.bits})")
        for i, e in enumerate(vector.at)
    ]
    return f"{{ const {whole.cpp} simt_whole = {call.value(1, whole)}; {' '.join(parts)} }}"


def _cvt_pack(call: PtxCall) -> str:
    """Two integers, saturated; the smaller types push what was there up."""
    call.need("sat")
    to, source = call.type("u16", "s16", "u8", "s8"), call.type("s32")
    below = call.flag("b32")
    if below != (to.bits == 8):
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(4 if below else 3)
    values = call.values([source, source, U32] if below else [source] * 2)
    return call.assign(0, U32, f"simt::ptx::pack_integers<{to.cpp}>({values})")


@instruction("cvt")
def _cvt(call: PtxCall) -> str:
    if call.flag("pack"):
        return _cvt_pack(call)
    rounding = call.take(*ROUNDINGS, *WHOLE, "rna")
    flush, saturate = call.flag("ftz"), call.flag("sat")
    finite, relu = call.flag("satfinite"), call.flag("relu")
    to, source = call.type(), call.type()
    if to.kind == "p":
        if saturate or rounding not in ("rn", "rz"):
            raise UnmodelledPtx(f"'{call.opcode}'")
        result = _convert_pair(call, to, source, rounding, finite)
    else:
        call.count(2)
        value = call.cast(1, source, wider=True)
        if flush and source.name == "f32":
            value = f"simt::ptx::flush<float>({value})"
        if finite and to.name in ("f16", "bf16"):
            result = f"{_function('satfinite', to.cpp, _round(rounding))}((float){value})"
        else:
            if finite:
                raise UnmodelledPtx(f"'{call.opcode}'")
            result = _convert(call, to, source, rounding, saturate, value)
        if flush and to.name == "f32":
            result = f"simt::ptx::flush<float>({result})"
        if saturate and not to.integer:
            result = f"simt::ptx::saturate<{to.cpp}>({result})"
    if relu:
        result = f"simt::ptx::relu<{to.cpp}>({result})"
    return call.assign(0, to, result, wider=to.integer)


def _convert_pair(call: PtxCall, to: Type, source: Type, rounding: str, finite: bool) -> str:
    element = TYPES[to.name.removesuffix("x2")]
    saturate = "true" if finite else "false"
    if source.name == "f32":
        call.count(3)
        values = call.values([F32] * 2)
        return f"{_function('pack', element.cpp, _round(rounding))}({values}, {saturate})"
    if source.kind != "p" or rounding != "rn" or element.kind != "f":
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.count(2)
    return f"simt::ptx::repack<{element.cpp}>({call.cast(1, source)}, {saturate})"


def _convert(
    call: PtxCall, to: Type, source: Type, rounding: str, saturate: bool, value: str
) -> str:
    if to.name == "tf32":
        if rounding == "rna":
            return f"simt::round_tf32_away({value})"
        if rounding not in ("rn", "rz"):
            raise UnmodelledPtx(f"'{call.opcode}'")
        return f"simt::round_tf32({value}, {_round(rounding)})"
    if rounding == "rna" or source.kind == "p" or not source.bits or not to.bits:
        raise UnmodelledPtx(f"'{call.opcode}'")
    if to.integer and source.integer:
        function = "clamp" if saturate else "cvt"
        return f"simt::ptx::{function}<{to.cpp}, {source.cpp}>({value})"
    whole = rounding in WHOLE
    if to.integer and not whole:
        raise UnmodelledPtx(f"'{call.opcode}' without a rounding to integers")
    if to == source:
        if not rounding:
            return value
        if whole:
            return f"{_function('integral', to.cpp, _round(rounding))}({value})"
    if whole and not to.integer:
        raise UnmodelledPtx(f"'{call.opcode}'")
    return f"{_function('cvt', to.cpp, source.cpp, _round(rounding))}({value})"


@instruction("cvta")
def _cvta(call: PtxCall) -> str:
    to = call.flag("to")
    space = call.need("global", "shared", "shared::cta", "local", "const", "param")
    type = call.type("u32", "u64")
    call.count(2)
    value = call.cast(1, type)
    if space.startswith("shared"):
        if type.bits != 64:
            raise UnmodelledPtx(f"'{call.opcode}': generic addresses have 64 bits")
        value = f"simt::ptx::{'to' if to else 'from'}_shared({value})"
    return call.assign(0, type, value)


@instruction("isspacep")
def _isspacep(call: PtxCall) -> str:
    space = call.need("global", "shared", "shared::cta")
    call.count(2)
    test = "in_global" if space == "global" else "in_shared"
    return call.assign(0, PRED, f"simt::ptx::{test}({call.cast(1, U64)})")
