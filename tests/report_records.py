"""Synthetic records for the report's tests: every verdict and rung, and text that bites."""

from __future__ import annotations

import itertools
import math
import random

from portkern.records.record import (
    BuildResources,
    Environment,
    Errors,
    Evidence,
    Record,
    Roofline,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)

OPS = ("relu", "gelu", "add", "sum", "softmax", "layernorm", "rmsnorm", "matmul", "transpose")
DTYPES = ("float32", "bfloat16")
SIZES = (("ci", 64, 1024), ("typical", 4096, 1024), ("typical", 16384, 8192))
# backend, language, target, what its records reach
COLUMNS = (
    ("cuda", "cuda", "h200", Evidence.MEASURED),
    ("cuda", "cuda", "sm_80", Evidence.BUILT),
    ("cuda", "cuda", "sm_100", Evidence.BUILT),
    ("triton", "triton", "h200", Evidence.MEASURED),
    ("triton", "triton", "gfx942", Evidence.EMULATED),
    ("hip", "hip", "gfx942", Evidence.EMULATED),
    ("hip", "hip", "gfx1100", Evidence.BUILT),
    ("hip", "hip", "h200", Evidence.VERIFIED),
    ("opencl", "opencl", "x86_64", Evidence.MEASURED),
    ("opencl", "opencl", "h200", Evidence.NONE),
    ("cpu", "c++", "x86_64", Evidence.MEASURED),
    ("cpu", "numba", "x86_64", Evidence.MEASURED),
    ("pallas", "pallas", "x86_64", Evidence.EMULATED),
    ("cuda", "cuda", "gfx942", Evidence.NONE),
)
DEVICES = {"h200": "NVIDIA H200", "x86_64": "AMD EPYC 9654"}
FAILURES = {
    ("cuda", "h200", "matmul"): (
        Verdict.WRONG,
        "max error 0.31 at [3, 7]; <script>alert(1)</script>",
    ),
    ("hip", "gfx1100", "softmax"): (
        Verdict.BUILD_FAILED,
        "clang: error: no such | builtin `__shfl`\n"
        "\x1b[31merror:\x1b[0m line 12 </script> — naïve λ\x07",
    ),
    ("triton", "gfx942", "transpose"): (Verdict.TIMED_OUT, "no answer in 60 s"),
    ("cpu", "x86_64", "sum"): (Verdict.SUSPICIOUS, "the timed call's output was wrong: 漢字"),
}
MISSING = {
    Evidence.NONE: "no OpenCL platform on this machine; install an ICD entry <nvidia.icd>",
    Evidence.BUILT: "no device of this architecture on this machine",
    Evidence.EMULATED: "no AMD GPU on this machine | emulated on the CPU",
    Evidence.VERIFIED: "the clock was too noisy: p80/p20 = 1.9",
    Evidence.MEASURED: "",
}
BIAS = {"cuda": 0.35, "triton": 0.1, "hip": 0.0, "opencl": -0.7, "cpu": -0.4, "pallas": 0.0}


def records(seed: int = 7) -> list[Record]:
    """The same list for the same seed: 14 columns of 9 ops, 3 sizes and 2 dtypes."""
    rng = random.Random(seed)
    cells = itertools.product(COLUMNS, OPS, SIZES, DTYPES)
    return [_record(i, *cell, rng) for i, cell in enumerate(cells)]


def make(**changes: object) -> Record:
    """One measured record with fields replaced; validated as a line of the file would be."""
    rng = random.Random(0)
    base = _record(0, COLUMNS[0], "relu", SIZES[0], "float32", rng)
    return Record.model_validate({**base.model_dump(by_alias=True), **changes})


def _record(
    number: int,
    column: tuple[str, str, str, Evidence],
    op: str,
    size: tuple[str, int, int],
    dtype: str,
    rng: random.Random,
) -> Record:
    backend, language, target, evidence = column
    which, rows, cols = size
    verdict, detail = Verdict.PASSED, ""
    if evidence < Evidence.EMULATED:
        verdict = Verdict.UNAVAILABLE
    if (backend, target) == ("cuda", "gfx942"):
        verdict, detail = Verdict.UNSUPPORTED, "cuda does not compile for gfx942"
    elif dtype == "bfloat16" and backend == "opencl":
        verdict, evidence, detail = Verdict.UNSUPPORTED, Evidence.NONE, "OpenCL C has no bfloat16"
    elif (backend, target, op) in FAILURES and dtype == "float32" and which == "typical":
        verdict, detail = FAILURES[backend, target, op]
        evidence = Evidence.NONE if verdict is Verdict.BUILD_FAILED else Evidence.BUILT
    ran = evidence is Evidence.MEASURED
    speedup = 2 ** (BIAS[backend] + rng.gauss(0, 0.5) + 0.06 * math.log2(rows * cols / 2**20))
    moved = 2 * rows * cols * (4 if dtype == "float32" else 2)
    median = 3.0 + moved / 3.2e6
    has_object = target.startswith(("sm_", "gfx", "h200")) and evidence >= Evidence.BUILT
    return Record(
        run="synthetic",
        id=f"{number:06d}",
        time=f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}Z",
        key=f"k{number}",
        op=op,
        workload=WorkloadRef(
            set=which, name=f"{rows}x{cols}", dims={"rows": rows, "cols": cols}, dtype=dtype
        ),
        backend=backend,
        language=language,
        target=target,
        venue=_venue(target, backend, evidence),
        source_hash=f"{backend}{op}",
        author="catalogue",
        verdict=verdict,
        detail=detail,
        evidence=evidence,
        missing=MISSING[evidence] if not verdict.bad and not detail else "",
        errors=_errors(dtype, rng) if evidence >= Evidence.EMULATED else None,
        timing=_timing(median) if ran else None,
        baselines={"eager": _timing(median * speedup), "compile": _timing(median)} if ran else {},
        speedup={"eager": _speedup(speedup), "compile": _speedup(speedup * 0.8)} if ran else {},
        roofline=Roofline(bytes=moved, flops=1.0, fraction=0.7 if ran else None, basis="memory"),
        resources=[_build(op, target, rng)] if has_object else [],
        environment=Environment(
            machine="node-1",
            device=DEVICES.get(target, "AMD EPYC 9654"),
            driver="580.1",
            toolchain={backend: "1.2"},
            harness_version="0.1.0",
        ),
        seconds={"build": 0.5, "run": 0.25},
    )


def _venue(target: str, backend: str, evidence: Evidence) -> str:
    if evidence >= Evidence.VERIFIED:
        return f"hardware: {DEVICES[target]}"
    return f"emulator: {backend} interpreter" if evidence is Evidence.EMULATED else ""


def _timing(median_us: float) -> Timing:
    return Timing(
        median_us=median_us,
        p20_us=median_us * 0.97,
        p80_us=median_us * 1.05,
        n=100,
        samples=[median_us] * 5,
        method="cuda events, L2 flushed",
    )


def _speedup(value: float) -> Speedup:
    return Speedup(value=value, ci95=(value * 0.95, value * 1.06))


def _errors(dtype: str, rng: random.Random) -> Errors:
    scale = 6e-8 if dtype == "float32" else 2e-3
    return Errors(
        max_abs=scale * 9,
        max_rel=scale * 3,
        vs_fp64=scale * rng.uniform(0.8, 1.3),
        reference_vs_fp64=scale,
    )


def _build(op: str, target: str, rng: random.Random) -> BuildResources:
    amd = target.startswith("gfx")
    return BuildResources(
        kernel=f"{op}_kernel",
        registers=rng.choice((16, 24, 32, 64, 128)),
        agprs=rng.choice((0, 0, 32)) if amd else None,
        sgprs=rng.choice((18, 30)) if amd else None,
        spills=8 if op == "matmul" and target == "sm_80" else 0,
        shared_bytes=rng.choice((0, 1024, 16640)),
        threads=256,
        occupancy=rng.choice((0.5, 0.75, 1.0)),
    )
