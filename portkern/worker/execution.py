"""Runs a process in the SIMT executor, inside the jail: in a copy of a folder, so that it can write
there, and nothing of that stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from portkern.sandbox.jail.programs import Command, Launcher
from portkern.sandbox.session import pieces
from portkern.sandbox.shared_memory import SharedMemoryView
from portkern.worker.protocol import FOUND, RECORD, Execute, Executed

if TYPE_CHECKING:
    from portkern.simt.diagnostics import Diagnostic
    from portkern.simt.execute.program import ProgramOutcome, Wanted

#: Characters of a process's output that are kept: its beginning.
MOST_OUTPUT = 1 << 22
#: What a recording may take beside the contents of buffers, and what counts of coverage may take.
MOST_LINES, MOST_COUNTS = 64 << 20, 16 << 20
#: The findings about compiled code alone, which no host code runs; SX405 also where a process was
#: ended for it.
_OF_DEVICES_ALONE = frozenset(["SX405", "SX701", "SX702"])
#: The folder, below that of the results, which GCC's counts are in.
_COUNTS = "counts"


def run(asked: Execute, memory: SharedMemoryView, launcher: Launcher) -> Executed:
    from portkern.simt.execute import options, program, source_lines
    from portkern.spec import target

    results = launcher.results
    handle = options.RECORD_HANDLE if asked.sealed else results / RECORD
    how = options.ExecutorOptions(
        order=asked.order,
        seed=asked.seed,
        findings=options.FINDINGS_HANDLE if asked.sealed else None,
        record=handle if asked.record_bytes and not asked.apart else None,
        record_bytes=asked.record_bytes,
        launches=asked.launches,
        ring=asked.ring,
    )
    counts = {"GCOV_PREFIX": str(results / _COUNTS), "GCOV_PREFIX_STRIP": "99"}
    outcome, found = program.execute(
        asked.argv,
        how.checked(frozenset(asked.checkers)) if asked.checkers else how,
        partial(_launched, launcher, asked),
        results,
        target=target.load(asked.target),
        language=asked.language,
        warp=asked.warp or None,
        timeout_s=asked.timeout_s,
        environment=counts if asked.counts else {},
        wanted=_wanted(asked),
    )
    files = {name.removeprefix(f"{_COUNTS}/"): content for name, content in found.items()}
    of_device, _ = source_lines.parsed(files.pop(FOUND, b""))
    if not asked.record_bytes:
        files.pop(RECORD, None)
    memory.write_bytes(b"".join(files.values()))
    output = outcome.output[:MOST_OUTPUT]
    return Executed(
        outcome.status,
        pieces(output),
        (*of_device, *_of_host(outcome)) if asked.apart else outcome.findings,
        tuple((name, len(content)) for name, content in files.items()),
    )


def _of_host(outcome: ProgramOutcome) -> list[Diagnostic]:
    late = outcome.status is None
    known = _OF_DEVICES_ALONE - {"SX405"} if late else _OF_DEVICES_ALONE
    return [finding for finding in outcome.findings if finding.code not in known]


def _wanted(asked: Execute) -> Wanted:
    from portkern.simt.execute import program

    record = {RECORD: asked.record_bytes + MOST_LINES} if asked.record_bytes else {}
    if asked.apart:  # in the order of the handles that take them
        record = {FOUND: program.MOST_FINDINGS, RECORD: asked.record_bytes + MOST_LINES}
    return record | {f"{_COUNTS}/{name}": MOST_COUNTS for name in asked.counts}


def _launched(
    launcher: Launcher,
    asked: Execute,
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    wanted: Wanted,
) -> tuple[int | None, str, Mapping[str, bytes]]:
    from portkern.simt.execute.program import FINDINGS

    handles = (FOUND, RECORD) if asked.apart else (FINDINGS, RECORD) if asked.sealed else ()
    sealed = [name for name in handles if name in wanted]
    files = sorted(wanted.items(), key=lambda item: item[0] not in sealed)
    command = Command(
        tuple(argv), asked.cwd, environment, timeout_s, tuple(files), sealed=len(sealed)
    )
    ended = launcher.run(command, 4 * MOST_OUTPUT)  # bytes of a character at most
    return ended.status, ended.output.decode(errors="replace"), ended.files
