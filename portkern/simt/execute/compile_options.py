"""Checks of a source before it is compiled for the executor, and why it could not be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import BuildError
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute.machine import Language
from portkern.simt.execute.options import Mode
from portkern.simt.translate.includes import reaches
from portkern.spec.target import Target

COMPILE_TIMEOUT_S = 180.0


class UnmodelledSource(BuildError):
    """The source uses what the executor has no model of; ``found`` names each with its line."""

    def __init__(self, diagnostics: Sequence[Diagnostic], *, log: str = "") -> None:
        super().__init__("; ".join(map(str, diagnostics)), log=log)
        self.diagnostics = tuple(diagnostics)


@dataclass(frozen=True)
class CompileOptions:
    """How a source file is compiled. The facts that it sees are ``target``'s (H100's when None);
    ``language`` is what the file's name says when None. ``defines`` are macros, ``search`` folders
    of includes. ``objects``: kernels are executed as they are compiled for the target, and only
    their launches are made here. ``statements``: those of assembler are listed beside the program,
    in a file whose name :func:`portkern.simt.execute.build.listing` tells."""

    target: Target | None = None
    language: Language | None = None
    mode: Mode = "fast"
    defines: Sequence[str] = ()
    search: Sequence[Path] = ()
    timeout_s: float = COMPILE_TIMEOUT_S  # for each file
    objects: bool = False
    statements: bool = False


def language_of(*paths: Path) -> Language:
    """HIP where a file is called so or includes HIP: hipcc takes ``.cu`` and ``.cpp`` as well."""
    hip = any(path.suffix == ".hip" or reaches(path, _OF_HIP) for path in paths)
    return "hip" if hip else "cuda"


_OF_HIP = re.compile(
    rb"^[ \t]*#[ \t]*include[ \t]*[<\"](hip|hipcub|rocprim|hipblas|rocblas)/", re.MULTILINE
)
