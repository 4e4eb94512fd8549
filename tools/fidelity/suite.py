"""All trials of a family: each instruction that has a model, in each encoding, with modifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from portkern.isa import runtime_library

from . import floats, integers, lanes, machine, matrices, memory, modes, scalars, sdwa
from .instructions import NUMBERS, PROCESSORS, Row, rows, scalar, vector
from .oracle import Array, Oracle, Table
from .trial import Trial, Verdict, judge

_VECTOR = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")
_PLAIN = ("VOP1", "VOP2", "VOPC")
MASK, EXEC = 4, 5
#: Instructions that leave the other half of their destination alone in each family.
_KEEPS_HALF = ("v_fma_mix", "v_cvt_pk_fp8", "v_cvt_pk_bf8")


def oracles(family: str) -> Table:
    table = Table()
    integers.table(table, family)
    floats.table(table, family)
    scalars.table(table, family)
    return table


def modelled(family: str) -> list[Row]:
    """The rows of a table that the executor has a model for."""
    library = runtime_library.load()
    return [row for row in rows(family) if library.isa_has_model(row.name.encode())]


def clamped(x: Array) -> Array:
    """A float after the modifier ``clamp``: NaN and -0 become 0."""
    return np.where(x > 0, np.where(x < 1, x, 1), 0).astype(x.dtype)


def plain_names(family: str) -> set[str]:
    """The instructions that have a short encoding."""
    return {row.name for row in modelled(family) if row.encoding in _PLAIN}


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
    every, plain = modelled(family), plain_names(family)
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
                    keeps_half=family != "cdna" or row.name.startswith(_KEEPS_HALF),
                    high_result=row.name == "v_fma_mixhi_f16",
                )
            )
    return found


def scalar_trials(family: str, table: Mapping[str, Oracle]) -> list[Trial]:
    found = []
    for row in modelled(family):
        oracle = table.get(row.name)
        if row.encoding not in ("SOP1", "SOP2", "SOPC", "SOPK") or oracle is None:
            continue
        for number in NUMBERS if row.encoding == "SOPK" else (0,):
            name = f"{row.name}_{row.encoding}{number or ''}".lower()
            line = scalar(row, number)
            found.append(Trial(name, row.name, line, oracle, scalar=True, number=number))
    return found


def half_trials(family: str, table: Mapping[str, Oracle]) -> list[Trial]:
    """Instructions of 16 bits on upper halves: by op_sel, or by names of halves."""
    every, plain = modelled(family), plain_names(family)
    found = []
    for row in every:
        oracle = table.get(row.name)
        if oracle is None or row.encoding != "VOP3" or row.name.startswith(("v_cmp", "v_cndmask")):
            continue
        halves = [source.endswith("16") for source in oracle.inputs]
        if not any(halves) or not oracle.inputs:
            continue
        to_half = oracle.result.endswith("16")
        line = vector(row, family, plain).line
        bits = [*map(int, halves), int(to_half)]
        said = f"{line} op_sel:[{','.join(map(str, bits))}]"
        found.append(
            Trial(
                f"{row.name}_{row.encoding}_high".lower(), row.name, said, oracle,
                keeps_half=True, high=tuple(halves), high_result=to_half, masks=(MASK,),
            )
        )  # fmt: skip
    return found


def assembled(
    trials: Sequence[Trial], assembler: machine.Assembler
) -> tuple[list[Trial], list[Trial]]:
    """Trials whose instruction the assembler knows, and the others. Halves of registers have names
    of their own in some families."""
    bad = assembler.refused([trial.line for trial in trials])
    retried = [replace(t, line=halves(t.line)) for k, t in enumerate(trials) if k in bad]
    still = assembler.refused([trial.line for trial in retried])
    good = [trial for k, trial in enumerate(trials) if k not in bad]
    good += [trial for k, trial in enumerate(retried) if k not in still]
    return good, [trial for k, trial in enumerate(retried) if k in still]


def halves(line: str) -> str:
    """The line with halves of registers named, as families with ``v1.l`` and ``v1.h`` want it."""
    plain, _, said = line.partition(" op_sel:")
    if not said:
        return re.sub(r"\bv(\d+)\b", r"v\1.l", line)
    bits = [int(bit) for bit in said.strip("[]").split(",")]
    name, _, operands = plain.partition(" ")
    listed = operands.split(", ")
    order = [bits[-1], *bits[:-1]] if len(bits) == len(listed) else bits
    parts = (f"{o}.{'h' if high else 'l'}" for o, high in zip(listed, order, strict=False))
    return f"{name} {', '.join(parts)}"


def every_trial(family: str) -> list[Trial]:
    """All trials of a family, each with a name of its own."""
    table = oracles(family)
    found = [*trials(family, table), *scalar_trials(family, table), *lanes.trials(family)]
    found += half_trials(family, table)
    found += memory.trials(family, modelled(family))
    found += modes.trials(family, modelled(family), table, plain_names(family))
    if family == "cdna":
        found += sdwa.trials(modelled(family), table)
    return list({trial.kernel: trial for trial in found}.values())


def judged(chosen: Sequence[Trial], assembler: machine.Assembler, count: int) -> list[Verdict]:
    """The verdicts on trials whose instructions the assembler knows."""
    style, wave = assembler.style, PROCESSORS[assembler.family][1]
    program = assembler.program({t.kernel: body(style, t) for t in chosen})
    return [judge(trial, program, count, wave) for trial in chosen]


def body(style: machine.Style, t: Trial) -> list[str]:
    if t.scalar:
        return machine.scalar_body(style, t.line)
    return machine.vector_body(
        style, t.line, mask_in_vcc=t.mask_in_vcc, before=t.before, after=t.after
    )


def run(
    family: str, count: int, only: str = "", part: tuple[int, int] = (0, 1)
) -> tuple[list[Verdict], list[Trial]]:
    """The verdicts, and trials of instructions that the assembler does not know. ``part`` is a
    remainder and what the numbers of trials are divided by."""
    assembler = machine.Assembler(family)
    every = [trial for trial in every_trial(family) if only in trial.kernel]
    good, unknown = assembled(every[part[0] :: part[1]], assembler)
    found = judged(good, assembler, count) if good else []
    return found + matrices.verdicts(family, count, only, part), unknown
