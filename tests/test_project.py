"""A project of one's own: kernels in a folder, portkern.yaml, and mistakes in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from portkern import guard
from portkern.cells.selection import SelectedCell, Selection, host_targets
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Built, Failure, StageLimits, build_all
from portkern.project import expected, starter
from portkern.project.document import FILE, Expected, ProjectFile
from portkern.project.kernels import OwnKernels
from portkern.project.project import Project, find
from portkern.records.record import Evidence, Record, RecordFile, Verdict
from portkern.sandbox.message import plain, read
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Artifact, Build, Ready
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions, gather
from portkern.worker import protocol

from .report_records import make
from .test_flashinfer import GEMM

HOST = host_targets()[0]
HEADER = "#pragma once\ntemplate <class T> inline T act(T v) { return v < T(0) ? T(0) : v; }\n"
CPP = """\
#include "include/act.h"
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = act<float>(x[i]);
  return 0;
}
"""
CU = """\
#include "device/act.cuh"
__global__ void k(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = act(float(x[i]));
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
  if (n) k<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}
"""
CUH = "#pragma once\n__device__ inline float act(float v) { return v < FLOOR ? FLOOR : v; }\n"
CL = """\
SOURCE = \"\"\"
#include "act.cl"
kernel void relu(global const storage_t* x, global storage_t* y, long n) {
  const long i = get_global_id(0);
  if (i < n) STORE(y, i, act(LOAD(x, i)));
}
\"\"\"


def relu(queue, program, x, y, *, n):
    if n:
        program.relu(queue, (int(n),), None, x, y, n)
"""


def write(folder: Path, **files: str) -> Path:
    """Files by their names, ``**{"a/b.cpp": text}``; the folder."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def kernels(folder: Path) -> OwnKernels:
    project = find("none", str(folder))
    assert project is not None and project.kernels is not None
    return project.kernels


def project(folder: Path, text: str) -> Project:
    write(folder, **{FILE: text})
    known = find(str(folder), "")
    assert known is not None
    return known


def own(of: Project) -> OwnKernels:
    assert of.kernels is not None
    return of.kernels


def portkern(*argv: str) -> int:
    return main.run(list(argv))


# ---- names


def test_files_are_kernels_by_their_names(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "relu.cpp": CPP,
            "relu.fast.cpp": CPP,
            "sub/softmax.v1.2.hip": "x",
            "gelu.cu": "x",
            "act.h": HEADER,
            "relu.md": "# relu",
            "relu.op.yaml": "op: relu",
            "include/relu.cpp": "not looked into",
        },
    )
    found = [
        (k.candidate.op, k.candidate.backend, k.candidate.variant)
        for k in kernels(tmp_path).kernels
    ]
    assert found == [
        ("gelu", "cuda", ""),
        ("relu", "cpu", ""),
        ("relu", "cpu", "fast"),
        ("softmax", "hip", "v1.2"),
    ]
    assert not kernels(tmp_path).problems


def test_the_longest_op_names_a_file(tmp_path: Path) -> None:
    write(tmp_path, **{"conv2d_relu_maxpool.cpp": "x", "conv2d.cpp": "x"})
    assert sorted(kernels(tmp_path).ops) == ["conv2d", "conv2d_relu_maxpool"]


@pytest.mark.parametrize(
    ("name", "text", "backends"),
    [
        ("softmax.py", "import triton\n", ["triton"]),
        ("softmax.py", "from jax.experimental import pallas\n", ["pallas"]),
        ("softmax.py", "import numba\n", ["cpu"]),
        ("softmax.py", "SOURCE = ''\n", ["opencl"]),
        ("cpu/softmax.py", "def softmax(x, y): ...\n", ["cpu"]),
        ("softmax.cu", "int x;\n", ["cuda"]),
        ("softmax.cu", "#include <portkern/portable.h>\n", ["cuda", "hip"]),
        ("gpu/softmax.cu", "int x;\n", ["cuda", "hip"]),
        ("hip/softmax.cu", "int x;\n", ["hip"]),
    ],
)
def test_place_suffix_and_text_say_which_backend(
    name: str, text: str, backends: list[str], tmp_path: Path
) -> None:
    assert kernels(write(tmp_path, **{name: text})).backends == backends


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "softmax.py",
            "x = 1\n",
            "it may be for cpu, opencl, pallas, triton; put it into a folder",
        ),
        ("triton/softmax.cu", "x", "triton reads no '.cu' files"),
        (
            "softmax.cu",
            "\n\nPYBIND11_MODULE(a, m) {}\n",
            "line 3: PYBIND11_MODULE makes an extension",
        ),
        ("softmax.cu", "TORCH_LIBRARY(a, m) {}\n", "accepted are dps"),
    ],
)
def test_a_source_that_cannot_be_taken_costs_no_other(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    seen = kernels(write(tmp_path, **{name: text, "relu.cpp": CPP}))
    assert seen.ops == ["relu"]
    [problem] = seen.errors
    assert words in str(problem) and str(tmp_path / name) in problem.place


def test_a_name_that_is_not_utf8_costs_its_own_file_alone(tmp_path: Path) -> None:
    write(tmp_path, **{"relu.cpp": "//"})
    for name in (b"relu.\xff.cpp", b"\xff.txt", b"\xfe"):
        file = tmp_path / os.fsdecode(name)
        file.mkdir() if name == b"\xfe" else file.write_text("//")
    (tmp_path / os.fsdecode(b"\xfe") / "relu.cpp").write_text("//")
    found = kernels(tmp_path)
    assert [one.file.name for one in found.kernels] == ["relu.cpp"]
    names = ["'relu.\\udcff.cpp'", "'\\udcfe/relu.cpp'"]
    said = [f"{tmp_path}: the name {name} is not UTF-8; rename it" for name in names]
    assert list(map(str, found.errors)) == said


def test_files_that_may_be_no_kernels_are_noted(tmp_path: Path) -> None:
    seen = kernels(write(tmp_path, **{"sofmax.cu": "x", "relu.rs": "x", "relu.cpp": "x"}))
    assert not seen.errors
    notes = "\n".join(map(str, seen.problems))
    assert "did you mean 'softmax'?" in notes and "no backend reads '.rs' files" in notes


def test_files_of_other_operators_in_the_folder_are_told_as_such(tmp_path: Path) -> None:
    """A folder holds several PyTorch files, their sheets and kernels; one of them is asked for."""
    write(
        tmp_path,
        **{
            "pool.py": "def get_inputs(): ...\n",
            "pool.op.yaml": "# What portkern takes it to be\nname: gated_pool\nfile: pool.py\n",
            "gated_pool.hip": "x",
            "relu.cpp": CPP,
        },
    )
    seen = kernels(tmp_path)
    assert seen.ops == ["relu"] and not seen.errors
    [note] = map(str, seen.problems)
    assert note.endswith("it is of gated_pool, the operator of pool.py, which is not asked for")


def test_a_helper_that_a_kernel_includes_is_not_a_puzzle(tmp_path: Path) -> None:
    write(tmp_path, **{"relu.cu": '#include "tools.cu"\n', "tools.cu": "int x;\n"})
    assert not kernels(tmp_path).problems


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "relu.cpp").write_bytes("// größer".encode("latin-1"))
    write(tmp_path, **{"gelu.cpp": CPP, "include/act.h": HEADER})
    seen = kernels(tmp_path)
    assert seen.ops == ["gelu"] and "relu.cpp: byte 5 is not UTF-8" in str(seen.errors[0])


def test_of_two_kernels_with_one_name_the_second_is_left_out(tmp_path: Path) -> None:
    seen = kernels(write(tmp_path, **{"a/relu.cpp": "a", "b/relu.cpp": "b", "c/relu.x.cpp": "c"}))
    assert [k.candidate.source for k in seen.kernels] == ["a", "c"]
    assert f"{tmp_path}/b/relu.cpp: relu.cpp is left out" in str(seen.errors[0])


# ---- what travels with a source


def test_includes_are_followed_and_travel_with_the_source(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "k/relu.cu": '// #include "no.h"\n#include "../h/a.h"\n#include <b.h>\n#include <m.h>',
            "h/a.h": '#include "c.h"\n',
            "h/c.h": '#define INNER "d.inc"\n#include INNER\n',
            "h/d.inc": "int d;\n",
            "inc/b.h": "int b;\n",
            "inc/unused.h": "int u;\n",
            "h/secret.txt": "no code",
        },
    )
    file = tmp_path / "k/relu.cu"
    beside = gather(file, file.read_text(), root=tmp_path, include=[tmp_path / "inc"])
    assert list(beside.texts) == ["h/a.h", "h/c.h", "h/d.inc", "inc/b.h"]
    assert beside.path == "k/relu.cu" and beside.include == ("inc",)


def test_a_file_of_no_code_is_not_taken(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{"relu.cu": '#include "notes.txt"\n#include ".env"\n', "notes.txt": "", ".env": ""},
    )
    assert not gather(tmp_path / "relu.cu", (tmp_path / "relu.cu").read_text(), root=tmp_path)


def test_what_leads_out_of_the_project_is_refused(tmp_path: Path) -> None:
    inside = write(tmp_path / "project", **{"relu.cu": '#include "../outside.h"\n'})
    write(tmp_path, **{"outside.h": "int x;\n", "far/link.h": "int y;\n"})
    file = inside / "relu.cu"
    with pytest.raises(ConfigError, match=r'relu.cu: #include "../outside.h" is outside'):
        gather(file, file.read_text(), root=inside)
    (inside / "link.h").symlink_to(tmp_path / "far/link.h")
    with pytest.raises(ConfigError, match="is outside"):
        gather(file, '#include "link.h"\n', root=inside)
    with pytest.raises(ConfigError, match="is outside"):
        gather(file, "", root=inside, sources=[tmp_path / "outside.h"])
    assert not gather(file, file.read_text(), root=inside, strict=False)


@pytest.mark.parametrize("path", ["../x.h", "/etc/x.h", "a/../../x.h", 'x".h', "x\n.h"])
def test_no_request_can_name_a_file_outside_of_its_folder(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path within"):
        Companions("relu.cu", ((path, ""),))


def test_a_candidates_identity_is_all_that_it_is_built_with(tmp_path: Path) -> None:
    alone = Candidate("relu", "cpu", "c++", "source", "relu")
    beside = Companions("relu.cpp", (("a.h", "1"), ("b.cpp", "2")), ("inc",), ("A=1",), ("b.cpp",))
    changed = [
        replace(beside, files=(("a.h", "2"), ("b.cpp", "2"))),
        replace(beside, files=(("c.h", "1"), ("b.cpp", "2"))),
        replace(beside, include=()),
        replace(beside, defines=("A=2",)),
        replace(beside, sources=()),
        Companions(),
    ]
    digests = {replace(alone, companions=each).digest for each in (beside, *changed)}
    assert len(digests) == 1 + len(changed)
    assert replace(alone, companions=Companions()).digest == alone.digest
    assert replace(alone, variant="fast", author="me").digest == alone.digest


def test_a_worker_is_sent_the_files_as_they_were_read(tmp_path: Path) -> None:
    write(tmp_path, **{"relu.cpp": CPP, "include/act.h": HEADER})
    [kernel] = kernels(tmp_path).kernels
    build = build_of(kernel.candidate, HOST)
    write(tmp_path, **{"include/act.h": "changed afterwards"})
    sent = read(protocol.BuildKernel, plain(protocol.BuildKernel(protocol.anonymous(build))))
    assert sent.build.candidate.companions.texts == {"include/act.h": HEADER}
    assert sent.build.candidate.digest == kernel.candidate.digest


def test_the_guard_reads_headers_and_macros_too() -> None:
    beside = Companions(
        "k/relu.cpp", (("h/a.h", "\nint f() { return system(0); }\n"),), (), ('RUN=system("x")',)
    )
    source = '#include "../h/a.h"\n'
    hits = guard.inspect(
        Candidate("relu", "cpu", "c++", source, "relu", companions=beside), guard.GuardPolicy()
    )
    places = {hit.place for hit in hits}
    assert "h/a.h:2" in places and "defines:1" in places
    assert "relu.cpp:1" not in places, "the include is the project's own file"
    [other] = guard.inspect(Candidate("relu", "cpu", "c++", source, "relu"), guard.GuardPolicy())
    assert other.place == "relu.cpp:1"


def test_a_file_that_only_has_its_name_is_not_a_vendors_header() -> None:
    """The compiler does not look beside the source for names in angle brackets."""
    beside = Companions("relu.cu", (("cub/cub.cuh", "int x;"),))
    made = Candidate("relu", "cuda", "cuda", "#include <cub/cub.cuh>\n", "relu", companions=beside)
    alone = replace(made, companions=Companions())
    policy = guard.GuardPolicy()
    assert [h.rule for h in guard.inspect(made, policy)] == [
        h.rule for h in guard.inspect(alone, policy)
    ]


def test_a_language_whose_sources_stand_alone_says_so(tmp_path: Path) -> None:
    text = "kernels:\n  - {source: softmax.py, op: softmax, backend: triton, defines: [A=1]}\n"
    of = project(write(tmp_path, **{"softmax.py": "import triton\n"}), text)
    [cell, *_] = cells(of, "softmax", "gfx942")
    assert cell.ruled_out is not None
    assert cell.ruled_out[0] is Verdict.UNSUPPORTED
    assert "triton sources of triton stand alone" in cell.ruled_out[1]


def cells(of: Project, op: str, where: str) -> list[SelectedCell]:
    chosen = own(of).backends
    return Selection([op], [where], chosen, ["ci"], ["float32"], kernels=of.kernels).cells()


def build_of(candidate: Candidate, where: str, *, emulated: bool = False) -> Build:
    from portkern import ops

    op = ops.load(candidate.op)
    dims = op.workloads["ci"][0].dims
    runnable = not emulated
    return Build(
        candidate, op.signature, "float32", target.load(where), dims, {}, runnable, emulated
    )


def built(candidate: Candidate, where: str, folder: Path, *, emulated: bool = False) -> Built:
    backend = registry.load(candidate.backend)
    ready = backend.probe(target.load(where))
    if not isinstance(ready, Ready):
        pytest.skip(str(ready))
    request = BuildRequest(backend, build_of(candidate, where, emulated=emulated))
    cache = ArtifactCache(folder / "cache")
    [result] = build_all([request], [ready.toolchain], limits=StageLimits(), cache=cache)
    return result


def test_a_c_source_is_built_with_headers_macros_and_further_sources(tmp_path: Path) -> None:
    source = """\
#include "act.h"
float floor_of();
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = act<float>(x[i]) + floor_of();
  return 0;
}
"""
    text = """\
kernels:
  - source: src/relu.cpp
    include: [headers]
    defines: [FLOOR=0]
    sources: [src/floor.cpp]
"""
    write(
        tmp_path,
        **{
            "src/relu.cpp": source,
            "src/floor.cpp": "float floor_of() { return FLOOR; }\n",
            "headers/act.h": HEADER,
        },
    )
    [kernel] = own(project(tmp_path, text)).kernels
    result = built(kernel.candidate, HOST, tmp_path)
    assert isinstance(result.outcome, Artifact), result.outcome
    assert kernel.candidate.author == "file:src/relu.cpp"


@pytest.mark.full
@pytest.mark.parametrize(("suffix", "where"), [(".cu", "sm_90"), (".hip", "gfx942")])
def test_a_gpu_source_is_built_and_emulated_with_further_sources(
    suffix: str, where: str, tmp_path: Path
) -> None:
    """A macro with a comma, a header in angle brackets, and a device function of another file that
    has the name of the build's own."""
    gpu = CU.replace('"device/act.cuh"', "<act.cuh>")
    gpu = gpu if suffix == ".cu" else gpu.replace("cuda", "hip")
    further = "#include <act.cuh>\n__device__ float act(float v) { return LARGER(v, 0.0f); }\n"
    write(
        tmp_path,
        **{
            f"a/relu.v2{suffix}": gpu,
            f"a/relu{suffix}": further,
            "inc/act.cuh": "#pragma once\n__device__ float act(float v);\n",
            FILE: f"""\
include: inc
kernels:
  - source: a/relu.v2{suffix}
    sources: a/relu{suffix}
    defines: "LARGER(a,b)=((a) < (b) ? (b) : (a))"
""",
        },
    )
    known = find(str(tmp_path), "")
    assert known is not None
    [kernel] = own(known).kernels
    result = built(kernel.candidate, where, tmp_path, emulated=True)
    assert isinstance(result.outcome, Artifact), result.outcome
    left = {file.name for file in result.outcome.path.parent.iterdir()}
    assert "simt-kernel.so" in left and "simt-refused.json" not in left


@pytest.mark.full
def test_an_opencl_program_includes_from_folders_and_takes_macros_with_blanks(
    tmp_path: Path,
) -> None:
    """Drivers take their options apart at blanks."""
    write(
        tmp_path,
        **{
            "k/relu.py": CL.replace('"act.cl"', "<act.h>"),
            "k/act.cl": "float act(float v) { return v < LOW ? LOW : v; }\n",
            "my inc/act.h": "float act(float v);\n",
            FILE: """\
include: my inc
defines: "LOW=(float) 0"
kernels:
  - {source: k/relu.py, sources: k/act.cl}
""",
        },
    )
    known = find(str(tmp_path), "")
    assert known is not None
    [kernel] = own(known).kernels
    result = built(kernel.candidate, "opencl_generic", tmp_path)
    assert isinstance(result.outcome, Artifact), result.outcome


def test_an_error_in_a_header_is_told_with_the_headers_own_path(tmp_path: Path) -> None:
    broken = HEADER + "\nint broken = ;\n"
    write(tmp_path, **{"k/relu.cpp": CPP, "k/include/act.h": broken})
    [kernel] = kernels(tmp_path).kernels
    result = built(kernel.candidate, HOST, tmp_path)
    assert isinstance(result.outcome, Failure)
    assert result.outcome.detail.startswith("k/include/act.h:4:")
    assert ".project" not in str(result.outcome)


# ---- the file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernls: kernels\n", ":1: no option 'kernls'; did you mean 'kernels'?"),
        ("ops: a\nkernels:\n  - sorce: a.cu\n", ":3: no option 'kernels[0].sorce'; did you mean"),
        ("kernels:\n  - op: relu\n", ":2: kernels[0] has no 'source'"),
        ("kernels:\n  - source: a\n    style: retrun\n", ":3: got kernels[0].style: 'retrun'; did"),
        ("kernels:\n  - source: a\n    style: torch-extension\n", "available: dps, return"),
        ("ops: 3\n", ":1: got ops: 3, expected a list"),
        ("ops:\n  - relu\n  - 3\n", ":3: got ops[1]: 3, expected a text"),
        ("track: maybe\n", ":1: got track: 'maybe', expected true or false"),
        ("a: b: c\n", ":1: no YAML"),
        ("ops: [relu\n", "no YAML"),
        ("ops: relu\nops: gelu\n", ":2: 'ops' is there twice"),
        ("- relu\n", ":1: got ['relu'], expected keys"),
        ("ops: &a [*a]\n", ":1: no YAML: the alias *a holds itself"),
        ("\ntargets: [sm90]\n", ":2: No target 'sm90'; did you mean 'sm_90'?"),
        ("backends: cudaa\n", ":1: No backend 'cudaa'; did you mean 'cuda'?"),
        ("workloads: [tipical]\n", "did you mean 'typical'?"),
        ("dtypes: [float]\n", ":1: No dtype 'float'"),
        ("expect:\n  - {op: relu, backend: cpu}\n", ":2: expect[0] has no 'target'"),
        ("expect:\n  - {op: a, backend: cpu, target: host, evidence: x}\n", "available: built"),
        ("include: [nowhere]\n", ":1: no folder 'nowhere'"),
        ("ops: !!python/name:os.system x\n", "no YAML"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_a_line_with_its_place_and_nothing_runs(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, **{FILE: text, "relu.cpp": CPP})
    assert portkern("matrix", f"project={tmp_path}", f"reports={tmp_path}/reports") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"portkern: error: {tmp_path}/{FILE}:") and message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "reports").exists()


def test_all_mistakes_are_told_in_the_order_of_their_lines(tmp_path: Path) -> None:
    write(tmp_path, **{FILE: "ops: 1\ntrack: 2\nnothing: 3\n"})
    with pytest.raises(ConfigError) as raised:
        ProjectFile.read(tmp_path / FILE)
    places = [line.split(":")[1] for line in str(raised.value).splitlines()]
    assert places == ["1", "2", "3"]


def test_an_item_that_is_wrong_costs_no_other(tmp_path: Path) -> None:
    text = """\
ops: [relu, reluu, mine.json]
kernels:
  - source: relu.cpp
  - source: gone.cpp
  - {source: relu.cpp, op: rellu}
  - {source: relu.cpp, backend: cuda}
  - {source: relu.cpp, variant: b, entry: other, defines: ["1=2"]}
  - {source: relu.cpp, op: gelu}
  - {source: relu.cpp, op: silu_mul, style: return}
  - {source: relu.cpp}
"""
    write(tmp_path, **{"relu.cpp": CPP, "include/act.h": HEADER})
    of = project(tmp_path, text)
    assert [k.candidate.op for k in own(of).kernels] == ["relu", "gelu"]
    told = {str(p).partition(f"{FILE}:")[2] for p in (*of.problems, *own(of).errors)}
    expected_words = {
        "1": "No op 'reluu'; did you mean 'relu'?",
        "4": "gone.cpp",
        "5": "No op 'rellu'; did you mean",
        "6": "No cuda source suffix '.cpp'",
        "7": "'1=2' is not a macro",
        "9": "style is dps, got return",
        "10": "left out",
    }
    for line, words in expected_words.items():
        assert any(text.startswith(f"{line}: ") and words in text for text in told), (line, told)
    assert any("mine.json" in text for text in told)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"p/src/relu.cpp": CPP, "p/src/include/act.h": HEADER})
    text = "kernels: src\n"
    write(tmp_path, **{f"p/{FILE}": text})
    monkeypatch.chdir(tmp_path)
    known = find(f"p/{FILE}", "")
    assert known is not None and own(known).ops == ["relu"]
    monkeypatch.chdir(tmp_path / "p")
    assert find("", "") is not None, "and without a word it is that of this folder"
    assert find("none", "") is None


def test_the_command_line_overrides_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    from portkern.cli.verbs import own_kernels
    from portkern.cli.verbs.matrix import MatrixOptions

    write(tmp_path, **{"relu.cpp": CPP, "gelu.cu": "x"})
    of = project(tmp_path, "kernels: .\ntargets: [sm_90]\ndtypes: float16\ntrack: false\n")
    options = own_kernels.filled(MatrixOptions(targets="host"), of, {"targets"})
    assert options.targets == "host" and options.dtypes == ["float16"] and not options.track
    assert sorted(options.ops) == ["gelu", "relu"] and options.workloads == "ci"
    assert sorted(options.backends) == ["cpu", "cuda"]


def test_an_operator_of_ones_own_is_called_by_its_name(tmp_path: Path) -> None:
    name = GEMM["name"]
    write(tmp_path, **{"ops/mine.json": json.dumps(GEMM), f"{name}.fast.cpp": "x"})
    of = project(tmp_path, "kernels: .\nops: [ops/mine.json]\n")
    [kernel] = own(of).kernels
    assert (kernel.candidate.op, kernel.candidate.variant) == (name, "fast")
    assert of.op_names([name]) == [str(tmp_path / "ops/mine.json")]


def test_the_file_of_an_operator_is_not_a_kernel(tmp_path: Path) -> None:
    definition = json.dumps(GEMM)
    name = GEMM["name"]
    write(tmp_path, **{f"{name}.json": definition, f"{name}.cpp": "x"})
    asked = find("none", str(tmp_path), [str(tmp_path / f"{name}.json")])
    assert asked is not None and own(asked).ops == [name] and not own(asked).problems


def test_a_cell_without_a_kernel_says_whose_it_would_have_been(tmp_path: Path) -> None:
    of = project(write(tmp_path, **{"relu.cpp": "x"}), "kernels: .\n")
    [cell, *_] = cells(of, "gelu", HOST)
    assert cell.ruled_out == (
        Verdict.UNSUPPORTED,
        f"{tmp_path}/{FILE} has no cpu kernel for gelu",
    )


def test_variants_of_one_text_are_cells_of_their_own(tmp_path: Path) -> None:
    of = project(write(tmp_path, **{"relu.cpp": "x", "relu.b.cpp": "x"}), "kernels: .\n")
    asked = cells(of, "relu", HOST)
    assert (
        len({cell.key for cell in asked}) == len(asked) == 2 * len({c.workload.name for c in asked})
    )


# ---- expected coverage


def record(**changes: object) -> Record:
    """A record of relu by cpu for x86_64, emulated unless said otherwise."""
    base = {"backend": "cpu", "target": "x86_64", "evidence": "emulated", "missing": ""}
    return make(**base, timing=None, speedup={}).model_copy(update=changes)


def gap(records: list[Record], **expectation: object) -> list[str]:
    item = Expected.model_validate(
        {"op": "relu", "backend": "cpu", "target": "x86_64"} | expectation
    )
    wanted = expected.cells([("p:1", item)], expected.Sets({}, {}, {}))
    return expected.gaps(list(wanted), records)


def test_coverage_that_is_there_is_no_gap() -> None:
    assert gap([record()]) == []
    assert gap([record()], evidence="built") == []


def test_a_gap_says_what_was_expected_and_what_came() -> None:
    assert gap([]) == ["p:1: expected relu by cpu for x86_64 at least emulated; it was not run"]
    [line] = gap([record(missing="no such GPU")], evidence="measured")
    assert line.endswith("at least measured; got passed (emulated): no such GPU")
    [line] = gap([record()], dtypes=("float16",))
    assert "float16 was not run" in line
    [line] = gap([record()], variant="fast")
    assert "relu (variant fast)" in line


def test_every_workload_has_to_be_covered_by_some_kernel() -> None:
    other = record().workload.model_copy(update={"name": "other"})
    failed = {"verdict": Verdict.UNAVAILABLE, "evidence": Evidence.NONE, "detail": "no compiler"}
    assert "in 1 of 2: no compiler" in gap([record(), record(workload=other, **failed)])[0]
    assert gap([record(), record(variant="b", **failed)]) == [], "another kernel covers it"


def test_a_kernel_that_failed_covers_nothing() -> None:
    wrong = record(verdict=Verdict.WRONG, evidence=Evidence.BUILT, detail="off")
    assert "got wrong (built): off" in gap([wrong], evidence="built")[0]


# ---- init


def test_a_written_file_can_be_used_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path,
        **{
            "k/relu.cpp": CPP,
            "k/include/act.h": HEADER,
            "k/cuda/relu.fast.cu": "x",
            "k/sofmax.cu": "x",
        },
    )
    assert portkern("init", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert "relu (variant fast), cuda" in said.out and "did you mean 'softmax'?" in said.err
    known = find(str(tmp_path), "")
    assert known is not None and known.document.kernels[0].source == "k"
    assert {k.candidate.backend for k in own(known).kernels} == {"cpu", "cuda"}
    assert portkern("init", str(tmp_path)) == 2
    assert "is there already" in capsys.readouterr().err


def test_init_speaks_json_and_writes_what_yaml_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "it's: #1", **{"a, b/relu.cpp": "x"})
    assert (
        portkern("init", f"folder='{str(folder).replace(chr(39), chr(92) + chr(39))}'", "json=true")
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert [kernel["op"] for kernel in document["kernels"]] == ["relu"]
    known = find(str(folder), "")
    assert known is not None and own(known).ops == ["relu"]


def test_a_folder_without_kernels_gets_a_file_that_says_so(tmp_path: Path) -> None:
    survey = starter.survey(tmp_path)
    write(tmp_path, **{FILE: starter.text(survey)})
    assert "None were found yet" in starter.text(survey)
    known = find(str(tmp_path), "")
    assert known is not None and not own(known).kernels


# ---- verbs


def test_a_folder_without_a_kernel_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("matrix", "tune", "check"):
        assert portkern(verb, f"kernels={tmp_path}", f"reports={tmp_path}/r") == 2
        assert "No kernel in" in capsys.readouterr().err
        assert portkern(verb, f"kernels={tmp_path}/gone", f"reports={tmp_path}/r") == 2
        assert "there is none" in capsys.readouterr().err


def test_check_evaluates_the_kernels_of_a_folder_with_their_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = CPP.replace("act<float>(x[i])", "x[i]")
    files = {"relu.cpp": CPP, "relu.wrong.cpp": wrong, "include/act.h": HEADER, "gelu.cu": "x"}
    write(tmp_path, **files)
    argv = ["op=relu", "backend=cpu", f"target={HOST}", f"reports={tmp_path}/r", "budget_s=0"]
    assert portkern("check", f"kernels={tmp_path}", *argv) == 1
    out = capsys.readouterr().out
    assert "relu[ci/1000, float32]: passed" in out
    assert "relu.wrong[ci/1000, float32]: wrong" in out
    records, _ = RecordFile(tmp_path / "r/check/records.jsonl").read()
    assert {(r.variant, r.author) for r in records} == {
        ("", "file:relu.cpp"),
        ("wrong", "file:relu.wrong.cpp"),
    }


@pytest.mark.full
def test_a_search_starts_from_the_kernel_that_is_given(tmp_path: Path) -> None:
    from portkern.agent.log import Log

    source = CPP.replace(
        '#include "include/act.h"\n', '#include "include/act.h"\n#define STEP 1  // knob: 1 2\n'
    )
    write(tmp_path, **{"mine.cpp": source, "include/act.h": HEADER})
    argv = [
        "op=relu", f"target={HOST}", "backend=cpu", "workloads=ci", "final=[]", "rounds=2",
        "budget_s=0", "track=false", "budget.attempts=2", f"source={tmp_path}/mine.cpp",
        f"reports={tmp_path}/r", "run=g",
    ]  # fmt: skip
    assert portkern("generate", *argv) == 0
    first, second = Log.read(tmp_path / "r/g/attempts.jsonl")
    assert first.operator == "given" and first.source == source and first.status == "passed"
    assert second.parents == (first.id,) and "#define STEP 2" in second.source
    assert second.status == "passed", "it is built with the same header"
    summary = json.loads((tmp_path / "r/g/summary.json").read_text())
    assert "mine.cpp" in summary["author"]


@pytest.mark.full
def test_a_project_from_the_console_from_init_to_a_gap(tmp_path: Path) -> None:
    """cpu with a header and an emulated GPU with a macro and a header; then OpenCL beside them."""
    write(
        tmp_path,
        **{
            "kernels/relu.cpp": CPP,
            "kernels/include/act.h": HEADER,
            "kernels/relu.cu": CU,
            "kernels/device/act.cuh": "#define FLOOR 0.0f\n" + CUH,
            "kernels/opencl/relu.py": CL,
            "kernels/opencl/act.cl": "inline float act(float v) { return v < 0 ? 0 : v; }\n",
        },
    )

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "portkern.cli", *argv]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("init").returncode == 0
    quick = ["targets=[host,sm_90]", "budget_s=0.01", "track=false"]
    done = run("matrix", *quick, "json=true")
    assert done.returncode == 0, done.stderr
    records, _ = RecordFile(tmp_path / f"reports/{tmp_path.name}/records.jsonl").read()
    passed = {(r.backend, str(r.evidence)) for r in records if r.verdict is Verdict.PASSED}
    assert {("cpu", "measured"), ("cuda", "emulated"), ("opencl", "emulated")} <= passed
    before = {r.source_hash for r in records if r.backend == "cuda"}

    text = (tmp_path / FILE).read_text()
    text += "expect:\n  - {op: relu, backend: cuda, target: sm_90, evidence: measured}\n"
    write(tmp_path, **{FILE: text, "kernels/device/act.cuh": "#define FLOOR -0.0f\n" + CUH})
    done = run("matrix", *quick, "backends=cuda", "run=again")
    assert done.returncode == 1
    gaps = [line for line in done.stderr.splitlines() if line.startswith("portkern: gap: ")]
    assert len(gaps) == 1 and f"{FILE}:{text.count(chr(10))}: expected relu by cuda" in gaps[0]
    records, _ = RecordFile(tmp_path / "reports/again/records.jsonl").read()
    assert {r.source_hash for r in records if r.verdict is Verdict.PASSED}.isdisjoint(before)


def test_what_ships_stands_alone() -> None:
    """So that its digests, and the settings that are kept by them, stay as they are."""
    for name in registry.names():
        assert not any(c.companions for c in catalogue.candidates("softmax", registry.load(name)))
