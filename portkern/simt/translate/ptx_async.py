"""PTX instructions that others carry out: mbarriers, bulk and tensor copies, wgmma, clusters of one
block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from portkern.simt.translate.ptx import (
    PRED,
    S32,
    U32,
    U64,
    Box,
    PtxCall,
    Sink,
    UnmodelledPtx,
    Vector,
    instruction,
)
from portkern.simt.translate.ptx_memory import ORDERS, SCOPES, cp_async, space

# -- mbarriers


@instruction("mbarrier")
def _mbarrier(call: PtxCall) -> str:
    what = call.need(
        *("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait"),
        *("expect_tx", "complete_tx", "pending_count"),
    )
    call.take(*ORDERS)
    call.take(*SCOPES)
    where = space(call)
    if what in ("arrive", "arrive_drop"):
        return _arrive(call, what == "arrive_drop", where)
    if what in ("test_wait", "try_wait"):
        return _wait(call, where)
    if what == "pending_count":
        call.type("b64")
        call.count(2)
        return call.assign(0, U32, f"simt::ptx::mbarrier_pending({call.cast(1, U64)})")
    call.type("b64")
    call.count(1 if what == "inval" else 2)
    barrier = call.address(0, where)
    if what == "init":
        return f"simt::ptx::mbarrier_init({barrier}, {call.cast(1, U32)});"
    if what == "inval":
        return f"simt::ptx::mbarrier_inval({barrier});"
    sign = "" if what == "expect_tx" else "-"
    return f"simt::ptx::mbarrier_expect({barrier}, {sign}(int64_t){call.cast(1, U32)});"


def _arrive(call: PtxCall, leaves: bool, where: str) -> str:
    """``arrive state, [barrier]{, count}``, of ``.expect_tx`` with the bytes; nobody may want the
    state."""
    expects = call.flag("expect_tx")
    call.take("noComplete")
    call.take(*ORDERS)
    call.take(*SCOPES)
    where = space(call) or where
    call.type("b64")
    call.count(*((3,) if expects else (2, 3)))
    last = call.cast(2, U32) if len(call.operands) == 3 else "1u"
    counts = f"1u, (int64_t){last}" if expects else f"{last}, 0"
    state = f"simt::ptx::mbarrier_arrive({call.address(1, where)}, {counts}, {str(leaves).lower()})"
    return f"{state};" if isinstance(call.operands[0], Sink) else call.assign(0, U64, state)


def _wait(call: PtxCall, where: str) -> str:
    parity = call.flag("parity")
    call.take(*ORDERS)
    call.take(*SCOPES)
    where = space(call) or where
    call.type("b64")
    call.count(3, 4)  # the fourth: how long the hardware may let it sleep
    given = call.cast(2, U32) if parity else f"simt::ptx::parity_of({call.cast(2, U64)})"
    return call.assign(0, PRED, f"simt::ptx::mbarrier_test({call.address(1, where)}, {given})")


# -- copies


@instruction("cp")
def _cp(call: PtxCall) -> str:
    if not call.flag("async"):
        raise UnmodelledPtx(f"'{call.opcode}'")
    if call.flag("bulk"):
        return _bulk(call)
    if call.flag("mbarrier"):
        return _arrive_by_copies(call)
    return cp_async(call)


def _arrive_by_copies(call: PtxCall) -> str:
    """The thread's cp.async are made; without ``.noinc`` the arrival is one more."""
    call.need("arrive")
    counted = call.flag("noinc")
    where = space(call)
    call.type("b64")
    call.count(1)
    wait = "simt::ptx::cp_async_wait(0, true);"
    barrier = call.address(0, where)
    return f"{wait} simt::ptx::mbarrier_arrive({barrier}, 1u, 0, false);" if counted else wait


def _bulk(call: PtxCall) -> str:
    if call.flag("commit_group"):
        call.count(0)
        return "simt::ptx::bulk_commit();"
    if call.flag("wait_group"):
        call.take("read")
        call.count(1)
        return f"simt::ptx::bulk_wait({call.constant(0)});"
    if call.flag("prefetch"):
        return ";"
    tensor = call.flag("tensor")
    rank = call.need(*(f"{n}d" for n in range(1, 6))) if tensor else ""
    to = call.need("shared::cluster", "shared::cta", "global")
    call.need("global" if to != "global" else "shared::cta")
    call.take("tile")
    ends = "bulk_group" if to == "global" else "mbarrier::complete_tx::bytes"
    call.need(ends)
    hinted = call.flag("L2::cache_hint")
    call.count((2 if tensor else 3) + (to != "global") + hinted)
    if tensor:
        return _box(call, to != "global", int(rank[0]))
    return _bytes(call, to != "global")


def _bytes(call: PtxCall, load: bool) -> str:
    spaces = ("shared", "global") if load else ("global", "shared")
    to, source = (call.address(i, spaces[i]) for i in range(2))
    size = call.cast(2, U32)
    if load:
        return f"simt::ptx::bulk_load({to}, {source}, {size}, {call.address(3, 'shared')});"
    return f"simt::ptx::bulk_store({to}, {source}, {size});"


def _box(call: PtxCall, load: bool, rank: int) -> str:
    box = call.operands[1 if load else 0]
    if not isinstance(box, Box):
        raise UnmodelledPtx(f"'{call.opcode}' without coordinates")
    if len(box.coordinates.at) != rank:
        raise UnmodelledPtx(f"'{call.opcode}' with {len(box.coordinates.at)} coordinates")
    at = ", ".join(call.cast(each, S32) for each in box.coordinates.at)
    tensor = f"{call.address(box.map, 'generic')}, {{{at}}}"
    shared = call.address(0 if load else 1, "shared")
    if load:
        return f"simt::ptx::box_load<{rank}>({shared}, {tensor}, {call.address(2, 'shared')});"
    return f"simt::ptx::box_store<{rank}>({tensor}, {shared});"


@instruction("createpolicy")
def _createpolicy(call: PtxCall) -> str:
    """How the L2 is to treat what is read: of no consequence here."""
    call.rest.clear()
    return call.assign(0, U64, "uint64_t(0)")


# -- warpgroups


@dataclass(frozen=True)
class _Kind:
    cpp: str
    depth: int
    sums: tuple[str, ...]
    alike: tuple[str, ...]  # what the other operand may be


_FP8 = ("e4m3", "e5m2")
_BYTES = ("s8", "u8")
_KINDS: Mapping[str, _Kind] = {
    "f16": _Kind("simt::f16", 16, ("f32", "f16"), ("f16",)),
    "bf16": _Kind("simt::bf16", 16, ("f32",), ("bf16",)),
    "tf32": _Kind("simt::tf32", 8, ("f32",), ("tf32",)),
    "e4m3": _Kind("simt::e4m3", 32, ("f32", "f16"), _FP8),
    "e5m2": _Kind("simt::e5m2", 32, ("f32", "f16"), _FP8),
    "s8": _Kind("int8_t", 32, ("s32",), _BYTES),
    "u8": _Kind("uint8_t", 32, ("s32",), _BYTES),
}
_SUMS = {"f32": "float", "f16": "simt::f16", "s32": "int32_t"}


@instruction("wgmma")
def _wgmma(call: PtxCall) -> str:
    what = call.need("fence", "commit_group", "wait_group", "mma_async")
    if what == "mma_async" and "sp" in call.rest:
        raise UnmodelledPtx(f"'{call.opcode}'", "SX010")
    call.need("sync")
    call.need("aligned")
    if what == "mma_async":
        return _products(call)
    if what == "wait_group":
        call.count(1)
        return f"simt::ptx::wgmma_wait({call.constant(0)});"
    call.count(0)
    return "simt::ptx::wgmma_commit();" if what == "commit_group" else ";"


def _products(call: PtxCall) -> str:
    saturate = call.flag("satfinite")
    shape, *types = call.rest
    if len(types) != 3 or types[1] not in _KINDS:
        raise UnmodelledPtx(f"'{call.opcode}'", "SX010")
    sums, kind, other = types[0], _KINDS[types[1]], types[2]
    columns = int(shape[4:].split("k")[0]) if shape.startswith("m64n") else 0
    sound = columns % 8 == 0 and 8 <= columns <= 256 and shape.endswith(f"k{kind.depth}")
    if not sound or sums not in kind.sums or other not in kind.alike:
        raise UnmodelledPtx(f"'{call.opcode}'", "SX010")
    call.rest.clear()
    in_registers = isinstance(call.operands[1], Vector)
    halves, whole = kind.depth == 16, sums == "s32"
    call.count(4 + (0 if whole else 2) + ((1 if in_registers else 2) if halves else 0))
    d = call.registers(0, columns // (4 if sums == "f16" else 2), 32, written=True)
    a = call.registers(1, 4, 32) if in_registers else call.cast(1, U64)
    scales = "1, 1" if whole else f"{call.constant(4)}, {call.constant(5)}"
    across = [call.constant(i) for i in range(6, len(call.operands))] if halves else []
    across = ["0"] * (2 - len(across)) + across
    names = f"{kind.cpp}, {_KINDS[other].cpp}, {_SUMS[sums]}"
    layout = ", ".join(f"({each}) != 0" for each in across)
    with_ = f"{{{call.value(3, PRED)}, {str(saturate).lower()}, {scales}}}"
    function = f"simt::ptx::wgmma<{columns}, {kind.depth}, {names}, {layout}>"
    return f"{function}({d}, {a}, {call.cast(2, U64)}, {with_});"


@instruction("setmaxnreg")
def _setmaxnreg(call: PtxCall) -> str:
    call.need("inc", "dec")
    call.need("sync")
    call.need("aligned")
    call.type("u32")
    call.count(1)
    return ";"


# -- clusters, which are of one block here: what launches more is refused


@instruction("mapa")
def _mapa(call: PtxCall) -> str:
    shared = space(call) == "shared"
    type = call.type("u32", "u64")
    call.count(3)
    if shared != (type.bits == 32):
        raise UnmodelledPtx(f"'{call.opcode}'")
    value = f"simt::ptx::map_to_rank({call.cast(1, type)}, {call.cast(2, U32)})"
    return call.assign(0, type, value)
