"""Nights on a GPU of which each changes one kernel: what is taken over by its machine code, what is
timed again, and whether anything that changed was missed. Writes results/gpu-nights-<target>.json.

.venv/bin/python -m benchmarks.gpu_nights [target=h200] [backends=cuda,triton] [ops=NAME,NAME]
    [carry=30] [baseline=[last_green,none]] [folder=DIR] [out=NAME.json]

The kernels are a folder as users have it: those that ship, at ci sizes, as they are on the first
night. On the second one kernel is another: its code changes. On the third two others have one more
comment, which is another source and the same code. On the fourth all is as it was on the third, and
built anew in an empty cache.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _script
from benchmarks.nights import shipped
from portkern.records.record import Record, RecordFile
from portkern.regression.nights import CALIBRATION
from portkern.regression.runs import RECORDS
from portkern.regression.series import Series
from portkern.spec import registry

OPS = (
    *("add", "argmax", "bias_gelu", "cumsum", "gelu", "layernorm", "relu", "rmsnorm"),
    *("silu_mul", "softmax", "sum", "transpose"),
)
SUFFIXES = {"cuda": "cu", "triton": "py", "cpu": "cpp"}
#: The kernel by backend whose code is another on the second night, and what it says instead.
CODE = {
    "cuda": ("relu", r"#define UNROLL 4\b", "#define UNROLL 2"),
    "triton": ("relu", r"\(512, 4\)", "(512, 2)"),
    "cpu": ("relu", r'extern "C" int relu', '__attribute__((aligned(128)))\nextern "C" int relu'),
}
#: The kernel that has one more comment on the third night.
COMMENTED = "gelu"


def write_kernels(folder: Path, backends: Sequence[str], ops: Sequence[str]) -> None:
    for backend in backends:
        (folder / backend).mkdir(parents=True)
        for op in ops:
            source = shipped(op, backend, SUFFIXES[backend])
            (folder / backend / f"{op}.{SUFFIXES[backend]}").write_text(source)


def change_code(folder: Path, backend: str) -> None:
    op, said, instead = CODE[backend]
    file = folder / backend / f"{op}.{SUFFIXES[backend]}"
    text, changed = re.subn(said, instead, file.read_text(), count=1)
    if not changed:
        raise SystemExit(f"{file} has no {said}")
    file.write_text(text)


def add_comment(folder: Path, backend: str) -> None:
    """Adds a line in front, so that all others have other numbers."""
    file = folder / backend / f"{COMMENTED}.{SUFFIXES[backend]}"
    mark = "#" if backend == "triton" else "//"
    file.write_text(f"{mark} Looked at again.\n{file.read_text()}")


def night(folder: Path, name: str, words: Sequence[str], cache: str) -> dict[str, Any]:
    """A whole command; what its records say is counted."""
    command = [sys.executable, "-m", "portkern.cli", "matrix", f"kernels={folder / 'kernels'}"]
    more = [f"reports={folder / 'reports'}", f"run={name}"]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / cache)}
    began = time.perf_counter()
    done = subprocess.run(
        [*command, *more, *words], env=env, capture_output=True, text=True, check=False
    )
    seconds = round(time.perf_counter() - began, 1)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
    print(f"{name}: {seconds} s\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}", flush=True)
    return {"night": name, "seconds": seconds, "exit code": done.returncode}


def records(folder: Path, name: str, file: str = RECORDS) -> dict[Series, Record]:
    return {Series.of(one): one for one in RecordFile(folder / "reports" / name / file).read()[0]}


def counted(before: Mapping[Series, Record], after: Mapping[Series, Record]) -> dict[str, Any]:
    """``missed``: cells whose source or code changed, and which were taken over all the same;
    ``in turn``: those that are timed on this night though nothing changed."""
    code = [s for s, one in after.items() if s in before and one.code != before[s].code]
    source = [s for s, o in after.items() if s in before and o.source_hash != before[s].source_hash]
    carried = [s for s, one in after.items() if one.carried]
    both = {*code, *source}
    return {
        "cells": len(after),
        "measured": sum(one.timing is not None for one in after.values()),
        "with a digest": sum(bool(one.code) for one in after.values()),
        "carried": len(carried),
        "carried, %": round(100 * len(carried) / len(after), 1),
        "other code": sorted({f"{s.backend} {s.op}" for s in code}),
        "other source": sorted({f"{s.backend} {s.op}" for s in source}),
        "timed again": sorted({f"{s.backend} {s.op}" for s in after if s not in carried}),
        "in turn": len(before.keys() & after.keys() - both - set(carried)),
        "missed": sorted(map(str, both.intersection(carried))),
    }


def main() -> None:
    words = _script.words(
        ("target", "backends", "ops", "carry", "baseline", "folder", "out"), __doc__
    )
    target = words.get("target", "h200")
    backends = words.get("backends", "cuda,triton").split(",")
    ops = words.get("ops", ",".join(OPS)).split(",")
    folder = Path(words.get("folder") or tempfile.mkdtemp())
    out = words.get("out", f"gpu-nights-{target}.json")
    for backend in backends:
        registry.load(backend)
    write_kernels(folder / "kernels", backends, ops)
    asked = [f"targets=[{target}]", f"backends=[{','.join(backends)}]", "workloads=ci"]
    asked += ["tuned=false", "track=false", f"carry={words.get('carry', '30')}"]
    asked += [f"baseline={words.get('baseline', '[last_green,none]')}"]
    said: dict[str, Any] = {"target": target, "backends": backends, "nights": []}
    known: dict[Series, Record] = {}
    for number in range(1, 5):
        name = f"night-{number}"
        if number == 2:
            change_code(folder / "kernels", backends[0])
        if number == 3:
            for backend in backends:
                add_comment(folder / "kernels", backend)
        row = night(folder, name, asked, "second" if number == 4 else "first")
        now = records(folder, name)
        fixed = records(folder, name, CALIBRATION).values()
        row |= counted(known, now)
        row["calibration"] = {
            one.environment.device: [one.timing and one.timing.p20_us, one.code] for one in fixed
        }
        said["nights"].append(row)
        known = now
        said["machine"] = next(iter(now.values())).environment.model_dump()
        _script.write(out, said)
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
