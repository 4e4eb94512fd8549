"""Models are asked through litellm, against a server on this machine that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from portkern.agent.axes import PromptMessage, Reply
from portkern.agent.budget import GenerationBudget, Meter, Spent
from portkern.agent.llm import caps, keys
from portkern.agent.llm.calls import CallCache, Calls, ModelCall, ModelRequest
from portkern.agent.llm.completion import Completion, Endpoint, complete, litellm
from portkern.agent.llm.models import Models
from portkern.agent.llm.prices import Price, Prices
from portkern.agent.llm.role import Role, roles
from portkern.errors import BudgetSpent, ConfigError, ModelDown, ModelError, RecordError
from tests.llm_server import MODEL, Say, Server, refuse

ROOT = Path(__file__).parents[1]
KEY = "sk-test-0123456789abcdef"
FREE = {MODEL: Price(input=0, output=0)}
DOLLAR = {MODEL: Price(input=1, output=2)}
ASKED = PromptMessage("user", "a kernel, please")
T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
def litellm_is_there() -> None:
    pytest.importorskip("tenacity", reason="pip install 'portkern[llm]'")
    try:
        litellm()
    except ConfigError as error:
        pytest.skip(str(error))


def make(
    server: Server | None = None,
    *,
    store: Calls | None = None,
    meter: Meter | None = None,
    budget: GenerationBudget | None = None,
    seed: int = 0,
    prices: Mapping[str, Price] | None = None,
    replay: Calls | None = None,
    cache: CallCache | None = None,
    **role: Any,
) -> Models:
    """One model for all roles, whose pauses are short. Without a server nobody listens."""
    options = {
        "model": MODEL,
        "api_base": server.url if server else "http://127.0.0.1:9/v1",
        "max_tokens": 64,
        "timeout_s": 20.0,
        "backoff_s": 0.01,
        **role,
    }
    return Models(
        {"coder": Role.of("coder", options)},
        store=store,
        meter=meter or Meter(budget),
        seed=seed,
        prices=Prices(prices or {}),
        replay=replay,
        cache=cache,
    )


def said(text: str) -> list[PromptMessage]:
    return [PromptMessage("system", "You write kernels."), PromptMessage("user", text)]


def ask(models: Models, text: str = "hello", scope: str = "s0", role: str = "coder") -> Reply:
    return asyncio.run(models.caller(scope).ask(role, said(text), prompt="write@1"))


async def together(asked: Sequence[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*asked, return_exceptions=True)


def ask_each(models: Models, texts: Sequence[str]) -> list[Reply | BaseException]:
    """Asks for all texts at the same time, each in a scope of its own."""
    asked = [
        models.caller(f"s{n}").ask("coder", said(text), prompt="write@1")
        for n, text in enumerate(texts)
    ]
    return asyncio.run(together(asked))


def echo(body: Mapping[str, Any], _: int) -> str:
    return f"re: {body['messages'][-1]['content']}"


# ---- an answer


@pytest.mark.parametrize(
    ("options", "cap"),
    [
        ({"model": "openai/gpt-4o"}, 16_384),  # as litellm's list has it
        ({"model": "openai/gpt-4o", "max_tokens": 9}, 9),
        ({"model": "openai/gpt-4o", "temperature": None}, None),  # its own sampling
        ({"model": "openai/gpt-4o", "temperature": None, "max_tokens": 9}, 9),
        ({"model": "openai/gpt-4o", "api_base": "http://127.0.0.1:1/v1"}, 8192),  # any model
        ({"model": "openai/nobody-knows"}, 8192),
    ],
)
def test_the_cap_of_a_reply_follows_the_model(options: Mapping[str, Any], cap: int | None) -> None:
    role = Role.of("coder", options)
    assert caps.sent(role) == cap
    assert caps.at_most(role, role.model) >= (cap or 16_384)


@pytest.mark.full
def test_an_answer_comes_back_with_what_it_took() -> None:
    with Server([Say("a kernel", reasoning="hm", tokens_in=20, tokens_out=3)]) as server:
        models = make(server)
        reply = ask(models)
    call = models.store[reply.call]
    assert reply == Reply("a kernel", "s0/coder#1", MODEL)
    assert (call.tokens_in, call.tokens_out, call.charged_tokens) == (20, 3, 23)
    assert (call.reasoning, call.finish, call.snapshot) == ("hm", "stop", "scripted")
    assert (call.prompt, call.source, call.retries) == ("write@1", "model", ())
    assert call.seconds > 0
    assert models.meter.spent.tokens == 23


def test_a_role_is_asked_as_it_is_configured() -> None:
    with Server(["x", "x"]) as server:
        models = make(server, seed=3, temperature=0.25, top_p=0.9, extra={"presence_penalty": 0.5})
        ask(models)
        asyncio.run(models.caller("s1").ask("coder", said("b"), temperature=1.0))
        first, second = (request.body for request in server.requests)
    assert first["messages"][0] == {"role": "system", "content": "You write kernels."}
    assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.25, 0.9, 64)
    assert first["presence_penalty"] == 0.5
    assert second["temperature"] == 1.0
    assert first["seed"] != second["seed"]


def test_an_answer_that_was_cut_says_so() -> None:
    with Server([Say("half a ker", finish="length")]) as server:
        assert ask(make(server)).cut


@pytest.mark.parametrize(
    "say",
    [
        Say(None),
        Say(""),
        Say(
            body={
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [],
                "usage": {"prompt_tokens": 1, "completion_tokens": 0},
            }
        ),
    ],
    ids=["null", "empty", "no choice"],
)
def test_an_empty_answer_is_an_answer(say: Say) -> None:
    with Server([say]) as server:
        assert ask(make(server)) == Reply("", "s0/coder#1", MODEL)


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ([{"type": "text", "text": "a\n"}, {"type": "text", "text": "b"}], "a\nb", ""),
        (["a", {"type": "OUTPUT_TEXT", "text": {"value": "b"}}], "ab", ""),
        ({"type": "text", "text": "a"}, "a", ""),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a", "hm"),
        ([{"type": "reasoning", "summary": [{"text": "so"}]}, {"text": "a"}], "a", "so"),
        ([{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text"}, 7, None], "", ""),
        ([], "", ""),
    ],
)
def test_an_answer_in_parts_is_its_texts_and_thoughts(
    content: object, text: str, reasoning: str
) -> None:
    with Server([Say(content)]) as server:  # type: ignore[arg-type]
        said = asyncio.run(
            complete(Endpoint(MODEL, "coder", server.url), [ASKED], {}, timeout_s=20)
        )
    assert isinstance(said, Completion)
    assert (said.text, said.reasoning, said.finish) == (text, reasoning, "stop")


@pytest.mark.parametrize(
    ("part", "finish"),
    [
        ({"type": "refusal", "refusal": "I will not."}, "content_filter"),
        ({"type": "tool_use", "name": "run", "input": {"text": "x"}}, "tool_calls"),
    ],
)
def test_a_part_that_is_not_an_answer_ends_the_reply_as_it_would_by_itself(
    part: object, finish: str
) -> None:
    with Server([Say([part], usage=False)]) as server:  # type: ignore[arg-type]
        said = asyncio.run(
            complete(Endpoint(MODEL, "coder", server.url), [ASKED], {}, timeout_s=20)
        )
    assert isinstance(said, Completion)
    assert (said.finish, said.reasoning) == (finish, "")


def test_halves_of_characters_do_not_spoil_the_file(tmp_path: Path) -> None:
    with Server([Say("\ud83d kernel")]) as server:
        models = make(server, store=Calls(tmp_path / "calls.jsonl"))
        reply = ask(models, "\udc00 source")
    assert reply.text == "? kernel"
    assert Calls(tmp_path / "calls.jsonl")["s0/coder#1"].reply == "? kernel"


def test_a_role_without_a_model_is_played_by_the_coder() -> None:
    with Server(["x"]) as server:
        assert ask(make(server), role="critic").call == "s0/critic#1"
    with pytest.raises(ConfigError, match=r"models\.critic= or, for all roles, models\.coder="):
        Models({"writer": Role(model=MODEL)}).role("critic")


# ---- names and seeds


def test_calls_are_numbered_as_they_are_asked_not_as_they_are_answered() -> None:
    def slow_first(body: Mapping[str, Any], _: int) -> Say:
        text = str(body["messages"][-1]["content"])
        return Say(f"re: {text}", delay_s=0.4 if text == "a" else 0.0)

    async def several(models: Models) -> list[Reply]:
        scope = models.caller("s0")
        asked = [
            scope.ask("coder", said("a")),
            scope.ask("coder", said("b")),
            scope.ask("critic", said("c")),
            scope.within("p0").ask("coder", said("d")),
        ]
        return list(await asyncio.gather(*asked))

    with Server(slow_first) as server:
        models = make(server)
        replies = asyncio.run(several(models))
    names = ["s0/coder#1", "s0/coder#2", "s0/critic#1", "s0.p0/coder#1"]
    assert [reply.call for reply in replies] == names
    assert [reply.text for reply in replies] == ["re: a", "re: b", "re: c", "re: d"]
    assert models.caller("s0").calls == names
    assert next(iter(models.store)).id != names[0]


def test_samples_of_one_prompt_have_seeds_of_their_own() -> None:
    def seeds(**options: Any) -> list[int]:
        with Server(echo) as server:
            models = make(server, concurrency=1, **options)
            ask_each(models, ["same"] * 5)
        return sorted(int(request.body["seed"]) for request in server.requests)

    first = seeds(seed=1)
    assert len(set(first)) == 5
    assert seeds(seed=1) == first
    assert not set(seeds(seed=2)) & set(first)
    assert all(0 <= one < 2**31 for one in first)


def test_a_seed_of_a_role_does_not_depend_on_the_runs() -> None:
    def request(run_seed: int, role_seed: int, name: str) -> ModelRequest:
        models = Models({"coder": Role(model=MODEL, seed=role_seed)}, seed=run_seed)
        return models.request(name, "coder", said("x"), "", None)

    assert request(1, 7, "s0/coder#1").digest == request(2, 7, "s0/coder#1").digest
    assert request(1, 7, "s0/coder#1").digest != request(1, 8, "s0/coder#1").digest
    assert request(1, 7, "s0/coder#1").digest != request(1, 7, "s0/coder#2").digest


# ---- what goes wrong


def test_a_refused_call_is_repeated_when_the_service_says_so() -> None:
    with Server([refuse(429, "slow down", retry_after="0.5"), "ok"]) as server:
        models = make(server)
        start = time.monotonic()
        reply = ask(models)
    assert reply.text == "ok"
    assert 0.5 <= time.monotonic() - start < 5
    [reason] = models.store[reply.call].retries
    assert reason.startswith(f"{MODEL}: RateLimitError 429: slow down")
    assert "asks to wait 0.5 s" in reason


def test_a_service_that_asks_for_more_patience_than_there_is_is_given_up() -> None:
    with Server([refuse(429, retry_after="3600"), "too late"]) as server:
        with pytest.raises(ModelDown, match="asks to wait 3600 s"):
            ask(make(server, timeout_s=5))
        assert len(server.requests) == 1


def test_a_service_may_name_the_time_at_which_it_can_be_asked_again() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    with Server([refuse(503, retry_after=later), "ok"]) as server:
        start = time.monotonic()
        ask(make(server))
    assert time.monotonic() - start > 0.5  # dates are in whole seconds


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_what_may_pass_is_repeated(status: int) -> None:
    with Server([refuse(status), refuse(status), "ok"]) as server:
        assert ask(make(server)).text == "ok"


def test_a_model_that_never_answers_is_given_up_with_all_that_it_said() -> None:
    with Server([refuse(500, "one"), refuse(503, "two"), refuse(500, "one")]) as server:
        models = make(server, retries=2)
        with pytest.raises(ModelDown) as caught:
            ask(models)
        assert len(server.requests) == 3
    text = str(caught.value)
    assert text.startswith("No model answered call 's0/coder#1' in 3 requests: ")
    assert "InternalServerError 500: one (2 times)" in text
    assert "ServiceUnavailableError 503: two" in text
    assert "the same command goes on from here" in text and "models.coder.retries" in text
    call = models.store["s0/coder#1"]
    assert (call.error, len(call.retries), call.charged_tokens) == (text, 3, 0)
    assert models.store.cost(["s0/coder#1"]).tokens_out == 0


def test_without_retries_a_call_is_one_request() -> None:
    with Server([refuse(500), "late"]) as server:
        with pytest.raises(ModelDown, match="in 1 request: "):
            ask(make(server, retries=0))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (Say("late", delay_s=5), "no answer within 1 s"),
        (Say(drop=True), "Connection error"),
        (Say(body=b"{nope"), "Expecting property name"),
        (Say(body=b"<html>"), "Expecting value"),
    ],
    ids=["slow", "dropped", "malformed", "html"],
)
def test_an_answer_that_does_not_arrive_is_asked_for_again(say: Say, told: str) -> None:
    with Server([say, "ok"]) as server:
        models = make(server, timeout_s=1.0)
        call = models.store[ask(models).call]
    assert told in call.retries[0]
    # It may have been charged, which nobody can tell: so it counts with all that it can be.
    assert call.charged_tokens > 64 > (call.tokens_out or 0)


def test_nothing_is_charged_where_nobody_listens() -> None:
    models = make(retries=1, budget=GenerationBudget(tokens=1000))
    with pytest.raises(ModelDown, match=r"Connection error\. \(2 times\)"):
        ask(models)
    assert models.meter.spent.tokens == 0
    assert models.meter.left().tokens == 1000  # nor is anything put aside any more


def test_a_service_that_trickles_is_given_up_in_time() -> None:
    with Server([Say("x", trickle_s=0.1)]) as server:  # some 300 bytes
        start = time.monotonic()
        with pytest.raises(ModelDown, match=r"no answer within 1 s.*models\.coder\.timeout_s"):
            ask(make(server, retries=0, timeout_s=1))
        assert time.monotonic() - start < 20


def test_fallbacks_are_asked_in_turn() -> None:
    def second_works(body: Mapping[str, Any], _: int) -> Say | str:
        return "from b" if body["model"] == "b" else refuse(503)

    with Server(second_works) as server:
        models = make(server, retries=1, fallbacks=["openai/b", "openai/c"])
        reply = ask(models)
        assert [request.body["model"] for request in server.requests] == [
            "scripted",
            "scripted",
            "b",
        ]
    call = models.store[reply.call]
    assert (reply.text, reply.model) == ("from b", "openai/b")
    assert (call.model, call.answered, len(call.retries)) == (MODEL, "openai/b", 2)


def test_a_fallback_at_another_provider_is_not_sent_the_first_ones_key() -> None:
    role = Role(model="openai/a", api_base="http://mine", api_key_env="MINE")
    assert role.place("openai/b") == ("http://mine", "MINE")
    assert role.place("anthropic/c") == ("", "")


@pytest.mark.parametrize(
    ("response", "told", "final"),
    [
        (refuse(401, "bad key"), "set the environment variable MY_KEY", True),
        (refuse(403, "not yours"), "set the environment variable MY_KEY", True),
        (refuse(404, "no such model"), f"check models.coder.model={MODEL}", True),
        (refuse(400, "odd"), "check models.coder.model", False),
        (refuse(422, "odd"), "check models.coder.model", False),
        (refuse(400, "This model's maximum context length is 9"), "its context window", False),
        (refuse(400, "exceeds the available context size"), "its context window", False),
    ],
)
def test_what_cannot_pass_is_final(
    response: Say, told: str, final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with Server([response, "never"]) as server:
        with pytest.raises(ModelError, match=told) as caught:
            ask(make(server, api_key_env="MY_KEY", fallbacks=["openai/b"]))
        assert len(server.requests) == 1
    assert caught.value.final == final


def test_a_provider_without_its_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    models = make(model="openai/gpt-4o", api_base="")
    with pytest.raises(ModelError, match="set the environment variable OPENAI_API_KEY") as caught:
        ask(models)
    assert caught.value.final
    assert len(models.store["s0/coder#1"].retries) == 1


def test_a_response_that_can_never_be_read_is_not_an_outage() -> None:
    with Server([Say(body=b"{nope")] * 2) as server:
        with pytest.raises(ModelError, match="Expecting property name") as caught:
            ask(make(server, retries=1))
        assert not caught.value.final


# ---- a service is away


def test_whoever_waits_for_a_turn_does_not_ask_a_service_that_is_away() -> None:
    with Server(lambda body, n: refuse(503, "overloaded")) as server:
        models = make(server, concurrency=1, retries=1)
        found = ask_each(models, ["x"] * 5)
        assert len(server.requests) == 2
    assert {str(one) for one in found} == {models.store["s0/coder#1"].error}
    assert all(isinstance(one, ModelDown) for one in found)
    assert len(models.store) == 1


def test_whoever_pauses_does_not_wait_for_a_service_that_is_away() -> None:
    def busy(body: Mapping[str, Any], _: int) -> Say:
        patient = body["messages"][-1]["content"] == "patient"
        return refuse(429, retry_after="15" if patient else "3600")

    with Server(busy) as server:
        start = time.monotonic()
        found = ask_each(make(server), ["patient", "x"])
        assert time.monotonic() - start < 14
        assert len(server.requests) == 2
    assert [type(one) for one in found] == [ModelDown, ModelDown]


def test_what_is_out_when_a_run_stops_is_waited_for_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    def one_works(body: Mapping[str, Any], _: int) -> Say:
        works = body["messages"][-1]["content"] == "works"
        return Say("paid for", delay_s=0.5) if works else refuse(503)

    async def stopped(models: Models) -> None:
        asked = [models.caller(name).ask("coder", said(name)) for name in ("works", "fails")]
        with pytest.raises(ModelDown):
            await asyncio.gather(*asked)
        assert [bool(one.error) for one in models.store] == [True]
        await models.close("that was all")

    with Server(one_works) as server:
        asyncio.run(stopped(make(server, store=Calls(path), retries=0)))
        assert [Call.reply for Call in Calls(path)] == ["", "paid for"]
        again = make(server, store=Calls(path))
        reply = asyncio.run(again.caller("works").ask("coder", said("works")))
        assert reply.text == "paid for" and len(server.requests) == 2


def test_a_fallback_that_cannot_do_it_says_nothing_of_the_model_that_is_away() -> None:
    def away(body: Mapping[str, Any], _: int) -> Say:
        return refuse(400, "context length is 9") if body["model"] == "b" else refuse(503)

    with Server(away) as server, pytest.raises(ModelDown, match="in 2 requests: "):
        ask(make(server, retries=0, fallbacks=["openai/b"]))


def test_a_replay_stops_where_the_recorded_model_was_away(tmp_path: Path) -> None:
    with Server([refuse(503)]) as server, pytest.raises(ModelDown) as caught:
        ask(make(server, store=Calls(tmp_path / "calls.jsonl"), retries=0))
    with pytest.raises(ModelDown) as again:
        ask(make(replay=Calls.recorded(tmp_path)))
    assert str(again.value) == str(caught.value)


# ---- at the same time


def test_no_more_requests_are_out_than_the_role_allows() -> None:
    with Server(lambda body, n: Say("x", delay_s=0.05)) as server:
        ask_each(make(server, concurrency=3), ["x"] * 12)
        assert len(server.requests) == 12
        assert server.most_at_once == 3


# ---- budgets


def test_a_budget_of_tokens_is_never_exceeded() -> None:
    def hungry(body: Mapping[str, Any], _: int) -> Say:
        return Say("x", delay_s=0.05, tokens_out=int(body["max_tokens"]))

    with Server(hungry) as server:
        models = make(server, concurrency=8, max_tokens=100, budget=GenerationBudget(tokens=600))
        found = ask_each(models, ["x" * 40] * 12)
    answered = [one for one in found if isinstance(one, Reply)]
    refused = [one for one in found if isinstance(one, BudgetSpent)]
    assert len(answered) + len(refused) == 12
    # A prompt is estimated upwards, so that one call less is made than the budget could bear.
    assert len(answered) == len(server.requests) == 4
    assert 400 < models.meter.spent.tokens <= 600
    assert "budget.tokens=600" in str(refused[0])
    assert len(models.store) == 4


def test_what_a_call_did_not_need_is_there_for_the_next() -> None:
    with Server(lambda body, n: Say("x", delay_s=0.05)) as server:
        # Only one reservation fits at a time, but all the calls do.
        models = make(server, concurrency=8, max_tokens=400, budget=GenerationBudget(tokens=600))
        found = ask_each(models, ["x"] * 8)
    assert all(isinstance(one, Reply) for one in found)


def test_a_budget_of_usd_is_never_exceeded() -> None:
    with Server(lambda body, n: Say("x", tokens_in=50, tokens_out=100)) as server:
        models = make(
            server,
            concurrency=8,
            max_tokens=100,
            budget=GenerationBudget(usd=0.0015),
            prices=DOLLAR,
        )
        found = ask_each(models, ["x"] * 12)
    answered = [one for one in found if isinstance(one, Reply)]
    assert models.store[answered[0].call].usd == pytest.approx(250e-6)
    assert models.meter.spent.usd == pytest.approx(len(answered) * 250e-6)
    assert (models.meter.spent.usd or 1) <= 0.0015
    assert 4 <= len(answered) < 12


def test_a_role_may_have_a_budget_of_its_own() -> None:
    with Server(echo) as server:
        models = make(server, tokens=150)
        ask(models)
        with pytest.raises(BudgetSpent, match=r"models\.coder\.tokens=150"):
            ask(models, "x" * 200)


def test_no_request_outlasts_the_run() -> None:
    with Server([Say("late", delay_s=10)]) as server:
        models = make(server, budget=GenerationBudget(wall_s=1.0))
        start = time.monotonic()
        with pytest.raises(BudgetSpent, match=r"budget\.wall_s=1 is spent"):
            ask(models)
        assert time.monotonic() - start < 9  # it would have answered after 10
        with pytest.raises(BudgetSpent, match=r"budget\.wall_s=1 is spent"):
            ask(models, scope="s1")
        assert len(server.requests) == 1


def test_meters_count_what_is_left() -> None:
    now = [100.0]
    meter = Meter(
        GenerationBudget(attempts=3, tokens=100, usd=1.0, wall_s=60, device_s=10),
        spent=Spent(attempts=1, wall_s=20),
        clock=lambda: now[0],
    )
    now[0] += 5
    meter.spend_attempts(1)
    meter.spend_device(4.0)
    with meter.reserve(tokens=60, usd=0.5) as held:
        assert meter.left() == GenerationBudget(
            attempts=1, tokens=40, usd=0.5, wall_s=35, device_s=6
        )
        with pytest.raises(BudgetSpent, match="0 are spent, 60 put aside, and the next call"):
            meter.reserve(tokens=41)
        held.settle(tokens=10, usd=0.1)
    assert meter.spent == Spent(attempts=2, tokens=10, usd=0.1, wall_s=25, device_s=4)
    with pytest.raises(BudgetSpent, match="attempts=3: 2 are made, and 2 more"):
        meter.spend_attempts(2)
    assert meter.exhausted == ""
    now[0] += 35
    assert meter.exhausted == "budget.wall_s=60 is spent: 60 used"


def test_meters_are_charged_from_any_thread() -> None:
    meter = Meter(GenerationBudget(tokens=5000, attempts=1000))

    def work(_: int) -> None:
        for _ in range(100):
            meter.spend_attempts(1)
            with contextlib.suppress(BudgetSpent), meter.reserve(tokens=10) as held:
                held.settle(tokens=7, usd=0.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(10)))
    assert meter.spent.attempts == 1000
    assert 4900 < meter.spent.tokens <= 5000


def test_what_is_not_settled_stays_spent() -> None:
    meter = Meter(GenerationBudget(tokens=100))
    with pytest.raises(KeyboardInterrupt), meter.reserve(tokens=30):
        raise KeyboardInterrupt
    assert (meter.spent.tokens, meter.out) == (30, 0)


def test_a_budget_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"Got usd=-1.*expected 0 or more, or null"):
        GenerationBudget(usd=-1)


# ---- prices


def test_an_unknown_price_is_not_zero() -> None:
    with Server(["x"]) as server:
        models = make(server)
        ask(models)
    assert models.store["s0/coder#1"].usd is None
    assert models.meter.spent.usd is None


def test_a_server_of_ones_own_does_not_have_the_price_of_its_models_name() -> None:
    with Server(["x", "x"]) as server:
        models = make(server, model="openai/gpt-4o")
        ask(models)
        free = make(server, prices=FREE)
        ask(free)
    assert models.store["s0/coder#1"].usd is None
    assert free.store["s0/coder#1"].usd == 0


def test_listed_prices_are_litellms() -> None:
    listed = Prices().highest("openai/gpt-4o-mini")
    assert listed is not None
    assert 0 < listed.input < listed.output < 10
    assert Prices().highest("openai/no-such-model") is None
    assert Prices().highest("openai/gpt-4o-mini", "http://localhost:1/v1") is None


def test_an_answer_without_usage_counts_as_much_as_it_may_have_taken() -> None:
    with Server([Say("x", usage=False)]) as server:
        models = make(server, prices=DOLLAR)
        call = models.store[ask(models).call]
    assert (call.tokens_in, call.tokens_out, call.usd) == (None, None, None)
    assert call.charged_tokens > 64
    assert call.charged_usd
    assert models.store.cost([call.id]).usd is None


def test_a_budget_of_usd_needs_prices() -> None:
    with pytest.raises(ConfigError, match=r"prices=\{openai/scripted: \{input: USD.*budget\.tok"):
        make(budget=GenerationBudget(usd=1))
    with pytest.raises(ConfigError, match="No price of 'openai/b'"):
        make(usd=1.0, prices=DOLLAR, fallbacks=["openai/b"])


# ---- once


@pytest.mark.full
def test_an_interrupted_run_pays_nothing_twice(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from portkern.agent.llm.calls import Calls
from tests.test_models import ask, make
import tests.test_models

class At:
    url = sys.argv[1]

models = make(At(), store=Calls(Path(sys.argv[2])))
for n in range(6):
    ask(models, f"prompt {n}")
"""
    path = tmp_path / "calls.jsonl"

    def hang(body: Mapping[str, Any], n: int) -> Say:
        return Say(echo(body, n), delay_s=60 if n == 3 else 0)

    with Server(hang) as server:
        argv = [sys.executable, "-c", script, server.url, str(path)]
        process = subprocess.Popen(argv, cwd=ROOT)
        try:
            server.wait_for(4)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        store = Calls(path)
        assert len(store) == 3
        models = make(server, store=store)
        paid_before = models.meter.spent.tokens
        replies = [ask(models, f"prompt {n}") for n in range(6)]
        assert server.prompts == [f"prompt {n}" for n in (0, 1, 2, 3, 3, 4, 5)]
    assert [reply.text for reply in replies] == [f"re: prompt {n}" for n in range(6)]
    assert paid_before > 0
    assert models.meter.spent.tokens == sum(Call.charged_tokens for Call in Calls(path))
    assert [Call.id for Call in Calls(path)] == [f"s0/coder#{n}" for n in range(1, 7)]


def test_a_torn_line_was_never_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Server(["first", "again"]) as server:
        ask(make(server, store=Calls(path)))
        path.write_bytes(path.read_bytes()[:-9])
        assert ask(make(server, store=Calls(path))).text == "again"
    assert len(Calls(path)) == 1


def test_a_failed_call_is_made_again_when_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Server([refuse(500), "ok"]) as server:
        with pytest.raises(ModelDown):
            ask(make(server, store=Calls(path), retries=0))
        assert ask(make(server, store=Calls(path))).text == "ok"
    store = Calls(path)
    assert [bool(one.error) for one in store] == [True, False]
    assert store["s0/coder#1"].reply == "ok"
    assert store.total.tokens_out == store["s0/coder#1"].tokens_out


def test_a_recording_is_replayed_without_a_server(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    with Server(["a", refuse(500), "b", refuse(400, "odd"), Say("c", finish="length")]) as server:
        models = make(server, store=Calls(recorded / "calls.jsonl"))
        told = [_outcome(models, f"prompt {n}") for n in range(4)]
    assert [kind for kind, _ in told] == ["Reply", "Reply", "ModelError", "Reply"]
    files = []
    for name in ("one", "two"):
        path = tmp_path / name / "calls.jsonl"
        again = make(store=Calls(path), replay=Calls.recorded(recorded))
        assert [_outcome(again, f"prompt {n}") for n in range(4)] == told
        assert again.meter.spent.tokens == models.meter.spent.tokens
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert {Call.source for Call in Calls(tmp_path / "one" / "calls.jsonl")} == {"replay"}


def _outcome(models: Models, text: str) -> tuple[str, str]:
    try:
        reply = ask(models, text)
    except ModelError as error:
        return "ModelError", str(error)
    return "Reply", str(reply)


def test_what_was_not_recorded_says_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Server(["a"]) as server:
        ask(make(server, store=Calls(path)))
    replay = Calls.recorded(path)
    for options, text, told in (
        ({}, "another prompt", "text: its prompt (write@1)"),
        ({"max_tokens": 65}, "hello", "max_tokens: 64, now 65"),
        ({"seed": 1}, "hello", "seed: "),
        ({"model": "openai/other"}, "hello", "model: openai/scripted, now openai/other"),
    ):
        with pytest.raises(ModelError) as caught:
            ask(make(replay=replay, **options), text)
        assert "'s0/coder#1' is not in" in str(caught.value)
        assert told in str(caught.value)
    with pytest.raises(ModelError, match="this one took another course"):
        ask(make(replay=replay), scope="s9")
    with pytest.raises(ConfigError, match=r"expected a calls\.jsonl or its folder"):
        Calls.recorded(tmp_path / "none")


def test_a_replay_ends_where_the_recorded_budget_did(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Server(echo) as server:
        models = make(server, store=Calls(path), budget=GenerationBudget(tokens=150))
        ask(models)
        with pytest.raises(BudgetSpent):
            ask(models, "x" * 200)
    again = make(replay=Calls.recorded(path), budget=GenerationBudget(tokens=150))
    ask(again)
    with pytest.raises(BudgetSpent):
        ask(again, "x" * 200)


def test_the_cache_answers_other_runs_for_nothing(tmp_path: Path) -> None:
    cache = CallCache(tmp_path / "cache")
    with Server(["a", "b", "c"]) as server:
        assert ask(make(server, cache=cache, prices=DOLLAR)).text == "a"
        models = make(server, cache=cache, prices=DOLLAR, budget=GenerationBudget(tokens=0))
        assert ask(models).text == "a"
        call = models.store["s0/coder#1"]
        assert (call.source, call.usd, call.tokens_in, call.charged_tokens) == ("cache", 0, 0, 0)
        assert (models.meter.spent.tokens, models.meter.spent.usd) == (0, 0)
        assert ask(make(server, cache=cache, seed=1)).text == "b"
        assert ask(make(server)).text == "c"
    with Server(["of another server"]) as other:
        assert ask(make(other, cache=cache)).text == "of another server"


def test_a_damaged_entry_of_the_cache_is_as_good_as_none(tmp_path: Path) -> None:
    cache = CallCache(tmp_path)
    with Server(["a", "b"]) as server:
        ask(make(server, cache=cache))
        [entry] = tmp_path.iterdir()
        entry.write_text(entry.read_text()[:50])
        assert ask(make(server, cache=cache)).text == "b"
    assert [one.name for one in tmp_path.iterdir()] == [entry.name]


def test_a_file_that_is_not_portkerns_says_which_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text('{"schema": 1, "id": 3}\n')
    with pytest.raises(RecordError, match=r"calls\.jsonl:1: id: "):
        Calls(path)
    with pytest.raises(RecordError, match="schema 9, this portkern reads 1"):
        ModelCall.from_json('{"schema": 9}')


# ---- configuration


def test_a_role_is_a_model_or_its_options() -> None:
    found = roles({"coder": "openai/a", "critic": {"model": "openai/b", "retries": 0}, "x": None})
    assert found == {"coder": Role(model="openai/a"), "critic": Role(model="openai/b", retries=0)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "m", "temprature": 1}, "did you mean 'temperature'"),
        ({"retries": 1}, r"models\.coder\.model: Field required"),
        ({"model": "m", "retries": -1}, r"models\.coder\.retries: .*greater than or equal to 0"),
        ({"model": "m", "extra": {"api_key": KEY}}, "'api_key' looks like a key; name its"),
        ({"model": "m", "extra": {"extra_headers": {"Authorization": KEY}}}, "looks like a key"),
        ({"model": "m", "extra": {"stream": True}}, "'stream' cannot be sent along"),
    ],
)
def test_a_wrong_option_is_told_without_its_value(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        Role.of("coder", options)
    assert KEY not in str(caught.value)


def test_a_price_is_per_million_tokens() -> None:
    assert Prices.of({"m": {"input": 2, "output": 10}}).known["m"].usd(1000, 100) == 0.003
    with pytest.raises(ConfigError, match="Got 3 as the price of 'm'"):
        Prices.of({"m": 3})


def test_without_litellm_it_says_how_to_get_it() -> None:
    code = """
import sys; sys.modules["litellm"] = None
from portkern.agent.llm.completion import Completion, Endpoint, complete, litellm
litellm()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "pip install 'portkern[llm]'" in done.stderr.splitlines()[-1]


# ---- keys


def test_a_key_is_sent_where_it_belongs_and_found_nowhere_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_LLM", KEY)
    monkeypatch.setenv("OTHER_API_KEY", "another-secret-value")
    caplog.set_level(logging.DEBUG)

    def indiscreet(body: Mapping[str, Any], n: int) -> Say:
        leak = f"you sent Bearer {KEY} or {KEY[:8]}****{KEY[-4:]}"
        return [Say(leak, reasoning=leak), refuse(500, leak), refuse(401, leak)][n]

    path = tmp_path / "calls.jsonl"
    with Server(indiscreet) as server:
        models = make(server, store=Calls(path), cache=CallCache(tmp_path), api_key_env="MY_LLM")
        reply = ask(models, "a log with another-secret-value in it")
        with pytest.raises(ModelError) as caught:
            ask(models)
    assert [request.headers["authorization"] for request in server.requests] == [
        f"Bearer {KEY}"
    ] * 3
    assert server.prompts[0] == "a log with [OTHER_API_KEY] in it"
    written = "".join(one.read_text() for one in tmp_path.iterdir())
    told = f"{reply}{caught.value}{caplog.text}{models.role('coder')!r}{written}"
    assert capfd.readouterr() == ("", "")
    assert KEY not in told
    assert KEY[-4:] not in str(caught.value)
    assert "another-secret-value" not in told
    assert "MY_LLM" in reply.text
    assert caught.value.__cause__ is None


def test_a_server_of_ones_own_is_not_sent_a_providers_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server(["x"]) as server:
        ask(make(server))
        assert server.requests[0].headers["authorization"] == "Bearer none"


def test_a_key_that_is_not_set_is_told_before_the_run() -> None:
    os.environ.pop("MY_LLM", None)
    with pytest.raises(ConfigError, match="variable 'MY_LLM' is not set"):
        make(api_key_env="MY_LLM")
    make(api_key_env="MY_LLM", replay=Calls())


def test_short_values_are_not_taken_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "float")
    assert keys.redact("float x;") == "float x;"
