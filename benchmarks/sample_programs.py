"""Finds the programs of collections of CUDA and HIP samples by their build files."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Suffixes of what a compiler is called for.
SOURCES = (".cu", ".hip", ".cpp", ".cc", ".cxx", ".c")
_MAIN = re.compile(r"^\s*(?:extern\s+\"C\"\s+)?(?:int|void|auto)\s+main\s*\(", re.MULTILINE)
#: The collections: how a checkout's folder is called, and the target that its programs are for.
_CUDA, _HIP = "sm_90", "gfx942"
#: So many of HeCBench's programs of each kind are drawn, with this seed.
DRAWN, SEED = {"cuda": 60, "hip": 30}, 2026


@dataclass(frozen=True)
class Program:
    """Sources, the one with main() first, and folders of includes are relative to ``folder``."""

    collection: str
    name: str
    folder: Path
    sources: tuple[str, ...]
    target: str
    includes: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def programs(folder: Path) -> list[Program]:
    """The programs of all collections whose checkouts are in ``folder``."""
    return [
        program
        for name, find in COLLECTIONS.items()
        if (folder / name).is_dir()
        for program in sorted(find(folder / name), key=lambda program: program.name)
    ]


def _cuda_samples(checkout: Path) -> Iterator[Program]:
    return _cmake(checkout, "cuda-samples", checkout / "Samples", _CUDA)


def _rocm_examples(checkout: Path) -> Iterator[Program]:
    return _cmake(checkout, "rocm-examples", checkout, _HIP)


def _hecbench(checkout: Path) -> Iterator[Program]:
    for kind, target in (("cuda", _CUDA), ("hip", _HIP)):
        made = [
            program
            for makefile in sorted((checkout / "src").glob(f"*-{kind}/Makefile"))
            for program in _makefile(makefile, f"HeCBench -{kind}", target)
        ]
        yield from random.Random(SEED).sample(made, min(DRAWN[kind], len(made)))


COLLECTIONS: Mapping[str, Callable[[Path], Iterator[Program]]] = {
    "cuda-samples": _cuda_samples,
    "rocm-examples": _rocm_examples,
    "HeCBench": _hecbench,
}


@dataclass
class _CMake:
    """The commands of one CMakeLists.txt, conditions left out: all of them hold."""

    variables: dict[str, str] = field(default_factory=dict)
    executables: dict[str, list[str]] = field(default_factory=dict)
    includes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    defines: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    libraries: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def read(self, text: str) -> None:
        text = re.sub(r"#[^\n]*", "", text)
        for command, inside in re.findall(r"^\s*(\w+)\s*\(([^()]*)\)", text, re.MULTILINE):
            words = self._words(inside)
            if words:
                self._obey(command.lower(), words)

    def _words(self, inside: str) -> list[str]:
        expanded = re.sub(
            r"\$\{(\w+)\}",
            lambda name: self.variables.get(name[1], "${unknown}"),
            inside.replace('"', " "),
        )
        return [word for word in re.split(r"[\s;]+", expanded) if word and "$" not in word]

    def _obey(self, command: str, words: list[str]) -> None:
        name, rest = words[0], words[1:]
        plain = [word for word in rest if word not in ("PRIVATE", "PUBLIC", "INTERFACE")]
        if command == "set":
            self.variables[name] = " ".join(rest)
        elif command == "project":
            self.variables["PROJECT_NAME"] = name
        elif command == "list" and name == "APPEND" and rest:
            before = self.variables.get(rest[0], "")
            self.variables[rest[0]] = f"{before} {' '.join(rest[1:])}".strip()
        elif command == "include_directories":
            self.includes[""] += words
        elif command == "add_executable":
            self.executables[name] = [word for word in plain if word.endswith(SOURCES)]
        elif command == "target_include_directories":
            self.includes[name] += plain
        elif command == "target_compile_definitions":
            self.defines[name] += [word.removeprefix("-D") for word in plain]
        elif command == "target_link_libraries":
            self.libraries[name] += plain


def _cmake(checkout: Path, collection: str, root: Path, target: str) -> Iterator[Program]:
    for path in sorted(root.rglob("CMakeLists.txt")):
        said = _CMake({"CMAKE_CURRENT_SOURCE_DIR": ".", "GPU_RUNTIME": "HIP"})
        said.read(path.read_text(encoding="utf-8", errors="replace"))
        for name, sources in said.executables.items():
            ordered = _main_first(path.parent, sources)
            if not ordered:
                continue
            where = str(path.parent.relative_to(checkout))
            yield Program(
                collection,
                where if len(said.executables) == 1 else f"{where}/{name}",
                path.parent,
                ordered,
                target,
                _folders(path.parent, [*said.includes[""], *said.includes[name]]),
                tuple(said.defines[name]),
                tuple(said.libraries[name]),
            )


def _makefile(path: Path, collection: str, target: str) -> Iterator[Program]:
    """A Makefile of HeCBench: ``source``, flags, and what its rule ``run`` calls first."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    variables: dict[str, str] = {}
    for name, value in re.findall(r"^(\w+)\s*[:?+]?=[ \t]*([^\n#]*)", text, re.MULTILINE):
        variables[name] = f"{variables.get(name, '')} {_expanded(value, variables)}".strip()
    named = variables.get("source", variables.get("SOURCES", "")).split()
    sources = [word for word in _globbed(path.parent, named) if word.endswith(SOURCES)]
    ordered = _main_first(path.parent, sources)
    if not ordered:
        return
    words = " ".join(variables.values()).split()
    run = re.search(r"^run:.*?^\t[^\n]*\./\$\(program\)([^\n]*)", text, re.MULTILINE | re.DOTALL)
    flags = [word for word in words if word[:2] in ("-I", "-D") and len(word) > 2]
    yield Program(
        collection,
        path.parent.name,
        path.parent,
        ordered,
        target,
        _folders(path.parent, [word[2:] for word in flags if word[1] == "I"]),
        tuple(dict.fromkeys(word[2:] for word in flags if word[1] == "D")),
        tuple(dict.fromkeys(word[2:] for word in words if word.startswith("-l"))),
        _fewer(_expanded(run[1], variables).split() if run else ()),
    )


def _expanded(value: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$[({](\w+)[)}]", lambda name: variables.get(name[1], ""), value)


def _globbed(folder: Path, words: Sequence[str]) -> list[str]:
    """``$(wildcard *.cu)`` comes as two words, the second with a bracket behind it."""
    given: list[str] = []
    for word in words:
        pattern = word.rstrip(")")
        if "*" in pattern:
            given += sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))
        elif not word.startswith("$"):
            given.append(word)
    return given


def _fewer(arguments: Sequence[str]) -> tuple[str, ...]:
    """The last number, which is how often kernels are repeated in most programs, becomes 1."""
    given = list(arguments)
    for at in range(len(given) - 1, -1, -1):
        if given[at].isdigit():
            given[at] = "1"
            break
    return tuple(given)


def _main_first(folder: Path, sources: Sequence[str]) -> tuple[str, ...]:
    """() without any, or where a file is made by the build."""
    files = list(dict.fromkeys(sources))
    if not all((folder / name).is_file() for name in files):
        return ()
    mains = [
        name
        for name in files
        if _MAIN.search((folder / name).read_text(encoding="utf-8", errors="replace"))
    ]
    return (mains[0], *(name for name in files if name != mains[0])) if mains else ()


def _folders(folder: Path, named: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in named if (folder / name).is_dir()))
