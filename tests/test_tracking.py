"""MLflow gets a view of the records, quickly; losing it loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from portkern.records.record import (
    Environment,
    Evidence,
    Record,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.regression.comparison import RunComparison
from portkern.regression.nights import Night
from portkern.report.table import MatrixTable
from portkern.tracking import once, store
from portkern.tracking.matrix_metrics import cell_metrics
from portkern.tracking.matrix_runs import track
from portkern.tracking.store import SkippedLog, Tracked, metric_key

pytest.importorskip("mlflow", reason="extra [tracking] is not installed")
# Of libraries below MLflow; none is ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

ENVIRONMENT = Environment(
    machine="lab1", device="NVIDIA H200", toolchain={"nvcc": "13.0"}, harness_version="0.1.0"
)


def measured(
    op: str, *, target: str = "h200", workload: str = "8x8", ratio: float = 2.0, **also: Any
) -> Record:
    timing = Timing(
        median_us=10,
        ci95_us=(9.5, 10.5),
        p20_us=9,
        p80_us=11,
        n=1,
        noise=0.02,
        samples=[10],
        method="cuda events",
    )
    return Record.model_validate(
        {
            **_place(op, target, workload),
            **also,
            "verdict": Verdict.PASSED,
            "evidence": Evidence.MEASURED,
            "timing": timing,
            "baselines": {"eager": timing},
            "speedup": {"eager": Speedup(value=ratio, ci95=(ratio, ratio))},
        }
    )


def ended(op: str, verdict: Verdict, *, target: str = "h200", workload: str = "8x8") -> Record:
    return Record.model_validate(
        {
            **_place(op, target, workload),
            "verdict": verdict,
            "evidence": Evidence.NONE,
            "detail": "max error 3.2\nlog",
        }
    )


def _place(op: str, target: str, workload: str) -> dict[str, Any]:
    ref = WorkloadRef(set="ci", name=workload, dims={"n": 8}, dtype="float32")
    return {
        "run": "demo",
        "id": f"{op}-{target}-{workload}",
        "time": "2026-01-02T03:04:05Z",
        "key": f"{op}-{target}-{workload}",
        "op": op,
        "workload": ref,
        "backend": "cuda",
        "language": "cuda",
        "target": target,
        "venue": "hardware: NVIDIA H200",
        "source_hash": "0" * 16,
        "author": "catalogue",
        "environment": ENVIRONMENT,
    }


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests here: to create one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def logged(
    records: list[Record],
    *,
    uri: str,
    folder: Path,
    experiment: str,
    comparison: RunComparison | None = None,
) -> Tracked:
    folder.mkdir(exist_ok=True)
    answer = track(
        records,
        experiment=experiment,
        run_name="demo",
        folder=folder,
        uri=uri,
        comparison=comparison,
    )
    assert isinstance(answer, Tracked), answer
    return answer


def runs(uri: str, experiment: str, words: str = "") -> list[Any]:
    mlflow = client(uri)
    return list(
        mlflow.search_runs([mlflow.get_experiment_by_name(experiment).experiment_id], words)
    )


def test_a_matrix_is_a_run_with_a_child_for_each_op_and_target(uri: str, tmp_path: Path) -> None:
    records = [
        measured("relu", workload="8x8", ratio=2.0),
        measured("relu", workload="9x9", ratio=8.0),
        ended("relu", Verdict.UNAVAILABLE, target="mi300x"),
        ended("softmax", Verdict.WRONG),
        measured("softmax", workload="9x9"),
    ]
    answer = logged(records, uri=uri, folder=tmp_path, experiment="shape")
    mlflow = client(uri)
    parent = mlflow.get_run(answer.run_id)
    assert (parent.info.status, parent.data.tags["gate"]) == ("FAILED", "fail")
    assert parent.data.tags["portkern.complete"] == "true"
    assert parent.data.params["machine"] == "lab1"
    assert parent.data.params["toolchain"] == "nvcc 13.0"
    assert (parent.data.tags["machine"], parent.data.tags["device"]) == ("lab1", "NVIDIA H200")
    assert parent.data.tags["toolchain"] == "nvcc 13.0"
    assert parent.data.metrics["cells"] == 5
    assert parent.data.metrics["pass_rate"] == 3 / 4  # the unavailable cell is not counted
    assert [i.dataset.name for i in parent.inputs.dataset_inputs] == ["relu", "softmax"]

    children = mlflow.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{answer.run_id}'"
    )
    by_name = {run.info.run_name: run for run in children}
    assert set(by_name) == {"relu cuda@h200", "softmax cuda@h200"}  # nobody judged mi300x
    relu = by_name["relu cuda@h200"]
    assert relu.data.params["arch"] == "sm_90"
    assert relu.data.tags["dtypes"] == "float32"
    assert relu.data.metrics["speedup/relu/cuda:h200/9x9 float32"] == 8.0
    assert relu.data.metrics["geomean_speedup"] == pytest.approx(4.0)
    assert relu.data.metrics["us/relu/cuda:h200/8x8 float32"] == 10.0
    assert by_name["softmax cuda@h200"].data.tags["gate"] == "fail"


def test_the_run_of_a_matrix_has_every_cells_time(uri: str, tmp_path: Path) -> None:
    answer = logged([measured("relu")], uri=uri, folder=tmp_path, experiment="times")
    run = client(uri).get_run(answer.run_id)
    cell = "relu/cuda:h200/8x8 float32"
    kinds = ("us", "us_low", "us_high", "noise", "speedup")
    assert [run.data.metrics[f"{kind}/{cell}"] for kind in kinds] == [10, 9.5, 10.5, 0.02, 2]
    assert run.info.start_time == run.info.end_time == 1767323045000  # the record's own


def test_the_last_good_matrix_is_found_by_its_gate(uri: str, tmp_path: Path) -> None:
    def night(name: str, record: Record) -> Tracked:
        return logged([record], uri=uri, folder=tmp_path / name, experiment="nightly")

    night("1", ended("relu", Verdict.WRONG))
    good = night("2", measured("relu"))
    night("3", ended("relu", Verdict.CRASHED))
    words = "tags.gate = 'pass' and tags.suite = 'nightly' and tags.kind = 'matrix'"
    (found,) = runs(uri, "nightly", words)
    assert found.info.run_id == good.run_id


def test_a_regression_is_a_gate_of_its_own(uri: str, tmp_path: Path) -> None:
    good, bad = measured("relu"), ended("relu", Verdict.WRONG)
    same = measured("softmax")
    before = Night.of("monday", [good, same])
    regressed = RunComparison.of(before, Night.of("tuesday", [bad, same]), [before])
    answer = logged([bad, same], uri=uri, folder=tmp_path, experiment="gates", comparison=regressed)
    logged_run = client(uri).get_run(answer.run_id)
    tags = logged_run.data.tags
    assert (logged_run.info.status, tags["gate"]) == ("FAILED", "regressed")
    groups = runs(uri, "gates", "tags.kind = 'group'")
    gates = {run.info.run_name: run.data.tags["gate"] for run in groups}
    assert gates == {"relu cuda@h200": "regressed", "softmax cuda@h200": "pass"}
    metrics = client(uri).get_run(answer.run_id).data.metrics
    assert metrics["change/new failure"] == 1
    assert tags["mlflow.note.content"].splitlines() == [
        "1 of 2 cells passed, 1 failed. All of it: *matrix.html* among the artifacts.",
        "",
        "- cuda@h200 relu[ci/8x8, float32]: new failure: wrong: max error 3.2",
        "",
        "tuesday against monday: 1 new failure, 1 insufficient data",
    ]


def test_nights_are_points_of_one_run_over_time(uri: str, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        record = measured("relu", ratio=float(day), time=f"2026-01-0{day}T00:00:00Z")
        logged([record], uri=uri, folder=tmp_path / str(day), experiment="over time")
    (history,) = runs(uri, "over time", "tags.kind = 'history'")
    key = "speedup/relu/cuda:h200/8x8 float32"
    points = client(uri).get_metric_history(history.info.run_id, key)
    assert [(point.step, point.value) for point in points] == [(1, 1), (2, 2), (3, 3)]
    assert {b.timestamp - a.timestamp for a, b in pairwise(points)} == {86_400_000}


def test_a_history_shows_no_time_of_a_busy_machine_and_no_count_that_never_was(
    uri: str, tmp_path: Path
) -> None:
    """A line through it would be a regression that was none; the night's own run has it."""
    quiet = measured("relu", time="2026-01-01T00:00:00Z")
    assert quiet.timing is not None
    busy = quiet.timing.model_copy(update={"median_us": 5000.0, "noisy": "the machine was busy"})
    for day, record in enumerate(
        [quiet, measured("relu", time="2026-01-02T00:00:00Z").model_copy(update={"timing": busy})]
    ):
        answer = logged([record], uri=uri, folder=tmp_path / str(day), experiment="busy")
    key = "us/relu/cuda:h200/8x8 float32"
    assert client(uri).get_run(answer.run_id).data.metrics[key] == 5000
    (history,) = runs(uri, "busy", "tags.kind = 'history'")
    points = client(uri).get_metric_history(history.info.run_id, key)
    assert [point.value for point in points] == [10]
    counted = {name for name in history.data.metrics if name.startswith("verdict/")}
    assert counted == {"verdict/passed"}


def test_the_same_command_again_goes_on_with_its_run(uri: str, tmp_path: Path) -> None:
    first = logged(
        [measured("relu"), ended("softmax", Verdict.CRASHED)],
        uri=uri,
        folder=tmp_path,
        experiment="again",
    )
    again = logged(
        [measured("relu"), measured("softmax", time="2026-01-02T04:00:00Z")],
        uri=uri,
        folder=tmp_path,
        experiment="again",
    )
    assert again.run_id == first.run_id
    (parent,) = runs(uri, "again", "tags.kind = 'matrix'")
    assert parent.data.tags["gate"] == "pass"
    assert parent.data.metrics["verdict/crashed"] == 0
    children = runs(uri, "again", "tags.kind = 'group'")
    assert {run.info.run_name: run.data.tags["gate"] for run in children} == {
        "relu cuda@h200": "pass",
        "softmax cuda@h200": "pass",
    }


def test_a_store_that_is_lost_on_the_way_leaves_no_run_that_seems_at_work(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the request is at which it is lost."""
    from mlflow import MlflowClient

    requests = ["create_run", "set_terminated", "log_inputs", "log_batch", "log_table"]
    for name in requests:
        with monkeypatch.context() as patch:
            send = getattr(MlflowClient, name)

            def dies(*args: Any, send: Any = send, **kwargs: Any) -> None:
                send(*args, **kwargs)
                raise ConnectionError("the server is gone")  # the request arrived, the answer not

            patch.setattr(MlflowClient, name, dies)
            lost = track(
                [measured("relu")], experiment="lost", run_name="x", folder=tmp_path, uri=uri
            )
        assert lost == SkippedLog(f"{uri}: the server is gone")
    (begun,) = runs(uri, "lost", "tags.kind = 'matrix'")
    assert begun.info.status == "FAILED"
    logged([measured("relu")], uri=uri, folder=tmp_path, experiment="lost")
    found = runs(uri, "lost")
    assert {run.info.status for run in found} == {"FINISHED"}
    kinds = [run.data.tags["kind"] for run in found]
    assert sorted(kinds) == ["group", "history", "matrix"]


def test_an_experiment_shows_runs_first_and_is_the_one_of_the_environment(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "kernels of ours")
    answer = logged([measured("relu")], uri=uri, folder=tmp_path, experiment="relu")
    assert answer.experiment == "kernels of ours"
    experiment = client(uri).get_experiment_by_name("kernels of ours")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment.experiment_id)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    again = logged([measured("relu")], uri=uri, folder=tmp_path / "two", experiment="relu")
    assert again.experiment == "kernels of ours"


def test_all_cells_and_the_reports_are_artifacts(uri: str, tmp_path: Path) -> None:
    from mlflow import get_tracking_uri, set_tracking_uri

    (tmp_path / "matrix.html").write_text("<html></html>")
    records = [measured("relu"), ended("softmax", Verdict.WRONG)]
    answer = logged(records, uri=uri, folder=tmp_path, experiment="artifacts")
    mlflow = client(uri)
    names = {file.path for file in mlflow.list_artifacts(answer.run_id)}
    assert names == {"matrix.html", "matrix.json", "records.jsonl"}
    kept = Path(mlflow.download_artifacts(answer.run_id, "records.jsonl", str(tmp_path)))
    assert [Record.from_json(line) for line in kept.read_text().splitlines()] == records
    experiment = mlflow.get_experiment_by_name("artifacts").experiment_id
    before = get_tracking_uri()
    set_tracking_uri(uri)  # load_table asks the default store
    try:
        table = mlflow.load_table(experiment, "matrix.json", run_ids=[answer.run_id])
    finally:
        set_tracking_uri(before)
    assert list(table["verdict"]) == ["passed", "wrong"]
    assert list(table["detail"]) == ["", "max error 3.2"]
    database = Path(uri.removeprefix("sqlite:///"))
    assert (database.parent / "mlruns" / "artifacts" / answer.run_id).is_dir()


@pytest.mark.full
def test_a_thousand_cells_are_logged_in_seconds(uri: str, tmp_path: Path) -> None:
    records = [
        measured(op, target=target, workload=f"{n}x{n}")
        for op in [f"op{i}" for i in range(10)]
        for target in ("h200", "h100", "a100", "l40s", "b200", "sm_90")
        for n in range(1, 18)
    ]
    logged([measured("warm")], uri=uri, folder=tmp_path, experiment="speed")
    start = time.process_time()  # the store is in this process; cores and disk may be others' too
    answer = logged(records, uri=uri, folder=tmp_path, experiment="speed")
    took_s = time.process_time() - start
    assert (len(records), answer.children) == (1020, 60)
    assert took_s < 6


@pytest.mark.full
def test_a_dead_server_is_one_line_and_no_error(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers, nobody else can
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        answer = track([measured("relu")], experiment="e", run_name="r", folder=tmp_path, uri=dead)
    assert isinstance(answer, SkippedLog)
    assert answer.reason.startswith(dead)
    assert "\n" not in str(answer)
    assert time.monotonic() - start < 60


def test_a_store_that_mlflow_refuses_is_one_line(tmp_path: Path) -> None:
    for uri in (f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}", "nonsense://x"):
        (tmp_path / "file").write_text("not a folder")
        answer = track([measured("relu")], experiment="e", run_name="r", folder=tmp_path, uri=uri)
        assert isinstance(answer, SkippedLog)
        assert "\n" not in str(answer)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:secret@host:5000/x", "https://host:5000/x"),
        ("postgresql://me:sec/r@et@db/runs?password=secret", "postgresql://db/runs"),
        ("https://host/x", "https://host/x"),
        ("sqlite:////a@b/mlflow.db", "sqlite:////a@b/mlflow.db"),
        ("databricks", "databricks"),
    ],
)
def test_a_password_of_an_address_is_not_shown(
    uri: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.public(uri) == shown
    answer = store.sent(_refused, experiment="e", uri=uri if "secret" in uri else "nonsense://x")
    assert isinstance(answer, SkippedLog)
    assert "secret" not in str(answer)
    assert not [path for path in tmp_path.rglob("*") if "me:" in str(path)]


def _refused(place: object) -> None:
    raise OSError(f"cannot use {place}")


@pytest.mark.parametrize("tracked", [{"uri": 1}, {"evil": "x"}, [], None])
def test_a_forged_note_of_a_run_is_none(
    tracked: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    (tmp_path / "mlflow.db").write_text("")
    monkeypatch.setattr(once, "sent", lambda *_, **__: SkippedLog("asked anew"))
    of = [[uri, "e", *map(os.environ.get, once._CHOOSES)], "d"]
    note = {"token": "t", "of": of, "tracked": tracked}
    (tmp_path / once.NOTE).write_text(json.dumps(note))
    answer = once.once(
        lambda *_: Tracked(uri, "e", "r", 1), tmp_path, experiment="e", digest="d", uri=uri
    )
    assert answer == SkippedLog("asked anew")


def test_no_records_no_run(tmp_path: Path) -> None:
    answer = track([], experiment="e", run_name="r", folder=tmp_path)
    assert answer == SkippedLog("there are no records")


@pytest.mark.full
def test_the_default_store_is_where_mlflow_ui_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that meet in an empty folder both log: one of them creates the database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record = measured("relu").to_json()
    script = (
        "import sys; from pathlib import Path;"
        "from portkern.records.record import Record;"
        "from portkern.tracking.matrix_runs import track;"
        "records = [Record.from_json(sys.argv[1])];"
        "print(track(records, experiment='e', run_name='r', folder=Path('none')))"
    )
    argv = [sys.executable, "-W", "ignore", "-c", script, record]
    both = [
        subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert all("MLflow run" in line for line in said), said
    found = client(f"sqlite:///{tmp_path / 'mlflow.db'}").search_runs(["1"])
    assert sorted(run.data.tags["kind"] for run in found) == sorted(
        [*2 * ["matrix", "group"], "history"]
    )


@contextmanager
def server(folder: Path, port: int, *words: str, **environment: str) -> Iterator[Any]:
    """A real one on this machine, which answers when the block begins."""
    argv = [sys.executable, "-W", "ignore", "-m", "mlflow", "server", "--port", str(port)]
    argv += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}", "--workers", "1", *words]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            argv, cwd=folder, env=os.environ | environment, stderr=log, start_new_session=True
        )
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.full
def test_a_server_that_is_killed_has_no_run_at_work_when_it_is_back(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    records = [measured(f"op{i}") for i in range(4)]
    uri = f"http://127.0.0.1:{port}"
    with server(tmp_path, port) as process, monkeypatch.context() as patch:
        send, begun = MlflowClient.create_run, []

        def begins(*args: Any, **kwargs: Any) -> Any:
            begun.append(send(*args, **kwargs))
            if len(begun) == 3:  # the second of the groups
                os.killpg(process.pid, signal.SIGKILL)
            return begun[-1]

        patch.setattr(MlflowClient, "create_run", begins)
        lost = track(records, experiment="e", run_name="n", folder=tmp_path, uri=uri)
    assert isinstance(lost, SkippedLog)
    with server(tmp_path, port):
        logged(records, uri=uri, folder=tmp_path, experiment="e")
        found = runs(uri, "e")
    assert {run.info.status for run in found} == {"FINISHED"}
    kinds = Counter(run.data.tags["kind"] for run in found)
    assert kinds == {"matrix": 1, "history": 1, "group": 4}


@pytest.mark.drawn
def test_a_server_with_users_is_logged_in_to(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flask_wtf", reason="MLflow's server with users needs Flask-WTF")
    uri = f"http://127.0.0.1:{port}"
    password = "a long password"
    secrets = {"MLFLOW_AUTH_ADMIN_PASSWORD": password, "MLFLOW_FLASK_SERVER_SECRET_KEY": "k"}
    with server(tmp_path, port, "--app-name", "basic-auth", **secrets):
        anyone = track([measured("relu")], experiment="e", run_name="n", folder=tmp_path, uri=uri)
        assert isinstance(anyone, SkippedLog)
        assert "401" in anyone.reason
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        answer = logged([measured("relu")], uri=uri, folder=tmp_path, experiment="e")
    page = f"runs/{answer.run_id}?workflowType=machine_learning"
    assert str(answer).endswith(f"in {uri}/#/experiments/{answer.experiment_id}/{page}")


def test_libraries_are_told_to_stay_at_home_before_they_load() -> None:
    import portkern  # noqa: F401

    assert os.environ["MLFLOW_DISABLE_TELEMETRY"]
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert os.environ["POCL_CACHE_DIR"]


@given(st.lists(st.text(min_size=1, max_size=300), min_size=2, max_size=2, unique=True))
@example(["us/relu.top@1/cpu", "us/relu.top_1/cpu"])
@example(["us/" + "x" * 260 + "1", "us/" + "x" * 260 + "2"])
def test_two_names_are_never_one_metric(names: list[str]) -> None:
    keys = [metric_key(name) for name in names]
    assert keys[0] != keys[1]
    assert all(re.fullmatch(r"[\w\-. :/]{1,250}", key) for key in keys)


def test_sizes_of_two_sets_with_one_name_are_two_metrics() -> None:
    first = measured("relu")
    other = first.model_copy(update={"workload": first.workload.model_copy(update={"set": "edge"})})
    [group] = MatrixTable.of([first, other]).cells.values()
    assert len(cell_metrics(group, ("us",))) == 2
