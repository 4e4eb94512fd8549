"""Writes the tables of the README and docs/ from committed records and results: `make readme`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import (
    _script,
    amd_builds,
    amd_moved,
    attacks,
    cpu_ops,
    evaluator,
    headline,
    load,
    memory_bound,
    object_counts,
    object_records,
    object_speed,
    object_waits,
    residual,
    tolerances,
)
from portkern import ops
from portkern.cli.main import VERBS
from portkern.records import kernel_age, source_store
from portkern.records.kernel_age import Age
from portkern.records.record import RecordFile
from portkern.records.source_store import SourceStore
from portkern.report.markdown import overview

ROOT = Path(__file__).resolve().parents[1]
RESULTS = _script.RESULTS
TARGETS = ("h200", "h100", "gfx942", "gfx1100", "x86_64_avx512", "opencl_generic", "tpu_v5e")
SPEEDS = {
    "help_s": "`portkern --help`",
    "check_fresh_s": "`portkern check` of a new C++ kernel, two workloads, the command",
    "check_cached_s": "the same command again, its build in the cache",
    "check_further_s": "each further source in one command (`source=[a.cpp,b.cpp]`)",
    "candidate_source_s": "a new C++ kernel in a process whose workers are warm, no command",
    "doctor_s": "`portkern doctor`",
    "report_s": "`portkern report RUN`",
    "matrix_first_s": "`portkern matrix ops=basic targets=all workloads=ci`, empty caches",
    "matrix_again_s": "the same again, nothing changed",
    "demo_cold_uv_s": "`make demo-all` on a fresh clone with uv",
}


def main() -> int:
    for name in PAGES:
        path = ROOT / name
        path.write_text(refreshed(name, path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def refreshed(name: str, page: str) -> str:
    """A page with its generated parts as the committed files give them."""
    for part in PAGES[name]:
        begin, end = f"<!-- {part.__name__[1:]}: make readme -->", f"<!-- /{part.__name__[1:]} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{part()}\n{end}{after}"
    return page


def _matrix() -> str:
    files = sorted((ROOT / "reports" / "records").glob("*.jsonl.gz"))
    records = [record for file in files for record in RecordFile(file).read()[0]]
    records = [record for record in records if record.op in ops.SETS["core"]]
    return f"{overview(records, targets=TARGETS).rstrip()} {_ages(files)}"


def _ages(files: Sequence[Path]) -> str:
    """How many of the committed timed cells are of a kernel that has changed since."""
    store = SourceStore(ROOT / "reports" / "records" / source_store.FOLDER)
    parts, lost = [], 0
    for file in files:
        timed = [one for one in RecordFile(file).read()[0] if one.timing and one.source_hash]
        if not timed:
            continue
        ages = kernel_age.counted(timed, store)
        lost += ages[Age.LOST]
        name = file.name.partition(".")[0]
        parts.append(f"{ages[Age.CHANGED] + ages[Age.LOST]} of {len(timed)} ({name})")
    kept = f"the sources of {lost} were not kept" if lost else "their sources are kept"
    return f"Timed cells of kernels that have changed since: {', '.join(parts)}; {kept}."


def _speed() -> str:
    results = _result("speed.json")
    rows = [
        f"| {label} | {results[name]:.{2 if results[name] < 1 else 1}f} "
        f"{'GiB' if name.endswith('gib') else 's'} |"
        for name, label in SPEEDS.items()
        if name in results
    ]
    return "\n".join(["| Command | Time |", "|---|---|", *rows])


def _commands() -> str:
    rows = [f"| `portkern {verb}` | {text} |" for verb, text in VERBS.items()]
    head = "| command | what it does, with an example of its options |"
    return "\n".join([head, "|---|---|", *rows])


def _cost() -> str:
    files = sorted(RESULTS.glob("evaluator-*.json"))
    return "\n\n".join(evaluator.table(json.loads(file.read_text())) for file in files)


def _load() -> str:
    return load.table(load.results())


def _residual() -> str:
    return residual.table(residual.results())


def _attacks() -> str:
    return attacks.table(_script.rows(attacks.RESULTS))


def _tolerances() -> str:
    return tolerances.table(tolerances.results())


def _headline() -> str:
    return headline.table(_result("headline-h200.json"))


def _memory() -> str:
    records, _ = RecordFile(RESULTS / "memory-h200.jsonl.gz").read()
    return memory_bound.table(records, "float32")


def _cpu() -> str:
    return cpu_ops.table(_result("cpu-x86_64_avx512.json"))


def _amd() -> str:
    return amd_builds.table(_result("amd-builds.json"))


def _moved() -> str:
    return amd_moved.table(_result("amd-moved.json"))


def _objects() -> str:
    return object_records.table()


def _counted() -> str:
    return object_counts.table()


def _waits() -> str:
    return object_waits.table(_result("object-waits.json"))


def _rates() -> str:
    return object_speed.table(_result("object-speed.json")["rows"])


def _presets() -> str:
    """The presets in the order of their names, each with its page."""
    rows = ["| preset | system | fidelity | what differs | source |", "|---|---|---|---|---|"]
    for path in sorted((ROOT / "conf" / "preset").glob("*.yaml")):
        about = yaml.safe_load(path.read_text(encoding="utf-8"))["preset"]
        if about:
            name = f"`{about['name']}`"
            page = ROOT / "docs" / "presets" / f"{about['name']}.md"
            cells = [about[key] for key in ("system", "fidelity", "differs", "source")]
            rows.append(
                f"| {f'[{name}]({page.name})' if page.is_file() else name} | {' | '.join(cells)} |"
            )
    return "\n".join(rows)


def _result(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


#: Which parts each page has; a part stands between comments of its name.
PAGES = {
    "README.md": (_matrix, _speed),
    "docs/commands.md": (_commands,),
    "docs/presets/index.md": (_presets,),
    "docs/evaluator.md": (_attacks, _cost, _load, _residual, _tolerances),
    "docs/objects.md": (_waits, _counted, _objects, _rates),
    "docs/operators.md": (_headline, _memory, _cpu, _amd, _moved),
}

if __name__ == "__main__":
    sys.exit(main())
