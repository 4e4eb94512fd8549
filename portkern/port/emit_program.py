"""A program of one launch around emitted source: what a proof runs, and what is left of it where
the two disagree."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from portkern.port.emit import cpu, launch_opencl
from portkern.port.emit.emitted import Emitted, EmittedInstance
from portkern.port.proof import harness
from portkern.port.proof.case import Buffer, ProofCase
from portkern.port.proof.compare import Difference
from portkern.port.proof.element import element_of
from portkern.records import atomic_write
from portkern.toolchain.compilers import Compiler

HOST = "emitted_host.h"
_LAUNCH = re.compile(r"^(\s*)(\S.*)<<<(.*)>>>\((.*)\);$", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "(portkern_cpu\.h|emitted_host\.h)"\n', re.MULTILINE)
_FLAGS = ("-O2", "-std=c++17", "-w")


@dataclass(frozen=True)
class EmittedFile:
    """``path`` is the ``.cpp``, or the ``.py`` beside its ``.cl``."""

    emitted: Emitted
    path: Path


@dataclass(frozen=True)
class EmittedProgram:
    """``case`` has types that need none of the source's own names. ``environment`` is what runs of
    it need; ``known`` says what names of types stand for."""

    way: str
    file: EmittedFile
    instance: EmittedInstance
    case: ProofCase
    known: Mapping[str, str]
    environment: Mapping[str, str]

    def write(self, folder: Path) -> Path:
        """The program's text, which is built there."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._beside(folder).items():
            (folder / name).write_text(text, encoding="utf-8")
        path = folder / "program.cpp"
        path.write_text(self._text(f"{folder}/"), encoding="utf-8")
        return path

    def keep(
        self, folder: Path, compiler: Compiler, why: str, difference: Difference | None
    ) -> tuple[Path, str]:
        """Writes a counter-example: one file with all it needs for CPUs, and for OpenCL a
        folder. Returns its path and the command that builds it and runs it."""
        name = f"case_{self.instance.name}"
        own = folder if self.way == "cpu" else folder / f"{self.instance.name}-{self.way}"
        build = shlex.join(argv(compiler, Path(f"{name}.cpp"), Path(name)))
        command = f"{build} && ./{name}"
        head = f"// {' '.join(why.split())}\n// {command}\n"
        text = head + self._text("", difference)
        if self.way == "cpu":
            text = _whole(text)
        else:
            for other, content in self._beside(Path()).items():
                atomic_write.write(own / other, content)
        path = own / f"{name}.cpp"
        atomic_write.write(path, text)
        return path, f"cd {shlex.quote(str(own))} && {command}"

    def _beside(self, folder: Path) -> dict[str, str]:
        files = {header: cpu.template(header) for header in (cpu.HEADER, HOST)}
        if self.way == "opencl":
            for path in (self.file.path, self.file.path.with_suffix(".cl")):
                files[path.name] = path.read_text(encoding="utf-8")
            files["launch_opencl.py"] = Path(launch_opencl.__file__).read_text("utf-8")
        return files

    def _text(self, home: str, difference: Difference | None = None) -> str:
        source = f'#include "{HOST}"\n'
        if self.way == "cpu":
            source += self.file.path.read_text(encoding="utf-8")
        text = harness.render(
            [self.case],
            source,
            "cuda",
            known=self.known,
            scopes={},
            title=self.file.emitted.kernel.name,
            command="",
        )
        launch = self._launch(home)
        shown = self._shown(difference)
        return _LAUNCH.sub(
            lambda m: (
                f'{m[1]}portkern_host::begin("{self.case.kernel}", {m[3]});\n'
                f"{m[1]}{launch(m[3], m[4])}\n{m[1]}portkern_host::end();{shown}"
            ),
            text,
        )

    def _launch(self, home: str) -> Callable[[str, str], str]:
        name = self.instance.name
        if self.way == "cpu":
            return lambda shape, given: f"{name}({given}{', ' if given else ''}{shape});"
        words = [sys.executable, "-W", "ignore"]
        words += [f"{home}launch_opencl.py", f"{home}{self.file.path.name}"]
        command = json.dumps(shlex.join([*words, json.dumps(dict(self.environment))]))
        return lambda shape, given: (
            f'portkern_host::launch_by({command}, "{name}", {shape}{", " if given else ""}{given});'
        )

    def _shown(self, difference: Difference | None) -> str:
        """Code that prints the element that differs."""
        if difference is None:
            return ""
        for number, argument in enumerate(self.case.values):
            if isinstance(argument, Buffer) and argument.name == difference.name:
                element = element_of(argument.dtype, self.known)
                type_ = harness.HOST_TYPES.get(element[0].name) if element else None
                if type_ is not None:
                    given = f'"{difference.name}", buffer_{number}, {difference.index}'
                    return f' portkern_host::show<{type_}>({given}, "{difference.original}");'
        return ""


def argv(compiler: Compiler, source: Path, made: Path) -> list[str]:
    return [*compiler.argv, *_FLAGS, *compiler.openmp, "-o", str(made), str(source)]


def _whole(text: str) -> str:
    """The text with its headers in it, each where it is first asked for."""
    seen: set[str] = set()

    def included(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        header = cpu.template(match[1]).replace("#pragma once\n", "")
        return _INCLUDE.sub(included, header)

    return _INCLUDE.sub(included, text)
