"""What a call of a library's operator costs, whether its choices hold at sizes never timed before,
and, on a GPU, that streams, graphs, devices and gradients are right.

    python -m benchmarks.library                          # this CPU, records of its own
    python -m benchmarks.library records=FILE device=cuda # a GPU, with nvcc; FILE: h200.jsonl.gz

Without portkern's command line, so that a machine with the worker's dependencies alone runs it.
Writes results/library-DEVICE.json.
"""

from __future__ import annotations

import importlib
import math
import random
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
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
#: Shapes that nobody measured, of each operator, and the rounds by which choices are judged.
_UNSEEN, _JUDGED = 14, 41


def main() -> int:
    given = _script.words(("records", "device"), __doc__)
    device = given.get("device", "cpu")
    records = Path(given.get("records", "reports/records/cpu-only.jsonl.gz"))
    lib, skipped = exported(records, device)
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else host.machine(),
        "torch": torch.__version__,
        "kernels": len(lib.TABLE["kernels"]),
        "skipped": len(skipped),
        "refused": lib.refused,
        "overhead_us": overheads(lib, device),
        "unseen": unseen(lib, device),
    }
    if device == "cuda":
        document["checks"] = checks(lib)
    _script.write(f"library-{device}.json", document)
    print(table(document))
    return 0


def exported(file: Path, device: str) -> tuple[Any, Sequence[object]]:
    """The library of a file of records, imported."""
    latest = list({record.key: record for record in RecordFile(file).read()[0]}.values())
    backend = {"cpu": "cpu", "cuda": "cuda"}[device]
    own = [one for one in latest if one.backend == backend and one.language in ("c++", "cuda")]
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
    return importlib.import_module(NAME), export.skipped


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
        ours = getattr(getattr(torch.ops, NAME), name).default
        ways: dict[str, Callable[[], object]] = {
            "eager": lambda op=op, t=tensors, s=scalars: op.reference(*t, **s),
            "kernel": lambda f=ours, t=tensors, s=scalars: f(*t, **s),
            "eager, gradient": lambda op=op, t=wanted, s=scalars: op.reference(*t, **s),
            "kernel, gradient": lambda f=ours, t=wanted, s=scalars: f(*t, **s),
        }
        lib._policy("always")
        times = _in_turns(ways)
        lib.configure()
        times |= _in_turns({"fall-back": ways["kernel"]})
        found[name] = times
    return found


def _in_turns(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
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


def unseen(lib: Any, device: str) -> dict[str, Any]:
    """With and without races: how many choices are within 5 % of the best, and how many are more
    than 5 % slower than the framework."""
    draw = random.Random(7)
    rows: dict[str, list[float]] = {"never": [], "online": []}
    harm: dict[str, list[float]] = {"never": [], "online": []}
    for one in lib.TABLE["operators"]:
        op = ops.load(one["name"])
        if op.derived or any(t.within for t in op.signature.inputs):
            continue
        for _ in range(_UNSEEN):
            dims = _drawn(op.signature.axes, draw)
            tensors = [torch.randn(t.sizes(dims), device=device) for t in op.signature.inputs]
            scalars = op.signature.scalar_values({})
            ours = getattr(getattr(torch.ops, NAME), op.name).default
            times = {}
            for tune in rows:
                lib.configure(tune=tune)
                ours(*tensors, **scalars)  # decides
                ways = (
                    lambda op=op, t=tensors, s=scalars: op.reference(*t, **s),
                    lambda f=ours, t=tensors, s=scalars: f(*t, **s),
                )
                eager, mine = _raced(ways, device)
                if lib.explain(op.name, *tensors, *scalars.values())["kernel"] is None:
                    mine = eager  # the same formula
                times[tune] = mine / eager
            best = min(1.0, *times.values())
            for tune, ratio in times.items():
                rows[tune].append(ratio / best)
                harm[tune].append(ratio)
    lib.configure()
    return {
        tune: {
            "shapes": len(several),
            "within 5 %": sum(one <= 1.05 for one in several) / max(len(several), 1),
            "slower than eager by 5 %": sum(one > 1.05 for one in harm[tune]) / len(several),
            "worst against eager": max(harm[tune]),
        }
        for tune, several in rows.items()
    }


def _drawn(axes: Sequence[str], draw: random.Random) -> dict[str, int]:
    """Some 2**12 to 2**20 elements of a product of all lengths."""
    total = draw.uniform(12, 20)
    parts = [draw.random() + 0.1 for _ in axes]
    return {
        axis: max(1, round(2 ** (total * part / sum(parts))))
        for axis, part in zip(axes, parts, strict=True)
    }


def _raced(ways: Sequence[Callable[[], object]], device: str) -> list[float]:
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(_JUDGED):
        for call, kept in zip(ways, times, strict=True):
            start = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            kept.append(time.perf_counter() - start)
    return [statistics.median(several) for several in times]


def checks(lib: Any) -> dict[str, str]:
    """Of a GPU: each is 'right', or what went wrong."""
    lib._policy("always")
    found = {}
    for name, check in CHECKS.items():
        try:
            check(lib)
            found[name] = "right"
        except Exception as error:  # noqa: BLE001 - the next ones are asked all the same
            found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    lib.configure()
    return found


def _stream(lib: Any) -> None:
    stream = torch.cuda.Stream()
    x = torch.randn(64, 1024, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.mul_(2)
        got = lib.softmax(x)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(got, x.softmax(-1))


def _graph(lib: Any) -> None:
    x = torch.randn(64, 1024, device="cuda")
    lib.softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = lib.softmax(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(got, x.softmax(-1))


def _graph_of_new_shape(lib: Any) -> None:
    lib.configure(tune="online")
    x = torch.randn(61, 1021, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = lib.softmax(x)
    graph.replay()
    torch.testing.assert_close(got, x.softmax(-1))
    lib._policy("always")


def _devices(lib: Any) -> None:
    if torch.cuda.device_count() < 2:
        return
    x = torch.randn(64, 1024, device="cuda:1")
    with torch.cuda.device(0):
        got = lib.softmax(x)
    assert got.device == x.device
    torch.testing.assert_close(got, x.softmax(-1))


def _gradient(lib: Any) -> None:
    both = [torch.randn(8, 64, device="cuda", requires_grad=True) for _ in range(2)]
    both[1].data.copy_(both[0].data)
    weight = torch.randn(64, device="cuda")
    lib.rmsnorm(both[0], weight).square().sum().backward()
    torch.nn.functional.rms_norm(both[1], (64,), weight, 1e-6).square().sum().backward()
    torch.testing.assert_close(both[0].grad, both[1].grad, rtol=1e-4, atol=1e-4)


def _autocast(lib: Any) -> None:
    x = torch.randn(8, 64, device="cuda")
    with torch.autocast("cuda", torch.float16):
        assert lib.softmax(x).dtype == x.softmax(-1).dtype
        assert lib.matmul(x, x.mT).dtype == (x @ x.mT).dtype


def _compiled(lib: Any) -> None:
    call = torch.compile(lambda x: lib.softmax(x) + 1, fullgraph=True)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 128, device="cuda")
        torch.testing.assert_close(call(x), x.softmax(-1) + 1)


def _checked(lib: Any) -> None:
    for one in lib.TABLE["operators"]:
        op = ops.load(one["name"])
        work = op.workloads["ci"][0]
        given = [
            torch.randn(t.sizes(work.dims), device="cuda")
            if "int" not in t.dtype
            else torch.randint(*t.bounds(work.dims), t.sizes(work.dims), device="cuda").to(
                getattr(torch, t.dtype)
            )
            for t in op.signature.inputs
        ]
        scalars = op.signature.scalar_values(work.scalars)
        operator = getattr(getattr(torch.ops, NAME), op.name).default
        torch.library.opcheck(operator, (*given, *scalars.values()))


def _deterministic(lib: Any) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        said = lib.explain("softmax", torch.randn(64, 1024, device="cuda"))
        assert said["kernel"] is None
        assert "deterministic" in said["reason"]
    finally:
        torch.use_deterministic_algorithms(False)


CHECKS: dict[str, Callable[[Any], None]] = {
    "another stream": _stream,
    "a captured graph": _graph,
    "a graph of a new shape, with races": _graph_of_new_shape,
    "a second GPU": _devices,
    "gradients": _gradient,
    "autocast": _autocast,
    "torch.compile, whole graphs": _compiled,
    "opcheck of all operators": _checked,
    "deterministic algorithms": _deterministic,
}


def table(document: dict[str, Any]) -> str:
    """For the notes."""
    lines = [
        f"{document['device']}, torch {document['torch']}: {document['kernels']} kernels\n",
        "| µs a call | eager | kernel | fall-back | eager, gradient | kernel, gradient |",
        "|---|---|---|---|---|---|",
    ]
    order = ("eager", "kernel", "fall-back", "eager, gradient", "kernel, gradient")
    for name, times in document["overhead_us"].items():
        lines.append(f"| {name} | {' | '.join(f'{times[one]:.2f}' for one in order)} |")
    for tune, said in document["unseen"].items():
        lines.append(
            f"\ntune={tune}, {said['shapes']} shapes that nobody measured: within 5 % of the best "
            f"in {said['within 5 %']:.0%}, slower than eager by more than 5 % in "
            f"{said['slower than eager by 5 %']:.0%} (worst {said['worst against eager']:.2f} x)"
        )
    lines += [f"{name}: {said}" for name, said in document.get("checks", {}).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
