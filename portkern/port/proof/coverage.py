"""Lines and branches of kernels that a run in the executor reached, as GCC counts them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from portkern.cuda_source.syntax import Kernel
from portkern.errors import ToolError
from portkern.port.proof.outcome import Coverage
from portkern.toolchain.run_tool import run_tool

_TIMEOUT_S = 60.0
#: Of each line its count, and of each of its branches.
_Counts = dict[int, tuple[int, dict[int, int]]]


def of_kernels(
    kernels: Sequence[Kernel], source: Path, objects: Path, counts: Mapping[str, bytes]
) -> Mapping[str, Coverage]:
    """By kernel; empty where GCC's ``gcov`` is not there or cannot read what came back."""
    lines = _counted(source, objects, counts)
    if not lines:
        return {}
    return {kernel.name: _coverage(kernel, lines) for kernel in kernels}


def _coverage(kernel: Kernel, counted: _Counts) -> Coverage:
    """A template's instances count together: a branch that one of them took was taken."""
    inside = [counted[n] for n in range(kernel.line, kernel.last_line + 1) if n in counted]
    branches = [count for _, of_line in inside for count in of_line.values()]
    return Coverage(
        sum(count > 0 for count, _ in inside),
        len(inside),
        sum(count > 0 for count in branches),
        len(branches),
    )


def _counted(source: Path, objects: Path, counts: Mapping[str, bytes]) -> _Counts:
    gcov = shutil.which("gcov")
    lines: _Counts = {}
    if gcov is None:
        return lines
    with tempfile.TemporaryDirectory(prefix="gcov-") as place:
        for name, data in counts.items():
            notes = next(objects.rglob(f"{Path(name).stem}.gcno"), None)
            if notes is None:
                continue
            shutil.copy(notes, place)
            (Path(place) / name).write_bytes(data)
            argv = [gcov, "--json-format", "--stdout", "--branch-probabilities", name]
            try:
                text = run_tool(argv, timeout_s=_TIMEOUT_S, cwd=Path(place), error=ToolError)
            except ToolError:
                continue
            for line in text.splitlines():
                if line.startswith("{"):
                    _add(lines, source, cast("Mapping[str, object]", json.loads(line)))
    return lines


def _add(lines: _Counts, source: Path, report: Mapping[str, object]) -> None:
    for file in cast("Sequence[Mapping[str, object]]", report.get("files", ())):
        if Path(str(file["file"])).name != source.name:
            continue
        index: dict[tuple[int, str], int] = defaultdict(int)
        for line in cast("Sequence[Mapping[str, object]]", file["lines"]):
            number, count = cast("int", line["line_number"]), cast("int", line["count"])
            before, branches = lines.setdefault(number, (0, {}))
            key = (number, str(line.get("function_name", "")))
            for branch in cast("Sequence[Mapping[str, object]]", line["branches"]):
                if branch["throw"]:
                    continue  # what the host's compiler thinks of: kernels throw nothing
                at, index[key] = index[key], index[key] + 1
                branches[at] = max(branches.get(at, 0), cast("int", branch["count"]))
            lines[number] = (max(before, count), branches)
