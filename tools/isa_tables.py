"""Writes the instruction tables of AMD's GPUs: ``python -m tools.isa_tables WHEEL [--check]``.

WHEEL is an unpacked wheel of tinygrad (MIT), whose ``runtime/autogen/amd`` restates AMD's
machine-readable ISA description (GPUOpen, MIT). What is taken are facts: names, opcodes and where
fields lie. Graphics encodings (images, exports, interpolation) are left out: kernels have none.

A table has two kinds of lines, tab-separated: an encoding (its name, its words, the bits that tell
it from others, its fields) and an instruction (encoding, opcode, name, operands with their bits).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

FAMILIES = {"cdna": "CDNA3 and CDNA4", "rdna3": "RDNA3", "rdna4": "RDNA4"}
OUT = Path(__file__).parents[1] / "portkern" / "isa" / "tables"
_GRAPHICS = ("EXP", "LDSDIR", "MIMG", "VINTERP", "VDSDIR", "VEXPORT", "VIMAGE", "VSAMPLE")
#: Operands of instructions that the description has by name alone.
_OPERANDS = {
    "v_mfma_f32_16x16x8_xf32": "src0:64 src1:64 src2:128 vdst:128",
    "v_mfma_f32_32x32x4_xf32": "src0:64 src1:64 src2:512 vdst:512",
}
#: The description keeps the names of older, unfused instructions at the opcodes of fused ones.
_RENAMED = {f"v_mad_{mix}": f"v_fma_{mix}" for mix in ("mix_f32", "mixlo_f16", "mixhi_f16")}
#: Encodings that differ from a plain one in the word behind it, which the decoder reads itself.
_SUFFIXES = ("_LIT", "_DPP16", "_DPP8", "_SDWA", "_SDST", "_MFMA")
_SCALAR = ("OPR_SREG", "OPR_SDST", "OPR_EXEC", "OPR_SSRC", "OPR_VCC")
NOTICE = """\
# Instructions of AMD {title}, by tools/isa_tables.py from tinygrad {version}
# (MIT, Copyright (c) 2024 the tiny corp), which takes them from AMD's machine-readable ISA
# description (GPUOpen, MIT, Copyright (c) Advanced Micro Devices, Inc.).
"""


def fields(encoding: type) -> dict[str, tuple[int, int]]:
    found = {}
    for name, field in vars(encoding).items():
        if hasattr(field, "lo") and hasattr(field, "hi"):
            found[name] = (field.hi, field.lo)
    return found


def fixed(encoding: type) -> Iterator[tuple[int, int, int]]:
    for field in vars(encoding).values():
        if type(field).__name__ == "FixedBitField":
            yield field.hi, field.lo, int(field.default)


def encodings(module: Any) -> Iterator[tuple[str, type]]:
    for name, value in sorted(vars(module).items()):
        if name.endswith(_SUFFIXES) or name.startswith(_GRAPHICS):
            continue
        if isinstance(value, type) and "encoding" in vars(value):
            yield name, value


def operand(encoding: str, name: str, bits: int, kind: str) -> str:
    """``vdst:64s`` is a pair of scalar registers where the field is a vector register's."""
    scalar = name == "vdst" and kind.startswith(_SCALAR)
    if name == "vsrc0" and encoding.startswith("VOP3"):
        name = "src0"  # the source of the plain encoding that the entry was taken from
    return f"{name}:{bits}{'s' if scalar else ''}"


def mnemonic(opcode: Any) -> str:
    """An assembler's name, without the suffix that says which of two encodings it is in."""
    name = str(opcode.name).lower().removesuffix("_e32").removesuffix("_e64")
    return _RENAMED.get(name, name)


def table(family: str, version: str) -> str:
    package = f"tinygrad.runtime.autogen.amd.{family}"
    instructions = import_module(f"{package}.ins")
    operands = import_module(f"{package}.operands").OPERANDS
    lines = [NOTICE.format(title=FAMILIES[family], version=version).rstrip()]
    listed = dict(encodings(instructions))
    for name, encoding in listed.items():
        places = fields(encoding)
        words = max(hi for hi, _ in places.values()) // 32 + 1
        bits = " ".join(f"{hi}:{lo}:{value}" for hi, lo, value in fixed(encoding))
        spans = (f"{field}:{hi}:{lo}" for field, (hi, lo) in places.items() if field != "encoding")
        lines.append("\t".join(("encoding", name, str(words), bits, " ".join(spans))))
    rows = []
    for opcode, used in operands.items():
        name = type(opcode).__name__.removesuffix("Op")
        if name in listed:
            parts = (operand(name, k, bits, kind.name) for k, (_, bits, kind) in used.items())
            rows.append((name, opcode.value, mnemonic(opcode), " ".join(parts)))
    seen = {(name, number) for name, number, *_ in rows}
    enums = import_module(f"{package}.enum")
    for name in listed:  # instructions without operands are in the enumeration alone
        for opcode in getattr(enums, f"{name}Op", ()):
            if (name, opcode.value) not in seen:
                known = mnemonic(opcode)
                rows.append((name, opcode.value, known, _OPERANDS.get(known, "")))
    lines += ["\t".join(map(str, row)) for row in sorted(rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="folder in which a wheel of tinygrad is unpacked")
    parser.add_argument("--check", action="store_true", help="fail if a table differs")
    given = parser.parse_args()
    sys.path.insert(0, str(given.wheel))
    [info] = given.wheel.glob("tinygrad-*.dist-info")
    version = info.name.removeprefix("tinygrad-").removesuffix(".dist-info")
    stale = []
    for family in FAMILIES:
        file, text = OUT / f"{family}.tsv", table(family, version)
        if not given.check:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            stale.append(file.name)
    if stale:
        sys.exit(f"Not what the wheel says: {', '.join(stale)}; run without --check")


if __name__ == "__main__":
    main()
