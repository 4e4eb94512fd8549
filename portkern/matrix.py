"""Runs the cells of a matrix and turns every outcome into a record, as soon as it is there."""

from __future__ import annotations

import os
import platform
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from threading import Lock

from portkern import evaluate, host, timing
from portkern.backend import SOURCE_KINDS, Artifact, Missing, Ready, Resources, Venue
from portkern.cache import ArtifactCache, build_key
from portkern.cells import Cell
from portkern.errors import ConfigError
from portkern.evaluate import Built, Contestant, Failure, Options, Result, Trial
from portkern.occupancy import occupancy
from portkern.op import Workload
from portkern.record import (
    BuildResources,
    Environment,
    Evidence,
    Record,
    RecordFile,
    Torn,
    Verdict,
    WorkloadRef,
)
from portkern.target import Target


@dataclass(frozen=True)
class Progress:
    """Called from several threads: ``total`` cells, ``done`` of them, and the newest record."""

    total: int
    done: int
    record: Record | None


@dataclass
class Matrix:
    """``records`` in the file of the run are kept; only what they do not answer is run."""

    cells: Sequence[Cell]
    run: str
    file: RecordFile
    cache: ArtifactCache
    options: Options = field(default_factory=Options)
    fresh: bool = False
    report: Callable[[Progress], None] = lambda _: None
    _records: dict[str, Record] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _started: float = 0.0
    torn: Torn | None = None

    def execute(self) -> list[Record]:
        """The records of all cells, in the cells' order."""
        if not self.fresh:
            self._reuse()
        todo = [cell for cell in self.cells if cell.key not in self._records]
        self._emit(
            self._record(cell, *cell.hopeless, Evidence.NONE) for cell in todo if cell.hopeless
        )
        self._work([cell for cell in todo if not cell.hopeless])
        return [self._records[cell.key] for cell in self.cells]

    def _reuse(self) -> None:
        known, self.torn = self.file.read()
        wanted = {cell.key for cell in self.cells}
        # A crash or a timeout may have been the machine's; it is tried again.
        final = {r.key: r for r in known if r.key in wanted and r.verdict not in _RETRIED}
        self._records |= final
        self.report(Progress(len(self.cells), len(self._records), None))

    def _work(self, cells: Sequence[Cell]) -> None:
        """Builds and emulated runs share the CPUs; hardware is timed when those are done."""
        built: dict[tuple[str, str], Built] = {}
        hardware: list[Cell] = []
        workers = os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            pending: set[Future[list[tuple[Cell, Built]]]] = {
                pool.submit(self._build, group) for group in _by_kernel(cells)
            }
            emulated: list[tuple[Cell, Built]] = []
            for done in as_completed(pending):
                for cell, result in done.result():
                    built[_identity(cell)] = result
                    if isinstance(result.outcome, Failure) or isinstance(cell.venues.best, Missing):
                        self._emit([self._unrun(cell, result)])
                    elif isinstance(cell.venues.hardware, Venue):
                        hardware.append(cell)
                    else:
                        emulated.append((cell, result))
            groups = _by_problem([cell for cell, _ in emulated])
            for trial in [pool.submit(self._try, group, built) for group in groups]:
                trial.result()
        for group in _by_problem(hardware):
            self._try(group, built)

    def _build(self, cells: Sequence[Cell]) -> list[tuple[Cell, Built]]:
        """One kernel and dtype for all its targets; the cells of one target share the build."""
        first = {_identity(cell): cell for cell in cells}
        toolchains = [c.ready.toolchain for c in first.values() if isinstance(c.ready, Ready)]
        results = evaluate.build_all(
            [cell.build for cell in first.values()], toolchains,
            limits=self.options.limits, cache=self.cache,
        )  # fmt: skip
        by_identity = dict(zip(first, results, strict=True))
        return [(cell, by_identity[_identity(cell)]) for cell in cells]

    def _try(self, cells: Sequence[Cell], built: Mapping[tuple[str, str], Built]) -> None:
        """All kernels of one op and dtype, workload by workload."""
        shared: dict[tuple[str, str], Contestant] = {}  # targets with one artifact and venue
        for cell in cells:
            contestant = _contestant(cell, built[_identity(cell)])
            shared.setdefault(_venue_identity(contestant), contestant)
        order = {key: index for index, key in enumerate(shared)}
        op, dtype = cells[0].op, cells[0].dtype
        by_workload: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for cell in cells:
            by_workload[cell.workload_set, cell.workload.name].append(cell)
        with Trial(op, dtype, list(shared.values()), self.options) as trial:
            for asked in by_workload.values():
                results = trial.run(asked[0].workload)
                for cell in asked:
                    outcome = built[_identity(cell)]
                    key = _venue_identity(_contestant(cell, outcome))
                    self._emit([self._judged(cell, outcome, results[order[key]])])

    def _unrun(self, cell: Cell, built: Built) -> Record:
        """A cell that ended with its build: it failed, or there is nowhere to run it."""
        if isinstance(built.outcome, Failure):
            return self._record(
                cell, built.outcome.verdict, str(built.outcome), Evidence.NONE, built=built
            )
        reason = str(cell.venues.hardware)
        return self._record(
            cell, Verdict.UNAVAILABLE, reason, _built_evidence(built.outcome), built=built
        )

    def _judged(self, cell: Cell, built: Built, result: Result) -> Record:
        assert isinstance(built.outcome, Artifact)
        evidence, missing = _built_evidence(built.outcome), ""
        if result.verdict is Verdict.PASSED:
            if isinstance(cell.venues.hardware, Missing):
                evidence, missing = Evidence.EMULATED, str(cell.venues.hardware)
            elif result.samples is None:
                evidence, missing = Evidence.VERIFIED, "it could not be timed"
            else:
                evidence = Evidence.MEASURED
        return self._record(
            cell, result.verdict, result.detail, evidence, built=built, result=result,
            missing=missing,
        )  # fmt: skip

    def _record(
        self, cell: Cell, verdict: Verdict, detail: str, evidence: Evidence, *,
        built: Built | None = None, result: Result | None = None, missing: str = "",
    ) -> Record:  # fmt: skip
        venue = cell.venues.best
        ran = str(venue) if result is not None and isinstance(venue, Venue) else ""
        dims = cell.workload.dims
        times = _times(result) if result else {}
        median = times["timing"].median_us if "timing" in times else None
        return Record(
            run=self.run, id=secrets.token_hex(8), key=cell.key,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            op=cell.op.name, workload=_workload_ref(cell.workload_set, cell.workload, cell.dtype),
            backend=cell.backend.name, language=cell.language, target=cell.target.name,
            venue=ran, source_hash=cell.candidate.digest if cell.candidate else "",
            author=cell.candidate.author if cell.candidate else "",
            verdict=verdict, detail=detail, evidence=evidence,
            missing=missing or ("" if evidence is Evidence.MEASURED else detail.partition("\n")[0]),
            errors=result.errors if result else None, precision=cell.op.precision,
            roofline=timing.roofline(
                cell.target, nbytes=cell.op.nbytes(dims, cell.dtype), flops=cell.op.flops(dims),
                dtype=cell.dtype, median_us=median,
            ),
            resources=_resources(cell.target, built),
            environment=_environment(cell),
            seconds=_seconds(built, result), **times,
        )  # fmt: skip

    def _emit(self, records: Iterable[Record]) -> None:
        with self._lock:
            new = list(records)
            if not new:
                return
            self.file.append(new)
            for record in new:
                self._records[record.key] = record
            self.report(Progress(len(self.cells), len(self._records), new[-1]))


_RETRIED = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.SUSPICIOUS)


def _identity(cell: Cell) -> tuple[str, str]:
    """What a build depends on within one op, apart from the architecture's facts."""
    assert cell.candidate is not None
    return cell.candidate.digest + cell.dtype, cell.target.name


def _by_kernel(cells: Sequence[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        assert cell.candidate is not None
        groups[cell.backend.name, cell.candidate.digest, cell.dtype].append(cell)
    return list(groups.values())


def _by_problem(cells: Sequence[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.op.name, cell.dtype].append(cell)
    return list(groups.values())


def _contestant(cell: Cell, built: Built) -> Contestant:
    venue = cell.venues.best
    assert isinstance(venue, Venue) and isinstance(built.outcome, Artifact)
    return Contestant(built.request, built.outcome, venue)


def _venue_identity(contestant: Contestant) -> tuple[str, str]:
    """Emulators ignore the target, so one run of the source answers for every build of it."""
    candidate, venue = contestant.request.candidate, contestant.venue
    what = candidate.digest if venue.kind == "emulator" else str(contestant.artifact.path)
    return what, repr(venue)


def _built_evidence(artifact: Artifact) -> Evidence:
    return Evidence.NONE if artifact.kind in SOURCE_KINDS else Evidence.BUILT


def _workload_ref(which: str, workload: Workload, dtype: str) -> WorkloadRef:
    return WorkloadRef(
        set=which, name=workload.name, dims=dict(workload.dims), dtype=dtype,
        scalars=dict(workload.scalars),
    )  # fmt: skip


def _times(result: Result) -> dict[str, object]:
    """The fields of a record that a measured result fills; none for any other."""
    if result.samples is None:
        return {}
    own = result.samples
    return {
        "timing": timing.summarize(own.values, own.method),
        "baselines": {
            name: timing.summarize(base.values, base.method)
            for name, base in result.baselines.items()
        },
        "speedup": {
            name: timing.speedup(own.values, base.values) for name, base in result.baselines.items()
        },
    }


def _resources(target: Target, built: Built | None) -> list[BuildResources]:
    if built is None or isinstance(built.outcome, Failure):
        return []
    return [
        BuildResources(**asdict(used), occupancy=_occupancy(target, used))
        for used in built.outcome.resources
    ]


def _occupancy(target: Target, used: Resources) -> float | None:
    """The fraction that the build allows; None when the block's size is only known at launch."""
    if not target.is_gpu or used.registers is None or used.threads is None:
        return None
    return occupancy(
        target, registers=used.registers, agprs=used.agprs or 0,
        shared_bytes=used.shared_bytes or 0, threads=used.threads,
    ).fraction  # fmt: skip


def _environment(cell: Cell) -> Environment:
    venue = cell.venues.best
    ready = cell.ready
    gpu = host.gpu_for(cell.target)
    return Environment(
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, {host.cpu_name()}",
        device=venue.name if isinstance(venue, Venue) else "",
        driver=gpu.driver if gpu else "",
        toolchain=dict(ready.toolchain) if isinstance(ready, Ready) else {},
        harness_version=version("portkern"),
    )


def _seconds(built: Built | None, result: Result | None) -> dict[str, float]:
    seconds = {"build": round(built.seconds, 3)} if built and built.seconds else {}
    return seconds | ({"run": round(result.seconds, 3)} if result else {})
