"""Which programs of public collections of samples `portkern run` builds and runs right, and why not
the others: results/run-samples.json.

    git clone https://github.com/NVIDIA/cuda-samples samples/cuda-samples
    git clone https://github.com/ROCm/rocm-examples samples/rocm-examples
    git clone https://github.com/zjin-lcf/HeCBench samples/HeCBench
    .venv/bin/python -m benchmarks.run_samples folder=samples
        [programs=GLOB] [seconds=20] [again=true] [fresh=true] [table=true]

A program is what a build file makes of sources of which one has main(); of HeCBench's, 60 of CUDA
and 30 of HIP are drawn. Each is run with all checkers, and without any if that takes longer than
``seconds``. Rows that are there stay; ``programs`` runs those whose names it matches once more,
``again`` those that did not run right. ``table`` prints the tables of the rows alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import _script
from benchmarks.sample_programs import Program, programs

RESULTS = _script.RESULTS / "run-samples.json"
#: What programs print of their own check's result.
_WRONG = re.compile(r"\b(FAIL(ED|URE)?|[Ff]ailed(?! as expected)|MISMATCH|INCORRECT)\b")
#: And of files, libraries and arguments that they are not given here.
_NO_INPUT = re.compile(
    r"^usage\b|(open|opening|read|reading|load|find)\b.{0,40}\b(file|db|image|\.\w{3,4})\b"
    r"|no such file|file not found|dlopen",
    re.IGNORECASE | re.MULTILINE,
)
#: How a run ended, in the order of the table.
ENDS = ("right", "wrong", "timeout", "waived", "no file", "refused", "not built")
#: A sample's exit code where the device lacks what it shows.
_WAIVED = 2
#: The kept part of what a program or a compiler printed, in characters.
_TAIL = 600

Row = dict[str, Any]


def main() -> None:
    known = ("folder", "programs", "seconds", "again", "fresh", "table")
    words = _script.words(known, __doc__)
    rows = {} if words.get("fresh") == "true" or not RESULTS.exists() else results()["programs"]
    if words.get("table") != "true":
        folder = Path(words.get("folder", "samples")).resolve()
        seconds = float(words.get("seconds", 20))
        _run_all(folder, words.get("programs", "*"), seconds, rows, words.get("again") == "true")
    print(table(rows), "", reasons(rows), sep="\n")


def results() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def _run_all(folder: Path, pattern: str, seconds: float, rows: dict[str, Row], again: bool) -> None:
    commits = {path.parent.name: commit(path.parent) for path in sorted(folder.glob("*/.git"))}
    for program in programs(folder):
        name = f"{program.collection}: {program.name}"
        if _wanted(rows.get(name), pattern, again) and fnmatch(name, pattern):
            rows[name] = {"collection": program.collection, **row(program, seconds)}
            print(name, rows[name]["end"], *rows[name]["findings"], flush=True)
            _script.write(RESULTS.name, {"commits": commits, "programs": rows})


def _wanted(row: Row | None, pattern: str, again: bool) -> bool:
    if row is None:
        return True
    return row["end"] != "right" if again else pattern != "*"


def commit(checkout: Path) -> str:
    argv = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def row(program: Program, seconds: float) -> Row:
    checked = _portkern(program, seconds, "all")
    answer, how = checked, "checked"
    if any(finding["code"] == "SX405" for finding in checked["findings"]):
        answer, how = _portkern(program, seconds, "none"), "unchecked"
    findings = Counter(f["code"] for f in checked["findings"] if f["severity"] != "note")
    if how == "unchecked":
        findings.pop("SX405")
    return {
        "sources": list(program.sources),
        "libraries": list(program.libraries),
        "how": how,
        "end": end(answer),
        "status": answer.get("status"),
        "findings": dict(findings) if answer["built"] else {},
        "missing": {} if answer["built"] else missing(answer["findings"]),
        "said": _without_places(answer["output"] if answer["built"] else answer["log"])[-_TAIL:],
    }


def _without_places(said: str) -> str:
    """Removes the folders of this machine, which mean nothing elsewhere."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-]+)", "", said)


def _portkern(program: Program, seconds: float, checkers: str) -> Row:
    """Runs `portkern run … json=true` and reads its answer."""
    argv = [sys.executable, "-m", "portkern.cli", "run", *program.sources, "json=true"]
    argv += [f"target={program.target}", f"sanitize={checkers}", f"timeout_s={seconds:g}"]
    argv += [part for folder in program.includes for part in ("-I", folder)]
    argv += [part for define in program.defines for part in ("-D", define)]
    argv += ["--", *program.arguments]
    done = subprocess.run(argv, cwd=program.folder, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        raise SystemExit(f"{program.folder}: {' '.join(argv)}: {done.stderr}") from None


def end(answer: Row) -> str:
    """One of ENDS. A build is refused where all that it lacks has a number."""
    if not answer["built"]:
        return "refused" if answer["findings"] else "not built"
    if any(finding["code"] == "SX405" for finding in answer["findings"]):
        return "timeout"
    if answer["status"] == _WAIVED:
        return "waived"
    if answer["status"] == 0 and not _WRONG.search(answer["output"]):
        return "right"
    return "no file" if _NO_INPUT.search(answer["output"]) else "wrong"


def missing(findings: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The names that the executor has no model of, by the finding's number."""
    named: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for finding in findings:
        named[finding["code"]][finding["message"].rpartition(": ")[2]] = None
    return {code: list(names) for code, names in sorted(named.items())}


def table(rows: Mapping[str, Row]) -> str:
    """The rows as a table in Markdown, by collection."""
    columns = ("programs", "built", *ENDS[:5], "with findings", *ENDS[5:], "by number")
    lines = ["|  | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for collection in dict.fromkeys(row["collection"] for row in rows.values()):
        mine = [row for row in rows.values() if row["collection"] == collection]
        ends = Counter(row["end"] for row in mine)
        built = len(mine) - ends["refused"] - ends["not built"]
        found = sum(bool(row["findings"]) for row in mine)
        numbers = Counter(code for row in mine for code in row["missing"])
        counts = [ends[how] for how in ENDS]
        cells = [len(mine), built, *counts[:5], found, *counts[5:]]
        by_number = ", ".join(f"{code} {n}" for code, n in sorted(numbers.items()))
        lines.append(f"| {collection} | {' | '.join(map(str, cells))} | {by_number} |")
    return "\n".join(lines)


def reasons(rows: Mapping[str, Row]) -> str:
    """A count of what programs lack, the most frequent first."""
    lacking = Counter(
        f"{code} {name}"
        for row in rows.values()
        for code, names in row["missing"].items()
        for name in names
    )
    return "\n".join(f"{n:4} {name}" for name, n in lacking.most_common(60))


if __name__ == "__main__":
    main()
