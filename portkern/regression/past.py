"""Knowledge from before a run: references out of the newest file of them that still holds, and
what the runs since then add to it. Where no file holds, all is learnt from the runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.errors import PortkernError, RecordError
from portkern.records import packed
from portkern.regression import nights, reference_file, standing
from portkern.regression.decisions import NightDecisions
from portkern.regression.judgement import Judgement
from portkern.regression.nights import Night
from portkern.regression.reference import References
from portkern.regression.reference_file import LearntRun, OtherRun, ReferenceOrigin
from portkern.regression.runs import RecordedRun
from portkern.regression.series import Series
from portkern.spec import foreign_text


@dataclass
class KnownPast:
    """``runs``, oldest first, are what ``references`` were learnt from; ``problems``: what of it
    could not be read."""

    references: References
    runs: list[LearntRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [run.name for run in self.runs]

    @classmethod
    def of(
        cls,
        several: Sequence[Night],
        decisions: NightDecisions,
        promoted: Sequence[str] = (),
        day: str = "",
    ) -> KnownPast:
        """Learnt from these runs, oldest first, as of a day."""
        past = cls(References(decisions, promoted))
        for night in several:
            past.learn(night, day)
        return past

    def learn(self, night: Night, day: str, stamp: str = "") -> None:
        found = Judgement(self.references, night, today=day).learnt
        self.references.learn(night, found, day)
        one = LearntRun(name=night.name, stamp=stamp, green=night.green, problem=night.problem)
        self.runs.append(one)


def before(
    night: Night,
    reports: Path,
    decisions: NightDecisions,
    *,
    most: int = 0,
    named: Night | None = None,
) -> KnownPast:
    """The past of ``night``: the newest ``most`` runs before it, else all that one can look back
    on. Where those do not include ``named``, which ``night`` is compared with, it is learnt
    first."""
    if not most:
        known = _Known(night, reports, decisions)
        past = known.past()
        if named is None or named.name in past.names or named.time > night.time:
            return past
    promoted = standing.promoted(reports)
    several, problems = nights.before(night, reports, most)
    known_already = named is None or any(one.name == named.name for one in several)
    later = bool(several) and named is not None and named.time > night.time
    if named is not None and not known_already and not later:
        several = [named, *several]
    past = KnownPast.of(several, decisions, promoted, night.day)
    past.problems = problems + [f"{one.name}: {one.problem}" for one in several if one.problem]
    return past


class _Known:
    """The files of references in a folder, looked at for one run."""

    def __init__(self, night: Night, reports: Path, decisions: NightDecisions) -> None:
        self.night, self.reports, self.decisions = night, reports, decisions
        self.promoted = standing.promoted(reports)
        self.runs = {run.name: run for run in nights.earlier(night, reports)}  # the newest first
        self.stamps = {name: stamp_of(run) for name, run in self.runs.items()}

    def past(self) -> KnownPast:
        for run in self.runs:
            path = reference_file.path_of(self.reports, run)
            if not path.exists():
                continue
            try:
                origin = reference_file.origin(path)
                if self._holds(origin):
                    return self._since(origin, path)
            except RecordError:
                continue  # an older one may hold; if none does, all is learnt anew
        return self._anew()

    def _holds(self, origin: ReferenceOrigin) -> bool:
        """Whether the same would be learnt from the same runs now."""
        if not origin.runs or origin.decided != self._decided(origin):
            return False
        learnt = {one.name: one for one in origin.runs}
        if any(one.stamp != self.stamps.get(one.name, one.stamp) for one in origin.runs):
            return False
        demoted = standing.demoted(self.reports)
        if demoted & learnt.keys():
            return False
        older, newest = False, origin.runs[-1].name
        for name in self.runs:
            if older and name not in learnt and not self._left_out(name, origin):
                return False
            older = older or name == newest
            if origin.cut and name == origin.runs[0].name:
                break
        return older

    def _left_out(self, name: str, origin: ReferenceOrigin) -> bool:
        """Whether a run that nothing was learnt from would be left out by this one as well."""
        other = origin.others.get(name)
        if other is None or other.stamp != self.stamps[name]:
            return False
        if other.problem or other.ops.isdisjoint(series.op for series in self.night.cells):
            return True
        one = next(nights.read([self.runs[name]]))
        return isinstance(one, RecordError) or not nights.of_one_series(one, self.night)

    def _since(self, origin: ReferenceOrigin, path: Path) -> KnownPast:
        references = reference_file.read(path, self.decisions, frozenset(self.promoted))
        series = {series for series, _ in references.cells}
        if not _alike(series, self.night):
            raise RecordError(f"{path} is of other cells")
        problems = [f"{one.name}: {one.problem}" for one in origin.runs if one.problem]
        problems += [
            f"{name} is left out: {one.problem}"
            for name, one in origin.others.items()
            if one.problem and name in self.runs
        ]
        past = KnownPast(references, list(origin.runs), [*filter(None, [origin.cut]), *problems])
        names = list(self.runs)
        newer = [self.runs[name] for name in names[: names.index(origin.runs[-1].name)]][::-1]
        return self._learn(past, newer, origin)

    def _anew(self) -> KnownPast:
        past = KnownPast(References(self.decisions, self.promoted))
        newest, others, cut = nights.as_many_as_can_be(self.runs.values(), self.night)
        if cut:
            past.problems.append(cut)
        left = {name: _other(one, self.stamps[name]) for name, one in others.items()}
        past.problems += [
            f"{n} is left out: {one.problem}" for n, one in left.items() if one.problem
        ]
        for one in newest[::-1]:
            self._add(past, one)
        self._keep(past, left, cut)
        return past

    def _learn(
        self, past: KnownPast, newer: Sequence[RecordedRun], origin: ReferenceOrigin
    ) -> KnownPast:
        others = dict(origin.others)
        for run, one in zip(newer, nights.read(newer), strict=True):
            if isinstance(one, RecordError) or not nights.of_one_series(one, self.night):
                others[run.name] = _other(one, self.stamps[run.name])
                if isinstance(one, RecordError):
                    past.problems.append(f"{run.name} is left out: {one}")
            else:
                self._add(past, one)
        if len(past.runs) > len(origin.runs) or others != origin.others:
            self._keep(past, others, origin.cut)
        return past

    def _add(self, past: KnownPast, one: Night) -> None:
        past.learn(one, self.night.day, self.stamps[one.name])
        if one.problem:
            past.problems.append(f"{one.name}: {one.problem}")

    def _keep(self, past: KnownPast, others: Mapping[str, OtherRun], cut: str) -> None:
        if not past.runs:
            return
        origin = ReferenceOrigin(runs=tuple(past.runs), others=others, cut=cut)
        origin = origin.model_copy(update={"decided": self._decided(origin)})
        try:
            reference_file.write(self.reports, origin, past.references)
        except (PortkernError, OSError) as error:
            past.problems.append(f"references are not kept, the next run learns them anew: {error}")

    def _decided(self, origin: ReferenceOrigin) -> str:
        """A digest of what people decided of its runs."""
        names, day = {one.name for one in origin.runs}, self.night.day
        accepted = [
            entry.model_dump(mode="json")
            for entry in self.decisions.accepted
            if entry.since in names and not entry.ended(day)
        ]
        text = json.dumps([accepted, sorted(names & set(self.promoted))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _alike(series: set[Series], night: Night) -> bool:
    both = len(series & night.cells.keys())
    return both > 0 and 2 * both >= min(len(series), len(night.cells))


def _other(one: Night | RecordError, stamp: str) -> OtherRun:
    if isinstance(one, RecordError):
        return OtherRun(stamp=stamp, problem=str(one))
    return OtherRun(stamp=stamp, ops=frozenset(series.op for series in one.cells))


def stamp_of(run: RecordedRun) -> str:
    """A stamp of a run, which changes when its records, the further times of suspects or its
    calibrations do: lines are only added, and a file that was made anew ends in another line. A
    compressed one is read whole, as any part of it may be another."""
    digest = hashlib.sha256()
    files, calibration = [run.records, run.folder / nights.AGAIN], run.folder / nights.CALIBRATION
    files += [calibration] * calibration.exists()  # runs without one keep the stamp that they had
    for path in files:
        try:
            with foreign_text.opened(path) as file:
                size = file.seek(0, 2)
                file.seek(0 if path.suffix == packed.SUFFIX else max(0, size - (1 << 12)))
                digest.update(f"{size} ".encode() + file.read())
        except OSError:
            digest.update(b"none ")
    return digest.hexdigest()[:16]
