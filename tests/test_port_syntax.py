"""Kernels and launches are found in real code, whatever macros do to the grammar."""

from __future__ import annotations

import pytest

from portkern.cuda_source.syntax import Kernel, Launch, Parameter, parse


def only_kernel(text: str) -> Kernel:
    (kernel,) = parse(text).kernels
    return kernel


def only_launch(text: str) -> Launch:
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
def test_what_launches_nothing_is_no_launch(text: str) -> None:
    assert parse(text).launches == ()


@pytest.mark.parametrize("text", ["", "\0\0", "}}}}", "__global__", "#if", "/*", "\ud800 int a;"])
def test_no_text_makes_it_fail(text: str) -> None:
    syntax = parse(text)
    assert not syntax.kernels
    assert not syntax.launches
    assert syntax.root.type == "translation_unit"


def test_a_large_file_is_read_in_time() -> None:
    text = "".join(f"__global__ void k{n}(float* x) {{ x[{n}] = 1.f; }}\n" for n in range(20_000))
    assert len(text) > 1_000_000
    assert len(parse(text).kernels) == 20_000


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
