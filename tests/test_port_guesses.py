"""Facts about a launch that the source does not say are collected in one place, and nothing that
rests on them is proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.cuda_source.syntax import parse
from portkern.errors import ConfigError
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, prove
from portkern.port.proof.case import ProofCase, read_cases, to_yaml
from portkern.port.proof.guesses import BLOCK, GRID, SHARED, Guess, of_variables, settled
from portkern.port.proof.infer import SCALES, propose
from portkern.port.proof.slice import Slices
from portkern.port.proof.texts import SourceTexts
from portkern.port.translate import translate
from portkern.simt.execute import runtime_library
from portkern.spec import target
from portkern.spec.backend import Missing

COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)

KERNEL = """__global__ void k(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
"""
SHARING = """__global__ void k(float* x, int n) {
  extern __shared__ float part[];
  part[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x] * n;
}
"""


def proposed(text: str, folder: Path, **asked: int) -> ProofCase:
    path = folder / "k.cu"
    path.write_text(text, encoding="utf-8")
    texts = SourceTexts(ProofSource(path, "cuda"))
    case = propose(texts.kernels[0], texts, SCALES[1], warp=32, **asked)
    assert isinstance(case, ProofCase), case
    return case


def guessed(text: str, folder: Path) -> set[str]:
    return {guess.what for guess in proposed(text, folder).guesses}


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("void run(float* x, int n, int threads) {", id="a parameter"),
        pytest.param("void run(float* x, int n) { int threads = chosen(n);", id="another function"),
        pytest.param(
            "void run(float* x, int n) { int threads = 32; while (threads < n) threads *= 2;",
            id="a loop",
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; if (n > 9) threads = 512;",
            id="assigned on one way",
        ),
        pytest.param(
            "void run(float* x, int n) { int least = 0, threads = 128; "
            "cudaOccupancyMaxPotentialBlockSize(&least, &threads, k, 0, 0);",
            id="by its address",
        ),
        pytest.param("void run(float* x, int n) { int threads = 128; pick(threads);", id="taken"),
        pytest.param(
            "void pick(int&);\nvoid run(float* x, int n) { int threads = 128; pick(threads);",
            id="by reference",
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; std::cin >> threads;", id="read"
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; int& u = threads; u = 64;", id="bound"
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; std::tie(threads, n) = f();", id="tied"
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; int* p{&threads}; *p = 64;",
            id="by its address in braces",
        ),
        pytest.param(
            "struct Parser { explicit Parser(int& t) { t = 64; } };\n"
            "void run(float* x, int n) { int threads = 128; Parser p(threads);",
            id="given to a constructor",
        ),
        pytest.param(
            "struct Parser { int& t; };\n"
            "void run(float* x, int n) { int threads = 128; Parser p{threads}; p.t = 64;",
            id="a member that is a reference",
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; Unknown p(threads);",
            id="given to a class that is elsewhere",
        ),
        pytest.param(
            "void run(float* x, int n) { int threads = 128; do { x += 1; if (n) threads = 64;",
            id="changed before it in a loop",
        ),
        pytest.param(
            "void other(float* x) {\n  int threads = 128;\n  cudaFree(x);\n}\n"
            "void run(float* x, int n, int threads) {",
            id="another function's variable of that name",
        ),
    ],
)
def test_a_block_that_host_code_does_not_say_is_a_guess(host: str, tmp_path: Path) -> None:
    launch = "k<<<(n + threads - 1) / threads, threads>>>(x, n); }\n"
    assert BLOCK in guessed(f"{KERNEL}{host}\n  {launch}", tmp_path)


@pytest.mark.parametrize(
    "struct",
    [
        "",
        "struct P;",
        "struct P { int& t; };",
        "struct P { int *at, &t; };",
        "struct P { int& t = other; };",
        "struct P { int (&t)[1]; };",
        "using Number = int&;\nstruct P { Number t; };",
        "#define MEMBER(x) int& x\nstruct P { MEMBER(t); };",
        "#define P(x) change(x)\nstruct P { int t; };",
        "struct Q { int& t; };\nstruct P : Q { int n; };",
        "struct P { int n; P(int& t) : n(t) { t = 64; } };",
        "struct P { int n; template <class T> P(T&& t) { t = 64; } };",
        "namespace a { struct P { int n; }; }\nnamespace b { struct P { int& t; }; }",
    ],
)
@pytest.mark.parametrize("made", ["auto p = P{threads};", "launch(P(threads));"])
def test_a_block_that_a_struct_without_a_name_may_change_is_a_guess(
    struct: str, made: str, tmp_path: Path
) -> None:
    run = f"void run(float* x, int n) {{\n  int threads = 128;\n  {made}\n"
    launch = "  k<<<(n + threads - 1) / threads, threads>>>(x, n);\n}\n"
    assert BLOCK in guessed(f"{KERNEL}{struct}\n{run}{launch}", tmp_path)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("auto go = [&] { LAUNCH };\n  threads = 512;\n  go();", id="a lambda"),
        pytest.param(
            "auto go = [&, n](int m) { LAUNCH };\n  threads *= 2;\n  go(1);", id="of some"
        ),
        pytest.param("for (int i = 0; i < f(n); ++i) { LAUNCH threads *= 2; }", id="a loop"),
        pytest.param(
            "do { LAUNCH threads = 64; } while (--n);", id="a loop that ends with its test"
        ),
    ],
)
def test_a_block_that_changes_behind_its_launch_is_a_guess(host: str, tmp_path: Path) -> None:
    host = host.replace("LAUNCH", "k<<<(n + threads - 1) / threads, threads>>>(x, n);")
    run = f"void run(float* x, int n) {{\n  int threads = 128;\n  {host}\n}}\n"
    assert BLOCK in guessed(f"{KERNEL}{run}", tmp_path)


@pytest.mark.parametrize(
    ("host", "block"),
    [
        pytest.param("const int threads = 128;", 128, id="a constant"),
        pytest.param("int threads;\n  threads = 2 * 96;", 192, id="assigned once"),
        pytest.param("size_t m = std::max(n, 7), threads = 3 * 32;", 96, id="declared with others"),
        pytest.param("const LL threads = 2 * 32LL;", 64, id="of a type by another name"),
        pytest.param("const int threads = n < 2000 ? 64 : 512;", 64, id="chosen by a size"),
        pytest.param("{ int threads = 32; }\n  int threads = 64;", 64, id="declared anew"),
        pytest.param("auto threads = std::min(n, 512);", 512, id="from what the kernel is given"),
        pytest.param("int threads = 128;\n  { int threads = 64; }", 128, id="hidden in a block"),
        pytest.param(
            "int threads = 128;\n  TORCH_CHECK(threads > 0, threads);\n  dim3 one(threads);\n"
            "  other<<<n, threads, 0>>>(x, threads);\n  cudaMalloc(&p, threads);\n"
            "  int m = div_up(n, threads) + std::max(threads, n) + int(threads);",
            128,
            id="given on by value",
        ),
        pytest.param(
            "struct P { int t; };\n  int threads = 128;\n  P p{threads};\n  dim3 one{threads, 1};",
            128,
            id="copied into a struct",
        ),
        pytest.param(
            "struct P { int t; const float* at[2]; size_t b = 3; P() = default;\n"
            "    bool ok() const { if (b & 1) { return true; } return false; } };\n"
            "  int threads = 128;\n  auto p = P{threads, 1};\n  launch(P{threads}, n);\n"
            "  auto go = [](int threads) { return P{threads}; };",
            128,
            id="copied into a struct without a name",
        ),
        pytest.param("int threads = 128;\n  for (int i = 0; i < 3; ++i) {", 128, id="in a loop"),
        pytest.param("int threads = 64;\n  auto go = [&] {", 64, id="in a lambda"),
        pytest.param("int threads = 64;\n  auto go = [=] {", 64, id="in a lambda of copies"),
    ],
)
def test_a_block_that_follows_from_the_text_and_the_sizes_is_none(
    host: str, block: int, tmp_path: Path
) -> None:
    run = f"void run(float* x, int n) {{\n  {host}\n"
    launch = "  k<<<(n + threads - 1) / threads, threads>>>(x, n);\n}\n"
    case = proposed(f"{KERNEL}{run}{launch}", tmp_path)
    assert (case.guesses, case.block) == ((), (block, 1, 1))


@pytest.mark.parametrize(
    ("shared", "host", "known"),
    [
        ("128 * sizeof(float)", "", 512),
        ("n * sizeof(float)", "", 4096),
        ("smem", "size_t smem = sizeof(double) * 64;", 512),
        ("smem", "", None),
        ("bytes", "size_t bytes = asked(n);", None),
        ("sizeof(Unknown) * 8", "", None),
        ("smem", "size_t smem = 64; if (n > 99) smem += 64;", None),
    ],
)
def test_dynamic_shared_memory_is_computed_or_a_guess(
    shared: str, host: str, known: int | None, tmp_path: Path
) -> None:
    run = f"void run(float* x, int n, size_t {'smem' if not host else 'unused'}) {{\n  {host}\n"
    case = proposed(f"{SHARING}{run}  k<<<4, 128, {shared}>>>(x, n);\n}}\n", tmp_path)
    assert [guess.what for guess in case.guesses] == ([] if known else [SHARED])
    assert known in (None, case.shared)


@pytest.mark.parametrize(("type_", "bytes_"), [("double", 512), ("int64_t", 512), ("half", 128)])
def test_the_size_of_a_tensors_elements_is_that_of_the_kernels_parameter(
    type_: str, bytes_: int, tmp_path: Path
) -> None:
    kernel = SHARING.replace("float* x", f"{type_}* x, const float* y")
    launch = f"k<<<4, 64, bytes>>>(x.data_ptr<{type_}>(), y.data_ptr<float>(), n);"
    host = "void run(torch::Tensor x, torch::Tensor y, int n) {\n"
    text = f"{kernel}{host}  size_t bytes = 64 * x.element_size();\n  {launch}\n}}\n"
    case = proposed(text, tmp_path)
    assert (case.guesses, case.shared) == ((), bytes_)
    other = proposed(text.replace("x.element_size", "z.element_size"), tmp_path)
    assert [guess.what for guess in other.guesses] == [SHARED]


def test_a_constant_that_only_a_compiler_knows_is_left_to_it(tmp_path: Path) -> None:
    traits = """template <int N, typename T> struct Traits {
  struct Storage { T part[N + 3]; };
  static constexpr int kBytes = sizeof(Storage);
};
template <typename K> __global__ void k(float* x, int n) {
  extern __shared__ float part[];
  part[threadIdx.x] = x[threadIdx.x] * n;
  __syncthreads();
  x[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
void run(float* x, int n) {
  using K = Traits<64, float>;
  constexpr int kBytes = K::kBytes;
  k<K><<<4, 64, kBytes>>>(x, n);
}
"""
    case = proposed(traits, tmp_path)
    assert (case.guesses, case.shared) == ((), "Traits<64, float>::kBytes")
    path = tmp_path / "case.yaml"
    path.write_text(to_yaml(case), encoding="utf-8")
    assert read_cases(path)["k"] == case
    path.write_text(to_yaml(case).replace("Traits<64", "exit(1), Traits<64"), encoding="utf-8")
    with pytest.raises(ConfigError, match="shared"):
        read_cases(path)


def test_memory_that_no_device_code_uses_is_not_a_guess(tmp_path: Path) -> None:
    run = "void run(float* x, int n, int smem) { k<<<n, 64, smem>>>(x, n); }\n"
    assert guessed(KERNEL + run, tmp_path) == set()


@pytest.mark.parametrize(
    ("grid", "host", "is_guess"),
    [
        ("(x.numel() + 63) / 64", "", False),
        ("dim3(x.size(0), x.size(-1))", "", False),
        ("blocks", "const int blocks = (x.numel() + 63) / 64;", False),
        ("rows[i]", "", False),
        ("4 * count", "int count; cudaDeviceGetAttribute(&count, multiProcessorCount, 0);", False),
        ("blocks", "", True),
        ("blocks", "int blocks = asked_of(n);", True),
    ],
)
def test_a_grid_follows_from_sizes_or_is_a_guess(
    grid: str, host: str, is_guess: bool, tmp_path: Path
) -> None:
    parameter = "" if host else ", int blocks"
    head = f"void run(torch::Tensor x, const int* rows, int i, int n{parameter}) {{\n  {host}\n"
    text = f"{KERNEL}{head}  k<<<{grid}, 64>>>(x.data_ptr<float>(), n);\n}}\n"
    assert guessed(text, tmp_path) == ({GRID} if is_guess else set())


def test_of_a_kernel_that_nothing_launches_all_is_a_guess(tmp_path: Path) -> None:
    assert guessed(KERNEL, tmp_path) == {BLOCK, GRID}
    assert guessed(SHARING, tmp_path) == {BLOCK, GRID, SHARED}


def test_a_large_grid_has_its_first_blocks(tmp_path: Path) -> None:
    run = "void run(float* x, int n) { k<<<dim3(n, 1000, 3), 64>>>(x, n); }\n"
    case = proposed(KERNEL + run, tmp_path)
    assert case.guesses == () and case.grid[2] == 3
    assert case.grid[0] * case.grid[1] * case.grid[2] <= 4096


def test_attributes_of_a_launch_are_a_guess(tmp_path: Path) -> None:
    run = """void run(float* x, int n) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute own[1];
  own[0].id = cudaLaunchAttributeClusterDimension;
  config.gridDim = 4; config.blockDim = 64;
  ATTRIBUTES
  cudaLaunchKernelEx(&config, k, x, n);
}
"""
    with_them = run.replace("ATTRIBUTES", "config.attrs = own; config.numAttrs = 1;")
    assert guessed(KERNEL + with_them, tmp_path) == {"attributes of the launch"}
    plain = run.replace("ATTRIBUTES", "").replace("cudaLaunchAttribute", "int")
    assert guessed(KERNEL + plain, tmp_path) == set()


@pytest.mark.parametrize(
    ("body", "is_reached"),
    [("x[0] *= weights[1];", True), ("x[0] = scaled(x[0]);", True), ("x[0] = 1;", False)],
)
def test_what_host_code_brings_to_a_variable_is_a_guess_of_kernels_that_reach_it(
    body: str, is_reached: bool
) -> None:
    text = f"""__constant__ float weights[4];
__device__ float scaled(float a) {{ return a * weights[0]; }}
__global__ void k(float* x) {{ {body} }}
void run(const float* w) {{ cudaMemcpyToSymbol(weights, w, 16); }}
"""
    found = list(of_variables(Slices([text]).reached(["k"]), text))
    assert [guess.what for guess in found] == ["what host code sets weights to"] * is_reached


def test_the_verdict_names_what_was_assumed_and_what_was_tried() -> None:
    proof = KernelProof("k", Path("k.hip"), 1, Outcome.PROVEN, "")
    guesses = [Guess(BLOCK, "256"), Guess(SHARED, "16384 bytes"), Guess(BLOCK, "64")]
    said = settled(proof, guesses)
    assert said.outcome is Outcome.UNPROVEN
    assert said.why == f"{BLOCK}: tried 256, 64; {SHARED}: tried 16384 bytes"
    assert settled(proof, ()) == proof
    for outcome in (Outcome.WRONG, Outcome.NEEDS_HUMAN, Outcome.NEEDS_HARDWARE):
        other = KernelProof("k", Path("k.hip"), 1, outcome, "as it is")
        assert settled(other, guesses) == other


def proof_of(original: str, ported: str, folder: Path) -> KernelProof:
    paths = folder / "k.cu", folder / "ported" / "k.cu"
    paths[1].parent.mkdir()
    for path, text in zip(paths, (original, translate(ported, "k.cu").text), strict=True):
        path.write_text(text, encoding="utf-8")
    [proof] = prove(
        ProofSource(paths[0], "cuda"),
        ProofSource(paths[1], "hip"),
        target=target.load("gfx942"),
        other=None,
        kernels=parse(paths[1].read_text("utf-8")).kernels,
        workdir=folder / "work",
        limits=ProofLimits(run_s=60),
    )
    return proof


UNKNOWN = """void run(float* x, int n, int threads) {
  k<<<(n + threads - 1) / threads, threads>>>(x, n);
}
"""


@pytest.mark.full
@COMPILES
def test_a_kernel_with_a_block_of_unknown_size_is_tried_with_several_and_not_proven(
    tmp_path: Path,
) -> None:
    proof = proof_of(KERNEL + UNKNOWN, KERNEL + UNKNOWN, tmp_path)
    assert proof.outcome is Outcome.UNPROVEN
    assert proof.why == f"{BLOCK}: tried 256, 64, 1024"


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        pytest.param("blockDim.x == 64", Outcome.UNPROVEN, id="with a size that was drawn"),
        pytest.param("blockDim.x > 0", Outcome.WRONG, id="with any"),
    ],
)
def test_a_port_that_differs_with_drawn_blocks_alone_is_not_accused(
    condition: str, outcome: Outcome, tmp_path: Path
) -> None:
    ported = KERNEL.replace("x[i] *= 2", f"x[i] *= {condition} ? 3 : 2")
    proof = proof_of(KERNEL + UNKNOWN, ported + UNKNOWN, tmp_path)
    assert proof.outcome is outcome, proof.why
    if outcome is Outcome.UNPROVEN:
        assert proof.why.startswith(f"{BLOCK}: with 64 threads on gfx942")


@pytest.mark.full
@COMPILES
def test_a_launch_in_sight_proves_what_none_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    run = "void run(float* x, int n) { k<<<(n + 95) / 96, 96>>>(x, n); }\n"
    proof = proof_of(KERNEL + run, KERNEL + run, tmp_path / "a")
    assert (proof.outcome, proof.why) == (Outcome.PROVEN, "")
    proof = proof_of(KERNEL, KERNEL, tmp_path / "b")
    assert proof.outcome is Outcome.UNPROVEN and BLOCK in proof.why and GRID in proof.why


@pytest.mark.full
@COMPILES
def test_memory_as_a_compiler_knows_it_is_launched(tmp_path: Path) -> None:
    text = """template <int N, typename T> struct Traits {
  struct Storage { T part[N]; };
  static constexpr int kBytes = sizeof(Storage);
};
template <typename K> __global__ void k(float* x, int n) {
  extern __shared__ float part[];
  part[threadIdx.x] = x[threadIdx.x] * n;
  __syncthreads();
  x[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
void run(float* x, int n) {
  using K = Traits<64, float>;
  k<K><<<1, 64, K::kBytes>>>(x, n);
}
"""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    proof = proof_of(text, text, tmp_path / "a")
    assert proof.outcome is Outcome.PROVEN, proof.why
    short = text.replace("T part[N]", "T part[N / 2]")
    proof = proof_of(short, short, tmp_path / "b")
    assert proof.outcome is Outcome.UNPROVEN, proof.why
