"""Inline PTX in a port: translated truly, or left with its name to a human."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.port.kernel_port import PROVEN
from portkern.port.lint import lint
from portkern.port.request import PortRequest
from portkern.port.run import run
from portkern.port.translate import translate
from portkern.simt.execute import runtime_library
from portkern.spec import target
from portkern.spec.backend import Missing

GFX942 = target.load("gfx942")


def hip(statement: str) -> str:
    text = translate(f"__device__ void f() {{ {statement} }}", "a.cu").text
    return text.partition("{ ")[2].removesuffix(" }")


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (
            'asm("{ .reg .pred q; setp.ne.s32 q, %1, 0;'
            ' vote.sync.ballot.b32 %0, q, 0xffffffff; }" : "=r"(b) : "r"(p));',
            "ptx_q = (int)ptx_1 != (int)0; ptx_0 = (unsigned)(__ballot(ptx_q) >> "
            "(__lane_id() & 32)); (b) = ptx_0;",
        ),
        (
            'asm volatile("shfl.sync.up.b32 %0, %1, 2, 0x1800, 0xffffffff;" : "=r"(q) : "r"(v));',
            "ptx_0 = __shfl_up(ptx_1, (unsigned)2, 8);",
        ),
        (
            'asm("{ .reg .f32 t; mul.f32 t, %1, 0f3f000000; add.f32 %0, t, %1; }"'
            ' : "=f"(f) : "f"(x));',
            "ptx_t = (ptx_1 * __int_as_float(0x3f000000)); ptx_0 = (ptx_t + ptx_1);",
        ),
        ('asm("mov.u32 %0, %%ctaid.y;" : "=r"(b));', "(b) = blockIdx.y;"),
        (
            'asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(k) : "f"(x));',
            "min(max(__float2int_rn(ptx_1), -128), 127)",
        ),
    ],
)
def test_several_instructions_are_a_block_whose_warps_have_32_lanes(
    cuda: str, expected: str
) -> None:
    assert expected in hip(cuda)


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");',
        'asm("{ .reg .pred p; setp.eq.s32 p, %1, 0; @p bra done; mov.u32 %0, 1; done: }"'
        ' : "=r"(r) : "r"(x));',
        'asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(s));',  # may repeat a sign
        'asm("shfl.sync.idx.b32 %0|p, %1, 0, 31, -1;" : "=r"(r) : "r"(a));',
        'asm("add.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));',
        'asm("setp.ne.f32 %0, %1, %2;" : "=r"(r) : "f"(a), "f"(b));',
    ],
)
def test_what_has_no_equivalent_is_left_and_named(statement: str) -> None:
    assert hip(statement) == statement
    found = lint(f"__global__ void k() {{ {statement} }}", "a.cu", target=GFX942)
    assert "PK019" in {hazard.code for hazard in found}


CALCULATED = r"""
#include <cuda_runtime.h>
__global__ void words(const unsigned* x, const int* s, unsigned* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned r = 0, t; unsigned long long w; int k;
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(k) : "r"(x[i]), "r"(s[i]), "r"(s[i ^ 3]));
  asm("bfi.b32 %0, %1, %2, %3, 40;" : "=r"(t) : "r"(x[i]), "r"(k), "r"(s[i] & 63));
  asm("{\n\t.reg .pred p;\n\t.reg .b32 t<2>;\n\tsetp.lt.s32 p, %1, %2;\n\tshr.s32 t0, %1, %3;\n\t"
      "shl.b32 t1, %2, %3;\n\tselp.b32 %0, t0, t1, p;\n\t@!p add.u32 %0, %0, 7;\n}"
      : "=r"(r) : "r"(x[i]), "r"(s[i]), "r"(s[i] & 63));
  asm("mad.wide.s32 %0, %1, %2, %3;"
      : "=l"(w) : "r"(s[i]), "r"((int)x[i]), "l"((unsigned long long)x[i]));
  asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "+r"(r) : "r"(x[i]), "r"(t), "r"(s[i] & 63));
  asm("{ .reg .u32 lo; and.b32 lo, %1, 0xffff; xor.b32 %0, lo, %0; }" : "+r"(t) : "r"(x[i]));
  y[i] = r ^ t ^ k ^ (unsigned)(w >> 32) ^ (unsigned)w;
}
__global__ void lanes(const int* x, int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i], o, m;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(o) : "r"(v));
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(m) : "r"(v));
  y[i] = o + m * 5;
}
__device__ void part_of_the_block(int id, int n) {
  asm volatile("barrier.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}
__global__ void halves(const int* x, int* y) {
  part_of_the_block(threadIdx.x / 32 + 1, 32);
  y[threadIdx.x] = x[threadIdx.x];
}
void go(const unsigned* x, const int* s, unsigned* y, int* z) {
  words<<<2, 128>>>(x, s, y);
  lanes<<<2, 64>>>(s, z);
  halves<<<1, 64>>>(s, z);
}
"""


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
def test_what_is_translated_is_proven_and_what_is_not_names_its_instruction(
    tmp_path: Path,
) -> None:
    source = tmp_path / "calculated.cu"
    source.write_text(CALCULATED)
    request = PortRequest(source, "hip", (GFX942,), tmp_path / "tree")
    proofs = {port.kernel: port.proof for port in run(request, tmp_path / "run").ports}
    assert proofs["words"].outcome == PROVEN
    assert proofs["lanes"].outcome == PROVEN
    assert proofs["halves"].outcome == "needs a human"
    assert "barrier.sync" in proofs["halves"].why
