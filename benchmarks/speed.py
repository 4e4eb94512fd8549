"""How fast portkern itself is: prints a table and writes results/speed.json.

.venv/bin/python -m benchmarks.speed             commands, a candidate, the matrix, memory
.venv/bin/python -m benchmarks.speed --commands  only what a user types: cold processes, defaults
.venv/bin/python -m benchmarks.speed --setup     also `make demo-all` cold, with uv and with pip
                                                 (downloads everything again)
.venv/bin/python -m benchmarks.speed --busy      what a user types, beside two busy loops

--out=FILE writes another record, such as another machine's: one record is of one machine.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import host_targets
from portkern.sandbox import session
from portkern.spec import registry
from portkern.spec.target import load
from portkern.testing import evaluate
from portkern.toolchain import host

ROOT = Path(__file__).parents[1]
PORTKERN = str(Path(sys.executable).parent / "portkern")
MATRIX = ["matrix", "ops=basic", "targets=all", "workloads=ci", "run=speed", "track=false"]


def main() -> None:
    usual = ROOT / "benchmarks" / "results" / "speed.json"
    named = [Path(word.removeprefix("--out=")) for word in sys.argv if word.startswith("--out=")]
    target = named[-1] if named else usual
    known = json.loads(target.read_text()) if target.exists() else {}
    machine = {"machine": f"{os.cpu_count()} CPUs, {host.cpu_name()}"}
    if known and known["machine"] != machine["machine"]:
        if {"--commands", "--busy"} & {*sys.argv}:
            raise SystemExit(
                f"{target} is of {known['machine']}, this is {machine['machine']}: measure all of "
                "it anew (without --commands and --busy), or name another record by --out=FILE"
            )
        known = {}
    measured = machine | (beside_loops() if "--busy" in sys.argv else alone())
    target.write_text(json.dumps(known | measured, indent=1) + "\n")
    for name, value in measured.items():
        print(f"{name:28} {value}")


def beside_loops() -> dict[str, float]:
    with _script.busy(2):
        return {f"busy_{name}": value for name, value in commands().items()}


def alone() -> dict[str, float]:
    measured = {
        "help_s": median(lambda: seconds([PORTKERN, "--help"]), 7),
        **commands(),
    }
    if "--commands" not in sys.argv:
        measured |= {**candidate(), **matrix()}
    if "--setup" in sys.argv:
        measured |= setup()
    return measured


def commands(repeats: int = 5) -> dict[str, float]:
    """Cold processes with the defaults, as a user types them: medians of ``repeats``. Sources are
    new where a build is to be made; runtimes and headers are in the cache."""
    text = (ROOT / "backends/cpu/kernels/softmax.cpp").read_text()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PORTKERN_CACHE_DIR": f"{folder}/cache"}
        numbers = itertools.count()

        def sources(count: int) -> str:
            files = [Path(folder) / f"k{next(numbers)}.cpp" for _ in range(count)]
            for file in files:
                file.write_text(f"{text}// {file.name}\n")
            return f"[{','.join(map(str, files))}]"

        def check(source: str) -> float:
            verb = [PORTKERN, "check", "op=softmax", "backend=cpu", f"reports={folder}"]
            return seconds([*verb, f"source={source}"], environment)

        kept = sources(1)
        check(kept)
        fresh = median(lambda: check(sources(1)), repeats)
        five = median(lambda: check(sources(5)), 3)
        run = f"reports={folder}"
        seconds([PORTKERN, *MATRIX[:2], "targets=host", *MATRIX[3:], run], environment)
        return {
            "check_fresh_s": fresh,
            "check_cached_s": median(lambda: check(kept), repeats),
            "check_further_s": round((five - fresh) / 4, 3),
            "doctor_s": median(lambda: seconds([PORTKERN, "doctor"], environment), repeats),
            "report_s": median(lambda: seconds([PORTKERN, "report", "speed", run]), repeats),
        }


def candidate() -> dict[str, float]:
    """softmax in C++ from source to verdict: the first one of a process, then compiled anew with
    the workers warm, then with the build in the cache."""
    op, backend, where = ops.load("softmax"), registry.load("cpu"), load(host_targets()[0])
    source = (ROOT / "backends/cpu/kernels/softmax.cpp").read_text()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("first", source), ("source", source + "\n"), ("cached", source + "\n")):
            from portkern.spec.candidate import Candidate

            kernel = Candidate("softmax", "cpu", "c++", text, "softmax")
            start = time.perf_counter()
            sizes = list(op.workloads["ci"])
            results = evaluate(kernel, op, backend, where, sizes, folder=Path(folder))
            found[f"candidate_{name}_s"] = round(time.perf_counter() - start, 2)
            assert isinstance(results, list) and all(r.samples for r in results), results
    session.close_servers()
    return found


def matrix() -> dict[str, float]:
    """The whole matrix at ci sizes with empty caches, then again with nothing changed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PORTKERN_CACHE_DIR": f"{folder}/cache"}
        argv = [PORTKERN, *MATRIX, f"reports={folder}"]
        peak = Peak()
        with peak:
            first = seconds(argv, environment)
        again = seconds(argv, environment)
    return {"matrix_first_s": first, "matrix_again_s": again, "peak_gib": round(peak.gib, 2)}


def setup() -> dict[str, float]:
    """`make demo-all` on a clone with nothing installed and empty package caches, then warm."""
    found = {}
    for installer in ("uv", "pip"):
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder) / "portkern"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            environment = {
                "INSTALLER": installer,
                "PORTKERN_CACHE_DIR": f"{folder}/cache",
                "UV_CACHE_DIR": f"{folder}/uv",
                "PIP_NO_CACHE_DIR": "1",
            }
            demo = ["make", "-C", str(clone), "demo-all"]
            found[f"demo_cold_{installer}_s"] = seconds(demo, environment)
            found[f"demo_warm_{installer}_s"] = seconds(demo, environment)
            shutil.rmtree(clone)
    return found


class Peak:
    """The most memory that this process's descendants held at once, shared pages counted once."""

    gib = 0.0

    def __enter__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            total = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss
            self.gib = max(self.gib, total / 2**30)


def seconds(argv: list[str], environment: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    done = subprocess.run(
        argv, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{argv} exited {done.returncode}:\n{done.stderr[-2000:]}")
    return round(time.perf_counter() - start, 3)


def median(measure: Callable[[], float], repeats: int) -> float:
    return round(statistics.median(measure() for _ in range(repeats)), 3)


if __name__ == "__main__":
    main()
