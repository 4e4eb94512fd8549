"""The instructions of a set that are tried: rows of the executor's tables as assembler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from portkern.isa.runtime_library import TABLES

#: The processor that stands for a family, and its wave.
PROCESSORS = {"cdna": ("gfx950", 64), "rdna3": ("gfx1100", 32), "rdna4": ("gfx1201", 32)}
_PLAIN = ("VOP1", "VOP2", "VOPC")
#: Vector registers of the sources, of what the destination holds before, and of a constant.
SOURCES, OLD = (32, 34, 36), 40


@dataclass(frozen=True)
class Row:
    """A line of a table: what is encoded where, and the bits of each operand (64s: scalar)."""

    encoding: str
    name: str
    operands: dict[str, str] = field(default_factory=dict)

    def bits(self, operand: str) -> int:
        return int(self.operands.get(operand, "0").rstrip("s"))

    @property
    def sources(self) -> tuple[int, ...]:
        known = (self.bits(k) for k in ("src0", "vsrc1", "src1", "src2"))
        return tuple(bits for bits in known if bits)


def rows(family: str, folder: Path = TABLES) -> Iterator[Row]:
    """The instructions of a family's table, in its order."""
    for line in (folder / f"{family}.tsv").read_text(encoding="utf-8").splitlines():
        if line.startswith(("#", "encoding\t")):
            continue
        encoding, _, name, operands = (line + "\t").split("\t")[:4]
        pairs = ((k, v) for k, _, v in (one.partition(":") for one in operands.split()))
        yield Row(encoding, name, dict(pairs))


def span(letter: str, first: int, bits: int) -> str:
    words = max(1, (bits + 31) // 32)
    return f"{letter}{first}" if words == 1 else f"{letter}[{first}:{first + words - 1}]"


@dataclass(frozen=True)
class Text:
    """How an instruction is written: ``mask_in_vcc`` where its mask of lanes is VCC."""

    line: str
    mask_in_vcc: bool


def vector(row: Row, family: str, known: set[str], modifiers: str = "", signs: str = "") -> Text:
    """An instruction of the vector unit. ``signs`` has a letter for each source: ``-`` negative,
    ``|`` absolute, ``+`` both; ``known`` are names that a plain encoding has too."""
    plain, wave = row.encoding in _PLAIN, PROCESSORS[family][1]
    compare, name = row.name.startswith("v_cmp"), row.name
    if plain or name in known:
        name += "_e32" if plain else "_e64"
    vcc = "vcc" if wave == 64 else "vcc_lo"
    pair, given = ("s[20:21]", "s[22:23]") if wave == 64 else ("s20", "s22")
    operands = []
    if compare and not (row.name.startswith("v_cmpx") and family != "cdna"):
        operands.append(vcc if plain else pair)
    elif row.bits("vdst") and not compare:
        operands.append(span("v", OLD, row.bits("vdst")))
    carries = "_co_" in row.name and row.name.startswith(("v_add", "v_sub"))
    if row.encoding == "VOP3SD":
        operands.append(pair)
    elif carries and plain:
        operands.append(vcc)
    sources = list(row.sources)
    takes_mask = row.name.startswith("v_cndmask") or (carries and _carry_in(row.name))
    if takes_mask and not plain:
        sources = sources[:2]
    for k, bits in enumerate(sources):
        register = span("v", SOURCES[k], bits)
        sign = signs[k : k + 1]
        if sign in ("|", "+"):
            register = f"|{register}|"
        operands.append(f"-{register}" if sign in ("-", "+") else register)
    if takes_mask:
        operands.append(vcc if plain else given)
    constant = "0x4940" if row.name.endswith("f16") else "0x41280000"  # 10.5
    if row.name.startswith(("v_fmaak", "v_madak")):
        operands.append(constant)
    if row.name.startswith(("v_fmamk", "v_madmk")):
        operands.insert(2, constant)
    line = f"{name} {', '.join(operands)} {modifiers}".rstrip()
    return Text(line, plain)


def _carry_in(name: str) -> bool:
    return "addc" in name or "subb" in name or "_co_ci_" in name


#: The values of instructions that have a number of 16 bits in them.
NUMBERS = (0x7FFF, 0x8001, 5)


def scalar(row: Row, number: int = 0) -> str:
    """An instruction of the scalar unit."""
    operands = []
    if row.bits("sdst"):
        operands.append(span("s", OLD, row.bits("sdst")))
    if row.encoding == "SOPK":
        operands.append(f"{number:#x}")
    for k, name in enumerate(("ssrc0", "ssrc1")):
        if row.bits(name):
            operands.append(span("s", SOURCES[k], row.bits(name)))
    if row.name == "s_fmaak_f32":
        operands.append("0x41280000")
    if row.name == "s_fmamk_f32":
        operands.insert(2, "0x41280000")
    return f"{row.name} {', '.join(operands)}"
