"""KernelBand and AKG: upper confidence bounds over what to change in which kernels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Arm, Slot
from portkern.agent.strategy.clusters import Clusters, Point
from portkern.agent.strategy.search import Count, Search, failing, metric, names, ranked
from portkern.errors import ConfigError

#: How much of a resource a kernel uses, in percent of its peak.
LOAD: Final = {"compute": "compute_pct", "memory": "memory_pct", "cache": "l2_pct"}
#: Percentage points of headroom that make a kernel e times as likely to be drawn (KernelBand's).
SOFTNESS: Final = 1.0
#: The number of failed attempts that are shown while there is nothing to choose from.
SHOWN: Final = 3
Percent = Annotated[float, Field(gt=0, le=100)]


class Thresholds(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    compute: Percent = 80.0
    memory: Percent = 70.0
    cache: Percent = 75.0


class Pull(BaseModel):
    """``reward`` is None while the slot is out."""

    parent: str
    arm: str
    reward: float | None = None


class Bandit(Search):
    class Options(Search.Options):
        items: Literal["clusters", "parents"] = "clusters"
        trials: Count | None = 20
        c: Annotated[float, Field(ge=0)] = 2.0
        clusters: Count = 3
        tau: Count = 10
        mu0: float = 0.5
        n0: Annotated[float, Field(gt=0)] = 1.0
        inspirations: Annotated[int, Field(ge=0)] = 0
        mask: bool = True
        thresholds: Thresholds = Thresholds()

    class State(Search.State):
        """``fitted``: as many attempts were known when ``clusters`` were made."""

        pulls: list[Pull] = Field(default_factory=list)
        clusters: Clusters | None = None
        fitted: int = 0

    options: Options
    state: State

    @property
    def masks(self) -> bool:
        return self.options.mask and self.options.items == "clusters"

    def start(self) -> State:
        if self.options.items == "clusters" and not self.arms:
            raise ConfigError("bandit needs actions to choose from; set proposer.actions=menu/…")
        if self.masks and not any(arm.resource in LOAD for arm in self.arms):
            raise ConfigError(
                "Got strategy.mask=true, but no action relieves a resource; set strategy.mask=false"
                " or a menu of proposer.actions whose actions name theirs"
            )
        self._thresholds = self.options.thresholds.model_dump()
        return self.State()

    def next(self, known: Log) -> Slot | None:
        if self.asked_of_authors == self.options.trials:
            return None
        frontier = ranked(known)
        if not frontier:  # one at a time: there is nothing to choose from before it is known
            return None if self.state.out else Slot(shown=names(failing(known)[:SHOWN]))
        if self.options.items == "parents":
            parent, arm = self._parent(frontier), ""
        else:
            parent, arm = self._member(frontier, known)
        self.state.pulls.append(Pull(parent=parent.id, arm=arm))
        beside = names(frontier, without=[parent.id])[: self.options.inspirations]
        return Slot(parents=(parent.id,), arm=arm, shown=beside)

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        """The reward is the share of its parent's time that the child saves."""
        if not slot.parents:
            return
        child = max((attempt.score for attempt in attempts), default=0.0)
        pull = next(pull for pull in self.state.pulls if pull.reward is None)
        pull.reward = max(0.0, 1 - known[pull.parent].score / child) if child else 0.0

    def _parent(self, frontier: Sequence[Attempt]) -> Attempt:
        """The correct attempt that is worth the most by its rank and by how seldom it was
        chosen."""
        pulls = [pull.parent for pull in self.state.pulls]

        def bound(rank: int) -> float:
            quality = 1 - rank / (len(frontier) - 1) if rank else 1.0
            chosen = pulls.count(frontier[rank].id)
            return quality + self.options.c * math.sqrt(math.log(len(pulls) + 1) / (chosen + 1))

        return frontier[max(range(len(frontier)), key=bound)]

    def _member(self, frontier: Sequence[Attempt], known: Log) -> tuple[Attempt, str]:
        """The best of all pairs of cluster and arm, and a member of that cluster."""
        self._recluster(frontier)
        groups: dict[int, list[Attempt]] = {}
        for attempt in frontier:
            groups.setdefault(self._cluster(attempt), []).append(attempt)
        rewards: defaultdict[tuple[int, str], list[float | None]] = defaultdict(list)
        for pull in self.state.pulls:
            rewards[self._cluster(known[pull.parent]), pull.arm].append(pull.reward)
        pairs = [
            (number, arm) for number in sorted(groups) for arm in self._unmasked(groups[number])
        ]
        number, arm = max(pairs, key=lambda pair: self._bound(rewards[pair[0], pair[1].name]))
        return self._draw(groups[number], arm), arm.name

    def _bound(self, rewards: Sequence[float | None]) -> float:
        """A pull that is out has no reward yet, but counts: the next one goes elsewhere."""
        mu0, n0 = self.options.mu0, self.options.n0
        known = [reward for reward in rewards if reward is not None]
        mean = (mu0 * n0 + sum(known)) / (n0 + len(known))
        log = math.log(len(self.state.pulls) + 1)
        return mean + self.options.c * math.sqrt(log / (n0 + len(rewards)))

    def _recluster(self, frontier: Sequence[Attempt]) -> None:
        """Forms clusters when there are twice as many kernels as clusters, and again after every
        ``tau``."""
        state, options = self.state, self.options
        due = state.clusters is None or len(state.learnt) - state.fitted >= options.tau
        if due and len(frontier) >= 2 * options.clusters:
            points = [features(attempt) for attempt in frontier]
            state.clusters = Clusters.of(points, options.clusters, self.chance(state.asked))
            state.fitted = len(state.learnt)

    def _cluster(self, attempt: Attempt) -> int:
        clusters = self.state.clusters
        return clusters.nearest(features(attempt)) if clusters else 0

    def _unmasked(self, group: Sequence[Attempt]) -> list[Arm]:
        """Arms whose resource has room left at the kernel next to the centre; the one with the
        most where none has."""
        if not self.masks:
            return list(self.arms)
        clusters = self.state.clusters
        typical = min(
            group, key=lambda attempt: min(clusters.distances(features(attempt))) if clusters else 0
        )
        room = {arm.name: self._headroom(typical, arm) for arm in self.arms}
        unmasked = [arm for arm in self.arms if room[arm.name] > 0]
        return unmasked or [max(self.arms, key=lambda arm: room[arm.name])]

    def _headroom(self, attempt: Attempt, arm: Arm) -> float:
        """The headroom of the resource that the arm relieves; infinite where nobody counted it,
        or the arm relieves none."""
        load = metric(attempt, LOAD.get(arm.resource, ""))
        return math.inf if load is None else self._thresholds[arm.resource] - load

    def _draw(self, group: Sequence[Attempt], arm: Arm) -> Attempt:
        """The likelier the more room it has for this arm; the fastest where nobody counted."""
        room = {attempt.id: self._headroom(attempt, arm) for attempt in group}
        counted = [attempt for attempt in group if room[attempt.id] < math.inf]
        if not counted:
            return group[0]
        most = max(room[attempt.id] for attempt in counted)
        weights = [math.exp((room[attempt.id] - most) / SOFTNESS) for attempt in counted]
        [drawn] = self.chance(self.state.asked).choices(counted, weights)
        return drawn


def features(attempt: Attempt) -> Point:
    """The features of a kernel's behaviour, which are its time and what it takes of the device;
    0 where one is not known."""
    names = ("median_us", "registers", "shared_bytes", "threads", "occupancy")
    median_us, registers, shared_bytes, threads, occupancy = (
        metric(attempt, n) or 0.0 for n in names
    )
    return (
        math.log1p(median_us),
        registers,
        shared_bytes / 1024,
        math.log2(max(threads, 1.0)),
        occupancy,
    )
