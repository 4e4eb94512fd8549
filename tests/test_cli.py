"""The command line as a user meets it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from portkern.cells.selection import RunStage, host_targets
from portkern.cli import config, main
from portkern.cli.config import quoted, resolve
from portkern.cli.verbs import doctor
from portkern.cli.verbs.check import CheckOptions
from portkern.errors import ConfigError
from portkern.sandbox import session
from portkern.sandbox.jail import Layers
from portkern.spec import registry

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


@pytest.mark.parametrize(("verb", "begun"), [("check", 2), ("tune", 1), ("report", 0)])
def test_a_verb_that_runs_kernels_has_its_fork_servers_begun_before_its_options_are_read(
    verb: str, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: dict[tuple[str, ...], session.ForkServer] = {}
    monkeypatch.setattr(session, "_SERVERS", servers)
    seen: list[int] = []

    def resolve(*_: object) -> object:
        seen.extend(server._process.pid for server in servers.values() if server._process)
        raise ConfigError("the options cannot be read")

    monkeypatch.setattr(importlib.import_module(f"portkern.cli.verbs.{verb}"), "resolve", resolve)
    assert portkern(verb, "op=relu") == 2
    assert len(seen) == begun
    assert not any(map(psutil.pid_exists, seen)), "and it does not outlive the verb"


def test_a_server_that_ran_before_a_verb_runs_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_SERVERS", {})
    before = session.server(("torch",))
    monkeypatch.setattr(before, "begin", lambda: False)  # as when it runs
    assert portkern("check", "nothing=1") == 2
    assert session.server(("torch",)) is before


def test_who_names_no_checker_waits_for_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr(registry, "load", load)
    assert RunStage.parse("best", ["none"]) == RunStage("best")
    with pytest.raises(AssertionError):
        RunStage.parse("best", ["all"])


def test_bytecode_of_a_torch_that_has_none_is_kept_in_the_cache(tmp_path: Path) -> None:
    """The bytecode may lie beside a module, or Python writes it there: then nothing is changed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    ask = "import sys, portkern.cli.main as m; m._keep_bytecode(); print(sys.pycache_prefix)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PORTKERN_CACHE_DIR": str(tmp_path)}
    environment.pop("PYTHONPYCACHEPREFIX", None)

    def prefix(settings: Mapping[str, str]) -> str:
        command = [sys.executable, "-c", ask]
        run = subprocess.run(
            command, env={**environment, **settings}, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    assert prefix({"PYTHONDONTWRITEBYTECODE": "1"}) == str(tmp_path / "bytecode")
    assert prefix({"PYTHONDONTWRITEBYTECODE": ""}) == "None"


def test_help_answers_fast_and_imports_nothing_heavy() -> None:
    code = "import sys, time; from portkern.cli import main; main.run(['--help'])\n"
    code += "print(sorted(sys.modules)); print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took_s = float(done.stdout.splitlines()[-1])  # of a processor, whatever else the machine does
    assert took_s < 1.0  # 0.3 s on a quiet machine; benchmarks/startup.py
    for heavy in ("torch", "hydra", "pydantic", "mlflow", "triton", "jax", "scipy", "numpy"):
        assert f"'{heavy}'" not in done.stdout


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_documents_every_option(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    import dataclasses

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
        (["matrix", "rounds=abc"], "Got rounds=abc, expected a whole number"),
        (["matrix", "budget_s=x"], "Got budget_s=x, expected a number"),
        (["matrix", "json=perhaps"], "Got json=perhaps, expected true or false"),
        (
            ["matrix", "ops=relu,add"],
            "ops=relu,add': a comma outside of brackets and quotes",
        ),
        (["matrix", "tags=[a"], "Cannot read 'tags=[a'"),
        (["run"], "source= is required; 'portkern run --help' says what it takes"),
        (["matrix", "rounds=0"], "Got rounds=0, expected a number from 1 to 100000"),
        (["matrix", "baselines=[slow]"], "Got baseline 'slow', expected 'eager' or 'compile'"),
        (["matrix", "ops=relo"], "No op 'relo'; did you mean 'relu'?"),
        (["matrix", "run=a/b"], "Got run='a/b', expected a folder name such as 'nightly'"),
        (["matrix", "ops"], "Got 'ops', expected key=value"),
        (["check", "op=relu", "backend=cpu"], "source= is required"),
        (["check", "nothing, at all.cpp", "op=relu", "backend=cpu"], "Cannot read nothing, at"),
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
    return portkern("check", *argv, "rounds=2", "budget_s=0", *more)


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
    assert 'extern "C" int relu(' in document["records"][0]["detail"]


@pytest.mark.parametrize(
    ("returned", "code", "verdict", "told"),
    [
        ("torch.from_numpy(numpy.maximum(x.numpy(), 0))", 0, "passed", ""),
        ("x.double().clamp_min(0)", 1, "wrong", "output 'y' is float64[1000], expected float32"),
        ("numpy.maximum(x.numpy(), 0)", 1, "crashed", "of type ndarray, expected a torch.Tensor"),
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
    more += ["rounds=2", "budget_s=0"]
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
    assert "def run(x) -> y" in record["detail"]


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
    assert portkern("matrix", *argv, "rounds=2", "budget_s=0", "run=one") == 0
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


def examined(
    build: bool | str, *, emulate: str = "", execute: str = "", run: str = "", n: int = 1
) -> doctor.Examined:
    """An examination of ``n`` targets, the last of which cannot be built for if ``build`` says
    why."""
    able: doctor.Abilities = {
        "build": build,
        "emulate": emulate or False,
        "emulate_missing": "",
        "execute": execute or False,
        "execute_missing": "",
        "run": run or False,
        "run_missing": "",
    }
    return {"toolchain": {}, "terms": {}, "targets": {f"t{i}": able for i in range(n)}}


def test_doctor_says_in_seven_lines_what_works_what_is_missing_and_what_adds_it() -> None:
    backends = {
        "cpu": examined(True, run="this CPU", n=2),
        "cuda": examined(True, emulate="SIMT executor", n=9),
        "hip": examined("no clang; pip install 'portkern[hip]' or install ROCm", n=9),
        "triton": examined(True, execute="AMD executor", n=5),
        "numba": examined("Numba is not installed; pip install 'portkern[numba]'"),
        "own": examined("no such tool; ask its maker"),
    }
    layers = Layers(frozenset(), {})
    lines = doctor.summary(doctor._machine(), layers, backends)
    assert len(lines) == 7
    text = "\n".join(lines)
    assert "times kernels:  cpu on t0 t1\n" in text
    assert "emulates:       cuda on 9 targets\n" in text
    assert "executes:       triton on 5 targets (compiled objects, on this CPU)\n" in text
    assert "builds:         cpu cuda triton; confined by" in text
    assert "hip: no clang; numba: Numba is not installed; own: no such tool\n" in text
    assert "to add:         pip install 'portkern[hip,numba]';" in text


def test_doctor_without_a_gap_says_what_has_no_times_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    backends = {"cpu": examined(True, run="this CPU"), "cuda": examined(True, emulate="SIMT")}
    text = "\n".join(doctor.summary(doctor._machine(), Layers(frozenset(), {}), backends))
    assert "missing:        cuda: no GPU of theirs here, so no times" in text
    assert "to add:         nothing that pip has" in text
    assert portkern("doctor") == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert portkern("doctor", "verbose=true") == 0
    assert "builds for" in capsys.readouterr().out


def test_a_kernels_file_says_which_backend_it_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.hip"
    source.write_text("no kernel")
    argv = ["check", "op=relu", f"source={source}", f"reports={tmp_path}", "target=mi300x"]
    assert portkern(*argv) == 1
    assert capsys.readouterr().out.startswith("hip@mi300x relu")


def test_a_backend_is_asked_for_where_the_file_leaves_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.py"
    source.write_text("import math\n")
    assert portkern("check", "op=relu", f"source={source}") == 2
    assert "expected one of cpu, opencl, pallas, triton" in capsys.readouterr().err


@given(st.text(st.sampled_from("${}\\'\"=,:[] \nab.")))
@example("${oc.env:HOME}")
@example("it's \\${x}\\")
def test_a_quoted_value_is_what_it_was_and_nothing_is_looked_up_in_it(text: str) -> None:
    options = resolve("check", CheckOptions, [f"entry={quoted(text)}", f"source=[{quoted(text)}]"])
    assert (options.entry, options.source) == (text, [text])


@pytest.mark.parametrize(
    "overrides",
    [
        ["op=softmax", "serve=always", "timed=false", "source=['a b.cpp','c/d.cpp']"],
        ["rounds=7", "dtypes=[float32,float16]", "budget_s=1", "op=relu", "op=softmax"],
        ["op='${oc.env:HOME}'"],
        [r"op='\${oc.env:HOME}'"],
        ["op=a=b"],
        ["op="],
        ["op=null"],
        ["timed=maybe"],
        ["rounds=0"],
        ["rounds=1.5"],
        ["opp=1"],
        ["+op=x"],
        ["op=a,b"],
        ["op@x=2"],
        ["source.x=1"],
        ["workloads={a:1}"],
        ["preset=quick"],
    ],
    ids=" ".join,
)
def test_options_composed_ahead_are_those_that_hydra_composes(
    overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolved() -> object:
        try:
            return config.resolve("check", CheckOptions, overrides)
        except ConfigError as error:
            return str(error)

    monkeypatch.setattr(config, "_BARE", {})
    composed = resolved()
    config.compose_ahead("check", CheckOptions)
    assert resolved() == composed


def test_options_that_were_composed_ahead_are_not_composed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "_BARE", {})
    config.compose_ahead("check", CheckOptions)
    monkeypatch.delattr(config, "_compose")
    assert config.resolve("check", CheckOptions, ["op=softmax", "rounds=7"]).rounds == 7
    assert config.resolve("check", CheckOptions, []).op == ""


def test_a_command_ends_the_servers_that_it_begins_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "_preloads", lambda verb, words: iter([("string",)]))
    others = session.server(("json",))
    others.begin()
    with main._workers_ahead("check", []):
        own, further = session.server(("string",)), session.server(("csv",))
        assert not own.begin() and further.begin()
    assert session.server(("json",)) is others and not others.begin()
    assert not {own, further} & {session.server(("string",)), session.server(("csv",))}
    session.close_servers(others, session.server(("string",)), session.server(("csv",)))
