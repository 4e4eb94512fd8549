"""Runs a program of :func:`.build.build_program`: always ends, always says how."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import source_lines
from portkern.simt.execute.machine import Language, settings
from portkern.simt.execute.options import ExecutorOptions, spell
from portkern.spec.target import Target


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
    return run_command(
        [str(program), *arguments],
        how,
        target=target,
        language=language,
        warp=warp,
        timeout_s=timeout_s,
    )


def run_command(
    argv: Sequence[str],
    how: ExecutorOptions | None = None,
    *,
    target: Target | None = None,
    language: Language = "cuda",
    warp: int | None = None,
    timeout_s: float = 60.0,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ProgramOutcome:
    """The same for any process that opens the executor's runtime; ``environment`` is added to
    ours."""
    with tempfile.TemporaryDirectory(prefix="simt-") as folder:
        findings = Path(folder) / "findings.jsonl"
        facts = settings(target, language) if target else {"hip": int(language == "hip")}
        chosen = replace(how or ExecutorOptions(), findings=findings).settings()
        chosen |= facts | ({"warp": warp} if warp else {})
        status, output = _run(list(argv), spell(chosen), timeout_s, cwd, environment or {})
        diagnostics, counters = source_lines.read(findings)
    if status is None and not any(diagnostic.code == "SX405" for diagnostic in diagnostics):
        diagnostics.append(Diagnostic("SX405", f"the program ran longer than {timeout_s:g} s"))
    return ProgramOutcome(status, output, tuple(diagnostics), tuple(counters))


def _run(
    argv: list[str],
    spelled: str,
    timeout_s: float,
    cwd: Path | None,
    added: Mapping[str, str],
) -> tuple[int | None, str]:
    # A program's own leaks are not what it is run for.
    common = {"ASAN_OPTIONS": "detect_leaks=0", **os.environ, **added}
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**common, "PORTKERN_SIMT": spelled},
        cwd=cwd,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output
