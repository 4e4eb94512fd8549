"""A candidate's companions as files, where a compiler finds them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from portkern.spec.candidate import Candidate

#: The folder within a build's own; messages name files in it as they are in the project.
FOLDER = ".project"
_MACROS = ".macros.h"


@dataclass(frozen=True)
class SourceTree:
    """``beside`` is the folder of quoted includes of the source itself, ``include`` are those of
    all includes; ``after`` stands after the source's text. ``path`` is the source's within the
    project. ``macros`` are the ``defines`` as lines of a source."""

    root: Path
    beside: Path
    path: str = ""
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    after: str = ""
    macros: str = ""

    @property
    def flags(self) -> list[str]:
        """The flags for compilers with GCC's options."""
        beside = ["-iquote", str(self.beside)] if self.search else []
        include = [flag for folder in self.include for flag in ("-I", str(folder))]
        return [*(f"-D{define}" for define in self.defines), *beside, *include]

    @property
    def nvcc_flags(self) -> list[str]:
        """It has no folder of quoted includes alone, and takes a macro with a comma for two."""
        macros = ["-include", str(self.root / _MACROS)] if self.defines else []
        return [*macros, *(flag for folder in self.search for flag in ("-I", str(folder)))]

    @property
    def search(self) -> tuple[Path, ...]:
        """The folders to search; empty for a source that stands alone."""
        return (self.beside, *self.include) if self.beside != self.root.parent else ()


def write(candidate: Candidate, workdir: Path) -> SourceTree:
    """Below ``workdir``; nothing for a source that stands alone."""
    companions, workdir = candidate.companions, workdir.absolute()
    root = workdir / FOLDER
    if not companions:
        return SourceTree(root, workdir)
    for name, text in companions.files:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    root.mkdir(parents=True, exist_ok=True)
    macros = companions.macros
    (root / _MACROS).write_text(f"{macros}\n", encoding="utf-8")
    beside = (root / companions.path).parent
    for folder in (beside, *(root / name for name in companions.include)):
        folder.mkdir(parents=True, exist_ok=True)
    # By way of the tree's own name: beside the unit there may be files of the project's names.
    up = os.path.relpath(workdir, beside)
    after = "".join(f'\n#include "{up}/{FOLDER}/{name}"' for name in companions.sources)
    include = tuple(root / name for name in companions.include)
    after = f"{after}\n" if after else ""
    return SourceTree(root, beside, companions.path, include, companions.defines, after, macros)


def named(path: str) -> str:
    """A path of a compiler's as the project has it; empty of another file."""
    return path.rpartition(f"{FOLDER}/")[2] if f"{FOLDER}/" in path else ""
