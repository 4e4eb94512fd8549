"""``portkern init``: a project file for a folder of kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.errors import ConfigError
from portkern.printable import printable
from portkern.project import starter
from portkern.project.document import FILE, ProjectFile
from portkern.records import atomic_write


@dataclass
class InitOptions:
    folder: str = "."
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"folder='{o}'" if "=" not in o else o for o in overrides]  # portkern init DIR
    options = resolve("init", InitOptions, named)
    folder = Path(options.folder)
    if not folder.is_dir():
        raise ConfigError(f"No folder {options.folder!r}; expected one with kernels")
    path = folder / FILE
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} is there already, and is left as it is; edit or remove it")
    survey = starter.survey(folder)
    atomic_write.write(path, starter.text(survey))
    ProjectFile.read(path)
    for problem in survey.problems:
        print(f"portkern: note: {printable(str(problem))}", file=sys.stderr)
    if options.json:
        json_output.show(_document(path, survey))
    else:
        _show(path, survey)
    return 0


def _show(path: Path, survey: starter.FolderSurvey) -> None:
    for kernel in survey.kernels:
        candidate = kernel.candidate
        variant = f" (variant {candidate.variant})" if candidate.variant else ""
        line = (
            f"{kernel.place}: {candidate.op}{variant}, {candidate.backend} ({candidate.language})"
        )
        print(printable(line))
    if not survey.kernels:
        print("No kernel was found: files are called <op>.<suffix>, such as softmax.cu")
    print(f"\nwritten: {path}; next: portkern matrix project={path}")


def _document(path: Path, survey: starter.FolderSurvey) -> dict[str, object]:
    return {
        "file": str(path),
        "kernels": [
            {
                "source": kernel.place,
                "op": kernel.candidate.op,
                "variant": kernel.candidate.variant,
                "backend": kernel.candidate.backend,
                "language": kernel.candidate.language,
            }
            for kernel in survey.kernels
        ],
        "problems": [{"place": problem.place, "text": problem.text} for problem in survey.problems],
        "exit_code": 0,
    }
