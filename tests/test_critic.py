"""Critics: what a model is shown of an attempt, what is made of its answer, and rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hydra import compose, initialize_config_module
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from portkern import ops
from portkern.agent import critic, prompts
from portkern.agent.attempt import (
    UNTIMED,
    Attempt,
    Diagnosis,
    FurtherBottleneck,
    PromptBlock,
    Status,
)
from portkern.agent.axes import AgentContext, AgentMemory, Critic, KernelDraft, PromptMessage, Reply
from portkern.agent.critic.reading import Form, Text, Unread, brief, read
from portkern.agent.critic.rules import bound, rules
from portkern.agent.feedback.metrics import UNITS
from portkern.agent.log import Log
from portkern.agent.task import Task
from portkern.errors import BudgetSpent, ConfigError, ModelError
from portkern.spec import registry, target

CONF = Path(__file__).parents[1] / "conf" / "critic"
Said = str | Exception


@dataclass
class Scripted:
    """A caller whose models say what the script says, the last of it for ever."""

    script: list[Said]
    asked: list[tuple[str, str, Sequence[PromptMessage]]] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    name: str = "0"
    parts: list[Scripted] = field(default_factory=list)

    async def ask(
        self,
        role: str,
        messages: Sequence[PromptMessage],
        *,
        prompt: str = "",
        temperature: float | None = None,
    ) -> Reply:
        self.asked.append((role, prompt, messages))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, Exception):
            raise said
        call = f"{self.name}.{len(self.own)}"
        self.own.append(call)
        return Reply(said, call, cut=said.endswith("<cut>"))

    def within(self, name: str) -> Scripted:
        """Shares the script and what was asked."""
        part = Scripted(self.script, self.asked, name=f"{self.name}.{name}")
        self.parts.append(part)
        return part

    @property
    def calls(self) -> Sequence[str]:
        return [*self.own, *(call for part in self.parts for call in part.calls)]

    def text(self, number: int = -1) -> str:
        """All that was said in the question."""
        return "\n".join(message.content for message in self.asked[number][2])


async def unused(_: Any) -> Any:
    raise AssertionError("a critic neither looks nor asks people")


def task(where: str = "h200", backend: str = "cuda", op: str = "softmax") -> Task:
    found, loaded = ops.load(op), registry.load(backend)
    sets = {name: tuple(found.workloads[name][:1]) for name in ("ci", "typical")}
    language = next(iter(loaded.languages.values()))
    return Task(found, target.load(where), loaded, language, workloads=sets)


def attempt(status: Status | str = Status.PASSED, **changes: Any) -> Attempt:
    told: dict[str, Any] = {
        "id": "1.0",
        "slot": 1,
        "number": 0,
        "op": "softmax",
        "target": "h200",
        "backend": "cuda",
        "language": "cuda",
        "source": "int mine;",
        "status": Status(status),
        "score": 1.5 if status == Status.PASSED else 0.0,
    }
    return Attempt.model_validate(told | changes)


def context(
    *said: Said, of: Task | None = None, log: Sequence[Attempt] = ()
) -> tuple[AgentContext, Scripted]:
    llm, known = Scripted(list(said) or ["nobody should ask"]), Log()
    known.add(log)
    found = AgentContext(
        of or task(), known, cast(AgentMemory, None), llm, Random(0), unused, unused, unused, set()
    )
    return found, llm


def diagnose(one: Critic, seen: Attempt, where: AgentContext) -> Diagnosis | None:
    return asyncio.run(one.diagnose(seen, where))


def load(kind: str, **options: Any) -> Critic:
    return critic.load({"kind": kind, **options})


def answer(**fields: Any) -> str:
    return json.dumps(fields)


REPAIR = answer(problem="Index i is not bounded", why="rows end", fix="check i < cols")
BOTTLENECK = answer(problem="memory at 83 %", method="load 16 bytes", plan="float4", bound="memory")
REFLECTION = answer(
    problem="waits",
    why="stalls",
    fix="prefetch",
    bound="latency bound",
    lessons=["a", "b"],
    avoid="atomics",
    **{"try": ["shuffles"]},
    fix_helped=True,
)


# ---- which there are


def test_critics_are_known_by_name_and_say_which_models_they_ask() -> None:
    assert {file.stem for file in CONF.glob("*.yaml")} == {
        *critic.names(),
        "bottleneck_reflector",
    } - {"chain"}
    assert load("none").roles == load("rules").roles == ()
    assert load("critic", role="reviewer").roles == ("reviewer",)
    chain = load("chain", chain=["rules", {"kind": "critic", "role": "reviewer"}, "reflector"])
    assert chain.roles == ("reviewer", "critic")


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_group_loads_and_states_the_defaults(file: Path) -> None:
    with initialize_config_module("portkern.conf", version_base="1.3"):
        composed = compose(None, overrides=[f"+critic={file.stem}"])
    options = cast(dict[str, Any], OmegaConf.to_container(composed))["critic"]
    critic.load(options)
    made = critic.load(
        {"kind": options["kind"], **({"chain": ["none"]} if "chain" in options else {})}
    )
    stated = cast(Any, made).options_type(**options)
    assert set(options) == set(type(stated).model_fields)
    if "chain" not in options:
        assert stated == cast(Any, made).options_type(kind=options["kind"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": "bottlenck"}, "No critic 'bottlenck'; did you mean 'bottleneck'?"),
        (
            {"kind": "rules", "stopat": 9},
            "No option of critic rules 'stopat'; did you mean 'stop_at'?",
        ),
        ({"kind": "prefilter", "keep": 0}, "critic.keep: got 0; Input should be greater"),
        ({"kind": "chain", "chain": []}, "critic.chain: got []; List should have at least 1 item"),
        ({"kind": "chain", "chain": ["ruls"]}, "No critic 'ruls'; did you mean 'rules'?"),
        ({"kind": "bottleneck", "modes": ["mend"]}, "critic.modes.0: got 'mend'; Input should be"),
    ],
)
def test_what_does_not_exist_is_said_with_what_does(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        critic.load(options)
    assert str(caught.value).startswith(told)


def test_nobody_says_nothing_and_holds_nothing_back() -> None:
    where, llm = context()
    drafts = [KernelDraft(None), KernelDraft(task().candidate("x", "a"))]
    assert asyncio.run(load("none").screen(drafts, where)) == drafts
    assert diagnose(load("none"), attempt(), where) is None
    assert not llm.asked


def test_prompts_of_critics_have_a_version_for_each_text() -> None:
    ours = [name for name in prompts.names() if name.startswith("critic_")]
    assert len(ours) >= 10
    for name in ours:
        assert prompts.manifest()[name]["digest"] == prompts.digest(name), (
            f"{name} was changed: give it a new version and digest in prompts/manifest.yaml"
        )


# ---- reading answers


class Pair(Form):
    a: Text
    b: int = 0


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x", "b": 2}',
        'Here it is:\n```json\n{"a": "x", "b": 2}\n```\nI hope that helps.',
        '{"a": "x", "b": 2,}',
        '{"a": ["x"], "b": "2"}',
        '<think>{"a": "wrong"}</think> {"a": "x", "b": 2}',
        'First {"a": "draft"} and then\n{"a": "x", "b": 2}',
        'for (;;) { y[i] = x[i]; } {"a": "x", "b": 2, "more": {"c": [1,]}}',
        '{"a": "x",\n "b": 2 ,\n}',
    ],
)
def test_an_answer_is_found_in_whatever_it_comes_with(text: str) -> None:
    assert read(text, Pair) == Pair(a="x", b=2)


def test_commas_within_texts_stay_and_line_breaks_in_them_do_no_harm() -> None:
    assert read('{"a": "x,} and ,]",}', Pair) == Pair(a="x,} and ,]")
    assert read('{"a": "two\nlines"}', Pair) == Pair(a="two\nlines")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no JSON object in it"),
        ("no braces", "there is no JSON object in it"),
        ("{a: 1}", "there is no JSON object in it"),
        ('{"b": 1}', "a: Field required"),
        ('{"a": "x", "b": "many"}', "b: Input should be a valid integer"),
        ('{"a": null}', "a: Input should be a valid string"),
    ],
)
def test_what_cannot_be_read_is_a_reason(text: str, why: str) -> None:
    found = read(text, Pair)
    assert isinstance(found, Unread)
    assert found.why.startswith(why)


@given(st.text(alphabet='{}[]",:ab1\\ \n', max_size=60))
def test_no_answer_breaks_the_reader(text: str) -> None:
    assert isinstance(read(text, Pair), Pair | Unread)


def test_an_answer_that_cannot_be_read_is_asked_for_once_more_with_the_reason() -> None:
    where, llm = context("I think it is slow.", BOTTLENECK)
    told = diagnose(load("bottleneck"), attempt(), where)
    assert told and told.problem == "memory at 83 %"
    assert [prompt for _, prompt, _ in llm.asked] == [
        prompts.named("critic_bottleneck"),
        prompts.named("critic_again"),
    ]
    assert llm.asked[1][2][-2] == PromptMessage("assistant", "I think it is slow.")
    assert "there is no JSON object in it" in llm.asked[1][2][-1].content


def test_after_the_second_time_the_reason_is_an_error_that_names_the_role() -> None:
    where, llm = context("", '{"problem"<cut>')
    with pytest.raises(ModelError) as caught:
        diagnose(load("bottleneck"), attempt(), where)
    assert str(caught.value) == (
        "the answer of 'critic' could not be read twice: it was cut off at max_tokens"
    )
    assert len(llm.asked) == 2
    assert llm.asked[1][2][-2].content == "(nothing)"


def test_long_texts_lose_their_ends() -> None:
    assert brief("a b  c", 3) == "a b c"
    assert brief("a b c d", 3) == "a b c …"
    where, _ = context(answer(problem="p " * 99, method="m", plan="n " * 99))
    told = diagnose(load("bottleneck", problem_words=5, fix_words=4), attempt(), where)
    assert told and told.problem == "p p p p p …"
    assert told.fix == "m n n n n …"


# ---- what is shown

BEST = attempt(id="0.0", slot=0, source="int best;", score=9.0, speedups={"n1": 9.0})


@pytest.mark.parametrize("kind", ["bottleneck", "reflector", "critic", "reward_checker"])
def test_a_critic_sees_the_code_and_the_feedback_of_the_very_attempt(kind: str) -> None:
    blocks = [PromptBlock(kind="timing", title="Time", text="33.4 µs of mine")]
    seen = attempt(score=7.0, feedback=blocks, metrics={"memory_pct": 83.1}, parents=("0.0",))
    said = answer(problem="p", method="m", fix="f", instructions="i", plausible=False, reason="r")
    where, llm = context(said, log=[BEST])
    assert diagnose(load(kind), seen, where)
    text = llm.text()
    for shown in ("int mine;", "33.4 µs of mine", "memory_pct: 83.1 %", "NVIDIA H200", "Softmax"):
        assert shown.lower() in text.lower()
    assert "int best;" not in text


@pytest.mark.parametrize(
    ("status", "kind", "prompt"),
    [
        ("build_failed", "bottleneck", prompts.named("critic_repair")),
        ("wrong", "bottleneck", prompts.named("critic_repair")),
        ("passed", "bottleneck", prompts.named("critic_bottleneck")),
        ("build_failed", "reflector", prompts.named("critic_failure")),
        ("crashed", "reflector", prompts.named("critic_failure")),
        ("wrong", "reflector", prompts.named("critic_wrong")),
        ("suspicious", "reflector", prompts.named("critic_wrong")),
        ("passed", "reflector", prompts.named("critic_analysis")),
    ],
)
def test_each_way_to_end_has_its_prompt(status: str, kind: str, prompt: str) -> None:
    said = answer(problem="p", fix="f", method="m")
    where, llm = context(said)
    told = diagnose(load(kind), attempt(status, detail="it says why"), where)
    assert told and told.critic == kind
    assert llm.asked[0][:2] == ("critic", prompt)
    assert status == "passed" or "it says why" in llm.text()


@pytest.mark.parametrize(
    "status", ["no_code", "duplicate", "screened", "unavailable", "unsupported"]
)
@pytest.mark.parametrize("kind", ["bottleneck", "reflector", "critic", "reward_checker", "rules"])
def test_nobody_is_asked_of_what_was_not_evaluated(status: str, kind: str) -> None:
    where, llm = context()
    assert diagnose(load(kind), attempt(status), where) is None
    assert not llm.asked


# ---- one bottleneck


def test_a_defect_is_named_with_its_reason_and_the_least_change() -> None:
    where, _ = context(REPAIR)
    assert diagnose(load("bottleneck"), attempt("wrong"), where) == Diagnosis(
        critic="bottleneck", problem="Index i is not bounded", why="rows end", fix="check i < cols"
    )


def test_a_bottleneck_is_named_with_its_method_plan_and_resource() -> None:
    where, llm = context(BOTTLENECK)
    assert diagnose(load("bottleneck"), attempt(), where) == Diagnosis(
        critic="bottleneck", problem="memory at 83 %", fix="load 16 bytes float4", bound="memory"
    )
    assert "one bottleneck" in llm.text()


def test_of_several_bottlenecks_the_first_is_the_diagnosis_and_no_more_are_kept() -> None:
    several = [{"problem": f"p{i}", "method": f"m{i}", "bound": "no idea"} for i in range(4)]
    where, llm = context(answer(bottlenecks=several))
    told = diagnose(load("bottleneck", max=2), attempt(), where)
    assert told and (told.problem, told.fix, told.bound) == ("p0", "m0", "")
    assert [(one.problem, one.fix) for one in told.others] == [("p1", "m1")]
    assert told.fixes == ("m0", "m1") and not told.lessons
    assert "at most 2 bottlenecks" in llm.text()


@pytest.mark.parametrize(
    ("metrics", "told", "stop"),
    [
        ({"memory_pct": 96.0, "compute_pct": 10.0}, "bound by memory, at 96 %", True),
        ({"memory_pct": 50.0, "compute_pct": 20.0}, "Neither memory nor arithmetic", False),
        ({"memory_pct": 20.0, "compute_pct": 80.0}, "bound by arithmetic, at 80 %", False),
        ({"roofline_pct": 97.0}, "97 % of what the hardware's peaks allow", True),
        ({"memory_pct": 40.0, "roofline_pct": 97.0}, "Neither memory nor arithmetic", False),
        ({}, "", False),
    ],
)
def test_close_to_what_the_hardware_allows_no_model_is_asked(
    metrics: dict[str, float], told: str, stop: bool
) -> None:
    """KernelAgent: the larger of two shares, bound by neither below 60, and enough from 95 on."""
    where, llm = context(BOTTLENECK)
    said = diagnose(load("bottleneck", stop_at=95.0), attempt(metrics=metrics), where)
    assert said and said.stop == stop and bool(llm.asked) != stop
    assert told in (said.problem if stop else llm.text())
    assert diagnose(load("bottleneck"), attempt(metrics=metrics), where) == Diagnosis(
        critic="bottleneck", problem="memory at 83 %", fix="load 16 bytes float4", bound="memory"
    )


def test_a_critic_need_not_read_what_nothing_is_built_on() -> None:
    where, llm = context(BOTTLENECK)
    final = replace(where, final=True)
    assert diagnose(load("bottleneck", last=False), attempt(), final) is None and not llm.asked
    assert diagnose(load("bottleneck", last=False), attempt(), where)
    assert diagnose(load("bottleneck"), attempt(), final)


def test_texts_on_defects_have_limits_of_their_own() -> None:
    long = answer(problem="p " * 50, why="w " * 50, fix="f " * 50, method="m " * 50)
    where, _ = context(long)
    critic_ = load("bottleneck", defect_words=2, repair_words=3, why_words=4)
    said = diagnose(critic_, attempt("wrong"), where)
    assert said and (said.problem, said.fix) == ("p p …", "f f f …")
    said = diagnose(critic_, attempt(), where)
    assert said and len(said.problem.split()) == 31


def test_of_several_findings_one_is_looked_back_on_and_only_where_there_was_one() -> None:
    others = (FurtherBottleneck(problem="few warps", fix="raise occupancy"),)
    before = Diagnosis(critic="bottleneck", problem="waits", fix="vectorise", others=others)
    parent = attempt(id="0.0", slot=0, diagnosis=before)
    where, llm = context(REFLECTION, log=[parent])
    later = load("reflector", first=False)
    assert diagnose(later, parent, where) is None and not llm.asked
    diagnose(later, attempt(parents=("0.0",), arm="raise occupancy"), where)
    assert "diagnosed: few warps" in llm.text() and "advice was: raise occupancy" in llm.text()
    assert "vectorise" not in llm.text()


def test_a_critic_may_be_asked_for_repairs_alone() -> None:
    where, llm = context(REPAIR)
    only = load("bottleneck", modes=["repair"])
    assert diagnose(only, attempt(), where) is None
    assert not llm.asked
    assert diagnose(only, attempt("crashed"), where)


# ---- looking back


def test_lessons_are_drawn_with_what_was_measured_first() -> None:
    parent = attempt(
        "wrong",
        id="0.0",
        slot=0,
        diagnosis=Diagnosis(critic="reflector", problem="off by one", fix="use < for <="),
    )
    where, llm = context(REFLECTION, log=[parent])
    told = diagnose(load("reflector", lessons=4), attempt(parents=("0.0",)), where)
    assert told and (told.problem, told.fix, told.bound) == ("waits", "prefetch", "latency")
    assert told.lessons == ("Helped: use < for <=", "a", "b", "Avoid: atomics")
    assert "The advice was: use < for <=" in llm.text()
    assert "fix_helped" in llm.text()


def test_without_a_diagnosed_parent_nothing_is_asked_about_it() -> None:
    where, llm = context(REFLECTION, log=[attempt(id="0.0", slot=0)])
    told = diagnose(load("reflector"), attempt(parents=("0.0",)), where)
    assert told and told.lessons == ("a", "b", "Avoid: atomics")
    assert "fix_helped" not in llm.text()


def test_looking_back_on_the_parent_can_be_turned_off() -> None:
    parent = attempt(id="0.0", slot=0, diagnosis=Diagnosis(critic="x", problem="p", fix="f"))
    where, llm = context(REFLECTION, log=[parent])
    diagnose(load("reflector", reflexion=False), attempt(parents=("0.0",)), where)
    assert "Before this attempt" not in llm.text()


# ---- words


def test_a_critic_writes_a_diagnosis_or_the_next_instructions() -> None:
    said = answer(problem="reads twice", instructions="keep the row " * 50)
    where, llm = context(said, log=[BEST])
    told = diagnose(load("critic", words=9), attempt(), where)
    assert told and told.fix == "keep the row keep the row keep the row …"
    assert "9 times as fast" in llm.text()
    diagnose(load("critic", writes="instructions"), attempt("wrong"), where)
    assert [prompt for _, prompt, _ in llm.asked] == [
        prompts.named("critic_critic"),
        prompts.named("critic_rewrite"),
    ]


def test_the_fastest_kernel_is_one_that_was_timed() -> None:
    slow = attempt(id="0.0", slot=0, score=0.5, speedups={"n1": 0.5})
    untimed = attempt(id="0.1", slot=0, number=1, score=UNTIMED)
    where, llm = context(answer(problem="p", instructions="i"), log=[slow, untimed])
    assert diagnose(load("critic"), attempt(), where)
    assert "The fastest kernel so far is 0.5 times as fast" in llm.text()
    where, llm = context(answer(problem="p", instructions="i"), log=[untimed])
    assert diagnose(load("critic"), attempt(), where)
    assert "The fastest kernel so far" not in llm.text()


# ---- votes


def drafts(count: int) -> list[KernelDraft]:
    return [
        KernelDraft(task().candidate(f"int k{i};", "a"), notes=("made",), calls=(f"c{i}",))
        for i in range(count)
    ]


def voting(good: Sequence[int], of: Sequence[KernelDraft]) -> Scripted:
    """Verifiers that expect these to work."""

    class Verifier(Scripted):
        async def ask(
            self,
            role: str,
            messages: Sequence[PromptMessage],
            *,
            prompt: str = "",
            temperature: float | None = None,
        ) -> Reply:
            text = messages[-1].content
            number = next(
                i for i, one in enumerate(of) if one.candidate and one.candidate.source in text
            )
            self.script = [answer(works=number in good, reason=f"reason {number}")]
            return await super().ask(role, messages, prompt=prompt)

        def within(self, name: str) -> Scripted:
            part = Verifier([], self.asked, name=f"{self.name}.{name}")
            self.parts.append(part)
            return part

    return Verifier([])


def screened(one: Critic, given_: Sequence[KernelDraft], llm: Scripted) -> list[KernelDraft]:
    where, _ = context()
    return asyncio.run(one.screen(given_, replace(where, llm=llm)))


def test_the_best_voted_kernels_go_on_and_the_others_say_why_they_do_not() -> None:
    given_ = drafts(8)
    llm = voting([1, 3, 4, 6], given_)
    told = screened(load("prefilter"), given_, llm)
    assert [i for i, one in enumerate(told) if not one.status] == [1, 3, 4, 6]
    assert len(llm.asked) == 8 * 3
    held = told[0]
    assert held.status == "screened"
    assert held.detail == "0 of 3 verifiers expect it to work; against it: reason 0"
    assert held.candidate == given_[0].candidate
    assert told[1].notes == ("made", "3 of 3 verifiers expect it to work")
    assert told[1].calls == ("c1", "0.screen.1.0.0", "0.screen.1.1.0", "0.screen.1.2.0")


def test_verifiers_look_at_a_kernel_from_different_sides() -> None:
    given_ = drafts(2)
    llm = voting([0], given_)
    screened(load("prefilter", keep=1), given_, llm)
    sides = ("whether it compiles", "memory: indices", "numbers: the formula")
    assert all(any(side in llm.text(i) for i in range(3)) for side in sides)


def test_never_are_all_held_back_and_equals_keep_their_order() -> None:
    given_ = drafts(4)
    for good in (0, 4):
        told = screened(load("prefilter", keep=2), given_, voting(range(good), given_))
        assert [one.status for one in told] == ["", "", "screened", "screened"]


def test_where_all_would_go_on_nobody_is_asked() -> None:
    where, llm = context()
    given_ = [*drafts(4), KernelDraft(None, detail="no code")]
    assert asyncio.run(load("prefilter", keep=4).screen(given_, where)) == given_
    assert not llm.asked


def test_a_verifier_that_does_not_answer_abstains() -> None:
    given_ = drafts(3)
    where, _ = context(ModelError("down"))
    told = asyncio.run(load("prefilter", k=1, keep=2).screen(given_, where))
    assert [one.status for one in told] == ["", "", "screened"]
    assert told[2].detail == "0 of 0 verifiers expect it to work"


def test_a_spent_budget_is_the_loops_to_hear_of() -> None:
    where, _ = context(BudgetSpent("tokens"))
    with pytest.raises(BudgetSpent):
        asyncio.run(load("prefilter", keep=1).screen(drafts(2), where))


# ---- too fast to be true


def test_only_attempts_above_the_threshold_are_doubted_and_the_doubt_is_a_note() -> None:
    where, llm = context(answer(plausible=False, reason="it keeps the first result"))
    checker = load("reward_checker", above=5)
    assert diagnose(checker, attempt(score=5.0), where) is None
    assert not llm.asked
    told = diagnose(checker, attempt(score=8.0), where)
    assert told == Diagnosis(
        critic="reward_checker",
        lessons=("Doubted: it keeps the first result",),
        problem="8 times as fast as the framework may not be real: it keeps the first result",
    )


def test_a_plausible_speedup_is_left_alone() -> None:
    where, _ = context(answer(plausible=True, reason="fused"))
    assert diagnose(load("reward_checker"), attempt(score=50.0), where) is None


# ---- several


def test_of_several_critics_the_first_diagnosis_counts_and_all_lessons_are_kept() -> None:
    where, _ = context(BOTTLENECK, REFLECTION)
    told = diagnose(load("chain", chain=["none", "bottleneck", "reflector"]), attempt(), where)
    assert told and (told.critic, told.bound) == ("bottleneck", "memory")
    assert told.lessons == ("a", "b", "Avoid: atomics")


def test_a_critic_that_cannot_speak_does_not_silence_the_others() -> None:
    chain = load("chain", chain=["bottleneck", "reflector"])
    where, _ = context(ModelError("down"), REFLECTION)
    told = diagnose(chain, attempt(), where)
    assert told and told.critic == "reflector"
    where, _ = context(ModelError("down"))
    with pytest.raises(ModelError, match="down"):
        diagnose(chain, attempt(), where)


def test_a_chain_screens_with_each_of_its_critics() -> None:
    given_ = drafts(3)
    chain = load(
        "chain", chain=[{"kind": "prefilter", "keep": 2}, {"kind": "prefilter", "keep": 1}]
    )
    told = screened(chain, given_, voting([2], given_))
    assert [one.status for one in told] == ["screened", "screened", ""]


# ---- rules

TIMED = {"median_us": 50.0}
CPU = "x86_64_avx2"


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"memory_pct": 83.0, "compute_pct": 20.0}, "memory"),
        ({"memory_pct": 40.0, "compute_pct": 75.0}, "compute"),
        ({"memory_pct": 40.0, "compute_pct": 20.0, "tensor_pct": 90.0}, "compute"),
        ({"memory_pct": 59.0, "compute_pct": 59.0}, "latency"),
        ({"memory_pct": 83.0}, "memory"),
        ({"median_us": 4.0, "roofline_pct": 12.0}, "overhead"),
        ({"median_us": 4.0, "roofline_pct": 80.0}, "memory"),
        ({"roofline_pct": 70.0}, "memory"),
        ({"roofline_pct": 30.0}, "latency"),
        ({}, ""),
    ],
)
def test_what_limits_a_kernel_is_told_by_counters_else_by_its_roofline(
    metrics: dict[str, float], expected: str
) -> None:
    assert bound(TIMED | metrics, task()) == expected


def test_a_multiplication_of_matrices_is_bound_by_arithmetic_at_its_roof() -> None:
    large = task(op="matmul")
    assert bound(TIMED | {"roofline_pct": 90.0}, large) == "compute"


def ruled(metrics: dict[str, float], of: Task | None = None, **changes: Any) -> Diagnosis | None:
    where, llm = context(of=of)
    told = diagnose(load("rules"), attempt(metrics=TIMED | metrics, **changes), where)
    assert not llm.asked
    return told


def test_rules_name_one_problem_and_one_fix_in_the_vendors_words() -> None:
    spills: dict[str, float] = {"spills": 24, "memory_pct": 80.0, "compute_pct": 9.0}
    told = ruled(spills)
    assert told and told.problem == "Registers do not suffice: 24 B per thread are spilled."
    assert "__launch_bounds__'s registers" in told.fix
    assert told.bound == "memory"
    amd = ruled(spills, task("mi300x", "hip"))
    assert amd and "fewer waves" in amd.fix
    host = ruled({"page_faults": 9000.0}, task(CPU, "cpu"))
    assert host and host.problem == "Each call asks the system for memory: 9,000 page faults."


def test_bytes_that_are_moved_twice_are_noticed() -> None:
    work = task().workloads["typical"][0]
    least = task().op.nbytes(work.dims, "float32")
    moved = {"bytes_read": 1.5 * least, "bytes_written": 0.5 * least, "memory_pct": 80.0}
    told = ruled(moved)
    assert told and told.problem == (
        "Memory is the limit, and 2 times the bytes are moved that have to be."
    )
    told = ruled({**moved, "bytes_read": 0.5 * least})
    assert told and told.problem == "Memory is the limit."


def test_matrix_units_are_asked_for_where_matrices_are_multiplied() -> None:
    idle = {"compute_pct": 80.0, "memory_pct": 10.0, "tensor_pct": 0.0}
    told = ruled(idle, task(op="matmul"))
    assert told and "wgmma" in told.fix
    told = ruled(idle)
    assert told and told.problem == "Arithmetic is the limit."


def test_close_to_the_roofline_the_rules_say_stop() -> None:
    told = ruled({"roofline_pct": 96.2})
    assert told and told.stop
    assert told.problem == "It reaches 96.2 % of what the hardware's peaks allow."
    told = ruled({"roofline_pct": 94.0})
    assert told and not told.stop


@pytest.mark.parametrize(
    ("status", "detail", "expected"),
    [
        (
            "build_failed",
            "error: 'oops' was not declared",
            "It names something that does not exist",
        ),
        ("build_failed", "g++ failed with status 1", "It does not build: g++ failed"),
        ("crashed", "an illegal memory access", "It reaches memory that is not its own"),
        ("crashed", "too many resources requested for launch", "It cannot be launched"),
        ("timed_out", "longer than 60 s", "It does not come to an end in time"),
        ("wrong", "NaN or infinity where the reference has none", "There are NaNs or infinities"),
        ("wrong", "3 of 64 elements are off; the worst …\nmore", "Its numbers are off: 3 of 64"),
        ("wrong", "the kernel wrote outside of its output", "It writes where it may not"),
        ("wrong", "two calls with equal inputs differ by up to 1", "Its result differs from call"),
        ("suspicious", "its median is 1 µs", "Its result is not believed"),
        ("rejected", "G101 uses the network", "The source is refused: G101"),
    ],
)
def test_failures_are_told_apart_by_what_the_harness_said(
    status: str, detail: str, expected: str
) -> None:
    told = ruled({}, status=Status(status), detail=detail, score=0.0)
    assert told and told.problem.startswith(expected)
    assert told.fix
    assert "\n" not in told.problem
    assert told.bound == ""


def test_of_a_right_kernel_of_which_nothing_is_known_nothing_is_said() -> None:
    where, _ = context()
    assert diagnose(load("rules"), attempt(), where) is None


def test_every_rule_can_be_said_on_every_vendors_target() -> None:
    vendors = {"nvidia": task(), "amd": task("mi300x", "hip"), "cpu": task(CPU, "cpu")}
    known = set(UNITS) | {"traffic"}
    words = dict.fromkeys([*known, "detail", "hint"], "X")
    for rule in rules():
        assert set(rule.when) <= known, rule.name
        assert rule.problem.format_map(words)
        for vendor in vendors:
            assert rule.remedy(vendor).format_map(words), (rule.name, vendor)


def test_the_last_rules_leave_no_limit_without_a_word() -> None:
    for limit in ("memory", "compute", "latency", "overhead"):
        assert any(limit in rule.bound and not rule.when and not rule.matmul for rule in rules()), (
            limit
        )


def test_a_diagnosis_of_an_earlier_portkern_is_read() -> None:
    assert Diagnosis.model_validate({"judge": "rules", "problem": "it waits"}).critic == "rules"
