"""PTX instructions: what each one's modifiers and operands mean as calls of ``simt::ptx``.

``write`` looks the first part of an opcode up among the functions marked ``@instruction``. Each
takes its modifiers and operands from a ``Call``; what it leaves over is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class UnmodelledPtx(Exception):
    """An instruction, or a use of one, that has no translation; ``code`` says which kind."""

    def __init__(self, message: str, code: str = "SX001") -> None:
        super().__init__(message)
        self.code = code


# -- types and operands


@dataclass(frozen=True)
class Type:
    """A PTX type: ``kind`` is u, s or b for integers, f for floats, p for pairs."""

    name: str
    bits: int
    kind: str
    cpp: str

    @property
    def integer(self) -> bool:
        return self.kind in "usb"

    @property
    def wide(self) -> Type:
        return TYPES[f"{self.kind}{self.bits * 2}"]


def _types() -> dict[str, Type]:
    types = {}
    for bits in (8, 16, 32, 64):
        types[f"u{bits}"] = Type(f"u{bits}", bits, "u", f"uint{bits}_t")
        types[f"s{bits}"] = Type(f"s{bits}", bits, "s", f"int{bits}_t")
        types[f"b{bits}"] = Type(f"b{bits}", bits, "b", f"uint{bits}_t")
    types["f32"], types["f64"] = Type("f32", 32, "f", "float"), Type("f64", 64, "f", "double")
    for name in ("f16", "bf16", "e4m3", "e5m2"):
        bits = 16 if name.endswith("16") else 8
        types[name] = Type(name, bits, "f", f"simt::{name}")
        types[f"{name}x2"] = Type(f"{name}x2", 2 * bits, "p", f"simt::ptx::Pair<simt::{name}>")
    types["u16x2"] = Type("u16x2", 32, "p", "simt::ptx::Pair<uint16_t>")
    types["s16x2"] = Type("s16x2", 32, "p", "simt::ptx::Pair<int16_t>")
    types["tf32"] = Type("tf32", 32, "f", "float")
    types["pred"] = Type("pred", 0, "b", "bool")
    return types


TYPES = _types()
REGISTER_BITS = {t.name: t.bits for t in TYPES.values() if t.kind in "usb"} | {
    "f16": 16,
    "f16x2": 32,
    "f32": 32,
    "f64": 64,
}


@dataclass(frozen=True)
class Register:
    """A C++ variable; 0 bits: a predicate, which is a bool."""

    cpp: str
    bits: int


@dataclass(frozen=True)
class Constant:
    """A C++ constant expression; ``bits`` are those of a lone hexadecimal float."""

    cpp: str
    bits: int | None = None


@dataclass(frozen=True)
class Special:
    """A special register as a C++ expression of ``bits`` bits."""

    cpp: str
    bits: int


@dataclass(frozen=True)
class Sink:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True)
class Not:
    """A negated predicate."""

    register: Register


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    at: tuple[Operand, ...]


@dataclass(frozen=True)
class Both:
    """Two results, as in ``p|q``."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Address:
    """``[base + offset]``; no offset is empty text."""

    base: Operand
    offset: str


@dataclass(frozen=True)
class Box:
    """``[map, {coordinates}]``: a box of a tensor."""

    map: Address
    coordinates: Vector


Operand = Register | Constant | Special | Sink | Not | Vector | Both | Address | Box

_SPECIAL: Mapping[str, tuple[str, int]] = {
    **{f"tid.{axis}": (f"threadIdx.{axis}", 32) for axis in "xyz"},
    **{f"ntid.{axis}": (f"blockDim.{axis}", 32) for axis in "xyz"},
    **{f"ctaid.{axis}": (f"blockIdx.{axis}", 32) for axis in "xyz"},
    **{f"nctaid.{axis}": (f"gridDim.{axis}", 32) for axis in "xyz"},
    "laneid": ("simt::ptx::lane()", 32),
    "warpid": ("simt::thread_rank() / 32", 32),
    "nwarpid": ("simt::ptx::warps()", 32),
    "smid": ("simt::ptx::block_rank() % simt::ptx::multiprocessors()", 32),
    "nsmid": ("simt::ptx::multiprocessors()", 32),
    "gridid": ("uint64_t(0)", 64),
    "lanemask_eq": ("1u << simt::ptx::lane()", 32),
    "lanemask_lt": ("simt::ptx::lanemask_lt()", 32),
    "lanemask_le": ("simt::ptx::lanemask_le()", 32),
    "lanemask_gt": ("~simt::ptx::lanemask_le()", 32),
    "lanemask_ge": ("~simt::ptx::lanemask_lt()", 32),
    "clock": ("uint32_t(simt::device_clock())", 32),
    "clock_hi": ("uint32_t(simt::device_clock() >> 32)", 32),
    "clock64": ("uint64_t(simt::device_clock())", 64),
    "globaltimer": ("uint64_t(simt::device_clock())", 64),
    "globaltimer_lo": ("uint32_t(simt::device_clock())", 32),
    "globaltimer_hi": ("uint32_t(simt::device_clock() >> 32)", 32),
    "dynamic_smem_size": ("uint32_t(simt::dynamic_shared_bytes())", 32),
    # clusters of one block
    "cluster_ctarank": ("0u", 32),
    "cluster_nctarank": ("1u", 32),
    **{f"cluster_ctaid.{axis}": ("0u", 32) for axis in "xyz"},
    **{f"cluster_nctaid.{axis}": ("1u", 32) for axis in "xyz"},
    **{f"clusterid.{axis}": (f"blockIdx.{axis}", 32) for axis in "xyz"},
    **{f"nclusterid.{axis}": (f"gridDim.{axis}", 32) for axis in "xyz"},
}


def special(name: str) -> Special:
    if name not in _SPECIAL:
        raise UnmodelledPtx(
            f"'%{name}', which is not a register of this asm statement and no special one"
        )
    cpp, bits = _SPECIAL[name]
    return Special(f"({cpp})", bits)


def number(text: str) -> tuple[str, int | None]:
    """A PTX number in C++, and its bits if it is a hexadecimal float."""
    if text[:2] in ("0f", "0F"):
        return f"simt::ptx::literal<float>(0x{text[2:]}u)", int(text[2:], 16)
    if text[:2] in ("0d", "0D"):
        return f"simt::ptx::literal<double>(0x{text[2:]}ull)", int(text[2:], 16)
    if "." in text:
        return text, None
    return text.rstrip("U") + ("u" if text.endswith("U") else ""), None


# -- one instruction while it is read


class PtxCall:
    """An opcode's modifiers, each taken once, and its operands."""

    def __init__(self, opcode: str, operands: Sequence[Operand]) -> None:
        self.opcode = opcode
        self.name, *self.rest = opcode.split(".")
        self.operands = operands

    def flag(self, name: str) -> bool:
        return bool(self.take(name))

    def take(self, *names: str) -> str:
        """The first modifier among ``names`` that is there, or nothing."""
        for name in self.rest:
            if name in names:
                self.rest.remove(name)
                return name
        return ""

    def need(self, *names: str) -> str:
        taken = self.take(*names)
        if not taken:
            raise UnmodelledPtx(f"'{self.opcode}' without one of .{', .'.join(names)}")
        return taken

    def type(self, *names: str) -> Type:
        """The next type, which must be one of ``names`` if any are given."""
        for name in self.rest:
            if name in TYPES:
                self.rest.remove(name)
                if names and name not in names:
                    raise UnmodelledPtx(f"'{self.opcode}' of type .{name}")
                return TYPES[name]
        raise UnmodelledPtx(f"'{self.opcode}' without a type")

    def count(self, *counts: int) -> None:
        """Checks that all modifiers were understood and that the operands are so many."""
        if self.rest:
            raise UnmodelledPtx(f"'{self.opcode}' (.{self.rest[0]})")
        self.arity(*counts)

    def arity(self, *counts: int) -> None:
        if len(self.operands) not in counts:
            wanted = " or ".join(str(c) for c in counts)
            raise UnmodelledPtx(f"'{self.opcode}' with {len(self.operands)} operands, not {wanted}")

    # -- operands as C++

    def value(self, at: int | Operand, type: Type, *, wider: bool = False) -> str:
        """Operand ``at`` as ``type``; ``wider``: its register may be wider than that."""
        operand = self.operands[at] if isinstance(at, int) else at
        if isinstance(operand, Register):
            self._check(operand.bits, type.bits, wider)
            return operand.cpp
        if isinstance(operand, Special):
            return f"static_cast<{type.cpp}>{operand.cpp}"
        if isinstance(operand, Not) and not type.bits:
            return f"!{operand.register.cpp}"
        if not isinstance(operand, Constant):
            raise UnmodelledPtx(f"'{self.opcode}' with such an operand")
        if operand.bits is not None and type.integer and type.bits:
            return f"static_cast<{type.cpp}>({operand.bits:#x}ull)"
        if operand.bits is None and type.name not in ("f32", "f64") and not type.integer:
            return f"simt::ptx::literal<{type.cpp}>({operand.cpp})"
        return f"static_cast<{type.cpp}>({operand.cpp})"

    def cast(self, at: int | Operand, type: Type, *, wider: bool = False) -> str:
        """The same, where C++ would not know the type from the function's parameters."""
        return f"simt::ptx::as<{type.cpp}>({self.value(at, type, wider=wider)})"

    def values(self, types: Sequence[Type], start: int = 1) -> str:
        return ", ".join(self.value(start + i, t) for i, t in enumerate(types))

    def constant(self, at: int) -> str:
        operand = self.operands[at]
        if not isinstance(operand, Constant):
            raise UnmodelledPtx(f"'{self.opcode}' whose operand {at} is not a constant")
        return operand.cpp

    def assign(self, at: int | Operand, type: Type, value: str, *, wider: bool = False) -> str:
        """``value`` goes to operand ``at``."""
        operand = self.operands[at] if isinstance(at, int) else at
        if isinstance(operand, Sink):
            return f"(void)({value});"
        if not isinstance(operand, Register):
            raise UnmodelledPtx(f"'{self.opcode}' that writes to no register")
        self._check(operand.bits, type.bits, wider)
        return f"{operand.cpp} = {value};"

    def vector(self, at: int, *counts: int) -> tuple[Operand, ...]:
        """The elements of a vector operand; a lone operand is a vector of one."""
        operand = self.operands[at]
        elements = operand.at if isinstance(operand, Vector) else (operand,)
        if len(elements) not in counts:
            wanted = " or ".join(str(c) for c in counts)
            raise UnmodelledPtx(f"'{self.opcode}' with {len(elements)} registers, not {wanted}")
        return elements

    def registers(self, at: int, count: int, bits: int, *, written: bool = False) -> str:
        """A vector operand as C++ registers in braces, or their addresses."""
        parts = []
        for element in self.vector(at, count):
            if isinstance(element, Constant) and not written:
                parts.append(f"simt::ptx::Register<{bits // 8}>({element.cpp})")
                continue
            if not isinstance(element, Register):
                raise UnmodelledPtx(f"'{self.opcode}' with such an operand")
            self._check(element.bits, bits, False)
            parts.append(f"&{element.cpp}" if written else element.cpp)
        return f"{{{', '.join(parts)}}}"

    def address(self, at: int | Operand, space: str) -> str:
        operand = self.operands[at] if isinstance(at, int) else at
        if not isinstance(operand, Address):
            which = f"whose operand {at}" if isinstance(at, int) else "with an operand that"
            raise UnmodelledPtx(f"'{self.opcode}' {which} is not an address")
        base = operand.base
        if isinstance(base, Register) and base.bits not in (
            (32, 64) if space == "shared" else (64,)
        ):
            raise UnmodelledPtx(f"'{self.opcode}' with an address of {base.bits} bits")
        if not isinstance(base, Register | Constant):
            raise UnmodelledPtx(f"'{self.opcode}' with such an address")
        function = "shared_at" if space == "shared" else "flat_at"
        offset = f", {operand.offset}" if operand.offset else ""
        return f"simt::ptx::{function}({base.cpp}{offset})"

    def both(self, at: int) -> tuple[Operand, Operand]:
        """The results of ``d|p``; a lone one has nobody beside it."""
        operand = self.operands[at]
        if isinstance(operand, Both):
            return operand.first, operand.second
        return operand, Sink()

    def _check(self, bits: int, wanted: int, wider: bool) -> None:
        if bits == wanted or (wider and bits > wanted > 0):
            return
        have = f"{bits} bits" if bits else "a predicate"
        want = f"{wanted} bits are" if wanted else "a predicate is"
        raise UnmodelledPtx(f"'{self.opcode}' with {have} where {want} wanted")


Writer = Callable[[PtxCall], str]
_writers: dict[str, Writer] = {}


def instruction(*names: str) -> Callable[[Writer], Writer]:
    def mark(writer: Writer) -> Writer:
        _writers.update(dict.fromkeys(names, writer))
        return writer

    return mark


def known(opcode: str) -> bool:
    return opcode.split(".")[0] in _writers


def write(opcode: str, operands: Sequence[Operand]) -> str:
    """One instruction as C++ statements."""
    call = PtxCall(opcode, operands)
    return _writers[call.name](call)


U32, U64, S32, PRED, F32 = (TYPES[name] for name in ("u32", "u64", "s32", "pred", "f32"))
