"""MLflow gets a view of the records, quickly; losing it loses nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from portkern.records.record import (
    Environment,
    Evidence,
    Record,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.tracking.matrix_runs import Skipped, Tracked, track

pytest.importorskip("mlflow", reason="extra [tracking] is not installed")
# Of libraries below MLflow; none is ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

ENVIRONMENT = Environment(
    machine="lab1", device="NVIDIA H200", toolchain={"nvcc": "13.0"}, harness_version="0.1.0"
)


def measured(op: str, *, target: str = "h200", workload: str = "8x8", ratio: float = 2.0) -> Record:
    timing = Timing(median_us=10, p20_us=9, p80_us=11, n=1, samples=[10], method="cuda events")
    return Record.model_validate(
        {
            **_place(op, target, workload),
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


def logged(records: list[Record], *, uri: str, folder: Path, experiment: str) -> Tracked:
    answer = track(records, experiment=experiment, run_name="demo", folder=folder, uri=uri)
    assert isinstance(answer, Tracked), answer
    return answer


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
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["gate"] == "fail"
    assert (parent.data.tags["machine"], parent.data.tags["device"]) == ("lab1", "NVIDIA H200")
    assert parent.data.tags["toolchain"] == "nvcc 13.0"
    assert parent.data.metrics["cells"] == 5
    assert parent.data.metrics["pass_rate"] == 3 / 4  # the unavailable cell is not counted
    assert [i.dataset.name for i in parent.inputs.dataset_inputs] == ["relu", "softmax"]

    children = mlflow.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{answer.run_id}'"
    )
    by_name = {run.info.run_name: run for run in children}
    assert set(by_name) == {"relu cuda@h200", "relu cuda@mi300x", "softmax cuda@h200"}
    relu = by_name["relu cuda@h200"]
    assert relu.data.params["arch"] == "sm_90"
    assert relu.data.params["dtypes"] == "float32"
    assert relu.data.metrics["speedup/float32/9x9"] == 8.0
    assert relu.data.metrics["geomean_speedup"] == pytest.approx(4.0)
    assert by_name["relu cuda@mi300x"].data.metrics.get("pass_rate") is None
    assert by_name["softmax cuda@h200"].data.tags["gate"] == "fail"


def test_the_last_good_matrix_is_found_by_its_gate(uri: str, tmp_path: Path) -> None:
    logged([ended("relu", Verdict.WRONG)], uri=uri, folder=tmp_path, experiment="nightly")
    good = logged([measured("relu")], uri=uri, folder=tmp_path, experiment="nightly")
    logged([ended("relu", Verdict.CRASHED)], uri=uri, folder=tmp_path, experiment="nightly")
    mlflow = client(uri)
    experiment = mlflow.get_experiment_by_name("nightly").experiment_id
    (found,) = mlflow.search_runs(
        [experiment], "tags.gate = 'pass' and tags.suite = 'nightly'", max_results=1
    )
    assert found.info.run_id == good.run_id


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


def test_a_thousand_cells_are_logged_in_seconds(uri: str, tmp_path: Path) -> None:
    records = [
        measured(op, target=target, workload=f"{n}x{n}")
        for op in [f"op{i}" for i in range(10)]
        for target in ("h200", "h100", "a100", "l40s", "b200", "sm_90")
        for n in range(1, 18)
    ]
    logged([measured("warm")], uri=uri, folder=tmp_path, experiment="speed")
    start = time.monotonic()
    answer = logged(records, uri=uri, folder=tmp_path, experiment="speed")
    took_s = time.monotonic() - start
    assert (len(records), answer.children) == (1020, 60)
    assert took_s < 15  # 1.5 s on two idle cores; CI's cores are shared


def test_a_dead_server_is_one_line_and_no_error(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers, nobody else can
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        answer = track([measured("relu")], experiment="e", run_name="r", folder=tmp_path, uri=dead)
    assert isinstance(answer, Skipped)
    assert answer.reason.startswith(dead)
    assert "\n" not in str(answer)
    assert time.monotonic() - start < 60


def test_a_store_that_mlflow_refuses_is_one_line(tmp_path: Path) -> None:
    for uri in (f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}", "nonsense://x"):
        (tmp_path / "file").write_text("not a folder")
        answer = track([measured("relu")], experiment="e", run_name="r", folder=tmp_path, uri=uri)
        assert isinstance(answer, Skipped)
        assert "\n" not in str(answer)


def test_no_records_no_run(tmp_path: Path) -> None:
    answer = track([], experiment="e", run_name="r", folder=tmp_path)
    assert answer == Skipped("there are no records")


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
    runs = client(f"sqlite:///{tmp_path / 'mlflow.db'}").search_runs(["1"])
    assert len(runs) == 4


def test_libraries_are_told_to_stay_at_home_before_they_load() -> None:
    import portkern  # noqa: F401

    assert os.environ["MLFLOW_DISABLE_TELEMETRY"]
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert os.environ["POCL_CACHE_DIR"]
