"""The prices of models per token. An unknown price is None, never 0."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portkern.agent.llm.completion import litellm
from portkern.errors import ConfigError

_MILLION = 1e6
_OUTPUT = ("output_cost_per_token", "output_cost_per_reasoning_token")


class Price(BaseModel):
    """USD per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def usd(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.input + tokens_out * self.output) / _MILLION


@dataclass(frozen=True)
class Prices:
    """``known`` by litellm id come first, then the map that litellm brings along."""

    known: Mapping[str, Price] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Self:
        """Reads prices as ``prices`` of a configuration holds them. Raises ConfigError."""
        known = {}
        for model, value in options.items():
            try:
                known[model] = Price.model_validate(value)
            except ValidationError as error:
                raise ConfigError(
                    f"Got {value!r} as the price of {model!r}, expected {{input: USD, output: USD}}"
                    " per million tokens"
                ) from error
        return cls(known)

    def highest(self, model: str, api_base: str = "") -> Price | None:
        """The highest price that a request may be charged; None where it is unknown."""
        if model in self.known:
            return self.known[model]
        return _listed(listing(model, api_base))

    def charged(
        self,
        model: str,
        api_base: str,
        tokens_in: int | None,
        tokens_out: int | None,
        by_litellm: float | None,
    ) -> float | None:
        """The USD that one answer cost; None where they are unknown. ``by_litellm`` knows what
        cached and long prompts cost."""
        if tokens_in is None or tokens_out is None:
            return None
        if model in self.known:
            return self.known[model].usd(tokens_in, tokens_out)
        # litellm lists 0 where it does not know, such as for models of a subscription.
        return None if is_local(api_base) else by_litellm or None


def is_local(api_base: str) -> bool:
    """Whether it is this machine: such a server bears the name of any model, and charges nothing
    that a list would know."""
    host = urlsplit(api_base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def listing(model: str, api_base: str = "") -> Mapping[str, Any]:
    """The entry of a model in litellm's list; empty where it has none, or another of that name."""
    if is_local(api_base):
        return {}
    listed = litellm().model_cost
    provider, _, rest = model.partition("/")
    entry: Mapping[str, Any] = listed.get(model) or listed.get(rest) or {}
    same = model in listed or entry.get("litellm_provider") == provider
    return entry if same else {}


def _listed(entry: Mapping[str, Any]) -> Price | None:
    """The highest of its tiers, which begin at some length of the prompt."""
    tokens_in, tokens_out = (
        max((rate for name, rate in entry.items() if name.startswith(kinds)), default=0.0)
        for kinds in (("input_cost_per_token",), _OUTPUT)
    )
    if not tokens_in and not tokens_out:
        return None
    return Price(input=tokens_in * _MILLION, output=tokens_out * _MILLION)
