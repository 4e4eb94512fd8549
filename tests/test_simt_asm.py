"""Inline PTX as C++: what is translated does what a GPU does, what is not says why."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray

from portkern.simt import build, program, toolbox
from portkern.simt.asm import translate
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.inline_asm import Asm, Operand
from portkern.simt.options import Run
from tests.simt.matrix import corpus

Words = NDArray[numpy.uint64]
RECORDED = Path(__file__).parent / "simt" / "matrix" / "device.npz"
HEADER = '#include "simt/ptx.h"'

needs_compiler = pytest.mark.skipif(
    not isinstance(toolbox.find(), toolbox.Toolbox), reason=str(toolbox.find())
)


def asm(template: str, outputs: str = "", inputs: str = "", line: int = 7) -> Asm:
    """Operands are constraints; the expressions are ``o0``, ``o1`` … and ``i0``, ``i1`` …"""
    return Asm(
        template,
        tuple(Operand(c, f"o{i}") for i, c in enumerate(outputs.split())),
        tuple(Operand(c, f"i{i}") for i, c in enumerate(inputs.split())),
        line,
    )


def translated(template: str, outputs: str = "", inputs: str = "") -> str:
    result = translate(asm(template, outputs, inputs))
    assert isinstance(result, str), result
    return result


# ---- beside a GPU


def floats(words: Words, kind: str) -> NDArray[numpy.float64]:
    if kind == "d":
        return words.view(numpy.float64)
    if kind == "f":
        return words.astype(numpy.uint32).view(numpy.float32).astype(numpy.float64)
    if kind == "f16":
        return words.astype(numpy.uint16).view(numpy.float16).astype(numpy.float64)
    return (words.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)


def parts(words: Words, operand: str) -> list[tuple[Words, str]]:
    """The numbers in the words of an output and how they are floats; "" for integers."""
    letter, _, kind = operand.lstrip("=").partition(":")
    if letter in "fd" or kind == "float":
        return [(words, "d" if letter == "d" else "f")]
    form = "bf16" if kind.startswith("bf16") else "f16" if kind.startswith("f16") else ""
    if not form or letter == "h":
        return [(words, form)]
    low = numpy.uint64(0xFFFF)
    return [(words & low, form), (words >> numpy.uint64(16) & low, form)]


def same(one: corpus.Case, got: Words, want: Words, kind: str) -> NDArray[numpy.bool_]:
    """Bit for bit, but any NaN is a NaN, and approximations have their slack."""
    alike = got == want
    if not kind:
        return alike
    with numpy.errstate(all="ignore"):
        a, b = floats(got, kind), floats(want, kind)
        alike |= numpy.isnan(a) & numpy.isnan(b)
        # sums of several products are relative to the products, which are about 1
        scale = numpy.maximum(numpy.abs(b), 1.0 if "mma" in one.template else 0.0)
        return alike | (numpy.abs(a - b) <= one.slack * scale)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.cu").write_text(corpus.program(HEADER))
    corpus.inputs().tofile(folder / "in")
    return build.build_program(folder / "corpus.cu", folder / "corpus")


@needs_compiler
@pytest.mark.parametrize(("warp", "order"), [(32, "forward"), (32, "random"), (64, "reverse")])
def test_every_instruction_does_what_a_gpu_does(built: Path, warp: int, order: str) -> None:
    """Beside what an H200 answered. A 64-lane warp is two of PTX's."""
    files = [str(built.parent / "in"), str(built.parent / "out")]
    how = Run(order=order)  # type: ignore[arg-type]
    outcome = program.run(built, how, warp=warp, arguments=files)
    assert outcome.status == 0 and not outcome.findings, outcome
    shape = (len(corpus.CASES), corpus.THREADS, corpus.OUTPUTS)
    got = numpy.fromfile(files[1], numpy.uint64).reshape(shape)
    with numpy.load(RECORDED) as recorded:
        device = dict(zip(recorded["names"].tolist(), recorded["results"], strict=True))
    wrong = []
    for one, ours in zip(corpus.CASES, got, strict=True):
        theirs = device[one.name]
        kinds = [*one.outputs, *["=l"] * (corpus.OUTPUTS - len(one.outputs))]
        pairs = [
            (x, y, kind)
            for i, operand in enumerate(kinds)
            for (x, kind), (y, _) in zip(
                parts(ours[: len(theirs), i], operand), parts(theirs[:, i], operand), strict=True
            )
        ]  # fmt: skip
        if one.same and not all(same(one, x, y, kind).all() for x, y, kind in pairs):
            wrong.append(one.name)
    assert not wrong


@needs_compiler
def test_checkers_find_nothing_in_the_corpus(tmp_path: Path) -> None:
    """Lanes that read each other's registers in a warp instruction race with nobody."""
    (tmp_path / "corpus.cu").write_text(corpus.program(HEADER))
    corpus.inputs().tofile(tmp_path / "in")
    checked = build.build_program(tmp_path / "corpus.cu", tmp_path / "corpus", mode="check")
    how = Run(races=True, bounds=True, uninitialised=True, alignment=True)
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    outcome = program.run(checked, how, arguments=files)
    assert outcome.status == 0 and not outcome.findings, outcome


# ---- how it reads


def test_a_statement_is_a_block_of_one_line_with_its_operands() -> None:
    assert translated("add.s32 %0, %1, %2;", "=r", "r n") == (
        "{ simt::ptx::Register<4> simt_0; simt::ptx::Register<4> simt_1(i0); "
        "simt_0 = simt::ptx::add<int32_t>(simt_1, static_cast<int32_t>((i1))); "
        "(o0) = simt::ptx::result<decltype((o0))>(simt_0); }"
    ).replace("simt_1(i0)", "simt_1((i0))").replace("(i0))", "i0)").replace("simt_1(i0", "simt_1(i0")
