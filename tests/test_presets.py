"""Each published system as a preset: its loop does what the paper says, on a scripted model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from portkern.agent.llm.calls import ModelRequest
from portkern.errors import ConfigError
from tests.preset_pages import started
from tests.scripted import Answer, Played, by_prompt, kernel, play

PRESETS = Path(__file__).parents[1] / "conf" / "preset"
NAMES = sorted({path.stem for path in PRESETS.glob("*.yaml")} - {"none"})
SURVEYED = """
    kernelbench_oneshot caesar its_nvidia crfm cudaforge kforge pragma tritonforge kernelfalcon
    kernelagent_opt geak kernelband stark evoengineer_free evoengineer_insight evoengineer_full
    ai_cuda_engineer alphaevolve fm_agent cuda_llm regrapht kernelevolve akg peak qimeng_tensorop
    qimeng_kernel maxcode tritorx kevin_infer cuda_l1_prompt_only autotriton tritonrl kernelllm
    kernelcoder ksearch autokernel kernelfoundry avo ako adaexplore kernelskill kernelblaster
""".split()
IDEAS = '[{"idea": "tile it", "why": "reuse"}, {"idea": "unroll it", "why": "less branching"}]'
PLAN = '{"plan": "widen loads", "why": "bytes", "lines": [1, 1]}'
MACRO = '{"action": "vectorization: widen loads", "why": "bytes", "lines": [1, 1]}'
FIX = (
    '{"problem": "few loads in flight", "why": "latency", "fix": "unroll by four", '
    '"method": "unroll by four", "plan": "by four", "bound": "memory"}'
)


def growing() -> Callable[[], str]:
    """Kernels that differ, each a little faster than the one before."""
    count = itertools.count()
    return lambda: kernel(f"{1 + next(count) / 100:.2f}", about="again")


def usual(**more: str) -> Answer:
    """Good kernels, and a sensible answer to every other prompt; ``more`` by template."""
    fresh = growing()

    def answer(request: ModelRequest, count: int) -> str:
        name = request.prompt.partition("@")[0]
        if name in more:
            return more[name]
        if name == "ideas":
            return IDEAS.replace("it", f"it {count}")
        if name in ("plan", "macro"):
            return PLAN if name == "plan" else MACRO
        if name.startswith("critic"):
            return FIX
        return fresh()

    return answer


def run(folder: Path, preset: str, answer: Answer, *overrides: str) -> Played:
    return play(folder, answer, f"preset={preset}", *overrides)


def test_every_system_of_the_survey_has_its_preset() -> None:
    assert set(SURVEYED) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_what_it_is_and_where_it_is_from(name: str) -> None:
    about = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())["preset"]
    assert about["name"] == name
    assert about["fidelity"] in ("exact", "approx", "idea")
    assert about["system"] and about["source"] and about["differs"]


def test_caesar_shows_the_last_kernel_and_its_result_for_ten_turns(tmp_path: Path) -> None:
    played = run(
        tmp_path,
        "caesar",
        by_prompt(
            {
                "direct": [
                    kernel("build_failed", about="first"),
                    kernel("wrong", about="second"),
                    kernel(1.5),
                ]
            }
        ),
    )
    assert [attempt.parents for attempt in played.attempts[:3]] == [(), ("0.0",), ("1.0",)]
    assert "// first" in played.text(1) and "build failed" in played.text(1).lower()
    assert "// second" in played.text(2) and "// first" not in played.text(2)
    assert len(played.attempts) == 10


def test_its_nvidia_puts_a_critics_words_into_the_next_prompt(tmp_path: Path) -> None:
    answer = usual(critic_rewrite='{"problem": "it reads twice", "instructions": "read once"}')
    played = run(tmp_path, "its_nvidia", answer, "budget.attempts=3")
    assert played.run.plan.budget.wall_s == 900
    assert "critic_rewrite" in played.prompts
    second = [k for k, name in enumerate(played.prompts) if name == "direct"][1]
    assert "read once" in played.text(second)


def test_crfm_asks_for_ideas_then_several_kernels_of_each_and_seeds_by_the_best(
    tmp_path: Path,
) -> None:
    played = run(tmp_path, "crfm", usual(), "strategy.ideas=2", "strategy.rounds=2")
    assert played.prompts[:5] == ["ideas", *["implement"] * 4]
    first = [attempt for attempt in played.attempts if not attempt.parents]
    second = [attempt for attempt in played.attempts if attempt.parents]
    assert [one.idea for one in first] == ["tile it 0", "tile it 0", "unroll it 0", "unroll it 0"]
    best = [one.id for one in sorted(first, key=lambda one: -one.score)[:2]]
    assert {one.parents[0] for one in second} == set(best)
    # The second round knows what was tried, starts from a seed's code, and sees the bank's.
    later = [k for k, name in enumerate(played.prompts) if name == "ideas"][1]
    assert "tile it 0" in played.text(later)
    assert all(f"// worth {one.score:.2f}" in played.text(later) for one in first)


def test_kforge_shows_a_kernel_of_another_platform_and_has_two_phases(tmp_path: Path) -> None:
    answer = by_prompt(
        {
            "translate": [kernel("wrong"), kernel(1.1), kernel(1.2)],
            "critic_bottleneck": [FIX],
        }
    )
    played = run(tmp_path, "kforge", answer, "budget.attempts=3")
    # The analysis agent reads profiles, which what fails has none of: the first prompt is mended by
    # what the compiler and the comparison said.
    assert played.prompts == ["translate", *["translate", "critic_bottleneck"] * 2]
    assert "wrong it is" in played.text(1) and "Diagnosis" not in played.text(1)
    assert "unroll by four" in played.text(3)
    assert [attempt.phase for attempt in played.attempts] == [
        "functional",
        "functional",
        "optimise",
    ]
    assert all(attempt.donor for attempt in played.attempts)
    assert (
        "numba.njit" in played.text(0)
        or "__global__" in played.text(0)
        or "SOURCE" in (played.text(0))
    )


def test_pragmas_conductor_advises_its_coder_who_goes_on_from_the_best(tmp_path: Path) -> None:
    answer = by_prompt(
        {"direct": [kernel(1.5), kernel(1.2), kernel("wrong")], "critic_bottleneck": [FIX]}
        | {"critic_repair": [FIX]}
    )
    played = run(tmp_path, "pragma", answer, "budget.attempts=4")
    assert played.prompts[:4] == ["direct", "critic_bottleneck"] * 2
    assert [attempt.parents for attempt in played.attempts] == [(), *[("0.0",)] * 3]
    assert "unroll by four" in played.text(2)
    assert played.run.plan.axes["feedback"]["render"] == "nl"
    assert played.run.plan.axes["strategy"]["parent"] == "best"


def test_tritonforges_arbiter_ends_the_loop_at_the_first_small_gain(tmp_path: Path) -> None:
    answer = by_prompt(
        {
            "direct": [kernel(1.5), kernel("wrong"), kernel(1.52), kernel(9.0)],
            "critic_bottleneck": [FIX],
            "critic_repair": [FIX],
        }
    )
    given = started(tmp_path / "given", worth="1.0")
    played = run(tmp_path, "tritonforge", answer, f"source={given}", "feedback.counters=none")
    assert [attempt.score for attempt in played.attempts] == [1.0, 1.5, 0.0, 1.52]
    # The given kernel is read, nobody is asked for it; what fails goes to its own prompt.
    read, mended = "critic_bottleneck", "critic_repair"
    assert played.prompts == [read, "direct", read, "direct", mended, "direct", read]
    assert played.parents == [(), ("0.0",), ("1.0",), ("1.0",)]


@pytest.mark.full
@pytest.mark.parametrize("name", ["kforge", "pragma", "tritonforge"])
def test_who_reads_profiles_is_not_who_writes_kernels(name: str, tmp_path: Path) -> None:
    """Where the tool is missing, what it would say has its place all the same."""
    kernels = [kernel(worth, about=str(worth)) for worth in (1.2, 1.5, 2.0)]
    answer = by_prompt(
        dict.fromkeys(("direct", "translate"), kernels) | {"critic_bottleneck": [FIX]}
    )
    start = started(tmp_path / "given").rename(tmp_path / "given" / "start.cu")
    given = f"source={start}" if name == "tritonforge" else ""
    place = ("target=h200", "backend=cuda", "budget.attempts=3")
    played = run(tmp_path, name, answer, *place, *filter(None, [given]))
    reads = [played.text(k) for k, said in enumerate(played.prompts) if said == "critic_bottleneck"]
    writes = [played.text(k) for k, said in enumerate(played.prompts) if said[:6] != "critic"]
    assert reads and all("Hardware counters" in text for text in reads)
    assert len(writes) >= 2 and not any("Hardware counters" in text for text in writes)
    assert "few loads in flight" in writes[-1]


def test_fm_agent_combines_strategies_of_two_parents(tmp_path: Path) -> None:
    played = run(tmp_path, "fm_agent", usual(), "budget.attempts=14")
    crossed = [k for k, name in enumerate(played.prompts) if name == "crossover"]
    assert crossed and "which strategy makes it fast" in played.text(crossed[0])


def test_cuda_llm_writes_several_and_goes_on_from_the_best_alone(tmp_path: Path) -> None:
    played = run(tmp_path, "cuda_llm", usual(), "budget.attempts=10")
    first, second = played.attempts[:5], played.attempts[5:]
    best = max(first, key=lambda one: one.score).id
    assert all(not one.parents for one in first)
    assert {one.parents for one in second} == {(best,)}
    # Beside the best kernel, what became of the others of the round.
    text = played.text(5)
    for one in first:
        assert f"passed, {one.score:.2f} times as fast" in text
        assert (f"// worth {one.score:.2f}" in text) == (one.id == best)


def test_regrapht_applies_one_method_of_its_graph_in_each_request(tmp_path: Path) -> None:
    played = run(tmp_path, "regrapht", usual(), "budget.attempts=12")
    assert (tmp_path / "graph.json").is_file()
    assert played.prompts == ["direct"] * 12
    assert all(attempt.arm for attempt in played.attempts)
    # No edge is walked twice while others are new, and walks go on from kernels that they made.
    walked = {(one.parents, one.arm) for one in played.attempts}
    assert len(walked) == len(played.attempts) and any(one.parents for one in played.attempts)


def test_kernelevolve_has_one_prompt_for_drafting_mending_and_optimising(tmp_path: Path) -> None:
    played = run(tmp_path, "kernelevolve", usual(), "budget.attempts=12", "feedback=default")
    assert played.prompts == ["universal"] * 12
    # Three beginnings of two kernels each, then two children of each of the best three.
    best = sorted(played.attempts[:6], key=lambda one: -one.score)[:3]
    assert [one.parents for one in played.attempts[6:]] == [
        (parent.id,) for parent in best for _ in range(2)
    ]


def test_peak_applies_its_stages_in_order_and_undoes_one_without_a_gain(tmp_path: Path) -> None:
    slower = (kernel(f"{2 - k / 100:.2f}", about=str(k)) for k in itertools.count())

    def answer(request: ModelRequest, count: int) -> str:
        return MACRO if request.prompt.startswith("macro") else next(slower)

    given = f"source={started(tmp_path / 'given', worth='3.0')}"
    played = run(tmp_path, "peak", answer, given, "strategy.tries=2", "budget.attempts=6")
    stages = [attempt.phase for attempt in played.attempts]
    assert stages == ["", *["refactor"] * 2, *["block_tiling"] * 2, "thread_tiling"]
    assert played.prompts == ["macro", "micro"] * 5
    # Nothing beat the given kernel, so every stage starts from it.
    assert {attempt.parents for attempt in played.attempts[1:]} == {("0.0",)}


def test_qimeng_chooses_an_action_and_its_lines_then_makes_that_one_edit(tmp_path: Path) -> None:
    played = run(tmp_path, "qimeng_kernel", usual(), "budget.attempts=3")
    assert played.prompts == ["direct", "macro", "micro", "macro", "micro"]
    assert played.attempts[1].arm == "vectorization"
    assert "vectorization" in played.text(1)  # the menu
    tensor = run(tmp_path / "op", "qimeng_tensorop", usual(), "budget.attempts=6")
    assert {attempt.arm for attempt in tensor.attempts} & {"simd", "threads", "nontemporal"}


def test_maxcode_tells_the_next_prompt_what_a_critic_made_of_the_best(tmp_path: Path) -> None:
    answer = usual(critic_critic='{"problem": "it reads twice", "instructions": "read once"}')
    played = run(tmp_path, "maxcode", answer, "budget.attempts=6")
    assert played.attempts[5].parents == (max(played.attempts[:5], key=lambda a: a.score).id,)
    assert played.prompts.count("critic_critic") == 6
    sixth = [k for k, name in enumerate(played.prompts) if name == "direct"][5]
    assert "read once" in played.text(sixth)
    best = max(attempt.score for attempt in played.attempts[:5])
    assert f"passed, {best:.2f} times as fast as the baseline" in played.text(sixth)


def test_tritorx_tells_what_its_linter_found_and_no_time_and_ends_with_the_first_correct_kernel(
    tmp_path: Path,
) -> None:
    worths: list[str | float] = ["rejected", "build_failed", "wrong", 0.5]
    answer = by_prompt({"direct": [kernel(worth, about=f"<{worth}>") for worth in worths]})
    played = run(tmp_path, "tritorx", answer)
    assert [str(attempt.status) for attempt in played.attempts] == [*worths[:3], "passed"]
    assert played.prompts == ["direct"] * 4
    for number, worth in enumerate(worths[:3], 1):
        assert f"{worth} it is" in played.text(number) and f"<{worth}>" in played.text(number)
    assert [block.kind for block in played.attempts[-1].feedback] == ["correctness"]


def test_kevins_chains_see_all_earlier_kernels_and_summaries_and_no_thought(tmp_path: Path) -> None:
    turns = itertools.count()

    def answer(request: ModelRequest, count: int) -> str:
        said = kernel(f"1.{next(turns)}").replace("I made it", "In short: I made it")
        return f"<think>a secret</think>{said}"

    played = run(tmp_path, "kevin_infer", answer, "strategy.k=2", "strategy.turns=3")
    assert len(played.attempts) == len(played.calls) == 6
    assert {attempt.island for attempt in played.attempts} == {0, 1}
    chain = [attempt for attempt in played.attempts if attempt.island == 0]
    assert [one.parents for one in chain] == [(), (chain[0].id,), (chain[1].id,)]
    last = played.text(played.attempts.index(chain[2]))
    for one in chain[:2]:
        worth = f"{one.score:.1f}"
        assert f"// worth {worth}" in last and f"In short: I made it {worth}" in last
    assert not any("secret" in played.text(k) for k in range(6))
    others = [one for one in played.attempts if one.island == 1]
    assert not any(f"worth {one.score:.1f}" in last for one in others)  # chains do not leak
    assert {call.params.get("temperature") for call in played.calls} == {None}


def test_contrastive_prompts_show_two_measured_kernels_the_slower_first(tmp_path: Path) -> None:
    played = run(tmp_path, "cuda_l1_prompt_only", usual(), "budget.attempts=6")
    assert "No kernel was measured yet" in played.text(0)
    # Each joins those that the next prompt draws from; one alone stands twice, as the authors do.
    assert played.text(1).count(f"worth {played.attempts[0].score:.2f}") == 2
    text = played.text(5)
    assert text.index("### Kernel 1") < text.index("### Kernel 2")
    with pytest.raises(ConfigError, match="strategy=best_of_n"):
        run(tmp_path / "one", "cuda_l1_prompt_only", usual(), "strategy=single")


TRAINED: dict[str, tuple[int, dict[str, float | None]]] = {
    "kernelllm": (20, {"temperature": 0.6, "top_p": 0.95, "max_tokens": 2048}),
    "autotriton": (10, {"temperature": None}),
    "tritonrl": (10, {"temperature": 1.0}),
    "kernelcoder": (10, {"temperature": None}),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_model_is_sampled_and_a_sample_is_one_request(name: str, tmp_path: Path) -> None:
    count, sampling = TRAINED[name]
    replies = itertools.count()

    def answer(request: ModelRequest, asked: int) -> str:
        return "No." if next(replies) % 2 else kernel(f"1.{asked}")

    played = run(tmp_path, name, answer)
    assert len(played.attempts) == len(played.calls) == count
    assert sum(attempt.status == "no_code" for attempt in played.attempts) == count // 2
    assert len({played.text(k) for k in range(count)}) == 1  # none knows of another
    for call in played.calls:
        assert {name: call.params.get(name) for name in sampling} == sampling
    assert len({call.params["seed"] for call in played.calls}) == count
