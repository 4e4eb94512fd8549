"""One instruction against its oracle, on all inputs at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from portkern.isa.executor import Program

from . import machine
from .oracle import TYPES, Array, Oracle
from .values import Words, columns, random

#: Registers of each source among a lane's words.
PLACES = (0, 2, 4)


@dataclass(frozen=True)
class Trial:
    """A kernel with one instruction. ``masks`` are the words in which its mask of lanes is found.
    ``change`` takes what the oracle says to what a modifier of
    the instruction makes of it; ``signs`` are applied to sources first."""

    kernel: str
    name: str
    line: str
    oracle: Oracle
    mask_in_vcc: bool = False
    masks: tuple[int, ...] = ()
    signs: str = ""
    change: Callable[[Array], Array] | None = None
    keeps_half: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a trial ended: on how many inputs, how many of them came out otherwise, an example."""

    trial: Trial
    inputs: int
    wrong: int
    example: str = ""


def given(oracle: Oracle, count: int, seed: int) -> Words:
    """Words of each lane: sources by their types, old destination, carries, which are active."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, (count, machine.INPUTS), dtype=np.uint32)
    kinds = oracle.inputs
    values = columns(kinds, count, seed) if kinds else []
    for place, kind, column in zip(PLACES, kinds, values, strict=False):
        put(words, place, kind, column)
    for source in oracle.sources:
        if source.startswith("old:"):
            put(words, 8, source[4:], random(source[4:], count, rng))
    words[:, machine.CARRY] = rng.integers(0, 2, count)
    words[:, machine.ACTIVE] = rng.random(count) < 0.9
    return words


def put(words: Words, at: int, kind: str, column: Sequence[int]) -> None:
    width = int(kind[1:])
    values = np.array(column, np.uint64)
    if width <= 32:
        upper = words[:, at] & np.uint32((0xFFFFFFFF << width) & 0xFFFFFFFF)
        words[:, at] = values.astype(np.uint32) | (upper if width == 16 else 0)
    else:
        words[:, at] = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        words[:, at + 1] = (values >> np.uint64(32)).astype(np.uint32)


def read(words: Words, at: int, kind: str) -> Array:
    """The values of one type that begin at a word of each lane."""
    to = np.dtype(TYPES[kind])
    if to.itemsize == 8:
        return np.ascontiguousarray(words[:, at : at + 2]).view(to).ravel()
    if to.itemsize == 2:
        return words[:, at].astype(np.uint16).view(to)
    return np.ascontiguousarray(words[:, at]).view(to)


def signed(x: Array, sign: str) -> Array:
    """A source with the modifiers that an instruction asks for, as bits are changed."""
    bits = x.view(f"u{x.dtype.itemsize}").copy()
    top = bits.dtype.type(1 << (8 * x.dtype.itemsize - 1))
    if sign in ("|", "+"):
        bits &= ~top
    if sign in ("-", "+"):
        bits ^= top
    return bits.view(x.dtype)


def expected(trial: Trial, words: Words) -> tuple[Array | None, Array | None]:
    """What the oracle says of each lane."""
    oracle, sources, k = trial.oracle, [], 0
    for source in oracle.sources:
        if source == "carry":
            sources.append(words[:, machine.CARRY] != 0)
        elif source == "lane":
            sources.append(np.arange(len(words)))
        elif source.startswith("old:"):
            sources.append(read(words, 8, source[4:]))
        else:
            value = read(words, PLACES[k], source)
            sources.append(signed(value, trial.signs[k : k + 1]))
            k += 1
    with np.errstate(all="ignore"):
        answer: Any = oracle.function(*sources)
    value, mask = answer if oracle.mask else (answer, None)
    if value is not None and trial.change is not None:
        value = trial.change(np.asarray(value))
    return value, mask


def judge(trial: Trial, program: Program, count: int, lanes: int) -> Verdict:
    """Runs a trial on ``count`` inputs."""
    seed = zlib.crc32(trial.kernel.encode())
    words = given(trial.oracle, count, seed)
    cells = np.zeros((count, 8), np.uint32)
    result = machine.launch(program, trial.kernel, words, cells, lanes)
    if not result.ran.clean:
        return Verdict(trial, count, count, str(result.ran.findings[-1]))
    with np.errstate(all="ignore"):
        try: bad, shown = differences(trial, words, result.words)
        except Exception as e: return Verdict(trial,count,-1,repr(e))
    if not bad.any():
        return Verdict(trial, count, 0)
    first = int(np.flatnonzero(bad)[0])
    inputs = " ".join(f"{int(x):08x}" for x in words[first, :14])
    return Verdict(trial, count, int(bad.sum()), f"[{inputs}] {shown(first)}")


def differences(trial: Trial, words: Words, out: Words) -> tuple[Array, Callable[[int], str]]:
    """Lanes that came out otherwise, and a text of one."""
    oracle = trial.oracle
    active = words[:, machine.ACTIVE] != 0
    value, mask = expected(trial, words)
    bad = np.zeros(len(words), bool)
    got: Array | None = None
    if value is not None and oracle.result:
        want = np.asarray(value)
        got = read(out, 0, oracle.result)
        bad |= active & ~close(got, want, oracle)
        width = np.dtype(TYPES[oracle.result]).itemsize // 4 or 1
        kept = words[:, 8 : 8 + width] == out[:, :width]
        bad |= ~active & ~kept.all(1)
        if oracle.result.endswith("16"):
            upper = words[:, 8] >> 16 if trial.keeps_half else np.zeros(len(words), np.uint32)
            bad |= active & (out[:, 0] >> 16 != upper)
    if mask is not None:
        for column in trial.masks:
            bad |= (out[:, column] != 0) != (np.asarray(mask) & active)

    def shown(k: int) -> str:
        wanted = "" if value is None else f"{np.asarray(value)[k]!r}"
        return (
            f"active {bool(active[k])}; got {'' if got is None else repr(got[k])} {out[k, :6]}, "
            f"expected {wanted} {'' if mask is None else mask[k]}"
        )

    return bad, shown


def close(got: Array, want: Array, oracle: Oracle) -> Array:
    """Whether results are equal to the bit, or as near as hardware is known to be. A NaN is as good
    as another, as no manual says which payload comes out."""
    if oracle.packed:
        parts = np.dtype(TYPES[oracle.packed])
        a, b = (x.astype(got.dtype).view(parts).reshape(len(got), -1) for x in (got, want))
        plain = np.asarray(a.view(f"u{parts.itemsize}") == b.view(f"u{parts.itemsize}"))
        return np.asarray((plain | np.isnan(a) & np.isnan(b)).all(1))
    if got.dtype.kind != "f":
        return np.asarray(got == want.astype(got.dtype))
    nan = np.isnan(got) & np.isnan(want)
    if not oracle.ulps:
        same = got.view(f"u{got.dtype.itemsize}") == want.astype(got.dtype).view(
            f"u{got.dtype.itemsize}"
        )
        return np.asarray(nan | same)
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    if oracle.ulps < 0:
        return np.asarray(nan | (abs(wide - exact) <= -oracle.ulps))
    rounded = want.astype(got.dtype)
    unit = np.spacing(abs(rounded)).astype(np.float64)
    near = abs(wide - exact) <= oracle.ulps * unit
    return np.asarray(nan | (got == rounded) & (np.signbit(got) == np.signbit(want)) | near)
