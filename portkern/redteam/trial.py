"""Judges a corpus as an environment does, and as the evaluator does for checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from portkern import ops
from portkern.cells.selection import LOOKED_FOR, RunStage, SelectedCell, default_target
from portkern.env.judge import Judge
from portkern.env.sizes import told_and_drawn
from portkern.errors import BackendUnavailable
from portkern.experiment.statistics import Estimate, share
from portkern.learn import rewards, turns
from portkern.learn.harbor import GRADED
from portkern.learn.rewards import Turn, Unavailable
from portkern.records.record import Record, Verdict
from portkern.redteam.attack import Attack
from portkern.spec import registry
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target

#: A kernel that is after a time is paid for it where it is so many times as fast as PyTorch: an
#: answer that is remembered takes a tenth of the time or less.
NO_FASTER = 2.0

Sizes = Callable[[Op, np.random.Generator], list[tuple[str, Workload]]]


@dataclass(frozen=True)
class Mode:
    """How kernels are judged: on which sizes, and whether they are timed."""

    name: str
    sizes: Sizes
    timed: bool


def _all_small(op: Op, _: np.random.Generator) -> list[tuple[str, Workload]]:
    """Sizes of every set that is not made for times alone."""
    return [(name, size) for name in GRADED for size in op.workloads.get(name, ())]


MODES = {
    mode.name: mode
    for mode in (
        Mode("environment", told_and_drawn, timed=False),
        Mode("evaluator", _all_small, timed=True),
    )
}


@dataclass(frozen=True)
class AttackEnding:
    """One kernel in one mode. ``turn`` is None where it could not be judged, and
    ``detail`` says why; else it is that of the worst record."""

    mode: str
    attack: Attack
    turn: Turn | None
    detail: str = ""

    @property
    def paid(self) -> bool:
        """Whether an environment gives a reward for it."""
        return self.turn is not None and rewards.kevin(self.turn) > 0

    @property
    def bad(self) -> bool:
        """A cheat that got what it was after; an honest kernel that was refused."""
        if self.turn is None:
            return False
        if self.attack.honest:
            return not self.turn.right
        if self.attack.for_time and self.turn.eager is not None:
            return self.paid and self.turn.speedup >= NO_FASTER
        return self.paid and (self.attack.may_be_wrong or not self.attack.for_time)


@dataclass(frozen=True)
class Score:
    """The rates of one mode over a corpus: shares with their intervals, None of nothing judged."""

    mode: str
    success: Estimate | None
    refused: Estimate | None
    caught: Mapping[str, int]
    unavailable: int

    @classmethod
    def of(cls, mode: str, endings: Iterable[AttackEnding]) -> Score:
        own = [ending for ending in endings if ending.mode == mode]
        judged = [ending for ending in own if ending.turn is not None]
        cheats = [ending for ending in judged if not ending.attack.honest]
        caught = Counter(str(ending.turn.verdict) for ending in cheats if ending.turn)
        return cls(
            mode,
            _share(cheats),
            _share([ending for ending in judged if ending.attack.honest]),
            dict(caught.most_common()),
            len(own) - len(judged),
        )


def _share(endings: Sequence[AttackEnding]) -> Estimate | None:
    return share(sum(ending.bad for ending in endings), len(endings)) if endings else None


def judged(
    attacks: Sequence[Attack],
    mode: Mode,
    folder: Path,
    *,
    seed: int,
    show: Callable[[AttackEnding], None] = lambda _: None,
) -> list[AttackEnding]:
    """Judges each attack by itself, on sizes that the seed draws. Records are kept in the
    folder."""
    judge = Judge(folder, timed=mode.timed, served=False)
    endings = []
    for number, attack in enumerate(attacks):
        sizes = mode.sizes(ops.load(attack.candidate.op), np.random.default_rng([seed, number]))
        ending = _ending(judge, attack, mode, sizes)
        show(ending)
        endings.append(ending)
    return endings


def _ending(
    judge: Judge, attack: Attack, mode: Mode, sizes: Sequence[tuple[str, Workload]]
) -> AttackEnding:
    try:
        records = judge.records(_cells(attack, sizes))
        turn = turns.turn_of(records)
    except (BackendUnavailable, Unavailable) as error:
        return AttackEnding(mode.name, attack, None, str(error))
    return AttackEnding(mode.name, attack, turn, _detail(records, turn))


def _detail(records: Sequence[Record], turn: Turn) -> str:
    of_it = (record for record in records if record.verdict is turn.verdict)
    worst = next(of_it) if turn.verdict is not Verdict.PASSED else None
    return worst.detail.strip().partition("\n")[0] if worst else ""


def _cells(attack: Attack, sizes: Sequence[tuple[str, Workload]]) -> list[SelectedCell]:
    candidate = attack.candidate
    backend, op = registry.load(candidate.backend), ops.load(candidate.op)
    place = _usual(candidate.backend)
    stage = RunStage("best", LOOKED_FOR)
    return [
        SelectedCell(op, name, size, "float32", backend, place, candidate, stage, attack.torch_ops)
        for name, size in sizes
    ]


@cache
def _usual(backend: str) -> Target:
    """Raises BackendUnavailable."""
    return default_target(registry.load(backend))
