"""What ``portkern compare`` tells while it runs: what is asked, how long it takes, how far it is
and what it has spent."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from portkern.agent.budget import Spent
from portkern.agent.llm.role import DEFAULT
from portkern.agent.pace import duration
from portkern.cli.verbs import run_folder
from portkern.experiment.compare.ledger import Ledger
from portkern.experiment.compare.sweep import Sweep, SweepProgress
from portkern.experiment.section import counted
from portkern.printable import printable

#: Seconds that a reply and an evaluation are taken to need before there are any, the latter by
#: whether kernels are timed; what is left is told by those that there are once there are some.
_REPLY_S: Final = 20.0
_EVALUATION_S: Final = {True: 8.0, False: 5.0}
#: Where nothing is drawn anew, a line is written so often.
_TELL_S: Final = 10.0


def heading(sweep: Sweep, left_out: Sequence[str], preset: str) -> list[str]:
    again = f"; {sweep.had} are there already" if sweep.had else ""
    lines = [
        f"{counted(len(sweep.models), 'model')} × {counted(len(sweep.tasks), 'task')} × "
        f"{counted(sweep.n, 'sample')} = {sweep.total}, by {preset}{again}",
        f"tasks: {tasks(sweep)}",
    ]
    for model in sweep.models:
        said = ", ".join(f"{k}={v}" for k, v in model.roles[DEFAULT].items() if v not in (None, ""))
        lines.append(f"model {model.name}: {said}")
    lines += [f"left out: {line}" for line in left_out]
    lines.append(_budget(sweep.ledger))
    left = sweep.total - sweep.had
    if left:
        lines.append(f"about {duration(_estimated_s(sweep))} for {counted(left, 'sample')}")
    return lines


def tasks(sweep: Sweep) -> str:
    ops = len({task.op for task in sweep.tasks})
    places = dict.fromkeys(task.place for task in sweep.tasks)
    return f"{counted(ops, 'operator')}; {', '.join(places)}"


def _budget(ledger: Ledger) -> str:
    limits = [f"{k} {v:.10g}" for k, v in vars(ledger.budget).items() if v is not None]
    spent = ledger.spent
    lost = (
        f"; {counted(ledger.lost, 'request')} that a killed command had out may have been charged "
        "and count as the most that they can have been"
        if ledger.lost
        else ""
    )
    so_far = f"; spent: {cost(spent)}{lost}" if spent.tokens else ""
    return f"budget: {', '.join(limits) or 'no limit'}{so_far}"


def _estimated_s(sweep: Sweep) -> float:
    """The slower of writing, model by model, and evaluating, one after the other."""
    share = (sweep.total - sweep.had) / sweep.total
    writing = max(
        _REPLY_S * sweep.n * len(sweep.tasks) / model.concurrency for model in sweep.models
    )
    timed = [task.plan.task.ends == "hardware" for task in sweep.tasks]
    evaluating = sweep.n * len(sweep.models) * sum(_EVALUATION_S[one] for one in timed)
    return share * max(writing, evaluating)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[SweepProgress], None]]:
    """On a terminal a bar, elsewhere a line now and then."""
    last = [0.0]

    def line(progress: SweepProgress) -> None:
        now = time.monotonic()
        if quiet or (now - last[0] < _TELL_S and progress.done < progress.total):
            return
        last[0] = now
        print(printable(f"[{progress.done}/{progress.total}] {_said(progress)}"), flush=True)

    with run_folder.bar(quiet) as update:

        def report(progress: SweepProgress) -> None:
            update(progress.done, progress.total, _said(progress))
            if not sys.stderr.isatty():
                line(progress)

        yield report


def _said(progress: SweepProgress) -> str:
    left = "" if progress.left_s is None else f"; about {duration(progress.left_s)} left"
    latest = progress.latest
    what = f"; {latest.model}: {latest.op}, {latest.backend}: {latest.status}" if latest else ""
    return f"{cost(progress.spent)}{left}{what}"


def cost(spent: Spent) -> str:
    usd = "unknown" if spent.usd is None else f"{spent.usd:.4f}"
    return f"{spent.tokens} tokens, {usd} USD"
