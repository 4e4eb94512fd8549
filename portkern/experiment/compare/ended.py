"""How a sample's run ended, as its row says it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from portkern.agent.attempt import Attempt
from portkern.agent.llm.calls import Obstacle
from portkern.agent.run import GenerationRun
from portkern.experiment.ending import AttemptEnding, endings
from portkern.records.record import Evidence, Record, Verdict
from portkern.spec import own_headers

#: What ran on hardware and could not be timed there was not emulated either; an object that was
#: executed on a model of the processor was not on hardware.
_EVIDENCE: dict[Evidence, Literal["", "built", "emulated", "measured"]] = {
    Evidence.NONE: "",
    Evidence.BUILT: "built",
    Evidence.EMULATED: "emulated",
    Evidence.EXECUTED: "emulated",
    Evidence.VERIFIED: "measured",
    Evidence.MEASURED: "measured",
}


def ending_of(run: GenerationRun) -> AttemptEnding | None:
    """How the best attempt ended, or else the last one that was evaluated; None if none was."""
    answered = frozenset(call.id for call in run.models.store if not call.error)
    ends = [end for end in endings(run.log, answered) if end.status]
    best = {attempt.id for attempt in run.log.best()}
    chosen = [end for end in ends if end.attempt.id in best] or ends
    return chosen[-1] if chosen else None


def found(
    run: GenerationRun, ending: AttemptEnding, heldout: Sequence[Record] | None
) -> dict[str, object]:
    """The values of a sample's row that follow from its run and how that ended. ``heldout`` are
    the records of the last sets, None without any."""
    attempt, store = ending.attempt, run.models.store
    records = _records(run, attempt)
    last = records[-1] if records else None
    cost = store.total
    device_s = run.meter.spent.device_s
    return {
        "status": ending.status,
        "evidence": _EVIDENCE[last.evidence] if last else "",
        "device": last.environment.device if last else "",
        **_times(run, records if ending.correct else ()),
        "heldout": _held(heldout or ()),
        "cheat": ending.cheat,
        "obstacle": "" if ending.correct else _obstacle(run, attempt),
        "headers": tuple(own_headers.taken(attempt.source)),
        "digest": attempt.digest,
        "detail": attempt.detail.partition("\n")[0],
        "tokens_in": cost.tokens_in,
        "tokens_out": cost.tokens_out,
        "usd": cost.usd,
        "seconds": round(sum(call.seconds for call in store) + device_s, 3),
    }


def _obstacle(run: GenerationRun, attempt: Attempt) -> Obstacle:
    """The obstacle that the last call of an attempt met."""
    calls = [name for name in attempt.calls if name in run.models.store]
    return run.models.store[calls[-1]].obstacle if calls else ""


def _held(records: Sequence[Record]) -> bool | None:
    """Whether all records passed; None where there are none, or one could not be evaluated."""
    if any(not record.judged for record in records):
        return None
    return all(record.verdict is Verdict.PASSED for record in records) if records else None


def _records(run: GenerationRun, attempt: Attempt) -> list[Record]:
    """The records of an attempt, in the order in which it names them."""
    known = {record.id: record for record in run.bench.file.read()[0]}
    return [known[name] for name in attempt.records if name in known]


def _times(run: GenerationRun, records: Sequence[Record]) -> dict[str, object]:
    """Geometric means over the scored workloads; none where one of them could not be compared."""
    baseline, scored = run.plan.evaluation.baselines[0], run.plan.task.scored
    timed = [record for record in records if record.workload.set == scored]
    if not timed or not all(one.comparable and baseline in one.speedup for one in timed):
        return {}
    fractions = [record.roofline.fraction for record in timed if record.roofline]
    reached = [fraction for fraction in fractions if fraction]
    return {
        "baseline": baseline,
        "speedup": _mean([record.speedup[baseline].value for record in timed]),
        "efficiency": _mean(reached) if len(reached) == len(timed) else None,
        "us": _mean([record.timing.median_us for record in timed if record.timing]),
    }


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
