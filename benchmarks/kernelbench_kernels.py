"""Tries which of KernelBench's problems a plain kernel can be written for from the graph, whether
it is found right at every seed, and a broken twin of it wrong: writes
results/kernelbench-kernels.json.

    .venv/bin/portkern import kernelbench ../KernelBench
    .venv/bin/python -m benchmarks.kernelbench_kernels folder=operators/kernelbench
        [seeds=20] [problems=level1/19_*] [again=true] [fresh=true]

Kernels are C++, evaluated at the problem's ``ci`` sizes; each evaluation draws seeds of its own. A
twin leaves out the last term of the first sum, or, where nothing is summed, scales outputs by
1.002. Rows that are there stay, so that it goes on where it was; with ``again`` only those whose
kernel was right at every seed and whose twin was wrong.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern.cells.selection import default_target, load_op
from portkern.errors import PortkernError
from portkern.evaluator import from_torch
from portkern.evaluator.build import Built
from portkern.records.record import Verdict
from portkern.sandbox import session
from portkern.spec import catalogue, registry
from portkern.spec.op import Op
from portkern.testing import evaluate

RESULTS = _script.RESULTS / "kernelbench-kernels.json"
#: The loop over a sum's terms, or over an argmax's, stands behind what it starts from.
_TERM = re.compile(r"(= (?:0|-1);\n *)for \(int64_t (r\d+_*) = 0; \2 < (.+); \+\+\2\)")
_STORED = re.compile(r"^(\s*\w+\[\w+\] = )scalar_t\((.*)\);$", re.MULTILINE)


def main() -> None:
    words = _script.words(("folder", "seeds", "problems", "again", "fresh"), __doc__)
    folder = Path(words.get("folder", "operators/kernelbench"))
    rows = {} if words.get("fresh") == "true" or not RESULTS.exists() else results()
    for path in files(folder, words.get("problems", "*")):
        name = str(path.relative_to(folder).with_suffix(""))
        if name not in rows or (words.get("again") == "true" and not settled(rows[name])):
            rows[name] = row(path, int(words.get("seeds", 20)))
            print(json.dumps({"problem": name, **rows[name]}), flush=True)
            _script.write(RESULTS.name, rows)
            session.close_servers()
    print(table(rows))


def results() -> dict[str, dict[str, Any]]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def is_right(row: Mapping[str, Any]) -> bool:
    return row["written"] and set(row["verdicts"]) == {str(Verdict.PASSED)}


def settled(row: Mapping[str, Any]) -> bool:
    """Whether the kernel was right at every seed and its twin wrong."""
    return is_right(row) and str(Verdict.WRONG) in row["twin_verdicts"]


def files(folder: Path, pattern: str) -> Iterator[Path]:
    """The problems' files that fit the pattern, in the order of their numbers."""

    def order(path: Path) -> tuple[str, int]:
        return path.parent.name, int(path.name.partition("_")[0])

    numbered = (path for path in folder.glob("level*/*.py") if path.name[0].isdigit())
    for path in sorted(numbered, key=order):
        if fnmatch(str(path.relative_to(folder).with_suffix("")), pattern):
            yield path


def row(path: Path, seeds: int) -> dict[str, Any]:
    try:
        op, source = load_op(str(path)), from_torch.plain_kernel(str(path), "cpu")
    except PortkernError as error:
        return {"written": False, "why": str(error)[:300]}
    right = judged(op, source, seeds)
    how, broken = twin(source)
    return {
        "written": True,
        "lines": source.count("\n"),
        "verdicts": dict(right),
        "twin": how,
        "twin_verdicts": dict(judged(op, broken, 1)),
    }


def judged(op: Op, source: str, seeds: int) -> Counter[str]:
    backend = registry.load("cpu")
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / f"{op.name}.cpp"
        kernel.write_text(source)
        outcome = evaluate(
            catalogue.from_file(kernel, op=op.name, backend=backend),
            op,
            backend,
            default_target(backend),
            list(islice(cycle(op.workloads["ci"]), seeds)),
            folder=Path(folder) / "builds",
        )
    if isinstance(outcome, Built):
        return Counter({str(Verdict.BUILD_FAILED): 1})
    return Counter(str(result.verdict) for result in outcome)


def twin(source: str) -> tuple[str, str]:
    """How it is broken, and the text."""
    if _TERM.search(source):
        less = r"\1for (int64_t \2 = 0; \2 < (\3) - 1; ++\2)"
        return "a term is left out", _TERM.sub(less, source, count=1)
    return "scaled", _STORED.sub(r"\1scalar_t((\2) * 1.002f);", source)


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown, by level."""
    lines = [
        "| | problems | written | right at every seed | twins wrong |",
        "|---|---|---|---|---|",
    ]
    for level in sorted({name.partition("/")[0] for name in rows}):
        mine = [row for name, row in rows.items() if name.startswith(f"{level}/")]
        written = [row for row in mine if row["written"]]
        right = [row for row in written if is_right(row)]
        caught = [row for row in right if settled(row)]
        lines.append(f"| {level} | {len(mine)} | {len(written)} | {len(right)} | {len(caught)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
