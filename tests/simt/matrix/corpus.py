# ruff: noqa: E501
"""PTX statements, one of each kind that is modelled, with inputs that show what they do.

The same program runs on a GPU (record.py, whose results are device.npz) and in the executor.
An operand is ``constraint:kind``; kinds say how its inputs are drawn and its results compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy
from numpy.typing import NDArray

THREADS, INPUTS, OUTPUTS = 64, 16, 12
Words = NDArray[numpy.uint64]


@dataclass(frozen=True)
class Case:
    """One statement. ``memory``: what it leaves in the thread's 32 bytes of shared and of global
    memory are results too. ``slack`` is the relative error a GPU's approximation may have."""

    template: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    memory: bool = False
    slack: float = 0.0
    same: bool = field(default=True)  # False: results are not comparable, clocks for instance

    @property
    def name(self) -> str:
        return f"{self.template} {' '.join(self.outputs)} : {' '.join(self.inputs)}"


CASES: list[Case] = []


def case(
    template: str, outputs: str = "", inputs: str = "", *, memory: bool = False, slack: float = 0.0,
    same: bool = True,
) -> None:  # fmt: skip
    CASES.append(Case(template, tuple(outputs.split()), tuple(inputs.split()), memory, slack, same))


# ---- arithmetic

R, R64, R16 = "r:int", "l:long", "h:short"
for t in ("s32", "u32"):
    for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"):
        case(f"{op}.{t} %0, %1, %2;", "=r", f"{R} r:nonzero")
    case(f"mul.wide.{t} %0, %1, %2;", "=l", f"{R} {R}")
    case(f"mad.lo.{t} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
    case(f"mad.hi.{t} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
    case(f"mad.wide.{t} %0, %1, %2, %3;", "=l", f"{R} {R} {R64}")
    case(f"mul24.lo.{t} %0, %1, %2;", "=r", f"{R} {R}")
    case(f"mad24.lo.{t} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
    case(f"sad.{t} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
for t in ("s64", "u64"):
    for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"):
        case(f"{op}.{t} %0, %1, %2;", "=l", f"{R64} l:nonzero")
    case(f"mad.lo.{t} %0, %1, %2, %3;", "=l", f"{R64} {R64} {R64}")
for t in ("s16", "u16"):
    for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
        case(f"{op}.{t} %0, %1, %2;", "=h", f"{R16} {R16}")
    case(f"mul.wide.{t} %0, %1, %2;", "=r", f"{R16} {R16}")
    case(f"mad.wide.{t} %0, %1, %2, %3;", "=r", f"{R16} {R16} {R}")
case("add.sat.s32 %0, %1, %2;", "=r", f"{R} {R}")
case("sub.sat.s32 %0, %1, %2;", "=r", f"{R} {R}")
case("{ add.cc.u32 %0, %2, %4; addc.u32 %1, %3, %5; }", "=r =r", f"{R} {R} {R} {R}")
case("{ sub.cc.u32 %0, %2, %4; subc.cc.u32 %1, %3, %5; }", "=r =r", f"{R} {R} {R} {R}")
case("{ mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, %5; }", "=r =r", f"{R} {R} {R} {R}")
for t in ("s32", "s64"):
    c, i = ("r", R) if t == "s32" else ("l", R64)
    case(f"neg.{t} %0, %1;", f"={c}", i)
    case(f"abs.{t} %0, %1;", f"={c}", i)

F, FN, D = "f:float", "f:normal", "d:double"
for mode in ("", ".rn", ".rz", ".rm", ".rp"):
    for op in ("add", "sub", "mul"):
        case(f"{op}{mode}.f32 %0, %1, %2;", "=f", f"{F} {F}")
        case(f"{op}{mode}.f64 %0, %1, %2;", "=d", f"{D} {D}")
    if mode:
        case(f"fma{mode}.f32 %0, %1, %2, %3;", "=f", f"{F} {F} {F}")
        case(f"fma{mode}.f64 %0, %1, %2, %3;", "=d", f"{D} {D} {D}")
        case(f"div{mode}.f32 %0, %1, %2;", "=f", f"{F} {F}")
        case(f"rcp{mode}.f32 %0, %1;", "=f", F)
        case(f"sqrt{mode}.f32 %0, %1;", "=f", F)
        case(f"div{mode}.f64 %0, %1, %2;", "=d", f"{D} {D}")
case("mad.rn.f32 %0, %1, %2, %3;", "=f", f"{F} {F} {F}")
for ftz in ("add.ftz", "mul.ftz.sat", "add.sat", "sub.ftz"):
    case(f"{ftz}.f32 %0, %1, %2;", "=f", f"{F} {F}")
case("fma.rn.ftz.f32 %0, %1, %2, %3;", "=f", f"{F} {F} {F}")
case("fma.rn.sat.f32 %0, %1, %2, %3;", "=f", f"{F} {F} {F}")
for op in ("neg", "abs", "neg.ftz", "abs.ftz"):
    case(f"{op}.f32 %0, %1;", "=f", F)
case("neg.f64 %0, %1;", "=d", D)
case("abs.f64 %0, %1;", "=d", D)
for op in ("min", "max", "min.ftz", "max.NaN", "min.ftz.NaN"):
    case(f"{op}.f32 %0, %1, %2;", "=f", f"{F} {F}")
case("min.f64 %0, %1, %2;", "=d", f"{D} {D}")
case("max.f64 %0, %1, %2;", "=d", f"{D} {D}")
case("copysign.f32 %0, %1, %2;", "=f", f"{F} {F}")
for which in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
    case(f"{{ .reg .pred p; testp.{which}.f32 p, %1; selp.b32 %0, 1, 0, p; }}", "=r", F)
case("div.approx.f32 %0, %1, %2;", "=f", f"{FN} {FN}", slack=2**-21)
case("div.full.ftz.f32 %0, %1, %2;", "=f", f"{FN} {FN}", slack=2**-21)
for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "tanh"):
    slack = {"tanh": 2**-10, "lg2": 2**-19}.get(op, 2**-21)
    case(f"{op}.approx.f32 %0, %1;", "=f", "f:positive", slack=slack)
case("rsqrt.approx.ftz.f32 %0, %1;", "=f", "f:positive", slack=2**-21)
case("ex2.approx.ftz.f32 %0, %1;", "=f", "f:unit", slack=2**-21)
case("sin.approx.f32 %0, %1;", "=f", "f:unit", slack=2**-18)
case("cos.approx.ftz.f32 %0, %1;", "=f", "f:unit", slack=2**-18)
case("rsqrt.approx.f64 %0, %1;", "=d", "d:dpositive", slack=2**-50)
case("sqrt.rn.f64 %0, %1;", "=d", "d:dpositive")
case("rcp.rn.f64 %0, %1;", "=d", "d:dpositive")

for t, kind in (("f16", "f16"), ("bf16", "bf16")):
    h, p = f"h:{kind}", f"r:{kind}x2"
    for op in ("add.rn", "sub.rn", "mul.rn", "min", "max", "max.NaN"):
        case(f"{op}.{t} %0, %1, %2;", f"={h}", f"{h} {h}")
        case(f"{op}.{t}x2 %0, %1, %2;", f"={p}", f"{p} {p}")
    case(f"fma.rn.{t} %0, %1, %2, %3;", f"={h}", f"{h} {h} {h}")
    case(f"fma.rn.{t}x2 %0, %1, %2, %3;", f"={p}", f"{p} {p} {p}")
    case(f"fma.rn.relu.{t}x2 %0, %1, %2, %3;", f"={p}", f"{p} {p} {p}")
    case(f"neg.{t}x2 %0, %1;", f"={p}", p)
    case(f"abs.{t}x2 %0, %1;", f"={p}", p)
    for cmp in ("eq", "lt", "geu", "ne", "neu", "nan"):
        case(
            f"{{ .reg .pred p, q; setp.{cmp}.{t}x2 p|q, %2, %3;"
            " selp.b32 %0, 1, 0, p; selp.b32 %1, 1, 0, q; }",
            "=r =r", f"{p} {p}",
        )  # fmt: skip
    case(f"{{ .reg .pred p; setp.gt.{t} p, %1, %2; selp.b32 %0, 1, 0, p; }}", "=r", f"{h} {h}")
for op in ("add.rn.ftz", "add.rn.sat", "mul.rn.ftz.sat"):
    case(f"{op}.f16x2 %0, %1, %2;", "=r:f16x2", "r:f16x2 r:f16x2")
case("ex2.approx.f16x2 %0, %1;", "=r:f16x2", "r:f16x2unit", slack=2**-9)
case("tanh.approx.f16x2 %0, %1;", "=r:f16x2", "r:f16x2unit", slack=2**-9)
case("tanh.approx.bf16x2 %0, %1;", "=r:bf16x2", "r:bf16x2unit", slack=2**-6)
for t in ("s16x2", "u16x2"):
    for op in ("add", "min", "max"):
        case(f"{op}.{t} %0, %1, %2;", "=r", f"{R} {R}")
case("max.relu.s32 %0, %1, %2;", "=r", f"{R} {R}")
case("min.relu.s16x2 %0, %1, %2;", "=r", f"{R} {R}")

# ---- bits

for op in ("and", "or", "xor"):
    case(f"{op}.b32 %0, %1, %2;", "=r", f"{R} {R}")
    case(f"{op}.b64 %0, %1, %2;", "=l", f"{R64} {R64}")
case("not.b32 %0, %1;", "=r", R)
case("cnot.b32 %0, %1;", "=r", "r:small")
for t in ("shl.b32", "shr.u32", "shr.s32", "shr.b32"):
    case(f"{t} %0, %1, %2;", "=r", f"{R} r:small")
for t in ("shl.b64", "shr.u64", "shr.s64"):
    case(f"{t} %0, %1, %2;", "=l", f"{R64} r:small")
case("shl.b16 %0, %1, %2;", "=h", f"{R16} r:small")
case("shr.s16 %0, %1, %2;", "=h", f"{R16} r:small")
for side in ("l", "r"):
    for mode in ("clamp", "wrap"):
        case(f"shf.{side}.{mode}.b32 %0, %1, %2, %3;", "=r", f"{R} {R} r:small")
for table in (0x96, 0xE8, 0xCA, 0x6A, 0x01, 0xEA):
    case(f"lop3.b32 %0, %1, %2, %3, {table:#x};", "=r", f"{R} {R} {R}")
case("prmt.b32 %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
case("prmt.b32 %0, %1, %2, 0x5410;", "=r", f"{R} {R}")
for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
    case(f"prmt.b32.{mode} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
for t in ("u32", "s32"):
    case(f"bfe.{t} %0, %1, %2, %3;", "=r", f"{R} r:small r:small")
    case(f"bfind.{t} %0, %1;", "=r", R)
    case(f"bfind.shiftamt.{t} %0, %1;", "=r", R)
for t in ("u64", "s64"):
    case(f"bfe.{t} %0, %1, %2, %3;", "=l", f"{R64} r:small r:small")
    case(f"bfind.{t} %0, %1;", "=r", R64)
case("bfi.b32 %0, %1, %2, %3, %4;", "=r", f"{R} {R} r:small r:small")
case("bfi.b64 %0, %1, %2, %3, %4;", "=l", f"{R64} {R64} r:small r:small")
for op in ("popc", "clz"):
    case(f"{op}.b32 %0, %1;", "=r", R)
    case(f"{op}.b64 %0, %1;", "=r", R64)
case("brev.b32 %0, %1;", "=r", R)
case("brev.b64 %0, %1;", "=l", R64)
case("fns.b32 %0, %1, %2, 1;", "=r", f"{R} r:lane")
for a in ("s32", "u32"):
    for b in ("s32", "u32"):
        case(f"dp4a.{a}.{b} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
        case(f"dp2a.lo.{a}.{b} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")
        case(f"dp2a.hi.{a}.{b} %0, %1, %2, %3;", "=r", f"{R} {R} {R}")

# ---- comparisons

P = "{{ .reg .pred p; setp.{}.{} p, %1, %2; selp.b32 %0, 1, 0, p; }}"
for cmp in ("eq", "ne", "lt", "le", "gt", "ge"):
    for t, kind in (("s32", R), ("u32", R), ("f32", F)):
        case(P.format(cmp, t), "=r", f"{kind} {kind}")
    case(P.format(f"{cmp}u", "f32"), "=r", f"{F} {F}")
    case(P.format(cmp, "f64"), "=r", f"{D} {D}")
for cmp in ("lo", "ls", "hi", "hs"):
    case(P.format(cmp, "u32"), "=r", f"{R} {R}")
case(P.format("num", "f32"), "=r", f"{F} {F}")
case(P.format("nan", "f32"), "=r", f"{F} {F}")
case(P.format("gt.ftz", "f32"), "=r", f"{F} {F}")
case(
    "{ .reg .pred p, q, r; setp.lt.s32 r, %2, 0; setp.gt.and.s32 p|q, %3, %4, !r;"
    " selp.u32 %0, 7, 9, p; @!q mov.u32 %1, 5; @q mov.u32 %1, %2; }",
    "=r =r", f"{R} {R} {R}",
)  # fmt: skip
case(
    "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; setp.ge.xor.s32 q, %2, %3, p; and.pred p, p, q;"
    " not.pred q, p; xor.pred p, p, q; or.pred p, p, q; selp.s32 %0, %1, %2, q; }",
    "=r", f"r:small {R} {R}",
)  # fmt: skip
case("set.lt.u32.s32 %0, %1, %2;", "=r", f"{R} {R}")
# recorded in a function that ptxas inlined: in one it did not, ptxas 13.0 made 1 of 1.0
case("set.gt.f32.f32 %0, %1, %2;", "=f", f"{F} {F}")
case("{ .reg .pred p; setp.gt.f32 p, %1, 0f00000000; selp.f32 %0, %1, 0f3F800000, p; }", "=f", F)
case("slct.s32.f32 %0, %1, %2, %3;", "=r", f"{R} {R} {F}")
case("slct.u32.s32 %0, %1, %2, %3;", "=r", f"{R} {R} {R}")

# ---- moves and conversions

case("mov.b64 {%0, %1}, %2;", "=r =r", R64)
case("mov.b64 %0, {%1, %2};", "=l", f"{R} {R}")
case("mov.b32 {%0, %1}, %2;", "=h =h", R)
case("mov.b32 %0, {%1, %2};", "=r", f"{R16} {R16}")
case("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo}; }", "=r", R)
case("mov.b64 %0, %1;", "=d", R64)
case("mov.b32 %0, %1;", "=r", F)
case("mov.f32 %0, 0fC0490FDB;", "=f")
case("mov.f64 %0, 0d400921FB54442D18;", "=d")
case("mov.u32 %0, -3;", "=r")
for name in ("tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ctaid.x", "ctaid.z", "nctaid.x",
             "laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt",
             "lanemask_ge"):  # fmt: skip
    case(f"mov.u32 %0, %%{name};", "=r")
for name, t, c in (
    ("warpid", "u32", "r"),
    ("smid", "u32", "r"),
    ("nsmid", "u32", "r"),
    ("clock", "u32", "r"),
    ("clock64", "u64", "l"),
    ("globaltimer", "u64", "l"),
):
    case(f"mov.{t} %0, %%{name};", f"={c}", same=False)

for t in ("s32", "u32", "s64", "u64", "s16", "u16", "u8", "s8"):
    c = "l" if "64" in t else "r"
    out = "r" if c == "r" and "16" not in t else c
    out = "h" if "16" in t else out
    case(f"cvt.{t}.s32 %0, %1;", f"={out}", R)
    case(f"cvt.{t}.u64 %0, %1;", f"={out}", R64)
    if t not in ("s32", "s64"):
        case(f"cvt.sat.{t}.s32 %0, %1;", f"={out}", R)
    if t not in ("u8", "s8"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            case(f"cvt.{mode}.{t}.f32 %0, %1;", f"={out}", F)
        case(f"cvt.rzi.{t}.f64 %0, %1;", f"={out}", D)
        case(f"cvt.rni.{t}.f16 %0, %1;", f"={out}", "h:f16")
    for mode in ("rn", "rz", "rm", "rp"):
        if t in ("s32", "u32", "s64", "u64"):
            case(f"cvt.{mode}.f32.{t} %0, %1;", "=f", R64 if c == "l" else R)
    if t in ("s32", "u64"):
        case(f"cvt.rn.f16.{t} %0, %1;", "=h:f16", R64 if c == "l" else R)
        case(f"cvt.rn.bf16.{t} %0, %1;", "=h:bf16", R64 if c == "l" else R)
        case(f"cvt.rp.f64.{t} %0, %1;", "=d", R64 if c == "l" else R)
case("cvt.rn.f16.s16 %0, %1;", "=h:f16", R16)
case("cvt.s32.s8 %0, %1;", "=r", R)
case("cvt.u32.u16 %0, %1;", "=r", R16)
case("cvt.sat.u8.s32 %0, %1;", "=r", R)
for mode in ("rn", "rz", "rm", "rp"):
    case(f"cvt.{mode}.f32.f64 %0, %1;", "=f", D)
case("cvt.f64.f32 %0, %1;", "=d", F)
for mode in ("rni", "rzi", "rmi", "rpi"):
    case(f"cvt.{mode}.f32.f32 %0, %1;", "=f", F)
case("cvt.rni.f16.f16 %0, %1;", "=h:f16", "h:f16")
case("cvt.sat.f32.f32 %0, %1;", "=f", F)
case("cvt.ftz.f32.f32 %0, %1;", "=f", F)
case("cvt.f32.f16 %0, %1;", "=f", "h:f16")
case("cvt.f32.bf16 %0, %1;", "=f", "h:bf16")
for mode in ("rn", "rz"):
    case(f"cvt.{mode}.f16.f32 %0, %1;", "=h:f16", "f:halfrange")
    case(f"cvt.{mode}.bf16.f32 %0, %1;", "=h:bf16", F)
    for t in ("f16x2", "bf16x2"):
        case(f"cvt.{mode}.{t}.f32 %0, %1, %2;", f"=r:{t}", "f:halfrange f:halfrange")
        case(f"cvt.{mode}.relu.{t}.f32 %0, %1, %2;", f"=r:{t}", "f:halfrange f:halfrange")
case("cvt.rn.f16.f64 %0, %1;", "=h:f16", "d:dnormal")
case("cvt.rna.tf32.f32 %0, %1;", "=r:float", F)
case("cvt.rn.tf32.f32 %0, %1;", "=r:float", F)
case("cvt.rz.tf32.f32 %0, %1;", "=r:float", F)
for t in ("e4m3x2", "e5m2x2"):
    case(f"cvt.rn.satfinite.{t}.f32 %0, %1, %2;", "=h", "f:fp8range f:fp8range")
    case(f"cvt.rn.satfinite.relu.{t}.f32 %0, %1, %2;", "=h", "f:fp8range f:fp8range")
    case(f"cvt.rn.satfinite.{t}.f16x2 %0, %1;", "=h", "r:f16x2")
    case(f"cvt.rn.f16x2.{t} %0, %1;", "=r:f16x2", "h:short")

for t in ("s8", "u8"):
    case(f"cvt.pack.sat.{t}.s32.b32 %0, %1, %2, %3;", "=r", f"{R} r:pixel {R}")
for t in ("s16", "u16"):
    case(f"cvt.pack.sat.{t}.s32 %0, %1, %2;", "=r", f"{R} r:pixel")
case("sub.f16x2 %0, %1, %2;", "=r:f16x2", "r:f16x2 r:f16x2")
case("mul.bf16x2 %0, %1, %2;", "=r:bf16x2", "r:bf16x2 r:bf16x2")
case("ex2.approx.ftz.bf16x2 %0, %1;", "=r:bf16x2", "r:bf16x2unit", slack=2**-6)

# ---- memory: s and g are the thread's own 32 bytes of shared and of global memory

S, G, X = "r:s", "l:g", "r:int"
for space, a in (("shared", S), ("global", G), ("shared::cta", S)):
    case(f"ld.{space}.u32 %0, [%1];", "=r", a)
    case(f"ld.{space}.s8 %0, [%1 + 3];", "=r", a)
    case(f"ld.{space}.u8 %0, [%1+1];", "=r", a)
    case(f"ld.{space}.s16 %0, [%1+2];", "=r", a)
    case(f"ld.{space}.b64 %0, [%1+8];", "=l", a)
    case(f"ld.{space}.f64 %0, [%1+16];", "=d", a)
    case(f"ld.{space}.v2.f32 {{%0, %1}}, [%2+8];", "=f =f", a)
    case(f"ld.{space}.v4.u32 {{%0, %1, %2, %3}}, [%4];", "=r =r =r =r", a)
    case(f"ld.volatile.{space}.u32 %0, [%1+4];", "=r", a)
    case(f"st.{space}.u32 [%0+4], %1;", "", f"{a} {X}", memory=True)
    case(f"st.{space}.b8 [%0+5], %1;", "", f"{a} {X}", memory=True)
    case(f"st.{space}.v2.b64 [%0], {{%1, %2}};", "", f"{a} {R64} {R64}", memory=True)
    case(f"st.{space}.v4.f32 [%0+16], {{%1, %2, %3, %4}};", "", f"{a} {F} {F} {F} {F}", memory=True)
    case(f"st.volatile.{space}.u32 [%0], %1;", "", f"{a} {X}", memory=True)
for cache in (
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "nc",
    "nc.L1::no_allocate",
    "nc.L1::no_allocate.L2::128B",
):
    case(f"ld.global.{cache}.v4.f32 {{%0, %1, %2, %3}}, [%4];", "=f =f =f =f", G)
case("ld.global.L1::evict_last.u32 %0, [%1];", "=r", G)
case("ld.global.acquire.gpu.b32 %0, [%1];", "=r", G)
case("ld.global.cg.b32 %0, [%1];", "=r", G)
case("ld.u32 %0, [%1];", "=r", G)
case("st.u32 [%0], %1;", "", f"{G} {X}", memory=True)
case("ld.relaxed.gpu.global.u32 %0, [%1];", "=r", G)
case("ld.acquire.gpu.global.u32 %0, [%1];", "=r", G)
case("ld.acquire.cta.shared.u64 %0, [%1];", "=l", S)
case("st.release.sys.global.u32 [%0], %1;", "", f"{G} {X}", memory=True)
case("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};", "", f"{G} {X} {X}", memory=True)
case("st.global.wt.u32 [%0], %1;", "", f"{G} {X}", memory=True)
case("st.global.L1::no_allocate.v4.u32 [%0], {%1, %1, %1, %1};", "", f"{G} {X}", memory=True)
case("{ .reg .u64 p; cvta.shared.u64 p, %1; ld.u32 %0, [p]; }", "=r", "l:sw")
case("{ .reg .u64 p; cvta.to.global.u64 p, %1; ld.global.u32 %0, [p+4]; }", "=r", G)
case(
    "{ .reg .u64 t; cvta.to.shared.u64 t, %1; sub.u64 t, t, %2; cvt.u32.u64 %0, t; }",
    "=r",
    "l:sp l:sw",
)
case("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }", "=r", G)
case("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }", "=r", "l:sp")
case(
    "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; @p ld.global.v2.u32 {%0, %1}, [%4]; mov.u32 %2, 1; mov.u32 %3, 2; }",
    "=r =r =r =r",
    f"{G} r:small",
)
for space, a in (("shared", S), ("global", G)):
    for op, t in (("add", "u32"), ("add", "s32"), ("min", "s32"), ("min", "u32"), ("max", "s32"),
                  ("max", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32"),
                  ("inc", "u32"), ("dec", "u32")):  # fmt: skip
        case(f"atom.{space}.{op}.{t} %0, [%1], %2;", "=r", f"{a} {X}", memory=True)
    case(f"atom.{space}.add.u64 %0, [%1], %2;", "=l", f"{a} {R64}", memory=True)
    case(f"atom.{space}.max.s64 %0, [%1], %2;", "=l", f"{a} {R64}", memory=True)
    case(f"atom.{space}.add.f32 %0, [%1], %2;", "=f", f"{a} {FN}", memory=True)
    case(f"atom.{space}.add.f64 %0, [%1], %2;", "=d", f"{a} d:dnormal", memory=True)
    case(f"atom.{space}.add.noftz.f16x2 %0, [%1], %2;", "=r", f"{a} r:f16x2unit", memory=True)
    case(f"atom.{space}.cas.b32 %0, [%1], %2, %3;", "=r", f"{a} r:held {X}", memory=True)
    case(f"atom.{space}.cas.b64 %0, [%1], %2, %3;", "=l", f"{a} {R64} {R64}", memory=True)
    case(f"red.{space}.add.u32 [%0], %1;", "", f"{a} {X}", memory=True)
    case(f"red.{space}.or.b32 [%0+4], %1;", "", f"{a} {X}", memory=True)
case("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;", "=r", f"{G} {X}", memory=True)
case("red.release.gpu.global.add.u32 [%0], %1;", "", f"{G} {X}", memory=True)
case("red.relaxed.cta.shared.max.u32 [%0], %1;", "", f"{S} {X}", memory=True)
case("red.global.add.noftz.bf16x2 [%0], %1;", "", f"{G} r:bf16x2unit", memory=True)
WAIT = " cp.async.commit_group; cp.async.wait_group 0;"
for size in (4, 8, 16):
    case(f"cp.async.ca.shared.global [%0], [%1], {size};{WAIT}", "", f"{S} {G}", memory=True)
case(f"cp.async.cg.shared.global [%0+16], [%1], 16;{WAIT}", "", f"{S} {G}", memory=True)
case(f"cp.async.cg.shared.global.L2::128B [%0], [%1], 16;{WAIT}", "", f"{S} {G}", memory=True)
case(f"cp.async.ca.shared.global.L2::256B [%0], [%1], 16, 8;{WAIT}", "", f"{S} {G}", memory=True)
case(f"cp.async.cg.shared.global [%0], [%1], 16, %2;{WAIT}", "", f"{S} {G} r:to16", memory=True)
case(
    "{ .reg .pred p; setp.gt.s32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], 8, p; cp.async.wait_all; }",
    "",
    f"{S} {G} {X}",
    memory=True,
)
case(
    "{ .reg .pred p; setp.gt.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all; }",
    "",
    f"{S} {G} {X}",
    memory=True,
)
case(
    "cp.async.ca.shared.global [%0], [%1], 8; cp.async.commit_group; cp.async.ca.shared.global [%0+8], [%1+16], 8; cp.async.commit_group; cp.async.wait_group 1; cp.async.wait_all;",
    "",
    f"{S} {G}",
    memory=True,
)
for fence in (
    "membar.cta",
    "membar.gl",
    "membar.sys",
    "fence.sc.gpu",
    "fence.acq_rel.cta",
    "fence.proxy.async",
):
    case(f"{fence};")
case("prefetch.global.L2 [%0];", "", G)
case("prefetchu.L1 [%0];", "", G)

# ---- warps

ALL = "0xffffffff"
for mode in ("idx", "up", "down", "bfly"):
    for c in ("0x1f", "0x181f", "0x100f", "0"):
        case(
            f"{{ .reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, %3, {c}, {ALL}; selp.b32 %1, 1, 0, p; }}",
            "=r =r", f"{X} r:distance",
        )  # fmt: skip
case(f"shfl.sync.bfly.b32 %0, %1, 16, 31, {ALL};", "=r", X)
case(f"shfl.sync.idx.b32 %0, %1, %2, 0x1f, {ALL};", "=f", "f:float r:lane")
for mode in ("any", "all", "uni"):
    for kind in ("r:small", "r:lane", "r:int"):
        case(
            f"{{ .reg .pred p, q; setp.gt.s32 p, %1, 0; vote.sync.{mode}.pred q, p, {ALL}; selp.b32 %0, 1, 0, q; }}",
            "=r", kind,
        )  # fmt: skip
case(f"{{ .reg .pred p; setp.gt.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, {ALL}; }}", "=r", X)
case(f"{{ .reg .pred p; setp.gt.s32 p, %1, 0; vote.sync.ballot.b32 %0, !p, {ALL}; }}", "=r", X)
case(f"match.any.sync.b32 %0, %1, {ALL};", "=r", "r:few")
case(f"match.any.sync.b64 %0, %1, {ALL};", "=r", "l:few")
case(
    f"{{ .reg .pred p; match.all.sync.b32 %0|p, %2, {ALL}; selp.b32 %1, 1, 0, p; }}",
    "=r =r",
    "r:few",
)
case(f"{{ .reg .pred p; match.all.sync.b32 %0|p, 7, {ALL}; selp.b32 %1, 1, 0, p; }}", "=r =r")
for op, t in (("add", "s32"), ("add", "u32"), ("min", "s32"), ("min", "u32"), ("max", "s32"),
              ("max", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")):  # fmt: skip
    case(f"redux.sync.{op}.{t} %0, %1, {ALL};", "=r", X)
case("activemask.b32 %0;", "=r")
case(f"{{ .reg .pred p; elect.sync %0|p, {ALL}; selp.b32 %1, 1, 0, p; }}", "=r =r")
case("bar.sync 0;")
case("bar.sync 1, 64;")
case("barrier.sync 2;")
case("barrier.cta.sync.aligned 3, 64;")
case(f"bar.warp.sync {ALL};")
case("{ .reg .pred p; setp.gt.s32 p, %1, 0; bar.red.popc.u32 %0, 0, p; }", "=r", X)
case(
    "{ .reg .pred p, q; setp.gt.s32 p, %1, 0; bar.red.or.pred q, 0, !p; selp.b32 %0, 1, 0, q; }",
    "=r",
    X,
)
case("nanosleep.u32 20;")
case("griddepcontrol.wait;")
case("griddepcontrol.launch_dependents;")
case("pmevent 1;")

# ---- matrices: m is the address of the lane's row of 16 bytes in its warp's matrices

M = "r:m"
for trans in ("", ".trans"):
    case(f"ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%0}}, [%1];", "=r", M)
    case(f"ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%0, %1}}, [%2];", "=r =r", M)
    case(
        f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%0, %1, %2, %3}}, [%4];",
        "=r =r =r =r",
        M,
    )
    case(
        f"ldmatrix.sync.aligned.x4{trans}.m8n8.shared.b16 {{%0, %1, %2, %3}}, [%4];",
        "=r =r =r =r",
        M,
    )
    case(
        f"stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%0], {{%1}};",
        "",
        f"{M} {X}",
        memory=True,
    )
    case(
        f"stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%0], {{%1, %2}};",
        "",
        f"{M} {X} {X}",
        memory=True,
    )
    case(
        f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%0], {{%1, %2, %3, %4}};",
        "",
        f"{M} {X} {X} {X} {X}",
        memory=True,
    )
case("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;", "=r", X)


def mma(shape: str, types: str, sizes: str, kinds: str, tail: str = "", slack: float = 0.0) -> None:
    """``sizes``: registers of D, A, B (C has D's); ``kinds``: of D, A and B."""
    d, a, b = (int(n) for n in sizes.split())
    to, left, right = kinds.split()

    def group(first: int, count: int) -> str:
        return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"

    text = f"mma.sync.aligned.{shape}.row.col{tail}.{types} "
    text += ", ".join([group(0, d), group(d, a), group(d + a, b), group(d + a + b, d)]) + ";"
    inputs = [left] * a + [right] * b + [to] * d
    case(text, " ".join([f"={to}"] * d), " ".join(inputs), slack=slack)


for shape, sizes in (("m16n8k16", "4 4 2"), ("m16n8k8", "4 2 1")):
    half = sizes.replace("4", "2", 1)
    mma(shape, "f32.f16.f16.f32", sizes, "f:whole r:f16whole r:f16whole")
    mma(shape, "f32.bf16.bf16.f32", sizes, "f:whole r:bf16whole r:bf16whole")
    mma(shape, "f16.f16.f16.f16", half, "r:f16whole r:f16few r:f16few")
    mma(shape, "f32.f16.f16.f32", sizes, "f:unit r:f16x2unit r:f16x2unit", slack=2**-18)
    mma(shape, "f32.bf16.bf16.f32", sizes, "f:unit r:bf16x2unit r:bf16x2unit", slack=2**-18)
mma("m16n8k8", "f32.tf32.tf32.f32", "4 4 2", "f:whole r:fwhole r:fwhole")
mma("m16n8k4", "f32.tf32.tf32.f32", "4 2 1", "f:whole r:fwhole r:fwhole")
mma("m16n8k8", "f32.tf32.tf32.f32", "4 4 2", "f:unit r:funit r:funit", slack=2**-18)
for a, b in (("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")):
    for shape, sizes in (("m16n8k16", "4 2 1"), ("m16n8k32", "4 4 2"), ("m8n8k16", "2 1 1")):
        mma(shape, f"s32.{a}.{b}.s32", sizes, "r:int r:int r:int")
        mma(shape, f"s32.{a}.{b}.s32", sizes, "r:int r:int r:int", tail=".satfinite")
for a, b in (("s4", "s4"), ("u4", "s4")):
    mma("m16n8k32", f"s32.{a}.{b}.s32", "4 2 1", "r:int r:int r:int")
    mma("m16n8k64", f"s32.{a}.{b}.s32", "4 4 2", "r:int r:int r:int")
    mma("m8n8k32", f"s32.{a}.{b}.s32", "2 1 1", "r:int r:int r:int")
mma("m8n8k4", "f64.f64.f64.f64", "2 1 1", "d:dwhole d:dwhole d:dwhole")
mma("m8n8k4", "f64.f64.f64.f64", "2 1 1", "d:dnormal d:dnormal d:dnormal", slack=2**-48)
mma("m16n8k4", "f64.f64.f64.f64", "4 2 1", "d:dwhole d:dwhole d:dwhole")
mma("m16n8k8", "f64.f64.f64.f64", "4 4 2", "d:dwhole d:dwhole d:dwhole")
for a in ("e4m3", "e5m2"):
    for b in ("e4m3", "e5m2"):
        mma("m16n8k32", f"f32.{a}.{b}.f32", "4 4 2", f"f:whole r:{a}whole r:{b}whole")
        mma("m16n8k16", f"f32.{a}.{b}.f32", "4 2 1", f"f:whole r:{a}whole r:{b}whole")
    mma("m16n8k32", f"f16.{a}.{a}.f16", "2 4 2", f"r:f16whole r:{a}whole r:{a}whole")

# ---- inputs

_INTEGERS = [0, 1, 2, 31, 32, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF,
             0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x00FFFFFF, 0xAAAAAAAA]  # fmt: skip
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, numpy.inf, -numpy.inf, numpy.nan, 1e-40,
           -1e-45, 3.4e38, -3.4e38, 1.17549435e-38, 2147483648.0, -2147483649.0, 4294967296.0,
           65504.0, 65520.0, 1e-8, 6e-8, 0.49999997, 448.0, 9.2e18, 1.9e19]  # fmt: skip
Draw = Callable[[numpy.random.RandomState], Words]


def _bits(values: NDArray[numpy.generic]) -> Words:
    unsigned = numpy.ascontiguousarray(values).view(f"u{values.itemsize}")
    return unsigned.astype(numpy.uint64)


def _mix(random: numpy.random.RandomState, special: Words, other: Words) -> Words:
    return numpy.where(random.rand(THREADS) < 0.4, random.choice(special, THREADS), other)


def _whole(random: numpy.random.RandomState, bits: int) -> Words:
    words = random.randint(0, 1 << 16, (THREADS, 4)).astype(numpy.uint64)
    joined = words[:, 0] | words[:, 1] << 16 | words[:, 2] << 32 | words[:, 3] << 48
    mask: Words = numpy.full(THREADS, (1 << bits) - 1, numpy.uint64)
    return joined.astype(numpy.uint64) & mask


def _floats(random: numpy.random.RandomState, type_: str) -> Words:
    special = _bits(numpy.array(_FLOATS).astype(type_))
    spread = random.randn(THREADS) * numpy.exp2(random.randint(-30, 31, THREADS))
    return _mix(random, special, _bits(spread.astype(type_)))


def _brain(values: NDArray[numpy.float32]) -> Words:
    return _bits(values) >> numpy.uint64(16)


def _twice(draw: Draw) -> Draw:
    return lambda random: draw(random) | draw(random) << numpy.uint64(16)


def _four(draw: Draw) -> Draw:
    def drawn(random: numpy.random.RandomState) -> Words:
        whole = numpy.zeros(THREADS, numpy.uint64)
        for i in range(4):
            whole |= draw(random) << numpy.uint64(8 * i)
        return whole

    return drawn


def _half(random: numpy.random.RandomState) -> Words:
    with numpy.errstate(all="ignore"):
        special = _bits(numpy.array(_FLOATS).astype(numpy.float16))
    return _mix(random, special, _whole(random, 16))


def _some(values: list[float], type_: str = "f4") -> Draw:
    return lambda random: _bits(random.choice(numpy.array(values, type_), THREADS))


def _scaled(type_: str, scale: float, sign: bool = True) -> Draw:
    def draw(random: numpy.random.RandomState) -> Words:
        values = random.rand(THREADS) * scale * (2 if sign else 1) - (scale if sign else 0)
        return _bits((values + (0 if sign else scale / 64)).astype(type_))

    return draw


_SMALL = [float(i) for i in range(-8, 9)]
_E4M3 = [0x00, 0x38, 0x40, 0x44, 0xB8, 0xC0, 0x30, 0xB0]  # 0 1 2 3 -1 -2 0.5 -0.5
_E5M2 = [0x00, 0x3C, 0x40, 0x42, 0xBC, 0xC0, 0x38, 0xB8]

KINDS: Mapping[str, Draw] = {
    "int": lambda r: _mix(r, numpy.array(_INTEGERS, numpy.uint64), _whole(r, 32)),
    "long": lambda r: _mix(
        r,
        numpy.array([*_INTEGERS, 1 << 63, (1 << 64) - 1, (1 << 53) + 1], numpy.uint64),
        _whole(r, 64),
    ),
    "short": lambda r: _whole(r, 16),
    "pixel": lambda r: (r.randint(0, 600, THREADS) - 300).astype(numpy.uint32).astype(numpy.uint64),
    "nonzero": lambda r: _whole(r, 12) | numpy.uint64(1),
    "small": lambda r: r.randint(0, 72, THREADS).astype(numpy.uint64),
    "lane": lambda r: r.randint(0, 32, THREADS).astype(numpy.uint64),
    "distance": lambda r: numpy.full(THREADS, r.randint(1, 12), numpy.uint64),
    "few": lambda r: r.randint(0, 4, THREADS).astype(numpy.uint64),
    "to16": lambda r: r.randint(0, 17, THREADS).astype(numpy.uint64),
    "float": lambda r: _floats(r, "f4"),
    "normal": _scaled("f4", 1000.0),
    "unit": _scaled("f4", 1.0),
    "positive": _scaled("f4", 100.0, sign=False),
    "halfrange": lambda r: _mix(r, _floats(r, "f4"), _scaled("f4", 70000.0)(r)),
    "fp8range": lambda r: _mix(r, _floats(r, "f4"), _scaled("f4", 500.0)(r)),
    "double": lambda r: _floats(r, "f8"),
    "dnormal": _scaled("f8", 1000.0),
    "dpositive": _scaled("f8", 100.0, sign=False),
    "f16": _half,
    "f16x2": _twice(_half),
    "bf16": lambda r: _floats(r, "f4") >> numpy.uint64(16),
    "bf16x2": _twice(lambda r: _floats(r, "f4") >> numpy.uint64(16)),
    "f16x2unit": _twice(_scaled("f2", 1.0)),
    "bf16x2unit": _twice(lambda r: _scaled("f4", 1.0)(r) >> numpy.uint64(16)),
    "f16whole": _twice(_some(_SMALL, "f2")),
    "f16few": _twice(_some([-1.0, 0.0, 1.0, 2.0], "f2")),
    "bf16whole": _twice(lambda r: _some(_SMALL)(r) >> numpy.uint64(16)),
    "whole": _some(_SMALL),
    "fwhole": _some(_SMALL),
    "funit": _scaled("f4", 1.0),
    "dwhole": _some(_SMALL, "f8"),
    "e4m3whole": _four(lambda r: r.choice(numpy.array(_E4M3, numpy.uint64), THREADS)),
    "e5m2whole": _four(lambda r: r.choice(numpy.array(_E5M2, numpy.uint64), THREADS)),
}
# computed in the kernel instead
PLACES = {
    "s": "p.own_shared", "g": "p.own_global", "m": "p.matrix_row", "sw": "(uint64_t)p.own_shared",
    "sp": "(uint64_t)(p.shared_words + 8 * p.t)", "held": "p.shared_words[8 * p.t] + (p.t & 1)",
}  # fmt: skip


def inputs() -> Words:
    """Random inputs by case, thread and input."""
    drawn = numpy.zeros((len(CASES), THREADS, INPUTS), numpy.uint64)
    for number, one in enumerate(CASES):
        random = numpy.random.RandomState(zlib.crc32(one.name.encode()))
        for i, operand in enumerate(one.inputs):
            kind = operand.split(":")[1]
            if kind not in PLACES:
                drawn[number, :, i] = KINDS[kind](random)
    return drawn


# ---- the program

_TYPES = {"r": "uint32_t", "l": "uint64_t", "h": "uint16_t", "f": "float", "d": "double"}
_READ = {
    "f": "__uint_as_float((uint32_t){})",
    "d": "__longlong_as_double((long long){})",
    **{c: f"({_TYPES[c]}){{}}" for c in "rlh"},
}
_WRITE = {
    "f": "__float_as_uint({})",
    "d": "(uint64_t)__double_as_longlong({})",
    **dict.fromkeys("rlh", "{}"),
}

_HEAD = """// Written by tests/simt/matrix/corpus.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
{include}
struct Place {{
    const uint64_t* in;
    uint64_t* out;
    uint32_t *shared_words, *words;
    uint32_t t, own_shared, matrix_row;
    uint64_t own_global;
}};
__device__ uint32_t held(uint32_t i) {{ return i * 2654435761u >> 3; }}
__device__ void leave(const Place& p) {{
    __syncthreads();
    for (int i = 0; i < 4; ++i) {{
        const uint32_t *s = p.shared_words + 8 * p.t + 2 * i, *w = p.words + 8 * p.t + 2 * i;
        p.out[{outputs} - 8 + i] = s[0] | (uint64_t)s[1] << 32;
        p.out[{outputs} - 4 + i] = w[0] | (uint64_t)w[1] << 32;
    }}
}}
"""

_MAIN = """
__global__ void run(int number, const uint64_t* in, uint64_t* out, uint32_t* words) {{
    __shared__ __align__(128) uint32_t shared_words[1024];
    const unsigned t = threadIdx.x;
    for (unsigned i = t; i < 1024; i += 64) shared_words[i] = held(i);
    for (unsigned i = 0; i < 8; ++i) words[8 * t + i] = held(7777 + 8 * t + i);
    __syncthreads();
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared_words) + 32 * t;
    const size_t row = (size_t)number * 64 + t;
    const Place p = {{in + row * {inputs}, out + row * {outputs}, shared_words, words, t, base, base,
                     (uint64_t)(words + 8 * t)}};
    switch (number) {{
{calls}
    }}
}}

static const size_t IN = (size_t){cases} * 64 * {inputs}, OUT = (size_t){cases} * 64 * {outputs};
int main(int argc, char** argv) {{
    uint64_t *host_in = (uint64_t*)malloc(IN * 8), *host_out = (uint64_t*)malloc(OUT * 8);
    FILE* file = fopen(argv[1], "rb");
    if (!file || fread(host_in, 8, IN, file) != IN) return 1;
    fclose(file);
    uint64_t *in, *out;
    uint32_t* words;
    cudaMalloc(&in, IN * 8);
    cudaMalloc(&out, OUT * 8);
    cudaMalloc(&words, 64 * 8 * 4);
    cudaMemcpy(in, host_in, IN * 8, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, OUT * 8);
    for (int i = 0; i < {cases}; ++i) run<<<1, 64>>>(i, in, out, words);
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {{
        printf("%s\\n", cudaGetErrorString(error));
        return 2;
    }}
    cudaMemcpy(host_out, out, OUT * 8, cudaMemcpyDeviceToHost);
    file = fopen(argv[2], "wb");
    fwrite(host_out, 8, OUT, file);
    fclose(file);
    return 0;
}}
"""


def _function(number: int, one: Case) -> str:
    letters = [operand.split(":")[0].lstrip("=") for operand in one.outputs]
    lines = [f"static __device__ __noinline__ void case_{number}(const Place& p) {{"]
    lines += [f"    {_TYPES[letter]} o{i} = 0;" for i, letter in enumerate(letters)]
    given = []
    for i, operand in enumerate(one.inputs):
        letter, kind = operand.split(":")
        value = PLACES.get(kind) or _READ[letter].format(f"p.in[{i}]")
        given.append(f'"{letter}"({value})')
    taken = [f'"={letter}"(o{i})' for i, letter in enumerate(letters)]
    operands = f'{", ".join(taken)} : {", ".join(given)} : "memory"'
    lines.append(f'    asm volatile("{one.template}" : {operands});')
    lines += [f"    p.out[{i}] = {_WRITE[c].format(f'o{i}')};" for i, c in enumerate(letters)]
    return "\n".join([*lines, *(["    leave(p);"] if one.memory else []), "}"])


def program(include: str = "") -> str:
    """A CUDA source: ``program IN OUT`` reads inputs() and writes words by case, thread, output."""
    sizes = {"inputs": INPUTS, "outputs": OUTPUTS, "cases": len(CASES)}
    calls = "\n".join(f"        case {i}: case_{i}(p); break;" for i in range(len(CASES)))
    functions = [_function(i, one) for i, one in enumerate(CASES)]
    head, main = _HEAD.format(include=include, **sizes), _MAIN.format(calls=calls, **sizes)
    return "\n".join([head, *functions, main])
