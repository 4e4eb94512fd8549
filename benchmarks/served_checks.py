"""How long ``portkern check`` takes where a server runs: in turns with the command run by a fork of
the server's warm process, and by its own process, which imports all anew.

    .venv/bin/python -m benchmarks.served_checks [pairs=5] [backend=cpu]

The kernel is a plain softmax in C++ (``backend=gpu``: in CUDA) at the sizes of ``ci``, each time
with a new source. Appends a row to results/served-checks.jsonl: the median seconds of each kind,
timed and not, and those of ``portkern --version`` and ``--help``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import _script
from benchmarks.serving import BODIES
from portkern.cli import warm
from portkern.toolchain import host

RESULTS = _script.RESULTS / "served-checks.jsonl"
PORTKERN = (sys.executable, "-m", "portkern.cli")


def main() -> None:
    words = _script.words(("pairs", "backend"), __doc__)
    pairs, backend = int(words.get("pairs", 5)), words.get("backend", "cpu")
    text = BODIES[backend].replace("STREAM", "cudaStream_t").format(number=1, first="")
    with tempfile.TemporaryDirectory(prefix="portkern-served-") as folder:
        os.environ["PORTKERN_CACHE_DIR"] = f"{folder}/cache"
        os.chdir(folder)
        serving = subprocess.Popen([*PORTKERN, "serve", "json=true"], stdout=subprocess.PIPE)
        try:
            assert serving.stdout is not None
            serving.stdout.readline()
            found = seconds(Path("softmax.cpp" if backend == "cpu" else "softmax.cu"), text, pairs)
        finally:
            serving.terminate()
            serving.wait()
    row = {
        "backend": backend,
        "pairs": pairs,
        "median_s": {name: round(statistics.median(took), 3) for name, took in found.items()},
        "seconds": {name: [round(one, 2) for one in took] for name, took in found.items()},
        "load": round(os.getloadavg()[0], 1),
        "processors": len(os.sched_getaffinity(0)),
        "machine": f"{os.cpu_count()} cores, {host.cpu_name()}",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))


def seconds(file: Path, text: str, pairs: int) -> dict[str, list[float]]:
    """The seconds of each command, by what it is."""
    door = Path(os.environ["PORTKERN_CACHE_DIR"]) / "serve" / warm.SOCKET
    while not door.exists():
        time.sleep(0.05)
    away = door.with_suffix(".away")
    found: dict[str, list[float]] = {}
    for pair in range(-1, pairs):
        for timed in ("true", "false"):
            for how in ("warm", "own process"):
                file.write_text(f"{text}// {pair} {timed} {how}\n", encoding="utf-8")
                if how != "warm":
                    door.rename(away)
                check = ("check", str(file), "op=softmax", "serve=always", f"timed={timed}")
                took = run(*check)
                if how != "warm":
                    away.rename(door)
                if pair >= 0:  # the first ones fill caches
                    found.setdefault(f"{how}, timed={timed}", []).append(took)
        for flag in ("--version", "--help"):
            found.setdefault(flag, []).append(run(flag))
    return found


def run(*words: str) -> float:
    start = time.monotonic()
    subprocess.run([*PORTKERN, *words], check=True, capture_output=True)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
