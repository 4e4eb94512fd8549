"""Reads what a page of docs/presets/ says about its preset, and makes what it has to say.

python -m tests.preset_pages caesar     # the table "What ours is", as the preset is now
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from portkern.agent.llm.calls import ModelRequest
from portkern.cli.verbs import generate
from tests.scripted import Answer, Played, kernel, play

ROOT = Path(__file__).parents[1]
PRESETS = ROOT / "conf" / "preset"
PAGES = ROOT / "docs" / "presets"
NAMES = sorted({path.stem for path in PRESETS.glob("*.yaml")} - {"none"})
#: What every page says, besides whatever its preset sets.
ALWAYS = (
    "strategy proposer memory.history memory.knowledge feedback.sources feedback.counters critic "
    "inflight budget.attempts"
).split()
#: What a run says, not the configuration: how many requests came to an attempt, by which templates.
MEASURED = ("requests", "prompts")
#: Where a scripted run is not the preset as it is: nobody counts there, and it ends before long.
INSTEAD = {
    "kernelband": ["strategy.mask=false"],
    "its_nvidia": ["budget.attempts=6"],
    "cuda_agent": ["proposer.turns=20", "proposer.tries=5"],
    "geak_v4": ["strategy.tries=2", "proposer.turns=6"],
    "cupilot": ["strategy.init=4", "strategy.batch=4", "memory.keep=false"],
    "accelopt": ["strategy.rounds=3", "strategy.candidates=2", "strategy.plans=2"],
    "ako": ["budget.attempts=7"],
    "avo": ["budget.attempts=17"],
    "kernelblaster": ["budget.attempts=31"],
}
#: Settings whose value is a table.
_WHOLE = ("operators", "edges", "authors")


@dataclass(frozen=True)
class Page:
    title: str
    sections: dict[str, str]

    @classmethod
    def of(cls, name: str) -> Page:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        head, *rest = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
        return cls(head.splitlines()[0], dict(zip(rest[::2], rest[1::2], strict=True)))

    def table(self, section: str, *header: str) -> list[list[str]]:
        """Its rows. Raises ValueError where the section's table has another header, or a cell
        lacks."""
        lines = [line for line in self.sections[section].splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
        if not cells or cells[0] != list(header):
            raise ValueError(f"{section}: got the header {cells[:1]}, expected {header}")
        for row in cells[2:]:
            if len(row) != len(header) or not all(row):
                raise ValueError(f"{section}: got the row {row}, expected a cell for each {header}")
        return cells[2:]

    @property
    def settings(self) -> dict[str, str]:
        rows = self.table("What ours is", "setting", "value")
        return {setting.strip("`"): value.strip("`") for setting, value in rows}


@cache
def about(name: str) -> dict[str, str]:
    return dict(_document(name)["preset"])


@cache
def composed(name: str) -> generate.GenerateOptions:
    return generate.read(["op=relu", f"preset={name}"])


def setting(name: str, path: str) -> object:
    """The setting as composed; ``strategy`` alone is the choice of the group."""
    value: Any = composed(name)
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part)
    return value["kind"] if path in generate.AXES else value


def settings(name: str) -> list[str]:
    """The settings that its page has to name: the same for all presets, and everything that this
    one sets; a kind that it has for itself stands at its axis."""
    own = {k: v for k, v in _document(name).items() if k not in ("defaults", "preset")}
    set_here = [path for group, value in own.items() for path in _leaves(group, value)]
    kinds = [f"{axis}.kind" for axis in generate.AXES]
    return [path for path in dict.fromkeys([*ALWAYS, *set_here]) if path not in kinds]


def _document(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8")))


def _leaves(path: str, value: object) -> Iterator[str]:
    if not isinstance(value, dict) or path.endswith(_WHOLE):
        yield path
        return
    for key, inner in value.items():
        yield from _leaves(f"{path}.{key}", inner)


def ran(name: str, folder: Path) -> Played:
    """The preset to its end, as composed but for counters and what :data:`INSTEAD` has."""
    options = composed(name)
    counters = [] if options.feedback["counters"] == "none" else ["feedback.counters=none"]
    start = [f"source={started(folder)}"] if options.source else []
    given = [f"preset={name}", f"inflight={options.inflight}", *counters, *start]
    return play(folder, mixed(), *given, *INSTEAD.get(name, []))


def started(folder: Path, worth: str = "1.0") -> Path:
    """A kernel to start from."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "start.cpp"
    file.write_text(f"// worth {worth}\n// given\nint relu() {{}}\n", encoding="utf-8")
    return file


def measured(played: Played) -> dict[str, str]:
    counts = {len(attempt.calls) for attempt in played.attempts}
    return {
        "requests": "–".join(map(str, sorted({min(counts), max(counts)}))),
        "prompts": ", ".join(dict.fromkeys(played.prompts)),
    }


def mixed() -> Answer:
    """Kernels of which the first two fail and every fifth later; each right one is faster than
    those before, the last of many by more than is believed at once. A sensible answer to every
    other prompt."""
    written, planned = itertools.count(), itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        name = request.prompt.partition("@")[0]
        if name == "ideas":
            return f'[{{"idea": "idea {next(planned)}", "why": "bytes"}}]'
        if name == "strategy":
            return f'{{"idea": "strategy {next(planned)}", "why": "bytes"}}'
        if name == "directions":
            told = [f'{{"specialty": "memory", "direction": "way {next(planned)}"}}' for _ in "ab"]
            return f'{{"directions": [{", ".join(told)}]}}'
        if name == "select":
            return '{"base": "0.0", "reference": "1.0", "why": "it is another way"}'
        if name == "experiments":
            plan = '{"description": "unroll", "performance": [1, 2], "innovation": 3}'
            return f'{{"avenues": ["loops"], "experiments": [{", ".join([plan] * 5)}]}}'
        if name in ("plan", "macro"):
            return (
                f'{{"{"plan" if name == "plan" else "action"}": "vectorization", "why": "bytes"}}'
            )
        if name == "ranked":
            return f'{{"techniques": [{{"technique": "unroll {next(planned)}", "relevance": 1}}]}}'
        if name == "critic_world":
            title = f"unroll {next(planned)}"
            return f'{{"edits": [{{"op": "insert", "title": "{title}", "score": 0.7}}]}}'
        if name.startswith("critic"):
            return (
                '{"problem": "few loads in flight", "why": "latency", "fix": "unroll", '
                '"method": "unroll", "plan": "by four", "instructions": "unroll", "title": "four", '
                '"works": true, "plausible": true, "reason": "it does", "lessons": ["unroll"], '
                '"strategy": "unroll", "analysis": "rows are shared", "guidance": ["unroll"]}'
            )
        tool = {"tool": "try" if count % 2 else "write", "why": "bytes"}
        if name == "tool_agent" and tool["tool"] == "try":
            return json.dumps(tool)
        number = next(written)
        if name == "diff":
            asked = request.messages[-1].content.partition("## The kernel to change")[2]
            before = next(line for line in asked.splitlines() if line.startswith("// worth"))
            now = f"// worth {1 + number / 10:.1f}"
            return f"<<<<<<< SEARCH\n{before}\n=======\n{now}\n>>>>>>> REPLACE\n"
        said = json.dumps(tool) if name == "tool_agent" else ""
        if number < 2 or number % 5 == 0:
            return said + kernel("wrong" if number % 2 else "build_failed", about=str(number))
        return said + kernel(f"{1 + number / 4:.2f}", about=str(number))

    return answer


def table(name: str) -> str:
    """The table that the page has to show for the preset as it is."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(ran(name, Path(folder)))
    rows = {path: _written(setting(name, path)) for path in settings(name)} | rows
    lines = [f"| `{path}` | `{text}` |" for path, text in rows.items()]
    return "\n".join(["| setting | value |", "|---|---|", *lines])


def _written(value: object) -> str:
    """The value in one line of YAML, without the line ``...`` that ends a scalar."""
    return yaml.safe_dump(value, default_flow_style=True, width=1000).splitlines()[0]


if __name__ == "__main__":
    sys.stdout.write(f"{table(sys.argv[1])}\n")
