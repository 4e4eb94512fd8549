"""Idle states that CDNA asks for between two instructions, looked for in the code alone."""

from __future__ import annotations

import pytest

from portkern.isa import runtime_library
from portkern.isa.finding import Kind
from portkern.spec.backend import Missing
from tools.fidelity.machine import Assembler

DPP = "v_mov_b32_dpp v3, v1 row_shr:1 row_mask:0xf bank_mask:0xf"
MFMA = "v_mfma_f32_16x16x16_f16 v[12:15], v[4:5], v[6:7], v[8:11]"
#: What gives something, what uses it, and the states that must lie in between on gfx942.
RULES = (
    ("v_cmp_lt_u32_e64 s[20:21], v1, v2", "v_cndmask_b32_e64 v3, v1, v2, s[20:21]", 2),
    ("v_readfirstlane_b32 s20, v1", "v_add_u32_e32 v3, s20, v2", 2),
    ("v_readfirstlane_b32 s20, v1", "buffer_load_dword v3, v2, s[20:23], 0 offen", 5),
    ("v_readfirstlane_b32 s20, v1", "v_readlane_b32 s4, v2, s20", 4),
    ("v_cmp_lt_f32_e32 vcc, v1, v2", "v_div_fmas_f32 v3, v1, v2, v4", 4),
    ("v_cmpx_lt_u32_e32 vcc, v4, v2", DPP, 5),
    ("v_cmpx_lt_u32_e32 vcc, v4, v2", "v_readfirstlane_b32 s4, v3", 4),
    ("v_mov_b32_e32 v1, v2", DPP, 2),
    ("v_mov_b32_e32 v1, v2", "v_readlane_b32 s4, v1, 3", 1),
    ("v_exp_f32_e32 v1, v2", "v_add_f32_e32 v3, v1, v2", 1),
    ("v_mov_b32_sdwa v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE", "v_not_b32_e32 v3, v1", 1),
    ("global_store_dwordx4 v[2:3], v[4:7], off", "v_mov_b32_e32 v5, v1", 2),
    ("v_mov_b32_e32 v4, v1", MFMA, 2),
    (MFMA, "v_add_f32_e32 v1, v12, v2", 6),
    (MFMA, "global_store_dwordx4 v[2:3], v[12:15], off", 6),
    (MFMA, "v_mov_b32_e32 v13, v1", 6),
    (MFMA, "v_mov_b32_e32 v9, v1", 3),
)
#: Pairs that ask for nothing: other registers, other units, or a unit that waits by itself.
FREE = (
    ("v_cmp_lt_u32_e64 s[20:21], v1, v2", "v_cndmask_b32_e64 v3, v1, v2, s[22:23]"),
    ("s_mov_b64 s[20:21], -1", "v_cndmask_b32_e64 v3, v1, v2, s[20:21]"),
    ("v_cmp_lt_f32_e32 vcc, v1, v2", "s_and_b64 vcc, exec, vcc"),
    ("v_exp_f32_e32 v1, v2", "v_log_f32_e32 v3, v1"),
    ("v_mov_b32_e32 v1, v2", "v_add_f32_e32 v3, v1, v2"),
    ("global_store_dwordx2 v[2:3], v[4:5], off", "v_mov_b32_e32 v5, v1"),
    (MFMA, "v_mov_b32_e32 v4, v1"),
)


def between(states: int) -> list[str]:
    """The states as nops, of which each is at most sixteen."""
    return [f"s_nop {states - 1}"] if states else []


def body(first: str, states: int, second: str) -> list[str]:
    # What stands around is far enough away.
    return ["s_nop 15", "s_nop 15", first, *between(states), second, "s_nop 15", "s_endpgm"]


def test_what_is_used_too_soon_is_found() -> None:
    if isinstance(found := runtime_library.find(), Missing):
        pytest.skip(str(found))
    kernels = {f"free_{k}": body(a, 0, b) for k, (a, b) in enumerate(FREE)}
    for k, (first, second, states) in enumerate(RULES):
        kernels[f"right_{k}"] = body(first, states, second)
        kernels[f"soon_{k}"] = body(first, states - 1, second)
        # Around a loop it is as near.
        around = ["s_nop 15", f"again_{k}:", second, *between(states - 2), first]
        kernels[f"around_{k}"] = [*around, f"s_cbranch_scc1 again_{k}", "s_nop 15", "s_endpgm"]
    program = Assembler("cdna", "gfx942").program(kernels)
    for name in kernels:
        said = [x for x in program.missing_waits(name) if x.kind is Kind.TOO_SOON]
        number = int(name.rpartition("_")[2])
        near = name.startswith("soon") or (name.startswith("around") and RULES[number][2] > 1)
        assert bool(said) is near, (name, kernels[name], said)
        for finding in said:
            assert not finding.executed
            assert finding.to_json(name)["severity"] == "warning"
            assert finding.code == "object-too-soon"
