"""The largest workloads, each kernel against the framework, its compiler and a published kernel:
prints a table and writes results/headline-<target>.json.

.venv/bin/python -m benchmarks.headline [crfm=PATH] [rows=NAME,NAME] [backends=cuda,triton]

Every row is one run: all that stand in it are timed in turns, with the L2 flushed before each call
(cold; clocks are those of a GPU that is kept busy) and on inputs that no call has seen before.
crfm: a checkout of github.com/ScalingIntelligence/good-kernels, whose kernels are compiled for this
GPU instead of sm_70; without it that column is empty. Baselines are held to the row's precision:
eager convolutions use TF32 only where kernels may. rows: the others stay in the file as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import _script
from portkern import ops
from portkern.cells.run import Matrix
from portkern.cells.selection import SelectedCell, Selection, host_targets
from portkern.evaluator import build as building
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.evaluator.workers import Baseline
from portkern.records.record import Record, RecordFile, Verdict
from portkern.sandbox import session
from portkern.spec import target
from portkern.spec.backend import Ready
from portkern.spec.op import Op, Precision
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root
from portkern.tuning import database

ROOT = Path(__file__).parents[1]
BACKENDS = ("cuda", "triton", "opencl", "pallas", "hip")
BASELINES = ("eager", "compile")
LIMITS = StageLimits(build_s=300.0, load_s=120.0, run_s=120.0)
DISTRIBUTIONS = ("normal",)  # what adversaries make of kernels is the matrix' to show


@dataclass(frozen=True)
class Row:
    """``goal_ms``: what the best backend is to stay below. ``crfm``: the published kernel's folder.
    ``knobs`` are turned where a kernel has them."""

    name: str
    op: str
    dtype: str = "float32"
    precision: Precision = "strict"
    goal_ms: float | None = None
    crfm: str = ""
    adversaries: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, int] = field(default_factory=dict)


def _off_centre(kind: Any, generator: Any, x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Mean 1000, standard deviation 0.1."""
    return x * 0.1 + 1000.0, weight, bias


#: The parameters of a call of each published kernel, what it does, and how its module is made.
_WITH_WEIGHTS = "model.{0}weight.data, model.{0}bias.data = weight, bias\n    return model(x)"
CALLS = {
    "MatmulFP32": ("x, b", "return model(x, b)", ""),
    "Softmax": ("x", "return model(x)", ""),
    "Conv2D": ("x, weight, bias, **_", _WITH_WEIGHTS.format("conv1_"), ""),
    "Conv2D_ReLU_MaxPool": ("x, weight, bias, **_", _WITH_WEIGHTS.format("conv1_"), ""),
    "LayerNorm": ("x, weight, bias, eps", _WITH_WEIGHTS.format(""), "(1,)"),
    "LayerNorm2": ("x, weight, bias, eps", _WITH_WEIGHTS.format(""), "(1,)"),
}
TF32 = {"TF32": 1}
ROWS = (
    Row("matmul", "matmul", goal_ms=1.20, crfm="MatmulFP32"),
    Row("conv2d", "conv2d", goal_ms=0.40, crfm="Conv2D"),
    Row("conv2d TF32", "conv2d", precision="allow_tf32", goal_ms=0.25, crfm="Conv2D", knobs=TF32),
    Row("softmax", "softmax", goal_ms=0.56, crfm="Softmax"),
    Row("layernorm", "layernorm", goal_ms=0.16, crfm="LayerNorm"),
    Row(
        "layernorm mean 1000",
        "layernorm",
        goal_ms=0.17,
        crfm="LayerNorm2",
        adversaries={"off-centre": _off_centre},
    ),
    Row("conv2d+relu+maxpool", "conv2d_relu_maxpool", goal_ms=0.40, crfm="Conv2D_ReLU_MaxPool"),
    Row("matmul bf16", "matmul", "bfloat16"),
    Row("matmul fp16", "matmul", "float16"),
    Row("attention bf16", "attention", "bfloat16"),
)


def main() -> None:
    words = _script.words({"crfm", "rows", "backends", "errors"}, __doc__)
    chosen = words["rows"].split(",") if "rows" in words else [row.name for row in ROWS]
    rows = [row for row in ROWS if row.name in chosen]
    if "errors" in words:
        print(json.dumps({row.name: errors(row, Path(words["errors"])) for row in rows}))
        return
    here = [target.load(name) for name in host_targets()]
    gpu = next((where for where in here if where.is_gpu), None)
    if gpu is None:
        raise SystemExit("headline: no GPU here that a target describes; see portkern doctor")
    backends = words.get("backends", ",".join(BACKENDS)).split(",")
    cache = ArtifactCache(cache_root() / "builds")
    cells = {row.name: cells_of(row, gpu, backends) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "crfm"
        with ThreadPoolExecutor() as pool:  # all at once; races find their kernels in the cache
            everything = [cell for asked in cells.values() for cell in asked]
            builds = pool.map(lambda cell: build(cell, cache), everything)
            sources = publish(Path(words["crfm"]).resolve(), built, rows) if "crfm" in words else {}
            list(builds)
        records: dict[str, list[Record]] = {}
        for row in rows:
            records[row.name] = race(row, cells[row.name], cache, Path(folder), sources)
            write(rows, gpu, records, {})  # what is known so far, if the rest should fail
        session.close_servers()
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.headline",
                f"errors={built}",
                f"rows={','.join(chosen)}",
            ],
            stdout=subprocess.PIPE,
            check=True,
            cwd=ROOT,
        )
    print(table(write(rows, gpu, records, json.loads(told.stdout.splitlines()[-1]))))


def write(
    rows: Sequence[Row],
    gpu: Target,
    records: Mapping[str, Sequence[Record]],
    wrong: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """Writes the rows that have records; ``wrong`` holds the errors of their baselines. Rows that
    were not asked for stay in the file as they are, if they are of a machine like this one."""
    here = machine(gpu, [one for asked in records.values() for one in asked])
    made = {
        row.name: summary(row, gpu, records[row.name], wrong.get(row.name, {}))
        for row in rows
        if row.name in records
    }
    name, asked = f"headline-{gpu.name}.json", {row.name for row in rows}
    made |= {row["name"]: row for row in _script.earlier(name, here, asked, "name")}
    document = {"machine": here, "rows": [made[row.name] for row in ROWS if row.name in made]}
    _script.write(name, document)
    return document


def cells_of(row: Row, gpu: Target, backends: Sequence[str]) -> list[SelectedCell]:
    """One for each backend that has a kernel for the row's op."""
    op = replace(ops.load(row.op), precision=row.precision, adversaries=dict(row.adversaries))
    return [
        turned(cell, row.knobs, op)
        for cell in Selection(
            [row.op],
            [gpu.name],
            ["all"],
            ["headline"],
            [row.dtype],
            databases=(database.own(), database.shipped()),
        ).cells()
        if cell.backend.name in backends and not cell.ruled_out
    ]


def build(cell: SelectedCell, cache: ArtifactCache) -> None:
    if isinstance(cell.ready, Ready):
        building.build_all([cell.build_request], [cell.ready.toolchain], limits=LIMITS, cache=cache)


def race(
    row: Row,
    cells: Sequence[SelectedCell],
    cache: ArtifactCache,
    folder: Path,
    sources: Mapping[str, Baseline],
) -> list[Record]:
    """Times all cells in one run."""
    others = {"crfm": sources[row.crfm]} if row.crfm in sources else {}
    options = TrialOptions(
        LIMITS, TimingPlan(rounds=9, budget_s=4.0), (*BASELINES, *others), DISTRIBUTIONS, others
    )
    file = RecordFile(folder / row.name / "records.jsonl")
    file.path.parent.mkdir()
    records = Matrix(cells, "headline", file, cache, options).execute()
    for record in records:
        what = (
            f"{record.timing.median_us / 1e3:.3f} ms"
            if record.timing
            else record.detail.splitlines()[0]
        )
        print(f"{row.name}: {record.backend}: {record.verdict} {what}", file=sys.stderr, flush=True)
    return records


def turned(cell: SelectedCell, knobs: Mapping[str, int], op: Op) -> SelectedCell:
    assert cell.candidate is not None
    there = {name: value for name, value in knobs.items() if name in cell.candidate.knobs}
    return replace(cell, op=op, candidate=cell.candidate.turn(there) if there else cell.candidate)


# ---- the published kernels


def publish(checkout: Path, built: Path, rows: Sequence[Row]) -> dict[str, Baseline]:
    """Compiles the published kernels of ``rows`` side by side: a minute each."""
    names = sorted({row.crfm for row in rows} - {""})
    built.mkdir()
    for name in names:
        source = (checkout / name / "src.py").read_text()
        (built / f"{name}.py").write_text(source.replace("-arch=sm_70", "-arch=sm_90"))
    with ThreadPoolExecutor() as pool:
        done = dict(zip(names, pool.map(lambda name: _compile(built, name), names), strict=True))
    return {name: Baseline(published(built, name), (built,)) for name in names if done[name]}


def _compile(built: Path, name: str) -> bool:
    (built / name).mkdir()
    environment = {"TORCH_EXTENSIONS_DIR": str(built / name), "TORCH_CUDA_ARCH_LIST": "9.0"}
    done = subprocess.run(
        [sys.executable, built / f"{name}.py"],
        env=os.environ | environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(f"headline: {name} does not build: {done.stdout[-500:]}", file=sys.stderr)
    return done.returncode == 0


def published(built: Path, name: str) -> str:
    """A baseline's source: the published module, which finds its extension built."""
    parameters, call, made_with = CALLS[name]
    return f"""
import importlib.util
import torch.utils.cpp_extension

def _built(name, **_):
    spec = importlib.util.spec_from_file_location(name, f"{built / name}/{{name}}/{{name}}.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

torch.utils.cpp_extension.load_inline = _built
exec({(built / f"{name}.py").read_text()!r}, globals())
model = ModelNew({made_with}).requires_grad_(False)

def run({parameters}):
    {call}
"""


# ---- what comes out


def errors(row: Row, built: Path) -> dict[str, float]:
    """The errors of the baselines on this GPU: the norm of their differences from float64, relative
    to the answer's. Runs in a process of its own, as the evaluator's creates no context."""
    import torch

    from portkern.evaluator import inputs

    op = replace(ops.load(row.op), adversaries=dict(row.adversaries))
    [workload] = op.workloads["headline"]
    torch.backends.cuda.matmul.allow_tf32 = row.precision != "strict"
    torch.backends.cudnn.allow_tf32 = row.precision != "strict"
    distribution = next(iter(row.adversaries), "normal")
    drawn = [tensor.cuda() for tensor in inputs.draw(op, workload, row.dtype, distribution)]
    scalars = op.signature.scalar_values(workload.scalars)
    sources = {"eager": op.baseline_source}
    if (built / row.crfm).is_dir() and row.crfm:
        sources["crfm"] = published(built, row.crfm)
    wide = _run(op.reference_source, [tensor.double() for tensor in drawn], scalars)
    found = {}
    for name, source in sources.items():
        off = _run(source, drawn, scalars).double() - wide
        found[name] = float(off.norm() / wide.norm())
    return found


def _run(source: str, given: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
    import torch

    namespace: dict[str, Any] = {"Any": Any, "torch": torch}
    exec(source, namespace)
    return namespace["run"](*given, **scalars)


def floor_ms(op: Op, row: Row, gpu: Target) -> float:
    """Every byte moved once at the speed of a copy, or all arithmetic at the rate of the matrix
    units: three TF32 products for one of strict float32."""
    [workload] = op.workloads["headline"]
    rates = {"float16": "fp16", "bfloat16": "bf16"}
    rate = gpu.peaks[rates.get(row.dtype, "tf32")].value * 1e12
    products = 3 if row.dtype == "float32" and row.precision == "strict" else 1
    moving_s = op.nbytes(workload.dims, row.dtype) / (gpu.peaks["memory_copy"].value * 1e9)
    return max(moving_s, products * op.flops(workload.dims) / rate) * 1e3


def summary(
    row: Row, gpu: Target, records: Sequence[Record], wrong: Mapping[str, float]
) -> dict[str, Any]:
    op = ops.load(row.op)
    [workload] = op.workloads["headline"]
    timed = {record.backend: record for record in records if record.timing}
    ours = {name: one.timing.median_us / 1e3 for name, one in timed.items() if one.timing}
    best = min(ours, key=lambda name: ours[name], default="")
    baselines = timed[best].baselines if best else {}
    theirs = {name: timing.median_us / 1e3 for name, timing in baselines.items()}
    mistakes = {name: one.errors.vs_fp64 for name, one in timed.items() if one.errors}
    return {
        "name": row.name,
        "op": row.op,
        "dims": dict(workload.dims),
        "dtype": row.dtype,
        "precision": row.precision,
        "time": max((record.time for record in records), default=""),
        "error_vs_fp64": mistakes.get(best),
        "errors_vs_fp64": {**wrong, **mistakes},
        "baselines_ms": {name: theirs.get(name) for name in (*BASELINES, "crfm")},
        "portkern_ms": {name: ours.get(name) for name in BACKENDS},
        "behind_best": {name: ours[name] / ours[best] for name in ours},
        "floor_ms": floor_ms(op, row, gpu),
        "goal_ms": row.goal_ms,
        "best": best,
        "not_timed": {
            record.backend: f"{record.verdict}: {record.detail.partition(chr(10))[0]}"
            for record in records
            if record.verdict is not Verdict.PASSED
        },
    }


def machine(gpu: Target, records: Sequence[Record]) -> dict[str, Any]:
    [device] = [one for one in host.gpus() if one.is_a(gpu)][:1]
    return {"gpu": device.name, "driver": device.driver, **_script.provenance(records)}


def table(document: Mapping[str, Any]) -> str:
    """The document as a table in Markdown: milliseconds, the best of ours in bold."""
    heads = ["workload", "error", "eager", "compile", "CRFM", *BACKENDS, "floor", "goal"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in document["rows"]:
        ours = [
            f"**{_ms(value)}**" if name == row["best"] else _ms(value)
            for name, value in row["portkern_ms"].items()
        ]
        error = "" if row["error_vs_fp64"] is None else f"{row['error_vs_fp64']:.1e}"
        size = "×".join(map(str, row["dims"].values()))
        baselines = map(_ms, row["baselines_ms"].values())
        name = f"{row['name']} ({size}, {row['precision']})"
        cells = [name, error, *baselines, *ours, _ms(row["floor_ms"]), _ms(row["goal_ms"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
