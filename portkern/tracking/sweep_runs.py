"""A comparison of models in MLflow: a run for the sweep, below it one for each model, backend and
target with its numbers and their intervals, and traces of what the models were asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from portkern.experiment.compare.page.exchange import Exchanges
from portkern.experiment.compare.result import AskedPlace, Figure, ModelComparison
from portkern.experiment.compare.sample import Sample, by_language
from portkern.tracking import traces
from portkern.tracking.once import once
from portkern.tracking.store import SkippedLog, Store, Tracked, joined, public

EXPERIMENT: Final = "portkern compare"
#: Traces of one child: its first samples. A sweep may have tens of thousands.
MOST_TRACES: Final = 20
#: Tags by which runs and traces are found again.
TOKEN, GROUP, DIGEST, SAMPLE = (
    f"portkern.{name}" for name in ("sweep", "group", "samples", "sample")
)


def track(
    comparison: ModelComparison, samples: Sequence[Sample], folder: Path, uri: str | None = None
) -> Tracked | SkippedLog:
    """Logs a comparison with the files that lie in ``folder``. To log the same again changes
    nothing; more samples are added to its runs. Does not raise for a lost server."""
    if not samples:
        return SkippedLog("there are no samples")
    sweep = _Sweep(comparison, by_language(samples), folder)
    return once(sweep.log, folder, experiment=EXPERIMENT, digest=sweep.digest, uri=uri)


@dataclass(frozen=True)
class _Group:
    """The content of one child run."""

    model: str
    place: AskedPlace
    figures: Sequence[Figure]
    samples: Sequence[Sample]

    @property
    def name(self) -> str:
        return f"{self.model} {self.place}"

    @property
    def digest(self) -> str:
        return _digest(self.figures, self.samples)

    @property
    def params(self) -> dict[str, str]:
        place = self.place
        return {"model": self.model, "backend": place.backend, "target": place.target}

    @property
    def tags(self) -> dict[str, str]:
        tags = {
            "evidence": joined([sample.evidence for sample in self.samples]),
            "device": joined([sample.device for sample in self.samples]),
            "suite": joined([sample.suite for sample in self.samples]),
        }
        return {name: value for name, value in tags.items() if value}


@dataclass(frozen=True)
class _Sweep:
    comparison: ModelComparison
    samples: Sequence[Sample]
    folder: Path

    @cached_property
    def digest(self) -> str:
        return _digest(self.comparison.figures, self.samples)

    @cached_property
    def groups(self) -> list[_Group]:
        parts: dict[tuple[str, str, str], list[Sample]] = {}
        for sample in self.samples:
            parts.setdefault((sample.model, sample.backend, sample.target), []).append(sample)
        figures: dict[tuple[str, str, str], list[Figure]] = {}
        for figure in self.comparison.figures:
            scope = figure.scope
            if scope.target and not scope.suite:
                figures.setdefault((scope.model, scope.backend, scope.target), []).append(figure)
        return [
            _Group(key[0], AskedPlace(key[1], key[2]), figures.get(key, []), own)
            for key, own in parts.items()
        ]

    def log(self, where: Store, token: str) -> Tracked:
        """The parent is FINISHED only when all of it has arrived."""
        where.end_lost()
        known = where.runs({TOKEN: token}, most=1)
        tags = {TOKEN: token, "kind": "sweep"}
        parent = str(known[0].info.run_id) if known else where.start(self.folder.name, tags)
        where.incomplete(parent)
        models = joined(self.comparison.models)
        where.add(parent, dict(self._numbers()), tags={"models": models})
        exchanges = Exchanges(self.folder)
        children = where.runs({"mlflow.parentRunId": parent}, most=50_000)
        by_name = {run.data.tags.get(GROUP): run for run in children}
        with traces.sent_to(where.uri):
            for group in self.groups:
                run = by_name.get(group.name)
                if run is None or run.data.tags.get(DIGEST) != group.digest:
                    child = str(run.info.run_id) if run else ""
                    self._child(where, parent, child, group, exchanges)
        where.add_files(parent, self.folder)
        where.finish(parent)
        return Tracked(
            public(where.uri), where.experiment, parent, len(self.groups), where.experiment_id
        )

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """The metrics of whole models, and how many samples there are."""
        yield "samples", len(self.samples)
        yield "unevaluated", self.comparison.unevaluated
        for figure in self.comparison.figures:
            if not figure.scope.backend and not figure.scope.suite:
                yield from _metrics([figure], f"{figure.scope.model}/")

    def _child(
        self, where: Store, parent: str, run: str, group: _Group, exchanges: Exchanges
    ) -> None:
        """Complete when it has its digest."""
        tags = {"mlflow.parentRunId": parent, GROUP: group.name, "kind": "group"}
        params = {} if run else group.params
        run = run or where.start(group.name, tags)
        where.incomplete(run)
        where.add(run, dict(_metrics(group.figures)), params=params, tags=group.tags)
        _trace(where, run, group, exchanges)
        where.add(run, {}, tags={DIGEST: group.digest})
        where.finish(run)


def _metrics(figures: Iterable[Figure], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The metric ``measured/pass at 5`` with its ``low`` and ``high``, and its like; what is not
    a number is left out."""
    for figure in figures:
        if figure.estimate is None:
            continue
        title = figure.title.replace("@", " at ").replace("|", "of")
        name = f"{prefix}{figure.scope.venue or 'evidence not known'}/{title}"
        yield name, figure.estimate.value
        if figure.estimate.ci95:
            low, high = figure.estimate.ci95
            yield f"{name} low", low
            yield f"{name} high", high


def _trace(where: Store, run: str, group: _Group, exchanges: Exchanges) -> None:
    """Adds traces of the first samples; those that are there already, from an earlier try, stay."""
    found = where.client.search_traces(
        locations=[where.experiment_id], run_id=run, max_results=500, include_spans=False
    )
    known = {trace.info.tags.get(SAMPLE) for trace in found}
    for sample in sorted(group.samples, key=lambda one: one.index)[:MOST_TRACES]:
        exchange = exchanges.of(sample) if sample.path not in known else None
        if exchange and exchange.calls:
            traces.add(
                where,
                run,
                f"{sample.op} {sample.dtype}, sample {sample.index}",
                exchange.calls,
                inputs=_inputs(sample),
                outputs=_outputs(sample),
                tags={SAMPLE: sample.path},
            )


def _inputs(sample: Sample) -> Mapping[str, object]:
    return {"op": sample.op, "dtype": sample.dtype, "backend": sample.backend,
            "target": sample.target, "seed": sample.seed}  # fmt: skip


def _outputs(sample: Sample) -> Mapping[str, object]:
    status = str(sample.status) if sample.status else "not evaluated"
    return {"status": status, "speedup": sample.speedup, "cheat": sample.cheat,
            "detail": sample.detail}  # fmt: skip


def _digest(figures: Iterable[Figure], samples: Iterable[Sample]) -> str:
    shown = json.dumps([figure.document() for figure in figures])
    lines = "\n".join([shown, *(sample.to_json() for sample in samples)])
    return hashlib.sha256(lines.encode()).hexdigest()
