"""The headers of PyTorch that a file begins with are found, and precompiled where nothing before
them can change what they say."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from portkern.port import first_headers as found_first
from portkern.port import torch_headers
from portkern.port.device_build import Built, build
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


def _found(text: str, folder: Path, **others: str) -> FirstHeaders | None:
    for name, content in others.items():
        (folder / f"{name}.h").write_text(content, encoding="utf-8")
    file = folder / "kernels.cu"
    file.write_text(text, encoding="utf-8")
    return found_first.of(file, (), NONE)


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
    ],
)
def test_a_file_that_begins_with_something_else_has_none(before: str, tmp_path: Path) -> None:
    assert _found(f"{before}#include <torch/extension.h>\n", tmp_path) is None


def test_the_librarys_own_headers_are_looked_into_and_their_macros_kept(tmp_path: Path) -> None:
    first = _found('#define N 2\n#include "own.h"\n', tmp_path, own=OWN, macros=MACROS)
    assert first is not None and first.names == ("torch/torch.h",)
    assert first.macros == ("N", "OWN_API", "OWN_H")


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
        assert isinstance(known, Built), known
        made.append(known.kernels)
    assert made[0] == made[1] and [kernel.kernel for kernel in made[0]] == ["twice"]
    assert len(list((tmp_path / "cache").rglob("first.pch"))) == 1
