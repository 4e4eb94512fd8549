"""``experiment.json``, ``.md``, ``.html`` and ``.png``: what an experiment found, in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from portkern.experiment import drawing, png
from portkern.experiment.job import Done, Job
from portkern.experiment.section import DASH, Chart, Findings, SectionTable
from portkern.records import atomic_write
from portkern.report.table import clean
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

SCHEMA = 1


@dataclass(frozen=True)
class ExperimentReport:
    """``facts`` are what all jobs have in common; ``failed`` says of jobs why they are not done."""

    name: str
    title: str
    findings: Findings
    facts: Mapping[str, str]
    jobs: Sequence[Job]
    done: Sequence[Done]
    failed: Mapping[str, str]
    exit_code: int

    @property
    def document(self) -> JsonObject:
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

    def _job(self, job: Job) -> JsonObject:
        told: JsonObject = {"job": job.name, "arm": job.arm, "op": job.operator, "seed": job.seed}
        told |= {"overrides": list(job.overrides)}
        done = next((one for one in self.done if one.job == job), None)
        if done is None:
            return told | {"done": False}
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
        return told | {"done": True} | {key: done.summary.get(key) for key in kept}

    @property
    def progress(self) -> str:
        """Empty when all is done."""
        left = len(self.jobs) - len(self.done)
        return f"{len(self.done)} of {len(self.jobs)} jobs are done" if left else ""

    @property
    def costs(self) -> SectionTable:
        """Of each arm, what its jobs took."""
        arms = list(dict.fromkeys(one.job.arm for one in self.done))
        head = ("arm", "jobs", "attempts", "calls", "tokens", "USD", "time", "of the device")
        return SectionTable(head, tuple(self._cost(arm) for arm in arms))

    def _cost(self, arm: str) -> tuple[str, ...]:
        own = [one.summary for one in self.done if one.job.arm == arm]
        costs, seconds = [one["cost"] for one in own], [one["seconds"] for one in own]
        calls = sum(cost["calls"] for cost in costs)
        usd, sent, got = (_sum(costs, key) for key in ("usd", "tokens_in", "tokens_out"))
        return (
            arm,
            str(len(own)),
            str(sum(one["attempts"] for one in own)),
            str(calls or DASH),
            DASH if sent is None or got is None or not calls else f"{sent + got:.0f}",
            DASH if usd is None or not calls else f"{usd:.4f}",
            _lasted(sum(second["wall"] for second in seconds)),
            _lasted(sum(second["device"] for second in seconds)),
        )


def _sum(costs: Sequence[Mapping[str, float | None]], key: str) -> float | None:
    """None as soon as one is not known."""
    values = [cost[key] for cost in costs]
    known = [value for value in values if value is not None]
    return float(sum(known)) if len(known) == len(values) else None


def _lasted(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def write(report: ExperimentReport, folder: Path, *, last: bool = True) -> dict[str, Missing]:
    """What could not be written, by file and reason. The picture, which takes longest, is drawn
    when it is the last of the jobs' reports. Raises StorageError."""
    views: dict[str, str | bytes | Missing] = {
        "experiment.json": _as_json(report.document),
        "experiment.md": _render("experiment.md.j2", report),
        "experiment.html": _render("experiment.html.j2", report),
        "experiment.png": png.render(report.title, report.findings.sections)
        if last
        else Missing("the experiment goes on"),
    }
    for name, content in views.items():
        if isinstance(content, Missing):
            (folder / name).unlink(missing_ok=True)  # an old picture of other jobs would lie
            continue
        atomic_write.write(folder / name, content.encode() if isinstance(content, str) else content)
    return {name: one for name, one in views.items() if isinstance(one, Missing)}


def _as_json(document: JsonObject) -> str:
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
            done={one.job.name for one in report.done},
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
    environment.filters |= {"clean": clean, "cell": _cell}
    environment.globals |= {
        "draw": drawing.draw,
        "draw_bars": drawing.draw_bars,
        "drawable": _drawable,
    }
    return environment


def _drawable(charts: Sequence[Chart]) -> list[Chart]:
    return [chart for chart in charts if chart.shown]


def _cell(text: str) -> str:
    """Of a Markdown table."""
    return clean(text).replace("|", "\\|").replace("\n", " ")
