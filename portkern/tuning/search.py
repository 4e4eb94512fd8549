"""The search for a kernel's best knob settings, on the hardware that it is to run on.

Settings are evaluated like any kernel: the wrong ones are out, the rest race against the framework.
Whoever leads then meets the defaults in one more race, which alone decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from portkern.errors import ConfigError
from portkern.records.record import Record
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate
from portkern.spec.op import Precision
from portkern.spec.target import Target

Settings = Mapping[str, int]
#: Evaluates kernels of one problem side by side; ``fresh`` asks for a new race.
Evaluate = Callable[[Sequence[Candidate], bool], Sequence[Record]]
#: A lead below this is not a reason to leave the defaults.
LEAST_GAIN = 1.01
BASELINE = "eager"
#: As many suggestions in a row that were seen before end a search.
PATIENCE = 20


@dataclass(frozen=True)
class Space:
    """The legal values of each knob, the default first; ``refused`` says why others are not."""

    choices: Mapping[str, tuple[int, ...]]
    refused: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, candidate: Candidate, backend: Backend, where: Target, precision: Precision = "strict"
    ) -> Space:
        """The settings that ``where`` takes and an op of this ``precision`` allows. Raises
        ConfigError when the kernel has no knob, or no legal value of one."""
        if not candidate.knobs:
            raise ConfigError(
                f"The {candidate.language} kernel of {candidate.op!r} declares no knobs, expected "
                "a constant with a comment such as 'knob: 128 256 512'"
            )
        choices: dict[str, tuple[int, ...]] = {}
        refused: dict[str, str] = {}
        for knob in candidate.knobs.values():
            why = {
                value: _imprecise(knob.name, value, precision)
                or backend.refuses(where, knob.name, value)
                for value in knob.choices
            }
            legal = sorted((v for v in why if not why[v]), key=lambda v: (v != knob.value, v))
            refused |= {f"{knob.name}={value}": why[value] for value in why if why[value]}
            if not legal:
                raise ConfigError(f"No value of {knob.name} is legal: {why[knob.value]}")
            choices[knob.name] = tuple(legal)
        return cls(choices, refused)

    @property
    def size(self) -> int:
        return math.prod(map(len, self.choices.values()))

    @property
    def default(self) -> Settings:
        return {name: values[0] for name, values in self.choices.items()}

    def everything(self) -> Iterator[Settings]:
        """The default first."""
        for values in itertools.product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))


def _imprecise(knob: str, value: int, precision: Precision) -> str:
    """Kernels that can multiply in TF32 have a knob of that name."""
    refused = knob == "TF32" and value and precision == "strict"
    return "the op is held to strict precision" if refused else ""


@dataclass(frozen=True)
class TuningTrial:
    """``score``: how many times as fast as the framework; 0 for what was not right, or not timed
    without too much noise."""

    settings: Settings
    record: Record

    @property
    def score(self) -> float:
        if BASELINE not in self.record.speedup or not self.record.comparable:
            return 0.0
        return self.record.speedup[BASELINE].value


@dataclass(frozen=True)
class Found:
    """``best`` are the default settings unless others won the last race by :data:`LEAST_GAIN`;
    ``gain``: the defaults' median time over the best's, None where the defaults do not run."""

    best: Settings
    gain: float | None
    trials: Sequence[TuningTrial]
    last: Sequence[TuningTrial]


def search(
    candidate: Candidate,
    space: Space,
    evaluate: Evaluate,
    *,
    trials: int,
    batch: int,
    finalists: int,
    seed: int,
) -> Found:
    """Searches settings: all of them when they are no more than ``trials``, else Optuna's
    suggestions."""
    exhaustive = space.size <= trials
    proposals = _All(space) if exhaustive else _Suggested(space, seed)
    seen: list[TuningTrial] = []
    while len(seen) < trials:
        asked = proposals.ask(min(batch, trials - len(seen)))
        if not asked:
            break
        evaluated = _evaluate(candidate, asked, evaluate, fresh=False)
        proposals.tell(evaluated)
        seen += evaluated
    leaders = sorted((tried for tried in seen if tried.score), key=lambda tried: -tried.score)
    if not leaders:
        return Found(space.default, 1.0, seen, ())
    chosen = [space.default, *(leader.settings for leader in leaders[:finalists])]
    asked = [dict(pairs) for pairs in dict.fromkeys(tuple(settings.items()) for settings in chosen)]
    return _decide(space, seen, _evaluate(candidate, asked, evaluate, fresh=True))


def _evaluate(
    candidate: Candidate, asked: Sequence[Settings], evaluate: Evaluate, *, fresh: bool
) -> list[TuningTrial]:
    records = evaluate([candidate.turn(settings) for settings in asked], fresh)
    return [TuningTrial(settings, record) for settings, record in zip(asked, records, strict=True)]


def _decide(space: Space, seen: Sequence[TuningTrial], last: Sequence[TuningTrial]) -> Found:
    """The defaults are the first of ``last``; where they do not run, whoever does is the best."""
    timed = [tried for tried in last if tried.record.timing]
    if not timed:
        return Found(space.default, 1.0, seen, last)
    best = min(timed, key=_median_us)
    if last[0] not in timed:
        return Found(best.settings, None, seen, last)
    gain = _median_us(last[0]) / _median_us(best)
    if gain < LEAST_GAIN:
        return Found(space.default, 1.0, seen, last)
    return Found(best.settings, gain, seen, last)


def _median_us(trial: TuningTrial) -> float:
    assert trial.record.timing is not None
    return trial.record.timing.median_us


class _All:
    def __init__(self, space: Space) -> None:
        self._left = space.everything()

    def ask(self, count: int) -> list[Settings]:
        return list(itertools.islice(self._left, count))

    def tell(self, evaluated: Sequence[TuningTrial]) -> None:
        """Learns nothing: everything is tried."""


class _Suggested:
    """Tree-structured Parzen estimators, the defaults first; no settings twice."""

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{space.size} settings are more than trials; pip install 'portkern[tune]' for "
                f"Optuna to choose among them, or ask for trials={space.size}"
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in space.choices.items()
        }
        self._failed = optuna.trial.TrialState.FAIL
        self._open: dict[tuple[int, ...], optuna.trial.Trial] = {}
        self._scores: dict[tuple[int, ...], float] = {}
        self._study.enqueue_trial(dict(space.default))

    def ask(self, count: int) -> list[Settings]:
        asked: list[Settings] = []
        repeated = 0
        while len(asked) < count and repeated < PATIENCE:
            trial = self._study.ask(self._distributions)
            values = tuple(trial.params.values())
            if values in self._open or values in self._scores:
                repeated += 1
                self._study.tell(trial, self._scores.get(values, 0.0))
                continue
            self._open[values] = trial
            asked.append(dict(trial.params))
        return asked

    def tell(self, evaluated: Sequence[TuningTrial]) -> None:
        for tried in evaluated:
            values = tuple(tried.settings.values())
            trial = self._open.pop(values)
            self._scores[values] = tried.score
            if tried.score:
                self._study.tell(trial, tried.score)
            else:
                self._study.tell(trial, state=self._failed)
