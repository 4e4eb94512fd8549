"""Registers, spills and LDS of the HIP and Triton kernels on AMD GPUs that nobody here has: prints
a table and writes results/amd-builds.json.

.venv/bin/portkern matrix ops=core targets=[gfx90a,gfx942,gfx950,gfx1100,gfx1201] \\
    backends=[hip,triton] workloads=ci run=amd
.venv/bin/python -m benchmarks.amd_builds records=reports/amd/records.jsonl

Each kernel is compiled for the real instruction set; registers, spills and LDS are what the code
object says, occupancy is computed from them and the target's limits: built, not measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern.records.record import Record, RecordFile
from portkern.spec import target
from portkern.spec.target import AmdLimits


def main() -> None:
    words = _script.words({"records"}, __doc__, needed={"records"})
    records, _ = RecordFile(Path(words["records"])).read()
    rows = summary(records)
    _script.write("amd-builds.json", rows)
    print(table(rows))


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row for each AMD target and backend, over the newest build of each op and size."""
    newest = {
        (one.target, one.backend, one.op, one.workload.name, one.workload.dtype): one
        for one in records
        if one.resources and target.load(one.target).vendor == "amd"
    }
    columns: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for (name, backend, *_), record in sorted(newest.items()):
        columns[name, backend].append(record)
    return [_row(name, backend, built) for (name, backend), built in columns.items()]


def _row(name: str, backend: str, built: Sequence[Record]) -> dict[str, Any]:
    kernels = [(one.op, part) for one in built for part in one.resources]
    full = [(part.occupancy, op) for op, part in kernels if part.occupancy is not None]
    lowest, at = min(full, default=(None, ""))
    limits = target.load(name).limits
    assert isinstance(limits, AmdLimits)
    return {
        "target": name,
        "backend": backend,
        "ops": len({op for op, _ in kernels}),
        "kernels": len({(op, part.kernel) for op, part in kernels}),
        "spills": sum(part.spills or 0 for _, part in kernels),
        "vgprs": max((part.registers or 0) + (part.agprs or 0) for _, part in kernels),
        "lds_bytes": max(part.shared_bytes or 0 for _, part in kernels),
        "lds_limit": limits.lds_block_bytes,
        "occupancy": statistics.median(share for share, _ in full) if full else None,
        "lowest_occupancy": lowest,
        "lowest_op": at,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    heads = "target", "backend", "ops", "kernels", "spills", "most VGPRs", "most LDS", "occupancy"
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        share = "" if row["occupancy"] is None else f"{row['occupancy']:.0%}, at least "
        least = "" if not share else f"{row['lowest_occupancy']:.0%} ({row['lowest_op']})"
        lines.append(
            f"| `{row['target']}` | `{row['backend']}` | {row['ops']} | {row['kernels']} | "
            f"{row['spills']} | {row['vgprs']} | {row['lds_bytes']} of {row['lds_limit']} B | "
            f"{share}{least} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
