"""Answers for assistants on records and ports: few lines, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from portkern.printable import printable
from portkern.records.record import Record, Verdict

#: Lines of a detail, cells, kernels and points of a history.
MOST_LINES, MOST_CELLS, MOST_KERNELS, MOST_POINTS = 12, 16, 20, 10
_NEXT = {
    Verdict.UNSUPPORTED: "Choose another target or backend: 'targets' lists what goes together.",
    Verdict.UNAVAILABLE: "This machine cannot show it; name a target that 'targets' says is run or "
    "emulated here.",
    Verdict.REJECTED: "Do the work in the kernel itself; the detail names the line that breaks a "
    "rule.",
    Verdict.BUILD_FAILED: "Mend the first error, which the detail begins with, and check again.",
    Verdict.CRASHED: "Look for accesses beyond the end at the size that is named, and check again.",
    Verdict.TIMED_OUT: "Look for a loop or a barrier that does not end, and check again.",
    Verdict.WRONG: "The detail names the first wrong element and its size: mend that case first; "
    "sizes that are not multiples of the block are the usual cause.",
    Verdict.SUSPICIOUS: "Its timed calls did something else than its checked ones; every call has "
    "to do all of the work.",
}
_RIGHT = (
    "It is right. 'compare_with_baseline' says how fast it is; 'check' with workloads edge and "
    "heldout, whether it holds at odd sizes."
)


def of_records(records: Sequence[Record]) -> dict[str, Any]:
    """The verdict of all, each cell's, and what to do about the first bad one."""
    bad = [record for record in records if record.verdict is not Verdict.PASSED]
    verdicts = [record.verdict for record in bad]
    return {
        "verdict": str(verdicts[0] if verdicts else Verdict.PASSED),
        "cells": [_cell(record) for record in [*bad, *(r for r in records if r not in bad)]][
            :MOST_CELLS
        ],
        "next": _NEXT[verdicts[0]] if verdicts else _RIGHT,
    }


def _cell(record: Record) -> dict[str, Any]:
    told = {
        "where": f"{record.backend}@{record.target}",
        "size": f"{record.workload.set}/{record.workload.name}",
        "dtype": record.workload.dtype,
        "verdict": str(record.verdict),
        "evidence": str(record.evidence),
        "detail": _few(record.detail.splitlines()),
        "findings": _few(map(str, record.findings)),
    }
    return {name: value for name, value in told.items() if value}


def of_times(records: Sequence[Record]) -> dict[str, Any]:
    """How the kernel compares with the baseline, by workload; no more is claimed than its interval
    shows."""
    told = of_records(records)
    if told["verdict"] != str(Verdict.PASSED):
        return told
    rows = [_race(record) for record in records]
    words = {row["standing"] for row in rows}
    if "untimed" in words:
        told["next"] = "It is emulated here and has no time: 'profile' counts what it does."
    elif "noisy" in words:
        told["next"] = "The machine was busy: ask again, and believe no ratio that is noisy."
    elif words == {"faster"}:
        told["next"] = "It is faster everywhere; 'check' with workloads=[edge,heldout] comes next."
    else:
        told["next"] = "'profile' says what bounds it; change one thing, and compare again."
    return {"verdict": told["verdict"], "workloads": rows, "next": told["next"]}


def _race(record: Record) -> dict[str, Any]:
    size = f"{record.workload.set}/{record.workload.name}"
    if record.timing is None or "eager" not in record.speedup:
        return {"size": size, "standing": "untimed", "why": record.missing}
    ratio = record.speedup["eager"]
    low, high = ratio.ci95
    standing = "faster" if low > 1 else "slower" if high < 1 else "not told apart"
    return {
        "size": size,
        "standing": "noisy" if record.timing.noisy else standing,
        "speedup": round(ratio.value, 3),
        "interval": [round(low, 3), round(high, 3)],
        "kernel_us": round(record.timing.median_us, 3),
        **({"why": record.timing.noisy} if record.timing.noisy else {}),
    }


def of_profile(records: Sequence[Record]) -> dict[str, Any]:
    """The counts from running a kernel, what the compiler said, and how far the kernel is from
    its roof."""
    told = of_records(records)
    told["profile"] = [
        {
            "size": f"{record.workload.set}/{record.workload.name}",
            "resources": [one.model_dump(exclude_none=True) for one in record.resources],
            "launches": [one.model_dump() for one in record.launches][:MOST_KERNELS],
            "roofline": record.roofline.model_dump(exclude_none=True) if record.roofline else {},
            "time_us": record.timing.median_us if record.timing else None,
        }
        for record in records
    ]
    if told["verdict"] == str(Verdict.PASSED):
        told["next"] = (
            "Below half of its roof: look at accesses and occupancy first. Near it: less traffic "
            "or another algorithm."
        )
    return told


def of_port(document: Mapping[str, Any], *, proven: bool) -> dict[str, Any]:
    """Hazards and outcomes by kernel, the bad ones first."""
    kernels = sorted(document["kernels"], key=lambda kernel: bool(kernel["good"]))
    bad = [kernel for kernel in kernels if not kernel["good"]]
    if proven:
        after = "Every kernel was shown to compute the same; the tree has the port."
        next_ = "Mend what the first kernel's 'why' says, and prove again." if bad else after
    else:
        next_ = "'port_prove' builds the port and runs it against the original."
    return {
        "summary": document["summary"],
        "tree": document["tree"],
        "kernels": [
            {
                "kernel": kernel["kernel"],
                "where": f"{kernel['path']}:{kernel['line']}",
                "outcome": kernel["outcome"],
                "why": printable(str(kernel["why"]))[:500],
                "hazards": [_hazard(hazard) for hazard in kernel["hazards"]][:MOST_LINES],
                "counterexample": kernel["counterexample"],
            }
            for kernel in kernels[:MOST_KERNELS]
        ],
        "left_out": max(0, len(kernels) - MOST_KERNELS),
        "problems": _few(map(str, document["problems"])),
        "next": next_,
    }


def _hazard(hazard: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hazard.items() if value not in ("", None, [], {})}


def of_history(document: Mapping[str, Any]) -> dict[str, Any]:
    cells = [
        {
            name: value[-MOST_POINTS:] if name == "points" else value
            for name, value in cell.items()
            if name in ("op", "backend", "target", "workload", "points", "events", "steps")
        }
        for cell in document["cells"][:MOST_CELLS]
    ]
    return {
        "cells": cells,
        "left_out": max(0, len(document["cells"]) - MOST_CELLS),
        "next": "A step names the run since which a time moved: compare the sources of the two.",
    }


def _few(lines: Iterable[str]) -> list[str]:
    return [printable(line)[:300] for line in lines][:MOST_LINES]
