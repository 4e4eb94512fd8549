"""Runs a program of :func:`.build.build_program`: always ends, always says how."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import source_lines
from portkern.simt.execute.machine import Language, settings
from portkern.simt.execute.options import ExecutorOptions, spell
from portkern.spec.target import Target

#: Files by name, and how many bytes of each are read.
Wanted = Mapping[str, int]
#: Starts ``argv`` with environment, seconds and wanted files; gives the status or None, the output,
#: the files.
Starter = Callable[
    [Sequence[str], Mapping[str, str], float, Wanted], tuple[int | None, str, Mapping[str, bytes]]
]
FINDINGS = "findings.jsonl"
#: As many bytes of findings and counters are read.
MOST_FINDINGS = 64 << 20


@dataclass(frozen=True)
class ProgramOutcome:
    """``status`` is the exit code, negative for a signal, None when the time was over.
    ``counters`` has one entry per launch when they were asked for."""

    status: int | None
    output: str
    findings: tuple[Diagnostic, ...]
    counters: tuple[Mapping[str, Any], ...]

    @property
    def codes(self) -> set[str]:
        return {finding.code for finding in self.findings}

    @property
    def errors(self) -> list[Diagnostic]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def run(
    program: Path,
    how: ExecutorOptions | None = None,
    *,
    target: Target | None = None,
    language: Language = "cuda",
    warp: int | None = None,
    timeout_s: float = 60.0,
    arguments: Sequence[str] = (),
) -> ProgramOutcome:
    """``warp`` overrides the width that ``target`` has. Killed with its children after
    ``timeout_s``, which is reported as SX405."""
    with tempfile.TemporaryDirectory(prefix="simt-") as folder:
        outcome, _ = execute(
            [str(program), *arguments],
            how or ExecutorOptions(),
            partial(_run, Path(folder)),
            Path(folder),
            target=target,
            language=language,
            warp=warp,
            timeout_s=timeout_s,
        )
    return outcome


def execute(
    argv: Sequence[str],
    how: ExecutorOptions,
    starter: Starter,
    results: Path,
    *,
    target: Target | None,
    language: Language,
    warp: int | None,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    wanted: Wanted | None = None,
) -> tuple[ProgramOutcome, Mapping[str, bytes]]:
    """The same for any process that opens the executor's runtime. ``starter`` starts it, with
    ``environment`` beside ours; of what it leaves in the folder ``results``, the files of
    ``wanted`` come back too. Findings are a file there unless ``how`` says where they go to."""
    chosen = replace(how, findings=how.findings or results / FINDINGS).settings()
    chosen |= settings(target, language) if target else {"hip": int(language == "hip")}
    chosen |= {"warp": warp} if warp else {}
    # A program's own leaks are not what it is run for.
    common = {"ASAN_OPTIONS": "detect_leaks=0", **os.environ, **(environment or {})}
    if how.record:  # threads of a team that spin would run beside kernels
        common.setdefault("OMP_WAIT_POLICY", "passive")
    common["PORTKERN_SIMT"] = spell(chosen)
    asked = {FINDINGS: MOST_FINDINGS, **(wanted or {})}
    status, output, found = starter(argv, common, timeout_s, asked)
    files = dict(found)
    diagnostics, counters = source_lines.parsed(files.pop(FINDINGS, b""))
    if status is None and not any(diagnostic.code == "SX405" for diagnostic in diagnostics):
        diagnostics.append(Diagnostic("SX405", f"the program ran longer than {timeout_s:g} s"))
    return ProgramOutcome(status, output, tuple(diagnostics), tuple(counters)), files


def _run(
    results: Path,
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    wanted: Wanted,
) -> tuple[int | None, str, Mapping[str, bytes]]:
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    status: int | None = None
    try:
        output, _ = process.communicate(timeout=timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    paths = {name: results / name for name in wanted}
    return status, output, {name: p.read_bytes() for name, p in paths.items() if p.is_file()}
