"""Writes the tables of docs/library.md from the committed results: what a call costs, how often a
choice is the best, and what whole models gain.

    python -m benchmarks.library_tables
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _script

PAGE = Path(__file__).parents[1] / "docs/library.md"
_CALLS = ("softmax", "rmsnorm", "relu", "silu_mul", "matmul")
_COSTS = {
    "PyTorch": "eager",
    "a kernel": "kernel",
    "a fall-back": "fall-back",
    "PyTorch, gradient recorded": "eager, gradient",
    "a kernel, gradient recorded": "kernel, gradient",
}
#: What a library asks of a measured interval, where a study tried several.
_EVIDENCE = "never, 1.1"
_KINDS = {"held out": "sizes without a record", "measured": "sizes that were measured"}
_WAYS = {
    "`apply`": "portkern",
    "`torch.compile`": "compile",
    "`apply` and compiled": "portkern and compile",
    "Liger": "liger",
    "`kernelize` of this library": "kernelize",
}
_MODES = {"inference": "forward", "training": "a training step"}


def _results(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((_script.RESULTS / name).read_text(encoding="utf-8"))
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(one) for one in (head, *rows)]
    return (
        "\n".join([f"| {lines[0]} |", f"|{'---|' * len(head)}", *(f"| {x} |" for x in lines[1:])])
        + "\n"
    )


def calls() -> str:
    """Microseconds of a call, on a CPU and on a GPU."""
    rows = []
    for device in ("cpu", "cpu-xeon", "cuda"):
        said = _results(f"library-{device}.json")
        where = said["device"].removeprefix("Linux x86_64, ")
        for name in (one for one in _CALLS if one in said["overhead_us"]):
            times = said["overhead_us"][name]
            rows.append([where, f"`{name}`", *(f"{times[one]:.2f}" for one in _COSTS.values())])
    return _table(["", "", *_COSTS], rows)


def choices() -> str:
    """How often a choice was within 5 % of the fastest, and slower than PyTorch."""
    rows = []
    for device in ("cuda", "cpu", "cpu-xeon"):
        said = _results(f"library-study-{device}.json")
        for kind, what in _KINDS.items():
            ways = [_EVIDENCE if _EVIDENCE in said["choices"] else "never", "online"]
            own = [said["choices"][way][kind] for way in ways]
            row = [said["device"], what, f"{own[0]['shapes']:,}"]
            for one in own:
                near, slow = one["within 5 % of the best"], one["slower than eager by 5 %"]
                row += [f"{near * 100:.1f} %", f"{slow * 100:.1f} %", f"{one['gain']:.2f}"]
            rows.append([*row, f"{own[0]['best gain']:.2f}"])
    parts = ["within 5 %", "slower", "gain"]
    head = ["", "", "shapes", *(f"by evidence: {parts[0]}", *parts[1:])]
    return _table([*head, *(f"after a race: {parts[0]}", *parts[1:]), "the best's"], rows)


def models() -> str:
    """Ratios to eager PyTorch, with intervals of 95 %."""
    rows = []
    for device in ("cuda", "cpu"):
        said = _results(f"end-to-end-{device}.json")
        where = f"{said['device']}, {said['dtype'].removeprefix('torch.')}"
        for row in said["rows"]:
            what = f"{where}: {row['model']}, {_MODES[row['mode']]}"
            rows.append([what, *(_ratio(row["ways"].get(way, {})) for way in _WAYS.values())])
    return _table(["", *_WAYS], rows)


def _ratio(way: Mapping[str, Any]) -> str:
    if "speedup" not in way:
        return "–"
    low, high = way["ci95"]
    idle = ", nothing replaced" if way["what"].startswith("nothing replaced") else ""
    return f"{way['speedup']:.2f} ({low:.2f}–{high:.2f}){idle}"


TABLES = {
    "benchmarks/library.py": calls,
    "benchmarks/library_study.py": choices,
    "benchmarks/end_to_end.py": models,
}


def main() -> int:
    for name, table in TABLES.items():
        _script.show_on_page(PAGE, name, table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
