"""``portkern run``: programs in the SIMT executor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.simt.execute import runtime_library
from portkern.spec.backend import Missing

SUM = """
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__global__ void add(int* x) { BODY }
int main(int argc, char** argv) {
  int *x, host = 0;
  cudaMalloc(&x, sizeof(int));
  cudaMemset(x, 0, sizeof(int));
  add<<<1, 64>>>(x);
  cudaMemcpy(&host, x, sizeof(int), cudaMemcpyDeviceToHost);
  printf("%d %s\\n", host, argc > 1 ? argv[1] : "-");
  return STATUS;
}
"""
BLAS = """
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>
int main() {
  float *x, host[2] = {3, 4}, length = 0;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cublasHandle_t handle;
  cublasCreate(&handle);
  if (cublasSnrm2(handle, 2, x, 1, &length) != CUBLAS_STATUS_SUCCESS) return 1;
  printf("%g\\n", length);
  return 0;
}
"""
EXTENSION = """
#include <torch/extension.h>
torch::Tensor same(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("same", &same, "What it was given"); }
"""
COMPILES = pytest.mark.skipif(
    isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find())
)


HOST_USE = r"""#include <cstdio>
__global__ void add(int* x) { *x += 1; }
int main() {
    int* x;
    cudaMalloc(&x, 4); cudaMemset(x, 0, 4); add<<<1, 1>>>(x);
    BODY
    return 0;
}
"""


def portkern(*argv: str) -> int:
    return main.run(["run", *argv])


def written(folder: Path, text: str) -> str:
    file = folder / "program.cu"
    file.write_text(text, encoding="utf-8")
    return str(file)


@COMPILES
@pytest.mark.parametrize("where", ["sm_90", "gfx942"])
def test_a_program_runs_at_the_targets_width(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, SUM.replace("BODY", "if (threadIdx.x == 0) *x = warpSize;"))
    assert portkern(source, f"target={where}", "define=[STATUS=0]", "--", "--help") == 0
    assert capfd.readouterr().out == f"{32 if where == 'sm_90' else 64} --help\n"


@COMPILES
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("*x = 3;", "program.cu:6: error: SX114 host code writes device memory"),
        ('printf("%d", *x);', "program.cu:6: error: SX114 host code reads device memory"),
        ("memset(x, 0, 4);", "program.cu:6: error: SX114 host code writes device memory"),
    ],
)
def test_host_code_that_uses_device_memory_is_named_by_its_line(
    statement: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, HOST_USE.replace("BODY", statement))) == 1
    assert said in capfd.readouterr().err


@COMPILES
def test_managed_and_pinned_memory_are_the_hosts_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """int *managed, *pinned;
    cudaMallocManaged(&managed, 4);
    cudaMallocHost(&pinned, 4);
    *managed = *pinned = 20;
    add<<<1, 1>>>(managed);
    add<<<1, 1>>>(pinned);
    cudaDeviceSynchronize();
    printf("%d", *managed + *pinned);"""
    source = written(tmp_path, HOST_USE.replace("BODY", body))
    assert (portkern(source), capfd.readouterr()) == (0, ("42", ""))


@COMPILES
def test_a_race_is_named_by_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, SUM.replace("BODY", "*x += 1;"))
    assert portkern(source, "sanitize=all", "define=[STATUS=0]") == 1
    assert "program.cu:5: error: " in capfd.readouterr().err


@COMPILES
def test_a_failing_program_exits_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path, SUM.replace("BODY", "atomicAdd(x, 1);"))
    assert portkern(source, "define=[STATUS=7]", "json=true") == 1
    answer = json.loads(capfd.readouterr().out)
    assert (answer["status"], answer["output"], answer["exit_code"]) == (7, "64 -\n", 1)


@COMPILES
def test_a_program_may_call_cublas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert portkern(written(tmp_path, BLAS)) == 0
    assert capfd.readouterr().out == "5\n"


@pytest.mark.full
@COMPILES
def test_an_extension_lists_its_functions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, EXTENSION)) == 0
    told = capfd.readouterr()
    assert told.out == "same(arg0: Tensor) -> Tensor  What it was given\n"
    assert "portkern.simt.torch_extension.bindings.load" in told.err


MORE = {
    "more.cpp": '#include "more.h"\nint warpSize(int threadIdx) { return threadIdx * FACTOR; }\n',
    "device.cu": """#include "more.h"
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
void launch(int* x) { fill<<<1, 64>>>(x); }
""",
    "inc/more.h": "#pragma once\nvoid launch(int*);\n#if FACTOR != 3\n#error\n#endif\n",
}
MAIN = """#include <cstdio>
#include "more.h"
int main(int argc, char** argv) {
    int *x, last;
    cudaMalloc(&x, 256);
    launch(x);
    cudaMemcpy(&last, x + 63, 4, cudaMemcpyDeviceToHost);
    printf("%d %s %d", last, argv[1], N);
}
"""


@COMPILES
def test_a_program_may_have_several_files_and_the_spellings_of_compilers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inc").mkdir()
    for name, text in MORE.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [written(tmp_path, MAIN), str(tmp_path / "more.cpp"), str(tmp_path / "device.cu")]
    options = ["-I", str(tmp_path / "inc"), "-DN=4", "define=[FACTOR=3]", "build_timeout_s=300"]
    assert portkern(*files, *options, "--", "-D") == 0
    assert capfd.readouterr().out == "63 -D 4"


@COMPILES
def test_a_name_without_a_model_is_a_finding_that_says_which(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, "int main() {\n  return cudaNoSuchCall(1);\n}\n")) == 1
    error = capfd.readouterr().err
    assert "program.cu:2: error: SX012" in error and "cudaNoSuchCall" in error


SCRIPT = """
import sys
import torch
from torch.utils.cpp_extension import load_inline

source = r'''
__global__ void scale(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i LIMIT n) y[i] = x[i] * by + warpSize;
}
torch::Tensor scaled(torch::Tensor x, double by) {
    auto y = torch::empty_like(x);
    scale<<<2, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), (float)by);
    return y;
}
'''
module = load_inline("demo", cpp_sources="torch::Tensor scaled(torch::Tensor x, double by);",
                     cuda_sources=source, functions=["scaled"], extra_cuda_cflags=["-O3"])
x = torch.arange(100, dtype=torch.float32, device="cuda")
y = module.scaled(x, 2.0)
torch.cuda.synchronize()
assert x.cuda().is_cuda and torch.cuda.is_available()
print(sys.argv[1:], (y - 2 * x).unique().tolist())
"""


@pytest.mark.full
@COMPILES
@pytest.mark.parametrize(("limit", "code"), [("<", 0), ("<=", 1)])
def test_a_python_script_runs_its_extension_on_the_executor(
    limit: str,
    code: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('not the module of this name')")
    monkeypatch.chdir(elsewhere)
    script = tmp_path / "test_it.py"
    script.write_text(SCRIPT.replace("LIMIT", limit), encoding="utf-8")
    options = ["target=gfx942", "build_timeout_s=300", *(["sanitize=bounds"] if code else [])]
    assert portkern(str(script), *options, "--", "a") == code
    told = capfd.readouterr()
    assert told.out == "['a'] [64.0]\n"
    assert ("error: SX101" in told.err) == bool(code)


CONFINED = """
import os, socket
from pathlib import Path

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "allowed"

print(Path("beside.txt").read_text(), tried(lambda: Path("left.txt").write_text("x")) == "allowed",
      tried(lambda: socket.create_connection(("127.0.0.1", 9))) != "ConnectionRefusedError",
      tried(lambda: os.listdir("SECRET")) != "allowed", "PORTKERN_SIMT" in os.environ,
      "A_KEY" in os.environ)
"""


@pytest.mark.full
@COMPILES
def test_a_python_script_runs_in_the_jail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, secret = tmp_path / "scripts", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    script = folder / "test_it.py"
    script.write_text(CONFINED.replace("SECRET", str(secret)), encoding="utf-8")
    (folder / "beside.txt").write_text("read", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("A_KEY", "of a service")
    assert portkern("test_it.py") == 0
    assert capfd.readouterr().out == "read True True True True False\n"
    assert not (folder / "left.txt").exists()


PROGRAM = """#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
int main() {
    char word[9] = "nothing";
    if (FILE* beside = fopen("beside.txt", "r")) fgets(word, 9, beside);
    FILE* left = fopen("left.txt", "w");
    if (left) fclose(left);
    printf("%s %d %d %d", word, left != nullptr, fopen("SECRET", "r") != nullptr,
           getenv("A_KEY") != nullptr);
}
"""


@COMPILES
def test_a_program_runs_in_the_jail_and_nothing_that_it_writes_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, secret = tmp_path / "mine", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("x", encoding="utf-8")
    source = folder / "program.cu"
    source.write_text(PROGRAM.replace("SECRET", str(secret)), encoding="utf-8")
    (folder / "beside.txt").write_text("read", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("A_KEY", "of a service")
    assert portkern("program.cu") == 0
    assert capfd.readouterr().out == "read 1 0 0"
    assert not (folder / "left.txt").exists()
    assert portkern("program.cu", "jail=false") == 0
    assert capfd.readouterr().out == "read 1 1 1"
    assert (folder / "left.txt").exists()


@COMPILES
def test_a_script_that_dies_says_how(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "test_it.py"
    script.write_text("import os\nprint('so far', flush=True)\nos.abort()\n", encoding="utf-8")
    assert portkern(str(script)) == 1
    told = capfd.readouterr()
    assert told.out == "so far\n" and "signal 6" in told.err


@COMPILES
@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("#include <no/such.h>\nint main() {}\n", "SX013", "<no/such.h>"),
        ("void missing();\nint main() { missing(); }\n", "SX014", "missing()"),
        ("int main() { cudaDeviceProp p; return p.none; }\n", "SX012", "cudaDeviceProp::none"),
        ("template <class T> T f() { return __nv_atomic_none(1); }\nint main() {}\n",
         "SX012", "__nv_atomic_none"),
    ],
)  # fmt: skip
def test_what_a_build_lacks_has_a_number_and_a_name(
    text: str, code: str, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, text), "json=true") == 1
    answer = json.loads(capfd.readouterr().out)
    assert not answer["built"]
    assert [finding["code"] for finding in answer["findings"]] == [code]
    assert answer["findings"][0]["message"].endswith(what)


@COMPILES
def test_a_compilers_error_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert portkern(written(tmp_path, "int main() { return 1 +; }\n")) == 1
    error = capfd.readouterr().err
    assert "program.cu:1:" in error and "the program was not built: " in error


HIP = """#include <hip/hip_runtime.h>
#include <omp.h>
#include <cstdio>
__global__ void ask(int* x) { *x = __all(1) + warpSize; }
int main() {
    int *x, got;
    hipMalloc(&x, 4);
    hipLaunchKernelGGL(ask, dim3(1), dim3(64), 0, 0, x);
    hipMemcpy(&got, x, 4, hipMemcpyDeviceToHost);
    printf("%d %d", got, omp_get_max_threads() > 0);
}
"""


@COMPILES
def test_hip_in_a_cu_file_is_hip_and_openmp_is_linked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert portkern(written(tmp_path, HIP), "target=gfx942") == 0
    assert capfd.readouterr().out == "65 1"


@COMPILES
def test_folders_of_includes_count_from_where_one_stands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "one.h").write_text("#define ONE 1\n", encoding="utf-8")
    (tmp_path / "c.c").write_text(
        "int *class(void);\nint *class(void) { static int x; x = 2; return (void *)&x; }\n",
        encoding="utf-8",
    )
    written(tmp_path, """#include "one.h"
#include <cstdio>
extern "C" int* c_function() __asm__("class");
__global__ void spin(clock_t ticks) { for (clock_t t = clock(); clock() - t < ticks;) {} }
int main() {
    spin<<<1, 1>>>(5000000);
    printf("%d %d", ONE, *c_function() * (cudaDeviceSynchronize() == cudaSuccess));
}
""")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert portkern("program.cu", "c.c", "-I", "inc", "timeout_s=20") == 0
    assert capfd.readouterr().out == "1 2"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "source= is required"),
        (["none.cu", "-D"], "Got -D with nothing behind it"),
        (["none.py"], "Cannot read none.py"),
        (["none.cu"], "Cannot read none.cu"),
        (["none.cu", "target=x86_64"], "Got target=x86_64, expected a GPU"),
        (["none.cu", "sanitize=race"], "did you mean 'races'?"),
        (["none.cu", "sanitize=width"], "Got sanitize=width, expected all, none or of races"),
        (["none.cu", "timeout_s=0"], "Got timeout_s=0.0, expected a number above 0"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert portkern(*argv) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
