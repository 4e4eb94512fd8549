"""Files around a file tell how it is translated and looked at."""

from __future__ import annotations

from pathlib import Path

from portkern.port import library
from portkern.port.request import PortRequest
from portkern.port.translated import TranslatedFile, translated
from portkern.spec import target

SUM = "__device__ inline float sum(float v) { return v + __shfl_xor(v, 32); }\n"
HIP = '#include <hip/hip_runtime.h>\n#include "sum.h"\nvoid run(float* x) { hipFree(x); }\n'
CUDA = '#include "sum.h"\nvoid run(float* x) { cudaFree(x); }\n'
STREAMED = "__global__ void k(float* x) { __stcs(x, 1.f); }\n"


def port(folder: Path, **files: str) -> dict[str, TranslatedFile]:
    """Files by their names, with two underlines for a dot."""
    for name, text in files.items():
        path = folder / "program" / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    request = PortRequest(
        folder / "program", "hip", (target.load("gfx942"),), folder / "tree", build=False
    )
    return {file.name: file for file in translated(library.read(request.path), request)}


def text(file: TranslatedFile) -> str:
    return file.translation.text


def codes(file: TranslatedFile) -> list[str]:
    return [hazard.code for hazard in file.seen["gfx942"]]


def test_a_header_that_hip_sources_alone_include_is_hip(tmp_path: Path) -> None:
    assert text(port(tmp_path, a__hip=HIP, sum__h=SUM)["sum.h"]) == SUM


def test_a_source_whose_headers_are_hip_is_hip(tmp_path: Path) -> None:
    source = '#include "all.h"\n' + SUM
    files = port(tmp_path, a__cu=source, all__h="#include <hip/hip_runtime.h>\n")
    assert text(files["a.cu"]) == source


def test_a_header_that_a_cuda_source_includes_has_warps_of_32(tmp_path: Path) -> None:
    assert "__shfl_xor(v, 32, 32)" in text(port(tmp_path, a__cu=CUDA, sum__h=SUM)["sum.h"])
    both = port(tmp_path, b__hip=HIP)
    assert "__shfl_xor(v, 32, 32)" in text(both["sum.h"])


def test_a_file_beside_sources_of_both_vendors_has_warps_of_32(tmp_path: Path) -> None:
    either = "#ifdef USE_ROCM\n#include <hip/hip_runtime.h>\n#endif\n"
    source = '#include "compat.h"\n' + SUM
    files = port(tmp_path, a__cu=source, compat__h=either)
    assert "__shfl_xor(v, 32, 32)" in text(files["a.cu"])


def test_a_header_of_hip_sources_that_names_cuda_is_translated(tmp_path: Path) -> None:
    sums = SUM + "inline void drop(float* x) { cudaFree(x); }\n"
    assert "hipFree(x)" in text(port(tmp_path, a__hip=HIP, sum__h=sums)["sum.h"])


def test_what_an_included_header_defines_is_not_missing(tmp_path: Path) -> None:
    patched = "#define __stcs(p, v) (*(p) = (v))\n"
    source = '#include "first.h"\n' + STREAMED
    files = port(tmp_path, a__hip=HIP + source, first__h='#include "last.h"\n', last__h=patched)
    assert not codes(files["a.hip"])
    apart = port(tmp_path / "apart", a__hip=HIP + STREAMED, last__h=patched)
    assert codes(apart["a.hip"]) == ["PK027"]


def test_a_header_elsewhere_is_known_where_the_build_says_where(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "types.h").write_text("typedef __hip_bfloat16 __nv_bfloat16;\n", encoding="utf-8")
    (shared / "helper_functions.h").write_text("inline int help() { return 1; }\n")
    source = "#include <hip/hip_runtime.h>\n__global__ void k(__nv_bfloat16* x);\n"
    own = '#include "types.h"\n#include "helper_functions.h"\nvoid run() { cudaDeviceReset(); }\n'
    files = port(tmp_path, a__hip='#include "types.h"\n' + source, b__cu=own)
    assert [codes(files[name]) for name in ("a.hip", "b.cu")] == [["PK044"], ["PK102"]]
    files = port(tmp_path, Makefile="run:\n\thipcc -I../shared a.hip\n")
    assert [codes(files[name]) for name in ("a.hip", "b.cu")] == [[], []]


def test_a_copy_of_a_cuda_header_is_the_librarys_own(tmp_path: Path) -> None:
    constants = (
        "#define CUDART_INF_F __int_as_float(0x7f800000)\n"
        "#define CUDART_REMQUO_BITS_F 3\n"
        "#define CUDART_REMQUO_MASK_F (~((~0) << CUDART_REMQUO_BITS_F))\n"
    )
    source = '#include "math_constants.h"\n__device__ float most() { return CUDART_INF_F; }\n'
    run = "void run(float* x) { cudaFree(x); }\n"
    files = port(tmp_path, a__cu=source + run, math_constants__h=constants)
    assert text(files["math_constants.h"]) == constants
    assert source in text(files["a.cu"])
    assert not codes(files["math_constants.h"])
    assert not codes(files["a.cu"])
    hip = port(tmp_path / "hip", a__hip=HIP + source, sum__h=SUM, math_constants__h=constants)
    assert not codes(hip["a.hip"])
    assert not codes(hip["math_constants.h"])


def test_without_its_own_copy_a_constant_is_hips(tmp_path: Path) -> None:
    files = port(tmp_path, a__cu="__device__ float most() { return CUDART_INF_F; }\n")
    assert "return HIP_INF_F;" in text(files["a.cu"])
    files = port(tmp_path, a__cu="__device__ float bits() { return CUDART_REMQUO_BITS_F; }\n")
    assert "PK101" in codes(files["a.cu"])


def test_what_sources_ask_of_builds_for_amd_is_defined_there(tmp_path: Path) -> None:
    port(
        tmp_path,
        a__cu="#if defined(USE_ROCM)\n#endif\n" + CUDA,
        b__cu="#ifdef USE_HIP_RT\n#endif\n",
    )
    assert library.read(tmp_path / "program").for_amd == ("USE_ROCM",)


def test_a_macro_of_a_header_that_pastes_a_name_is_expanded_where_it_is_used(
    tmp_path: Path,
) -> None:
    macro = "#define WARP(kind, v) __shfl_##kind##_sync(~0u, v, 1)\n"
    source = '#include "warp.h"\n__device__ int f(int v) { return WARP(xor, v); }\n'
    files = port(tmp_path, a__cu=source, warp__h=macro)
    assert "return __shfl_xor(v, 1, 32);" in text(files["a.cu"])
    assert text(files["warp.h"]) == macro
