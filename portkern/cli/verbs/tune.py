"""``portkern tune``: the best knob settings of kernels, on the hardware here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.cells.selection import RunStage, SelectedCell, Selection
from portkern.cli import json_output
from portkern.cli.config import Names, names, resolve
from portkern.cli.verbs import own_kernels, run_folder
from portkern.errors import ConfigError
from portkern.evaluator.trial import TrialOptions
from portkern.printable import printable
from portkern.records.record import Record
from portkern.spec.backend import Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.tuning import database as tuned
from portkern.tuning import search
from portkern.tuning.database import Tuned

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject


@dataclass
class TuneOptions:
    project: str = ""
    kernels: str = ""
    ops: Names = field(default_factory=list)
    backends: Names = "all"
    targets: Names = "host"
    workloads: Names = "typical"
    dtypes: Names = "float32"
    trials: int = 32
    batch: int = 8
    finalists: int = 3
    seed: int = 0
    database: str = ""
    run: str = "tune"
    reports: str = "reports"
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    json: bool = False


@dataclass(frozen=True)
class TuneOutcome:
    """The outcome for one kernel, dtype and size: what was found, or why nothing was looked for."""

    cell: SelectedCell
    result: search.Found | None = None
    entry: Tuned | None = None
    why: str = ""


def main(overrides: Sequence[str]) -> int:
    options = resolve("tune", TuneOptions, overrides)
    project = own_kernels.project_of(options.project, options.kernels, names(options.ops))
    if project:
        given = own_kernels.named(overrides) | {"targets", "workloads"}  # what it is tuned for here
        options = own_kernels.filled(options, project, given)
    asked = names(options.ops)
    if not asked and not own_kernels.named(overrides) & {"ops"}:
        raise ConfigError("ops= is required; 'portkern tune --help' says what it takes")
    chosen = run_folder.options(
        baselines=[search.BASELINE],
        rounds=options.rounds,
        budget_s=options.budget_s,
        timeout_s=options.timeout_s,
    )
    folder = run_folder.run_folder(options.reports, options.run)
    database = tuned.Database(Path(options.database)) if options.database else tuned.own()
    question = Selection(
        project.op_names(asked) if project else asked,
        names(options.targets),
        names(options.backends),
        names(options.workloads),
        names(options.dtypes),
        RunStage("hardware"),
        kernels=project.kernels if project else None,
    )
    outcomes = []
    with run_folder.writing(folder):
        for cell in question.cells():
            outcome = _tune(cell, folder, chosen, options)
            if outcome.entry:
                database.add([outcome.entry])  # at once: whatever comes next, this is kept
            if not options.json:
                stream = sys.stdout if outcome.entry else sys.stderr
                print(printable(_line(outcome)), file=stream, flush=True)
            outcomes.append(outcome)
    if options.json:
        json_output.show({"database": str(database.path), "tuned": list(map(_document, outcomes))})
    elif any(outcome.entry for outcome in outcomes):
        print(f"\nsettings: {database.path}")
    return 0 if any(outcome.entry for outcome in outcomes) else 3


def _tune(
    cell: SelectedCell, folder: Path, chosen: TrialOptions, options: TuneOptions
) -> TuneOutcome:
    if cell.ruled_out:
        return TuneOutcome(cell, why=cell.ruled_out[1])
    venue = cell.venues.hardware
    if isinstance(venue, Missing):
        return TuneOutcome(cell, why=f"there is nothing to time it on: {venue}")
    assert cell.candidate is not None

    def evaluate(candidates: Sequence[Candidate], fresh: bool) -> Sequence[Record]:
        cells = [replace(cell, candidate=candidate) for candidate in candidates]
        return run_folder.execute(cells, folder, chosen, fresh=fresh)

    try:
        space = search.Space.of(cell.candidate, cell.backend, cell.target, cell.op.precision)
    except ConfigError as error:
        return TuneOutcome(cell, why=str(error))
    result = search.search(
        cell.candidate,
        space,
        evaluate,
        trials=options.trials,
        batch=options.batch,
        finalists=options.finalists,
        seed=options.seed,
    )
    if not any(trial.record.timing for trial in result.last):
        why = next(filter(None, map(_untimed, result.trials)), "no setting was tried")
        return TuneOutcome(cell, result, why=f"no setting was timed: {why}")
    return TuneOutcome(cell, result, _entry(cell, result, venue))


def _untimed(trial: search.TuningTrial) -> str:
    """The reason for which a setting has no score; empty where it has one."""
    record = trial.record
    noisy = record.timing and record.timing.noisy
    return record.detail or (f"its times are too noisy: {noisy}" if noisy else "")


def _entry(cell: SelectedCell, result: search.Found, venue: Venue) -> Tuned:
    assert cell.candidate is not None
    default = {knob.name: knob.value for knob in cell.candidate.knobs.values()}
    return Tuned(
        target=cell.target.name,
        device=venue.name,
        backend=cell.backend.name,
        language=cell.candidate.language,
        op=cell.op.name,
        dtype=cell.dtype,
        shape=tuned.shape_class(cell.workload),
        family=cell.candidate.family,
        settings={k: v for k, v in result.best.items() if v != default[k]},
        gain=result.gain,
        workload=cell.workload.name,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _line(outcome: TuneOutcome) -> str:
    cell, entry = outcome.cell, outcome.entry
    variant = cell.candidate.variant if cell.candidate else ""
    op = f"{cell.op.name}.{variant}" if variant else cell.op.name
    what = f"{op}[{cell.workload.name}, {cell.dtype}] {cell.language}@{cell.target.name}"
    if entry is None or outcome.result is None:
        return f"{what}: not tuned: {outcome.why}"
    tried = f"{len(outcome.result.trials)} settings tried"
    if not entry.settings:
        return f"{what}: the defaults are the best; {tried}"
    settings = " ".join(f"{name}={value}" for name, value in entry.settings.items())
    if entry.gain is None:
        return f"{what}: {settings} where the defaults do not run; {tried}"
    return f"{what}: {entry.gain:.2f}x the defaults with {settings}; {tried}"


def _document(outcome: TuneOutcome) -> JsonObject:
    cell, result = outcome.cell, outcome.result
    document: JsonObject = {
        "op": cell.op.name,
        "workload": cell.workload.name,
        "dtype": cell.dtype,
        "backend": cell.backend.name,
        "language": cell.language,
        "target": cell.target.name,
    }
    if outcome.why:
        document["why"] = outcome.why
    if outcome.entry:
        document |= {"settings": outcome.entry.settings, "gain": outcome.entry.gain}
    if result:
        document["trials"] = [
            {
                "settings": dict(trial.settings),
                "score": trial.score,
                "verdict": str(trial.record.verdict),
                "detail": trial.record.detail.partition("\n")[0],
            }
            for trial in result.trials
        ]
    return document
