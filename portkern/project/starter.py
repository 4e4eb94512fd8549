"""The first project file of a folder: what is found there, and what was not understood."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern import ops
from portkern.project.document import KernelEntry
from portkern.project.kernels import (
    OwnKernel,
    OwnKernels,
    ProjectItem,
    ProjectProblem,
    Settings,
    read,
)
from portkern.spec.safe_name import real_path


@dataclass(frozen=True)
class FolderSurvey:
    """Kernels of ``folder`` that their names tell, and the problems of other files. ``root`` is
    the folder of them relative to it: ``kernels`` where all lie in there."""

    folder: Path
    kernels: Sequence[OwnKernel]
    problems: Sequence[ProjectProblem]
    root: str


def survey(folder: Path) -> FolderSurvey:
    """Raises ConfigError for a folder that cannot be read."""
    entry = KernelEntry(source=".")
    own = read(
        str(folder), [ProjectItem(entry, folder, str(folder))], Settings(folder, ops.names())
    )
    return FolderSurvey(folder, own.kernels, own.problems, _common(folder, own))


def _common(folder: Path, own: OwnKernels) -> str:
    """The folder in which all kernels lie; a folder with a backend's name is a part of how they are
    named."""
    parents = [real_path(kernel.file).parent for kernel in own.kernels]
    if not parents:
        return "."
    top = Path(os.path.commonpath(parents))
    tells = {kernel.candidate.backend for kernel in own.kernels} | {"gpu"}
    while top.name in tells and top != real_path(folder):
        top = top.parent
    return top.relative_to(real_path(folder)).as_posix()


def text(seen: FolderSurvey) -> str:
    """The project file: it can be used as it is."""
    lines = [
        "# A portkern project: 'portkern matrix' in this folder reads it. Paths are relative to",
        "# this file; docs/projects.md says more.",
        "",
        "# Kernels: a folder, whose files are called <op>.<suffix> or <op>.<variant>.<suffix>, or",
        "# a list of folders and entries:",
        "#   - {source: src/softmax_v2.cu, op: softmax, backend: cuda, variant: v2,",
        "#      entry: softmax, style: dps, include: [include], defines: [UNROLL=4],",
        "#      sources: [src/helpers.cu]}",
        *_kernels(seen),
        "",
        "# Folders that all C++, CUDA, HIP and OpenCL kernels include from, and macros for them",
        *_include(seen),
        "# defines: [UNROLL=4]",
        "",
        "# Operators: names, and FlashInfer-Bench Definitions of your own (ops/mine.json)",
        f"ops: {_flow([kernel.candidate.op for kernel in seen.kernels])}",
        "# host is this machine; others are built for, and emulated where that can be",
        f"targets: {_flow(_targets(seen))}",
        f"backends: {_flow([kernel.candidate.backend for kernel in seen.kernels])}",
        "# ci (small), typical, edge, heldout, headline, or all",
        "workloads: [ci]",
        "# float32, float16, bfloat16, or all",
        "dtypes: [float32]",
        "",
        "# Coverage that has to be there: where it is not, 'portkern matrix' says so and exits",
        "# with 1. evidence: built, emulated, executed, verified or measured",
        "# expect:",
        *_expected(seen),
        "",
        "# Log runs to MLflow where it is installed",
        "track: true",
    ]
    if seen.problems:
        lines += ["", "# Files of this folder that are not kernels to portkern:"]
        lines += [f"#   {_one_line(str(problem))}" for problem in seen.problems]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _kernels(seen: FolderSurvey) -> list[str]:
    authors = [kernel.candidate.author.removeprefix("file:") for kernel in seen.kernels]
    shown = [f"#   {_one_line(author)}" for author in authors]
    named = dict.fromkeys(shown)
    counted = f"# It has {len(named)}:" if named else "# None were found yet."
    return [counted, *named, f"kernels: {_quoted(seen.root)}"]


def _include(seen: FolderSurvey) -> list[str]:
    folders = [name for name in ("include", "inc") if (seen.folder / name).is_dir()]
    return [f"include: {_flow(folders)}"] if folders else ["# include: [include]"]


def _targets(seen: FolderSurvey) -> list[str]:
    """One of each family that there are kernels for."""
    backends = {kernel.candidate.backend for kernel in seen.kernels}
    chosen = ["host"]
    chosen += ["sm_90"] if backends & {"cuda", "triton", "pallas"} else []
    chosen += ["gfx942"] if backends & {"hip", "triton"} else []
    return [*chosen, *(["opencl_generic"] if "opencl" in backends else [])]


def _expected(seen: FolderSurvey) -> list[str]:
    lines = []
    for backend in dict.fromkeys(kernel.candidate.backend for kernel in seen.kernels):
        of = [k.candidate.op for k in seen.kernels if k.candidate.backend == backend]
        where = {"cpu": "host", "hip": "gfx942", "opencl": "opencl_generic"}.get(backend, "sm_90")
        lines.append(f"#   - {{op: {_flow(of)}, backend: {backend}, target: {where}}}")
    return lines or ["#   - {op: softmax, backend: cuda, target: sm_90, evidence: emulated}"]


def _flow(names: Sequence[str]) -> str:
    return f"[{', '.join(_quoted(name) for name in dict.fromkeys(names))}]"


def _quoted(name: str) -> str:
    plain = name.replace("_", "").replace("/", "").replace("-", "").replace(".", "")
    if plain.isalnum() and name[0].isalpha():
        return name
    return "'" + name.replace("'", "''") + "'"
