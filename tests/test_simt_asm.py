"""Inline PTX as C++: what is translated does what a GPU does, what is not says why."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray

from portkern import ops
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.simt.translate import rewrite
from portkern.simt.translate.asm_statement import Asm, Operand
from portkern.simt.translate.inline_ptx import translate
from portkern.spec import catalogue, registry
from tests.simt.matrix import corpus

Words = NDArray[numpy.uint64]
RECORDED = Path(__file__).parent / "simt" / "matrix" / "device.npz"
HEADER = '#include "simt/ptx.h"'
MMA = "mma.sync.aligned.m16n8k16.row.col"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16"
BOX = "cp.async.bulk.tensor.2d"
TO = ".shared::cluster.global.mbarrier::complete_tx::bytes"

needs_compiler = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
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


def same(one: corpus.Case, got: Words, want: Words, kind: str) -> bool:
    """Bit for bit, but any NaN is a NaN, and approximations have their slack."""
    alike = got == want
    if not kind:
        return bool(alike.all())
    with numpy.errstate(all="ignore"):
        a, b = floats(got, kind), floats(want, kind)
        alike |= numpy.isnan(a) & numpy.isnan(b)
        # sums of several products are relative to the products, which are about 1
        scale = numpy.maximum(numpy.abs(b), 1.0 if "mma" in one.template else 0.0)
        alike |= numpy.abs(a - b) <= one.slack * scale
    return bool(alike.all())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.cu").write_text(corpus.program(HEADER))
    corpus.inputs().tofile(folder / "in")
    return build.build_program(folder / "corpus.cu", folder / "corpus")


@pytest.mark.full
@needs_compiler
@pytest.mark.parametrize(("warp", "order"), [(32, "forward"), (32, "random"), (64, "reverse")])
def test_every_instruction_does_what_a_gpu_does(built: Path, warp: int, order: str) -> None:
    """The results are compared with an H200's. A 64-lane warp is two of PTX's."""
    files = [str(built.parent / "in"), str(built.parent / "out")]
    how = ExecutorOptions(order=order)  # type: ignore[arg-type]
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
        ]
        if one.same and not all(same(one, x, y, kind) for x, y, kind in pairs):
            wrong.append(one.name)
    assert not wrong


@pytest.mark.full
@needs_compiler
def test_checkers_find_nothing_in_the_corpus(tmp_path: Path) -> None:
    """Lanes that read each other's registers in a warp instruction race with nobody."""
    (tmp_path / "corpus.cu").write_text(corpus.program(HEADER))
    corpus.inputs().tofile(tmp_path / "in")
    checked = build.build_program(
        tmp_path / "corpus.cu", tmp_path / "corpus", build.CompileOptions(mode="check")
    )
    how = ExecutorOptions(races=True, bounds=True, uninitialised=True, alignment=True)
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    outcome = program.run(checked, how, arguments=files)
    assert outcome.status == 0 and not outcome.findings, outcome


# ---- how it reads


def test_a_statement_is_a_block_of_one_line() -> None:
    assert translated("add.s32 %0, %1, %2;", "=r", "r n") == (
        "{ simt::ptx::Register<4> simt_0; simt::ptx::Register<4> simt_1((i0)); "
        "simt_0 = simt::ptx::add<int32_t>(simt_1, static_cast<int32_t>((i1))); "
        "(o0) = simt::ptx::result<decltype((o0))>(simt_0); }"
    )


@pytest.mark.parametrize(
    ("template", "outputs", "inputs", "written"),
    [
        ("mov.u32 %0, %%laneid;", "=r", "", "simt_0 = static_cast<uint32_t>(simt::ptx::lane());"),
        ("mov.f32 %0, 0f3F800000;", "=f", "", "simt::ptx::literal<float>(0x3F800000u)"),
        ("mov.b32 %0, 0f3F800000;", "=r", "", "static_cast<uint32_t>(0x3f800000ull)"),
        ("add.s32 %0, %0, -1;", "+r", "", "add<int32_t>(simt_0, static_cast<int32_t>((-1)))"),
        ("mov.u32 %0, (4*%1)<<2;", "=r", "n", "static_cast<uint32_t>(((4*(i0))<<2));"),
        ("add.f32 %0, %1, %1;", "=f", "0", "simt::ptx::add<float>(simt_0, simt_0)"),
        ("ld.shared.f32 %0, [%1 + 16];", "=f", "r", "ld<float>(simt::ptx::shared_at(simt_1, 16))"),
        ("ld.global.u32 %0, [%1+-4];", "=r", "l", "simt::ptx::flat_at(simt_1, (-4))"),
        ("ld.global.u32 %0, [%1 + %2];", "=r", "l n", "simt::ptx::flat_at(simt_1, (i1))"),
        ("{.reg .pred p; @!p bar.sync 0;}", "", "", "if (!simt_r_p) {"),
        ("{.reg .b32 %%t<3>; mov.u32 %%t2, 1;}", "", "", "simt_r_t2 = static_cast<uint32_t>(1);"),
        ("cp.async.wait_group %0;", "", "n", "simt::ptx::cp_async_wait((i0));"),
        ("bar.sync %0, 64 ; // all", "", "r", "bar_sync(simt_0, static_cast<uint32_t>(64));"),
        ('.pragma "nounroll"; membar.gl;', "", "", "simt::fence(simt::Scope::device);"),
        ("ld.global.cv.u32 %0, [%1];", "=r", "l", "simt::poll();"),
        (
            "{.reg .pred p; again: @!p bra again;}",
            "",
            "",
            "simt_l_again: ; if (!simt_r_p) goto simt_l_again;",
        ),
        (
            "mbarrier.arrive.shared::cta.b64 _, [%0], 3;",
            "",
            "r",
            "simt::ptx::as<uint32_t>(static_cast<uint32_t>(3)), 0, false)",
        ),
        (
            f"{BOX}{TO} [%0], [%1, {{%0, 8}}], [%0];",
            "",
            "r l",
            "box_load<2>(simt::ptx::shared_at(simt_0)",
        ),
        ("wgmma.wait_group.sync.aligned 1;", "", "", "simt::ptx::wgmma_wait(1);"),
        (
            f"{WGMMA}.f32.f16.f16 {{%0, %1, %2, %3}}, %4, %5, 1, 1, -1, 0, 1;",
            "+f +f +f +f",
            "l l",
            "wgmma<8, 16, simt::f16, simt::f16, float, (0) != 0, (1) != 0>",
        ),
    ],
)
def test_operands_become_registers_and_constants(
    template: str, outputs: str, inputs: str, written: str
) -> None:
    assert written in translated(template, outputs, inputs)


def test_names_stand_for_operands() -> None:
    statement = Asm(
        "neg.s32 %[to], %[from];", (Operand("=r", "x", "to"),), (Operand("r", "y", "from"),), 1
    )
    result = translate(statement)
    assert isinstance(result, str) and "simt_0 = simt::ptx::neg<int32_t>(simt_1);" in result


def test_scopes_have_registers_of_their_own() -> None:
    text = translated("{ .reg .b32 t; mov.u32 t, 1; } { .reg .b64 t; mov.u64 t, 2; }")
    assert "Register<4> simt_r_t;" in text and "Register<8> simt_r_t;" in text


# ---- what is not modelled


@pytest.mark.parametrize(
    ("code", "template", "outputs", "inputs", "reason"),
    [
        ("SX001", "foo.u32 %0, 1;", "=r", "", "'foo.u32'"),
        ("SX001", "add.s32.frob %0, %1, %1;", "=r", "r", "(.frob)"),
        ("SX001", "add.s32 %0, %1;", "=r", "r", "2 operands, not 3"),
        ("SX001", "add.s32 %0, %1, %4;", "=r", "r r", "operand %4 of an asm statement that has 3"),
        ("SX001", "add.u64 %0, %1, %1;", "=l", "r", "32 bits where 64 bits are wanted"),
        ("SX001", "ld.global.u32 %0, [%1];", "=r", "r", "an address of 32 bits"),
        ("SX001", "mov.u32 %0, elsewhere;", "=r", "", "'elsewhere'"),
        ("SX001", "mov.u32 %0, %%pm0;", "=r", "", "'%pm0'"),
        ("SX001", "mov.u32 %0, 1;", "=q", "", "constraint '=q'"),
        ("SX001", "mov.u32 %0, 1;", "=r", "²", "constraint '²'"),
        ("SX001", ".reg .b32 r<0x2>;", "", "", "'0x2' registers"),
        ("SX001", ".reg .b32 r<900000000>;", "", "", "'900000000' registers"),
        ("SX001", ".shared .b8 x[4];", "", "", "'.shared.b8'"),
        ("SX001", "{ mov.u32 %0, 1;", "=r", "", "a '{' without its '}'"),
        ("SX001", "mov.u32 %0, 1 1;", "=r", "", "'1' where ';' should be"),
        ("SX001", "addc.u32 %0, %1, %1;", "=r", "r", "a carry from another asm statement"),
        ("SX001", f"{MMA}.f32.f16.f16.f32 %0, %1, %1, %0;", "+f", "r", "1 registers, not 4"),
        ("SX001", f"{MMA}.f32.f16.bf16.f32 %0, %1, %1, %0;", "+f", "r", "'mma.sync"),
        ("SX001", f"mma.sp{MMA[3:]}.f32.f16.f16.f32 %0, %1, %1, %0;", "+f", "r", "mma.sp"),
        ("SX001", "cp.async.cg.shared.global [%0], [%1], 8;", "", "r l", ".cg copies 16"),
        ("SX002", f"{BOX}.im2col{TO} [%0], [%1, {{%0, %0}}], [%0];", "", "r l", "im2col"),
        (
            "SX002",
            f"{BOX}{TO}.multicast::cluster [%0], [%1, {{%0, %0}}], [%0];",
            "",
            "r l",
            "multicast",
        ),
        ("SX001", f"{BOX}{TO} [%0], [%1, {{%0, %0, %0}}], [%0];", "", "r l", "3 coordinates"),
        ("SX001", f"{BOX}{TO} [%0], [%1], [%0];", "", "r l", "without coordinates"),
        ("SX002", "cp.reduce.async.bulk.global.shared::cta.add.u32;", "", "", "cp.reduce"),
        ("SX003", "tex.2d.v4.f32.f32 {%0, %0, %0, %0}, [%1, {%0, %0}];", "+f", "l", "tex.2d"),
        ("SX009", "st.async.shared::cluster.u32 [%0], %0, [%0];", "", "r", "st.async"),
        ("SX001", f"{WGMMA}.f16.f16.f16 {{%0}}, %1, %1, 1, 1, 1, 0, 0;", "+f", "l", "1 registers"),
        ("SX010", f"{WGMMA}.f64.f64.f64 {{%0}}, %1, %1, 1;", "+f", "l", "wgmma.mma_async"),
        ("SX010", f"{WGMMA.replace('k16', 'k8')}.f32.f16.f16 {{%0}}, %1, %1, 1;", "+f", "l", "k8"),
        ("SX010", "wgmma.mma_async.sp.sync.aligned.m64n8k32;", "", "", "wgmma.mma_async.sp"),
        ("SX010", "tcgen05.wait::ld.sync.aligned;", "", "", "tcgen05"),
    ],
)
def test_what_is_not_modelled_is_named(
    code: str, template: str, outputs: str, inputs: str, reason: str
) -> None:
    result = translate(asm(template, outputs, inputs, line=41))
    assert isinstance(result, Diagnostic), result
    assert (result.code, result.line) == (code, 41)
    assert reason in result.message


def test_an_operand_too_few_is_always_noticed() -> None:
    for one in corpus.CASES:
        kept = [o.split(":")[0] for o in (*one.outputs, *one.inputs)][:-1]
        outputs = tuple(Operand(c, "o") for c in kept[: len(one.outputs)])
        inputs = tuple(Operand(c, "i") for c in kept[len(one.outputs) :])
        if one.outputs or one.inputs:
            assert isinstance(translate(Asm(one.template, outputs, inputs, 1)), Diagnostic), one


@pytest.mark.parametrize("name", ops.CORE)
def test_the_catalogues_kernels_translate(name: str) -> None:
    [kernel] = catalogue.candidates(name, registry.load("cuda"))
    text = rewrite.rewrite(kernel.source, f"{name}.cu").text
    refused = set(re.findall(r"SX0\d\d [^\"]*", text))
    # What a macro that selects an instruction might be elsewhere is refused only if it is used, and
    # so is what stands for Hopper alone.
    known = ("a value that is not seen in the source", "TMA", "clusters")
    assert all(any(words in reason for words in known) for reason in refused)


SIDE_BY_SIDE = """
#include <cstdio>
__global__ void add(float* sums, int from) {
    float x = threadIdx.x;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums + from), "f"(x),
                 "f"(2 * x), "f"(3 * x), "f"(1.0f) : "memory");
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %1};" ::"l"(sums + from + 4), "f"(x)
                 : "memory");
}
int main(int argc, char**) {
    float *sums, host[8];
    cudaMalloc(&sums, 64);
    cudaMemset(sums, 0, 64);
    add<<<1, 64>>>(sums, argc > 1 ? 1 : 0);
    cudaMemcpy(host, sums, 32, cudaMemcpyDeviceToHost);
    for (float x : host) printf("%g ", x);
}
"""


@pytest.mark.full
@needs_compiler
def test_numbers_side_by_side_are_added_and_their_place_is_a_multiple_of_theirs(
    tmp_path: Path,
) -> None:
    (tmp_path / "add.cu").write_text(SIDE_BY_SIDE)
    built = build.build_program(tmp_path / "add.cu", tmp_path / "add")
    right = program.run(built, ExecutorOptions(), warp=32)
    assert right.output.split() == ["2016", "4032", "6048", "64", "2016", "2016", "0", "0"], right
    wrong = program.run(built, ExecutorOptions(), warp=32, arguments=["odd"])
    assert [finding.code for finding in wrong.findings][:1] == ["SX106"], wrong


@pytest.mark.parametrize(
    "template",
    [
        "atom.global.add.v4.f32 {%0, %1, %2, %3}, [%4], {%5, %5, %5, %5};",
        "red.global.max.v4.f32 [%4], {%5, %5, %5, %5};",
        "red.shared.add.v4.f32 [%4], {%5, %5, %5, %5};",
        "red.global.add.v4.f32 [%4], {%5, %5};",
    ],
)
def test_other_changes_of_numbers_side_by_side_are_refused(template: str) -> None:
    assert isinstance(translate(asm(template, "=f =f =f =f", "l f")), Diagnostic)
