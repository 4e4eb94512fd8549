"""The arguments of a kernel's template, and its launch, as host code has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from portkern.cuda_source.source_map import Parameter, SourceMap
from portkern.port.proof import idle, local_types
from portkern.port.proof.case import Buffer, ProofCase, Scalar
from portkern.port.proof.coverage import LineCounts, idle_instances
from portkern.port.proof.element import element_of
from portkern.port.proof.expression import Names
from portkern.port.proof.infer import SCALES, propose, templates
from portkern.port.proof.instances import declared_types
from portkern.port.proof.outcome import KernelProof, Outcome, ProofSource, Refused
from portkern.port.proof.runs import crowding
from portkern.port.proof.slice import Slices
from portkern.port.proof.texts import SourceTexts


def read(text: str, folder: Path) -> SourceTexts:
    path = folder / "k.cu"
    path.write_text(text, encoding="utf-8")
    return SourceTexts(ProofSource(path, "cuda"))


def instances(text: str, folder: Path) -> list[tuple[str, ...]]:
    texts = read(text, folder)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list), found
    return [chosen.template for chosen in found]


KERNEL = "template <int D, int W> __global__ void k(float* x, int n) { x[n] = D * W; }\n"
SWITCH = """#define SIZES(SIZE, NAME, ...) \\
  if (SIZE > 32) { constexpr int NAME = 64; __VA_ARGS__(); } \\
  else { constexpr int NAME = 32; __VA_ARGS__(); }
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            KERNEL
            + """template <int D> void launch(float* x, int n) {
  constexpr int W = (D < 64) ? D / 8 : 16;
  k<D, W><<<1, 32>>>(x, n);
}
void run(float* x, int d) { if (d > 32) launch<64>(x, d); else launch<32>(x, d); }
""",
            [("32", "4"), ("64", "16")],
            id="a function template hands them on",
        ),
        pytest.param(
            KERNEL
            + """template <int E> void inner(float* x, int n) { k<E, 2 * E><<<1, 32>>>(x, n); }
template <int D> void outer(float* x, int n) { inner<D + 1>(x, n); }
void run(float* x) { outer<7>(x, 1); }
""",
            [("8", "16")],
            id="through two functions",
        ),
        pytest.param(
            SWITCH
            + KERNEL
            + """void run(float* x, int n) {
  SIZES(n, D, [&] { k<D, 4><<<1, 32>>>(x, n); });
}
""",
            [("32", "4"), ("64", "4")],
            id="a macro chooses a constant",
        ),
        pytest.param(
            "template <typename T, class U> __global__ void k(const T* at, U* x, int n) {}\n"
            """template <typename Index> void launch(int n) {
  Index *where;
  double *x = nullptr;
  k<<<1, 32>>>(where, x, n);
}
void run() { launch<int64_t>(3); launch<short>(4); }
""",
            [("int64_t", "double"), ("short", "double")],
            id="the arguments' declarations show them",
        ),
        pytest.param(
            KERNEL + "void run(float* x, int n) { auto f = &k<16, 2>; f<<<1, 32>>>(x, n); }\n",
            [("16", "2")],
            id="launched by another name",
        ),
        pytest.param(
            "using op = float (*)(float);\n"
            "__device__ float twice(float a) { return 2 * a; }\n"
            "template <op F> __global__ void k(float* x) { *x = F(*x); }\n"
            "template <op F> void launch(float* x) { k<F><<<1, 1>>>(x); }\n"
            "void run(float* x) { launch<twice>(x); }\n",
            [("twice",)],
            id="a function is an argument",
        ),
        pytest.param(
            "template <bool Add> __global__ void k(float* x, std::bool_constant<Add>) {}\n"
            "void run(float* x) { k<<<1, 1>>>(x, std::bool_constant<false>{}); }\n",
            [("false",)],
            id="a tag among the arguments shows it",
        ),
        pytest.param(KERNEL, [("4", "4")], id="nothing says what they are"),
    ],
)
def test_a_templates_arguments_are_those_of_the_host_code(
    text: str, expected: list[tuple[str, ...]], tmp_path: Path
) -> None:
    assert instances(text, tmp_path) == expected


TRAITS = """template <int T_, int I_, typename In> struct Base {
  static constexpr int kItems = I_;
  using input_t = In;
  static constexpr int kBytes = sizeof(input_t);
};
template <int T_, int I_, bool V_, typename In = float> struct Traits : public Base<T_, I_, In> {
  static constexpr int kNThreads = T_;
  static constexpr int kSmem = T_ * 4 * Traits::kItems;
};
struct P { const float* x; float* y; int n; };
template <typename Traits> __global__ void k(P p) { extern __shared__ float s[]; p.y[0] = s[0]; }
#define BOOL_SWITCH(COND, NAME, ...) \\
  [&] { if (COND) { constexpr bool NAME = true; return __VA_ARGS__(); } \\
        else { constexpr bool NAME = false; return __VA_ARGS__(); } }()
"""


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param(
            """template <int N> void run(P& p) {
  auto f = &k<Traits<N, 2, true>>;
  f<<<4, N, 4 * N>>>(p);
}
void launch(P& p) { if (p.n < 512) run<64>(p); else run<256>(p); }
""",
            [("Traits<64, 2, 1>", 64, 256), ("Traits<256, 2, 1>", 256, 1024)],
            id="a traits class of the function's own parameter",
        ),
        pytest.param(
            """template <int N, typename T> void run(P& p) {
  BOOL_SWITCH(p.n % 4 == 0, kVec, [&] {
    constexpr int kWide = kVec ? 2 : 1;
    using K = Traits<N, 4 * kWide, kVec, T>;
    constexpr int kBytes = K::kSmem;
    auto kernel = &k<K>;
    kernel<<<p.n, K::kNThreads, kBytes>>>(p);
  });
}
template <typename T> void any(P& p) { run<32, T>(p); }
template void any<float>(P& p);
""",
            [("Traits<32, 4, 0, float>", 32, 512), ("Traits<32, 8, 1, float>", 32, 1024)],
            id="an alias, a switch's constant and constants of the class and its base",
        ),
        pytest.param(
            """void run(P& p) {
  typedef Traits<96, 1, false> Small;
  { using K = Traits<128, 1, false>; }
  k<Small><<<2, Small::kNThreads, Small::kBytes>>>(p);
}
""",
            [("Traits<96, 1, 0>", 96, 4)],
            id="a typedef, and an alias of another block",
        ),
    ],
)
def test_a_launch_by_a_traits_class_has_its_instances_and_shape(
    host: str, expected: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    texts = read(TRAITS + host, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list) and not any(one.is_guess for one in found), found
    cases = [
        propose(texts.kernels[0], texts, SCALES[1], warp=32, choice=-n) for n in range(len(found))
    ]
    shapes = {(c.template[0], c.block[0], c.shared) for c in cases if isinstance(c, ProofCase)}
    assert shapes == set(expected)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("short int", ("int16", 1)),
        ("const long unsigned int", ("uint64", 1)),
        ("long long", ("int64", 1)),
        ("unsigned long long", ("uint64", 1)),
        ("unsigned char", ("uint8", 1)),
        ("thrust::complex<double>", ("float64", 2)),
        ("hipFloatComplex", ("float32", 2)),
        ("unsigned apples", None),
    ],
)
def test_an_elements_type_may_be_spelled_in_any_order(
    type_: str, expected: tuple[str, int] | None
) -> None:
    found = element_of(type_, {})
    assert (found and (found[0].name, found[1])) == expected


VOIDS = """template <int N, typename T> struct Traits {
  using input_t = T;
  using weight_t = double;
};
struct P { void* __restrict__ x; const void* y; int n; };
template <typename K> __global__ void k(P p) {
  using input_t = typename K::input_t;
  CASTS
}
template <typename T> void run(P& p) { k<Traits<4, T>><<<1, 32>>>(p); }
void all(P& p) { run<at::Half>(p); }
"""


@pytest.mark.parametrize(
    ("casts", "types"),
    [
        (
            "using weight_t = typename K::weight_t;"
            "auto x = reinterpret_cast<input_t *>(p.x);"
            "auto y = *reinterpret_cast<const weight_t*>(p.y);",
            ["at::Half", "double"],
        ),
        ("f(reinterpret_cast<float*>(p.x), reinterpret_cast<int *>(p.y));", ["float", "int"]),
        ("f(reinterpret_cast<float*>(p.x), reinterpret_cast<int *>(p.x), (int*)p.y);", None),
        ("f(reinterpret_cast<unknown_t*>(p.x), reinterpret_cast<int *>(p.y));", None),
    ],
)
def test_a_pointer_to_void_is_one_to_what_the_kernel_casts_it_to(
    casts: str, types: list[str] | None, tmp_path: Path
) -> None:
    texts = read(VOIDS.replace("CASTS", casts), tmp_path)
    case = propose(texts.kernels[0], texts, SCALES[1], warp=32)
    if types is None:
        assert isinstance(case, Refused) and "'p.x' is of type void*" in case.reason
        return
    assert isinstance(case, ProofCase), case
    buffers = [value for value in case.values if isinstance(value, Buffer)]
    assert [buffer.dtype for buffer in buffers] == types


ITEMS = "template <typename T, int N> __global__ void k(const T* x, T* y) { y[0] = x[0] * N; }\n"
INNER = "template <int N, typename T> void inner(const T* x, T* y) { k<T, N><<<1, N>>>(x, y); }\n"


@pytest.mark.parametrize(
    ("host", "expected", "known"),
    [
        pytest.param(
            """template <typename T> void outer(const T* x, T* y, int n) {
  if (n > 64) inner<64>(x, y); else inner<32>(x, y);
}
void run(const double* x, double* y, int n) { outer(x, y, n); }
""",
            {("double", "32"), ("double", "64")},
            True,
            id="calls deduce what they do not spell",
        ),
        pytest.param(
            """void run(const float* x, float* y, Any* z) {
  inner<8>(x, y);
  inner<8>(z->x(), z->y());
}
""",
            {("float", "8")},
            False,
            id="one call of two is of a type that nothing shows",
        ),
        pytest.param(
            """#define HALF(NAME, ...) { using NAME = at::Half; return __VA_ARGS__(); }
#define TYPES(T, ...) \\
  [&] { if (T) { using scalar_t = float; return __VA_ARGS__(); } HALF(scalar_t, __VA_ARGS__) }()
void run(at::Tensor x, at::Tensor y) {
  TYPES(x.dim(), [&] { inner<16>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>()); });
}
""",
            {("float", "16"), ("at::Half", "16")},
            True,
            id="macros within macros choose a type",
        ),
    ],
)
def test_instances_come_through_functions_whose_calls_deduce_them(
    host: str, expected: set[tuple[str, str]], known: bool, tmp_path: Path
) -> None:
    texts = read(ITEMS + INNER + host, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list)
    assert {one.template for one in found} == expected
    assert any(one.is_guess for one in found) is not known


def proposed(text: str, folder: Path, scale: int = 1) -> ProofCase:
    texts = read(text, folder)
    case = propose(texts.kernels[0], texts, SCALES[scale], warp=32)
    assert isinstance(case, ProofCase), case
    return case


def test_what_no_launch_gives_is_the_templates_own(tmp_path: Path) -> None:
    text = """template <class T, int D = 24, bool B = false, typename U = half, int W = D * 2>
__global__ void k(T* x, U* y) { x[0] = D; }
"""
    assert instances(text, tmp_path)[0] == ("float", "24", "false", "half", "4")
    launched = text + "void run(double* x, half* y) { k<double, 8><<<1, 32>>>(x, y); }\n"
    assert instances(launched, tmp_path) == [("double", "8", "false", "half", "4")]


def test_a_type_that_nothing_tells_is_a_float_or_else_an_integer(tmp_path: Path) -> None:
    text = "template <class T, int D> __global__ void k(T* x) { x[0] = D; }\n"
    assert instances(text, tmp_path) == [("float", "4"), ("int", "4")]


def test_a_type_that_a_function_is_specialised_for_is_tried(tmp_path: Path) -> None:
    text = """template <class T, int N> __device__ void copy(T* to, const T* from);
template <> __device__ inline void copy<c10::Half, 4>(c10::Half* to, const c10::Half* from) {}
template <> __device__ inline void copy<Mine, 4>(Mine* to, const Mine* from) {}
template <class T> __global__ void k(T* x) { copy<T, 4>(x, x + 4); }
"""
    assert instances(text, tmp_path) == [("float",), ("int",), ("c10::Half",)]


def test_a_launch_has_the_shape_that_its_function_computes(tmp_path: Path) -> None:
    text = """#define LANES 32
__global__ void k(float* x, int n) { if (threadIdx.y < n) x[threadIdx.x] = 1; }
void run(float* x, Tensor q, int n, int block_size) {
  int block_y = block_size / LANES;
  const int heads = q.size(1);
  dim3 grid(heads, n);
  k<<<grid, dim3(LANES, block_y), (2 + block_y) * sizeof(double)>>>(x, n);
}
"""
    case = proposed(text, tmp_path)
    assert (case.block, case.shared) == ((32, 8, 1), 80)
    assert case.grid == (SCALES[1].heads, SCALES[1].inner, 1)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(
            "dim3 grid, block; grid.x = 12; grid.y = n / 8; block.x = LANES;",
            ((12, 16, 1), (32, 1, 1)),
            id="none is given at first",
        ),
        pytest.param(
            "dim3 grid(3, 4); dim3 block = {16, 2}; grid.z = 2; block.y = 4;",
            ((3, 4, 2), (16, 4, 1)),
            id="the others stay",
        ),
        pytest.param(
            "dim3 grid, block(LANES, 2); grid = dim3(5, 6);",
            ((5, 6, 1), (32, 2, 1)),
            id="assigned as a whole",
        ),
    ],
)
def test_a_shape_whose_axes_are_assigned_one_by_one_has_them(
    shape: str, expected: tuple[object, object], tmp_path: Path
) -> None:
    lines = shape.replace("; ", ";\n  ")
    text = f"""#define LANES 32
__global__ void k(float* x) {{ x[threadIdx.x + blockIdx.z] = 1; }}
void before(float* x) {{
  dim3 grid, block;
  grid.x = 7;
  grid.z = 9;
  k<<<grid, block>>>(x, 1);
}}
void run(float* x) {{
  const int n = 128;
  {lines}
  k<<<grid, block>>>(x);
}}
"""
    case = proposed(text, tmp_path)
    assert (case.grid, case.block) == expected


@pytest.mark.parametrize(
    "function",
    [
        "#define PARTS(x, size) (((x) + (size) - 1) / (size))  // upwards",
        "template <class T> inline T PARTS(T x, const T size) { return (x + size - 1) / size; }",
    ],
    ids=["a macro", "a function"],
)
def test_a_shape_is_computed_by_the_sources_own_functions(function: str, tmp_path: Path) -> None:
    text = f"""{function}
__global__ void k(float* x) {{ x[threadIdx.y] = 1; }}
void run(float* x) {{
  const int size = 100;
  k<<<PARTS(size, 32) + 1, dim3(8, PARTS(size / 2, 16))>>>(x);
}}
"""
    case = proposed(text, tmp_path)
    assert (case.grid, case.block) == ((5, 1, 1), (8, 4, 1))


def test_blocks_of_pytorchs_warp_size_are_as_wide_as_the_machines_warps(tmp_path: Path) -> None:
    text = """__global__ void k(float* x) { x[threadIdx.y * 64 + threadIdx.x] = 1; }
void run(float* x) { k<<<2, dim3(C10_WARP_SIZE, 4)>>>(x); }
"""
    texts = read(text, tmp_path)
    for warp in (32, 64):
        case = propose(texts.kernels[0], texts, SCALES[1], warp=warp)
        assert isinstance(case, ProofCase)
        assert case.block == (warp, 4, 1)


WIDTHS = {
    "a function": ("", "2 * at::cuda::warp_size()"),
    "a variable": ("const auto w = 2 * at::cuda::warp_size();", "w"),
    "a function of its own": ("int w = lanes();", "2 * w"),
    "properties": ("cudaDeviceProp prop;", "prop.warpSize * 2"),
    "torch's": ("auto* p = at::cuda::getCurrentDeviceProperties();", "p->warpSize * 2"),
    "at once": ("", "at::cuda::getCurrentDeviceProperties()->warpSize * 2"),
    "an attribute": ("int w; check(cudaDeviceGetAttribute(&w, cudaDevAttrWarpSize, 0));", "w * 2"),
    "a member": ("Sizes p; p.lanes = at::cuda::warp_size();", "p.lanes * 2"),
}


@pytest.mark.parametrize(("before", "asked"), WIDTHS.values(), ids=WIDTHS)
def test_host_code_is_told_the_machines_width_however_it_asks(
    before: str, asked: str, tmp_path: Path
) -> None:
    text = f"""inline int lanes() {{ return at::cuda::warp_size(); }}
__global__ void k(float* x, int lanes) {{ x[blockIdx.x * lanes + threadIdx.x] = 1; }}
void run(float* x) {{
  {before}
  k<<<2, dim3({asked}, 4)>>>(x, {asked});
}}
"""
    texts = read(text, tmp_path)
    for warp in (32, 64):
        case = propose(texts.kernels[0], texts, SCALES[1], warp=warp)
        assert isinstance(case, ProofCase)
        assert case.block == (2 * warp, 4, 1)
        assert getattr(case.arguments[1], "value", "") == str(2 * warp)


@pytest.mark.parametrize("asked", ["warp_size()", "Traits::warp_size()"])
def test_a_function_of_the_sources_own_says_its_own_width(asked: str, tmp_path: Path) -> None:
    text = f"""struct Traits {{ static constexpr int warp_size() {{ return 16; }} }};
__global__ void k(float* x, int lanes) {{ x[blockIdx.x * lanes + threadIdx.x] = 1; }}
void run(float* x) {{ k<<<2, 64>>>(x, {asked}); }}
"""
    texts = read(text, tmp_path)
    for warp in (32, 64):
        case = propose(texts.kernels[0], texts, SCALES[1], warp=warp)
        assert isinstance(case, ProofCase)
        assert getattr(case.arguments[1], "value", "") == "16"


@pytest.mark.parametrize(
    ("given", "value"), [("3", 3), ("-3", -3), ("true", 1), ("²", None), ("--5", None)]
)
def test_a_constant_of_a_class_follows_from_arguments_that_are_numbers(
    given: str, value: int | None
) -> None:
    text = SourceMap("template <int N> struct A { static constexpr int k = N; };")
    assert local_types.constant(text, f"A<{given}>", "k") == value


def test_an_argument_is_what_its_function_computes(tmp_path: Path) -> None:
    text = """__global__ void k(float* x, int n, int tiles, int lanes, int most) { x[tiles] = n; }
void run(float* x, int rows) {
  const int lanes = 32, most = 1 << 24;
  const int size = 8;
  int tiles = ceil_div(rows, size);
  dim3 block = {8, (unsigned)size};
  k<<<tiles, block>>>(x, rows, tiles, size, 1 << 24);
}
"""
    case = proposed(text, tmp_path)
    values = {a.name: getattr(a, "value", "") for a in case.arguments}
    rows = int(values["n"])
    assert (int(values["tiles"]), values["lanes"]) == (-(-rows // 8), "8")
    assert (case.grid, case.block) == ((-(-rows // 8), 1, 1), (8, 8, 1))


def test_a_step_of_the_hosts_loop_is_its_first(tmp_path: Path) -> None:
    text = """__global__ void k(float* x, int size, int t) { if (threadIdx.x < size - t) *x = 1; }
void run(float* x, int size) {
  int t;
  for (t = 0; t < size; t++) k<<<1, 64>>>(x, size, t);
}
"""
    values = {a.name: getattr(a, "value", "") for a in proposed(text, tmp_path).arguments}
    assert (values["size"], values["t"]) == (str(SCALES[1].total), "0")


def test_a_grid_whose_threads_go_on_in_strides_is_no_larger_than_needed(tmp_path: Path) -> None:
    text = """__global__ void k(float* x, int n) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * GRID) x[i] = 1;
}
void run(float* x, int n) { k<<<2048, 256>>>(x, n); }
"""
    assert proposed(text.replace("GRID", "gridDim.x"), tmp_path).grid == (128, 1, 1)
    assert proposed(text.replace("GRID", "2048"), tmp_path).grid == (2048, 1, 1)


def test_a_buffer_is_as_large_as_the_host_allocates(tmp_path: Path) -> None:
    text = """#define NUM 96
__global__ void k(double* x, float* y) { x[blockIdx.x * NUM + threadIdx.x] = *y; }
int main() {
  const size_t size = (NUM + 2) * NUM;
  double* x; float* y;
  cudaMalloc((void**)&x, size * sizeof(double));
  check(cudaMalloc(&y, unknown));
  k<<<NUM, NUM>>>(x, y);
}
"""
    sizes = {a.name: getattr(a, "size", 0) for a in proposed(text, tmp_path).arguments}
    assert sizes == {"x": 98 * 96, "y": SCALES[1].total}


def test_the_size_of_an_element_is_that_of_what_its_name_stands_for(tmp_path: Path) -> None:
    text = """#define WIDE
#ifdef WIDE
#define Real double
#else
#define Real float
#endif
__global__ void k(Real* x) { x[threadIdx.x] = 1; }
int main() {
  Real* x;
  cudaMalloc((void**)&x, 3000 * sizeof(Real));
  k<<<1, 64>>>(x);
}
"""
    assert getattr(proposed(text, tmp_path).arguments[0], "size", 0) == 3000


def test_strides_given_one_by_one_are_those_of_dense_tensors(tmp_path: Path) -> None:
    text = """__global__ void k(float* y, const float* x, int rows, int dim, int stride_b,
                  int stride_rows, int stride_dim, int out_stride_t, int out_stride_dim) {
  int at = blockIdx.x * stride_b + blockIdx.y * stride_rows;
  int to = (blockIdx.x * rows + blockIdx.y) * out_stride_t;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    y[to + d * out_stride_dim] = x[at + d * stride_dim];
}
void run(float* y, const float* x, int b, int rows, int dim, int stride_b, int stride_rows,
         int stride_dim, int out_stride_t, int out_stride_dim) {
  k<<<dim3(b, rows), 32>>>(y, x, rows, dim, stride_b, stride_rows, stride_dim, out_stride_t,
                           out_stride_dim);
}
"""
    case = proposed(text, tmp_path)
    values = {a.name: int(getattr(a, "value", 0)) for a in case.arguments}
    rows, dim = values["rows"], values["dim"]
    assert min(rows, dim) > 1
    assert [values[f"stride_{axis}"] for axis in ("b", "rows", "dim")] == [rows * dim, dim, 1]
    assert [values[f"out_stride_{axis}"] for axis in ("t", "dim")] == [dim, 1]
    assert {getattr(a, "size", 0) for a in case.arguments[:2]} == {case.grid[0] * rows * dim}


def test_a_tag_is_given_its_only_value(tmp_path: Path) -> None:
    text = """template <bool Add> __global__ void k(float* x, std::bool_constant<Add>) { *x += 1; }
void run(float* x) { k<<<1, 1>>>(x, std::bool_constant<true>{}); }
"""
    tag = proposed(text, tmp_path).arguments[1]
    assert (tag.dtype, getattr(tag, "value", "")) == (
        "std::bool_constant<true>",
        "std::bool_constant<true>{}",
    )


def test_a_stride_is_at_least_as_long_as_its_rows(tmp_path: Path) -> None:
    text = """__global__ void k(float* x, int B, int V, int P) {
  for (int i = threadIdx.x; i < V; i += blockDim.x) x[blockIdx.x * P + i] = B;
}
void run(float* x, int B, int V, int P) { k<<<B, 32>>>(x, B, V, P); }
"""
    values = {a.name: getattr(a, "value", "") for a in proposed(text, tmp_path).arguments}
    assert int(values["P"]) >= int(values["V"]) > 4


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n < 100 ? 1 : 2 * n", 2000),
        ("(float)n / 256 > 3.9f && !0", 1),
        ("static_cast<int>(std::ceil((float)n / 256))", 4),
        ("std::min(n, 0x20u) << 1", 64),
        ("div_ceil(n, 256) * sizeof(double2)", 64),
        ("Traits<float>::kRows", 7),
        ("n / 0", None),
        ("n.size(0)", None),
        ("n +", None),
    ],
)
def test_expressions_are_those_of_cpp(expression: str, value: int | None) -> None:
    names = Names("struct Traits { static constexpr int kRows = 7; };\n", {"n": 1000})
    assert names.value(expression, 1000) == value


def test_a_type_that_a_typedef_instantiates_stays_in_a_slice() -> None:
    text = """template <class T> struct alignas(16) Pack { T v[4]; };
typedef Pack<float> pack;
__global__ void k(float* x) { *x = 1; }
"""
    assert Slices([text]).of(["k"])[0] == text


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ("", 16 << 10),
        ("__shared__ double tile[64][64]; ", 16 << 10),
        ("__shared__ float4 tile[2 * 1280]; ", 8 << 10),
        ("__shared__ float tile[SIDE][SIDE]; ", 0),
        ("__shared__ float tile[UNKNOWN]; ", 16 << 10),
    ],
)
def test_dynamic_shared_memory_is_what_the_static_leaves(
    arrays: str, expected: int, tmp_path: Path
) -> None:
    text = (
        "#define SIDE 112\n"
        f"__global__ void k(float* x) {{ extern __shared__ float s[]; {arrays}x[0] = s[0]; }}\n"
    )
    assert proposed(text, tmp_path).shared == expected


@pytest.mark.parametrize(
    ("waiting", "expected"), [(0.0, 1.0), (2.0, 1.0), (6.0, 3.0), (900.0, 8.0)]
)
def test_a_run_may_take_longer_by_the_clock_where_many_wait(
    waiting: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (waiting, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert crowding() == expected


LAUNCHED = "template <int N> __global__ void k(float* x) { x[threadIdx.x] = N; }\n"


def chosen(text: str, folder: Path) -> list[tuple[tuple[str, ...], bool, tuple[int, ...]]]:
    """Each instance, whether it is a guess, and the block that it is launched with."""
    texts = read(text, folder)
    (kernel,) = texts.kernels
    found = templates(kernel, texts)
    assert isinstance(found, list), found
    cases = [propose(kernel, texts, SCALES[0], warp=32, choice=n) for n in range(len(found))]
    blocks = {c.template: c.block for c in cases if isinstance(c, ProofCase)}
    return [(one.template, one.is_guess, blocks[one.template][:1]) for one in found]


def test_each_instance_has_the_block_of_its_own_launch(tmp_path: Path) -> None:
    text = LAUNCHED + (
        "void run(float* x, int n) {\n  if (n < 8) k<32><<<1, 32>>>(x);\n"
        "  else k<256><<<2, 256>>>(x);\n}\n"
    )
    assert chosen(text, tmp_path) == [(("32",), False, (32,)), (("256",), False, (256,))]


def test_launches_of_one_kernel_with_other_blocks_are_looked_at_each(tmp_path: Path) -> None:
    text = """__global__ void k(float* x) { x[threadIdx.x] = 1; }
void run(float* x, int n) {
  k<<<1, 32>>>(x);
  k<<<n, 32>>>(x);
  k<<<1, 256>>>(x);
}
"""
    texts = read(text, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list)
    assert [one.at for one in found] == [0, 2]


def test_launches_whose_arguments_have_other_types_are_instances_each(tmp_path: Path) -> None:
    text = """template <class T> __global__ void k(T* x) { x[threadIdx.x] = 1; }
void one(float* x) { k<<<1, 32>>>(x); }
void other(double* x) { k<<<1, 32>>>(x); }
void third(Unknown& x) { k<<<1, 32>>>(x.data()); }
"""
    shown = {(template, is_guess) for template, is_guess, _ in chosen(text, tmp_path)}
    assert {(("float",), False), (("double",), False)} < shown
    assert any(is_guess for _, is_guess in shown)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "template <class T> void run(float* x) { auto f = k<128 / sizeof(T)>; f<<<1, 9>>>(x); }\n",
        "void run(float* x) { k<unknown()><<<1, 9>>>(x); }\n",
    ],
    ids=["nobody launches it", "a deduced template", "an unknown constant"],
)
def test_an_instance_that_is_not_known_to_be_launched_is_a_guess(host: str, tmp_path: Path) -> None:
    assert all(is_guess for _, is_guess, _ in chosen(LAUNCHED + host, tmp_path))


GATED = "template <typename scalar_t> __global__ void k(scalar_t* x, int n) { x[n] = 0; }\n"


@pytest.mark.parametrize(
    ("dispatch", "expected"),
    [
        ("AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), ", ["double", "float"]),
        (
            "AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::kBFloat16, x.dtype(), ",
            ["double", "float", "at::Half", "at::BFloat16"],
        ),
        ("AT_DISPATCH_INTEGRAL_TYPES(t, ", ["uint8_t", "int8_t", "int", "int64_t", "int16_t"]),
    ],
)
@pytest.mark.parametrize("launch", ["k<scalar_t><<<1, 32>>>(p, n);", "go<scalar_t>(p, n);"])
def test_types_that_pytorch_dispatches_on_are_launched(
    dispatch: str, expected: list[str], launch: str, tmp_path: Path
) -> None:
    handed_on = "template <typename T> void go(T* p, int n) { k<T><<<1, 32>>>(p, n); }\n"
    text = GATED + (
        (handed_on if launch.startswith("go") else "")
        + f'void run(Tensor x, int t) {{ {dispatch}"run", ([&] {{ {launch} }})); }}\n'
    )
    assert instances(text, tmp_path) == [(name,) for name in expected]
    texts = read(text, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list) and not any(one.is_guess for one in found)


def test_what_a_dispatch_of_other_types_chooses_is_not_known(tmp_path: Path) -> None:
    text = GATED + (
        'void run(Tensor x) { AT_DISPATCH_COMPLEX_TYPES(x.dtype(), "run", [&] '
        "{ k<scalar_t><<<1, 32>>>(p, n); }); }\n"
    )
    texts = read(text, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list) and all(one.is_guess for one in found)


@pytest.mark.parametrize(
    ("argument", "type_"),
    [
        ("x.data<scalar_t>()", "scalar_t"),
        ("x.data_ptr<double>()", "double"),
        ("self->x.template mutable_data_ptr<at::Half>()", "at::Half"),
        ("reinterpret_cast<const double*>(raw)", "double"),
        ("(double const *) raw", "double"),
        ("static_cast<float*>(buffers[0].get())", "float"),
        ("x.size<double>()", None),
        ("(n) * 2", None),
        ("y.data_ptr<float>() + 4", "float"),
    ],
)
def test_a_type_is_deduced_from_how_an_argument_is_spelled(
    argument: str, type_: str | None
) -> None:
    template = [Parameter("typename", "T")]
    parameters = [Parameter("const T* __restrict__", "x")]
    found = declared_types(template, parameters, [argument], lambda name: "")
    assert found == ({"T": type_} if type_ else {})


TYPED = """template <class T> __global__ void k(T* x, int n) { x[n] = 1; }
float* x;
void other(const float* x, int n) {}
"""


@pytest.mark.parametrize(
    ("host", "type_"),
    [
        ("void run(int n) { double *y, *x; LAUNCH }", "double"),
        ("void run(int n) { double y = f(n, 1), x[4]; LAUNCH }", "double"),
        ("void run(double* const x, int n) { LAUNCH }", "double"),
        (
            "void run(double* __restrict x, int n) { if (n && x) { LAUNCH } }  // float* x,",
            "double",
        ),
        ("void run(V& v, int n) { static double const* x{v.data()}; LAUNCH }", "double"),
        ("void run(V& v, int n) { auto x = v.data_ptr<double>(); LAUNCH }", "double"),
        ("void run(double* x, int n) { { float* x = g(); } h([](int* x) {}); LAUNCH }", "double"),
        ("void run(float* x, int n) { auto f = [=](double* x) { LAUNCH }; }", "double"),
        ("void run(V& v, int n) { for (double* x : v) { LAUNCH } }", "double"),
        ("struct A { A(double* x, int n) : m{3}, w(x) { LAUNCH } };", "double"),
        ("#define GO(a) k<<<1, 9>>>(a, 3)\nvoid run(double* x) { GO(x); }", "double"),
        ("void run(int n) { x = g(2 * n, x); LAUNCH }", "float"),
        ("void run(V& v, int n) { auto x = v.data(); LAUNCH }", ""),
        ("void run(V& v, int n) { decltype(v.data()) x = v.data(); LAUNCH }", ""),
        ("void run(V& v, int n) { auto [x, y] = v.both(); LAUNCH }", ""),
        ("void run(V& v, int n) { double (*x)[4] = v.data(); LAUNCH }", ""),
        ("void run(V& v, int n) { [x = v.data()](int n) { LAUNCH }(n); }", ""),
        ("void run(V& v, int n) { double** x = v.data(); LAUNCH }", ""),
        ("void run(int n) {\n#ifdef A\nfloat* x;\n#else\ndouble* x;\n#endif\nLAUNCH }", ""),
        ("void run(int n) {\n#ifdef A\nfloat* x;\n#else\ndouble* x; LAUNCH\n#endif\n}", "double"),
    ],
)
def test_an_argument_has_the_type_that_it_is_declared_as_where_the_launch_sees_it(
    host: str, type_: str, tmp_path: Path
) -> None:
    text = TYPED + host.replace("LAUNCH", "k<<<1, 9>>>(x, n);") + "\n"
    found = {(template, is_guess) for template, is_guess, _ in chosen(text, tmp_path)}
    assert found == ({((type_,), False)} if type_ else {(("float",), True), (("int",), True)})


@pytest.mark.parametrize("types", [("float", "double"), ("double", "half"), ("int", "int")])
def test_launches_that_two_templates_spell_alike_are_instances_each(
    types: tuple[str, str], tmp_path: Path
) -> None:
    host = "template <typename T> void NAME(T* x, int n) { k<T><<<1, 64>>>(x, n); }\n"
    text = TYPED + host.replace("NAME", "f") + host.replace("NAME", "g")
    text += f"void run(int n) {{ f<{types[0]}>(nullptr, n); g<{types[1]}>(nullptr, n); }}\n"
    assert {(t, guess) for t, guess, _ in chosen(text, tmp_path)} == {((t,), False) for t in types}


SWITCHED = """
template <int SIZE> __global__ void k(float* x, int n) { __shared__ float s[SIZE]; x[n] = s[0]; }
void run(float* x, int n) {
  const int threads = fitting(n);
  switch (OTHER) { case 3: n = 2; }
  switch (threads) {
    CASES
    default:
      k<512><<<2, threads>>>(x, n);
  }
}
"""


@pytest.mark.parametrize(
    ("cases", "blocks"),
    [
        # A case is its instance's: the default's is, too.
        (
            "case 64: k<64><<<2, threads>>>(x, n); break; case 8: { k<8><<<2, threads>>>(x, n); }",
            {"64": 64, "8": 8, "512": 512},
        ),
        # Here it is not.
        ("case 1: k<64><<<2, threads>>>(x, n); break;", {"64": 1, "512": 256}),
    ],
)
def test_a_launch_in_a_case_of_a_switch_has_the_cases_value(
    cases: str, blocks: dict[str, int], tmp_path: Path
) -> None:
    texts = read(SWITCHED.replace("CASES", cases).replace("OTHER", "n"), tmp_path)
    (kernel,) = texts.kernels
    found = {}
    for choice in range(len(blocks)):
        case = propose(kernel, texts, SCALES[0], warp=32, choice=choice)
        assert isinstance(case, ProofCase)
        found[case.template[0]] = case.block[0]
    assert found == blocks


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ("kernel_h, pad_h, stride_h, dilation_h", [3, 1, 1, 1]),
        ("kW, padW, dW, dilationW", [3, 1, 1, 1]),
        ("stride_h, stride_w, n", [100, 1, 100]),  # of a tensor: there is no window
    ],
)
def test_a_window_over_an_image_leaves_it_as_large_as_it_was(
    names: str, values: list[int], tmp_path: Path
) -> None:
    declared = ", ".join(f"int {name}" for name in names.split(", "))
    text = f"__global__ void k(float* x, {declared}) {{ x[threadIdx.x] = 1; }}\n"
    texts = read(text + f"void run(float* x, {declared}) {{ k<<<1, 64>>>(x, {names}); }}", tmp_path)
    case = propose(texts.kernels[0], texts, SCALES[0], warp=32)
    assert isinstance(case, ProofCase)
    given = [int(a.value) for a in case.arguments if isinstance(a, Scalar)]
    assert given == values


SIZES = """template <typename T, int B> __global__ void sum(T* x) { x[threadIdx.x] = B; }
#define CASE(b) case b: sum<size_t, b><<<1, b>>>(x); break
void run(size_t* x, int n) { switch (n) { CASE(32); CASE(64); } }
"""


def of_the_program(
    ran: tuple[str, ...] | None, folder: Path, **cases: ProofCase
) -> idle.IdleInstances | None:
    texts = read(SIZES, folder)
    proof = KernelProof("sum", texts.source.path, 1, Outcome.PROVEN, "", "the program's", idle=ran)
    return idle.of_program([proof], texts, cases).get("sum")


def test_a_program_leaves_the_instances_open_that_its_run_does_not_launch(tmp_path: Path) -> None:
    assert of_the_program((), tmp_path) is None
    left = of_the_program(("unsigned long, 64",), tmp_path)
    assert left is not None and left.chosen == {("size_t", "64")}
    unknown = of_the_program(None, tmp_path)
    assert unknown is not None and unknown.chosen == {("size_t", "64"), ("size_t", "32")}


def test_an_instance_that_the_text_does_not_show_leaves_its_kernel_unproven(tmp_path: Path) -> None:
    left = of_the_program(("unsigned long, 64", "unsigned long, 128"), tmp_path)
    assert left is not None and not left.chosen
    texts = read(SIZES, tmp_path)
    proof = KernelProof("sum", texts.source.path, 1, Outcome.PROVEN, "", "the program's")
    joined = idle.joined({"sum": left}, proof, {})
    assert joined.outcome is Outcome.UNPROVEN
    assert "sum<unsigned long, 64>, sum<unsigned long, 128>, which the program's" in joined.why


@pytest.mark.parametrize("outcome", Outcome)
def test_a_program_proves_a_kernel_with_the_cases_of_instances_that_it_does_not_launch(
    outcome: Outcome, tmp_path: Path
) -> None:
    left = of_the_program(("unsigned long, 64",), tmp_path)
    assert left is not None
    program = KernelProof("sum", tmp_path, 1, Outcome.PROVEN, "", "the program's")
    case = KernelProof("sum", tmp_path, 1, outcome, "because", "sum<size_t, 64>: grid 1")
    joined = idle.joined({"sum": left}, program, {"sum": case})
    kept = (Outcome.PROVEN, Outcome.WRONG)
    assert joined.outcome is (outcome if outcome in kept else Outcome.UNPROVEN)
    assert joined.inputs == "the program's; sum<size_t, 64>: grid 1"
    if outcome is not Outcome.PROVEN:
        said = "instance sum<size_t, 64>, which the program's run does not launch: because"
        assert joined.why == said


def test_a_case_that_the_user_gives_is_of_its_own_instance_alone(tmp_path: Path) -> None:
    case = ProofCase("sum", ("size_t", "64"), (1, 1, 1), (64, 1, 1), 0, ())
    assert of_the_program(("unsigned long, 64",), tmp_path, sum=case) is None
    left = of_the_program(("unsigned long, 64", "unsigned long, 32"), tmp_path, sum=case)
    assert left is not None and left.names == ("sum<unsigned long, 32>",) and not left.chosen


def test_an_instance_is_idle_where_none_of_its_functions_was_called(tmp_path: Path) -> None:
    kernels = read(SIZES, tmp_path).kernels
    functions = {
        "void sum<unsigned long, 32>(unsigned long*)": (1, 32),
        "void sum<unsigned long, 64>(unsigned long*)": (1, 0),
        "void sum<P<2, 3>, (Op)1>(P<2, 3>*)": (1, 0),
        "void a::sum<float, 8>(float*)": (1, 4),
        "sum<float, 8>(float*)::{lambda()#1}::operator()() const": (1, 0),
        "void sum<double, 1>(double*)": (7, 0),
    }
    found = idle_instances(kernels, LineCounts({1: (1, {})}, functions))
    assert found == {"sum": ("unsigned long, 64", "P<2, 3>, (Op)1")}
    assert not idle_instances(kernels, LineCounts())
