"""Proposers: what becomes of a slot, and how a kernel is found in what models reply."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portkern.agent import proposer as proposers
from portkern.agent import replies
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock, Status
from portkern.agent.axes import (
    AgentContext,
    EvaluatedDraft,
    KernelDraft,
    PromptMessage,
    Proposer,
    Reply,
    Word,
)
from portkern.agent.log import Log
from portkern.agent.proposer import menu, reading
from portkern.agent.proposer.catalogue import NOT_OFFERED, PASSED_OVER, SHIPPED
from portkern.agent.proposer.evolve import operator_of
from portkern.agent.proposer.ideas import MOST_TRIED, Idea, read_ideas
from portkern.agent.proposer.planned import BEGIN, END, KernelPlan, named, read_plan
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.cells.selection import load_op
from portkern.errors import BudgetSpent, ConfigError, ModelError, RecordError
from portkern.spec import catalogue, registry, target
from portkern.spec.candidate import Candidate
from portkern.tuning import search

CONF = Path(__file__).parents[1] / "conf" / "proposer"
FENCE = "```"
C = """int helper() { return 1; }

extern "C" int relu(const scalar_t* x) {
  return helper();
}
"""
PYTHON = "import triton\n\n\ndef relu(x, y):\n    y.copy_(x)\n"
PLACES = {
    "c++": ("cpu", "x86_64"),
    "numba": ("cpu", "x86_64"),
    "cuda": ("cuda", "h200"),
    "hip": ("hip", "mi300x"),
    "triton": ("triton", "h200"),
    "opencl": ("opencl", "opencl_generic"),
    "pallas": ("pallas", "h200"),
}


def task(language: str = "c++", op: str = "relu") -> Task:
    backend, place = PLACES[language]
    made = load_op(op)
    return Task(
        made,
        target.load(place),
        registry.load(backend),
        language,
        "float32",
        {name: made.workloads[name] for name in ("ci", "typical")},
    )


CPP, TRITON = task(), task("triton")


def block(code: str, tag: str = "cpp", fence: str = FENCE) -> str:
    return f"{fence}{tag}\n{code}{fence}\n"


def kernel(about: str = "a") -> str:
    """A reply."""
    return f"I did {about}.\n" + block(f"// {about}\n{C}")


# ---- a kernel in a reply


def read(text: str, task: Task = CPP, **how: bool) -> ReplyCode | Unread:
    return reading.kernel(text, task, **how)


def found(text: str, task: Task = CPP, **how: bool) -> str:
    code = read(text, task, **how)
    assert isinstance(code, ReplyCode), code
    return code.source


def refused(text: str, task: Task = CPP, **how: bool) -> str:
    unread = read(text, task, **how)
    assert isinstance(unread, Unread), unread
    return unread.why


FIRST = block("int relu(int a) { return a; }\n")
EXAMPLE = block("int status = relu(x, y, n);\nif (relu(x, y, n)) { abort(); }\n" * 20)


@pytest.mark.parametrize(
    "text",
    [
        block(C),
        f"Words.\n\n{block(C)}\nMore words.",
        block(C, "c++"),
        block(C, "C"),
        block(C, "  cpp "),
        block(C, "cpp title=relu.cpp"),
        block(C, "{.cpp}"),
        block(C, ""),
        block(C, fence="~~~"),
        block(C, fence="`````"),
        block(C).rstrip(),
        block(C) * 2,
        FIRST + block(C),  # the last one that defines the entry
        block(C) + EXAMPLE,  # a call defines nothing, however long
        block("int helper(int);\n") + block(C),
        block("import torch\n" * 99, "python") + block(C),
        f"{block('')}{block(C)}",  # an empty one before it
        block(C).replace("\n", "\r\n"),
        block(C).replace("\n", "\r"),
        f"1. First:\n\n   {block(C).replace(chr(10), chr(10) + '   ')}\n2. Done.",
        f"{FENCE}markdown\nHere it is:\n{block(C)}{FENCE}\nDone.",
        f"<think>maybe {FIRST}</think>\n{block(C)}",
        f"maybe {FIRST}</think>\n{block(C)}",
        f"\ufeff<THINK>maybe {FIRST}</Think>\n```CPP\n\ufeff{C}\n```\n",
        f"<thinking>so\n</thinking>{block(C)}<think>was that right?",
        f"{FENCE}cpp\nint broken(\n\nBetter:\n\n{block(C)}",  # a block without an end
        json.dumps({"thought": "tile", "code": C}),
        json.dumps({"thought": "tile", "code": block(C)}),
        block(json.dumps({"code": C}), "json"),
        f"Sure:\n{json.dumps({'kernel': C, 'name': 'x'}, indent=1)}",
        C,
        f"Here is the kernel:\n\n{C}",
    ],
)
def test_a_kernel_is_found(text: str) -> None:
    assert found(text).strip() == C.strip()


@pytest.mark.parametrize(
    "text",
    [
        block(PYTHON, "python"),
        block(PYTHON, "py"),
        block(PYTHON, ""),
        block(PYTHON, "triton"),
        block(PYTHON, "Python"),
        block(C) + block(PYTHON, "python"),
        block(PYTHON, "python") + block("relu(x, y)\n" * 99, "python"),
        f"- {FENCE}x{FENCE} and\n  {FENCE}python\n"
        + re.sub("(?m)^(?=.)", "  ", PYTHON)
        + f"  {FENCE}",
        json.dumps({"thought": "t", "code": block(PYTHON, "python")}),
        PYTHON,
        f"The file:\n\n{PYTHON}",
    ],
)
def test_a_kernel_of_python_is_found(text: str) -> None:
    assert found(text, TRITON).strip() == PYTHON.strip()


@pytest.mark.parametrize("language", list(PLACES))
def test_each_language_is_found_under_the_tag_that_it_is_asked_for(language: str) -> None:
    one = task(language)
    (shipped,) = [k for k in catalogue.candidates("relu", one.backend) if k.language == language]
    tag = reading.TAGS[language][0]
    assert found(f"Look:\n{block(shipped.source, tag)}", one) == shipped.source
    assert found(f"Look:\n{block(shipped.source, '')}", one) == shipped.source
    assert reading.defines(shipped.source, one)


@pytest.mark.parametrize("op", ["layernorm", "attention", "sum", "conv2d_relu_maxpool"])
@pytest.mark.parametrize("language", list(PLACES))
def test_the_entry_of_every_shipped_kernel_is_seen(language: str, op: str) -> None:
    one = task(language, op)
    (shipped,) = [k for k in catalogue.candidates(op, one.backend) if k.language == language]
    assert reading.defines(shipped.source, one)
    assert not reading.defines(shipped.source, task(language, "rope"))


def test_a_fence_in_a_docstring_is_code() -> None:
    code = f'def relu(x):\n    """Copies.\n\n    {FENCE}python\n    relu(x)\n    {FENCE}\n    """\n'
    assert found(f"So:\n{block(code, 'python')}Done.", TRITON) == code


def test_python_with_a_mistake_is_the_compilers_to_complain_about() -> None:
    broken = "import triton\n\ndef relu(x:\n    pass\n"
    assert found(block(broken, ""), TRITON) == broken


def test_without_the_entry_the_longest_block_is_taken() -> None:
    code = "DEFINE_ENTRY(relu_impl, relu);\nint f() { return 2; }\n"
    assert found(block("int x;\n") + block(code) + block("int y;\n")) == code


def test_the_words_around_a_kernel_are_kept_and_no_code() -> None:
    code = read(f"I tile.\n\n{block(C)}\nIt is   faster.")
    assert code == ReplyCode(C, "I tile. It is faster.")
    told = read(json.dumps({"thought": "I tile.", "code": C}))
    assert isinstance(told, ReplyCode) and told.rest == "I tile."
    long = read("word " * 5000 + "\n" + block(C))
    assert isinstance(long, ReplyCode) and len(long.rest) == reading.MOST_RATIONALE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        (" \n\t", "the reply is empty"),
        ("<think>all of it", "the reply is empty"),
        ("I am sorry.", "the reply holds no code block"),
        (block(""), "the reply's code block is empty"),
        (block("  \n\n"), "the reply's code block is empty"),
        (block(PYTHON, "python"), "the reply holds python code, expected c++"),
        (block(PYTHON, ""), "the reply's code is not c++"),
        (block(PYTHON), "the reply's code is not c++"),
        (block("ls\n", "bash") + block("{}\n", "json"), "holds bash and json code, expected c++"),
        (json.dumps({"code": PYTHON}), "the reply holds no code block"),
        (json.dumps({"code": ""}), "the reply holds no code block"),
        (f"It begins with {FENCE}cpp and ends with {FENCE}.", "the reply holds no code block"),
        ("Call relu(x) first.\nThen stop.", "the reply holds no code block"),
    ],
)
def test_without_a_kernel_it_is_said_why(text: str, why: str) -> None:
    assert why in refused(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (block(C), "holds cpp code, expected a Python file for triton"),
        (block(C, ""), "the reply's code is not a Python file for triton"),
        (block(C, "python"), "the reply's code is not a Python file for triton"),
        (C, "the reply holds no code block"),
    ],
)
def test_c_is_not_taken_for_python(text: str, why: str) -> None:
    assert why in refused(text, TRITON)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<think>long",
        "I would",
        f"{FENCE}cpp",
        f"{FENCE}cpp\n{C}",
        json.dumps({"code": C})[:-9],
        block(C) + f"{FENCE}cpp\nint relu(",
    ],
)
def test_a_reply_that_was_cut_off_says_so(text: str) -> None:
    assert "cut off at max_tokens" in refused(text, cut=True)


def test_a_block_that_is_closed_is_whole_though_the_reply_was_cut() -> None:
    assert found(f"{block(C)}And so", cut=True) == C


def test_a_block_without_an_end_is_taken_when_the_model_stopped_by_itself() -> None:
    assert found(f"{FENCE}cpp\n{C}").strip() == C.strip()


def test_half_a_character_from_an_escape_can_be_stored() -> None:
    escaped = json.dumps({"code": f"// HALF\n{C}"}).replace("HALF", r"\ud83d")
    for text in (escaped, block(f"// \ud83d\n{C}")):
        CPP.candidate(found(text), author="x").digest.encode()


REPLIES = st.lists(
    st.sampled_from(
        [
            "```",
            "```cpp\n",
            "\n```\n",
            "~~~",
            "    ```\n",
            "<think>",
            "</think>",
            "{",
            "}",
            "[",
            "]",
            ",",
            '"code": ',
            '"',
            "int relu(int a) {\n",
            "}\n",
            "def relu(x):\n",
            "  pass\n",
            "import x\n",
            "\r\n",
            "\\",
            "\\n",
            "<<<<<<< SEARCH\n",
            "=======\n",
            ">>>>>>> REPLACE\n",
            "1",
            "\ud800",
            "\x00",
            "é",
            "- item\n",
            "    ",
        ]
    )
    | st.text(max_size=4),
    max_size=30,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(REPLIES, st.booleans(), st.sampled_from([CPP, TRITON]))
def test_any_reply_is_a_part_of_it_or_a_reason(text: str, cut: bool, one: Task) -> None:
    told = read(text, one, cut=cut)
    if isinstance(told, Unread):
        assert told.why and "\n" not in told.why
        return
    assert told.source.strip() and len(told.rest) <= reading.MOST_RATIONALE
    told.source.encode()
    as_json = "".join(str(value) for value in replies.values(replies.spoken(text)))
    plain = replies.spoken(text) + as_json + as_json.encode().decode("unicode_escape", "replace")
    for line in told.source.splitlines():
        assert line.strip() in plain or '"code"' in text


@settings(max_examples=200, deadline=None)
@given(REPLIES)
def test_any_reply_is_edits_plans_ideas_and_json_or_none(text: str) -> None:
    for told in (reading.edited("a\nb\n", text), reading.edited("", text, cut=True)):
        assert isinstance(told, Unread) or told.source.strip()
    plan = read_plan(text, 3)
    assert plan is None or (plan.text and "\n" not in plan.text)
    assert all(idea.text.strip() for idea in read_ideas(text))
    json.dumps(list(replies.values(text)))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "{" * 50_000,
        '[{"a":' * 5_000,
        "9" * 9_000,
        f"[{'9' * 9_000}]",
        "`" * 50_000,
        "(" * 20_000,
        "<think>" * 9_000,
        "- " * 20_000,
        "relu(" * 9_000,
        "relu " * 9_000,
    ],
)
def test_a_reply_of_one_thing_many_times_takes_no_time(text: str) -> None:
    for one in (CPP, TRITON):
        assert isinstance(read(text, one), Unread)
    list(replies.values(text))
    read_ideas(text)
    read_plan(text)


# ---- JSON in a reply


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ('As in [0]: {"a": [1]}', [[0], {"a": [1]}]),
        (block('{"a": 1,\n}\n', "json"), [{"a": 1}]),
        ("[1, 2, ], [3,]", [[1, 2], [3]]),
        ('{"a": "x,]}", "b": [",}",],}', [{"a": "x,]}", "b": [",}"]}]),
        ('{"a": "two\nlines"}', [{"a": "two\nlines"}]),
        ("int f() { return a[0]; }", [[0]]),
        ("{a: 1} [b] {'c': 1}", []),
        ("", []),
        ("{,} [,]", [{}, []]),
        ('{"a": Infinity}', [{"a": float("inf")}]),
        ("[-1, true] [ null ]", [[-1, True], [None]]),
    ],
)
def test_json_is_found_in_whatever_words(text: str, held: list[Any]) -> None:
    assert list(replies.values(text)) == held


def test_objects_in_lists_are_objects() -> None:
    told = replies.objects('[{"a": 1}, [{"b": [{"c": 2}]}], 3] {"d": 4}')
    assert list(told) == [{"a": 1}, {"b": [{"c": 2}]}, {"d": 4}]


# ---- edits

SOURCE = "int a;\nint b;\nint a2;\n  int c;\nint b;\n"


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (edit("int a;\n", "x\ny\n"), "x\ny\nint b;\nint a2;\n  int c;\nint b;\n"),
        (edit("int a;\nint b;\n", ""), "int a2;\n  int c;\nint b;\n"),
        (edit("  int c;\nint b;\n", "z\n"), "int a;\nint b;\nint a2;\nz\n"),
        (block(edit("int a;\n", "x\n"), ""), "x\nint b;\nint a2;\n  int c;\nint b;\n"),
        (
            "I do.\n" + edit("int a;\n", "q\n") + "And\n" + edit("q\n", "r\n"),
            "r\nint b;\nint a2;\n  int c;\nint b;\n",
        ),
        (edit("int a;  \n", "x\n").replace("\n", "\r\n"), "x\nint b;\nint a2;\n  int c;\nint b;\n"),
        (
            "<think>" + edit("no\n", "no\n") + "</think>" + edit("int a2;\n", ""),
            "int a;\nint b;\n  int c;\nint b;\n",
        ),
    ],
)
def test_edits_change_the_lines_that_they_find(text: str, after: str) -> None:
    told = reading.edited(SOURCE, text)
    assert isinstance(told, ReplyCode) and told.source == after
    assert "SEARCH" not in told.rest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no SEARCH/REPLACE edit"),
        (block(C), "holds no SEARCH/REPLACE edit"),
        (edit("int d;\n", "x\n"), "the text of edit 1 is found 0 times, expected once"),
        (edit("int b;\n", "x\n"), "the text of edit 1 is found 2 times, expected once"),
        (edit("int c;\n", "x\n"), "the text of edit 1 is found 0 times"),  # not a whole line
        (edit("int a;\n", "x\n") + edit("int a;\n", "y\n"), "the text of edit 2 is found 0 times"),
        (edit("", "x\n"), "the text of edit 1 is empty"),
        (edit("\n", "x\n"), "the text of edit 1 is empty"),
        (edit(SOURCE, ""), "its edits leave nothing of the file"),
        (edit("int a;\n", "x\n") + "<<<<<<< SEARCH\nint", "only 1 of its SEARCH/REPLACE edits"),
    ],
)
def test_edits_that_do_not_fit_say_why(text: str, why: str) -> None:
    told = reading.edited(SOURCE, text)
    assert isinstance(told, Unread) and why in told.why


def test_edits_of_a_reply_that_was_cut_are_not_half_done() -> None:
    text = edit("int a;\n", "x\n")
    told = reading.edited(SOURCE, text + "<<<<<<< SEARCH\nint", cut=True)
    assert isinstance(told, Unread) and "cut off at max_tokens" in told.why
    assert isinstance(reading.edited(SOURCE, text, cut=True), ReplyCode)


def test_a_file_without_a_last_newline_can_be_edited() -> None:
    told = reading.edited("a\nb", edit("b\n", "c\n"))
    assert isinstance(told, ReplyCode) and told.source == "a\nc\n"


# ---- a slot with scripted models


@dataclass(frozen=True)
class Asked:
    scope: str
    role: str
    prompt: str
    temperature: float | None
    messages: tuple[PromptMessage, ...]

    @property
    def template(self) -> str:
        return self.prompt.partition("@")[0]

    @property
    def text(self) -> str:
        return "\n".join(message.content for message in self.messages)

    @property
    def first(self) -> str:
        """The question that was asked before any answer."""
        return next(message.content for message in self.messages if message.role == "user")

    @property
    def last(self) -> str:
        return self.messages[-1].content


#: Told the question and how many of its template came before.
Answer = Callable[[Asked, int], str | Reply | Exception]


@dataclass
class Models:
    """Its replies come in any order; all of its scopes note what was asked in one list."""

    answer: Answer
    scope: str = "7"
    asked: list[Asked] = field(default_factory=list)
    shuffle: Random = field(default_factory=lambda: Random(0))
    own: list[str] = field(default_factory=list)
    inner: dict[str, Models] = field(default_factory=dict)

    async def ask(
        self,
        role: str,
        messages: Sequence[PromptMessage],
        *,
        prompt: str = "",
        temperature: float | None = None,
    ) -> Reply:
        one = Asked(self.scope, role, prompt, temperature, tuple(messages))
        count = sum(other.template == one.template for other in self.asked)
        self.asked.append(one)
        self.own.append(f"{self.scope}/{role}#{len(self.own) + 1}")
        name = self.own[-1]
        told = self.answer(one, count)
        for _ in range(self.shuffle.randrange(5)):
            await asyncio.sleep(0)
        if isinstance(told, Exception):
            raise told
        return told if isinstance(told, Reply) else Reply(told, name, f"openai/{role}")

    def within(self, name: str) -> Models:
        fresh = Models(self.answer, f"{self.scope}.{name}", self.asked, self.shuffle)
        return self.inner.setdefault(name, fresh)

    @property
    def calls(self) -> list[str]:
        return [*self.own, *(call for one in self.inner.values() for call in one.calls)]


def in_turn(*told: str | Reply | Exception) -> Answer:
    """The last one for ever."""
    counter = iter(range(10**6))
    return lambda asked, count: told[min(next(counter), len(told) - 1)]


def by_template(**told: Sequence[str] | str) -> Answer:
    def answer(asked: Asked, count: int) -> str:
        replies = told[asked.template]
        return replies if isinstance(replies, str) else replies[min(count, len(replies) - 1)]

    return answer


class Memory:
    """Recalls these blocks; ``asked`` are the roles that it was asked for."""

    def __init__(self, *blocks: PromptBlock) -> None:
        self.blocks, self.asked = list(blocks), list[str]()

    def view(self, slot: Slot, role: str, log: Log, task: Task) -> list[PromptBlock]:
        self.asked.append(role)
        return self.blocks

    def learn(self, attempt: Attempt) -> None: ...


def attempt(name: str, score: float = 0.0, **facts: Any) -> Attempt:
    told: dict[str, Any] = {
        "status": Status.PASSED if score else Status.WRONG,
        "digest": name,
        "idea": f"idea {name}",
        "source": f"int relu() {{\n  // code {name}\n  return 0;\n}}\n",
        "speedups": {"a": score} if score else {},
        "detail": "" if score else "max error 0.31",
        "feedback": (PromptBlock(kind="timing", title="Timing", text=f"measured of {name}"),),
    }
    return Attempt(
        id=name,
        slot=int(name.split(".")[0]),
        number=0,
        op="relu",
        target="x86_64",
        backend="cpu",
        language="c++",
        score=score,
        **(told | facts),
    )


FAST, SLOW, BAD = attempt("0.0", 2.0), attempt("1.0", 0.5), attempt("2.0")
NO_CODE = attempt("3.0", status=Status.NO_CODE, source="", digest="")
FAMILY = (FAST, SLOW, BAD, NO_CODE)


@dataclass
class Expansion:
    drafts: list[KernelDraft]
    asked: list[Asked]
    memory: Memory
    seen: list[str]

    @property
    def templates(self) -> list[tuple[str, str]]:
        """The templates with their roles, in the order of asking."""
        return [(one.template, one.role) for one in self.asked]

    @property
    def draft(self) -> KernelDraft:
        (only,) = self.drafts
        return only

    @property
    def candidate(self) -> Candidate:
        assert self.draft.candidate is not None, self.draft.detail
        return self.draft.candidate


def load(kind: str, **options: Any) -> Proposer:
    return proposers.load({"kind": kind} | options)


async def all_fits(candidate: Candidate) -> str:
    return ""


def expand(
    proposer: Proposer,
    answer: Answer,
    slot: Slot | None = None,
    *,
    attempts: Sequence[Attempt] = FAMILY,
    task: Task = CPP,
    memory: Memory | None = None,
    approved: Callable[[Sequence[str]], Sequence[Word]] = lambda ideas: [*map(Word, ideas)],
    evaluate: Callable[[KernelDraft], EvaluatedDraft] = lambda draft: EvaluatedDraft(
        draft, "passed"
    ),
    seed: int = 0,
    shuffle: int = 0,
    taken: set[str] | None = None,
) -> Expansion:
    log, models, seen = Log(), Models(answer, shuffle=Random(shuffle)), list[str]()
    log.add(attempts)
    recall = memory or Memory()

    async def look(draft: KernelDraft) -> EvaluatedDraft:
        assert draft.candidate is not None
        seen.append(draft.candidate.source)
        return evaluate(draft)

    async def approve(ideas: Sequence[str]) -> Sequence[Word]:
        return approved(ideas)

    taken = set() if taken is None else taken
    context = AgentContext(task, log, recall, models, Random(seed), look, approve, all_fits, taken)
    drafts = asyncio.run(proposer.propose(replace(slot or Slot(), number=7), context))
    counted = [call for draft in drafts for call in draft.calls]
    assert sorted(counted) == sorted(models.calls), "each call is counted once"
    return Expansion(drafts, models.asked, recall, seen)


PLAN = json.dumps({"plan": "stage it", "why": "it is reused", "lines": [2, 2]})
IDEAS = json.dumps([{"idea": f"idea {k}", "why": f"why {k}"} for k in range(9)])
TOOLS = [f'{{"tool": "write"}}\n{block(C)}', '{"tool": "try", "why": "I hope"}', '{"tool": "done"}']
KINDS = sorted(set(proposers.names()) - {"catalogue"})


def good(asked: Asked, count: int) -> str:
    """A fitting answer to anything."""
    match asked.template:
        case "plan" | "macro":
            return PLAN
        case "ideas":
            return IDEAS
        case "diff":
            source = re.search(r"```cpp\n(.*?)```", asked.text, re.DOTALL)
            assert source
            line = next(splitline for splitline in source[1].splitlines() if "code" in splitline)
            return edit(f"{line}\n", f"  // changed {count}\n")
        case "tool_agent":
            return TOOLS[sum(message.role == "assistant" for message in asked.messages) % 3]
    return kernel(f"{asked.scope} {count}")


# ---- all of them


def test_every_group_loads_and_states_the_defaults() -> None:
    assert {path.stem for path in CONF.glob("*.yaml")} == set(proposers.names())
    for name in proposers.names():
        stated = yaml.safe_load((CONF / f"{name}.yaml").read_text("utf-8"))
        made: Any = proposers.load(stated)
        assert made.options == made.options_type(kind=name), name
        assert set(stated) == set(made.options_type.model_fields), name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "direkt"}, "No proposer 'direkt'; did you mean 'direct'"),
        ({}, "No proposer ''; available: "),
        ({"kind": "direct", "ask": 1}, "No option of proposer direct 'ask'; did you mean 'asks'"),
        ({"kind": "direct", "asks": 0}, "proposer.asks: got 0; "),
        ({"kind": "direct", "temperature": -1}, "proposer.temperature: got -1; "),
        (
            {"kind": "direct", "temperature_step": 0.1},
            "proposer.temperature_step: got 0.1; set temperature too",
        ),
        ({"kind": "direct", "authors": {}}, "proposer.authors: got {}; expected a role"),
        ({"kind": "direct", "authors": {"coder": 0}}, "expected a role with a weight above 0"),
        ({"kind": "direct", "authors": {"coder": -1}}, "proposer.authors.coder: got -1; "),
        ({"kind": "direct", "authors": {"coder": float("inf")}}, "proposer.authors.coder"),
        ({"kind": "evolve", "level": "text"}, "proposer.level: got 'text'; Input should be 'code'"),
        ({"kind": "contrastive", "exemplars": 1}, "proposer.exemplars: got 1; "),
        ({"kind": "tool_agent", "tries": 0}, "proposer.tries: got 0; "),
    ],
)
def test_options_that_make_no_sense_are_told_in_one_line(
    options: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        proposers.load(options)
    assert said in str(caught.value) and "\n" not in str(caught.value)


SLOTS = [
    Slot(),
    Slot(n=3),
    Slot(parents=("0.0",)),
    Slot(parents=("2.0",), n=2),
    Slot(parents=("3.0",)),
    Slot(parents=("0.0", "1.0"), operator="crossover"),
    Slot(parents=("9.9",)),
    Slot(ideas=2, n=2),
    Slot(parents=("1.0",), operator="diff", shown=("0.0", "3.0", "9.9")),
    Slot(arm="tile it"),
    Slot(parents=("0.0",), phase="functional", island=3),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slot", SLOTS, ids=range(len(SLOTS)))
def test_any_slot_has_drafts_but_never_more_than_it_asks_for(kind: str, slot: Slot) -> None:
    told = expand(load(kind), good, slot)
    assert 1 <= len(told.drafts) <= slot.size
    for draft in told.drafts:
        assert draft.candidate is not None, draft.detail
        assert draft.candidate.author == "openai/coder" or draft.operator == "debug"
        assert draft.arm == slot.arm


@pytest.mark.parametrize("kind", KINDS)
def test_who_answers_first_changes_nothing(kind: str) -> None:
    slot = Slot(parents=("0.0",), ideas=2, n=2)
    made = load(kind, authors={"coder": 1, "second": 1, "third": 1})
    several = [expand(made, good, slot, seed=5, shuffle=shuffle) for shuffle in range(6)]
    courses = [
        {(one.scope, one.role, one.template, one.first) for one in told.asked} for told in several
    ]
    assert all(course == courses[0] for course in courses)
    assert all(
        [draft.arm for draft in told.drafts] == [draft.arm for draft in several[0].drafts]
        for told in several
    )


@pytest.mark.parametrize("kind", KINDS)
def test_authors_are_drawn_by_weight_and_seed(kind: str) -> None:
    made = load(kind, authors={"coder": 0, "a": 3, "b": 1})
    assert "coder" not in made.roles and {"a", "b"} <= set(made.roles)
    drawn = Counter(
        one.role
        for seed in range(80)
        for one in expand(made, good, seed=seed).asked
        if one.role != "planner"
    )
    assert set(drawn) == {"a", "b"} and drawn["a"] > 1.5 * drawn["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_only_roles_that_were_named_are_asked(kind: str) -> None:
    made = load(kind)
    for slot in SLOTS:
        assert {one.role for one in expand(made, good, slot).asked} <= set(made.roles)


@pytest.mark.parametrize("kind", KINDS)
def test_when_no_model_answers_there_is_a_draft_without_code(kind: str) -> None:
    told = expand(load(kind), in_turn(ModelError("nobody is there")))
    assert told.draft.candidate is None and told.draft.detail == "nobody is there"
    assert len(told.draft.calls) == 1  # the one that failed


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_that_is_spent_ends_the_slot(kind: str) -> None:
    with pytest.raises(BudgetSpent):
        expand(load(kind), in_turn(BudgetSpent("that was all")), Slot(n=2, ideas=1))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"tool_agent"}))
@pytest.mark.parametrize("asks", [1, 3])
def test_what_holds_no_kernel_is_answered_with_the_reason(kind: str, asks: int) -> None:
    def answer(asked: Asked, count: int) -> str:
        return good(asked, count) if asked.role == "planner" else "<think>hm</think>I am sorry."

    told = expand(load(kind, asks=asks), answer)
    assert told.draft.candidate is None
    assert told.draft.detail == "the reply holds no code block"
    written = [one for one in told.asked if one.role == "coder"]
    assert len(written) == asks
    for one in written[1:]:
        assert one.messages[-2] == PromptMessage("assistant", "I am sorry.")
        assert "cannot be used: the reply holds no code block. Answer again" in one.last
        assert "begins with ```cpp" in one.last


def test_a_second_answer_with_a_kernel_is_taken() -> None:
    told = expand(load("direct"), in_turn("", kernel("b")))
    assert "// b" in told.candidate.source
    assert told.draft.rationale == "I did b." and len(told.draft.calls) == 2
    assert told.asked[1].messages[-2] == PromptMessage("assistant", "(nothing)")


def test_an_answer_that_was_cut_is_told_so() -> None:
    cut = Reply(f"{FENCE}cpp\n{C}", "7/coder#1", "m", cut=True)
    told = expand(load("direct", asks=2), in_turn(cut, kernel()))
    assert "cut off at max_tokens, in the midst of its code" in told.asked[1].last
    assert told.candidate.source


def test_temperatures_step_from_island_to_island() -> None:
    made = load("direct", temperature=0.8, temperature_step=0.1, temperature_later=0.3)
    for island, temperature in ((0, 0.8), (3, 1.1)):
        (asked,) = expand(made, good, Slot(island=island)).asked
        assert asked.temperature == pytest.approx(temperature)
    (later,) = expand(made, good, Slot(parents=("0.0",), island=3)).asked
    assert later.temperature == 0.3
    assert expand(load("direct"), good, Slot(island=3)).asked[0].temperature is None
    falling = load("tool_agent", temperature=0.2, temperature_step=-0.1)
    assert expand(falling, good, Slot(island=5)).asked[0].temperature == 0.0


def test_a_planner_is_asked_at_its_own_temperature() -> None:
    told = expand(load("plan_code_debug", temperature=0.1), good)
    assert [(one.role, one.temperature) for one in told.asked] == [
        ("planner", None),
        ("coder", 0.1),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_of_a_menu_is_told_in_its_words(kind: str) -> None:
    made = load(kind, actions="menu/six")
    arms = {arm.name: arm for arm in made.arms(CPP)}
    told = expand(made, good, Slot(arm="tiling", parents=("0.0",)))
    assert any(arms["tiling"].text in one.text for one in told.asked)
    assert told.draft.arm == "tiling"


@pytest.mark.parametrize("kind", KINDS)
def test_with_actions_of_the_critic_its_advice_is_the_action(kind: str) -> None:
    advised = Diagnosis(critic="rules", problem="it waits", fix="use two accumulators")
    parent = attempt("0.0", 2.0, diagnosis=advised)
    told = expand(load(kind, actions="critic"), good, Slot(parents=("0.0",)), attempts=[parent])
    assert any("use two accumulators" in one.text for one in told.asked)
    assert told.draft.arm == "use two accumulators"
    for slot in (Slot(), Slot(parents=("1.0",)), Slot(parents=("0.0",), arm="tile it")):
        more = expand(load(kind, actions="critic"), good, slot, attempts=[parent, SLOW])
        assert more.draft.arm == slot.arm


# ---- direct, universal


def test_direct_asks_once_for_each_kernel() -> None:
    told = expand(load("direct"), good, Slot(n=3, arm="tile it"))
    assert told.templates == [("direct", "coder")] * 3
    assert len({draft.candidate and draft.candidate.digest for draft in told.drafts}) == 3
    assert [draft.idea for draft in told.drafts] == ["tile it"] * 3
    assert {draft.calls for draft in told.drafts} == {(f"7.{k}/coder#1",) for k in range(3)}


def test_direct_shows_the_past_in_the_memorys_words_alone() -> None:
    memory = Memory(PromptBlock(kind="last", title="What came before", text="a word of it"))
    told = expand(load("direct"), good, Slot(parents=("0.0",)), memory=memory)
    assert "## What came before\na word of it" in told.asked[0].text
    assert "code 0.0" not in told.asked[0].text
    assert memory.asked == ["coder"]


def test_one_call_is_named_by_its_template_and_version() -> None:
    (asked,) = expand(load("direct"), good).asked
    assert re.fullmatch(r"direct@\d+", asked.prompt)
    assert [message.role for message in asked.messages] == ["system", "user"]


def test_universal_shows_the_kernel_and_what_was_found_out() -> None:
    text = expand(load("universal"), good, Slot(parents=("2.0", "0.0"))).asked[0].text
    assert "code 2.0" in text and "max error 0.31" in text and "measured of 2.0" in text
    assert "code 0.0" not in text
    assert "The kernel so far" not in expand(load("universal"), good).asked[0].text


# ---- translate


def test_translate_shows_the_closest_donor_and_what_platforms_call_alike() -> None:
    told = expand(load("translate"), good, task=task("hip"))
    donor = next(iter(catalogue.candidates("relu", registry.load("cuda"))))
    assert told.templates == [("translate", "coder")]
    assert donor.source.strip() in told.asked[0].text
    assert "- cudaStream_t → hipStream_t" in told.asked[0].text
    assert told.draft.donor == "cuda/cuda"


def test_translate_shows_as_many_donors_as_it_is_told_to() -> None:
    told = expand(load("translate", shots=3), good, task=task("cuda"))
    assert told.draft.donor == "hip/hip opencl/opencl triton/triton"
    pairs = re.findall(r"^- .* → .*$", told.asked[0].text, re.MULTILINE)
    assert len(pairs) == len(set(pairs))


def test_a_donor_can_be_named() -> None:
    told = expand(load("translate", donor="pallas"), good, task=task("cuda"))
    assert told.draft.donor == "pallas/pallas"


@pytest.mark.parametrize(
    ("donor", "said"), [("cuda", "Nobody has a kernel of 'relu'"), ("cudaa", "did you mean 'cuda'")]
)
def test_a_donor_that_cannot_be_is_told_before_the_run_begins(donor: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load("translate", donor=donor).arms(task("cuda"))


def another_run(folder: Path, *attempts: Attempt, best: str | None = "") -> str:
    """Writes a run as a donor; ``best`` is what its end says, empty when it has not come to it."""
    Log(folder / "attempts.jsonl").add(attempts)
    if best != "":
        (folder / "summary.json").write_text(json.dumps({"best": best}))
    return str(folder)


def test_the_donor_can_be_what_won_the_end_of_another_run(tmp_path: Path) -> None:
    donor = another_run(tmp_path / "first", *FAMILY, best="1.0")
    told = expand(load("translate", donor=donor, shots=3), good, task=task("cuda"))
    assert "### cpu (c++)" in told.asked[0].text
    assert "code 1.0" in told.asked[0].text and "code 0.0" not in told.asked[0].text
    assert told.draft.donor == "cpu/c++ of first 1.0"


def test_of_a_run_that_has_not_ended_the_donor_is_the_fastest_when_it_was_looked_at(
    tmp_path: Path,
) -> None:
    donor = another_run(tmp_path / "first", BAD, SLOW)
    made = load("translate", donor=donor)
    assert expand(made, good, task=task("cuda")).draft.donor == "cpu/c++ of first 1.0"
    another_run(tmp_path / "first", FAST)
    assert expand(made, good, task=task("cuda")).draft.donor == "cpu/c++ of first 1.0"
    later = expand(load("translate", donor=donor), good, task=task("cuda"))
    assert later.draft.donor == "cpu/c++ of first 0.0"


def test_a_run_s_donor_decides_a_run_and_the_catalogue_s_does_not(tmp_path: Path) -> None:
    decided = []
    for best in ("0.0", "1.0", "1.0"):
        made = load("translate", donor=another_run(tmp_path / "first", FAST, SLOW, best=best))
        made.arms(task("cuda"))
        decided.append(made.decisive)
    assert decided[0] != decided[1] == decided[2]
    made = load("translate")
    made.arms(task("cuda"))
    assert made.decisive == {}


def test_a_run_for_another_target_or_in_another_language_may_be_the_donor(tmp_path: Path) -> None:
    donor = another_run(tmp_path / "x86", *FAMILY)
    load("translate", donor=donor).arms(task("numba"))
    load("translate", donor=donor).arms(replace(CPP, target=target.load("aarch64")))
    with pytest.raises(
        ConfigError, match=r"a run for x86_64 in c\+\+ too, .* expected a run for an"
    ):
        load("translate", donor=donor).arms(CPP)


@pytest.mark.parametrize(
    ("attempts", "best", "said"),
    [
        (None, "", "which is not a folder; expected the folder of a run of portkern generate"),
        ((), "", "a folder without attempts.jsonl; expected the folder of a run of portkern gen"),
        ((SLOW.model_copy(update={"op": "gelu"}),), "", "a run of gelu; expected one of relu. "),
        ((BAD, NO_CODE), "", "a run without a verified kernel; expected a run that has one"),
        ((FAST,), None, "a run without a verified kernel; expected a run that has one"),
    ],
    ids=["no folder", "no run", "other op", "nothing verified", "none stood the end"],
)
def test_a_run_that_cannot_be_the_donor_is_told_with_the_way_out(
    attempts: tuple[Attempt, ...] | None, best: str | None, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    if attempts is not None:
        folder.mkdir()
    donor = another_run(folder, *attempts, best=best) if attempts else str(folder)
    with pytest.raises(ConfigError) as caught:
        load("translate", donor=donor).arms(task("cuda"))
    assert f"Got proposer.donor={donor}, {said}" in str(caught.value)
    assert "take proposer.donor=catalogue" in str(caught.value)


def test_a_donor_s_damaged_summary_is_told(tmp_path: Path) -> None:
    donor = another_run(tmp_path / "first", FAST)
    (tmp_path / "first" / "summary.json").write_text("{")
    with pytest.raises(RecordError, match=r"Cannot read .*summary\.json"):
        load("translate", donor=donor).arms(task("cuda"))


# ---- contrastive


def test_contrastive_shows_kernels_of_different_speed_the_slower_first() -> None:
    told = expand(load("contrastive"), good, Slot(parents=("0.0",)))
    text = told.asked[0].text
    assert text.index("code 1.0") < text.index("code 0.0")
    assert "0.5 times as fast" in text and "2 times as fast" in text and "code 2.0" not in text
    assert told.draft.notes == ("exemplars: 1.0 0.0",)


def test_contrastive_shows_the_only_one_twice_and_says_when_there_is_none() -> None:
    told = expand(load("contrastive"), good, attempts=[FAST, BAD])
    assert told.asked[0].text.count("code 0.0") == 2
    assert told.draft.notes == ("exemplars: 0.0 0.0",)
    none = expand(load("contrastive"), good, attempts=[BAD])
    assert "No kernel was measured yet" in none.asked[0].text
    assert none.draft.notes == ("exemplars: none",)


def test_contrastive_draws_from_distinct_steps_and_rather_fast_ones() -> None:
    many = [attempt(f"{k}.0", 1 + k / 10) for k in range(40)]
    drawn = Counter[str]()
    for seed in range(60):
        told = expand(load("contrastive"), good, attempts=many, seed=seed)
        slow, fast = told.draft.notes[0].split()[1:]
        steps = [int((1 + int(float(one)) / 10 - 1) / (3.9 / 4)) for one in (slow, fast)]
        assert min(steps[0], 3) < min(steps[1], 3)
        drawn.update(["top"] * (float(fast) >= 30) + ["bottom"] * (float(slow) < 10))
    assert drawn["top"] > 1.2 * drawn["bottom"]


# ---- evolve


@pytest.mark.parametrize(
    ("slot", "template"),
    [
        (Slot(), "direct"),
        (Slot(operator="init", parents=("0.0",)), "direct"),
        (Slot(operator="mutate"), "direct"),
        (Slot(parents=("0.0",)), "mutate"),
        (Slot(parents=("0.0", "1.0")), "crossover"),
        (Slot(parents=("0.0", "1.0"), operator="mutate"), "mutate"),
        (Slot(parents=("0.0",), operator="crossover"), "mutate"),
        (Slot(parents=("0.0", "3.0"), operator="crossover"), "mutate"),  # one has no code
        (Slot(parents=("3.0",), operator="diff"), "direct"),
        (Slot(parents=("0.0",), operator="diff"), "diff"),
        (Slot(parents=("0.0",), operator="debug"), "mutate"),
    ],
)
def test_the_operator_decides_as_far_as_there_are_parents(slot: Slot, template: str) -> None:
    told = expand(load("evolve"), good, slot)
    assert told.templates == [(template, "coder")]
    assert told.draft.operator == {"direct": "init"}.get(template, template)


@given(
    st.sampled_from(["", "init", "mutate", "diff", "crossover", "debug", "x"]), st.integers(0, 4)
)
def test_an_operator_never_wants_more_parents_than_there_are(operator: str, parents: int) -> None:
    chosen = operator_of(Slot(operator=operator), parents)
    assert {"init": 0, "mutate": 1, "diff": 1, "crossover": 2}[chosen] <= parents


def test_a_mutation_shows_its_parent_and_others_to_look_at() -> None:
    slot = Slot(parents=("1.0",), shown=("0.0", "3.0", "1.0"), arm="tile it")
    (asked,) = expand(load("evolve"), good, slot).asked
    assert asked.text.index("code 1.0") < asked.text.index("code 0.0")
    assert asked.text.count("code 1.0") == 1 and "tile it" in asked.text


def test_a_crossover_is_of_code_or_of_strategies() -> None:
    slot = Slot(parents=("0.0", "1.0"))
    for level, said in (("code", "strengths"), ("strategy", "for each parent, which strategy")):
        (asked,) = expand(load("evolve", level=level), good, slot).asked
        assert said in asked.text and "code 0.0" in asked.text and "code 1.0" in asked.text


def test_edits_are_made_in_the_parents_file() -> None:
    told = expand(load("evolve"), good, Slot(parents=("0.0",), operator="diff"))
    assert told.candidate.source == FAST.source.replace("// code 0.0", "// changed 0")


def test_edits_that_do_not_fit_are_asked_for_again_as_edits() -> None:
    answer = in_turn(
        edit("no such line\n", "x\n"), kernel(), edit("  return 0;\n", "  return 1;\n")
    )
    told = expand(load("evolve", asks=3), answer, Slot(parents=("0.0",), operator="diff"))
    assert "the text of edit 1 is found 0 times" in told.asked[1].last
    assert "holds no SEARCH/REPLACE edit" in told.asked[2].last
    assert "edits of the form that was asked for" in told.asked[2].last
    assert "return 1;" in told.candidate.source


def test_of_a_duplicate_the_first_ones_result_is_told() -> None:
    same = attempt("4.0", status=Status.DUPLICATE, source=FAST.source, digest=FAST.digest)
    for kind in ("evolve", "plan_code_debug"):
        told = expand(load(kind), good, Slot(parents=("4.0",)), attempts=[FAST, same])
        assert "2 times as fast" in told.asked[0].text
        assert "debug" not in [template for template, _ in told.templates]


# ---- ideas, then code


def test_ideas_come_from_the_planner_and_kernels_of_each_from_coders() -> None:
    told = expand(load("ideas_then_code"), good, Slot(parents=("0.0",), ideas=2, n=2))
    assert told.templates == [("ideas", "planner"), *[("implement", "coder")] * 4]
    assert [(draft.idea, draft.rationale) for draft in told.drafts] == [
        ("idea 0", "why 0"),
        ("idea 0", "why 0"),
        ("idea 1", "why 1"),
        ("idea 1", "why 1"),
    ]
    assert "code 0.0" in told.asked[0].text and "2 ideas" in told.asked[0].text
    implemented = [one.text for one in told.asked[1:]]
    assert all("code 0.0" in text for text in implemented)
    assert sorted("idea 0\n\nwhy 0" in text for text in implemented) == [False, False, True, True]
    assert told.memory.asked == ["planner", *["coder"] * 4]


def test_what_was_tried_is_told_once_with_its_best_result() -> None:
    tried = [
        attempt("0.0", 1.5, idea="tile"),
        attempt("1.0", idea="tile"),
        attempt("2.0", 2.5, idea="tile"),
        attempt("4.0", idea="fuse"),
        attempt("5.0", 1.0, idea="stage", speedups={}),
    ]
    text = expand(load("ideas_then_code"), good, attempts=tried).asked[0].text
    assert re.findall(r"^- (tile|fuse|stage): (.*)$", text, re.MULTILINE) == [
        ("tile", "Correct, 2.5 times as fast as the framework"),
        ("fuse", "Wrong: max error 0.31"),
        ("stage", "Correct, not timed"),
    ]


def test_of_very_many_ideas_the_newest_are_told() -> None:
    tried = [attempt(f"{k}.0", idea=f"thought {k}.") for k in range(MOST_TRIED + 50)]
    text = expand(load("ideas_then_code"), good, attempts=tried).asked[0].text
    assert text.count("- thought") == MOST_TRIED and "thought 149." in text


def test_ideas_that_people_strike_out_are_not_carried_out() -> None:
    asked: list[Sequence[str]] = []

    def approved(ideas: Sequence[str]) -> Sequence[Word]:
        asked.append(ideas)
        return [Word(), Word("idea 1, by rows"), Word(why="it needs too much memory")]

    slot = Slot(ideas=3, n=2)
    told = expand(load("ideas_then_code"), good, slot, approved=approved)
    assert asked == [["idea 0", "idea 1", "idea 2"]]
    *written, first, last = told.drafts
    assert [draft.idea for draft in written] == ["idea 1, by rows"] * 2
    implemented = [one.text for one in told.asked if one.template == "implement"]
    assert all("idea 1, by rows" in text for text in implemented) and len(implemented) == 2
    assert (first.idea, first.status, first.detail) == ("idea 0", "screened", "it was not approved")
    assert last.detail == "it was not approved: it needs too much memory"
    none = expand(load("ideas_then_code"), good, slot, approved=lambda ideas: [Word()] * 3)
    assert [draft.calls for draft in none.drafts] == [("7/planner#1",), (), ()]


def test_a_planner_without_ideas_is_asked_again_with_the_reason() -> None:
    told = expand(load("ideas_then_code"), by_template(ideas=["Hm.", IDEAS], implement=kernel()))
    assert [one.role for one in told.asked] == ["planner", "planner", "coder"]
    assert "it holds no list of ideas. Answer again, with the JSON alone." in told.asked[1].last
    never = expand(load("ideas_then_code"), in_turn("Hm."))
    assert never.draft.detail.startswith("no ideas came of the planner's reply")
    assert len(never.draft.calls) == 2


@pytest.mark.parametrize(
    ("text", "ideas"),
    [
        (IDEAS, [f"idea {k}" for k in range(9)]),
        (block('["tile", "fuse",]\n', "json"), ["tile", "fuse"]),
        ('As in [0], {"ideas": [{"idea": "tile"}, {"idea": "fuse"}]}', ["tile", "fuse"]),
        ('["draft"] no, rather: ["tile"]', ["tile"]),
        ('{"idea": "tile", "why": "x"}\n{"idea": "fuse"}', ["tile", "fuse"]),
        ('[{"idea": "tile"}, {"idea": "Tile"}, {"idea": ""}, {"x": 1}, 3]', ["tile"]),
        ('[{"idea": "tile"}, {"idea": "fus', ["tile"]),
        ('[{"idea": "tile\\n  the rows", "why": null}]', ["tile the rows"]),
        (
            "1. **Tile**: rows\n2) fuse\n\n- stage\n" + block("- no\n"),
            ["Tile: rows", "fuse", "stage"],
        ),
        ('<think>["no"]</think>["tile"]', ["tile"]),
        ("I have none.", []),
        ("", []),
        ("[1, 2]", []),
    ],
)
def test_ideas_are_found_in_many_forms(text: str, ideas: list[str]) -> None:
    assert [read_idea.text for read_idea in read_ideas(text)] == ideas


def test_an_idea_has_its_reason() -> None:
    assert read_ideas('[{"idea": "a", "why": "b\\nc"}]') == [Idea("a", "b c")]


# ---- plans


def test_a_plan_marks_lines_that_a_coder_changes() -> None:
    told = expand(load("plan_code_debug"), good, Slot(parents=("0.0",)))
    assert told.templates == [("plan", "planner"), ("realise", "coder")]
    plan, realise = (one.text for one in told.asked)
    assert "   2   // code 0.0" in plan and "2 times as fast" in plan
    assert f"{BEGIN}\n  // code 0.0\n{END}" in realise and "stage it" in realise
    draft = told.draft
    assert (draft.idea, draft.rationale, draft.operator) == ("stage it", "it is reused", "plan")
    assert draft.notes == ("changed outside of the planned lines, from line 1",)


def test_the_first_kernel_is_planned_without_lines() -> None:
    told = expand(load("plan_code_debug"), good)
    assert told.templates == [("plan", "planner"), ("realise", "coder")]
    assert BEGIN not in told.asked[1].text and told.draft.notes == ()


def test_a_debugger_mends_what_failed() -> None:
    told = expand(load("plan_code_debug"), good, Slot(parents=("2.0",), operator="debug"))
    assert told.templates == [("debug", "debugger")]
    text = told.asked[0].text
    assert "code 2.0" in text and "max error 0.31" in text and "measured of 2.0" in text
    assert told.draft.idea == "mend 2.0" and told.draft.operator == "debug"
    assert told.memory.asked == ["debugger"]


def test_marks_that_a_coder_leaves_in_are_taken_out() -> None:
    marked = FAST.source.replace("  // code", f"{BEGIN}\n  // new\n  // {END}\n  // code")
    answer = by_template(plan=PLAN, realise=block(marked))
    told = expand(load("plan_code_debug"), answer, Slot(parents=("0.0",)))
    assert "IMPROVE" not in told.candidate.source and "// new" in told.candidate.source


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("  // code 0.0\n", "  // other\n  // more\n", 0),
        ("  // code 0.0\n", "", 0),
        ("  // code 0.0\n", "  // before\n  // code 0.0\n  // after\n", 0),
        ("  return 0;\n", "  return 1;\n", 3),
        ("int relu() {\n", "int  relu() {\n", 1),
        ("}\n", "}\nint more;\n", 5),
    ],
)
def test_what_changed_outside_of_the_plan_is_noted(old: str, new: str, line: int) -> None:
    answer = by_template(macro=PLAN, micro=block(FAST.source.replace(old, new)))
    notes = expand(load("macro_micro"), answer, Slot(parents=("0.0",))).draft.notes
    said = f"changed outside of the planned lines, from line {line}"
    assert notes == ((said,) if line else ())


def test_a_planner_without_a_plan_is_asked_again_and_then_given_up() -> None:
    for kind, template in (("plan_code_debug", "plan"), ("macro_micro", "macro")):
        told = expand(load(kind), in_turn("<think>"), Slot(parents=("0.0",)))
        assert told.templates == [(template, "planner")] * 2
        assert told.draft.detail == "no plan came of the planner's reply: it is empty"


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (PLAN, KernelPlan("stage it", "it is reused", (2, 2))),
        ('{"action": "tiling: rows", "lines": [1, 99]}', KernelPlan("tiling: rows", "", (1, 4))),
        ('{"plan": "a", "lines": ["2", "3"]}', KernelPlan("a", "", (2, 3))),
        *[
            (f'{{"plan": "a", "lines": {lines}}}', KernelPlan("a"))
            for lines in ("[3, 2]", "[9, 9]", "[0, 2]", '"23"', "[1, Infinity]", "[1]", "null")
        ],
        ('{"lines": [1, 2]} {"plan": "draft"} {"plan": "b"}', KernelPlan("b")),
        (
            f"int a[2] = {{1}};\n{block(PLAN, 'json')}",
            KernelPlan("stage it", "it is reused", (2, 2)),
        ),
        ("Stage the\nrows.", KernelPlan("Stage the rows.")),
        ("<think>no</think> Yes.", KernelPlan("Yes.")),
        ("", None),
        ('{"plan": ""', None),
        ("<think>", None),
    ],
)
def test_plans_are_found_in_many_forms(text: str, plan: KernelPlan | None) -> None:
    assert read_plan(text, 4) == plan


# ---- macro and micro


def test_a_planner_chooses_an_action_and_a_coder_makes_one_edit() -> None:
    plan = json.dumps({"action": "Vectorization: wider loads", "lines": [2, 3]})
    answer = by_template(macro=plan, micro=block(FAST.source))
    told = expand(load("macro_micro", actions="menu/six"), answer, Slot(parents=("0.0",)))
    assert told.templates == [("macro", "planner"), ("micro", "coder")]
    assert "- tiling: Change the tile sizes" in told.asked[0].text
    assert f"{BEGIN}\n  // code 0.0\n  return 0;\n{END}" in told.asked[1].text
    assert (told.draft.arm, told.draft.operator) == ("vectorization", "edit")


def test_with_the_arm_given_only_the_region_is_left_to_choose() -> None:
    slot = Slot(parents=("0.0",), arm="fusion")
    told = expand(load("macro_micro", actions="menu/six"), good, slot)
    assert "## The action\nfusion: Fuse passes" in told.asked[0].text
    assert "to choose from" not in told.asked[0].text and told.draft.arm == "fusion"


def test_without_a_kernel_there_is_nothing_to_edit() -> None:
    for slot in (Slot(), Slot(parents=("3.0",))):
        told = expand(load("macro_micro"), good, slot)
        assert told.templates == [("direct", "coder")] and told.draft.operator == "init"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("block tiling of the rows", "block_tiling"),
        ("Tiling, then fusion", "tiling"),
        ("retiling and fusions", ""),
        ("FUSION", "fusion"),
        ("fusion instead of tiling", "fusion"),
    ],
)
def test_an_action_is_known_by_its_name(text: str, name: str) -> None:
    assert named(text, ["tiling", "block_tiling", "fusion"]) == name


# ---- a model with tools


def with_tools(*replies: str, **options: Any) -> tuple[Proposer, Answer]:
    return load("tool_agent", **options), in_turn(*replies)


def test_each_try_is_a_draft_with_its_calls_counted_once() -> None:
    made, answer = with_tools(
        '{"tool": "show"}',
        f'{{"tool": "write"}}\n{block(C)}',
        '{"tool": "try", "why": "first"}',
        '{"tool": "edit"}\n' + edit("  return helper();\n", "  return 2;\n"),
        '{"tool": "try", "why": "second"}',
        '{"tool": "done"}',
    )
    told = expand(made, answer, Slot(n=3))
    assert [len(draft.calls) for draft in told.drafts] == [3, 3]
    assert [draft.idea for draft in told.drafts] == ["first", "second"]
    assert {draft.operator for draft in told.drafts} == {"try"}
    assert "return helper" in told.seen[0] and "return 2;" in told.seen[1]
    assert told.asked[0].text.count("There is no file yet.") == 0
    answers = [one.last for one in told.asked[1:]]
    assert answers[0] == "There is no file yet." and answers[1] == "Written."
    assert answers[3] == "Edited." and "2 tries are left" in answers[2]
    assert "1 try is left" in answers[4]


def test_the_parents_file_is_the_first_one() -> None:
    made, answer = with_tools('{"tool": "show"}', '{"tool": "try"}', '{"tool": "done"}')
    told = expand(made, answer, Slot(parents=("0.0",)))
    assert told.asked[1].last.splitlines()[1] == "   2   // code 0.0"
    assert told.candidate.source == FAST.source
    assert "code 0.0" in told.asked[0].text and "measured of 0.0" in told.asked[0].text


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('{"tool": "make"}', "No tool 'make'. Answer with one JSON object; tools: write, edit"),
        ('{"tool": ["try"]}', "No tool ['try']"),
        ("I think.", "There is no tool in that reply"),
        ('{"tool": "write"}', "The file is as it was: the reply holds no code block."),
        ('{"tool": "edit"}', "The file is as it was: the reply holds no SEARCH/REPLACE edit."),
        ('{"tool": "try"}', "There is no file yet; write one first."),
        ('{"tool": "donor"}', '"" has no kernel of relu.'),
        ('{"tool": "donor", "backend": "x"}', '"x" has no kernel of relu.'),
        ('{"tool": "donor", "backend": "reports/x"}', '"reports/x" has no kernel of relu.'),
        ('{"tool": "donor", "backend": "cpu"}', '"cpu" has no kernel of relu.'),
        ('{"tool": "donor", "backend": "cuda"}', "cuda, cuda:\n```\n"),
        ('[0] {"tool": "donor", "backend": "hip"} {"tool": "done"}', "hip, hip:\n```\n"),
    ],
)
def test_a_tool_answers_in_words(reply: str, said: str) -> None:
    made, answer = with_tools(reply, '{"tool": "done"}')
    told = expand(made, answer)
    assert told.asked[1].last.startswith(said)
    assert told.draft.candidate is None
    assert told.draft.detail == "it was done before it tried a kernel"
    assert len(told.draft.calls) == 2


def test_what_became_of_a_try_is_reported() -> None:
    def evaluate(draft: KernelDraft) -> EvaluatedDraft:
        block = PromptBlock(kind="correctness", title="Wrong elements", text="[3, 7]")
        return EvaluatedDraft(draft, "build_failed", "no such thing", feedback=[block])

    made, answer = with_tools(*TOOLS)
    report = expand(made, answer, evaluate=evaluate).asked[2].last
    assert report.startswith("Build failed: no such thing\n\nWrong elements\n[3, 7]\n\nNo tries")


def test_tries_are_limited_by_the_option_and_by_the_slot() -> None:
    def answer(asked: Asked, count: int) -> str:
        if count % 2:
            return '{"tool": "try"}'
        return f'{{"tool": "write"}}\n{block(f"// {count}{chr(10)}{C}")}'

    for tries, n, most in ((5, 2, 2), (2, 5, 2), (1, 1, 1)):
        told = expand(load("tool_agent", tries=tries, turns=12), answer, Slot(n=n))
        assert len(told.drafts) == len(told.seen) == most
        assert "may try " + ("one kernel" if most == 1 else f"{most} kernels") in told.asked[0].text
        said = "No tries are left; answer with the tool 'done'."
        assert [one.last for one in told.asked].count(said) == 5 - most
        assert len(told.asked) == 12


def test_a_file_that_was_tried_is_not_tried_again() -> None:
    made, answer = with_tools(TOOLS[0], TOOLS[1], TOOLS[1], TOOLS[2])
    told = expand(made, answer, Slot(n=3))
    assert len(told.seen) == 1
    assert told.asked[3].last == "This very file was tried already. 2 tries are left."


def test_without_a_try_there_is_no_code() -> None:
    made, answer = with_tools('{"tool": "show"}', turns=3)
    told = expand(made, answer)
    assert told.draft.detail == "it did not try a kernel in 3 replies"
    assert len(told.draft.calls) == 3


@pytest.mark.parametrize("error", [ModelError("nobody"), BudgetSpent("all of it")])
def test_what_was_tried_before_the_end_is_handed_in(error: Exception) -> None:
    told = expand(load("tool_agent"), in_turn(*TOOLS[:2], error))
    assert told.candidate.source == C and len(told.draft.calls) == 3


# ---- menus and platforms


@pytest.mark.parametrize("path", sorted((Path(menu.__file__).parent / "menus").iterdir()))
def test_menus_are_whole(path: Path) -> None:
    for language in PLACES:
        for arm in menu.arms(f"menu/{path.stem}", task(language)):
            assert arm.text.endswith(".") and arm.resource in ("", "memory", "compute", "cache")
    shipped = yaml.safe_load(path.read_text("utf-8"))
    vendors = {v for one in shipped["actions"].values() for v in one.get("vendors", ())}
    keys = {key for one in shipped["actions"].values() for key in one}
    assert keys <= {"text", "resource", "vendors"}, "a text with a comma needs quotes"
    assert shipped["source"] and vendors <= {"nvidia", "amd", "cpu", "opencl"}


def test_a_menu_offers_what_the_targets_vendor_has() -> None:
    names = {
        language: {arm.name for arm in menu.arms("menu/primitives", task(language))}
        for language in ("cuda", "hip", "c++", "opencl")
    }
    assert "async_copy" in names["cuda"] - names["hip"]
    assert "simd" in names["c++"] - names["cuda"]
    assert all(names.values())


@pytest.mark.parametrize("actions", ["open", "critic", "graph"])
def test_an_open_choice_has_no_arms(actions: str) -> None:
    assert menu.arms(actions, CPP) == []


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ("opne", "Got proposer.actions='opne', expected open, critic, graph or menu/<name>"),
        ("menu/seven", "No menu of actions 'seven'; available: "),
        ("menu/", "No menu of actions ''"),
    ],
)
def test_unknown_actions_are_told_with_those_that_there_are(actions: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load("direct", actions=actions).arms(CPP)


def test_platforms_name_backends_and_each_differs() -> None:
    for row in yaml.safe_load(Path(menu.__file__).with_name("platforms.yaml").read_text("utf-8")):
        assert set(row) <= set(registry.names()) and len(row) >= 2
        assert all(row.values()), "a text with a comma needs quotes"
    pairs = menu.mapping(["cuda", "hip", "cuda"], "opencl")
    assert len(pairs) == len(set(pairs)) and ("__shared__", "__local") in pairs
    assert menu.mapping(["cuda"], "cuda") == []


# ---- the catalogue


Fits = Callable[[Candidate], Awaitable[str]]
Approved = Callable[[Sequence[str]], Awaitable[Sequence[Word]]]


async def all_approved(ideas: Sequence[str]) -> Sequence[Word]:
    return [Word(idea) for idea in ideas]


def play(
    slots: Sequence[Slot],
    one: Task = CPP,
    seed: int = 0,
    fits: Fits = all_fits,
    approve: Approved = all_approved,
) -> list[list[KernelDraft]]:
    """Plays slots one after the other, whose parents are numbers of candidates among those made."""
    made, log, taken = load("catalogue"), Log(), set[str]()
    told: list[list[KernelDraft]] = []
    nothing: Any = None
    for number, slot in enumerate(slots):
        known = [attempt.id for attempt in log if attempt.source]
        parents = tuple(known[int(p) % len(known)] for p in slot.parents if known)
        slot = replace(slot, number=number, parents=parents)
        context = AgentContext(
            one,
            log.snapshot(),
            Memory(),
            nothing,
            Random(f"{seed}:{number}"),
            nothing,
            approve,
            fits,
            taken,
        )
        drafts = asyncio.run(made.propose(slot, context))
        told.append(drafts)
        log.add(
            [
                attempt(
                    f"{number}.{k}",
                    1.0,
                    source=draft.candidate.source if draft.candidate else "",
                    digest=draft.candidate.digest if draft.candidate else "",
                )
                for k, draft in enumerate(drafts)
            ]
        )
    return told


def made(told: Sequence[Sequence[KernelDraft]]) -> list[Candidate]:
    return [draft.candidate for drafts in told for draft in drafts if draft.candidate]


def values(candidate: Candidate) -> dict[str, int]:
    return {name: knob.value for name, knob in candidate.knobs.items()}


def test_the_first_kernel_is_the_one_that_ships() -> None:
    for language in PLACES:
        one = task(language, "softmax")
        (shipped,) = [
            k for k in catalogue.candidates("softmax", one.backend) if k.language == language
        ]
        ((draft,),) = play([Slot()], one)
        assert draft.candidate is not None and draft.candidate.digest == shipped.digest
        assert (draft.idea, draft.operator, draft.calls) == (SHIPPED, "init", ())


MATMUL = task("cuda", "matmul")
MATMUL_SHIPPED = next(iter(catalogue.candidates("matmul", MATMUL.backend)))


def test_ideas_are_knobs_and_their_kernels_values() -> None:
    _, drafts = play([Slot(), Slot(parents=("0",), ideas=3, n=2)], MATMUL)
    assert len(drafts) == 6
    knobs = [draft.arm for draft in drafts]
    assert sorted(Counter(knobs).values()) == [2, 2, 2]
    for draft in drafts:
        assert draft.operator == "turn" and draft.idea.startswith(f"{draft.arm}: ")


def test_a_mutation_turns_one_knob_and_the_arms_if_it_names_one() -> None:
    start, one, two = play(
        [Slot(), Slot(parents=("0",), operator="mutate"), Slot(parents=("0",), arm="STAGES")],
        MATMUL,
    )
    before = values(made([start])[0])
    for drafts in (one, two):
        after = values(made([drafts])[0])
        changed = [name for name in before if before[name] != after[name]]
        assert changed == [drafts[0].arm]
        assert drafts[0].idea == f"{changed[0]}: {before[changed[0]]} → {after[changed[0]]}"
    assert two[0].arm == "STAGES"


def test_a_crossover_takes_each_knob_from_one_of_two_parents() -> None:
    slots = [
        Slot(),
        Slot(parents=("0",), n=4),
        Slot(parents=("1",), n=4),
        Slot(parents=("5",), n=4),
    ]
    for seed in range(5):
        told = play([*slots, Slot(parents=("4", "11"), operator="crossover", n=2)], MATMUL, seed)
        mother, father = (values(made(told)[k]) for k in (4, 11))
        for draft in told[-1]:
            if draft.operator == "crossover":
                child = values(made([[draft]])[0])
                assert all(child[name] in (mother[name], father[name]) for name in child)
                break
        else:
            differing = [name for name in mother if mother[name] != father[name]]
            assert len(differing) < 2  # else there was a child that is neither parent


def test_parents_alike_have_no_crossover_but_are_mutated() -> None:
    _, (draft,) = play([Slot(), Slot(parents=("0", "0"), operator="crossover")], MATMUL)
    assert draft.operator == "turn"


def test_settings_without_a_place_on_the_target_are_not_offered_and_told() -> None:
    async def fits(candidate: Candidate) -> str:
        stages = candidate.knobs["STAGES"].value
        return f"{stages} stages need more\nthan there is" if stages > 2 else ""

    slots = [Slot(), *[Slot(parents=("0",), arm="STAGES", n=2)] * 2]
    first, *turned = play(slots, MATMUL, fits=fits)
    offered = [draft for drafts in turned for draft in drafts if draft.candidate]
    assert offered and all(values(made([[draft]])[0])["STAGES"] <= 2 for draft in offered)
    notes = [note for drafts in turned for draft in drafts for note in draft.notes]
    assert notes and all(note.startswith(NOT_OFFERED) for note in notes)
    assert all("stages need more" in note and "\n" not in note for note in notes)
    assert not first[0].notes  # the kernel as it ships stands for itself


def test_an_author_without_a_place_for_anything_comes_to_an_end() -> None:
    tried: list[str] = []

    async def fits(candidate: Candidate) -> str:
        tried.append(candidate.digest)
        return "no room"

    _, (draft,) = play([Slot(), Slot(parents=("0",), n=3)], MATMUL, fits=fits)
    assert draft.candidate is None and len(tried) == len(set(tried))
    assert PASSED_OVER <= len(tried) == len(draft.notes) < PASSED_OVER + 3


def test_people_are_asked_about_settings_and_may_change_them() -> None:
    asked: list[str] = []
    both = "turn PAD_FROM: 64 → 16, and STAGES: 3 -> 2"

    async def approve(ideas: Sequence[str]) -> Sequence[Word]:
        asked.extend(ideas)
        words = [both, "STAGES: 2, PAD_FROM = 16", "faster, please", "STAGES: 77"]
        return [Word(words[k]) if k < 4 else Word(why="too large") for k in range(len(ideas))]

    _, drafts = play([Slot(), Slot(parents=("0",), n=5)], MATMUL, approve=approve)
    assert len(asked) == 5 and SHIPPED not in asked
    used, again, vague, wrong, struck = drafts
    turned = {"PAD_FROM": 16, "STAGES": 2}
    assert used.idea == both and values(made([[used]])[0]) == values(MATMUL_SHIPPED) | turned
    assert again.detail == "the run has this kernel already"
    assert "'faster, please', expected NAME: VALUE of " in vague.detail
    assert "STAGES: 77" in wrong.detail and "expected" in wrong.detail
    assert (struck.status, struck.detail) == ("screened", "it was not approved: too large")
    assert [draft.candidate is None for draft in drafts] == [False, True, True, True, True]


def test_when_every_setting_was_tried_that_is_said() -> None:
    one = task("c++", "gelu")  # with a single knob
    told = play([Slot(n=2)] * 4, one)
    assert [len(drafts) for drafts in told] == [2, 1, 1, 1]
    assert len(made(told)) == 3 == search.Space.of(made(told)[0], one.backend, one.target).size
    assert told[2][0].candidate is None
    assert told[2][0].detail == "every setting of the kernel was tried"


def test_an_op_without_a_kernel_asks_for_a_model() -> None:
    first, *others = CPP.op.signature.inputs
    inputs = (replace(first, dtype="int16"), *others)  # as no shipped kernel is called
    signature = replace(CPP.op.signature, name="no_such_op", inputs=inputs)
    told = play([Slot(n=2)], replace(CPP, op=replace(CPP.op, signature=signature)))
    assert told[0][0].detail == (
        "cpu ships no c++ kernel for no_such_op, nor one of another operator that is called like "
        "it; name a model with models.coder.model="
    )


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """The one kernel of the catalogue, without knobs."""
    one = CPP.candidate(C, author="catalogue")
    monkeypatch.setattr(catalogue, "candidates", lambda op, backend, where: [one])
    return one


def test_a_kernel_without_knobs_is_proposed_once(bare: Candidate) -> None:
    first, second = play([Slot(n=3), Slot(parents=("0",), ideas=2, n=2)])
    assert [draft.candidate and draft.candidate.digest for draft in first] == [bare.digest]
    assert second[0].candidate is None and "every setting" in second[0].detail
    assert load("catalogue").arms(CPP) == []


@pytest.mark.parametrize("which", ["default", "all"])
def test_a_value_that_the_target_does_not_take_is_never_proposed(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = task("cuda")
    backend = type(one.backend)
    default = next(iter(catalogue.candidates("relu", one.backend))).knobs["BLOCK"].value
    monkeypatch.setattr(
        backend,
        "refuses",
        lambda self, where, name, value: (
            "no" if name == "BLOCK" and (which == "all" or value == default) else ""
        ),
    )
    told = play([Slot(), Slot(parents=("0",), ideas=3, n=9), *[Slot(n=9)] * 5], one)
    assert all(values(kernel)["BLOCK"] != default for kernel in made(told))
    if which == "all":
        assert told[0][0].detail == "No value of BLOCK is legal: no"
        assert load("catalogue").arms(one) == []
    else:
        assert told[0][0].operator == "init" and len(made(told)) > 5


def test_strict_precision_has_no_tf32() -> None:
    strict = replace(MATMUL, op=replace(MATMUL.op, precision="strict"))
    loose = replace(MATMUL, op=replace(MATMUL.op, precision="allow_tf32"))
    names = [{arm.name for arm in load("catalogue").arms(one)} for one in (strict, loose)]
    assert names[0] <= names[1]
    assert not any(values(one).get("TF32") for one in made(play([Slot(n=40)] * 3, strict)))


SLOT = st.builds(
    Slot,
    parents=st.lists(st.integers(0, 40).map(str), max_size=3).map(tuple),
    n=st.integers(1, 5),
    ideas=st.integers(0, 4),
    arm=st.sampled_from(["", "BLOCK", "STAGES", "no such knob"]),
    operator=st.sampled_from(["", "init", "mutate", "diff", "crossover"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(SLOT, max_size=8), st.integers(0, 99), st.sampled_from([CPP, MATMUL]))
def test_any_course_is_legal_without_repetition_and_the_same_again(
    slots: list[Slot], seed: int, one: Task
) -> None:
    told = play(slots, one, seed)
    assert told == play(slots, one, seed)
    kernels = made(told)
    assert len({kernel.digest for kernel in kernels}) == len(kernels)
    (shipped,) = catalogue.candidates(one.op.name, one.backend)[:1]
    space = search.Space.of(shipped, one.backend, one.target, one.op.precision)
    for drafts, slot in zip(told, slots, strict=True):
        assert 1 <= len(drafts) <= slot.size
        assert all(draft.candidate for draft in drafts) or len(drafts) == 1
    for kernel in kernels:
        assert kernel.family == shipped.family
        assert all(value in space.choices[name] for name, value in values(kernel).items())
    assert len(kernels) == space.size or all(d.candidate for drafts in told for d in drafts)
