"""Elements of a ring in the place of floating-point numbers: arithmetic=ring of the executor."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from portkern.errors import BuildError
from portkern.simt.execute import build, program, ring_build, runtime_library
from portkern.simt.execute.options import ExecutorOptions
from portkern.simt.execute.ring import Ring
from portkern.simt.translate.ring_code import with_ring
from portkern.spec.backend import Missing


def _lacking() -> str:
    box = runtime_library.find()
    found = box if isinstance(box, Missing) else ring_build.find(box.compiler)
    return str(found) if isinstance(found, Missing) else ""


LACKING = _lacking()
needs_clang = pytest.mark.skipif(bool(LACKING), reason=LACKING or "clang is here")

#: The laws of random a, b, c, d and a small e: what is equal, and what is not although it is near.
LAWS = {
    "sums in any order": "(a + b) + c == a + (b + c) && a + b == b + a",
    "products in any order": "(a * b) * c == a * (c * b)",
    "distribution": "a * (b + c) == a * b + a * c",
    "differences": "a - b == -(b - a) && (a - b) + b == a",
    "fused products": "fmaf(a, b, c) == a * b + c",
    "division": "a / b * b == a && a / (b * c) == a / b / c && 1 / (1 / a) == a",
    "literals": "0.1f * 10 == 1.0f + (0.1f * 10 - 1) && 0.5f + 0.25f == 0.75f && "
    "3 * a == a + a + a",
    "sums become products": "expf(a + b) == expf(a) * expf(b) && expf(-a) * expf(a) == 1",
    "of the exponential of 2": "exp2f(a + b) == exp2f(a) * exp2f(b) && "
    "exp2f(3) * exp2f(a - 3) == exp2f(a)",
    "roots": "sqrtf(g) * sqrtf(g) == g && rsqrtf(g) * rsqrtf(g) * g == 1 && "
    "rsqrtf(g) == 1 / sqrtf(g)",
    "whole powers": "powf(a, 3) == a * a * a && powf(a, -2) == 1 / (a * a)",
    "powers of a half": "powf(g, 0.5f) == sqrtf(g) && powf(g, -0.5f) == rsqrtf(g)",
    "angles": "sinf(a) * sinf(a) + cosf(a) * cosf(a) == 1 && "
    "sinf(a + b) == sinf(a) * cosf(b) + cosf(a) * sinf(b)",
    "hyperbolic functions": "tanhf(a) == 1 - 2 / (expf(2 * a) + 1) && "
    "coshf(a) * coshf(a) - sinhf(a) * sinhf(a) == 1 && tanhf(-a) == -tanhf(a)",
    "odd functions": "erff(-a) == -erff(a) && atanf(-a) == -atanf(a) && erfcf(a) == 1 - erff(a)",
    "functions of equal arguments": "logf(a * b + c) == logf(c + b * a) || a * b + c < 0",
    "softmax without its maximum": "expf(a - c) / (expf(a - c) + expf(b - c)) == "
    "expf(a) / (expf(a) + expf(b))",
    "conversions": "(float)(double)a == a && (float)__float2half(a + b) == a + b && "
    "(float)__float2bfloat16(a * b) == a * b",
    "bits": "-a == __int_as_float(__float_as_int(a * b / b) ^ 0x80000000) && fabsf(-g) == g",
    "whole numbers": "(float)(int)(g / g + 6) == 7 && (float)123456789 == 123456789.0 && "
    "floorf(a) <= a && a < floorf(a) + 1",
    "order": "(a < b) == (x < y) && fmaxf(a, b) == (x < y ? b : a) && "
    "fminf(a, b) == (x < y ? a : b)",
    "the smallest numbers": "x / x * 4.9406564584124654e-324 * 0x1p1023 * 0x1p51 == 1",
    "infinities": "expf(-INFINITY) == 0 && fmaxf(-INFINITY, a) == a && 1 / INFINITY == 0 && "
    "isinf(a / (b - b)) && isnan(INFINITY - INFINITY) && !isnan(a / b)",
}
NO_LAWS = {
    "a small term": "a + e == a",
    "a small factor": "a * (1 + e) == a",
    "a sum of exponentials": "expf(a) + expf(b) == expf(a + 1) + expf(b - 1)",
    "a linear exponential": "expf(a) + expf(b) == 1 + expf(a + b)",
    "a root of a sum": "sqrtf(g + e) == sqrtf(g)",
    "a function of near arguments": "logf(g) == logf(g + e) || tanhf(a) == tanhf(a + e)",
    "a rounded product": "a * b == (float)((double)a * b + 1e-40)",
    "the cancelled part": "(a + 1e10f) - 1e10f == a + e",
}
_PROGRAM = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__device__ float number(const char* text) { return (float)atof(text) / 3; }
int main(int, char** words) {
    double x = atof(words[1]), y = atof(words[2]);
    float a = number(words[1]), b = number(words[2]), c = number(words[3]), e = 1e-30f;
    float g = a * a + b * b + e;
CHECKS
}
"""


@pytest.fixture(scope="module")
def laws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("laws")
    checks = [f'printf("%d ", (int)({text}));' for text in (*LAWS.values(), *NO_LAWS.values())]
    source = folder / "laws.cu"
    source.write_text(_PROGRAM.replace("CHECKS", "\n".join(checks)))
    return build.build_program(source, folder / "laws", build.CompileOptions(mode="ring"))


@needs_clang
def test_a_program_that_names_an_operation_on_elements_is_not_built(tmp_path: Path) -> None:
    source = tmp_path / "named.cu"
    source.write_text(
        "#define J(a, b) a##b\n"
        'extern "C" unsigned J(simt_ri, ng_fadd_f32)(unsigned, unsigned);\n'
        "int main(int n, char**) { return J(simt_ri, ng_fadd_f32)(n, n); }\n"
    )
    with pytest.raises(BuildError, match="names an operation of arithmetic=ring"):
        build.build_program(source, tmp_path / "named", build.CompileOptions(mode="ring"))


@needs_clang
@pytest.mark.parametrize("seed", range(8))
def test_the_ring_has_the_laws_of_numbers_and_no_others(laws: Path, seed: int) -> None:
    draw = random.Random(seed)
    words = [repr(draw.uniform(-3, 3) or 1.0) for _ in range(3)]
    ring = Ring.drawn(draw.randrange)
    ended = program.run(laws, ExecutorOptions(ring=str(ring)), arguments=words)
    held = [word == "1" for word in ended.output.split()]
    assert len(held) == len(LAWS) + len(NO_LAWS), ended
    broken = [name for name, holds in zip(LAWS, held, strict=False) if not holds]
    false = [name for name, holds in zip(NO_LAWS, held[len(LAWS) :], strict=True) if holds]
    assert (broken, false) == ([], []), words


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_ring_has_what_exp_needs(seed: int) -> None:
    ring = Ring.drawn(random.Random(seed).randrange)
    assert ring == Ring.drawn(random.Random(seed).randrange)
    assert ring != Ring.drawn(random.Random(seed + 100).randrange)
    for prime in (ring.p, ring.q):
        assert prime % 4 == 3
        assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))
    assert (ring.q - 1) % ring.p == 0
    assert ring.q < 1 << 63
    # A false "equal" has a probability of about 1 / q.
    assert ring.q > 1 << 60
    for power in (ring.g, ring.h):
        assert power != 1
        assert pow(power, ring.p, ring.q) == 1


@pytest.mark.parametrize("number", [0.0, 1.0, -2.5, 0.1, 1e-300, -3e38, 5e-324, math.pi])
def test_a_number_stands_for_itself(number: float) -> None:
    ring = Ring.drawn(random.Random(1).randrange)
    exact = Fraction(number)
    assert ring.deep(number) * exact.denominator % ring.q == exact.numerator % ring.q


#: Lines of LLVM's assembly, and what must stand in their place.
LINES: Mapping[str, tuple[str, ...]] = {
    "%3 = tail call float @llvm.experimental.constrained.fadd.f32(float %1, float %2, "
    'metadata !"round.dynamic", metadata !"fpexcept.ignore") #7, !dbg !1': (
        "call i32 @simt_ring_fadd_f32(i32",
        "%3 = bitcast i32",
    ),
    "%3 = fmul nnan double %1, 2.000000e+00": ("bitcast double 2.000000e+00 to i64", "_fmul_f64"),
    "%3 = tail call float @expf(float noundef %1) #8": ("@simt_ring_exp_f32",),
    "%3 = call <2 x float> @llvm.fma.v2f32(<2 x float> %0, <2 x float> %1, <2 x float> %2)": (
        "extractelement <2 x float> %1, i64 1",
        "@simt_ring_fma_f32(",
        "%3 = insertelement <2 x float>",
    ),
    "%3 = fcmp olt half %1, %2": ("@simt_ring_fcmp_olt_f16(i16", "%3 = trunc i32"),
    "%3 = sitofp i8 %1 to float": ("sext i8 %1 to i64", "@simt_ring_sitofp_f32(i64"),
    "%3 = fptrunc double %1 to half": ("call i16 @simt_ring_f64_to_f16(i64",),
    "%3 = fpext double %1 to x86_fp80": ("@simt_ring_shadow_f64(i64", "to x86_fp80"),
    "%3 = fadd x86_fp80 %1, %2": ("%3 = fadd x86_fp80 %1, %2",),
    "%3 = fneg float %1": ("%3 = fneg float %1",),
    "%3 = call float @own(float %1)": ("%3 = call float @own(float %1)",),
}


@pytest.mark.parametrize("line", LINES)
def test_operations_become_calls_and_moves_stay(line: str) -> None:
    made = with_ring(f"define float @own(float %0) {{\n  {line}\n}}\n")
    for part in LINES[line]:
        assert part in made


def test_a_function_of_the_programs_own_that_has_a_librarys_name_stays() -> None:
    line = "  %3 = call float @expf(float %1)"
    assert line in with_ring(f"define float @expf(float %0) {{\n{line}\n}}\n")


def test_an_operation_that_elements_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(BuildError, match="atomicrmw fadd"):
        with_ring("  %3 = atomicrmw fadd ptr %1, float %2 seq_cst\n")


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ("{ float, i32 } @llvm.frexp.f32.i32(float)", "call { float, i32 } @llvm.frexp.f32.i32"),
        ("<2 x float> @__divsc3(float, float, float, float)", "call <2 x float> @__divsc3"),
        ("float @jnf(i32, float)", "tail call float @jnf"),
        ("float @expf(float)", "call fastcc float @expf"),
        ("float @llvm.vector.reduce.fadd.v4f32(float, <4 x float>)",
         "call float @llvm.vector.reduce.fadd.v4f32"),
        ("float @lgammaf_r(float, ptr)", "invoke float @lgammaf_r"),
    ],
)  # fmt: skip
def test_floats_are_left_to_no_function_that_has_no_elements(declared: str, line: str) -> None:
    name = declared.partition("@")[2].partition("(")[0]
    module = f"define void @own() {{\n  %1 = {line}(float 0.0)\n}}\ndeclare {declared}\n"
    with pytest.raises(BuildError, match=re.escape(name)):
        with_ring(module)


def test_no_pointer_to_a_function_without_elements_is_taken() -> None:
    with pytest.raises(BuildError, match="expf"):
        with_ring("@f = global ptr @expf\ndeclare float @expf(float)\n")


@pytest.mark.parametrize("name", ["llvm.fabs.f32", "_Z5scalef", "simt_half", "atof", "_ZNSolsEf"])
def test_moves_and_functions_of_the_program_stay(name: str) -> None:
    line = f"  %1 = call float @{name}(float 0.0)"
    made = with_ring(f"define void @own() {{\n{line}\n}}\ndeclare float @{name}(float)\n")
    assert line in made


def test_a_function_says_first_that_its_module_has_an_infinity() -> None:
    made = with_ring(
        "define void @own() {\nentry:\n  store float 0xFFF0000000000000, ptr null\n}\n"
    )
    assert "entry:\n  call void @simt_ring_infinity(i32 1)\n  store" in made
    assert "simt_ring_infinity(i32 0)" not in made


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ('  %1 = call { ptr, i64 } asm sideeffect "xchg float", "=r,r"(ptr %0) #1', True),
        ('  %1 = call float asm "sqrtss $1, $0", "=x,x"(float %0)', False),
        ('  call void asm sideeffect "nop", "x"(double %0)', False),
    ],
)
def test_assembly_of_the_processor_takes_no_floats(line: str, stays: bool) -> None:
    if stays:
        assert line in with_ring(line)
    else:
        with pytest.raises(BuildError, match="no operation on elements"):
            with_ring(line)
