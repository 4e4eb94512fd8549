"""A sweep in MLflow: a run with children, numbers with intervals, and traces; logged once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portkern.experiment.compare.comparison import compare
from portkern.experiment.compare.result import SampleScope
from portkern.experiment.compare.sample import Sample
from portkern.tracking import sweep_runs
from portkern.tracking.store import SkippedLog, Tracked
from tests.compare_samples import samples, write_runs

pytest.importorskip("mlflow", reason="extra [tracking] is not installed")
# Of libraries below MLflow; none is ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

OPS = (("core", "relu"), ("core", "gelu"))


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests here: to create one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def logged(rows: list[Sample], folder: Path, uri: str) -> Tracked:
    answer = sweep_runs.track(compare(rows, ks=(1,)), rows, folder, uri)
    assert isinstance(answer, Tracked), answer
    return answer


def children(uri: str, sweep: Tracked) -> dict[str, Any]:
    from mlflow import MlflowClient

    words = f"tags.mlflow.parentRunId = '{sweep.run_id}'"
    found = MlflowClient(uri).search_runs([sweep.experiment_id], words)
    assert {run.info.status for run in found} == {"FINISHED"}
    return {run.info.run_name: run for run in found}


def traces(uri: str, sweep: Tracked, run: Any) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    return list(client.search_traces(locations=[sweep.experiment_id], run_id=run.info.run_id))


@pytest.mark.full
def test_a_sweep_is_a_run_with_a_child_for_each_model_and_place(uri: str, tmp_path: Path) -> None:
    rows = samples(("lab/strong", "local/small"), OPS, n=2)
    write_runs(tmp_path, [row for row in rows if row.backend == "cuda"])
    (tmp_path / "compare.md").write_text("# found\n")
    sweep = logged(rows, tmp_path, uri)
    found = children(uri, sweep)
    assert len(found) == 2 * 6 == sweep.children
    child = found["lab/strong cuda on h200"]
    assert child.data.params == {"model": "lab/strong", "backend": "cuda", "target": "h200"}
    assert child.data.tags["evidence"] == "measured"
    scope = SampleScope("lab/strong", "measured", "cuda", "h200")
    figure = compare(rows).figure(scope, "pass", 1)
    assert figure and figure.estimate and figure.estimate.ci95
    numbers = child.data.metrics
    kept = [numbers[f"measured/pass at 1{end}"] for end in ("", " low", " high")]
    assert kept == pytest.approx([figure.estimate.value, *figure.estimate.ci95])
    emulated = found["lab/strong hip on gfx942"].data.metrics
    assert "emulated/pass at 1" in emulated and "emulated/fast_1 at 1" not in emulated
    asked = traces(uri, sweep, child)
    assert len(asked) == 4  # 2 ops, 2 samples
    replies = [str(span.outputs) for trace in asked for span in trace.data.spans]
    assert sum("Sample 0 of lab/strong" in reply for reply in replies) == 2


@pytest.mark.full
def test_the_same_again_changes_nothing_and_more_samples_go_on(uri: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    rows = samples(("lab/strong",), OPS, n=3)
    write_runs(tmp_path, [row for row in rows if row.backend == "cuda"])
    few = [row for row in rows if row.index < 2 or row.backend == "hip"]
    first = logged(few, tmp_path, uri)
    before = children(uri, first)
    assert logged(few, tmp_path, uri) == first
    (tmp_path / ".mlflow.json").write_text(json.dumps({"token": _token(uri, first)}))
    assert logged(few, tmp_path, uri).run_id == first.run_id  # as after a kill before the note
    assert len(traces(uri, first, before["lab/strong cuda on h200"])) == 4
    assert logged(rows, tmp_path, uri).run_id == first.run_id
    after = children(uri, first)
    assert {n: r.info.run_id for n, r in after.items()} == {
        n: r.info.run_id for n, r in before.items()
    }
    assert len(traces(uri, first, after["lab/strong cuda on h200"])) == 6
    key = "emulated/pass at 1"
    untouched = after["lab/strong hip on gfx942"].info.run_id
    assert len(MlflowClient(uri).get_metric_history(untouched, key)) == 1


def _token(uri: str, sweep: Tracked) -> str:
    from mlflow import MlflowClient

    return str(MlflowClient(uri).get_run(sweep.run_id).data.tags[sweep_runs.TOKEN])


def test_no_samples_no_run(tmp_path: Path) -> None:
    answer = sweep_runs.track(compare([]), [], tmp_path)
    assert answer == SkippedLog("there are no samples")


def test_a_store_that_mlflow_refuses_is_one_line(tmp_path: Path) -> None:
    rows = samples(("lab/strong",), OPS[:1], n=1)
    answer = sweep_runs.track(compare(rows), rows, tmp_path, "nonsense://x")
    assert isinstance(answer, SkippedLog)
    assert "\n" not in str(answer)
