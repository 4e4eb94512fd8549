"""Builds, checks and times a program that was to be ported: task_runner.py MODE, which is compile,
correctness or performance. It needs hipcc, and rocprofv3 for times."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TASK = Path(__file__).resolve().parents[1]
BUILD = TASK / "build"
PROGRAM = BUILD / "program"
#: Lines of the machine's own: times, rates, names of devices.
OWN = re.compile(
    r"(?i)time|elapsed|flop|device|gpu|B/s|(^|[^a-z])(ms|us|ns|sec(onds?)?|s)([^a-z]|$)"
)
TIMEOUT_S = 300


def main() -> int:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode not in MODES:
        sys.stderr.write(f"expected one of {', '.join(MODES)}, got {mode!r}\n")
        return 2
    BUILD.mkdir(exist_ok=True)
    facts = json.loads((TASK / "scripts" / "task.json").read_text(encoding="utf-8"))
    error = MODES[mode](facts)
    if mode != "performance":
        report = {"status": "fail" if error else "ok", "error": error or None, "num_shapes": 1}
        (BUILD / f"{mode}_report.json").write_text(json.dumps(report, indent=2) + "\n")
    (sys.stderr if error else sys.stdout).write(f"{error or f'{mode}: ok'}\n")
    return 1 if error else 0


def compiled(facts: dict[str, Any]) -> str:
    """The error, empty where there is none; the program is in ``build``."""
    PROGRAM.unlink(missing_ok=True)
    command = ["hipcc", "-O3", f"--offload-arch={os.environ.get('GPU', 'native')}"]
    files = [facts["source"], *facts["linked"]]
    command += [*facts["flags"], "-x", "hip", *files, "-o", str(PROGRAM)]
    return run(command, TASK / "source")[1]


def correct(facts: dict[str, Any]) -> str:
    """Holds what the program prints against what the original did, without lines of the machine's
    own; returns the error."""
    if not PROGRAM.exists() and (error := compiled(facts)):
        return error
    printed, error = run([str(PROGRAM), *facts["arguments"]], TASK / "source")
    if error:
        return error
    expected = stable((TASK / "scripts" / "expected.txt").read_text(encoding="utf-8"))
    if not expected:
        return "all lines of expected.txt are the machine's own: times, rates, names of devices"
    found = stable(printed)
    for number, (line, other) in enumerate(zip(expected, found, strict=False), 1):
        if line != other:
            return f"line {number} is {other[:200]!r}, expected {line[:200]!r}"
    return "" if len(found) == len(expected) else f"{len(found)} lines, expected {len(expected)}"


def timed(facts: dict[str, Any]) -> str:
    """The time of all kernels of a run on the device, in ``build/performance_report.json``."""
    if not PROGRAM.exists() and (error := compiled(facts)):
        return error
    trace = BUILD / "trace"
    shutil.rmtree(trace, ignore_errors=True)
    tool = ["rocprofv3", "--kernel-trace", "--output-format", "csv", "-d", str(trace), "--"]
    _, error = run([*tool, str(PROGRAM), *facts["arguments"]], TASK / "source")
    if error:
        return error
    spans = 0
    for table in trace.rglob("*kernel_trace.csv"):
        with table.open(newline="", encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                spans += int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
    if not spans:
        return "rocprofv3 saw no kernel"
    report = [{"test_case_id": "program", "device_time_ms": spans / 1e6}]
    (BUILD / "performance_report.json").write_text(json.dumps(report, indent=2) + "\n")
    return ""


def run(command: list[str], folder: Path) -> tuple[str, str]:
    """The output of a command, and why it failed."""
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{command[0]}: {error}"
    said = (ended.stderr or ended.stdout)[-2000:]
    return ended.stdout, f"{command[0]} ended with {ended.returncode}: {said}" * bool(
        ended.returncode
    )


def stable(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip() and not OWN.search(line)]


MODES = {"compile": compiled, "correctness": correct, "performance": timed}

if __name__ == "__main__":
    sys.exit(main())
