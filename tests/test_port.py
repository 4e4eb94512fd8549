"""``portkern port`` from end to end, on a small library with what libraries bring along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portkern.cli import main
from portkern.port import build_notes
from portkern.port.build_notes import BuildNotes
from portkern.port.kernel_port import KernelPort, PortFile, Rung
from portkern.port.proof import Outcome
from portkern.port.result import PortResult
from portkern.spec import registry, target
from portkern.spec.backend import Ready

FINE = """\
#include <cstdio>
#include <cuda_runtime.h>
#include "scale.cuh"

__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scaled(a, x[i]) + y[i];
}

int main() {
  const int n = 1000;
  float x[n], y[n], *dx, *dy;
  for (int i = 0; i < n; i++) x[i] = i, y[i] = 2 * i;
  cudaMalloc(&dx, n * sizeof(float));
  cudaMalloc(&dy, n * sizeof(float));
  cudaMemcpy(dx, x, n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(dy, y, n * sizeof(float), cudaMemcpyHostToDevice);
  saxpy<<<(n + 255) / 256, 256>>>(n, 3.0f, dx, dy);
  cudaMemcpy(y, dy, n * sizeof(float), cudaMemcpyDeviceToHost);
  printf("%g %g\\n", y[1], y[n - 1]);
  cudaFree(dx);
  cudaFree(dy);
  return 0;
}
"""
HEADER = (
    "#pragma once\n__device__ __forceinline__ float scaled(float a, float x) { return a * x; }\n"
)
#: The host asks for the width, and the kernel's sums depend on it.
WAVE64 = """\
#include <cstdio>
#include <cuda_runtime.h>

__global__ void count(int* out) { atomicAdd(&out[blockIdx.x], 1); }

int main() {
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  int out[4] = {}, *d;
  cudaMalloc(&d, sizeof(out));
  cudaMemcpy(d, out, sizeof(out), cudaMemcpyHostToDevice);
  count<<<4, device.warpSize>>>(d);
  cudaMemcpy(out, d, sizeof(out), cudaMemcpyDeviceToHost);
  printf("%d threads\\n", out[0] + out[1] + out[2] + out[3]);
  return 0;
}
"""
BROKEN = "__global__ void broken(float* x { x[0] = ;\n}}}\n"
MISSING = '#include "absent.h"\n__global__ void lost(float* x) { x[threadIdx.x] = ABSENT; }\n'
LATIN = (
    "// f\xfcr alle\n__global__ void latin(int* x) { x[threadIdx.x] = __popc(threadIdx.x); }\n"
    "void run(int* x) { latin<<<2, 64>>>(x); }\n"
)
SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

raise SystemExit("a library's own code ran")
setup(ext_modules=[CUDAExtension("small", ["fine.cu"], include_dirs=["include"])])
"""


TO = "to=gfx942,gfx1100"


def _write(folder: Path) -> Path:
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "scale.cuh").write_text(HEADER)
    (folder / "fine.cu").write_text(FINE)
    windows = FINE.replace("saxpy", "crlf").replace("\n", "\r\n")
    (folder / "windows.cu").write_bytes(windows.encode())
    (folder / "wave64.cu").write_text(WAVE64)
    (folder / "broken.cu").write_text(BROKEN)
    (folder / "missing.cu").write_text(MISSING)
    (folder / "latin.cu").write_bytes(LATIN.encode("latin-1"))
    (folder / "setup.py").write_text(SETUP)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return _write(tmp_path / "small")


@dataclass(frozen=True)
class Ported:
    library: Path
    folder: Path
    code: int
    document: dict[str, Any]


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> Ported:
    """The library, ported once for two widths."""
    place = tmp_path_factory.mktemp("port")
    small = _write(place / "small")
    code, document = run_json(place, small, TO)
    return Ported(small, place / "reports" / "port-small", code, document)


def run_json(place: Path, *argv: object) -> tuple[int, dict[str, Any]]:
    ended = _portkern(place, *argv, "json=true")
    return ended.returncode, json.loads(ended.stdout)


def _portkern(place: Path, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "portkern.cli", "port", *map(str, argv)],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


def port(*argv: object) -> int:
    return main.run(["port", *map(str, argv)])


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def lines_of(folder: Path) -> list[KernelPort]:
    return PortFile(folder).read()[0]


# ---- a library, from end to end


@pytest.mark.full
def test_each_kernel_has_a_row_whatever_became_of_it(ported: Ported) -> None:
    outcomes = {kernel["kernel"]: kernel["outcome"] for kernel in ported.document["kernels"]}
    assert outcomes == {
        "saxpy": "proven in emulation",
        "crlf": "proven in emulation",
        "latin": "proven in emulation",
        "count": "wrong",
        "lost": "not proven",
    }
    assert ported.code == ported.document["exit_code"] == 1
    text = (ported.folder / "port.md").read_text()
    page = (ported.folder / "port.html").read_text()
    assert text.startswith("# small → hip: 3 of 5 kernels proven in emulation, 1 wrong")
    for name in outcomes:
        assert f"| {name} |" in text and f"<code>{name}</code>" in page


def test_what_is_known_of_a_kernel_has_its_rung_and_why_there_is_no_higher_one(
    ported: Ported,
) -> None:
    ports = {(p.kernel, p.target): p for p in lines_of(ported.folder)}
    proven = ports["saxpy", "gfx942"]
    assert (proven.rung, proven.width) == (Rung.EMULATED, 64)
    assert ports["saxpy", "gfx1100"].width == 32
    assert proven.resources and proven.resources.vgprs and proven.resources.occupancy == 1
    assert proven.proof.coverage and proven.proof.coverage.lines == 4
    wrong = ports["count", "gfx942"]
    assert wrong.rung is Rung.BUILT and "expected 32" in wrong.missing
    assert "wave64.cu" in wrong.proof.command
    lost = ports["lost", "gfx942"]
    assert lost.rung is Rung.LINTED and "absent.h" in lost.missing


def test_what_does_not_parse_is_said_and_ends_nothing(ported: Ported) -> None:
    files = {file["path"]: file["problem"] for file in ported.document["files"]}
    assert "does not parse" in files["broken.cu"]
    assert [name for name, problem in files.items() if problem] == ["broken.cu"]


def test_the_tree_keeps_names_encodings_ends_of_lines_and_what_else_is_there(
    ported: Ported,
) -> None:
    tree = contents(ported.folder / "tree")
    assert set(tree) == {name for name in contents(ported.library) if not name.startswith("loop")}
    assert b"f\xfcr alle" in tree["latin.cu"]
    windows = tree["windows.cu"]
    assert b"hipMalloc" in windows and windows.count(b"\n") == windows.count(b"\r\n")
    assert tree["setup.py"] == SETUP.encode()
    assert contents(ported.library)["fine.cu"] == FINE.encode(), "nothing is edited in place"


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-s", "-p1", "--binary", "-i"]])
def test_the_patch_makes_the_tree_of_the_library(
    ported: Ported, tool: list[str], tmp_path: Path
) -> None:
    copy = _write(tmp_path / "copy")
    subprocess.run([*tool, str(ported.folder / "port.patch")], cwd=copy, check=True)
    (copy / "loop").unlink()
    assert contents(copy) == contents(ported.folder / "tree")


def test_a_maintainer_gets_build_lines_a_plan_cases_and_outputs_to_compare_with(
    ported: Ported,
) -> None:
    build = (ported.folder / "BUILD.md").read_text()
    assert "hipcc -O3 --offload-arch=gfx942 --offload-arch=gfx1100 -Iinclude fine.cu" in build
    assert "CMAKE_HIP_ARCHITECTURES gfx942;gfx1100" in build and "CUDAExtension" in build
    plan = ported.folder / "plan.sh"
    assert os.access(plan, os.X_OK)
    subprocess.run(["bash", "-n", plan], check=True)
    assert (ported.folder / "cases/latin.cu/latin.yaml").is_file()
    assert (ported.folder / "expected/fine.cu.txt").read_text() == "5 4995\n"


def test_the_plan_builds_and_runs_what_is_there(ported: Ported, tmp_path: Path) -> None:
    """A stand-in for hipcc writes programs which print what was recorded."""
    hipcc = tmp_path / "bin" / "hipcc"
    hipcc.parent.mkdir()
    hipcc.write_text(
        '#!/bin/bash\necho "$@" >> "$CALLS"\nwhile [ "$1" != -o ]; do shift; done\n'
        'printf \'#!/bin/bash\\necho 5 4995\\n\' > "$2"; chmod +x "$2"\n'
    )
    hipcc.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": f"{hipcc.parent}:{os.environ['PATH']}", "CALLS": str(calls)}
    ended = subprocess.run(
        [ported.folder / "plan.sh"], capture_output=True, text=True, check=False, env=environment
    )
    assert "ok      same-fine.cu" in ended.stdout and "ok      run-wave64.cu" in ended.stdout
    assert ended.returncode == 0, ended.stdout
    assert "--offload-arch=gfx942 -Iinclude ./fine.cu" in calls.read_text()


def test_the_plan_gives_programs_the_arguments_that_they_were_proven_with(tmp_path: Path) -> None:
    result = PortResult("lib", tmp_path, tmp_path / "tree", "hip", ("gfx942",), (), ())
    notes = BuildNotes(("a.cu", "b.cu"), ("a.cu",), (), (), arguments=("64", "a b"))
    plan = build_notes.script(result, notes, tmp_path)
    assert "\nprogram a.cu 64 'a b'\n" in plan and "\nobject b.cu\n" in plan


def test_no_name_of_a_source_is_an_option_or_a_command_to_the_plan(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    hipcc = tmp_path / "bin" / "hipcc"
    hipcc.parent.mkdir()
    hipcc.write_text('#!/bin/bash\nfor one; do printf "%s\\0" "$one" >> "$CALLS"; done\n')
    hipcc.chmod(0o755)
    names = ("-o made", "@args.cu", "-n", "$(touch made)", "a;touch made", "a\ntouch made\n", "'\"")
    result = PortResult("lib", tmp_path, tmp_path / "tree", "hip", ("gfx942",), (), ())
    notes = BuildNotes(names, names[:2], (), (), linked={names[0]: names[1:2]})
    (tmp_path / "plan.sh").write_text(build_notes.script(result, notes, tmp_path))
    calls = tmp_path / "calls"
    environment = {"PATH": f"{hipcc.parent}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run(["bash", tmp_path / "plan.sh"], env=environment, check=False)
    said = calls.read_text().split("\0")
    assert {f"./{name}" for name in names} <= {*said} and not {*names} & {*said}
    assert not [*tmp_path.rglob("made")]


def test_porting_again_does_nothing_again(ported: Ported) -> None:
    before = contents(ported.folder / "tree"), (ported.folder / "port.patch").read_bytes()
    lines = (ported.folder / "port.jsonl").read_bytes()
    code, document = run_json(ported.library.parent, ported.library, TO)
    assert (code, document["reused"]) == (1, 10)
    assert document["kernels"] == ported.document["kernels"]
    assert (ported.folder / "port.jsonl").read_bytes() == lines
    assert before == (contents(ported.folder / "tree"), (ported.folder / "port.patch").read_bytes())
    assert document["seconds"] < ported.document["seconds"] / 2


@pytest.mark.full
def test_a_port_of_the_port_changes_nothing(ported: Ported, tmp_path: Path) -> None:
    code = port(ported.folder / "tree", "prove=false", f"reports={tmp_path}", "run=again")
    assert code == 1, "missing.cu is still not built"
    assert (tmp_path / "again" / "port.patch").read_bytes() == b""


# ---- interrupted


@pytest.mark.full
def test_a_run_that_was_killed_goes_on_from_what_it_recorded(tmp_path: Path) -> None:
    library = _write(tmp_path / "small")
    argv = [sys.executable, "-m", "portkern.cli", "port", "small", "to=gfx942", "jobs=1"]
    records = tmp_path / "reports" / "port-small" / "port.jsonl"
    with subprocess.Popen(argv, cwd=tmp_path, start_new_session=True) as process:
        while not (records.exists() and records.read_bytes()) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    with records.open("ab") as file:
        file.write(b'{"schema":1,"key":"cut o')  # as when the disk had half a line
    known = len(records.read_bytes().splitlines()) - 1
    assert 0 < known < 5
    code, document = run_json(tmp_path, library, "to=gfx942", "jobs=1")
    assert (code, len(document["kernels"])) == (1, 5)
    assert document["reused"] == known and len(lines_of(records.parent)) == 5


# ---- other ways to ask


@pytest.mark.full
def test_a_file_brings_its_headers_and_is_proven(library: Path, tmp_path: Path) -> None:
    argv = [library / "fine.cu", "to=gfx942", f"include=[{library / 'include'}]"]
    assert port(*argv, f"reports={tmp_path}", f"out={tmp_path / 'fine-hip'}") == 0
    assert set(contents(tmp_path / "fine-hip")) == {"fine.cu", "include/scale.cuh"}


@pytest.mark.full
def test_a_header_that_needs_what_stands_before_it_is_proven_in_the_source_that_includes_it(
    tmp_path: Path,
) -> None:
    """And host code that calls into files elsewhere is left out."""
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "act.cuh").write_text(
        "__global__ void act(real* x, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) x[i] = x[i] > real(0) ? x[i] : real(0);\n}\n",
        encoding="utf-8",
    )
    (folder / "graph.h").write_text(
        "#pragma once\nstruct Graph { void label(int n = 0); };\n", encoding="utf-8"
    )
    (folder / "mlp.cu").write_text(
        '#include <cuda_runtime.h>\n#include "graph.h"\ntypedef float real;\n#include "act.cuh"\n'
        "void run(real* x, int n, Graph* graph = nullptr);\n"
        "void run(real* x, int n, Graph* graph) {\n"
        "    act<<<(n + 255) / 256, 256>>>(x, n);\n    graph->label();\n}\n",
        encoding="utf-8",
    )
    assert port(folder, "to=gfx942", f"reports={tmp_path}") == 0
    [row] = lines_of(tmp_path / "port-engine")
    assert (row.kernel, row.path, row.proof.outcome) == ("act", "act.cuh", Outcome.PROVEN)


def test_hazards_alone_are_fast_and_write_no_tree(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert port(library, "lint=only", f"reports={tmp_path}") == 1
    assert "broken.cu:1: does not parse" in capsys.readouterr().err
    assert not list(tmp_path.glob("port-small/tree"))


@pytest.mark.full
def test_in_place_is_for_who_asks(library: Path, tmp_path: Path) -> None:
    (library / "missing.cu").unlink()
    (library / "broken.cu").unlink()
    assert port(library, "in_place=true", "prove=false", f"reports={tmp_path}") == 0
    assert "hipMalloc" in (library / "fine.cu").read_text()


def test_hip_becomes_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "scale.hip"
    source.write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void scale(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }\n"
        "void launch(float* x, int n) { scale<<<1, n>>>(x, n); hipDeviceSynchronize(); }\n"
    )
    port(source, "to=cuda", "prove=false", f"reports={tmp_path}", "json=true")
    assert json.loads(capsys.readouterr().out)["to"] == "cuda"
    folder = tmp_path / "port-scale.hip"
    text = (folder / "tree" / "scale.hip").read_text()
    assert "cudaDeviceSynchronize" in text and "hip" not in text.replace("scale.hip", "")
    assert "nvcc -x cu" in (folder / "BUILD.md").read_text()


def test_what_became_cuda_is_built_and_held_against_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = registry.load("cuda").probe(target.load("sm_90"))
    if not isinstance(probe, Ready) or "nvcc" not in probe.toolchain:
        pytest.skip("no nvcc here")
    source = tmp_path / "scale.hip"
    source.write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void scale(float* x) {\n"
        "  __shared__ float y[64];\n"
        "  y[threadIdx.x] = *x;\n"
        "  x[1] = y[0];\n"
        "}\n"
        "__global__ void wrong(float* x) { *x = nothing; }\n"
    )
    port(source, "to=cuda", "prove=false", f"reports={tmp_path}", "json=true")
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    scale, wrong = (row["targets"]["sm_90"] for row in kernels)
    assert scale["resources"]["lds_bytes"] == 256 and scale["resources"]["vgprs"] > 0
    assert scale["rung"] == "built" and wrong["resources"] is None
    assert '"nothing" is undefined' in kernels[1]["why"]


@pytest.mark.parametrize("words", [["--explain", "PK013"], ["explain=pk013"]])
def test_a_code_is_explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert port(*words) == 0
    text = capsys.readouterr().out
    assert text.startswith("PK013") and "instead of" in text


# ---- bad usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["FOLDER", "to=gfx9999"], "No target 'gfx9999'"),
        (["FOLDER", "to=sm_90"], "expected AMD GPUs such as gfx942"),
        (["FOLDER", "to=cuda,gfx942"], "expected cuda alone"),
        (["FOLDER", "lint=some"], "No choice of lint 'some'"),
        (["FOLDER", "sanitize=al"], "No checker 'al'"),
        (["FOLDER", "case=absent.yaml"], "Cannot read case=absent.yaml"),
        (["FOLDER", 'arguments=1 "2'], "expected words as in a shell"),
        (["FOLDER"], "No kernels in"),
        (["absent"], "neither a file, a folder nor an installed Python package"),
        (["--explain"], "with nothing behind it"),
        (["--explain", "PK999"], "No pitfall 'PK999'"),
        ([], "path= is required"),
    ],
)
def test_bad_usage_is_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "host.cpp").write_text("int main() { return 0; }\n")
    argv = [word.replace("FOLDER", str(tmp_path / "empty")) for word in words]
    assert port(*argv, f"reports={tmp_path / 'reports'}") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and said in error


def test_a_folder_with_files_of_others_is_not_written_to(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "fine.cu").write_text("mine")
    argv = [library, "prove=false", f"reports={tmp_path / 'r'}", f"out={tmp_path / 'mine'}"]
    assert port(*argv) == 2
    assert "has files that this run did not write" in capsys.readouterr().err
    assert (tmp_path / "mine" / "fine.cu").read_text() == "mine"
