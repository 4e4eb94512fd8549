"""How the CPU's kernels compare on ops that memory limits and on matmul: prints a table and writes
results/cpu-<target>.json.

.venv/bin/python -m benchmarks.cpu_ops [ops=NAME,NAME]

Each op is one run at its smallest typical size; the caches are warm, kernels and the framework
take turns and have as many threads. C++ is compared with the framework (MKL for matmul), Numba and
OpenCL with C++. Rows that are not asked for stay in the file as they are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _script
from benchmarks.memory_bound import OPS
from portkern.cells.run import Matrix
from portkern.cells.selection import Selection, host_targets
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Record, RecordFile
from portkern.sandbox import session
from portkern.spec import target
from portkern.toolchain.run_tool import cache_root

NAMES = (*OPS, "matmul")
LANGUAGES = ("c++", "numba", "opencl")


def main() -> None:
    words = _script.words({"ops"}, __doc__)
    names = words["ops"].split(",") if "ops" in words else list(NAMES)
    [where] = [name for name in host_targets() if not target.load(name).is_gpu][:1]
    asked = [race(name, where) for name in names]
    session.close_servers()
    here = _script.provenance([record for records in asked for record in records])
    file = f"cpu-{where}.json"
    rows = [*map(summary, asked), *_script.earlier(file, here, names, "op")]
    rows.sort(key=lambda row: NAMES.index(row["op"]))
    document = {"machine": here, "target": where, "rows": rows}
    _script.write(file, document)
    print(table(document))


def race(op: str, where: str) -> list[Record]:
    """Times all kernels of the op in one run; leaves out those that nothing here runs."""
    targets, backends = [where, "opencl_generic"], ["cpu", "opencl"]
    asked = Selection([op], targets, backends, ["typical"], ["float32"]).cells()
    cells = [c for c in asked if c.workload == asked[0].workload and not c.ruled_out]
    with tempfile.TemporaryDirectory() as folder:
        file = RecordFile(Path(folder) / "records.jsonl")
        options = TrialOptions(plan=TimingPlan(rounds=15, budget_s=3.0), distributions=("normal",))
        cache = ArtifactCache(cache_root() / "builds")
        return Matrix(cells, "cpu", file, cache, options).execute()


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Times in milliseconds; ``ratio`` is of the framework's time to C++'s, and of C++'s to the
    others': more than 1 where the kernel is the faster one."""
    timed = {record.language: record.timing.median_us / 1e3 for record in records if record.timing}
    eager = next(
        (record.baselines["eager"].median_us / 1e3 for record in records if record.baselines), None
    )
    against = {"c++": eager, "numba": timed.get("c++"), "opencl": timed.get("c++")}
    ratios = {
        name: other / timed[name] for name, other in against.items() if other and name in timed
    }
    return {
        "op": records[0].op,
        "size": records[0].workload.name,
        "time": max(record.time for record in records),
        "eager_ms": eager,
        "portkern_ms": {name: timed.get(name) for name in LANGUAGES},
        "ratio": ratios,
        "not_timed": {
            record.language: f"{record.verdict}: {record.detail.partition(chr(10))[0]}"
            for record in records
            if not record.timing
        },
    }


def table(document: Mapping[str, Any]) -> str:
    """The document as a table in Markdown."""
    lines = [
        "| op | size | eager | C++ | × eager | Numba | × C++ | OpenCL | × C++ |",
        "|" + " --- |" * 9,
    ]
    for one in document["rows"]:
        cells = [f"{one['eager_ms']:.2f} ms"] if one["eager_ms"] else [""]
        for name in LANGUAGES:
            taken, ratio = one["portkern_ms"][name], one["ratio"].get(name)
            cells += [f"{taken:.2f} ms" if taken else "", f"{ratio:.2f}" if ratio else ""]
        lines.append(f"| {one['op']} | {one['size']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
