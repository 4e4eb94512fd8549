"""Kernels in strings of Python and C++ are found, ported where they stand, or said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from portkern.cuda_source import strings
from portkern.port import run
from portkern.port.request import PortRequest
from portkern.port.result import PortResult
from portkern.spec import target

KERNEL = """
extern "C" __global__ void first(const int* x, int* y) {
  y[threadIdx.x] = __shfl_down_sync(0xffffffff, x[threadIdx.x], 1);
}
"""
PORTED = KERNEL.replace("_sync(0xffffffff, x[threadIdx.x], 1)", "(x[threadIdx.x], 1, 32)")


def port(folder: Path, files: Mapping[str, str], *, build: bool) -> PortResult:
    """Translated and looked at, and built where asked; into ``tree``."""
    library = folder / "library"
    library.mkdir()
    for name, text in files.items():
        (library / name).write_text(text, encoding="utf-8")
    where = (target.load("gfx942"),)
    request = PortRequest(library, "hip", where, folder / "tree", prove=False, build=build)
    return run.run(request, folder / "run")


@pytest.mark.parametrize(
    "text",
    [
        f"k = cp.RawKernel(r'''{KERNEL}''', 'first')",
        f'source = """{KERNEL}"""',
        f'm = load_inline(name="m", cuda_sources=[R"""{KERNEL}"""], functions=["f"])',
        f"ä = 1; k = r'''{KERNEL}'''",
    ],
)
def test_a_kernel_in_a_string_of_python_is_found_where_it_stands(text: str) -> None:
    (place,) = strings.of_python(f"import x\n{text}\n")
    assert f"import x\n{text}"[place.begin : place.end] == KERNEL
    assert (place.line, place.problem) == (2, "")


@pytest.mark.parametrize(
    "text",
    [
        f'const char* k = R"({KERNEL})";',
        f'f(R"cuda({KERNEL})cuda", "first");',
        f'// "\nauto k = u8R"x({KERNEL})x";',
    ],
)
def test_a_kernel_in_a_raw_string_of_cxx_is_found_where_it_stands(text: str) -> None:
    (place,) = strings.of_cxx(text)
    assert text[place.begin : place.end] == KERNEL
    assert not place.problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k = f'''__global__ void k({T}* x) {{ x[0] = 1; }}'''", "f-string"),
        ("k = '__global__ void k(int* x) {\\n x[0] = 1; }'", "escapes"),
        ("import numba\n@numba.cuda.jit\ndef k(x): x[0] = 1", "numba.cuda"),
        ("from numba import cuda\n@cuda.jit('void(int32[:])')\ndef k(x): x[0] = 1", "numba.cuda"),
    ],
)
def test_what_python_makes_of_strings_is_said(text: str, said: str) -> None:
    (place,) = strings.of_python(text)
    assert said in place.problem


def test_pieces_of_a_string_of_cxx_are_said() -> None:
    text = 'const char* k =\n  "__global__ void k(int* x) {\\n"\n  "  x[0] = 1; }\\n";\n'
    (place,) = strings.of_cxx(text)
    assert (place.line, "pieces" in place.problem) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        '"""Of __global__ functions (kernels)."""',
        "x = '__global__'",
        "# __global__ void k() {}",
        "def f(:",
    ],
)
def test_other_text_has_no_kernel(text: str) -> None:
    assert strings.of_python(text) == ()


def test_a_changed_source_is_put_back_in_its_lines_and_nothing_else_changes() -> None:
    text = f"a = 1\nk = r'''{KERNEL}''', 'first'\nb = 2\n"
    (place,) = strings.of_python(text)
    alone = strings.alone(text, place)
    assert alone.count("\n") == text.count("\n")
    assert alone.split() == KERNEL.split()
    changed = alone.replace("first", "a_longer_name")
    assert strings.put_back(text, place, changed) == text.replace(
        "void first", "void a_longer_name"
    )
    assert strings.put_back(text, place, f"#include <a.h>\n{alone}") == text
    assert strings.put_back(text, place, alone + "\n") is None


def test_kernels_in_strings_are_translated_and_looked_at_under_their_files(tmp_path: Path) -> None:
    lock = KERNEL.replace("first", "lock").replace("  y[", "  while (atomicCAS(y, 0, 1)) {}\n  y[")
    files = {
        "ops.py": f"import cupy\nk = cupy.RawKernel(r'''{lock}''', 'lock')\n",
        "jit.cpp": f'#include <nvrtc.h>\nconst char* k = R"({KERNEL})";\n',
        "said.py": "k = f'''__global__ void k({T}* x) {{ x[0] = 1; }}'''\n",
    }
    result = port(tmp_path, files, build=False)
    kernels = {file.path: file.kernels for file in result.files if file.kernels}
    assert kernels == {"ops.py": 1, "jit.cpp": 1}
    (hazard,) = (h for file in result.files for h in file.hazards if h.code == "PK049")
    assert hazard.line == 4
    assert [file.path for file in result.unread] == ["said.py"]
    assert result.exit_code == 1


@pytest.mark.full
def test_a_port_of_a_string_stands_in_the_host_file_as_that_was_translated(tmp_path: Path) -> None:
    texts = {
        "ops.py": f"import cupy\nk = cupy.RawKernel(r'''{KERNEL}''', 'first')\n",
        "jit.cpp": f'#include <nvrtc.h>\nconst char* k = R"({KERNEL})";\nnvrtcProgram p;\n',
    }
    port(tmp_path, texts, build=True)
    done = {name: (tmp_path / "tree" / name).read_text("utf-8") for name in texts}
    assert done["ops.py"] == texts["ops.py"].replace(KERNEL, PORTED)
    assert PORTED in done["jit.cpp"]
    assert "hiprtcProgram p;" in done["jit.cpp"]
