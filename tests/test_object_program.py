"""Whole programs whose kernels are executed as they are compiled for an AMD GPU."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from portkern.cli import main
from portkern.cuda_source.syntax import parse
from portkern.errors import BuildError, LaunchError
from portkern.evaluator import object_program
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.evaluator.jailed_process import JailedProcesses
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, prove, recording
from portkern.port.proof.compare import Difference, Judged, LaunchResult, Types, compare
from portkern.port.proof.conclusion import _as_compiled
from portkern.port.proof.examine import Compared, Examination, Examiner, _Progress
from portkern.port.proof.findings import Text
from portkern.port.proof.recording import Content, LaunchRecord
from portkern.port.proof.runs import Program, ProgramRun
from portkern.simt.execute import runtime_library
from portkern.simt.execute.compile_options import CompileOptions
from portkern.simt.execute.program import ProgramOutcome
from portkern.simt.translate.rewrite import rewrite_tree
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.toolchain.source_view import SourceView
from portkern.worker.object_device import ObjectMemoryDevice
from portkern.worker.object_link import Asked, Variables
from portkern.worker.protocol import RECORD, Execute

GFX942 = target.load("gfx942")
_FOUND = [runtime_library.find(), registry.load("hip").venues(GFX942).object]
EXECUTES = pytest.mark.skipif(
    any(isinstance(found, Missing) for found in _FOUND), reason=str(_FOUND)
)

#: Launches of all kinds: templates, macros, what stays in the file, structures, variables.
MANY = r"""
#include <hip/hip_runtime.h>
#include <cstdio>
#include <vector>
struct Rows { const float* from; float* to; int n; };
__device__ int counter;
__constant__ float table[4];
template <class T> __global__ void scale(T* y, const T* x, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { y[i] = a * x[i] + (T)table[i % 4]; atomicAdd(&counter, 1); }
}
namespace { template <int N, class... A> __global__ void
sum(Rows rows, A... rest)
{
  __shared__ float part[256];
  unsigned long long now;
  asm volatile("s_memtime %0\n s_waitcnt lgkmcnt(0)" : "=s"(now));  // no model of the source has it
  part[threadIdx.x] = 0;
  for (int k = threadIdx.x; k < rows.n; k += 256) part[threadIdx.x] += rows.from[k];
  __syncthreads();
  for (int w = 128; w; w /= 2) {
    if ((int)threadIdx.x < w) part[threadIdx.x] += part[threadIdx.x + w];
    __syncthreads();
  }
  if (threadIdx.x == 0) *rows.to = part[0] + N + (0.0f + ... + rest);
} }
static __global__ void twice(float4* y, int) { y[threadIdx.x].x *= 2; }
#define DEFINE(name, op) __global__ __launch_bounds__(256) void name(float* y, int n = 4) { \
  extern __shared__ float all[]; all[threadIdx.x] = 2; __syncthreads();                    \
  if ((int)threadIdx.x < n) y[threadIdx.x] = y[threadIdx.x] op all[63 - threadIdx.x]; }
DEFINE(plus2, +)
int main(int argc, char** argv) {
  const int n = 1000; std::vector<float> h(n, 1.5f); float t[4] = {0, 1, 2, 3}, total; int c;
  float *x, *y, *z; hipMalloc(&x, 4 * n); hipMalloc(&y, 4 * n); hipMalloc(&z, 4);
  hipMemcpy(x, h.data(), 4 * n, hipMemcpyHostToDevice);
  hipMemcpyToSymbol(HIP_SYMBOL(table), t, sizeof t);
  scale<<<4, 256>>>(y, x, 2.f, n);
  twice<<<1, 64>>>((float4*)y, 3);
  hipLaunchKernelGGL(plus2, dim3(1), dim3(64), 256, 0, y, 5);
  sum<5><<<1, 256>>>(Rows{x, z, n}, 1.f, 2.f);
  hipMemcpy(h.data(), y, 4 * n, hipMemcpyDeviceToHost);
  hipMemcpy(&total, z, 4, hipMemcpyDeviceToHost);
  hipMemcpyFromSymbol(&c, HIP_SYMBOL(counter), 4);
  printf("%g %g %g %g, %d counted, sum %g, %s\n", h[0], h[1], h[5], h[999], c, total, argv[1]);
  return argc + (int)hipGetLastError();
}
"""


def run(source: str, tmp_path: Path, *options: str) -> tuple[int, Path]:
    file = tmp_path / "program.hip"
    file.write_text(source, encoding="utf-8")
    return main.run(["run", str(file), "venue=object", *options]), file


@pytest.mark.full
@EXECUTES
def test_a_program_launches_what_the_compiler_made_of_its_kernels(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(MANY, tmp_path, "target=gfx942", "json=true", "sanitize=all", "--", "given")
    said: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert said["output"] == "8 6 4 6, 1000 counted, sum 1508, given\n"
    assert (said["status"], said["findings"], code) == (2, [], 1)


WAITS = r"""
#include <hip/hip_runtime.h>
#include <cstdio>
__device__ void enter(int* lock) { while (atomicCAS(lock, 0, 1) != 0) { } }  // by_lanes
__global__ void by_lanes(int* lock, float* y) {
  if (threadIdx.x % 32 == 0) enter(lock);
  y[threadIdx.x] += 1;
  __threadfence();
  if (threadIdx.x % 32 == 0) atomicExch(lock, 0);
}
__global__ void by_blocks(int* arrived, float* y) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < (int)gridDim.x) { }  // by_blocks
  }
  __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void outside(int* n, float* y) {
  y[threadIdx.x + *n] = 1;  // outside
}
int main() {
  int* state; float* y; hipMalloc(&state, 4); hipMalloc(&y, 256); hipMemset(state, 0, 4);
  LAUNCH;
  printf("%d\n", (int)hipDeviceSynchronize());
}
"""


@pytest.mark.full
@EXECUTES
@pytest.mark.parametrize(
    ("launch", "arch", "code"),
    [
        pytest.param("by_lanes<<<1, 64>>>(state, y)", "gfx942", "SX312", id="lanes"),
        pytest.param("by_blocks<<<4096, 256>>>(state, y)", "gfx942", "SX315", id="blocks"),
        pytest.param("outside<<<1, 65>>>(state, y)", "gfx1100", "SX101", id="outside"),
        pytest.param("by_lanes<<<1, 64>>>(state, y)", "gfx1100", "", id="lanes-32"),
        pytest.param("by_blocks<<<100, 64>>>(state, y)", "gfx942", "", id="few-blocks"),
    ],
)
@pytest.mark.sampled("code")
def test_what_hangs_or_leaves_a_buffer_is_said_with_its_line(
    launch: str, arch: str, code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = WAITS.replace("LAUNCH", launch)
    run(source, tmp_path, f"target={arch}", "json=true")
    found = json.loads(capfd.readouterr().out)["findings"]
    assert [one["code"] for one in found] == ([code] if code else [])
    lines = {line.partition("// ")[2]: n for n, line in enumerate(source.splitlines(), 1)}
    for one in found:
        assert one["line"] == lines[launch.partition("<")[0]], one


def test_kernels_hand_over_all_of_their_parameters(tmp_path: Path) -> None:
    file = tmp_path / "k.hip"
    file.write_text(
        "__global__ void a(const float* x, int n = 3, float*, unsigned, struct S s[]) {\n"
        "  x[0];\n}\n"
        "template <class T, class... R> __global__ __launch_bounds__(64) void\n"
        "b(T, const R... rest) { many(); }\n"
        "__global__ void two(A<int, 3> d, const B<C<int, 2>, 4>&, float* y = g<1, 2>(3), int z = 1)"
        " { y[0]; }\n"
        "#define K(name) __global__ void name(void) { one(); }\n"
        "__global__ void declared(int);\n"
        "__global__ void c(void (*f)(int)) { f(1); }\n",
        encoding="utf-8",
    )
    tree = rewrite_tree(file, tmp_path / "out", objects=True)
    text = tree.main.read_text(encoding="utf-8")
    assert "as_object(x, n, simt_p2, simt_p3, s)" in text
    assert "b(T simt_p0, const R... rest) {" in text
    assert "as_object(simt_p0, rest...)" in text
    assert "as_object()) return; one();" in text
    assert "as_object(d, simt_p1, y, z)" in text
    assert text.count("as_object") == 4, text
    assert "x[0]" not in text and "many" not in text  # what the device's compiler takes, it has
    assert "f(1)" in text


def test_objects_are_for_hip_programs_and_their_checkers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, said in (
        (["target=gfx942", "venue=objects"], "venue"),
        (["target=gfx942", "venue=object", "sanitize=races"], "races"),
        (["target=gfx942", "venue=object", "jail=false"], "jail"),
        (["target=sm_90", "venue=object"], "HIP"),
    ):
        file = tmp_path / "p.hip"
        file.write_text("#include <hip/hip_runtime.h>\nint main() {}\n", encoding="utf-8")
        assert main.run(["run", str(file), *options]) != 0
        assert said in capsys.readouterr().err


#: Right where one compiler builds it, and wrong as the target's does.
BY_COMPILER = """
#include <RUNTIME>
#ifdef __clang__
#define FACTOR 3
#else
#define FACTOR 2
#endif
__global__ void scaled(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i];
}
__global__ void waved(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = expf(x[i]) / (1 + expf(x[i]));
}
void launch(float* y, const float* x, int n) {
  scaled<<<(n + 255) / 256, 256>>>(y, x, n);
  waved<<<(n + 255) / 256, 256>>>(y, x, n);
}
"""


def _proofs(text: str, folder: Path) -> dict[str, KernelProof]:
    """The proofs of a text as its own port, run as it is compiled too."""
    original, ported = folder / "k.cu", folder / "k.hip"
    original.write_text(text.replace("RUNTIME", "cuda_runtime.h"), encoding="utf-8")
    hip = text.replace("RUNTIME", "hip/hip_runtime.h").replace("cuda", "hip")
    ported.write_text(hip, encoding="utf-8")
    return {
        proof.kernel: proof
        for proof in prove(
            ProofSource(original, "cuda"),
            ProofSource(ported, "hip"),
            target=GFX942,
            other=None,
            kernels=parse(ported.read_text("utf-8")).kernels,
            workdir=folder / "work",
            limits=ProofLimits(run_s=30.0, objects=(GFX942,)),
        )
    }


@pytest.mark.full
@EXECUTES
def test_a_port_is_proven_as_it_is_compiled_too(tmp_path: Path) -> None:
    proofs = _proofs(BY_COMPILER, tmp_path)
    assert proofs["waved"].outcome is Outcome.PROVEN, proofs
    assert "the code compiled for gfx942 does the same" in proofs["waved"].why
    assert proofs["scaled"].outcome is Outcome.WRONG, proofs
    assert "in the code compiled for gfx942" in proofs["scaled"].why


#: Sums of what nobody wrote: the tail of a tile, and counts that do not begin with 0.
UNWRITTEN = """
#include <RUNTIME>
__global__ void tailed(float* sums, const float* x, int n) {
  __shared__ float tile[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int t = 0; t < 64; ++t) sum += tile[t];
    sums[blockIdx.x] = sum;
  }
}
__global__ void counted(int* y, const float* x) {
  __shared__ int counts[2];
  atomicAdd(&counts[x[threadIdx.x] > 0], 1);
  __syncthreads();
  if (threadIdx.x < 2) y[threadIdx.x] = counts[threadIdx.x];
}
int main() {
  float *x, *y, h[100] = {1};
  int* z;
  cudaMalloc(&x, sizeof h), cudaMalloc(&y, sizeof h), cudaMalloc(&z, 8);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemset(y, 0, sizeof h);
  tailed<<<2, 64>>>(y, x, 100);
  counted<<<1, 64>>>(z, x);
  cudaDeviceSynchronize();
}
"""


@pytest.mark.full
@EXECUTES
def test_what_the_original_reads_unwritten_does_not_make_the_port_wrong(tmp_path: Path) -> None:
    proofs = _proofs(UNWRITTEN, tmp_path)
    assert {proof.outcome for proof in proofs.values()} == {Outcome.UNPROVEN}, proofs
    assert all("SX107" in proof.why for proof in proofs.values())


#: A kernel that writes 2 to each element, and host code that would have had it write 1.
FORGES = r"""
#include <hip/hip_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <unistd.h>
__global__ void honest(int* y, int value) { y[threadIdx.x] = value; }
__global__ void wrong(int* y, int value) { y[threadIdx.x] = 2; }
static void all_files(const std::string& folder, const std::string& text) {
  if (DIR* open_ = opendir(folder.c_str())) while (dirent* one = readdir(open_)) {
    const int file = open((folder + "/" + one->d_name).c_str(), O_WRONLY | O_APPEND);
    if (file >= 0) (void)!write(file, text.data(), text.size());
  }
}
int main(int, char** argv) {
  const std::string how = argv[1];
  int *y, values[4]; hipMalloc(&y, 16);
  unsigned char ones[16]; for (int i = 0; i < 16; ++i) ones[i] = i % 4 == 0;
  std::string forged = "{\"launch\": 0, \"kernel\": \"wrong\", \"grid\": [1, 1, 1], "
      "\"block\": [4, 1, 1], \"shared\": 0, \"after\": [[0, 16, \"0\", 16, -1]], \"blob\": 16}\n";
  forged.append((char*)ones, 16);
  const std::string parent = "/proc/" + std::to_string(getppid());
  if (how == "files") {
    const std::string results = std::string(getenv("HOME")) + "/results";
    const int file = open((results + "/record").c_str(), O_WRONLY | O_CREAT, 0644);
    (void)!write(file, forged.data(), forged.size());
    all_files(results, forged);
    all_files(parent + "/fd", forged);
  }
  if (how == "handles") for (int h = 3; h < 5; ++h) (void)!write(h, forged.data(), forged.size());
  if (how == "memory" && open((parent + "/mem").c_str(), O_RDWR) >= 0) return 7;
  if (how == "waits") pause();
  if (how == "ends") _exit(0);
  if (how == "channel") for (int h = 3; h < 30; ++h)
    dprintf(h, "{\"kernel\": \"wrong\", \"symbol\": \"_Z6honestPii\", \"grid\": [1, 1, 1], "
               "\"block\": [4, 1, 1], \"dynamic\": 0, \"arguments\": [0, 4]}\n%.4s", (char*)ones);
  wrong<<<1, 4>>>(y, 1);
  hipMemcpy(values, y, 16, hipMemcpyDeviceToHost);
  printf("%d\n", values[3]);
}
"""


@pytest.mark.full
@EXECUTES
def test_what_a_compiled_kernel_did_is_not_the_programs_word(tmp_path: Path) -> None:
    """Whatever its host code writes to files, handles, the device's process or its channel."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    file = tmp_path / "forges.hip"
    file.write_text(FORGES, encoding="utf-8")
    with JailedCompilers(SourceView.of([file])) as compilers:
        library, code = object_program.build(
            compilers, file, tmp_path / "forges", CompileOptions(target=GFX942, language="hip")
        )
    for made in (library, code):
        made.chmod(0o755)
    limit_s = 20.0
    command = object_program.command(library, code, GFX942, limit_s=limit_s, record_bytes=1 << 20)
    seen: dict[str, tuple[list[tuple[str, bytes | None]], set[str]]] = {}
    with JailedProcesses([tmp_path, *object_program.reads()]) as processes:
        for how in ("plainly", "files", "handles", "memory", "channel", "ends", "waits"):
            ended = processes.run(
                Execute(
                    (*command, how),
                    str(tmp_path),
                    "gfx942",
                    "hip",
                    (),
                    limit_s,
                    record_bytes=1 << 20,
                    apart=True,
                )
            )
            launches = [
                (launch.kernel, content.data)
                for launch in recording.read(ended.files.get(RECORD, b""))
                for content in launch.after.values()
            ]
            seen[how] = launches, ended.program.codes
            assert ended.program.status != 7, "the device's memory was opened"
    twos = [("wrong", bytes((2, 0, 0, 0)) * 4)]
    for how in ("plainly", "files", "handles", "memory"):
        assert seen.pop(how) == (twos, set()), how
    assert all(kernel != "wrong" or data == twos[0][1] for kernel, data in seen["channel"][0])
    assert seen["ends"] == ([], set())
    assert (seen["waits"][0], "SX703" in seen["waits"][1]) == ([], True)


def test_a_kernel_that_we_do_not_find_is_not_modelled_and_not_wrong() -> None:
    told: list[int] = []
    for error, code in ((BuildError("No kernel"), 701), (LaunchError("too many threads"), 401)):
        device: Any = ObjectMemoryDevice.__new__(ObjectMemoryDevice)
        device._variables, device._contents = (), {}
        device._arena = SimpleNamespace(keep=list)
        device._recording = SimpleNamespace(begin=list, end=lambda *_, failed: None)
        device._report = lambda *said: told.append(said[0])
        device._kernel = lambda _asked, error=error: (_ for _ in ()).throw(error)
        assert device._answer(Asked("k", "k", (1, 1, 1), (1, 1, 1), 0), (), ()).error != 0
        assert told.pop() == code


@pytest.mark.parametrize(("launches", "executed"), [(2, 1), (1, 0), (0, 0)])
def test_a_compiled_port_that_ends_early_without_a_finding_is_not_proven(
    launches: int, executed: int
) -> None:
    records = tuple(LaunchRecord(n, "k", (1, 1, 1), (64, 1, 1), 0) for n in range(2))
    examiner: Any = Examiner.__new__(Examiner)
    examiner._progress, examiner._types, examiner._limit_s = _Progress(), Types((), {}), 9.0
    run = ProgramRun(ProgramOutcome(1, "", (), ()), records[:launches], {})
    examiner._run = lambda _program: run
    first = ProgramRun(ProgramOutcome(0, "", (), ()), records, {})
    program = Program(Path("p"), ProofSource(Path("p.hip"), "hip"), GFX942, "fast")
    examiner._execute(first, program, GFX942)
    progress = examiner._progress
    assert (len(progress.executed), len(progress.unfinished)) == (executed, 1 - executed)


def test_what_differs_as_the_original_does_is_not_the_same() -> None:
    source = parse("__global__ void k(int* x) {}")
    text = Text(Path("k.hip"), "", source.kernels, ())
    how = "the code compiled for gfx942"
    apart = Difference(0, "x", 0, "1", "2", 1, 1)
    for judged in (Judged.EQUAL, Judged.DIFFERENT):
        result = LaunchResult(0, "k", judged, "", apart, 1)
        seen = Examination(
            executed=(Compared(how, (result,)),),
            unstable={0: LaunchResult(0, "k", Judged.DIFFERENT, "", apart, 1)},
        )
        said = _as_compiled(source.kernels[0], seen, text)
        assert said == ([f"{how} does the same"] if judged is Judged.EQUAL else [])


def test_a_compiled_kernel_need_not_change_new_memory_to_have_filled_it() -> None:
    """New memory may hold what the kernel writes, as -1 in integers: only what changes shows a
    write."""
    types = Types(parse("__global__ void k(int* x) {}").kernels, {})
    shape = (0, "k", (1, 1, 1), (4, 1, 1), 0, ((0, 0),))

    def judged(data: bytes | None, *, by_contents: bool) -> Judged:
        filled = LaunchRecord(*shape, after={0: Content(16, "f", data)})
        [result] = compare([filled], [LaunchRecord(*shape)], types, by_contents=by_contents)
        return result.judged

    assert judged(b"\xff" * 16, by_contents=True) is Judged.EQUAL
    assert judged(b"\xff" * 16, by_contents=False) is Judged.DIFFERENT
    assert judged(b"\xff" * 15 + b"\0", by_contents=True) is Judged.DIFFERENT
    assert judged(None, by_contents=True) is Judged.UNJUDGED


def test_a_table_of_functions_keeps_the_addresses_that_the_object_has() -> None:
    host, loaded = ctypes.create_string_buffer(b"hosthost", 8), ctypes.create_string_buffer(16)
    loaded.value, base = b"gpu.gpu.", ctypes.addressof(loaded)
    device: Any = ObjectMemoryDevice.__new__(ObjectMemoryDevice)
    variables = {"a": (0, 4), "b": (4, 4)}
    of_object = SimpleNamespace(relocations=((4, 0), (100, 0)), variables=variables)
    device._program = SimpleNamespace(base=base, object=of_object)
    places = [(name, ctypes.addressof(host) + k, 4) for name, k in (("a", 0), ("b", 4))]
    device._variables = device._shared(Variables(tuple(places)), [b"host", b"host"])
    assert [own for _, own in device._copy_in()] == [b"host", b"gpu."]
    host.raw = b"hostnew!"
    assert [own for _, own in device._copy_in()] == [b"host", b"new!"]
