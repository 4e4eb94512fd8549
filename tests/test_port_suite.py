"""A port by the library's own tests, which run with its extension in the executor."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch

from portkern.cli import main
from portkern.errors import BuildError, ConfigError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port import library, setup_run, setup_script
from portkern.port.key import Keys
from portkern.port.proof import meddling
from portkern.port.proof.compare import Judged, LaunchResult, Types, compare
from portkern.port.proof.examine import Compared, Examination
from portkern.port.proof.outcome import Outcome, ProofLimits, ProofSource
from portkern.port.proof.recording import LaunchRecord
from portkern.port.proof.runs import Program, Wanted
from portkern.port.proof.suite import (
    SEVERAL,
    UNCOUNTED,
    LibraryExtension,
    Suite,
    SuiteCommand,
    SuiteRuns,
    _doubt,
    _several,
    aligned,
    told_in,
)
from portkern.port.proof.texts import SourceTexts
from portkern.port.proving import files_of
from portkern.port.request import PortRequest
from portkern.sandbox import session
from portkern.simt.execute.compile_options import CompileOptions
from portkern.simt.torch_extension import absent, script
from portkern.simt.torch_extension import suite as runner
from portkern.simt.torch_extension.suite import MARK, Told
from portkern.simt.translate import rewrite
from portkern.spec import target as targets
from portkern.toolchain.source_view import SourceView
from portkern.toolchain.torch_stand_in import passing_for_gpu

SETUP = """import os
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

here = os.path.dirname(os.path.abspath(__file__))
setup(
    name="rows",
    packages=["rows"],
    ext_modules=[
        CUDAExtension(
            name="rows._C",
            sources=["csrc/binding.cpp", "csrc/sums.cu", "csrc/shift.cu"],
            include_dirs=[os.path.join(here, "csrc")],
            define_macros=[("LANES", "32")],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
HEADER = """#pragma once
#include <torch/extension.h>
struct Params { const float* x; float* out; int cols; int64_t stride; };
torch::Tensor sums(torch::Tensor x, bool squared);
torch::Tensor shift(torch::Tensor x);
"""
BINDING = """#include "ops.h"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("sums", &sums, py::arg("x"), py::arg("squared") = false);
    m.def("shift", &shift);
}
"""
#: A struct of parameters by value, a traits class, and a launch by a pointer in a lambda.
SUMS = """#include "ops.h"
#include <ATen/cuda/CUDAContext.h>

template <bool Squared> struct Traits { static constexpr bool squared = Squared; };

template <typename T> __global__ void sum_rows(Params p) {
    __shared__ float parts[4];
    float sum = 0;
    for (int i = threadIdx.x; i < p.cols; i += 128) {
        const float v = p.x[blockIdx.x * p.stride + i];
        sum += T::squared ? v * v : v;
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = sum;
    __syncthreads();
    if (threadIdx.x == 0) p.out[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}

torch::Tensor sums(torch::Tensor x, bool squared) {
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
    auto out = torch::empty({x.size(0)}, x.options());
    Params p{x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1), x.stride(0)};
    auto launch = [&](auto chosen) {
        auto kernel = &sum_rows<decltype(chosen)>;
        kernel<<<x.size(0), 128, 0, at::cuda::getCurrentCUDAStream()>>>(p);
    };
    if (squared) launch(Traits<true>{}); else launch(Traits<false>{});
    return out;
}
"""
#: Accessors by value, and a kernel that no test launches. ``{}`` is what it writes first.
SHIFT = """#include "ops.h"

template <typename scalar_t>
__global__ void shift_rows(torch::PackedTensorAccessor32<scalar_t, 2> x,
                           torch::PackedTensorAccessor32<scalar_t, 2> out, int width) {
    for (int i = threadIdx.x; i < x.size(1); i += blockDim.x)
        out[blockIdx.x][i] = i ? x[blockIdx.x][i - 1] : scalar_t({});
}

__global__ void never(float* x) { x[threadIdx.x] += 1; }

torch::Tensor shift(torch::Tensor x) {
    auto out = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "shift", [&] {
        shift_rows<scalar_t><<<x.size(0), 64>>>(
            x.packed_accessor32<scalar_t, 2>(), out.packed_accessor32<scalar_t, 2>(),
            at::cuda::warp_size());
    });
    if (x.dim() > 5) never<<<1, 32>>>(x.data_ptr<float>());
    return out;
}
"""
TESTS = """import pytest
import torch
from rows import _C


@pytest.mark.parametrize("squared", [False, True])
def test_rows_are_summed(squared):
    x = torch.randn(3, 200, device="cuda")
    y = _C.sums(x, squared)
    assert y.is_cuda and y.device.type == "cuda"
    torch.testing.assert_close(y, (x * x if squared else x).sum(1), rtol=1e-4, atol=1e-4)


def test_values_move_right():
    x = torch.randn(2, 70).cuda()
    y = _C.shift(x)
    assert torch.equal(y[:, 1:], x[:, :-1]) and not y[:, 0].any()


def test_that_fails_in_the_original():
    assert _C.shift(torch.ones(1, 4).cuda()).sum() == 4


def test_with_a_network():
    import urllib.request

    urllib.request.urlopen("http://localhost:9/weights", timeout=5)


def test_with_a_package():
    import a_package_that_is_absent


def test_with_data():
    open("weights/model.bin", "rb")
"""


def written(folder: Path, zero: str = "0") -> Path:
    files = {
        "setup.py": SETUP,
        "csrc/ops.h": HEADER,
        "csrc/binding.cpp": BINDING,
        "csrc/sums.cu": SUMS,
        "csrc/shift.cu": SHIFT.replace("{}", zero),
        "rows/__init__.py": "",
        "tests/test_rows.py": TESTS,
    }
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.drawn
def test_kernels_are_proven_on_what_the_librarys_own_tests_launch(tmp_path: Path) -> None:
    # The host's code asks for the width, and what the kernel writes first depends on it.
    lib = written(tmp_path / "rows", zero="width == 64 ? 1 : 0")
    reports = tmp_path / "reports"
    code = main.run(
        ["port", str(lib), "to=gfx942", "tests=pytest tests -q", f"reports={reports}", "run=r"]
    )
    said = json.loads((reports / "r" / "summary.json").read_text())
    kernels = {entry["kernel"]: entry for entry in said["kernels"]}
    assert code == 1
    assert kernels["sum_rows"]["outcome"] == "proven in emulation", kernels["sum_rows"]
    assert "2 launches of 1 instances and shapes" in kernels["sum_rows"]["inputs"]
    assert kernels["shift_rows"]["outcome"] == "wrong"
    assert "'" in kernels["shift_rows"]["why"] or "buffer" in kernels["shift_rows"]["why"]
    assert kernels["never"]["why"].endswith("no test launches it")
    first, *rest = said["tests"]
    assert "3 of 7 tests pass in the original, 2 of these in the port" in first
    assert any("test_values_move_right passes in the original" in line for line in rest)
    assert any("needs the package a_package_that_is_absent" in line for line in rest)
    assert any("needs a network" in line for line in rest)
    assert any("needs data: weights/model.bin" in line for line in rest)
    assert any("fails: AssertionError" in line for line in rest)
    assert any(
        "test_values_move_right passes in the original and not in the port" in x for x in rest
    )


#: Instances that a number chooses, a macro by the type, and a flag; and a launch behind an `if`.
CHOSEN = """#include <torch/extension.h>

template <int N> __global__ inline void fill(float* out) { out[threadIdx.x] = N; }
template <typename T> __global__ void twice(T* out) { out[threadIdx.x] *= 2; }
template <bool Add> __global__ inline void flagged(float* out) { out[threadIdx.x] += Add ? 1 : 2; }
__global__ void behind(float* out) { out[threadIdx.x] = 7; }

void filled(torch::Tensor x, int64_t n) {
    switch (n) {
        case 32: fill<32><<<1, 32>>>(x.data_ptr<float>()); break;
        case 64: fill<64><<<1, 32>>>(x.data_ptr<float>()); break;
    }
    if (n > 1000) behind<<<1, 32>>>(x.data_ptr<float>());
}
void doubled(torch::Tensor x) {
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "doubled", [&] {
        twice<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>());
    });
}
void added(torch::Tensor x, bool add) {
    auto kernel = add ? &flagged<true> : &flagged<false>;
    kernel<<<1, 32>>>(x.data_ptr<float>());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("filled", &filled); m.def("doubled", &doubled); m.def("added", &added);
}
"""
OF_CHOSEN = """import torch
from chosen import _C


def test_what_is_launched():
    x = torch.ones(32, device="cuda")
    _C.filled(x, 32)
    assert (x == 32).all()
    _C.doubled(x)
    for add in (True, False):
        _C.added(x, add)
    assert (x == 67).all()
"""


@pytest.mark.full
def test_a_kernel_is_proven_where_tests_launch_every_instance_that_host_code_has(
    tmp_path: Path,
) -> None:
    setup = SETUP.replace("rows", "chosen").replace(
        '["csrc/binding.cpp", "csrc/sums.cu", "csrc/shift.cu"]', '["csrc/chosen.cu"]'
    )
    lib, reports = tmp_path / "chosen", tmp_path / "reports"
    files = {
        "setup.py": setup,
        "csrc/chosen.cu": CHOSEN,
        "chosen/__init__.py": "",
        "tests/test_chosen.py": OF_CHOSEN,
    }
    for name, text in files.items():
        place = lib / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    main.run(["port", str(lib), "to=gfx942", "tests=pytest tests", f"reports={reports}", "run=r"])
    said = json.loads((reports / "r" / "summary.json").read_text())
    kernels = {entry["kernel"]: entry for entry in said["kernels"]}
    found = {name: (entry["outcome"], entry["why"]) for name, entry in kernels.items()}
    assert found["flagged"] == ("proven in emulation", "")
    assert found["fill"] == ("not proven", "instance fill<64>, which no test launches")
    assert found["twice"] == ("not proven", "instance twice<double>, which no test launches")
    assert found["behind"][1].endswith("no test launches it")
    assert not kernels["behind"]["inputs"].startswith("recorded")


@pytest.mark.parametrize(
    ("idle", "why"),
    [
        ({"k": ()}, ""),
        ({"k": ("4", "8")}, "instances k<4>, k<8>, which no test launches"),
        ({}, UNCOUNTED),
    ],
)
def test_an_instance_that_no_test_launches_leaves_its_kernel_unproven(
    idle: dict[str, tuple[str, ...]], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "k.cu"
    file.write_text("template <int N> __global__ void k(int* x) { *x = N; }\n", encoding="utf-8")
    texts = SourceTexts(ProofSource(file, "cuda"))
    launches = (LaunchRecord(0, "k<2>", (1, 1, 1), (32, 1, 1), 0),)
    same = Compared("gfx942", (LaunchResult(0, "k", Judged.EQUAL, written=1),))
    suite = Suite("pytest", launches=launches, examination=Examination(compared=(same,), idle=idle))
    proof = suite.proof(texts.kernels[0], texts, texts, ())
    assert (proof.outcome, proof.why) == (Outcome.UNPROVEN if why else Outcome.PROVEN, why)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("pytest tests/test_x.py -k 'a b'", "pytest", ("tests/test_x.py", "-k", "a b")),
        ("python3 -m pytest tests", "pytest", ("tests",)),
        ("python demo.py --n 3", "script", ("demo.py", "--n", "3")),
        ("demo.py", "script", ("demo.py",)),
    ],
)
def test_commands_of_tests_are_pytest_or_a_script(
    text: str, kind: str, words: tuple[str, ...]
) -> None:
    assert SuiteCommand.parse(text) == SuiteCommand(kind, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["make check", "", "pytest 'open", "python -c pass", "./program 3"]
)
def test_another_command_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        SuiteCommand.parse(text)


@pytest.mark.parametrize("given", ["lint=only", "prove=false", "to=cpu"])
def test_tests_are_for_a_folder_that_is_proven(tmp_path: Path, given: str) -> None:
    lib = written(tmp_path / "rows")
    shared = [f"reports={tmp_path}", "tests=pytest"]
    assert main.run(["port", str(lib), given, *shared]) == 2
    assert main.run(["port", str(lib / "csrc" / "sums.cu"), *shared]) == 2


def test_the_modules_of_a_setup_script_have_their_own_files_and_macros(tmp_path: Path) -> None:
    read = library.read(written(tmp_path / "rows"))
    (module,) = read.modules
    assert module.name == "rows._C" and module.defines == ("LANES=32",)
    assert [file.name for file in module.sources] == ["binding.cpp", "sums.cu", "shift.cu"]
    assert module.include == (tmp_path / "rows" / "csrc",)


@pytest.mark.parametrize(
    ("condition", "defines"),
    [
        ("torch.version.hip", ["OTHER"]),
        ("torch.version.hip is not None and WITH_CUDA", ["OTHER"]),
        ("not is_rocm_pytorch()", ["THIS"]),
        ("torch.version.hip is None", ["THIS"]),
        ("use_chip", ["THIS", "OTHER"]),
        ("torch.version.hip or debug", ["THIS", "OTHER"]),
    ],
)
def test_what_a_setup_script_defines_for_amd_alone_is_not_the_originals(
    condition: str, defines: list[str]
) -> None:
    text = f"""
macros = []
if {condition}:
    macros += [('THIS', None)]
else:
    macros += [('OTHER', None)]
CUDAExtension('a', ['a.cu'], define_macros=macros)
"""
    found = setup_script.read(text, Path("setup.py"))
    assert isinstance(found, setup_script.ExtensionSettings)
    assert found.defines == defines


def test_the_files_of_a_module_are_those_in_the_library(tmp_path: Path) -> None:
    root = written(tmp_path / "rows")
    (tmp_path / "beside.cu").write_text("", encoding="utf-8")
    (root / "csrc" / "link.cu").symlink_to(tmp_path / "beside.cu")
    names = ("tests/../csrc/sums.cu", "../beside.cu", "csrc/link.cu", "/usr/bin/env", "absent.cu")
    module = setup_script.Module("rows._C", tuple(root / name for name in names))
    assert files_of(module, root) == [root / "csrc" / "sums.cu"]


@pytest.mark.parametrize("name", ["../outside", "a b", "", "x;y", "a..b"])
def test_a_module_whose_name_python_could_not_import_is_none(tmp_path: Path, name: str) -> None:
    text = f"CUDAExtension({name!r}, ['a.cu'])\nCUDAExtension('fine.one', ['a.cu'])\n"
    found = setup_script.read(text + "load('at_run_time', ['a.cu'])", tmp_path / "setup.py")
    assert isinstance(found, setup_script.ExtensionSettings)
    assert [module.name for module in found.modules] == ["fine.one"]


def test_the_key_of_tests_follows_headers_and_not_the_reports_of_runs(tmp_path: Path) -> None:
    lib = written(tmp_path / "rows")
    reports = lib / "reports"
    target, out = targets.load("gfx942"), reports / "r" / "tree"
    request = PortRequest(lib, "hip", (target,), out, avoid=(reports,), tests="pytest")

    def key() -> str:
        read = library.read(lib, avoid=(reports,))
        return Keys(read, {}, request).of(PurePosixPath("csrc/sums.cu"), [], "gfx942")

    before = key()
    out.mkdir(parents=True)
    (out / "setup.py").write_text(SETUP, encoding="utf-8")
    assert key() == before
    (lib / "csrc" / "ops.h").write_text(f"{HEADER}\n#define MORE\n", encoding="utf-8")
    assert key() != before


def _raised(error: BaseException, *, of: BaseException | None = None) -> str:
    error.__cause__ = of
    return runner.cause(error)


def test_the_cause_of_a_failing_test_is_what_it_lacks() -> None:
    assert (
        _raised(ImportError("x"), of=ModuleNotFoundError(name="apex")) == "needs the package apex"
    )
    assert _raised(RuntimeError("x"), of=ConnectionRefusedError()) == "needs a network"
    assert _raised(FileNotFoundError(2, "no", "a.bin")) == "needs data: a.bin"
    assert _raised(RuntimeError("Found no NVIDIA driver on your system")) == "needs a GPU"
    assert _raised(ValueError("bad\nmore")) == "fails: ValueError: bad"


def test_each_gpu_has_a_capability_as_torch_numbers_it() -> None:
    names = ("gfx90a", "gfx942", "gfx1100", "gfx1201", "sm_90", "sm_100")
    assert [script._capability(targets.load(name)) for name in names] == [
        (9, 0), (9, 4), (11, 0), (12, 0), (9, 0), (10, 0),
    ]  # fmt: skip


def test_what_tests_print_is_not_taken_for_their_outcome() -> None:
    good = json.dumps({"test": "a", "outcome": "passed", "why": ""})
    bad = json.dumps({"test": "b", "outcome": "flew", "why": ""})
    output = f"x\n{MARK}{good}\n{MARK}{bad}\n{MARK}not json\n{MARK}[1]\n.{MARK}{good}"
    assert list(told_in(output)) == [Told("a", "passed")]


#: Runs a suite's tests without torch, and prints what is told of them.
TOLD = """import sys
from portkern.simt.torch_extension import suite
suite._seed = lambda: None
suite.run_tests("pytest", (".",), None, lambda one: print(one, file=sys.stderr), lambda test: None)
"""


def test_a_file_of_tests_that_is_not_collected_ends_no_others(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import a_package_that_is_absent\n", encoding="utf-8")
    passed, strict = "def test_y(): pass", "@pytest.mark.xfail(strict=True)\ndef test_s(): pass"
    (tmp_path / "test_b.py").write_text(f"import pytest\n{passed}\n{strict}\n", encoding="utf-8")
    asked = [sys.executable, "-P", "-c", TOLD]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    for told in (
        Told("test_a.py", "failed", "needs the package a_package_that_is_absent"),
        Told("test_b.py::test_y", "passed"),
        Told("test_b.py::test_s", "failed", "is expected to fail"),
    ):
        assert str(told) in said


@pytest.mark.parametrize("caught", [False, True])
def test_tests_that_have_not_ended_when_the_time_is_over_are_told_so(
    caught: bool, tmp_path: Path
) -> None:
    over = "    import os, signal\n    os.kill(os.getpid(), signal.SIGALRM)\n"
    if caught:
        over = over.replace("    os", "    try: os") + "    except BaseException: pass\n"
    twice = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass\n"
    text = f"{twice}def test_b():\n{over}def test_c(): pass\n"
    (tmp_path / "test_t.py").write_text(text, encoding="utf-8")
    asked = [sys.executable, "-P", "-c", TOLD.replace("test: None", "test: None, within_s=900")]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    late = runner.OUT_OF_TIME
    for name, why in (("a[1]", ""), ("b", "" if caught else late), ("c", late), ("a[2]", late)):
        assert str(Told(f"test_t.py::test_{name}", "failed" if why else "passed", why)) in said


def test_where_the_time_is_over_before_all_tests_are_found_it_is_told_so(tmp_path: Path) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGALRM)\ndef test_a(): pass\n"
    (tmp_path / "test_t.py").write_text(text, encoding="utf-8")
    asked = [sys.executable, "-P", "-c", TOLD.replace("test: None", "test: None, within_s=900")]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    why = "the time for the tests was over before all were found"
    assert str(Told("tests", "failed", why)) in said and "test_a" not in said


def test_a_suite_that_says_nothing_says_why() -> None:
    assert Suite("pytest", problem="no test").lines == ["pytest: no test"]
    launches = tuple(
        LaunchRecord(n, "k<1>" if n else "k<2>", (1, 1, 1), (64, 1, 1), 0) for n in range(3)
    )
    told = (Told("a", "passed"), Told("b", "failed", "needs a GPU"))
    first, *rest = Suite("pytest", told, told[:1], launches).lines
    assert first.endswith("1 of these in the port; 3 launches of 2 instances and shapes")
    assert rest == ["1 × not used: needs a GPU"]


def test_a_launch_says_nothing_of_two_kernels_of_one_name(tmp_path: Path) -> None:
    for name in ("first.cu", "second.cu"):
        (tmp_path / name).write_text("__global__ void k(int* x) { *x = 1; }\n", encoding="utf-8")
    first, second = (ProofSource(tmp_path / f"{n}.cu", "cuda") for n in ("first", "second"))
    together = SourceTexts(replace(first, further=(second.path,)))
    launches = (LaunchRecord(0, "k", (1, 1, 1), (32, 1, 1), 0),)
    several = _several(together)
    suite = Suite("pytest", launches=launches, examination=Examination(), several=several)
    texts = SourceTexts(first), SourceTexts(second)
    proof = suite.proof(texts[1].kernels[0], *texts, ())
    assert (proof.outcome.name, proof.why, proof.inputs) == ("UNPROVEN", SEVERAL, "")
    assert _several(texts[0]) == frozenset()


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("csrc/binding.cpp", 'void* p = dlsym(nullptr, "simt_mark_written");\n'),
        ("tests/test_rows.py", "import ctypes\nctypes.CDLL(None).simt_mark_written(0, 0)\n"),
    ],
    ids=["binding", "test"],
)
def test_a_library_that_turns_to_the_executor_proves_nothing(
    file: str, code: str, tmp_path: Path
) -> None:
    root = written(tmp_path)
    csrc = root / "csrc"
    source = ProofSource(csrc / "sums.cu", "cuda", further=(csrc / "binding.cpp",), whole=(root,))
    assert _doubt(SourceTexts(source)) == ""
    with (root / file).open("a") as out:
        out.write(code)
    assert "prove nothing" in _doubt(SourceTexts(source))


#: The source of a module, what the binding has besides, and what setup.py defines: no text of the
#: library has the word as such.
OUT_OF_SIGHT = {
    "a flag": ("static long f(long r) { CALL; return r; }", ['CALL=asm("sys" "call" : "+a"(r))']),
    "a joined word": (
        "#define J(a, b) a##b\n#define S_(x) #x\n#define S(x) S_(x)\n"
        'static long f(long r) { J(as, m)(S(J(sys, call)) : "+a"(r)); return r; }',
        [],
    ),
    "a function": (
        'extern "C" void* found(void*, const char*) __asm__("dl" "sym");\n'
        'static long f(long r) { return r + !found(nullptr, "a"); }',
        [],
    ),
}
#: Exported, and called by nobody.
UNCALLED = """
#include <unistd.h>
namespace rows {
long counted(int pid) { return pid ? write(1, "a", 1) : execl("/b", "b", nullptr); }
}
"""


#: What a test builds as it runs: something is written as it is opened.
BUILT_LATER = """
#include <cstdio>
static int opened = [] { std::fclose(std::fopen("OPENED", "w")); return 0; }();
CODE
long f(long r) { return r + opened; }
"""


@pytest.mark.full
@pytest.mark.parametrize("what", ["nothing", *OUT_OF_SIGHT])
def test_an_extension_that_a_test_builds_is_looked_at_before_it_is_opened(
    what: str, tmp_path: Path
) -> None:
    code, defines = OUT_OF_SIGHT.get(what, ("", []))
    text = BUILT_LATER.replace("CODE", code.replace("long f(", "long g("))
    text = text.replace("r + opened", "g(r) + opened" if what != "nothing" else "r + opened")
    options = CompileOptions(target=targets.load("sm_90"), statements=True)
    extensions = script.Extensions(tmp_path, options, meddling.of_built)
    flags = [f"-D{define}" for define in defines]
    opened = tmp_path / "opened"
    text = text.replace("OPENED", str(opened))
    if what == "nothing":
        built = extensions.load_inline("m", text, functions="f", extra_cflags=flags)
        assert built.functions["f"](1) == 1 and opened.exists()
        return
    with pytest.raises(BuildError, match="prove nothing"):
        extensions.load_inline("m", text, functions="f", extra_cflags=flags)
    assert not opened.exists()


#: A library's test that builds what calls the system.
BUILDS = """import torch.utils.cpp_extension as ext


def test_it_is_built():
    text = '#define J(a, b) a##b\\nlong f(long r) { J(as, m)("sys" "call" : "+a"(r)); return r; }'
    assert ext.load_inline("m", text, functions="f").f(39) > 0
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["check", "cover"])
def test_a_suite_opens_no_extension_that_it_has_built_and_that_proves_nothing(
    mode: str, tmp_path: Path
) -> None:
    (tmp_path / "test_built.py").write_text(BUILDS, encoding="utf-8")
    asked = {"kind": "pytest", "words": ["test_built.py"], "modules": {}, "target": "sm_90"}
    asked |= {"language": "cuda", "mode": mode}
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    process = [sys.executable, "-P", "-m", "portkern.port.proof.suite_process", "asked.json"]
    ended = subprocess.run(process, cwd=tmp_path, capture_output=True, text=True)
    (told,) = told_in(ended.stdout)
    if mode == "cover":  # which is asked which lines ran, and for no launch
        assert (told.outcome, ended.returncode) == ("passed", 0), ended.stdout
    else:
        assert told.outcome == "failed" and "m: the program calls the system" in told.why
        assert ended.returncode == 1


@pytest.mark.full
@pytest.mark.parametrize("what", ["nothing", *OUT_OF_SIGHT])
def test_an_extension_is_looked_at_as_it_was_compiled(what: str, tmp_path: Path) -> None:
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    root = written(tmp_path / "rows")
    code, defines = OUT_OF_SIGHT.get(what, (UNCALLED, []))
    binding = BINDING.replace('"ops.h"\n', f'"ops.h"\n{code}\n', 1)
    if what != "nothing":
        binding = binding.replace("m.def", 'm.def("f", &f);\n    m.def', 1)
    (root / "csrc/binding.cpp").write_text(binding)
    source = ProofSource(
        root / "csrc/binding.cpp",
        "cuda",
        (root / "csrc",),
        ("LANES=32", *defines),
        (root / "csrc/sums.cu", root / "csrc/shift.cu"),
        whole=(root,),
    )
    modules = {root: [LibraryExtension("rows._C", source)]}
    target = targets.load("sm_90")
    work = tmp_path / "work"
    with (
        JailedCompilers(SourceView((root, work))) as compilers,
        SuiteRuns(work, modules, SuiteCommand.parse("pytest"), ProofLimits(), compilers) as runs,
    ):
        [built] = runs.build_all([Wanted(source, target, "check", "original")])
        assert isinstance(built, Program), built
        doubt = _doubt(SourceTexts(source), extensions=runs.programs)
    session.close_servers()
    assert bool(doubt) == (what != "nothing"), doubt
    assert _doubt(SourceTexts(source)) == "", "the text alone says it"


def test_a_test_that_goes_another_way_says_nothing_of_other_tests() -> None:
    def launch(number: int, kernel: str) -> LaunchRecord:
        return LaunchRecord(number, kernel, (1, 1, 1), (64, 1, 1), 0)

    originals = {"a": [launch(0, "one"), launch(1, "two")], "b": [launch(2, "three")]}
    ported = {"a": [launch(0, "one")], "b": [launch(1, "three")], "c": [launch(2, "new")]}
    found = aligned(originals, ported)
    assert [(one.name, bool(one.absent)) for one in found] == [
        ("one", False), ("two", True), ("three", False),
    ]  # fmt: skip
    assert "in a" in found[1].absent
    results = compare([*originals["a"], *originals["b"]], found, Types((), {}))
    assert [result.judged.name for result in results] == ["EQUAL", "UNJUDGED", "EQUAL"]
    more = aligned(originals, {**originals, "b": [*originals["b"], launch(3, "three")]})
    assert [bool(one.absent) for one in more] == [False, False, True]


POINTERS = """#include <cstdio>
template <int N> __global__ void filled(int* x) { x[threadIdx.x] = N; }
__global__ void plain(int* x) { x[threadIdx.x] = 1; }
typedef void (*Kernel)(int*);
static Kernel chosen(bool first) { return first ? &filled<3> : &plain; }
int main() {
    int* x;
    cudaMalloc(&x, 128);
    auto kernel = chosen(true);
    kernel<<<1, 32>>>(x);
    Kernel other = chosen(false);
    other<<<1, 32>>>(x);
    filled<4><<<1, 32>>>(x);
    return cudaDeviceSynchronize();
}
"""


@pytest.mark.full
def test_a_launch_by_a_pointer_is_of_the_kernel_that_it_points_to(tmp_path: Path) -> None:
    assert '"kernel"' in rewrite.rewrite(POINTERS, "p.cu", library=False).text
    source = tmp_path / "p.cu"
    source.write_text(POINTERS, encoding="utf-8")
    reports = tmp_path / "reports"
    main.run(["port", str(source), "to=gfx942", f"reports={reports}", "run=r"])
    said = json.loads((reports / "r" / "summary.json").read_text())
    outcomes = {entry["kernel"]: (entry["outcome"], entry["inputs"]) for entry in said["kernels"]}
    assert all(o == "proven in emulation" for o, _ in outcomes.values()), outcomes
    assert all("program" in inputs for _, inputs in outcomes.values()), outcomes


#: Extensions that are made in a loop, as the environment and the files say, with a compiler asked.
LOOP = """import glob, os, subprocess
from itertools import product
import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

suffices = ["cpu", "cuda"] if torch.cuda.is_available() and CUDA_HOME is not None else ["cpu"]
said = subprocess.check_output([CUDA_HOME + "/bin/nvcc", "-V"], universal_newlines=True)
assert int(said.split("release ")[1].split(".")[0]) >= 12
print("a script says things")

def get_extensions():
    made = []
    for main, suffix in product(sorted(glob.glob("csrc/*.cpp")), suffices):
        name, macros = main.split(os.sep)[-1][:-4], [("WITH_PYTHON", None)]
        sources = [main]
        if suffix == "cuda":
            macros += [("WITH_CUDA", None), ("LANES", "32")]
            sources.append(f"csrc/cuda/{name}_cuda.cu")
        kind = CppExtension if suffix == "cpu" else CUDAExtension
        made.append(kind(f"ops._{name}_{suffix}", sources, include_dirs=["csrc"],
                         define_macros=macros, extra_compile_args={"nvcc": ["-DFAST", "-O3"]}))
    return made

setup(name="ops", ext_modules=get_extensions(), cmdclass={"build_ext": BuildExtension})
"""
#: A test that reads by a function of a module beside it, with paths from its own place.
HELPED = """import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from build_help import extension
from setuptools import setup
setup(name="ops", ext_modules=[extension(n) for n in ("gather", "scatter")])
"""
HELP = """import os
from torch.utils.cpp_extension import CUDAExtension
here = os.path.dirname(os.path.abspath(__file__))

def extension(name):
    own = os.path.join(here, "csrc", "cuda", f"{name}_cuda.cu")
    return CUDAExtension(f"ops._{name}_cuda", [own, "/etc/passwd", "../outside.cu"],
                         include_dirs=[here, "/usr/include"])
"""


@pytest.mark.parametrize("text", [LOOP, HELPED], ids=["in a loop", "by a helper"])
def test_a_setup_script_that_cannot_be_read_is_run_in_the_jail(tmp_path: Path, text: str) -> None:
    (tmp_path / "csrc" / "cuda").mkdir(parents=True)
    for name in ("gather", "scatter"):
        (tmp_path / "csrc" / f"{name}.cpp").write_text("")
        (tmp_path / "csrc" / "cuda" / f"{name}_cuda.cu").write_text("__global__ void k() {}")
    (tmp_path / "build_help.py").write_text(HELP)
    (tmp_path / "setup.py").write_text(text)
    assert not library.read(tmp_path).modules
    made = {m.name: m for m in setup_run.modules(tmp_path, targets.load("h100"), 120)}
    of_gpu = made["ops._gather_cuda"]
    assert tmp_path / "csrc" / "cuda" / "gather_cuda.cu" in of_gpu.sources
    assert all(path.is_relative_to(tmp_path) for m in made.values() for path in m.sources)
    assert all(path.is_relative_to(tmp_path) for m in made.values() for path in m.include)
    if text == LOOP:
        assert set(made) == {
            f"ops._{n}_{s}" for n in ("gather", "scatter") for s in ("cpu", "cuda")
        }
        assert of_gpu.defines == ("WITH_PYTHON", "WITH_CUDA", "LANES=32", "FAST")
        assert of_gpu.include == (tmp_path / "csrc",)


def test_a_setup_script_may_have_a_class_of_extensions_of_its_own(tmp_path: Path) -> None:
    text = """
from setuptools import Extension, setup
class CMakeExtension(Extension):
    def __init__(self, name, folder=""):
        Extension.__init__(self, name, sources=[])
        self.folder = folder
class Device(Extension):
    def __init__(self, name, files):
        super().__init__(name, files, include_dirs=["own"])
assert isinstance(Device("b", ["b.cu"]), Extension)
setup(ext_modules=[CMakeExtension("a")])
"""
    (tmp_path / "setup.py").write_text(text)
    device, cmake = setup_run.modules(tmp_path, targets.load("h100"), 120)
    assert (device.name, device.sources) == ("b", (tmp_path / "b.cu",))
    assert device.include == (tmp_path / "own",)
    assert (cmake.name, cmake.sources) == ("a", ())


def test_extensions_with_paths_that_no_file_has_are_left_out(tmp_path: Path) -> None:
    long, deep = "a" * 300 + ".cu", "/".join(["folder"] * 300)
    made = "".join(f"Extension('x', [{path!r}])\n" for path in (long, deep, "a.cu"))
    (tmp_path / "setup.py").write_text(f"from setuptools import Extension\n{made}")
    [module] = setup_run.modules(tmp_path, targets.load("h100"), 120)
    assert module.sources == (tmp_path / "a.cu",)
    (tmp_path / "a.cu").write_text("")
    odd = setup_script.Module("x", (tmp_path / long, tmp_path / "a\0.cu", tmp_path / "a.cu"))
    assert files_of(odd, tmp_path) == [tmp_path / "a.cu"]


def test_a_setup_script_that_fails_lists_what_it_made_before(tmp_path: Path) -> None:
    assert setup_run.modules(tmp_path, targets.load("h100"), 120) == []
    text = "from setuptools import Extension\nExtension('a', ['a.cu'])\nraise SystemExit(3)\n"
    (tmp_path / "setup.py").write_text(text)
    [made] = setup_run.modules(tmp_path, targets.load("h100"), 120)
    assert (made.name, made.sources) == ("a", (tmp_path / "a.cu",))


def test_a_package_that_only_has_to_be_imported_is_an_empty_one(tmp_path: Path) -> None:
    first, second = tmp_path / "models.py", tmp_path / "fast.py"
    first.write_text("from absent_hub.generation import Output, Streamer\nimport os, torch\n")
    second.write_text(
        "from . import models\nimport absent_plots.axes as axes\n"
        "try:\n    import absent_kernels\nexcept ImportError:\n    absent_kernels = None\n"
    )
    names = absent.packages([first, second])
    assert names == {"absent_hub", "absent_plots"}  # the other's absence has a meaning
    finder = absent.Absent(names)
    sys.meta_path.append(finder)
    try:
        import absent_hub.generation as hub  # type: ignore[import-not-found]
        import absent_plots.axes  # type: ignore[import-not-found]

        class Text(hub.Streamer):  # type: ignore[misc]
            """A class that a library derives from one of the package's."""

        with pytest.raises(ModuleNotFoundError) as error:
            Text()
        assert runner.cause(error.value) == "needs the package absent_hub"
        assert not hasattr(absent_plots.axes, "__path_of__")
        with pytest.raises(ImportError):
            importlib.import_module("absent_kernels")
    finally:
        sys.meta_path.remove(finder)


@pytest.mark.parametrize("way", ["autograd", "custom_op"])
def test_code_that_pytorch_calls_back_sees_a_gpu(way: str) -> None:
    seen: list[bool] = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(gradient.is_cuda)
            return gradient * 2

    with passing_for_gpu():
        x = torch.ones(3, device="cuda", requires_grad=True)
        if way == "autograd":
            Twice.apply(x).sum().backward()  # type: ignore[no-untyped-call]
            assert x.grad is not None and x.grad.eq(2).all()
        else:

            @torch.library.custom_op("portkern_tests::seen", mutates_args=())
            def asked(x: torch.Tensor) -> torch.Tensor:
                seen.append(x.is_cuda)
                return x.clone()

            asked(x)
    assert seen == [True]
    assert not torch.ones(1).is_cuda
