"""Prompts: each renders for every language, has a version, and holds no fact that data hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from portkern.agent import briefing, memory, prompts
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock, Status
from portkern.agent.axes import AgentContext, AgentMemory, KernelDraft
from portkern.agent.constraints import Constraints
from portkern.agent.log import Log
from portkern.agent.proposer import menu
from portkern.agent.proposer.ideas import Idea
from portkern.agent.proposer.planned import BEGIN, END, KernelPlan
from portkern.agent.proposer.tool_agent import TOOLS
from portkern.agent.proposer.writing import KernelWriter, WriterOptions
from portkern.agent.slot import Arm, Slot
from portkern.agent.systems.kernel_scientist import Experiment
from portkern.agent.systems.ksearch import SCALES
from portkern.agent.task import Task
from portkern.cells.selection import load_op
from portkern.errors import ConfigError
from portkern.spec import registry, target
from portkern.spec.candidate import Candidate
from tools import prompts as tool

FOLDER = Path(prompts.__file__).parent
TEMPLATES = sorted(FOLDER.glob("*.j2"))
#: The prompts without a task: that of ports has a file instead; tests/test_port_repair.py renders
#: it.
OTHERS = ("critic_", "again", "port_")
AUTHORS = [name for name in prompts.names() if not name.startswith(OTHERS)]
CRITICS = [
    name for name in prompts.names() if name.startswith("critic_") and name != "critic_again"
]
#: A target for each backend, with hints and knobs or without.
PLACES = {
    "cuda": ("h200", "sm_80"),
    "hip": ("mi300x", "gfx1100"),
    "triton": ("h200", "gfx942"),
    "cpu": ("x86_64",),
    "opencl": ("opencl_generic",),
    "pallas": ("x86_64", "sm_90", "tpu_v5e"),
}
#: An operator without scalars and one with.
OPS = ("relu", "layernorm")


@cache
def tasks() -> list[Task]:
    return [*_tasks(), task("topk")]  # which has two outputs


def _tasks() -> Iterator[Task]:
    for name, places in PLACES.items():
        backend = registry.load(name)
        for place in places:
            for language in backend.languages_on(target.load(place)):
                yield from (task(op, name, place, language) for op in OPS)


def task(op: str = "relu", backend: str = "cuda", place: str = "h200", language: str = "") -> Task:
    loaded, made = registry.load(backend), load_op(op)
    return Task(
        made,
        target.load(place),
        loaded,
        language or loaded.language_on(target.load(place)),
        "float32",
        {name: made.workloads[name] for name in ("ci", "typical")},
        Constraints(advice=("prefer one pass",)),
    )


def attempt(name: str, score: float = 0.0, **facts: Any) -> Attempt:
    told: dict[str, Any] = {
        "status": Status.PASSED if score else Status.WRONG,
        "source": f"the code of {name}\n",
        "digest": name,
        "idea": f"the idea of {name}",
        "speedups": {"a": score} if score else {},
        "detail": "" if score else "max error 0.31\nand more",
        "feedback": (PromptBlock(kind="timing", title=f"Timing of {name}", text="median: 3 µs\n"),),
        "diagnosis": Diagnosis(critic="rules", problem=f"{name} waits", fix="wait less", why="so"),
    }
    return Attempt(
        id=name,
        slot=int(name.split(".")[0]),
        number=0,
        op="relu",
        target="h200",
        backend="cuda",
        score=score,
        **(told | facts),
    )


PASSED, WRONG = attempt("0.0", 1.25), attempt("1.0")


class Nobody:
    """A memory that recalls these blocks, whatever is asked."""

    def __init__(self, blocks: Sequence[PromptBlock] = ()) -> None:
        self.blocks = list(blocks)

    def view(self, *_: Any) -> list[PromptBlock]:
        return self.blocks

    def learn(self, attempt: Attempt) -> None: ...


def writer(
    task: Task,
    slot: Slot,
    attempts: Sequence[Attempt] = (PASSED, WRONG),
    recall: AgentMemory | None = None,
) -> KernelWriter:
    log = Log()
    log.add(attempts)
    nothing: Any = None
    past = recall or Nobody()
    context = AgentContext(task, log, past, nothing, Random(0), nothing, nothing, nothing, set())
    return KernelWriter(
        WriterOptions(kind="direct"), {}, replace(slot, number=2), context, nothing, "coder"
    )


@cache
def donors(op: str, backend: str, place: str) -> list[Candidate]:
    return menu.donors(task(op, backend, place), "catalogue")[:2]


def facts(task: Task, slot: Slot, **more: Any) -> dict[str, Any]:
    """All that the templates of authors name."""
    asked = writer(task, slot)
    lines = (1, 2) if slot.parents else None
    return (
        asked.facts("coder")
        | {
            "idea": Idea("tile", "it is reused"),
            "base": PASSED,
            "specialties": {"algorithm": "another way"},
            "strategies": [(one.idea, one) for one in asked.parents],
            "other": WRONG,
            "avenues": 4,
            "experiments": 3,
            "experiment": Experiment("tile", "change the loop"),
            "tried": [PASSED, WRONG],
            "wanted": 3,
            "exemplars": asked.parents,
            "inspirations": [WRONG],
            "level": "strategy",
            "substantial": True,
            "rationale": True,
            "plan": KernelPlan("tile", "it is reused", lines),
            "marks": (BEGIN, END),
            "numbered": "   1 code",
            "anchored": "code",
            "arms": [Arm("tiling", "Tile it."), Arm("bare")],
            "tools": TOOLS,
            "turns": 9,
            "tries": 2,
            "others": ["hip", "cpu"],
            "donors": donors(task.op.name, task.backend.name, task.target.name),
            "mapping": [("blockIdx.x", "get_group_id(0)")],
            "why": "it is empty",
            "form": "file",
            "state": "memory",
        }
        | more
    )


def evaluated(task: Task, attempt: Attempt, **more: Any) -> dict[str, Any]:
    """All that the templates of critics name."""
    return (
        briefing.facts(task)
        | {
            "task": task,
            "attempt": attempt,
            "reference": "def run(x): ...",
            "constraints": task.constraints.lines,
            "metrics": "a: 1",
            "best": 1.5,
            "wanted": 1,
            "words": 20,
            "problem_words": 20,
            "why_words": 30,
            "fix_words": 20,
            "before": WRONG,
            "slow": PASSED,
            "fast": PASSED,
            "gain": 1.5,
            "guide": task.guide,
            "side": "whether it compiles",
            "draft": KernelDraft(task.candidate("the code", author="x")),
            "record": "- 0: the task",
            "action": "tile it",
            "stage": "refine",
            "lacks": ["too few"],
            "scales": SCALES,
        }
        | more
    )


def text(name: str, given: dict[str, Any]) -> str:
    return "\n\n".join(message.content for message in prompts.render(name, **given))


def tidy(shown: str, given: dict[str, Any]) -> None:
    """No runs of blank lines, no blanks at a line's end, nothing glued to a heading."""
    data = [given["task"].guide, given["reference"]]
    data += [one.source for one in given.get("donors", ())]
    for part in data:
        shown = shown.replace(prompts.section(part), "DATA").replace(part.strip(), "DATA")
    assert "\n\n\n" not in shown
    assert not re.search(r"[ \t]$", shown, re.MULTILINE)
    assert not re.search(r"^\n|[^\n]\n#", shown)  # a heading has a blank line before it
    assert "{{" not in shown and "{%" not in shown and "None" not in shown
    fences = re.findall(r"^```", shown, re.MULTILINE)
    assert len(fences) % 2 == 0


# ---- every template


@pytest.mark.parametrize("name", AUTHORS)
@pytest.mark.parametrize("parents", [(), ("0.0",), ("1.0", "0.0")], ids="+".join)
def test_authors_prompts_render_for_every_language(name: str, parents: tuple[str, ...]) -> None:
    if not parents and name in ("crossover", "debug", "diff", "macro", "micro", "mutate"):
        pytest.skip("it is only asked with a parent")
    for one in tasks():
        given = facts(one, Slot(parents=parents))
        given["plan"] = replace(given["plan"], lines=(1, 2) if parents else None)
        shown = text(name, given)
        assert one.target.title in shown and one.op.name in shown
        tidy(shown, given)


@pytest.mark.parametrize("name", CRITICS)
def test_critics_prompts_render_for_every_language(name: str) -> None:
    for one in tasks():
        for seen in (PASSED, WRONG):
            for more in ({}, {"before": None, "best": 0.0, "metrics": "", "wanted": 3}):
                given = evaluated(one, seen, **more)
                tidy(text(name, given), given)


def test_nothing_optional_leaves_a_hole() -> None:
    bare = replace(task("matmul", "cpu", "x86_64"), constraints=Constraints())
    bare = replace(bare, target=bare.target.model_copy(update={"hints": [], "knobs": {}}))
    for name in AUTHORS:
        given = facts(
            bare,
            Slot(parents=("1.0",)),
            tried=[],
            exemplars=[],
            inspirations=[],
            donors=[],
            mapping=[],
            arms=[],
            told=[],
            plan=KernelPlan("tile"),
            idea=Idea("tile"),
            level="code",
        )
        shown = text(name, given)
        tidy(shown, given)
        for heading in (
            "Hints",
            "Legal values",
            "Looked for",
            "no model of",
            "Constraints",
            "Scalars",
            "What was tried",
        ):
            assert heading not in shown


def test_a_fact_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="task"):
        prompts.render("direct")


def test_an_unknown_prompt_is_told_with_the_closest() -> None:
    for ask in (prompts.render, prompts.named):
        with pytest.raises(ConfigError, match="No prompt 'direkt'; did you mean 'direct'"):
            ask("direkt")


# ---- versions


def test_every_prompt_has_a_version_of_its_present_text() -> None:
    known = prompts.manifest()
    versioned = {name: entry["digest"] for name, entry in known.items()}
    stale = [name for name in prompts.names() if versioned.get(name) != prompts.digest(name)]
    assert not stale, "changed without a new version; run `python -m tools.prompts`"
    assert sorted(known) == prompts.names(), "run `python -m tools.prompts`"
    assert all(int(entry["version"]) >= 1 for entry in known.values())


def test_a_prompt_is_named_with_its_version() -> None:
    assert prompts.named("direct") == f"direct@{prompts.manifest()['direct']['version']}"


def test_a_change_of_what_a_prompt_includes_is_a_change_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in TEMPLATES:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = {name: prompts.digest(name) for name in prompts.names()}
    monkeypatch.setattr(prompts, "_FOLDER", tmp_path)
    with (tmp_path / "_answer.j2").open("a") as answer:
        answer.write("more")
    prompts.digest.cache_clear()
    try:
        changed = {name for name in prompts.names() if prompts.digest(name) != before[name]}
    finally:
        monkeypatch.undo()
        prompts.digest.cache_clear()
    assert "direct" in changed and "diff" not in changed and "critic_vote" not in changed


def test_the_tool_gives_what_changed_the_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = prompts.manifest() | {"debug": {"version": "7", "digest": "of old"}}
    known.pop("plan")
    monkeypatch.setattr(prompts, "manifest", lambda: known)
    monkeypatch.setattr(tool, "MANIFEST", tmp_path / "manifest.yaml")
    tool.main()
    told = (tmp_path / "manifest.yaml").read_text()
    assert f"debug: {{version: 8, digest: {prompts.digest('debug')}}}\n" in told
    assert "plan: {version: 1, " in told
    assert f"direct: {{version: {known['direct']['version']}, " in told


# ---- what templates may hold


def said(template: Path) -> str:
    """Its own words."""
    return re.sub(r"{{.*?}}|{%.*?%}|{#.*?#}", " ", template.read_text("utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_templates_hold_no_fact_that_data_hold(template: Path) -> None:
    words = set(re.findall(r"\w+", said(template).lower()))
    places = [target.load(name) for name in target.names()]
    known = {place.name for place in places} | {place.vendor for place in places}
    known |= {place.arch for place in places} | set(registry.names()) - {"cpu"}
    known |= {"cta", "lds", "sm", "xcd", "wgmma", "mfma", "avx", "tmem", "omp"}
    assert not words & known
    assert not re.findall(r"(?<![\w.])\d+", said(template)), "numbers come from data"


def test_every_part_is_used() -> None:
    used = {
        name
        for file in TEMPLATES
        for name in re.findall(r'{% (?:include|import|from) "(\w+)"', file.read_text("utf-8"))
    }
    assert used == {file.stem for file in TEMPLATES if file.stem.startswith("_")}


def test_untimed_kernels_are_not_said_to_be_as_fast_as_the_framework() -> None:
    untimed = attempt("0.0", 1.0, speedups={})
    for name in ("mutate", "plan", "universal", "debug"):
        given = writer(task(), Slot(parents=("0.0",)), [untimed]).facts("coder")
        shown = text(name, facts(task(), Slot()) | given | {"inspirations": [], "tried": []})
        assert "Correct, not timed" in shown and "times as fast" not in shown


# ---- code and documents inside prompts


@given(st.text(st.sampled_from("`~ab\n")))
def test_a_fence_is_longer_than_any_in_the_code(source: str) -> None:
    first, *code, last = prompts.fenced(source, "cpp").split("\n")
    assert first == f"{last}cpp" and set(last) == {"`"}
    assert "\n".join(code) == source.rstrip()
    assert last not in source


def test_a_document_stands_below_the_headings_of_a_prompt() -> None:
    document = "# Title\n\nWords.\n\n## Part\n\n```python\n# a comment\n```\n\n    # define\n"
    assert prompts.section(document) == (
        "Words.\n\n### Part\n\n```python\n# a comment\n```\n\n    # define"
    )
    assert prompts.section("no title\n## x") == "no title\n### x"
    assert prompts.section("") == ""


@pytest.mark.parametrize("name", list(PLACES))
def test_guides_stand_in_their_section(name: str) -> None:
    shown = text("direct", facts(task("relu", name, PLACES[name][0]), Slot()))
    parts = re.findall(r"^## (.*)$", shown, re.MULTILINE)
    assert parts == [
        "Operation",
        "Target",
        "How kernels are written here",
        "Constraints",
        "Your answer",
    ]


# ---- nothing is said twice


HISTORIES = ("last", "best", "all", "last_n", "tree_ctx", "all_no_cot", "ancestors")


def recalled(history: str, **options: Any) -> AgentMemory:
    return memory.load({"history": history} | options, task=task(), folder=Path("unused"))


def once(name: str, asked: KernelWriter, shown: Sequence[Attempt], **more: Any) -> str:
    """The text of a prompt, in which the code of each attempt stands once."""
    given = facts(task(), Slot()) | asked.facts("coder", shown=shown)
    result = text(name, given | {"inspirations": [], "tried": []} | more)
    for one in shown:
        assert result.count(one.source.strip()) == 1, result
    return result


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", ["debug", "mutate", "diff", "implement", "universal", "ideas"])
def test_a_parents_code_is_shown_once(name: str, history: str) -> None:
    asked = writer(task(), Slot(parents=("0.0",)), recall=recalled(history))
    result = once(name, asked, asked.parents)
    assert "Result: passed" in result or history == "ancestors"  # the memory has its say


@pytest.mark.parametrize("name", ["realise", "micro", "plan", "macro"])
def test_a_kernel_with_marks_or_numbers_is_shown_once(name: str) -> None:
    asked = writer(task(), Slot(parents=("0.0",)), recall=recalled("last"))
    source = asked.parents[0].source
    once(name, asked, asked.parents, anchored=source, numbered=f"   1 {source}")


def test_both_parents_and_what_is_beside_them_are_shown_once() -> None:
    beside = attempt("2.0", 2.0)
    slot = Slot(parents=("0.0", "1.0"), shown=("2.0",))
    asked = writer(task(), slot, [PASSED, WRONG, beside], recalled("last", best=3))
    once("crossover", asked, [*asked.parents, beside], inspirations=[beside])


@pytest.mark.parametrize("history", ["last", "all"])
@pytest.mark.parametrize("name", ["debug", "universal"])
def test_feedback_and_diagnosis_are_told_once(name: str, history: str) -> None:
    for recall in (Nobody(), recalled(history)):
        asked = writer(task(), Slot(parents=("1.0",)), recall=recall)
        result = once(name, asked, asked.parents)
        for told in ("median: 3 µs", "1.0 waits", "wait less"):
            assert result.count(told) == 1, result


def test_code_that_the_memory_cut_is_left_out_too() -> None:
    long = attempt("0.0", 1.5, source="".join(f"line {k} of it;\n" for k in range(500)))
    asked = writer(task(), Slot(parents=("0.0",)), [long], recalled("last", max_chars=2000))
    result = once("mutate", asked, asked.parents)
    assert result.count("line 3 of it;") == 1
    assert "characters left out" not in result and "Result: passed" in result


def test_code_of_others_stays_in_the_memorys_words() -> None:
    asked = writer(task(), Slot(parents=("1.0",)), recall=recalled("best"))
    assert "the code of 0.0" in once("mutate", asked, asked.parents)
    assert "the code of 1.0" in text(
        "direct",
        facts(task(), Slot())
        | writer(task(), Slot(parents=("1.0",)), recall=recalled("last")).facts("coder"),
    )
