"""The parts that all three collections share: a run's outcome, findings with short names, the
pool."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import source_lines
from portkern.simt.execute.options import spell

CHECKS: Mapping[str, int] = {"races": 1, "bounds": 1, "uninitialised": 1, "alignment": 1}
LAUNCH_LIMIT_S = 20
RUN_LIMIT_S = 120.0


@dataclass(frozen=True)
class Finding:
    """A diagnostic as the tables show it: where in the upstream file, which kernel, what."""

    code: str
    place: str
    kernel: str
    message: str
    also: str = ""
    note: bool = False
    count: int = 1


@dataclass
class Result:
    """``verdict`` is ``match`` or says in a few words why not."""

    verdict: str
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    log: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict == "match"

    @property
    def errors(self) -> list[Finding]:
        return [one for one in self.findings if not one.note]


def settings(mode: str, **more: str | int | float) -> dict[str, str | int | float]:
    """The settings of one run; the L2 cache is small, as these programs scrub it between
    launches."""
    chosen: dict[str, str | int | float] = {"limit_s": LAUNCH_LIMIT_S, "l2_bytes": 65536}
    return chosen | (dict(CHECKS) if mode == "check" else {}) | more


def run(
    argv: Sequence[str],
    chosen: Mapping[str, str | int | float],
    *,
    cwd: Path,
    root: Path,
    limit_s: float = RUN_LIMIT_S,
) -> tuple[int | None, str, list[Finding], float]:
    """Exit status (None: out of time), output, findings and seconds of one program."""
    with tempfile.TemporaryDirectory(prefix="simt-real-") as folder:
        found = Path(folder) / "findings.jsonl"
        spelled = spell({**chosen, "findings": str(found)})
        start = time.perf_counter()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PORTKERN_SIMT": spelled},
            start_new_session=True,
            cwd=cwd,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = None
        seconds = time.perf_counter() - start
        diagnostics, _ = source_lines.read(found)
    return status, output, [finding(diagnostic, root) for diagnostic in diagnostics], seconds


def finding(one: Diagnostic, root: Path) -> Finding:
    """The finding with places relative to ``root``, so that no folder of this machine is shown."""
    return Finding(
        one.code,
        relative(one.file, one.line, root),
        one.kernel,
        one.message,
        relative(*split(one.also), root) if one.also else "",
        one.severity is Severity.NOTE,
        one.count,
    )


def split(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


def relative(file: str, line: int, root: Path) -> str:
    if not file:
        return ""
    path = Path(file)
    shown = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    return f"{shown}:{line}"


def in_parallel(work: Any, items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


def commit(checkout: Path) -> str:
    """The commit of the checkout that was run; '' when it is not a git folder."""
    argv = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip()
