"""STARK: all attempts are one tree, and any of them may be the next to grow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search, Share, names, written

Relative = Literal["children", "siblings", "leaderboard"]
#: The task itself, of which attempts without parents are children.
ROOT = ""


def parent_of(child: Attempt | Slot) -> str:
    return child.parents[0] if child.parents else ROOT


class TreeEps(Search):
    class Options(Search.Options):
        trials: Count | None = 30
        epsilon: Share = 0.3
        root_throttle: Count | None = 5
        prune_after: Count | None = 3
        leaf_bias: Share = 0.5
        shown: Annotated[tuple[Relative, ...], Field(strict=False)] = (
            "children",
            "siblings",
            "leaderboard",
        )
        leaders: Count = 3

    options: Options

    def next(self, known: Log) -> Slot | None:
        if self.asked_of_authors == self.options.trials:
            return None
        family = _Family(known)
        node = self._choose(known, family)
        if node is None:
            return None
        if node == ROOT:
            return Slot(shown=self._shown(family.of[ROOT], [], known))
        attempt = known[node]
        shown = self._shown(family.of[node], family.siblings(attempt), known, without=[node])
        return Slot(parents=(node,), shown=shown, operator="" if attempt.correct else "debug")

    def _choose(self, known: Log, family: _Family) -> str | None:
        """The root bears no more than it may unless nothing else lives, and then one at a time:
        what comes of it is what the next is built on."""
        out = [parent_of(slot) for slot in self.state.out]
        begun = len(family.of[ROOT]) + out.count(ROOT)
        alive = family.alive(known, out, self.options.prune_after)
        root = [ROOT] if begun < (self.options.root_throttle or begun + 1) else []
        if not alive:
            return None if self.state.out else ROOT
        drawn = self.chance(self.state.asked)
        if drawn.random() >= self.options.epsilon:
            # Of equals the newest: among failing ones it is what the last repair came to.
            return max(reversed(alive), key=lambda attempt: attempt.score).id
        nodes = [attempt.id for attempt in alive]
        leaves = [name for name in nodes if not family.of[name] and name not in out]
        biased = drawn.random() < self.options.leaf_bias
        return drawn.choice(leaves if leaves and biased else nodes + root)

    def _shown(
        self,
        children: list[Attempt],
        siblings: list[Attempt],
        known: Log,
        without: Sequence[str] = (),
    ) -> tuple[str, ...]:
        about = {
            "children": children,
            "siblings": siblings,
            "leaderboard": known.best(self.options.leaders),
        }
        return names((attempt for which in self.options.shown for attempt in about[which]), without)


class _Family:
    """The attempts by their first parents."""

    def __init__(self, known: Log) -> None:
        self.of: defaultdict[str, list[Attempt]] = defaultdict(list)
        for attempt in known:
            self.of[parent_of(attempt)].append(attempt)

    def siblings(self, attempt: Attempt) -> list[Attempt]:
        return self.of[parent_of(attempt)]

    def alive(self, known: Log, out: Sequence[str], prune_after: int | None) -> list[Attempt]:
        """The attempts that are worth another child. A correct kernel is not, once
        ``prune_after`` of its children failed and none did not, and neither is what fails below
        it. A failing one is not, once it was mended, or once as many attempts, beside or below
        one another, did not mend it. Children that are ``out`` count as if they failed."""
        limit = prune_after or len(known) + len(out) + 1
        broken: dict[str, str] = {}  # failing attempts by the one that broke what was correct
        mends: Counter[str] = Counter()
        for attempt in known:
            above = broken.get(parent_of(attempt))
            if above:
                mends[above] += limit if attempt.correct else 1
            if not attempt.correct:
                broken[attempt.id] = above or attempt.id
        mends.update(broken[name] for name in out if name in broken)
        alive: dict[str, bool] = {ROOT: True}
        for attempt in known:
            children = self.of[attempt.id]
            barren = len(children) + out.count(attempt.id) >= limit
            if attempt.correct:
                alive[attempt.id] = not barren or any(child.correct for child in children)
            else:
                alive[attempt.id] = alive[parent_of(attempt)] and mends[broken[attempt.id]] < limit
        return [attempt for attempt in written(known) if alive[attempt.id]]
