"""Idle states that chips ask for between two instructions, looked for in the code alone."""

from __future__ import annotations

import pytest

from portkern.isa import runtime_library
from portkern.isa.finding import FindingKind
from portkern.spec.backend import Missing
from tools.fidelity.machine import Assembler

DPP = "v_mov_b32_dpp v3, v1 row_shr:1 row_mask:0xf bank_mask:0xf"
MFMA = "v_mfma_f32_16x16x16f16 v[12:15], v[4:5], v[6:7], v[8:11]"
#: What gives something, what uses it, and the states that must lie in between on gfx942 and gfx90a.
RULES = (
    ("v_cmp_lt_u32_e64 s[20:21], v1, v2", "v_cndmask_b32_e64 v3, v1, v2, s[20:21]", 2, 0),
    ("v_readfirstlane_b32 s20, v1", "v_add_u32_e32 v3, s20, v2", 2, 0),
    ("v_readfirstlane_b32 s20, v1", "buffer_load_dword v3, v2, s[20:23], 0 offen", 5, 5),
    ("v_readfirstlane_b32 s20, v1", "v_readlane_b32 s4, v2, s20", 4, 4),
    ("v_cmp_lt_f32_e32 vcc, v1, v2", "v_div_fmas_f32 v3, v1, v2, v4", 4, 4),
    ("v_cmpx_lt_u32_e32 vcc, v4, v2", DPP, 5, 5),
    ("v_cmpx_lt_u32_e32 vcc, v4, v2", "v_readfirstlane_b32 s4, v3", 4, 0),
    ("v_mov_b32_e32 v1, v2", DPP, 2, 2),
    ("v_mov_b32_e32 v1, v2", "v_readlane_b32 s4, v1, 3", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_add_f32_e32 v3, v1, v2", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_fmac_f32_e32 v1, v4, v5", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_swap_b32 v3, v1", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_swap_b32 v1, v3", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_writelane_b32 v1, s4, 3", 1, 0),
    ("v_exp_f32_e32 v1, v2", "v_fma_mixlo_f16 v1, v3, v4, v5", 1, 0),
    (
        "v_exp_f32_e32 v1, v2",
        "v_mov_b32_dpp v1, v3 row_shr:1 row_mask:0x5 bank_mask:0xf bound_ctrl:0",
        1,
        0,
    ),
    (
        "v_mov_b32_sdwa v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE",
        "v_not_b32_e32 v3, v1",
        1,
        0,
    ),
    ("global_store_dwordx4 v[2:3], v[4:7], off", "v_mov_b32_e32 v5, v1", 2, 1),
    ("v_mov_b32_e32 v4, v1", MFMA, 2, 2),
    (MFMA, "v_add_f32_e32 v1, v12, v2", 6, 11),
    (MFMA, "global_store_dwordx4 v[2:3], v[12:15], off", 6, 11),
    (MFMA, "v_mov_b32_e32 v13, v1", 6, 11),
    (MFMA, "v_mov_b32_e32 v9, v1", 3, 7),
)
#: Pairs that ask for nothing: other registers, other units, or a unit that waits by itself.
FREE = (
    ("v_cmp_lt_u32_e64 s[20:21], v1, v2", "v_cndmask_b32_e64 v3, v1, v2, s[22:23]"),
    ("s_mov_b64 s[20:21], -1", "v_cndmask_b32_e64 v3, v1, v2, s[20:21]"),
    ("v_cmp_lt_f32_e32 vcc, v1, v2", "s_and_b64 vcc, exec, vcc"),
    ("v_exp_f32_e32 v1, v2", "v_log_f32_e32 v3, v1"),
    ("v_mov_b32_e32 v1, v2", "v_add_f32_e32 v3, v1, v2"),
    ("v_mov_b32_e32 v1, v2", "v_writelane_b32 v1, s4, 3"),
    (
        "v_exp_f32_e32 v1, v2",
        "v_mov_b32_dpp v1, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0",
    ),
    ("global_store_dwordx2 v[2:3], v[4:5], off", "v_mov_b32_e32 v5, v1"),
    (MFMA, "v_mov_b32_e32 v4, v1"),
)


def between(states: int) -> list[str]:
    """The states as nops, of which each is at most sixteen."""
    return [f"s_nop {min(16, left) - 1}" for left in range(states, 0, -16)]


def joined(name: str, large: int, small: int) -> list[str]:
    """A kernel of which two paths have matrix instructions, each with so many states behind it, and
    meet where both results are read."""
    wide = "v_mfma_f32_32x32x8f16 v[16:31], v[4:5], v[6:7], 0"
    narrow = "v_mfma_f32_16x16x16f16 v[16:19], v[4:5], v[6:7], 0"
    return [
        "s_nop 15", "s_nop 15", f"s_cbranch_scc1 other_{name}", wide, *between(large - 1),
        f"s_branch both_{name}", f"other_{name}:", narrow, *between(small),
        f"both_{name}:", "v_add_f32_e32 v1, v16, v2", "s_endpgm",
    ]  # fmt: skip


def body(first: str, states: int, second: str) -> list[str]:
    # What stands around is far enough away.
    return ["s_nop 15", "s_nop 15", first, *between(states), second, "s_nop 15", "s_endpgm"]


@pytest.mark.parametrize(
    ("processor", "which", "large", "small"), [("gfx942", 2, 10, 6), ("gfx90a", 3, 19, 11)]
)
def test_what_is_used_too_soon_is_found(processor: str, which: int, large: int, small: int) -> None:
    if isinstance(found := runtime_library.find(), Missing):
        pytest.skip(str(found))
    needed = [int(rule[which]) for rule in RULES]
    kernels = {f"free_{k}": body(a, 0, b) for k, (a, b) in enumerate(FREE)}
    for k, ((first, second, *_), states) in enumerate(zip(RULES, needed, strict=True)):
        kernels[f"right_{k}"] = body(first, states, second)
        if not states:
            continue
        kernels[f"soon_{k}"] = body(first, states - 1, second)
        # Around a loop it is as near.
        around = ["s_nop 15", f"again_{k}:", second, *between(states - 2), first]
        kernels[f"around_{k}"] = [*around, f"s_cbranch_scc1 again_{k}", "s_nop 15", "s_endpgm"]
    for name, more in {
        "joined_0": (0, 0),
        "soon_large_0": (-1, 0),
        "soon_small_0": (0, -1),
    }.items():
        kernels[name] = joined(name, large + more[0], small + more[1])
    program = Assembler("cdna", processor).program(kernels)
    for name in kernels:
        said = [x for x in program.missing_waits(name) if x.kind is FindingKind.TOO_SOON]
        number = int(name.rpartition("_")[2])
        near = name.startswith("soon") or (name.startswith("around") and needed[number] > 1)
        assert bool(said) is near, (name, kernels[name], said)
        for finding in said:
            assert not finding.executed
            assert finding.to_json(name)["severity"] == "warning"
            assert finding.code == "object-too-soon"


WMMA = "v_wmma_f32_16x16x16_f16 v[40:47], v[{a}], v[{b}], v[32:39]"
GIVES, USES = "v_exp_f32_e32 v1, v2", "v_add_f32_e32 v3, v1, v2"
MOVE, LOG = "v_mov_b32_e32 v4, v5", "v_log_f32_e32 v4, v5"
SHIFTED = "v_mov_b32_dpp v1, v4 row_shr:1 row_mask:0xf"
DUAL = "v_dual_mov_b32 v4, v6 :: v_dual_mov_b32 v7, v{}"
#: Paths that meet: five moves behind the function on one, another function behind it on the other.
MET = [
    *("s_cbranch_scc1 other_{at}", GIVES, *[MOVE] * 5, "s_branch both_{at}"),
    *("other_{at}:", GIVES, LOG, "both_{at}:"),
]
#: Bodies of RDNA's kernels, and whether something is used too soon on gfx1100 and on gfx1201.
NARROW = (
    ([GIVES, USES], True, False),
    ([GIVES, *[MOVE] * 5, USES], True, False),
    ([GIVES, *[MOVE] * 6, USES], False, False),
    ([GIVES, LOG, USES], True, False),
    ([GIVES, LOG, LOG, USES], False, False),
    ([GIVES, "{ready}", USES], False, False),
    ([GIVES, "ds_load_b32 v4, v5", USES], False, False),
    ([GIVES, "v_mov_b32_e32 v1, v4", USES], False, False),
    ([GIVES, "v_writelane_b32 v1, s4, 3"], True, False),
    ([GIVES, "v_mov_b32_dpp v1, v4 row_shr:1 row_mask:0xf bank_mask:0xf"], True, False),
    (
        [GIVES, "v_mov_b32_dpp v1, v4 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1"],
        False,
        False,
    ),
    ([GIVES, "v_fmac_f32_e32 v1, v4, v5"], True, False),
    ([GIVES, "v_dual_mov_b32 v4, v6 :: v_dual_fmac_f32 v1, v3, v5"], True, False),
    ([GIVES, *[DUAL.format(9)] * 5, USES], True, False),
    ([GIVES, *[DUAL.format(9)] * 5, DUAL.format(1)], True, False),
    ([GIVES, *[DUAL.format(9)] * 6, USES], False, False),
    ([*MET, USES], True, False),
    ([*MET, LOG, USES], False, False),
    ([*MET, *[MOVE] * 3, USES], True, False),
    ([*MET, *[MOVE] * 4, USES], True, False),
    ([*MET, *[MOVE] * 5, USES], False, False),
    (["{wmma}", "{wmma_of_it}"], True, True),
    (["{wmma}", "v_nop", "{wmma_of_it}"], False, False),
    (["{wmma}", "{wmma}"], False, False),
)


@pytest.mark.parametrize(("processor", "family"), [("gfx1100", "rdna3"), ("gfx1201", "rdna4")])
def test_what_rdna_does_not_wait_for_is_found(processor: str, family: str) -> None:
    if isinstance(found := runtime_library.find(), Missing):
        pytest.skip(str(found))
    last = 7 if family == "rdna3" else 3  # the factors' last register
    own, other = f"16:{16 + last}", f"24:{24 + last}"
    words = {
        "wmma": WMMA.format(a=own, b=other),
        "wmma_of_it": WMMA.format(a=f"40:{40 + last}", b=other).replace(
            "v[40:47],", "v[48:55],", 1
        ),
        "ready": "s_waitcnt_depctr 0xfff" if family == "rdna3" else "s_nop 0",
    }
    kernels = {
        f"k{number}": [*(line.format(**words, at=number) for line in lines), "s_endpgm"]
        for number, (lines, *_) in enumerate(NARROW)
    }
    program = Assembler(family, processor).program(kernels)
    for number, (lines, *soon) in enumerate(NARROW):
        said = [x for x in program.missing_waits(f"k{number}") if x.kind is FindingKind.TOO_SOON]
        assert bool(said) is soon[family == "rdna4"], (lines, said)
