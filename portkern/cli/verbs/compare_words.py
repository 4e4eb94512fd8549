"""The lines that ``portkern compare`` prints while it runs: what is asked, how long it takes,
how far it is and what it has spent."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from portkern.agent.budget import Spent
from portkern.agent.llm.role import DEFAULT
from portkern.agent.pace import words
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs import run_folder
from portkern.experiment.compare.forecast import REPLY_S
from portkern.experiment.compare.ledger import Ledger
from portkern.experiment.compare.sweep import Sweep, SweepProgress
from portkern.experiment.section import counted
from portkern.printable import printable

#: Where nothing is drawn anew, a line is written so often.
_TELL_S: Final = 10.0


def heading(sweep: Sweep, left_out: Sequence[str], preset: str) -> list[str]:
    again = f"; {sweep.had} are there already" if sweep.had else ""
    again += f"; {counted(sweep.again, 'sample')} without a time once more" if sweep.again else ""
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
    return lines


def how_long(sweep: Sweep) -> str:
    """An estimate of how long the sweep takes, said before it begins."""
    left, expected = sweep.total - sweep.had, sweep.forecast
    few = f" if a reply takes {words(REPLY_S)}" if expected.assumed else ""
    return f"about {words(expected.total_s)} for {counted(left, 'sample')}{few}"


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


@contextmanager
def progress(quiet: bool, heartbeat: Heartbeat) -> Iterator[Callable[[SweepProgress], None]]:
    """Shows progress: a bar on a terminal, elsewhere a line now and then."""
    last = [0.0]

    def line(progress: SweepProgress) -> None:
        now = time.monotonic()
        if quiet or (now - last[0] < _TELL_S and progress.done < progress.total):
            return
        last[0] = now
        heartbeat.said()
        print(printable(f"[{progress.done}/{progress.total}] {_said(progress)}"), flush=True)

    with run_folder.bar(quiet) as update:

        def report(progress: SweepProgress) -> None:
            update(progress.done, progress.total, _said(progress))
            if not sys.stderr.isatty():
                line(progress)

        yield report


def _said(progress: SweepProgress) -> str:
    over = progress.done == progress.total
    left = "" if over else f"; about {words(progress.left_s)} left"
    latest = progress.latest
    what = f"; {latest.model}: {latest.op}, {latest.backend}: {latest.status}" if latest else ""
    return f"{cost(progress.spent)}{left}{what}"


def cost(spent: Spent) -> str:
    usd = "unknown" if spent.usd is None else f"{spent.usd:.4f}"
    return f"{spent.tokens} tokens, {usd} USD"
