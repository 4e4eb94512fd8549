"""Macros that write assembly from their arguments become what the preprocessor makes of them."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from portkern.cuda_source.lexer import tokenize
from portkern.simt.translate.asm_macros import with_uses_expanded as expanded
from portkern.simt.translate.rewrite import rewrite

GXX = shutil.which("g++")
HOPPER = Path(__file__).parents[1] / "backends/cuda/include/hopper/portkern/hopper.h"
needs_gxx = pytest.mark.skipif(GXX is None, reason="no C++ compiler: 'g++' is not on PATH")

SAMPLES = {
    "a string of an argument": """
        #define ADD(TYPE, d, a) asm("add." #TYPE " %0, %1;" : "=r"(d) : "r"(a))
        void f(int x, int y) { ADD(s32, x, y); ADD( u32 , x, (y, 1)); }
    """,
    "operands that a macro is given": """
        #define ONE(s, i) "+f"(s[i]), "+f"(s[i + 1])
        #define RUN(text, ...) asm volatile(text : __VA_ARGS__ : "r"(0))
        void f(float (&s)[4]) { RUN("x;", ONE(s, 0), ONE(s, 2)); RUN("y;", ONE(s, 0)); }
    """,
    "functions that a macro makes": """
        #define NAME(kind) load_##kind
        #define LOAD(kind, n) \
            void NAME(kind##_##n)(int* p) { asm("ld." #kind ".v" #n ".b32;" :: "r"(p)); }
        #define LOADS(kind) LOAD(kind, 2) LOAD(kind, 4)
        LOADS(global)
        LOADS(shared)
    """,
    "arguments that are macros": """
        #define KIND f16
        #define WIDE(x) x ## x2
        #define MUL(kind, a) asm("mul." #kind :: "r"(a))
        #define VIA(kind, a) MUL(kind, a)
        void g(int a) { MUL(KIND, a); VIA(KIND, WIDE(a)); VIA(WIDE(f16), "\"quoted\""); }
    """,
}


def words(source: str) -> list[str]:
    """The tokens that the preprocessor leaves."""
    assert GXX is not None
    command = [GXX, "-E", "-P", "-x", "c++", "-std=c++17", "-w", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return [token.text for token in tokenize(done.stdout) if token.text]


def without_includes(text: str) -> str:
    return re.sub(r"(?m)^[ \t]*#[ \t]*(include|pragma)[^\n]*$", "", text)


@needs_gxx
@pytest.mark.parametrize("source", SAMPLES.values(), ids=SAMPLES)
def test_a_use_becomes_what_the_preprocessor_makes_of_it(source: str) -> None:
    made = expanded(source)
    assert made != source
    assert words(made) == words(source)


@needs_gxx
@pytest.mark.parametrize("seed", range(8))
def test_so_do_macros_that_use_each_other_at_random(seed: int) -> None:
    drawn = random.Random(seed)
    lines = ['#define M0(a, b) asm(#a ".s32 %0;" :: "r"(b))', "#define N0 x0"]
    for n in range(1, 12):
        inner = f"M{drawn.randrange(n)}"
        body = drawn.choice(
            [
                f"{inner}(a, b)",
                f"{inner}(a##_{n}, (b, {n}))",
                f"{inner}(N{n - 1}, b); {inner}(b, a)",
            ]
        )
        lines += [
            f"#define M{n}(a, b) {body}",
            f"#define N{n} {drawn.choice(['y', f'N{n - 1}'])}{n}",
        ]
    uses = " ".join(f"M{drawn.randrange(12)}(N{drawn.randrange(12)}, v + {n});" for n in range(6))
    source = "\n".join([*lines, f"void f(int v) {{ {uses} }}", ""])
    assert words(expanded(source)) == words(source)


@needs_gxx
def test_so_do_those_of_wgmma() -> None:
    source = "#define PORTKERN_HOPPER 1\n" + without_includes(HOPPER.read_text(encoding="utf-8"))
    made = expanded(source)
    assert "HOPPER_FROM_SHARED_OF(f16)" in source and "asm volatile" in made
    assert words(made) == words(source)


def test_lines_stay_where_they_are() -> None:
    source = (
        '#define OP(name, \\\n x) asm(name :: "r"(x))\nvoid f() {\nOP("a",\n 1\n);\nlast(); }\n'
    )
    before = next(t.line for t in tokenize(source) if t.text == "last")
    assert next(t.line for t in tokenize(expanded(source)) if t.text == "last") == before


def test_a_macro_that_is_defined_twice_or_taken_back_is_left_alone() -> None:
    one = '#define OP(name) asm(name ".s32 %0, 1;" :: "r"(x))\n'
    use = 'void f(int x) { OP("add"); }\n'
    for source in (f"#if A\n{one}#else\n{one}#endif\n{use}", f"{one}{use}#undef OP\n"):
        assert expanded(source) == source
    assert expanded(one + use) != one + use


def test_a_macro_that_names_itself_is_left_alone() -> None:
    source = '#define f(x, t) asm(t :: "r"(f(x, t)))\nvoid g(int x) { f(x, "a"); }\n'
    assert expanded(source) == source


def test_assembly_whose_strings_are_its_own_is_left_alone() -> None:
    source = '#define NOW(x) asm volatile("mov.u32 %0, 1;" : "=r"(x))\nvoid f(int y) { NOW(y); }\n'
    assert expanded(source) == source


def test_macros_without_end_are_left_alone_and_soon() -> None:
    doubling = "".join(f"#define M{n}(x) M{n + 1}(x) M{n + 1}(x)\n" for n in range(40))
    source = f"{doubling}#define M40(x) asm(#x)\nvoid f() {{ M0(a); }}\n"
    started = time.process_time()
    assert expanded(source) == source
    assert time.process_time() - started < 10


def test_what_a_macro_writes_is_translated() -> None:
    source = (
        '#define MOVE(TYPE, ...) asm volatile("mov." #TYPE " %0, %1;" : __VA_ARGS__)\n'
        "#define FUNCTION(TYPE) __device__ void move_##TYPE(int& to, int from) { \\\n"
        '    MOVE(TYPE, "=r"(to) : "r"(from)); }\n'
        "FUNCTION(u32)\n"
    )
    text = rewrite(source, "k.cu").text
    assert "void move_u32(int& to, int from)" in text and "(to) = simt::ptx::result" in text
