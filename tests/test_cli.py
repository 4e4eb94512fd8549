"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from portkern.cli import main
from portkern.matrix.selection import host_targets

HOST = host_targets()[0]


def portkern(*argv: str) -> int:
    return main.run(list(argv))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("judge=rules", "critic=rules"),
        ("judge.kind=rules", "critic.kind=rules"),
        ("models.judge.model=x", "models.critic.model=x"),
        ("feedback.sensors=[timing]", "feedback.sources=[timing]"),
    ],
)
def test_an_option_that_was_renamed_is_refused_with_its_name(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert portkern("generate", "op=relu", "target=x86_64", "backend=cpu", old) == 2
    assert f"write {new}" in capsys.readouterr().err


def test_help_answers_fast_and_imports_nothing_heavy() -> None:
    code = "import sys; from portkern.cli import main; main.run(['--help'])\n"
    code += "print(sorted(sys.modules))"
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.monotonic() - start < 2.0  # ≤ 0.3 s on a quiet machine; benchmarks/startup.py
    for heavy in ("torch", "hydra", "pydantic", "mlflow", "triton", "jax", "scipy", "numpy"):
        assert f"'{heavy}'" not in done.stdout


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_documents_every_option(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    import dataclasses
    import importlib

    assert portkern(verb, "--help") == 0
    text = capsys.readouterr().out
    module = importlib.import_module(f"portkern.cli.verbs.{verb}")
    options = getattr(module, f"{verb.capitalize()}Options")
    for field in dataclasses.fields(options):
        assert f"\n{field.name}:" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["matrx"], "No verb 'matrx'; did you mean 'matrix'?"),
        (["matrix", "opps=relu"], "No option 'opps'; did you mean 'ops'?"),
        (["matrix", "rounds=abc"], "'abc' of type 'str' could not be converted to Integer"),
        (["matrix", "rounds=0"], "Got rounds=0 timeout_s=120, expected both above 0"),
        (["matrix", "baselines=[slow]"], "Got baseline 'slow', expected 'eager' or 'compile'"),
        (["matrix", "ops=relo"], "No op 'relo'; did you mean 'relu'?"),
        (["matrix", "run=a/b"], "Got run='a/b', expected a folder name such as 'nightly'"),
        (["matrix", "ops"], "Got 'ops', expected key=value"),
        (["check", "op=relu", "backend=cpu"], "source= is required"),
        (["check", "op=relu", "backend=cpu", "source=nothing.cpp"], "Cannot read nothing.cpp"),
        (["check", "op=relu", "backend=cpu", "source=a.txt"], "No cpu source suffix '.txt'"),
        (["report", "no-such-run"], "No records in reports/no-such-run/records.jsonl"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert portkern(*argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("portkern: error: ")
    assert message in error
    assert error.count("\n") == 1


def check(source: Path, tmp_path: Path, *more: str) -> int:
    argv = ["op=relu", "backend=cpu", f"source={source}", f"target={HOST}", f"reports={tmp_path}"]
    return portkern("check", *argv, *more)


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ("for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i]; return 0;", 0, "passed"),
        ("return 0;", 1, "wrong (built): "),
        ("abort();", 1, "crashed (built): the kernel was killed by SIGABRT"),
    ],
)
def test_check_evaluates_a_file(
    body: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.cpp"
    source.write_text(
        "#include <stdlib.h>\n"
        f'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {{ {body} }}'
    )
    assert check(source, tmp_path) == code
    assert told in capsys.readouterr().out


def test_a_wrong_prototype_is_the_compilers_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.cpp"
    source.write_text('extern "C" int relu(const double* x, double* y, int n) { return 0; }')
    assert check(source, tmp_path) == 1
    shown = capsys.readouterr()
    assert "build_failed" in shown.out
    assert "conflicting declaration" in shown.err


def test_check_speaks_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "mine.cpp"
    source.write_text("int main() {}")
    assert check(source, tmp_path, "json=true") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 1
    assert {r["verdict"] for r in document["records"]} == {"build_failed"}
    assert "expected extern" in document["records"][0]["detail"]


@pytest.mark.parametrize(
    ("returned", "code", "verdict", "told"),
    [
        ("torch.from_numpy(numpy.maximum(x.numpy(), 0))", 0, "passed", ""),
        ("x.double().clamp_min(0)", 1, "wrong", "output 'y' is float64[1000], expected float32"),
        ("numpy.maximum(x.numpy(), 0)", 1, "crashed", "object of type ndarray, expected a Tensor"),
    ],
)
def test_check_evaluates_a_function_that_returns_its_output(
    returned: str,
    code: int,
    verdict: str,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(f"import numpy\nimport torch\n\ndef run(x):\n    return {returned}\n")
    argv = ["entry=run", "style=return", "torch_ops=allow", "json=true"]
    assert check(source, tmp_path, *argv) == code
    records = json.loads(capsys.readouterr().out)["records"]
    assert {r["verdict"] for r in records} == {verdict}
    assert told in records[0]["detail"]
    assert all((r["timing"] is not None) == (verdict == "passed") for r in records)


@pytest.mark.full
def test_a_function_of_tensors_may_compute_in_halves_and_takes_scalars_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.py"
    source.write_text("""
def run(x, weight, bias, eps):
    wide = x.double() - x.double().mean(-1, keepdim=True)
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * scale * weight + bias).to(x.dtype)
""")
    argv = ["op=layernorm", "backend=cpu", f"source={source}", f"target={HOST}", "json=true"]
    more = ["entry=run", "style=return", "torch_ops=allow", "dtypes=[float32,bfloat16]"]
    assert portkern("check", *argv, *more, f"reports={tmp_path}") == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert {(r["workload"]["dtype"], r["verdict"]) for r in records} == {
        ("float32", "passed"),
        ("bfloat16", "passed"),
    }


def test_a_function_of_tensors_without_the_entry_is_told_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.py"
    source.write_text("def another(x):\n    return x\n")
    assert check(source, tmp_path, "entry=run", "style=return", "json=true") == 1
    [record, *_] = json.loads(capsys.readouterr().out)["records"]
    assert record["verdict"] == "build_failed"
    assert "expected def run(x) -> y" in record["detail"]


def test_a_matrix_nobody_can_run_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["ops=relu", "targets=gfx942", "backends=[cpu]", f"reports={tmp_path}", "track=false"]
    assert portkern("matrix", *argv, "run=none", "json=true") == 3
    assert json.loads(capsys.readouterr().out)["exit_code"] == 3


def test_report_is_written_again_from_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["ops=relu", f"targets={HOST}", "backends=cpu", f"reports={tmp_path}", "track=false"]
    assert portkern("matrix", *argv, "run=one") == 0
    first = (tmp_path / "one" / "matrix.md").read_text()
    (tmp_path / "one" / "matrix.md").unlink()
    assert portkern("report", "one", f"reports={tmp_path}") == 0
    assert (tmp_path / "one" / "matrix.md").read_text() == first
    assert "matrix.html" in capsys.readouterr().out


def test_doctor_speaks_json_with_a_reason_for_every_gap(capsys: pytest.CaptureFixture[str]) -> None:
    assert portkern("doctor", "json=true") == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["backends"]) >= {"cpu", "cuda", "hip", "opencl", "pallas", "triton"}
    for backend in document["backends"].values():
        for able in backend["targets"].values():
            assert able["build"] is True or able["build"]
            assert able["run"] or able["run_missing"]
            assert able["emulate"] or able["emulate_missing"]


def test_two_runs_do_not_write_to_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from filelock import FileLock

    (tmp_path / "busy").mkdir()
    with FileLock(tmp_path / "busy" / ".lock"):
        argv = ["ops=relu", f"targets={HOST}", f"reports={tmp_path}", "run=busy"]
        assert portkern("matrix", *argv) == 2
    assert "Another portkern is writing" in capsys.readouterr().err
