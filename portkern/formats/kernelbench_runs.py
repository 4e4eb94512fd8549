"""KernelBench's folders of runs: ``level_L_problem_P_sample_S_kernel.py``, each a class ModelNew,
and ``eval_results.json`` beside them."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portkern.errors import ConfigError
from portkern.formats import torch_source
from portkern.formats.exported import Export, ExportedOp, KernelRecords, NoSuchForm, SkippedExport
from portkern.formats.kernel_project import ForeignKernel, KernelProject
from portkern.records.record import Record, Timing, Verdict
from portkern.spec.foreign_text import Malformed, json_value, python_tree, read_text
from portkern.spec.from_torch import sheet as sheets
from portkern.spec.from_torch.sheet import SUFFIX
from portkern.spec.module_form import CLASS, ModuleForm
from portkern.spec.op import Op, Workload

RESULTS = "eval_results.json"
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
#: The level of ops that are not problems of KernelBench's.
OWN_LEVEL = 0
#: They have no build, or none that counts.
_UNBUILT = (Verdict.BUILD_FAILED, Verdict.REJECTED)


# ---- reading


@dataclass(frozen=True)
class KernelBenchSample:
    """One kernel of a run and what became of it. ``compiled`` and ``correct`` are None where it was
    not evaluated; ``runtime_ms`` is None where it was not timed. ``level`` is None of a result
    without a kernel's file, and ``kernel`` too."""

    level: int | None
    problem: int
    sample: int
    kernel: Path | None = None
    compiled: bool | None = None
    correct: bool | None = None
    runtime_ms: float | None = None
    stats: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelBenchRun:
    """``problems``: what could not be read, one line each."""

    folder: Path
    samples: tuple[KernelBenchSample, ...]
    problems: tuple[str, ...] = ()


def read(path: Path) -> KernelBenchRun:
    """A run's folder, or its file of results, whatever that is called; ordered by level, problem
    and sample. Raises ConfigError for what is none."""
    path, file_of_results = (path.parent, path) if path.is_file() else (path, path / RESULTS)
    if not path.is_dir():
        raise ConfigError(f"No folder {path}; expected one of KernelBench's, such as runs/NAME")
    kernels: dict[tuple[int, int], tuple[int, Path]] = {}
    problems: list[str] = []
    for file in sorted(path.iterdir()):
        match = _KERNEL.fullmatch(file.name)
        if match is None:
            continue
        level, problem, sample = map(int, match.groups())
        if (problem, sample) in kernels:
            other = kernels[problem, sample][1].name
            problems.append(f"{file.name}: its results are {other}'s too; evaluate one level a run")
        kernels.setdefault((problem, sample), (level, file))
    results, wrong = _results(file_of_results)
    problems += wrong
    if not kernels and not results:
        why = f": {problems[0]}" if problems else ""
        raise ConfigError(
            f"Nothing of KernelBench in {path}{why}; expected {RESULTS} and files such as "
            "level_1_problem_1_sample_0_kernel.py"
        )
    keys = dict.fromkeys([*kernels, *results])
    samples = [_sample(key, kernels.get(key), results.get(key, {})) for key in keys]
    samples.sort(key=lambda one: (one.level or 0, one.problem, one.sample))
    return KernelBenchRun(path, tuple(samples), tuple(problems))


def _results(file: Path) -> tuple[dict[tuple[int, int], Mapping[str, object]], list[str]]:
    """The results by problem and sample, and what is wrong with the others."""
    try:
        data = json_value(read_text(file))
    except ConfigError as error:
        return {}, [str(error)] if file.exists() else []
    except Malformed as error:
        return {}, [f"{file.name} is not JSON: {error}"]
    if not isinstance(data, dict):
        return {}, [f"{file.name} holds a {type(data).__name__}, expected results by problem"]
    results: dict[tuple[int, int], Mapping[str, object]] = {}
    problems = []
    for problem, entries in data.items():
        if not problem.isdecimal():
            problems.append(f"{file.name}: {problem!r} is not a number of a problem")
            continue
        # Older runs have one result for each problem.
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            where = f"{file.name}: problem {problem}, entry {number}"
            wrong = _wrong(entry)
            key = int(problem), entry.get("sample_id", number) if not wrong else number
            if not wrong and key in results:
                wrong = f"sample_id is {key[1]}, expected one that no other entry has"
            if wrong:
                problems.append(f"{where}: {wrong}")
            else:
                results[key] = entry
    return results, problems


def _wrong(entry: object) -> str:
    if not isinstance(entry, dict):
        return f"it is a {type(entry).__name__}, expected an object"
    kinds: Mapping[str, tuple[type, ...]] = {
        "sample_id": (int,),
        "compiled": (bool,),
        "correctness": (bool,),
        "runtime": (int, float),
        "metadata": (dict,),
        "runtime_stats": (dict,),
    }
    for name, kind in kinds.items():
        if name in ("compiled", "correctness") and name not in entry:
            return f"it has no {name!r}"
        if name in entry and type(entry[name]) not in kind:
            return f"{name} is {str(entry[name])[:40]!r}, expected {kind[0].__name__}"
    return ""


def _sample(
    key: tuple[int, int], kernel: tuple[int, Path] | None, entry: Mapping[str, Any]
) -> KernelBenchSample:
    level, file = kernel or (None, None)
    runtime = entry.get("runtime", -1.0)
    return KernelBenchSample(
        level,
        *key,
        kernel=file,
        compiled=entry.get("compiled"),
        correct=entry.get("correctness"),
        runtime_ms=float(runtime) if runtime > 0 else None,
        stats=entry.get("runtime_stats", {}),
        metadata=entry.get("metadata", {}),
    )


# ---- kernels of a run as a project


def project(run: KernelBenchRun, operators: Path) -> KernelProject:
    """The samples that have a file, each for the operator that an import of KernelBench left in
    ``operators`` (``levelL/P_Name.py`` with its sheet)."""
    kernels: list[ForeignKernel] = []
    skipped = [SkippedExport(run.folder.name, problem) for problem in run.problems]
    owners: dict[str, Path] = {}
    for sample in run.samples:
        if sample.kernel is None:
            name = f"problem {sample.problem}, sample {sample.sample}"
            skipped.append(SkippedExport(name, f"it has a result in {RESULTS} and no file"))
            continue
        try:
            kernel = _foreign(sample, sample.kernel, operators)
            owner = owners.setdefault(kernel.op, kernel.op_file)
            if owner != kernel.op_file:
                raise NoSuchForm(f"{owner} is called {kernel.op} too; import it by itself")
        except NoSuchForm as error:
            skipped.append(SkippedExport(sample.kernel.name, str(error)))
            continue
        kernels.append(kernel)
    return KernelProject(kernels, skipped)


def _foreign(sample: KernelBenchSample, file: Path, operators: Path) -> ForeignKernel:
    """Raises NoSuchForm."""
    files = sorted(operators.glob(f"level{sample.level}/{sample.problem}_*.py"))
    if not files:
        raise NoSuchForm(
            f"no operator level{sample.level}/{sample.problem}_*.py in {operators}; "
            "'portkern import kernelbench CHECKOUT' makes them, ops=DIR says where they are"
        )
    try:
        name = sheets.read(read_text(files[0].with_suffix(SUFFIX)), "").name
        source = read_text(file)
    except ConfigError as error:
        raise NoSuchForm(f"cannot be read: {error}") from error
    said = {
        "compiled": sample.compiled,
        "correctness": sample.correct,
        "runtime_ms": sample.runtime_ms,
        "metadata": dict(sample.metadata),
    }
    return ForeignKernel(
        str(file),
        name,
        files[0],
        backend_of(source),
        f"s{sample.sample}",
        source,
        said={key: value for key, value in said.items() if value not in (None, {})},
    )


def backend_of(source: str) -> str:
    """The backend of a source, by what its text builds with. Raises NoSuchForm where no ModelNew is
    defined."""
    try:
        tree = python_tree(source)
    except (SyntaxError, ValueError) as error:
        raise NoSuchForm(f"it is not Python: {error}") from error
    if not any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
        raise NoSuchForm(f"it defines no class {CLASS}")
    modules = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    if any(name.partition(".")[0] == "triton" for name in modules):
        return "triton"
    alone = "cpp_sources" in source and "cuda" not in source
    return "cpu" if alone else "cuda"


# ---- writing


def write(kernels: Sequence[KernelRecords], export: Export) -> None:
    """A class ModelNew for each kernel, and what the records say of it. Raises StorageError."""
    results: dict[int, list[dict[str, object]]] = {}
    numbers = _numbers(kernels)
    for kernel in kernels:
        item = f"{kernel.name} {kernel.dtype}"
        if not kernel.evaluated:
            export.skip(item, "nothing of it could be run")
            continue
        level, problem = numbers[kernel.op.op.name]
        sample = len(results.setdefault(problem, []))
        try:
            text = model_new(kernel)
        except NoSuchForm as error:
            export.skip(item, error)
            continue
        export.write(f"level_{level}_problem_{problem}_sample_{sample}_kernel.py", text)
        results[problem].append(_result(kernel, sample))
        export.items += 1
    kept = {str(problem): several for problem, several in sorted(results.items()) if several}
    export.write_json(RESULTS, kept)
    _write_problems(kernels, numbers, export)


def model_new(kernel: KernelRecords) -> str:
    """The source of ModelNew. Raises NoSuchForm."""
    candidate, op = kernel.candidate, kernel.op.op
    if candidate.style == "module":
        return candidate.source
    text = torch_source.python_module(candidate, op, [kernel.dtype])
    form = op.signature.module
    if form is None:
        return f"{text}\n\n{_plain_class(op)}"
    return f"{text}\n\n{_class(kernel.op, form)}"


def _plain_class(op: Op) -> str:
    names = [tensor.name for tensor in op.signature.inputs]
    scalars = [scalar.name for scalar in op.signature.scalars]
    taken = [*names, *(f"{s.name}={s.default!r}" for s in op.signature.scalars)]
    given = [*(f"{name}.contiguous()" for name in names), *scalars]
    return (
        f"class {CLASS}(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(taken)}):\n"
        f"        return {torch_source.FUNCTION}({', '.join(given)})\n"
    )


def _class(op: ExportedOp, form: ModuleForm) -> str:
    """A class with the constructor of the file's own class, so that its parameters are the same."""
    signature = op.op.signature
    taken = [one.name or f"_{place}" for place, one in enumerate(form.arguments)]
    given = []
    for tensor in signature.inputs:
        value = tensor.name
        if tensor.name in form.state:
            value = "self" + "".join(
                f"[{part}]" if part.isdecimal() else f".{part}"
                for part in form.state[tensor.name].split(".")
            )
        given.append(f"{value}.contiguous()")
    given += [scalar.name for scalar in signature.scalars]
    head, constructor = _constructor(op)
    return (
        f"{head}class {CLASS}(torch.nn.Module):\n{constructor}"
        f"    def forward(self, {', '.join(taken)}):\n"
        f"        return {torch_source.FUNCTION}({', '.join(given)})\n"
    )


def _constructor(op: ExportedOp) -> tuple[str, str]:
    """The source that stands before the class, and its ``__init__``. Raises NoSuchForm where
    that needs more of the file than its imports and numbers."""
    tree = python_tree(op.source)
    own = next(
        (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == op.operator), None
    )
    if own is None:
        raise NoSuchForm(f"its file has no class {op.operator!r} at its top level")
    made = [n for n in own.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    if not made:
        return "", ""
    names = {part.id for part in ast.walk(made[0]) if isinstance(part, ast.Name)}
    head = []
    for node in tree.body:
        bound = set(_bound(node)) & names
        if bound and isinstance(node, ast.ClassDef | ast.FunctionDef) and node is not own:
            raise NoSuchForm(f"its constructor needs {min(bound)!r} of its file")
        imported = isinstance(node, ast.Import | ast.ImportFrom)
        if bound and (imported or isinstance(node, ast.Assign | ast.AnnAssign)):
            head.append(ast.unparse(node))
    for part in ast.walk(made[0]):
        if isinstance(part, ast.Name) and part.id == op.operator:
            part.id = CLASS
    body = "".join(f"    {line}\n" for line in ast.unparse(made[0]).splitlines())
    return "\n".join([*head, "", "", ""]) if head else "", f"{body}\n"


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        return [part.id for part in stored if isinstance(part.ctx, ast.Store)]
    return []


def _numbers(kernels: Sequence[KernelRecords]) -> dict[str, tuple[int, int]]:
    """Level and problem by op: the file's own, else of a level that KernelBench does not have."""
    numbers: dict[str, tuple[int, int]] = {}
    taken = {one.op.problem for one in kernels if one.op.problem is not None}
    for name in sorted({kernel.op.op.name for kernel in kernels}):
        op = next(kernel.op for kernel in kernels if kernel.op.op.name == name)
        problem = op.problem
        if problem is None:
            problem = next(n for n in range(1, len(kernels) + len(taken) + 2) if n not in taken)
            taken.add(problem)
        numbers[name] = (OWN_LEVEL if op.level is None else op.level, problem)
    return numbers


def _result(kernel: KernelRecords, sample: int) -> dict[str, object]:
    records = kernel.evaluated
    passed = [record for record in records if record.verdict is Verdict.PASSED]
    timed = [record for record in passed if record.timing]
    longest = max(timed, key=lambda record: _size(record), default=None)
    bad = [record for record in records if record.verdict.bad]
    devices = list(dict.fromkeys(record.environment.device for record in records))
    metadata: dict[str, object] = {
        "hardware": ", ".join(filter(None, devices)) or records[0].target,
        "device": records[0].venue,
        "correctness_trials": f"({len(passed)} / {len(records)})",
        "max_difference": [f"{r.errors.max_abs:.6f}" for r in records if r.errors],
        "portkern": {
            "source_hash": kernel.candidate.digest,
            "dtype": kernel.dtype,
            "workloads": {r.workload.name: str(r.verdict) for r in records},
            "evidence": sorted({str(r.evidence) for r in records}),
        },
    }
    if bad:
        key = {
            Verdict.BUILD_FAILED: "compilation_error",
            Verdict.REJECTED: "compilation_error",
            Verdict.WRONG: "correctness_issue",
            Verdict.SUSPICIOUS: "correctness_issue",
        }.get(bad[0].verdict, "runtime_error")
        metadata[key] = f"{bad[0].verdict}: {bad[0].detail}"
    stats = _stats(longest.timing, metadata) if longest and longest.timing else {}
    return {
        "sample_id": sample,
        "compiled": not any(record.verdict in _UNBUILT for record in records),
        "correctness": not bad and bool(passed),
        "metadata": metadata,
        "runtime": stats.get("mean", -1.0),
        "runtime_stats": stats,
    }


def _size(record: Record) -> int:
    size = 1
    for length in record.workload.dims.values():
        size *= max(length, 1)
    return size


def _stats(timing: Timing, metadata: Mapping[str, object]) -> dict[str, object]:
    """Statistics of a time in milliseconds, as KernelBench has them."""
    samples = [us / 1e3 for us in timing.samples] or [timing.median_us / 1e3]
    return {
        "mean": statistics.fmean(samples),
        "std": statistics.pstdev(samples),
        "min": min(samples),
        "max": max(samples),
        "num_trials": len(samples),
        "hardware": metadata["hardware"],
        "device": metadata["device"],
    }


def _write_problems(
    kernels: Sequence[KernelRecords], numbers: Mapping[str, tuple[int, int]], export: Export
) -> None:
    """The problems themselves, so that the folder can be evaluated by itself."""
    for kernel in kernels:
        level, problem = numbers[kernel.op.op.name]
        stem = kernel.op.stem if kernel.op.problem is not None else f"{problem}_{kernel.op.op.name}"
        path = f"KernelBench/level{level}/{stem}.py"
        if export.folder / path in export.files:
            continue
        text = kernel.op.source or _problem(kernel.op.op)
        if text:
            export.write(path, text)


def _problem(op: Op) -> str:
    """An op that ships, as a class Model; '' where its inputs are more than normal numbers."""
    if any(tensor.dtype != "cell" for tensor in op.signature.inputs):
        return ""
    workloads = (*op.workloads.get("typical", ()), *op.workloads.get("ci", ()))
    if not workloads or not op.reference_source:
        return ""
    sizes: Workload = workloads[0]
    drawn = [f"torch.randn({tensor.sizes(sizes.dims)})" for tensor in op.signature.inputs]
    taken = [tensor.name for tensor in op.signature.inputs]
    scalars = op.signature.scalar_values(sizes.scalars)
    defaults = [f"{name}={value!r}" for name, value in scalars.items()]
    given = [*taken, *(f"{name}={name}" for name in scalars)]
    return (
        "from __future__ import annotations\n\nimport torch\n\n\n"
        f"{op.reference_source.rstrip()}\n\n\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {', '.join([*taken, *defaults])}):\n"
        f"        return run({', '.join(given)})\n\n\n"
        f"def get_inputs():\n    return [{', '.join(drawn)}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
