"""Plans: what is to run leaves as one file, runs on a machine that has little, and comes home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from dataclasses import replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.cells import unavailable
from portkern.cells.selection import GivenFiles, RunStage, Selection, host_targets
from portkern.cli import main
from portkern.errors import ConfigError, RecordError
from portkern.evaluator.trial import TrialOptions
from portkern.execution.installation import Portkern
from portkern.execution.needed import NEEDED
from portkern.execution.plan import ExecutionPlan
from portkern.execution.question import Question
from portkern.execution.returned import Returned
from portkern.records.record import Evidence, Record, RecordFile, Verdict
from portkern.regression.runs import RunFacts
from portkern.spec.safe_name import SafeName

HOST = host_targets()[0]
#: What a machine that runs plans lacks, as an import of it would find.
LACKING = ("hydra", "omegaconf", "antlr4", "mlflow", "litellm", "rich", "scipy", "optuna")
RELU = """\
#include "clamp.h"
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = clamped(x[i]);
    return 0;
}
"""
CLAMP = "template <class T> T clamped(T x) { return x < T(0) ? T(0) : x; }\n"
QUICK = ["rounds=1", "budget_s=0"]


def portkern(*argv: str) -> int:
    return main.run(list(argv))


def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def planned(folder: Path, *options: str, name: str = "plan.json") -> Path:
    assert portkern("matrix", *options, *QUICK, f"plan={folder / name}", "run=night") == 0
    return folder / name


def moved(plan: Path, folder: Path) -> Path:
    """The plan as a machine without a network gets it: its file alone."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(plan, folder / plan.name))


def records(path: Path) -> list[Record]:
    return RecordFile(path).read()[0]


def selection(**changes: object) -> Selection:
    asked = Selection(["relu", "softmax"], [HOST, "sm_90"], ["cpu", "cuda"], ["ci"], ["float32"])
    return replace(asked, elsewhere=True, **changes)  # type: ignore[arg-type]


# ---- the document


def test_a_plan_holds_every_cell_as_it_was_asked(tmp_path: Path) -> None:
    cells = selection(dtypes=["float32", "bfloat16"], stage=RunStage("best", ("races",))).cells()
    plan = ExecutionPlan.of(cells, TrialOptions(), "night")
    plan.write(tmp_path / "plan.json")
    again = ExecutionPlan.read(tmp_path / "plan.json")
    assert again == plan
    loaded = again.load_cells(tmp_path)
    assert loaded == cells
    assert [cell.key for cell in loaded] == [cell.key for cell in cells]
    assert again.trial_options == TrialOptions()
    assert {Question.of_planned(plan, c) for c in plan.cells} == set(map(Question.of_cell, cells))


def test_a_plan_holds_kernels_to_what_their_run_holds_them_to(tmp_path: Path) -> None:
    (cell,) = selection(ops=["matmul"], targets=[HOST], backends=["cpu"]).cells()[:1]
    reduced = replace(cell.op, precision="allow_reduced")
    asked = [replace(cell, op=reduced, library="forbid"), replace(cell, op=reduced)]
    loaded = ExecutionPlan.of(asked, TrialOptions(), "night").load_cells(tmp_path)
    assert [one.op.precision for one in loaded] == ["allow_reduced"] * 2
    assert [one.library for one in loaded] == ["forbid", "allow"]


def test_the_headers_of_a_kernel_travel_with_it(tmp_path: Path) -> None:
    (tmp_path / "relu.cpp").write_text(RELU)
    (tmp_path / "clamp.h").write_text(CLAMP)
    asked = selection(ops=["relu"], kernels=GivenFiles([tmp_path / "relu.cpp"]))
    plan = ExecutionPlan.of(asked.cells(), TrialOptions(), "night")
    assert CLAMP in [
        text for kernel in plan.kernels.values() for _, text in kernel.companions.files
    ]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    ExecutionPlan.of(selection().cells(), TrialOptions(), "night").write(path)
    return path.read_text()


@given(st.data())
def test_half_a_plan_is_not_a_plan(document: str, data: st.DataObject) -> None:
    half = document[: data.draw(st.integers(0, len(document.rstrip()) - 1))]
    with pytest.raises(ConfigError, match="is not a plan, or not all of one") as refused:
        ExecutionPlan.parse(half, "plan.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rounds": 5', '"rounds": 6', "is not as it was written: its digest is"),
        ('"run": "night"', '"run": "other"', "is not as it was written"),
        ('"schema": 1', '"schema": 2', "schema 2, this portkern reads 1"),
        ('"seeds": "secret"', '"seeds": 7', "seeds: Input should be 'secret'"),
        ('"workload": "1000"', '"workload": "1001"', "no workload 'ci'/'1001' of 'relu'"),
        (f'"target": "{HOST}"', '"target": "sm_1"', "the target or the kernel of"),
    ],
)
def test_a_plan_that_was_changed_is_refused(
    document: str, old: str, new: str, message: str
) -> None:
    assert old in document
    with pytest.raises(ConfigError, match=re.escape(message)):
        ExecutionPlan.parse(document.replace(old, new), "plan.json")


@pytest.mark.parametrize("changed", ["version", "evaluator", "backends"])
def test_another_portkern_refuses_the_plan(
    changed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    other = Portkern.here().model_copy(update={changed: "0.0.9"})
    foreign = plan.model_copy(update={"portkern": other, "id": ""})
    foreign = foreign.model_copy(update={"id": foreign._digest()})
    foreign.write(tmp_path / "plan.json")
    assert portkern("execute", str(tmp_path / "plan.json")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("portkern: error: The plan was written by portkern ")
    assert "0.0.9" in line
    assert "install the same portkern on both machines" in line
    assert not (tmp_path / "plan.records.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["execute"], "plan= is required"),
        (["execute", "no.json"], "No plan no.json; 'portkern matrix … plan=no.json' writes one"),
        (["execute", "."], "Cannot read .: Is a directory"),
        (["execute", "no.json", "oout=a"], "No option 'oout'; did you mean 'out'?"),
        (["execute", "no.json", "fresh=2"], "Got fresh=2, expected true or false"),
        (["execute", "no.json", "more"], "Got 'more', expected key=value"),
        (["import", "records", "no.jsonl"], "No file no.jsonl"),
        (["matrix", "ops=relu", "plan=there"], "there exists already; 'portkern execute there'"),
        (["matrix", "plan=x", "baseline=last_green"], "Got baseline= with plan="),
    ],
)
def test_a_wrong_command_is_one_line(
    argv: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    assert portkern(*argv) == 2
    assert message in capsys.readouterr().err


def test_a_plan_that_does_not_fit_on_the_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit on the size of files ends a write in its middle, as a full disk does."""
    import resource

    argv = ["matrix", "ops=relu", "targets=sm_90", "run=r", f"reports={tmp_path}"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        assert portkern(*argv, f"plan={tmp_path / 'plan.json'}") == 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    [line] = capsys.readouterr().err.splitlines()
    assert "Cannot write " in line
    assert "make room there" in line
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_operator_that_changed_since_is_refused(tmp_path: Path) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    relu = SafeName("relu")
    ops = plan.ops | {relu: plan.ops[relu].model_copy(update={"digest": "0" * 12})}
    with pytest.raises(ConfigError, match="The operator relu is another here"):
        plan.model_copy(update={"ops": ops}).load_cells(tmp_path)


def test_a_file_of_a_plan_stays_in_its_folder(tmp_path: Path) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    own = {"files": {"../x.py": "1"}, "asked": "../x.py"}
    bad = plan.ops[SafeName("relu")].model_copy(update=own)
    with pytest.raises(ConfigError, match=r"Got the file of an operator '\.\./x\.py', which"):
        bad.load(tmp_path / "ops")
    assert list(tmp_path.iterdir()) == []


# ---- there and back


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # of libraries below MLflow
def test_a_plan_gives_the_verdicts_that_a_run_here_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan has a right kernel with a header of its own, a wrong one, and targets that nothing
    is for."""
    folder = home(tmp_path, monkeypatch)
    (folder / "kernels").mkdir()
    (folder / "kernels" / "relu.cpp").write_text(RELU)
    (folder / "kernels" / "clamp.h").write_text(CLAMP)
    (folder / "kernels" / "relu.bad.cpp").write_text(RELU.replace("= clamped", "= -clamped"))
    asked = ["kernels=kernels", f"targets=[{HOST},sm_90]", "backends=[cpu,cuda]"]
    plan = planned(folder, *asked)
    assert portkern("matrix", *asked, *QUICK, "run=direct", "track=false") == 1
    shutil.rmtree(folder / "kernels")
    there = moved(plan, tmp_path / "there")
    assert portkern("execute", str(there)) == 1
    brought = there.with_suffix(".records.jsonl")
    assert portkern("import", "records", str(brought)) == 1
    direct, back = (
        records(folder / "reports/direct/records.jsonl"),
        records(folder / "reports/night/records.jsonl"),
    )
    assert {r.key: r.verdict for r in back} == {r.key: r.verdict for r in direct}
    assert {r.run for r in back} == {"night"}
    assert {r.verdict for r in back} == {Verdict.PASSED, Verdict.WRONG, Verdict.UNSUPPORTED}
    assert (folder / "reports/night/matrix.html").is_file()
    assert {"night", "direct"} & names_in_mlflow(folder / "mlflow.db") == {"night"}
    assert portkern("diff", "direct", "night", "json=true") == 0
    said = capsys.readouterr().out
    assert "new failure" not in said
    before = (folder / "reports/night/records.jsonl").read_bytes()
    assert portkern("import", "records", str(brought)) == 1
    assert (folder / "reports/night/records.jsonl").read_bytes() == before


def names_in_mlflow(database: Path) -> set[str]:
    """The names of the runs in the database."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return {str(run.info.run_name) for run in client.search_runs(experiments)}


@pytest.mark.full
def test_inputs_are_drawn_where_the_plan_runs_and_differ_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of a kernel show that two runs of one plan have seen other values."""
    plan = planned(home(tmp_path, monkeypatch), "ops=softmax", f"targets={HOST}", "backends=cpu")
    for out in ("a.jsonl", "b.jsonl"):
        assert portkern("execute", str(plan), f"out={tmp_path / out}") == 0
    first, second = (
        [r.errors.vs_fp64 for r in records(tmp_path / out) if r.errors]
        for out in ("a.jsonl", "b.jsonl")
    )
    assert len(first) == len(second) > 0
    assert first != second


@pytest.mark.full
def test_the_operator_of_a_pytorch_file_travels_with_its_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's change of the sheet holds there, and nothing is traced again."""
    folder = home(tmp_path, monkeypatch)
    (folder / "double.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * 2\n\n\ndef get_inputs():\n    return [torch.randn(8, 16)]\n"
    )
    assert portkern("op", "double.py") == 0
    sheet = folder / "double.op.yaml"
    (line,) = [one for one in sheet.read_text().splitlines() if one.startswith("name:")]
    sheet.write_text(sheet.read_text().replace(line, "name: twice"))
    (folder / "twice.cpp").write_text(
        'extern "C" int twice(const scalar_t* x, scalar_t* y, int64_t a, int64_t b) {\n'
        "    for (int64_t i = 0; i < a * b; ++i) y[i] = x[i] * 2;\n    return 0;\n}\n"
    )
    asked = ["ops=double.py", "source=twice.cpp", f"targets={HOST}", "backends=cpu"]
    there = moved(planned(folder, *asked), tmp_path / "there")
    shutil.rmtree(folder)
    tmp_path.joinpath("elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    from portkern.evaluator import from_torch

    monkeypatch.setattr(from_torch, "_traced", lambda *_, **__: pytest.fail("it was traced"))
    assert portkern("execute", str(there)) == 0
    assert {r.op for r in records(there.with_suffix(".records.jsonl"))} == {"twice"}


@pytest.mark.full
def test_stored_inputs_of_a_workload_travel_with_a_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    save = pytest.importorskip("safetensors.torch").save_file
    from .test_formats_in import DEFINITION, picked

    folder = home(tmp_path, monkeypatch)
    (folder / "data").mkdir()
    (folder / "picked.json").write_text(json.dumps(DEFINITION))
    (folder / "picked.jsonl").write_text(picked("data/a.safetensors"))
    save({"places": torch.tensor([5, 0, 2], dtype=torch.int32)}, folder / "data/a.safetensors")
    (folder / "picked.cpp").write_text(
        'extern "C" int picked(const scalar_t* x, const int32_t* places, scalar_t* y, '
        "int64_t n, int64_t m) {\n    for (int64_t i = 0; i < m; ++i)\n"
        "        for (int j = 0; j < 4; ++j) y[i * 4 + j] = x[places[i] * 4 + j];\n"
        "    return 0;\n}\n"
    )
    asked = ["ops=picked.json", "source=picked.cpp", f"targets={HOST}", "backends=cpu"]
    there = moved(planned(folder, *asked), tmp_path / "there")
    shutil.rmtree(folder)
    monkeypatch.chdir(tmp_path)
    assert portkern("execute", str(there)) == 0


@pytest.mark.drawn
def test_a_killed_run_of_a_plan_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["ops=[relu,add,transpose]", f"targets={HOST}", "backends=cpu"]
    plan = planned(home(tmp_path, monkeypatch), *asked)
    argv = [sys.executable, "-m", "portkern.cli", "execute", str(plan)]
    path = plan.with_suffix(".records.jsonl")
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (path.exists() and path.stat().st_size) and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = records(path)
    cells = len(ExecutionPlan.read(plan).cells)
    assert 0 < len(before) < cells
    with path.open("a") as file:
        file.write('{"schema": 1, "run":')  # as a writer that was killed in a line leaves it
    assert portkern("execute", str(plan)) == 0
    after = records(path)
    assert len(after) == len({r.key for r in after}) == cells
    assert {r.id for r in before} <= {r.id for r in after}


# ---- what is refused at home


def brought(tmp_path: Path, plan: ExecutionPlan, *changes: dict[str, object]) -> Path:
    """A file of records that were changed, as the first cell of the plan would give one."""
    from portkern.cells.to_record import unbuilt

    (cell, *_) = [cell for cell in plan.load_cells(tmp_path) if cell.ruled_out]
    record = unbuilt(plan.label, cell)
    path = tmp_path / "back.jsonl"
    path.unlink(missing_ok=True)
    RecordFile(path).append([record.model_copy(update=change) for change in changes])
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "gfx942"}, "is of no cell of the plan"),
        ({"source_hash": "feed"}, "is of no cell of the plan"),
        ({"op": "softmax2"}, "is of no cell of the plan"),
        ({"run": "night#0123456789abcdef"}, "expected 'night#"),
    ],
)
def test_a_record_that_is_not_of_the_plan_is_refused_with_all_that_came_with_it(
    change: dict[str, object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    plan.write(tmp_path / "plan.json")
    path = brought(tmp_path, plan, {}, {"id": "other", **change})
    argv = ["import", "records", str(path), f"plan={tmp_path / 'plan.json'}"]
    assert portkern(*argv, f"reports={tmp_path / 'reports'}") == 2
    assert f"{path}: record 2" in (said := capsys.readouterr().err)
    assert message in said
    assert not (tmp_path / "reports/night/records.jsonl").exists()


def test_records_of_another_plan_or_of_none_are_refused(tmp_path: Path) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    other = ExecutionPlan.of(selection(ops=["relu"]).cells(), TrialOptions(), "night")
    with pytest.raises(ConfigError, match=f"of the plan {plan.id}, got the plan {other.id}"):
        Returned.read(brought(tmp_path, plan, {})).check(other)
    for run in ("night", "night#", "night#../../x"):
        with pytest.raises(ConfigError, match="of no plan"):
            Returned.read(brought(tmp_path, plan, {"run": run}))


def test_records_of_another_portkern_are_refused(tmp_path: Path) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    environment = {"machine": "m", "device": "", "harness_version": "0.0.9"}
    path = brought(tmp_path, plan, {})
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "environment": environment}) + "\n")
    with pytest.raises(RecordError, match=r"is of portkern 0\.0\.9, the plan of"):
        Returned.read(path).check(plan)


def test_a_record_twice_in_a_file_is_taken_once(tmp_path: Path) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    returned = Returned.read(brought(tmp_path, plan, {}, {}))
    returned.check(plan)
    assert [record.run for record in returned.new([], "night")] == ["night"]


def test_a_file_with_records_of_another_plan_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    plan.write(tmp_path / "plan.json")
    path = brought(tmp_path, plan, {"run": "night#0123456789abcdef"})
    before = path.read_bytes()
    assert portkern("execute", str(tmp_path / "plan.json"), f"out={path}") == 2
    assert "choose another out=FILE" in capsys.readouterr().err
    assert path.read_bytes() == before


# ---- a machine that has little


@pytest.mark.full
def test_a_plan_runs_where_hydra_and_mlflow_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(home(tmp_path, monkeypatch), "ops=relu", f"targets={HOST}", "backends=cpu")
    code = (
        "import sys\n"
        f"for name in {LACKING!r}: sys.modules[name] = None\n"
        "from portkern.cli import main\n"
        f"sys.exit(main.run(['execute', {str(plan)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Verdict.PASSED in {r.verdict for r in records(plan.with_suffix(".records.jsonl"))}


def test_what_a_machine_lacks_is_named_in_one_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('psutil', 'tree_sitter_cuda'): sys.modules[name] = None\n"
        "from portkern.cli import main\n"
        "sys.exit(main.run(['execute', 'plan.json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "lacks what a plan needs to run: psutil tree-sitter-cuda; carry" in done.stderr
    assert done.stderr.count("\n") == 1


def _with_dependencies(names: list[str]) -> set[str]:
    """Distributions that are installed here, by what each requires without extras."""
    needed: set[str] = set()
    while names:
        name = names.pop()
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        if name not in needed:
            needed.add(name)
            plain = [text for text in requires if "extra ==" not in text]
            names += [re.split(r"[^\w.-]", text)[0] for text in plain]
    return needed


def _linked(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, to)
    except OSError:  # of another file system
        shutil.copyfile(file, to)


@pytest.mark.full
def test_a_plan_runs_in_an_environment_of_what_is_stated_to_be_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment of these distributions, of what they require, and portkern."""
    plan = planned(home(tmp_path, monkeypatch), "ops=relu", f"targets={HOST}", "backends=cpu")
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    for name in {*_with_dependencies([*NEEDED.values()]), "portkern"}:
        (installed,) = Distribution.discover(name=name, path=[sysconfig.get_paths()["purelib"]])
        for file in installed.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                _linked(Path(str(installed.locate_file(file))), site / file)
    argv = [str(tmp_path / "venv/bin/python"), "-m", "portkern.cli", "execute", str(plan)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    lacks = f"import importlib.util as u; print([n for n in {LACKING!r} if u.find_spec(n)])"
    code = [argv[0], "-c", lacks]
    done = subprocess.run(code, capture_output=True, text=True, env=own, check=False)
    assert done.stdout == "[]\n", done.stderr
    done = subprocess.run(argv, capture_output=True, text=True, env=own, check=False)
    assert done.returncode == 0, done.stderr
    assert Verdict.PASSED in {r.verdict for r in records(plan.with_suffix(".records.jsonl"))}


def test_a_toolchain_that_was_not_there_is_named_with_its_remedy_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ExecutionPlan.of(selection().cells(), TrialOptions(), "night")
    plan.write(tmp_path / "plan.json")
    lacks = {"verdict": Verdict.UNAVAILABLE, "detail": "no compiler; pip install 'it[all]'\nlog"}
    path = brought(tmp_path, plan, {"id": "a", **lacks}, {"id": "b", **lacks})
    argv = ["import", "records", str(path), f"plan={tmp_path / 'plan.json'}", "track=false"]
    assert portkern(*argv, f"reports={tmp_path / 'reports'}") == 3
    [one] = RunFacts.read(tmp_path / "reports" / "night").remarks
    assert one.endswith(": no compiler; pip install 'it[all]'") and "cell unavailable" in one
    assert f"portkern: {one}" in capsys.readouterr().err
    two = [record.model_copy(update=lacks) for record in records(path)]
    built = two[0].model_copy(update={"evidence": Evidence.BUILT})
    assert [line.count("2 cells unavailable") for line in unavailable.lines([*two, built])] == [1]
