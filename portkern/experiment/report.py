"""``experiment.json``, ``.md``, ``.html`` and ``.png``: what an experiment found, in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from portkern.agent.pace import duration
from portkern.experiment import drawing, png, svg
from portkern.experiment.job import ExperimentJob, FinishedJob
from portkern.experiment.section import DASH, SectionAnswer, SectionTable
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.spec.backend import Missing

SCHEMA = 1


@dataclass(frozen=True)
class ExperimentReport:
    """``facts`` are what all jobs have in common; ``failed`` says of jobs why they are not done."""

    name: str
    title: str
    findings: SectionAnswer
    facts: Mapping[str, str]
    jobs: Sequence[ExperimentJob]
    done: Sequence[FinishedJob]
    failed: Mapping[str, str]
    exit_code: int

    @property
    def document(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "experiment": self.name,
            "portkern": version("portkern"),
            "facts": dict(self.facts),
            "answer": self.findings.lead,
            "notes": list(self.findings.notes),
            "results": self.findings.numbers,
            "jobs": [self._job(job) for job in self.jobs],
            "failed": dict(self.failed),
            "exit_code": self.exit_code,
        }

    def _job(self, job: ExperimentJob) -> dict[str, object]:
        entry: dict[str, object] = {
            "job": job.name,
            "arm": job.arm,
            "op": job.operator,
            "seed": job.seed,
        }
        entry |= {"overrides": list(job.overrides)}
        done = next((finished for finished in self.done if finished.job == job), None)
        if done is None:
            return entry | {"done": False}
        summary: Mapping[str, object] = done.summary
        kept = (
            "attempts",
            "statuses",
            "best",
            "score",
            "speedups",
            "stopped",
            "cost",
            "seconds",
            "exit_code",
        )
        return entry | {"done": True} | {key: summary.get(key) for key in kept}

    @property
    def progress(self) -> str:
        """Empty when all is done."""
        left = len(self.jobs) - len(self.done)
        return f"{len(self.done)} of {len(self.jobs)} jobs are done" if left else ""

    @property
    def costs(self) -> SectionTable:
        """The costs of each arm's jobs."""
        arms = list(dict.fromkeys(finished.job.arm for finished in self.done))
        head = ("arm", "jobs", "attempts", "calls", "tokens", "USD", "time", "of the device")
        return SectionTable(head, tuple(self._cost(arm) for arm in arms))

    def _cost(self, arm: str) -> tuple[str, ...]:
        own = [finished.summary for finished in self.done if finished.job.arm == arm]
        costs = [summary["cost"] for summary in own]
        seconds = [summary["seconds"] for summary in own]
        calls = sum(cost["calls"] for cost in costs)
        usd = _sum([cost["usd"] for cost in costs])
        sent = _sum([cost["tokens_in"] for cost in costs])
        got = _sum([cost["tokens_out"] for cost in costs])
        return (
            arm,
            str(len(own)),
            str(sum(summary["attempts"] for summary in own)),
            str(calls or DASH),
            DASH if sent is None or got is None or not calls else f"{sent + got:.0f}",
            DASH if usd is None or not calls else f"{usd:.4f}",
            duration(sum(second["wall"] for second in seconds)),
            duration(sum(second["device"] for second in seconds)),
        )


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum; None as soon as one of the values is not known."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if len(known) == len(values) else None


def write(report: ExperimentReport, folder: Path, *, last: bool = True) -> dict[str, Missing]:
    """Writes the report, and returns the files that could not be written with the reason. The
    picture, which takes longest, is drawn when it is the last of the jobs' reports. Raises
    StorageError."""
    views: dict[str, str | bytes | Missing] = {
        "experiment.json": _as_json(report.document),
        "experiment.md": _render("experiment.md.j2", report),
        "experiment.html": _render("experiment.html.j2", report),
        "experiment.png": _picture(report) if last else Missing("the experiment goes on"),
    }
    for name, content in views.items():
        if isinstance(content, Missing):
            (folder / name).unlink(missing_ok=True)  # an old picture of other jobs would lie
            continue
        atomic_write.write(folder / name, content.encode() if isinstance(content, str) else content)
    return {name: content for name, content in views.items() if isinstance(content, Missing)}


def _picture(report: ExperimentReport) -> bytes | Missing:
    sections = report.findings.sections
    return png.paint(report.title, [p for part in sections for p in drawing.pictures(part)])


def _as_json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _render(name: str, report: ExperimentReport) -> str:
    style = resources.files(__package__) / "templates" / "experiment.css"
    text = (
        _environment(name.endswith("html.j2"))
        .get_template(name)
        .render(
            report=report,
            findings=report.findings,
            version=version("portkern"),
            style=Markup(style.read_text("utf-8")),
            done={finished.job.name for finished in report.done},
        )
    )
    return text.rstrip() + "\n"


@cache
def _environment(escape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("portkern.experiment"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clean": printable, "cell": _cell}
    environment.globals |= {"pictures": drawing.pictures, "svg": svg.paint}
    return environment


def _cell(text: str) -> str:
    """The text of a cell in a Markdown table."""
    return printable(text).replace("|", "\\|").replace("\n", " ")
