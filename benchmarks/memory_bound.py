"""How much of the bandwidth of a copy each kernel of a memory-bound op has: a table of records.

.venv/bin/portkern matrix ops=core targets=host workloads=typical dtypes=all run=h200 \
    baselines=[eager,compile]
.venv/bin/python -m benchmarks.memory_bound records=reports/h200/records.jsonl [dtype=float32]

A cell's bytes are the least that any kernel must move (every input element that is needed read
once, every output written once) over its median time, as a share of what the target's `memory_copy`
peak says a copy moves. Inputs are cold: the L2 is flushed before each call.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import _script
from portkern.records.record import Record, RecordFile
from portkern.spec import target

OPS = (
    "relu",
    "add",
    "gelu",
    "softmax",
    "layernorm",
    "rmsnorm",
    "sum",
    "transpose",
    "cumsum",
    "cross_entropy",
    "rope",
    "silu_mul",
    "embedding",
    "argmax",
)
BACKENDS = ("cuda", "hip", "triton", "opencl", "pallas")
Problem = tuple[str, str, str]


def main() -> None:
    words = _script.words({"records", "dtype"}, __doc__, needed={"records"})
    records, torn = RecordFile(Path(words["records"])).read()
    if torn:
        print(f"memory_bound: {torn}", file=sys.stderr)
    print(table(records, words.get("dtype", "float32")))


def table(records: Iterable[Record], dtype: str) -> str:
    """The records as a table in Markdown: the share of each backend in per cent, the best in bold,
    and how the best does against the framework and its compiler."""
    heads = ["op", "size", *BACKENDS, "× eager", "× compile"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for (op, size, _), asked in problems(records, dtype).items():
        shares = {one.backend: share(one) for one in asked}
        best = max(asked, key=share)
        cells = [
            ""
            if name not in shares
            else f"**{shares[name]:.0%}**"
            if name == best.backend
            else f"{shares[name]:.0%}"
            for name in BACKENDS
        ]
        ratios = [
            f"{best.speedup[name].value:.2f}" if name in best.speedup else ""
            for name in ("eager", "compile")
        ]
        lines.append("| " + " | ".join([op, size, *cells, *ratios]) + " |")
    return "\n".join(lines)


def problems(records: Iterable[Record], dtype: str) -> dict[Problem, Sequence[Record]]:
    """The newest timed record of each cell at typical sizes, on targets with a known copy."""
    newest = {record.key: record for record in records}
    found: dict[Problem, list[Record]] = defaultdict(list)
    for record in newest.values():
        work = record.workload
        if record.op in OPS and work.set == "typical" and work.dtype == dtype and record.timing:
            if "memory_copy" in target.load(record.target).peaks:
                found[record.op, work.name, record.target].append(record)
    return {key: found[key] for key in sorted(found, key=lambda key: OPS.index(key[0]))}


def share(record: Record) -> float:
    """The share of a copy's bandwidth; more than 1 where a kernel writes little, as reading is
    faster."""
    assert record.timing is not None and record.roofline is not None
    copied = target.load(record.target).peaks["memory_copy"].value * 1e9
    return record.roofline.bytes / (record.timing.median_us / 1e6) / copied


if __name__ == "__main__":
    main()
