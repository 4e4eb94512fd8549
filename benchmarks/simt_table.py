"""Writes docs/simt-calibration.md: the SIMT executor beside an H200 and compute-sanitizer.

    python benchmarks/simt_table.py

Reads results/simt-sanitizer-h200.json and simt-outputs-h200.json (of simt_calibration.py), and
results/simt-bugs.json (of simt_bugs.py). All numbers are theirs; what a case is about is its own.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import simt_bugs  # noqa: E402
from simt_bugs import Finding  # noqa: E402
from simt_calibration import Agreement, Hardware  # noqa: E402

from tests.simt.suite import SANITIZERS, Case, Group, cases  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "docs" / "simt-calibration.md"
DASH = "–"


@dataclass(frozen=True)
class Row:
    """A case, what the H200 made of its mutant and its twin (CUDA only), and the executor."""

    case: Case
    mutant: Hardware | None
    twin: Hardware | None
    mutants: dict[int, Finding]
    twins: dict[int, Finding]

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that reported the mutant."""
        return _reporting(self.mutant)

    @property
    def visible(self) -> bool:
        """Whether the mutant gave itself away on the GPU without a tool."""
        return self.mutant is not None and self.mutant.status != 0

    @property
    def noticed(self) -> bool:
        return bool(self.tools) or self.visible

    @property
    def tools_accuse_twin(self) -> bool:
        return bool(_reporting(self.twin))

    @property
    def twin_fails(self) -> bool:
        return self.twin is not None and self.twin.status != 0

    def caught(self, width: int) -> bool:
        return self.mutants[width].caught

    def named(self, width: int) -> bool:
        """Caught by a finding or a refusal, not only by a wrong result or a failed call."""
        seen = self.mutants[width].seen()
        signs = [sign for sign in self.case.expect if sign.kind in ("finding", "build")]
        return self.caught(width) and any(sign.shows(seen) for sign in signs)


def _reporting(program: Hardware | None) -> tuple[str, ...]:
    return tuple(t for t in SANITIZERS if program is not None and program.tools.get(t))


def read() -> tuple[str, list[Row], list[Agreement]]:
    sanitized = _json("simt-sanitizer-h200.json")
    programs = [Hardware(**row) for row in sanitized["programs"]]
    on_gpu = {(program.case, program.bug): program for program in programs}
    found: dict[tuple[str, bool], dict[int, Finding]] = {}
    for one in simt_bugs.read(simt_bugs.RESULTS):
        found.setdefault((one.case, one.bug), {})[one.width] = one
    rows = [
        Row(
            case, on_gpu.get((case.name, True)), on_gpu.get((case.name, False)),
            found[case.name, True], found[case.name, False],
        ) for case in cases()
    ]  # fmt: skip
    outputs = [Agreement(**row) for row in _json("simt-outputs-h200.json")["outputs"]]
    machine = sanitized["machine"]
    return f"{machine['gpu']}, {machine['arch']}, driver {machine['driver']}", rows, outputs


def _json(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return document


# ---- why the two disagree


@dataclass(frozen=True)
class Category:
    """Cases for which ``holds``, and ``why`` they are alike; a case is in the first that holds."""

    why: str
    holds: Callable[[Row], bool]


def _group(*groups: Group) -> Callable[[Row], bool]:
    return lambda row: row.case.group in groups


def _expects(*codes: str) -> Callable[[Row], bool]:
    return lambda row: any(sign.code in codes for sign in row.case.expect)


def _should(tool: str | None) -> Callable[[Row], bool]:
    return lambda row: row.case.sanitizer == tool


def _all(*tests: Callable[[Row], bool]) -> Callable[[Row], bool]:
    return lambda row: all(test(row) for test in tests)


def _hangs(row: Row) -> bool:
    return row.mutant is not None and row.mutant.status is None


_COMMON = (
    Category("No tool finished, because the program does not end on the GPU. The executor "
             "ends it, with SX303, SX309 or SX405.", _hangs),
    Category("Racecheck covers shared memory only. These are races, missing fences and atomic "
             "scopes on global memory.", _all(_group(Group.RACES), _should(None))),
    Category("A plain access and an atomic on the same shared memory. Racecheck reported none of "
             "these.", _all(_group(Group.RACES), _expects("SX205"))),
    Category("Lanes of one warp race on shared memory, with no `__syncwarp` between; expected of "
             "racecheck, which reported none of these.",
             _all(_group(Group.RACES), _expects("SX204"))),
    Category("Part of the threads skip a barrier by a branch or a return. The GPU lets the others "
             "pass; synccheck reported none of these.",
             _all(_group(Group.CONVERGENCE), _should("synccheck"))),
    Category("A shuffle or a vote whose mask or width does not fit the lanes that call it. No tool "
             "reported any of these.",
             _all(_group(Group.CONVERGENCE), _expects("SX303", "SX305", "SX306", "SX307"))),
    Category("A lane or a result that is taken in the wrong threads. No rule of CUDA is broken; "
             "the result shows it.", _group(Group.CONVERGENCE)),
    Category("Overflow, shifts, division by zero, rounding, operands in the wrong order: no tool "
             "looks at arithmetic.", _group(Group.ARITHMETIC)),
    Category("An index before a shared array, expected of memcheck, which reported none of these.",
             _all(_group(Group.MEMORY), _expects("SX102"))),
    Category("An index past a local array or a constant array: the access stays within memory that "
             "the thread may reach, which is what memcheck compares with.",
             _all(_group(Group.MEMORY), _expects("SX103"))),
    Category("Initcheck covers global memory only. These read shared memory that nobody wrote.",
             _all(_group(Group.MEMORY), _expects("SX107"))),
    Category("The address of a thread's local memory, used by another thread.",
             _all(_group(Group.MEMORY), _expects("SX109"))),
    Category("The memory holds a defined value, and not the one that is meant. No rule of CUDA is "
             "broken; the result shows it.",
             _all(_group(Group.MEMORY), lambda row: not any(x.code for x in row.case.expect))),
    Category("A local array that the GPU places in local memory, and that is larger than the stack "
             "which the executor gives a thread (`stack_bytes` in "
             "`portkern/simt/execute/options.py`).",
             _all(_group(Group.LAUNCH), _expects("SX404"))),
    Category("The case is about the limits of a device that has less shared memory; this GPU has "
             "what the program asks for.", _group(Group.LAUNCH)),
    Category("Other.", lambda row: True),
)  # fmt: skip

_MISSED = (
    Category("Writes to constant memory: the executor does not tell `__constant__` memory from "
             "other memory. The GPU traps.", _expects("SX111")),
    Category("Asynchronous copies: the executor checks `cp.async` where it is waited for, not "
             "where it is issued. Racecheck reports the write at the issue.",
             lambda row: row.case.name.startswith("cp_async")),
    Category("Other.", lambda row: True),
)  # fmt: skip

_UNEXPECTED = (
    Category("A call or a launch fails, or the kernel traps; memcheck reports failed calls.",
             lambda row: row.tools == ("memcheck",)),
    Category("An overrun within shared memory: memcheck reports it, and racecheck the race that it "
             "makes.", lambda row: "memcheck" in row.tools),
    Category("Other.", lambda row: True),
)  # fmt: skip


def _sorted_out(rows: Iterable[Row], categories: Sequence[Category]) -> list[str]:
    """One line per category, with its cases."""
    members: dict[str, list[str]] = {}
    for row in rows:
        why = next(category.why for category in categories if category.holds(row))
        members.setdefault(why, []).append(f"`{row.case.name}`")
    lines = [
        f"- {category.why} ({len(members[category.why])}: {', '.join(members[category.why])})"
        for category in categories if category.why in members
    ]  # fmt: skip
    return lines or ["- None."]


# ---- the parts of the page


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> list[str]:
    """The last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    cells = [head, rule, *rows]
    return [f"| {' | '.join(str(x).replace('|', chr(92) + '|') for x in row)} |" for row in cells]


def _of(rows: Sequence[Row], test: Callable[[Row], bool]) -> int:
    return sum(map(test, rows))


def _tool_test(tool: str) -> Callable[[Row], bool]:
    return lambda row: tool in row.tools


def _tool_accuses(tool: str) -> Callable[[Row], bool]:
    return lambda row: tool in _reporting(row.twin)


def _caught(row: Row) -> bool:
    return row.caught(32)


def _accused(width: int) -> Callable[[Row], bool]:
    return lambda row: not row.twins[width].clean


def _totals(cuda: Sequence[Row], due: Sequence[Row]) -> list[str]:
    twins = [row for row in cuda if 32 in row.twins]
    lines: list[tuple[str, Callable[[Row], bool], Callable[[Row], bool] | None]] = [
        ("compute-sanitizer on the H200, any tool", lambda r: bool(r.tools),
         lambda r: r.tools_accuse_twin),
        *((f"– {tool}", _tool_test(tool), _tool_accuses(tool)) for tool in SANITIZERS),
        ("visible on the H200: wrong result, failed call or no end", lambda r: r.visible,
         lambda r: r.twin_fails),
        ("either of these", lambda r: r.noticed, lambda r: r.tools_accuse_twin or r.twin_fails),
        ("executor, in a way that the case expects", _caught, _accused(32)),
        ("– by a finding with the right code", lambda r: r.named(32), None),
    ]  # fmt: skip
    body = [
        (who, f"{_of(due, caught)} of {len(due)}",
         f"{_of(twins, accused)} of {len(twins)}" if accused else "")
        for who, caught, accused in lines
    ]  # fmt: skip
    return _table(["", "mutants caught", "twins accused"], body, 2)


def _crossed(due: Sequence[Row]) -> list[str]:
    def count(noticed: bool, caught: bool, who: Callable[[Row], bool]) -> int:
        return _of(due, lambda row: who(row) == noticed and _caught(row) == caught)

    head = ["", "executor caught", "executor missed"]
    body = []
    for name, who in (
        ("a tool reported", lambda row: bool(row.tools)),
        ("a tool reported or visible", lambda row: row.noticed),
    ):
        body += [(name, count(True, True, who), count(True, False, who))]
        body += [(f"not ({name})", count(False, True, who), count(False, False, who))]
    return _table(head, body, 2)


def _by_width(rows: Sequence[Row]) -> list[str]:
    body = []
    for language in ("cuda", "hip"):
        for width in (32, 64):
            mine = [row for row in rows if row.case.language == language]
            due = [row for row in mine if width in row.mutants]
            twins = [row for row in mine if width in row.twins]
            caught = _of(due, lambda row, w=width: row.caught(w))  # type: ignore[misc]
            named = _of(due, lambda row, w=width: row.named(w))  # type: ignore[misc]
            body.append((
                language, width, f"{caught} of {len(due)}", f"{named} of {len(due)}",
                f"{_of(twins, _accused(width))} of {len(twins)}",
            ))  # fmt: skip
    head = ["language", "width", "mutants caught", "by a finding or a refusal", "twins accused"]
    return _table(head, body, 3)


def _by_group(due: Sequence[Row]) -> list[str]:
    body = []
    for group in Group:
        mine = [row for row in due if row.case.group is group]
        if mine:
            tools, visible = _of(mine, lambda r: bool(r.tools)), _of(mine, lambda r: r.visible)
            either = _of(mine, lambda r: r.noticed)
            body.append((group, len(mine), tools, visible, either, _of(mine, _caught)))
    head = ["group", "mutants", "any tool", "visible", "either", "executor"]
    return _table(head, body, 5)


def _codes(row: Row) -> str:
    """The codes that the executor reported for the mutant; once if they are the same at both
    widths."""
    said = {width: _said(row, width) for width in sorted(row.mutants)}
    if len(said) == 2 and len(set(said.values())) == 1:
        return said[32]
    return "; ".join(f"{width}: {text}" for width, text in said.items())


def _said(row: Row, width: int) -> str:
    one = row.mutants[width]
    words = [*one.codes]
    if one.refused:
        words = ["refused", *words]
    elif one.status == 1:
        words.append("wrong")
    elif one.status == 2:
        words.append("error")
    elif one.status not in (0, None):
        words.append(f"exit {one.status}")
    text = " ".join(words) or "nothing"
    return text if one.caught else f"**missed** ({text})"


def _on_gpu(row: Row) -> tuple[str, str]:
    assert row.mutant is not None
    status = row.mutant.status
    words = {0: "no", 1: "wrong", 2: "error", None: "no end"}
    if 32 not in row.mutants and not row.noticed:
        return DASH, DASH
    return ", ".join(row.tools) or DASH, words.get(status, f"exit {status}")


def _cases(rows: Sequence[Row]) -> list[str]:
    body = [
        (f"`{row.case.name}`", row.case.what, row.case.sanitizer or DASH, *_on_gpu(row),
         _codes(row))
        for row in rows
    ]  # fmt: skip
    return _table(["case", "what", "expected", "tools", "visible", "executor"], body)


def _cases_here(rows: Sequence[Row]) -> list[str]:
    body = [(f"`{row.case.name}`", row.case.what, _codes(row)) for row in rows]
    return _table(["case", "what", "executor"], body)


def _share(part: float) -> str:
    """Cut, not rounded: 100 % means all."""
    return f"{math.floor(part * 10000) / 100:.2f} %"


def _outputs(outputs: Sequence[Agreement]) -> list[str]:
    cells: dict[tuple[str, str], dict[str, list[Agreement]]] = {}
    for one in outputs:
        cells.setdefault((one.op, one.dtype), {}).setdefault(one.backend, []).append(one)
    body = []
    for (op, dtype), by_backend in cells.items():
        line = [op, dtype]
        for backend in ("cuda", "hip"):
            mine = by_backend[backend]
            elements = sum(one.elements for one in mine)
            line += [
                _share(sum(one.exact * one.elements for one in mine) / elements),
                _share(min(one.exact for one in mine)),
                f"{max(one.apart for one in mine):.1e}".replace("0.0e+00", "0"),
            ]
        body.append(line)
    head = ["op", "dtype", *(f"{b} {x}" for b in ("cuda", "hip") for x in ("exact", "least", "apart"))]  # fmt: skip # noqa: E501
    return _table(head, body, 6)


def _listed(outputs: Sequence[Agreement]) -> str:
    return ", ".join(
        f"{output.op} {output.workload} "
        f"({output.backend}, {output.dtype}; elements: {output.elements})"
        for output in outputs
    )


def page(gpu: str, rows: Sequence[Row], outputs: Sequence[Agreement]) -> str:
    cuda = [row for row in rows if row.mutant is not None]  # what the GPU's record has
    later = [row for row in rows if row.case.language == "cuda" and row.mutant is None]
    hip = [row for row in rows if row.case.language == "hip"]
    due = [row for row in cuda if 32 in row.mutants]
    silent = [row for row in due if not row.tools and _caught(row)]
    missed = [row for row in due if not _caught(row)]
    unforeseen = [row for row in due if row.tools and row.case.sanitizer is None]
    right = sum(output.right for output in outputs)
    unequal = [output for output in outputs if not output.exact]
    lines = [
        "# The SIMT executor beside a GPU",
        "",
        f"Written by `benchmarks/simt_table.py`. The GPU: {gpu}.",
        "",
        f"`tests/simt/bugs` has {len(rows)} programs, {len(cuda) + len(later)} in CUDA and "
        f"{len(hip)} in HIP. "
        "Each has one defect (the mutant), and a twin without it. The CUDA ones were built by "
        "nvcc and run on the GPU, alone and under the four tools of compute-sanitizer, and by the "
        "executor on a CPU"
        + (f", but for {len(later)} that are newer than the GPU's record" if later else "")
        + ". The suite was written together with the executor: its share says "
        "nothing of defects that the suite does not have.",
        "",
        f"The GPU's warps have 32 lanes. {len(due)} of the {len(cuda)} CUDA mutants are wrong "
        f"there; the other {len(cuda) - len(due)} are wrong at 64 lanes only. No AMD hardware was "
        "available: what is said here of width 64, and of HIP, is cross-checked only by the "
        "source's twins, which must pass at that width, and by the reference results that the "
        "programs compare with.",
        "",
        "## Totals",
        "",
        f"Width 32, CUDA: {len(due)} mutants that are wrong at 32 lanes, and {len(cuda)} twins. "
        "Accused: a tool reports the twin, the twin fails on the GPU, or the executor has a "
        "finding or a failure.",
        "",
        *_totals(cuda, due),
        "",
        "The same mutants, crossed:",
        "",
        *_crossed(due),
        "",
        "The executor alone:",
        "",
        *_by_width([*cuda, *hip]),
        "",
        "## By group",
        "",
        "CUDA mutants that are wrong at 32 lanes.",
        "",
        *_by_group(due),
        "",
        "## Where they disagree",
        "",
        f"No tool reported these {len(silent)}; the executor caught them:",
        "",
        *_sorted_out(silent, _COMMON),
        "",
        f"The executor missed these {len(missed)}:",
        "",
        *_sorted_out(missed, _MISSED),
        "",
        f"A tool reported these {len(unforeseen)}, for which the cases name none:",
        "",
        *_sorted_out(unforeseen, _UNEXPECTED),
        "",
        "## Outputs of the catalogue's kernels",
        "",
        "The same inputs on the GPU and in the executor; `hip` kernels were built for the GPU "
        "by nvcc. exact: the share of elements that are equal to the bit, over all workloads; "
        "least: that share at the workload where it is lowest; apart: the largest relative norm of "
        f"the difference at any workload. The executor's outputs were right in {right} of "
        f"{len(outputs)} runs.",
        "",
        "Elements differ because compilers contract products and sums into `fma` at different "
        "places, because `expf`, `erff` and `rsqrtf` come from different mathematical libraries, "
        "and because tensor cores add up in an order and a precision of their own. In softmax, "
        "layernorm and rmsnorm the elements of a row share one scale: where it differs in its last "
        "bit, the whole row does."
        + (f" No element is equal in {_listed(unequal)}." if unequal else ""),
        "",
        *_outputs(outputs),
        "",
        "## Cases in CUDA",
        "",
        "expected: the tool that the case's author expected to report it. tools: those that did. "
        "visible: what the program showed on the GPU without a tool, where `no end` means killed "
        "by the time limit. executor: the codes of `portkern/simt/diagnostics.py`, and `wrong` for "
        "a wrong result or `error` for a failed call, at both widths where none is named. "
        f"A {DASH} stands for none, and for cases that are right at 32 lanes.",
        "",
        *_cases(cuda),
        "",
        *(
            ["## Cases in CUDA that the GPU has not run", "", *_cases_here(later), ""]
            if later
            else []
        ),
        "## Cases in HIP",
        "",
        "Not run on hardware.",
        "",
        *_cases_here(hip),
        "",
        "## Again",
        "",
        "On a machine with an NVIDIA GPU, nvcc and compute-sanitizer:",
        "",
        "    python benchmarks/simt_calibration.py out=FOLDER",
        "",
        "and copy `sanitizer.json` and `outputs.json` to `benchmarks/results/` as "
        "`simt-sanitizer-h200.json` and `simt-outputs-h200.json`. Then, on any machine:",
        "",
        "    python benchmarks/simt_bugs.py",
        "    python benchmarks/simt_table.py",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    if not _json(simt_bugs.RESULTS.name)["complete"]:
        print(f"{simt_bugs.RESULTS} is not complete; run benchmarks/simt_bugs.py --resume")
        return 1
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(page(*read()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
