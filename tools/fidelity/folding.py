"""A second oracle: what LLVM's optimiser makes of the same operation on constants.

Of each instruction whose operation can be said in LLVM's intermediate language, each input is a
function of its own, and the compiler is asked for the constant that it returns. LLVM's arithmetic
of numbers (APFloat, APInt) shares nothing with numpy's, which the other oracles are made of. What
it does not fold is not compared.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from portkern.spec.backend import Missing
from portkern.toolchain.run_tool import run_tool

from . import modes, suite
from .instructions import PROCESSORS
from .oracle import TYPES, Array, Oracle, signals
from .values import columns

FOLD_S = 900.0
#: Functions that one run of the compiler is given.
_AT_ONCE = 20_000
_TRIPLE = "amdgcn-amd-amdhsa"
_FLOATS = {"f16": "half", "f32": "float", "f64": "double"}
#: Instructions for which LLVM's rule for signalling NaNs, or any NaN, is another than the manual's.
_NO_SIGNALS = re.compile(r"[vs]_(min|max|med)")
_NO_NANS = re.compile(r"v_med3")
#: Instructions that take denormals for zeros, where LLVM's functions do not.
_NO_DENORMALS = re.compile(r"v_(rcp|sqrt|log|exp)_f32$")
_RETURNS = re.compile(r"define [^@]*@f(\d+)\(\)[^{]*\{\s*ret \w+ (-?\w+)\s*\}")


@dataclass(frozen=True)
class Folded:
    """How many inputs LLVM folded, and how many of those came out otherwise, with an example."""

    inputs: int
    wrong: int = 0
    example: str = ""


# ---- operations in LLVM's language: sources are %a, %b and %c, the result is %r


def _float_lines(kind: str) -> Iterator[tuple[str, str]]:
    t = _FLOATS[kind]

    def call(name: str, *given: str) -> str:
        return f"%r = call {t} @llvm.{name}.{kind}({', '.join(f'{t} {x}' for x in given)})"

    for name, ir, order in (
        ("add", "fadd", "%a, %b"),
        ("mul", "fmul", "%a, %b"),
        ("sub", "fsub", "%a, %b"),
        ("subrev", "fsub", "%b, %a"),
    ):
        yield f"v_{name}_{kind}", f"%r = {ir} {t} {order}"
    ten = {"f16": "0xH4940", "f32": "10.5", "f64": "10.5"}[kind]
    yield f"v_fma_{kind} v_fmac_{kind}", call("fma", "%a", "%b", "%c")
    yield f"v_fmaak_{kind}", call("fma", "%a", "%b", ten)
    yield f"v_fmamk_{kind}", call("fma", "%a", ten, "%b")
    whole = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rndne": "roundeven"}
    for name, ir in whole.items():
        yield f"v_{name}_{kind}", call(ir, "%a")
    yield f"v_fract_{kind}", call("amdgcn.fract", "%a")
    yield f"v_frexp_mant_{kind}", call("amdgcn.frexp.mant", "%a")
    exponent = "i16" if kind == "f16" else "i32"
    yield (
        f"v_frexp_exp_{exponent}_{kind}",
        f"%r = call {exponent} @llvm.amdgcn.frexp.exp.{exponent}.{kind}({t} %a)",
    )
    yield (
        f"v_ldexp_{kind}",
        f"%r = call {t} @llvm.ldexp.{kind}.{exponent}({t} %a, {exponent} %b)",
    )
    for name, ir in (("min", "minnum"), ("max", "maxnum")):
        other = "maxnum" if ir == "minnum" else "minnum"
        yield f"v_{name}_{kind}", call(ir, "%a", "%b")
        yield f"v_{name}imum_{kind}", call(f"{name}imum", "%a", "%b")
        first = call(ir, "%a", "%b").replace("%r", "%m", 1) + "\n"
        yield f"v_{name}3_{kind}", first + call(ir, "%m", "%c")
        both = "minmax" if name == "min" else "maxmin"
        yield f"v_{both}_{kind}", first + call(other, "%m", "%c")
    yield f"v_med3_{kind}", call("amdgcn.fmed3", "%a", "%b", "%c")
    for name, ir in (
        ("rcp", "amdgcn.rcp"),
        ("sqrt", "sqrt"),
        ("exp", "exp2"),
        ("log", "log2"),
    ):
        yield f"v_{name}_{kind}", call(ir, "%a")
    compares = {
        **{name: "one" if name == "lg" else f"o{name}" for name in _ORDERS},
        **{"o": "ord", "u": "uno", "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt"},
        **{"neq": "une", "nlt": "uge"},
    }  # fmt: skip
    for name, ir in compares.items():
        said = f"%m = fcmp {ir} {t} %a, %b\n%r = zext i1 %m to i32"
        yield f"v_cmp_{name}_{kind} v_cmpx_{name}_{kind}", said
    yield (
        f"v_cmp_class_{kind} v_cmpx_class_{kind}",
        f"%m = call i1 @llvm.amdgcn.class.{kind}({t} %a, i32 %b)\n%r = zext i1 %m to i32",
    )


_ORDERS = ("lt", "eq", "le", "gt", "lg", "ge")


def _conversion_lines() -> Iterator[tuple[str, str]]:
    for to, of in (("f32", "i32"), ("f32", "u32"), ("f64", "i32"), ("f64", "u32"),
                   ("f16", "u16"), ("f16", "i16")):  # fmt: skip
        ir = "sitofp" if of[0] == "i" else "uitofp"
        yield f"v_cvt_{to}_{of}", f"%r = {ir} i{of[1:]} %a to {_FLOATS[to]}"
    for to, of in (("f64", "f32"), ("f32", "f16")):
        yield f"v_cvt_{to}_{of}", f"%r = fpext {_FLOATS[of]} %a to {_FLOATS[to]}"
    for to, of in (("f32", "f64"), ("f16", "f32")):
        yield f"v_cvt_{to}_{of}", f"%r = fptrunc {_FLOATS[of]} %a to {_FLOATS[to]}"
    for to, of in (("u32", "f32"), ("i32", "f32"), ("u32", "f64"), ("i32", "f64"),
                   ("u16", "f16"), ("i16", "f16")):  # fmt: skip
        ir = "fptosi" if to[0] == "i" else "fptoui"
        wide, t = f"i{to[1:]}", _FLOATS[of]
        yield f"v_cvt_{to}_{of}", f"%r = call {wide} @llvm.{ir}.sat.{wide}.{of}({t} %a)"
    yield (
        "v_cvt_flr_i32_f32 v_cvt_floor_i32_f32",
        "%m = call float @llvm.floor.f32(float %a)\n"
        "%r = call i32 @llvm.fptosi.sat.i32.f32(float %m)",
    )
    for byte in range(4):
        yield (
            f"v_cvt_f32_ubyte{byte}",
            f"%l = lshr i32 %a, {8 * byte}\n%m = and i32 %l, 255\n%r = uitofp i32 %m to float",
        )
    yield (
        "v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32",
        "%m = call <2 x half> @llvm.amdgcn.cvt.pkrtz(float %a, float %b)\n"
        "%r = bitcast <2 x half> %m to i32",
    )
    pair = "%k = insertelement <2 x float> poison, float %a, i32 0\n"
    pair += "%l = insertelement <2 x float> %k, float %b, i32 1\n"
    for name, t in (("bf16", "bfloat"), ("f16", "half")):
        narrow = f"%m = fptrunc <2 x float> %l to <2 x {t}>\n%r = bitcast <2 x {t}> %m to i32"
        yield f"v_cvt_pk_{name}_f32", pair + narrow
    yield "v_cvt_f32_bf16", "%m = bitcast i16 %a to bfloat\n%r = fpext bfloat %m to float"
    yield "v_fma_mix_f32", "%r = call float @llvm.fma.f32(float %a, float %b, float %c)"
    legacy = "float %a, float %b"
    yield (
        "v_mul_legacy_f32 v_mul_dx9_zero_f32",
        f"%r = call float @llvm.amdgcn.fmul.legacy({legacy})",
    )
    yield (
        "v_fma_dx9_zero_f32 v_fmac_dx9_zero_f32",
        f"%r = call float @llvm.amdgcn.fma.legacy({legacy}, float %c)",
    )
    for name in ("id", "sc", "tc", "ma"):
        said = f"%r = call float @llvm.amdgcn.cube{name}({legacy}, float %c)"
        yield f"v_cube{name}_f32", said


def _integer_lines() -> Iterator[tuple[str, str]]:
    for bits in (16, 32):
        t = f"i{bits}"
        for name, ir in (("and", "and"), ("or", "or"), ("xor", "xor")):
            yield f"v_{name}_b{bits}", f"%r = {ir} {t} %a, %b"
        yield f"v_not_b{bits}", f"%r = xor {t} %a, -1"
        for sign, s in (("u", "u"), ("i", "s")):
            for name in ("min", "max"):
                least = f"call {t} @llvm.{s}{name}.{t}"
                yield f"v_{name}_{sign}{bits}", f"%r = {least}({t} %a, {t} %b)"
                yield (
                    f"v_{name}3_{sign}{bits}",
                    f"%m = {least}({t} %a, {t} %b)\n%r = {least}({t} %m, {t} %c)",
                )
        for name, order in (("add", "%a, %b"), ("sub", "%a, %b"), ("subrev", "%b, %a")):
            ir = name.removesuffix("rev")
            for sign in "ui":
                names = f"v_{name}_{sign}{bits} v_{name}_nc_{sign}{bits}"
                yield names, f"%r = {ir} {t} {order}"
        yield f"v_mul_lo_u{bits}", f"%r = mul {t} %a, %b"
    for bits, amount in ((16, "i16"), (32, "i32"), (64, "i32")):
        t = f"i{bits}"
        wide = f"%w = zext i32 %m to {t}\n" if bits == 64 else ""
        by = "%w" if bits == 64 else "%m"
        for name, ir in (("lshlrev_b", "shl"), ("lshrrev_b", "lshr"), ("ashrrev_i", "ashr")):
            masked = f"%m = and {amount} %a, {bits - 1}\n{wide}"
            yield f"v_{name}{bits}", f"{masked}%r = {ir} {t} %b, {by}"
        for sign, s in (("i", "s"), ("u", "u")):
            for name, order in (("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge")):
                said = f"%m = icmp {s}{order} {t} %a, %b\n%r = zext i1 %m to i32"
                yield f"v_cmp_{name}_{sign}{bits} v_cmpx_{name}_{sign}{bits}", said
            for name in ("eq", "ne"):
                said = f"%m = icmp {name} {t} %a, %b\n%r = zext i1 %m to i32"
                yield f"v_cmp_{name}_{sign}{bits} v_cmpx_{name}_{sign}{bits}", said
    yield from _words()


def _words() -> Iterator[tuple[str, str]]:
    """The operations of 32 bits that no other width has."""

    def steps(*lines: str) -> str:
        return "\n".join(lines)

    yield "v_xnor_b32", steps("%m = xor i32 %a, %b", "%r = xor i32 %m, -1")
    for sign, ir in (("u", "zext"), ("i", "sext")):
        high = steps(
            f"%x = {ir} i32 %a to i64", f"%y = {ir} i32 %b to i64",
            "%m = mul i64 %x, %y", "%h = lshr i64 %m, 32", "%r = trunc i64 %h to i32",
        )  # fmt: skip
        yield f"v_mul_hi_{sign}32", high
        small = steps(
            "%u = shl i32 %a, 8", "%v = shl i32 %b, 8",
            f"%x = {'lshr' if sign == 'u' else 'ashr'} i32 %u, 8",
            f"%y = {'lshr' if sign == 'u' else 'ashr'} i32 %v, 8",
        )  # fmt: skip
        yield f"v_mul_{sign}32_{sign}24", f"{small}\n%r = mul i32 %x, %y"
        yield f"v_mad_{sign}32_{sign}24", f"{small}\n%m = mul i32 %x, %y\n%r = add i32 %m, %c"
    threes = {
        "v_lshl_add_u32": ("%m = and i32 %b, 31", "%n = shl i32 %a, %m", "%r = add i32 %n, %c"),
        "v_add_lshl_u32": ("%m = and i32 %c, 31", "%n = add i32 %a, %b", "%r = shl i32 %n, %m"),
        "v_lshl_or_b32": ("%m = and i32 %b, 31", "%n = shl i32 %a, %m", "%r = or i32 %n, %c"),
        "v_and_or_b32": ("%m = and i32 %a, %b", "%r = or i32 %m, %c"),
        "v_or3_b32": ("%m = or i32 %a, %b", "%r = or i32 %m, %c"),
        "v_xor3_b32": ("%m = xor i32 %a, %b", "%r = xor i32 %m, %c"),
        "v_add3_u32": ("%m = add i32 %a, %b", "%r = add i32 %m, %c"),
        "v_xad_u32": ("%m = xor i32 %a, %b", "%r = add i32 %m, %c"),
        "v_bfi_b32": ("%m = and i32 %a, %b", "%n = xor i32 %a, -1", "%o = and i32 %n, %c",
                      "%r = or i32 %m, %o"),
        "v_bfm_b32": ("%m = and i32 %a, 31", "%n = and i32 %b, 31", "%o = shl i32 1, %m",
                      "%p = sub i32 %o, 1", "%r = shl i32 %p, %n"),
        "v_alignbit_b32": ("%r = call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 %c)",),
        "v_alignbyte_b32": ("%m = and i32 %c, 3", "%n = shl i32 %m, 3",
                            "%r = call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 %n)"),
        "v_perm_b32": ("%r = call i32 @llvm.amdgcn.perm(i32 %a, i32 %b, i32 %c)",),
        "v_bfe_u32": ("%m = and i32 %b, 31", "%n = and i32 %c, 31",
                      "%r = call i32 @llvm.amdgcn.ubfe.i32(i32 %a, i32 %m, i32 %n)"),
        "v_bfe_i32": ("%m = and i32 %b, 31", "%n = and i32 %c, 31",
                      "%r = call i32 @llvm.amdgcn.sbfe.i32(i32 %a, i32 %m, i32 %n)"),
        "v_bfrev_b32": ("%r = call i32 @llvm.bitreverse.i32(i32 %a)",),
        "v_bcnt_u32_b32": ("%m = call i32 @llvm.ctpop.i32(i32 %a)", "%r = add i32 %m, %b"),
        "v_cvt_u32_u16": ("%r = zext i16 %a to i32",),
        "v_cvt_i32_i16": ("%r = sext i16 %a to i32",),
    }  # fmt: skip
    for name, lines in threes.items():
        yield name, steps(*lines)
    for names, ir in (
        ("v_ffbh_u32 v_clz_i32_u32", "ctlz"),
        ("v_ffbl_b32 v_ctz_i32_b32", "cttz"),
    ):
        found = f"%m = call i32 @llvm.{ir}.i32(i32 %a, i1 false)"
        yield names, steps(found, "%z = icmp eq i32 %a, 0", "%r = select i1 %z, i32 -1, i32 %m")
    yield (
        "v_ffbh_i32 v_cls_i32",
        steps(
            "%s = ashr i32 %a, 31", "%x = xor i32 %a, %s", "%z = icmp eq i32 %x, 0",
            "%m = call i32 @llvm.ctlz.i32(i32 %x, i1 false)",
            "%r = select i1 %z, i32 -1, i32 %m",
        ),
    )  # fmt: skip


def _packed_lines() -> Iterator[tuple[str, str]]:
    def halves(t: str, *lines: str) -> str:
        given = (f"%{x}{x} = bitcast i32 %{x} to <2 x {t}>" for x in "abc")
        return "\n".join([*given, *lines, f"%r = bitcast <2 x {t}> %m to i32"])

    for name, ir in (("add", "add"), ("sub", "sub"), ("mul_lo", "mul")):
        said = halves("i16", f"%m = {ir} <2 x i16> %aa, %bb")
        for sign in "ui":
            yield f"v_pk_{name}_{sign}16", said
    for name in ("min", "max"):
        for sign, s in (("u", "u"), ("i", "s")):
            ir = f"call <2 x i16> @llvm.{s}{name}.v2i16"
            said = halves("i16", f"%m = {ir}(<2 x i16> %aa, <2 x i16> %bb)")
            yield f"v_pk_{name}_{sign}16", said
    for name, ir in (("lshlrev_b", "shl"), ("lshrrev_b", "lshr"), ("ashrrev_i", "ashr")):
        masked = "%n = and <2 x i16> %aa, splat (i16 15)"
        yield f"v_pk_{name}16", halves("i16", masked, f"%m = {ir} <2 x i16> %bb, %n")
    for sign in "ui":
        product = "%n = mul <2 x i16> %aa, %bb"
        yield f"v_pk_mad_{sign}16", halves("i16", product, "%m = add <2 x i16> %n, %cc")
    for name in ("add", "mul"):
        yield f"v_pk_{name}_f16", halves("half", f"%m = f{name} <2 x half> %aa, %bb")
    fused = "%m = call <2 x half> @llvm.fma.v2f16(<2 x half> %aa, <2 x half> %bb, <2 x half> %cc)"
    yield "v_pk_fma_f16", halves("half", fused)


def _alike(vector: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Instructions of the scalar unit that compute what one of the vector unit does. Fields of bits
    have other operands there."""
    for name, body in vector.items():
        plain = name.removeprefix("v_")
        if plain.startswith("bfe_"):
            continue
        yield f"s_{plain}", body
        if plain.startswith(("min_f", "max_f")):
            yield f"s_{plain[:3]}_num_{plain[4:]}", body
        if plain.startswith("cmp_ne_"):
            yield f"s_cmp_lg_{plain[7:]}", body


def _scalar_lines() -> Iterator[tuple[str, str]]:
    """The questions of what the scalar unit alone has; of those that set SCC, too, the result."""
    for width in (32, 64):
        t = f"i{width}"
        bits = {"and": "and", "or": "or", "xor": "xor"}
        for name, ir in bits.items():
            yield f"s_{name}_b{width}", f"%r = {ir} {t} %a, %b"
        for name, ir in (("nand", "and"), ("nor", "or"), ("xnor", "xor")):
            yield f"s_{name}_b{width}", f"%m = {ir} {t} %a, %b\n%r = xor {t} %m, -1"
        for name in ("and", "or"):
            names = f"s_{name}n2_b{width} s_{name}_not1_b{width}"
            yield names, f"%m = xor {t} %b, -1\n%r = {name} {t} %a, %m"
        yield f"s_not_b{width}", f"%r = xor {t} %a, -1"
        yield f"s_brev_b{width}", f"%r = call {t} @llvm.bitreverse.{t}({t} %a)"
        short = "%r = trunc i64 %m to i32" if width == 64 else "%r = or i32 %m, 0"
        for name, given in (("bcnt1", "%a"), ("bcnt0", "%n")):
            counted = f"%n = xor {t} %a, -1\n%m = call {t} @llvm.ctpop.{t}({t} {given})\n{short}"
            yield f"s_{name}_i32_b{width}", counted
        for names, ir, given in (
            (f"s_ff1_i32_b{width} s_ctz_i32_b{width}", "cttz", "%a"),
            (f"s_ff0_i32_b{width}", "cttz", "%n"),
            (f"s_flbit_i32_b{width} s_clz_i32_u{width}", "ctlz", "%a"),
        ):
            found = f"%n = xor {t} %a, -1\n%k = call {t} @llvm.{ir}.{t}({t} {given}, i1 false)\n"
            found += f"%z = icmp eq {t} {given}, 0\n%m = select i1 %z, {t} -1, {t} %k\n{short}"
            yield names, found
        wide = "%w = zext i32 %b to i64" if width == 64 else "%w = or i32 %b, 0"
        masked = f"{wide}\n%m = and {t} %w, {width - 1}\n"
        for name, ir in (("lshl_b", "shl"), ("lshr_b", "lshr"), ("ashr_i", "ashr")):
            yield f"s_{name}{width}", f"{masked}%r = {ir} {t} %a, %m"
        for bit in (0, 1):
            right = f"{masked}%s = lshr {t} %a, %m\n%o = trunc {t} %s to i1\n"
            yield (
                f"s_bitcmp{bit}_b{width}",
                right + (f"%q = icmp eq i1 %o, {bit}\n%r = zext i1 %q to i32"),
            )
    for name in ("add", "sub", "mul"):
        yield f"s_{name}_u64 s_{name}_nc_u64", f"%r = {name} i64 %a, %b"
    for name in ("add", "sub"):
        yield f"s_{name}_co_u32 s_{name}_co_i32", f"%r = {name} i32 %a, %b"
    yield "s_mul_i32", "%r = mul i32 %a, %b"
    for by in range(1, 5):
        yield f"s_lshl{by}_add_u32", f"%m = shl i32 %a, {by}\n%r = add i32 %m, %b"
    yield "s_abs_i32", "%r = call i32 @llvm.abs.i32(i32 %a, i1 false)"
    apart = "%m = sub i32 %a, %b\n%r = call i32 @llvm.abs.i32(i32 %m, i1 false)"
    yield "s_absdiff_i32", apart
    for width in (8, 16):
        yield f"s_sext_i32_i{width}", f"%m = trunc i32 %a to i{width}\n%r = sext i{width} %m to i32"
    halves = {"l": "and i32 {}, 65535", "h": "lshr i32 {}, 16"}
    for first, second in ("ll", "lh", "hl", "hh"):
        lines = f"%m = {halves[first].format('%a')}\n%n = {halves[second].format('%b')}\n"
        yield f"s_pack_{first}{second}_b32_b16", lines + "%o = shl i32 %n, 16\n%r = or i32 %m, %o"


#: LLVM's names of the directions, by the modes that have them in all fields.
_DIRECTIONS = {0xF5: "upward", 0xFA: "downward", 0xFF: "towardzero"}


def _directed() -> Iterator[tuple[str, str, Oracle]]:
    """Arithmetic that rounds in another direction: its name, LLVM's question and the oracle."""
    for kind, t in _FLOATS.items():
        for name, function, count in (
            ("add", modes.added, 2), ("mul", modes.multiplied, 2), ("fma", modes.fused, 3)
        ):  # fmt: skip
            ir = name if name == "fma" else f"f{name}"
            given = "".join(f"{t} %{source}, " for source in "abc"[:count])
            for mode, direction in _DIRECTIONS.items():
                body = (
                    f"%r = call {t} @llvm.experimental.constrained.{ir}.{kind}({given}"
                    f'metadata !"round.{direction}", metadata !"fpexcept.ignore") strictfp'
                )
                exact = partial(modes.arithmetic, function, kind, mode)
                oracle = Oracle(kind, (kind,) * count, exact, "modes")
                yield f"v_{name}_{kind}{modes.MARK}{mode:02x}", body, oracle


def operations() -> dict[str, str]:
    """The question that LLVM is asked of each instruction."""
    lines = [line for kind in _FLOATS for line in _float_lines(kind)]
    lines += [*_conversion_lines(), *_integer_lines(), *_packed_lines()]
    vector = {name: body for names, body in lines for name in names.split()}
    scalar = {name: body for names, body in _scalar_lines() for name in names.split()}
    directed = {name: body for name, body, _ in _directed()}
    return vector | dict(_alike(vector)) | scalar | directed


# ---- comparing


def _source_kinds(oracle: Oracle) -> tuple[str, ...]:
    return tuple(source.removeprefix("old:") for source in oracle.sources)


def _type(kind: str) -> str:
    return _FLOATS.get(kind, f"i{kind[1:]}")


def _function(number: int, body: str, kinds: Sequence[str], bits: Sequence[int], to: str) -> str:
    lines = []
    for name, kind, value in zip("abc", kinds, bits, strict=False):
        width = int(kind[1:])
        lines.append(f"%{name} = bitcast i{width} {value} to {_type(kind)}")
    # What is said of pairs names all three.
    lines += [f"%{name} = bitcast i32 0 to i32" for name in "abc"[len(kinds) :]]
    width = 32 if not to else int(to[1:])
    back = f"%out = bitcast {_type(to) if to else 'i32'} %r to i{width}\nret i{width} %out"
    text = "\n".join([*lines, body, back])
    return f"define i{width} @f{number}() #0 {{\n{text}\n}}\n"


def _folded(text: str) -> dict[int, int]:
    """The constants that functions return, by number."""
    clang = import_module("portkern.backends.hip.clang")
    found = clang.find()
    if isinstance(found, Missing):
        raise SystemExit(str(found))
    with tempfile.TemporaryDirectory(prefix="folding-") as folder:
        source, made = Path(folder) / "all.ll", Path(folder) / "folded.ll"
        source.write_text(f'target triple = "{_TRIPLE}"\n{text}', encoding="utf-8")
        argv: list[str | Path] = [found.zig, "clang", f"--target={_TRIPLE}", "-mcpu=gfx1100"]
        argv += ["-O1", "-nogpulib", "-S", "-emit-llvm", source, "-o", made]
        where = Path(folder)
        environment = clang.environment(where)
        run_tool(argv, whose="own", timeout_s=FOLD_S, cwd=where, env=environment)
        result = made.read_text(encoding="utf-8")
    numbers = {"true": 1, "false": 0}
    return {
        int(number): numbers[value] if value in numbers else int(value)
        for number, value in _RETURNS.findall(result)
        if re.fullmatch(r"-?\d+|true|false", value)
    }


def _inputs(name: str, oracle: Oracle, count: int) -> list[Array]:
    """Columns of sources, without what LLVM judges by another rule."""
    kinds = _source_kinds(oracle)
    found = [np.array(c, np.uint64) for c in columns(kinds, count, len(name) + count)]
    values = [_as(kind, column) for kind, column in zip(kinds, found, strict=True)]
    keep = np.ones(count, bool)
    for value in values:
        if value.dtype.kind == "f" and _NO_SIGNALS.match(name):
            keep &= ~signals(value)
        if value.dtype.kind == "f" and _NO_NANS.match(name):
            keep &= ~np.isnan(value)
        if _NO_DENORMALS.match(name):
            size = abs(np.where(signals(value), 1, value).astype(np.float64))
            keep &= (value == 0) | ~((size < 2.0**-126) | (size > 2.0**126))
    return [column[keep] for column in found]


def _as(kind: str, bits: Array) -> Array:
    to = np.dtype(TYPES[kind])
    return np.asarray(bits.astype(f"u{to.itemsize}").view(to))


def folded(table: Mapping[str, Oracle], count: int, only: str = "") -> dict[str, Folded]:
    """The comparison of each oracle of ``table`` that has an operation, on at most ``count``
    inputs."""
    asked: list[tuple[str, list[Array], int]] = []
    text: list[str] = []
    number = 0
    for name, body in operations().items():
        oracle = table.get(name)
        if oracle is None or only not in name or "carry" in oracle.sources:
            continue
        given = _inputs(name, oracle, count)
        asked.append((name, given, number))
        kinds = _source_kinds(oracle)
        for row in zip(*(column.tolist() for column in given), strict=True):
            text.append(_function(number, body, kinds, row, oracle.result))
            number += 1
    parts = ["".join(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE)]
    constants: dict[int, int] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(_folded, parts):
            constants |= found
    return {name: _compared(table[name], given, constants, first) for name, given, first in asked}


def _compared(
    oracle: Oracle, given: Sequence[Array], constants: Mapping[int, int], first: int
) -> Folded:
    kinds = _source_kinds(oracle)
    known = [k for k in range(len(given[0])) if first + k in constants]
    if not known:
        return Folded(0)
    values = [_as(kind, column[known]) for kind, column in zip(kinds, given, strict=True)]
    with np.errstate(all="ignore"):
        said = oracle.function(*values)
        if oracle.mask:
            said = said[not oracle.result]
    kind = oracle.result or "u32"
    width = int(kind[1:])
    mask = (1 << width) - 1
    bits = np.array([constants[first + k] & mask for k in known], np.uint64)
    got = _as(kind, bits)
    with np.errstate(all="ignore"):
        want = np.asarray(said).astype(TYPES[kind])
        wrong = ~_same(got, want, oracle)
    example = ""
    if wrong.any():
        [at, *_] = np.nonzero(wrong)[0].tolist()
        sources = ", ".join(f"{int(column[known[at]]):#x}" for column in given)
        example = f"of {sources}: LLVM {got[at]!r}, the oracle {want[at]!r}"
    return Folded(len(known), int(wrong.sum()), example)


def _same(got: Array, want: Array, oracle: Oracle) -> Array:
    if got.dtype.kind != "f":
        if not oracle.result.startswith("u32") or not oracle.packed:
            return np.asarray(got == want)
        return np.asarray(got == want) | _both_nan(got, want, oracle.packed)
    near = np.asarray((got == want) & (np.signbit(got) == np.signbit(want)))
    if oracle.ulps > 0:
        near |= abs(got - want) <= abs(np.spacing(want)) * 2
    return near | np.asarray(np.isnan(got) & np.isnan(want))


def _both_nan(got: Array, want: Array, packed: str) -> Array:
    """Whether pairs of floats are equal but for what their NaNs hold."""
    most = 0x7F80 if packed == "bf16" else 0x7C00
    pairs = (np.ascontiguousarray(x).view(np.uint16).reshape(-1, 2) for x in (got, want))
    a, b = pairs
    nan = ((a & 0x7FFF) > most) & ((b & 0x7FFF) > most)
    return np.asarray(((a == b) | nan).all(1))


def every(count: int, only: str = "") -> dict[str, Folded]:
    """The comparison of all instructions that some family has a model of; oracles that differ by
    family are the first one's."""
    table: dict[str, Oracle] = {}
    for family in PROCESSORS:
        known = {row.name for row in suite.modelled(family)}
        for name, oracle in suite.oracles(family).items():
            if name in known:
                table.setdefault(name, oracle)
    table |= {name: oracle for name, _, oracle in _directed()}
    return {name: one for name, one in folded(table, count, only).items() if one.inputs}
