"""Proof by algebra: a port's formula beside its original's, and when that cannot be said."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real.dropped_terms import mutated
from portkern.cli import main
from portkern.cuda_source.syntax import parse
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, algebra, prove
from portkern.port.proof.compare import Types
from portkern.port.proof.outcome import Algebra, ByAlgebra
from portkern.port.proof.recording import Content, LaunchRecord, read
from portkern.simt.execute import ring_build, runtime_library
from portkern.simt.execute.ring import Ring
from portkern.spec import target
from portkern.spec.backend import Missing


def _lacking() -> str:
    box = runtime_library.find()
    found = box if isinstance(box, Missing) else ring_build.find(box.compiler)
    return str(found) if isinstance(found, Missing) else ""


LACKING = _lacking()
needs_clang = pytest.mark.skipif(bool(LACKING), reason=LACKING or "clang is here")

EQUAL, DIFFERENT, UNKNOWN = ByAlgebra.EQUAL, ByAlgebra.DIFFERENT, ByAlgebra.UNKNOWN
#: Few threads do it, so that runs are short.
_FEW = "if (blockIdx.x || threadIdx.x > 3) return; "
_EACH = "if (threadIdx.x < n) y[threadIdx.x] = "
_SUM = "float s = 0; for (int i = 0; i < n; ++i) s += x[i]; if (threadIdx.x == 0) y[0] = s;"
#: The bodies of each kernel of (float* y, const float* x, int n): the original's, the port's, what
#: algebra says, and a part of why.
KERNELS: Mapping[str, tuple[str, str, ByAlgebra, str]] = {
    "an_exponent_by_its_bits": (
        _EACH + "__int_as_float(__float_as_int(x[threadIdx.x] / 3) & 0x7f800000) * 2;",
        _EACH + "__int_as_float(__float_as_int(x[threadIdx.x] / 3) & 0x7f800000) * 2;",
        UNKNOWN,
        "bits as numbers",
    ),
    "sum_backwards": (
        _SUM,
        _SUM.replace("x[i]", "x[n - 1 - i]"),
        EQUAL,
        "",
    ),
    "sum_by_pairs": (
        _SUM,
        "float s = 0, t = 0; for (int i = 0; i < n; i += 2) { s += x[i]; "
        "if (i + 1 < n) t += x[i + 1]; } if (threadIdx.x == 0) y[0] = s + t;",
        EQUAL,
        "",
    ),
    "norm_in_one_pass": (
        "float m = 0, v = 0; for (int i = 0; i < n; ++i) m += x[i]; m /= n; "
        "for (int i = 0; i < n; ++i) v += (x[i] - m) * (x[i] - m); "
        "if (threadIdx.x < n) y[threadIdx.x] = (x[threadIdx.x] - m) * rsqrtf(v / n + 1e-5f);",
        "float m = 0, q = 0; for (int i = 0; i < n; ++i) { m += x[i]; q = fmaf(x[i], x[i], q); } "
        "m /= n; float v = q / n - m * m; "
        "if (threadIdx.x < n) y[threadIdx.x] = (x[threadIdx.x] - m) / sqrtf(v + 1e-5f);",
        EQUAL,
        "",
    ),
    "softmax_online": (
        "float m = -INFINITY, s = 0; for (int i = 0; i < n; ++i) m = fmaxf(m, x[i]); "
        "for (int i = 0; i < n; ++i) s += expf(x[i] - m); "
        "if (threadIdx.x < n) y[threadIdx.x] = expf(x[threadIdx.x] - m) / s;",
        "float m = -INFINITY, s = 0; for (int i = 0; i < n; ++i) { float b = fmaxf(m, x[i]); "
        "s = s * expf(m - b) + expf(x[i] - b); m = b; } "
        "if (threadIdx.x < n) y[threadIdx.x] = expf(x[threadIdx.x] - m) / s;",
        EQUAL,
        "comparisons were decided by values",
    ),
    "halves_on_the_way": (
        _SUM,
        "float s = 0; for (int i = 0; i < n; ++i) s += __half2float(__float2half(x[i])); "
        "if (threadIdx.x == 0) y[0] = s;",
        EQUAL,
        "",
    ),
    "without_epsilon": (
        "if (threadIdx.x < n) y[threadIdx.x] = rsqrtf(x[threadIdx.x] * x[threadIdx.x] + 1e-12f);",
        "if (threadIdx.x < n) y[threadIdx.x] = rsqrtf(x[threadIdx.x] * x[threadIdx.x]);",
        DIFFERENT,
        "another formula",
    ),
    "without_its_last_term": (
        _SUM.replace("x[i]", "x[i] * 1e-9f").replace("s = 0", "s = 1000"),
        _SUM.replace("x[i]", "x[i] * 1e-9f").replace("s = 0", "s = 1000").replace("< n", "< n - 1"),
        DIFFERENT,
        "'y'[0]",
    ),
    "another_constant": (
        "if (threadIdx.x < n) y[threadIdx.x] = tanhf(0.7978845608f * x[threadIdx.x]);",
        "if (threadIdx.x < n) y[threadIdx.x] = tanhf(0.7978846f * x[threadIdx.x] * 1.0000001f);",
        DIFFERENT,
        "another formula",
    ),
    "bits_as_an_integer": (
        _EACH + "__int_as_float(__float_as_int(x[threadIdx.x] / 3) + 1);",
        _EACH + "__int_as_float(__float_as_int(x[threadIdx.x] / 3) + 1);",
        UNKNOWN,
        "bits as numbers",
    ),
    "long_doubles": (
        "if (threadIdx.x < n) y[threadIdx.x] = (float)((long double)x[threadIdx.x] / 3);",
        "if (threadIdx.x < n) y[threadIdx.x] = (float)((long double)x[threadIdx.x] / 3);",
        UNKNOWN,
        "leave the ring",
    ),
    "a_near_decision": (
        "float t = 0; for (int i = 0; i < 10; ++i) t += 0.1f; float u = 1 + 1e-10f; "
        "if (threadIdx.x < n) y[threadIdx.x] = (1.0f + 0 * t < u) ? 1 : x[threadIdx.x] + 2;",
        "if (threadIdx.x < n) { float u = 1 + 1e-10f; "
        "y[threadIdx.x] = (u < 1.0f + x[threadIdx.x] * 0) ? 1 : x[threadIdx.x] + 3; }",
        UNKNOWN,
        "as near as rounding is",
    ),
}
_HEADS = {
    "cuda": "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cmath>\n",
    "hip": "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <cmath>\n",
}


def _file(folder: Path, language: str, which: int) -> Path:
    kernels = (
        f"__global__ void {name}(float* y, const float* x, int n) {{ {_FEW}{body[which]} }}\n"
        for name, body in KERNELS.items()
    )
    launches = (f"{name}<<<1, 256>>>(y, x, n); " for name in KERNELS)
    host = f"void all(float* y, const float* x, int n) {{ {''.join(launches)}}}\n"
    path = folder / ("a.cu" if language == "cuda" else "a.hip")
    path.write_text(_HEADS[language] + "".join(kernels) + host)
    return path


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, KernelProof]:
    folder = tmp_path_factory.mktemp("algebra")
    original, ported = _file(folder, "cuda", 0), _file(folder, "hip", 1)
    found = prove(
        ProofSource(original, "cuda"),
        ProofSource(ported, "hip"),
        target=target.load("gfx942"),
        other=None,
        kernels=parse(ported.read_text()).kernels,
        workdir=folder / "work",
        limits=ProofLimits(ring=True),
    )
    return {proof.kernel: proof for proof in found}


@pytest.mark.full
@needs_clang
@pytest.mark.parametrize("name", KERNELS)
def test_algebra_tells_the_order_of_a_formula_from_another_formula(
    name: str, proofs: Mapping[str, KernelProof]
) -> None:
    _, _, verdict, why = KERNELS[name]
    said = proofs[name].algebra
    assert said is not None, proofs[name]
    assert (said.verdict, why in str(said)) == (verdict, True), said
    if name == "halves_on_the_way":  # algebra excuses no rounding
        assert proofs[name].outcome is Outcome.WRONG, proofs[name]
    elif verdict is EQUAL:
        assert proofs[name].outcome is Outcome.PROVEN, proofs[name]
        assert str(EQUAL) in proofs[name].why
    if verdict is DIFFERENT:
        assert proofs[name].outcome in (Outcome.UNPROVEN, Outcome.WRONG), proofs[name]
    if name == "another_constant":  # its numbers are near
        assert proofs[name].outcome is Outcome.UNPROVEN, proofs[name]
        assert proofs[name].why == str(said)


@pytest.mark.full
@needs_clang
def test_the_verb_says_it_of_each_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text(
        "__global__ void scaled(float* y, const float* x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) y[i] = x[i] / 3 + 0.1f;\n"
        "}\n"
        "void all(float* y, const float* x, int n) { scaled<<<(n + 255) / 256, 256>>>(y, x, n); }\n"
    )
    assert main.run(["port", "k.cu", "arithmetic=ring", "json=true"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["algebra"].startswith("equal by algebra")
    assert "equal by algebra" in (tmp_path / "reports/port-k.cu/port.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["arithmetic=exact"], "no arithmetic"),
        (["arithmetic=ring", "lint=only"], "drop lint=only"),
        (["arithmetic=ring", "to=opencl"], "AMD GPUs or CUDA"),
    ],
)
def test_where_algebra_cannot_be_asked_for_the_verb_says_so(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float* y) { y[0] = 1; }\n")
    assert main.run(["port", str(tmp_path / "k.cu"), f"reports={tmp_path}", *words]) == 2
    assert message.lower() in capsys.readouterr().err.lower()


# ---- recordings

KERNEL = parse("__global__ void k(float* y) {}").kernels
RING = Ring.drawn(random.Random(3).randrange)


def _launch(
    words: list[int], known: Mapping[int, int], account: tuple[int, ...] = (0,) * 7
) -> LaunchRecord:
    """A launch that wrote these patterns of float32, of which ``known`` stand for residues."""
    dumped = b"".join(
        struct.pack("<IIQQQQQd", 2, 1, pattern, 0, 0, residue, 0, 1.0)
        for pattern, residue in known.items()
    )
    content = Content(4 * len(words), "", struct.pack(f"<{len(words)}I", *words))
    return LaunchRecord(
        1, "k", (1, 1, 1), (1, 1, 1), 0, ((0, 0),), {}, {0: content}, account=account,
        elements=dumped,
    )  # fmt: skip


def _said(a: LaunchRecord, b: LaunchRecord, *others: LaunchRecord) -> ByAlgebra:
    run = algebra.RingRun("gfx942", [b])
    said = algebra.judged(
        RING, [a], lambda: [[other] for other in others], [run], Types(KERNEL, {})
    )
    return said["k"].verdict


def test_patterns_are_equal_that_stand_for_the_same_element() -> None:
    one, other = 0x7FA00001, 0x7FB00002
    assert _said(_launch([one], {one: 7}), _launch([other], {other: 7})) is EQUAL
    assert _said(_launch([one], {one: 7}), _launch([one], {one: 8})) is DIFFERENT
    minus = other | 1 << 31
    assert _said(_launch([one], {one: 7}), _launch([minus], {other: RING.q - 7})) is EQUAL


def test_a_number_is_the_element_that_it_stands_for() -> None:
    half, pattern = 0x3F000000, 0x7FA00001
    assert _said(_launch([half], {}), _launch([pattern], {pattern: RING.deep(0.5)})) is EQUAL
    assert _said(_launch([half], {}), _launch([pattern], {pattern: RING.deep(0.25)})) is DIFFERENT
    assert _said(_launch([0], {}), _launch([1 << 31], {})) is EQUAL


@pytest.mark.parametrize("place", [1, 4, 5, 6])
def test_what_algebra_does_not_cover_is_not_a_finding(place: int) -> None:
    """The account has a near decision, bits, a full table and values that left."""
    account = tuple(int(n == place) for n in range(7))
    assert _said(_launch([0], {}), _launch([1], {}, account)) is UNKNOWN
    equal = _said(_launch([0], {}), _launch([0], {}, account))
    assert equal is (EQUAL if place == 1 else UNKNOWN)


def test_a_formula_that_depends_on_the_order_of_threads_accuses_nobody() -> None:
    first, other = _launch([0], {}), _launch([0x3F800000], {})
    assert _said(first, other, other) is UNKNOWN
    assert _said(first, other, first) is DIFFERENT


def _on_run(run: algebra.RingRun, a: LaunchRecord, *numbers: LaunchRecord) -> Algebra:
    return algebra.judged(RING, [a], tuple, [run], Types(KERNEL, {}), numbers)["k"]


UNTYPED = parse("__global__ void k(void* y) {}").kernels


def test_a_buffer_of_no_known_type_says_nothing_where_it_holds_elements() -> None:
    """A key is the number of an element in one process."""
    key = 0x7FA00001
    types = Types(UNTYPED, {})

    def said(*words: int) -> ByAlgebra:
        a, b = _launch([*words], {key: 7}), _launch([*words], {key: 8})
        return algebra.judged(RING, [a], tuple, [algebra.RingRun("gfx942", [b])], types)[
            "k"
        ].verdict

    assert said(key) is UNKNOWN
    assert said(3, key | 1 << 31) is UNKNOWN
    assert said(3, 4) is EQUAL


def test_results_beyond_the_recordings_bound_say_nothing() -> None:
    launch = _launch([3], {})
    beyond = replace(launch, after={0: Content(4, "same")})
    assert _said(beyond, beyond) is UNKNOWN
    assert _said(launch, launch) is EQUAL


def test_more_values_than_a_launch_may_have_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "MOST_VALUES", 3)
    assert _said(_launch([1, 2, 3, 3], {}), _launch([1, 2, 3, 3], {})) is EQUAL
    assert _said(_launch([1, 2, 3, 4], {}), _launch([1, 2, 3, 4], {})) is UNKNOWN


def test_a_launch_that_only_the_port_fails_is_no_other_formula() -> None:
    launch = _launch([3], {})
    for other in (replace(launch, failed=True), replace(launch, refused=True)):
        assert _said(launch, other) is UNKNOWN
        assert _said(other, launch) is UNKNOWN


def test_a_kernel_whose_launches_are_not_all_reached_is_not_equal() -> None:
    launch = _launch([3], {})
    run = algebra.RingRun("gfx942", [launch])
    said = algebra.judged(RING, [launch] * 3, tuple, [run], Types(KERNEL, {}))["k"]
    assert said.verdict is UNKNOWN
    none = algebra.judged(RING, [launch], tuple, [algebra.RingRun("x", [])], Types(KERNEL, {}))["k"]
    assert none.verdict is UNKNOWN


def test_a_run_that_launches_otherwise_than_on_numbers_says_nothing() -> None:
    launch = _launch([3], {})
    wider = replace(launch, grid=(2, 1, 1))
    assert _on_run(algebra.RingRun("x", [launch]), launch, launch).verdict is EQUAL
    assert _on_run(algebra.RingRun("x", [launch]), launch, wider).verdict is UNKNOWN
    run = algebra.RingRun("x", [launch], numbers=[wider])
    assert _on_run(run, launch, launch).verdict is UNKNOWN


def test_what_is_infinite_on_the_ring_alone_is_not_compared() -> None:
    infinite, number = _launch([0x7F800000], {}), _launch([0x3F800000], {})
    run = algebra.RingRun("x", [infinite])
    assert _on_run(run, infinite, infinite).verdict is EQUAL
    assert _on_run(run, infinite, number).verdict is UNKNOWN


def test_a_run_with_a_problem_gives_its_reason() -> None:
    launch = _launch([3], {})
    run = algebra.RingRun("x", [_launch([4], {})], "it exits 3")
    assert _on_run(run, launch) == Algebra(UNKNOWN, "it exits 3")


def test_an_equality_counts_what_both_rest_on() -> None:
    a, b = (_launch([3], {}, (n, 0, 0, 0, 0, 0, 0)) for n in (2, 3))
    assert str(_on_run(algebra.RingRun("x", [b]), a)).count("5 comparisons") == 1


def test_a_recording_with_elements_that_is_cut_off_keeps_its_beginning() -> None:
    line = (
        b'{"launch": 0, "kernel": "k", "grid": [1,1,1], "block": [1,1,1], "shared": 0, '
        b'"after": [[0, 4, "", 4, -1]], "algebra": [1,0,0,0,0,0,0], "elements": 56, "blob": 4}\n'
    )
    whole = line + b"\0" * 60
    (launch,) = read(whole)
    assert (launch.account[0], len(launch.elements)) == (1, 56)
    assert len(read(whole + line + b"\0" * 59)) == 1


# ---- mutants of the study


def test_mutants_lack_one_term_each_and_of_numbers_alone() -> None:
    source = (
        "__global__ void k(float* y, const float* x, float a, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  float s = 0.0f;\n"
        "  for (int j = 0; j < n; j++) s += a * x[i * n + j];\n"
        "  y[i] = s - a;\n"
        "}\n"
    )
    text, mutants = mutated(source, 1, 9)
    assert mutated(source, 1, 9) == (text, mutants)
    assert {(one.kind, one.line) for one in mutants} >= {("term", 5)}
    assert all(one.line in (4, 5) for one in mutants)
    assert len(re.findall(r"mutant_is\(\d+\)", text)) == len(mutants)
    _, few = mutated(source, 1, 1)
    assert len(few) == 1
