"""Lines, branches and instances of kernels that a run in the executor reached, as GCC counts."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portkern.cuda_source.syntax import SourceKernel
from portkern.errors import ToolError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port.proof.commas import closed
from portkern.port.proof.outcome import TextCoverage

_TIMEOUT_S = 60.0


@dataclass
class LineCounts:
    """Counts of a file: of each line and its branches, and the calls of each function beside the
    line that it begins in, by its name with its arguments' types."""

    lines: dict[int, tuple[int, dict[int, int]]] = field(default_factory=dict)
    functions: dict[str, tuple[int, int]] = field(default_factory=dict)


def of_kernels(kernels: Sequence[SourceKernel], counts: LineCounts) -> Mapping[str, TextCoverage]:
    """The coverage of each kernel; empty where nothing was counted."""
    return {kernel.name: _coverage(kernel, counts) for kernel in kernels if counts.lines}


def idle_instances(
    kernels: Sequence[SourceKernel], counts: LineCounts
) -> Mapping[str, tuple[str, ...]]:
    """The instances of each template that the program has and its run did not launch: their
    arguments as the compiler spells them, ``double, 4``; empty where nothing was counted."""
    return {kernel.name: tuple(_idle(kernel, counts)) for kernel in kernels if counts.lines}


def _idle(kernel: SourceKernel, counts: LineCounts) -> Iterator[str]:
    called: dict[str, int] = {}
    for name, (line, count) in counts.functions.items():
        begin = re.search(rf"\b{re.escape(kernel.name)}<", name)
        if begin and kernel.line <= line <= kernel.last_line:
            given = closed(name[begin.end() :], "<(", ">)") or ""
            called[given] = max(called.get(given, 0), count)
    yield from (given for given, count in called.items() if not count)


def _coverage(kernel: SourceKernel, counts: LineCounts) -> TextCoverage:
    """A template's instances count together: a branch that one of them took was taken."""
    counted = counts.lines
    inside = [counted[n] for n in range(kernel.line, kernel.last_line + 1) if n in counted]
    branches = [count for _, of_line in inside for count in of_line.values()]
    return TextCoverage(
        sum(count > 0 for count, _ in inside),
        len(inside),
        sum(count > 0 for count in branches),
        len(branches),
    )


def reports(objects: Path, counts: Mapping[str, bytes], compilers: JailedCompilers) -> list[Any]:
    """The reports of GCC's ``gcov`` on a run; none where it is not there or nothing came back. An
    object without counts beside others that have some did not run. It reads what others wrote, so
    it runs where their compiler does, which sees the folder of ``objects``."""
    gcov = shutil.which("gcov")
    found: list[Any] = []
    if gcov is None or not counts:
        return found
    for notes in sorted(objects.rglob("*.gcno")):
        data_file = notes.with_suffix(".gcda")
        data = counts.get(data_file.name)
        if data is not None:
            data_file.write_bytes(data)
        links = [notes, data_file] if data is not None else [notes]
        argv = [gcov, "--json-format", "--stdout", "--branch-probabilities", notes.name]
        try:
            text = compilers.tool(argv, objects, timeout_s=_TIMEOUT_S, links=links)
        except ToolError:
            continue
        for line in text.splitlines():
            with suppress(ValueError, RecursionError):
                found += [json.loads(line)] if line.startswith("{") else []
    return found


def counted(source: Path, found: Sequence[Any]) -> LineCounts:
    """The counts of a file in the reports of a run."""
    counts = LineCounts()
    for report in found:
        with suppress(TypeError, ValueError, LookupError, AttributeError):
            _add(counts, source, report)
    return counts


def _add(counts: LineCounts, source: Path, report: Any) -> None:
    """Raises TypeError, LookupError or AttributeError for what is not as gcov writes it."""
    for file in report.get("files", ()):
        if Path(str(file["file"])).name != source.name:
            continue
        for function in file["functions"]:
            begin, name = _count(function["start_line"]), str(function["demangled_name"])
            _, called = counts.functions.get(name, (begin, 0))
            counts.functions[name] = begin, max(called, _count(function["execution_count"]))
        index: dict[tuple[int, str], int] = defaultdict(int)
        for line in file["lines"]:
            number, count = _count(line["line_number"]), _count(line["count"])
            before, branches = counts.lines.setdefault(number, (0, {}))
            key = (number, str(line.get("function_name", "")))
            for branch in line["branches"]:
                if branch["throw"]:
                    continue  # what the host's compiler thinks of: kernels throw nothing
                at, index[key] = index[key], index[key] + 1
                branches[at] = max(branches.get(at, 0), _count(branch["count"]))
            counts.lines[number] = (max(before, count), branches)


def _count(claim: object) -> int:
    if type(claim) is not int or claim < 0:
        raise TypeError(f"{str(claim)[:40]!r} is not a count")
    return claim
