"""The first line of a build's failure: an error in the author's file, under the author's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.cells.selection import host_targets
from portkern.cli import main
from portkern.toolchain.compiler_log import first_error

GCC = """\
relu.cpp: In function 'int relu(const float*, float*)':
relu.cpp:4:59: error: 'x' was not declared in this scope
    4 |     x = 1;
"""
GCC_TEMPLATE = """\
In file included from /usr/include/c++/12/bits/stl_algobase.h:71,
                 from /tmp/build-1/relu.unit.cpp:2:
/usr/include/c++/12/bits/ops.h: In instantiation of 'bool operator()(A, B)':
/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'void std::sort(I, I)'
relu.cpp:6:14:   required from here
/usr/include/c++/12/bits/ops.h:45:23: error: no match for 'operator<'
   45 |       { return *__it1 < *__it2; }
"""
CLANG_TEMPLATE = """\
In file included from /tmp/build-1/relu.cpp:1:
/usr/include/ops.h:45:23: error: invalid operands
/usr/include/algo.h:10:3: note: in instantiation of 'f<P>' requested here
/tmp/build-1/relu.cpp:6:10: note: in instantiation of 'sort<P>' requested here
"""
CLANG_OWN_LATER = """\
/usr/include/ops.h:45:23: error: invalid operands
/tmp/build-1/relu.cpp:9:3: fatal error: 'no.h' file not found
"""
NVCC = """\
relu.cu(2): error: identifier "y" is undefined
      y[0] = 1;
      ^
"""
NVCC_TEMPLATE = """\
/usr/include/cub/block.cuh(99): error: no instance of overloaded function
          detected during instantiation of "T f(T)" at line 7 of /tmp/build-1/relu.cu
"""
NUMBA = """\
Failed in nopython mode pipeline (step: nopython frontend)
Unknown attribute 'nothing' of type float32

File "../../tmp/build-1/relu.py", line 6:
def relu(x, y):
"""
TRITON = """\
relu.py:10 in relu: k[(1,)](x, y)
relu.py:7 in k: tl.store(y, z)
NameError: z is not defined
"""
OPENCL = """\
SOURCE:3:5: error: use of undeclared identifier 'z'
"""


@pytest.mark.parametrize(
    ("log", "headline"),
    [
        (GCC, "k.cpp:4:59: error: 'x' was not declared in this scope"),
        (GCC_TEMPLATE, "k.cpp:6:14: error: no match for 'operator<' (in ops.h:45)"),
        (CLANG_TEMPLATE, "k.cpp:6:10: error: invalid operands (in ops.h:45)"),
        (CLANG_OWN_LATER, "k.cpp:9:3: fatal error: 'no.h' file not found"),
        (NVCC, 'k.cpp:2: error: identifier "y" is undefined'),
        (NVCC_TEMPLATE, "k.cpp:7: error: no instance of overloaded function (in block.cuh:99)"),
        (NUMBA, "k.cpp:6: error: Unknown attribute 'nothing' of type float32"),
        (TRITON, "k.cpp:7: error: the tool failed"),
        (OPENCL, "SOURCE:3:5: error: use of undeclared identifier 'z'"),
    ],
)
def test_the_headline_is_the_first_error_that_the_author_can_act_on(
    log: str, headline: str
) -> None:
    error = first_error("the tool failed", log, own={"relu", "SOURCE"}, name="k.cpp")
    assert error is not None
    assert error.headline == headline
    assert headline not in error.rest and "relu.c" not in error.rest


def test_a_log_without_a_place_has_no_first_error() -> None:
    log = "ld.lld: error: undefined symbol: f\nwarning: something\n"
    assert first_error("ld failed", log, own={"relu"}, name="k.cpp") is None


def test_check_says_a_compilers_first_error_first_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bad.cpp").write_text(
        '#include <vector>\nextern "C" int relu(const float* x, float* y, int64_t n) {\n'
        "    return nothing;\n}\n"
    )
    argv = ["op=relu", "backend=cpu", f"target={host_targets()[0]}"]
    assert main.run(["check", *argv, "source=mine/bad.cpp"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("mine/bad.cpp:3:12: error: ")
    assert shown.err.count("mine/bad.cpp:3:12: error: ") == 1
    assert "failed with status" not in shown.err + shown.out
    assert shown.out.count("build_failed") == 2  # sizes
