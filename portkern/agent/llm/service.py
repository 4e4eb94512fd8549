"""Answers the requests of one role: repeats what may pass, and asks its fallbacks in turn."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from portkern.agent.budget import Held, Meter
from portkern.agent.llm import caps
from portkern.agent.llm.calls import ModelCall, ModelRequest
from portkern.agent.llm.completion import (
    Complete,
    Completion,
    CompletionFailure,
    Endpoint,
    complete,
)
from portkern.agent.llm.prices import Prices
from portkern.agent.llm.role import Role
from portkern.errors import BudgetSpent, ConfigError, ModelDown

if TYPE_CHECKING:
    from tenacity import RetryCallState

_LONGEST_PAUSE_S = 60.0
#: A request takes seconds, so there is time to look again what is left once another has ended.
_LOOK_AGAIN_S = 0.02


class _Trying:
    """The requests that were made for one call, and what became of them."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        self.reasons: list[str] = []
        self.requests, self.tokens, self.usd = 0, 0, 0.0
        self.priced = True
        #: Whether it may be answered later: a model was away, or there was no time to ask again.
        self.down = False

    def charge(self, tokens: int, usd: float | None) -> None:
        self.requests += 1
        self.tokens += tokens
        self.usd += usd or 0.0
        self.priced = self.priced and usd is not None

    @property
    def charged_usd(self) -> float | None:
        return self.usd if self.priced else None


class Service:
    """``meter`` is the role's own, within the run's. ``closed`` says why it makes no more requests.
    Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        role: Role,
        *,
        prices: Prices,
        meter: Meter,
        complete: Complete = complete,
    ) -> None:
        self.name, self.role, self.meter, self._complete = name, role, meter, complete
        self._prices, self.closed = prices, ""
        self._slots = asyncio.Semaphore(role.concurrency)

    def check_prices(self) -> None:
        """Raises ConfigError when a limit of USD cannot be kept."""
        for model in self.role.models:
            api_base, _ = self.role.place(model)
            if not self.meter.limits_usd or self._prices.highest(model, api_base) is not None:
                continue
            if self.role.is_agent and self.role.usd is None:
                raise ConfigError(
                    f"Got a budget of USD and the agent {model!r}, whose cost is its own to keep: "
                    "give it usd=, the most that one sample may cost"
                )
            if not self.role.is_agent:
                raise ConfigError(
                    f"No price of {model!r} is known, so that a budget of USD cannot be kept; give "
                    f"prices={{{model}: {{input: USD, output: USD}}}} per million tokens, or limit "
                    "budget.tokens instead"
                )

    def reserve(self, request: ModelRequest, model: str) -> Held:
        """The most that one request can take. Raises BudgetSpent."""
        tokens_in, tokens_out = request.tokens_at_most, caps.at_most(self.role, model)
        price = self._prices.highest(model, self.role.place(model)[0])
        usd = price.usd(tokens_in, tokens_out) if price else self._allowance
        return self.meter.reserve(tokens=tokens_in + tokens_out, usd=usd)

    async def call(self, request: ModelRequest) -> ModelCall:
        """Asks the role's models, and returns the call, with its error when no model answered.
        Raises BudgetSpent and ModelDown before a request was made.

        A call keeps its turn during pauses: when the service wants to be asked less often, the
        next one would only be refused as well. After one that was asked for in vain, those that
        wait for their turn are not made: each would take as long to find out.
        """
        trying, last = _Trying(request), CompletionFailure("")
        async with self._slots:
            for model in self.role.models:
                try:
                    outcome = await self._persist(model, trying)
                except (BudgetSpent, ModelDown) as error:
                    if not trying.reasons:
                        raise
                    trying.reasons.append(str(error))
                    trying.down = True
                    break
                if isinstance(outcome, Completion):
                    return self._answered(outcome, model, trying)
                last = outcome
                trying.down = trying.down or outcome.down
                if not outcome.again:
                    break
            failed = self._failed(last, trying)
            if failed.down and not self.meter.exhausted:  # otherwise it is the run that ends
                self.closed = self.closed or failed.error
        return failed

    async def _persist(self, model: str, trying: _Trying) -> Completion | CompletionFailure:
        try:
            import tenacity
        except ModuleNotFoundError as error:
            raise ConfigError(
                "Asking a model needs tenacity, which is not installed; pip install 'portkern[llm]'"
            ) from error
        backoff = tenacity.wait_random_exponential(
            multiplier=self.role.backoff_s, max=_LONGEST_PAUSE_S
        )

        def pause_s(state: RetryCallState) -> float:
            after_s = _failure_of(state).after_s
            # All who were refused at once would come back at once.
            return backoff(state) if after_s is None else after_s * random.uniform(1.0, 1.1)

        def give_up(state: RetryCallState) -> bool:
            over = state.attempt_number > self.role.retries
            return over or state.upcoming_sleep > self._patience_s()

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(
                lambda error: isinstance(error, CompletionFailure) and error.again
            ),
            wait=pause_s,
            stop=give_up,
            sleep=self._pause,
            retry_error_callback=_failure_of,
        )
        return await retrying(self._once, model, trying)

    async def _pause(self, seconds: float) -> None:
        """Ends where it has become of no use."""
        end = time.monotonic() + seconds
        while not self.closed and (left_s := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, _LOOK_AGAIN_S))

    async def _once(self, model: str, trying: _Trying) -> Completion | CompletionFailure:
        request, (api_base, key) = trying.request, self.role.place(model)
        with await self._hold(request, model) as held:
            timeout_s = self._patience_s()
            if timeout_s <= 0:
                held.settle(tokens=0, usd=0.0)
                raise BudgetSpent(self.meter.exhausted)
            outcome = await self._complete(
                Endpoint(model, self.name, api_base, key),
                request.messages,
                request.params,
                timeout_s=timeout_s,
            )
            tokens, usd = self._bill(outcome, model, held)
            held.settle(tokens=tokens, usd=usd)
        trying.charge(tokens, usd)
        if isinstance(outcome, CompletionFailure):
            trying.reasons.append(outcome.reason)
        return outcome

    async def _hold(self, request: ModelRequest, model: str) -> Held:
        """Waits as long as other calls hold what they may not need."""
        while not self.closed:
            try:
                return self.reserve(request, model)
            except BudgetSpent:
                if not self.meter.out:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)
        raise ModelDown(self.closed)

    def _bill(
        self, outcome: Completion | CompletionFailure, model: str, held: Held
    ) -> tuple[int, float | None]:
        """The tokens and USD to charge for an outcome: those that are known, and for the rest
        the most that they can be."""
        if isinstance(outcome, CompletionFailure):
            return (held.tokens, held.usd) if outcome.lost else (0, 0.0)
        tokens_in, tokens_out = outcome.tokens_in, outcome.tokens_out
        usd = self._usd(outcome, model)
        tokens = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
        return held.tokens if tokens is None else tokens, held.usd if usd is None else usd

    @property
    def _allowance(self) -> float | None:
        """The most that an agent's sample may cost; None for a model."""
        return self.role.usd if self.role.is_agent else None

    def _usd(self, answer: Completion, model: str) -> float | None:
        if self.role.is_agent:
            return answer.usd  # as it said itself
        return self._prices.charged(
            model, self.role.place(model)[0], answer.tokens_in, answer.tokens_out, answer.usd
        )

    def _patience_s(self) -> float:
        left_s = self.meter.left().wall_s
        return self.role.timeout_s if left_s is None else min(self.role.timeout_s, left_s)

    def _answered(self, answer: Completion, model: str, trying: _Trying) -> ModelCall:
        return ModelCall.of(
            trying.request,
            answered=model,
            snapshot=answer.snapshot,
            reply=answer.text,
            reasoning=answer.reasoning,
            finish=answer.finish,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            usd=self._usd(answer, model),
            seconds=answer.seconds,
            charged_tokens=trying.tokens,
            charged_usd=trying.charged_usd,
            retries=tuple(trying.reasons),
        )

    def _failed(self, last: CompletionFailure, trying: _Trying) -> ModelCall:
        down = trying.down and not last.final
        remedy = last.remedy or f"raise models.{self.name}.retries"
        if down:
            remedy = f"the same command goes on from here once it answers; or {remedy}"
        asked = f"{trying.requests} request{'s' if trying.requests > 1 else ''}"
        counted = Counter(trying.reasons)
        reasons = "; ".join(f"{r} ({n} times)" if n > 1 else r for r, n in counted.items())
        lost = bool(trying.tokens)
        return ModelCall.of(
            trying.request,
            final=last.final,
            down=down,
            error=f"No model answered call {trying.request.id!r} in {asked}: {reasons}; {remedy}",
            tokens_in=None if lost else 0,
            tokens_out=None if lost else 0,
            usd=None if lost else 0.0,
            charged_tokens=trying.tokens,
            charged_usd=trying.charged_usd,
            retries=tuple(trying.reasons),
        )


def _failure_of(state: RetryCallState) -> CompletionFailure:
    assert state.outcome is not None
    outcome = state.outcome.result()
    assert isinstance(outcome, CompletionFailure)
    return outcome
