"""PTX instructions of warps and blocks: shuffles, votes, barriers and matrices."""

from __future__ import annotations

from collections.abc import Mapping

from portkern.simt.translate.ptx import PRED, U32, PtxCall, Sink, UnmodelledPtx, instruction

# -- warps and blocks


def _mask(call: PtxCall, at: int) -> str:
    return call.value(at, U32)


@instruction("shfl")
def _shfl(call: PtxCall) -> str:
    call.need("sync")
    mode = call.need("idx", "up", "down", "bfly")
    call.type("b32")
    call.count(5)
    first, second = call.both(0)
    function = f"simt::ptx::shfl<simt::ptx::Mode::{mode}>"
    value = f"{function}({call.values([U32] * 4)})"
    if isinstance(second, Sink):
        return call.assign(first, U32, f"{value}.value")
    parts = [
        call.assign(first, U32, "simt_shuffled.value"),
        call.assign(second, PRED, "simt_shuffled.inside"),
    ]
    return f"{{ const auto simt_shuffled = {value}; {' '.join(parts)} }}"


@instruction("vote")
def _vote(call: PtxCall) -> str:
    call.need("sync")
    mode = call.need("all", "any", "uni", "ballot")
    type = call.type("b32" if mode == "ballot" else "pred")
    call.count(3)
    function = "ballot" if mode == "ballot" else f"vote_{mode}"
    return call.assign(0, type, f"simt::ptx::{function}({call.value(1, PRED)}, {_mask(call, 2)})")


@instruction("match")
def _match(call: PtxCall) -> str:
    mode = call.need("any", "all")
    call.need("sync")
    type = call.type("b32", "b64")
    call.count(3)
    first, second = call.both(0)
    values = f"{call.value(1, type)}, {_mask(call, 2)}"
    if mode == "any":
        return call.assign(first, U32, f"simt::ptx::match_any_sync<{type.cpp}>({values})")
    result = f"simt::ptx::match_all_sync<{type.cpp}>({values}, simt_all)"
    late = "" if isinstance(second, Sink) else call.assign(second, PRED, "simt_all")
    return f"{{ bool simt_all; {call.assign(first, U32, result)} {late} }}"


@instruction("redux")
def _redux(call: PtxCall) -> str:
    call.need("sync")
    operations = {
        "add": "Sum",
        "min": "Least",
        "max": "Greatest",
        "and": "BitAnd",
        "or": "BitOr",
        "xor": "BitXor",
    }
    operation = operations[call.need(*operations)]
    type = call.type("u32", "s32", "b32")
    call.count(3)
    values = f"{call.value(1, type)}, {_mask(call, 2)}"
    return call.assign(0, type, f"simt::ptx::redux<simt::{operation}, {type.cpp}>({values})")


@instruction("elect")
def _elect(call: PtxCall) -> str:
    call.need("sync")
    call.count(2)
    first, second = call.both(0)
    result = f"simt::ptx::elect({_mask(call, 1)}, simt_leads)"
    late = "" if isinstance(second, Sink) else call.assign(second, PRED, "simt_leads")
    return f"{{ bool simt_leads; {call.assign(first, U32, result)} {late} }}"


@instruction("activemask")
def _activemask(call: PtxCall) -> str:
    call.type("b32")
    call.count(1)
    return call.assign(0, U32, "simt::ptx::activemask()")


@instruction("bar", "barrier")
def _bar(call: PtxCall) -> str:
    if call.flag("warp"):
        call.need("sync")
        call.count(1)
        return f"simt::ptx::bar_warp_sync({_mask(call, 0)});"
    if call.flag("cluster"):
        return _bar_cluster(call)
    call.take("cta")
    mode = call.need("sync", "arrive", "red")
    call.take("aligned")
    if mode == "red":
        return _bar_red(call)
    call.count(*((1, 2) if mode == "sync" else (2,)))
    values = call.values([U32] * len(call.operands), start=0)
    return f"simt::ptx::bar_{mode}({values});"


def _bar_cluster(call: PtxCall) -> str:
    """Translates a barrier of a cluster of one block: all of its threads wait for all, in the
    second half."""
    half = call.need("arrive", "wait")
    call.take("release", "relaxed", "acquire")
    call.take("aligned")
    call.count(0)
    return "simt::ptx::bar_sync(0u);" if half == "wait" else ";"


def _bar_red(call: PtxCall) -> str:
    operation = call.need("popc", "and", "or")
    type = call.type("u32" if operation == "popc" else "pred")
    call.count(3, 4)
    member = {"popc": "count", "and": "all", "or": "any"}[operation]
    barrier = call.cast(1, U32)
    threads = call.cast(2, U32) if len(call.operands) == 4 else "0u"
    predicate = call.value(len(call.operands) - 1, PRED)
    return call.assign(0, type, f"simt::ptx::bar_red({barrier}, {threads}, {predicate}).{member}")


@instruction("ldmatrix")
def _ldmatrix(call: PtxCall) -> str:
    count, trans = _matrices(call)
    call.count(2)
    to = call.registers(0, count, 32, written=True)
    return f"simt::ptx::ldmatrix<{count}, {trans}>({to}, {call.address(1, 'shared')});"


@instruction("stmatrix")
def _stmatrix(call: PtxCall) -> str:
    count, trans = _matrices(call)
    call.count(2)
    values = call.registers(1, count, 32)
    return f"simt::ptx::stmatrix<{count}, {trans}>({call.address(0, 'shared')}, {values});"


def _matrices(call: PtxCall) -> tuple[int, str]:
    for wanted in ("sync", "aligned", "m8n8"):
        call.need(wanted)
    count = int(call.need("x1", "x2", "x4")[1:])
    trans = "true" if call.flag("trans") else "false"
    if not call.take("shared", "shared::cta"):
        raise UnmodelledPtx(f"'{call.opcode}' without .shared")
    call.type("b16")
    return count, trans


@instruction("movmatrix")
def _movmatrix(call: PtxCall) -> str:
    for wanted in ("sync", "aligned", "m8n8", "trans"):
        call.need(wanted)
    call.type("b16")
    call.count(2)
    return call.assign(0, U32, f"simt::ptx::movmatrix({call.value(1, U32)})")


# shapes by the types of A and B, and what the accumulators may be
_HALVES, _FLOATS, _INTEGERS = ("f16", "f32"), ("f32",), ("s32",)
_SHAPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (("m16n8k8", "m16n8k16"), _HALVES),
    "bf16": (("m16n8k8", "m16n8k16"), _FLOATS),
    "tf32": (("m16n8k4", "m16n8k8"), _FLOATS),
    "e4m3": (("m16n8k16", "m16n8k32"), _HALVES),
    "e5m2": (("m16n8k16", "m16n8k32"), _HALVES),
    "s8": (("m8n8k16", "m16n8k16", "m16n8k32"), _INTEGERS),
    "u8": (("m8n8k16", "m16n8k16", "m16n8k32"), _INTEGERS),
    "s4": (("m8n8k32", "m16n8k32", "m16n8k64"), _INTEGERS),
    "u4": (("m8n8k32", "m16n8k32", "m16n8k64"), _INTEGERS),
    "f64": (("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), ("f64",)),
}
_ELEMENTS = {
    "s8": ("int8_t", 8),
    "u8": ("uint8_t", 8),
    "s4": ("simt::s4", 4),
    "u4": ("simt::u4", 4),
    "f16": ("simt::f16", 16),
    "bf16": ("simt::bf16", 16),
    "tf32": ("simt::tf32", 32),
    "e4m3": ("simt::e4m3", 8),
    "e5m2": ("simt::e5m2", 8),
    "f32": ("float", 32),
    "s32": ("int32_t", 32),
    "f64": ("double", 64),
}


@instruction("mma")
def _mma(call: PtxCall) -> str:
    for wanted in ("sync", "aligned", "row", "col"):
        call.need(wanted)
    saturate = call.flag("satfinite")
    shape, *types = call.rest
    if len(types) != 4 or types[1] not in _SHAPES or types[2] not in _SHAPES:
        raise UnmodelledPtx(f"'{call.opcode}'")
    d, a, b, c = types
    shapes, sums = _SHAPES[a]
    alike = {a, b} <= {"s8", "u8"} or {a, b} <= {"s4", "u4"} or {a, b} <= {"e4m3", "e5m2"} or a == b
    if shape not in shapes or not alike or d not in sums or c not in sums:
        raise UnmodelledPtx(f"'{call.opcode}'")
    call.rest.clear()
    call.count(4)
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    width = 64 if a == "f64" else 32
    sizes = {"d": (d, m * n), "a": (a, m * k), "b": (b, k * n), "c": (c, m * n)}
    counts = {p: size * _ELEMENTS[t][1] // width // 32 for p, (t, size) in sizes.items()}
    groups = [
        call.registers(i, counts[part], width, written=part == "d") for i, part in enumerate("dabc")
    ]
    names = ", ".join(_ELEMENTS[t][0] for t in (a, b, c, d))
    tail = ", true" if saturate else ""
    return f"simt::ptx::mma<{m}, {n}, {k}, {names}>({', '.join(groups)}{tail});"


# -- the rest


@instruction("nanosleep")
def _nanosleep(call: PtxCall) -> str:
    call.type("u32")
    call.count(1)
    return "simt::spin();"


@instruction("trap", "brkpt")
def _trap(call: PtxCall) -> str:
    call.count(0)
    return f'simt::ptx::trap("{call.name}");'


@instruction("griddepcontrol", "pmevent")
def _nothing(call: PtxCall) -> str:
    """Programmatic dependent launch is an overlap that this executor never makes."""
    if call.name == "griddepcontrol":
        call.need("wait", "launch_dependents")
        call.count(0)
    else:
        call.take("mask")
        call.count(1)
    return ";"
