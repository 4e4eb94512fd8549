"""The headers of PyTorch that a file begins with are found, and precompiled where nothing before
them can change what they say."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from portkern.errors import BuildError
from portkern.port import first_headers as found_first
from portkern.port import torch_headers
from portkern.port.device_build import DeviceBuilt, build
from portkern.port.torch_headers import TorchHeaders
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.spec.file_build import FileBuild, FirstHeaders

clang = import_module("portkern.backends.hip.clang")
first_headers = import_module("portkern.backends.hip.first_headers")
NONE = TorchHeaders((), (), "")
OWN = """\
#ifndef OWN_H
#define OWN_H
#include "macros.h"
#include <torch/torch.h>
int own();
#endif
"""
MACROS = """\
#pragma once
#ifdef _WIN32
#define OWN_API __declspec(dllexport)
#else
#define OWN_API
#endif
"""


def _found(
    text: str, folder: Path, defines: tuple[str, ...] = (), **others: str
) -> FirstHeaders | None:
    for name, content in others.items():
        (folder / f"{name}.h").write_text(content, encoding="utf-8")
    file = folder / "kernels.cu"
    file.write_text(text, encoding="utf-8")
    return found_first.of(file, (), NONE, defines)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("// ours\n#include <vector>\n#include <torch/extension.h>\nint x;", ["torch/extension.h"]),
        (
            "#include <hip/hip_runtime.h>\n#include <ATen/cuda/Atomic.cuh>\n#include <ATen/ATen.h>"
            "\n#include <c10/util/Half.h>\n",
            ["ATen/cuda/Atomic.cuh", "ATen/ATen.h"],
        ),
        ("#include <c10/util/Half.h>\n#include <map>\nint x;", ["c10/util/Half.h"]),
    ],
)
def test_headers_up_to_the_first_that_brings_most_others_are_found(
    text: str, names: list[str], tmp_path: Path
) -> None:
    first = _found(text, tmp_path)
    assert first is not None and (list(first.names), first.macros) == (names, ())


@pytest.mark.parametrize(
    "before",
    [
        "int x;\n",
        "#ifdef WITH\n#include <torch/types.h>\n#endif\nint x;\n",
        "#pragma pack(1)\n",
        "#include <cub/cub.cuh>\n",
        '#include "absent.h"\n',
        "#include NAME\n",
        "#error no\n",
        '#include "/dev/null"\n',
        "#include <torch/../../secret.h>\n",
        '#include "torch//secret.h"\n',
        "/* #include <torch/torch.h> */ int x;\n",
        f'#include "{"a" * 300}.h"\n',
        '#include "a\0.h"\n',
        "#ifndef N\n#define N 4\n#endif\n#ifdef WITH\n#include <torch/types.h>\n#endif\nint x;\n",
        "#ifndef N\n#define N\n#else\n#include <torch/types.h>\n#endif\nint x;\n",
        "#ifndef N\n#define N\n#if M\n#include <torch/types.h>\n#endif\n#endif\nint x;\n",
        "#ifndef N\n#define N\n#endif\n#ifdef M\n#include <torch/types.h>\n#endif\n",
    ],
)
def test_a_file_that_begins_with_something_else_has_none(before: str, tmp_path: Path) -> None:
    assert _found(f"{before}#include <torch/extension.h>\n", tmp_path) is None


def test_the_librarys_own_headers_are_looked_into_and_their_macros_kept(tmp_path: Path) -> None:
    first = _found('#define N 2\n#include "own.h"\n', tmp_path, own=OWN, macros=MACROS)
    assert first is not None and first.names == ("torch/torch.h",)
    assert first.macros == ("N", "OWN_API", "OWN_H")


def test_a_macro_that_has_a_value_of_its_own_is_not_taken_for_a_guard(tmp_path: Path) -> None:
    first = _found("#ifndef N\n#define N 4\n#endif\n#include <ATen/ATen.h>\nint x;", tmp_path)
    assert first is not None and (first.names, first.macros) == (("ATen/ATen.h",), ("N",))


@pytest.mark.parametrize(
    ("before", "defines"),
    [("", ("OWN_H",)), ("", ("OWN_H=1",)), ("#define OWN_H\n", ()), ('#include "same.h"\n', ())],
)
def test_a_header_whose_guard_is_defined_has_none(
    before: str, defines: tuple[str, ...], tmp_path: Path
) -> None:
    same = "#ifndef OWN_H\n#define OWN_H\n#include <vector>\n#endif\n"
    text = f'{before}#include "own.h"\n'
    assert _found(text, tmp_path, defines, own=OWN, macros=MACROS, same=same) is None


def test_headers_that_include_each_other_come_to_an_end(tmp_path: Path) -> None:
    assert _found('#include "a.h"\n', tmp_path, a='#include "b.h"\n', b='#include "a.h"\n') is None


@pytest.mark.parametrize(
    ("macros", "own", "is_made"),
    [
        ((), "utils.h", True),
        (("N",), "utils.h", True),
        (("TORCH_N",), "utils.h", False),
        ((), "vector", False),
        ((), "ATen", False),
    ],
)
def test_what_would_be_read_otherwise_is_not_precompiled(
    macros: tuple[str, ...],
    own: str,
    is_made: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = clang.find()
    if isinstance(compiler, Missing):
        pytest.skip(str(compiler))
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    torch, library = tmp_path / "torch", tmp_path / "library"
    library.mkdir()
    (library / own).touch()
    for name in ("ATen/ATen.h", "vector"):
        (torch / name).parent.mkdir(parents=True, exist_ok=True)
        (torch / name).write_text("#ifdef TORCH_N\n#endif\n")

    def make(_: object, alone: FileBuild, names: tuple[str, ...], to: Path) -> None:
        assert (alone.include[0], names) == (torch, ("ATen/ATen.h",))
        listed = f"object: {torch}/ATen/ATen.h {torch}/vector\n"
        to.with_name("first.d").write_text(listed)
        to.touch()

    monkeypatch.setattr(first_headers, "_make", make)
    request = FileBuild(library / "k.cu", target.load("gfx942"), (library, torch, tmp_path / "no"))
    first = FirstHeaders(("ATen/ATen.h",), (torch, tmp_path / "no"), (), macros)
    assert (first_headers.made(compiler, request, first) is not None) == is_made
    defined = replace(request, defines=("TORCH_N=1",))
    assert first_headers.made(compiler, defined, first) is None


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if isinstance(clang.find(), Missing):
        pytest.skip(str(clang.find()))
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    return Path(first_headers.home())


def _made(folder: Path, name: str = "ATen/ATen.h") -> Path | None:
    request = FileBuild(folder / "k.cu", target.load("gfx942"), (folder,))
    made: Path | None = first_headers.made(clang.find(), request, FirstHeaders((name,), (), ()))
    return made


def _write(_: object, alone: FileBuild, names: tuple[str, ...], to: Path) -> None:
    to.with_name("first.d").write_text("object: a.h\n")
    to.touch()


def test_what_cannot_be_precompiled_is_tried_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def make(*asked: object) -> None:
        tried.append(asked)
        raise BuildError("no")

    monkeypatch.setattr(first_headers, "_make", make)
    assert [_made(tmp_path), _made(tmp_path)] == [None, None] and len(tried) == 1
    first_headers._FAILED.clear()  # as another process has it
    assert _made(tmp_path) is None and len(tried) == 1
    first_headers._FAILED.clear()
    [mark] = cache.glob("*/failed")
    os.utime(mark, (0, 0))
    assert _made(tmp_path) is None and len(tried) == 2


def test_what_was_used_of_late_is_kept_and_files_in_their_places_are_not(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_headers, "_make", _write)
    cache.mkdir(parents=True)
    for number in range(40):
        folder = cache / str(number)
        folder.mkdir()
        (folder / "first.pch").touch()
        if number < 20:
            os.utime(folder, (number + 1, number + 1))
    (cache / "torn").touch()
    new = _made(tmp_path)
    assert new is not None
    assert {path.name for path in cache.iterdir()} == {new.parent.name, *map(str, range(20, 40))}
    for number in range(50):
        _made(tmp_path, f"ATen/{number}.h")
    assert len(list(cache.glob("*/first.pch"))) == 64, "no more are made than may be read at once"


def test_what_another_process_has_just_removed_leaves_nothing_behind(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evicted(file: Path, make: object) -> None:
        cache.mkdir(parents=True, exist_ok=True)

    with monkeypatch.context() as patched:
        patched.setattr(first_headers, "make_once", evicted)
        assert _made(tmp_path) is None and list(cache.iterdir()) == []
    monkeypatch.setattr(first_headers, "_make", _write)
    assert _made(tmp_path) is not None


@pytest.mark.full
def test_code_is_the_same_with_precompiled_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = registry.load("hip").probe(target.load("gfx942"))
    if isinstance(answer, Missing):
        pytest.skip(str(answer))
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    headers = torch_headers.of(["#include <torch/types.h>"], ())
    if headers is None:
        pytest.skip("torch is not installed: pip install torch")
    file = tmp_path / "k.cu"
    file.write_text(
        "#include <torch/types.h>\n#include <c10/util/Half.h>\n"
        "__global__ void twice(c10::Half* x, int n) {\n"
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) x[i] = x[i] + x[i];\n}\n"
        "void all(torch::Tensor x) {\n"
        "    twice<<<1, 64>>>(x.data_ptr<c10::Half>(), x.numel());\n}\n"
    )
    first = found_first.of(file, headers.include, headers)
    assert first is not None
    made = []
    for each in (None, first):
        place = tmp_path / ("plain" if each is None else "precompiled")
        known = build(
            file,
            target.load("gfx942"),
            include=headers.include,
            defines=headers.macros(()),
            workdir=place,
            cache=False,
            timeout_s=400,
            first=each,
        )
        assert isinstance(known, DeviceBuilt), known
        made.append(known.kernels)
    assert made[0] == made[1] and [kernel.kernel for kernel in made[0]] == ["twice"]
    assert len(list((tmp_path / "cache").rglob("first.pch"))) == 1
