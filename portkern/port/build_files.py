"""The include folders, macros and programs that a library's build files name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from portkern.port import cmake_lists, makefile, setup_script, source_text
from portkern.port.setup_script import Module
from portkern.spec.safe_name import real_path
from portkern.toolchain.source_view import is_system

NAMES = ("setup.py", "CMakeLists.txt", "Makefile", "makefile", "GNUmakefile")


@dataclass(frozen=True)
class BuildSettings:
    """``sources`` are files that a build file names, ``programs`` and ``libraries`` those
    that it lists together, ``arguments`` what it starts its program with, ``modules`` extensions of
    PyTorch; ``problem`` says why it cannot be read."""

    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    programs: tuple[tuple[Path, ...], ...] = ()
    libraries: tuple[tuple[Path, ...], ...] = ()
    arguments: tuple[str, ...] = ()
    problem: str = ""
    modules: tuple[Module, ...] = ()

    def joined(self, others: Iterable[BuildSettings]) -> BuildSettings:
        parts = [self, *others]
        return BuildSettings(
            tuple(dict.fromkeys(path for part in parts for path in part.include)),
            tuple(dict.fromkeys(text for part in parts for text in part.defines)),
            tuple(dict.fromkeys(path for part in parts for path in part.sources)),
            tuple(dict.fromkeys(listed for part in parts for listed in part.programs)),
            tuple(dict.fromkeys(listed for part in parts for listed in part.libraries)),
            next((part.arguments for part in parts if part.arguments), ()),
            modules=tuple(dict.fromkeys(module for part in parts for module in part.modules)),
        )

    def within(self, folder: Path) -> tuple[BuildSettings, tuple[Path, ...]]:
        """The settings whose paths lie in this folder or are the system's, and the include
        folders that are left out because they do not. Whoever wrote a build file may name any
        place, and have it read."""

        def ours(path: Path) -> bool:
            real = real_path(path)
            return real.is_relative_to(folder) or is_system(real)

        kept = replace(
            self,
            include=tuple(filter(ours, self.include)),
            sources=tuple(filter(ours, self.sources)),
            programs=tuple(listed for listed in self.programs if all(map(ours, listed))),
            libraries=tuple(listed for listed in self.libraries if all(map(ours, listed))),
            modules=tuple(
                replace(module, include=tuple(filter(ours, module.include)))
                for module in self.modules
                if all(map(ours, module.sources))
            ),
        )
        return kept, tuple(path for path in self.include if not ours(path))


def read(file: Path, root: Path) -> BuildSettings:
    """Folders that are not there are left out."""
    source = source_text.read(file)
    if isinstance(source, source_text.UnreadableSource):
        return BuildSettings(problem=source.reason)
    sources: list[Path] = []
    programs: list[tuple[Path, ...]] = []
    libraries: list[tuple[Path, ...]] = []
    arguments: tuple[str, ...] = ()
    modules: list[Module] = []
    if file.name == "setup.py":
        extensions = setup_script.read(source.text, file)
        if isinstance(extensions, str):
            return BuildSettings(problem=extensions)
        include, defines = extensions.include, extensions.defines
        sources, modules = extensions.sources, extensions.modules
        libraries = [tuple(sources)] if len(sources) > 1 else []
    elif file.name == "CMakeLists.txt":
        include, defines = cmake_lists.settings(source.text, file.parent, root)
        for given, macros in _from_above(file.parent, root):
            include, defines = [*include, *given], [*defines, *macros]
        programs = cmake_lists.programs(source.text, file.parent, root)
        libraries = cmake_lists.libraries(source.text, file.parent, root)
    else:
        include, defines = makefile.settings(source.text, file.parent)
        programs = makefile.programs(source.text, file.parent)
        arguments = makefile.arguments(source.text, file.parent)
    folders = dict.fromkeys(real_path(path) for path in include if _is_dir(path))
    return BuildSettings(
        tuple(folders),
        tuple(dict.fromkeys(defines)),
        tuple(sources),
        tuple(programs),
        tuple(libraries),
        arguments,
        modules=tuple(modules),
    )


def _from_above(folder: Path, root: Path) -> Iterator[tuple[list[Path], list[str]]]:
    """The settings that the folders above give to this one, the nearest first."""
    for above in folder.parents if folder != root else ():
        if not above.is_relative_to(root):
            return
        source = source_text.read(above / "CMakeLists.txt")
        if not isinstance(source, source_text.UnreadableSource):
            yield cmake_lists.of_subfolder(source.text, above, root, folder)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
