"""One connection to MLflow: its experiment, its runs, and what becomes of them where the server is
lost.

A run is FAILED until all of it has arrived: a server that dies in the middle leaves nothing that
seems to be at work for ever.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from portkern.printable import printable
from portkern.report.table import headline
from portkern.spec.safe_name import SafeName
from portkern.toolchain import host

if TYPE_CHECKING:
    from mlflow.entities import Run

#: Limits of MLflow's log_batch and of its tags.
BATCH = 1000
MOST_KEY, DIGEST = 250, 12
TAG_LIMIT = 4000
#: The tags of an experiment: MLflow shows its runs first, and not the use of a model.
KIND = {"mlflow.experimentKind": "custom_model_development"}
#: The tag of a run that names the machine which logs it.
LOGGED_BY = "portkern.logged_by"


@dataclass(frozen=True)
class Tracked:
    """Where a run is found in MLflow; ``uri`` is what may be shown of the address."""

    uri: str
    experiment: str
    run_id: str
    children: int
    experiment_id: str = ""

    def __str__(self) -> str:
        """The place, with the page's address where a server has one: without the word on workflows,
        a new browser shows the use of models first (MLflow 3.17)."""
        page = (
            f"/#/experiments/{self.experiment_id}/runs/{self.run_id}?workflowType=machine_learning"
        )
        place = f"{self.uri.rstrip('/')}{page}" if self.uri.startswith("http") else self.uri
        return f"MLflow run {self.run_id} of experiment {self.experiment!r} in {place}"


@dataclass(frozen=True)
class SkippedLog:
    """Why nothing, or not all, was logged; the records are untouched."""

    reason: str

    def __str__(self) -> str:
        return f"not tracked in MLflow: {self.reason}"


Answer = TypeVar("Answer")


def sent(
    log: Callable[[Store], Answer], *, experiment: str, uri: str | None = None
) -> Answer | SkippedLog:
    """The answer of ``log``, called with the store; a store that is lost is :class:`SkippedLog`.
    User, password and token are those that MLflow's own client takes from the environment."""
    # MLflow's own defaults keep trying a dead server for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # for logs
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    try:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        return SkippedLog("MLflow is not installed; pip install 'portkern[tracking]'")
    place = address(uri)
    try:
        with _only_new_objects_collected():
            return log(Store(place, experiment))
    except (
        MlflowException,
        SQLAlchemyError,
        ImportError,
        OSError,
    ) as error:  # requests' errors are OSErrors
        why = headline(str(error).replace(place, public(place))) or type(error).__name__
        return SkippedLog(f"{public(place)}: {why}")


@contextmanager
def _only_new_objects_collected() -> Iterator[None]:
    """MLflow makes tens of thousands of objects, and each full round of the garbage collector that
    they cause goes through all that is loaded, torch included: a quarter of the time to log a
    matrix."""
    if gc.get_freeze_count():  # somebody else's, who decides when it ends
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def address(uri: str | None) -> str:
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def public(uri: str) -> str:
    """The address as it may be kept and printed: without user, password and parameters."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.startswith(("sqlite", "file")):
        return uri
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def lost(uri: str) -> bool:
    """Whether the store is a file that is not there any more."""
    database = _sqlite_file(uri)
    return database is not None and not database.exists()


class Store:
    """One connection to a tracking store, and the experiment that runs go to: the one that
    ``MLFLOW_EXPERIMENT_ID`` or ``MLFLOW_EXPERIMENT_NAME`` asks for, else ``experiment``."""

    def __init__(self, uri: str, experiment: str) -> None:
        from mlflow import MlflowClient

        self.uri = uri
        database = _sqlite_file(uri)
        # Processes that create the same database at the same time break its migrations.
        with _lock(database):
            self.client = MlflowClient(tracking_uri=uri)
            self.experiment_id, self.experiment = self._experiment(experiment, database)

    def _experiment(self, suite: str, database: Path | None) -> tuple[str, str]:
        asked = os.environ.get("MLFLOW_EXPERIMENT_ID")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or suite
        experiment = (
            self.client.get_experiment(asked) if asked else self.client.get_experiment_by_name(name)
        )
        if experiment is not None:
            for key in KIND.keys() - experiment.tags:
                self.client.set_experiment_tag(experiment.experiment_id, key, KIND[key])
            return str(experiment.experiment_id), str(experiment.name)
        # MLflow would put artifacts below the current folder, wherever the database is.
        place = (
            None
            if database is None
            else (database.parent / "mlruns" / SafeName.like(name.replace("/", "_")))
        )
        made = self.client.create_experiment(name, place.as_uri() if place else None, tags=KIND)
        return str(made), name

    def runs(self, having: Mapping[str, str], most: int = 1000) -> list[Run]:
        """The runs with such tags, the newest first."""
        words = " and ".join(f"tags.`{key}` = '{value}'" for key, value in having.items())
        return list(
            self.client.search_runs(
                [self.experiment_id],
                words,
                max_results=most,
                order_by=["attributes.start_time DESC"],
            )
        )

    def start(self, name: str, tags: Mapping[str, str], *, began_ms: int | None = None) -> str:
        """The id of a new run. Until :meth:`finish` it is RUNNING, or FAILED where :meth:`end_lost`
        met it."""
        given = {"mlflow.source.name": "portkern", LOGGED_BY: host.machine(), **tags}
        run = self.client.create_run(self.experiment_id, began_ms, given, run_name=name)
        return str(run.info.run_id)

    def add(
        self,
        run_id: str,
        metrics: Mapping[str, float],
        at_ms: int | None = None,
        *,
        step: int = 0,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000) if at_ms is None else at_ms
        logged = [Metric(metric_key(key), value, now, step) for key, value in metrics.items()]
        given: list[Any] = [Param(key, value) for key, value in (params or {}).items()]
        named: list[Any] = [RunTag(key, value) for key, value in (tags or {}).items()]
        for start in range(0, max(len(logged), 1), BATCH):
            batch = logged[start : start + BATCH]
            first = start == 0
            self.client.log_batch(run_id, batch, given if first else [], named if first else [])

    def incomplete(self, run_id: str) -> None:
        """It is FAILED if it is never finished."""
        self.client.set_terminated(run_id, "FAILED")

    def finish(self, run_id: str, ended_ms: int | None = None, *, good: bool = True) -> None:
        """Ends a run once all of it has arrived, as FAILED where what it tells of failed."""
        self.client.set_terminated(run_id, "FINISHED" if good else "FAILED", ended_ms)

    def end_lost(self) -> None:
        """Runs of this machine that seem to be at work are FAILED: the server died between their
        first request and their second. One that is still being logged will be FINISHED."""
        lost = self.client.search_runs(
            [self.experiment_id],
            f"attributes.status = 'RUNNING' and tags.`{LOGGED_BY}` = '{host.machine()}'",
        )
        for run in lost:
            self.client.set_terminated(run.info.run_id, "FAILED")

    def add_files(self, run_id: str, folder: Path) -> None:
        """Adds the files in ``folder`` as artifacts."""
        files = sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
        for file in files:
            if not file.name.startswith("."):
                self.client.log_artifact(run_id, str(file))


def joined(values: Sequence[str]) -> str:
    """The values as a tag, each once."""
    return ", ".join(sorted({value for value in values if value}))[:TAG_LIMIT]


def metric_key(name: str) -> str:
    """MLflow takes letters, digits and ``_-. :/`` in the name of a metric, 250 of them. A name that
    has others, or more, ends with a digest of it: two names never become one."""
    key = re.sub(r"[^\w\-. :/]", "_", printable(name))
    if key == name and len(key) <= MOST_KEY:
        return key
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:DIGEST]
    return f"{key[: MOST_KEY - DIGEST - 1]} {digest}"


def _sqlite_file(uri: str) -> Path | None:
    path = uri.removeprefix("sqlite:///")
    return Path(path.partition("?")[0]).absolute() if path and path != uri else None


def _lock(database: Path | None) -> AbstractContextManager[object]:
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock")
