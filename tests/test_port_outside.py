"""Headers that a program takes from another folder of its repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from portkern.port import library, outside, run, tree
from portkern.port.kernel_port import PortFile
from portkern.port.key import Keys
from portkern.port.request import PortRequest
from portkern.simt.execute import runtime_library
from portkern.spec import target
from portkern.spec.backend import Missing

KERNEL = """#include "block/first.h"
#include "host.h"
__global__ void k(float* x, int n) {
  float v = first(x[threadIdx.x]);
  if (threadIdx.x < n) x[threadIdx.x] = v;
}
void run(float* x, int n) { k<<<1, 64>>>(x, n); }
"""
FIRST = """#include "lanes.h"
__device__ inline float first(float v) { return __shfl_sync(0xffffffff, v, 0, LANES); }
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def written(folder: Path) -> PortRequest:
    files = {
        "program/k.cu": KERNEL,
        "program/Makefile": "FLAGS = -I../shared\n",
        "shared/block/first.h": FIRST,
        "shared/block/lanes.h": "#define LANES 32\n",
        "shared/host.h": "inline int answer() { return 42; }\n",
        "shared/unused.h": "__device__ inline int unused() { return 1; }\n",
    }
    write(folder, files)
    return PortRequest(
        folder / "program", "hip", (target.load("gfx942"),), folder / "tree", run_s=60.0
    )


def test_those_with_device_code_are_translated_with_what_they_include(tmp_path: Path) -> None:
    request = written(tmp_path)
    found = {str(file.path): file for file in outside.headers(library.read(request.path), request)}
    place = tree.place_of(tmp_path / "shared")
    assert set(found) == {f"{place}/block/first.h", f"{place}/block/lanes.h"}
    assert b"__shfl(v, 0, LANES)" in found[f"{place}/block/first.h"].after
    assert found[f"{place}/block/lanes.h"].after == b"#define LANES 32\n"


def test_they_have_a_part_in_the_answer(tmp_path: Path) -> None:
    request = written(tmp_path)

    def key() -> str:
        keys = Keys(library.read(request.path), {}, request)
        return keys.of(PurePosixPath("k.cu"), [], "gfx942")

    before = key()
    assert key() == before
    header = tmp_path / "shared/block/lanes.h"
    header.write_text("#define LANES 16\n", encoding="utf-8")
    assert key() != before


def test_the_trees_copy_comes_before_the_folder_itself(tmp_path: Path) -> None:
    request = written(tmp_path)
    folders = [tmp_path / "shared"]
    root, out = request.path, request.out
    assert tree.moved(folders, root=root, folder=out, complete=True) == (tmp_path / "shared",)
    copy = out / tree.place_of(tmp_path / "shared")
    copy.mkdir(parents=True)
    assert tree.moved(folders, root=root, folder=out, complete=True) == (copy, tmp_path / "shared")


def test_of_folders_that_the_user_names_only_the_projects_own_cuda_is_translated(
    tmp_path: Path,
) -> None:
    files = {
        "program/k.cu": '#include "ours.h"\n#include <theirs.h>\n__global__ void k(float* x) {}\n',
        "given/ours.h": '#include <cuda_fp16.h>\n#include "more.h"\n__device__ half h();\n',
        "given/more.h": "#define LANES 32\n",
        "given/theirs.h": "#include <cuda_fp16.h>\n__device__ half g();\n",
    }
    write(tmp_path, files)
    for path in (tmp_path / "program", tmp_path / "program/k.cu"):
        request = PortRequest(
            path, "hip", (target.load("gfx942"),), tmp_path / "tree", include=(tmp_path / "given",)
        )
        found = {file.path.name: file for file in outside.headers(library.read(path), request)}
        assert set(found) == {"ours.h", "more.h"}
        assert b"hip/hip_fp16.h" in found["ours.h"].after


@pytest.mark.full
@pytest.mark.skipif(isinstance(runtime_library.find(), Missing), reason=str(runtime_library.find()))
def test_a_kernel_that_uses_them_is_proven(tmp_path: Path) -> None:
    run.run(written(tmp_path), tmp_path / "report")
    (port,) = PortFile(tmp_path / "report").read()[0]
    assert (port.proof.outcome, port.not_built) == ("proven in emulation", ""), port.proof.why
    assert (tmp_path / "shared/block/first.h").read_text(encoding="utf-8") == FIRST
