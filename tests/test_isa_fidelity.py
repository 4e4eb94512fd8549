"""The AMD executor's instructions, held to oracles: a part by the commit's date, and the page."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from portkern.isa import runtime_library
from portkern.isa.finding import FindingKind
from portkern.spec.backend import Missing
from tests import tiers
from tools.fidelity import figures, folding, machine, matrices, modes, suite
from tools.fidelity.instructions import PROCESSORS
from tools.fidelity.oracle import Array
from tools.fidelity.trial import Trial, given

#: A commit tries one form of so many, by its date.
PARTS = 12


@pytest.fixture(autouse=True)
def _executor() -> None:
    found = runtime_library.find()
    if isinstance(found, Missing):
        pytest.skip(str(found))


@pytest.mark.drawn
@pytest.mark.parametrize("family", PROCESSORS)
def test_instructions_give_what_oracles_say(family: str, request: pytest.FixtureRequest) -> None:
    day = tiers.day_of(request.config.rootpath)
    part = date.fromisoformat(day).toordinal() % PARTS if day else 0
    verdicts, _ = suite.run(family, 1024, part=(part, PARTS))
    assert len(verdicts) > 100
    assert not [f"{v.trial.line}: {v.example}" for v in verdicts if v.wrong]


def test_a_result_that_is_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of trial, held to the oracle of another instruction: as if the model were wrong."""
    table = suite.oracles("cdna")
    swaps = {"v_add_f32": "v_sub_f32", "s_and_b64": "s_or_b64", "v_cmp_lt_i32": "v_cmp_le_i32"}
    wrong = dict(table) | {name: table[other] for name, other in swaps.items()}
    monkeypatch.setattr(suite, "oracles", lambda family: wrong)
    for name in swaps:
        verdicts, _ = suite.run("cdna", 512, only=name)
        seen = {v.trial.name for v in verdicts if v.wrong > 10 and not v.trial.signs}
        assert seen == {name}


def test_a_matrix_instruction_that_adds_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """CDNA3's sums of halves, held to what adds one product after the other, differ in many last
    bits; sums of float32 are such a chain on both chips."""

    def chained(self: matrices.Matrix, a: Array, b: Array, c: Array) -> Array:
        return matrices._chained(a, b, c)

    monkeypatch.setattr(matrices.Matrix, "_truncated", chained)
    [halves, single] = (
        next(v for v in matrices.verdicts("cdna", 512, name) if v.trial.kernel.endswith("gfx942"))
        for name in ("v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x4_f32")
    )
    assert halves.inputs == 512 and halves.wrong > 100
    assert single.wrong == 0


def test_a_result_that_rounds_otherwise_than_the_mode_says_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = modes.rounded
    monkeypatch.setattr(modes, "rounded", lambda x, kind, _: exact(x, kind, modes.NEAREST))
    verdicts, _ = suite.run("cdna", 512, only="v_fma_f32_mode_f")
    assert {v.trial.kernel[-2:] for v in verdicts if v.wrong > 50} == {"f9", "f6", "ff"}


def mode_trial(name: str, line: str, mode: int, before: str | None = None) -> Trial:
    """A trial whose wave comes to an instruction in another mode."""
    [trial] = [
        trial
        for trial in suite.every_trial("cdna")
        if trial.kernel == f"v_add_f32_mode_{modes.ROUNDED[0]:02x}"
    ]
    said = trial.before.replace(f"{modes.ROUNDED[0]:#x}", f"{mode:#x}")
    return replace(trial, name=name, line=line, before=said if before is None else before)


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("v_dot2_f32_f16 v40, v32, v34, v36", None),
        ("v_mad_f16 v40, v32, v34, v36", None),
        ("v_fma_mix_f32 v40, v32, v34, v36", None),
        ("ds_add_f32 v29, v32", None),
        ("s_nop 0", "s_setreg_imm32_b32 hwreg(1, 8, 1), 0"),  # clamps pass NaNs
        ("s_nop 0", "s_setreg_imm32_b32 hwreg(1, 23, 1), 1"),  # halves saturate
    ],
)
def test_what_has_no_model_in_a_mode_is_refused_by_name(line: str, before: str | None) -> None:
    trial = mode_trial(line.split()[0], line, modes.FLUSHED[0], before)
    assembler = machine.Assembler("cdna")
    program = assembler.program({"it": suite.body(assembler.style, trial)})
    words = given(trial.oracle, 64, 1)
    ran = machine.launch(program, "it", words, words[:, :8].copy(), 64).ran
    refused = ran.needs_hardware
    assert refused is not None and refused.kind is FindingKind.MODE
    assert refused.mnemonic == (before or line).split()[0]


def test_a_launch_that_begins_with_flushed_denormals_flushes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = machine.descriptor

    def flushed(name: str, family: str) -> str:
        return described(name, family).replace("denorm_mode_32 3", "denorm_mode_32 0")

    monkeypatch.setattr(machine, "descriptor", flushed)
    trial = mode_trial("v_add_f32", "v_add_f32_e32 v40, v32, v34", 0, before="")
    assembler = machine.Assembler("cdna")
    program = assembler.program({"it": suite.body(assembler.style, trial)})
    words = np.zeros((64, machine.INPUTS), np.uint32)
    words[:, machine.ACTIVE] = 1
    words[:, 0], words[:, 2] = 0x80000001, 0x3F800000  # a denormal and one
    words[::2, 2] = 0x80000001
    result = machine.launch(program, "it", words, words[:, :8].copy(), 64)
    assert result.ran.clean
    assert result.words[::2, 0].tolist() == [0x80000000] * 32
    assert result.words[1::2, 0].tolist() == [0x3F800000] * 32


def test_inputs_have_all_special_values() -> None:
    table = suite.oracles("cdna")
    words = given(table["v_add_f32"], 2048, 1)
    for column in (0, 2):
        values = words[:, column].view(np.float32)
        assert np.isnan(values).any() and np.isinf(values).any()
        assert (np.signbit(values) & (values == 0)).any()
        assert ((abs(values) > 0) & (abs(values) < 2.0**-126)).any()
        signalling = np.isnan(values) & (words[:, column] & 0x400000 == 0)
        assert signalling.any()


def test_the_page_is_what_the_figures_say_and_knows_every_model() -> None:
    found = figures.read()
    assert figures.PAGE.read_text(encoding="utf-8") == figures.page(found)
    for family, known in found.items():
        assert len(known) >= 700
        assert not any(one.wrong for one in known.values())
        assert all(one.inputs >= 1000 for one in known.values())
        # The assembler may not know what a family's table has of a later chip.
        tried = {trial.name for trial in suite.every_trial(family)}
        for processor in matrices.PROCESSORS[family]:
            tried |= {matrix.name for matrix in matrices.every(family, processor)}
        assert known.keys() <= tried
        lacking = {row.name for row in suite.modelled(family)} - tried
        computing = {
            name for name in lacking if not name.startswith((*figures.IDLE, *figures.UNTRIED))
        }
        # Of masks that waves of 32 lanes do not have.
        assert not {name for name in computing if not name.endswith("exec_b64")}


def test_a_second_oracle_says_what_the_first_one_says() -> None:
    """LLVM's folding, whose arithmetic is not numpy's."""
    found = folding.every(32)
    assert len(found) > 300
    assert not {name: one.example for name, one in found.items() if one.wrong}
    known = figures.read_folded()
    assert found.keys() == known.keys()
    assert all(one.inputs >= 100 and not one.wrong for one in known.values())


def test_the_second_oracle_sees_an_oracle_that_is_wrong() -> None:
    table = suite.oracles("cdna")
    swaps = {
        "v_add_f32": "v_sub_f32",
        "v_cmp_lt_i32": "v_cmp_le_i32",
        "v_alignbit_b32": "v_perm_b32",
    }
    for name, other in swaps.items():
        [one] = folding.folded({name: table[other]}, 256).values()
        assert one.inputs > 200 and one.wrong > 5, (name, one)
