"""PyTorch's C++ headers as its build for AMD has them, from the torch that is installed here.

A build for CPUs ships its headers for CUDA too, and the build for AMD has the same, translated. So
they are translated here. What they name and no package here has, ``include/`` has a stand-in of.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from portkern.port import stand_ins
from portkern.port.library import Library
from portkern.port.request import PortRequest
from portkern.port.source_text import INCLUDE
from portkern.port.translate import translate
from portkern.port.translated import TranslatedFile
from portkern.records import atomic_write
from portkern.toolchain.run_tool import package_dir, package_version

_OF_TORCH = re.compile(r"(?:torch|ATen|c10|THC)/")
#: Folders of headers that are for GPUs alone.
_FOR_GPUS = re.compile(r"(?:^|/)(?:cuda|cudnn|hip)/")
#: A header for AMD is called after the one for CUDA.
_OF_CUDA = re.compile(r"((?:c10|ATen|ATen/native)/)cuda/((?:\w+/)*)(?:CUDA)?(\w+\.\w+)")
#: What the setup of an extension defines for AMD, beside its own macros.
_DEFINES = (
    "USE_ROCM=1",
    "__HIP_PLATFORM_AMD__=1",
    "HIPBLAS_V2",
    "CUDA_HAS_FP16=1",
    "TORCH_API_INCLUDE_EXTENSION_H",
    "TORCH_EXTENSION_NAME=portkern_extension",
)


@dataclass(frozen=True)
class TorchHeaders:
    """``remark`` says whose they are."""

    include: tuple[Path, ...]
    defines: tuple[str, ...]
    remark: str

    def macros(self, own: Sequence[str]) -> tuple[str, ...]:
        """The library's own macros, and those of these that it does not define itself."""
        known = {item.partition("=")[0] for item in own}
        return (*own, *(item for item in self.defines if item.partition("=")[0] not in known))


def of_files(
    files: Iterable[TranslatedFile], request: PortRequest, read: Library
) -> TorchHeaders | None:
    """The headers for the files of a library's port."""
    texts = (file.translation.text for file in files)
    return of(texts, (*request.include, *read.include)) if request.to == "hip" else None


def of(texts: Iterable[str], include: Sequence[Path]) -> TorchHeaders | None:
    """The headers for sources with these texts; None where none names PyTorch, where a folder of
    ``include`` has its headers, and where no torch is installed."""
    texts = list(texts)
    names = {name for text in texts for name in INCLUDE.findall(text)}
    if not any(_OF_TORCH.match(name) for name in names) or any(map(_has_torch, include)):
        return None
    package = package_dir("torch")
    root = package / "include" if package is not None else None
    if root is None or not _has_torch(root):
        return None
    for_amd = (root / "c10" / "hip" / "HIPStream.h").is_file()
    own = () if for_amd else _translated(root, "\n".join(texts))
    python = of_python(Path(sysconfig.get_path("include")))
    remark = f"host code was read by the headers of torch {package_version('torch')}"
    if not for_amd:
        remark += ", of which those for CUDA were translated, and by stand-ins of AMD's libraries"
    folders = (*own, root / "torch" / "csrc" / "api" / "include", root, *python)
    return TorchHeaders((*folders, Path(str(files("portkern.port"))) / "include"), _DEFINES, remark)


@lru_cache(maxsize=8)
def of_python(include: Path) -> tuple[Path, ...]:
    """Folders of Python's headers. Where its pyconfig.h stands for one of each processor, which the
    system's compiler finds beside (``x86_64-linux-gnu/python3.12/pyconfig.h``), they are put where
    a compiler for other systems finds them: it is not shown the system's headers."""
    config = include / "pyconfig.h"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    beside = {n: p for n in INCLUDE.findall(text) if (p := include.parent / n).is_file()}
    made = {name: path.read_text("utf-8", "replace") for name, path in beside.items()}
    return (include, _kept("python", made)) if made else (include,)


def _has_torch(folder: Path) -> bool:
    return (folder / "ATen" / "ATen.h").is_file()


@lru_cache(maxsize=8)
def _translated(root: Path, text: str) -> tuple[Path, Path]:
    """Folders of the headers for GPUs, the same for all libraries, and of AMD's libraries."""
    made = _for_amd(root)
    return _kept("torch", made), stand_ins.folder([*made.values(), text])


def _kept(what: str, headers: Mapping[str, str]) -> Path:
    """The folder that these lie in, by their names."""
    digest = hashlib.sha256(repr(sorted(headers.items())).encode()).hexdigest()[:24]
    place = stand_ins.home() / f"{what}-{digest}"
    for name, content in headers.items():
        if not (place / name).is_file():
            atomic_write.write(place / name, content)
    return place


@lru_cache(maxsize=2)
def _for_amd(root: Path) -> Mapping[str, str]:
    """Each header for GPUs, translated, by its name; and by the name that it has for AMD, where
    PyTorch has none of that name."""
    made: dict[str, str] = {}
    api = root / "torch" / "csrc" / "api" / "include"
    for file in sorted(file for end in ("*.h", "*.cuh") for file in root.rglob(end)):
        name = file.relative_to(api if file.is_relative_to(api) else root).as_posix()
        if _FOR_GPUS.search(name):
            made[name] = translate(file.read_text("utf-8", "replace"), name).text
    for name in [*made]:
        if (found := _OF_CUDA.fullmatch(name)) is not None:
            for prefix in ("HIP", ""):
                of_amd = f"{found[1]}hip/{found[2]}{prefix}{found[3]}"
                made.setdefault(of_amd, f"#pragma once\n#include <{name}>\n")
    return made
