"""Kernels that take structs by value: each member has a value, as an argument has."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.port.proof import Outcome
from portkern.port.proof.case import Case, Record, read_cases, to_yaml
from portkern.port.proof.infer import SCALES, Refused, propose, templates
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


def proposed(text: str, folder: Path) -> Case | Refused:
    texts = read(text, folder)
    return propose(texts.kernels[0], texts, SCALES[0], warp=32)


def test_each_member_of_a_struct_has_a_value_that_the_launch_is_told(tmp_path: Path) -> None:
    case = proposed(SCORES, tmp_path)
    assert isinstance(case, Case), case
    (record,) = case.arguments
    assert isinstance(record, Record)
    values = {value.name: value for value in record.members}
    assert list(values) == ["p.rows", "p.cols", "p.x", "p.y", "p.row_stride", "p.scale"]
    rows, cols = SCALES[0].rows, SCALES[0].inner
    assert (case.grid, case.block) == ((rows, 1, 1), (32, 1, 1))
    assert f"p.rows={rows}, p.cols={cols}, p.row_stride={cols}" in str(case)
    assert "p.x[" in str(case)


@pytest.mark.parametrize("text", [GATHERED, FOLDED], ids=["members", "none"])
def test_a_case_of_structs_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    case = proposed(text, tmp_path)
    assert isinstance(case, Case), case
    (tmp_path / "case.yaml").write_text(to_yaml(case), encoding="utf-8")
    assert read_cases(tmp_path / "case.yaml") == {case.kernel: case}


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
    ],
)
def test_a_struct_whose_members_cannot_be_made_up_is_refused_with_its_reason(
    old: str, new: str, why: str, tmp_path: Path
) -> None:
    assert old in SCORES
    refused = proposed(SCORES.replace(old, new), tmp_path)
    assert isinstance(refused, Refused), refused
    assert why in refused.reason


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
@pytest.mark.parametrize(
    ("text", "original", "ported", "outcome"),
    [
        (SCORES, "* 2", "* 2", Outcome.PROVEN),
        (SCORES, "* 2", "* (warpSize / 32 + 1)", Outcome.WRONG),
        (GATHERED, "+ 1", "+ 1", Outcome.PROVEN),
        (GATHERED, "+ 1", "+ (in.lengths[0] == in.lengths[1])", Outcome.PROVEN),
        (GATHERED, "+ 1", "+ (in.lengths[0] != in.lengths[1])", Outcome.WRONG),
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
