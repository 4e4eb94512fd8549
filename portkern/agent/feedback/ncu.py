"""Counts what an NVIDIA GPU does during a call, with Nsight Compute."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from portkern.agent.feedback import outside
from portkern.agent.feedback.subject import FeedbackSubject
from portkern.agent.feedback.vocabulary import CountedCalls, ProfiledLaunch
from portkern.errors import ToolError

#: Launches that are counted at most: each is repeated for as long as counters are left.
MOST_LAUNCHES = 64
#: What a unit is in that of the rules: seconds are nanoseconds, bytes bytes.
_FACTORS = {
    "nsecond": 1.0,
    "ns": 1.0,
    "usecond": 1e3,
    "us": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "second": 1e9,
    "s": 1e9,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "Tbyte": 1e12,
    "Kbyte/block": 1e3,
    "Mbyte/block": 1e6,
}
_NAME = "Kernel Name"


def parse(text: str) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Returns the kernel of each launch, its metrics as they are written, and their units, from
    the output of ``ncu --csv --page raw``. Raises ToolError when there is no such table."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines or _NAME not in lines[0]:
        raise ToolError("ncu wrote no table, expected that of --csv --page raw", log=text[-2000:])
    header, *rows = list(csv.reader(lines))
    if not rows or any(len(row) != len(header) for row in rows) or rows[0][header.index(_NAME)]:
        raise ToolError("ncu's table is not one of --page raw: it has no units", log=text[-2000:])
    units = dict(zip(header, rows[0], strict=True))
    tables = [dict(zip(header, row, strict=True)) for row in rows[1:]]
    return [(table[_NAME], table, units) for table in tables]


def launches(text: str, wanted: Sequence[str]) -> tuple[list[ProfiledLaunch], dict[str, str]]:
    """Returns the launches of the table, and by each wanted counter without a number what the
    table says in its place."""
    missing: dict[str, str] = {}
    profiled = []
    for kernel, table, units in parse(text):
        values: dict[str, float] = {}
        for name in wanted:
            number = _number(table.get(name, ""))
            if number is None:
                missing[name] = table.get(name, "") or "not in its table"
            else:
                values[name] = number * _FACTORS.get(units[name], 1.0)
        profiled.append(ProfiledLaunch(kernel, values))
    return profiled, missing


def _number(text: str) -> float | None:
    """The number in a text; None for n/a, which stands where this GPU has no counter, and for
    nan."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def count(
    subject: FeedbackSubject, passes: Sequence[Sequence[str]], *, timeout_s: float
) -> CountedCalls:
    """Counts all passes in one run, since ncu repeats launches by itself. Raises ToolError."""
    wanted = list(dict.fromkeys(name for pass_run in passes for name in pass_run))
    with tempfile.TemporaryDirectory(prefix="portkern-ncu-") as made:
        log = Path(made) / "counters.csv"
        tool = [
            "ncu",
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
            "--metrics",
            ",".join(wanted),
            "--clock-control",
            "none",
            "--profile-from-start",
            "off",
            "--launch-count",
            str(MOST_LAUNCHES),
            "--log-file",
            str(log),
        ]
        try:
            outside.under(tool, subject, Path(made), timeout_s=timeout_s)
        except ToolError as error:
            log_text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            raise ToolError(str(error), log=f"{log_text}\n{error.log}") from error
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    profiled, missing = launches(text, wanted)
    if len(profiled) >= MOST_LAUNCHES:
        raise ToolError(
            f"the kernel makes {MOST_LAUNCHES} launches or more in {outside.CALLS} calls"
        )
    return CountedCalls(profiled, outside.CALLS, missing)
