"""The result of a comparison of models: numbers with intervals, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from portkern.experiment.compare.metric import METRICS as METRICS
from portkern.experiment.compare.metric import Metric as Metric
from portkern.experiment.section import document
from portkern.experiment.statistics import SIGNIFICANT, Estimate, least_p

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

SCHEMA: Final = 1
#: How the results of a number are known. Empty: nobody said, or nothing in that place came so far
#: that it ran. No number mixes two of them, but for what asks for all places at once: ``any`` is
#: correct on hardware or in an emulator.
Venue = Literal["measured", "emulated", "", "any"]


@dataclass(frozen=True, order=True)
class AskedPlace:
    """Where kernels were asked for."""

    backend: str
    target: str

    def __str__(self) -> str:
        return f"{self.backend} on {self.target}"


@dataclass(frozen=True, order=True)
class SampleScope:
    """The samples that a number is computed over. An empty ``backend``, ``target`` or ``suite``
    is all of them; ``venue`` is never all."""

    model: str
    venue: Venue
    backend: str = ""
    target: str = ""
    suite: str = ""


@dataclass(frozen=True)
class Figure:
    """One number. ``k`` and ``p`` are None of metrics that have none. ``estimate`` is None where
    there is no number, and ``reason`` says why; with a number, ``reason`` is a caution or empty.
    Over ``tasks`` of the scope with ``samples`` in all."""

    scope: SampleScope
    metric: str
    estimate: Estimate | None
    k: int | None = None
    p: float | None = None
    tasks: int = 0
    samples: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.estimate is None and not self.reason:
            raise ValueError(f"{self.metric} of {self.scope} has no number; expected a reason")

    @property
    def title(self) -> str:
        """``fast_1@5`` or ``pass@1``."""
        title = METRICS[self.metric].title.replace("@k", f"@{self.k}")
        return title if self.p is None else title.replace("_p", f"_{self.p:g}")

    def document(self) -> JsonObject:
        return {**_plain(self.scope), "metric": self.metric, "k": self.k, "p": self.p,
                "estimate": document(self.estimate), "tasks": self.tasks,
                "samples": self.samples, "reason": self.reason}  # fmt: skip


@dataclass(frozen=True)
class TaskResult:
    """One model's samples of one task. ``passed`` has Wilson's interval and is None where nothing
    was evaluated. ``best_*`` are of its correct samples, each by itself, None where not timed."""

    model: str
    op: str
    suite: str
    dtype: str
    backend: str
    target: str
    venue: Venue
    samples: int
    unevaluated: int
    no_code: int
    built: int
    correct: int
    timed: int
    cheats: int
    passed: Estimate | None
    best_speedup: float | None = None
    best_efficiency: float | None = None
    best_us: float | None = None

    @property
    def place(self) -> AskedPlace:
        return AskedPlace(self.backend, self.target)

    def document(self) -> JsonObject:
        return {**_plain(self), "passed": document(self.passed)}


Kind = Literal["application", "architectural"]


@dataclass(frozen=True)
class CascadeStep:
    """A step of a cascade: a place, how efficient the kernel is there, and the portability over
    the places so far."""

    place: AskedPlace
    efficiency: float
    portability: float

    def document(self) -> JsonObject:
        return {**_plain(self.place), "efficiency": self.efficiency,
                "portability": self.portability}  # fmt: skip


@dataclass(frozen=True)
class Portability:
    """Pennycook's metric of one model on one op, over the places that are measured. ``value`` is
    None where it is not known, and 0 as soon as one place has no correct kernel: ``blocked`` is
    the first such, in the order of the places. ``steps`` is the cascade: places by falling
    efficiency, without those that are ``unknown``: correct there, and not timed. An empty ``op`` is
    all: efficiencies are means over ops, where nothing correct is 0.
    """

    model: str
    op: str
    dtype: str
    kind: Kind
    value: float | None
    steps: tuple[CascadeStep, ...] = ()
    blocked: AskedPlace | None = None
    reason: str = ""
    unknown: tuple[AskedPlace, ...] = ()

    @property
    def supported(self) -> int:
        return sum(step.efficiency > 0 for step in self.steps)

    @property
    def mean_of_supported(self) -> float | None:
        """Marowka's: the arithmetic mean over the places with a correct kernel."""
        kept = [step.efficiency for step in self.steps if step.efficiency > 0]
        return sum(kept) / len(kept) if kept else None

    def document(self) -> JsonObject:
        return {
            "model": self.model, "op": self.op, "dtype": self.dtype, "kind": self.kind,
            "value": self.value, "blocked": str(self.blocked) if self.blocked else None,
            "supported": self.supported, "mean_of_supported": self.mean_of_supported,
            "steps": [step.document() for step in self.steps], "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class TranslationRate:
    """How often a kernel of ``donor`` became a correct one for ``backend``: pass@1 over tasks."""

    model: str
    donor: str
    backend: str
    venue: Venue
    estimate: Estimate
    tasks: int
    samples: int

    def document(self) -> JsonObject:
        return {**_plain(self), "estimate": document(self.estimate)}


@dataclass(frozen=True)
class Divergence:
    """How much of a model's code differs between two places, over ops that it solved in both: 0 is
    the same lines, 1 none in common."""

    model: str
    first: AskedPlace
    second: AskedPlace
    estimate: Estimate

    def document(self) -> JsonObject:
        return {"model": self.model, "first": str(self.first), "second": str(self.second),
                "estimate": document(self.estimate)}  # fmt: skip


@dataclass(frozen=True)
class ModelDifference:
    """The ``first`` model less the ``second`` on the tasks that both have, at equal numbers of
    samples; of geometric speedups, their quotient. ``p_value`` is the sign-flip test's over ops,
    ``p_holm`` after the correction for all differences of the comparison. ``tests`` is how many
    these are."""

    first: str
    second: str
    metric: str
    k: int
    threshold: float | None
    venue: Venue
    estimate: Estimate | None
    p_value: float | None
    p_holm: float | None
    tasks: int
    tests: int
    words: str

    @property
    def least_p(self) -> float:
        """The least that ``p_holm`` can be with so many ops and tests, whatever they say."""
        return min(1.0, self.tests * least_p(self.estimate.n)) if self.estimate else 1.0

    @property
    def shown(self) -> bool:
        return self.p_holm is not None and self.p_holm < SIGNIFICANT

    def document(self) -> JsonObject:
        return {**_plain(self), "estimate": document(self.estimate), "shown": self.shown}


@dataclass(frozen=True)
class ModelComparison:
    """``ks`` are those that numbers are given for. ``notes`` are cautions, one sentence each.
    ``best_known`` is a digest of the times that application efficiency is over: with another one,
    portabilities cannot be compared."""

    models: tuple[str, ...]
    places: tuple[AskedPlace, ...]
    suites: tuple[str, ...]
    ops: int
    ks: tuple[int, ...]
    samples: int
    unevaluated: int
    figures: tuple[Figure, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    portability: tuple[Portability, ...] = ()
    cascades: tuple[Portability, ...] = ()
    translations: tuple[TranslationRate, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    differences: tuple[ModelDifference, ...] = ()
    best_known: str = ""
    notes: tuple[str, ...] = ()
    _index: dict[tuple[SampleScope, str, int | None, float | None], Figure] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._index.update({(f.scope, f.metric, f.k, f.p): f for f in self.figures})

    def figure(
        self, scope: SampleScope, metric: str, k: int | None = None, p: float | None = None
    ) -> Figure | None:
        """The figure of a scope; None where it has no samples, or k or p was not asked for."""
        return self._index.get((scope, metric, k, p))

    def scopes(self, model: str, suite: str = "") -> Iterator[SampleScope]:
        """The scopes of a model: the whole first, then by backend, then by target."""
        seen = dict.fromkeys(f.scope for f in self.figures)
        own = [scope for scope in seen if scope.model == model and scope.suite == suite]
        yield from sorted(own, key=lambda s: (bool(s.backend) + bool(s.target), s))

    def venues(self) -> tuple[Venue, ...]:
        """Measured before emulated."""
        order: tuple[Venue, ...] = ("measured", "emulated", "")
        seen = {figure.scope.venue for figure in self.figures if figure.samples}
        return tuple(venue for venue in order if venue in seen)

    def document(self) -> JsonObject:
        """The comparison as JSON."""
        return {
            "schema": SCHEMA,
            "models": list(self.models),
            "places": [str(place) for place in self.places],
            "suites": list(self.suites),
            "ops": self.ops,
            "ks": list(self.ks),
            "samples": self.samples,
            "unevaluated": self.unevaluated,
            "best_known": self.best_known,
            "notes": list(self.notes),
            "figures": [one.document() for one in self.figures],
            "tasks": [one.document() for one in self.tasks],
            "portability": [one.document() for one in self.portability],
            "cascades": [one.document() for one in self.cascades],
            "translations": [one.document() for one in self.translations],
            "divergences": [one.document() for one in self.divergences],
            "differences": [one.document() for one in self.differences],
        }


def _plain(value: object) -> dict[str, Json]:
    """The fields of a dataclass whose values are JSON's already; others replace theirs."""
    plain: dict[str, Json] = {
        name: getattr(value, name)
        for name in value.__dataclass_fields__  # type: ignore[attr-defined]
    }
    return plain
