"""A process in the jail that imports a Triton library and answers one request after the other, in
lines of JSON."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from portkern.errors import WorkerError
from portkern.evaluator.jailed_process import of_command, readable
from portkern.spec.foreign_text import Malformed, json_value
from portkern.toolchain.run_tool import import_root
from portkern.worker.protocol import Execute

#: How often a new process goes on after one that crashed, or did not come to an end.
_MOST_CRASHES = 50
#: Why a request has no answer whose process said that it has.
TOO_LONG = "its answer is more than a process can tell"


@dataclass(frozen=True)
class WorkerRequest:
    """A request about one kernel, by its file below the library's root and its line, on one target,
    by its name."""

    number: int
    path: str
    kernel: str
    line: int
    target: str


def answers(
    worker: str,
    root: Path,
    requests: Sequence[WorkerRequest],
    timeout_s: float,
    each_s: int,
    reads: Sequence[Path] = (),
) -> dict[int, dict[str, object]]:
    """The answers of the module ``worker`` to each request, by its number. A request that ends
    the process is named; the others go on, until ``timeout_s`` for all together or ``each_s`` of
    processor time for one; ``reads`` are folders of ours that it reads. Raises WorkerError where
    this machine cannot contain a worker."""
    known: dict[int, dict[str, object]] = {}
    if not requests:
        return known
    top, until = _top(root), time.monotonic() + timeout_s
    with readable(top) as seen, tempfile.TemporaryDirectory(prefix="portkern-triton-") as place:
        Path(place).chmod(0o755)
        file = Path(place) / "requests.json"
        with of_command((seen, Path(place), *reads)) as processes:
            for _ in range(_MOST_CRASHES):
                wanted = [r.number for r in requests if r.number not in known]
                left_s = until - time.monotonic()
                if not wanted or left_s <= 0:
                    break
                mark = secrets.token_hex(16)
                _write(file, seen / root.relative_to(top), requests, wanted, each_s, mark)
                asked = _execute(worker, file, requests[0].target, left_s)
                outcome = processes.run(asked).program
                began = _read(outcome.output, mark, frozenset(wanted), known)
                if outcome.status is None:
                    break
                if outcome.status == 0:  # what is left was cut off, and is asked again
                    if wanted[0] not in known:
                        known[wanted[0]] = {"unknown": TOO_LONG}
                elif began is not None:
                    known[began] = _ended(outcome.status, each_s)
                else:
                    reason = outcome.output.strip().splitlines()[-1:] or ["it said nothing"]
                    raise WorkerError(f"Triton's process ended: {reason[0][:300]}")
    return known


def _ended(status: int, each_s: int) -> dict[str, object]:
    if status == -signal.SIGPROF:
        return {"unknown": f"it took more than {each_s} s of processor time"}
    return {"error": f"the process crashed (status {status})"}


def _execute(worker: str, file: Path, target: str, timeout_s: float) -> Execute:
    argv = (sys.executable, "-P", "-m", worker, str(file))
    return Execute(argv, str(file.parent), target, "hip", (), timeout_s)


def _write(
    file: Path,
    root: Path,
    requests: Sequence[WorkerRequest],
    wanted: Sequence[int],
    each_s: int,
    mark: str,
) -> None:
    asked: dict[str, object] = {
        "root": str(root),
        "each_s": each_s,
        "mark": mark,
        "wanted": wanted,
        "requests": [asdict(r) for r in requests],
    }
    file.write_text(json.dumps(asked), encoding="utf-8")
    file.chmod(0o644)


def _top(root: Path) -> Path:
    """The folder that the library is imported from."""
    top = import_root(root)
    # All of an environment is not the library's; its packages can be read in the jail anyway.
    return top if os.access(top, os.R_OK) else root


def _read(
    output: str, mark: str, wanted: frozenset[int], known: dict[int, dict[str, object]]
) -> int | None:
    """The request that was begun and not answered. Lines about others than were wanted are none of
    ours."""
    began: int | None = None
    for said in lines(output, mark):
        number, begins = said.get("number"), said.get("begins")
        if type(begins) is int and begins in wanted:
            began = begins
        elif type(number) is int and number in wanted:
            known.setdefault(number, dict(said))
            began = None
    return began


def lines(output: str, mark: str) -> Iterator[Mapping[str, object]]:
    for line in output.splitlines():
        if line.startswith(mark):
            try:
                said = json_value(line.removeprefix(mark))
            except Malformed:
                continue
            if isinstance(said, dict):
                yield said
