"""The study of samples: which programs build files make, and how a run ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import run_samples, sample_programs

CMAKE = """
project(demo LANGUAGES CXX CUDA)  # a comment (with brackets)
set(sources kernel.cu)
list(APPEND sources host.cpp)
include_directories(../../Common ${UNKNOWN}/include)
add_executable(${PROJECT_NAME} ${sources} main.cpp header.h)
target_include_directories(demo PRIVATE inc none)
target_compile_definitions(demo PRIVATE -DN=4)
target_link_libraries(demo PRIVATE CUDA::cufft)
add_executable(made generated.cpp)
"""
MAKE = """
program = main
source = main.cu \\
         more.cu
CFLAGS := $(EXTRA) -std=c++17 -I../inc -DN=$(SIZE) -Wall
SIZE = 3
LDFLAGS = -lcufft
run: $(program)
\t# ./main 1 2
\t$(LAUNCHER) ./$(program) -f in.txt 4096 100
"""


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_cmake_says_sources_folders_macros_and_libraries(tmp_path: Path) -> None:
    here = "cuda-samples/Samples/demo"
    texts = {"main.cpp": "int main(int argc, char **argv) {}", "kernel.cu": "", "host.cpp": ""}
    written(tmp_path, {f"{here}/{name}": text for name, text in texts.items()})
    written(tmp_path, {f"{here}/CMakeLists.txt": CMAKE, f"{here}/inc/a.h": ""})
    written(tmp_path, {"cuda-samples/Common/b.h": ""})
    (program,) = sample_programs.programs(tmp_path)
    assert program.sources == ("main.cpp", "kernel.cu", "host.cpp")
    assert (program.includes, program.defines) == (("../../Common", "inc"), ("N=4",))
    assert (program.libraries, program.target) == (("CUDA::cufft",), "sm_90")


def test_a_makefile_says_the_same_and_what_it_runs_with(tmp_path: Path) -> None:
    texts = {"main.cu": "int main() {}", "more.cu": "", "Makefile": MAKE}
    written(tmp_path, {f"HeCBench/src/demo-hip/{name}": text for name, text in texts.items()})
    written(tmp_path, {"HeCBench/src/inc/a.h": ""})
    (program,) = sample_programs.programs(tmp_path)
    assert (program.sources, program.includes) == (("main.cu", "more.cu"), ("../inc",))
    assert program.arguments == ("-f", "in.txt", "4096", "1")
    assert (program.target, program.libraries) == ("gfx942", ("cufft",))


LATE = {"code": "SX405", "message": "", "severity": "error"}


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ({"built": False, "findings": []}, "not built"),
        ({"built": False, "findings": [{"code": "SX003"}]}, "refused"),
        ({"status": 0, "output": "max error 0.1, PASSED"}, "right"),
        ({"status": 0, "output": "it failed as expected"}, "right"),
        ({"status": 0, "output": "Test failed!"}, "wrong"),
        ({"status": 1, "output": ""}, "wrong"),
        ({"status": 2, "output": "waived"}, "waived"),
        ({"status": 1, "output": "Error: failed to open file a.csv"}, "no file"),
        ({"status": None, "output": "", "findings": [LATE]}, "timeout"),
        ({"status": 1, "output": "code=702", "findings": [LATE]}, "timeout"),
    ],
)
def test_how_a_run_ended(answer: dict[str, Any], end: str) -> None:
    assert run_samples.end({"built": True, "findings": [], **answer}) == end


def test_the_page_has_the_table_of_the_results() -> None:
    page = Path(__file__).parents[1] / "docs" / "simt-samples.md"
    assert run_samples.table(run_samples.results()["programs"]) in page.read_text(encoding="utf-8")
