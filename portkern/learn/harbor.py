"""Harbor tasks: folders with an instruction, a box for an agent, and a grader in a box of its own.

A task is written after it was shown to tell right from wrong: its grader, started as Harbor starts
it, pays for the kernel that portkern has, and neither for one that does nothing nor for a copy in
which something small was changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from string import Template

from portkern.agent.task import Task
from portkern.cells.selection import load_op
from portkern.errors import ConfigError, PortkernError
from portkern.evaluator import from_torch
from portkern.learn.families import family_of
from portkern.learn.first_prompt import first_prompt
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.spec import catalogue, registry, target
from portkern.spec.foreign_text import json_value
from portkern.spec.safe_name import SafeName

#: Sets that a kernel is graded on: without ``edge`` an index of 16 bits is right.
GRADED = ("ci", "heldout", "edge")
#: What a grader may take.
GRADE_S = 900.0
#: Copies with a small change that are tried until one is built and wrong.
MOST_COPIES = 8
_CHANGES = ((" + ", " - "), (" * ", " + "), (" - ", " + "), (" / ", " * "), (" < ", " > "))
#: Templates of portkern's, and where they are in a task.
_FILES = {
    "task.toml": "task.toml",
    "agent.Dockerfile": "environment/Dockerfile",
    "grader.Dockerfile": "tests/Dockerfile",
    "test.sh": "tests/test.sh",
    "solve.sh": "solution/solve.sh",
}
_SCRIPTS = ("tests/test.sh", "solution/solve.sh")
_GRADER = "grade.py"
#: A file's name that is the same in a shell, a Dockerfile and an option.
_PLAIN_NAME = re.compile(r"[\w-][\w.-]*\.py", re.ASCII)
Scores = Mapping[str, float]


class Unproven(PortkernError):
    """A task whose grader was not shown to tell right from wrong."""


@dataclass(frozen=True)
class HarborOptions:
    """``organisation`` is what tasks are named below; ``base`` the image of both boxes, which
    whoever publishes them pins."""

    organisation: str = "portkern"
    base: str = "python:3.11-slim-bookworm"
    workloads: tuple[str, ...] = GRADED
    dtype: str = "float32"
    timed: bool = True


@dataclass(frozen=True)
class HarborTask:
    """An operator on a backend and target, with the kernel that shows that it can be done."""

    task: Task
    file: Path | None
    oracle: str
    options: HarborOptions

    @classmethod
    def of(cls, name: str, backend: str, where: str, options: HarborOptions) -> HarborTask:
        """Raises ConfigError where there is no kernel to prove it by."""
        op, known, place = load_op(name), registry.load(backend), target.load(where)
        if not known.supports(place):
            raise ConfigError(f"{backend} does not compile for {where}; name another target")
        language = next(iter(known.languages.values()))
        task = Task(op, place, known, language, options.dtype, {"ci": tuple(op.workloads["ci"])})
        file = from_torch.split(name)[0] if from_torch.is_file(name) else None
        if file is not None and file.name.lower() in (_GRADER, f"kernel{task.suffix}"):
            raise ConfigError(f"Got the file {file.name!r}, which a task has itself; rename it")
        if file is not None and not _PLAIN_NAME.fullmatch(file.name):
            raise ConfigError(f"Got the file {file.name!r}, expected letters, digits, _ . and -")
        return cls(task, file, oracle(name, task), options)

    @property
    def name(self) -> str:
        parts = (self.task.op.name, self.task.backend.name, self.task.target.name)
        return SafeName.like("-".join(parts).replace("_", "-").lower())

    @property
    def answer(self) -> str:
        """The file that an agent writes."""
        return f"kernel{self.task.suffix}"

    def write(self, out: Path) -> Path:
        """The folder, once it is proven. Raises Unproven and StorageError."""
        folder = out / SafeName(self.name)
        with tempfile.TemporaryDirectory(prefix="portkern-harbor-") as box:
            draft = Path(box, self.name)
            self._draft(draft)
            self.prove(partial(self._graded, draft))
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(draft, folder)
        return folder

    def _draft(self, folder: Path) -> None:
        facts = self._facts()
        for template, place in _FILES.items():
            atomic_write.write(folder / place, Template(_template(template)).substitute(facts))
        for script in _SCRIPTS:
            (folder / script).chmod(0o755)
        atomic_write.write(folder / "tests" / _GRADER, _template(_GRADER))
        atomic_write.write(folder / "tests" / "question.json", json.dumps(self._question()) + "\n")
        atomic_write.write(folder / "solution" / self.answer, self.oracle)
        atomic_write.write(folder / "instruction.md", self._instruction())
        if self.file is not None:  # under its own name, by which its entry is called
            for box in ("tests", "environment"):
                shutil.copy(self.file, folder / box / SafeName(self.file.name))
            sheet, path = from_torch.sheet_of(from_torch.OperatorFile.read(str(self.file)))
            text = path.read_text(encoding="utf-8") if path.exists() else sheet.text()
            atomic_write.write(folder / "tests" / SafeName(path.name), text)

    def _facts(self) -> Mapping[str, str]:
        task = self.task
        return {
            "name": f"{self.options.organisation}/{self.name}",
            "op": task.op.name,
            "family": family_of(task.op.name, task.op.reference_source),
            "backend": task.backend.name,
            "target": task.target.name,
            "answer": self.answer,
            "base": self.options.base,
            "portkern": version("portkern"),
            "copy": f"COPY {self.file.name} /workdir/" if self.file else "",
        }

    def _question(self) -> dict[str, object]:
        return {
            "op": self.file.name if self.file else self.task.op.name,
            "entry": self.task.op.name,
            "backend": self.task.backend.name,
            "target": self.task.target.name,
            "answer": self.answer,
            "workloads": [s for s in self.options.workloads if self.task.op.workloads.get(s)],
            "dtype": self.options.dtype,
            "timed": self.options.timed,
        }

    def _instruction(self) -> str:
        told = "\n\n".join(message.content for message in first_prompt(self.task))
        return (
            f"{told}\n\nSave the file as `/workdir/{self.answer}`; nothing else is looked at. It "
            "is graded elsewhere, on inputs and sizes that you have not seen: 0 where it is not "
            "right everywhere, else 0.3, and its speedup over PyTorch where it is timed.\n"
        )

    def prove(self, graded: Callable[[str], Scores]) -> None:
        """Raises Unproven where this judge does not tell the task's kernel from one that does
        nothing and from a copy with a small change."""
        paid = graded(self.oracle)
        if not paid["reward"] > 0:
            raise Unproven(f"{self.name}: its own kernel gets {dict(paid)}, expected a reward")
        nothing = graded(nothing_of(self.task))
        if nothing["reward"] > 0 or not nothing["built"]:
            raise Unproven(f"{self.name}: a kernel that does nothing gets {dict(nothing)}")
        for copy in islice(changed(self.oracle), MOST_COPIES):
            spoiled = graded(copy)
            if spoiled["built"] and not spoiled["correct"] and not spoiled["reward"] > 0:
                return
        raise Unproven(
            f"{self.name}: of {MOST_COPIES} copies with a small change none is built and wrong"
        )

    def _graded(self, folder: Path, source: str) -> Scores:
        """Grades the source as Harbor does, with the boxes' folders elsewhere."""
        with tempfile.TemporaryDirectory(prefix="portkern-grade-") as box:
            work, logs = Path(box, "workdir"), Path(box, "logs")
            atomic_write.write(work / self.answer, source)
            places = {"TESTS": str(folder / "tests"), "WORK": str(work), "LOGS": str(logs)}
            try:
                ended = subprocess.run(
                    ["bash", str(folder / "tests" / "test.sh")],
                    env={**os.environ, **places, "PYTHON": sys.executable},
                    cwd=box,
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    timeout=GRADE_S,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise Unproven(f"{self.name}: its grader took longer than {GRADE_S:g} s") from error
            reward = logs / "reward.json"
            if ended.returncode != 0 or not reward.is_file():
                said = printable(ended.stderr.decode(errors="replace").strip()[-500:])
                raise Unproven(f"{self.name}: it cannot be graded here: {said}")
            scores = json_value(reward.read_text(encoding="utf-8"))
        return {name: float(value) for name, value in scores.items()}


def _template(name: str) -> str:
    return (files("portkern.learn") / "templates" / name).read_text(encoding="utf-8")


def oracle(name: str, task: Task) -> str:
    """The kernel that ships, or the plain one of a file's graph. Raises ConfigError."""
    if from_torch.is_file(name):
        return from_torch.plain_kernel(name, task.backend.name)
    for candidate in catalogue.candidates(task.op.name, task.backend):
        if candidate.language == task.language:
            return candidate.source
    raise ConfigError(f"{task.backend.name} ships no {task.language} kernel for {name}")


def nothing_of(task: Task) -> str:
    """A source with the entry that is asked for, which does nothing."""
    declared = task.backend.declaration(task.op.signature, task.language)
    if declared.startswith("def "):
        return f"{declared}\n    return None\n"
    prototype = declared.splitlines()[-1]  # before it, structures that each build declares itself
    return f"#include <cstdint>\n{prototype.rstrip(';')} {{ return 0; }}\n"


def changed(source: str) -> Iterator[str]:
    """Copies with one sign changed each, the last places first: the arithmetic of a kernel stands
    behind what it declares."""
    lines = source.splitlines(keepends=True)
    for before, after in _CHANGES:
        for number in reversed(range(len(lines))):
            line = lines[number]
            code = re.split(r"//|#", line, maxsplit=1)[0]
            if before in code and "for" not in code.split("(")[0]:
                spoilt = line.replace(before, after, 1)
                yield "".join([*lines[:number], spoilt, *lines[number + 1 :]])
