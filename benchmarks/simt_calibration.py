"""The SIMT executor against a real NVIDIA GPU: run this on a machine that has one.

    python benchmarks/simt_calibration.py out=FOLDER [part=outputs|sanitizer|all]

``outputs``: every catalogue kernel of cuda and hip on the GPU and in the executor, on the same
inputs; how many elements agree to the bit, and how far the rest are apart.
``sanitizer``: every CUDA case of the seeded-bug suite, mutant and twin, built by nvcc and run under
compute-sanitizer's four tools. ``benchmarks/simt_table.py`` puts both beside our own findings.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from backends.cuda import nvcc  # noqa: E402
from portkern import ops  # noqa: E402
from portkern.evaluator import compare, reference  # noqa: E402
from portkern.simt.execute import emulate  # noqa: E402
from portkern.spec import catalogue, registry, target  # noqa: E402
from portkern.spec.backend import Artifact, Build, Call, Venue  # noqa: E402
from portkern.spec.candidate import Candidate  # noqa: E402
from portkern.spec.op import Op, Workload  # noqa: E402
from portkern.spec.target import Target  # noqa: E402
from portkern.toolchain import host  # noqa: E402
from tests.simt.suite import SANITIZERS, Case, cases  # noqa: E402

DTYPES = ("float32", "float16", "bfloat16")
RUN_TIMEOUT_S = 20.0


# ---- outputs


@dataclass(frozen=True)
class Agreement:
    """``exact``: the part of all elements that are equal to the bit. ``apart``: the norm of the
    difference over that of the GPU's output; ``budget``: the most that the evaluator would
    allow."""

    op: str
    workload: str
    dtype: str
    backend: str
    elements: int
    exact: float
    apart: float
    right: bool


def outputs(name: str, folder: Path) -> list[Agreement]:
    where = target.load(name)
    cells = [
        (registry.load(backend), ops.load(op), candidate, dtype)
        for backend in ("cuda", "hip")
        for op in ops.SETS["basic"]
        for dtype in DTYPES
        for candidate in catalogue.candidates(op, registry.load(backend))
    ]
    requests = [_request(op, candidate, dtype, where) for _, op, candidate, dtype in cells]
    folders = [folder / str(number) for number in range(len(cells))]

    def build(number: int) -> Artifact:
        folders[number].mkdir()
        return cells[number][0].build(requests[number], folders[number])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        artifacts = list(pool.map(build, range(len(cells))))
    os.chdir(folder)  # where the emulator keeps its findings
    found = []
    for (backend, op, _, dtype), request, artifact in zip(cells, requests, artifacts, strict=True):
        venues = [backend.venues(where).hardware, emulate.venue(where)]
        assert all(isinstance(venue, Venue) for venue in venues), venues
        runners = [backend.load(artifact, request, cast(Venue, venue)) for venue in venues]
        agreed = (_agreement(op, w, dtype, backend.name, runners) for w in _workloads(op))
        found += [one for one in agreed if one]
    return found


def _workloads(op: Op) -> list[Workload]:
    return [w for which in ("ci", "edge") for w in op.workloads.get(which, ())]


def _request(op: Op, candidate: Candidate, dtype: str, where: Target) -> Build:
    first = _workloads(op)[0]
    return Build(
        candidate,
        op.signature,
        dtype,
        where,
        first.dims,
        op.signature.scalar_values(first.scalars),
        emulated=True,
    )


def _agreement(
    op: Op, workload: Workload, dtype: str, backend: str, runners: list[Any]
) -> Agreement | None:
    import torch

    case = reference.make_case(op, workload, dtype, "normal")
    scalars = op.signature.scalar_values(workload.scalars)
    results = []
    for kernel in runners:
        device = kernel.device
        shapes = [spec.sizes(workload.dims) for spec in op.signature.outputs]
        kinds = [getattr(torch, spec.resolve(dtype)) for spec in op.signature.outputs]
        empty = [torch.zeros(s, dtype=k) for s, k in zip(shapes, kinds, strict=True)]
        call = Call(
            [device.upload(x) for x in case.inputs],
            [device.upload(x) for x in empty],
            workload.dims,
            scalars,
        )
        returned = kernel.launch(call)
        device.synchronize()
        results.append([device.download(buffer) for buffer in returned])
    gpu, emulated = results
    elements = sum(x.numel() for x in gpu)
    if not elements:
        return None
    same = sum(int(_bits(a).eq(_bits(b)).sum()) for a, b in zip(gpu, emulated, strict=True))
    a = torch.cat([x.double().flatten() for x in gpu])
    b = torch.cat([x.double().flatten() for x in emulated])
    apart = float((a - b).norm() / a.norm().clamp_min(1e-300))
    right = not compare.compare(actual=emulated, case=case, precision=op.precision).problem
    return Agreement(
        op.name, workload.name, dtype, backend, elements, same / elements, apart, right
    )


def _bits(x: Any) -> Any:
    import torch

    return x.view({4: torch.int32, 2: torch.int16, 8: torch.int64, 1: torch.int8}[x.element_size()])


# ---- compute-sanitizer


@dataclass(frozen=True)
class Hardware:
    """One program on the GPU. ``status``: its exit code, None when it was killed.
    ``tools``: errors that each tool counted, None when the tool did not finish."""

    case: str
    bug: bool
    built: bool
    status: int | None
    tools: dict[str, int | None]
    first: dict[str, str]


def sanitizer(arch: str, folder: Path) -> list[Hardware]:
    chosen = [case for case in cases() if case.language == "cuda"]
    jobs = [(case, bug) for case in chosen for bug in (True, False)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda job: _nvcc(job[0], job[1], arch, folder), jobs))
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda job, program: _on_gpu(job[0], job[1], program), jobs, built))


def _nvcc(case: Case, bug: bool, arch: str, folder: Path) -> Path | None:
    out = folder / f"{case.name}-{'bug' if bug else 'twin'}"
    argv = [
        "nvcc",
        "-std=c++17",
        # -arch=sm_90a would make code of compute_90, too, which has no wgmma.
        "-gencode",
        f"arch={arch.replace('sm', 'compute')},code={arch}",
        "-lineinfo",
        "-O2",
        "-w",
        "-rdc=false",
        "-I",
        str(case.path.parent),
        str(case.path),
        "-o",
        str(out),
    ]
    done = subprocess.run(argv + ["-DBUG"] * bug, capture_output=True, text=True, check=False)
    return out if done.returncode == 0 else None


def _on_gpu(case: Case, bug: bool, program: Path | None) -> Hardware:
    if program is None:
        return Hardware(case.name, bug, False, None, {}, {})
    status, _ = _run([str(program)])
    tools: dict[str, int | None] = {}
    first: dict[str, str] = {}
    for tool in SANITIZERS:
        _, text = _run(["compute-sanitizer", "--tool", tool, "--print-limit", "5", str(program)])
        total = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
        tools[tool] = int(total[1] or total[2]) if total else None
        told = [x.strip("= ").strip() for x in text.splitlines() if x.startswith("=========")]
        first[tool] = next((x for x in told[1:] if x and "SUMMARY" not in x), "")
    return Hardware(case.name, bug, True, status, tools, first)


def _run(argv: list[str]) -> tuple[int | None, str]:
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return None, text
    return process.returncode, text


def main() -> int:
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    out, part = Path(options["out"]).absolute(), options.get("part", "all")
    out.mkdir(parents=True, exist_ok=True)
    gpu = host.gpus()[0]
    arch = gpu.arch
    machine = {"gpu": gpu.name, "driver": gpu.driver, "arch": arch}
    if part in ("sanitizer", "all"):
        with tempfile.TemporaryDirectory() as folder:
            whole = f"sm_{nvcc.arch(target.load(arch))}"  # with what that architecture alone has
            rows = [asdict(one) for one in sanitizer(whole, Path(folder))]
        _write(out / "sanitizer.json", {"machine": machine, "programs": rows})
    if part in ("outputs", "all"):
        with tempfile.TemporaryDirectory() as folder:
            rows = [asdict(output) for output in outputs(arch, Path(folder))]
        _write(out / "outputs.json", {"machine": machine, "outputs": rows})
    return 0


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
