"""Jobs of a Slurm cluster. submitit writes, sends and watches them; a partition takes so many at a
time as its file says, each of which is a node to the driver.

What a job is sent and what it answers lie in a folder that all machines see. Nobody who may not run
kernels as the user should be able to write there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from portkern.errors import BackendUnavailable, ConfigError, no_such
from portkern.execution import node as remote
from portkern.execution.dispatch import ExecutionNode, Lost, cause, said
from portkern.spec import target
from portkern.spec.foreign_text import Malformed, place_of, read_text, yaml_value
from portkern.spec.safe_name import SafeName, refuse_collisions

#: Seconds between two looks at what has ended.
LOOK_S = 0.2
#: The most jobs of a partition at a time.
MOST_JOBS = 10_000


class Partition(BaseModel):
    """Machines that are alike. ``jobs``: how many may run at a time; ``submit``: submitit's
    parameters, such as ``slurm_partition``, ``gpus_per_node`` and ``timeout_min``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: SafeName
    targets: tuple[str, ...]
    jobs: int = Field(1, ge=1, le=MOST_JOBS)
    submit: Mapping[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("submit")
    @classmethod
    def _lines(cls, values: Mapping[str, str | int | float | bool]) -> Any:
        """A line break in one would begin a line of the job's script."""
        for name, value in values.items():
            if not f"{name}{value}".isprintable():
                raise ValueError(f"{name!r:.60} has a character that is not printed")
        return values

    @field_validator("targets")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in target.names():
                raise ValueError(str(no_such("target", name, target.names())))
        return names


class SlurmCluster(BaseModel):
    """``folder`` is seen by all machines; ``cluster=local`` runs the jobs as processes here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitions: tuple[Partition, ...] = Field(min_length=1)
    folder: Path = Path("slurm-jobs")
    cluster: Literal["slurm", "local"] = "slurm"

    @field_validator("partitions")
    @classmethod
    def _apart(cls, partitions: tuple[Partition, ...]) -> tuple[Partition, ...]:
        """Each has a folder of its own."""
        refuse_collisions((one.name for one in partitions), "partition")
        return partitions

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises ConfigError."""
        try:
            return cls.model_validate(yaml_value(read_text(path)))
        except (ConfigError, Malformed) as error:
            why = str(error)
        except ValidationError as error:
            first = error.errors()[0]
            place = place_of(first["loc"])
            why = f"{place}: {first['msg']}, got {first['input']!r}"
        raise ConfigError(
            f"{path}: {why}; expected partitions with a name and targets (docs/nightly.md)"
        )


@dataclass(frozen=True, eq=False)
class SentJob:
    """``job`` is submitit's, None where it could not be sent; ``begun`` is there once it runs."""

    begun: Path
    job: Any = None
    why: str = ""


class SlurmFleet:
    """Raises BackendUnavailable without submitit or Slurm, ConfigError for a parameter that
    submitit does not know."""

    def __init__(self, cluster: SlurmCluster) -> None:
        if find_spec("submitit") is None:
            raise BackendUnavailable("submitit is not installed; pip install 'portkern[slurm]'")
        import submitit

        self._failures = (submitit.core.utils.FailedSubmissionError, OSError, RuntimeError)
        self.refused: dict[str, str] = {}
        self._nodes: list[ExecutionNode] = []
        self._executors: dict[str, Any] = {}
        self._folder = cluster.folder.resolve()
        self._count = 0
        for partition in cluster.partitions:
            executor = self._executor(submitit, cluster, partition)
            for number in range(1, partition.jobs + 1):
                name = f"{partition.name}-{number}"
                self._nodes.append(ExecutionNode(name, name, frozenset(partition.targets)))
                self._executors[name] = executor

    def _executor(self, submitit: Any, cluster: SlurmCluster, partition: Partition) -> object:
        try:
            executor = submitit.AutoExecutor(self._folder / partition.name, cluster.cluster)
        except RuntimeError as error:
            raise BackendUnavailable(
                f"No Slurm here: {' '.join(str(error).split())}; run where 'sbatch' is, or with "
                "cluster: local"
            ) from error
        try:
            executor.update_parameters(name=f"portkern-{partition.name}", **partition.submit)
        except (NameError, TypeError, ValueError) as error:
            raise ConfigError(f"partition {partition.name}: submit: {said(error)}") from error
        return executor

    def __enter__(self) -> SlurmFleet:
        return self

    def __exit__(self, *_: object) -> None:
        """Jobs were cancelled by who sent them."""

    @property
    def settled(self) -> bool:
        return True

    def nodes(self) -> Sequence[ExecutionNode]:
        return self._nodes

    def submit(self, node: ExecutionNode, document: str) -> object:
        self._count += 1
        begun = self._folder / f"begun-{time.time_ns()}-{self._count}"
        try:
            job = self._executors[node.id].submit(
                remote.run_job, document, sorted(node.targets), str(begun)
            )
        except self._failures as error:
            return SentJob(begun, why=f"it was not sent: {said(error)}")
        return SentJob(begun, job)

    def begun(self, handle: object) -> bool:
        assert isinstance(handle, SentJob)
        return handle.begun.exists()

    def wait(self, handles: Sequence[object], timeout_s: float) -> Collection[object]:
        until = time.monotonic() + timeout_s
        while True:
            ended = [one for one in handles if isinstance(one, SentJob) and _has_ended(one)]
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(LOOK_S)

    def result(self, handle: object) -> object | Lost:
        assert isinstance(handle, SentJob)
        _remove(handle.begun)
        if handle.job is None:
            return Lost(handle.why)
        try:
            found = handle.job.paths.result_pickle
            if found.exists() and not found.is_file():
                return Lost(f"its answer is not a file: {found}")
            error = handle.job.exception()
            if error is not None:
                return Lost(f"{_raised(str(error))}; its log is {handle.job.paths.stderr}")
            answer: object = handle.job.result()
        except Exception as failed:  # noqa: BLE001 - whatever a forged file makes of it
            return Lost(f"its answer cannot be read: {cause(failed)}")
        for path in handle.job.paths.folder.glob(f"{handle.job.job_id}_*"):
            _remove(path)
        return answer

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, SentJob)
        if handle.job is not None:
            handle.job.cancel(check=False)


def _raised(told: str) -> str:
    """The last line of the traceback that submitit puts between its own words and dashes."""
    before = told.partition("You can check full logs")[0].splitlines()
    lines = [line.strip() for line in before if line.strip(" -")]
    return said(lines[-1]) if lines else "it gave no answer"


def _remove(path: Path) -> None:
    """Removes a file; a folder in its place stays."""
    with suppress(OSError):
        path.unlink()


def _has_ended(sent: SentJob) -> bool:
    return sent.job is None or bool(sent.job.done())
