"""A source file of somebody's own, built as it is: no operator, no entry point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from portkern.spec.target import Target


@dataclass(frozen=True)
class FirstHeaders:
    """Headers that a file includes first, by ``names`` and in this order: of the folders
    ``include``, under ``defines``. ``macros`` are defined before; where a header asks for one of
    them, it is another header there."""

    names: tuple[str, ...]
    include: tuple[Path, ...]
    defines: tuple[str, ...]
    macros: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileBuild:
    """``include`` are folders, ``defines`` are ``NAME`` or ``NAME=VALUE``. ``further`` are sources
    that the file is linked with, as relocatable device code. ``precompiled`` has the headers
    that it includes first, where they are: one file or none."""

    file: Path
    target: Target
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    standard: str = "c++17"
    timeout_s: float = 120.0
    further: tuple[Path, ...] = ()
    precompiled: tuple[Path, ...] = ()


@dataclass(frozen=True)
class KernelObject:
    """The facts that an object file states about one kernel. ``name`` is readable, ``symbol`` the
    linker's.

    Registers are a thread's (VGPRs, AGPRs) or a wave's (SGPRs); spills count registers. On NVIDIA
    ``vgprs`` are a thread's registers, ``lds_bytes`` is shared memory, and there are no SGPRs.
    ``threads`` is the block size that it was compiled for at most.
    """

    name: str
    symbol: str
    vgprs: int
    agprs: int
    sgprs: int | None
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    threads: int
    wave: int


@dataclass(frozen=True)
class FileObject:
    """``headers`` are the files that were included, without the toolchain's own."""

    object: Path
    kernels: tuple[KernelObject, ...]
    headers: tuple[Path, ...]
    log: str


@runtime_checkable
class FileBuilder(Protocol):
    """A backend that builds whole files for a target; host code in them is only read."""

    def build_file(self, request: FileBuild, workdir: Path) -> FileObject:
        """Builds a file into ``workdir``. Raises BuildError with the compiler's log,
        BackendUnavailable."""
        ...


@runtime_checkable
class HeaderPrecompiler(Protocol):
    """A backend that precompiles the headers which many files begin with."""

    def precompile(self, request: FileBuild, first: FirstHeaders) -> Path | None:
        """The file, made at its first use, in a folder of its own; None where the file that is
        built would read other headers."""
        ...
