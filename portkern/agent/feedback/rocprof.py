"""Counts what an AMD GPU does during a call, with rocprofv3.

Its tables also hold the framework's own kernels, which fill buffers: they are left out by name.
"""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from portkern.agent.feedback import outside
from portkern.agent.feedback.subject import FeedbackSubject
from portkern.agent.feedback.vocabulary import CountedCalls, ProfiledLaunch
from portkern.errors import ToolError

#: Columns that are not counters, of rocprofv3's table and of rocprof-compute's.
_COLUMNS = ("VGPR_Count", "Accum_VGPR_Count", "LDS_Block_Size")
_COMPUTE = {"Arch_VGPR": "VGPR_Count", "LDS_Per_Workgroup": "LDS_Block_Size"}


def parse(text: str, ours: Callable[[str], bool] = lambda _: True) -> list[ProfiledLaunch]:
    """The counters of each dispatch: from rocprofv3's ``counter_collection.csv``, with a line
    for each counter, or from rocprof-compute's ``pmc_perf.csv``, with a column for each."""
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or "Kernel_Name" not in rows[0]:
        raise ToolError("it wrote no table of kernels", log=text[-2000:])
    by_dispatch: dict[str, tuple[str, dict[str, float]]] = {}
    for row in rows:
        kernel = row["Kernel_Name"]
        if not ours(kernel):
            continue
        number = row.get("Dispatch_Id") or row.get("Dispatch_ID") or str(len(by_dispatch))
        _, values = by_dispatch.setdefault(number, (kernel, _described(row)))
        values |= _counters(row)
    return [ProfiledLaunch(kernel, values) for kernel, values in by_dispatch.values()]


def _described(row: dict[str, str]) -> dict[str, float]:
    start, end = _number(row.get("Start_Timestamp")), _number(row.get("End_Timestamp"))
    values = {"duration_ns": end - start} if start is not None and end is not None else {}
    for name in (*_COLUMNS, *_COMPUTE):
        number = _number(row.get(name))
        if number is not None:
            values[_COMPUTE.get(name, name)] = number
    return values


def _counters(row: dict[str, str]) -> dict[str, float]:
    if "Counter_Name" in row:
        value = _number(row.get("Counter_Value"))
        return {} if value is None else {row["Counter_Name"]: value}
    numbers = {name: _number(text) for name, text in row.items() if name not in _COMPUTE}
    return {name: value for name, value in numbers.items() if value is not None}


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def count(
    subject: FeedbackSubject, passes: Sequence[Sequence[str]], *, timeout_s: float
) -> CountedCalls:
    """A run for each pass. Raises ToolError when there is nothing in any of them."""
    profiled: list[ProfiledLaunch] = []
    missing: dict[str, str] = {}
    calls = outside.WARM_UP + outside.CALLS  # it cannot be told to leave the first ones out
    log = ""
    for pass_run in passes:
        with tempfile.TemporaryDirectory(prefix="portkern-rocprof-") as made:
            # Its library writes the table from within the program, which may write there alone.
            output = Path(made) / outside.SCRATCH / "counters"
            tool = [
                "rocprofv3",
                "--pmc",
                *pass_run,
                "--output-format",
                "csv",
                "--output-directory",
                str(output),
                "--output-file",
                "portkern",
                "--",
            ]
            log = outside.under(tool, subject, Path(made), timeout_s=timeout_s)
            tables = sorted(output.rglob("*counter_collection.csv"))
            # It ends with status 0 and writes nothing where a GPU lacks one of the counters.
            launches = parse(tables[0].read_text("utf-8"), subject.launched) if tables else []
        counted = {name for launch in launches for name in launch.values}
        missing |= {name: "not on this GPU" for name in pass_run if name not in counted}
        profiled += launches
    if not profiled:
        raise ToolError("rocprofv3 counted no launch of this kernel", log=log)
    return CountedCalls(profiled, calls, missing)
