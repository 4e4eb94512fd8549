"""Where a matrix runs, by name: on this machine, or on the nodes of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.cells.budget import Budget
from portkern.cells.carrying import CarriedCells
from portkern.cells.run import Matrix, MatrixProgress
from portkern.cells.selection import SelectedCell
from portkern.errors import ConfigError, no_such
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.trial import TrialOptions
from portkern.printable import printable
from portkern.records.record import Record, RecordFile
from portkern.toolchain.run_tool import cache_root

if TYPE_CHECKING:
    from portkern.execution.ray_fleet import RayFleet
    from portkern.execution.slurm_fleet import SlurmFleet

NAMES = ("local", "ray", "slurm")
#: Runs cells into a file of records: a run's name, options, whether all anew, and who is told.
Runner = Callable[
    [Sequence[SelectedCell], str, RecordFile, TrialOptions, bool, Callable[[MatrixProgress], None]],
    list[Record],
]


def check(execution: str, address: str) -> None:
    """Raises ConfigError."""
    if execution not in NAMES:
        raise no_such("execution", execution, NAMES)
    if address and execution == "local":
        raise ConfigError(f"Got address={address} with execution=local, expected ray or slurm")
    if execution == "slurm" and not address:
        raise ConfigError("execution=slurm needs address=FILE, which says what the cluster has")


def here(
    cells: Sequence[SelectedCell],
    run: str,
    file: RecordFile,
    chosen: TrialOptions,
    fresh: bool,
    show: Callable[[MatrixProgress], None],
    carried: CarriedCells | None = None,
    budget: Budget | None = None,
) -> list[Record]:
    """Runs the cells on this machine."""
    builds = ArtifactCache(cache_root() / "builds")
    matrix = Matrix(cells, run, file, builds, chosen, fresh, show, carried, budget)
    records = matrix.execute()
    if matrix.torn:
        _note(str(matrix.torn))
    return records


@contextmanager
def runner(
    execution: str, address: str, *, node_wait_s: float, straggler_s: float
) -> Iterator[Runner]:
    """Raises BackendUnavailable where there is no cluster."""
    if execution == "local":
        yield here
        return
    from portkern.execution.distributed import DistributedMatrix

    # Ray prints what it notices, such as a lost node, where JSON or a table is to come.
    with redirect_stdout(sys.stderr), _fleet(execution, address) as fleet:

        def there(
            cells: Sequence[SelectedCell],
            run: str,
            file: RecordFile,
            chosen: TrialOptions,
            fresh: bool,
            show: Callable[[MatrixProgress], None],
        ) -> list[Record]:
            matrix = DistributedMatrix(
                cells, run, file, chosen, fleet, fresh, show, _note, node_wait_s, straggler_s
            )
            records = matrix.execute()
            if matrix.torn:
                _note(str(matrix.torn))
            return records

        yield there


def _fleet(execution: str, address: str) -> RayFleet | SlurmFleet:
    if execution == "slurm":
        from portkern.execution.slurm_fleet import SlurmCluster, SlurmFleet

        return SlurmFleet(SlurmCluster.read(Path(address)))
    from portkern.execution.ray_fleet import RayFleet

    return RayFleet(address, _note)


def _note(text: str) -> None:
    print(f"portkern: note: {printable(text)}", file=sys.stderr, flush=True)
