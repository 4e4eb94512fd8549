"""Lines and branches of kernels that a run in the executor reached, as GCC counts them."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from portkern.cuda_source.syntax import Kernel
from portkern.errors import ToolError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port.proof.outcome import Coverage

_TIMEOUT_S = 60.0
#: Of each line its count, and of each of its branches.
_Counts = dict[int, tuple[int, dict[int, int]]]


def of_kernels(
    kernels: Sequence[Kernel],
    source: Path,
    objects: Path,
    counts: Mapping[str, bytes],
    compilers: JailedCompilers,
) -> Mapping[str, Coverage]:
    """The coverage of each kernel; empty where GCC's ``gcov`` is not there or cannot read what
    came back."""
    lines = _counted(source, objects, counts, compilers)
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


def _counted(
    source: Path, objects: Path, counts: Mapping[str, bytes], compilers: JailedCompilers
) -> _Counts:
    """``gcov`` reads what others wrote, so it runs where their compiler does, which sees the folder
    of ``objects``."""
    gcov = shutil.which("gcov")
    lines: _Counts = {}
    if gcov is None:
        return lines
    for name, data in counts.items():
        notes = next(objects.rglob(f"{Path(name).stem}.gcno"), None)
        if notes is None:
            continue
        data_file = notes.with_suffix(".gcda")
        data_file.write_bytes(data)
        argv = [gcov, "--json-format", "--stdout", "--branch-probabilities", data_file.name]
        try:
            text = compilers.tool(argv, objects, timeout_s=_TIMEOUT_S, links=[notes, data_file])
        except ToolError:
            continue
        for line in text.splitlines():
            if line.startswith("{"):
                with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                    _add(lines, source, json.loads(line))
    return lines


def _add(lines: _Counts, source: Path, report: Any) -> None:
    """Raises TypeError, LookupError or AttributeError for what is not as gcov writes it."""
    for file in report.get("files", ()):
        if Path(str(file["file"])).name != source.name:
            continue
        index: dict[tuple[int, str], int] = defaultdict(int)
        for line in file["lines"]:
            number, count = _count(line["line_number"]), _count(line["count"])
            before, branches = lines.setdefault(number, (0, {}))
            key = (number, str(line.get("function_name", "")))
            for branch in line["branches"]:
                if branch["throw"]:
                    continue  # what the host's compiler thinks of: kernels throw nothing
                at, index[key] = index[key], index[key] + 1
                branches[at] = max(branches.get(at, 0), _count(branch["count"]))
            lines[number] = (max(before, count), branches)


def _count(claim: object) -> int:
    if type(claim) is not int or claim < 0:
        raise TypeError(f"{str(claim)[:40]!r} is not a count")
    return claim
