"""Rewrites that need the types of operands: min and max of unlike signs, atomics on pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.port import device_build
from portkern.port.translate import translate
from portkern.spec import target as targets

BEFORE = """#include <cuda_runtime.h>
#include <cuda_fp16.h>
#define TWELVE 12
const unsigned int LIMIT = 7;
template <class T>
__global__ void k(float* x, const T* t, half2* h, int n, size_t s, int64_t l, half2 v) {
    auto tid = threadIdx.x + blockIdx.x * blockDim.x;
    int a = 1, b = 2;
    unsigned c[4];
    __shared__ half2 sums[4];
    { long n = 3; x[n] = a * b; }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
"""


def body(statement: str) -> str:
    """The statement's translation, within the kernel above."""
    return translate(f"{BEFORE}{statement}\n    }}\n}}\n", "a.cu").text.splitlines()[-3]


@pytest.mark.parametrize(
    ("cuda", "hip"),
    [
        ("min(n - 1, i + 4 * blockDim.x)", "min((unsigned)(n - 1), i + 4 * blockDim.x)"),
        ("max(tid, i)", "max(tid, (unsigned)i)"),
        ("max(LIMIT, -(a + b))", "max(LIMIT, (unsigned)(-(a + b)))"),
        ("min(b, c[1])", "min((unsigned)b, c[1])"),
        ("min(tid << 2, TWELVE)", "min(tid << 2, (unsigned)TWELVE)"),
        ("min(s, l)", "min(s, (unsigned long)l)"),
        ("min(sizeof(float), (long)n)", "min(sizeof(float), (unsigned long)((long)n))"),
        ("min(min(1u, tid), n)", "min(min(1u, tid), (unsigned)n)"),
        ("max(1ull, 2ll)", "max(1ull, (unsigned long long)2ll)"),
    ],
)
def test_the_signed_of_two_becomes_unsigned_as_in_cuda(cuda: str, hip: str) -> None:
    assert body(f"x[{cuda}] = 1;") == f"x[{hip}] = 1;"


@pytest.mark.parametrize(
    "call",
    [
        "min(n, a)",
        "max(1.0f, x[0])",
        "min((int)tid, n)",
        "min(t[0], tid)",  # a type that the text does not tell
        "std::min(LIMIT, tid)",
        "min(unknown, tid)",
        "min(n > 3 ? 1 : 2, tid)",
        "min(n, s)",  # CUDA does not compile it either
    ],
)
def test_two_of_a_kind_and_what_is_not_known_stay(call: str) -> None:
    assert body(f"x[0] = {call};") == f"x[0] = {call};"


def test_a_function_of_the_file_s_own_stays() -> None:
    own = "__device__ int min(int a, unsigned b) { return a; }\nint f(int a) { return min(a, 3u); }"
    assert translate(own, "a.cu").text.endswith(own)


@pytest.mark.parametrize("at", ["h", "&h[3]", "h + 1", "(half2*)x", "&sums[1]"])
def test_pairs_of_halves_are_added_by_the_function_that_hip_has(at: str) -> None:
    assert body(f"atomicAdd({at}, v);") == f"unsafeAtomicAdd({at}, v);"


@pytest.mark.parametrize("at", ["x", "&x[3]", "(float*)h", "&h[0].x"])
def test_other_atomics_stay(at: str) -> None:
    assert body(f"atomicAdd({at}, 1.0f);") == f"atomicAdd({at}, 1.0f);"


@pytest.mark.full
def test_amds_compiler_takes_them(tmp_path: Path) -> None:
    launch = "void f() { k<<<1, 32>>>((float*)0, (int*)0, (half2*)0, 1, 2, 3, half2()); }\n"
    text = f"{BEFORE}x[min(n - 1, i + blockDim.x)] = 1;\natomicAdd(h, v);\n}}\n}}\n{launch}"
    built = {}
    for name, source in (("before", text.replace("cuda_", "hip/hip_")), ("after", text)):
        file = tmp_path / f"{name}.hip"
        file.write_text(translate(source, name).text, encoding="utf-8")
        built[name] = device_build.build(file, targets.load("gfx942"), workdir=tmp_path)
    after = built["after"]
    if isinstance(after, device_build.NotBuilt) and after.cause == "machine":
        pytest.skip(after.reason)
    assert isinstance(after, device_build.DeviceBuilt), after
    before = built["before"]  # HIP already, so that it is left as it is
    assert isinstance(before, device_build.NotBuilt) and "subscript" in before.log, before
