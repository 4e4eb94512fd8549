"""PTX instructions on memory: loads, stores, atomics, fences and cp.async of a thread."""

from __future__ import annotations

from portkern.simt.translate.ptx import (
    PRED,
    S32,
    TYPES,
    Not,
    Operand,
    PtxCall,
    Register,
    Sink,
    Type,
    UnmodelledPtx,
    instruction,
)

# -- memory


_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "const", "local")
_HINTS = (
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "weak",
    "L1::no_allocate",
    *(f"L1::evict_{priority}" for priority in ("normal", "unchanged", "first", "last")),
    *(f"L2::evict_{priority}" for priority in ("normal", "first", "last")),
    *(f"L2::{size}B" for size in (64, 128, 256)),
)
SCOPES = {"cta": "block", "cluster": "block", "gpu": "device", "gl": "device", "sys": "system"}
ORDERS = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "both"}


def space(call: PtxCall) -> str:
    """The state space of a modifier: shared, also of a cluster, global …; nothing: generic."""
    return call.take(*_SPACES).split(":")[0]


def _hints(call: PtxCall) -> bool:
    """Takes what changes no value; True if a cache policy is the last operand."""
    while call.take(*_HINTS):
        pass
    return call.flag("L2::cache_hint")


def _order(call: PtxCall) -> tuple[str, str] | None:
    """Order and scope of an access that others may see; None for a plain one."""
    if call.flag("volatile"):
        return "simt::ptx::Order::relaxed", "simt::Scope::system"
    order = call.take(*ORDERS)
    if not order:
        return None
    scope = SCOPES[call.need("cta", "cluster", "gpu", "sys")]
    return f"simt::ptx::Order::{ORDERS[order]}", f"simt::Scope::{scope}"


def _length(call: PtxCall) -> int:
    return int(call.take("v2", "v4", "v8")[1:] or 1)


def _memory_type(call: PtxCall) -> Type:
    type = call.type()
    if type.kind == "p" or not type.bits:
        raise UnmodelledPtx(f"'{call.opcode}'")
    return TYPES[f"u{type.bits}"] if type.name in ("f16", "bf16") else type


@instruction("ld", "ldu")
def _ld(call: PtxCall) -> str:
    # What reads past the near cache may be a loop's condition: others get a turn.
    poll = "simt::poll(); " if {"cg", "cv"} & set(call.rest) else ""
    order, where, hinted, length = _order(call), space(call), _hints(call), _length(call)
    type = _memory_type(call)
    call.count(3 if hinted else 2)
    to, address = call.vector(0, length), call.address(1, where)
    if order:
        value = f"simt::ptx::ld_atomic<{type.cpp}, {length}>({address}, {', '.join(order)})"
    elif length == 1:
        value = f"simt::ptx::ld<{type.cpp}>({address})"
        return poll + call.assign(to[0], type, value, wider=True)
    else:
        value = f"simt::ptx::ld<simt::ptx::Vector<{type.cpp}, {length}>>({address})"
    parts = [
        call.assign(e, type, f"simt_loaded.at[{i}]", wider=True)
        for i, e in enumerate(to)
        if not isinstance(e, Sink)
    ]
    return f"{{ {poll}const auto simt_loaded = {value}; {' '.join(parts)} }}"


@instruction("st")
def _st(call: PtxCall) -> str:
    order, where, hinted, length = _order(call), space(call), _hints(call), _length(call)
    type = _memory_type(call)
    call.count(3 if hinted else 2)
    if where == "const":
        raise UnmodelledPtx(f"'{call.opcode}'")
    values = [call.cast(e, type, wider=True) for e in call.vector(1, length)]
    address = call.address(0, where)
    if not order and length == 1:
        return f"simt::ptx::st<{type.cpp}>({address}, {values[0]});"
    vector = f"simt::ptx::Vector<{type.cpp}, {length}>"
    stored = f"{vector}{{{{{', '.join(values)}}}}}"
    if not order:
        return f"simt::ptx::st<{vector}>({address}, {stored});"
    return f"simt::ptx::st_atomic<{type.cpp}, {length}>({address}, {stored}, {', '.join(order)});"


@instruction("prefetch", "prefetchu", "discard", "applypriority")
def _prefetch(call: PtxCall) -> str:
    where = space(call)
    call.take("tensormap", "L1", "L2", "L2::evict_last", "L2::evict_normal")
    size = 1 if call.name.startswith("prefetch") else 2
    call.count(size)
    call.address(0, where)
    return ";"


_CHANGES = {
    "add": "add",
    "min": "min",
    "max": "max",
    "and": "bit_and",
    "or": "bit_or",
    "xor": "bit_xor",
    "exch": "exch",
    "inc": "inc",
    "dec": "dec",
}


@instruction("atom", "red")
def _atom(call: PtxCall) -> str:
    order = f"simt::ptx::Order::{ORDERS[call.take(*ORDERS) or 'relaxed']}"
    scope = f"simt::Scope::{SCOPES[call.take('cta', 'cluster', 'gpu', 'sys') or 'gpu']}"
    where = space(call)
    operation = call.need(*_CHANGES, "cas")
    call.take("noftz")
    hinted, length, type = call.flag("L2::cache_hint"), _length(call), call.type()
    returns = call.name == "atom"
    call.count(returns + (3 if operation == "cas" else 2) + hinted)
    if length > 1:
        # Of Hopper and later: numbers of global memory that lie side by side.
        if returns or operation != "add" or where != "global" or type.name != "f32" or length > 4:
            raise UnmodelledPtx(f"'{call.opcode}'")
        added = ", ".join(call.cast(e, type) for e in call.vector(1, length))
        vector = f"simt::ptx::Vector<{type.cpp}, {length}>{{{{{added}}}}}"
        return f"simt::ptx::red({call.address(0, where)}, {vector}, {order}, {scope});"
    if type.bits < 16 or (operation in ("inc", "dec") and type.name != "u32"):
        raise UnmodelledPtx(f"'{call.opcode}'")
    address = call.address(int(returns), where)
    first = call.cast(returns + 1, type)
    if operation == "cas":
        second = call.cast(returns + 2, type)
        result = f"simt::ptx::cas<{type.cpp}>({address}, {first}, {second}, {order}, {scope})"
    else:
        change = f"simt::ptx::Change::{_CHANGES[operation]}"
        result = f"simt::ptx::atom<{change}, {type.cpp}>({address}, {first}, {order}, {scope})"
    return call.assign(0, type, result) if returns else f"{result};"


@instruction("membar", "fence")
def _fence(call: PtxCall) -> str:
    if call.flag("mbarrier_init"):
        call.need("release")
        call.need("cluster")
        call.count(0)
        return "simt::fence(simt::Scope::block);"
    call.take("sc", "acq_rel", "acquire", "release")
    proxy = call.take("proxy") and call.need("alias", "async", "async.global", "async.shared::cta")
    if proxy == "async":
        call.take("global", "shared::cta")
    scope = SCOPES[call.take(*SCOPES) or ("cta" if proxy else "gpu")]
    call.count(0)
    return f"simt::fence(simt::Scope::{scope});"


def cp_async(call: PtxCall) -> str:
    """cp.async of a thread's own bytes, whose first two parts are taken already."""
    if call.flag("commit_group"):
        call.count(0)
        return "simt::ptx::cp_async_commit();"
    if call.flag("wait_all"):
        call.count(0)
        return "simt::ptx::cp_async_wait(0, true);"
    if call.flag("wait_group"):
        call.count(1)
        return f"simt::ptx::cp_async_wait({call.constant(0)});"
    cache = call.need("ca", "cg")
    call.need("shared", "shared::cta")
    call.need("global")
    call.take("L2::64B", "L2::128B", "L2::256B")
    hinted = call.flag("L2::cache_hint")
    call.count(*((4, 5) if hinted else (3, 4)))
    size = call.constant(2)
    if cache == "cg" and size.strip("()").isdigit() and size.strip("()") != "16":
        raise UnmodelledPtx(f"'{call.opcode}' of {size} bytes; .cg copies 16")
    to, source = call.address(0, "shared"), call.address(1, "global")
    options = call.operands[3 : len(call.operands) - hinted]
    extra = ""
    if options and isinstance(options[0], Not | Register) and _is_predicate(options[0]):
        extra = f", {size}, {call.value(3, PRED)}"
    elif options:
        extra = f", {call.cast(3, S32)}"
    return f"simt::ptx::cp_async<{size}>({to}, {source}{extra});"


def _is_predicate(operand: Operand) -> bool:
    return isinstance(operand, Not) or (isinstance(operand, Register) and not operand.bits)
