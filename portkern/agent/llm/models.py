"""Asks language models in the name of slots. Every call has a name and a seed of its own, so that a
run can be replayed, and is paid once, whatever interrupts it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from portkern.agent.axes import PromptMessage, Reply
from portkern.agent.budget import Meter
from portkern.agent.llm import caps, keys
from portkern.agent.llm.calls import CallCache, Calls, ModelCall, ModelRequest
from portkern.agent.llm.completion import Complete, complete
from portkern.agent.llm.prices import Prices
from portkern.agent.llm.role import DEFAULT, Role
from portkern.agent.llm.service import Service
from portkern.errors import BudgetSpent, ConfigError, ModelDown, ModelError, PortkernError

_SEEDS: Final = 2**31  # some providers take a signed 32-bit seed


class Models:
    """An answer is taken from the first that has it: the run's own ``store``; the recording
    ``replay``, beside which nothing else is asked; the ``cache`` of all runs, where it costs
    nothing; a model. It is in the store, on disk, before anybody has it.

    Requests are sent by ``complete``. What the store holds already is charged to ``meter``, whose
    owner adds attempts and seconds. Belongs to one event loop. Raises ConfigError for a key or a
    price that is missing.
    """

    def __init__(
        self,
        roles: Mapping[str, Role],
        *,
        store: Calls | None = None,
        meter: Meter | None = None,
        seed: int = 0,
        prices: Prices | None = None,
        replay: Calls | None = None,
        cache: CallCache | None = None,
        complete: Complete = complete,
    ) -> None:
        self.store = Calls() if store is None else store
        self.meter = meter or Meter()
        self._seed, self._replay, self._cache = seed, replay, cache
        self._services = {
            name: Service(
                name,
                role,
                prices=prices or Prices(),
                meter=Meter(role.budget, name=f"models.{name}", within=self.meter),
                complete=complete,
            )
            for name, role in roles.items()
        }
        self._key_names = {role.api_key_env for role in roles.values()} - {""}
        self._scopes: dict[str, ModelScope] = {}
        self._out: set[asyncio.Task[ModelCall]] = set()
        #: The first error after which no call can succeed, such as a key that is not taken.
        self.dead = ""
        for call in self.store:
            service = self._services.get(call.role) or self._services.get(DEFAULT)
            charged = service.meter if service else self.meter
            charged.charge(tokens=call.charged_tokens, usd=call.charged_usd)
        if replay is None:
            for name in self._key_names:
                keys.lookup(name)
            for service in self._services.values():
                service.check_prices()

    def caller(self, scope: str) -> ModelScope:
        """The caller in whose name calls are made, such as a slot's; the same one for the same
        scope."""
        return self._scopes.setdefault(scope, ModelScope(self, scope))

    def role(self, name: str) -> Role:
        """The model that plays the role of that name, with its settings. Raises ConfigError."""
        return self._service(name).role

    def request(
        self,
        name: str,
        role: str,
        messages: Sequence[PromptMessage],
        prompt: str,
        temperature: float | None,
    ) -> ModelRequest:
        """The call of that name as it is sent and recorded: without keys."""
        asked = self.role(role)
        params: dict[str, object] = {
            "max_tokens": caps.sent(asked),
            "seed": self._call_seed(asked, name),
            "temperature": asked.temperature if temperature is None else temperature,
            "top_p": asked.top_p,
            **asked.extra,
        }
        return ModelRequest(
            name,
            role,
            asked.model,
            tuple(PromptMessage(message.role, self._clean(message)) for message in messages),
            {key: value for key, value in params.items() if value is not None},
            prompt,
        )

    async def answer(self, request: ModelRequest) -> Reply:
        """Raises ModelError, ModelDown and BudgetSpent."""
        known = self.store.of(request)
        if known is not None and not known.error:
            return known.answer
        call = self._recorded(request)
        if call:
            self.store.add(call)
        else:
            asked = asyncio.create_task(self._ask(request))
            self._out.add(asked)
            asked.add_done_callback(self._out.discard)
            call = await asked
        if call.error:
            raise self._error(call)
        return call.answer

    async def close(self, why: str) -> None:
        """No more requests are made. Those that are out are waited for: they are paid, and whoever
        goes on from here finds their replies."""
        for service in self._services.values():
            service.closed = service.closed or why
        if self._out:
            await asyncio.wait(self._out)

    async def _ask(self, request: ModelRequest) -> ModelCall:
        call = await self._service(request.role).call(request)
        self.store.add(call)
        if self._cache and call.answered == call.model:
            self._cache.put(call, self.role(request.role).api_base)
        return call

    def _error(self, call: ModelCall) -> PortkernError:
        if not call.down:
            self.dead = self.dead or (call.error if call.final else "")
            return ModelError(call.error, final=call.final)
        if self.meter.exhausted:  # there was no time left to wait for it
            return BudgetSpent(self.meter.exhausted)
        return ModelDown(call.error)

    def _recorded(self, request: ModelRequest) -> ModelCall | None:
        if self._replay is not None:
            return self._replayed(request, self._replay)
        if self._cache is None:
            return None
        kept = self._cache.get(request, self.role(request.role).api_base)
        return kept and kept.again(request, "cache")

    def _replayed(self, request: ModelRequest, replay: Calls) -> ModelCall:
        service = self._service(request.role)
        kept = replay.of(request)
        if kept is None:
            # Where the budget of the recorded run ended, this one's does too.
            service.reserve(request, request.model).settle(tokens=0, usd=0.0)
            why = f"Cannot replay: {replay.why_missing(request)}; run as it was recorded, or "
            self.dead = self.dead or f"{why}without replay="
            raise ModelError(f"{why}without replay=", final=True)
        with service.meter.reserve(tokens=kept.charged_tokens, usd=kept.charged_usd):
            return kept.again(request, "replay")

    def _service(self, role: str) -> Service:
        service = self._services.get(role) or self._services.get(DEFAULT)
        if service is None:
            raise ConfigError(
                f"No model plays {role!r}; name one by models.{role}= or, for all roles, "
                f"models.{DEFAULT}="
            )
        return service

    def _call_seed(self, role: Role, name: str) -> int:
        if role.seed is None:
            return _stable(f"{self._seed} {name}")
        return (role.seed + _stable(name)) % _SEEDS

    def _clean(self, message: PromptMessage) -> str:
        text = message.content.encode(errors="replace").decode()
        return keys.redact(text, self._key_names)


class ModelScope:
    """A :class:`portkern.agent.axes.Caller`. Its calls are numbered in the order in which they are
    asked, not answered."""

    def __init__(self, models: Models, name: str) -> None:
        self.name, self._models = name, models
        self._count: Counter[str] = Counter()
        self._names: list[str] = []
        self._inner: dict[str, ModelScope] = {}

    async def ask(
        self,
        role: str,
        messages: Sequence[PromptMessage],
        *,
        prompt: str = "",
        temperature: float | None = None,
    ) -> Reply:
        self._count[role] += 1
        name = f"{self.name}/{role}#{self._count[role]}"
        self._names.append(name)
        return await self._models.answer(
            self._models.request(name, role, messages, prompt, temperature)
        )

    def within(self, name: str) -> ModelScope:
        return self._inner.setdefault(name, self._models.caller(f"{self.name}.{name}"))

    @property
    def calls(self) -> Sequence[str]:
        """The names of its calls that have a line in the store, also of those that failed."""
        return [name for name in self._all() if name in self._models.store]

    def _all(self) -> Iterator[str]:
        return chain(self._names, *(inner._all() for inner in self._inner.values()))


def _stable(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % _SEEDS
