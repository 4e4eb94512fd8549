"""All trials of a family: each instruction that has a model, in each encoding, with modifiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from portkern.isa import runtime_library

from . import floats, integers, machine
from .instructions import PROCESSORS, Row, rows, vector
from .oracle import Array, Oracle, Table
from .trial import Trial, Verdict, judge

_VECTOR = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")
_PLAIN = ("VOP1", "VOP2", "VOPC")
MASK, EXEC = 4, 5


def oracles(family: str) -> Table:
    table = Table()
    integers.table(table, family)
    floats.table(table, family)
    return table


def modelled(family: str) -> list[Row]:
    """The rows of a table that the executor has a model for."""
    library = runtime_library.load()
    return [row for row in rows(family) if library.isa_has_model(row.name.encode())]


def clamped(x: Array) -> Array:
    """What the modifier ``clamp`` makes of a float: NaN and -0 become 0."""
    return np.where(x > 0, np.where(x < 1, x, 1), 0).astype(x.dtype)


@dataclass(frozen=True)
class Variant:
    suffix: str
    modifiers: str = ""
    signs: str = ""
    clamps: bool = False


_SIGNED = (
    Variant("_neg", signs="-+|"),
    Variant("_abs", signs="|-+"),
)
#: Ignored: results may be denormals.
_SCALED = (Variant("_mul2", "mul:2"), Variant("_div2", "div:2"))
_CLAMPED = (Variant("_clamp", "clamp", clamps=True),)


def variants(row: Row, oracle: Oracle) -> Iterator[Variant]:
    yield Variant("")
    if row.encoding not in ("VOP3", "VOP3SD"):
        return
    sources = oracle.inputs
    real = [source.startswith("f") for source in sources]
    if sources and all(real) and row.name not in ("v_pack_b32_f16",):
        yield from _SIGNED
    if oracle.result.startswith("f") and row.encoding == "VOP3":
        yield from _CLAMPED
        if oracle.result != "f16":
            yield from _SCALED


def trials(family: str, table: Mapping[str, Oracle]) -> list[Trial]:
    every = modelled(family)
    plain = {row.name for row in every if row.encoding in _PLAIN}
    found = []
    for row in every:
        oracle = table.get(row.name)
        if row.encoding not in _VECTOR or oracle is None or oracle.wave:
            continue
        for variant in variants(row, oracle):
            text = vector(row, family, plain, variant.modifiers, variant.signs)
            to_exec_alone = oracle.to_exec and family != "cdna"
            found.append(
                Trial(
                    f"{row.name}_{row.encoding}{variant.suffix}".lower(),
                    row.name,
                    text.line,
                    oracle,
                    mask_in_vcc=text.mask_in_vcc,
                    masks=(EXEC,) if to_exec_alone else (MASK, EXEC) if oracle.to_exec else (MASK,),
                    signs=variant.signs,
                    change=clamped if variant.clamps else None,
                    keeps_half=family != "cdna",
                )
            )
    return found


def assembled(trials: Sequence[Trial], assembler: machine.Assembler) -> tuple[list[Trial], list[Trial]]:
    """Trials whose instruction the assembler knows, and the others. Halves of registers have names
    of their own in some families."""
    bad = assembler.refused([trial.line for trial in trials])
    retried = [replace(t, line=halves(t.line)) for k, t in enumerate(trials) if k in bad]
    still = assembler.refused([trial.line for trial in retried])
    good = [trial for k, trial in enumerate(trials) if k not in bad]
    good += [trial for k, trial in enumerate(retried) if k not in still]
    return good, [trial for k, trial in enumerate(retried) if k in still]


def halves(line: str) -> str:
    import re

    return re.sub(r"\bv(\d+)\b", r"v\1.l", line)


def run(family: str, count: int, only: str = "") -> tuple[list[Verdict], list[Trial]]:
    """The verdicts, and trials of instructions that the assembler does not know."""
    assembler = machine.Assembler(family)
    every = [t for t in trials(family, oracles(family)) if only in t.kernel]
    good, unknown = assembled(every, assembler)
    style = machine.STYLES[family]
    bodies = {
        t.kernel: machine.vector_body(style, t.line, mask_in_vcc=t.mask_in_vcc) for t in good
    }
    program = assembler.program(bodies)
    lanes = PROCESSORS[family][1]
    return [judge(trial, program, count, lanes) for trial in good], unknown
