"""Measures what a call of a library's operator costs.

    python -m benchmarks.library                          # this CPU, a library of the records here
    python -m benchmarks.library records=FILE device=cuda # a GPU, with nvcc; FILE: h200.jsonl.gz
    python -m benchmarks.library library=NAME device=cuda # one that is installed

Without portkern's command line, so that a machine with the worker's dependencies alone runs it.
Writes results/library-DEVICE.json. ``benchmarks.library_checks`` asks whether answers are right,
and ``benchmarks.library_study`` whether choices are.
"""

from __future__ import annotations

import importlib
import math
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import _script
from portkern import ops
from portkern.deploy import library
from portkern.deploy.library import LibraryOptions
from portkern.formats.exported import Export, ExportedOp, grouped
from portkern.formats.kernel_sources import KernelSources
from portkern.records.record import Evidence, RecordFile
from portkern.toolchain import host

NAME = "pk_benchmark"
#: Small ones, at which a call's own cost is all that there is.
SMALL = {
    "softmax": ((4, 64),),
    "rmsnorm": ((4, 64), (64,)),
    "relu": ((256,),),
    "silu_mul": ((256,), (256,)),
    "matmul": ((4, 16), (16, 8)),
}
_CALLS, _ROUNDS = 200, 60


def main() -> int:
    given = _script.words(("records", "device", "library"), __doc__)
    device = given.get("device", "cpu")
    records = Path(given.get("records", "reports/records/cpu-only.jsonl.gz"))
    name = given.get("library")
    lib = importlib.import_module(name) if name else exported(records, device)
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else host.machine(),
        "torch": torch.__version__,
        "library": lib.TABLE["version"],
        "kernels": len(lib.TABLE["kernels"]),
        "refused": lib.refused,
        "overhead_us": overheads(lib, device),
    }
    _script.write(f"library-{device}.json", document)
    print(table(document))
    return 0


def exported(file: Path, backend: str) -> Any:
    """The library of one backend's kernels in a file of records, imported."""
    latest = list({record.key: record for record in RecordFile(file).read()[0]}.values())
    languages = ("c++", "cuda", "triton")
    own = [one for one in latest if one.backend == backend and one.language in languages]
    known = {name: ExportedOp(ops.load(name)) for name in ops.names()}
    folder = Path(tempfile.mkdtemp(prefix="portkern-library-"))
    export = Export(folder)
    sources = KernelSources(file.parent).of(own)
    kernels = list(grouped(own, known, sources, export))
    wheel = library.write(kernels, export, LibraryOptions(NAME, Evidence.MEASURED))
    if wheel is None:
        raise SystemExit("\n".join(map(str, export.skipped[:20])))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    sys.path.insert(0, str(folder / "site"))
    return importlib.import_module(NAME)


def overheads(lib: Any, device: str) -> dict[str, dict[str, float]]:
    """Microseconds of a call, the best of many rounds in turns: the framework's formula, a kernel,
    a fall-back to the formula, and the two with a gradient recorded."""
    found = {}
    has = [one["name"] for one in lib.TABLE["operators"]]
    for name, shapes in SMALL.items():
        if name not in has:
            continue
        op = ops.load(name)
        tensors = [torch.randn(shape, device=device) for shape in shapes]
        scalars = op.signature.scalar_values({})
        wanted = [t.clone().requires_grad_() for t in tensors]
        ours = getattr(getattr(torch.ops, lib.NAME), name).default
        ways: dict[str, Callable[[], object]] = {
            "eager": lambda op=op, t=tensors, s=scalars: op.reference(*t, **s),
            "kernel": lambda f=ours, t=tensors, s=scalars: f(*t, **s),
            "eager, gradient": lambda op=op, t=wanted, s=scalars: op.reference(*t, **s),
            "kernel, gradient": lambda f=ours, t=wanted, s=scalars: f(*t, **s),
        }
        lib._policy("always")
        times = in_turns(ways)
        lib.configure()
        times |= in_turns({"fall-back": ways["kernel"]})
        found[name] = times
    return found


def in_turns(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of the thread for a call of each, the best of many rounds."""
    best = dict.fromkeys(ways, math.inf)
    for _ in range(_ROUNDS):
        for name, call in ways.items():
            start = time.thread_time()
            for _ in range(_CALLS):
                call()
            best[name] = min(best[name], (time.thread_time() - start) / _CALLS * 1e6)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return best


def table(document: dict[str, Any]) -> str:
    """The document as a table in Markdown, for the notes."""
    lines = [
        f"{document['device']}, torch {document['torch']}: {document['kernels']} kernels\n",
        "| µs a call | eager | kernel | fall-back | eager, gradient | kernel, gradient |",
        "|---|---|---|---|---|---|",
    ]
    order = ("eager", "kernel", "fall-back", "eager, gradient", "kernel, gradient")
    for name, times in document["overhead_us"].items():
        lines.append(f"| {name} | {' | '.join(f'{times[one]:.2f}' for one in order)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
