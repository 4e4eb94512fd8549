"""The rewriter: what becomes of each construct, what stays, and what is refused where."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.cuda_source.lexer import Kind, SourceCode, tokenize
from portkern.errors import ConfigError
from portkern.simt.translate.asm_statement import Asm, Operand
from portkern.simt.translate.includes import includes_device_code
from portkern.simt.translate.rewrite import INCLUDE, rewrite, rewrite_tree
from portkern.simt.translate.unmodelled import unmodelled

GXX = shutil.which("g++")
needs_gxx = pytest.mark.skipif(GXX is None, reason="no C++ compiler: 'g++' is not on PATH")
WORDS = ("__global__", "__device__", "__host__", "__constant__")


def rewritten(source: str, *, library: bool = False) -> str:
    """The text after the #line directive, of a source in which nothing is wrong."""
    result = rewrite(source, "k.cu", library=library)
    assert result.diagnostics == ()
    first, _, text = result.text.partition("\n")
    assert first == '#line 1 "k.cu"'
    assert text.count("\n") == source.count("\n")
    return text


def in_kernel(statement: str) -> str:
    """The translation of a statement in a kernel."""
    text = rewritten(f"__global__ void k(int n) {{ {statement} }}\n")
    return text.removeprefix("__global__ void k(int n) { ").removesuffix(" }\n")


def found(source: str, *, library: bool = False) -> list[tuple[str, int]]:
    return [(d.code, d.line) for d in rewrite(source, "k.cu", library=library).diagnostics]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.fixture
def compiles(tmp_path: Path) -> Callable[..., str]:
    """Compile sources, rewritten, against core.h; the compiler's log."""

    def run(source: str, *, expect: int = 0, options: tuple[str, ...] = ("-c", "-O1")) -> str:
        assert GXX is not None
        file = tmp_path / "k.cpp"
        file.write_text(rewrite(source, "k.cu", library=False).text)
        command = [GXX, "-std=c++17", "-Wall", *options, "-I", str(INCLUDE)]
        command += [f"-D{word}=" for word in WORDS]
        command += ["-include", "simt/core.h", "-include", "simt/ext_vector.h"]
        command += [str(file), "-o", str(tmp_path / "k.o")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, done.stderr
        return done.stderr

    return run


# ---- tokens -------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "<<<",
        ">>>",
        "<",
        ">",
        "k",
        "1'000",
        "0x1p-3",
        ".5e+3f",
        '"a\\"b"',
        "'\\''",
        'R"x(a)")x"',
        'u8R"(',
        '"',
        "'",
        "//",
        "/*",
        "*/",
        "\\\n",
        "\n",
        "\r\n",
        " ",
        "#",
        "##",
        "define",
        "...",
        "{",
        "}",
        "(",
        ")",
        ";",
        "->",
        "::",
        "é",
        "\\",
        "__shared__",
        "asm",
    ]
)


@given(st.lists(PIECES).map("".join) | st.text())
def test_tokens_joined_are_the_source(source: str) -> None:
    tokens = tokenize(source)
    assert "".join(token.gap + token.text for token in tokens) == source
    assert tokens[-1].kind is Kind.END
    for token in tokens:
        assert source[token.begin : token.end] == token.text
        assert token.line == source[: token.begin].count("\n") + 1


@given(st.lists(PIECES).map("".join))
def test_any_text_is_rewritten_onto_as_many_lines(source: str) -> None:
    assert rewrite(source, "k.cu").text.count("\n") == source.count("\n") + 1


def test_what_needs_no_rewriting_is_copied_byte_by_byte() -> None:
    source = (
        'const char* s = R"x(k<<<1, 2>>>(); __shared__ int a;)x" "asm(";\r\n'
        "// __shared__ float a[4]; k<<<1, 2>>>();\n"
        "/* asm(\"\") */ int n = 1'000'000 + 0x1p-3 + '\"';\\\n  foo<bar<baz<int>>> v;\n"
        "auto y = x<y<z<3>>>(4) >> 2; bool b = a < c, d = e > f;\n"
        "std::cout << a << b; operator<< <int>(s, 1);\n"
        "\t#pragma unroll 4\n#if 0\nit's \"open\n#endif\n"
    )
    assert rewritten(source) == source


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("1'000'000u 'a' u'b'", ["1'000'000u", "'a'", "u'b'"]),
        ("0x1.8p+3f-1e-5", ["0x1.8p+3f", "-", "1e-5"]),
        ('L"a\\"b" u8R"y(" \\)y"', ['L"a\\"b"', 'u8R"y(" \\)y"']),
        ("k<<<a>>>(b)", ["k", "<<<", "a", ">", ">", ">", "(", "b", ")"]),
        ("// a \\\n b\nc /* d */ e", ["c", "e"]),
        ("a->b::c...", ["a", "->", "b", "::", "c", "..."]),
        ('R_ RR"("', ["R_", "RR", '"("']),
    ],
)
def test_a_token_is_what_cpp_says(source: str, texts: list[str]) -> None:
    assert [token.text for token in tokenize(source)[:-1]] == texts


def test_brackets_match_within_each_branch_of_an_if() -> None:
    code = SourceCode("#if A\nvoid f(int a) {\n#else\nvoid f() {\n#endif\n}\nint g() {}")
    braces = [i for i, text in enumerate(code.text) if text == "{"]
    assert code.partner[braces[0]] == code.partner[braces[1]]
    assert code.text[code.partner[braces[1]]] == "}"
    assert code.partner[braces[2]] == braces[2] + 1


def test_what_if_0_leaves_open_is_not_open() -> None:
    code = SourceCode("#if 0\nvoid f( {\n#endif\nint g() {}")
    assert code.partner[code.text.index("{", 8)] == len(code.text) - 2


@pytest.mark.parametrize(
    "unit",
    [
        *("k<<<", "k<<<1,2>>>(", "__shared__ ", "asm(", "{", "template <", "a<", 'R"(', "#if X\n"),
        "template <class T> T::a<",
    ],
)
def test_time_grows_with_the_size_whatever_the_text(unit: str) -> None:
    begin = time.process_time()  # other processes have the processors as well
    rewrite(unit * 8000, "k.cu")
    assert time.process_time() - begin < 10  # it takes about one second at most


# ---- launches -----------------------------------------------------------------------------


def test_a_launch_evaluates_each_argument_once_and_passes_copies() -> None:
    assert rewritten("void f() { k<<<g, b, n, st>>>(x, y + 1); }") == (
        'void f() { ::simt::launch(::simt::Shape(g, b, n, st), "k", '
        "[=, simt_a0 = (x), simt_a1 = (y + 1)]() mutable SIMT_THREAD { k(simt_a0, simt_a1); }); }"
    )


@pytest.mark.parametrize(
    "argument",
    ["0", "-1.5f", "nullptr", "NULL", "true", "'c'", '"s"', "{1, 2}", "args...", "f(args)..."],
)
def test_what_has_no_type_of_its_own_stays_in_the_call(argument: str) -> None:
    assert f"[=]() mutable SIMT_THREAD {{ k({argument}); }}" in rewritten(
        f"k<<<1, 2>>>({argument});"
    )


@pytest.mark.parametrize("argument", ["sizeof...(Ts)", "(float*)nullptr", "float4{1}", "a<b, c>()"])
def test_what_has_a_type_is_copied(argument: str) -> None:
    text = rewritten(f"k<<<1, 2>>>({argument});")
    assert f"[=, simt_a0 = ({argument})]() mutable SIMT_THREAD {{ k(simt_a0); }}" in text


@pytest.mark.parametrize(
    "kernel",
    [
        "k",
        "ns::k",
        "::ns::k",
        "k<T, (N>2)>",
        "ns::k<A<B<C>>, 4>",
        "(*fp)",
        "table[i]",
        "table[i].fn",
        "obj.k",
        "this->k",
        "a.b->k<int>",
        "obj.template k<T>",
        "A<T>::template k<U>",
        "get<T>(n)",
        "static_cast<void (*)(int)>(k)",
        "std::get<0>(kernels)",
        "k<sizeof(T) >= 4>",
        "(n > 4 ? k<4> : k<8>)",
    ],
)
@pytest.mark.parametrize(
    "before", ["", "if (x) ", "else ", "for (;;) ", "return ", "(void)", "a; "]
)
def test_any_expression_that_names_a_kernel_is_launched(kernel: str, before: str) -> None:
    text = rewritten(f"void f() {{ {before}{kernel}<<<g, b>>>(x); }}")
    assert text.startswith(f"void f() {{ {before}::simt::launch(::simt::Shape(g, b), ")
    assert text.endswith(
        f", [=, simt_a0 = (x)]() mutable SIMT_THREAD {{ {kernel}(simt_a0); }}); }}"
    )


@pytest.mark.parametrize(
    "shape",
    [
        "g, b",
        "dim3(1, 2), {32, 1}",
        "g, x<y<z<3>>>(1)",
        "g, smem<T>",
        "a < b ? a : b, c > d",
        "g, b, x<y>",
        "(n + 3) >> 2, b",
        "g, f<A<B<C>>>(1), h<D<E>>(2)",
        "cdiv<int>(n, 4), 256",
        "CONFIGURATION",
    ],
)
def test_the_shape_ends_where_the_launch_brackets_do(shape: str) -> None:
    assert f"::simt::Shape({shape}), " in rewritten(f"void f() {{ k<<<{shape}>>>(x); }}")


def test_the_name_shown_is_the_kernel_as_written() -> None:
    assert ', "k<T, (N>2)>", [=]' in rewritten("k<T,  /* c */ (N>2)><<<1, 2>>>();")
    assert ', "f(\\"a\\")", [=]' in rewritten('f("a")<<<1, 2>>>();')


def test_members_in_braces_are_read_once_whatever_owns_them() -> None:
    text = rewritten("void f() { k<<<g, b>>>({c, own.data, {1, p->n * 2}}, {.x = a.y}, N); }")
    assert "[=, simt_a0_0 = (own.data), simt_a0_1 = (p->n * 2), simt_a2 = (N)]" in text
    assert "k({c, simt_a0_0, {1, simt_a0_1}}, {.x = a.y}, simt_a2);" in text


def test_a_launch_keeps_every_piece_on_its_line() -> None:
    source = (
        "k<A,\n  B><<<grid, // of blocks\n  block>>>(\n    a, // first\n\n    /* no */ b + // c\n"
        "      d);\nnext();\n"
    )
    text = rewritten(source)
    for part in ("grid", "block", "b + // c", "      d)", "next"):
        assert line_of(text, part) == line_of(source, part)


def test_launches_nest_in_arguments() -> None:
    text = rewritten("void f() { k<<<1, 2>>>([&] { j<<<3, 4>>>(x); }, y); }")
    assert '[&] { ::simt::launch(::simt::Shape(3, 4), "j", [=, simt_a0 = (x)]' in text
    assert "{ k(simt_a0, simt_a1); }" in text


def test_arguments_chosen_by_if_stay_together_and_on_their_lines() -> None:
    source = "void f() {\n k<<<1, 2>>>(a,\n#ifdef B\n  b\n#else\n  c\n#endif\n );\n}\n"
    text = rewritten(source)
    assert "[=]() mutable SIMT_THREAD { k(a,\n#ifdef B\n  b\n#else\n  c\n#endif\n); });" in text


def test_launches_in_macros_keep_continuations_pasting_and_stringify_the_name() -> None:
    source = (
        "#define RUN(name, T, ...) \\\n  ns::name##_k<T><<<g, \\\n    b>>>(x, \\\n"
        "    ##__VA_ARGS__)\nRUN(a, b);\n"
    )
    text = rewritten(source)
    lines = text.split("\n")
    assert all(line.endswith("\\") for line in lines[:3])
    assert '"ns::" #name "_k<" #T ">"' in text
    assert "{ ns::name##_k<T>(simt_a0, ##__VA_ARGS__); }" in text
    assert lines[4] == "RUN(a, b);"


def test_a_macro_may_bring_the_arguments_with_their_parentheses() -> None:
    text = rewritten("#define RUN(ARGS) k<<<1, 2>>> ARGS\n")
    assert "[=]() mutable SIMT_THREAD { k ARGS; })" in text


def test_gnu_named_variadics_stay_in_the_call() -> None:
    assert "{ k(simt_a0, rest); }" in rewritten("#define RUN(a, rest...) k<<<1, 2>>>(a, rest)\n")


@pytest.mark.parametrize("kernel", ["HIP_KERNEL_NAME(k<a, b>)", "k<a, b>", "(k<a, b>)"])
def test_hip_launches_are_launches(kernel: str) -> None:
    text = rewritten(f"hipLaunchKernelGGL({kernel}, g, dim3(1, 2), 0, st, x, 0);")
    assert '::simt::launch(::simt::Shape(g, dim3(1, 2), 0, st), "k<a, b>", ' in text
    called = kernel if kernel.startswith("(") else "k<a, b>"
    assert f"[=, simt_a0 = (x)]() mutable SIMT_THREAD {{ {called}(simt_a0, 0); }});" in text


def test_a_hip_launch_of_unknown_arguments_is_left_to_the_headers() -> None:
    source = "#define RUN(...) hipLaunchKernelGGL(__VA_ARGS__)\n"
    assert rewritten(source) == source


@pytest.mark.parametrize("cast", ["(void*)", "(const void *)", "reinterpret_cast<const void*>"])
@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel({}(k<a, b>), g, b, args)",
        "hipLaunchCooperativeKernel({}(k), g)",
        "cudaFuncSetAttribute({}(&k), a, 1)",
        "cudaFuncGetAttributes(&attributes, {}(k))",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, {}(k<a, b>), 256, 0)",
        "hipOccupancyMaxPotentialBlockSize(&g, &b, {}(k), 0, 0)",
    ],
)
def test_a_kernel_handed_to_the_runtime_keeps_its_type(call: str, cast: str) -> None:
    assert rewritten(call.format(cast) + ";") == call.format("") + ";"


def test_other_casts_stay() -> None:
    source = "cudaLaunchKernel(f, g, b, (void*)a); cudaMemcpy((void*)p, q, n, kind);"
    assert rewritten(source) == source


@pytest.mark.parametrize(
    "launch", ["k < < < 1, 2 > > >(x);", "k<< <1, 2> >>(x);", "k << <1, 2 >> > (x);"]
)
def test_a_launch_that_a_formatter_has_broken_is_one(launch: str) -> None:
    result = rewrite(f"void f() {{ {launch} }}", "k.cu")
    assert not result.diagnostics
    assert "::simt::launch(::simt::Shape(1, 2" in result.text


@pytest.mark.parametrize(
    ("macros", "launch"),
    [
        ("#define L k<float><<<1, 2>>>\n", "L(x);"),
        ("#define ON(f, n) f<<<n, 2>>>\n", "ON(k<float>, 1)(x);"),
        ("#define SHAPE <<<1, 2>>>\n", "k<float>SHAPE(x);"),
        ("#define INNER(f) f<<<1, 2>>>\n#define OUTER INNER(k<float>)\n", "OUTER(x);"),
        ("#define OPEN <<<1\n#define CLOSE 2>>>\n", "k<float>OPEN, CLOSE(x);"),
    ],
)
def test_a_macro_that_has_a_part_of_a_launch_is_expanded(macros: str, launch: str) -> None:
    result = rewrite(f"{macros}void f() {{\n  {launch}\n}}", "k.cu")
    assert not [d for d in result.diagnostics if d.line > macros.count("\n")]
    line = result.text.splitlines()[macros.count("\n") + 2]
    assert '::simt::launch(::simt::Shape(1, 2), "k<float>"' in line


@pytest.mark.parametrize(
    ("macros", "launch"),
    [
        ("#define ARGS x, 2\n", "k<<<1, 2>>>(ARGS);"),
        ("#define REST 2\n#define ARGS x, REST\n", "k<<<1, 2>>>(ARGS);"),
        ("#define ARGS(a) a, 2\n", "hipLaunchKernelGGL(k, 1, 2, 0, 0, ARGS(x));"),
        ("#define ARGS x, 2\n#define GO(f) f<<<1, 2>>>(ARGS)\n", "GO(k);"),
        ("#define ARGS x, 2\n#define ON(f) f<<<1, 2>>>\n", "ON(k)(ARGS);"),
    ],
)
def test_a_macro_may_stand_for_several_arguments(macros: str, launch: str) -> None:
    result = rewrite(f"{macros}void f() {{\n  {launch}\n}}", "k.cu")
    line = result.text.splitlines()[macros.count("\n") + 2]
    assert not [d for d in result.diagnostics if d.line > macros.count("\n")]
    assert "simt_a0 = (x)" in line
    assert "k(simt_a0, 2)" in line


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("k < < < 1, 2 > > (x);", "no >>>"),
        ("k<<<1, 2>>>;", "no parenthesised arguments"),
        ("k<<<1, 2>>>(x;", "no parenthesised arguments"),
        ("k<<<1, 2(x);", "no >>>"),
        ("k<<<>>>(x);", "no grid and block"),
        ("<<<1, 2>>>(x);", "no kernel"),
        ("hipLaunchKernelGGL(k, 1, 2);", "takes a kernel"),
    ],
)
def test_a_broken_launch_is_found_and_left(launch: str, reason: str) -> None:
    source = f"void f() {{\n  {launch}\n}}\n"
    result = rewrite(source, "k.cu")
    assert [(d.code, d.file, d.line) for d in result.diagnostics] == [("SX007", "k.cu", 2)]
    assert reason in result.diagnostics[0].message
    assert result.text.endswith(source)


def test_a_launch_in_a_kernel_does_not_compile_where_it_is_used() -> None:
    name = "simt_unmodelled_1_1"
    assert in_kernel("j<<<1, 2>>>(n);") == (
        'do { __attribute__((error("SX006 a kernel launched from a kernel"))) '
        f"void {name}(); {name}(); }} while (0);"
    )


@pytest.mark.parametrize(
    "head",
    [
        "void f()",
        "__host__ __device__ void f()",
        "#define D __device__\nvoid f()",
        "struct A { A()",
        "template <class T> void S<T>::f() const",
        'namespace { extern "C" int main()',
    ],
)
def test_a_launch_in_a_host_function_is_one(head: str) -> None:
    assert "::simt::launch(" in rewritten(f"{head} {{ k<<<1, 2>>>(); }}")


@pytest.mark.parametrize(
    "head",
    [
        "__device__ int f(A a = {1})",
        "#define D static __device__\nD void f()",
        "struct A { int n; __device__ A() : n{1}",
        "auto f = [=] __device__ (int i)",
        "void h() { g([=] __device__ (int i) mutable",
        "template <class T> __global__ void k(T a)",
        "void h() { struct { __device__ void f() const",
    ],
)
def test_a_launch_in_a_device_function_is_not(head: str) -> None:
    assert "SX006" in rewritten(f"{head} {{ k<<<1, 2>>>(); }}")


# ---- __shared__ ---------------------------------------------------------------------------


def shared(name: str, type_: str, *, align: str = "") -> str:
    """The translation of a declaration of shared memory."""
    struct = f" struct {align} simt_s_{name} {{ char byte; }};" if align else ""
    extra = f", alignof(simt_s_{name})" if align else ""
    return (
        f"static ::simt::SharedVariable simt_v_{name}; using simt_t_{name} = {type_};{struct} "
        f'simt_t_{name}& {name} = ::simt::shared<simt_t_{name}{extra}>(simt_v_{name}, "{name}");'
    )


@pytest.mark.parametrize(
    ("declaration", "name", "type_"),
    [
        ("__shared__ float x;", "x", "float"),
        ("__shared__ unsigned long long x[N];", "x", "unsigned long long [N]"),
        ("__shared__ T x[2][BM][BN + 1];", "x", "T [2][BM][BN + 1]"),
        ("__shared__ float4 *x;", "x", "float4 *"),
        ("static __shared__ float (*x[2])[4];", "x", "float (*[2])[4]"),
        ("volatile __shared__ int x[4];", "x", "volatile int [4]"),
        ("__shared__ static const volatile int x;", "x", "const volatile int"),
        ("float __shared__ x[4];", "x", "float [4]"),
        ("const ns::T<A, (B > C)> __shared__ x;", "x", "const ns::T<A, (B > C)>"),
        ("__shared__ std::array<int, N> x;", "x", "std::array<int, N>"),
        ("__shared__ union U x;", "x", "union U"),
        ("__shared__ decltype(a, b) x;", "x", "decltype(a, b)"),
        ("__shared__ VEC(4) x[2];", "x", "VEC(4) [2]"),
        ("[[maybe_unused]] __shared__ int x;", "x", "int"),
        ("__shared__ float* __restrict__ x;", "x", "float *"),
        (
            "__shared__ typename cub::BlockReduce<T, 128>::TempStorage x;",
            "x",
            "typename cub::BlockReduce<T, 128>::TempStorage",
        ),
    ],
)
def test_a_shared_variable_is_a_reference_into_the_block(
    declaration: str, name: str, type_: str
) -> None:
    assert in_kernel(declaration) == shared(name, type_)


DEPENDENT = """template <int N> struct Sum { float v; };
template <int N> struct Traits { using SumT = Sum<N>; template <int M> struct Of { int n; }; };
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("T::SumT sum{1};", "typename T::SumT sum{1};"),
        ("auto sum = T::SumT{1};", "auto sum = typename T::SumT{1};"),
        ("T::Of<3> of;", "typename T::template Of<3> of;"),
        ("typename T::SumT sum{1};", "typename T::SumT sum{1};"),
        ("int n = T::count;", "int n = T::count;"),
    ],
)
def test_dependent_types_are_said_to_be_types_as_nvcc_does_not_ask(
    statement: str, expected: str
) -> None:
    text = f"{DEPENDENT}template <class T> __device__ void f() {{ {statement} }}\n"
    assert expected in rewritten(text) and "typename typename" not in rewritten(text)


def test_each_declarator_is_a_variable() -> None:
    expected = [shared("a", "float [N]"), shared("b", "float"), shared("c", "float *")]
    assert in_kernel("__shared__ float a[N], b, *c;") == " ".join(expected)


def test_what_a_directive_says_is_not_part_of_the_next_statement() -> None:
    source = "__device__ void f() {\n#define A static\n__shared__ int x;\n#define B b.\n}\n"
    assert f"#define A static\n{shared('x', 'int')}\n" in rewritten(source)
    assert "Shape(1, 2)" in rewritten("void f() {\n#define B b.\nk<<<1, 2>>>();\n}\n")


@pytest.mark.parametrize(
    ("declaration", "align"),
    [
        ("alignas(16) __shared__ char x[4];", "alignas(16)"),
        ("__shared__ alignas(float4) char x[4];", "alignas(float4)"),
        ("__align__(8) static __shared__ char x[4];", "alignas(8)"),
        ("__shared__ __align__(N * 2) char x[4];", "alignas(N * 2)"),
        ("__shared__ char __align__(32) x[4];", "alignas(32)"),
        ("__shared__ char x[4] __attribute__((aligned(64)));", "alignas(64)"),
        ("__attribute__((aligned)) __shared__ char x[4];", "alignas(16)"),
        ("alignas(4) __shared__ alignas(T) char x[4];", "alignas(4) alignas(T)"),
    ],
)
def test_an_alignment_is_honoured_wherever_it_stands(declaration: str, align: str) -> None:
    assert in_kernel(declaration) == shared("x", "char [4]", align=align)


def test_a_struct_defined_in_place_keeps_its_lines() -> None:
    source = "__device__ void f() {\n__shared__ struct {\n  int a; // x\n  float b;\n} s, *t;\n}\n"
    text = rewritten(source)
    assert text.split("\n")[1:4] == ["using simt_b_s = struct {", "  int a; // x", "  float b;"]
    assert f"}}; {shared('s', 'simt_b_s')} {shared('t', 'simt_b_s *')}\n" in text


def test_a_named_struct_keeps_its_name() -> None:
    assert in_kernel("__shared__ struct S { int a; } s;") == (
        f"struct S {{ int a; }}; {shared('s', 'struct S')}"
    )


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("extern __shared__ float x[];", "float* x = ::simt::dynamic_shared<float>();"),
        (
            "extern __shared__ __align__(16) unsigned char x[];",
            "unsigned char* x = ::simt::dynamic_shared<unsigned char>();",
        ),
        (
            "volatile extern __shared__ T x[];",
            "volatile T* x = ::simt::dynamic_shared<volatile T>();",
        ),
        (
            "extern __shared__ float x[][33];",
            "using simt_t_x = float [33]; simt_t_x* x = ::simt::dynamic_shared<simt_t_x>();",
        ),
        (
            "extern __shared__ char *x[];",
            "using simt_t_x = char *; simt_t_x* x = ::simt::dynamic_shared<simt_t_x>();",
        ),
        (
            "extern __shared__ int x[4];",
            "using simt_t_x = int [4]; simt_t_x& x = *::simt::dynamic_shared<simt_t_x>();",
        ),
    ],
)
def test_extern_shared_memory_is_the_launch_s(declaration: str, expected: str) -> None:
    assert in_kernel(declaration) == expected


def test_a_function_after_else_does_not_begin_with_what_the_other_branch_has() -> None:
    text = rewritten(
        "#ifdef A\nconstexpr int N = 4;\n__device__ int f() { return N; }\n"
        "constexpr int M = 5;\nstruct P { int a = M; };\n__device__ int g() { return M; }\n"
        "#else\n__device__ void f() { extern __shared__ float x[]; }\n#endif\n"
    )
    assert "float* x = ::simt::dynamic_shared<float>();" in text


def test_a_function_whose_head_differs_by_branch_is_one() -> None:
    text = rewritten(
        "__device__ void\n#ifdef A\nf(int a) {\n#else\nf() {\n#endif\n"
        "extern __shared__ float x[]; }\n"
    )
    assert "float* x = ::simt::dynamic_shared<float>();" in text


def test_in_a_macro_the_name_may_be_a_parameter_or_pasted() -> None:
    text = rewritten("#define A(T, NAME) __shared__ T NAME[4], pre_##NAME\n")
    assert "simt_v_##NAME; using simt_t_##NAME = T [4]; simt_t_##NAME& NAME = " in text
    assert "(simt_v_##NAME, #NAME)" in text
    assert '(simt_v_##pre_##NAME, "pre_" #NAME)' in text
    assert not text.rstrip().endswith(";")  # nor had the macro one


def test_a_macro_for_the_word_is_the_word() -> None:
    text = rewritten("#define LOCAL static __shared__\n__device__ void f() { LOCAL int x[4]; }\n")
    assert text.startswith("#define LOCAL static __shared__\n")
    assert shared("x", "int [4]") in text


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ float a[4] = {0};",
        "__shared__ auto x;",
        "__shared__;",
        "__shared__ T f(3);",
        "__shared__ int a b;",
        "__shared__ foo<;",
    ],
)
def test_a_declaration_that_is_none_is_found_and_left(declaration: str) -> None:
    source = f"__global__ void k() {{\n\n  {declaration}\n}}\n"
    result = rewrite(source, "k.cu")
    assert [(d.code, d.line) for d in result.diagnostics] == [("SX011", 3)]
    assert result.text.endswith(source)


def test_shared_memory_of_the_file_is_local_to_each_device_function_that_names_it() -> None:
    source = (
        "__device__ int before() { int pool; return pool; }\n"
        "__shared__ float pool[4], more;\n#define AT(i) pool[i]\n"
        "__device__ float direct() { return pool[0]; }\n"
        "__global__ void indirect() { AT(1) = 2; }\n"
        "__device__ float own(float* pool) { return *pool; }\n"
        "void host() { float pool; }\n"
    )
    lines = rewritten(source).split("\n")
    local = '[[maybe_unused]] simt_t_pool& pool = ::simt::shared<simt_t_pool>(simt_v_pool, "pool");'
    assert lines[0] == source.split("\n")[0]
    assert lines[1] == (
        "static ::simt::SharedVariable simt_v_pool; using simt_t_pool = float [4]; "
        "static ::simt::SharedVariable simt_v_more; using simt_t_more = float;"
    )
    assert lines[3] == f"__device__ float direct() {{ {local} {{ return pool[0]; }} }}"
    assert lines[4] == f"__global__ void indirect() {{ {local} {{ AT(1) = 2; }} }}"
    assert lines[5:7] == source.split("\n")[5:7]


def test_extern_shared_memory_of_the_file_is_a_pointer_and_may_be_declared_again() -> None:
    source = "extern __shared__ T x[];\nextern __shared__ T x[];\n__global__ void k() { f(x); }\n"
    lines = rewritten(source).split("\n")
    assert (
        lines[0] == "using simt_t_x = T; [[maybe_unused]] static ::simt::DynamicShared<simt_t_x> x;"
    )
    assert lines[1] == "using simt_t_x = T;"
    assert "simt_t_x* x = ::simt::dynamic_shared<simt_t_x>(); { f(x); } }" in lines[2]


# ---- attributes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void {}k(A a = {{1}})",
        "{}__global__ void k(int a)",
        "template <int N>\n__global__ void\n{}\nk(int a)",
    ],
)
def test_launch_bounds_become_the_first_statement(head: str) -> None:
    source = head.format("__launch_bounds__(N * 2, 1) ") + " { f(); }\n"
    expected = head.format(" ") + " { ::simt::launch_bounds(N * 2, 1); f(); }\n"
    assert rewritten(source) == expected


def test_launch_bounds_of_a_prototype_are_dropped() -> None:
    assert rewritten("__global__ void __launch_bounds__(256) k();\n") == "__global__ void  k();\n"


def test_launch_bounds_that_a_macro_stands_for_are_stated_too() -> None:
    source = "#define BOUNDS __launch_bounds__(2 * (N))\n__global__ void BOUNDS k() {}\n"
    assert rewritten(source) == source.replace("{", "{ ::simt::launch_bounds(2 * ( N ));")


def test_launch_bounds_of_a_macro_with_several_definitions_are_left_to_the_header() -> None:
    either = (
        "#if A\n#define B __launch_bounds__(1)\n#else\n#define B __launch_bounds__(2)\n#endif\n"
    )
    source = either + "__global__ void B k() {}\n"
    assert rewritten(source) == source


def test_launch_bounds_that_an_if_chooses_are_stated_under_the_same_condition() -> None:
    source = (
        "#ifndef GUARD\n#define GUARD\n__global__ void\n#if A\n__launch_bounds__(1)\n#elif B\n"
        "__launch_bounds__(2, 3)\n#endif\nk(\nint x) { f(\nx); }\n#endif\n"
    )
    text = rewrite(source, "k.cu", library=False).text
    branches = [
        "#if A",
        "::simt::launch_bounds(1);",
        "#elif B",
        "#endif",
        '#line 10 "k.cu"',
        "",
        "#if A",
        "#elif B",
        "::simt::launch_bounds(2, 3);",
        "#endif",
        '#line 10 "k.cu"',
        " f(",
        "x); }",
        "#endif",
        "",
    ]
    assert text.split("\n")[11:] == branches


def test_noinline_is_an_attribute_of_the_host_too() -> None:
    assert rewritten("__noinline__ __attribute__((__noinline__)) int f();") == (
        "__attribute__((noinline)) __attribute__((__noinline__)) int f();"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "typedef float f4 __attribute__((ext_vector_type(4)));",
            "typedef ::simt::ext_vector<float, 4> f4;",
        ),
        (
            "typedef __attribute__((__ext_vector_type__(N * 2))) unsigned short u;",
            "typedef ::simt::ext_vector<unsigned short, N * 2> u;",
        ),
        (
            "template <class T> using V = T __attribute__((ext_vector_type(2)));",
            "template <class T> using V = ::simt::ext_vector<T, 2>;",
        ),
    ],
)
def test_vector_attributes_become_a_template(source: str, expected: str) -> None:
    assert rewritten(source) == expected


def test_a_vector_attribute_elsewhere_does_not_compile() -> None:
    text = rewritten("void f(float __attribute__((ext_vector_type(4))) x);")
    assert '_Pragma("GCC error' in text


# ---- inline assembly ----------------------------------------------------------------------


@pytest.fixture
def asm(monkeypatch: pytest.MonkeyPatch) -> list[Asm]:
    """Records the assembly that the translator was asked for, and answers with a call of f()."""
    asked: list[Asm] = []

    def translate(asm: Asm) -> str:
        asked.append(asm)
        return f"{{ f{len(asked)}(); }}"

    monkeypatch.setattr("portkern.simt.translate.rewrite.translate", translate)
    return asked


def test_assembly_is_one_statement_of_its_translation(asm: list[Asm]) -> None:
    source = (
        '__device__ void f() {\n  if (a) asm volatile("mma.sync " // shape\n'
        '    "{%0}, [%1];\\n\\t"\n    : "=r"(d[0]), [name] "+f" (e)\n'
        '    : "l"(p + f<a, b>(1)), "n"(3) : "memory");\n  else g();\n}\n'
    )
    text = rewritten(source)
    assert "do { f1(); } while (0)" in text
    assert line_of(text, "else") == line_of(source, "else g")
    assert asm == [
        Asm(
            "mma.sync {%0}, [%1];\n\t",
            (Operand("=r", "d[0]"), Operand("+f", "e", "name")),
            (Operand("l", "p + f<a, b>(1)"), Operand("n", "3")),
            line=2,
        )
    ]


@pytest.mark.parametrize("sections", ['::"r"(x)', ': :"r"(x)', ': : "r"(x) : "memory"'])
def test_sections_of_assembly_may_be_empty(sections: str, asm: list[Asm]) -> None:
    in_kernel(f'asm("bar.sync %0;" {sections});')
    assert asm[0].outputs == ()
    assert asm[0].inputs == (Operand("r", "x"),)


def test_assembly_in_a_macro_names_its_parameters(asm: list[Asm]) -> None:
    text = rewritten(
        '#define LD(r, p) \\\n  asm volatile("ld %0, [%1];" \\\n  : "=r"(r) : "l"(p))\n'
    )
    assert text == "#define LD(r, p) \\\n  do { f1(); } while (0) \\\n\n"
    assert asm[0].outputs == (Operand("=r", "r"),)


def test_a_template_may_come_from_macros(asm: list[Asm]) -> None:
    source = (
        '#define SHAPE "m16" K\n#define K "k8"\n__device__ void f() { asm("mma." SHAPE ";"); }\n'
    )
    assert "do { f1(); } while (0);" in rewritten(source)
    assert [a.template for a in asm] == ["mma.m16k8;"]


def test_a_macro_of_several_values_is_compared_where_it_is_used(asm: list[Asm]) -> None:
    source = (
        '#ifdef A\n#define OP "add"\n#else\n#define OP "sub"\n#endif\n'
        '__device__ void f() { asm(OP ".s32;"); }\n'
    )
    line = rewritten(source).split("\n")[5]
    assert [a.template for a in asm] == ["add.s32;", "sub.s32;"]
    assert 'if constexpr (__builtin_strcmp(OP, "add") == 0) { do { f1(); } while (0); }' in line
    assert 'else if constexpr (__builtin_strcmp(OP, "sub") == 0) { do { f2(); }' in line
    assert "SX001" in line  # a value from elsewhere


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("asm(TEMPLATE);", "needs the value of TEMPLATE"),
        ('asm goto("x" :::: label);', "asm goto"),
        ('asm("x" : "=r" y);', "an operand"),
        ("asm(3);", "not a string literal"),
    ],
)
def test_assembly_that_is_not_understood_does_not_compile(statement: str, reason: str) -> None:
    text = in_kernel(statement)
    assert 'error("SX001 ' in text
    assert reason in text


def test_macros_without_end_have_no_value() -> None:
    doubling = "".join(f"#define M{n} M{n + 1} M{n + 1}\n" for n in range(40))
    chain = "".join(f"#define C{n} C{n + 1}\n" for n in range(3000))
    source = doubling + '#define M40 "x"\n#define S S\n' + chain + '#define C3000 "x"\n'
    for name in ("M0", "S", "C0"):
        assert "SX001" in rewritten(f"{source}__device__ void f() {{ asm({name}); }}\n")


def test_a_parameter_in_a_template_is_known_only_at_the_use() -> None:
    text = rewritten('#define OP(name) asm(name ".s32 %0, 1;" :: "r"(x))\n')
    assert "needs the value of name" in text


def test_assembly_the_translator_refuses_does_not_compile() -> None:
    text = in_kernel('asm volatile("tcgen05.wait::ld.sync.aligned;");')
    assert 'error("SX010 ' in text


def test_a_compiler_barrier_stays_one() -> None:
    assert in_kernel('asm volatile("" ::: "memory");') == ('__asm__ volatile("" :  : : "memory");')
    assert in_kernel('asm volatile("" : "+f"(x));') == (
        '__asm__ volatile("" : "+m"(x) : : "memory");'
    )


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("rdtsc;" : "=a"(lo), "=d"(hi))',
        'asm("pause")',
        'asm("x" MACRO : "=A"(t))',
        'asm volatile("fmla v0.4s, %0" : : "w"(t))',
        'asm goto("jmp %l0" :::: label)',
    ],
)
def test_assembly_of_the_host_stays(statement: str) -> None:
    source = f"void f() {{ {statement}; }}\n"
    assert rewritten(source) == source


def test_ptx_is_not_a_host_s_assembly_even_where_nothing_marks_the_function() -> None:
    text = rewritten('DEVICE void f() { asm volatile("multimem.red.f32 [%0], 1;" :: "l"(p)); }\n')
    assert "SX001" in text


# ---- what is not modelled -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("cute/tensor.hpp", "SX004"),
        ("cutlass/cutlass.h", "SX004"),
        ("cuda/ptx", "SX002"),
        ("texture_fetch_functions.h", "SX003"),
        ("nvshmem/nvshmem.h", "SX005"),
        ("nccl.h", "SX005"),
    ],
)
@pytest.mark.parametrize("form", ["#include <{}>", '#  include "{}" // why'])
def test_a_library_without_a_model_is_an_error_of_the_preprocessor(
    header: str, code: str, form: str
) -> None:
    lines = rewritten(f"#ifdef A\n{form.format(header)}\n#endif\n").split("\n")
    assert re.match(rf'#\s*error "{code} .*<{re.escape(header)}>"', lines[1])


@pytest.mark.parametrize(
    "line",
    [
        "#include <vector>",
        '#include "cuda_utils.cuh"',
        "#include HEADER",
        "#include <omp.h>",
        "#include <torch/extension.h>",
        "#include <simt/core.h>",
        "#include",
        "#include <",
    ],
)
def test_other_includes_stay(line: str) -> None:
    assert rewritten(f"{line}\n") == f"{line}\n"


def test_a_library_has_no_main() -> None:
    source = "namespace a { void main(); }\nint\nmain(int argc, char** argv) {}\nint x = main(1);\n"
    assert found(source, library=True) == [("SX008", 3)]
    assert found(source, library=False) == []


def test_what_an_if_may_take_away_is_left_to_the_compiler() -> None:
    source = "#ifdef A\nint main() {}\nvoid f() { k<<<1>>>; }\n#endif\n"
    result = rewrite(source, "k.cu", library=True)
    assert result.diagnostics == ()
    lines = result.text.split("\n")
    assert lines[2].startswith('int  _Pragma("GCC error \\"SX008 ')
    assert '_Pragma("GCC error \\"SX007 ' in lines[3]


def test_an_include_guard_is_not_a_condition() -> None:
    source = "#ifndef G_H\n#define G_H\nvoid f() { k<<<1>>>; }\n#endif\n"
    assert found(source) == [("SX007", 3)]


def test_broken_input_is_read_without_an_exception() -> None:
    for source in (
        "k<<<1, 2>>>(",
        "__shared__ float",
        'asm("',
        "}}}} {{{",
        "#define",
        "#include",
        "#if\n#else\n#else\n#endif\n#endif",
        "__launch_bounds__(",
        '"\\',
        'R"(',
        "/*",
        "ext_vector_type(",
        "cudaLaunchKernel(",
        "\x00\ufeff\x00",
        ">>>(x)",
    ):
        rewrite(source, "k.cu")


def test_a_log_tells_what_was_not_modelled_and_where() -> None:
    log = (
        "k.cu: In function `void f()':\n"
        "k.cu:4:84: error: call to `simt_unmodelled_4_1' declared with attribute error: "
        "SX001 inline assembly that is not modelled: 'vote'\n"
        "    4 |     SX003 is shown here\n"
        "a/b.h:7:3: error: call to 'simt_unmodelled_7_2()' declared with 'error' attribute: "
        "SX006 x\n"
        'k.cu:1:2: error: #error "SX004 CuTe or CUTLASS: <cute/tensor.hpp>"\n'
        'k.cu:2:2: error: "SX005 y: <nccl.h>"\n'
        "k.cu:9:11: error: SX007 z\nk.cu:9:11: error: SX007 z\n"
        "k.cu:9:11: error: SX999 z\nk.cu:3:1: error: expected `;'\n"
        "error: SX008 main() in a library\n"
    )
    assert [(d.code, d.message, d.file, d.line) for d in unmodelled(log, "n.cu")] == [
        ("SX001", "inline assembly that is not modelled: 'vote'", "k.cu", 4),
        ("SX006", "x", "a/b.h", 7),
        ("SX004", "CuTe or CUTLASS: <cute/tensor.hpp>", "k.cu", 1),
        ("SX005", "y: <nccl.h>", "k.cu", 2),
        ("SX007", "z", "k.cu", 9),
        ("SX008", "main() in a library", "n.cu", 0),
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("void k(cudaTextureObject_t t) {\n  tex2D<float>(t, 1, 2);\n}", [("SX003", 1)]),
        (
            "texture<float, 2> image;\nint f() { return tex1Dfetch(3); }",
            [("SX003", 1), ("SX003", 2)],
        ),
        ("void k(hipSurfaceObject_t s);", [("SX003", 1)]),
        ("void f() {\n  struct cudaResourceDesc d;\n  d = {};\n}", [("SX003", 2)]),
        ("template <class T> T f(T o) {\n  return tex3DLod<T>(o, 1, 2, 3, 4);\n}", [("SX003", 2)]),
        ("\nvoid k(const CUtensorMap m);", [("SX002", 2)]),
        ("namespace cuda {}\nvoid k() {\n  cuda::barrier<0> b;\n}", [("SX002", 3)]),
        (
            "auto t = cute::make_tensor(1);\nusing H = cutlass::half_t;",
            [("SX004", 1), ("SX004", 2)],
        ),
        ("namespace cg {}\nvoid k() {\n  auto c = cg::this_cluster();\n}", [("SX009", 3)]),
        (
            "#define PAIR __cluster_dims__(2)\n#define UNUSED __cluster_dims__(4)\nvoid PAIR k();",
            [("SX009", 3)],
        ),
        ("void k() { tex2D(1); }\nint tex2D(int);", [("SX003", 1)]),
        ("int tex2D(int);\nvoid k() { tex2D(1, 2); }", []),
        ("struct A { int texture; } a;\nint b = a.tex2D;", []),
        ("int a = texel;", []),
        ("int cos3(int);\nint a = cos2(1);", []),
    ],
)
@needs_gxx
def test_an_unknown_name_of_what_is_not_modelled_has_that_s_number(
    source: str, expected: list[tuple[str, int]], compiles: Callable[..., str]
) -> None:
    assert compiles(f"#if 0\n{source}\n#endif\n") == ""
    log = compiles(f"{source}\n", expect=1)
    assert [(d.code, d.line) for d in unmodelled(log, "k.cu")] == expected


def test_a_cluster_of_blocks_is_found_before_anything_is_compiled() -> None:
    assert found("void\n__cluster_dims__(2, 1, 1) k() {}\n") == [("SX009", 2)]


def test_clang_s_words_for_an_unknown_name_are_known_too() -> None:
    log = (
        "k.cu:1:8: error: unknown type name 'cudaTextureObject_t'\n"
        "k.cu:2:3: error: use of undeclared identifier 'tex2D'; did you mean 'exp2'?\n"
        "k.cu:3:9: error: no member named 'this_cluster' in namespace 'cooperative_groups'\n"
        "k.cu:4:9: error: no template named 'barrier' in namespace 'cuda'\n"
        "k.cu:5:9: error: use of undeclared identifier 'exp3'; did you mean 'tex2D'?\n"
    )
    assert [(d.code, d.line) for d in unmodelled(log, "k.cu")] == [
        ("SX003", 1),
        ("SX003", 2),
        ("SX009", 3),
        ("SX002", 4),
    ]


# ---- files that include each other --------------------------------------------------------


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def test_a_tree_keeps_its_shape_and_its_includes(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {
            "app/main.cu": '#include "../lib/a.cuh"\n#include "gone.h"\nint main() {}\n',
            "lib/a.cuh": (
                '#pragma once\n#include "sub/../b.h"\n#include <c.cuh>\n#include <plain.h>\n'
            ),
            "lib/b.h": '#include "a.cuh"\n__device__ void f() { __shared__ int x; }\n',
            "extra/c.cuh": "#pragma once\n__global__ void k();\n",
            "extra/plain.h": "int plain;\n",
        },
    )
    search = [tmp_path / "in/extra", tmp_path / "in/nothing"]
    tree = rewrite_tree(tmp_path / "in/app/main.cu", tmp_path / "out", search=search)
    assert tree.diagnostics == ()
    assert tree.main == tmp_path / "out/app/main.cu"
    assert tree.includes == (tmp_path / "out/extra",)
    assert [path.name for path in tree.sources] == ["main.cu", "a.cuh", "b.h", "c.cuh"]
    assert (tmp_path / "out/lib/sub").is_dir()
    assert "simt_v_x" in (tmp_path / "out/lib/b.h").read_text()
    first = (tmp_path / "out/lib/a.cuh").read_text().split("\n")[0]
    assert first == f'#line 1 "{tmp_path}/in/lib/a.cuh"'
    assert not (tmp_path / "out/extra/plain.h").exists()


def test_a_header_with_device_code_is_reached_by_way_of_one_without(tmp_path: Path) -> None:
    source = "#include <outer.h>\n#include <other.h>\n"
    write(
        tmp_path,
        {
            "k.cu": source,
            "lib/outer.h": '#include <middle.h>\n#include "outer.h"\n',
            "lib/middle.h": '#include "parts/inner.h"\n',
            "lib/parts/inner.h": "__device__ void f() { __shared__ int x; }\n",
            "lib/other.h": "#include <outer_of_nothing.h>\nint other;\n",
        },
    )
    tree = rewrite_tree(tmp_path / "k.cu", tmp_path / "out", search=[tmp_path / "lib"])
    assert [path.name for path in tree.sources] == ["k.cu", "outer.h", "middle.h", "inner.h"]
    assert shared("x", "int") in (tmp_path / "out/lib/parts/inner.h").read_text()
    assert includes_device_code(source, [tmp_path / "lib"])
    assert not includes_device_code("#include <other.h>\n", [tmp_path / "lib"])


def test_files_of_a_tree_know_each_other_s_macros(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "k.cu": (
                '#include "defs.h"\n__global__ void k() { LOCAL int x; asm(OP); pool[0] = 1; }\n'
            ),
            "defs.h": (
                '#define LOCAL __shared__\n#define OP "bar.sync 0;"\n__shared__ int pool[4];\n'
            ),
        },
    )
    text = rewrite_tree(tmp_path / "k.cu", tmp_path / "out").main.read_text()
    assert shared("x", "int") in text
    assert "SX001" not in text
    assert "simt_t_pool& pool" in text


def test_main_is_looked_for_in_the_main_file_of_a_tree(tmp_path: Path) -> None:
    write(tmp_path, {"k.cu": '#include "app.cu"\n', "app.cu": "int main() {}\n"})
    assert (
        rewrite_tree(tmp_path / "app.cu", tmp_path / "out", library=True).diagnostics[0].code
        == "SX008"
    )


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"// \xff\xe9\r\nint a;\r\n")
    main = rewrite_tree(tmp_path / "k.cu", tmp_path / "out").main
    assert main.read_bytes().partition(b"\n")[2] == b"// \xff\xe9\r\nint a;\r\n"


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        rewrite_tree(tmp_path / "none.cu", tmp_path / "out")


def test_endless_includes_are_a_config_error(tmp_path: Path) -> None:
    write(tmp_path, {f"{n}.h": f'#include "{n + 1}.h"\n' for n in range(120)})
    with pytest.raises(ConfigError, match="nest more than"):
        rewrite_tree(tmp_path / "0.h", tmp_path / "out")


# ---- compiled -----------------------------------------------------------------------------

KERNELS = """
template <class T, int N>
__global__ void __launch_bounds__(N, 1) sum(const T* in, T* out, int n) {
    __shared__ alignas(32) T part[N], *where;
    __shared__ volatile struct { int a; float b[2]; } s;
    extern __shared__ unsigned char raw[];
    where = &part[threadIdx.x];
    *where = in[threadIdx.x];
    s.b[1] = 2;
    raw[0] = 1;
    out[threadIdx.x] = part[0] + pool[n & 3] + scratch[0];
}
"""
PROGRAM = (
    "extern __shared__ float scratch[];\n__shared__ float pool[4];\n"
    + KERNELS
    + """
typedef float f4 __attribute__((ext_vector_type(4)));
template <class T> using v2 = T __attribute__((ext_vector_type(2)));
__global__ void vectors(f4* x, v2<int> y) { *x = *x * 2.f + f4{1, 2, 3, 4}; x->w += y.x + y[1]; }
struct Pointer {
    float* p;
    operator float*() { return p; }
};
struct Runner {
    int n = 3;
    void run(const float* in) {
        auto [a, b] = std::pair<float*, int>(nullptr, 1);
        Pointer out{a};
        float row[4] = {};
        if (n) sum<float, 64><<<1, dim3(32, 2), 128>>>(row, out, n++);
        else sum<float, 64><<<{1, 1}, b>>>(in, nullptr, this->n);
        void (*fp)(const float*, float*, int) = sum<float, 32>;
        (*fp)<<<n, b, 0, nullptr>>>(in, 0, b);
    }
};
template <class... Args>
void forward(Args... args) { sum<float, 128><<<1, 2>>>(args...); }
#define RUN(name, T, ...) name##m<T, 32> \\
    <<<1, 2>>>(__VA_ARGS__)
void all(f4* v) {
    Runner().run(nullptr);
    forward((const float*)0, (float*)0, 1);
    RUN(su, float, (float*)v, nullptr, 2);
    vectors<<<1, 1>>>(v, {1, 2});
}
"""
)


@needs_gxx
def test_rewritten_code_is_cpp(compiles: Callable[..., str]) -> None:
    assert compiles(PROGRAM) == ""


@needs_gxx
def test_what_is_not_modelled_is_reported_only_where_it_is_used(
    compiles: Callable[..., str],
) -> None:
    source = (
        "#ifdef NEVER\n#include <cute/tensor.hpp>\n#endif\n"
        "#define OP(x) asm(x)\n"
        "template <class T> __device__ void unused() { j<<<1, 2>>>(); }\n"
        'template <class T> __device__ void used(T) {\n  asm volatile("tcgen05.x;");\n}\n'
    )
    assert compiles(source) == ""
    log = compiles(source + "__device__ void f() {\n  used(1);\n  OP(y);\n}\n", expect=1)
    assert sorted((d.code, d.line) for d in unmodelled(log, "k.cu")) == [
        ("SX001", 11),
        ("SX010", 7),
    ]


@needs_gxx
def test_conditional_defects_are_reported_only_where_the_condition_holds(
    compiles: Callable[..., str],
) -> None:
    source = "#ifdef A\n#include <cute/tensor.hpp>\nvoid f() {\n  f<<<1>>>;\n}\n#endif\n"
    assert compiles(source) == ""
    log = compiles(source, expect=1, options=("-c", "-DA"))
    assert [(d.code, d.file, d.line) for d in unmodelled(log, "?")] == [
        ("SX004", "k.cu", 2),
        ("SX007", "k.cu", 4),
    ]


# ---- run ----------------------------------------------------------------------------------

#: The part of the runtime that threads without barriers need: each runs to its end, then the next.
RUNTIME = """
#include <cstdio>
#include <simt/core.h>
SIMT_TLS uint3 threadIdx, blockIdx;
SIMT_TLS dim3 blockDim, gridDim;
namespace simt {
SIMT_TLS Block* block;
alignas(1024) static char memory[1 << 16];
static size_t used;
Turn next_fiber() { return {}; }
void place_shared(SharedVariable& v, size_t size, size_t align, const char* name, Site) {
    v.offset = (used + align - 1) / align * align;
    v.layout = block->layout;
    used = v.offset + size;
    std::printf("%s: %zu bytes at a multiple of %zu\\n", name, size, align);
}
void too_many_threads(unsigned most, Site) { std::printf("more threads than %u\\n", most); }
void launch(const Shape& shape, const Call& call) {
    static uint32_t layout;
    std::printf("%s: %u x %u\\n", call.kernel, shape.grid.x, shape.block.x);
    Block b{};
    block = &b;
    b.layout = ++layout;
    b.threads = shape.block.x;
    b.shared = memory;
    b.size = shape.block;
    used = shape.dynamic;
    for (blockIdx.x = 0; blockIdx.x < shape.grid.x; ++blockIdx.x) {
        b.rank = 0;
        threadIdx = {0, 0, 0};
        call.run(call.closure);
    }
}
}
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[str]]:
    """The lines that a rewritten program prints when it is built with the small runtime."""

    def run(source: str, *options: str) -> list[str]:
        assert GXX is not None
        (tmp_path / "k.cpp").write_text(RUNTIME + rewrite(source, "k.cu", library=False).text)
        command = [GXX, "-std=c++17", "-w", "-I", str(INCLUDE), *options, "k.cpp", "-o", "k"]
        command += [f"-D{word}=" for word in WORDS]
        subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
        done = subprocess.run(
            [tmp_path / "k"], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.splitlines()

    return run


@needs_gxx
def test_arguments_are_evaluated_once_and_changed_in_one_thread_only(
    run: Callable[..., list[str]],
) -> None:
    source = """
struct Counter { int n; operator int() { return ++n; } };
__global__ void k(int a, Counter c, int* out) { ++a; ++c.n; *out += a + c.n; }
int main() {
    int calls = 0, sum = 0;
    auto next = [&] { return ++calls; };
    if (calls) k<<<1, 1>>>(1, Counter{2}, nullptr);
    else k<<<2, 4>>>(next(), Counter{10}, &sum);
    std::printf("%d %d\\n", calls, sum);
}
"""
    assert run(source) == ["k: 2 x 4", f"1 {8 * (2 + 11)}"]


@needs_gxx
def test_shared_memory_is_the_block_s_and_aligned(run: Callable[..., list[str]]) -> None:
    source = """
extern __shared__ char bytes[];
__shared__ short common[3];
#define FIRST common[0]
__device__ void add(int n) { FIRST += n; bytes[0] += 1; }
template <class T> __global__ void __launch_bounds__(4) k(T* out) {
    __shared__ __align__(64) T total, *last;
    extern __shared__ T values[];
    if (threadIdx.x == 0) total = 0, FIRST = 0, values[0] = 0;
    last = &total;
    *last += threadIdx.x;
    add(threadIdx.x);
    *out = total + FIRST + bytes[0];
}
int main() {
    int out;
    k<int><<<1, 5, 16>>>(&out);
    std::printf("%d\\n", out);
}
"""
    bound = "more threads than 4"
    assert run(source) == [
        "k<int>: 1 x 5",
        bound,
        "common: 6 bytes at a multiple of 2",
        "total: 4 bytes at a multiple of 64",
        "last: 8 bytes at a multiple of 64",
        bound,
        bound,
        bound,
        bound,
        str(10 + 10 + 5),
    ]


@needs_gxx
@pytest.mark.parametrize(("option", "expected"), [("-DA", "1"), ("-DB", "2")])
def test_the_preprocessor_chooses_among_templates(
    option: str, expected: str, run: Callable[..., list[str]], asm: list[Asm]
) -> None:
    source = (
        'void f1() { std::puts("1"); }\nvoid f2() { std::puts("2"); }\n#ifdef A\n'
        '#define OP "a\\t"\n#else\n#define OP "b\\t"\n#endif\n'
        "__device__ void f() { asm(OP); }\nint main() { f(); }\n"
    )
    assert run(source, option) == [expected]
    assert [a.template for a in asm] == ["a\t", "b\t"]


# ---- loops of shuffles


@pytest.mark.parametrize(
    "loop",
    [
        "for (int d = 16; d; d /= 2) s[d] += __shfl_xor_sync(~0u, v, d);",
        "for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, s[d], d);",
        "for (int d = 16; d; d /= 2) v += f(__shfl_xor_sync(~0u, v, d));",
        "for (int d = 16; d; d /= 2) { if (d < 3) v += __shfl_xor_sync(~0u, v, d); }",
        "for (int d = 16; v > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);",
        "for (int d = 16; d; d /= 2) v += threadIdx.x * __shfl_xor_sync(~0u, v, d);",
        "for (int d = 16; d; d /= 2) w += __shfl_xor_sync(~0u, v, d);",
        "for (int d = 16; d; d /= 2) { w += 1; v += __shfl_xor_sync(~0u, v, d); }",
        "for (int d = 16; d; d /= 2) v += __shfl_xor_sync(__activemask(), v, d);",
        "for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d) + __shfl_xor_sync(~0u, v, 1);",
    ],
)
def test_a_loop_of_shuffles_that_is_not_a_fold_is_left_as_it_is(loop: str) -> None:
    text = in_kernel(loop)
    assert loop in text and "shuffle_loop" not in text


def test_a_fold_is_tried_at_once_before_its_loop() -> None:
    loop = "for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);"
    text = in_kernel(loop)
    assert text.startswith("{ if (!::simt::shuffle_loop<::simt::Move::exclusive, true>(")
    assert text.endswith(f")) {loop} }}")
