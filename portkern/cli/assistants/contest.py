"""The tool of a coding agent that takes part in a comparison: portkern over MCP, for one task.

``python -m portkern.cli.assistants.contest PLAN PORT`` is started by the comparison, outside of the
agent's box. It knows what an author is told and no more: no size that is held out, no kernel that
ships, no file of this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portkern.agent import briefing
from portkern.agent.task import Task
from portkern.cells.selection import SelectedCell
from portkern.cli.assistants import answers
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.records.record import Record, Verdict
from portkern.serve.client import Client
from portkern.serve.evaluation import Evaluation
from portkern.serve.machine import Machine

#: Variables of the environment: what requests have to bring, and the language that is asked for.
TOKEN, LANGUAGE = "PORTKERN_MCP_TOKEN", "PORTKERN_CONTEST_LANGUAGE"
INSTRUCTIONS = (
    "portkern judges kernels for one task, which 'task' tells. Work in this order: task, guide, "
    "write the kernel, check its text until it passes, compare_with_baseline. You are judged by "
    "the file that you leave, on inputs and sizes that you do not see."
)
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class AssistantContest:
    """``cells`` are the sizes that authors know, without a kernel."""

    cells: Sequence[SelectedCell]
    language: str
    options: TrialOptions
    folder: Path

    def task(self) -> dict[str, Any]:
        """Says what is to be written: the operator's reference in PyTorch, the declaration that a
        kernel has to have, its target, and the sizes that 'check' looks at."""
        op, first = self._task.op, self.cells[0]
        return {
            "op": op.name,
            "reference": op.reference_source.strip(),
            "backend": first.backend.name,
            "target": first.target.name,
            "dtype": first.dtype,
            "declaration": first.backend.declaration(op.signature, self.language),
            "sizes": {f"{c.workload_set}/{c.workload.name}": dict(c.workload.dims)
                      for c in self.cells},
            "next": "'guide' says how a kernel is written; then 'check' its text.",
        }  # fmt: skip

    def guide(self) -> dict[str, Any]:
        """Says how a kernel is written for this backend and target: rules and hints."""
        without = briefing.without(self._task)
        return {
            "guide": self._task.guide.strip(),
            "hints": list(self.cells[0].target.hints_for(self.language, without=without)),
            "next": "Write the kernel, then 'check' its text.",
        }

    def check(self, source: str) -> dict[str, Any]:
        """Whether a kernel is right, given its text: built, and run in a jail on fresh inputs
        against a float64 reference."""
        told = answers.of_records(self._records(source, timed=False))
        return self._ended(told)

    def compare_with_baseline(self, source: str) -> dict[str, Any]:
        """How fast a right kernel is beside PyTorch, given its text: ratios with intervals."""
        return self._ended(answers.of_times(self._records(source, timed=True)))

    @property
    def _task(self) -> Task:
        first = self.cells[0]
        return Task(
            first.op,
            first.target,
            first.backend,
            self.language,
            first.dtype,
            library=first.library,
            ends=getattr(first.venues.best, "kind", "build"),
        )

    def _records(self, source: str, *, timed: bool) -> list[Record]:
        candidate = self._task.candidate(source[:_MOST_BYTES], author="agent")
        cells = [replace(cell, candidate=candidate) for cell in self.cells]
        client = Client.here()
        evaluate = client.evaluate if client else self._evaluation.evaluate
        return evaluate(
            ExecutionPlan.of(cells, replace(self.options, timed=timed), self.folder.name)
        )

    @property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self.folder, Machine(len(os.sched_getaffinity(0))))

    @staticmethod
    def _ended(told: dict[str, Any]) -> dict[str, Any]:
        if told["verdict"] == str(Verdict.PASSED):
            told["next"] = "It is right at these sizes. Leave it as the file that was asked for."
        return told


def main() -> None:
    from portkern.cli.assistants import mcp_server

    plan, port = Path(sys.argv[1]), int(sys.argv[2])
    asked = ExecutionPlan.read(plan)
    contest = AssistantContest(
        asked.load_cells(plan.parent), os.environ[LANGUAGE], asked.trial_options, plan.parent
    )
    tools = (contest.task, contest.guide, contest.check, contest.compare_with_baseline)
    made = mcp_server.with_tools(tools, INSTRUCTIONS)
    mcp_server.serve_http(made, host="127.0.0.1", port=port, token=os.environ[TOKEN])


if __name__ == "__main__":
    main()
