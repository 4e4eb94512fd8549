"""A dataset folder of FlashInfer-Bench: definitions, workloads, solutions, and traces with what
became of each solution."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from portkern.errors import ConfigError
from portkern.formats import torch_source
from portkern.formats.exported import Export, KernelRecords, NoSuchForm
from portkern.records.record import Record, Verdict
from portkern.spec import flashinfer
from portkern.spec.op import Op, Workload

#: The languages of kernels that the format has.
_LANGUAGES = {"triton": "triton", "cuda": "cuda", "c++": "cpp"}
_STATUS = {
    Verdict.PASSED: "PASSED",
    Verdict.WRONG: "INCORRECT_NUMERICAL",
    Verdict.CRASHED: "RUNTIME_ERROR",
    Verdict.BUILD_FAILED: "COMPILE_ERROR",
    Verdict.TIMED_OUT: "TIMEOUT",
}
#: How a worker's report of an output of another form begins and goes on.
_FORM, _EXPECTED = "output ", ", expected "
BASELINE = "eager"


def write(kernels: Sequence[KernelRecords], export: Export) -> None:
    """Raises StorageError. Definitions are of one dtype: those of an op's further dtypes have it in
    their names."""
    defined: dict[tuple[str, str], Op | None] = {}
    workloads: dict[str, dict[str, Workload]] = {}
    for kernel in kernels:
        key = (kernel.op.op.name, kernel.dtype)
        if key not in defined:
            defined[key] = _define(kernel, first=not _known(defined, key[0]), export=export)
        op = defined[key]
        item = f"{kernel.name} {kernel.dtype}"
        if op is None:
            export.skip(item, f"the format cannot say what {key[0]} is")
            continue
        if not kernel.evaluated:
            export.skip(item, "nothing of it could be run")
            continue
        # The numbers of a run's workloads, which sets of an op may no longer have.
        several = workloads.setdefault(op.name, {})
        several |= {record.workload.name: _workload(record) for record in kernel.evaluated}
        _write_solution(kernel, op, export)
    for (kind, _), op in defined.items():
        if op is not None:
            text = flashinfer.write_workloads([*workloads.get(op.name, {}).values()], op)
            export.write(f"workloads/{kind}/{op.name}.jsonl", text)


def _known(defined: Mapping[tuple[str, str], Op | None], name: str) -> bool:
    return any(known == name and op for (known, _), op in defined.items())


def _define(kernel: KernelRecords, *, first: bool, export: Export) -> Op | None:
    """The op under the name that it has there; None where it cannot be said."""
    op = kernel.op.op
    name = op.name if first else f"{op.name}_{kernel.dtype}"
    named = replace(op, signature=replace(op.signature, name=name))
    try:
        document = json.loads(flashinfer.write_definition(named, kernel.dtype))
    except ConfigError as error:
        export.skip(f"op {op.name}", error)
        return None
    document["op_type"] = op.name
    export.write_json(f"definitions/{op.name}/{name}.json", document)
    return named


def _workload(record: Record) -> Workload:
    reference = record.workload
    return Workload(reference.name, reference.dims, reference.scalars)


def _write_solution(kernel: KernelRecords, op: Op, export: Export) -> None:
    item = f"{kernel.name} {kernel.dtype}"
    try:
        document = solution(kernel, op)
    except NoSuchForm as error:
        export.skip(item, error)
        return
    author = str(document["author"])
    folder = f"{author}/{kernel.op.op.name}"
    export.write_json(f"solutions/{folder}/{op.name}/{document['name']}.json", document)
    export.items += 1
    lines = []
    for record in kernel.evaluated:
        try:
            evaluated = evaluation(record)
        except NoSuchForm as error:
            export.skip(f"{item} {record.target} {record.workload.name}", error)
            continue
        text = flashinfer.write_workloads([_workload(record)], op)
        trace = json.loads(text) | {"solution": document["name"], "evaluation": evaluated}
        lines.append(json.dumps(trace, allow_nan=False) + "\n")
    if lines:
        export.write(f"traces/{folder}/{document['name']}.jsonl", "".join(lines))


def solution(kernel: KernelRecords, op: Op) -> dict[str, object]:
    """Raises NoSuchForm for a language that the format lacks."""
    candidate, signature = kernel.candidate, kernel.op.op.signature
    language = _LANGUAGES.get(candidate.language)
    if language is None:
        raise NoSuchForm(f"the format has no language for {candidate.language} kernels")
    names = [tensor.name for tensor in signature.inputs] + [s.name for s in signature.scalars]
    if language == "triton":
        module = torch_source.python_module(candidate, kernel.op.op, [kernel.dtype])
        call = ", ".join(
            [f"{tensor.name}.contiguous()" for tensor in signature.inputs]
            + [scalar.name for scalar in signature.scalars]
        )
        run = f"def run({', '.join(names)}):\n    return {torch_source.FUNCTION}({call})\n"
        path, text = "main.py", f"{module}\n\n{run}"
    else:
        path = "kernel.cu" if language == "cuda" else "kernel.cpp"
        unit = torch_source.translation_unit(candidate, kernel.op.op, kernel.dtype)
        text = f"{unit}\n{torch_source.bound_run(kernel.op.op)}"
    spec: dict[str, object] = {
        "language": language,
        "target_hardware": list(dict.fromkeys(record.target for record in kernel.evaluated)),
        "entry_point": f"{path}::run",
        "dependencies": [],
        "destination_passing_style": False,
        "binding": None if language == "triton" else "torch",
    }
    return {
        "name": f"{kernel.name}_{kernel.dtype}",
        "definition": op.name,
        "author": _author(candidate.author),
        "spec": spec,
        "sources": [{"path": path, "content": text}],
        "description": f"portkern source_hash {candidate.digest}",
    }


def _author(text: str) -> str:
    """The author as a folder's name."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")
    return plain or "portkern"


def evaluation(record: Record) -> dict[str, object]:
    """Raises NoSuchForm for what the format has no place for: it wants a time of whatever passed,
    and has no status for what a guard refused."""
    status = _STATUS.get(record.verdict)
    if status is None:
        raise NoSuchForm(f"the format has no status for {record.verdict}")
    correctness, performance = None, None
    if record.verdict is Verdict.WRONG:
        status = _of_form(record.detail) or status
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        errors = record.errors
        correctness = {
            "max_relative_error": _number(errors.max_rel if errors else math.nan),
            "max_absolute_error": _number(errors.max_abs if errors else math.nan),
            "extra": None,
        }
    if status == "PASSED":
        performance = _performance(record)
    device = record.environment.device or record.environment.machine or record.target
    return {
        "status": status,
        "environment": {
            "hardware": device,
            "libs": dict(record.environment.toolchain)
            | {"portkern": record.environment.harness_version},
        },
        "timestamp": record.time,
        "log": record.detail,
        "correctness": correctness,
        "performance": performance,
    }


def _performance(record: Record) -> dict[str, object]:
    if record.timing is None:
        raise NoSuchForm(f"it passed and was not timed ({record.evidence}); the format wants both")
    if BASELINE not in record.baselines:
        raise NoSuchForm(f"it was not timed beside {BASELINE}; the format wants that time")
    ours, theirs = record.timing.median_us, record.baselines[BASELINE].median_us
    return {
        "latency_ms": ours / 1e3,
        "reference_latency_ms": theirs / 1e3,
        "speedup_factor": theirs / ours if ours else 0.0,
    }


def _of_form(detail: str) -> str:
    """Whether it was an output's shape or dtype that was wrong; '' if neither."""
    head, found, rest = detail.partition(_EXPECTED)
    if not found or not head.startswith(_FORM) or " is " not in head:
        return ""
    got, expected = head.rpartition(" is ")[2], rest.splitlines()[0]
    if "[" not in got or "[" not in expected:
        return ""
    (kind, _, shape), (right, _, form) = got.partition("["), expected.partition("[")
    if kind != right:
        return "INCORRECT_DTYPE"
    return "INCORRECT_SHAPE" if shape.split("]")[0] != form.split("]")[0] else ""


def _number(value: float) -> float | str:
    """The number, written as the format's own models write what JSON has no number for."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
