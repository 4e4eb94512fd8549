"""CDNA's operands of a byte or a word, and results that go into a part of a register."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .instructions import Row
from .oracle import TYPES, Array, Oracle
from .trial import Trial

U32 = np.uint32
#: Where a part begins, and its bits.
PARTS = {f"BYTE_{k}": (8 * k, 8) for k in range(4)} | {f"WORD_{k}": (16 * k, 16) for k in range(2)}
PARTS["DWORD"] = (0, 32)


@dataclass(frozen=True)
class Form:
    """Parts of both sources, whether they are signed (``-`` or ``|`` of floats), the result's part
    and what becomes of the rest."""

    sources: tuple[str, str]
    signed: bool
    to: str
    rest: str
    sign: str = ""


FORMS = (
    Form(("BYTE_2", "WORD_1"), True, "WORD_1", "PRESERVE"),
    Form(("WORD_0", "BYTE_3"), False, "BYTE_1", "PAD", "-"),
    Form(("WORD_1", "DWORD"), True, "WORD_0", "SEXT", "|"),
    Form(("BYTE_0", "BYTE_1"), True, "BYTE_3", "SEXT", "-"),
)
_WITHOUT = ("_co_", "v_cndmask", "fmaak", "fmamk", "lane", "v_swap", "v_cmpx")


def trials(every: Sequence[Row], table: Mapping[str, Oracle]) -> Iterator[Trial]:
    """Each short instruction of at most 32 bits, in some forms."""
    for row in every:
        oracle = table.get(row.name)
        if row.encoding not in ("VOP1", "VOP2", "VOPC") or oracle is None:
            continue
        kinds = (*oracle.sources, *filter(None, (oracle.result,)))
        whole = all(kind in TYPES and int(kind[1:]) in (16, 32) for kind in kinds)
        if oracle.wave or not whole or any(part in row.name for part in _WITHOUT):
            continue
        for number, form in enumerate(FORMS):
            yield _trial(row, oracle, _fitting(oracle, form), number)


def _fitting(oracle: Oracle, form: Form) -> Form:
    """Floats go whole, so that any NaN is as good as another."""
    return replace(form, to="DWORD", rest="PAD") if oracle.result.startswith("f") else form


def _trial(row: Row, oracle: Oracle, form: Form, number: int) -> Trial:
    operands, chosen, sources = [], [], []
    for k, kind in enumerate(oracle.sources):
        register, part = f"v{(32, 34)[k]}", form.sources[k]
        if kind.startswith("f") and form.sign:
            register = f"-{register}" if form.sign == "-" else f"|{register}|"
        elif not kind.startswith("f") and form.signed:
            register = f"sext({register})"
        operands.append(register)
        chosen.append(f"src{k}_sel:{part}")
        fits = part == "DWORD" or (part == "WORD_0" and kind.endswith("16"))
        sources.append(kind if fits else "u32")
    if oracle.result:
        operands.insert(0, "v40")
        chosen = [f"dst_sel:{form.to} dst_unused:UNUSED_{form.rest}", *chosen]
        sources.append("old:u32")
    else:
        operands.insert(0, "s[20:21]")
    result = oracle.result if oracle.result.startswith("f") else "u32" * bool(oracle.result)
    function = partial(_of_parts, oracle, form)
    return Trial(
        f"{row.name}_{row.encoding}_sdwa{number}".lower(),
        row.name,
        f"{row.name}_sdwa {', '.join(operands)} {' '.join(chosen)}",
        replace(oracle, function=function, sources=tuple(sources), result=result, packed=""),
        masks=(4,),
    )


def _bits(column: Array) -> Array:
    return column.view(f"u{column.dtype.itemsize}").astype(U32)


def _of_parts(oracle: Oracle, form: Form, *columns: Array) -> object:
    sources = []
    for kind, part, column in zip(oracle.sources, form.sources, columns, strict=False):
        at, width = PARTS[part]
        value = _bits(column) >> U32(at) & U32((1 << width) - 1)
        real = kind.startswith("f")
        if form.signed and not real:
            value = _extended(value, width)
        sign = U32(1 << int(kind[1:]) - 1)
        if real and form.sign:
            value = value ^ sign if form.sign == "-" else value & ~sign
        to = np.dtype(TYPES[kind])
        sources.append(value.astype(f"u{to.itemsize}").view(to))
    given = oracle.function(*sources)
    if not oracle.result or oracle.result.startswith("f"):
        return given
    result = _bits(np.asarray(given).astype(TYPES[oracle.result]))
    at, width = PARTS[form.to]
    mask = U32((1 << width) - 1)
    put = (result & mask) << U32(at)
    if form.rest == "PRESERVE":
        return columns[-1] & ~(mask << U32(at)) | put
    return _extended(result & mask, width) << U32(at) if form.rest == "SEXT" else put


def _extended(value: Array, width: int) -> Array:
    sign = U32(1 << width - 1)
    return (value ^ sign) - sign if width < 32 else value
