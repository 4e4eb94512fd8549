"""The compiler's messages on a kernel that does not build, without those that nobody can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.task import Task
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate
from portkern.toolchain.compiler_log import DUMP, ERROR, messages, short


def trimmed(log: str, source: str, op: str, *, most_lines: int, most_chars: int) -> str:
    """Errors first, then warnings; the end of a log in which there are none, such as Python's."""
    parsed = messages(log)
    if not any(message.kind == ERROR for message in parsed):
        lines = [short(line) for line in log.partition(DUMP)[0].splitlines() if line.strip()]
        return _fitting(lines[-most_lines:], most_lines, most_chars)
    code = source.splitlines()
    ordered = sorted(parsed, key=lambda message: message.kind != ERROR)
    lines = [line for message in ordered for line in message.lines(code, op)]
    return _fitting(lines, most_lines, most_chars)


def _fitting(lines: Sequence[str], most_lines: int, most_chars: int) -> str:
    """The first lines that fit, whole, with a word on how many are left out."""
    kept: list[str] = []
    for line in lines[:most_lines]:
        if sum(len(earlier) + 1 for earlier in kept) + len(line) > most_chars:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    return "\n".join([*kept, f"… {left} more lines"] if left else kept)


class BuildLog:
    """Stage 0: nothing else is known of a kernel that does not build."""

    kind: ClassVar[str] = "compile"
    stage: ClassVar[int] = 0

    def __init__(self, *, lines: int, chars: int) -> None:
        self._lines, self._chars = lines, chars

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        failed = next(_failed(records), None)
        if failed is None:
            return Measured()
        title, _, log = failed.detail.partition("\n")
        if any(message.line for message in messages(title)):  # it is the first of them
            title, log = "", failed.detail
        text = trimmed(
            log, candidate.source, task.op.name, most_lines=self._lines, most_chars=self._chars
        )
        errors = sum(message.kind == ERROR for message in messages(log))
        return Measured(
            {"build_errors": float(max(errors, 1))},
            "It does not build",
            "\n".join(filter(None, [title, text])),
            stop=True,
        )


def _failed(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.verdict is Verdict.BUILD_FAILED)
