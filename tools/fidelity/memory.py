"""Oracles of LDS and memory: loads, stores and atomics on a cell of each lane."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .floats import bf16
from .instructions import Row, span
from .oracle import TYPES, Array, Oracle, ordered
from .trial import Trial
from .values import Words

U32 = np.uint32
#: What the instruction does to a value of memory: it, and up to two values of the lane.
Change = Callable[[Array, Array, Array], Array]


def _pairs(add: Callable[[Array, Array], Array]) -> Change:
    def both(x: Array, a: Array, b: Array) -> Array:
        del b
        low, high = (add((x >> U32(s)).astype("u2"), (a >> U32(s)).astype("u2")) for s in (0, 16))
        return low.astype(U32) | high.astype(U32) << U32(16)

    return both


def _half_sum(x: Array, y: Array) -> Array:
    return np.asarray(x.view(np.float16) + y.view(np.float16)).view("u2")


def _bfloat_sum(x: Array, y: Array) -> Array:
    wide = [(v.astype(U32) << U32(16)).view(np.float32) for v in (x, y)]
    return bf16(wide[0] + wide[1])


CHANGES: dict[str, Change] = {
    "add": lambda x, a, b: x + a,
    "sub": lambda x, a, b: x - a,
    "rsub": lambda x, a, b: a - x,
    "inc": lambda x, a, b: np.where(x >= a, 0, x + x.dtype.type(1)),
    "dec": lambda x, a, b: np.where((x == 0) | (x > a), a, x - x.dtype.type(1)),
    # A NaN in memory stays; of RDNA4's, a number goes before it.
    "min": lambda x, a, b: np.where(a < x, a, x),
    "max": lambda x, a, b: np.where(a > x, a, x),
    "min_num": lambda x, a, b: ordered(x, a, least=True, ieee=False),
    "max_num": lambda x, a, b: ordered(x, a, least=False, ieee=False),
    "and": lambda x, a, b: x & a,
    "or": lambda x, a, b: x | a,
    "xor": lambda x, a, b: x ^ a,
    "mskor": lambda x, a, b: (x & ~a) | b,
    "swap": lambda x, a, b: a,
    #: gfx9 compares with the first value in LDS; else it is the second.
    "cmpst": lambda x, a, b: np.where(x == a, b, x),
    "cmpswap": lambda x, a, b: np.where(x == b, a, x),
    "wrap": lambda x, a, b: np.where(x >= a, x - a, x + b),
    "pk_add_f16": _pairs(_half_sum),
    "pk_add_bf16": _pairs(_bfloat_sum),
    "cond_sub": lambda x, a, b: np.where(x >= a, x - a, x),
    "sub_clamp": lambda x, a, b: np.where(x >= a, x - a, 0),
}
_SAME = {
    "wrxchg": "swap", "storexchg": "swap", "cmpstore": "cmpswap", "umin": "min", "umax": "max",
    "smin": "min", "smax": "max", "fmin": "min", "fmax": "max", "csub": "sub_clamp",
}  # fmt: skip


@dataclass(frozen=True)
class Atomic:
    """Reads a name: the change, the type of the value in memory."""

    change: str
    kind: str


def atomic(name: str) -> Atomic | None:
    """The atomic operation that a mnemonic without its space's name stands for."""
    plain = name.replace("_rtn", "").removeprefix("atomic_")
    if plain in ("pk_add_f16", "pk_add_bf16"):
        return Atomic(plain, "u32")
    wide = plain.endswith("_x2")
    plain = plain.removesuffix("_x2")
    match = re.fullmatch(r"(.+?)_([ubif])(32|64)", plain)
    operation, letter, bits = match.groups() if match else (plain, "", "64" if wide else "32")
    if letter in ("", "b"):
        letter = "i" if operation in ("smin", "smax") else "u"
    operation = _SAME.get(operation, operation)
    return Atomic(operation, f"{letter}{bits}") if operation in CHANGES else None


def values(words: Words, kind: str) -> Array:
    """The first values of a type in rows of words."""
    to = np.dtype(TYPES[kind])
    return np.ascontiguousarray(words[:, : to.itemsize // 4]).view(to).ravel()


def put(words: Words, value: Array) -> Words:
    changed = words.copy()
    bits = np.ascontiguousarray(value).view(U32).reshape(len(words), -1)
    changed[:, : bits.shape[1]] = bits
    return changed


@dataclass(frozen=True)
class Access:
    """An instruction on memory: ``result`` and ``cells`` after it, from the cells before and the
    lane's words."""

    function: Callable[[Words, Words, Words], tuple[Words | None, Words]]
    results: int


def of_atomic(one: Atomic, data: slice, second: slice, *, returns: bool) -> Access:
    wide = int(one.kind[1:]) // 32

    def run(cells: Words, words: Words, old: Words) -> tuple[Words | None, Words]:
        del old
        x, a, b = (values(w, one.kind) for w in (cells, words[:, data], words[:, second]))
        return cells[:, :wide] if returns else None, put(cells, CHANGES[one.change](x, a, b))

    return Access(run, wide if returns else 0)


_PART = {"u8": (255, 0), "ubyte": (255, 0), "i8": (255, 128), "sbyte": (255, 128)}
_PART |= {"u16": (0xFFFF, 0), "ushort": (0xFFFF, 0), "i16": (0xFFFF, 0x8000)}
_PART |= {"sshort": (0xFFFF, 0x8000), "short": (0xFFFF, 0), "byte": (255, 0), "b16": (0xFFFF, 0)}
_PART |= {"b8": (255, 0)}


def of_load(kind: str) -> Access | None:
    """A load into registers: whole words, or a part that is extended or goes to one half."""
    match = re.fullmatch(r"(?:b|dwordx?)(\d*)", kind)
    if match:
        bits = match[1] or ("1" if kind.startswith("d") else "")
        words = int(bits) // (32 if kind.startswith("b") else 1) if bits else 0
        if words in (1, 2, 3, 4):
            return Access(lambda cells, w, old: (cells[:, :words], cells), words)
    high = "_hi" in kind
    half = "d16" in kind
    part = _PART.get(re.sub(r"_?d16|_?hi", "", kind).strip("_"))
    if part is None:
        return None
    mask, sign = part

    def run(cells: Words, words: Words, old: Words) -> tuple[Words, Words]:
        del words
        value = ((cells[:, 0] & U32(mask)) ^ U32(sign)) - U32(sign)
        if half:
            value = value & U32(0xFFFF)
            kept = old[:, 0]
            value = (
                kept & U32(0xFFFF) | value << U32(16) if high else kept & U32(0xFFFF0000) | value
            )
        return value[:, None], cells

    return Access(run, 1)


def of_store(kind: str, data: slice) -> Access | None:
    match = re.fullmatch(r"(?:b|dwordx?)(\d*)", kind)
    words = 0
    if match and kind not in ("b8", "b16"):
        words = int(match[1]) // 32 if kind.startswith("b") else int(match[1] or 1)
    part = _PART.get(re.sub(r"_?d16|_?hi", "", kind).strip("_"))
    if words not in (1, 2, 3, 4) and part is None:
        return None
    by = 16 if "_hi" in kind else 0

    def run(cells: Words, given: Words, old: Words) -> tuple[None, Words]:
        del old
        changed, from_ = cells.copy(), given[:, data]
        if words:
            changed[:, :words] = from_[:, :words]
        elif part is not None:
            mask = U32(part[0])
            changed[:, 0] = cells[:, 0] & ~mask | from_[:, 0] >> U32(by) & mask
        return None, changed

    return Access(run, 0)


_UNUSED = Oracle("", (), lambda: None, "memory")


def trials(family: str, rows: Sequence[Row]) -> Iterator[Trial]:
    """Instructions of LDS, of global, flat, scratch memory and of buffers."""
    spaces = {"GLOBAL": "global", "VGLOBAL": "global", "FLAT": "flat", "VFLAT": "flat"}
    spaces |= {"MUBUF": "buffer", "VBUFFER": "buffer"}
    for row in rows:
        if row.encoding in ("DS", "VDS"):
            yield from _local(row)
        elif row.encoding in ("SCRATCH", "VSCRATCH"):
            yield from _scratch(row, family)
        elif row.encoding in spaces:
            yield from _global(row, spaces[row.encoding], family)


FIRST, SECOND = slice(0, 4), slice(2, 4)


def _local(row: Row) -> Iterator[Trial]:
    name = row.name.removeprefix("ds_")
    returns = row.bits("vdst") > 0
    group = "LDS"
    access: Access | None = None
    ending = ""
    two = re.fullmatch(r"(read|load|write|store)_?(?:2addr|2)(_?st(?:ride)?64)?_b(32|64)", name)
    if two:
        access, ending = _two(two[1] in ("read", "load"), bool(two[2]), int(two[3]) // 32)
    elif match := re.fullmatch(r"(read|load)_(.*)", name):
        access = of_load(match[2])
    elif match := re.fullmatch(r"(write|store)_(.*)", name):
        access = of_store(match[2], FIRST)
    elif known := atomic(name):
        access = of_atomic(known, FIRST, SECOND, returns=returns)
        group = "atomics of LDS"
    if access is None or "addtid" in name:
        return
    operands = [span("v", 40, row.bits("vdst"))] if returns else []
    operands.append("v29")
    if row.bits("data0"):
        operands.append(span("v", 32, row.bits("data0")))
    if row.bits("data1"):
        operands.append(span("v", 34, row.bits("data1")))
    line = f"{row.name} {', '.join(operands)}{ending}"
    yield Trial(f"{row.name}_lds", row.name, line, _oracle(group), access=access, local=True)


def _two(loads: bool, far: bool, words: int) -> tuple[Access, str]:
    """Two places: of one cell, or of the lane's second cell, 1,024 bytes away."""
    ending = f" offset1:{4 // words if far else 1}"
    second = 4 if far else words

    def run(cells: Words, given: Words, old: Words) -> tuple[Words | None, Words]:
        del old
        if loads:
            both = np.concatenate([cells[:, :words], cells[:, second : second + words]], 1)
            return both, cells
        changed = cells.copy()
        changed[:, :words] = given[:, :words]
        changed[:, second : second + words] = given[:, 2 : 2 + words]
        return None, changed

    return Access(run, 2 * words if loads else 0), ending


def _scratch(row: Row, family: str) -> Iterator[Trial]:
    """The lane's own memory holds its third source before; what it holds afterwards comes back in
    place of the lane's cell of LDS."""
    name = row.name.removeprefix("scratch_")
    four = "dwordx4" if family == "cdna" else "b128"
    match = re.fullmatch(r"(load|store)_(.*)", name)
    if match is None:
        return
    access = of_load(match[2]) if match[1] == "load" else of_store(match[2], FIRST)
    if access is None:
        return
    if match[1] == "load":
        line = f"{row.name} {span('v', 40, row.bits('vdst'))}, off, off offset:16"
    else:
        line = (
            f"{row.name} off, {span('v', 32, row.bits('data') or row.bits('vsrc'))}, off offset:16"
        )
    store, write = ("ds_write_b128", f"scratch_store_{four}") if family == "cdna" else (
        "ds_store_b128", f"scratch_store_{four}"
    )  # fmt: skip
    after = f"scratch_load_{four} v[52:55], off, off offset:16\n{{wait}}\n{store} v29, v[52:55]"
    yield Trial(
        f"{row.name}_scratch", row.name, line, _oracle("loads and stores"), access=access,
        local=True, before=f"{write} off, v[36:39], off offset:16\n{{wait}}", after=after,
    )  # fmt: skip


def _oracle(group: str) -> Oracle:
    return Oracle("", ("u32", "u32"), lambda *_: None, group)


def _global(row: Row, space: str, family: str) -> Iterator[Trial]:
    name = row.name.removeprefix(f"{space}_")
    access: Access | None = None
    returning = [False]
    if match := re.fullmatch(r"load_(.*)", name):
        access = of_load(match[1])
    elif match := re.fullmatch(r"store_(.*)", name):
        access = of_store(match[1], FIRST)
    elif name.startswith("atomic_"):
        returning = [False, True]
    for returns in returning:
        if name.startswith("atomic_"):
            known = atomic(name)
            if known is None:
                return
            width = int(known.kind[1:]) // 32
            access = of_atomic(known, FIRST, slice(width, width + 2), returns=returns)
        if access is None:
            return
        ending = ""
        if returns:
            ending = {"cdna": " sc0", "rdna3": " glc", "rdna4": " th:TH_ATOMIC_RETURN"}[family]
        data = row.bits("data") or row.bits("vsrc") or row.bits("vdata")
        before = after = ""
        if space == "buffer":
            before = (
                f"s_mov_b32 s12, s8\ns_and_b32 s13, s9, 0xffff\ns_mov_b32 s14, 0x7fffffff\n"
                f"s_mov_b32 s15, {'0x00027000' if family == 'cdna' else '0x31014000'}"
            )
            loads = name.startswith("load")
            register = span("v", 40 if loads else 32, data)
            zero = "null" if family == "rdna4" else "0"
            line = f"{row.name} {register}, v30, s[12:15], {zero} offen{ending}"
            if returns:
                after = "\n".join(
                    f"v_mov_b32_e32 v{40 + k}, v{32 + k}" for k in range(access.results)
                )
        else:
            operands = []
            if name.startswith("load") or returns:
                operands.append(span("v", 40, row.bits("vdst")))
            operands.append("v[26:27]")
            if not name.startswith("load"):
                operands.append(span("v", 32, data))
            if space == "global":
                operands.append("off")
            line = f"{row.name} {', '.join(operands)}{ending}"
        kind = "atomics of memory" if name.startswith("atomic") else "loads and stores"
        kernel = f"{row.name}_{space}{'_returns' if returns else ''}"
        yield Trial(
            kernel, row.name, line, _oracle(kind), access=access, before=before, after=after
        )
