"""Decoded instructions as LLVM writes them: for people, and to hold the decoder to an assembler."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from portkern.isa.executor import TABLES, ObjectProgram


class _Kind(IntEnum):
    NONE = 0
    VECTOR = 1
    SCALAR = 2
    CONSTANT = 3
    STATUS = 4


class _Flag(IntFlag):
    CLAMP = 1
    OFFEN = 2
    IDXEN = 4
    TO_LDS = 8
    DPP = 16
    SDWA = 32
    BOUND_ZERO = 64
    FETCH_INACTIVE = 128
    KEEP_UNUSED = 256
    RETURNS = 512
    DPP8 = 4096


class _Operand(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("constant", ctypes.c_uint8),
        ("count", ctypes.c_uint8),
        ("neg", ctypes.c_bool),
        ("abs", ctypes.c_bool),
        ("sext", ctypes.c_bool),
        ("dpp", ctypes.c_bool),
        ("part", ctypes.c_uint8),
        ("reg", ctypes.c_uint16),
        ("value", ctypes.c_uint32),
    )


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("model", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("pc", "next", "flags", "name")),
        ("o", _Operand * 6),
        ("imm", ctypes.c_int32),
        ("imm2", ctypes.c_int32),
        *(
            (name, ctypes.c_uint8)
            for name in (
                "opsel",
                "opsel_hi",
                "neg_lo",
                "neg_hi",
                "omod",
                "row_mask",
                "bank_mask",
                "dst_part",
                "cbsz",
                "abid",
                "blgp",
                "destinations",
            )
        ),
        ("dpp", ctypes.c_uint32),
        ("encoding", ctypes.c_uint8),
        ("words", ctypes.c_uint8),
    )


_FLOATS = {
    0x3F000000: "0.5",
    0xBF000000: "-0.5",
    0x3F800000: "1.0",
    0xBF800000: "-1.0",
    0x40000000: "2.0",
    0xC0000000: "-2.0",
    0x40800000: "4.0",
    0xC0800000: "-4.0",
    0x3E22F983: "0.15915494",
}
_SCALARS = {
    102: "flat_scratch",
    104: "xnack_mask",
    106: "vcc",
    124: "m0",
    126: "exec",
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
}
_WHOLE = frozenset((124, 235, 236, 237, 238, 251, 252, 253))
_TRAP = range(108, 124)
_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_OMOD = ("", " mul:2", " mul:4", " div:2")
#: DPP controls: those with a number of lanes by their upper bits, the others in full.
_ROW = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_newbcast"}
_DPP = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}
_NO_OPERAND = ("s_barrier", "s_icache_inv", "s_endpgm", "s_wakeup", "s_ttracedata")
_NO_SUFFIX = ("v_nop", "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32")
_MIXED = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
#: Where the bits of caching lie in a word of an encoding of CDNA.
_CACHING = {
    "FLAT": {"sc0": 16, "nt": 17, "sc1": 25},
    "MUBUF": {"sc0": 14, "nt": 17, "sc1": 15},
}


def text(program: ObjectProgram, wave_size: int) -> Iterator[tuple[int, str]]:
    """Address and text of each instruction of an object for CDNA, in an assembler's words."""
    if TABLES[program.object.processor] != "cdna":
        raise ValueError(f"Only CDNA's text is known, got {program.object.processor}")
    for address, words, instruction, encoding in _decoded(program, wave_size):
        name = program.name(instruction.name)
        if not name or words == (0,):  # zeros pad the space between functions
            yield address, "\n".join(f".long {word:#x}" for word in words)
        else:
            yield address, _Line(name, encoding, instruction, words).text()


def _decoded(
    program: ObjectProgram, wave_size: int
) -> Iterator[tuple[int, tuple[int, ...], _Instruction, str]]:
    for instruction, encoding in program.records(wave_size, _Instruction):
        raw = program.object.image[instruction.pc : instruction.next]
        words = tuple(int.from_bytes(raw[k : k + 4], "little") for k in range(0, len(raw), 4))
        yield instruction.pc, words, instruction, encoding


@dataclass(frozen=True)
class _Line:
    name: str
    encoding: str
    i: _Instruction
    words: tuple[int, ...]

    def text(self) -> str:
        parts = {
            "SOPP": self._sopp,
            "SOPK": self._sopk,
            "SMEM": self._smem,
            "DS": self._ds,
            "FLAT": self._flat,
            "GLOBAL": self._flat,
            "SCRATCH": self._flat,
            "MUBUF": self._buffer,
            "VOP3P": self._packed,
        }.get(self.encoding, self._plain)
        return parts().strip()

    def _bit(self, at: int) -> int:
        return self.words[0] >> at & 1

    def _said(self, *operands: str, after: str = "") -> str:
        return f"{self.name} {', '.join(operand for operand in operands if operand)}{after}"

    def _operands(self) -> list[str]:
        return [_operand(o) for o in self.i.o if o.kind != _Kind.NONE]

    def _plain(self) -> str:
        """Scalar and vector arithmetic: what was decoded, in its order."""
        if not self.encoding.startswith("VOP"):
            return self._said(*self._operands())
        name = self.name.removesuffix("_e32")
        flags = _Flag(self.i.flags)
        suffix = "_e64" if self.encoding.startswith("VOP3") else "_e32"
        after = _OMOD[self.i.omod]
        if _Flag.CLAMP in flags:
            after = f" clamp{after}"
        if _Flag.SDWA in flags:
            suffix, after = "_sdwa", after + self._sdwa()
        elif _Flag.DPP in flags:
            suffix, after = "_dpp", after + self._dpp()
        if name in _NO_SUFFIX:
            suffix = ""
        sources = len(self._operands()) - self.i.destinations
        if self.encoding == "VOP3" and self.i.opsel:
            after = f" op_sel:{_bits(self.i.opsel, sources, self.i.opsel >> 3 & 1)}{after}"
        return f"{name}{suffix} {', '.join(self._operands())}{after}"

    def _sdwa(self) -> str:
        first = self.i.destinations
        after = ""
        if self.encoding != "VOPC":
            unused = "UNUSED_PRESERVE" if _Flag.KEEP_UNUSED in _Flag(self.i.flags) else "UNUSED_PAD"
            after = f" dst_sel:{_PARTS[self.i.dst_part]} dst_unused:{unused}"
        after += f" src0_sel:{_PARTS[self.i.o[first].part]}"
        if self.encoding != "VOP1":
            after += f" src1_sel:{_PARTS[self.i.o[first + 1].part]}"
        return after

    def _dpp(self) -> str:
        control = self.i.dpp
        if control < 0x100:
            picked = ",".join(str(control >> 2 * k & 3) for k in range(4))
            how = f"quad_perm:[{picked}]"
        else:
            row = _ROW.get(control & 0x1F0, "")
            how = f"{row}:{control & 15}" if row else _DPP[control]
        bound = " bound_ctrl:0" if _Flag.BOUND_ZERO in _Flag(self.i.flags) else ""
        return f" {how} row_mask:{self.i.row_mask:#x} bank_mask:{self.i.bank_mask:#x}{bound}"

    def _packed(self) -> str:
        if self.name.startswith("v_accvgpr"):
            return self._said(*self._operands())
        if "mfma" in self.name:
            given = {"cbsz": self.i.cbsz, "abid": self.i.abid, "blgp": self.i.blgp}
            after = "".join(f" {name}:{value}" for name, value in given.items() if value)
            return self._said(*self._operands(), after=after)
        operands = self._operands()
        sources = len(operands) - 1
        after = ""
        if self.i.opsel:
            after += f" op_sel:{_bits(self.i.opsel, sources)}"
        usual = 0 if self.name in _MIXED else (1 << sources) - 1
        if self.i.opsel_hi & ((1 << sources) - 1) != usual:
            after += f" op_sel_hi:{_bits(self.i.opsel_hi, sources)}"
        if self.i.neg_lo:
            after += f" neg_lo:{_bits(self.i.neg_lo, sources)}"
        if self.i.neg_hi:
            after += f" neg_hi:{_bits(self.i.neg_hi, sources)}"
        if _Flag.CLAMP in _Flag(self.i.flags):
            after += " clamp"
        return self._said(*operands, after=after)

    def _sopp(self) -> str:
        return self.name if self.name in _NO_OPERAND else f"{self.name} {self.words[0] & 0xFFFF}"

    def _sopk(self) -> str:
        number = self.words[0] & 0xFFFF
        if self.name == "s_setreg_imm32_b32":
            return f"{self.name} {number:#x}, {self.words[1]:#x}"
        if self.name.startswith("s_setreg"):
            return f"{self.name} {number:#x}, {_operand(self.i.o[0])}"
        return f"{self.name} {_operand(self.i.o[0])}, {number:#x}"

    def _smem(self) -> str:
        data, base, offset = (_operand(self.i.o[k]) for k in range(3))
        if not data:
            return self.name
        if not offset:
            return f"{self.name} {data}, {base}, {self.i.imm:#x}"
        more = f" offset:{self.i.imm:#x}" if self.i.imm else ""
        return f"{self.name} {data}, {base}, {offset}{more}"

    def _ds(self) -> str:
        two = "2_" in self.name or "2st64" in self.name
        after = f" offset:{self.i.imm}" if self.i.imm and not two else ""
        if two:
            after = f" offset0:{self.i.imm}" if self.i.imm else ""
            after += f" offset1:{self.i.imm2}" if self.i.imm2 else ""
        return self._said(*self._operands(), after=after)

    def _caching(self, encoding: str) -> str:
        bits = _CACHING[encoding]
        return "".join(f" {name}" for name, at in bits.items() if self._bit(at))

    def _flat(self) -> str:
        result, address, data, base = (_operand(self.i.o[k]) for k in range(4))
        after = f" offset:{self.i.imm}" if self.i.imm else ""
        after += self._caching("FLAT")
        known = [result, address or "off", data]
        if self.encoding != "FLAT":
            known.append(base or "off")
        return self._said(*known, after=after)

    def _buffer(self) -> str:
        flags = _Flag(self.i.flags)
        data, address, resource, offset = (_operand(self.i.o[k]) for k in range(4))
        if not resource:
            return self.name + self._caching("MUBUF")
        after = " idxen" if _Flag.IDXEN in flags else ""
        after += " offen" if _Flag.OFFEN in flags else ""
        after += f" offset:{self.i.imm}" if self.i.imm else ""
        after += self._caching("MUBUF") + (" lds" if _Flag.TO_LDS in flags else "")
        first = "" if _Flag.TO_LDS in flags else data
        return self._said(first, address or "off", resource, offset, after=after)


def _bits(value: int, count: int, *more: int) -> str:
    return f"[{','.join(str(value >> k & 1) for k in range(count))}" + (
        f",{more[0]}]" if more else "]"
    )


def _operand(o: _Operand) -> str:
    kind = _Kind(o.kind)
    if kind is _Kind.NONE:
        return ""
    plain = _constant(o) if kind is _Kind.CONSTANT else _register(kind, o)
    if o.sext:
        plain = f"sext({plain})"
    if o.abs:
        plain = f"|{plain}|"
    if o.neg:
        return f"neg({plain})" if kind is _Kind.CONSTANT and not o.abs else f"-{plain}"
    return plain


def _constant(o: _Operand) -> str:
    literal, real = o.constant == 2, o.constant == 1
    if literal:
        return f"{o.value:#x}"
    if real:
        return _FLOATS[o.value]
    return str(o.value - (1 << 32) if o.value >> 31 else o.value)


def _register(kind: _Kind, o: _Operand) -> str:
    number = o.reg
    if kind is _Kind.VECTOR:
        letter, number = ("a", number - 256) if number >= 256 else ("v", number)
        return _span(letter, number, o.count)
    if number in _TRAP:
        return _span("ttmp", number - _TRAP.start, o.count)
    if number in _WHOLE:
        return _SCALARS[number]
    half = number - (number & 1)
    if number >= 102 and half in _SCALARS:
        name = _SCALARS[half]
        return name if o.count == 2 else f"{name}_{'hi' if number & 1 else 'lo'}"
    return _span("s", number, o.count)


def _span(letter: str, first: int, count: int) -> str:
    return f"{letter}{first}" if count == 1 else f"{letter}[{first}:{first + count - 1}]"
