"""Kernels and results in the formats of others: what is written, what is left out and why."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portkern import guard, ops
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.formats import (
    backendbench_kernels,
    flashinfer_traces,
    hub_kernels,
    kernelbench_runs,
)
from portkern.formats.exported import Export, ExportedOp, KernelRecords, NoSuchForm, grouped
from portkern.formats.inlined import inlined
from portkern.formats.kernel_sources import KernelSources
from portkern.ops.aten import ATEN, NOT_ATEN
from portkern.records.record import (
    Environment,
    Errors,
    Evidence,
    Record,
    RecordFile,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.spec import catalogue, flashinfer, registry
from portkern.spec.candidate import Candidate
from portkern.spec.from_torch import sheet as sheets
from portkern.worker.tracing.trace import trace

DATA = Path(__file__).parent / "data" / "model_new" / "problems"
TIMING = Timing(median_us=20.0, p20_us=19.0, p80_us=22.0, n=2, samples=[19.0, 21.0], method="test")


def shipped(op: str, backend: str, language: str = "") -> Candidate:
    known = catalogue.candidates(op, registry.load(backend))
    return next(c for c in known if language in ("", c.language))


def record(candidate: Candidate, verdict: Verdict = Verdict.PASSED, **changes: Any) -> Record:
    op = ops.load(candidate.op) if candidate.op in ops.names() else None
    dims = dict(op.workloads["ci"][0].dims) if op else {"n": 8}
    evidence = Evidence.MEASURED if verdict is Verdict.PASSED else Evidence.NONE
    timing = TIMING if verdict is Verdict.PASSED else None
    values: dict[str, Any] = {
        "run": "r",
        "id": "1",
        "time": "2026-01-01T00:00:00+00:00",
        "key": f"{candidate.digest}{verdict}",
        "op": candidate.op,
        "workload": WorkloadRef(set="ci", name="w", dims=dims, dtype="float32"),
        "backend": candidate.backend,
        "language": candidate.language,
        "target": "h200",
        "venue": "hardware: NVIDIA H200",
        "source_hash": candidate.digest,
        "author": candidate.author,
        "verdict": verdict,
        "evidence": evidence,
        "errors": Errors(max_abs=1e-6, max_rel=2e-6, vs_fp64=1e-7, reference_vs_fp64=1e-7),
        "timing": timing,
        "baselines": {"eager": TIMING} if timing else {},
        "speedup": {"eager": Speedup(value=1.0, ci95=(0.9, 1.1))} if timing else {},
        "environment": Environment(
            machine="m", device="NVIDIA H200", toolchain={"torch": "2.9"}, harness_version="0.2"
        ),
    }
    return Record.model_validate(values | changes)


def kernel(candidate: Candidate, *records: Record) -> KernelRecords:
    op = ExportedOp(ops.load(candidate.op))
    return KernelRecords(op, candidate, "float32", records or (record(candidate),))


def of_source(source: str, **changes: Any) -> Candidate:
    return Candidate("softmax", "cuda", "cuda", source, "softmax", **changes)


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


SHIPPED = [
    ("softmax", "triton", ""),
    ("matmul", "cuda", ""),
    ("layernorm", "cuda", ""),
    ("rmsnorm", "hip", ""),
    ("softmax", "cpu", "c++"),
    ("topk", "triton", ""),
]


# ---- Headers


def test_a_header_is_guarded_and_comes_again_where_the_one_before_may_be_left_out() -> None:
    source = (
        "#ifdef HOPPER\n#include <portkern/rows.h>\n#include <portkern/packs.h>\n#endif\n"
        "#include <portkern/rows.h>\n#include <portkern/packs.h>\n"
    )
    text = inlined(of_source(source))
    assert "#include <portkern/" not in text
    for name in ("ROWS", "PACKS"):
        guards = re.findall(rf"#ifndef PORTKERN_{name}_H\n#define PORTKERN_{name}_H", text)
        assert len(guards) == 2
    assert text.count("#if") == text.count("#endif")


def test_a_header_comes_once_where_the_one_before_is_always_there() -> None:
    once = inlined(of_source("#include <portkern/rows.h>\n"))
    twice = "#include <portkern/rows.h>\n#ifdef HOPPER\n#include <portkern/packs.h>\n#endif\n"
    assert inlined(of_source(twice)).split() == [*once.split(), "#ifdef", "HOPPER", "#endif"]
    assert "PORTKERN_ROWS_H" not in once


# ---- KernelBench


@pytest.mark.parametrize(("op", "backend", "language"), SHIPPED[:5])
def test_a_kernel_becomes_a_class_that_the_guard_takes(
    op: str, backend: str, language: str
) -> None:
    text = kernelbench_runs.model_new(kernel(shipped(op, backend, language)))
    made = catalogue.of_module(text, op=op, backend=registry.load(backend), author="test")
    assert guard.rejection(guard.inspect(made, guard.GuardPolicy())) == ""
    assert any(
        isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(text).body
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("op", "backend"),
    [
        ("softmax", "triton"),
        ("matmul", "cuda"),
        ("layernorm", "cuda"),
        ("relu", "hip"),
        ("softmax", "hip"),  # shuffles without masks, as HIP alone has them
    ],
)
def test_an_exported_class_passes_as_the_kernel_did(
    op: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = kernelbench_runs.model_new(kernel(shipped(op, backend)))
    Path("level_0_problem_1_sample_0_kernel.py").write_text(text)
    asked = ["check", f"op={op}", f"backend={backend}", "sanitize=none"]
    assert main.run([*asked, "source=level_0_problem_1_sample_0_kernel.py"]) == 0


def test_a_run_that_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    good, bad = shipped("softmax", "triton"), shipped("matmul", "cuda")
    wrong = record(bad, Verdict.WRONG, detail="off by one")
    export = Export(tmp_path)
    kernelbench_runs.write([kernel(good), kernel(bad, wrong)], export)
    assert (export.items, export.skipped) == (2, [])
    run = kernelbench_runs.read(tmp_path)
    assert run.problems == ()
    by_problem = {sample.problem: sample for sample in run.samples}
    matmul, softmax = by_problem[1], by_problem[2]
    assert (softmax.level, softmax.correct, softmax.compiled) == (0, True, True)
    assert softmax.runtime_ms == pytest.approx(0.02)
    assert (matmul.correct, matmul.compiled, matmul.runtime_ms) == (False, True, None)
    assert matmul.metadata["correctness_issue"] == "wrong: off by one"
    assert matmul.kernel is not None
    assert matmul.kernel.is_file()
    assert {"KernelBench/level0/1_matmul.py", "KernelBench/level0/2_softmax.py"} <= written(
        tmp_path
    )


def test_problems_of_kernelbench_keep_their_numbers_and_constructor(tmp_path: Path) -> None:
    file = DATA / "5_LinearLeaky.py"
    source = file.read_text()
    found = trace(source, file.name, "", "linear_leaky").traced
    assert found is not None
    op = sheets.of(found, file.name, source).op(source)
    backend = registry.load("triton")
    text = "def linear_leaky(x, linear_weight, linear_bias, y):\n    pass\n"
    candidate = Candidate(op.name, "triton", "triton", text, op.name, style=backend.style)
    known = ExportedOp(op, source, "Model", file.stem, level=2, problem=5)
    export = Export(tmp_path)
    kernelbench_runs.write(
        [KernelRecords(known, candidate, "float32", [record(candidate)])], export
    )
    made = (tmp_path / "level_2_problem_5_sample_0_kernel.py").read_text()
    assert "super().__init__()\n        self.linear = nn.Linear(in_features, out_features)" in made
    assert "self.linear.weight.contiguous()" in made
    assert "leaky_relu" not in made
    assert (tmp_path / "KernelBench/level2/5_LinearLeaky.py").read_text() == source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "holds a list, expected results by problem"),
        ("{", "is not JSON"),
        ('{"x": []}', "'x' is not a number of a problem"),
        ('{"1": [3]}', "it is a int, expected an object"),
        ('{"1": [{"compiled": true}]}', "it has no 'correctness'"),
        ('{"1": [{"compiled": 1, "correctness": true}]}', "compiled is '1', expected bool"),
    ],
)
def test_a_bad_result_is_told_and_the_rest_is_read(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "level_1_problem_3_sample_0_kernel.py").write_text("")
    (tmp_path / "eval_results.json").write_text(text)
    run = kernelbench_runs.read(tmp_path)
    assert [sample.problem for sample in run.samples] == [3]
    assert message in run.problems[0]


def test_a_folder_of_something_else_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Nothing of KernelBench in"):
        kernelbench_runs.read(tmp_path)
    with pytest.raises(ConfigError, match="No folder"):
        kernelbench_runs.read(tmp_path / "absent")


# ---- FlashInfer-Bench


def test_definitions_and_workloads_are_read_back_equal(tmp_path: Path) -> None:
    candidates = [shipped("softmax", "triton"), shipped("rmsnorm", "cuda")]
    flashinfer_traces.write([kernel(one) for one in candidates], Export(tmp_path))
    for candidate in candidates:
        op, name = ops.load(candidate.op), candidate.op
        text = (tmp_path / f"definitions/{name}/{name}.json").read_text()
        back = flashinfer.read_definition(text)
        assert [t.shape for t in back.signature.inputs] == [t.shape for t in op.signature.inputs]
        assert back.signature.axes == op.signature.axes
        jsonl = (tmp_path / f"workloads/{name}/{name}.jsonl").read_text()
        [workload] = flashinfer.read_workloads(jsonl, back)
        assert workload.dims == op.workloads["ci"][0].dims


@pytest.mark.parametrize(
    ("verdict", "detail", "status"),
    [
        (Verdict.PASSED, "", "PASSED"),
        (Verdict.WRONG, "3 elements differ", "INCORRECT_NUMERICAL"),
        (Verdict.WRONG, "output 'y' is float32[3, 4], expected float32[4, 3]", "INCORRECT_SHAPE"),
        (Verdict.WRONG, "output 'y' is float16[3], expected float32[3]", "INCORRECT_DTYPE"),
        (Verdict.CRASHED, "signal 11", "RUNTIME_ERROR"),
        (Verdict.BUILD_FAILED, "no ;", "COMPILE_ERROR"),
        (Verdict.TIMED_OUT, "120 s", "TIMEOUT"),
    ],
)
def test_each_verdict_has_its_status_and_the_fields_that_go_with_it(
    verdict: Verdict, detail: str, status: str
) -> None:
    made = flashinfer_traces.evaluation(record(shipped("relu", "triton"), verdict, detail=detail))
    assert made["status"] == status
    assert (made["performance"] is not None) == (status == "PASSED")
    assert (made["correctness"] is not None) == (status in ("PASSED", "INCORRECT_NUMERICAL"))


@pytest.mark.parametrize("verdict", [Verdict.REJECTED, Verdict.SUSPICIOUS])
def test_a_verdict_that_the_format_lacks_is_left_out(verdict: Verdict) -> None:
    with pytest.raises(NoSuchForm, match=f"no status for {verdict}"):
        flashinfer_traces.evaluation(record(shipped("relu", "triton"), verdict))


def test_what_was_only_emulated_has_a_solution_and_no_trace(tmp_path: Path) -> None:
    candidate = shipped("relu", "triton")
    emulated = record(candidate, evidence=Evidence.EMULATED, timing=None, speedup={}, baselines={})
    export = Export(tmp_path)
    flashinfer_traces.write([kernel(candidate, emulated)], export)
    assert "was not timed (emulated)" in export.skipped[0].reason
    assert not (tmp_path / "traces").exists()
    assert export.items == 1


@pytest.mark.full
def test_flashinfer_benchs_own_models_take_the_folder(tmp_path: Path) -> None:
    data = pytest.importorskip(
        "flashinfer_bench.data", reason="pip install flashinfer-bench to check against its models"
    )
    kernels = [kernel(shipped("softmax", "triton")), kernel(shipped("matmul", "cuda"))]
    flashinfer_traces.write(kernels, Export(tmp_path))
    read = data.TraceSet.from_path(str(tmp_path))
    assert set(read.definitions) == set(read.traces) == {"softmax", "matmul"}


# ---- BackendBench


def test_every_shipped_op_is_of_aten_or_says_why_not() -> None:
    assert set(ATEN) | set(NOT_ATEN) == set(ops.names())
    assert not set(ATEN) & set(NOT_ATEN)


def test_operators_of_aten_exist_under_their_names() -> None:
    import torch

    for aten in ATEN.values():
        name, _, overload = aten.name.partition(".")
        assert hasattr(getattr(torch.ops.aten, name), overload)


def test_a_kernel_gets_a_folder_and_function_of_its_operators_name(tmp_path: Path) -> None:
    export = Export(tmp_path)
    failed = shipped("bmm", "triton")
    kernels = [
        kernel(shipped("matmul", "triton")),
        kernel(shipped("matmul", "cuda")),
        kernel(shipped("rope", "triton")),
        kernel(failed, record(failed, Verdict.WRONG)),
    ]
    backendbench_kernels.write(kernels, export)
    folder = "generated_kernels/mm__default"
    assert written(tmp_path) == {
        f"{folder}/mm__default_implementation_v1.py",
        f"{folder}/mm__default_implementation_v2.py",
        f"{folder}/portkern.json",
    }
    text = (tmp_path / folder / "mm__default_implementation_v1.py").read_text()
    assert "def mm__default_kernel_impl(self, mat2):" in text
    assert [skipped.reason for skipped in export.skipped] == ["ATen has none", "it is wrong"]


def test_each_adaptation_of_aten_gives_what_aten_does() -> None:
    import torch

    x, y, z = torch.randn(6, 8), torch.randn(8, 5), torch.randn(8)
    calls: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
        "relu": ((x,), {}),
        "gelu": ((x,), {}),
        "softmax": ((torch.randn(2, 3, 8), -1, False), {}),
        "cumsum": ((x, 1), {}),
        "add": ((x, z), {}),
        "matmul": ((x, y), {}),
        "bmm": ((torch.randn(2, 3, 4), torch.randn(2, 4, 5)), {}),
        "embedding": ((x, torch.tensor([[1, 5], [0, 2]])), {}),
    }
    assert set(calls) == set(ATEN)
    for name, (given, named) in calls.items():
        aten, op = ATEN[name], ops.load(name)
        text = (
            f"import torch\ndef f({aten.arguments}):\n    assert {aten.requires}\n"
            f"    out = run({', '.join(aten.given)})\n    return {aten.result}\n"
        )
        namespace: dict[str, Any] = {"run": op.reference}
        exec(text, namespace)
        base, _, overload = aten.name.partition(".")
        expected = getattr(getattr(torch.ops.aten, base), overload)(*given, **named)
        torch.testing.assert_close(namespace["f"](*given, **named), expected)


# ---- kernel-builder


def test_a_package_has_what_the_builder_reads(tmp_path: Path) -> None:
    import tomllib

    export = Export(tmp_path)
    kernels = [
        kernel(shipped("rmsnorm", "cuda")),
        kernel(shipped("rmsnorm", "cpu", "c++")),
        kernel(shipped("rmsnorm", "triton")),
        kernel(shipped("rmsnorm", "opencl")),
    ]
    hub_kernels.write(kernels, export)
    build = tomllib.loads((tmp_path / "rmsnorm/build.toml").read_text())
    assert build["general"]["backends"] == ["cpu", "cuda"]
    for part in build["kernel"].values():
        assert (tmp_path / "rmsnorm" / part["src"][0]).is_file()
    for file in build["torch"]["src"]:
        assert (tmp_path / "rmsnorm" / file).is_file()
    binding = (tmp_path / "rmsnorm/torch-ext/torch_binding.cpp").read_text()
    schema = "run_native(Tensor x, Tensor weight, float eps) -> Tensor[]"
    assert schema in binding
    assert "torch/extension.h" not in (tmp_path / "rmsnorm/rmsnorm_cuda/rmsnorm.cu").read_text()
    triton = tomllib.loads((tmp_path / "rmsnorm-triton/build.toml").read_text())
    assert triton["torch-noarch"] == {}
    assert (
        "| h200 | w | float32 | passed | measured | 20.00 |"
        in (tmp_path / "rmsnorm/README.md").read_text()
    )
    assert "no place for opencl" in export.skipped[0].reason
    for file in tmp_path.rglob("*.py"):
        ast.parse(file.read_text())


# ---- sources, and the command


def test_a_tuned_kernel_is_found_by_its_hash(tmp_path: Path) -> None:
    plain = shipped("softmax", "triton")
    name, knob = next(iter(plain.knobs.items()))
    tuned = plain.turn({name: next(value for value in knob.choices if value != knob.value)})
    found = KernelSources(tmp_path).of([record(tuned)])
    assert isinstance(made := found[tuned.digest], Candidate)
    assert made.source == tuned.source


def test_a_source_of_an_attempt_or_a_file_is_found(tmp_path: Path) -> None:
    plain = shipped("relu", "triton")
    source = f"{plain.source}\n# mine\n"
    mine = Candidate("relu", "triton", "triton", source, "relu", style="dps")
    attempt = {"digest": mine.digest, "source": source}
    (tmp_path / "attempts.jsonl").write_text(f"no json\n{json.dumps(attempt)}\n")
    assert isinstance(KernelSources(tmp_path).of([record(mine)])[mine.digest], Candidate)
    (tmp_path / "attempts.jsonl").unlink()
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "anything.py").write_text(source)
    sources = KernelSources(tmp_path, [tmp_path / "kernels"])
    assert isinstance(sources.of([record(mine)])[mine.digest], Candidate)


def test_a_source_that_has_changed_is_skipped_and_the_rest_goes_on(tmp_path: Path) -> None:
    good, gone = shipped("relu", "triton"), record(shipped("gelu", "triton"), source_hash="0" * 16)
    records = [record(good), gone]
    export = Export(tmp_path)
    known = {name: ExportedOp(ops.load(name)) for name in ("relu", "gelu")}
    made = list(grouped(records, known, KernelSources(tmp_path).of(records), export))
    assert [one.candidate.op for one in made] == ["relu"]
    assert "has changed since; name its file" in export.skipped[0].reason
    assert list(grouped(records, {}, {}, export)) == []
    assert "no op 'relu' here" in export.skipped[1].reason


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "one"
    folder.mkdir(parents=True)
    gone = record(shipped("gelu", "triton"), source_hash="0" * 16)
    RecordFile(folder / "records.jsonl").append([record(shipped("matmul", "triton")), gone])
    return tmp_path


@pytest.mark.parametrize("name", ["kernelbench", "flashinfer", "backendbench", "kernels"])
def test_the_command_writes_what_it_can_and_says_the_rest(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["export", name, "one", "json=true"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["items"], len(document["skipped"])) == (1, 1)
    assert (here / "reports/one" / name).is_dir()


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (["kernelbank", "one"], 2, "did you mean 'kernelbench'"),
        (["kernelbench", "absent"], 2, "No records in"),
        (["kernelbench", "one", "kernels=nowhere"], 2, "No file or folder nowhere"),
        (["kernelbench", "one", "ops=nowhere.py"], 1, "Cannot read nowhere.py"),
    ],
)
def test_bad_requests_are_told_in_a_line(
    asked: list[str], code: int, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["export", *asked]) == code
    assert message in capsys.readouterr().err


def test_a_run_of_which_nothing_fits_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "one"
    folder.mkdir(parents=True)
    RecordFile(folder / "records.jsonl").append([record(shipped("rope", "triton"))])
    assert main.run(["export", "backendbench", "one"]) == 3
    assert "ATen has none" in capsys.readouterr().err
