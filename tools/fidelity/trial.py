"""One instruction against its oracle, on all inputs at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from portkern.isa.executor import ObjectProgram

from . import machine
from .oracle import TYPES, Array, Oracle
from .values import Words, columns, random

if TYPE_CHECKING:
    from .memory import Access

#: Registers of each source among a lane's words.
PLACES = (0, 2, 4)


@dataclass(frozen=True)
class Dpp:
    """A first source that comes from another lane: ``source`` takes the lanes of a wave to those
    they read, -1 for none. ``zero``: then a zero is read, else nothing is written."""

    source: Callable[[Array], Array]
    zero: bool = False
    rows: int = 15
    banks: int = 15
    inactive: bool = False


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
    #: True for the scalar unit: one lane in each group.
    scalar: bool = False
    #: The number in the instruction.
    number: int = 0
    #: Lines around it.
    before: str = ""
    after: str = ""
    dpp: Dpp | None = None
    #: Whether sources, and the result, are upper halves.
    high: tuple[bool, ...] = ()
    high_result: bool = False
    #: The access of memory, or of LDS where ``local``.
    access: Access | None = None
    local: bool = False

    def changed(self, words: Words) -> Words:
        """The operands as given: halves change places where the upper ones are asked for."""
        changed = words.copy()
        for place, high in zip(PLACES, self.high, strict=False):
            if high:
                changed[:, place] = words[:, place] << np.uint32(16) | words[:, place] >> np.uint32(
                    16
                )
        if self.high_result:
            changed[:, 8] = words[:, 8] << np.uint32(16) | words[:, 8] >> np.uint32(16)
        return changed


@dataclass(frozen=True)
class Waves:
    """Words of lanes by waves: ``w[k]`` is a register of all lanes; which are active."""

    words: Words
    active: Array

    def __getitem__(self, k: int) -> Array:
        return np.asarray(self.words[:, :, k])

    @property
    def lanes(self) -> Array:
        return np.arange(self.words.shape[1])


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


def arguments(trial: Trial, words: Words) -> list[Array]:
    """The arguments of the oracle's function."""
    sources: list[Array] = []
    k = 0
    for source in trial.oracle.sources:
        if source == "carry":
            sources.append(words[:, machine.CARRY] != 0)
        elif source == "lane":
            sources.append(np.arange(len(words)))
        elif source.startswith("old:"):
            sources.append(read(words, 8, source[4:]))
        elif source.startswith("exec:"):
            sources.append(read(words, 6, source[5:]))
        elif source.startswith("imm"):
            number = trial.number if source.endswith("u16") else (trial.number ^ 0x8000) - 0x8000
            sources.append(np.full(len(words), number, np.uint32 if ":" in source else np.int32))
        else:
            value = read(words, PLACES[k], source)
            sources.append(signed(value, trial.signs[k : k + 1]))
            k += 1
    return sources


def expected(trial: Trial, words: Words) -> tuple[Array | None, Array | None]:
    """The oracle's answer for each lane."""
    oracle, sources = trial.oracle, arguments(trial, words)
    with np.errstate(all="ignore"):
        answer: Any = oracle.function(*sources)
    value, mask, *_ = answer if oracle.mask else (answer, None)
    if value is not None and trial.change is not None:
        value = trial.change(np.asarray(value))
    return value, mask


def judge(trial: Trial, program: ObjectProgram, count: int, lanes: int) -> Verdict:
    """Runs a trial on ``count`` inputs."""
    seed = zlib.crc32(trial.kernel.encode())
    words = given(trial.oracle, count, seed)
    cells = np.random.default_rng(seed + 1).integers(0, 1 << 32, (count, 8), dtype=np.uint32)
    if trial.access:
        cells = likely(cells, words, seed)
    given_words = trial.changed(words)
    group = 1 if trial.scalar else lanes
    result = machine.launch(program, trial.kernel, given_words, cells, group)
    if trial.high_result:
        out = result.words
        out[:, 0] = out[:, 0] << np.uint32(16) | out[:, 0] >> np.uint32(16)
    if not result.ran.clean:
        return Verdict(trial, count, count, str(result.ran.findings[-1]))
    with np.errstate(all="ignore"):
        if trial.access:
            bad, shown = memory_differences(trial, words, cells, result)
        elif trial.scalar:
            bad, shown = scalar_differences(trial, words, result.words)
        else:
            bad, shown = differences(trial, words, result.words, lanes)
    if not bad.any():
        return Verdict(trial, count, 0)
    first = int(np.flatnonzero(bad)[0])
    inputs = " ".join(f"{int(x):08x}" for x in words[first, :14])
    return Verdict(trial, count, int(bad.sum()), f"[{inputs}] {shown(first)}")


def moved(dpp: Dpp, words: Words, lanes: int) -> tuple[Words, Array]:
    """The words with first sources of the lanes that are read; which lanes are written."""
    active = words[:, machine.ACTIVE] != 0
    k = np.arange(len(words)) % lanes
    first = np.arange(len(words)) - k
    source = dpp.source(k)
    there = source >= 0
    at = np.where(there, first + source, 0)
    valid = there & (active[at] | dpp.inactive)
    changed = words.copy()
    changed[:, 0] = np.where(valid, words[at, 0], 0)
    on = (dpp.rows >> (k >> 4 & 3) & 1) & (dpp.banks >> (k >> 2 & 3) & 1)
    return changed, active & (on != 0) & (valid | dpp.zero)


def differences(
    trial: Trial, words: Words, out: Words, lanes: int
) -> tuple[Array, Callable[[int], str]]:
    """Lanes that came out otherwise, and a text of one."""
    oracle = trial.oracle
    active = words[:, machine.ACTIVE] != 0
    value: Array | None
    mask: Array | None = None
    if oracle.wave:
        shaped = words.reshape(-1, lanes, words.shape[1])
        value = np.asarray(oracle.function(Waves(shaped, active.reshape(-1, lanes)))).ravel()
        if trial.name == "v_writelane_b32":  # goes by no mask
            active = active | (np.arange(len(words)) % lanes == 5)
    elif trial.dpp:
        words, active = moved(trial.dpp, words, lanes)
        value, mask = expected(trial, words)
    else:
        value, mask = expected(trial, words)
    bad = np.zeros(len(words), bool)
    got: Array | None = None
    if value is not None and oracle.result:
        want = np.asarray(value)
        got = read(out, 0, oracle.result)
        bad |= active & ~close(got, want, oracle, reach(trial, words))
        width = np.dtype(TYPES[oracle.result]).itemsize // 4 or 1
        kept = words[:, 8 : 8 + width] == out[:, :width]
        bad |= ~active & ~kept.all(1)
        if oracle.result.endswith("16"):
            kept_half = trial.keeps_half or trial.high_result
            upper = words[:, 8] >> 16 if kept_half else np.zeros(len(words), np.uint32)
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


def likely(cells: Words, words: Words, seed: int) -> Words:
    """Cells in which comparisons find what they look for now and then, and which also hold numbers
    that sums of floats are made of."""
    rng = np.random.default_rng(seed + 2)
    near = rng.standard_normal(cells.shape).astype(np.float32).view(np.uint32)
    cells = np.where(rng.random(cells.shape) < 0.3, near, cells)
    for place in (0, 1, 2):
        same = rng.random(len(cells)) < 0.15
        cells[same, :2] = words[same, place : place + 2]
    # In LDS the lane's own third source is what is there, and its first two beside it.
    words[:, 4:8] = cells[:, :4]
    return cells


def memory_differences(
    trial: Trial, words: Words, cells: Words, result: machine.Result
) -> tuple[Array, Callable[[int], str]]:
    """Lanes with another result, or another cell."""
    assert trial.access is not None
    active = words[:, machine.ACTIVE] != 0
    out, old = result.words, words[:, 8:12]
    if trial.local:
        before = np.concatenate([words[:, 4:8], words[:, 0:4]], 1)
        after = out[:, 8:16]
    else:
        before, after = cells, result.memory
    value, changed = trial.access.function(before, words, old)
    changed = np.where(active[:, None], changed, before)
    want = old.copy()
    if value is not None:
        want[:, : value.shape[1]] = np.where(active[:, None], value, old[:, : value.shape[1]])
    bad = ~(same_words(after, changed)).all(1) | (out[:, :4] != want).any(1)
    return (
        bad,
        lambda k: f"cell {before[k]} -> {after[k]} {out[k, :4]}, expected {changed[k]} {want[k]}",
    )


def same_words(a: Words, b: Words) -> Array:
    """Equal, or both NaN in a format that atomics add in: their payloads are not stated."""
    nan = np.zeros(a.shape, bool)
    for kind in (np.float32, np.float64):
        if a.shape[1] * 4 % np.dtype(kind).itemsize == 0:
            both = [np.isnan(np.ascontiguousarray(x).view(kind)) for x in (a, b)]
            nan |= np.repeat(both[0] & both[1], a.shape[1] // both[0].shape[1], 1)
    halves = [np.ascontiguousarray(x).view(np.uint16) for x in (a, b)]
    same = halves[0] == halves[1]
    for shift, most in ((0, 0x7C00), (0, 0x7F80)):
        same |= ((halves[0] & 0x7FFF) > most) & ((halves[1] & 0x7FFF) > most)
        del shift
    return np.asarray((a == b) | nan | same.reshape(*a.shape, 2).all(2))


def scalar_differences(
    trial: Trial, words: Words, out: Words
) -> tuple[Array, Callable[[int], str]]:
    """Runs that came out otherwise: in the destination, SCC or EXEC."""
    oracle = trial.oracle
    value, mask = expected(trial, words)
    bad = np.zeros(len(words), bool)
    if value is not None and oracle.result:
        want = np.asarray(value)
        bad |= ~close(read(out, 0, oracle.result), want, oracle)
        width = np.dtype(TYPES[oracle.result]).itemsize
    else:
        width = 0
    kept = max(1, width // 4) if width else 0
    bad |= (words[:, 8 + kept : 12] != out[:, kept:4]).any(1)
    scc = words[:, machine.CARRY] != 0 if mask is None else np.asarray(mask)
    bad |= (out[:, 4] != 0) != scc
    if oracle.to_exec:
        changed = np.asarray(oracle.function(*_masks(trial, words))[2])
        bad |= read(out, 5, oracle.result) != changed
    return bad, lambda k: f"got {out[k]}, expected {None if value is None else value[k]} {scc[k]}"


def _masks(trial: Trial, words: Words) -> tuple[Array, Array]:
    kind = trial.oracle.result
    return read(words, 0, kind), read(words, 6, kind)


def reach(trial: Trial, words: Words) -> Array | None:
    """How far from the oracle's value each result may be, where that is a number of its own."""
    within = trial.oracle.within
    return None if within is None else np.asarray(within(*arguments(trial, words)))


def close(got: Array, want: Array, oracle: Oracle, within: Array | None = None) -> Array:
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
    if within is not None:
        wide, exact = got.astype(np.float64), want.astype(np.float64)
        far = abs(exact) > float(np.finfo(got.dtype).max) * (1 - 2.0**-20)
        return np.asarray(
            nan | (got == exact) | (abs(wide - exact) <= within) | far & (abs(wide) > 1e38)
        )
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
