"""Lint of a port: each pitfall is seen where it is, and nothing is said of what is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from portkern.errors import ConfigError
from portkern.port.hazard import PITFALLS, Hazard, Pitfall, explain
from portkern.port.lint import lint
from portkern.simt.diagnostics import Severity
from portkern.spec import target as targets

DATA = Path(__file__).parent / "data" / "port_pitfalls.yaml"
CATALOGUE = [f"PK{number:03d}" for number in range(1, 58)]
HEAD = (
    "__global__ void k(float* x, float* y, int n) {\n"
    "  int t = threadIdx.x;\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
)


class Snippet(NamedTuple):
    code: str
    text: str
    file: str
    target: str

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        return lint(self.text, self.file, target=targets.load(self.target))


SNIPPETS = yaml.safe_load(DATA.read_text(encoding="utf-8"))


def snippets(kind: str) -> Iterator[object]:
    for code, entry in SNIPPETS.items():
        for number, item in enumerate(entry.get(kind, [])):
            fields = {"code": item} if isinstance(item, str) else item
            text = fields["code"]
            if text.startswith(";"):
                text = f"{HEAD}{text[1:]}}}\n"
            file = fields.get("file", "kernel.cu")
            snippet = Snippet(code, text, file, fields.get("target", "gfx942"))
            yield pytest.param(snippet, id=f"{code}-{number + 1}")


@pytest.mark.parametrize("snippet", list(snippets("bad")))
def test_a_pitfall_is_seen(snippet: Snippet) -> None:
    assert snippet.code in {hazard.code for hazard in snippet.hazards}


@pytest.mark.parametrize("snippet", list(snippets("good")))
def test_what_avoids_a_pitfall_gives_no_hazard_of_it(snippet: Snippet) -> None:
    assert [str(hazard) for hazard in snippet.hazards if hazard.code == snippet.code] == []


@pytest.mark.parametrize("code", CATALOGUE)
def test_lint_claims_a_pitfall_exactly_when_snippets_prove_it(code: str) -> None:
    bad, good = (len(SNIPPETS[code].get(kind, [])) for kind in ("bad", "good"))
    if "lint" in PITFALLS[code].channel:
        assert bad >= 2 and good >= 2
    else:
        assert bad == 0


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_catalogue_follows_its_own_advice(code: str) -> None:
    pitfall = PITFALLS[code]
    assert pitfall.title and pitfall.why and pitfall.bad != pitfall.good
    assert all(text.count("\n") < 5 for text in (pitfall.bad, pitfall.good))
    launches = "<<<" in pitfall.good
    good = pitfall.good if launches else f"{HEAD}{pitfall.good}\n}}\n"
    assert code not in {hazard.code for hazard in lint(good, "kernel.cu")}


def test_explain_tells_what_why_and_how() -> None:
    text = explain("pk013")
    pitfall = PITFALLS["PK013"]
    for part in (pitfall.title, pitfall.why, pitfall.bad.splitlines()[0], "in the text"):
        assert part in text


def test_an_unknown_pitfall_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="No pitfall 'PK1O3'; did you mean"):
        explain("PK1O3")


def test_a_pitfall_nobody_sees_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="is seen by"):
        Pitfall("title", "why", "bad", "good", Severity.NOTE, ())


def test_a_hazard_says_file_line_severity_and_kernel() -> None:
    text = HEAD + "  y[i] = __shfl_down_sync(0xffffffff, x[i], 1);\n}\n"
    (hazard,) = lint(text, "a/b.cu")
    assert str(hazard).startswith("a/b.cu:4: error: PK003 __shfl_down_sync is given a 32-bit mask")
    assert hazard.to_json()["kernel"] == "k"


def test_hazards_come_by_line_and_are_the_same_again() -> None:
    text = HEAD + "  __nanosleep(1);\n  y[i] = __ldcs(x);\n  __syncwarp(0xffffffff);\n}\n"
    hazards = lint(text, "kernel.cu")
    assert [hazard.code for hazard in hazards] == ["PK028", "PK027", "PK012"]
    assert lint(text, "kernel.cu") == hazards


def test_comments_strings_and_other_vendors_branches_are_not_code() -> None:
    text = (
        "// __shfl_down_sync(0xffffffff, v, 1)\n"
        'const char* s = "__nanosleep(1)";\n'
        "#ifdef __HIP_PLATFORM_AMD__\n"
        "__device__ void wait() { __builtin_amdgcn_s_sleep(1); }\n"
        "#else\n"
        "__device__ void wait() { __nanosleep(1); }\n"
        "#endif\n"
    )
    assert lint(text, "kernel.cu", target=targets.load("gfx942")) == ()


def test_what_the_librarys_headers_define_is_not_missing() -> None:
    text = HEAD + "  y[i] = __ldcs(x + i);\n}\n"
    assert [hazard.code for hazard in lint(text, "kernel.cu")] == ["PK027"]
    assert lint(text, "kernel.cu", headers=["#define __ldcs(p) (*(p))\n"]) == ()


def test_nvidias_own_targets_have_none_of_amds_pitfalls() -> None:
    text = HEAD + "  y[i] = __popc(__ballot_sync(0xffffffff, x[i] > 0)) + __ldcs(x);\n}\n"
    assert lint(text, "kernel.cu", target=targets.load("sm_90")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0",
        "}}}}((((",
        "__global__ void k(",
        "#if\n#elif\n#else\n",
        '"',
        "/*",
        'R"(',
        "asm(",
        "__global__ void k() { while (",
        "__launch_bounds__(,)",
        "x<<<>>>()",
        "__global__ void k() { __shfl_down_sync(); __shared__ float s[]; int a[1/0]; }",
    ],
)
def test_text_that_is_not_a_program_is_read_without_complaint(text: str) -> None:
    for name in ("kernel.cu", "setup.py", "Makefile"):
        assert isinstance(lint(text, name), tuple)


def test_windows_line_ends_do_not_move_a_hazard() -> None:
    text = HEAD + "  __nanosleep(1);\n}\n"
    assert [h.line for h in lint(text.replace("\n", "\r\n"), "kernel.cu")] == [4]


def test_two_hundred_files_take_seconds() -> None:
    body = "".join(
        f"{HEAD.replace('k(', f'k{number}(')}  y[i] = x[i] + __shfl_xor(x[i], {number % 16});\n}}\n"
        for number in range(20)
    )
    start = time.process_time()
    for number in range(200):
        lint(f"// {number}\n{body}", "kernel.cu", target=targets.load("gfx942"))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "launch",
    [
        "fill<Pair<float, float>><<<1, 64, 100000>>>(p, n);",
        "fill<Pair<float, Pair<int, float>>> << <1, 64, BYTES >> > (p, n);",
        "LAUNCH((fill<Pair<float, float>>), 100000);",
        "cudaLaunchKernel((void*)fill<Pair<float, float>>, 1, 64, args, 100000, 0);",
        "cudaLaunchConfig_t c = {1, 64, BYTES, 0}; cudaLaunchKernelEx(&c, fill<Pair<A, B>>, p, n);",
    ],
)
def test_the_shared_memory_of_a_launch_is_seen_however_the_launch_is_written(launch: str) -> None:
    text = (
        "#define BYTES 100000\n#define LAUNCH(f, bytes) f<<<1, 64, bytes>>>(p, n)\n"
        "template <class T> __global__ void fill(T* p, int n) { p[n] = T(); }\n"
        f"void run(P* p, int n) {{\n  {launch}\n}}\n"
    )
    found = lint(text, "k.cu", target=targets.load("gfx942"))
    (hazard,) = (h for h in found if h.code == "PK022")
    assert hazard.line == 5
    assert hazard.message.startswith("fill is launched with 100000 bytes")


@pytest.mark.parametrize(
    "loop",
    [
        "#ifdef A\n  for (;;) {\n#else\n  for (; n; --n) {\n#endif\n    v += x[0];\n  }\n",
        "#if A\n  if (n) {\n#elif B\n  if (n > 1) {\n#else\n  {\n#endif\n    v += x[0];\n  }\n",
        "  v += x[0];\n",
    ],
)
@pytest.mark.parametrize("bounds", ["", "BOUNDS(256, 2) ", "__launch_bounds__(f(1, 2), 2) "])
def test_a_lock_is_seen_whatever_macros_and_branches_stand_before_it(
    loop: str, bounds: str
) -> None:
    text = (
        f"__global__ void {bounds}add(int* lock, float* sum, const float* x, int n) {{\n"
        f"  float v = 0;\n{loop}"
        "  while (atomicCAS(lock, 0, 1) != 0) {\n  }\n  *sum += v;\n  atomicExch(lock, 0);\n}\n"
    )
    found = lint(text, "k.cu", target=targets.load("gfx942"))
    (hazard,) = (h for h in found if h.code == "PK049")
    assert hazard.kernel == "add"


CHAINED = """
__global__ void chained(int* sums, volatile int* ready, int own) {
  __shared__ int part;
  if (threadIdx.x == 0) { atomicAdd(&part, own); WAIT sums[blockIdx.x] += part; FENCE STORE }
}
"""


@pytest.mark.parametrize(
    ("fence", "store", "seen"),
    [
        ("__threadfence_block();", "ready[blockIdx.x] = 1;", True),
        ("__threadfence(); sums[0] = 1; __threadfence_block();", "ready[blockIdx.x] = 1;", True),
        ("__threadfence();", "ready[blockIdx.x] = 1;", False),
        ("__threadfence_block(); __threadfence_system();", "ready[blockIdx.x] = 1;", False),
    ],
)
def test_the_last_fence_before_a_flag_decides_and_no_atomic_elsewhere(
    fence: str, store: str, seen: bool
) -> None:
    wait = "while (!ready[blockIdx.x - 1]) { }"
    text = CHAINED.replace("WAIT", wait).replace("FENCE", fence).replace("STORE", store)
    assert ("PK051" in {hazard.code for hazard in lint(text, "kernel.cu")}) == seen
