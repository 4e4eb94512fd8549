"""Runs public CUDA code on the SIMT executor; writes results/simt-real.json and a page of docs.

.venv/bin/python benchmarks/simt_real.py llmc=PATH leetcuda=PATH good_kernels=PATH [json=PATH]
    [page=PATH] [only=REGEX]

Each PATH is a local checkout. Without all three, or with `only` (which picks LeetCUDA's files), the
figures are printed and nothing is written.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from real import good_kernels, leetcuda, llmc, report

ROOT = Path(__file__).parents[1]
COMMAND = "benchmarks/simt_real.py llmc=… leetcuda=… good_kernels=…"


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    unknown = set(given) - {"llmc", "leetcuda", "good_kernels", "json", "page", "only"}
    if unknown or not set(given) & {"llmc", "leetcuda", "good_kernels"}:
        raise SystemExit(__doc__)
    runs: Mapping[str, Callable[[Path, Path], report.Collection]] = {
        "llmc": llmc.run_all,
        "good_kernels": good_kernels.run_all,
        "leetcuda": lambda checkout, work: leetcuda.run_all(checkout, work, given.get("only", "")),
    }
    collections, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="simt-real-") as folder:
        for name, run in runs.items():
            if name in given:
                work = Path(folder).resolve() / name
                work.mkdir()
                collections.append(run(Path(given[name]).resolve(), work))
                show(collections[-1])
    if "only" in given or len(collections) < len(runs):
        return
    report.write(
        collections,
        Path(given.get("json", ROOT / "benchmarks/results/simt-real.json")),
        Path(given.get("page", ROOT / "docs/simt-real-code.md")),
        COMMAND,
        load,
    )


def show(collection: report.Collection) -> None:
    done = ", ".join(
        f"{how}: {a} of {b}" for how in report.HOWS for a, b in [collection.matches(how)]
    )
    compiled = collection.files - len(collection.refused)
    print(
        f"{collection.name}: {compiled} of {collection.files} files compile; matches {done}; "
        f"{dict(collection.seconds)}"
    )
    for place in report.places(collection):
        if place.about is None:
            print(f"  not classified: {place.file} {place.one}")


if __name__ == "__main__":
    main()
