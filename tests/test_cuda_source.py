"""Kernels and launches are found in real code, whatever macros do to the grammar."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from portkern.cuda_source.comments import unended, without_comments
from portkern.cuda_source.syntax import LaunchText, Parameter, SourceKernel, Syntax, parse
from portkern.port.lint.launches import launches
from portkern.port.lint.source import Source
from portkern.simt.translate.survey import Survey, World


def only_kernel(text: str) -> SourceKernel:
    (kernel,) = parse(text).kernels
    return kernel


def only_launch(text: str) -> LaunchText:
    (launch,) = parse(f"void host() {{\n  {text}\n}}").launches
    return launch


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* x, int n) { x[0] = n; }",
        "static __global__ void k(float* x, int n) { x[0] = n; }",
        'extern "C" __global__ void k(float* x, int n) { x[0] = n; }',
        'extern "C" {\n__global__ void k(float* x, int n) { x[0] = n; }\n}',
        "namespace a { namespace b { __global__ void k(float* x, int n) { x[0] = n; } } }",
        "SOME_MACRO __global__ void k(float* x, int n) { x[0] = n; }",
        "__global__ void API_EXPORT k(float* x, int n) { x[0] = n; }",
        "void __global__ k(float* x, int n) { x[0] = n; }",
        "__global__ void LAUNCH_BOUNDS(256) k(float* x, int n) { x[0] = n; }",
        "__global__ void k(float* x, int n = f(3, 4)) { x[0] = n; }",
        "#define KERNEL static __global__\nKERNEL void k(float* x, int n) { x[0] = n; }",
        "#define KERNEL(n) __global__ __launch_bounds__(n)\nKERNEL(64) void k(float* x, int n) {}",
        "__global__\n#ifdef A\nvoid k(float* x, int n)\n#else\nvoid k(float* x, int n)\n#endif\n{}",
        "int broken( { ;\n__global__ void k(float* x, int n) { x[0] = n; }",
    ],
)
def test_a_definition_is_found_however_it_is_written(text: str) -> None:
    kernel = only_kernel(text)
    assert kernel.name == "k"
    assert kernel.parameters == (Parameter("float*", "x"), Parameter("int", "n"))


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* x);",
        "template __global__ void k<float>(float* x);",
        "#if 0\n__global__ void k(float* x) {}\n#endif",
        "#if 1\n#else\n__global__ void k(float* x) {}\n#endif",
        "// __global__ void k(float* x) {}",
        'const char* source = "__global__ void k(float* x) {}";',
        "__device__ void k(float* x) {}",
        "#if 0\n#if A\n#else\n__global__ void k(float* x) {}\n#endif\n#endif",
    ],
)
def test_what_defines_no_kernel_is_not_counted(text: str) -> None:
    assert parse(text).kernels == ()


def test_both_branches_of_an_if_are_there() -> None:
    text = "#if A\n__global__ void k(int a) {}\n#else\n__global__ void k(float a) {}\n#endif"
    assert [k.parameters[0].type for k in parse(text).kernels] == ["int", "float"]


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void __launch_bounds__(BLOCK, 2) k() {}",
        "__launch_bounds__(BLOCK, 2) __global__ void k() {}",
        "__global__ __launch_bounds__(BLOCK, 2) void k() {}",
        "template <int N>\n__launch_bounds__(BLOCK, 2)\n__global__ void k() {}",
    ],
)
def test_launch_bounds_stand_before_or_after_void(text: str) -> None:
    assert only_kernel(text).bounds == ("BLOCK", "2")


def test_a_template_has_its_own_parameters() -> None:
    kernel = only_kernel(
        "template <typename T, int N = 4, class... Rest>\n__global__ void k(T* x) {}"
    )
    assert kernel.template == (
        Parameter("typename", "T"),
        Parameter("int", "N"),
        Parameter("class...", "Rest"),
    )
    assert (kernel.line, kernel.start) == (2, 0)


def test_types_keep_what_belongs_to_them() -> None:
    kernel = only_kernel(
        "__global__ void k(const float* __restrict__ a, std::pair<int, int> b, float c[4][8],\n"
        "  void (*f)(int), A<T, 3, at::Traits> d, unsigned e, std::bool_constant<B>) {}"
    )
    assert kernel.parameters == (
        Parameter("const float* __restrict__", "a"),
        Parameter("std::pair<int, int>", "b"),
        Parameter("float * *", "c"),
        Parameter("void (*)(int)", "f"),
        Parameter("A<T, 3, at::Traits>", "d"),
        Parameter("unsigned", "e"),
        Parameter("std::bool_constant<B>", ""),
    )


def test_offsets_count_characters() -> None:
    text = "// größer, 値\nint a;\n\n__global__ void k() {\n  // é\n}\nint b;\n"
    syntax = parse(text)
    (kernel,) = syntax.kernels
    assert text[kernel.start : kernel.stop] == "__global__ void k() {\n  // é\n}"
    assert (kernel.line, kernel.last_line) == (4, 6)
    (node,) = syntax.nodes("function_definition")
    assert syntax.span(node) == (kernel.start, kernel.stop)


def test_a_kernel_in_a_macro_is_told_apart() -> None:
    syntax = parse("#define MAKE(NAME, T) \\\n  __global__ void NAME(T* x) { \\\n    x[0] = 0; }\n")
    assert syntax.kernels == ()
    assert [k.name for k in syntax.macro_kernels] == ["NAME"]


@pytest.mark.parametrize(
    ("text", "kernel", "template"),
    [
        ("k<<<grid, 256, 8, s>>>(a, b);", "k", ()),
        ("k<float, 256><<<grid, 256, 8, s>>>(a, b);", "k", ("float", "256")),
        ("a::b::k<f<int>><<<grid, 256, 8, s>>>(a, b);", "k", ("f<int>",)),
        ("(k<4>)<<<grid, 256, 8, s>>>(a, b);", "k", ("4",)),
        ("k <<< grid, 256, 8, s >>> (a, b);", "k", ()),
        ("hipLaunchKernelGGL(k, grid, 256, 8, s, a, b);", "k", ()),
        ("hipLaunchKernelGGL((k<int, 2>), grid, 256, 8, s, a, b);", "k", ("int", "2")),
        ("hipLaunchKernelGGL(HIP_KERNEL_NAME(k<3>), grid, 256, 8, s, a, b);", "k", ("3",)),
        (
            "void* args[] = {&a, (void*)&b};\n cudaLaunchKernel((void*)k, grid, 256, args, 8, s);",
            "k",
            (),
        ),
        (
            "void* args[] = {&a, &b};\n"
            "hipLaunchCooperativeKernel(reinterpret_cast<void*>(&k<1>), grid, 256, args, 8, s);",
            "k",
            ("1",),
        ),
    ],
)
def test_a_launch_is_found_however_it_is_written(
    text: str, kernel: str, template: tuple[str, ...]
) -> None:
    launch = only_launch(text)
    assert (launch.kernel, launch.template_arguments) == (kernel, template)
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ("grid", "256", "8", "s")
    assert launch.arguments == ("a", "b")
    assert launch.function == "host"


def test_a_shape_may_have_brackets_and_comparisons() -> None:
    launch = only_launch("k<<<dim3(n >> 3, f<2>()), (a > b ? a : b)>>>(x);")
    assert (launch.grid, launch.block) == ("dim3(n >> 3, f<2>())", "(a > b ? a : b)")
    assert (launch.shared, launch.stream) == ("", "")


def test_a_macro_that_launches_is_known_where_it_is_used() -> None:
    syntax = parse(
        "#define LAUNCH(kernel, n, ...) \\\n  kernel<<<(n) / 256, 256>>>(__VA_ARGS__)\n"
        "void f() { LAUNCH(scale<float>, count, x, y); }\n"
    )
    defined, used = syntax.launches
    assert (defined.kernel, defined.function, defined.macro) == ("kernel", "LAUNCH", "LAUNCH")
    assert (used.kernel, used.template_arguments) == ("scale", ("float",))
    assert (used.grid, used.block) == ("(count) / 256", "256")
    assert (used.arguments, used.function, used.line) == (("x", "y"), "f", 3)


@pytest.mark.parametrize(
    "text", ["a << b; c < d;", "operator<< <int>(x);", "k<<<1, 2", "k<<<", "f(a<b, c>(d));", "<<<"]
)
def test_what_launches_nothing_is_not_a_launch(text: str) -> None:
    assert parse(text).launches == ()


@pytest.mark.parametrize("text", ["", "\0\0", "}}}}", "__global__", "#if", "/*", "\ud800 int a;"])
def test_no_text_makes_it_fail(text: str) -> None:
    syntax = parse(text)
    assert not syntax.kernels
    assert not syntax.launches
    assert syntax.root.type == "translation_unit"


def test_a_large_file_is_read_in_time() -> None:
    text = "".join(f"__global__ void k{n}(float* x) {{ x[{n}] = 1.f; }}\n" for n in range(5_000))
    assert len(text) > 250_000
    assert len(parse(text).kernels) == 5_000


@pytest.mark.parametrize(
    ("before", "condition"),
    [
        ("", ""),
        ("#ifdef FAST\n#endif\n", ""),
        ("#ifdef FAST\n", "#ifdef FAST"),
        ("#if A > 1\n#  ifndef B\n#  endif\n", "#if A > 1"),
        ("#if A > 1\n#else\n", "#else"),
        ("#if A\n#elif defined(B)\n", "#elif defined(B)"),
    ],
)
def test_the_condition_that_a_kernel_stands_under_is_known(before: str, condition: str) -> None:
    syntax = parse(f"#define C 1\n{before}__global__ void k() {{}}\n#ifdef AFTER\n#endif\n")
    assert syntax.condition(syntax.kernels[0].start).replace(" (", "(") == condition


# ---- awkward text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "__global__ static void k(int n) {}",
        "__global__ void k(int n) __launch_bounds__(64) {}",
        "__global__ void k(int n) BOUNDS(64) {}",
        "#define lb(n) __launch_bounds__(n)\n__global__ void k(int n) lb(64) {}",
        "__global__ void lb(64) k(int n) {}",
        "__global__ void PORTABLE_LAUNCH_BOUNDS(64, f<1, 2>()) k(int n) {}",
        "[[maybe_unused]] __global__ void __attribute__((amdgpu_waves_per_eu(1, 2))) k(int n) {}",
        "__global__ /* ( { */ void // ; }\nk /*)*/ (int n) /*;*/ {}",
        "__global__ \\\n void \\\n k(int n) {}",
        "template <int N = (3 > 2), class T = A<B<int>>> __global__ void k(int n) {}",
        "template <> __global__ void k<Pair<int, 3>>(int n) {}",
        "template <class T> requires(sizeof(T) == 4) __global__ void k(int n) {}",
        "namespace a::b { namespace { inline namespace c { __global__ void k(int n) {} } } }",
        "struct S { friend __global__ void f(int); public: static __global__ void k(int n) {} };",
        "__global__ auto k(int n) -> void {}",
        "__global__ void k(int n = [] { return 3; }()) {}",
        "#define MAKE(name) __global__ void name##_kernel(int) {}\n__global__ void k(int n) {}",
        "#define KERNEL_VOID __global__ void\nKERNEL_VOID k(int n) {}",
        "#define INNER __global__\n#define OUTER extern INNER\nOUTER void k(int n) {}",
        'const char* s = R"x(__global__ void f(int n) {})y" )x";\n__global__ void k(int n) {}',
        "#ifdef A\n__global__ void k(int n) {\n#else\n__device__ void k(int n) {\n#endif\n}",
        "__device__ S::S(int a) : x(a), y{0} { f(); }\n__global__ void k(int n) {}",
        "__device__ int table[2] = {1, 2};\n__device__ void f(int);\n__global__ void k(int n) {}",
        "auto f = [] __device__(int a) { return a; };\n__global__ void k(int n) {}",
        "// /* \\\n__global__ void f() {}\n__global__ void k(int n) {} /* __global__ void g() {}",
    ],
)
def test_awkward_text_hides_no_kernel_and_adds_none(text: str) -> None:
    kernel = only_kernel(text)
    assert kernel.name == "k"
    assert [p.type for p in kernel.parameters] == ["int"]
    assert [
        f.name for f in Source(text, "k.cu").functions if f.kernel and f.name != "name##_kernel"
    ] == ["k"]


@pytest.mark.parametrize(
    ("macros", "use"),
    [
        ("#define MAKE(name, T) __global__ void name##_kernel(T* x) { *x = 1; }\n", "MAKE(a, int)"),
        (
            "#define BODY(name, T) __global__ void name(T* x) { *x = 1; }\n"
            "#define JOIN(a, b) a##b\n#define MAKE(n) BODY(JOIN(n, _kernel), int)\n",
            "MAKE(a);",
        ),
        (
            "#define MAKE(name, ...) template <> __global__ void name<__VA_ARGS__>"
            "(__VA_ARGS__* x) { *x = 1; }\n",
            "MAKE(a_kernel, int)",
        ),
    ],
)
def test_a_kernel_that_a_macro_writes_stands_where_the_macro_is_used(macros: str, use: str) -> None:
    text = f"{macros}\nint before;\n{use}\nint after;\n"
    (kernel,) = parse(text).kernels
    assert (kernel.name, kernel.parameters[0]) == ("a_kernel", Parameter("int*", "x"))
    assert text[kernel.start : kernel.stop] == use.rstrip(";")
    assert kernel.line == text[: kernel.start].count("\n") + 1
    assert kernel.macro == "MAKE"


def test_a_definition_ends_where_its_body_does_though_the_brace_opens_in_each_branch() -> None:
    text = "#if A\n__global__ void k(int a) {\n#else\n__global__ void k() {\n#endif\n}\nint after;"
    assert [k.stop for k in parse(text).kernels] == [text.index("}") + 1] * 2


@pytest.mark.parametrize(
    ("text", "kernel", "shape"),
    [
        ("k << <grid, 256 >> > (a, b);", "k", ("grid", "256", "", "")),
        ("k < < < grid, 256 > > > (a, b);", "k", ("grid", "256", "", "")),
        ("k<f<int>> << <grid, g<2>(), 8 >> >(a, b);", "k", ("grid", "g<2>()", "8", "")),
        ("k<<</* ; */grid, // >>>\n256>>>(a, b);", "k", ("grid", "256", "", "")),
        ("k<A<B<3>>><<<grid, C<D<E<1>>>::n>>>(a, b);", "k", ("grid", "C<D<E<1>>>::n", "", "")),
        ("ns::obj.template k<3><<<grid, 256>>>(a, b);", "k", ("grid", "256", "", "")),
        ("[&] { k<<<grid, 256>>>(a, b); }();", "k", ("grid", "256", "", "")),
        ("KERNEL_NAME(k)<<<grid, 256>>>(a, b);", "KERNEL_NAME(k)", ("grid", "256", "", "")),
        (
            "cudaLaunchConfig_t c = {grid, 256, 8, s}; cudaLaunchKernelEx(&c, k<3>, a, b);",
            "k",
            ("grid", "256", "8", "s"),
        ),
        (
            "cudaLaunchConfig_t c{}; c.gridDim = grid; c.blockDim = dim3(2, 2);\n"
            "c.dynamicSmemBytes = 8; cudaLaunchKernelEx(&c, &k, a, b);",
            "k",
            ("grid", "dim3(2, 2)", "8", ""),
        ),
    ],
)
def test_awkward_launches_are_read(text: str, kernel: str, shape: tuple[str, ...]) -> None:
    launch = only_launch(text)
    assert launch.kernel == kernel
    assert (launch.grid, launch.block, launch.shared, launch.stream) == shape
    assert launch.arguments == ("a", "b")
    assert launch.function == "host"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto f = &k<T, 4>; f<<<1, 2>>>(a);", ["k<T,4>"]),
        ("auto f = ns::k<Traits<N>>; f<<<1, 2>>>(a);", ["k<Traits<N>>"]),
        ("void (*f)(int*, int) = k; f<<<1, 2>>>(a);", ["k<>"]),
        ("auto* f{&k<3>}; f<<<1, 2>>>(a);", ["k<3>"]),
        ("auto f = x < 1 ? k<1> : k<2>; f<<<1, 2>>>(a);", ["k<1>", "k<2>"]),
        ("auto f = k<1>; if (x) f = &k<2>; f<<<1, 2>>>(a);", ["k<1>", "k<2>"]),
        ("const auto f[] = {k<1>, k<2>}; f[x]<<<1, 2>>>(a);", ["k<1>", "k<2>"]),
        ("auto f = (void (*)(int))k<1>; cudaLaunchKernel((void*)f, 1, 2, p, 0, 0);", ["k<1>"]),
        ("int n = 3; k<<<n, 2>>>(a);", ["k<>"]),
        ("f<<<1, 2>>>(a);", ["f<>"]),
    ],
)
def test_a_launch_through_a_pointer_is_of_what_the_function_lets_it_point_to(
    text: str, expected: list[str]
) -> None:
    launched = parse(f"void host(int x) {{ {text} }}").launches
    assert [f"{x.kernel}<{','.join(x.template_arguments)}>" for x in launched] == expected


@pytest.mark.parametrize(
    ("macros", "text"),
    [
        ("#define K k<float, 4>\n", "K<<<grid, 256>>>(a, b);"),
        ("#define L k<float, 4><<<grid, 256>>>\n", "L(a, b);"),
        ("#define ARGS a, b\n", "k<float, 4><<<grid, 256>>>(ARGS);"),
        ("#define CFG(g, n) g, n\n", "k<float, 4><<<CFG(grid, 256)>>>(a, b);"),
        ("#define ON(f, ...) f<<<__VA_ARGS__>>>\n", "ON((k<float, 4>), grid, 256)(a, b);"),
        (
            "#define RUN(f, c, ...) f<<<c>>>(__VA_ARGS__)\n#define C grid, 256\n",
            "RUN((k<float, 4>), C, a, b);",
        ),
        (
            "#define k_name k\n"
            "#define RUN(f, ...) f##_name<float, 4><<<grid, 256>>>(a, ##__VA_ARGS__)\n",
            "RUN(k, b);",
        ),
        (
            "#define LAST(f) f<<<grid, 256>>>(a, b)\n#define MIDDLE(T) LAST((k<T, 4>))\n"
            "#define FIRST() do { MIDDLE(float); } while (0)\n",
            "FIRST();",
        ),
        ("#define GO(f) hipLaunchKernelGGL(f, grid, 256, 0, 0, a, b)\n", "GO((k<float, 4>));"),
        ("#define SPACED(f) f << <grid, 256 >> > (a, b)\n", "SPACED((k<float, 4>));"),
        (
            "#define N 4\n#undef N\n#define T float\n#define N 4\n#define X k<T, N>\n",
            "X<<<grid, 256>>>(a, b);",
        ),
    ],
)
def test_launches_by_macros_of_every_kind_are_read_where_they_are_used(
    macros: str, text: str
) -> None:
    syntax = parse(f"{macros}void host() {{\n  {text}\n}}")
    (launch,) = (x for x in syntax.launches if x.function == "host")
    assert (launch.kernel, launch.template_arguments) == ("k", ("float", "4"))
    assert (launch.grid, launch.block, launch.arguments) == ("grid", "256", ("a", "b"))


def test_a_macro_has_the_definition_that_is_in_force_where_it_is_used() -> None:
    syntax = parse(
        "#define K one\nvoid f() { K<<<1, 2>>>(); }\n#undef K\n#define K two\n"
        "void g() { K<<<1, 2>>>(); }\n#undef K\nvoid h() { K<<<1, 2>>>(); }\n"
    )
    assert [launch.kernel for launch in syntax.launches] == ["one", "two", "K"]


@pytest.mark.parametrize(
    "text",
    [
        "#define A B\n#define B A\nvoid f() { A<<<1, 2>>>(); }",
        "#define A(x) A(x) A(x)<<<1, 2>>>\nvoid f() { A(A(A(1))); }",
        "".join(f"#define A{n} A{n + 1} A{n + 1}\n" for n in range(40))
        + "void f() { A0<<<1>>>(); }",
    ],
)
def test_macros_that_do_not_end_are_left_alone(text: str) -> None:
    assert parse(text).launches is not None


@pytest.mark.parametrize(
    "text",
    [
        "struct S { S& operator<<(int); };\nvoid f(S s) { s << (1 < 2); }",
        "template <class T> S& operator<< <T>(S&, T); void f() { operator<< <int>(s, 1); }",
        '// k<<<1, 2>>>(x)\nconst char* s = "k<<<1, 2>>>(x)";',
        "#if 0\nvoid f() { k<<<1, 2>>>(x); }\n#endif",
        "bool b = x < y && z > (w);",
    ],
)
def test_lookalikes_launch_nothing(text: str) -> None:
    assert parse(text).launches == ()
    assert not launches(Source(text, "k.cu"))


# ---- one reader --------------------------------------------------------------------------------


def _own_files() -> list[Path]:
    root = Path(__file__).parents[1]
    folders = [root / "backends", root / "tests", root / "portkern" / "simt"]
    files = (path for folder in folders for path in folder.rglob("*"))
    return sorted(path for path in files if path.suffix in (".cu", ".cuh", ".hip"))


@pytest.mark.full
def test_lint_and_executor_see_the_kernels_and_launches_that_the_port_sees() -> None:
    files, kernels, found = _own_files(), 0, 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        syntax, source = parse(text), Source(text, path.name)
        names = Counter(kernel.name for kernel in syntax.kernels)
        bodies = Counter(kernel.name for kernel in syntax.macro_kernels)
        assert Counter(f.name for f in source.functions if f.kernel) == names + bodies, path
        assert _read_by_the_executor(syntax) == names, path
        used = {launch.macro for launch in syntax.launches if launch.macro != launch.function}
        launched = Counter(
            launch.kernel
            for launch in syntax.launches
            if launch.macro != launch.function or launch.macro not in used
        )
        assert Counter(launch.kernel for launch in launches(source)) == launched, path
        kernels, found = kernels + names.total(), found + launched.total()
    assert (len(files) > 300, kernels > 440, found > 440) == (True, True, True)


def _read_by_the_executor(syntax: Syntax) -> Counter[str]:
    code = syntax.source_map.code
    survey = Survey(code, World(), frozenset(["__global__"]), lambda d: None)
    named = ((f, syntax.source_map.function_before(f.body)) for f in survey.functions)
    return Counter(name for f, name in named if "__global__" in code.text[f.head : f.body])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a // b\nc /* d\n */ e", "a  \nc   e"),
        ('"//" \'"\' // x', '"//" \'"\'  '),
        ('"a\\"/*" b /**/', '"a\\"/*" b  '),
        ("a /* b // c", "a /* b // c"),
        ("/*/ a", "/*/ a"),
        ("1'000 /* a", "1'000 /* a"),
        ("1'000; a /* b */ c, x.5'0 // d", "1'000; a   c, x.5'0  "),
        ('R"("/*)" a R"(*/")" // b', 'R"("/*)" a R"(*/")"  '),
    ],
)
def test_comments_go_and_texts_stay(text: str, plain: str) -> None:
    assert without_comments(text) == plain
    assert (unended(text) >= 0) is ("/*" in plain.replace('/*"', "").replace('"/*)', ""))


def test_threads_parse_at_the_same_time() -> None:
    """A parser that two of them share ends the process, which is another one here."""
    code = """
import sys
from concurrent.futures import ThreadPoolExecutor
from portkern.cuda_source import tree

line = "__global__ void k{0}(float* x, int n) {{ for (int i = 0; i < n;) x[i] = f(i++, {0}); }}"
texts = ["\\n".join(line.format(k) for k in range(first, 300 + first)) for first in range(4)]
alone = [str(tree.root(text)) for text in texts]
sys.setswitchinterval(1e-5)
with ThreadPoolExecutor(4) as pool:
    for _ in range(3):
        assert list(pool.map(lambda text: str(tree.root(text)), texts)) == alone
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
