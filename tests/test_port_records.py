"""Kernels that take structs by value: each member has a value, as an argument has."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from portkern.cuda_source.source_map import Parameter
from portkern.port.proof import Outcome
from portkern.port.proof.case import Buffer, ProofCase, Scalar, StructValue, read_cases, to_yaml
from portkern.port.proof.harness import render
from portkern.port.proof.infer import SCALES, Refused, propose, templates
from portkern.port.proof.records import members, records
from portkern.port.translate import translate
from portkern.simt.execute import runtime_library
from portkern.spec.backend import Missing
from tests.test_port_tensors import proven, read

#: A template with a base, set by a function of its own, in a namespace.
SCORES = """\
#include <cuda_runtime.h>
namespace ours {
struct Sizes { int rows, cols; };
template <typename T>
struct Scores : public Sizes {
    const T *__restrict__ x;
    T *y;
    using index_t = unsigned;
    index_t row_stride;
    float scale = 2.0f;
    int size() const { return rows * cols; }
};
template <typename T>
__global__ void scores(Scores<T> p) {
    const int r = blockIdx.x, c = threadIdx.x;
    T sum = 0;
    for (int i = c; i < p.cols; i += blockDim.x) sum += p.x[r * p.row_stride + i] * p.scale;
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (c == 0) p.y[r] = sum LANES;
}
}
void run(const float* x, float* y, int rows, int cols) {
    ours::Scores<float> p;
    p.rows = rows;
    p.cols = cols;
    p.row_stride = cols;
    ours::scores<<<rows, 32>>>(p);
}
"""
#: One without a constructor that anybody here could call, and an array of lengths.
GATHERED = """\
#include <cuda_runtime.h>
class Tensor;
struct View {
    explicit View(const Tensor& of);
    float* data;
    const int* at;
    long lengths[2];
};
__global__ void gathered(const View out, View in, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out.data[i] = in.data[in.at[i]] + (in.lengths[0] > in.lengths[1] ? 1 : 0) LANES;
}
void run(const Tensor& a, const Tensor& b, int n) {
    gathered<<<(n + 63) / 64, 64>>>(View(a), View(b), n);
}
"""
#: Functors, of which one kernel is launched with two.
FOLDED = """\
#include <cuda_runtime.h>
struct Plus { __device__ float operator()(float a, float b) const { return a + b; } };
template <class T> struct Minus { __device__ T operator()(T a, T b) const { return a - b LANES; } };
template <class Op>
__global__ void folded(float* y, const float* x, int n, Op op) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = op(y[i], x[i]);
}
void run(float* y, const float* x, int n) {
    folded<<<(n + 63) / 64, 64>>>(y, x, n, Plus());
    folded<Minus<float>><<<(n + 63) / 64, 64>>>(y, x, n, Minus<float>{});
}
"""
PLUS = "struct Plus { __device__ float operator()(float a) const { return a; } };\nstruct Sizes"


def proposed(text: str, folder: Path) -> ProofCase | Refused:
    texts = read(text, folder)
    return propose(texts.kernels[0], texts, SCALES[0], warp=32)


def test_each_member_of_a_struct_has_a_value_that_the_launch_is_told(tmp_path: Path) -> None:
    case = proposed(SCORES, tmp_path)
    assert isinstance(case, ProofCase), case
    (record,) = case.arguments
    assert isinstance(record, StructValue)
    values = {value.name: value for value in record.members}
    assert list(values) == ["p.rows", "p.cols", "p.x", "p.y", "p.row_stride", "p.scale"]
    rows, cols = SCALES[0].rows, SCALES[0].inner
    assert (case.grid, case.block) == ((rows, 1, 1), (32, 1, 1))
    assert f"p.rows={rows}, p.cols={cols}, p.row_stride={cols}" in str(case)
    assert "p.x[" in str(case)


@pytest.mark.parametrize("text", [GATHERED, FOLDED], ids=["members", "none"])
def test_a_case_of_structs_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    case = proposed(text, tmp_path)
    assert isinstance(case, ProofCase), case
    assert read_cases_of(case, tmp_path) == case


@pytest.mark.parametrize(
    ("given", "guessed"), [("Minus<float>{}", [False, False]), ("made(x)", [False, True])]
)
def test_a_functor_that_a_launch_makes_is_its_instance(
    given: str, guessed: list[bool], tmp_path: Path
) -> None:
    text = FOLDED.replace("folded<Minus<float>>", "folded").replace("Minus<float>{}", given)
    texts = read(text, tmp_path)
    found = templates(texts.kernels[0], texts)
    assert isinstance(found, list)
    assert found[0].template == ("Plus",)
    assert sorted({one.is_guess for one in found}) == sorted(set(guessed))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("p.rows = rows;", "p.rows = rows / prop->warpSize;", "width of warps"),
        ("p.row_stride = cols;", "p.row_stride = cols; p.cols = lanes_of(x);", "width of warps"),
        ("index_t row_stride;", "index_t row_stride : 24;", "row_stride : 24"),
        ("index_t row_stride;", "private: index_t row_stride;", "not public"),
        ("index_t row_stride;", "int lengths[MOST]; index_t row_stride;", "how long"),
        ("struct Sizes {", "struct Size {", "base Sizes is not defined here"),
        ("const T *__restrict__ x;", "const Other<T> x;", "no value is known"),
        ("struct Sizes { int rows, cols; };", "struct Sizes { int cols[0]; };", "how long"),
        ("struct Sizes { int rows, cols; };", "struct Sizes { int cols[99999999]; };", "more than"),
        ("struct Sizes { int rows, cols; };", "struct Sizes { int rows, cols, scale; };", "two"),
        ("Scores<float> p;", "Scores<float> p{{WARP_SIZE / 2, 1}};", "width of warps"),
        ("Scores<float> p;", "Scores<float> q, p = {.rows = lanes};", "width of warps"),
        ("Scores<float> p;", "Scores<float> p; p = ours::Scores<float>(warps);", "width of warps"),
        ("p.rows = rows;", "(*&p).rows = WAVE;", "width of warps"),
        ("struct Sizes { int rows, cols; };", "struct Sizes { int rows = WARP, cols; };", "warps"),
        (
            "struct Sizes { int rows, cols; };",
            "struct Sizes { int rows{lanes()}, cols; };",
            "warps",
        ),
        ("Scores<float> p;", f"Scores<float> p{{{'1, ' * 400}1}};", "width of warps"),
        ("typename T>", "typename T, = 3>", "among its template's parameters"),
    ],
)
def test_a_struct_whose_members_cannot_be_made_up_is_refused_with_its_reason(
    old: str, new: str, why: str, tmp_path: Path
) -> None:
    assert old in SCORES
    refused = proposed(SCORES.replace(old, new), tmp_path)
    assert isinstance(refused, Refused), refused
    assert why in refused.reason


@pytest.mark.parametrize(
    "written",
    [
        "int d[sizeof(int)];",
        "int d[MOST(2, 3)];",
        "int d PACKED(4);",
        "long d PACKED(4);",
        "FIELD(int, d);",
        "int NAMED(d);",
        "D_AND_E;",
        "D_AND_E int f();",
        "int f(), NAMED(d);",
        "int (*d)(int);",
        "struct { int d; };",
    ],
)
def test_a_struct_with_a_member_that_is_not_read_is_not_read(written: str) -> None:
    macros = "#define FIELD(t, d) t d\n#define NAMED(d) d\n#define D_AND_E int d; \\\n int e\n"
    (record,) = records([f"{macros}struct P {{ {written} float z; }};"]).values()
    assert "in it" in record.problem
    assert not record.members


@pytest.mark.parametrize(
    "written",
    [
        "P(int d); explicit P(const P& of) : z(of.z) {} ~P();",
        "P() = default; P& operator=(const P&);",
        "HOST int f(int d) const; HOST T operator()(T) const; operator int() const;",
        "const float *f(int d); static int d[sizeof(int)]; struct Q;",
        "void f(int d) { D_AND_E; } using T = int; // FIELD(int, d);",
    ],
)
def test_functions_of_a_struct_are_not_members(written: str) -> None:
    macros = "#define HOST __host__\n#define D_AND_E int d; int e\n"
    (record,) = records([f"{macros}struct P {{ {written}\n float *const z[4]; }};"]).values()
    assert record.problem == ""
    assert [(m.type, m.name) for m in record.members] == [("float * const", ".z[4]")]


def test_a_struct_that_is_specialised_or_of_anothers_scope_is_not_read() -> None:
    one, other = "template <class T> struct P { T x; };", "struct Q { P<int> p; };"
    assert set(records([one, other])) == {"P", "Q"}
    assert set(records([one, "template struct P<int>;", "struct P<int> *made();"])) == {"P"}
    for special in (
        "template <> struct P<float> { float x; int d; };",
        "template <> struct P<float>;",
        "template <class T> struct P<T*> { T* x; };",
        "template <> struct of::P<float> { int d; };",
        "struct Of::P { int d; };",
    ):
        assert set(records([one, special, other])) == {"Q"}
        assert set(records([special, other, one])) == {"Q"}


def test_the_parameters_of_a_template_have_names_or_none() -> None:
    text = "template <class T, /* of */ class U = int, int N = 3, class, bool = true> struct P {};"
    assert records([text])["P"].template == ("T", "U", "N", "", "")


@pytest.mark.parametrize(
    "text",
    [
        f"struct A {{ float *{' const __restrict__' * 400} x[a + b]; }};",
        "".join(
            f"struct {a} : {', '.join([b] * 200)} {{}};" for a, b in ("AB", "BC", "CD", ("D", "E"))
        )
        + "struct E {};",
        f"struct A {{ B<{'N' * 600}> x; }}; template <class T> struct B {{ C<T, T> x; }};",
    ],
    ids=["qualifiers", "bases", "arguments"],
)
def test_a_struct_that_would_take_long_is_refused_at_once(text: str) -> None:
    begin = time.process_time()
    assert isinstance(members(Parameter("A", "a"), {}, records([text])), Refused)
    assert time.process_time() - begin < 1


def test_a_struct_without_members_is_a_member_without_a_value(tmp_path: Path) -> None:
    text = SCORES.replace("float scale", "Plus plus; float scale").replace("struct Sizes", PLUS, 1)
    case = proposed(text, tmp_path)
    assert isinstance(case, ProofCase), case
    assert "p.scale" in str(case)
    assert "plus" not in str(case)


@pytest.mark.parametrize(
    ("set_", "value"),
    [
        ("p.row_stride = 3;", "3"),
        ("p.row_stride = 3; Scores<float> other{{planes}}, *q = of(n_planes);", "3"),
        ("Scores<T>* q; q->row_stride = 3;", "3"),
        ("Scores<T> a, b; b.row_stride = 3;", "3"),
        ("auto& q = p; q.row_stride = 3;", "3"),
        ("Other o; o.row_stride = 3;", "4"),
        ("// p.row_stride = 3;", "4"),
        ("p.row_stride = 3; p.row_stride = 5;", "4"),
        ("p.rows_stride = 3; p.stride = 3;", "4"),
    ],
)
def test_a_member_is_what_host_code_sets_it_to_in_a_variable_of_the_struct(
    set_: str, value: str, tmp_path: Path
) -> None:
    case = proposed(SCORES.replace("p.row_stride = cols;", f"{set_}\n"), tmp_path)
    assert isinstance(case, ProofCase), case
    values = {v.name: v.value for v in case.values if isinstance(v, Scalar)}
    assert values["p.row_stride"] == value


def test_elements_of_an_array_in_a_struct_have_values_of_their_own(tmp_path: Path) -> None:
    text = GATHERED.replace("long lengths[2];", "long lengths[3]; float factors[2];")
    case = proposed(text, tmp_path)
    assert isinstance(case, ProofCase), case
    values = {v.name: v.value for v in case.values if isinstance(v, Scalar)}
    assert len({values[f"in.lengths[{i}]"] for i in range(3)}) == 3
    assert len({values[f"in.factors[{i}]"] for i in range(2)}) == 2


def test_parameters_without_names_have_arguments_of_their_own(tmp_path: Path) -> None:
    text = (
        "__global__ void k(float* y, const float*, int, int argument_1, int, int n) { y[0] = n; }\n"
        "void run(float* y, float* z, int n) { k<<<1, 64>>>(y, z, 1, 2, 3, n); }\n"
    )
    case = proposed(text, tmp_path)
    assert isinstance(case, ProofCase), case
    names = ["y", "argument_0", "argument_2", "argument_1", "argument_3", "n"]
    assert [argument.name for argument in case.arguments] == names
    assert [a.value for a in case.arguments if isinstance(a, Scalar)][:3] == ["1", "2", "3"]
    assert read_cases_of(case, tmp_path) == case
    alike = replace(
        case,
        arguments=tuple(
            replace(a, name="a") for a in case.values if isinstance(a, Buffer | Scalar)
        ),
    )
    program = render([alike], "", "cuda", known={}, scopes={}, title="", command="")
    given = "(float*)buffer_0, (float*)buffer_1, (int)(1), (int)(2), (int)(3), (int)(1000)"
    assert f"({given});" in program


def read_cases_of(case: ProofCase, folder: Path) -> ProofCase:
    (folder / "case.yaml").write_text(to_yaml(case), encoding="utf-8")
    return read_cases(folder / "case.yaml")[case.kernel]


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
@pytest.mark.parametrize(
    ("text", "original", "ported", "outcome"),
    [
        (SCORES, "* 2", "* 2", Outcome.PROVEN),
        (SCORES, "* 2", "* (warpSize / 32 + 1)", Outcome.WRONG),
        (GATHERED, "+ 1", "+ 1", Outcome.PROVEN),
        (GATHERED, "+ 1", "+ (in.lengths[0] == in.lengths[1])", Outcome.WRONG),
        (FOLDED, "", "", Outcome.PROVEN),
        (FOLDED, "", "+ 1", Outcome.WRONG),
        (FOLDED.replace("folded<Minus<float>>", "folded<Of<float>>"), "", "", Outcome.UNPROVEN),
    ],
)
def test_a_kernel_of_structs_is_held_against_its_original(
    text: str, original: str, ported: str, outcome: Outcome, tmp_path: Path
) -> None:
    port = translate(text, "k.cu").text.replace("LANES", ported)
    proof = proven(text.replace("LANES", original), port, tmp_path)
    assert proof.outcome is outcome, proof.why


def test_the_definition_of_a_long_struct_is_not_an_initialiser(tmp_path: Path) -> None:
    long = "; ".join(f"int extent_of_the_axis_{n}" for n in range(60))
    text = SCORES.replace(
        "struct Sizes { int rows, cols; };", f"struct Sizes {{ int rows, cols; {long}; }};"
    )
    texts = read(text, tmp_path)
    case = propose(texts.kernels[0], texts, SCALES[1], warp=32)
    assert isinstance(case, ProofCase), case


@pytest.mark.parametrize(
    ("struct", "expected"),
    [
        ("struct Point { double x, y, z, e; };", ("Point", 4 * 1024)),
        ("struct Point { float at[3]; float w; };", ("Point", 4 * 1024)),
        ("struct Inner { int a, b; };\nstruct Point { Inner of; int c; };", ("Point", 3 * 1024)),
        ("struct Point { double x; int n; };", None),
        ("struct Point { bool a, b; };", None),
        ("struct Point { float* x; };", None),
        ("struct Point { float x; private: float y; };", None),
    ],
)
def test_a_buffer_of_structs_of_one_kind_of_numbers_has_values(
    struct: str, expected: tuple[str, int] | None, tmp_path: Path
) -> None:
    text = f"""{struct}
__global__ void k(Point* p, int n) {{ if (threadIdx.x < n) p[threadIdx.x] = p[n - 1]; }}
void run(Point* p, int n) {{ k<<<1, 64>>>(p, n); }}
"""
    texts = read(text, tmp_path)
    case = propose(texts.kernels[0], texts, SCALES[1], warp=32)
    if expected is None:
        assert isinstance(case, Refused) and "no value is known" in case.reason
        return
    assert isinstance(case, ProofCase), case
    [points, _] = case.values
    assert isinstance(points, Buffer) and points.dtype == expected[0]
    known = {**texts.rows, **texts.aliases}
    written = render([case], text, "cuda", known=known, scopes={}, title="", command="")
    assert f"({expected[1]}, portkern_case::Values::" in written


@pytest.mark.parametrize(
    ("use", "is_refused"),
    [("p.n = 1;", False), ("use(p);", True), ("helper(&p);", True), ("p.out = 0;", True)],
)
def test_a_pointer_to_void_that_a_kernel_never_asks_for_needs_no_type(
    use: str, is_refused: bool, tmp_path: Path
) -> None:
    text = f"""struct P {{ float* x; void* out; int n; }};
__global__ void k(P p) {{ {use} p.x[0] = p.n; }}
void run(P p) {{ k<<<1, 64>>>(p); }}
"""
    texts = read(text, tmp_path)
    case = propose(texts.kernels[0], texts, SCALES[1], warp=32)
    assert isinstance(case, Refused) == is_refused, case
