"""Oracles of what passes between lanes, as trials: each sees all lanes of its waves."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from .instructions import PROCESSORS
from .oracle import Array, Oracle, Table
from .trial import Dpp, Trial, Waves

GROUP = "between lanes"


Function = Callable[[Waves], Array]


def _oracle(function: Function) -> Oracle:
    return Oracle("u32", ("u32", "u32", "u32"), function, GROUP, wave=True)


def _taken(values: Array, lane: Array) -> Array:
    return np.take_along_axis(values, lane.astype(np.int64), 1)


def _first(w: Waves) -> Array:
    first = np.where(w.active.any(1), w.active.argmax(1), 0)
    return np.broadcast_to(_taken(w[0], first[:, None]), w[0].shape)


def _counted(half: int) -> Function:
    def of(w: Waves) -> Array:
        below = np.clip(w.lanes - half, 0, 32)
        mask = np.array([(1 << int(n)) - 1 for n in below], np.uint64).astype(np.uint32)
        bits = np.vectorize(int.bit_count)((w[0] & mask).astype(object))
        return np.asarray(bits.astype(np.uint32) + w[2])

    return of


def _bpermuted(offset: int) -> Function:
    def of(w: Waves) -> Array:
        lane = (w[0] + np.uint32(offset)) // 4 % len(w.lanes)
        return np.where(_taken(w.active, lane), _taken(w[2], lane), 0)

    return of


def _swizzled(pattern: int) -> Function:
    def of(w: Waves) -> Array:
        k = w.lanes
        if pattern & 0x8000:
            lane = k & ~3 | pattern >> 2 * (k & 3) & 3
        else:
            masks = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
            lane = k & 32 | ((k & 31 & masks[0] | masks[1]) ^ masks[2])
        lane = np.broadcast_to(lane, w[0].shape)
        return np.where(_taken(w.active, lane), _taken(w[0], lane), 0)

    return of


def _permlane(other: int, *, inactive: bool, zero: bool) -> Function:
    low, high = 0x76543210 ^ 0x13572460, 0x89ABCDEF

    def of(w: Waves) -> Array:
        k = w.lanes & 15
        pick = np.where(k < 8, low >> 4 * (k & 7) & 15, high >> 4 * (k & 7) & 15)
        lane = np.broadcast_to((w.lanes & ~15 ^ other) | pick, w[0].shape)
        on = _taken(w.active, lane) | inactive
        return np.where(on, _taken(w[0], lane), 0 if zero else w[8])

    return of


def _swapped(row: int) -> Function:
    """The new destination: lanes of odd rows get those of even rows of the source."""

    def of(w: Waves) -> Array:
        odd = w.lanes & row != 0
        lane = np.broadcast_to(w.lanes ^ row, w[0].shape)
        both = w.active & _taken(w.active, lane)
        return np.where(odd & both, _taken(w[0], lane), w[8])

    return of


def trials(family: str) -> Iterator[Trial]:
    """Instructions of this kind, in the family's words."""
    wave = PROCESSORS[family][1]

    def one(
        name: str, line: str, function: Function, *, after: str = "", before: str = ""
    ) -> Trial:
        kernel = "".join(
            c if c.isalnum() else "_" for c in f"{name}_{line.split(' ', 1)[-1]}"
        ).lower()
        if before:
            kernel += f"_{zlib.crc32(before.encode()):08x}"
        return Trial(f"lane_{kernel}", name, line, _oracle(function), before=before, after=after)

    copy = "v_mov_b32_e32 v40, s31"
    yield one("v_readfirstlane_b32", "v_readfirstlane_b32 s31, v32", _first, after=copy)
    for lane in (0, 7, wave - 1, wave + 3):
        pick = lambda w, k=lane: np.broadcast_to(w[0][:, k % wave, None], w[0].shape)  # noqa: E731
        yield one(
            "v_readlane_b32", "v_readlane_b32 s31, v32, s30", pick,
            before=f"s_mov_b32 s30, {lane}", after=copy,
        )  # fmt: skip
    put = lambda w: np.where(w.lanes == 5, 0x1234567, w[8])  # noqa: E731
    yield one(
        "v_writelane_b32", "v_writelane_b32 v40, s30, 5", put, before="s_mov_b32 s30, 0x1234567"
    )
    yield one("v_mbcnt_lo_u32_b32", "v_mbcnt_lo_u32_b32 v40, v32, v34", _counted(0))
    yield one("v_mbcnt_hi_u32_b32", "v_mbcnt_hi_u32_b32 v40, v32, v34", _counted(32))
    for offset in (0, 20):
        yield one(
            "ds_bpermute_b32", f"ds_bpermute_b32 v40, v32, v34 offset:{offset}", _bpermuted(offset)
        )
    # Where two lanes send to one place hardware's choice is not stated: here each has its own.
    away = 4 * (wave - 1)
    yield one(
        "ds_permute_b32", "ds_permute_b32 v40, v31, v34", _permuted_back(wave),
        before=f"v_lshlrev_b32_e32 v31, 2, v28\nv_xor_b32_e32 v31, {away}, v31",
    )  # fmt: skip
    for pattern in (0x041F, 0x8000 | 0b00011011, 0x7C1F, 0x0010, 0x03F5):
        yield one("ds_swizzle_b32", f"ds_swizzle_b32 v40, v32 offset:{pattern}", _swizzled(pattern))
    if family == "cdna":
        for row in (16, 32):
            yield one(
                f"v_permlane{row}_swap_b32", f"v_permlane{row}_swap_b32_e32 v40, v32", _swapped(row)
            )
    else:
        picks = f"s_mov_b32 s30, {0x76543210 ^ 0x13572460:#x}\ns_mov_b32 s31, 0x89abcdef"
        for x, other in (("", 0), ("x", 16)):
            for fi in (0, 1):
                for bc in (0, 1):
                    name = f"v_permlane{x}16_b32"
                    yield one(
                        name, f"{name} v40, v32, s30, s31 op_sel:[{fi},{bc}]",
                        _permlane(other, inactive=bool(fi), zero=bool(bc)), before=picks,
                    )  # fmt: skip
    swap = lambda w: np.where(w.active, w[0], w[8])  # noqa: E731
    yield one("v_swap_b32", "v_swap_b32 v40, v32", swap)
    yield from _dpp(family)


def _permuted_back(wave: int) -> Function:
    def of(w: Waves) -> Array:
        lane = np.broadcast_to(wave - 1 - w.lanes, w[0].shape)
        return np.where(_taken(w.active, lane), _taken(w[2], lane), 0)

    return of


def _row(k: Array, n: Array | int) -> Array:
    """Lane n of the row of 16 that each lane is in."""
    return np.asarray((k & ~15) | n)


def _shifted(by: int, k: Array) -> Array:
    n = (k & 15) + by
    return np.where((n >= 0) & (n < 16), k + by, -1)


def _turned(by: int, k: Array) -> Array:
    return _row(k, ((k & 15) - by) % 16)


def _dpp(family: str) -> Iterator[Trial]:
    """All controls, on a move and on an addition; with and without zeros at the bounds."""
    controls = {"quad_perm:[3,1,0,2]": Dpp(lambda k: (k & ~3) | np.array([3, 1, 0, 2])[k & 3])}
    for n in (1, 7, 15):
        for name, sign in (("shl", 1), ("shr", -1)):
            controls[f"row_{name}:{n}"] = Dpp(partial(_shifted, sign * n))
        controls[f"row_ror:{n}"] = Dpp(partial(_turned, n))
    controls["row_mirror"] = Dpp(lambda k: _row(k, 15 - (k & 15)))
    controls["row_half_mirror"] = Dpp(lambda k: (k & ~7) | (7 - (k & 7)))
    if family == "cdna":
        controls["row_newbcast:5"] = Dpp(lambda k: _row(k, 5))
        controls["wave_shl:1"] = Dpp(lambda k: np.where(k < 63, k + 1, -1))
        controls["wave_rol:1"] = Dpp(lambda k: (k + 1) % 64)
        controls["wave_shr:1"] = Dpp(lambda k: k - 1)
        controls["wave_ror:1"] = Dpp(lambda k: (k - 1) % 64)
        controls["row_bcast:15"] = Dpp(lambda k: (k & ~15) - 1)
        controls["row_bcast:31"] = Dpp(lambda k: np.where(k >= 32, 31, -1))
    else:
        controls["row_share:9"] = Dpp(lambda k: _row(k, 9))
        controls["row_xmask:6"] = Dpp(lambda k: _row(k, (k & 15) ^ 6))
    table = Table()
    table.group = GROUP
    zero = " bound_ctrl:0" if family == "cdna" else " bound_ctrl:1"
    table.add("v_mov_b32", "u32 u32", lambda a: a)
    table.add("v_add", "u32 u32 u32", lambda a, b: a + b)
    add = "v_add_u32" if family == "cdna" else "v_add_nc_u32"
    for k, (text, control) in enumerate(controls.items()):
        for bound in (False, True):
            masks = " row_mask:0xf bank_mask:0xf" if bound else " row_mask:0xb bank_mask:0x7"
            dpp = Dpp(
                control.source, zero=bound, rows=15 if bound else 11, banks=15 if bound else 7
            )
            ending = f"{text}{masks}{zero if bound else ''}"
            name = f"dpp_{k}_{int(bound)}"
            yield Trial(
                f"{name}_mov", "v_mov_b32", f"v_mov_b32_dpp v40, v32 {ending}", table["v_mov_b32"],
                dpp=dpp,
            )  # fmt: skip
            yield Trial(
                f"{name}_add", add, f"{add}_dpp v40, v32, v34 {ending}", table["v_add"], dpp=dpp
            )
    if family != "cdna":
        pick = (7, 0, 3, 3, 1, 6, 2, 5)
        for fi in (False, True):
            dpp = Dpp(lambda k: (k & ~7) | np.array(pick)[k & 7], zero=True, inactive=fi)
            line = (
                f"v_mov_b32_dpp v40, v32 dpp8:[{','.join(map(str, pick))}]{' fi:1' if fi else ''}"
            )
            yield Trial(f"dpp8_{int(fi)}", "v_mov_b32", line, table["v_mov_b32"], dpp=dpp)
