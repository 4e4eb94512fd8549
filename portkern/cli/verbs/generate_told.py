"""The texts that a run of ``portkern generate`` prints, and its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.agent import pace, rank
from portkern.agent.attempt import Attempt, Status
from portkern.agent.outcome import RunOutcome, RunSummary
from portkern.agent.proposer.catalogue import NOT_OFFERED
from portkern.agent.run import GenerationRun, RunPlan
from portkern.agent.task import Task
from portkern.spec.candidate import Candidate


def heading(plan: RunPlan, run: GenerationRun) -> str:
    """The first lines: the task, the strategy and the author."""
    task = plan.task
    what = f"{task.op.name} for {task.target.title}, in {task.language} ({task.backend.name})"
    kind, proposing = plan.axes["strategy"]["kind"], plan.axes["proposer"]["kind"]
    again = run.log.left_count
    resumed = f"; {again} attempts are there already" if again else ""
    ranking = f"\n{_ranking(task)}" if task.ends != "hardware" else ""
    return f"{what}: {kind}, {proposing}{resumed}\n{_author(run)}{ranking}"


def _ranking(task: Task) -> str:
    by = rank.BY_COUNTS if task.ends == "object" else rank.BY_BUILD
    return f"Nothing is timed here: right kernels are ranked by {by}."


def duration(run: GenerationRun) -> str:
    """How long it will take, before it begins."""
    run.watch("measuring how long a kernel takes")
    seconds = pace.expected_s(run)
    if seconds is None:
        return "Duration: not known before the first attempts."
    models = ", and what models take to answer" if run.proposer.roles else ""
    return f"Duration: about {pace.words(seconds)}{models}."


def _author(run: GenerationRun) -> str:
    if not run.proposer.roles:
        start = run.plan.task.start
        if start is not None:
            name = start.author.removeprefix("file:")
            return f"No model is asked: what is tried are the settings of {name}."
        return "No model is asked: the author is the catalogue, its kernels and their settings."
    played = {name: run.models.role(name).model for name in run.proposer.roles}
    return "Models: " + ", ".join(f"{name} {model}" for name, model in played.items())


def tell(attempts: Sequence[Attempt]) -> None:
    """Prints a line for each attempt."""
    for attempt in attempts:
        result = str(attempt.status).replace("_", " ")
        if attempt.correct:
            untimed = f"correct, {attempt.ranked or 'not timed'}"
            result = f"{attempt.score:.2f}x" if attempt.speedups else untimed
        of = f" of {' '.join(attempt.parents)}" if attempt.parents else ""
        why = "" if attempt.correct else attempt.detail.partition("\n")[0][:100]
        said = attempt.idea.partition("\n")[0][:60] or attempt.operator
        print(f"  {attempt.id:>6}{of:10} {result:20} {said} {why}".rstrip(), flush=True)


def document(
    plan: RunPlan,
    run: GenerationRun,
    outcome: RunOutcome,
    stopped: str,
    *,
    preset: Mapping[str, object],
) -> RunSummary:
    """The contents of ``summary.json``."""
    log, task, spent = run.log, plan.task, run.meter.spent
    best = outcome.best
    cost = run.models.store.total
    made: RunSummary = {
        "op": task.op.name,
        "target": task.target.name,
        "backend": task.backend.name,
        "language": task.language,
        "dtype": task.dtype,
        "seed": plan.seed,
        "preset": dict(preset),
        "axes": {k: dict(v) for k, v in plan.axes.items()},
        "author": _author(run),
        "stopped": stopped,
        "down": run.down,
        "attempts": len(log),
        "statuses": {str(s): n for s in Status if (n := sum(1 for a in log if a.status is s))},
        "curve": log.curve(),
        "best": best.id if best else None,
        "score": best.score if best else 0.0,
        "speedups": dict(outcome.speedups),
        "final": _counted(outcome),
        "passed_over": outcome.out,
        "gain": {name: gain.model_dump() for name, gain in outcome.gain.items()},
        "why_no_gain": outcome.why_no_gain,
        "cost": {
            "usd": cost.usd,
            "tokens_in": cost.tokens_in,
            "tokens_out": cost.tokens_out,
            "calls": len(run.models.store),
        },
        "seconds": {"wall": round(spent.wall_s, 2), "device": round(spent.device_s, 2)},
        "exit_code": _exit_code(run, outcome),
        "told": {},
    }
    made["told"] = _summary_lines(made, outcome, task.start)
    if task.ends != "hardware" and best:
        made["told"]["ranked by"] = best.ranked or "nothing known"
    passed = [note for attempt in log for note in attempt.notes if note.startswith(NOT_OFFERED)]
    if passed:
        more = f", and {len(passed) - 1} more" if passed[1:] else ""
        made["told"]["not offered"] = passed[0].removeprefix(NOT_OFFERED) + more
    return made


def _counted(outcome: RunOutcome) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in outcome.final:
        counts[str(record.verdict)] = counts.get(str(record.verdict), 0) + 1
    return counts


def _exit_code(run: GenerationRun, outcome: RunOutcome) -> int:
    """3 when nothing could be had: no model answers, or there is nowhere to run; and when more is
    to be had once a model answers again."""
    if run.down:
        return 3
    if outcome.best:
        return 0
    idle = (Status.UNAVAILABLE, Status.UNSUPPORTED)
    tried = any(attempt.status not in idle for attempt in run.log)
    return 1 if tried and not run.models.dead else 3


def _summary_lines(
    document: RunSummary, outcome: RunOutcome, start: Candidate | None
) -> dict[str, str]:
    """The lines at the end of a run, by what they are about."""
    best, lines = outcome.best, {}
    kernel = start.author.removeprefix("file:") if start else "the catalogue's kernel"
    if best is None:
        lines["best"] = "none: no attempt is correct" if not outcome.out else "none stood the end"
    elif outcome.speedups:
        sizes = ", ".join(f"{name} {value:.2f}x" for name, value in outcome.speedups.items())
        lines["best"] = f"{best.id}; against the framework {sizes}"
    else:
        lines["best"] = f"{best.id}, correct; {outcome.why_no_speedup}"
    for name, why in outcome.out.items():
        lines[f"out {name}"] = why
    if outcome.gain:
        lines[f"against {kernel}"] = ", ".join(
            f"{name} {gain.value:.2f}x [{gain.ci95[0]:.2f}, {gain.ci95[1]:.2f}]"
            for name, gain in outcome.gain.items()
        )
    elif best:
        lines[f"against {kernel}"] = outcome.why_no_gain
    if outcome.final:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in document["final"].items())
        lines["sizes that were not shown"] = counts
    cost = document["cost"]
    if cost["calls"]:
        usd = "unknown" if cost["usd"] is None else f"{cost['usd']:.4f} USD"
        tokens = (
            "unknown"
            if cost["tokens_in"] is None
            else f"{cost['tokens_in']} in, {cost['tokens_out']} out"
        )
        lines["models"] = f"{cost['calls']} calls; tokens: {tokens}; price: {usd}"
    seconds = document["seconds"]
    lines["time"] = f"{seconds['wall']:.0f} s, of which the device {seconds['device']:.0f} s"
    if document["stopped"]:
        lines["ended by"] = document["stopped"]
    return lines


def ending(document: RunSummary, folder: Path) -> str:
    """The last lines of a run."""
    lines = [f"{name}: {text}" for name, text in document["told"].items()]
    return "\n".join(["", *lines, f"log: {folder / 'attempts.html'}"])
